//! Lines of JSON on a TCP connection: reading them within limits, writing them from several threads.

use super::Settings;
use memchr::memchr;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Version of the conversation; both sides must have the same.
pub const PROTOCOL: u32 = 1;

/// Longest line, in bytes: a million listed users fit into one. A second's histograms take about a megabyte at most.
pub const LINE_BYTES_MAX: usize = 64 << 20;

/// Longest first line, in bytes.
pub(super) const GREETING_BYTES_MAX: usize = 4096;

/// Longest text of the peer that is shown to the user, in characters; the rest is cut off.
const SHOWN_CHARS_MAX: usize = 1000;

/// Read at once, in bytes.
const CHUNK_BYTES: usize = 64 << 10;

/// What a peer that was refused may still send before its connection is closed: so much, so long.
const FAREWELL_BYTES_MAX: usize = 1 << 20;
const FAREWELL_MAX: Duration = Duration::from_millis(300);

/// The first line of the controller. It has no `Debug`, so that no log can show the token.
#[derive(Serialize, Deserialize)]
pub(super) struct Greeting {
    /// [`PROTOCOL`].
    pub(super) sipstone: u32,
    /// Version of the program.
    pub(super) version: String,
    /// What the agent asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) token: Option<String>,
}

/// The first line of the agent.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answer {
    /// [`PROTOCOL`].
    pub(super) sipstone: u32,
    /// Version of the program.
    pub(super) version: String,
    /// Why it does not want this controller; absent: it obeys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) refused: Option<String>,
}

/// Version of this program.
pub(super) fn version() -> String {
    env!("CARGO_PKG_VERSION").into()
}

/// Text of the peer, fit for a terminal.
pub(super) fn shown(text: &str) -> String {
    let mut cut: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    if cut.len() < text.len() {
        cut.push('…');
    }
    crate::ladder::visible(&cut)
}

/// The own clock: Unix time in microseconds.
pub(super) fn clock_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// What a read brought.
pub(super) enum Got {
    /// A whole line without its end.
    Line(Vec<u8>),
    /// A piece of one.
    Piece,
    /// Nothing within the socket's read timeout.
    Nothing,
}

/// Why nothing more can be read.
#[derive(Debug)]
pub(super) enum Broken {
    /// The peer closed the connection.
    Closed,
    /// The line has more bytes than this.
    TooLong(usize),
    /// The connection failed.
    Failed(io::Error),
    /// Nothing was heard for this long.
    Silent(Duration),
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Broken::Closed => write!(f, "it closed the connection"),
            Broken::TooLong(bytes) => write!(f, "it sent a line of more than {bytes} bytes"),
            Broken::Failed(error) => write!(f, "the connection failed: {error}"),
            Broken::Silent(time) => write!(f, "nothing was heard from it for {:.1} s", time.as_secs_f64()),
        }
    }
}

/// The reading half of a connection.
pub(super) struct Lines {
    stream: TcpStream,
    pending: Vec<u8>,
    scanned: usize,
    line_bytes_max: usize,
    chunk: Vec<u8>,
    heard: Instant,
    silence_max: Duration,
}

impl Lines {
    /// Reads lines of at most `line_bytes_max` bytes.
    pub(super) fn new(stream: TcpStream, line_bytes_max: usize, settings: &Settings) -> io::Result<Lines> {
        stream.set_read_timeout(Some(settings.slice()))?;
        let chunk = vec![0; CHUNK_BYTES];
        let silence_max = settings.silence_max;
        Ok(Lines {
            stream,
            pending: Vec::new(),
            scanned: 0,
            line_bytes_max,
            chunk,
            heard: Instant::now(),
            silence_max,
        })
    }

    /// Another limit from now on: the first line's is smaller.
    pub(super) fn allow(&mut self, line_bytes_max: usize) {
        self.line_bytes_max = line_bytes_max;
    }

