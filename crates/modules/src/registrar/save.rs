//! `save`: a REGISTER from its headers to its answer (RFC 3261 §10.3, RFC 3327 §5.3).

use super::wait::{self, Task, Tentative, Unsaved};
use super::{answers_path, aor_key, method_bit};
use crate::run::{Context, Run};
use crate::settings::{PathMode, RegistrarSettings};
use crate::sl::{Mode, push_q, reply_with};
use crate::text::push_unfolded;
use crate::uri_parts::push_number;
use alloc::vec::Vec;
use core::fmt::Write;
use core::ops::ControlFlow;
use engine::Answer;
use location::{
    AtLimit, Binding, CONTACTS_PER_REQUEST_MAX, Changed, Policy, Refusal, Register, Registered, Update,
};
use route::{Args, Outcome};
use sip::{HeaderName, Instant, Message, Method, NameAddr, Problem, Transport, Uri};
use smallvec::SmallVec;

/// The answer is left to the script.
const NO_REPLY: i64 = 0x02;
/// Only the contacts of this request stay.
const ONLY_THESE: i64 = 0x04;
/// RFC 3261 §20.19: an Expires that is no number counts as an hour.
const MALFORMED_EXPIRES_SECS: u32 = 3_600;

/// Why a REGISTER is answered with an error before the location service sees it.
#[derive(Debug, PartialEq, Eq)]
enum Bad {
    /// A Contact that is no address.
    Contact,
    /// A `sips` Contact in a REGISTER that is not `sips` itself.
    Sips,
    /// A Contact longer than it may be.
    ContactTooLong,
    /// A Require or a Path without which it cannot be done.
    Extension,
    /// A Path that nothing can be sent along.
    Path,
    /// More than one Expires.
    Expires,
    /// A To that is no address.
    To,
    /// A To of another domain than the one that the request is for.
    Domain,
    /// The location service refused it.
    Refused(Refusal),
    /// The database cannot keep it.
    NotKept,
    /// The database is away, or too late.
    StoreAway,
}

pub(super) fn save(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let message = run.message();
    if message.method() != Method::Register {
        return run.fail("save: the request is no REGISTER");
    }
    if wait::commits(run) && !wait::can_wait(run) {
        return run.fail("save: this route cannot wait for the database; call it in the request route");
    }
    let flags = args.int(1);
    let mut aor = core::mem::take(&mut run.scratch.aor);
    let done = match address_of_record(run, args, &message, &mut aor) {
        Err(bad) => refuse(run, &message, flags, &bad),
        Ok(()) if wait::refreshes(run) => wait::refresh(run, &aor, Task::Apply { flags }),
        Ok(()) => apply(run, &message, &aor, flags),
    };
    run.scratch.aor = aor;
    done
}

/// The database has been read, or could not be.
pub(super) fn refreshed(run: &mut Run<'_, '_>, aor: &[u8], flags: i64, answer: &Answer<'_>) -> Outcome {
    let message = run.message();
    match not_kept(answer) {
        None => apply(run, &message, aor, flags),
        Some(bad) => refuse(run, &message, flags, &bad),
    }
}

/// The database has what was applied, or could not take it.
pub(super) fn committed(
    run: &mut Run<'_, '_>,
    aor: &[u8],
    tentative: &Tentative,
    answer: &Answer<'_>,
) -> Outcome {
    let message = run.message();
    let Some(bad) = not_kept(answer) else {
        let mut headers = core::mem::take(&mut run.scratch.headers);
        headers.clear();
        push_contacts(run, aor, &mut headers);
        return accept(run, &message, tentative.flags, tentative.code, headers);
    };
    // RFC 3261 §10.3 step 7: "all tentative binding updates MUST be removed". What another REGISTER has made of a contact
    // since is for that one to undo.
    tentative.undo(run.location, run.now(), aor);
    refuse(run, &message, tentative.flags, &bad)
}

fn not_kept(answer: &Answer<'_>) -> Option<Bad> {
    match answer {
        Answer::Done => None,
        Answer::Refused => Some(Bad::NotKept),
        _ => Some(Bad::StoreAway),
    }
}

