//! Variables of the message: its headers, its text, where it came from, when.

use super::uri::{Text, push_address_uri, push_host};
use crate::run::{Context, Run};
use crate::text::{is_line, put_unfolded};
use alloc::vec::Vec;
use core::fmt::Write;
use core::net::IpAddr;
use route::{Index, Sink, Subscript};
use sip::{Header, HeaderName, Transport};

/// What `$msg(...)` takes.
pub(super) const MSG_PARTS: &[&str] = &["len", "buf", "body", "body_size", "hdrs", "fline"];
/// What `$TV(...)` takes.
pub(super) const TIME_PARTS: &[&str] = &["s", "u", "sn"];

type At<'a> = Subscript<'a>;

pub(super) fn rm(run: &mut Run<'_, '_>, _: &At<'_>, out: &mut Sink<'_>) {
    out.str(run.message().method_bytes());
}

pub(super) fn rs(run: &mut Run<'_, '_>, _: &At<'_>, out: &mut Sink<'_>) {
    if let Some(status) = run.message().status() {
        out.int(i64::from(status));
    }
}

pub(super) fn rr(run: &mut Run<'_, '_>, _: &At<'_>, out: &mut Sink<'_>) {
    if run.message().status().is_some() {
        out.str(run.message().reason());
    }
}

pub(super) fn ci(run: &mut Run<'_, '_>, _: &At<'_>, out: &mut Sink<'_>) {
    if let Ok(call_id) = run.message().call_id() {
        put_unfolded(out, call_id);
    }
}

pub(super) fn cs(run: &mut Run<'_, '_>, _: &At<'_>, out: &mut Sink<'_>) {
    if let Ok(cseq) = run.message().cseq() {
        out.int(i64::from(cseq.number));
    }
}

pub(super) fn csb(run: &mut Run<'_, '_>, _: &At<'_>, out: &mut Sink<'_>) {
    first(run, HeaderName::CSeq, out);
}

pub(super) fn ct(run: &mut Run<'_, '_>, _: &At<'_>, out: &mut Sink<'_>) {
    first(run, HeaderName::Contact, out);
}

pub(super) fn content_type(run: &mut Run<'_, '_>, _: &At<'_>, out: &mut Sink<'_>) {
    first(run, HeaderName::ContentType, out);
}

pub(super) fn cl(run: &mut Run<'_, '_>, _: &At<'_>, out: &mut Sink<'_>) {
    if let Ok(Some(length)) = run.message().content_length() {
        out.int(i64::from(length));
    }
}

pub(super) fn ua(run: &mut Run<'_, '_>, _: &At<'_>, out: &mut Sink<'_>) {
    first(run, HeaderName::UserAgent, out);
}

pub(super) fn remote_party(run: &mut Run<'_, '_>, _: &At<'_>, out: &mut Sink<'_>) {
    if let Some(header) = run.message().headers_named(b"Remote-Party-ID").next() {
        put_unfolded(out, header.value);
    }
}

/// The value of the first header of a name.
fn first(run: &Run<'_, '_>, name: HeaderName, out: &mut Sink<'_>) {
    if let Some(header) = run.message().header(name) {
        put_unfolded(out, header.value);
    }
}

pub(super) fn rb(run: &mut Run<'_, '_>, _: &At<'_>, out: &mut Sink<'_>) {
    if !run.message().body().is_empty() {
        whole(run, run.message().body(), out);
    }
}

pub(super) fn bs(run: &mut Run<'_, '_>, _: &At<'_>, out: &mut Sink<'_>) {
    length(run.message().body(), out);
}

pub(super) fn mb(run: &mut Run<'_, '_>, _: &At<'_>, out: &mut Sink<'_>) {
    whole(run, run.message().bytes(), out);
}

/// A piece of a message with its line ends, which are the peer's: see [`crate::text`].
fn whole(run: &mut Run<'_, '_>, bytes: &[u8], out: &mut Sink<'_>) {
    run.prepared.lines_read |= !is_line(bytes);
    out.str(bytes);
}

pub(super) fn ml(run: &mut Run<'_, '_>, _: &At<'_>, out: &mut Sink<'_>) {
    length(run.message().bytes(), out);
}

fn length(bytes: &[u8], out: &mut Sink<'_>) {
    out.int(i64::try_from(bytes.len()).unwrap_or(i64::MAX));
}

