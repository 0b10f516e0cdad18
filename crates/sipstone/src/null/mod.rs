//! The null server: answers and does nothing else. It is what the generator measures itself against.
//!
//! A registrar that keeps the last contact of each user, and a stateless proxy (RFC 3261 §16.11) in front of them, over
//! one transport. It looks only at the bytes that it needs, so that its cost is the floor of what any server costs:
//!
//! | request | answer |
//! |---|---|
//! | REGISTER | 200 with the contacts that the request leaves |
//! | OPTIONS | 200 |
//! | other, user registered | forwarded to the contact; an INVITE gets 302 with [`Behaviour::redirect`] |
//! | other, user not registered | 404; 481 to CANCEL, nothing to ACK |
//! | other, Request-URI or Route with another IP address | forwarded there |
//!
//! It asks no DNS: a name for a host is taken for its own domain. It does not record-route and takes every Route for a
//! loose one. It is no example of a safe server: it believes whoever registers.

pub mod serve;
mod streams;

mod scan;
#[cfg(test)]
mod tests;

use crate::load::{ConnectionId, Outbox, Send, SocketId};
use crate::spec::Transport;
use scan::{Line, Message, Name, Rport, Start, Target, Via};
use sip::Instant;
use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

/// Most users whose contacts are kept; the REGISTER of one more is answered with 503.
pub const BINDINGS_MAX: usize = 5_000_000;

/// Longest user part and contact that are kept, in bytes; a REGISTER with a longer one is answered with 400.
pub const BINDING_BYTES_MAX: usize = 512;

/// What a request without Max-Forwards goes on with (RFC 3261 §16.6 step 3).
const MAX_FORWARDS: u32 = 70;

/// Seconds of a registration that names none (RFC 3261 §10.2.1.1).
const EXPIRES_DEFAULT_S: u32 = 3600;

/// The cookie of RFC 3261 §8.1.1.7.
const COOKIE: &[u8] = b"z9hG4bK";

/// What our branches begin with; the branch that came follows without its cookie.
const BRANCH: &[u8] = b"z9hG4bKnull-";

/// What the To tags of our own answers begin with: an ACK that carries one is for us.
const TAG: &[u8] = b"nullserver-";

/// How the null server behaves.
#[derive(Clone, Debug, PartialEq)]
pub struct Behaviour {
    /// Answer INVITE with 302 and the registered contact instead of forwarding it.
    pub redirect: bool,
    /// Send a 100 for each INVITE that is forwarded or redirected.
    pub trying: bool,
    /// Serve this many operations (initial requests) a second and drop what is beyond: a server with a known peak.
    /// A token bucket of 50 ms worth, at least of ten operations: up to that many may come at once. It has no queue, so
    /// Poisson arrivals lose some already below the cap where the bucket is small (under a few thousand a second).
    pub cap: Option<f64>,
}

/// What the null server did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests received, by method.
    pub invite: u64,
    /// See `invite`.
    pub ack: u64,
    /// See `invite`.
    pub bye: u64,
    /// See `invite`.
    pub cancel: u64,
    /// See `invite`.
    pub register: u64,
    /// See `invite`.
    pub options: u64,
    /// See `invite`.
    pub message: u64,
    /// Requests of all other methods.
    pub other: u64,
    /// Responses received that were ours to forward.
    pub responses: u64,
    /// Requests and responses passed on.
    pub forwarded: u64,
    /// Requests answered here, 100 not counted.
    pub answered: u64,
    /// Initial requests above [`Behaviour::cap`].
    pub dropped_by_cap: u64,
    /// Datagrams that were no SIP, lacked what a message must have, or were responses that are not ours.
    pub garbage: u64,
    /// Datagrams that the system would not send.
    pub send_errors: u64,
}