/// Applies the REGISTER, and answers it or waits for its commit.
fn apply(run: &mut Run<'_, '_>, message: &Message<'_>, aor: &[u8], flags: i64) -> Outcome {
    let mut headers = core::mem::take(&mut run.scratch.headers);
    headers.clear();
    let mut tentative = Tentative::default();
    match register(run, aor, message, flags, &mut headers, &mut tentative) {
        Ok((registered, is_kept)) => {
            let code = return_code(&registered, message);
            if is_kept {
                return accept(run, message, flags, code, headers);
            }
            let tentative = Tentative { flags, code, ..tentative };
            if flags & NO_REPLY == 0 && wait::is_held(run) {
                return accept_held(run, message, aor, tentative, headers);
            }
            run.scratch.headers = headers;
            wait::persist(run, aor, Task::Commit(tentative))
        }
        Err(bad) => {
            run.scratch.headers = headers;
            refuse(run, message, flags, &bad)
        }
    }
}

/// The Contact header with all bindings.
fn push_contacts(run: &Run<'_, '_>, aor: &[u8], headers: &mut Vec<u8>) {
    let mut list = ContactList::new(run, &run.settings.registrar.received_param, headers);
    run.location.lookup(run.now(), aor, &mut |binding| {
        list.push(binding);
        ControlFlow::Continue(())
    });
    list.end();
}

/// Answers 200, and has the server hold it back until the commit.
fn accept_held(
    run: &mut Run<'_, '_>,
    message: &Message<'_>,
    aor: &[u8],
    tentative: Tentative,
    headers: Vec<u8>,
) -> Outcome {
    let output = run.request().map_or(0, |cx| cx.outputs());
    let done = accept(run, message, tentative.flags, tentative.code, headers);
    if run.request().is_some_and(|cx| cx.outputs() == output + 1) {
        let aor = SmallVec::from_slice(aor);
        run.unsaved.push(Unsaved { aor, traces: tentative.traces, output });
    }
    done
}

/// Answers 200 with the contacts in `headers`.
fn accept(
    run: &mut Run<'_, '_>,
    message: &Message<'_>,
    flags: i64,
    code: i32,
    mut headers: Vec<u8>,
) -> Outcome {
    if flags & NO_REPLY == 0 {
        push_answered_path(run, message, &mut headers);
        // RFC 3261 §10.3 step 8: "The response SHOULD include a Date header field."
        super::date::push(run.environment.clock, run.now(), &mut headers);
        reply_with(run, 200, b"OK", &mut headers, Mode::Any);
    }
    run.scratch.headers = headers;
    Outcome::Code(code)
}

fn refuse(run: &mut Run<'_, '_>, message: &Message<'_>, flags: i64, bad: &Bad) -> Outcome {
    let mut headers = core::mem::take(&mut run.scratch.headers);
    let (code, status, reason) = refusal(run, bad, message, &mut headers);
    if flags & NO_REPLY == 0 {
        reply_with(run, status, reason.as_bytes(), &mut headers, Mode::Any);
    }
    run.scratch.headers = headers;
    Outcome::Code(code)
}

/// Writes the key of the address-of-record that the request is for.
fn address_of_record(
    run: &Run<'_, '_>,
    args: &Args<'_>,
    message: &Message<'_>,
    aor: &mut Vec<u8>,
) -> Result<(), Bad> {
    check_extensions(&run.settings.registrar, message)?;
    if run.settings.registrar.use_path && !is_path_sound(message) {
        return Err(Bad::Path);
    }
    // RFC 3261 §7.3.1: Expires is no list. A malformed one has a default (§20.19), two contradict each other.
    if message.expires().is_err_and(|error| error.problem == Problem::Repeated) {
        return Err(Bad::Expires);
    }
    let to = message.to().map_err(|_| Bad::To)?;
    // RFC 3261 §10.2: the address-of-record "MUST be a SIP URI or SIPS URI".
    if !matches!(to.uri(), Ok(Uri::Sip(_))) {
        return Err(Bad::To);
    }
    if args.str(2).is_empty() && !is_of_domain(run, message, to.uri) {
        return Err(Bad::Domain);
    }
    let uri = if args.str(2).is_empty() { to.uri } else { args.str(2) };
    if aor_key(&run.settings.registrar, args.str(0), uri, aor) { Ok(()) } else { Err(Bad::To) }
}

