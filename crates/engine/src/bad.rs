//! What is answered to bytes that are no message: a 400 if they look like a request whose response can be addressed
//! (RFC 3261 §8.2.6, §21.4.1), nothing otherwise.
//!
//! The answer goes to where the bytes came from and repeats Via, From, To, Call-ID and CSeq as they stand, folds
//! unfolded (§7.3.1) and each line ended by CRLF, so it is at most `STATUS_LINE_BYTES` and a byte for each line longer
//! than they are. A line in whose value or name a CR or another control is left is not repeated: what we wrote would be
//! another message to who takes that CR for the end of a line.

use crate::counters::Counters;
use crate::io::{Outbox, Path};
use alloc::vec::Vec;

const STATUS_LINE: &[u8] = b"SIP/2.0 400 Bad Request\r\n";
const CRLF: &[u8] = b"\r\n";
const END: &[u8] = b"Content-Length: 0\r\n\r\n";
/// How much longer than the bytes an answer can be, but for a CR in each line that had none.
#[cfg(test)]
const STATUS_LINE_BYTES: usize = STATUS_LINE.len() + END.len();
/// Bytes looked at; a request whose headers are longer gets no answer.
const SCAN_BYTES_MAX: usize = 8_192;
/// Header lines looked at.
const SCAN_LINES_MAX: usize = 128;

/// Answers if it can.
pub(crate) fn answer(bytes: &[u8], path: Path, counters: &mut Counters, out: &mut Outbox) {
    let start = out.bytes.len();
    if write(bytes, &mut out.bytes) {
        let range = start..out.bytes.len();
        out.outputs.push(crate::io::Output::Send { path, bytes: range });
        counters.reply(400);
    } else {
        out.bytes.truncate(start);
    }
}

fn write(bytes: &[u8], out: &mut Vec<u8>) -> bool {
    let head = bytes.get(..bytes.len().min(SCAN_BYTES_MAX)).unwrap_or(bytes);
    let mut lines = head.split(|&byte| byte == b'\n').take(SCAN_LINES_MAX);
    let Some(first) = lines.next() else { return false };
    if !is_request_line(first) {
        return false;
    }
    out.extend_from_slice(STATUS_LINE);
    let mut seen = [false; 5];
    // Whether what a fold goes on with has been repeated.
    let mut repeated = false;
    for line in lines {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            break;
        }
        if let [b' ' | b'\t', fold @ ..] = line {
            if repeated {
                if !is_text(fold) {
                    return false;
                }
                out.truncate(out.len() - CRLF.len());
                out.push(b' ');
                out.extend_from_slice(fold.trim_ascii());
                out.extend_from_slice(CRLF);
            }
            continue;
        }
        repeated = false;
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { continue };
        let (name, value) = line.split_at(colon);
        let Some(kind) = kind(name) else { continue };
        let Some(known) = seen.get_mut(kind) else { continue };
        // Several Vias are all wanted; of the others the first counts.
        let wanted = (kind == 0 || !*known) && is_text(value);
        if wanted && (kind != 0 || *known || is_addressable(value)) {
            *known = true;
            repeated = true;
            out.extend_from_slice(line);
            out.extend_from_slice(CRLF);
        }
    }
    out.extend_from_slice(END);
    seen == [true; 5]
}

/// `METHOD something SIP/2.0`, and no ACK, which is never answered.
fn is_request_line(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    let method = line.split(|&byte| byte == b' ').next().unwrap_or(b"");
    let token = !method.is_empty() && method.len() <= 32 && method.iter().all(u8::is_ascii_alphanumeric);
    let version = line.len() > 8 && line.get(line.len() - 8..).is_some_and(|v| v.starts_with(b" SIP/"));
    token && version && !method.eq_ignore_ascii_case(b"ACK")
}

/// A Via that names a protocol and somebody.
fn is_addressable(value: &[u8]) -> bool {
    let value = value.get(1..).unwrap_or(b"").trim_ascii();
    value.get(..4).is_some_and(|start| start.eq_ignore_ascii_case(b"SIP/")) && value.contains(&b' ')
}

/// Without controls but HTAB: no CR or LF alone.
fn is_text(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f))
}

