//! The controller's side: an agent as a [`Group`].
//!
//! One thread reads lines into a bounded queue, one sends a Ping every second. Events are parsed by whoever asks for them,
//! so that the queue's size is the size of its bytes.

use super::wire::{
    Answer, Broken, GREETING_BYTES_MAX, Got, Greeting, Lines, PROTOCOL, Writer, clock_us, shown, version,
};
use super::{Settings, check};
use crate::group::{Command, Event, Gone, Group};
use crate::report::model::AgentFacts;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Pings for the clock; the one with the shortest way counts, the others were delayed by something.
const CLOCK_PINGS: u64 = 16;

/// Tokens of heartbeats have this bit; their answers are not passed on.
const HEARTBEAT: u64 = 1 << 63;

/// Bytes that wait to be asked for, as a multiple of the longest line; past it the agent counts as gone, for it talks
/// more than any run has to say.
const QUEUED_LINES_MAX: usize = 2;

/// What a waiting line costs beside its bytes.
const LINE_OVERHEAD_BYTES: usize = 64;

/// How long a failed write looks for the reason among what was received.
const LAST_WORDS_WAIT: Duration = Duration::from_millis(300);

/// Longest wait that is taken literally.
const WAIT_MAX: Duration = Duration::from_secs(86_400);

/// What the reading thread says.
enum Heard {
    Line(Vec<u8>),
    End(String),
}

/// An agent on another host. Dropping it ends the connection, and so the agent's load.
pub struct RemoteGroup {
    address: String,
    version: String,
    clock: (i64, u64),
    writer: Arc<Writer>,
    heard: Receiver<Heard>,
    queued_bytes: Arc<AtomicUsize>,
    /// Dropped to end the thread that sends Pings.
    pinging: Option<Sender<()>>,
    threads: Vec<JoinHandle<()>>,
    gone: Option<String>,
}

impl RemoteGroup {
    /// Connects to an agent (`host:port`), makes itself known and measures the clock; all within `timeout`.
    ///
    /// # Errors
    /// A sentence: no such host, nothing listens, no agent, another version, a wrong token, an agent in use.
    pub fn connect(address: &str, token: Option<&str>, timeout: Duration) -> Result<RemoteGroup, String> {
        RemoteGroup::connect_with(address, token, timeout, &Settings::default())
    }

    /// [`connect`](RemoteGroup::connect) with other settings than the usual ones.
    ///
    /// # Errors
    /// As [`connect`](RemoteGroup::connect).
    pub fn connect_with(
        address: &str,
        token: Option<&str>,
        timeout: Duration,
        settings: &Settings,
    ) -> Result<RemoteGroup, String> {
        let deadline = Instant::now() + timeout.min(WAIT_MAX);
        let stream = open(address, deadline)?;
        let words = |error: io::Error| format!("agent {address}: {error}");
        let writer = Writer::new(stream.try_clone().map_err(words)?, settings).map_err(words)?;
        let mut lines = Lines::new(stream, GREETING_BYTES_MAX, settings).map_err(words)?;
        let version = greet(address, token, &writer, &mut lines, deadline)?;
        lines.allow(settings.line_bytes_max);
        let clock = measure_clock(&writer, &mut lines, deadline)
            .map_err(|why| format!("agent {address} does not answer: {why}"))?;
        Ok(RemoteGroup::begin(address, version, clock, writer, lines, settings))
    }

    fn begin(
        address: &str,
        version: String,
        clock: (i64, u64),
        writer: Writer,
        lines: Lines,
        settings: &Settings,
    ) -> RemoteGroup {
        let (writer, queued_bytes) = (Arc::new(writer), Arc::new(AtomicUsize::new(0)));
        let (sender, heard) = mpsc::channel();
        let (pinging, ended) = mpsc::channel();
        let reader = {
            let (writer, queued_bytes, settings) =
                (Arc::clone(&writer), Arc::clone(&queued_bytes), *settings);
            thread::spawn(move || {
                let why = listen(lines, &sender, &queued_bytes, &settings);
                writer.close();
                let _ = sender.send(Heard::End(why));
            })
        };
        let pinger = {
            let (writer, every) = (Arc::clone(&writer), settings.ping_every);
            // A thread of its own: the reader must never wait for a write, or both sides could wait for each other.
            thread::spawn(move || ping(&writer, &ended, every))
        };
        RemoteGroup {
            address: address.into(),
            version,
            clock,
            writer,
            heard,
            queued_bytes,
            pinging: Some(pinging),
            threads: vec![reader, pinger],
            gone: None,
        }
    }

