//! Judging credentials (RFC 3261 §22.4; RFC 7616 §3.4): which of them are meant, and whether they are good.
//!
//! In this order: those for the realm, of an algorithm that was offered, with a nonce of ours; their `uri`; whether the
//! source may try at all; the response; the nonce's age; its count. A nonce is judged after the response, so that only
//! who knows the secret can use counts up, and so that `stale=true` is said to nobody else (RFC 7616 §3.3).

use super::{Admission, Algorithms, Attempt, Count, Nonce, NonceUse, Pass, code, without_escapes};
use crate::auth_db::Said;
use crate::log::Level;
use crate::run::{Authenticated, REPLY_HEADERS_MAX, Run};
use crate::settings::Settings;
use crate::sl::{Mode, reply, reply_with};
use crate::text::is_line;
use crate::uri_parts::{UriParts, push_number};
use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;
use route::Outcome;
use sip::digest::{Credentials, CredentialsError, Presented, Role, presented};
use sip::{HeaderName, Message, Method, SipUri, Uri};
use smallvec::SmallVec;

/// Credentials for one realm whose nonces are looked at; more are passed over.
const CANDIDATES_MAX: usize = 8;
/// How often slowed attempts are told to the log, at most.
const SLOWED_INTERVAL: Duration = Duration::from_secs(10);

/// What a nonce of ours is worth.
#[derive(Clone, Copy)]
enum Standing {
    Fresh(Nonce),
    Old,
}

/// The credentials that count.
pub(crate) struct Chosen<'m> {
    /// Where their header line starts in the message.
    line: u32,
    /// What they say.
    pub(crate) credentials: Credentials<'m>,
    /// Their user name without escapes: what is hashed is as it is written, who is meant is not.
    pub(crate) username: SmallVec<[u8; 64]>,
    standing: Standing,
}

impl<'m> Chosen<'m> {
    fn new(header: &sip::Header<'m>, credentials: Credentials<'m>, standing: Standing) -> Chosen<'m> {
        let username = without_escapes(credentials.username);
        Chosen { line: header.line.start, credentials, username, standing }
    }
}

/// Whether a request is never challenged (RFC 3261 §22.1): there is no answer to an ACK, and a CANCEL cannot be sent again.
pub(crate) fn is_exempt(message: &Message<'_>) -> bool {
    matches!(message.method(), Method::Ack | Method::Cancel)
}

/// Seconds since 1970.
pub(crate) fn now_secs(run: &Run<'_, '_>) -> u64 {
    run.environment.clock.unix_micros(run.now()) / 1_000_000
}

/// The time by which nonces are made and judged: not before the first full second of this run. So none of an earlier run
/// counts as one of this run's, except of one that ended in the very second in which it began, which nothing tells apart.
pub(crate) fn nonce_secs(run: &Run<'_, '_>) -> u64 {
    now_secs(run).max(run.environment.started_unix_secs.saturating_add(1))
}

/// What a variable without a value becomes in a text.
const NO_VALUE: &[u8] = b"<null>";

/// The realm that a script means: what it says without `realm_prefix`, or where it says nothing the domain of From (of a
/// REGISTER, To); `None` if that makes none.
pub(crate) fn realm<'a>(message: &Message<'a>, settings: &Settings, said: &'a [u8]) -> Option<&'a [u8]> {
    let whole = if said.is_empty() {
        let named = if message.method() == Method::Register { message.to() } else { message.from() };
        UriParts::parse(named.ok()?.uri)?.host
    } else {
        said
    };
    let realm = whole.strip_prefix(&*settings.auth.realm_prefix).unwrap_or(whole);
    (!realm.is_empty() && is_line(realm) && !has_no_value(realm)).then_some(realm)
}

/// Whether a text was made of a variable without a value: as a realm or a password it would be anybody's.
pub(crate) fn has_no_value(text: &[u8]) -> bool {
    crate::text::contains(text, NO_VALUE)
}

/// The algorithms that are offered to this request.
pub(crate) fn offered(run: &Run<'_, '_>) -> Algorithms {
    let chosen = run.prepared.auth.algorithms.clone();
    chosen.unwrap_or_else(|| run.settings.auth.algorithms.iter().copied().collect())
}

