//! Challenges (RFC 3261 §22.1 to §22.3; several at once: RFC 8760 §2.3).

use super::NonceText;
use super::verify::{is_exempt, nonce_secs, offered, realm, scope, unavailable};
use crate::log::Level;
use crate::run::Run;
use crate::sl::{Mode, reply, reply_with};
use alloc::vec::Vec;
use route::Outcome;
use sip::digest::{Challenge, Role};

/// The flag that offers `qop=auth`.
const QOP_AUTH: i64 = 1;
/// The flag that would offer `qop=auth-int`.
const QOP_AUTH_INT: i64 = 2;
/// The flag that leaves failures to the script.
const NO_ERROR_REPLY: i64 = 4;
/// The flag that says `stale=true`.
pub(super) const STALE: i64 = 16;

/// What a challenge offers.
#[derive(Clone, Copy)]
pub(super) struct Offer {
    pub(super) qop: bool,
    pub(super) stale: bool,
}

impl Offer {
    /// What the flags of the `…_challenge` functions mean, the settings and the credentials that were refused.
    fn of_flags(run: &mut Run<'_, '_>, flags: i64) -> Offer {
        if flags & QOP_AUTH_INT != 0 {
            run.say(
                Level::Notice,
                b"a challenge with qop=auth-int was asked for: it offers auth, as bodies are not hashed",
            );
        }
        Offer {
            qop: run.settings.auth.qop || flags & (QOP_AUTH | QOP_AUTH_INT) != 0,
            stale: run.prepared.auth.stale || flags & STALE != 0,
        }
    }
}

/// A new nonce for a realm.
pub(super) fn nonce(run: &mut Run<'_, '_>, realm: &[u8]) -> NonceText {
    let scope = scope(run, realm);
    let now = nonce_secs(run);
    let message = run.message();
    // No two nonces are the same: shards share no Call-ID, and one of them no serial number.
    let serial = run.auth.users.next_serial();
    let mut bytes = Vec::with_capacity(80);
    bytes.extend_from_slice(&serial.to_be_bytes());
    bytes.extend_from_slice(&run.environment.clock.unix_micros(run.now()).to_be_bytes());
    bytes.extend_from_slice(message.call_id().unwrap_or_default());
    let random = run.auth.users.hash(&bytes);
    run.auth.key.issue(&scope, now, random)
}

/// Appends a header line for each algorithm that is offered.
pub(super) fn push_lines(run: &mut Run<'_, '_>, role: Role, realm: &[u8], offer: Offer, out: &mut Vec<u8>) {
    let nonce = nonce(run, realm);
    let settings = run.settings;
    let name = match role {
        Role::Server => &settings.auth.www_header,
        Role::Proxy => &settings.auth.proxy_header,
    };
    for algorithm in offered(run) {
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b": ");
        push_value(realm, &nonce, algorithm, offer, out);
        out.extend_from_slice(b"\r\n");
    }
}

/// Appends one challenge, without the name of a header.
pub(super) fn push_value(
    realm: &[u8],
    nonce: &NonceText,
    algorithm: sip::digest::Algorithm,
    offer: Offer,
    out: &mut Vec<u8>,
) {
    let Offer { qop, stale } = offer;
    Challenge { realm, nonce: nonce.as_bytes(), algorithm, qop, stale }.write(out);
}

/// Answers with a challenge: 1 if it was sent; -1 without a realm or for a request that is never challenged, -3 if it could
/// not be sent. Where attempts are slowed, 503 with Retry-After goes instead.
pub(super) fn challenge(run: &mut Run<'_, '_>, role: Role, said: &[u8], flags: i64) -> Outcome {
    if is_exempt(&run.message()) {
        return Outcome::False;
    }
    if let Some(secs) = run.prepared.auth.later {
        return if unavailable(run, secs) { Outcome::True } else { Outcome::Code(-3) };
    }
    let Some(realm) = realm(&run.message(), run.settings, said) else {
        run.say(Level::Error, b"a challenge needs a realm: none was given, and From (or To) has no domain");
        if flags & NO_ERROR_REPLY == 0 {
            reply(run, 500, b"Server Internal Error", Mode::Any);
        }
        return Outcome::False;
    };
    let offer = Offer::of_flags(run, flags);
    let mut headers = core::mem::take(&mut run.scratch.headers);
    headers.clear();
    push_lines(run, role, realm, offer, &mut headers);
    let reason = sip::reason_phrase(role.status());
    let done = reply_with(run, role.status().into(), reason.as_bytes(), &mut headers, Mode::Any);
    run.scratch.headers = headers;
    if !done {
        return Outcome::Code(-3);
    }
    run.auth.counters.challenged += 1;
    Outcome::True
}
