//! The report: the one structure that JSON, CSV and HTML are written from, so that all three carry the same numbers.
//!
//! Its JSON form is published as a schema (`docs/sipstone-report.schema.json`, generated from here). Fields are only ever
//! added; a change of meaning changes [`FORMAT`].

use crate::certs::KeyKind;
use crate::spec::{Auth, Close, Link, Links, Proxy, Scenario, TlsMode, TlsVersion, Transport};
use crate::tally::Example;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of the format.
pub const FORMAT: u32 = 1;

/// Everything that one command measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// [`FORMAT`].
    pub format: u32,
    /// Version of sipstone.
    pub version: String,
    /// `run`, `peak`, `suite` or `grid`.
    pub command: String,
    /// The command line, as it was given, without passwords.
    pub command_line: Vec<String>,
    /// RFC 3339, UTC.
    pub started_at: String,
    /// A label the user gave (`--label`), or the target.
    pub label: String,
    /// Whether `--quick` divided the times by ten.
    pub quick: bool,
    /// The machine that the generator ran on.
    pub generator_host: Host,
    /// Where the load went.
    pub target: String,
    /// How the server was watched, if it was.
    pub server: Option<ServerFacts>,
    /// The null server's rate at which this generator's limit was found, per scenario id, operations a second.
    pub calibration: BTreeMap<String, f64>,
    /// One per scenario or mix that was measured, in order.
    pub subjects: Vec<Subject>,
    /// The TLS grid, if that was measured; its configurations are subjects, too.
    #[serde(default)]
    pub grid: Option<crate::grid::report::Grid>,
    /// Kept connections, if they were measured.
    #[serde(default)]
    pub connect: Option<crate::connect::report::ConnectReport>,
    /// Everything that makes the measurement invalid; empty: valid. Exit code 3 when not.
    pub invalid: Vec<String>,
    /// What the reader should know: same host, quick, generator-bound, …
    pub remarks: Vec<String>,
}

/// A machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Host {
    /// Model name of its processor.
    pub processor: String,
    /// Processors that the system shows.
    pub cpus: u32,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Kernel release.
    pub kernel: String,
    /// Worker threads of the generator, all groups together.
    pub threads: u32,
    /// The agents, if there were any.
    pub agents: Vec<AgentFacts>,
}

/// One agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentFacts {
    /// Its address.
    pub address: String,
    /// Its clock minus the controller's, microseconds.
    pub clock_offset_us: i64,
    /// Shortest round trip to it, microseconds.
    pub round_trip_us: u64,
}

/// How the server was watched.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServerFacts {
    /// `cgroup`, `process tree`.
    pub method: String,
    /// The command, when sipstone started it.
    pub command: Option<String>,
    /// The process watched.
    pub pid: Option<u32>,
    /// CPUs it was pinned to.
    pub cpus: Vec<u16>,
    /// Whether it runs on the generator's host.
    pub same_host: bool,
}

/// One scenario or mix.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Subject {
    /// Its name: the scenario's id or the mix's.
    pub name: String,
    /// The classes with their weights.
    pub classes: Vec<ClassFacts>,
    /// Client authentication.
    pub auth: Auth,
    /// What the user said of the proxy.
    pub proxy: Proxy,
    /// How the load reached the server; absent in reports of before there was anything but UDP.
    #[serde(default)]
    pub links: Option<LinkFacts>,
    /// Name of the criterion: `ibm2007`, …
    pub criterion: String,
    /// The share of successes that the criterion asks for, 0 to 1; for the line in the plot.
    #[serde(default)]
    pub required_success: Option<f64>,
    /// Every trial, in the order made.
    pub trials: Vec<TrialReport>,
    /// What the search found, if one was made.
    pub peak: Option<Peak>,
    /// CPU time of the server per operation as the slope over all trials of the subject (at least two rates).
    pub cpu_slope: Option<Estimate>,
}

/// A class of a subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClassFacts {
    /// Its name.
    pub name: String,
    /// What it does.
    pub scenario: Scenario,
    /// Its weight.
    pub weight: f64,
    /// Expected messages per operation into the server (the stateful number where the proxy was `auto` and stateful).
    pub messages_in: u32,
    /// And out of it.
    pub messages_out: u32,
}

/// A number with its interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end of the 95 % interval.
    pub high: f64,
}

/// What a search found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Peak {
    /// Operations a second: the highest rate that passed and was confirmed.
    pub rate: f64,
    /// The 95 % interval: from the confirmed rate to the lowest one that failed.
    pub low: f64,
    /// See `low`.
    pub high: f64,
    /// Whether the generator's own limit is less than twice this.
    pub generator_bound: bool,
    /// The highest throughput of any trial, overload included, operations a second: what the papers that name no share
    /// of successes call the peak.
    pub highest_throughput: f64,
    /// What was tried, in order, for the search trace.
    pub trace: Vec<Step>,
    /// Trials that the search used, confirmation and overload not counted.
    pub search_trials: u32,
    /// Set if the search ended otherwise than by bracketing the peak: too slow at the lowest rate, limit of rate reached.
    pub ended: Option<String>,
}