pub(super) fn mt(run: &mut Run<'_, '_>, _: &At<'_>, out: &mut Sink<'_>) {
    out.int(if run.message().is_request() { 1 } else { 2 });
}

pub(super) fn mi(run: &mut Run<'_, '_>, _: &At<'_>, out: &mut Sink<'_>) {
    out.int(i64::try_from(run.now().as_micros()).unwrap_or(i64::MAX));
}

pub(super) fn hdr(run: &mut Run<'_, '_>, at: &At<'_>, out: &mut Sink<'_>) {
    let message = run.message();
    let headers = || message.headers_named(at.inner.bytes());
    let one = |header: Option<Header<'_>>, out: &mut Sink<'_>| {
        if let Some(header) = header {
            put_unfolded(out, header.value);
        }
    };
    match at.index {
        Index::None => one(headers().next(), out),
        Index::At(index) if index >= 0 => one(headers().nth(index.unsigned_abs() as usize), out),
        Index::At(index) => {
            let count = headers().count();
            let place = count.checked_sub(index.unsigned_abs() as usize);
            one(place.and_then(|place| headers().nth(place)), out);
        }
        Index::All => {
            for (place, header) in headers().enumerate() {
                if place > 0 {
                    out.push(b",");
                }
                put_unfolded(out, header.value);
            }
        }
    }
}

pub(super) fn hdrc(run: &mut Run<'_, '_>, at: &At<'_>, out: &mut Sink<'_>) {
    let count = run.message().headers_named(at.inner.bytes()).count();
    out.int(i64::try_from(count).unwrap_or(i64::MAX));
}

pub(super) fn msg(run: &mut Run<'_, '_>, at: &At<'_>, out: &mut Sink<'_>) {
    let message = run.message();
    let bytes = message.bytes();
    match at.inner.bytes() {
        b"len" => length(bytes, out),
        b"buf" => whole(run, bytes, out),
        b"body" => whole(run, message.body(), out),
        b"body_size" => length(message.body(), out),
        part => {
            let line_end = bytes.windows(2).position(|pair| pair == b"\r\n").map_or(bytes.len(), |at| at + 2);
            let end = message.headers_end().max(line_end);
            let range = if part == b"fline" { 0..line_end } else { line_end..end };
            whole(run, bytes.get(range).unwrap_or(&[]), out);
        }
    }
}

// --- where it came from ---------------------------------------------------------------------------------------------

fn with_buffer(run: &mut Run<'_, '_>, out: &mut Sink<'_>, write: impl FnOnce(&Run<'_, '_>, &mut Vec<u8>)) {
    let mut text = core::mem::take(&mut run.scratch.text);
    text.clear();
    write(run, &mut text);
    if !text.is_empty() {
        out.str(&text);
    }
    run.scratch.text = text;
}

pub(super) fn si(run: &mut Run<'_, '_>, _: &At<'_>, out: &mut Sink<'_>) {
    with_buffer(run, out, |run, text| {
        let _ = write!(Text(text), "{}", run.path().remote.ip());
    });
}

pub(super) fn siz(run: &mut Run<'_, '_>, _: &At<'_>, out: &mut Sink<'_>) {
    with_buffer(run, out, |run, text| push_host(text, run.path().remote.ip()));
}

pub(super) fn sp(run: &mut Run<'_, '_>, _: &At<'_>, out: &mut Sink<'_>) {
    out.int(i64::from(run.path().remote.port()));
}

pub(super) fn su(run: &mut Run<'_, '_>, _: &At<'_>, out: &mut Sink<'_>) {
    with_buffer(run, out, |run, text| push_address_uri(text, run.path().remote, transport(run)));
}

pub(super) fn sas(run: &mut Run<'_, '_>, _: &At<'_>, out: &mut Sink<'_>) {
    with_buffer(run, out, |run, text| {
        text.extend_from_slice(transport_name(transport(run)));
        let _ = write!(Text(text), ":{}", run.path().remote);
    });
}

fn transport(run: &Run<'_, '_>) -> Transport {
    run.listener().map_or(Transport::Udp, |listener| listener.transport)
}

