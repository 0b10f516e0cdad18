//! Where the lines of a message are: one pass over the headers (RFC 3261 §7, §7.3.1, §7.5).
//!
//! Only CRLF ends a line (RFC 3261 §7). RFC 2543 let CR or LF alone end one, so an element that still does would see
//! headers in a value where we see none: a CR or LF alone between the start line and the empty line makes the message
//! a doubt, answered with 400. Folds (CRLF and white space, §7.3.1) are part of values. Empty lines before the start
//! line are skipped (§7.5).

use crate::error::{ParseError, ParseErrorKind};
use crate::header_name::{self, NameAt};
use crate::index::{Defect, Index, Line, MAX_HEADERS};
use crate::token;

#[cfg(not(target_arch = "x86_64"))]
use memchr::arch::all::memchr::Two;
#[cfg(target_arch = "x86_64")]
use memchr::arch::x86_64::sse2::memchr::Two;

#[cfg(target_arch = "x86_64")]
#[inline]
fn two(a: u8, b: u8) -> Two {
    Two::new(a, b).expect("invariant: every x86-64 has SSE2")
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn two(a: u8, b: u8) -> Two {
    Two::new(a, b)
}

/// The index behind the CRLFs that `bytes` starts with.
pub(crate) fn skip_empty_lines(bytes: &[u8]) -> usize {
    let mut at = 0;
    while bytes.get(at..at + 2) == Some(b"\r\n") {
        at += 2;
    }
    at
}

/// Finds CR and LF. Made once for a message: its calls are direct, and its vectors stay in registers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineEnds(Two);

impl LineEnds {
    #[inline]
    pub(crate) fn new() -> LineEnds {
        LineEnds(two(b'\r', b'\n'))
    }
}

/// The next CRLF at or after `from`; `bare` becomes true if a CR or LF alone is passed.
#[inline]
pub(crate) fn find_crlf(bytes: &[u8], from: usize, ends: &LineEnds, bare: &mut bool) -> Option<usize> {
    let mut at = from;
    loop {
        let end = at + ends.0.find(bytes.get(at..)?)?;
        if bytes.get(end..end + 2) == Some(b"\r\n") {
            return Some(end);
        }
        *bare = true;
        at = end + 1;
    }
}

/// Reads header lines from `at` to the empty line; `bare` says that the start line had a CR or LF alone.
pub(crate) fn read_headers(
    bytes: &[u8],
    at: usize,
    ends: &LineEnds,
    bare: bool,
    index: &mut Index,
) -> Result<(), ParseError> {
    let (mut at, mut bare) = (at, bare);
    loop {
        match bytes.get(at..) {
            Some([b'\r', b'\n', ..]) => {
                index.headers_end = at as u32;
                index.body_start = (at + 2) as u32;
                break;
            }
            None | Some([]) => {
                index.note(Defect::NoEmptyLine);
                index.headers_end = bytes.len() as u32;
                index.body_start = bytes.len() as u32;
                break;
            }
            Some(_) => {}
        }
        // To the CRLF that no white space follows: others are folds (RFC 3261 §7.3.1).
        let mut from = at;
        let (value_limit, end) = loop {
            let Some(crlf) = find_crlf(bytes, from, ends, &mut bare) else {
                index.note(Defect::NoEmptyLine);
                break (bytes.len(), bytes.len());
            };
            from = crlf + 2;
            if !matches!(bytes.get(from), Some(b' ' | b'\t')) {
                break (crlf, from);
            }
        };
        match header_name::read(bytes, at, value_limit) {
            Some(name) if index.lines.len() < MAX_HEADERS => {
                index.push(line(bytes, at, value_limit, end, name));
            }
            Some(_) => {
                return Err(ParseError { kind: ParseErrorKind::TooManyHeaders, offset: at as u32 });
            }
            None => index.note(Defect::HeaderLine),
        }
        at = end;
    }
    if bare {
        index.note(Defect::BareLineEnd);
    }
    Ok(())
}

#[inline]
fn line(bytes: &[u8], start: usize, limit: usize, end: usize, name: NameAt) -> Line {
    let mut value_start = name.colon + 1;
    // Nearly all values have one space before them and none behind.
    if bytes.get(value_start) == Some(&b' ') {
        value_start += 1;
    }
    while value_start < limit && bytes.get(value_start).is_some_and(|&b| token::is_lws(b)) {
        value_start += 1;
    }
    let mut value_end = limit;
    while value_end > value_start && bytes.get(value_end - 1).is_some_and(|&b| token::is_lws(b)) {
        value_end -= 1;
    }
    // A value of nothing but the first space.
    value_start = value_start.min(value_end);
    Line {
        start: start as u32,
        value_start: value_start as u32,
        value_end: value_end as u32,
        end: end as u32,
        name_len: u16::try_from(name.len).unwrap_or(u16::MAX),
        name: name.name,
    }
}
