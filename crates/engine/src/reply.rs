//! Responses of our own (RFC 3261 §8.2.6) and the way back (RFC 3261 §18.2.1, §18.2.2; RFC 3581 §4).
//!
//! # Where responses go
//!
//! On streams: the connection; if it is gone, a new one to the address that the request came from, at the port of
//! sent-by, and to a WebSocket client none (RFC 7118 §5). On datagrams: to the address that the request came from, at its port if the topmost Via
//! has `rport`, else at the port of sent-by. `maddr` is honoured only where it is the literal of a unicast address;
//! `ttl` never: a request must not make us send to a group.
//!
//! # Amplification
//!
//! A response of our own that is longer than its request by more than
//! [`Limits::amplification_slack`](crate::Limits::amplification_slack) is held back while its destination has not been
//! heard from twice: a real client retransmits and gets it then. A relayed response goes as it came.

use crate::context::{Arrival, RelayError, ReplyError};
use crate::io::{FlowId, ListenerId, Outbox, Output, Path};
use crate::mac::Purpose;
use crate::own::{Text, default_port, is_websocket};
use crate::shard::Core;
use crate::table::EntryId;
use alloc::vec::Vec;
use core::fmt::Write;
use core::net::{IpAddr, SocketAddr};
use sip::{HeaderName, Instant, Message, Method, ResponseSpec, Transport, Via};

/// What is added to the topmost Via (RFC 3261 §18.2.1, RFC 3581 §4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ViaFix {
    pub(crate) received: Option<IpAddr>,
    pub(crate) rport: Option<u16>,
    /// Whether the script wants the `rport` that the client did not ask for.
    pub(crate) forced: bool,
}

/// One response of our own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply<'a> {
    pub(crate) status: u16,
    pub(crate) reason: &'a [u8],
    /// Full lines.
    pub(crate) headers: &'a [u8],
    pub(crate) body: &'a [u8],
}

impl Reply<'static> {
    /// A response with the standard phrase and nothing else.
    pub(crate) fn bare(status: u16) -> Reply<'static> {
        Reply { status, reason: sip::reason_phrase(status).as_bytes(), headers: b"", body: b"" }
    }
}

/// Whether a listener's transport is a datagram one.
pub(crate) fn is_datagram(transport: Transport) -> bool {
    transport == Transport::Udp
}

