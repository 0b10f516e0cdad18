//! Writing messages: requests put together from text that is ready (RFC 3261 §8.1.1, §9.1, §12.2.1.1, §13.2.2.4);
//! answers are in [`answer`], what tells operations apart in [`identity`].
//!
//! A request is written once into its operation's [`Kept`] buffer with marks at the places that change when it is sent
//! again with credentials; nothing here allocates once the buffers have grown. Sizes are those of real phones: an
//! INVITE of about 600 bytes with an SDP of about 150.

mod answer;
mod identity;

pub(super) use answer::{
    Note, has_contact, push_body, push_copied, push_dialog_headers, read_note, reply_address,
};
pub(super) use identity::{Identity, Key, hex};

use super::users::Names;
use crate::spec::{ContactRange, Transport, Workload};
use answer::push_note;
use sip::{HeaderName, Message, Uri};
use std::net::{IpAddr, SocketAddr};

/// Most values of Record-Route in an answer; a dialog with more cannot be used.
pub(super) const ROUTES_MAX: usize = 16;

/// A method that callers send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Invite,
    Bye,
    Register,
    Options,
    Message,
}

impl Verb {
    const fn text(self) -> &'static [u8] {
        match self {
            Verb::Invite => b"INVITE",
            Verb::Bye => b"BYE",
            Verb::Register => b"REGISTER",
            Verb::Options => b"OPTIONS",
            Verb::Message => b"MESSAGE",
        }
    }
}

/// A request as it was sent, to be sent again, with marks at what may change.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) bytes: Vec<u8>,
    uri: (usize, usize),
    step: usize,
    /// The lines From and Call-ID.
    dialog: (usize, usize),
    /// The digit of CSeq.
    cseq: usize,
    /// The credentials, or where they would stand: right behind CSeq.
    credentials: (usize, usize),
}

impl Kept {
    pub(super) fn method(&self) -> &[u8] {
        self.part((0, self.uri.0.saturating_sub(1)))
    }

    pub(super) fn uri(&self) -> &[u8] {
        self.part(self.uri)
    }

    pub(super) fn credentials(&self) -> &[u8] {
        self.part(self.credentials)
    }

    fn part(&self, (from, to): (usize, usize)) -> &[u8] {
        self.bytes.get(from..to).unwrap_or(&[])
    }

    /// Makes it the next request of the same kind: with other credentials, branch and CSeq (RFC 3261 §22.2).
    pub(super) fn renew(&mut self, step: u8, cseq: u8, credentials: &[u8], scratch: &mut Vec<u8>) {
        scratch.clear();
        scratch.extend_from_slice(self.part((0, self.credentials.0)));
        scratch.extend_from_slice(credentials);
        scratch.extend_from_slice(self.part((self.credentials.1, self.bytes.len())));
        std::mem::swap(&mut self.bytes, scratch);
        self.credentials.1 = self.credentials.0 + credentials.len();
        if let Some(digits) = self.bytes.get_mut(self.step..self.step + 2) {
            digits.copy_from_slice(&hex::<2>(step.into()));
        }
        if let Some(digit) = self.bytes.get_mut(self.cseq) {
            *digit = cseq_digit(cseq);
        }
    }

    /// The CANCEL of this INVITE: the same in Request-URI, Via, Route, From, Call-ID, To and number (RFC 3261 §9.1).
    pub(super) fn write_cancel(&self, texts: &Texts, out: &mut Vec<u8>) {
        // Both names have six letters, so that all in between stays where it is.
        out.extend_from_slice(b"CANCEL");
        out.extend_from_slice(self.part((6, self.cseq + 2)));
        out.extend_from_slice(b"CANCEL\r\n");
        out.extend_from_slice(&texts.empty_tail);
    }