/// Applies what the request asks for; whether that is all, as it needs no commit. Else what it changed is in `tentative`.
/// What is bound then is in `headers`.
fn register(
    run: &mut Run<'_, '_>,
    aor: &[u8],
    message: &Message<'_>,
    flags: i64,
    headers: &mut Vec<u8>,
    tentative: &mut Tentative,
) -> Result<(Registered, bool), Bad> {
    let mut policy = run.settings.registrar.policy;
    if flags & ONLY_THESE != 0 {
        policy.at_limit = AtLimit::KeepOnlyNamed;
    }
    let mut path = core::mem::take(&mut run.scratch.text);
    path.clear();
    if run.settings.registrar.use_path {
        push_path(message, &mut path);
    }
    let mut received = core::mem::take(&mut run.scratch.current);
    received.clear();
    if let Some(name) = &run.settings.registrar.received_avp {
        received.extend_from_slice(run.state().avps.get(name, 0).as_str().unwrap_or(&[]));
        // It will be a next hop, and stands in quotes in the 200.
        if !received.is_empty() && !matches!(Uri::parse(&received), Ok(Uri::Sip(_))) {
            received.clear();
            run.fail("save: what received_avp holds is no SIP URI; it is not kept");
        }
    }
    let done = common(run, message, &path, &received)
        .and_then(|common| update(run, aor, message, &common, &policy, headers, tentative));
    run.scratch.text = path;
    run.scratch.current = received;
    done
}

/// RFC 3327 §5.3: the Path of the request in its answer.
fn push_answered_path(run: &Run<'_, '_>, message: &Message<'_>, headers: &mut Vec<u8>) {
    let is_wanted = run.settings.registrar.use_path && is_path_answered(run, message);
    if !is_wanted || message.header(HeaderName::Path).is_none() {
        return;
    }
    headers.extend_from_slice(b"Path: ");
    push_path(message, headers);
    headers.extend_from_slice(b"\r\n");
}

/// RFC 3261 §10.3 step 5: whether an address-of-record belongs to the domain in the Request-URI. It does if both name
/// the same host, or if both name this server: its addresses and aliases are one domain. Ports name no domain. Whether
/// that domain is served here at all, the script has decided by calling `save`.
fn is_of_domain(run: &Run<'_, '_>, message: &Message<'_>, aor: &[u8]) -> bool {
    let (Ok(Uri::Sip(domain)), Ok(Uri::Sip(aor))) = (message.parsed_request_uri(), Uri::parse(aor)) else {
        return false;
    };
    let own = run.own();
    domain.host.equivalent(&aor.host)
        || own.is_own_host(&domain.host, None, None) && own.is_own_host(&aor.host, None, None)
}

fn is_path_answered(run: &Run<'_, '_>, message: &Message<'_>) -> bool {
    answers_path(run.settings.registrar.path_mode, supports_path(message))
}

fn supports_path(message: &Message<'_>) -> bool {
    message.option_tags(HeaderName::Supported).any(|tag| tag.eq_ignore_ascii_case(b"path"))
        || message.option_tags(HeaderName::Require).any(|tag| tag.eq_ignore_ascii_case(b"path"))
}

/// RFC 3261 §10.3 step 2: extensions that the REGISTER requires; RFC 3327 §5.3: those that its Path does.
fn check_extensions(settings: &RegistrarSettings, message: &Message<'_>) -> Result<(), Bad> {
    let known = |tag: &[u8]| settings.use_path && tag.eq_ignore_ascii_case(b"path");
    if message.option_tags(HeaderName::Require).any(|tag| !known(tag)) {
        return Err(Bad::Extension);
    }
    let refuses_path = settings.use_path && settings.path_mode == PathMode::Required;
    if refuses_path && message.header(HeaderName::Path).is_some() && !supports_path(message) {
        return Err(Bad::Extension);
    }
    Ok(())
}

/// RFC 3327 §4: whether a Path is made of addresses, and those of SIP's URIs: it becomes the Route to the contact (§5.4).
fn is_path_sound(message: &Message<'_>) -> bool {
    message.paths().all(|path| path.is_ok_and(|path| matches!(Uri::parse(path.uri), Ok(Uri::Sip(_)))))
}

