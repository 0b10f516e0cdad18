//! What workers count, and how the counts of workers, seconds and hosts are added up without loss.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest recorded time, in microseconds: two minutes. Longer ones count as this.
pub const LONGEST_US: u64 = 120_000_000;

/// Most classes of a workload; what is read from elsewhere with more of them is refused, for each takes about 600 kB.
pub const CLASSES_MAX: usize = 64;

/// Times in microseconds at three significant digits, exact when merged.
#[derive(Clone, Debug, PartialEq)]
pub struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Times {
        Times(
            Histogram::new_with_bounds(1, LONGEST_US, 3)
                .expect("invariant: the bounds are constants and valid"),
        )
    }
}

impl Times {
    /// Records one time; zero counts as one microsecond.
    pub fn record_us(&mut self, us: u64) {
        self.0.saturating_record(us.clamp(1, LONGEST_US));
    }

    /// Records one time.
    pub fn record(&mut self, time: Duration) {
        self.record_us(u64::try_from(time.as_micros()).unwrap_or(LONGEST_US));
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The value at a quantile (0 to 1), in microseconds; `None` when empty.
    #[must_use]
    pub fn quantile_us(&self, quantile: f64) -> Option<u64> {
        (!self.0.is_empty()).then(|| self.0.value_at_quantile(quantile))
    }

    /// The quantile when `lost` more attempts never ended and count as infinitely long; `None` when it falls among
    /// those, or when there is nothing at all.
    #[must_use]
    pub fn quantile_with_lost_us(&self, quantile: f64, lost: u64) -> Option<u64> {
        let all = self.count() + lost;
        let rank = ((quantile * all as f64).ceil() as u64).max(1);
        (rank <= self.count()).then(|| self.0.value_at_quantile(rank as f64 / self.count() as f64))
    }

    /// Arithmetic mean in microseconds; `None` when empty.
    #[must_use]
    pub fn mean_us(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.mean())
    }

    /// Longest, in microseconds; `None` when empty.
    #[must_use]
    pub fn max_us(&self) -> Option<u64> {
        (!self.0.is_empty()).then(|| self.0.max())
    }

    /// Adds another's times to these.
    pub fn merge(&mut self, other: &Times) {
        self.0.add(&other.0).expect("invariant: both have the same bounds");
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.reset();
    }

    /// The histogram itself, for iteration in reports.
    #[must_use]
    pub fn histogram(&self) -> &Histogram<u64> {
        &self.0
    }
}

/// Histograms travel as base64 of HdrHistogram's V2 encoding.
impl Serialize for Times {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use base64::Engine;
        use hdrhistogram::serialization::Serializer;
        let mut bytes = Vec::new();
        hdrhistogram::serialization::V2Serializer::new()
            .serialize(&self.0, &mut bytes)
            .map_err(|error| serde::ser::Error::custom(format!("histogram: {error:?}")))?;
        serializer.serialize_str(&base64::engine::general_purpose::STANDARD.encode(bytes))
    }
}

impl<'de> Deserialize<'de> for Times {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Times, D::Error> {
        use base64::Engine;
        use serde::de::Error;
        let text = String::deserialize(deserializer)?;
        let bytes = base64::engine::general_purpose::STANDARD.decode(text).map_err(D::Error::custom)?;
        if !is_ours(&bytes) {
            return Err(D::Error::custom("histogram: not one of sipstone's"));
        }
        let histogram: Histogram<u64> = hdrhistogram::serialization::Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|error| D::Error::custom(format!("histogram: {error:?}")))?;
        let mut times = Times::default();
        times.0.add(&histogram).map_err(|error| D::Error::custom(format!("histogram: {error:?}")))?;
        Ok(times)
    }
}

/// Whether this is an encoded histogram with the bounds of [`Times`], which its decoder may be given.
///
/// The decoder believes a stranger's numbers: it would reserve the memory for any bounds and any length, and negate the
/// smallest `i64`. So the header must be ours, the length must be what is there, and no number may have nine bytes (eight
/// carry counts up to 2^55).
fn is_ours(bytes: &[u8]) -> bool {
    const HEADER_BYTES: usize = 40;
    let Some((header, payload)) = bytes.split_at_checked(HEADER_BYTES) else { return false };
    let payload_bytes = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    let mut expected = Vec::with_capacity(HEADER_BYTES);
    expected.extend(0x1c84_9313_u32.to_be_bytes()); // V2, not compressed
    expected.extend(payload_bytes);
    expected.extend(0_u32.to_be_bytes()); // no offset
    expected.extend(3_u32.to_be_bytes()); // significant digits
    expected.extend(1_u64.to_be_bytes()); // lowest value
    expected.extend(LONGEST_US.to_be_bytes());
    expected.extend(1_f64.to_be_bytes()); // no scaling
    let longest = payload.split(|byte| *byte < 0x80).map(<[u8]>::len).max().unwrap_or(0);
    header == expected && longest < 8
}