impl Counters {
    /// Requests of all methods.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.invite
            + self.ack
            + self.bye
            + self.cancel
            + self.register
            + self.options
            + self.message
            + self.other
    }

    fn of(&mut self, method: Method) -> &mut u64 {
        match method {
            Method::Invite => &mut self.invite,
            Method::Ack => &mut self.ack,
            Method::Bye => &mut self.bye,
            Method::Cancel => &mut self.cancel,
            Method::Register => &mut self.register,
            Method::Options => &mut self.options,
            Method::Message => &mut self.message,
            Method::Other => &mut self.other,
        }
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let methods = [
            ("INVITE", self.invite),
            ("ACK", self.ack),
            ("BYE", self.bye),
            ("CANCEL", self.cancel),
            ("REGISTER", self.register),
            ("OPTIONS", self.options),
            ("MESSAGE", self.message),
            ("other", self.other),
        ];
        write!(f, "requests: {}", self.requests())?;
        for (method, count) in methods.into_iter().filter(|&(_, count)| count > 0) {
            write!(f, ", {method} {count}")?;
        }
        write!(f, "\nresponses: {}", self.responses)?;
        write!(f, "\nanswered: {}, forwarded: {}", self.answered, self.forwarded)?;
        write!(f, "\ndropped by the cap: {}, not understood: {}", self.dropped_by_cap, self.garbage)?;
        write!(f, ", not sent: {}", self.send_errors)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Invite,
    Ack,
    Bye,
    Cancel,
    Register,
    Options,
    Message,
    Other,
}

impl Method {
    /// Methods are compared with case (RFC 3261 §7.1).
    fn of(name: &[u8]) -> Method {
        match name {
            b"INVITE" => Method::Invite,
            b"ACK" => Method::Ack,
            b"BYE" => Method::Bye,
            b"CANCEL" => Method::Cancel,
            b"REGISTER" => Method::Register,
            b"OPTIONS" => Method::Options,
            b"MESSAGE" => Method::Message,
            _ => Method::Other,
        }
    }
}

/// What is kept of a registration. It lasts until it is replaced or removed, whatever its `expires`.
#[derive(Debug)]
struct Binding {
    contact: Box<[u8]>,
    /// `None`: the contact's host is a name, so nothing can be forwarded to it.
    address: Option<SocketAddr>,
    expires_s: u32,
}

/// The server itself, pure.
#[derive(Debug)]
pub struct NullServer {
    address: SocketAddr,
    /// The address as it stands in URIs and in our Via.
    host_port: Vec<u8>,
    transport: Transport,
    behaviour: Behaviour,
    bucket: Bucket,
    bindings: HashMap<Box<[u8]>, Binding>,
    bindings_max: usize,
    counters: Counters,
    /// Room that is used again for each message.
    lines: Vec<Line>,
    contacts: Vec<u8>,
}

/// A request on its way through.
#[derive(Clone, Copy)]
struct Request<'a> {
    message: Message<'a>,
    from: SocketAddr,
    method: Method,
    /// Where the Request-URI stands.
    uri: (usize, usize),
    via: &'a Via<'a>,
    to_tag: Option<&'a [u8]>,
}

impl<'a> Request<'a> {
    fn uri(&self) -> &'a [u8] {
        self.message.slice(self.uri.0..self.uri.1)
    }

    /// Neither ACK, CANCEL nor inside of a dialog: what an operation begins with.
    fn is_initial(&self) -> bool {
        self.to_tag.is_none() && !matches!(self.method, Method::Ack | Method::Cancel)
    }
}

/// What became of a datagram.
enum Done {
    /// An answer of ours was sent.
    Answered,
    /// It was passed on.
    Forwarded,
    /// It ends here.
    Absorbed,
}

/// What the Route fields say (RFC 3261 §16.4).
struct Route<'a> {
    /// Our own value, to be cut out; empty if the first one is not ours.
    cut: Range<usize>,
    /// The URI of the first that is not ours.
    next: Option<&'a [u8]>,
}

/// What is written into a message in place of, or between, its own bytes.
#[derive(Clone, Copy)]
enum Text {
    Nothing,
    Number(u32),
    /// The value of `rport`, and `received` if it is not there.
    Rport(u16, Option<IpAddr>),
    Received(IpAddr),
}

/// Whose a URI is.
enum Place {
    /// Ours, or a name that we take for ours.
    Own,
    /// Another IP address.
    Foreign(SocketAddr),
}