/// Joins the values of all Path headers.
fn push_path(message: &Message<'_>, out: &mut Vec<u8>) {
    for (place, header) in message.headers(HeaderName::Path).enumerate() {
        if place > 0 {
            out.extend_from_slice(b", ");
        }
        push_unfolded(header.value, out);
    }
}

/// What all contacts of the request have in common.
fn common<'a>(
    run: &Run<'_, '_>,
    message: &Message<'a>,
    path: &'a [u8],
    received: &'a [u8],
) -> Result<Update<'a>, Bad> {
    let (Ok(call_id), Ok(cseq)) = (message.call_id(), message.cseq()) else { return Err(Bad::To) };
    let mut update = Update::new(&[], call_id, cseq.number);
    update.expires = match message.expires() {
        Ok(expires) => expires,
        Err(_) => Some(MALFORMED_EXPIRES_SECS),
    };
    update.waiting_since = match &run.cx {
        Context::Request(cx) => cx.waiting_since(),
        _ => None,
    };
    update.path = path;
    update.received = received;
    update.flow = u64::from(run.path().listener.0);
    update.user_agent = message.header(HeaderName::UserAgent).map_or(&[], |header| header.value);
    for tag in message.option_tags(HeaderName::Allow) {
        update.methods |= method_bit(Method::of(tag));
    }
    Ok(update)
}

fn update(
    run: &mut Run<'_, '_>,
    aor: &[u8],
    message: &Message<'_>,
    common: &Update<'_>,
    policy: &Policy,
    headers: &mut Vec<u8>,
    tentative: &mut Tentative,
) -> Result<(Registered, bool), Bad> {
    let mut source: SmallVec<[u8; CONNECTION_BYTES]> = SmallVec::new();
    // What another proxy hands on is no business of its connection.
    if common.path.is_empty() && message.via_below().is_none() {
        push_connection(run, &mut source);
    }
    let connection = &source[..];
    let mut updates: SmallVec<[Update<'_>; 4]> = SmallVec::new();
    let contacts = message.contacts();
    let request = if contacts.is_star() {
        let count = message.contacts().count().max(1);
        Register::star(count, common).map_err(Bad::Refused)?
    } else {
        for contact in contacts {
            let contact = contact.map_err(|_| Bad::Contact)?;
            if contact.uri().is_err() {
                return Err(Bad::Contact);
            }
            if contact.uri.len() > run.settings.registrar.contact_bytes_max {
                return Err(Bad::ContactTooLong);
            }
            if matches!(contact.uri(), Ok(Uri::Sip(uri)) if uri.secure) && !is_sips_throughout(message) {
                return Err(Bad::Sips);
            }
            let mut update =
                Update { contact: contact.uri, q: contact.q().map(sip::Q::thousandths), ..*common };
            if update.received.is_empty() && is_bound_to_connection(run, &contact) {
                update.received = connection;
            }
            update.expires = contact.expires().or(common.expires);
            super::spread::spread(&run.settings.registrar, &mut update);
            update.instance = contact.params.value(b"+sip.instance").unwrap_or(&[]);
            let reg_id = contact.params.value(b"reg-id").and_then(crate::uri_parts::decimal);
            update.reg_id = reg_id.unwrap_or(0);
            updates.push(update);
            if updates.len() > CONTACTS_PER_REQUEST_MAX {
                break;
            }
        }
        if updates.is_empty() { Register::Query } else { Register::Bind(&updates) }
    };
    let mut list = ContactList::new(run, &run.settings.registrar.received_param, headers);
    // A request with contacts waits even where it changes nothing: what it repeats may be under way to the database.
    if wait::commits(run) && !matches!(request, Register::Query) {
        let changed = &mut |changed: Changed<'_>| match changed {
            Changed::Bound(binding) => list.push(binding),
            changed => tentative.traces.note(&changed),
        };
        let done = run.location.register_tentatively(run.now(), aor, &request, policy, changed);
        list.end();
        return done.map(|registered| (registered, false)).map_err(Bad::Refused);
    }
    let done = run.location.register(run.now(), aor, &request, policy, &mut |binding| list.push(binding));
    list.end();
    done.map(|registered| (registered, true)).map_err(Bad::Refused)
}