    /// Waits a short time (the socket's read timeout) for bytes.
    ///
    /// # Errors
    /// The connection is of no more use; silence is among the reasons.
    pub(super) fn next(&mut self) -> Result<Got, Broken> {
        if let Some(line) = self.take_line()? {
            return Ok(Got::Line(line));
        }
        match self.stream.read(&mut self.chunk) {
            Ok(0) => Err(Broken::Closed),
            Ok(count) => {
                self.heard = Instant::now();
                self.pending.extend_from_slice(self.chunk.get(..count).unwrap_or_default());
                Ok(self.take_line()?.map_or(Got::Piece, Got::Line))
            }
            Err(error) if is_passing(&error) => {
                let silent = self.heard.elapsed();
                if silent > self.silence_max { Err(Broken::Silent(silent)) } else { Ok(Got::Nothing) }
            }
            Err(error) => Err(Broken::Failed(error)),
        }
    }

    /// Waits for a line until `deadline`, or until `over` says so.
    pub(super) fn line_until(
        &mut self,
        deadline: Instant,
        over: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<u8>>, Broken> {
        while Instant::now() < deadline && !over() {
            if let Got::Line(line) = self.next()? {
                return Ok(Some(line));
            }
        }
        Ok(None)
    }

    fn take_line(&mut self) -> Result<Option<Vec<u8>>, Broken> {
        let end =
            memchr(b'\n', self.pending.get(self.scanned..).unwrap_or_default()).map(|at| self.scanned + at);
        if end.unwrap_or(self.pending.len()) > self.line_bytes_max {
            return Err(Broken::TooLong(self.line_bytes_max));
        }
        let Some(end) = end else {
            self.scanned = self.pending.len();
            return Ok(None);
        };
        let line = if end < CHUNK_BYTES {
            // Copied, so that a short line does not keep the room of everything that came with it.
            let line = self.pending.get(..end).unwrap_or_default().to_vec();
            self.pending.drain(..=end);
            line
        } else {
            // Given away with its room, so that one long line does not keep it here for ever.
            let rest = self.pending.split_off(end + 1);
            let mut line = std::mem::replace(&mut self.pending, rest);
            line.truncate(end);
            line
        };
        self.scanned = 0;
        Ok(Some(line))
    }
}

/// Whether a read or write failed only for now.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

/// The writing half of a connection, for several threads.
pub(super) struct Writer {
    stream: Mutex<TcpStream>,
    /// The same socket: to end it while another thread is stuck in a write.
    handle: TcpStream,
    line_bytes_max: usize,
}

impl Writer {
    /// A write that is stuck for `silence_max` fails.
    pub(super) fn new(stream: TcpStream, settings: &Settings) -> io::Result<Writer> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(settings.silence_max))?;
        let handle = stream.try_clone()?;
        Ok(Writer { stream: Mutex::new(stream), handle, line_bytes_max: settings.line_bytes_max })
    }

    /// Writes one line. After an error the connection is closed: half a line may be on its way.
    pub(super) fn send<T: Serialize>(&self, value: &T) -> Result<(), String> {
        let mut line =
            serde_json::to_vec(value).map_err(|error| format!("it cannot be written as JSON: {error}"))?;
        if line.len() > self.line_bytes_max {
            let (bytes, limit) = (line.len(), self.line_bytes_max);
            return Err(format!(
                "a line of {bytes} bytes would be too long (limit {limit}): use fewer users or agents"
            ));
        }
        line.push(b'\n');
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        stream.write_all(&line).map_err(|error| {
            self.close();
            match is_passing(&error) {
                true => "it reads nothing any more".into(),
                false => format!("the connection failed: {error}"),
            }
        })
    }

    /// Ends the connection in both directions.
    pub(super) fn close(&self) {
        let _ = self.handle.shutdown(Shutdown::Both);
    }

    /// Ends the own direction and lets the peer read what was said: a socket that is closed with unread bytes in it
    /// resets the connection, and the last words would be lost.
    pub(super) fn close_after_reading(&self, lines: &mut Lines) {
        let _ = self.handle.shutdown(Shutdown::Write);
        let (start, mut bytes) = (Instant::now(), 0);
        while start.elapsed() < FAREWELL_MAX && bytes < FAREWELL_BYTES_MAX {
            match lines.stream.read(&mut lines.chunk) {
                Ok(0) => break,
                Ok(count) => bytes += count,
                Err(error) if is_passing(&error) => {}
                Err(_) => break,
            }
        }
        self.close();
    }
}