    /// Makes the mark for the request's line and writes everything up to the routes.
    fn open(
        &mut self,
        texts: &Texts,
        socket: &SocketText,
        key: Key,
        verb: &[u8],
        uri: impl FnOnce(&mut Vec<u8>),
    ) {
        let out = &mut self.bytes;
        out.clear();
        out.extend_from_slice(verb);
        out.push(b' ');
        self.uri.0 = out.len();
        uri(out);
        self.uri.1 = out.len();
        out.extend_from_slice(b" SIP/2.0\r\n");
        out.extend_from_slice(&socket.via);
        texts.identity.push_branch(key, out);
        self.step = out.len();
        out.extend_from_slice(&hex::<2>(key.step.into()));
        out.extend_from_slice(b"\r\nMax-Forwards: 70\r\n");
    }

    fn close_cseq(&mut self, cseq: u8, verb: &[u8]) {
        let out = &mut self.bytes;
        out.extend_from_slice(b"CSeq: ");
        self.cseq = out.len();
        out.push(cseq_digit(cseq));
        out.push(b' ');
        out.extend_from_slice(verb);
        out.extend_from_slice(b"\r\n");
        self.credentials = (out.len(), out.len());
    }
}

/// An operation sends at most nine requests: an INVITE and a BYE, each challenged twice at most.
fn cseq_digit(cseq: u8) -> u8 {
    b'0' + cseq.min(9)
}

/// Constant text of one socket.
#[derive(Debug)]
pub(super) struct SocketText {
    /// Up to the branch.
    via: Vec<u8>,
    /// `IP:PORT` and the parameters of a contact.
    pub(super) host_port: Vec<u8>,
    /// Content-Type, Content-Length, the empty line and the body of an offer or an answer.
    sdp: Vec<u8>,
}

impl SocketText {
    /// Of a socket at `address`. Over a transport with connections that is where the server could connect to, port 0 if
    /// nowhere; over WebSocket nobody can, and a name that leads nowhere stands in its place (RFC 7118 §5, RFC 2606).
    pub(super) fn new(address: SocketAddr, transport: Transport) -> SocketText {
        let family = if address.is_ipv4() { "IP4" } else { "IP6" };
        let ip = address.ip();
        let body = format!(
            "v=0\r\no=sipstone 1 1 IN {family} {ip}\r\ns=-\r\nc=IN {family} {ip}\r\nt=0 0\r\n\
             m=audio 30000 RTP/AVP 0 8 101\r\na=rtpmap:101 telephone-event/8000\r\n"
        );
        let length = body.len();
        SocketText {
            via: format!("Via: SIP/2.0/{} {};rport;branch=", transport.via(), sent_by(address, transport))
                .into_bytes(),
            host_port: host_port(address, transport).into_bytes(),
            sdp: format!("Content-Type: application/sdp\r\nContent-Length: {length}\r\n\r\n{body}")
                .into_bytes(),
        }
    }
}

/// What stands in a Via: `IP:PORT`, `IP`, or a name that leads nowhere.
fn sent_by(address: SocketAddr, transport: Transport) -> String {
    match (address.ip(), address.port()) {
        (ip, port) if transport.is_websocket() => {
            let host = ip.to_string().replace(['.', ':'], "-");
            format!("c{host}-{port}.invalid")
        }
        (IpAddr::V4(ip), 0) => ip.to_string(),
        (IpAddr::V6(ip), 0) => format!("[{ip}]"),
        _ => address.to_string(),
    }
}

/// What stands behind the `@` of a contact, with the transport unless that is UDP (RFC 3261 §19.1.1).
fn host_port(address: SocketAddr, transport: Transport) -> String {
    let sent_by = sent_by(address, transport);
    match transport {
        Transport::Udp => sent_by,
        // RFC 7118 §5.2: there is no transport=wss; whether TLS is used is the server's business.
        Transport::Ws | Transport::Wss => format!("{sent_by};transport=ws"),
        Transport::Tcp | Transport::Tls => format!("{sent_by};transport={transport}"),
    }
}

/// Where the users can be reached, in the order of their numbers.
#[derive(Debug, Default)]
pub(super) struct Contacts(Vec<(ContactRange, Vec<u8>)>);

impl Contacts {
    pub(super) fn new(ranges: &[ContactRange], transport: Transport) -> Contacts {
        let text = |range: &ContactRange| (range.clone(), host_port(range.address, transport).into_bytes());
        let mut sorted: Vec<_> = ranges.iter().map(text).collect();
        sorted.sort_by_key(|(range, _)| range.first);
        Contacts(sorted)
    }