/// What a nonce is bound to: the realm, and what `auth_checks_…` adds of the request.
pub(crate) fn scope(run: &Run<'_, '_>, realm: &[u8]) -> SmallVec<[u8; 128]> {
    let message = run.message();
    let checks = match (message.method(), message.to_tag()) {
        (Method::Register, _) => run.settings.auth.checks.register,
        (_, None) => run.settings.auth.checks.outside,
        (_, Some(_)) => run.settings.auth.checks.within,
    };
    let mut scope = SmallVec::from_slice(realm);
    let mut push = |bit: u32, part: &[u8]| {
        if checks & bit != 0 {
            scope.push(0);
            scope.extend_from_slice(part);
        }
    };
    push(1, message.request_uri());
    push(2, message.call_id().unwrap_or_default());
    push(4, message.from_tag().unwrap_or_default());
    match run.path().remote.ip().to_canonical() {
        core::net::IpAddr::V4(ip) => push(8, &ip.octets()),
        core::net::IpAddr::V6(ip) => push(8, &ip.octets()),
    }
    scope
}

/// The credentials of the request for `realm`, their `uri` compared.
///
/// # Errors
///
/// What the function that asked shall return.
pub(crate) fn choose<'m>(run: &mut Run<'_, 'm>, role: Role, realm: &[u8]) -> Result<Chosen<'m>, Outcome> {
    let chosen = find(run, role, realm)?;
    if run.settings.auth.check_uri && !means_request(run, chosen.credentials.uri) {
        // RFC 2617 §3.2.2.5: "if they are not, the server SHOULD return a 400 Bad Request error".
        return Err(refuse(run, b"Digest URI Is Not the Request-URI"));
    }
    Ok(chosen)
}

fn find<'m>(run: &mut Run<'_, 'm>, role: Role, realm: &[u8]) -> Result<Chosen<'m>, Outcome> {
    let offered = offered(run);
    let scope = scope(run, realm);
    let (mut old, mut foreign, mut unread, mut looked_at) = (None, false, false, 0);
    for Presented { header, credentials } in presented(&run.message(), role) {
        let credentials = match credentials {
            Ok(credentials) if credentials.is_for(realm) => credentials,
            // Of another scheme, or what we never ask for: as good as none.
            Ok(_)
            | Err(
                CredentialsError::Scheme
                | CredentialsError::Algorithm
                | CredentialsError::Qop
                | CredentialsError::Unsupported(_),
            ) => continue,
            Err(_) => {
                unread = true;
                continue;
            }
        };
        // RFC 8760 §3: what was not offered is not taken, so that nobody is talked down to a weaker algorithm.
        if credentials.session || !offered.contains(&credentials.algorithm) || looked_at >= CANDIDATES_MAX {
            continue;
        }
        looked_at += 1;
        // Proxies of one realm in a row have their own nonces, and all credentials come to each of them.
        match standing(run, &scope, credentials.nonce) {
            Some(standing @ Standing::Fresh(_)) => {
                return Ok(Chosen::new(&header, credentials, standing));
            }
            Some(standing) => {
                old.get_or_insert_with(|| Chosen::new(&header, credentials, standing));
            }
            None => foreign = true,
        }
    }
    match old {
        Some(chosen) => Ok(chosen),
        None if foreign => Err(Outcome::Code(code::STALE)),
        // RFC 2617 §3.2.2: "If a directive or its value is improper, or required directives are missing, the proper
        // response is 400 Bad Request."
        None if unread => Err(refuse(run, b"Malformed Credentials")),
        None => Err(Outcome::Code(code::NONE)),
    }
}

/// What a nonce is worth; `None` for one that is not ours.
fn standing(run: &Run<'_, '_>, scope: &[u8], nonce: &[u8]) -> Option<Standing> {
    let (settings, now) = (&run.settings.auth, nonce_secs(run));
    let nonce = run.auth.key.read(scope, nonce)?;
    // The counts of a run that has ended are forgotten, and what it accepted must not be accepted once more.
    let of_this_run = u64::from(nonce.issued_secs) > run.environment.started_unix_secs;
    let young = of_this_run && nonce.is_young(now, settings.nonce_expire_secs, settings.nonce_drift_secs);
    Some(if young { Standing::Fresh(nonce) } else { Standing::Old })
}

/// Answers 400 and ends the script.
fn refuse(run: &mut Run<'_, '_>, reason: &[u8]) -> Outcome {
    reply(run, 400, reason, Mode::Any);
    Outcome::Exit
}

/// Answers 503 with Retry-After; the script may end.
pub(crate) fn unavailable(run: &mut Run<'_, '_>, secs: u32) -> bool {
    let mut headers = core::mem::take(&mut run.scratch.headers);
    headers.clear();
    headers.extend_from_slice(b"Retry-After: ");
    push_number(&mut headers, u64::from(secs.max(1)));
    headers.extend_from_slice(b"\r\n");
    let done = reply_with(run, 503, b"Service Unavailable", &mut headers, Mode::Any);
    run.scratch.headers = headers;
    done
}

