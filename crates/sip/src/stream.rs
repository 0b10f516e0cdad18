//! Messages out of a byte stream (RFC 3261 §18.3, §7.5; keep-alives of RFC 5626 §3.5.1).
//!
//! A state machine fed with chunks of any size. It holds no bytes: the caller keeps what is not yet a whole
//! message and offers it again, longer, at the next call; what was looked at once is not looked at again.
//!
//! On a stream Content-Length decides where the next message begins, so there must be one (RFC 3261 §18.3),
//! with one meaning for every reader. Where another element could have read a different one, the stream is
//! given up: what follows might be somebody's body that poses as a message.
//!
//! ```text
//!  Between --a byte--> StartLine --CRLF--> Headers --CRLF CRLF--> Body --its last byte--> Between
//!     |  ^ CRLF CRLF: ping    `-- not SIP      `-- too long          `-- length in doubt or too large
//!     `--'
//! ```

use crate::framing::{self, LineEnds};
use crate::header_name::{self, HeaderName};
use crate::start_line;
use crate::token::{self, Number, slice};

/// Longest method, in bytes: RFC 4475 §3.1.1.2 has one of 45. Noise without a space is told by it.
pub const METHOD_BYTES_MAX: usize = 128;
/// Longest start line, in bytes; a longer one is [`Broken::HeadersTooLong`].
pub const START_LINE_BYTES_MAX: usize = 8_192;

/// What the bytes at the front of a stream are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The first `skip` bytes are blank lines, the `len` bytes behind them one whole message.
    Message {
        /// Bytes before the message.
        skip: usize,
        /// Bytes of the message.
        len: usize,
    },
    /// CRLF CRLF before a message: a ping (RFC 5626 §3.5.1), to be answered with CRLF. It takes `len` bytes.
    Ping {
        /// Bytes that it takes, blank lines before it included.
        len: usize,
    },
    /// More bytes are needed; the first `skip` can be forgotten (a pong, blank lines).
    Incomplete {
        /// Bytes to be forgotten.
        skip: usize,
    },
    /// No message can be told from the next one any more: the connection is of no use.
    Broken(Broken),
}

/// Why a stream cannot be framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The start line or the headers do not end within their limit.
    HeadersTooLong,
    /// Content-Length says more than the limit: answered 513. The head is there ([`Framer::head_len`]).
    TooLarge,
    /// No Content-Length, or more than one value, or one that is no number below 2^32, or a line that others
    /// might take for one: answered 400. The head is there ([`Framer::head_len`]).
    ContentLength,
    /// The first line is none of SIP's: HTTP, TLS, or noise.
    NotSip(NotSip),
}

/// What came instead of SIP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSip {
    /// A TLS ClientHello: a TLS client on a TCP port.
    Tls,
    /// An HTTP request.
    Http,
    /// Something else.
    Other,
}

/// How long what may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// Bytes of start line and headers; default 65,535.
    pub head_bytes_max: usize,
    /// Bytes of a whole message; default 65,535.
    pub message_bytes_max: usize,
}

impl Default for StreamLimits {
    fn default() -> StreamLimits {
        StreamLimits { head_bytes_max: 65_535, message_bytes_max: 65_535 }
    }
}

/// Cuts one stream into messages. One for each connection; a new one begins where a message may begin.
#[derive(Clone, Copy, Debug, Default)]
pub struct Framer {
    phase: Phase,
}

/// Where in a message the stream is. Positions count from the message's first byte.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Before a message.
    Between {
        /// A CRLF has been taken off; another one makes it a ping.
        half_ping: bool,
    },
    /// In the start line, `looked` bytes of which are known.
    StartLine { looked: usize, part: Part },
    /// Behind the start line.
    Headers(Headers),
    /// The head is whole; the message has `len` bytes.
    Body { len: usize },
    /// Given up; `head_len` is 0 where no head is whole.
    Broken { why: Broken, head_len: usize },
}

impl Default for Phase {
    fn default() -> Phase {
        Phase::Between { half_ping: false }
    }
}

impl Phase {
    fn broken(why: Broken) -> Phase {
        Phase::Broken { why, head_len: 0 }
    }
}

/// The part of the start line that is being read.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// The method of a request, or the version of a response.
    Word,
    /// White space behind the method.
    Gap,
    /// Everything to the CRLF.
    Rest,
    /// A first byte that begins TLS records of handshakes.
    MaybeTls,
}

#[derive(Clone, Copy, Debug)]
struct Headers {
    /// First byte of the line in hand.
    line: usize,
    /// Before this index there is no end of the line in hand.
    looked: usize,
    /// The line in hand has a CR or LF alone.
    bare: bool,
    length: Length,
}