    /// The user of the `n`-th turn: of each contact in turn one, so that the same contact is called as rarely as can be.
    pub(super) fn in_turn(&self, n: u64) -> Option<u32> {
        let contacts = u64::try_from(self.0.len()).ok().filter(|count| *count > 0)?;
        let (range, _) = self.0.get(usize::try_from(n % contacts).ok()?)?;
        let within = (n / contacts) % u64::from(range.count.max(1));
        Some(range.first.saturating_add(u32::try_from(within).ok()?))
    }

    /// `IP:PORT` of a user's contact, with its parameters.
    pub(super) fn host_port(&self, user: u32) -> Option<&[u8]> {
        let behind = self.0.partition_point(|(range, _)| range.first <= user);
        let (range, text) = self.0.get(behind.checked_sub(1)?)?;
        (user - range.first < range.count).then_some(text)
    }
}

/// Who is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Called<'a> {
    /// A user by the address-of-record.
    User(u32),
    /// A user at a contact, through the server (`outbound`).
    At(u32, &'a [u8]),
    /// A name that nobody has registered.
    Nobody(u32),
}

/// Constant text of a worker, and the writers that need it.
#[derive(Debug)]
pub(super) struct Texts {
    pub(super) identity: Identity,
    /// `@DOMAIN`.
    at_domain: Vec<u8>,
    /// `<sip:TARGET;lr>`.
    route: Vec<u8>,
    user_agent: Vec<u8>,
    /// User-Agent and `Content-Length: 0`.
    empty_tail: Vec<u8>,
    expires: Vec<u8>,
    target: SocketAddr,
    /// Whether everything goes to the target, whatever URIs say: by the connection that leads there.
    outbound: bool,
    /// The domain's address, if it is a numeric one.
    domain: Option<SocketAddr>,
}

/// The body of a MESSAGE.
const TEXT: &[u8] = b"Content-Type: text/plain\r\nContent-Length: 20\r\n\r\nHello from sipstone\n";

impl Texts {
    pub(super) fn new(workload: &Workload, identity: Identity) -> Texts {
        let domain = &workload.target.domain;
        let link = workload.links.caller;
        let address = link.address.unwrap_or(workload.target.address);
        let parameter = match link.transport {
            Transport::Udp => String::new(),
            Transport::Wss => ";transport=ws".into(),
            transport => format!(";transport={transport}"),
        };
        let user_agent = concat!("User-Agent: sipstone/", env!("CARGO_PKG_VERSION"), "\r\n");
        let number = |domain: &str| domain.trim_matches(['[', ']']).parse().ok();
        Texts {
            identity,
            at_domain: format!("@{domain}").into_bytes(),
            route: format!("Route: <sip:{address}{parameter};lr>\r\n").into_bytes(),
            outbound: link.transport.is_stream(),
            user_agent: user_agent.into(),
            empty_tail: format!("{user_agent}Content-Length: 0\r\n\r\n").into_bytes(),
            expires: format!("Expires: {}\r\n", workload.expires).into_bytes(),
            target: address,
            domain: domain.parse().ok().or_else(|| Some(SocketAddr::new(number(domain)?, 5060))),
        }
    }

    fn domain(&self) -> &[u8] {
        self.at_domain.get(1..).unwrap_or(&[])
    }

    fn push_user(&self, names: &Names, user: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(b"sip:");
        names.write_name(user, out);
        out.extend_from_slice(&self.at_domain);
    }

    /// From with its tag, and Call-ID.
    fn push_dialog(&self, names: &Names, from: u32, tag: u32, key: Key, kept: &mut Kept) {
        kept.dialog.0 = kept.bytes.len();
        let out = &mut kept.bytes;
        out.extend_from_slice(b"From: <");
        self.push_user(names, from, out);
        out.extend_from_slice(b">;tag=");
        out.extend_from_slice(&hex::<8>(tag.into()));
        out.extend_from_slice(b"\r\nCall-ID: ");
        self.identity.push_call_id(key, out);
        out.extend_from_slice(b"\r\n");
        kept.dialog.1 = kept.bytes.len();
    }