/// Whether the `uri` of credentials designates what the Request-URI does (RFC 2617 §3.2.2.5): the same scheme, user, host
/// and port, the usual one where none is written. Parameters and headers do not count, as phones write them in one place and
/// not in the other; neither does by which of its names this server is called. A `uri` that names this server alone will do
/// for all requests to it.
fn means_request(run: &Run<'_, '_>, uri: &[u8]) -> bool {
    let message = run.message();
    let received = message.request_uri();
    if uri == received {
        return true;
    }
    let (Ok(uri), Ok(received)) = (Uri::parse(uri), Uri::parse(received)) else { return false };
    match (&uri, &received) {
        (Uri::Sip(a), Uri::Sip(b)) => {
            let ours = || run.own().is_own_uri(&uri) && run.own().is_own_uri(&received);
            let place = || is_same_place(a, b) || ours();
            // SIPp names the server alone, whoever is called.
            a.secure == b.secure && (is_same_user(a, b) && place() || a.user.is_none() && ours())
        }
        _ => uri.equivalent(&received),
    }
}

fn is_same_user(a: &SipUri<'_>, b: &SipUri<'_>) -> bool {
    let plain = |user: Option<&[u8]>| {
        let mut plain: Vec<u8> = Vec::new();
        sip::uri::push_unescaped(user.unwrap_or_default(), &mut plain);
        plain
    };
    a.user == b.user || plain(a.user) == plain(b.user)
}

fn is_same_place(a: &SipUri<'_>, b: &SipUri<'_>) -> bool {
    a.host.equivalent(&b.host) && a.port_or_default() == b.port_or_default()
}

/// Whether the source may try. `account` is what the user's secret is found by: whatever finds the same is the same user,
/// so that nobody has more tries by other spellings.
///
/// # Errors
///
/// What the function that asked shall return.
pub(crate) fn admit(run: &mut Run<'_, '_>, account: &[u8]) -> Result<Pass, Outcome> {
    let (now, source) = (now_secs(run), run.path().remote.ip());
    let attempt = Attempt::new(&run.auth.key, source, account);
    match attempt.admit(&*run.environment.services, &run.settings.auth.guard, now) {
        Admission::Evaluate(pass) => Ok(pass),
        Admission::Later { secs } => {
            run.prepared.auth.later = Some(secs);
            run.auth.counters.slowed += 1;
            let instant = run.now();
            if run.auth.users.may_say(Said::Slowed, instant, SLOWED_INTERVAL) {
                let line =
                    format!("too many wrong passwords: attempts from {source} or for this user are slowed");
                run.say(Level::Warning, line.as_bytes());
            }
            Err(Outcome::Code(code::SLOWED))
        }
    }
}

/// Whether the response is right by H(A1); `None`, if there is none, takes as long.
pub(crate) fn is_right(credentials: &Credentials<'_>, ha1: Option<&[u8]>, method: &[u8]) -> bool {
    let nothing = [b'0'; sip::digest::HEX_MAX];
    let decoy = nothing.get(..credentials.algorithm.hex_len()).unwrap_or(&nothing);
    credentials.is_right(ha1.unwrap_or(decoy), method) && ha1.is_some()
}

/// Judges credentials that were evaluated: `proven` is the H(A1) by which their response is right, if it is. Then the nonce
/// counts.
pub(crate) fn judge(
    run: &mut Run<'_, '_>,
    role: Role,
    chosen: &Chosen<'_>,
    pass: Pass,
    proven: Option<&[u8]>,
) -> Outcome {
    let credentials = &chosen.credentials;
    let now = now_secs(run);
    let (services, limits) = (&run.environment.services, &run.settings.auth.guard);
    let Some(ha1) = proven else {
        pass.failed(&**services, limits, now);
        run.auth.counters.wrong += 1;
        return Outcome::Code(code::PASSWORD);
    };
    let count = match chosen.standing {
        Standing::Fresh(nonce) => take_count(run, chosen, nonce),
        Standing::Old => Err(code::STALE),
    };
    if let Err(code) = count {
        // What was right once may be another's by now: nothing is learnt of this source.
        run.prepared.auth.stale = true;
        run.auth.counters.stale += 1;
        return Outcome::Code(code);
    }
    pass.succeeded(&**services, limits, now);
    run.auth.counters.accepted += 1;
    let state = run.state();
    if !state.authorized.contains(&chosen.line) {
        state.authorized.push(chosen.line);
    }
    let (username, realm) = ((*chosen.username).into(), (*without_escapes(credentials.realm)).into());
    state.authenticated = Some(Authenticated { username, realm });
    run.prepared.auth.stale = false;
    if run.settings.auth.add_authinfo {
        add_authinfo(run, role, credentials, ha1);
    }
    Outcome::True
}

