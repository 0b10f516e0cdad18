//! SIP in WebSocket messages, on bytes in memory (RFC 6455, RFC 7118): the upgrade, then one SIP message in each message.

use std::io::{self, Read, Write};
use tungstenite::handshake::client::generate_key;
use tungstenite::handshake::derive_accept_key;
use tungstenite::protocol::{Role, WebSocketConfig};
use tungstenite::{Error, Message, WebSocket};

/// Longest head of a request or answer of the upgrade, bytes.
const HEAD_BYTES_MAX: usize = 8192;

/// Longest SIP message, bytes.
const MESSAGE_BYTES_MAX: usize = 65_535;

/// Bytes that a connection's reader takes at once. Every connection has one, so it is small.
const READ_BYTES: usize = 2048;

/// Header lines of an upgrade at most.
const HEADERS_MAX: usize = 64;

/// One end of a WebSocket.
#[derive(Debug)]
pub(super) struct Channel {
    state: State,
    /// SIP messages that wait for the upgrade.
    waiting: Vec<Vec<u8>>,
}

#[derive(Debug)]
enum State {
    /// The request is sent; what has come of the answer, and the value that must be in it.
    Asked { accept: String, head: Vec<u8> },
    /// The request is awaited; what has come of it.
    Listening { head: Vec<u8> },
    /// Messages go both ways.
    Open(Box<WebSocket<Pipe>>),
    /// Closed, or broken.
    Over,
}

/// What came and is not read, what is written and not sent.
#[derive(Debug, Default)]
struct Pipe {
    input: Vec<u8>,
    read: usize,
    output: Vec<u8>,
}

impl Read for Pipe {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let rest = self.input.get(self.read..).unwrap_or(&[]);
        if rest.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = rest.len().min(room.len());
        room[..count].copy_from_slice(&rest[..count]);
        self.read += count;
        if self.read == self.input.len() {
            (self.input, self.read) = (Vec::new(), 0);
        }
        Ok(count)
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.output.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How a channel stands after it has taken bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The upgrade is not complete.
    Upgrading,
    /// Messages go both ways.
    Open,
    /// The other end has closed; what is in `out` is still to be sent.
    Closed,
}

impl Channel {
    /// A client's end; the request to upgrade is appended to `out`.
    pub(super) fn client(host: &str, out: &mut Vec<u8>) -> Channel {
        let key = generate_key();
        let request = format!(
            "GET / HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: sip\r\n\r\n"
        );
        out.extend_from_slice(request.as_bytes());
        let accept = derive_accept_key(key.as_bytes());
        Channel { state: State::Asked { accept, head: Vec::new() }, waiting: Vec::new() }
    }

    /// A server's end.
    pub(super) fn server() -> Channel {
        Channel { state: State::Listening { head: Vec::new() }, waiting: Vec::new() }
    }

    /// Whether the upgrade is still to come.
    pub(super) fn is_upgrading(&self) -> bool {
        matches!(self.state, State::Asked { .. } | State::Listening { .. })
    }

    /// Takes bytes; hands on each SIP message and appends to `out` what is to be answered.
    ///
    /// # Errors
    /// A sentence: the upgrade was refused, or a frame is against RFC 6455. The connection is of no use any more.
    pub(super) fn receive(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<Standing, String> {
        let (head, length) = match &mut self.state {
            State::Open(_) => {
                self.feed(bytes);
                return self.read(out, each);
            }
            State::Over => return Ok(Standing::Closed),
            State::Asked { head, .. } | State::Listening { head } => {
                head.extend_from_slice(bytes);
                match memchr::memmem::find(head, b"\r\n\r\n") {
                    Some(at) => (std::mem::take(head), at + 4),
                    None if head.len() > HEAD_BYTES_MAX => {
                        return Err("the head of the upgrade is too long".into());
                    }
                    None => return Ok(Standing::Upgrading),
                }
            }
        };
        let (text, rest) = head.split_at(length);
        let role = match &self.state {
            State::Asked { accept, .. } => {
                check_answer(text, accept)?;
                Role::Client
            }
            _ => {
                out.extend_from_slice(&answer(text)?);
                Role::Server
            }
        };
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BYTES)
            .write_buffer_size(0)
            .max_message_size(Some(MESSAGE_BYTES_MAX))
            .max_frame_size(Some(MESSAGE_BYTES_MAX));
        self.state = State::Open(Box::new(WebSocket::from_raw_socket(Pipe::default(), role, Some(config))));
        self.feed(rest);
        for message in std::mem::take(&mut self.waiting) {
            self.send(&message, out)?;
        }
        self.read(out, each)
    }

