//! Responses to any request that parsed, sound or not (RFC 3261 §8.2.6).

use crate::edit::received_changes;
use crate::index::Line;
use crate::token::{push_number, slice};
use crate::{HeaderName, Message};
use alloc::vec::Vec;
use core::net::IpAddr;

/// What a response says beyond what it copies.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResponseSpec<'a> {
    /// The status code, 100 to 699.
    pub status: u16,
    /// The reason phrase; empty means the usual one. Line ends in it become spaces.
    pub reason: &'a [u8],
    /// The tag that To gets if it has none (RFC 3261 §8.2.6.2); `None` for a 100.
    pub to_tag: Option<&'a [u8]>,
    /// Source address for the topmost Via, as [`Edits::set_received`](crate::Edits::set_received) has it.
    pub received: Option<IpAddr>,
    /// Source port for the topmost Via; filled in only if the client asked.
    pub rport: Option<u16>,
    /// Copies Record-Route, for 1xx and 2xx that form a dialog (RFC 3261 §12.1.1).
    pub record_routes: bool,
    /// More header lines, CRLFs included.
    pub headers: &'a [u8],
    /// The body; its Content-Type stands in `headers`.
    pub body: &'a [u8],
}

/// Appends a response to `request` to `out`. Never fails: headers that the request does not have, or has malformed,
/// are left out or copied as they are.
///
/// Copied are all Via, From, To, Call-ID and CSeq (RFC 3261 §8.2.6.2), and Timestamp into a 100 (§8.2.6.1). Of headers
/// that may occur once only the first is copied.
pub fn write_response(request: &Message<'_>, spec: &ResponseSpec<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"SIP/2.0 ");
    push_number(out, u32::from(spec.status));
    out.push(b' ');
    match spec.reason {
        [] => out.extend_from_slice(reason_phrase(spec.status).as_bytes()),
        reason => push_one_line(reason, out),
    }
    out.extend_from_slice(b"\r\n");
    let mut top = true;
    for line in lines(request, HeaderName::Via) {
        if core::mem::take(&mut top) {
            push_top_via(request, line, spec, out);
        } else {
            push_line(request, line, out);
        }
    }
    if spec.record_routes {
        lines(request, HeaderName::RecordRoute).for_each(|line| push_line(request, line, out));
    }
    push_first(request, HeaderName::From, out);
    push_to(request, spec.to_tag, out);
    push_first(request, HeaderName::CallId, out);
    push_first(request, HeaderName::CSeq, out);
    if spec.status == 100 {
        push_first(request, HeaderName::Timestamp, out);
    }
    out.extend_from_slice(spec.headers);
    out.extend_from_slice(b"Content-Length: ");
    push_number(out, u32::try_from(spec.body.len()).unwrap_or(u32::MAX));
    out.extend_from_slice(b"\r\n\r\n");
    out.extend_from_slice(spec.body);
}

/// All lines of `name`, in order.
pub(crate) fn lines<'a>(message: &Message<'a>, name: HeaderName) -> impl Iterator<Item = &'a Line> {
    let first = message.index.first_at(name).unwrap_or(usize::MAX);
    message.index.lines.get(first..).unwrap_or(&[]).iter().filter(move |line| line.name == name)
}

fn push_top_via(request: &Message<'_>, line: &Line, spec: &ResponseSpec<'_>, out: &mut Vec<u8>) {
    if request.index.defect.is_some() {
        return push_line(request, line, out);
    }
    let mut cursor = line.start as usize;
    for change in received_changes(request, spec.received, spec.rport).into_iter().flatten() {
        out.extend_from_slice(slice(request.bytes, cursor, change.at.start as usize));
        change.push(out);
        cursor = change.at.end as usize;
    }
    out.extend_from_slice(slice(request.bytes, cursor, line.end as usize));
}

fn push_to(request: &Message<'_>, tag: Option<&[u8]>, out: &mut Vec<u8>) {
    let Some(line) = request.index.first_line(HeaderName::To) else { return };
    // A To that nobody can read stays as it is: whether it has a tag cannot be said.
    let end = match (request.to(), tag) {
        (Ok(to), Some(_)) if to.tag().is_none() && request.index.defect.is_none() => to.span.end as usize,
        _ => return push_line(request, line, out),
    };
    out.extend_from_slice(slice(request.bytes, line.start as usize, end));
    out.extend_from_slice(b";tag=");
    out.extend_from_slice(tag.unwrap_or(&[]));
    out.extend_from_slice(slice(request.bytes, end, line.end as usize));
}

/// Appends the first line of `name`, if there is one.
pub(crate) fn push_first(message: &Message<'_>, name: HeaderName, out: &mut Vec<u8>) {
    if let Some(line) = message.index.first_line(name) {
        push_line(message, line, out);
    }
}

/// Appends a header line. In a message whose framing is doubtful its line ends may be wrong or missing: then name and
/// value are written on one line.
pub(crate) fn push_line(message: &Message<'_>, line: &Line, out: &mut Vec<u8>) {
    let start = line.start as usize;
    if message.index.defect.is_none() {
        out.extend_from_slice(slice(message.bytes, start, line.end as usize));
        return;
    }
    out.extend_from_slice(slice(message.bytes, start, start + usize::from(line.name_len)));
    out.extend_from_slice(b": ");
    push_one_line(slice(message.bytes, line.value_start as usize, line.value_end as usize), out);
    out.extend_from_slice(b"\r\n");
}

/// Appends `text` with every CR and LF turned into a space.
fn push_one_line(text: &[u8], out: &mut Vec<u8>) {
    out.extend(text.iter().map(|&b| if matches!(b, b'\r' | b'\n') { b' ' } else { b }));
}

/// The reason phrase of a status code; of an unknown one that of its class (RFC 3261 §8.1.3.2, §21).
pub fn reason_phrase(status: u16) -> &'static str {
    match status {
        100 => "Trying",
        180 => "Ringing",
        181 => "Call Is Being Forwarded",
        182 => "Queued",
        183 => "Session Progress",
        199 => "Early Dialog Terminated",
        200 => "OK",
        202 => "Accepted",
        204 => "No Notification",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Moved Temporarily",
        305 => "Use Proxy",
        380 => "Alternative Service",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        410 => "Gone",
        412 => "Conditional Request Failed",
        413 => "Request Entity Too Large",
        414 => "Request-URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Unsupported URI Scheme",
        420 => "Bad Extension",
        421 => "Extension Required",
        422 => "Session Interval Too Small",
        423 => "Interval Too Brief",
        430 => "Flow Failed",
        439 => "First Hop Lacks Outbound Support",
        440 => "Max-Breadth Exceeded",
        480 => "Temporarily Unavailable",
        481 => "Call/Transaction Does Not Exist",
        482 => "Loop Detected",
        483 => "Too Many Hops",
        484 => "Address Incomplete",
        485 => "Ambiguous",
        486 => "Busy Here",
        487 => "Request Terminated",
        488 => "Not Acceptable Here",
        489 => "Bad Event",
        491 => "Request Pending",
        493 => "Undecipherable",
        494 => "Security Agreement Required",
        500 => "Server Internal Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Server Time-out",
        505 => "Version Not Supported",
        513 => "Message Too Large",
        580 => "Precondition Failure",
        600 => "Busy Everywhere",
        603 => "Decline",
        604 => "Does Not Exist Anywhere",
        606 => "Not Acceptable",
        _ => match status / 100 {
            1 => "Session Progress",
            2 => "OK",
            3 => "Multiple Choices",
            5 => "Server Internal Error",
            6 => "Decline",
            _ => "Bad Request",
        },
    }
}

#[cfg(test)]
mod tests;
