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
    match line {
        // No method contains a slash.
        [b'S' | b's', b'I' | b'i', b'P' | b'p', b'/', ..] => {
            read_status(bytes, start, end).map(|status| (status, None))
        }
        _ => match read_sound_request(line, start) {
            Some(line) => Ok((line, None)),
            None => read_request(bytes, start, end),
        },
    }
}

/// A request line as nearly all are: [`read_request`] would find the same. `None` leaves it to that.
#[inline]
fn read_sound_request(line: &[u8], start: usize) -> Option<StartLine> {
    let head = line.strip_suffix(b" SIP/2.0")?;
    let method_end = token::skip_token(head, 0);
    let (method, uri) = (slice(head, 0, method_end), slice(head, method_end + 1, head.len()));
    // Without a way out of the loop, so that it becomes vector instructions.
    let no_space = uri.iter().fold(true, |sound, &b| sound & (b > b' '));
    if method.is_empty() || head.get(method_end) != Some(&b' ') || uri.is_empty() || !no_space {
        return None;
    }
    Some(StartLine {
        start: start as u32,
        end: 0,
        status: 0,
        method: Some(Method::of(method)),
        method_span: Span::new(start, start + method_end),
        text: Span::new(start + method_end + 1, start + head.len()),
        version_ok: true,
    })
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
    version == b"SIP/2.0" || version.eq_ignore_ascii_case(b"SIP/2.0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usual_request_line_is_read_as_any_other() {
        for line in [
            &b"INVITE sip:bob@example.com SIP/2.0"[..],
            b"X! a SIP/2.0",
            b"INVITE  sip:a SIP/2.0",
            b"INVITE sip:a  SIP/2.0",
            b"INVITE sip:a b SIP/2.0",
            b"INVITE \rsip:a SIP/2.0",
            b"INVITE\tsip:a SIP/2.0",
            b" INVITE sip:a SIP/2.0",
            b"IN/VITE sip:a SIP/2.0",
            b"INVITE SIP/2.0",
            b"INVITE  SIP/2.0",
            b"INVITE sip:a SIP/2.0 ",
            b"INVITE sip:a sip/2.0",
            b"INVITE sip:a SIP/7.0",
        ] {
            let slow = read_request(line, 0, line.len());
            if let Some(fast) = read_sound_request(line, 0) {
                let (slow, defect) = slow.unwrap();
                assert_eq!(defect, None, "{}", line.escape_ascii());
                assert_eq!(alloc::format!("{fast:?}"), alloc::format!("{slow:?}"));
            } else {
                let usual = slow.is_ok_and(|(line, defect)| defect.is_none() && line.version_ok);
                assert!(!usual || !line.ends_with(b" SIP/2.0"), "{}", line.escape_ascii());
            }
        }
    }
}