    fn push_called(&self, names: &Names, called: Called<'_>, out: &mut Vec<u8>) {
        match called {
            Called::User(user) => self.push_user(names, user, out),
            Called::At(user, host_port) => push_contact_uri(names, user, host_port, out),
            Called::Nobody(user) => {
                out.extend_from_slice(b"sip:nobody-");
                names.write_name(user, out);
                out.extend_from_slice(&self.at_domain);
            }
        }
    }

    /// REGISTER of a user (RFC 3261 §10.2); `contact` is the `IP:PORT` of the callee.
    pub(super) fn write_register(
        &self,
        kept: &mut Kept,
        request: &NewRequest<'_>,
        contact: &[u8],
        keep: Binding,
    ) {
        let NewRequest { names, socket, key, from, tag } = *request;
        kept.open(self, socket, key, b"REGISTER", |out| {
            out.extend_from_slice(b"sip:");
            out.extend_from_slice(self.domain());
        });
        self.push_dialog(names, from, tag, key, kept);
        kept.bytes.extend_from_slice(b"To: <");
        self.push_user(names, from, &mut kept.bytes);
        kept.bytes.extend_from_slice(b">\r\n");
        kept.close_cseq(1, b"REGISTER");
        let out = &mut kept.bytes;
        out.extend_from_slice(b"Contact: <");
        push_contact_uri(names, from, contact, out);
        out.extend_from_slice(b">\r\n");
        out.extend_from_slice(if keep == Binding::Kept { &self.expires } else { b"Expires: 0\r\n" });
        out.extend_from_slice(&self.empty_tail);
    }

    /// OPTIONS to the server itself (RFC 3261 §11.1).
    pub(super) fn write_options(&self, kept: &mut Kept, request: &NewRequest<'_>) {
        let NewRequest { names, socket, key, from, tag } = *request;
        kept.open(self, socket, key, b"OPTIONS", |out| {
            out.extend_from_slice(b"sip:");
            out.extend_from_slice(self.domain());
        });
        self.push_dialog(names, from, tag, key, kept);
        kept.bytes.extend_from_slice(b"To: <sip:");
        kept.bytes.extend_from_slice(self.domain());
        kept.bytes.extend_from_slice(b">\r\n");
        kept.close_cseq(1, b"OPTIONS");
        self.push_contact(names, from, socket, &mut kept.bytes);
        kept.bytes.extend_from_slice(b"Accept: application/sdp\r\n");
        kept.bytes.extend_from_slice(&self.empty_tail);
    }

    /// INVITE or MESSAGE to a user; what is foreign to the server goes by a Route to it (RFC 3261 §8.1.1.1, §8.1.2).
    pub(super) fn write_call(
        &self,
        kept: &mut Kept,
        verb: Verb,
        request: &NewRequest<'_>,
        to: Called<'_>,
        note: Note,
    ) {
        let NewRequest { names, socket, key, from, tag } = *request;
        kept.open(self, socket, key, verb.text(), |out| self.push_called(names, to, out));
        if matches!(to, Called::At(..)) {
            kept.bytes.extend_from_slice(&self.route);
        }
        self.push_dialog(names, from, tag, key, kept);
        kept.bytes.extend_from_slice(b"To: <");
        self.push_called(names, to, &mut kept.bytes);
        kept.bytes.extend_from_slice(b">\r\n");
        kept.close_cseq(1, verb.text());
        let out = &mut kept.bytes;
        if verb == Verb::Invite {
            self.push_contact(names, from, socket, out);
        }
        out.extend_from_slice(&self.user_agent);
        push_note(note, out);
        // RFC 3428 §4: a MESSAGE has no Contact.
        out.extend_from_slice(if verb == Verb::Invite { &socket.sdp } else { TEXT });
    }

    fn push_contact(&self, names: &Names, user: u32, socket: &SocketText, out: &mut Vec<u8>) {
        out.extend_from_slice(b"Contact: <");
        push_contact_uri(names, user, &socket.host_port, out);
        out.extend_from_slice(b">\r\n");
    }