/// The Contact header of the 200. RFC 3261 §10.3 step 8: "The response MUST contain Contact header field values
/// enumerating all current bindings."
struct ContactList<'a> {
    headers: &'a mut Vec<u8>,
    start: usize,
    now: Instant,
    received_param: &'a str,
}

impl<'a> ContactList<'a> {
    fn new(run: &Run<'_, '_>, received_param: &'a str, headers: &'a mut Vec<u8>) -> ContactList<'a> {
        let start = headers.len();
        ContactList { headers, start, now: run.now(), received_param }
    }

    fn push(&mut self, binding: &Binding) {
        let is_first = self.headers.len() == self.start;
        self.headers.extend_from_slice(if is_first { b"Contact: " } else { b", " });
        push_contact(self.headers, binding, binding.expires_in(self.now), self.received_param);
    }

    fn end(self) {
        if self.headers.len() > self.start {
            self.headers.extend_from_slice(b"\r\n");
        }
    }
}

/// Bytes of `sip:[ADDRESS]:PORT;transport=wss`, at most.
const CONNECTION_BYTES: usize = 80;

/// Appends the connection that a REGISTER came by as a next hop; nothing for a datagram.
fn push_connection(run: &Run<'_, '_>, out: &mut SmallVec<[u8; CONNECTION_BYTES]>) {
    let transport = transport_of(run);
    if transport != Transport::Udp {
        let mut text = Bytes(out);
        let name = crate::pv::transport_name(transport);
        let _ = write!(text, "sip:{};transport=", run.path().remote);
        out.extend_from_slice(name);
    }
}

/// Formats into bytes; never fails.
struct Bytes<'a>(&'a mut SmallVec<[u8; CONNECTION_BYTES]>);

impl Write for Bytes<'_> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

fn transport_of(run: &Run<'_, '_>) -> Transport {
    match &run.cx {
        Context::Request(cx) => cx.listener().transport,
        _ => Transport::Udp,
    }
}

/// Whether a contact can only be reached by the connection of its REGISTER: a WebSocket client always (RFC 7118 §5),
/// another if its Contact is not the address that it came from, as of a phone behind a NAT, or of one that connects from
/// a port where it does not listen.
fn is_bound_to_connection(run: &Run<'_, '_>, contact: &NameAddr<'_>) -> bool {
    let (transport, remote) = (transport_of(run), run.path().remote);
    match transport {
        Transport::Udp => false,
        Transport::Ws | Transport::Wss => true,
        _ => match contact.uri() {
            Ok(Uri::Sip(uri)) => {
                let port = uri.port.unwrap_or(transport.default_port());
                uri.host.ip() != Some(remote.ip().to_canonical()) || port != remote.port()
            }
            _ => false,
        },
    }
}

/// RFC 5630 §5.2: whether Request-URI and Path are `sips`, as those of a `sips` Contact must be.
fn is_sips_throughout(message: &Message<'_>) -> bool {
    let is_sips = |uri: &[u8]| matches!(Uri::parse(uri), Ok(Uri::Sip(uri)) if uri.secure);
    is_sips(message.request_uri()) && message.paths().all(|path| path.is_ok_and(|path| is_sips(path.uri)))
}

/// Appends one Contact value of the 200.
fn push_contact(out: &mut Vec<u8>, binding: &Binding, expires: u32, received_param: &str) {
    out.push(b'<');
    out.extend_from_slice(binding.contact());
    out.extend_from_slice(b">");
    if binding.q() > 0 {
        push_q(out, binding.q());
    }
    // "Each Contact value MUST feature an "expires" parameter."
    out.extend_from_slice(b";expires=");
    push_number(out, u64::from(expires));
    if let Some(received) = binding.received()
        && !received_param.is_empty()
    {
        out.push(b';');
        out.extend_from_slice(received_param.as_bytes());
        out.extend_from_slice(b"=\"");
        out.extend_from_slice(received);
        out.push(b'"');
    }
    if let Some(instance) = binding.instance() {
        out.extend_from_slice(b";+sip.instance=");
        out.extend_from_slice(instance);
    }
    if let Some(reg_id) = binding.reg_id() {
        out.extend_from_slice(b";reg-id=");
        push_number(out, u64::from(reg_id));
    }
}

