//! What can be wrong with a message, and who is to blame: always the peer that sent it.

use crate::HeaderName;
use core::fmt;

/// Why bytes are no SIP message at all. Such a datagram cannot be answered; it is dropped and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// What is wrong.
    pub kind: ParseErrorKind,
    /// Offset of the byte where it was noticed.
    pub offset: u32,
}

/// The kinds of [`ParseError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseErrorKind {
    /// Nothing but empty lines: a keep-alive (RFC 5626 §3.5.1).
    Empty,
    /// The first line is neither a request line nor a status line (RFC 3261 §7.1, §7.2).
    NotSip,
    /// A status line without a three-digit code from 100 to 699.
    BadStatus,
    /// No CRLF ends the first line.
    NoLineEnd,
    /// More header lines than [`MAX_HEADERS`](crate::MAX_HEADERS).
    TooManyHeaders,
    /// Longer than [`MAX_MESSAGE_BYTES`](crate::MAX_MESSAGE_BYTES).
    TooLong,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            ParseErrorKind::Empty => "no message, only empty lines",
            ParseErrorKind::NotSip => "the first line is not SIP",
            ParseErrorKind::BadStatus => "the status code is not 100 to 699",
            ParseErrorKind::NoLineEnd => "the first line has no end",
            ParseErrorKind::TooManyHeaders => "too many header lines",
            ParseErrorKind::TooLong => "too long",
        };
        write!(f, "{what} (at byte {})", self.offset)
    }
}

impl core::error::Error for ParseError {}

/// Why a header field has no usable value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderError {
    /// Which header field.
    pub name: HeaderName,
    /// What is wrong with it.
    pub problem: Problem,
}

/// The kinds of [`HeaderError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// It is not there.
    Missing,
    /// It is there more than once, and only one is allowed (RFC 3261 §7.3.1).
    Repeated,
    /// It does not follow its grammar.
    Malformed,
    /// A number is larger than allowed.
    OutOfRange,
}

impl HeaderError {
    /// The status to answer a request with: always 400 (RFC 3261 §16.3 item 1).
    pub const fn status(self) -> u16 {
        400
    }
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.as_str().unwrap_or("header");
        let what = match self.problem {
            Problem::Missing => "is missing",
            Problem::Repeated => "is there more than once",
            Problem::Malformed => "is malformed",
            Problem::OutOfRange => "is out of range",
        };
        write!(f, "{name} {what}")
    }
}

impl core::error::Error for HeaderError {}