/// Reads at most [`CLASSES_MAX`] classes.
fn few_classes<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<ClassTally>, D::Error> {
    struct Few;
    impl<'de> serde::de::Visitor<'de> for Few {
        type Value = Vec<ClassTally>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "at most {CLASSES_MAX} classes")
        }

        fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut classes = Vec::new();
            while let Some(class) = list.next_element()? {
                if classes.len() == CLASSES_MAX {
                    return Err(serde::de::Error::invalid_length(CLASSES_MAX + 1, &self));
                }
                classes.push(class);
            }
            Ok(classes)
        }
    }
    deserializer.deserialize_seq(Few)
}

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Failure {
    /// No final response in 64·T1 (RFC 3261 Timers B and F).
    Timeout,
    /// A final response that the scenario does not want.
    Status(u16),
    /// The right status with the wrong content: a contact that is not the registered one, a binding that stayed.
    WrongContent,
    /// A challenge that could not be met: an unknown algorithm, or refused credentials.
    Authentication,
    /// The generator's own table was full.
    GeneratorDropped,
    /// ICMP said that nothing listens there.
    Unreachable,
    /// Still open when the run ended.
    Unfinished,
    /// The connection was lost before the answer came.
    Connection,
    /// The server refused the connection, or could not be reached.
    ConnectRefused,
    /// TLS or WebSocket could not be agreed on.
    Handshake,
}

impl Failure {
    /// Its word in reports: `timeout`, `status-503`, …
    #[must_use]
    pub fn word(self) -> String {
        match self {
            Failure::Timeout => "timeout".into(),
            Failure::Status(status) => format!("status-{status}"),
            Failure::WrongContent => "wrong-content".into(),
            Failure::Authentication => "authentication".into(),
            Failure::GeneratorDropped => "generator-dropped".into(),
            Failure::Unreachable => "unreachable".into(),
            Failure::Unfinished => "unfinished".into(),
            Failure::Connection => "connection".into(),
            Failure::ConnectRefused => "connect-refused".into(),
            Failure::Handshake => "handshake".into(),
        }
    }

    /// The failure of a word.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Failure> {
        Some(match word {
            "timeout" => Failure::Timeout,
            "wrong-content" => Failure::WrongContent,
            "authentication" => Failure::Authentication,
            "generator-dropped" => Failure::GeneratorDropped,
            "unreachable" => Failure::Unreachable,
            "unfinished" => Failure::Unfinished,
            "connection" => Failure::Connection,
            "connect-refused" => Failure::ConnectRefused,
            "handshake" => Failure::Handshake,
            other => Failure::Status(other.strip_prefix("status-")?.parse().ok()?),
        })
    }
}

impl Serialize for Failure {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.word())
    }
}

impl<'de> Deserialize<'de> for Failure {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Failure, D::Error> {
        let word = String::deserialize(deserializer)?;
        Failure::of_word(&word)
            .ok_or_else(|| serde::de::Error::custom(format!("no failure is called {word:?}")))
    }
}

/// The latencies of one class, of successful operations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latencies {
    /// From the planned start to the answer that the scenario times (setup for calls, RRD for registrations).
    /// Failed attempts are not in it; add them as infinite with [`Times::quantile_with_lost_us`].
    pub from_planned: Times,
    /// The same from the moment the first request was handed to the socket.
    pub from_sent: Times,
    /// Calls: INVITE to the first 18x (session request delay, SRD).
    pub first_18x: Times,
    /// Calls: BYE to its 200 (session disconnect delay, SDD).
    pub bye: Times,
}

impl Latencies {
    /// Adds another's.
    pub fn merge(&mut self, other: &Latencies) {
        self.from_planned.merge(&other.from_planned);
        self.from_sent.merge(&other.from_sent);
        self.first_18x.merge(&other.first_18x);
        self.bye.merge(&other.bye);
    }
}