/// Of what stands before the colon: a name, and spaces and tabs behind it (HCOLON, §25.1).
fn kind(name: &[u8]) -> Option<usize> {
    const NAMES: [(&[u8], &[u8]); 5] =
        [(b"Via", b"v"), (b"From", b"f"), (b"To", b"t"), (b"Call-ID", b"i"), (b"CSeq", b"CSeq")];
    let end = name.iter().rposition(|byte| !matches!(byte, b' ' | b'\t')).map_or(0, |last| last + 1);
    let name = name.get(..end).unwrap_or(b"");
    NAMES.iter().position(|(long, short)| name.eq_ignore_ascii_case(long) || name.eq_ignore_ascii_case(short))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn a_broken_request_is_answered_from_its_own_lines() {
        let request =
            b"OPTIONS  sip:a@b SIP/2.0\r\nv: SIP/2.0/UDP h;branch=z9hG4bK1\r\nFrom: <sip:x@y>;tag=1\r\n\
            To: <sip:a@b>\r\nCall-ID: 1\r\nCSeq: 1 OPTIONS\r\nX\r\n\r\n";
        let mut out = Vec::new();
        assert!(write(request, &mut out));
        assert!(out.starts_with(b"SIP/2.0 400 Bad Request\r\nv: SIP/2.0/UDP h;branch=z9hG4bK1\r\n"));
        assert!(out.len() <= request.len() + STATUS_LINE_BYTES);
    }

    /// Found by fuzzing: a CR before the name of a header went out again.
    #[test]
    fn a_name_with_a_control_is_not_repeated() {
        for via in ["\rVia:", "Via\r:", "\x0cVia:", "Via\0:", " Via:", "\tVia:", "Via:\r"] {
            let request = format!(
                "BYE sip:a@b SIP/2.0\n{via} SIP/2.0/UDP h\r\nFrom: a\r\nTo: b\r\nCall-ID: c\r\nCSeq: 1 BYE\r\n\r\n"
            );
            assert!(!write(request.as_bytes(), &mut Vec::new()), "{via:?}");
        }
    }

    #[test]
    fn folds_are_unfolded() {
        let request = b"BYE sip:a@b SIP/2.0\nVia \t: SIP/2.0/UDP h\r\n \r\n\t;branch=z9hG4bK1\r\nSubject: s\r\n To: x\r\n\
            From: a\r\nTo: b\r\nCall-ID: c\r\nCSeq: 1 BYE\r\n\r\n";
        let mut out = Vec::new();
        assert!(write(request, &mut out));
        let wanted =
            b"SIP/2.0 400 Bad Request\r\nVia \t: SIP/2.0/UDP h  ;branch=z9hG4bK1\r\nFrom: a\r\nTo: b\r\n\
            Call-ID: c\r\nCSeq: 1 BYE\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(out, wanted);

        let with_a_control =
            b"BYE sip:a@b SIP/2.0\nVia: SIP/2.0/UDP h\r\n \rx\r\nFrom: a\r\nTo: b\r\nCall-ID: c\r\n\
            CSeq: 1 BYE\r\n\r\n";
        assert!(!write(with_a_control, &mut Vec::new()));
    }

    #[test]
    fn what_cannot_be_addressed_is_not_answered() {
        for bytes in [
            &b""[..],
            b"\r\n\r\n",
            b"\x00\x01\x00\x00",
            b"SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP h\r\n\r\n",
            b"ACK sip:a@b SIP/2.0\r\nVia: SIP/2.0/UDP h\r\nFrom: a\r\nTo: b\r\nCall-ID: c\r\nCSeq: 1 ACK\r\n\r\n",
            b"BYE sip:a@b SIP/2.0\r\nVia: nonsense\r\nFrom: a\r\nTo: b\r\nCall-ID: c\r\nCSeq: 1 BYE\r\n\r\n",
            b"BYE sip:a@b SIP/2.0\r\nVia: SIP/2.0/UDP h\r\nFrom: a\r\nTo: b\r\nCSeq: 1 BYE\r\n\r\n",
        ] {
            assert!(!write(bytes, &mut Vec::new()));
        }
    }
}