/// An address without the disguise of IPv4 in IPv6.
pub(crate) fn canonical(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

/// How a request came: its way, the way back, and what its topmost Via lacks.
pub(crate) fn arrival(message: &Message<'_>, path: Path, transport: Transport) -> Arrival {
    let Ok(via) = message.via_top() else {
        return Arrival { path, reply_path: path, fix: ViaFix::default() };
    };
    let source = canonical(path.remote.ip());
    let rport = via.rport().map(|_| path.remote.port());
    // RFC 3581 §4: with rport, received is added even where it equals sent-by. One that the client wrote is
    // never left: who forwards the response without state would send it there.
    let is_written = rport.is_some() || via.says_received() || via.host.ip() != Some(source);
    let received = is_written.then_some(source);
    let fix = ViaFix { received, rport, forced: false };
    if !is_datagram(transport) {
        let reply_path = Path { fallback_port: fallback_port(&via, transport), ..path };
        return Arrival { path, reply_path, fix };
    }
    let sent_by_port = via.port.unwrap_or(default_port(transport));
    let maddr = via.maddr().and_then(|maddr| unicast(maddr.ip()));
    let remote = match maddr {
        Some(ip) => SocketAddr::new(ip, sent_by_port),
        None => SocketAddr::new(path.remote.ip(), rport.unwrap_or(sent_by_port)),
    };
    let reply_path = if remote.port() == 0 { path } else { Path { remote, ..path } };
    Arrival { path, reply_path, fix }
}

/// The port to connect to when the connection of a request is gone (RFC 3261 §18.2.2): that of sent-by; 0, none, for a
/// WebSocket client.
fn fallback_port(via: &Via<'_>, transport: Transport) -> u16 {
    if is_websocket(transport) { 0 } else { via.port.unwrap_or(default_port(transport)) }
}

/// An address that names one host.
pub(crate) fn unicast(ip: Option<IpAddr>) -> Option<IpAddr> {
    ip.filter(|ip| !ip.is_multicast() && !ip.is_unspecified() && *ip != IpAddr::from([255, 255, 255, 255]))
}

/// The way on for a response without state: the connection of the request, `path.flow`, or `via`, the topmost below ours
/// (RFC 3261 §18.2.2).
pub(crate) fn next_via_path(via: &Via<'_>, path: Path, transport: Transport) -> Option<Path> {
    let port = via.port.unwrap_or(default_port(via.transport));
    let maddr = via.maddr().and_then(|maddr| unicast(maddr.ip()));
    let (ip, port) = match (maddr, via.received()) {
        (Some(ip), _) => (ip, port),
        (None, Some(ip)) => (ip, via.rport().flatten().unwrap_or(port)),
        (None, None) => (via.host.ip()?, port),
    };
    let ip = unicast(Some(ip))?;
    if port == 0 {
        return None;
    }
    let remote = SocketAddr::new(ip, port);
    Some(match is_datagram(transport) {
        true => Path { flow: FlowId::NONE, remote, ..path },
        false => Path { remote, fallback_port: fallback_port(via, transport), ..path },
    })
}

/// Addresses heard from: a small table without buckets; an address that is pushed out counts as new.
#[derive(Debug)]
pub(crate) struct Heard(Vec<u32>);

/// Addresses remembered at most.
const HEARD_SLOTS: usize = 1 << 14;

impl Heard {
    pub(crate) fn new() -> Heard {
        Heard(alloc::vec![0; HEARD_SLOTS])
    }

    /// A datagram came from here.
    pub(crate) fn hear(&mut self, hash: u64) {
        let (place, mark) = Heard::place(hash);
        if let Some(slot) = self.0.get_mut(place) {
            *slot = if *slot & !1 == mark { mark | 1 } else { mark };
        }
    }

    /// Whether two have come.
    pub(crate) fn is_known(&self, hash: u64) -> bool {
        let (place, mark) = Heard::place(hash);
        self.0.get(place) == Some(&(mark | 1))
    }

    fn place(hash: u64) -> (usize, u32) {
        // Bit 1 keeps a mark from being the empty slot, bit 0 says "twice".
        ((hash as usize) & (HEARD_SLOTS - 1), (hash >> 32) as u32 & !1 | 2)
    }
}

impl<S> Core<S> {
    /// A hash of an address for [`Heard`].
    pub(crate) fn address_hash(&self, ip: IpAddr) -> u64 {
        match canonical(ip) {
            IpAddr::V4(ip) => self.keys.hash(&[&ip.octets()]),
            IpAddr::V6(ip) => self.keys.hash(&[&ip.octets()]),
        }
    }

    /// The To tag of our responses to a request: the same for its retransmissions (RFC 3261 §8.2.7), and recognised in
    /// its ACK.
    pub(crate) fn to_tag(&self, message: &Message<'_>) -> [u8; 13] {
        let number = message.cseq().map_or(0, |cseq| cseq.number).to_be_bytes();
        let call_id = message.call_id().unwrap_or(b"");
        let from_tag = message.from_tag().unwrap_or(b"");
        let value = self.keys.mac(Purpose::ToTag, &[call_id, from_tag, &number]);
        let mut tag = [0; 13];
        for (place, digit) in tag.iter_mut().rev().enumerate() {
            let bits = (value >> (place * 5) & 31) as u8;
            *digit = if bits < 10 { b'0' + bits } else { b'a' + bits - 10 };
        }
        tag
    }

    /// Whether the ACK at hand belongs to a response of our own that was sent without state.
    pub(crate) fn is_own_ack(&self, ack: &Message<'_>) -> bool {
        let is_own = |tag: &[u8]| tag.len() == 13 && tag == self.to_tag(ack);
        self.refused.holds(self.hash) || ack.to_tag().is_some_and(is_own)
    }

    /// Appends a response of our own to `out`.
    pub(crate) fn write_reply(
        &mut self,
        request: &Message<'_>,
        fix: ViaFix,
        reply: &Reply<'_>,
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        // RFC 3261 §8.2.6.2: a 100 needs no tag.
        let tag = (reply.status != 100).then(|| self.to_tag(request));
        let mut lines = core::mem::take(&mut self.lines);
        lines.clear();
        lines.extend_from_slice(reply.headers);
        if let Some(server) = &self.config.server_header {
            let _ = write!(Text(&mut lines), "Server: {server}\r\n");
        }
        // RFC 3261 §12.1.1: what makes a dialog carries the Record-Routes.
        let dialog = (101..300).contains(&reply.status)
            && matches!(
                request.method(),
                Method::Invite | Method::Subscribe | Method::Refer | Method::Notify
            );
        sip::write_response(
            request,
            &ResponseSpec {
                status: reply.status,
                reason: reply.reason,
                to_tag: tag.as_ref().map(|tag| &tag[..]),
                received: fix.received,
                rport: fix.rport,
                record_routes: dialog,
                headers: &lines,
                body: reply.body,
            },
            out,
        );
        self.lines = lines;
        if let Some(port) = fix.rport.filter(|_| fix.forced) {
            self.add_rport(start, port, out);
        }
        self.counters.reply(reply.status);
    }

    /// Adds `rport` to the topmost Via of the response that starts at `start`: the client did not ask for it, so that
    /// nothing in its Via says where it goes.
    fn add_rport(&mut self, start: usize, port: u16, out: &mut Vec<u8>) {
        let mut spare = core::mem::take(&mut self.spare);
        let response = out.get(start..).and_then(|bytes| Message::parse(bytes, &mut spare).ok());
        let end = response.and_then(|response| response.via_top().ok().map(|via| via.span.end as usize));
        self.spare = spare;
        if let Some(at) = end.map(|end| start + end) {
            let mut text = core::mem::take(&mut self.text);
            text.clear();
            let _ = write!(Text(&mut text), ";rport={port}");
            out.splice(at..at, text.iter().copied());
            self.text = text;
        }
    }

    /// Adds the Content-Length that a stream needs (RFC 3261 §20.14) to what was written from `start` on, if `message`,
    /// of which it was made, had none.
    pub(crate) fn add_content_length(
        &mut self,
        message: &Message<'_>,
        listener: ListenerId,
        start: usize,
        out: &mut Vec<u8>,
    ) {
        let stream = matches!(self.own.transport(listener), Transport::Tcp | Transport::Tls);
        if !stream || message.content_length() != Ok(None) {
            return;
        }
        let mut spare = core::mem::take(&mut self.spare);
        let written = out.get(start..).and_then(|bytes| Message::parse(bytes, &mut spare).ok());
        let place = written
            .filter(|written| written.content_length() == Ok(None))
            .map(|written| (start + written.headers_end(), written.body().len()));
        self.spare = spare;
        if let Some((at, length)) = place {
            let mut text = core::mem::take(&mut self.text);
            text.clear();
            let _ = write!(Text(&mut text), "Content-Length: {length}\r\n");
            out.splice(at..at, text.iter().copied());
            self.text = text;
        }
    }

    /// Replies without state. A provisional response goes to an INVITE alone: to another request there is none but a 100
    /// at its time (RFC 4320 §4.1), which nobody knows here.
    pub(crate) fn reply_stateless(
        &mut self,
        request: &Message<'_>,
        arrival: &Arrival,
        reply: &Reply<'_>,
        out: &mut Outbox,
    ) {
        if reply.status < 200 && request.method() != Method::Invite {
            return;
        }
        self.note_stateless(request, reply.status);
        let start = out.bytes.len();
        self.write_reply(request, arrival.fix, reply, &mut out.bytes);
        let _ = self.queue(request, arrival.reply_path, start, out);
    }

    /// Queues what was appended since `start` unless it would amplify; whether it did.
    #[must_use]
    fn queue(&mut self, request: &Message<'_>, path: Path, start: usize, out: &mut Outbox) -> bool {
        if self.would_amplify(request.bytes(), path, out.bytes.len() - start) {
            out.bytes.truncate(start);
            self.counters.held_back += 1;
            return false;
        }
        out.outputs.push(Output::Send { path, bytes: start..out.bytes.len() });
        true
    }

    /// Whether an answer of `len` bytes is too long for somebody who has not been heard from twice.
    fn would_amplify(&self, request: &[u8], path: Path, len: usize) -> bool {
        let bound = request.len() + self.config.limits.amplification_slack;
        let datagram = is_datagram(self.own.transport(path.listener));
        datagram && len > bound && !self.heard.is_known(self.address_hash(path.remote.ip()))
    }

    /// Replies in a transaction.
    pub(crate) fn reply(
        &mut self,
        id: EntryId,
        request: &Message<'_>,
        reply: &Reply<'_>,
        now: Instant,
        out: &mut Outbox,
    ) -> Result<(), ReplyError> {
        let Some(entry) = self.table.get(id) else { return Err(ReplyError::AlreadyFinal) };
        if entry.server.is_final() {
            return Err(ReplyError::AlreadyFinal);
        }
        if reply.status == 408 && entry.method != Method::Invite {
            // RFC 4320 §4.2: the client knows by itself.
            self.stay_silent(id, Some(request), now);
            return Ok(());
        }
        let (fix, path) = (entry.fix, entry.reply_path);
        let start = out.bytes.len();
        self.write_reply(request, fix, reply, &mut out.bytes);
        let end = out.bytes.len();
        if self.sent_upstream(id, reply.status, now, &out.bytes[start..end]) {
            let queued = self.queue(request, path, start, out);
            if let Some(entry) = self.table.get_mut(id) {
                entry.held_back = !queued;
            }
        } else {
            out.bytes.truncate(start);
        }
        Ok(())
    }

    /// Writes the 100 of a transaction that will have no final response, before it is due, to where what was sent last is kept.
    pub(crate) fn write_trying(&mut self, id: EntryId, request: &Message<'_>) {
        let Some((fix, path)) = self.table.get(id).map(|entry| (entry.fix, entry.reply_path)) else { return };
        let mut bytes = Vec::new();
        self.write_reply(request, fix, &Reply::bare(100), &mut bytes);
        let held_back = self.would_amplify(request.bytes(), path, bytes.len());
        let Some(entry) = self.table.get_mut(id) else { return };
        entry.held_back = held_back;
        self.pool.store(&mut entry.response, &bytes);
    }

    /// The same of a request that the transaction holds, which it loses.
    pub(crate) fn write_trying_of_held(&mut self, id: EntryId) {
        let Some(entry) = self.table.get_mut(id) else { return };
        let mut bytes = core::mem::take(&mut entry.request);
        let mut index = core::mem::take(&mut self.spare);
        if let Ok(request) = Message::parse(&bytes, &mut index) {
            self.write_trying(id, &request);
        }
        self.spare = index;
        self.pool.drop(&mut bytes);
    }

    /// Replies with an error of relaying and the headers that belong to it.
    pub(crate) fn reply_error(
        &mut self,
        entry: Option<EntryId>,
        request: &Message<'_>,
        arrival: &Arrival,
        error: Option<RelayError>,
        now: Instant,
        out: &mut Outbox,
    ) -> Result<(), ReplyError> {
        let mut headers = core::mem::take(&mut self.error_lines);
        headers.clear();
        let (status, reason) = error.map_or((500, sip::reason_phrase(500)), |e| (e.status(), e.reason()));
        match error {
            // RFC 3261 §8.2.2.3, §16.3 item 5: all that we do not support, which is all that is asked for.
            Some(RelayError::BadExtension) => {
                for (place, tag) in request.option_tags(HeaderName::ProxyRequire).enumerate() {
                    headers.extend_from_slice(if place == 0 { b"Unsupported: " } else { b", " });
                    headers.extend_from_slice(tag);
                }
                headers.extend_from_slice(b"\r\n");
            }
            Some(RelayError::TableFull) => self.write_retry_after(&mut headers),
            // RFC 5630 §5.3: so that the caller knows which scheme would do.
            Some(RelayError::SipsNotAllowed) => {
                self.write_warning(arrival, "380", "SIPS Not Allowed", &mut headers);
            }
            Some(RelayError::SipsRequired) => {
                self.write_warning(arrival, "381", "SIPS Required", &mut headers);
            }
            _ => {}
        }
        let reply = Reply { status, reason: reason.as_bytes(), headers: &headers, body: b"" };
        let result = match entry {
            Some(entry) => self.reply(entry, request, &reply, now, out),
            None => {
                self.reply_stateless(request, arrival, &reply, out);
                Ok(())
            }
        };
        self.error_lines = headers;
        result
    }

    /// Appends a Warning (RFC 3261 §20.43).
    fn write_warning(&self, arrival: &Arrival, code: &str, text: &str, lines: &mut Vec<u8>) {
        let _ = write!(Text(lines), "Warning: {code} ");
        self.own.write_sent_by(arrival.path.listener, arrival.path.local, lines);
        let _ = write!(Text(lines), " \"{text}\"\r\n");
    }

    /// Refuses a request without state: 503 with Retry-After (RFC 3261 §21.5.4).
    pub(crate) fn refuse(&mut self, request: &Message<'_>, arrival: &Arrival, out: &mut Outbox) {
        if request.method() != Method::Ack {
            let now = Instant::ZERO;
            let _ = self.reply_error(None, request, arrival, Some(RelayError::TableFull), now, out);
        }
    }

    pub(crate) fn write_retry_after(&self, headers: &mut Vec<u8>) {
        let _ = write!(Text(headers), "Retry-After: {}\r\n", self.config.limits.retry_after_secs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_known_when_heard_twice() {
        let mut heard = Heard::new();
        for hash in [0, 4 << 32, 0x1234_5678_9abc_def0, u64::MAX] {
            assert!(!heard.is_known(hash));
            heard.hear(hash);
            assert!(!heard.is_known(hash));
            heard.hear(hash);
            assert!(heard.is_known(hash));
            heard.hear(hash);
            assert!(heard.is_known(hash));
        }
    }

    #[test]
    fn groups_are_no_destination() {
        for text in ["224.0.1.75", "255.255.255.255", "0.0.0.0", "ff02::1", "::"] {
            assert_eq!(unicast(text.parse().ok()), None, "{text}");
        }
        assert!(unicast("192.0.2.1".parse().ok()).is_some());
    }
}