impl NullServer {
    /// A server that listens on `address`.
    ///
    /// Its Via carries that address: with an unspecified one (`0.0.0.0`) the other side must answer to the source
    /// address, as RFC 3261 §18.2.1 has it do.
    #[must_use]
    pub fn new(address: SocketAddr, behaviour: Behaviour) -> NullServer {
        NullServer {
            address,
            host_port: address.to_string().into_bytes(),
            transport: Transport::Udp,
            bucket: Bucket::new(behaviour.cap),
            behaviour,
            bindings: HashMap::new(),
            bindings_max: BINDINGS_MAX,
            counters: Counters::default(),
            lines: Vec::with_capacity(scan::HEADERS_MAX),
            contacts: Vec::new(),
        }
    }

    /// The same over another transport. Over WebSocket a contact is where its REGISTER came from, for its host leads
    /// nowhere (RFC 7118 §5).
    #[must_use]
    pub fn over(self, transport: Transport) -> NullServer {
        NullServer { transport, ..self }
    }

    /// What it did so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Takes a datagram and writes what it answers or forwards (always from `SocketId(0)`).
    pub fn handle(&mut self, now: Instant, from: SocketAddr, bytes: &[u8], out: &mut Outbox) {
        let mut lines = std::mem::take(&mut self.lines);
        match self.take(now, from, bytes, &mut lines, out) {
            Some(Done::Answered) => self.counters.answered += 1,
            Some(Done::Forwarded) => self.counters.forwarded += 1,
            Some(Done::Absorbed) => {}
            None => self.counters.garbage += 1,
        }
        self.lines = lines;
    }

    /// `None`: the datagram is garbage.
    fn take(
        &mut self,
        now: Instant,
        from: SocketAddr,
        bytes: &[u8],
        lines: &mut Vec<Line>,
        out: &mut Outbox,
    ) -> Option<Done> {
        let (start, headers) = scan::read(bytes, lines)?;
        let message = Message { bytes, lines, headers };
        let top = message.first(Name::Via)?;
        let via = scan::via(bytes, top.value, top.end)?;
        let Start::Request { uri } = start else {
            self.pass_response(&message, top, &via, out)?;
            self.counters.responses += 1;
            return Some(Done::Forwarded);
        };
        let method = Method::of(message.slice(0..uri.start - 1));
        let to = message.first(Name::To)?;
        let to_tag = scan::parameter(scan::addressed(message.value(to))?.params, b"tag");
        let request = Request { message, from, method, uri: (uri.start, uri.end), via: &via, to_tag };
        for name in [Name::From, Name::CallId, Name::CSeq] {
            message.first(name)?;
        }
        *self.counters.of(method) += 1;
        if request.is_initial() && !self.bucket.take(now) {
            self.counters.dropped_by_cap += 1;
            return Some(Done::Absorbed);
        }
        if method == Method::Register { self.register(&request, to, out) } else { self.proxy(&request, out) }
    }

    /// A response goes to where the next Via says; one without our Via on top is not ours (RFC 3261 §16.11).
    fn pass_response(&self, message: &Message<'_>, top: Line, via: &Via<'_>, out: &mut Outbox) -> Option<()> {
        let ours = via.branch?.starts_with(BRANCH)
            && scan::ip(via.host) == Some(self.address.ip())
            && via.port == Some(self.address.port());
        if !ours {
            return None;
        }
        let (cut, next) = match via.next {
            Some(next) => (message.value_start(top)..next, scan::via(message.bytes, next, top.end)?),
            None => {
                let second = message.lines.iter().filter(|line| line.name == Name::Via).nth(1)?;
                (top.start..top.end, scan::via(message.bytes, second.value, second.end)?)
            }
        };
        send(next.response_address()?, out, |bytes| {
            bytes.extend_from_slice(message.slice(0..cut.start));
            bytes.extend_from_slice(message.slice(cut.end..message.bytes.len()));
        });
        Some(())
    }