    /// The agent's clock minus this host's, and the shortest round trip to it, both in microseconds.
    ///
    /// The offset is right to within half the round trip, however the way there and the way back share it.
    #[must_use]
    pub fn clock(&self) -> (i64, u64) {
        self.clock
    }

    /// Version of sipstone at the other end; the same protocol does not mean the same program.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// For the report.
    #[must_use]
    pub fn facts(&self) -> AgentFacts {
        let (clock_offset_us, round_trip_us) = self.clock;
        AgentFacts { address: self.address.clone(), clock_offset_us, round_trip_us }
    }

    fn fail(&mut self, reason: String) -> Gone {
        self.writer.close();
        self.gone = Some(reason.clone());
        Gone { group: self.address.clone(), reason }
    }

    /// An agent that ends a session says why before it closes the connection.
    fn last_words(&self) -> Option<String> {
        let deadline = Instant::now() + LAST_WORDS_WAIT;
        loop {
            match self.heard.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Heard::Line(line)) => {
                    if let Ok(Event::Problem { message }) = check::event(&line) {
                        return Some(message);
                    }
                }
                Ok(Heard::End(why)) => return Some(why),
                Err(_) => return None,
            }
        }
    }
}

impl Group for RemoteGroup {
    fn name(&self) -> &str {
        &self.address
    }

    /// Half the round trip is taken off the time until a start, so that all groups begin together.
    fn send(&mut self, command: Command) -> Result<(), Gone> {
        if let Some(reason) = &self.gone {
            return Err(Gone { group: self.address.clone(), reason: reason.clone() });
        }
        let command = match command {
            Command::Start { after, contacts } => {
                let way = Duration::from_micros(self.clock.1 / 2);
                Command::Start { after: after.saturating_sub(way), contacts }
            }
            other => other,
        };
        self.writer.send(&command).map_err(|why| {
            let reason = self.last_words().unwrap_or(why);
            self.fail(reason)
        })
    }

    fn receive(&mut self, wait: Duration) -> Result<Option<Event>, Gone> {
        if let Some(reason) = &self.gone {
            return Err(Gone { group: self.address.clone(), reason: reason.clone() });
        }
        let deadline = Instant::now() + wait.min(WAIT_MAX);
        loop {
            match self.heard.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Heard::Line(line)) => {
                    self.queued_bytes.fetch_sub(line.len() + LINE_OVERHEAD_BYTES, Ordering::Relaxed);
                    match check::event(&line) {
                        Ok(Event::Pong { token, .. }) if token & HEARTBEAT != 0 => {}
                        Ok(event) => return Ok(Some(event)),
                        Err(sentence) => return Err(self.fail(sentence)),
                    }
                }
                Ok(Heard::End(why)) => return Err(self.fail(why)),
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => return Err(self.fail("its reader ended".into())),
            }
            // Pongs alone must not keep the caller here for ever.
            if Instant::now() >= deadline {
                return Ok(None);
            }
        }
    }
}