/// Takes the count of credentials with qop (RFC 7616 §3.4); of one-time nonces, the nonce itself.
fn take_count(run: &Run<'_, '_>, chosen: &Chosen<'_>, nonce: Nonce) -> Result<(), i32> {
    let settings = &run.settings.auth;
    let count = match chosen.credentials.count() {
        _ if settings.one_time_nonce => 1,
        Some(count) if settings.nonce_count => count,
        // RFC 3261 §22.4 item 8 and RFC 2069: without qop nothing is counted, and the nonce's age is all there is.
        _ => return Ok(()),
    };
    let fingerprint = fingerprint(run, chosen.credentials.response);
    let (now_secs, drift_secs) = (nonce_secs(run), settings.nonce_drift_secs);
    let used = NonceUse { nonce, count, fingerprint, now_secs, drift_secs };
    let mut verdict = Count::Stale;
    run.environment.services.with_nonces(nonce.identity, &mut |window| verdict = window.take(&used));
    match verdict {
        Count::New | Count::Retransmission => Ok(()),
        Count::Stale => Err(code::REUSED),
    }
}

/// What a retransmission has in common with the request, and the request of somebody who has overheard it has
/// not (RFC 7616 §5.5): besides what its transaction is known by (RFC 3261 §17.2.3), where it comes from and
/// whom it binds.
fn fingerprint(run: &Run<'_, '_>, response: &[u8]) -> u64 {
    /// Parts that need no memory of their own: all, where there are no more than four Contact lines.
    const PARTS_EXPECTED: usize = 12;
    let (message, remote) = (run.message(), run.path().remote);
    let (branch, sent_by) =
        message.via_top().map(|via| (via.branch(), via.sent_by_bytes())).unwrap_or_default();
    let (number, method) = message.cseq().map(|cseq| (cseq.number, cseq.method_bytes)).unwrap_or_default();
    let (number, port) = (number.to_be_bytes(), remote.port().to_be_bytes());
    let address = match remote.ip() {
        core::net::IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        core::net::IpAddr::V6(ip) => ip.octets(),
    };
    let call_id = message.call_id().unwrap_or_default();
    let branch = branch.unwrap_or_default();
    let mut parts = SmallVec::<[&[u8]; PARTS_EXPECTED]>::from_slice(&[
        call_id, &number, method, branch, sent_by, &address, &port, response,
    ]);
    parts.extend(message.headers(HeaderName::Contact).map(|contact| contact.value));
    run.auth.key.fingerprint(&parts)
}

/// Proves that the secret is known here (RFC 7616 §3.5), in the replies to come; with a new nonce for the next request where
/// this one will not do.
fn add_authinfo(run: &mut Run<'_, '_>, role: Role, credentials: &Credentials<'_>, ha1: &[u8]) {
    let Some(count) = credentials.nonce_count else { return };
    if !is_line(credentials.cnonce) {
        return;
    }
    let algorithm = credentials.algorithm;
    let a2 = algorithm.hash_joined(&[b"", credentials.uri]);
    let ha1: SmallVec<[u8; 64]> = ha1.iter().map(u8::to_ascii_lowercase).collect();
    let parts = [&*ha1, credentials.nonce, count, credentials.cnonce, b"auth", a2.as_bytes()];
    let proof = algorithm.hash_joined(&parts);
    let next = run.settings.auth.one_time_nonce.then(|| super::challenge::nonce(run, credentials.realm));
    let out = &mut run.prepared.reply_headers;
    let name: &[u8] = if role == Role::Proxy { b"Proxy-Authentication-Info" } else { b"Authentication-Info" };
    let mut line = Vec::with_capacity(160);
    for piece in [name, b": qop=auth, rspauth=\"", proof.as_bytes(), b"\", cnonce=\"", credentials.cnonce] {
        line.extend_from_slice(piece);
    }
    line.extend_from_slice(b"\", nc=");
    line.extend_from_slice(count);
    if let Some(next) = next {
        line.extend_from_slice(b", nextnonce=\"");
        line.extend_from_slice(next.as_bytes());
        line.push(b'"');
    }
    line.extend_from_slice(b"\r\n");
    if out.len() + line.len() <= REPLY_HEADERS_MAX {
        out.extend_from_slice(&line);
    }
}
