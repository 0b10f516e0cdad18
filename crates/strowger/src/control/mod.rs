//! The control socket of a running server: JSON-RPC 2.0, one request a line, on a Unix socket that only its owner may use.
//!
//! It has threads of its own and never stops a shard for longer than a look at one stripe of the location table.

mod client;
mod methods;
#[cfg(test)]
mod tests;

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::Mode;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde_json::{Value, json};

use crate::state::{self, Lock, LockError};

pub(crate) use client::{CallError, call};
pub(crate) use methods::{Methods, key_of, shown};

/// Connections at once; further ones are told so and closed.
const CONNECTIONS_MAX: usize = 16;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;

/// The longest request, in bytes.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// How long a connection may say nothing.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// How long a peer may take nothing of an answer.
const WRITE_MAX: Duration = Duration::from_secs(10);

/// What JSON-RPC 2.0 (§5.1) calls these.
pub(crate) const PARSE_ERROR: i64 = -32_700;
pub(crate) const INVALID_REQUEST: i64 = -32_600;
pub(crate) const NO_SUCH_METHOD: i64 = -32_601;
pub(crate) const INVALID_PARAMS: i64 = -32_602;
/// Ours: it was understood and could not be done.
pub(crate) const FAILED: i64 = -32_000;

/// Why a request failed: a number, and a sentence.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: i64,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(code: i64, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into() }
    }
}

/// The socket; it is gone when this is dropped.
#[derive(Debug)]
pub(crate) struct Listening {
    path: PathBuf,
    _lock: Lock,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Listens in the state directory, which is made if it is not there.
///
/// # Errors
///
/// Why not, in a sentence: the server runs without it.
pub(crate) fn listen(directory: &Path, methods: Methods) -> Result<Listening, String> {
    let shown = directory.display();
    state::make(directory).map_err(|error| format!("cannot make {shown}: {error}"))?;
    let lock = Lock::of_directory(directory).map_err(|error| match error {
        LockError::Taken => format!("another server has {shown}"),
        LockError::Failed(error) => format!("cannot write in {shown}: {error}"),
    })?;
    let path = state::socket(directory);
    // Whoever left it there has ended: the lock is ours.
    let _ = fs::remove_file(&path);
    let listener = bind(&path).map_err(|error| format!("cannot listen on {}: {error}", path.display()))?;
    let methods = Arc::new(methods);
    thread::Builder::new()
        .name("control".to_owned())
        .spawn(move || accept(&listener, &methods))
        .map_err(|error| format!("no thread for it: {error}"))?;
    Ok(Listening { path, _lock: lock })
}

/// A socket that has mode 0600 from its first moment: Linux gives the file the mode that the socket has.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    net::listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

fn accept(listener: &UnixListener, methods: &Arc<Methods>) {
    let open = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else {
            // No descriptors, most likely: they come back.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        if open.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
            open.fetch_sub(1, Ordering::AcqRel);
            let failure = Failure::new(FAILED, format!("{CONNECTIONS_MAX} connections are open; try again"));
            let _ = stream.set_write_timeout(Some(WRITE_MAX));
            let _ = stream.write_all(answer(&Value::Null, Err(failure)).as_bytes());
            continue;
        }
        let (methods, of_thread) = (methods.clone(), open.clone());
        let spawned = thread::Builder::new().name("control-peer".to_owned()).spawn(move || {
            let _ = serve(stream, &methods);
            of_thread.fetch_sub(1, Ordering::AcqRel);
        });
        if spawned.is_err() {
            open.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Answers the requests of one connection until it closes, is silent for too long, or says too much at once.
fn serve(mut stream: UnixStream, methods: &Methods) -> io::Result<()> {
    stream.set_read_timeout(Some(IDLE_MAX))?;
    stream.set_write_timeout(Some(WRITE_MAX))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut reader).take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(());
        }
        if read as u64 > LINE_BYTES_MAX {
            let failure =
                Failure::new(INVALID_REQUEST, format!("a request has {LINE_BYTES_MAX} bytes at most"));
            return stream.write_all(answer(&Value::Null, Err(failure)).as_bytes());
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        if let Some(answer) = respond(&line, methods) {
            stream.write_all(answer.as_bytes())?;
        }
    }
}

/// The answer to one request; none to a notification, which has no `id`.
fn respond(line: &[u8], methods: &Methods) -> Option<String> {
    let request: Value = match serde_json::from_slice(line) {
        Ok(request) => request,
        Err(error) => {
            let failure = Failure::new(PARSE_ERROR, format!("this is no JSON: {error}"));
            return Some(answer(&Value::Null, Err(failure)));
        }
    };
    let id = request.get("id");
    let is_valid = request.get("jsonrpc").and_then(Value::as_str) == Some("2.0")
        && id.is_none_or(|id| id.is_string() || id.is_number() || id.is_null());
    let (true, Some(method)) = (is_valid, request.get("method").and_then(Value::as_str)) else {
        let failure = Failure::new(
            INVALID_REQUEST,
            "write one request a line: {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"version\"}",
        );
        return Some(answer(&Value::Null, Err(failure)));
    };
    let nothing = json!({});
    let done = methods.call(method, request.get("params").unwrap_or(&nothing));
    id.map(|id| answer(id, done))
}

fn answer(id: &Value, done: Result<Value, Failure>) -> String {
    let answer = match done {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(Failure { code, message }) => {
            json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
        }
    };
    format!("{answer}\n")
}
