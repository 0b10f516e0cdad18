//! The HTTP request that opens a WebSocket connection, and what it is answered (RFC 6455 §4.2, RFC 7118 §4.1).

use super::WebSocketPolicy;
use tungstenite::handshake::derive_accept_key;

/// Most header lines of the request; one with more is answered 431.
const HEADER_LINES_MAX: usize = 64;
/// The only version of the protocol that there is.
const VERSION: &[u8] = b"13";
/// The subprotocol, compared with case: a browser takes only what it asked for, byte for byte.
const SUBPROTOCOL: &[u8] = b"sip";
const HEAD_END: &[u8] = b"\r\n\r\n";

/// Where the handshake stands after some bytes.
#[derive(Debug)]
pub(crate) enum Progress {
    /// The request is not whole.
    More,
    /// The connection is a WebSocket from here on; the 101 to be written.
    Accepted(Vec<u8>),
    /// It is none: the status, and the response to be written before it is closed.
    Refused(u16, Vec<u8>),
}

/// Collects the request.
#[derive(Debug, Default)]
pub(crate) struct Handshake {
    head: Vec<u8>,
    /// The request line is whole, and HTTP's.
    line_is_known: bool,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    NotHttp,
    Sip,
    HttpVersion,
    Method,
    TooLong,
    Malformed,
    Host,
    NoUpgrade,
    Connection,
    Version,
    Key,
    Subprotocol,
    Origin,
}

impl Handshake {
    /// Takes the request's bytes off `bytes`; what is left behind an accepted one are frames.
    pub(crate) fn receive(&mut self, bytes: &mut &[u8], policy: &WebSocketPolicy) -> Progress {
        match self.read(bytes, policy) {
            Ok(None) => Progress::More,
            Ok(Some(answer)) => Progress::Accepted(answer),
            Err(refusal) => {
                let (status, answer) = refusal.answer();
                Progress::Refused(status, answer)
            }
        }
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        self.head.capacity()
    }

    fn read(&mut self, bytes: &mut &[u8], policy: &WebSocketPolicy) -> Result<Option<Vec<u8>>, Refusal> {
        if self.head.is_empty() {
            // Empty lines before a request line are to be ignored (RFC 9112 §2.2).
            while let [b'\r' | b'\n', rest @ ..] = bytes {
                *bytes = rest;
            }
        }
        let before = self.head.len();
        let room = (policy.head_bytes_max + 1).saturating_sub(before).min(bytes.len());
        self.head.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        self.check_line(before)?;
        let looked = before.saturating_sub(HEAD_END.len() - 1);
        let end =
            find(self.head.get(looked..).unwrap_or(&[]), HEAD_END).map(|at| looked + at + HEAD_END.len());
        match end {
            Some(end) if end <= policy.head_bytes_max => {
                *bytes = bytes.get(end - before..).unwrap_or(&[]);
                self.head.truncate(end);
                judge(&self.head, policy).map(Some)
            }
            None if self.head.len() <= policy.head_bytes_max => Ok(None),
            _ => Err(Refusal::TooLong),
        }
    }

    /// Refuses what is not HTTP as soon as that is certain: SIP by its first line, noise by its first byte.
    fn check_line(&mut self, looked: usize) -> Result<(), Refusal> {
        if self.head.first().is_some_and(|byte| !byte.is_ascii_uppercase()) {
            return Err(Refusal::NotHttp);
        }
        if self.line_is_known {
            return Ok(());
        }
        let new = self.head.get(looked..).unwrap_or(&[]);
        let Some(at) = new.iter().position(|&byte| byte == b'\n') else { return Ok(()) };
        self.line_is_known = true;
        let line = self.head.get(..looked + at).unwrap_or(&[]).trim_ascii_end();
        let last = line.rsplit(|&byte| byte == b' ').next().unwrap_or(line);
        match last {
            b"HTTP/1.1" => Ok(()),
            [b'H', b'T', b'T', b'P', b'/', ..] => Err(Refusal::HttpVersion),
            [b'S', b'I', b'P', b'/', ..] => Err(Refusal::Sip),
            _ if line.starts_with(b"SIP/") => Err(Refusal::Sip),
            _ => Err(Refusal::NotHttp),
        }
    }
}