impl Drop for RemoteGroup {
    fn drop(&mut self) {
        self.writer.close();
        self.pinging = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Opens the connection to the first of the name's addresses that accepts it.
fn open(address: &str, deadline: Instant) -> Result<TcpStream, String> {
    let addresses: Vec<SocketAddr> = address
        .to_socket_addrs()
        .map_err(|error| format!("agent {address}: no address (give HOST:PORT): {error}"))?
        .collect();
    let mut last = "the name has no address".to_string();
    for to in addresses {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        match TcpStream::connect_timeout(&to, left) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = format!("{to}: {error}"),
        }
    }
    Err(format!("agent {address} cannot be reached ({last}): start `sipstone agent` there"))
}

/// Makes itself known; the agent's version comes back.
fn greet(
    address: &str,
    token: Option<&str>,
    writer: &Writer,
    lines: &mut Lines,
    deadline: Instant,
) -> Result<String, String> {
    let greeting = Greeting { sipstone: PROTOCOL, version: version(), token: token.map(str::to_owned) };
    writer.send(&greeting).map_err(|why| format!("agent {address}: {why}"))?;
    let line = match lines.line_until(deadline, &|| false) {
        Ok(Some(line)) => line,
        Ok(None) => return Err(format!("agent {address} does not answer: is that `sipstone agent`?")),
        Err(broken @ Broken::TooLong(_)) => return Err(format!("{address} is no sipstone agent: {broken}")),
        Err(broken) => return Err(format!("agent {address} does not answer: {broken}")),
    };
    let answer: Answer = serde_json::from_slice(&line)
        .map_err(|_| format!("{address} is no sipstone agent: its first line was not an agent's"))?;
    if let Some(sentence) = answer.refused {
        return Err(format!("agent {address} refuses: {}", shown(&sentence)));
    }
    if answer.sipstone != PROTOCOL {
        return Err(format!(
            "agent {address} (sipstone {}) speaks version {} of the agents' protocol, this sipstone version {PROTOCOL}: \
             install the same sipstone on both hosts",
            shown(&answer.version),
            answer.sipstone
        ));
    }
    Ok(shown(&answer.version))
}

/// Clock offset and shortest round trip, microseconds.
fn measure_clock(writer: &Writer, lines: &mut Lines, deadline: Instant) -> Result<(i64, u64), String> {
    let mut best: Option<(i64, u64)> = None;
    for token in 0..CLOCK_PINGS {
        let (sent_us, sent) = (clock_us(), Instant::now());
        writer.send(&Command::Ping { token })?;
        let theirs_us = await_pong(token, lines, deadline)?;
        let round_trip_us = u64::try_from(sent.elapsed().as_micros()).unwrap_or(u64::MAX);
        if best.is_none_or(|(_, shortest_us)| round_trip_us < shortest_us) {
            // The agent looked at its clock in the middle of the round trip, as far as anyone can tell.
            let ours_us = i128::from(sent_us) + i128::from(round_trip_us / 2);
            let offset_us = i128::from(theirs_us) - ours_us;
            let limits = (i128::from(i64::MIN), i128::from(i64::MAX));
            best = Some((offset_us.clamp(limits.0, limits.1).try_into().unwrap_or(i64::MAX), round_trip_us));
        }
    }
    best.ok_or_else(|| "no Ping was answered".into())
}

/// Waits for the answer to one Ping; the agent's clock is in it.
fn await_pong(token: u64, lines: &mut Lines, deadline: Instant) -> Result<u64, String> {
    while let Some(line) = lines.line_until(deadline, &|| false).map_err(|broken| broken.to_string())? {
        match check::event(&line)? {
            Event::Pong { token: answered, clock_us } if answered == token => return Ok(clock_us),
            Event::Problem { message } => return Err(message),
            _ => {}
        }
    }
    Err("a Ping was not answered in time".into())
}

/// Reads lines into the queue until there is a reason to end.
fn listen(
    mut lines: Lines,
    heard: &Sender<Heard>,
    queued_bytes: &AtomicUsize,
    settings: &Settings,
) -> String {
    let bytes_max = settings.line_bytes_max.saturating_mul(QUEUED_LINES_MAX);
    loop {
        match lines.next() {
            Ok(Got::Line(line)) => {
                let cost = line.len() + LINE_OVERHEAD_BYTES;
                if queued_bytes.fetch_add(cost, Ordering::Relaxed).saturating_add(cost) > bytes_max {
                    return "it sends more than it was asked for".into();
                }
                if heard.send(Heard::Line(line)).is_err() {
                    return "the run has ended".into();
                }
            }
            Ok(Got::Piece | Got::Nothing) => {}
            Err(broken) => return broken.to_string(),
        }
    }
}

/// Sends a Ping now and then until the other end of `ended` is dropped, or the connection fails.
fn ping(writer: &Writer, ended: &Receiver<()>, every: Duration) {
    let mut token = HEARTBEAT;
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(every) {
        if writer.send(&Command::Ping { token }).is_err() {
            return;
        }
        token = token.wrapping_add(1) | HEARTBEAT;
    }
}
