//! Request lines and status lines (RFC 3261 §7.1, §7.2).
//!
//! A status line must be right, for nobody answers a response. A request line with surplus spaces, tokens or brackets
//! is kept with its defect, so that its sender gets a 400; what is neither is not SIP.

use crate::index::{Defect, StartLine};
use crate::span::Span;
use crate::token::{self, slice};
use crate::{Method, ParseErrorKind};

/// Reads the line `start..end` (without its CRLF) of `bytes`.
pub(crate) fn read(
    bytes: &[u8],
    start: usize,
    end: usize,
) -> Result<(StartLine, Option<Defect>), ParseErrorKind> {
    let line = slice(bytes, start, end);
    match line.get(..4) {
        // No method contains a slash.
        Some(prefix) if prefix.eq_ignore_ascii_case(b"SIP/") => {
            read_status(bytes, start, end).map(|status| (status, None))
        }
        _ => read_request(bytes, start, end),
    }
}

/// `SIP-Version SP 3DIGIT SP Reason-Phrase`; the last space may be missing with an empty phrase.
fn read_status(bytes: &[u8], start: usize, end: usize) -> Result<StartLine, ParseErrorKind> {
    let line = slice(bytes, start, end);
    let version_end = memchr::memchr(b' ', line).ok_or(ParseErrorKind::NotSip)?;
    let status = match slice(line, version_end + 1, line.len()) {
        [a, b, c] | [a, b, c, b' ', ..]
            if matches!(a, b'1'..=b'6') && b.is_ascii_digit() && c.is_ascii_digit() =>
        {
            u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0')
        }
        _ => return Err(ParseErrorKind::BadStatus),
    };
    let reason = (start + version_end + 5).min(end);
    Ok(StartLine {
        start: start as u32,
        end: 0,
        status,
        method: None,
        method_span: Span::default(),
        text: Span::new(reason, end),
        version_ok: is_version_2(slice(line, 0, version_end)),
    })
}

/// `Method SP Request-URI SP SIP-Version`: exactly one space each (RFC 3261 §7.1).
fn read_request(
    bytes: &[u8],
    start: usize,
    end: usize,
) -> Result<(StartLine, Option<Defect>), ParseErrorKind> {
    let line = slice(bytes, start, end);
    let trimmed = token::trim(line);
    let is_space = |b: &u8| matches!(b, b' ' | b'\t');
    let method_end = trimmed.iter().position(is_space).ok_or(ParseErrorKind::NotSip)?;
    let version_at = 1 + memchr::memrchr2(b' ', b'\t', trimmed).ok_or(ParseErrorKind::NotSip)?;
    let version = slice(trimmed, version_at, trimmed.len());
    if !version.get(..4).is_some_and(|prefix| prefix.eq_ignore_ascii_case(b"SIP/")) {
        return Err(ParseErrorKind::NotSip);
    }
    let method = slice(trimmed, 0, method_end);
    let middle = slice(trimmed, method_end, version_at);
    let uri = token::trim(middle);
    let sound = trimmed.len() == line.len()
        && token::is_token(method)
        && middle.len() == uri.len() + 2
        && matches!(middle, [b' ', .., b' '])
        && !uri.is_empty()
        && memchr::memchr2(b' ', b'\t', uri).is_none();
    let leading = line.iter().take_while(|b| token::is_lws(**b)).count();
    let uri_at = start + leading + method_end + middle.iter().take_while(|b| token::is_lws(**b)).count();
    let start_line = StartLine {
        start: start as u32,
        end: 0,
        status: 0,
        method: Some(Method::of(method)),
        method_span: Span::new(start + leading, start + leading + method_end),
        text: Span::new(uri_at, uri_at + uri.len()),
        version_ok: is_version_2(version),
    };
    Ok((start_line, (!sound).then_some(Defect::RequestLine)))
}

/// `SIP/2.0`, any case (RFC 3261 §7.1).
fn is_version_2(version: &[u8]) -> bool {
    version.eq_ignore_ascii_case(b"SIP/2.0")
}
