//! The other side of the control socket: what the command line asks a running server.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

/// How long a server may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The longest answer that is read, in bytes.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// Why there is no result.
#[derive(Debug)]
pub(crate) enum CallError {
    /// Nobody listens there.
    NoServer,
    /// A sentence.
    Failed(String),
}

/// Asks the server whose socket this is.
///
/// # Errors
///
/// See [`CallError`].
pub(crate) fn call(socket: &Path, method: &str, params: &Value) -> Result<Value, CallError> {
    let failed = |error: &dyn std::fmt::Display| {
        CallError::Failed(format!("the server at {} does not answer: {error}", socket.display()))
    };
    let mut stream = UnixStream::connect(socket).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => CallError::NoServer,
        io::ErrorKind::PermissionDenied => CallError::Failed(format!(
            "{} belongs to another user; run this as the user of the server",
            socket.display()
        )),
        _ => failed(&error),
    })?;
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let ask = || -> io::Result<Vec<u8>> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.write_all(format!("{request}\n").as_bytes())?;
        let mut line = Vec::new();
        BufReader::new(stream).take(ANSWER_BYTES_MAX).read_until(b'\n', &mut line)?;
        Ok(line)
    };
    let line = { ask }().map_err(|error| failed(&error))?;
    let mut answer: Value = serde_json::from_slice(&line).map_err(|error| failed(&error))?;
    if let Some(message) = answer.pointer("/error/message").and_then(Value::as_str) {
        return Err(CallError::Failed(message.to_owned()));
    }
    Ok(answer.get_mut("result").map(Value::take).unwrap_or_default())
}