    /// A request within a dialog (RFC 3261 §12.2.1.1): the ACK of a 2xx, with the INVITE's credentials (§13.2.2.4), or
    /// a BYE. `invite` is what the dialog began with, `to` the answer's To.
    pub(super) fn write_in_dialog(&self, kept: &mut Kept, invite: &Kept, request: &InDialog<'_>) {
        let InDialog { verb, socket, key, remote, to, cseq, credentials } = *request;
        kept.open(self, socket, key, verb, |out| out.extend_from_slice(remote.uri));
        remote.push_routes(&mut kept.bytes);
        kept.dialog.0 = kept.bytes.len();
        kept.bytes.extend_from_slice(invite.part(invite.dialog));
        kept.dialog.1 = kept.bytes.len();
        kept.bytes.extend_from_slice(b"To: ");
        kept.bytes.extend_from_slice(to);
        kept.bytes.extend_from_slice(b"\r\n");
        kept.close_cseq(cseq, verb);
        kept.bytes.extend_from_slice(credentials);
        kept.credentials.1 = kept.bytes.len();
        kept.bytes.extend_from_slice(&self.empty_tail);
    }

    /// An ACK made from the answer alone, so that it can be sent after its operation has ended.
    ///
    /// `None`: the answer lacks what an ACK needs.
    pub(super) fn write_ack(
        &self,
        out: &mut Vec<u8>,
        socket: &SocketText,
        answer: &Message<'_>,
        of: AckOf<'_>,
    ) -> Option<()> {
        let (to, from) = (answer.header(HeaderName::To)?, answer.header(HeaderName::From)?);
        let via = answer.via_top().ok()?;
        let branch = via.branch()?;
        out.extend_from_slice(b"ACK ");
        out.extend_from_slice(match of {
            AckOf::Refusal { uri: Some(uri), .. } => uri,
            AckOf::Refusal { uri: None, .. } => answer.to().ok()?.uri,
            AckOf::Dialog(remote) => remote.uri,
        });
        out.extend_from_slice(b" SIP/2.0\r\n");
        out.extend_from_slice(&socket.via);
        match of {
            AckOf::Refusal { routed, .. } => {
                out.extend_from_slice(branch);
                out.extend_from_slice(b"\r\nMax-Forwards: 70\r\n");
                out.extend_from_slice(if routed == Routed::ByTarget { &self.route } else { &[] });
            }
            // The ACK of a 2xx is a transaction of its own (§13.2.2.4); no request has this step.
            AckOf::Dialog(remote) => {
                out.extend_from_slice(branch.get(..branch.len().checked_sub(2)?)?);
                out.extend_from_slice(b"ff\r\nMax-Forwards: 70\r\n");
                remote.push_routes(out);
            }
        }
        out.extend_from_slice(b"From: ");
        out.extend_from_slice(from.value);
        out.extend_from_slice(b"\r\nTo: ");
        out.extend_from_slice(to.value);
        out.extend_from_slice(b"\r\nCall-ID: ");
        out.extend_from_slice(answer.call_id().ok()?);
        out.extend_from_slice(b"\r\nCSeq: ");
        sip::push_number(out, answer.cseq().ok()?.number);
        out.extend_from_slice(b" ACK\r\n");
        out.extend_from_slice(&self.empty_tail);
        Some(())
    }

    /// Where a URI leads: to the target, if its host is a name (nothing is resolved here) or the domain, or if there is a
    /// connection to it.
    fn address_of(&self, uri: &[u8]) -> SocketAddr {
        if self.outbound {
            return self.target;
        }
        let parsed = Uri::parse(uri).ok();
        let numeric = parsed.as_ref().and_then(|uri| {
            let uri = uri.sip()?;
            Some(SocketAddr::new(uri.host.ip()?, uri.port_or_default()))
        });
        numeric.filter(|address| Some(*address) != self.domain).unwrap_or(self.target)
    }
}