    /// Decides on a request that is no REGISTER.
    fn proxy(&self, request: &Request<'_>, out: &mut Outbox) -> Option<Done> {
        if request.method == Method::Ack && request.to_tag.is_some_and(|tag| tag.starts_with(TAG)) {
            return Some(Done::Absorbed); // it belongs to an answer of ours: RFC 3261 §17.1.1.3
        }
        let route = self.route(&request.message)?;
        if let Some(next) = route.next {
            let Some(address) = Target::parse(next).and_then(|target| target.address()) else {
                return Some(self.refuse(request, b"400 Route Is No IP Address", out));
            };
            return self.forward(request, address, request.uri(), route.cut, out);
        }
        let Some(target) = Target::parse(request.uri()) else {
            return Some(self.refuse(request, b"416 Unsupported URI Scheme", out));
        };
        if let Place::Foreign(address) = self.place(&target) {
            return self.forward(request, address, request.uri(), route.cut, out);
        }
        if request.method == Method::Options {
            return Some(self.answer(request, b"200 OK", b"", out));
        }
        self.to_user(request, target.user, route.cut, out)
    }

    /// Decides on a request for a user of ours.
    fn to_user(
        &self,
        request: &Request<'_>,
        user: Option<&[u8]>,
        cut: Range<usize>,
        out: &mut Outbox,
    ) -> Option<Done> {
        let cancel = request.method == Method::Cancel;
        let binding = user.and_then(|user| self.bindings.get(user));
        Some(match binding {
            // RFC 3261 §9.2: there is no transaction to cancel (any more).
            _ if cancel && (binding.is_none() || self.behaviour.redirect) => {
                self.refuse(request, b"481 Call/Transaction Does Not Exist", out)
            }
            None => self.refuse(request, b"404 Not Found", out),
            Some(Binding { contact, .. }) if self.redirects(request) => {
                self.trying(request, out);
                self.answer(
                    request,
                    b"302 Moved Temporarily",
                    &[b"Contact: <", &**contact, b">\r\n"].concat(),
                    out,
                )
            }
            Some(Binding { address: None, .. }) => self.refuse(request, b"480 Contact Is No IP Address", out),
            Some(Binding { contact, address: Some(address), .. }) => {
                return self.forward(request, *address, contact, cut, out);
            }
        })
    }

    fn redirects(&self, request: &Request<'_>) -> bool {
        self.behaviour.redirect && request.method == Method::Invite && request.is_initial()
    }