/// One step of a search.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// `ramp`, `bisect`, `confirm`, `overload`.
    pub phase: String,
    /// Operations a second.
    pub rate: f64,
    /// `pass`, `fail`, `undecided`.
    pub verdict: String,
    /// Share of successes.
    pub success: f64,
    /// Index into the subject's trials.
    pub trial: u32,
}

/// One trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialReport {
    /// Why it was made: `run`, `ramp`, `bisect`, `confirm`, `overload`.
    pub phase: String,
    /// What everything random came from.
    #[serde(default)]
    pub seed: u64,
    /// Users that took part.
    #[serde(default)]
    pub users: u32,
    /// How the operations arrived: `poisson`, `uniform`, `burst:N`, `ramp:FROM`.
    #[serde(default)]
    pub shape: String,
    /// RFC 3261 T1, milliseconds: the first retransmission comes after this.
    #[serde(default)]
    pub t1_ms: f64,
    /// Offered rate that was asked for, operations a second.
    pub rate: f64,
    /// Planned starts within the window per second of it.
    pub offered_rate: f64,
    /// Successful ends within the window per second of it: what the server carried.
    pub throughput: f64,
    /// Warm-up, seconds.
    pub warm_up_s: f64,
    /// Window, seconds.
    pub measure_s: f64,
    /// The verdict by the criterion: `pass`, `fail`, `undecided`.
    pub verdict: String,
    /// Whether it was ended early because the verdict was certain.
    pub ended_early: bool,
    /// All classes together.
    pub all: ClassReport,
    /// Each class.
    pub classes: Vec<ClassReport>,
    /// CPU time of the server per completed operation over the window, microseconds.
    pub cpu_us_per_op: Option<f64>,
    /// Of that, in user mode, where the source tells.
    pub cpu_user_us_per_op: Option<f64>,
    /// CPU of the server over the window, in cores (1.0: one core busy).
    pub cpu_cores: Option<f64>,
    /// The generator's own.
    pub generator: GeneratorReport,
    /// Connections and TLS handshakes of the measured window; absent over UDP.
    #[serde(default)]
    pub connections: Option<ConnectionReport>,
    /// Second by second, from the start of the warm-up to the end of the drain.
    pub series: Vec<Second>,
    /// The empirical distribution of setup times from the planned start, for the plot: microseconds and the share of
    /// attempts (failed ones in the denominator) that took at most this long. At most 400 points.
    pub cdf: Vec<(f64, f64)>,
    /// Traces and first failures.
    pub examples: Vec<Example>,
    /// What makes it invalid.
    pub invalid: Vec<String>,
}

/// One class of one trial, or all together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClassReport {
    /// Its name; `all` for the sum.
    pub name: String,
    /// Planned in the window.
    pub offered: u64,
    /// Succeeded.
    pub succeeded: u64,
    /// Failed, by cause.
    pub failures: BTreeMap<String, u64>,
    /// succeeded / offered.
    pub success: f64,
    /// One-sided Wilson bounds of that at 95 %.
    pub success_low: f64,
    /// See `success_low`.
    pub success_high: f64,
    /// From the planned start; failed attempts count as infinite: a quantile among them is `null`.
    pub latency_planned: LatencyReport,
    /// From the actual send; successes only.
    pub latency_sent: LatencyReport,
    /// INVITE to the first 18x.
    pub first_18x: Option<LatencyReport>,
    /// BYE to 200.
    pub bye: Option<LatencyReport>,
    /// Messages per successful operation into the server.
    pub messages_in: f64,
    /// Messages per successful operation out of the server.
    pub messages_out: f64,
    /// Share of INVITEs that got a 100.
    pub trying: f64,
    /// Messages sent again, per offered operation.
    pub retransmissions_sent: f64,
    /// Messages received again, per offered operation.
    pub retransmissions_received: f64,
}

/// Quantiles in milliseconds; `null` where the attempts that count as infinite begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyReport {
    /// How many times were recorded.
    pub count: u64,
    /// Mean of the recorded.
    pub mean_ms: Option<f64>,
    /// Quantiles.
    pub p50_ms: Option<f64>,
    /// See `p50_ms`.
    pub p90_ms: Option<f64>,
    /// See `p50_ms`.
    pub p95_ms: Option<f64>,
    /// See `p50_ms`.
    pub p99_ms: Option<f64>,
    /// See `p50_ms`.
    pub p999_ms: Option<f64>,
    /// Longest recorded.
    pub max_ms: Option<f64>,
}

