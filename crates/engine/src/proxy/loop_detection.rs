//! Loops and spirals (RFC 3261 §16.3 item 4, §16.6 item 8; RFC 5393 §4.2).
//!
//! The second part of a branch of ours is a hash of what decides where the request goes. A request that comes back with
//! a Via of ours and the same hash is a loop; with another hash it is a spiral, which is allowed.

use crate::branch::OwnBranch;
use crate::mac::Keys;
use crate::own::Own;
use core::hash::Hasher;
use sip::{HeaderName, Message, Via};

/// Route lines that go into the hash; more of them change nothing.
const ROUTES_HASHED_MAX: usize = 8;

/// A hash of what decides where a request goes: Request-URI and Route, as received; and of what tells it from other
/// requests: From tag, Call-ID, CSeq number. Not the topmost Via, which differs each time around, nor what a CANCEL or an
/// ACK does not share with its INVITE, whose branch it must have (RFC 5393 §4.2.1): the method, the To tag, and the
/// Proxy-Require and Proxy-Authorization that RFC 3261 §16.6 item 8 has here.
pub(crate) fn loop_hash(keys: &Keys, message: &Message<'_>) -> u64 {
    let mut hasher = keys.hasher();
    let mut part = |bytes: &[u8]| {
        hasher.write(bytes);
        hasher.write_u32(bytes.len() as u32);
    };
    part(message.request_uri());
    part(message.from_tag().unwrap_or(b""));
    part(message.call_id().unwrap_or(b""));
    part(&message.cseq().map_or(0, |cseq| cseq.number).to_be_bytes());
    for header in message.headers(HeaderName::Route).take(ROUTES_HASHED_MAX) {
        part(header.value);
    }
    hasher.finish()
}

/// Whether the request has been here with the same hash.
pub(crate) fn is_loop(own: &Own, message: &Message<'_>, hash: u64) -> bool {
    let is_ours = |via: &Via<'_>| {
        via.branch().and_then(OwnBranch::parse).is_some_and(|branch| branch.loop_hash() == hash)
            && own.is_own_via(via)
    };
    if !has_second_via(message) {
        return message.via_top().is_ok_and(|via| is_ours(&via));
    }
    message.vias().flatten().any(|via| is_ours(&via))
}

/// Whether there is something behind the topmost Via value, without parsing it.
pub(crate) fn has_second_via(message: &Message<'_>) -> bool {
    let mut lines = message.headers(HeaderName::Via);
    let Some(first) = lines.next() else { return false };
    lines.next().is_some()
        || message.via_top().is_ok_and(|via| {
            let rest = via.span.end as usize..first.line.end as usize;
            message.bytes().get(rest).is_some_and(|rest| rest.contains(&b','))
        })
}