    /// Finds our own Route value, if the first is ours, and the next (RFC 3261 §16.4).
    fn route<'a>(&self, message: &Message<'a>) -> Option<Route<'a>> {
        let Some(line) = message.first(Name::Route) else { return Some(Route { cut: 0..0, next: None }) };
        let value = message.value(line);
        let first = scan::addressed(value)?;
        if matches!(self.place(&Target::parse(first.uri)?), Place::Foreign(_)) {
            return Some(Route { cut: 0..0, next: Some(first.uri) });
        }
        if let Some(next) = first.next {
            let start = message.value_start(line);
            let uri = scan::addressed(value.get(next..)?)?.uri;
            return Some(Route { cut: start..start + next, next: Some(uri) });
        }
        let second = message.lines.iter().filter(|line| line.name == Name::Route).nth(1);
        let next = match second {
            Some(second) => Some(scan::addressed(message.value(*second))?.uri),
            None => None,
        };
        Some(Route { cut: line.start..line.end, next })
    }

    fn place(&self, target: &Target<'_>) -> Place {
        if target.host_port == self.host_port.as_slice() {
            return Place::Own;
        }
        let Some(address) = target.address() else { return Place::Own };
        let ip_is_ours = address.ip() == self.address.ip() || self.address.ip().is_unspecified();
        let port_is_ours = target.port.is_none_or(|port| port == self.address.port());
        if ip_is_ours && port_is_ours { Place::Own } else { Place::Foreign(address) }
    }

    /// Passes a request on (RFC 3261 §16.6, §16.11).
    fn forward(
        &self,
        request: &Request<'_>,
        to: SocketAddr,
        uri: &[u8],
        cut: Range<usize>,
        out: &mut Outbox,
    ) -> Option<Done> {
        let message = &request.message;
        let hops = match message.first(Name::MaxForwards) {
            Some(line) => Some((line, scan::number::<u32>(message.value(line))?)),
            None => None,
        };
        if let Some((_, 0)) = hops {
            return Some(self.refuse(request, b"483 Too Many Hops", out));
        }
        self.trying(request, out);
        // In the order of their places; one with nothing to do is empty and stands at the end.
        let nowhere = (message.bytes.len()..message.bytes.len(), Text::Nothing);
        let mut edits = [nowhere.clone(), nowhere.clone(), nowhere];
        if let Some((at, text)) = source_text(request) {
            edits[0] = (at..at, text);
        }
        if let Some((line, left)) = hops {
            edits[1] = (line.value..line.end, Text::Number(left - 1));
        }
        if !cut.is_empty() {
            edits[2] = (cut, Text::Nothing);
        }
        edits.sort_unstable_by_key(|(range, _)| range.start);
        send(to, out, |bytes| {
            bytes.extend_from_slice(message.slice(0..request.uri.0));
            bytes.extend_from_slice(uri);
            bytes.extend_from_slice(message.slice(request.uri.1..message.headers));
            self.push_via(request, bytes);
            if hops.is_none() {
                bytes.extend_from_slice(b"Max-Forwards:");
                Text::Number(MAX_FORWARDS).push(bytes);
            }
            let mut at = message.headers;
            for (range, text) in edits {
                bytes.extend_from_slice(message.slice(at..range.start));
                text.push(bytes);
                at = range.end;
            }
            bytes.extend_from_slice(message.slice(at..message.bytes.len()));
        });
        Some(Done::Forwarded)
    }

    fn push_via(&self, request: &Request<'_>, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(b"Via: SIP/2.0/");
        bytes.extend_from_slice(self.transport.via().as_bytes());
        bytes.push(b' ');
        bytes.extend_from_slice(&self.host_port);
        bytes.extend_from_slice(b";branch=");
        bytes.extend_from_slice(BRANCH);
        push_mark(request, bytes);
        bytes.extend_from_slice(b"\r\n");
    }

    /// A stateless proxy must not send it (RFC 3261 §16.11); here it stands for a stateful one's.
    fn trying(&self, request: &Request<'_>, out: &mut Outbox) {
        if self.behaviour.trying && request.method == Method::Invite {
            write_answer(request, b"100 Trying", b"", out);
        }
    }

    /// An answer to anything but ACK, which has none.
    fn refuse(&self, request: &Request<'_>, status: &[u8], out: &mut Outbox) -> Done {
        if request.method == Method::Ack { Done::Absorbed } else { self.answer(request, status, b"", out) }
    }

    fn answer(&self, request: &Request<'_>, status: &[u8], fields: &[u8], out: &mut Outbox) -> Done {
        write_answer(request, status, fields, out);
        Done::Answered
    }

    /// Keeps or removes a contact and lists what the request leaves (RFC 3261 §10.3).
    fn register(&mut self, request: &Request<'_>, to: Line, out: &mut Outbox) -> Option<Done> {
        let message = &request.message;
        let Some(user) =
            Target::parse(scan::addressed(message.value(to))?.uri).and_then(|target| target.user)
        else {
            return Some(self.refuse(request, b"400 No User In To", out));
        };
        let Some(mut change) = self.read_contacts(message) else {
            return Some(self.refuse(request, b"400 Contact Not Understood", out));
        };
        if let (Change::Keep(binding), true) = (&mut change, self.transport.is_websocket()) {
            binding.address = Some(request.from);
        }
        if !self.apply(user, change) {
            return Some(self.refuse(request, b"503 Registrar Full", out));
        }
        Some(self.answer(request, b"200 OK", &self.contacts, out))
    }

    /// Reads the Contact fields, and writes into `contacts` what the answer says of them. `None`: the request is to be
    /// refused.
    fn read_contacts(&mut self, message: &Message<'_>) -> Option<Change> {
        self.contacts.clear();
        let seconds = |text: &[u8]| scan::number::<u32>(text).unwrap_or(EXPIRES_DEFAULT_S); // RFC 3261 §20.19
        let general =
            message.first(Name::Expires).map_or(EXPIRES_DEFAULT_S, |line| seconds(message.value(line)));
        let mut change = Change::None;
        for line in message.lines.iter().filter(|line| line.name == Name::Contact) {
            let mut rest = message.value(*line);
            if rest == b"*" {
                return (general == 0).then_some(Change::Remove);
            }
            loop {
                let one = scan::addressed(rest)?;
                let expires_s = scan::parameter(one.params, b"expires").map_or(general, seconds);
                if expires_s > 0 {
                    let binding = Binding::new(one.uri, expires_s)?;
                    binding.push(&mut self.contacts);
                    if !matches!(change, Change::Keep(_)) {
                        change = Change::Keep(binding);
                    }
                } else if matches!(change, Change::None) {
                    change = Change::Remove;
                }
                match one.next {
                    Some(next) => rest = rest.get(next..)?,
                    None => break,
                }
            }
        }
        Some(change)
    }

    /// Makes the change to a user's binding; false: there is no room.
    fn apply(&mut self, user: &[u8], change: Change) -> bool {
        match change {
            Change::None => {
                if let Some(binding) = self.bindings.get(user) {
                    binding.push(&mut self.contacts);
                }
            }
            Change::Remove => {
                self.bindings.remove(user);
            }
            Change::Keep(binding) => {
                if let Some(kept) = self.bindings.get_mut(user) {
                    *kept = binding;
                } else if self.bindings.len() < self.bindings_max && user.len() <= BINDING_BYTES_MAX {
                    self.bindings.insert(user.into(), binding);
                } else {
                    return false;
                }
            }
        }
        true
    }
}