/// Gives the 101 for a whole request (RFC 6455 §4.2.1, §4.2.2), or says why there is none.
fn judge(head: &[u8], policy: &WebSocketPolicy) -> Result<Vec<u8>, Refusal> {
    let mut lines = [httparse::EMPTY_HEADER; HEADER_LINES_MAX];
    let mut request = httparse::Request::new(&mut lines);
    match request.parse(head) {
        // Less than the whole: a LF alone ended the headers for this parser, and for nobody else.
        Ok(httparse::Status::Complete(len)) if len == head.len() => {}
        Err(httparse::Error::TooManyHeaders) => return Err(Refusal::TooLong),
        _ => return Err(Refusal::Malformed),
    }
    if request.method != Some("GET") {
        return Err(Refusal::Method);
    }
    let fields = Fields(request.headers);
    // One Host (RFC 9112 §3.2).
    fields.one("Host").filter(|host| !host.is_empty()).ok_or(Refusal::Host)?;
    if !fields.list("Upgrade").any(|token| token.eq_ignore_ascii_case(b"websocket")) {
        return Err(Refusal::NoUpgrade);
    }
    if !fields.list("Connection").any(|token| token.eq_ignore_ascii_case(b"Upgrade")) {
        return Err(Refusal::Connection);
    }
    if fields.one("Sec-WebSocket-Version") != Some(VERSION) {
        return Err(Refusal::Version);
    }
    let key = fields.one("Sec-WebSocket-Key").filter(|key| is_key(key)).ok_or(Refusal::Key)?;
    if !fields.list("Sec-WebSocket-Protocol").any(|token| token == SUBPROTOCOL) {
        return Err(Refusal::Subprotocol);
    }
    let is_let_in = |origin: &[u8]| policy.origins.iter().any(|o| o.as_bytes().eq_ignore_ascii_case(origin));
    if !policy.origins.is_empty() && !fields.all("Origin").all(is_let_in) {
        return Err(Refusal::Origin);
    }
    let mut answer = Vec::with_capacity(192);
    answer.extend_from_slice(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Protocol: sip\r\nSec-WebSocket-Accept: ",
    );
    answer.extend_from_slice(derive_accept_key(key).as_bytes());
    answer.extend_from_slice(HEAD_END);
    Ok(answer)
}

/// The header fields of the request.
struct Fields<'h>(&'h [httparse::Header<'h>]);

impl<'h> Fields<'h> {
    /// The values of all fields of this name.
    fn all<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'h [u8]> + 's {
        let named = self.0.iter().filter(move |field| field.name.eq_ignore_ascii_case(name));
        named.map(|field| field.value.trim_ascii())
    }

    /// The value of the only field of this name.
    fn one(&self, name: &str) -> Option<&'h [u8]> {
        let mut values = self.all(name);
        let value = values.next()?;
        values.next().is_none().then_some(value)
    }

    /// The elements of a list, which may be spread over several fields.
    fn list<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'h [u8]> + 's {
        self.all(name).flat_map(|value| value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii))
    }
}

/// 16 bytes in base64 (RFC 6455 §4.2.1): 22 digits and the padding.
fn is_key(key: &[u8]) -> bool {
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    key.strip_suffix(b"==").is_some_and(|digits| digits.len() == 22 && digits.iter().all(is_digit))
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

impl Refusal {
    /// Status, reason phrase, header lines of its own, and what to do about it.
    fn parts(self) -> (u16, &'static str, &'static str, &'static str) {
        const UPGRADE: &str = "Upgrade: websocket\r\n";
        const BAD: &str = "Bad Request";
        match self {
            Refusal::NotHttp => {
                (400, BAD, "", "This is no HTTP request. This port takes SIP over WebSocket (RFC 7118).")
            }
            Refusal::Sip => (
                400,
                BAD,
                "",
                "This port takes SIP over WebSocket (RFC 7118), not SIP over TCP or TLS: use another port.",
            ),
            Refusal::HttpVersion => {
                (505, "HTTP Version Not Supported", "", "A WebSocket is opened with HTTP/1.1.")
            }
            Refusal::Method => {
                (405, "Method Not Allowed", "Allow: GET\r\n", "A WebSocket is opened with GET.")
            }
            Refusal::TooLong => {
                (431, "Request Header Fields Too Large", "", "The request's headers are too long.")
            }
            Refusal::Malformed => (400, BAD, "", "The request's headers are malformed."),
            Refusal::Host => (400, BAD, "", "The request needs one Host header."),
            Refusal::NoUpgrade => (
                426,
                "Upgrade Required",
                UPGRADE,
                "This port takes SIP over WebSocket (RFC 7118), for instance by JsSIP.",
            ),
            Refusal::Connection => {
                (400, BAD, "", "The request needs Connection: Upgrade; a proxy may have taken it off.")
            }
            Refusal::Version => (
                426,
                "Upgrade Required",
                "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
                "Use version 13.",
            ),
            Refusal::Key => (400, BAD, "", "Sec-WebSocket-Key must be 16 bytes in base64."),
            Refusal::Subprotocol => {
                (400, BAD, "", "Sec-WebSocket-Protocol must offer sip (RFC 7118 section 4.1).")
            }
            Refusal::Origin => (403, "Forbidden", "", "Pages of this origin may not connect."),
        }
    }

    /// The status, and the whole response.
    fn answer(self) -> (u16, Vec<u8>) {
        let (status, reason, lines, text) = self.parts();
        let length = text.len() + 1;
        let answer = format!(
            "HTTP/1.1 {status} {reason}\r\nConnection: close\r\n{lines}\
            Content-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n\r\n{text}\n"
        );
        (status, answer.into_bytes())
    }
}