/// The counts of one class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassTally {
    /// Operations whose planned start has come.
    pub offered: u64,
    /// Ended well.
    pub succeeded: u64,
    /// Ended otherwise, by cause.
    pub failures: BTreeMap<Failure, u64>,
    /// Times of those that ended well.
    pub latencies: Latencies,
    /// Successful operations: messages towards the server (requests of the caller), each counted once however often it
    /// was sent.
    pub caller_messages_in: u64,
    /// Successful operations: messages from the server to the caller, each counted once.
    pub caller_messages_out: u64,
    /// Of those, 100 responses to an INVITE.
    pub trying: u64,
    /// Callee's side, dialogs (or MESSAGEs) that ended: messages towards the server, each once.
    pub callee_messages_in: u64,
    /// Callee's side: messages from the server, each once.
    pub callee_messages_out: u64,
    /// Callee's side: dialogs (or MESSAGEs) that ended.
    pub callee_ended: u64,
    /// Messages sent again because no answer came (RFC 3261 Timers A, E, G and the 2xx of a callee).
    pub retransmissions_sent: u64,
    /// Messages of the server that had been received before.
    pub retransmissions_received: u64,
}

impl ClassTally {
    /// Failed operations, of all causes.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    /// Adds another's.
    pub fn merge(&mut self, other: &ClassTally) {
        self.offered += other.offered;
        self.succeeded += other.succeeded;
        for (failure, count) in &other.failures {
            *self.failures.entry(*failure).or_default() += count;
        }
        self.latencies.merge(&other.latencies);
        self.caller_messages_in += other.caller_messages_in;
        self.caller_messages_out += other.caller_messages_out;
        self.trying += other.trying;
        self.callee_messages_in += other.callee_messages_in;
        self.callee_messages_out += other.callee_messages_out;
        self.callee_ended += other.callee_ended;
        self.retransmissions_sent += other.retransmissions_sent;
        self.retransmissions_received += other.retransmissions_received;
    }
}

/// One message of a traced operation, or of the first failure of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TracedMessage {
    /// Microseconds since the run's start.
    pub at_us: u64,
    /// Who had it: `caller` or `callee`.
    pub side: Side,
    /// Whether it went to the server or came from it.
    pub direction: Direction,
    /// Sent again, or received again.
    pub repeated: bool,
    /// The message, as text; bytes that are not UTF-8 are replaced.
    pub text: String,
}

/// The two ends of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// The end that began it.
    Caller,
    /// The end that was called.
    Callee,
}

/// Which way a message went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Towards the server.
    Sent,
    /// From the server.
    Received,
}

/// The messages of one operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Example {
    /// Its class.
    pub class: String,
    /// `None`: a trace that was asked for. `Some`: the first failure of this kind, its word.
    pub failure: Option<String>,
    /// In order of time. Of a failure, at least the request and the answer that decided.
    pub messages: Vec<TracedMessage>,
}

/// What the generator itself used and lost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GeneratorTally {
    /// CPU time of the worker threads, microseconds.
    pub cpu_us: u64,
    /// Time on the wall that they ran, all threads added, microseconds.
    pub wall_us: u64,
    /// From the planned start to the moment the system call that sent the first request returned.
    pub send_lag: Times,
    /// Datagrams that the generator's own sockets lost (receive queue full).
    pub socket_drops: u64,
    /// Datagrams sent and received, repeats included.
    pub datagrams_sent: u64,
    /// See `datagrams_sent`.
    pub datagrams_received: u64,
    /// Datagrams that were no SIP or belonged to no operation.
    pub strays: u64,
    /// INVITEs that the callees answered with 503 because their table was full.
    #[serde(default)]
    pub callees_refused: u64,
    /// ICMP errors: nothing listened where a datagram was sent.
    #[serde(default)]
    pub icmp_refused: u64,
    /// Time between a callee's receiving an INVITE and handing its first answer to the socket: our own share of the
    /// latency, not the server's.
    pub callee_turnaround: Times,
}