/// What Content-Length says so far.
#[derive(Clone, Copy, Debug)]
enum Length {
    Missing,
    Is(u32),
    /// Nothing certain.
    Doubt,
}

impl Framer {
    /// A framer at the beginning of a stream.
    pub fn new() -> Framer {
        Framer::default()
    }

    /// Tells what is at the front of `bytes`: everything that was received and not yet taken off by the caller.
    ///
    /// The caller takes off `skip + len` bytes after [`Frame::Message`], `len` after [`Frame::Ping`], and asks
    /// again; it takes off `skip` after [`Frame::Incomplete`], and asks again with what is left and new bytes
    /// behind it. After [`Frame::Broken`] every answer is the same. The cost is linear in the bytes received,
    /// however they are cut.
    pub fn next(&mut self, limits: &StreamLimits, bytes: &[u8]) -> Frame {
        let mut at = 0;
        while let Phase::Between { half_ping } = self.phase {
            match bytes.get(at..) {
                Some([b'\r', b'\n', ..]) if half_ping => {
                    self.phase = Phase::default();
                    return Frame::Ping { len: at + 2 };
                }
                Some([b'\r', b'\n', ..]) => {
                    self.phase = Phase::Between { half_ping: true };
                    at += 2;
                }
                None | Some([] | [b'\r']) => return Frame::Incomplete { skip: at },
                Some(_) => self.phase = Phase::StartLine { looked: 0, part: Part::Word },
            }
        }
        let message = bytes.get(at..).unwrap_or(&[]);
        if let Phase::StartLine { looked, part } = self.phase {
            self.phase = read_start_line(limits, message, looked, part);
        }
        if let Phase::Headers(headers) = self.phase {
            self.phase = read_headers(limits, message, headers);
            if let Phase::Broken { head_len: head_len @ 1.., .. } = &mut self.phase {
                *head_len += at;
            }
        }
        match self.phase {
            Phase::Body { len } if message.len() >= len => {
                self.phase = Phase::default();
                Frame::Message { skip: at, len }
            }
            Phase::Broken { why, .. } => Frame::Broken(why),
            _ => Frame::Incomplete { skip: at },
        }
    }

    /// True while the head of a message is whole and its body is awaited.
    pub fn head_is_whole(&self) -> bool {
        matches!(self.phase, Phase::Body { .. })
    }

    /// After [`Broken::TooLarge`] and [`Broken::ContentLength`]: how many of the bytes that led to it are the
    /// head, blank lines before it and the empty line behind it included. 0 otherwise.
    pub fn head_len(&self) -> usize {
        if let Phase::Broken { head_len, .. } = self.phase { head_len } else { 0 }
    }
}

/// Reads the start line on from `looked`.
fn read_start_line(limits: &StreamLimits, message: &[u8], looked: usize, part: Part) -> Phase {
    let limit = limits.head_bytes_max.min(START_LINE_BYTES_MAX);
    let window = without_half_crlf(slice(message, 0, message.len().min(limit)));
    let (mut at, mut part) = (looked, part);
    while !matches!(part, Part::Rest) {
        let Some(&byte) = window.get(at) else { break };
        part = match word_or_gap(window, at, byte, part) {
            Ok(part) => part,
            Err(what) => return Phase::broken(Broken::NotSip(what)),
        };
        at += 1;
    }
    if matches!(part, Part::Rest) {
        if let Some(end) = framing::find_crlf(window, at, &LineEnds::new(), &mut false) {
            return match start_line::read(window, 0, end) {
                Ok(_) => Phase::Headers(Headers::new(end + 2)),
                Err(_) => Phase::broken(Broken::NotSip(what_line(slice(window, 0, end)))),
            };
        }
        at = at.max(window.len());
    }
    if message.len() >= limit {
        return Phase::broken(Broken::HeadersTooLong);
    }
    Phase::StartLine { looked: at, part }
}

/// Reads the headers on.
fn read_headers(limits: &StreamLimits, message: &[u8], mut headers: Headers) -> Phase {
    let window = slice(message, 0, message.len().min(limits.head_bytes_max));
    if let Some(head_len) = headers.read(window) {
        return end_of_head(limits, head_len, headers.length);
    }
    if message.len() >= limits.head_bytes_max {
        return Phase::broken(Broken::HeadersTooLong);
    }
    Phase::Headers(headers)
}