    fn feed(&mut self, bytes: &[u8]) {
        if let State::Open(socket) = &mut self.state {
            socket.get_mut().input.extend_from_slice(bytes);
        }
    }

    fn read(&mut self, out: &mut Vec<u8>, each: &mut dyn FnMut(&[u8])) -> Result<Standing, String> {
        let State::Open(socket) = &mut self.state else { return Ok(Standing::Closed) };
        let standing = loop {
            match socket.read() {
                Ok(Message::Text(text)) => each(text.as_bytes()),
                Ok(Message::Binary(bytes)) => each(&bytes),
                Ok(_) => {}
                Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    break Ok(Standing::Open);
                }
                Err(Error::ConnectionClosed | Error::AlreadyClosed) => break Ok(Standing::Closed),
                Err(error) => break Err(format!("WebSocket: {error}")),
            }
        };
        // A pong or the answer to a close may wait.
        let _ = socket.flush();
        out.append(&mut socket.get_mut().output);
        if standing != Ok(Standing::Open) {
            self.state = State::Over;
        }
        standing
    }

    /// Appends a SIP message to `out`; before the upgrade is complete it waits.
    ///
    /// # Errors
    /// The channel is closed.
    pub(super) fn send(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        match &mut self.state {
            State::Open(socket) => {
                // RFC 7118 §5.4: text where it is UTF-8, which all of ours is.
                let frame = match std::str::from_utf8(message) {
                    Ok(text) => Message::text(text),
                    Err(_) => Message::binary(message.to_vec()),
                };
                let sent = socket.write(frame).and_then(|()| socket.flush());
                out.append(&mut socket.get_mut().output);
                sent.map_err(|error| format!("WebSocket: {error}"))
            }
            State::Over => Err("WebSocket: closed".into()),
            State::Asked { .. } | State::Listening { .. } => {
                self.waiting.push(message.to_vec());
                Ok(())
            }
        }
    }

    /// Appends a close frame to `out`.
    pub(super) fn close(&mut self, out: &mut Vec<u8>) {
        if let State::Open(socket) = &mut self.state {
            let _ = socket.close(None);
            let _ = socket.flush();
            out.append(&mut socket.get_mut().output);
        }
    }
}

/// Whether the answer to an upgrade agrees (RFC 6455 §4.1, RFC 7118 §4).
fn check_answer(head: &[u8], accept: &str) -> Result<(), String> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut answer = httparse::Response::new(&mut headers);
    let parsed = answer.parse(head).is_ok_and(|status| status.is_complete());
    match answer.code {
        Some(101) if parsed => {}
        Some(code) if parsed => {
            return Err(format!(
                "the server refused the WebSocket with {code}: look at its path, origin and protocol"
            ));
        }
        _ => return Err("the answer to the WebSocket upgrade is no HTTP".into()),
    }
    let value = |name: &str| {
        let header = answer.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(header.value).ok().map(str::trim)
    };
    if value("Sec-WebSocket-Accept") != Some(accept) {
        return Err("the answer to the WebSocket upgrade belongs to another request".into());
    }
    match value("Sec-WebSocket-Protocol") {
        Some(protocol) if protocol.eq_ignore_ascii_case("sip") => Ok(()),
        _ => Err("the server does not speak SIP on this WebSocket (Sec-WebSocket-Protocol)".into()),
    }
}