/// What an ACK acknowledges.
#[derive(Clone, Copy)]
pub(super) enum AckOf<'a> {
    /// A final answer that is no 2xx: within the INVITE's transaction (RFC 3261 §17.1.1.3). Without `uri`, the
    /// INVITE's Request-URI, the answer's To is taken, which has the same.
    Refusal { uri: Option<&'a [u8]>, routed: Routed },
    /// A 2xx: within the dialog (§13.2.2.4).
    Dialog(&'a Remote<'a>),
}

/// Whether the INVITE had a Route to the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Routed {
    ByTarget,
    ByUri,
}

/// Whether a REGISTER keeps its binding or removes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binding {
    Kept,
    Removed,
}

/// What every request outside of a dialog has.
#[derive(Clone, Copy)]
pub(super) struct NewRequest<'a> {
    pub(super) names: &'a Names,
    pub(super) socket: &'a SocketText,
    pub(super) key: Key,
    pub(super) from: u32,
    pub(super) tag: u32,
}

/// What every request within a dialog has.
#[derive(Clone, Copy)]
pub(super) struct InDialog<'a> {
    pub(super) verb: &'a [u8],
    pub(super) socket: &'a SocketText,
    pub(super) key: Key,
    pub(super) remote: &'a Remote<'a>,
    pub(super) to: &'a [u8],
    pub(super) cseq: u8,
    pub(super) credentials: &'a [u8],
}

/// Where requests of a dialog go, as the answer that made it says (RFC 3261 §12.1.2, §12.2.1.1).
pub(super) struct Remote<'a> {
    uri: &'a [u8],
    routes: [&'a [u8]; ROUTES_MAX],
    count: usize,
    /// The remote target, when the first hop is a strict router and has taken the Request-URI's place.
    last_route: Option<&'a [u8]>,
    /// The first hop.
    pub(super) address: SocketAddr,
}

impl<'a> Remote<'a> {
    /// From a 2xx to an INVITE; `None` if it has no Contact or more than [`ROUTES_MAX`] routes, or malformed ones.
    pub(super) fn of_answer(texts: &Texts, answer: &Message<'a>) -> Option<Remote<'a>> {
        let target = answer.contacts().next()?.ok()?.uri;
        let mut routes: [&[u8]; ROUTES_MAX] = [&[]; ROUTES_MAX];
        let mut count = 0;
        let mut first = target;
        for value in answer.record_routes() {
            let value = value.ok()?;
            let span = usize::try_from(value.span.start).ok()?..usize::try_from(value.span.end).ok()?;
            *routes.get_mut(count)? = answer.bytes().get(span)?;
            count += 1;
            first = value.uri;
        }
        // §12.1.2: a caller takes the values in reverse order.
        routes.get_mut(..count)?.reverse();
        let mut remote =
            Remote { uri: target, routes, count, last_route: None, address: texts.address_of(first) };
        let loose = count == 0 || Uri::parse(first).is_ok_and(|uri| uri.sip().is_some_and(|uri| uri.lr()));
        if !loose {
            remote.routes.copy_within(1..count, 0);
            remote.count = count - 1;
            remote.uri = first;
            remote.last_route = Some(target);
        }
        Some(remote)
    }

    /// A dialog that cannot be found: all that is known is whom the INVITE was for.
    pub(super) fn fallback(texts: &Texts, uri: &'a [u8]) -> Remote<'a> {
        Remote { uri, routes: [&[]; ROUTES_MAX], count: 0, last_route: None, address: texts.target }
    }

    fn push_routes(&self, out: &mut Vec<u8>) {
        for route in self.routes.get(..self.count).unwrap_or(&[]) {
            out.extend_from_slice(b"Route: ");
            out.extend_from_slice(route);
            out.extend_from_slice(b"\r\n");
        }
        if let Some(target) = self.last_route {
            out.extend_from_slice(b"Route: <");
            out.extend_from_slice(target);
            out.extend_from_slice(b">\r\n");
        }
    }
}

/// `sip:USER@IP:PORT`: what a callee is registered with.
pub(super) fn push_contact_uri(names: &Names, user: u32, host_port: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"sip:");
    names.write_name(user, out);
    out.push(b'@');
    out.extend_from_slice(host_port);
}