pub(crate) fn transport_name(transport: Transport) -> &'static [u8] {
    match transport {
        Transport::Udp => b"udp",
        Transport::Tcp => b"tcp",
        Transport::Tls => b"tls",
        Transport::Sctp => b"sctp",
        Transport::Ws => b"ws",
        Transport::Wss => b"wss",
        _ => b"other",
    }
}

pub(super) fn received_ip(run: &mut Run<'_, '_>, _: &At<'_>, out: &mut Sink<'_>) {
    with_buffer(run, out, |run, text| {
        if let Some(local) = run.local() {
            let _ = write!(Text(text), "{}", local.ip());
        }
    });
}

pub(super) fn received_port(run: &mut Run<'_, '_>, _: &At<'_>, out: &mut Sink<'_>) {
    if let Some(local) = run.local() {
        out.int(i64::from(local.port()));
    }
}

pub(super) fn received_uri(run: &mut Run<'_, '_>, _: &At<'_>, out: &mut Sink<'_>) {
    with_buffer(run, out, |run, text| {
        if let Some(local) = run.local() {
            push_address_uri(text, local, transport(run));
        }
    });
}

pub(super) fn advertised_host(run: &mut Run<'_, '_>, at: &At<'_>, out: &mut Sink<'_>) {
    match run.listener().and_then(|listener| listener.advertise.as_ref()) {
        Some((host, _)) => out.str(host.as_bytes()),
        None => received_ip(run, at, out),
    }
}

pub(super) fn advertised_port(run: &mut Run<'_, '_>, at: &At<'_>, out: &mut Sink<'_>) {
    match run.listener().and_then(|listener| listener.advertise.as_ref()) {
        Some((_, port)) => out.int(i64::from(*port)),
        None => received_port(run, at, out),
    }
}

pub(super) fn proto(run: &mut Run<'_, '_>, _: &At<'_>, out: &mut Sink<'_>) {
    out.str(transport_name(transport(run)));
}

pub(super) fn af(run: &mut Run<'_, '_>, _: &At<'_>, out: &mut Sink<'_>) {
    out.str(match run.path().remote.ip() {
        IpAddr::V4(_) => b"IPv4",
        IpAddr::V6(_) => b"IPv6",
    });
}

// --- the time, the server -------------------------------------------------------------------------------------------

fn unix_micros(run: &Run<'_, '_>) -> u64 {
    run.environment.clock.unix_micros(run.now())
}

pub(super) fn seconds(run: &mut Run<'_, '_>, _: &At<'_>, out: &mut Sink<'_>) {
    out.int(i64::try_from(unix_micros(run) / 1_000_000).unwrap_or(i64::MAX));
}

pub(super) fn time_value(run: &mut Run<'_, '_>, at: &At<'_>, out: &mut Sink<'_>) {
    let micros = unix_micros(run);
    let (whole, rest) = (micros / 1_000_000, micros % 1_000_000);
    match at.inner.bytes() {
        b"s" => out.int(i64::try_from(whole).unwrap_or(i64::MAX)),
        b"u" => out.int(i64::try_from(rest).unwrap_or(0)),
        _ => with_buffer(run, out, |_, text| {
            let _ = write!(Text(text), "{whole}.{rest:06}");
        }),
    }
}

pub(super) fn pid(run: &mut Run<'_, '_>, _: &At<'_>, out: &mut Sink<'_>) {
    out.int(i64::from(run.environment.process_id));
}

pub(super) fn max_len(run: &mut Run<'_, '_>, _: &At<'_>, out: &mut Sink<'_>) {
    out.int(i64::from(run.environment.message_bytes_max));
}

pub(super) fn version(_: &mut Run<'_, '_>, at: &At<'_>, out: &mut Sink<'_>) {
    if at.inner.bytes() == b"full" {
        out.push(b"strowger ");
    }
    out.push(env!("CARGO_PKG_VERSION").as_bytes());
}

pub(super) fn status(run: &mut Run<'_, '_>, _: &At<'_>, out: &mut Sink<'_>) {
    if let Some(status) = run.status() {
        out.int(i64::from(status));
    }
}

pub(super) fn branch_index(run: &mut Run<'_, '_>, _: &At<'_>, out: &mut Sink<'_>) {
    out.int(match &run.cx {
        Context::Branch(cx) => i64::from(cx.index()),
        _ => -1,
    });
}