fn end_of_head(limits: &StreamLimits, head_len: usize, length: Length) -> Phase {
    // A missing Content-Length is an error on a stream: RFC 3261 §18.3, §20.14.
    let Length::Is(length) = length else { return Phase::Broken { why: Broken::ContentLength, head_len } };
    match usize::try_from(length).ok().and_then(|length| head_len.checked_add(length)) {
        Some(len) if len <= limits.message_bytes_max => Phase::Body { len },
        _ => Phase::Broken { why: Broken::TooLarge, head_len },
    }
}

/// `bytes` without a CR at their end, which may be half of a CRLF.
fn without_half_crlf(bytes: &[u8]) -> &[u8] {
    bytes.strip_suffix(b"\r").unwrap_or(bytes)
}

/// Where the start line stands behind its byte `at`; an error as soon as no SIP can follow.
fn word_or_gap(line: &[u8], at: usize, byte: u8, part: Part) -> Result<Part, NotSip> {
    match (part, byte) {
        // Content type handshake (22), then the major version 3 (RFC 8446 §5.1).
        (Part::Word, 0x16) if at == 0 => Ok(Part::MaybeTls),
        (Part::MaybeTls, 0x03) => Err(NotSip::Tls),
        (Part::Word, b' ' | b'\t') if at > 0 => Ok(Part::Gap),
        // No method contains a slash: a version, so a status line.
        (Part::Word, b'/') => match slice(line, 0, at) {
            word if word.eq_ignore_ascii_case(b"SIP") => Ok(Part::Rest),
            word if word.eq_ignore_ascii_case(b"HTTP") => Err(NotSip::Http),
            _ => Err(NotSip::Other),
        },
        (Part::Word, _) if at < METHOD_BYTES_MAX && token::is_token(&[byte]) => Ok(Part::Word),
        (Part::Gap, b' ' | b'\t') => Ok(Part::Gap),
        // A URI begins with its scheme, HTTP's most usual target with a slash.
        (Part::Gap, b'/') => Err(NotSip::Http),
        (Part::Gap | Part::Rest, _) => Ok(Part::Rest),
        (Part::Word | Part::MaybeTls, _) => Err(NotSip::Other),
    }
}

/// What a line is that is no start line of SIP.
fn what_line(line: &[u8]) -> NotSip {
    let word = line.rsplit(|&byte| byte == b' ').next().unwrap_or(line);
    let http = word.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"HTTP/"));
    if http { NotSip::Http } else { NotSip::Other }
}

impl Headers {
    fn new(line: usize) -> Headers {
        Headers { line, looked: line, bare: false, length: Length::Missing }
    }

    /// Reads on; gives the head's length once its empty line is there.
    fn read(&mut self, window: &[u8]) -> Option<usize> {
        let ends = LineEnds::new();
        let known = without_half_crlf(window);
        loop {
            if self.looked == self.line {
                match window.get(self.line..) {
                    Some([b'\r', b'\n', ..]) => return Some(self.line + 2),
                    None | Some([] | [b'\r']) => return None,
                    Some(_) => {}
                }
            }
            let Some(end) = framing::find_crlf(known, self.looked, &ends, &mut self.bare) else {
                self.looked = self.looked.max(known.len());
                return None;
            };
            match window.get(end + 2) {
                // It may be a fold.
                None => {
                    self.looked = end;
                    return None;
                }
                Some(b' ' | b'\t') => self.looked = end + 2,
                Some(_) => {
                    self.line_ended(window, end);
                    (self.line, self.looked, self.bare) = (end + 2, end + 2, false);
                }
            }
        }
    }

    /// Notes what the line in hand, which ends at `end`, says about the body's length.
    fn line_ended(&mut self, window: &[u8], end: usize) {
        let line = slice(window, self.line, end);
        if let Some(name) = header_name::read(window, self.line, end) {
            if name.name == HeaderName::ContentLength {
                let value = token::trim(slice(window, name.colon + 1, end));
                self.length = match (self.length, token::number(value)) {
                    (Length::Missing, Number::Fits(length)) => Length::Is(length),
                    _ => Length::Doubt,
                };
            }
        } else if says_content_length(line) {
            self.length = Length::Doubt;
        }
        // RFC 2543 let CR or LF alone end a line: whoever still does would read another header here.
        let hidden =
            |line: &[u8]| line.split(|&b| matches!(b, b'\r' | b'\n')).skip(1).any(says_content_length);
        if self.bare && hidden(line) {
            self.length = Length::Doubt;
        }
    }
}

/// True if a tolerant reader could take `line` for Content-Length: its first word is that, whatever follows.
fn says_content_length(line: &[u8]) -> bool {
    let line = token::trim(line);
    let word = line.split(|&b| b == b':' || token::is_lws(b)).next().unwrap_or(line);
    HeaderName::of(word) == HeaderName::ContentLength
}

#[cfg(test)]
mod tests;