/// The answer to a request to upgrade.
fn answer(head: &[u8]) -> Result<Vec<u8>, String> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let parsed = request.parse(head).is_ok_and(|status| status.is_complete());
    let key = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case("Sec-WebSocket-Key"));
    let key = key.filter(|_| parsed).ok_or("what came is no request for a WebSocket")?;
    let accept = derive_accept_key(key.value);
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\
         Sec-WebSocket-Protocol: sip\r\n\r\n"
    );
    Ok(answer.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives `bytes` to an end in pieces of `step`; what it received and what it answers.
    fn give(
        end: &mut Channel,
        bytes: &[u8],
        step: usize,
    ) -> (Vec<String>, Vec<u8>, Result<Standing, String>) {
        let (mut got, mut out, mut standing) = (Vec::new(), Vec::new(), Ok(Standing::Upgrading));
        for piece in bytes.chunks(step) {
            let mut each = |message: &[u8]| got.push(String::from_utf8(message.to_vec()).unwrap());
            standing = end.receive(piece, &mut out, &mut each);
            if standing.is_err() {
                break;
            }
        }
        (got, out, standing)
    }

    #[test]
    fn messages_wait_for_the_upgrade_and_arrive_whole_however_they_are_cut() {
        for step in [1, 7, 100_000] {
            let mut to_server = Vec::new();
            let mut client = Channel::client("example.com", &mut to_server);
            client.send(b"OPTIONS early", &mut to_server).unwrap();
            let mut server = Channel::server();
            let (got, out, standing) = give(&mut server, &to_server, step);
            assert!(got.is_empty() && standing == Ok(Standing::Open));
            let (_, out, standing) = give(&mut client, &out, step);
            assert_eq!(standing, Ok(Standing::Open));
            let mut out = out;
            client.send(&vec![b'x'; 5000], &mut out).unwrap();
            let (got, _, _) = give(&mut server, &out, step);
            assert_eq!(got, ["OPTIONS early".to_owned(), "x".repeat(5000)]);
            let mut back = Vec::new();
            server.send(b"SIP/2.0 200", &mut back).unwrap();
            assert_eq!(give(&mut client, &back, step).0, ["SIP/2.0 200"]);
            let mut out = Vec::new();
            client.close(&mut out);
            assert_eq!(give(&mut server, &out, step).2, Ok(Standing::Closed));
            server.send(b"late", &mut out).unwrap_err();
        }
    }

    #[test]
    fn a_server_that_refuses_or_speaks_something_else_is_a_sentence() {
        let accepted = |accept: &str, rest: &str| {
            format!("HTTP/1.1 101 Switching\r\nSec-WebSocket-Accept: {accept}\r\n{rest}\r\n")
        };
        let mut out = Vec::new();
        let mut end = Channel::client("h", &mut out);
        let State::Asked { accept, .. } = &end.state else { panic!("asked") };
        let no_protocol = accepted(accept, "");
        assert!(give(&mut end, no_protocol.as_bytes(), 1000).2.unwrap_err().contains("Protocol"));
        for (text, word) in [
            ("HTTP/1.1 403 Forbidden\r\n\r\n".to_owned(), "403"),
            ("SIP/2.0 400 Bad\r\n\r\n".to_owned(), "no HTTP"),
            (accepted("else", "Sec-WebSocket-Protocol: sip\r\n"), "another request"),
            ("x".repeat(9000), "too long"),
        ] {
            let mut end = Channel::client("h", &mut out);
            let error = give(&mut end, text.as_bytes(), 10_000).2.unwrap_err();
            assert!(error.contains(word), "{error}");
        }
        assert!(give(&mut Channel::server(), b"GET / HTTP/1.1\r\n\r\n", 100).2.is_err());
    }

    #[test]
    fn noise_after_the_upgrade_ends_the_channel() {
        let mut out = Vec::new();
        let mut client = Channel::client("h", &mut out);
        let mut server = Channel::server();
        let (_, answer, _) = give(&mut server, &out, 1000);
        give(&mut client, &answer, 1000).2.unwrap();
        give(&mut client, &[0xff; 64], 1000).2.unwrap_err();
        assert_eq!(give(&mut client, b"more", 1000).2, Ok(Standing::Closed));
    }
}