impl GeneratorTally {
    /// Adds another's.
    pub fn merge(&mut self, other: &GeneratorTally) {
        self.cpu_us += other.cpu_us;
        self.wall_us += other.wall_us;
        self.send_lag.merge(&other.send_lag);
        self.socket_drops += other.socket_drops;
        self.datagrams_sent += other.datagrams_sent;
        self.datagrams_received += other.datagrams_received;
        self.strays += other.strays;
        self.callees_refused += other.callees_refused;
        self.icmp_refused += other.icmp_refused;
        self.callee_turnaround.merge(&other.callee_turnaround);
    }
}

/// Most kinds of failure, and of what TLS agreed on, that are told apart; further ones are counted as `other`.
pub const KINDS_MAX: usize = 24;

/// TLS handshakes of one end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Handshakes {
    /// With certificates and key exchange.
    pub full: u64,
    /// Of a session that there was.
    pub resumed: u64,
    /// From the connection to the end of the handshake.
    pub time: Times,
}

impl Handshakes {
    /// Adds another's.
    pub fn merge(&mut self, other: &Handshakes) {
        self.full += other.full;
        self.resumed += other.resumed;
        self.time.merge(&other.time);
    }
}

/// What became of connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConnectionTally {
    /// Opened by sipstone.
    pub opened: u64,
    /// Opened by the server, to callees.
    pub accepted: u64,
    /// Closed by sipstone.
    pub closed: u64,
    /// Closed by the server.
    pub closed_by_server: u64,
    /// From the system call that began to connect until the connection stood.
    pub connect_time: Times,
    /// TLS handshakes in which sipstone was the client.
    pub client: Handshakes,
    /// And in which it was the server.
    pub server: Handshakes,
    /// Handshakes by what was agreed on: `TLSv1_3 TLS13_AES_256_GCM_SHA384`.
    pub suites: BTreeMap<String, u64>,
    /// Connections that could not be made, or broke, by cause.
    pub failures: BTreeMap<String, u64>,
    /// Connections that were not opened because no source port was free.
    pub ports_exhausted: u64,
    /// Connections that were not opened or accepted because this process may have no more files open.
    pub files_exhausted: u64,
    /// Messages for connections that the server had closed before.
    pub undeliverable: u64,
}

impl ConnectionTally {
    /// Adds another's.
    pub fn merge(&mut self, other: &ConnectionTally) {
        self.opened += other.opened;
        self.accepted += other.accepted;
        self.closed += other.closed;
        self.closed_by_server += other.closed_by_server;
        self.connect_time.merge(&other.connect_time);
        self.client.merge(&other.client);
        self.server.merge(&other.server);
        for (suite, count) in &other.suites {
            count_kind(&mut self.suites, suite, *count);
        }
        for (cause, count) in &other.failures {
            count_kind(&mut self.failures, cause, *count);
        }
        self.ports_exhausted += other.ports_exhausted;
        self.files_exhausted += other.files_exhausted;
        self.undeliverable += other.undeliverable;
    }
}

/// Counts a kind, or `other` when there are [`KINDS_MAX`] already.
pub(crate) fn count_kind(kinds: &mut BTreeMap<String, u64>, kind: &str, count: u64) {
    if let Some(known) = kinds.get_mut(kind) {
        *known += count;
        return;
    }
    let kind = if kinds.len() < KINDS_MAX { kind } else { "other" };
    *kinds.entry(kind.into()).or_default() += count;
}

/// What one worker counted: the events of one second, or the operations of the measured window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// In the order of the workload's classes.
    #[serde(deserialize_with = "few_classes")]
    pub classes: Vec<ClassTally>,
    /// The generator's own.
    pub generator: GeneratorTally,
    /// Operations begun and not ended, at the end of the second.
    pub open: u64,
    /// What became of connections; `None` over UDP.
    #[serde(default)]
    pub connections: Option<Box<ConnectionTally>>,
}

impl Tally {
    /// An empty one for this many classes.
    #[must_use]
    pub fn new(classes: usize) -> Tally {
        Tally { classes: vec![ClassTally::default(); classes], ..Tally::default() }
    }

    /// Adds another's; class by class.
    pub fn merge(&mut self, other: &Tally) {
        self.classes.resize_with(self.classes.len().max(other.classes.len()), ClassTally::default);
        for (mine, theirs) in self.classes.iter_mut().zip(&other.classes) {
            mine.merge(theirs);
        }
        self.generator.merge(&other.generator);
        self.open += other.open;
        if let Some(theirs) = &other.connections {
            self.connections.get_or_insert_default().merge(theirs);
        }
    }
}