fn return_code(registered: &Registered, message: &Message<'_>) -> i32 {
    if registered.added > 0 {
        1
    } else if registered.updated > 0 || registered.repeated > 0 {
        2
    } else if registered.removed > 0 || message.header(HeaderName::Contact).is_some() {
        3
    } else {
        4
    }
}

/// Return code, status and reason of a refusal; its headers are appended.
fn refusal(
    run: &Run<'_, '_>,
    bad: &Bad,
    message: &Message<'_>,
    headers: &mut Vec<u8>,
) -> (i32, i64, &'static str) {
    headers.clear();
    match bad {
        Bad::Contact => (-1, 400, "Invalid Contact"),
        // RFC 5630 §5.2: "the registrar MUST reject the REGISTER with a 400".
        Bad::Sips => (-1, 400, "SIPS Contact Needs SIPS Request-URI And Path"),
        Bad::ContactTooLong => (-1, 400, "Contact Too Long"),
        Bad::Path => (-1, 400, "Invalid Path"),
        Bad::Expires => (-1, 400, "More Than One Expires"),
        Bad::To => (-1, 400, "Invalid Address of Record"),
        // RFC 3261 §10.3 step 5: "the registrar MUST send a 404 (Not Found) response".
        Bad::Domain => (-1, 404, "Not Found"),
        Bad::Extension => {
            push_unsupported(&run.settings.registrar, message, headers);
            (-1, 420, "Bad Extension")
        }
        // RFC 3261 §10.3 step 7: "If any one of them fails (for example, because the back-end database commit failed), the
        // request MUST fail with a 500". What passes by itself is told apart by a 503 (§21.5.4).
        Bad::NotKept | Bad::StoreAway => {
            push_retry_after(&run.settings.registrar, headers);
            let refused = *bad == Bad::NotKept;
            if refused { (-3, 500, "Registration Not Stored") } else { (-3, 503, "Service Unavailable") }
        }
        Bad::Refused(refusal) => {
            let status = i64::from(refusal.status());
            match refusal {
                Refusal::IntervalTooBrief { min_expires } => {
                    // RFC 3261 §10.3 step 7: the 423 "MUST contain a Min-Expires header field".
                    headers.extend_from_slice(b"Min-Expires: ");
                    push_number(headers, u64::from(*min_expires));
                    headers.extend_from_slice(b"\r\n");
                    (-1, status, "Interval Too Brief")
                }
                Refusal::OutOfOrder => (-1, status, "CSeq Out of Order"),
                Refusal::Overtaken => {
                    push_retry_after(&run.settings.registrar, headers);
                    (-1, status, "Overtaken By A Later Request")
                }
                Refusal::StarWithOthers => (-1, status, "Star With Other Contacts"),
                Refusal::StarExpiresNotZero => (-1, status, "Star Needs Expires 0"),
                Refusal::BindingTooLarge { .. } => (-1, status, "Contact Too Large"),
                Refusal::TooManyContacts { .. } => {
                    push_retry_after(&run.settings.registrar, headers);
                    (-2, status, "Too Many Registered Contacts")
                }
                Refusal::TableFull => {
                    push_retry_after(&run.settings.registrar, headers);
                    (-1, status, "Service Unavailable")
                }
            }
        }
    }
}

fn push_retry_after(settings: &RegistrarSettings, headers: &mut Vec<u8>) {
    if settings.retry_after_secs > 0 {
        headers.extend_from_slice(b"Retry-After: ");
        push_number(headers, u64::from(settings.retry_after_secs));
        headers.extend_from_slice(b"\r\n");
    }
}

/// RFC 3261 §8.2.2.3: the 420 names the extensions that are not understood.
fn push_unsupported(settings: &RegistrarSettings, message: &Message<'_>, headers: &mut Vec<u8>) {
    headers.extend_from_slice(b"Unsupported: ");
    let start = headers.len();
    for tag in message.option_tags(HeaderName::Require) {
        if settings.use_path && tag.eq_ignore_ascii_case(b"path") {
            continue;
        }
        if headers.len() > start {
            headers.extend_from_slice(b", ");
        }
        headers.extend_from_slice(tag);
    }
    if headers.len() == start {
        headers.extend_from_slice(b"path");
    }
    headers.extend_from_slice(b"\r\n");
}