/// What a REGISTER does to the binding of its user.
enum Change {
    /// Nothing: it asks which there is.
    None,
    Remove,
    /// The first contact that stays.
    Keep(Binding),
}

impl Binding {
    /// `None`: the URI is too long, or cannot stand between angle brackets.
    fn new(uri: &[u8], expires_s: u32) -> Option<Binding> {
        let plain = uri.iter().all(|&byte| byte > b' ' && byte != 127 && !b"<>\"".contains(&byte));
        let target = Target::parse(uri).filter(|_| plain && uri.len() <= BINDING_BYTES_MAX)?;
        Some(Binding { contact: uri.into(), address: target.address(), expires_s })
    }

    /// Appends the Contact field of an answer to REGISTER.
    fn push(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(b"Contact: <");
        bytes.extend_from_slice(&self.contact);
        bytes.extend_from_slice(b">;expires=");
        sip::push_number(bytes, self.expires_s);
        bytes.extend_from_slice(b"\r\n");
    }
}

/// Writes an answer of ours (RFC 3261 §8.2.6) and sends it to where the request's Via says (§18.2.2; RFC 3581 §4).
fn write_answer(request: &Request<'_>, status: &[u8], fields: &[u8], out: &mut Outbox) {
    let (message, via) = (&request.message, request.via);
    let to = match via.rport {
        Rport::Absent => SocketAddr::new(request.from.ip(), via.port.unwrap_or(scan::PORT_DEFAULT)),
        Rport::Asked(_) | Rport::Given(_) => request.from,
    };
    let provisional = status.starts_with(b"1");
    send(to, out, |bytes| {
        bytes.extend_from_slice(b"SIP/2.0 ");
        bytes.extend_from_slice(status);
        bytes.extend_from_slice(b"\r\n");
        let mut source = source_text(request);
        for line in message.lines {
            match line.name {
                Name::Via => match source.take() {
                    Some((at, text)) => {
                        bytes.extend_from_slice(message.slice(line.start..at));
                        text.push(bytes);
                        bytes.extend_from_slice(message.slice(at..line.end));
                    }
                    None => bytes.extend_from_slice(message.slice(line.start..line.end)),
                },
                Name::To if request.to_tag.is_none() && !provisional => {
                    bytes.extend_from_slice(message.slice(line.start..line.end).trim_ascii_end());
                    bytes.extend_from_slice(b";tag=");
                    bytes.extend_from_slice(TAG);
                    push_mark(request, bytes);
                    bytes.extend_from_slice(b"\r\n");
                }
                Name::To | Name::From | Name::CallId | Name::CSeq => {
                    bytes.extend_from_slice(message.slice(line.start..line.end));
                }
                // RFC 3261 §8.2.6.1: a 100 repeats it.
                Name::Timestamp if provisional => {
                    bytes.extend_from_slice(message.slice(line.start..line.end));
                }
                _ => {}
            }
        }
        bytes.extend_from_slice(fields);
        bytes.extend_from_slice(b"Content-Length: 0\r\n\r\n");
    });
}