/// The generator in one trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GeneratorReport {
    /// CPU time of its threads over their time on the wall, 0 to 1.
    pub utilisation: f64,
    /// Median of planned start to sent, milliseconds.
    pub send_lag_p50_ms: Option<f64>,
    /// 99th percentile.
    pub send_lag_p99_ms: Option<f64>,
    /// Longest.
    pub send_lag_max_ms: Option<f64>,
    /// Median time that a callee took to answer an INVITE, milliseconds: our own share of the setup time.
    pub callee_turnaround_p50_ms: Option<f64>,
    /// Its 99th percentile.
    pub callee_turnaround_p99_ms: Option<f64>,
    /// Datagrams its sockets lost.
    pub socket_drops: u64,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Datagrams received.
    pub datagrams_received: u64,
    /// Datagrams that belonged to nothing.
    pub strays: u64,
}

/// Connections in one trial's window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConnectionReport {
    /// Opened by sipstone.
    pub opened: u64,
    /// Opened by the server, to callees.
    pub accepted: u64,
    /// Closed by sipstone.
    pub closed: u64,
    /// Closed by the server.
    pub closed_by_server: u64,
    /// From the beginning of the connect until the connection stood.
    pub connect: LatencyReport,
    /// TLS handshakes with sipstone as the client.
    pub tls_client: HandshakeReport,
    /// And as the server.
    pub tls_server: HandshakeReport,
    /// Handshakes by what was agreed on: version and cipher suite.
    pub suites: BTreeMap<String, u64>,
    /// Connections that could not be made, or broke, by cause.
    pub failures: BTreeMap<String, u64>,
    /// Not opened because no source port was free.
    pub ports_exhausted: u64,
    /// Not opened or accepted because of the limit of open files.
    pub files_exhausted: u64,
    /// Messages for connections that the server had closed before.
    pub undeliverable: u64,
}

/// TLS handshakes of one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HandshakeReport {
    /// With certificates and key exchange.
    pub full: u64,
    /// Of a session that there was.
    pub resumed: u64,
    /// From the connection to the end of the handshake.
    pub time: LatencyReport,
}

/// How a side reached the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SideFacts {
    /// What its messages travelled in.
    pub transport: Transport,
    /// `single`, `pool:N`, `per-call`, `per-transaction`; absent over UDP.
    pub connections: Option<String>,
}

/// How the load reached the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkFacts {
    /// The callers' side.
    pub caller: SideFacts,
    /// The callees'.
    pub callee: SideFacts,
    /// Who closed connections that did not stay.
    pub close: Close,
    /// Which TLS handshakes were asked for, where a side had TLS.
    pub tls: Option<TlsFacts>,
}

/// What was asked of TLS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TlsFacts {
    /// Which handshakes.
    pub mode: TlsMode,
    /// The only version, if one was asked for.
    pub version: Option<TlsVersion>,
    /// The only cipher suite, if one was asked for.
    pub cipher: Option<String>,
    /// The kind of key of sipstone's certificates.
    pub key: KeyKind,
    /// Whether the server's certificate was verified.
    pub verified: bool,
}

impl LinkFacts {
    /// Of a workload's links.
    #[must_use]
    pub fn of(links: &Links) -> LinkFacts {
        let side = |link: Link| SideFacts {
            transport: link.transport,
            connections: link.transport.is_stream().then(|| link.connections.to_string()),
        };
        let tls = &links.tls;
        LinkFacts {
            caller: side(links.caller),
            callee: side(links.callee),
            close: links.close,
            tls: links.any_tls().then(|| TlsFacts {
                mode: tls.mode,
                version: tls.version,
                cipher: tls.cipher.clone(),
                key: tls.key,
                verified: tls.authorities.is_some(),
            }),
        }
    }
}

/// One second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Second {
    /// Counted from the start of the warm-up; the window begins at `warm_up_s`.
    pub second: u32,
    /// Operations planned.
    pub offered: u64,
    /// Ended well.
    pub succeeded: u64,
    /// Ended otherwise.
    pub failed: u64,
    /// Open at its end.
    pub open: u64,
    /// Quantiles of those that ended well, from the planned start, milliseconds.
    pub p50_ms: Option<f64>,
    /// See `p50_ms`.
    pub p99_ms: Option<f64>,
    /// Sent again.
    pub retransmissions: u64,
    /// The generator's utilisation, 0 to 1.
    pub generator: f64,
    /// 99th percentile of planned start to sent, milliseconds; absent in reports of before it was recorded.
    #[serde(default)]
    pub send_lag_p99_ms: Option<f64>,
    /// The server in this second, if watched.
    pub server: Option<ServerSecond>,
}

/// The server in one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServerSecond {
    /// CPU time, in cores.
    pub cpu_cores: f64,
    /// Of that, in user mode.
    pub cpu_user_cores: Option<f64>,
    /// Resident memory, bytes.
    pub resident_bytes: u64,
    /// Open descriptors.
    pub descriptors: Option<u32>,
    /// Datagrams that the server's sockets lost in this second.
    pub udp_drops: Option<u64>,
    /// Context switches in this second, voluntary and forced.
    pub context_switches: Option<u64>,
    /// Threads.
    pub threads: u32,
}