/// Appends one datagram to what is to be sent.
fn send(to: SocketAddr, out: &mut Outbox, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.bytes.len();
    write(&mut out.bytes);
    let (socket, connection) = (SocketId(0), ConnectionId::NONE);
    out.sends.push(Send { socket, connection, to, range: start..out.bytes.len(), planned: None });
}

/// What the topmost Via lacks about the source, and the place for it (RFC 3261 §18.2.1; RFC 3581 §4).
fn source_text(request: &Request<'_>) -> Option<(usize, Text)> {
    let (via, from) = (request.via, request.from);
    match via.rport {
        Rport::Asked(at) => Some((at, Text::Rport(from.port(), via.received.is_none().then_some(from.ip())))),
        _ if via.received.is_some() || scan::ip(via.host) == Some(from.ip()) => None,
        _ => Some((via.end, Text::Received(from.ip()))),
    }
}

impl Text {
    fn push(self, bytes: &mut Vec<u8>) {
        match self {
            Text::Nothing => {}
            Text::Number(number) => {
                bytes.push(b' ');
                sip::push_number(bytes, number);
                bytes.extend_from_slice(b"\r\n");
            }
            Text::Rport(port, received) => {
                bytes.push(b'=');
                sip::push_number(bytes, u32::from(port));
                if let Some(ip) = received {
                    Text::Received(ip).push(bytes);
                }
            }
            Text::Received(ip) => {
                bytes.extend_from_slice(b";received=");
                match ip {
                    IpAddr::V4(_) => sip::host::push_ip(bytes, ip),
                    // Without brackets (RFC 3261 §25.1 `via-received`). Writing to a vector cannot fail.
                    IpAddr::V6(ip) => drop(write!(bytes, "{ip}")),
                }
            }
        }
    }
}

/// Longest branch that is carried over as it is; of a longer one a hash is.
const MARK_BYTES_MAX: usize = 200;

/// Appends what tells this transaction from others and stays the same for its retransmissions, its CANCEL and the ACK
/// of a refusal (RFC 3261 §16.11): the branch that came without its cookie, or without a cookie a hash of what
/// distinguished transactions before RFC 3261. The To tag, which that section names too, is left out: it comes with the
/// ACK and not with the INVITE.
fn push_mark(request: &Request<'_>, bytes: &mut Vec<u8>) {
    let carried = request.via.branch.and_then(|branch| branch.strip_prefix(COOKIE));
    if let Some(mark) = carried.filter(|mark| mark.len() <= MARK_BYTES_MAX && sip::is_token(mark)) {
        bytes.extend_from_slice(mark);
        return;
    }
    let message = &request.message;
    let mut hasher = DefaultHasher::new();
    request.uri().hash(&mut hasher);
    for name in [Name::Via, Name::From, Name::CallId] {
        message.first(name).map(|line| message.value(line)).hash(&mut hasher);
    }
    let cseq = message.first(Name::CSeq).map(|line| message.value(line)).unwrap_or_default();
    cseq.split(|byte| !byte.is_ascii_digit()).next().hash(&mut hasher);
    // Writing to a vector cannot fail.
    drop(write!(bytes, "{:016x}", hasher.finish()));
}

/// Lets a number of operations a second pass (a token bucket).
#[derive(Debug)]
struct Bucket {
    /// `None`: all pass.
    rate: Option<f64>,
    /// Most operations that may pass at once: 50 ms worth, at least ten.
    size: f64,
    filled: f64,
    at: Option<Instant>,
}

impl Bucket {
    /// A rate that is negative or no number lets one operation pass, as zero does; the command line refuses it.
    fn new(rate: Option<f64>) -> Bucket {
        let rate = rate.map(|rate| rate.max(0.0));
        let span = Duration::from_millis(50).as_secs_f64();
        Bucket { rate, size: rate.map_or(1.0, |rate| (rate * span).max(10.0)), filled: 1.0, at: None }
    }

    fn take(&mut self, now: Instant) -> bool {
        let Some(rate) = self.rate else { return true };
        let passed = self.at.map_or(Duration::ZERO, |at| now.since(at));
        self.at = Some(now);
        self.filled = (self.filled + passed.as_secs_f64() * rate).min(self.size);
        let passes = self.filled >= 1.0;
        self.filled -= f64::from(u8::from(passes));
        passes
    }
}
