//! The next hop of a target (RFC 3261 §16.6 items 6 and 7, RFC 3263 §4): destination, Path, Route, Request-URI, in
//! this order.

use crate::context::RelayError;
use crate::io::{DomainId, FlowId, ListenerId, Path};
use crate::own::{default_port, is_secure, is_websocket};
use crate::plan::Plan;
use crate::reply::unicast;
use crate::resolve::{ADDRESSES_MAX, Known};
use crate::shard::Core;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use sip::{HeaderName, Host, Instant, Message, NameAddr, SipUri, Transport, Uri};
use smallvec::SmallVec;

/// The way to a next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) path: Path,
    /// Whether its URI leaves the transport to us (RFC 3261 §18.1.1).
    pub(crate) free: bool,
    /// The listener and the port to be tried when `path` fails.
    pub(crate) second: Option<(ListenerId, u16)>,
}

/// Where a target's next hop is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextHop<'a> {
    /// Here.
    Way(Way),
    /// Wherever this name is.
    Name(&'a [u8]),
}

/// The first value of a list of Route values.
pub(crate) fn first_value(list: &[u8]) -> &[u8] {
    let end = list.iter().position(|&byte| byte == b'>').map_or(list.len(), |end| end + 1);
    list.get(..end).unwrap_or(list)
}

/// The first Route value that is left after route processing.
pub(crate) fn first_route<'a>(message: &Message<'a>, plan: &Plan) -> Option<NameAddr<'a>> {
    if plan.routes_gone || message.header(HeaderName::Route).is_none() {
        return None;
    }
    let mut routes = message.routes().skip(plan.routes_removed);
    let first = routes.next()?.ok()?;
    // The last value may have become the Request-URI.
    if plan.last_route_removed && routes.next().is_none() {
        return None;
    }
    Some(first)
}

/// Whether a parameter of a URI is `method`, escaped or not.
fn is_method_param(param: &[u8]) -> bool {
    let name = param.split(|&byte| byte == b'=').next().unwrap_or(param);
    let mut left = name;
    let plain = core::iter::from_fn(|| {
        let (&byte, mut rest) = left.split_first()?;
        let digit = |at: usize| left.get(at).and_then(|&digit| char::from(digit).to_digit(16));
        let mut plain = byte;
        if let (b'%', Some(high), Some(low)) = (byte, digit(1), digit(2)) {
            plain = (high << 4 | low) as u8;
            rest = left.get(3..).unwrap_or(&[]);
        }
        left = rest;
        Some(plain.to_ascii_lowercase())
    });
    plain.eq(b"method".iter().copied())
}

/// A target's URI as it may stand in a Request-URI or a Route (RFC 3261 §16.6 item 2, §19.1.1 table 1): without
/// `?headers` and without `method`, and `lowered` from `sips` to `sip`; made in `text` where it is not that already. A
/// `ttl` stays, as §19.1.5 asks.
pub(crate) fn request_uri_of<'a>(uri: &'a [u8], lowered: bool, text: &'a mut Vec<u8>) -> &'a [u8] {
    if lowered {
        let mut plain = Vec::new();
        let sent = request_uri_of(uri, false, &mut plain);
        text.clear();
        text.extend_from_slice(b"sip:");
        text.extend_from_slice(sent.get(b"sips:".len()..).unwrap_or(b""));
        return text;
    }
    let suspect = |pair: &[u8]| matches!(pair, [b'?', _] | [_, b'?'] | [b';', b'm' | b'M' | b'%']);
    if !uri.windows(2).any(suspect) {
        return uri;
    }
    // What is no SIP URI is not sent.
    let Ok(Uri::Sip(parsed)) = Uri::parse(uri) else { return uri };
    let headers = parsed.headers.map_or(0, |headers| headers.len() + 1);
    let params = parsed.params.as_bytes();
    text.clear();
    text.extend_from_slice(uri.get(..uri.len().saturating_sub(headers + params.len())).unwrap_or(uri));
    // Before the first semicolon stands nothing.
    for param in params.split(|&byte| byte == b';').skip(1).filter(|param| !is_method_param(param)) {
        text.push(b';');
        text.extend_from_slice(param);
    }
    text
}

/// Whether a Route value is of a strict router (RFC 3261 §16.6 item 6).
pub(crate) fn is_strict(route: &NameAddr<'_>) -> bool {
    !matches!(route.uri(), Ok(Uri::Sip(uri)) if uri.lr())
}

/// The transport of a next hop (RFC 3263 §4.1 without NAPTR), and whether its URI leaves that to us: what it says, TLS
/// where a `sips` URI is involved, else UDP.
fn transport_of(uri: &SipUri<'_>, secure: bool) -> Result<(Transport, bool), RelayError> {
    match (secure || uri.secure, uri.transport()) {
        (true, None | Some(Transport::Tcp | Transport::Tls)) => Ok((Transport::Tls, false)),
        (true, Some(Transport::Ws | Transport::Wss)) => Ok((Transport::Wss, false)),
        // RFC 3261 §26.2.2: "UDP is not a valid transport for SIPS"; TLS over SCTP is not here.
        (true, Some(_)) => Err(RelayError::SipsNotAllowed),
        (false, Some(transport)) => Ok((transport, false)),
        (false, None) => Ok((Transport::Udp, true)),
    }
}

/// Whether a URI's scheme is `sips`.
pub(crate) fn is_sips(uri: &[u8]) -> bool {
    uri.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"sips:"))
}

/// Whether a URI's scheme is `sip`.
fn is_sip(uri: &[u8]) -> bool {
    uri.get(..4).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"sip:"))
}

/// Whether a target's `sips` scheme must give way: a request that came for a `sip` URI is not sent to a `sips` one (RFC
/// 5630 §5.3); it goes by TLS all the same.
pub(crate) fn is_lowered(received: &[u8], target: &[u8]) -> bool {
    is_sip(received) && is_sips(target)
}

/// Whether nobody can ever be found under a name (RFC 6761 §6.4): a WebSocket client's (RFC 7118 §5).
fn is_invalid(name: &[u8]) -> bool {
    const INVALID: &[u8] = b"invalid";
    let name = name.strip_suffix(b".").unwrap_or(name);
    let Some((front, last)) = name.split_at_checked(name.len().saturating_sub(INVALID.len())) else {
        return false;
    };
    last.eq_ignore_ascii_case(INVALID) && front.last().is_none_or(|&byte| byte == b'.')
}

/// What a target's next hop is found by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hop<'a> {
    /// The URI of RFC 3263.
    uri: SipUri<'a>,
    /// Whether only TLS will do (RFC 3261 §16.6 item 7).
    secure: bool,
    /// What is wrong where there is no TLS (RFC 5630 §5.3).
    without_tls: RelayError,
    /// The listener to be preferred, and our address there.
    listener: ListenerId,
    local: Option<IpAddr>,
    /// Whether its addresses have one order, however they were told.
    ordered: bool,
}

/// The URI that a target's next hop is taken from: its destination, Path, Route, its own.
fn hop<'a>(message: &Message<'a>, plan: &'a Plan, target: usize, from: &Path) -> Result<Hop<'a>, RelayError> {
    let own = plan.uri(target).unwrap_or(message.request_uri());
    let route = match plan.path(target) {
        Some(path) => NameAddr::parse(first_value(path)).ok(),
        None => first_route(message, plan),
    };
    let uri = match (plan.destination(target), route) {
        (Some(destination), _) => Uri::parse(destination),
        (None, Some(route)) => Uri::parse(route.uri),
        (None, None) if plan.uri(target).is_none() => message.parsed_request_uri(),
        (None, None) => Uri::parse(own),
    };
    // RFC 5630 §5.3: no request for a `sips` URI goes to a `sip` one, not even by TLS. A strict router's Request-URI
    // is none that the request is for.
    let received = if plan.last_route_removed { own } else { message.request_uri() };
    if is_sips(received) && !is_sips(own) {
        return Err(RelayError::SipsNotAllowed);
    }
    let lowered = is_lowered(received, own);
    let without_tls = if lowered { RelayError::SipsRequired } else { RelayError::SipsNotAllowed };
    let listener = plan.way_out.unwrap_or(from.listener);
    let local = if listener == from.listener { from.local } else { None };
    match uri {
        Ok(Uri::Sip(uri)) => {
            Ok(Hop { uri, secure: is_sips(own), without_tls, listener, local, ordered: plan.ordered })
        }
        // RFC 3261 §16.3 item 2.
        Ok(_) => Err(RelayError::UnsupportedScheme),
        Err(_) => Err(RelayError::BadRequest),
    }
}

impl<S> Core<S> {
    /// Finds the next hop of a target.
    pub(crate) fn next_hop<'a>(
        &mut self,
        message: &Message<'a>,
        plan: &'a Plan,
        target: usize,
        from: &Path,
        now: Instant,
    ) -> Result<NextHop<'a>, RelayError> {
        let hop = hop(message, plan, target, from)?;
        if let Some(way) = self.connection_of(message, plan, target, from) {
            // RFC 5626 §5.3: the connection is all that leads there.
            if hop.secure && !is_secure(self.own.transport(way.path.listener)) {
                return Err(hop.without_tls);
            }
            return Ok(NextHop::Way(way));
        }
        let found = self.locate(&hop, None, now)?;
        Ok(match found {
            NextHop::Way(way) => NextHop::Way(self.as_registered(way, plan, target)),
            name @ NextHop::Name(_) => name,
        })
    }

    /// The same as soon as the addresses of its name are known.
    pub(crate) fn next_hop_at(
        &mut self,
        message: &Message<'_>,
        plan: &Plan,
        target: usize,
        from: &Path,
        addresses: &[IpAddr],
        now: Instant,
    ) -> Result<Way, RelayError> {
        let hop = hop(message, plan, target, from)?;
        match self.locate(&hop, Some(addresses), now)? {
            NextHop::Way(way) => Ok(way),
            NextHop::Name(_) => Err(RelayError::Unresolvable),
        }
    }

    /// The connection that the last own Route named, where nothing else says where the request goes: the peer of a
    /// dialog that can only be reached by it.
    fn connection_of(&self, message: &Message<'_>, plan: &Plan, target: usize, from: &Path) -> Option<Way> {
        let (listener, remote) = (plan.way_out?, plan.connection?);
        let untouched = plan.uri(target).is_none() || plan.last_route_removed;
        let led = plan.destination(target).is_some()
            || plan.path(target).is_some()
            || first_route(message, plan).is_some();
        // It is not sent back to where it came from.
        let back = listener == from.listener && remote == from.remote;
        let local = if listener == from.listener { from.local } else { None };
        let path = Path::new(listener, local, remote);
        let uri = plan.uri(target).unwrap_or(message.request_uri());
        let way = Way { path, free: false, second: None };
        (untouched && !led && !back).then(|| self.by_connection(way, uri))
    }

    /// Finds the way to a URI; `answer` are the addresses of its name where they have just been learned.
    fn locate<'a>(
        &mut self,
        hop: &Hop<'a>,
        answer: Option<&[IpAddr]>,
        now: Instant,
    ) -> Result<NextHop<'a>, RelayError> {
        let uri = &hop.uri;
        let (transport, free) = transport_of(uri, hop.secure)?;
        let port = uri.port.unwrap_or(default_port(transport));
        if port == 0 {
            return Err(RelayError::NoRoute);
        }
        let domain = match uri.host {
            // RFC 5922 §7.1: what the peer must prove is the domain that was asked for, wherever it is found.
            Host::Name(name) if self.may_need_domain(transport, free) => self.domains.intern(name),
            _ => DomainId::NONE,
        };
        let path_to = |core: &Core<S>, ip: IpAddr| core.path_to(transport, free, ip, port, domain, hop);
        // RFC 3263 §4: maddr is the target where it is given.
        let host = uri.maddr().unwrap_or(uri.host);
        if let Some(ip) = host.ip() {
            return path_to(self, ip).map(NextHop::Way);
        }
        let Host::Name(name) = host else { return Err(RelayError::NoRoute) };
        // RFC 7118 §5: a WebSocket client is not found by its name, only by its connection.
        if is_invalid(name) || is_websocket(transport) {
            return Err(RelayError::NoRoute);
        }
        let addresses = match answer {
            Some(addresses) => addresses,
            None => match self.resolver.known(name, now) {
                Known::Addresses(addresses) => addresses,
                Known::No => return Ok(NextHop::Name(name)),
            },
        };
        let mut addresses: SmallVec<[IpAddr; ADDRESSES_MAX]> = addresses.into();
        if hop.ordered {
            // RFC 3263 §4.4: a retransmission must find the same one.
            addresses.sort_unstable();
        }
        let mut error = RelayError::Unresolvable;
        for ip in addresses {
            match path_to(self, ip) {
                Ok(way) => return Ok(NextHop::Way(way)),
                Err(RelayError::NoRoute) => {}
                Err(without_tls) => error = without_tls,
            }
        }
        Err(error)
    }

    /// Whether a connection to a next hop may have to be one of TLS.
    fn may_need_domain(&self, transport: Transport, free: bool) -> bool {
        transport == Transport::Tls || (free && self.config.transports.long_transport == Some(Transport::Tls))
    }

    fn path_to(
        &self,
        transport: Transport,
        free: bool,
        ip: IpAddr,
        port: u16,
        domain: DomainId,
        hop: &Hop<'_>,
    ) -> Result<Way, RelayError> {
        // RFC 3261 §18.1.1 wants `maddr` and `ttl` in the Via of what goes to a group; nothing of ours goes there: one
        // datagram of a stranger must not become many.
        if unicast(Some(ip.to_canonical())).is_none() {
            return Err(RelayError::NoRoute);
        }
        let listener_for = |transport| self.own.listener_for(transport, ip, hop.listener);
        let listener = match (listener_for(transport), transport) {
            (Some(listener), _) => listener,
            (None, Transport::Tls | Transport::Wss) if hop.secure || hop.uri.secure => {
                return Err(hop.without_tls);
            }
            // RFC 7118 §5.2: `ws` in a URI is WebSocket, over TLS or not.
            (None, Transport::Ws) => listener_for(Transport::Wss).ok_or(RelayError::NoRoute)?,
            // RFC 3261 §18.1.1: every element has TCP too, and where there is no UDP it is all that is left.
            (None, Transport::Udp) if free => listener_for(Transport::Tcp).ok_or(RelayError::NoRoute)?,
            (None, _) => return Err(RelayError::NoRoute),
        };
        let local = if listener == hop.listener { hop.local } else { None };
        let path = Path { domain, ..Path::new(listener, local, SocketAddr::new(ip, port)) };
        Ok(Way { path, free, second: None })
    }

    /// A contact that was registered is reached the way that it was registered by: its request takes no other transport.
    fn as_registered(&self, way: Way, plan: &Plan, target: usize) -> Way {
        match plan.targets.get(target) {
            Some(planned) if planned.registered => {
                self.by_connection(Way { free: false, ..way }, plan.uri(target).unwrap_or(b""))
            }
            _ => way,
        }
    }

    /// The way to a peer that is reached by its connection. Where it says that it listens at another port of its host,
    /// that is where it is tried when the connection is gone, and not the port that it connected from: nobody listens
    /// there.
    fn by_connection(&self, way: Way, contact: &[u8]) -> Way {
        let second = self.second_of(&way.path, contact);
        let flow = if second.is_some() { FlowId::STANDING } else { way.path.flow };
        Way { path: Path { flow, ..way.path }, second, ..way }
    }

    /// The port of a peer's contact, if that is on the same host: a phone may listen there, and whoever else does is at
    /// its address too.
    fn second_of(&self, path: &Path, contact: &[u8]) -> Option<(ListenerId, u16)> {
        let transport = self.own.transport(path.listener);
        if !matches!(transport, Transport::Tcp | Transport::Tls) {
            return None;
        }
        let Ok(Uri::Sip(contact)) = Uri::parse(contact) else { return None };
        let port = contact.port.unwrap_or(default_port(transport));
        let here = contact.host.ip() == Some(path.remote.ip()) && port != path.remote.port();
        here.then_some((path.listener, port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3261 §19.1.1 table 1: neither `method` nor headers may stand in a Request-URI, everything else may.
    #[test]
    fn headers_and_method_are_not_sent() {
        for (target, sent) in [
            ("sip:bob@192.0.2.1?Subject=x&Route=%3Csip:a%3E", "sip:bob@192.0.2.1"),
            ("sip:bob@192.0.2.1:5070;method=INVITE;lr", "sip:bob@192.0.2.1:5070;lr"),
            ("sip:bob@[2001:db8::1];a=b;METHOD=bye;ttl=15?x=y", "sip:bob@[2001:db8::1];a=b;ttl=15"),
            ("sips:192.0.2.1;%6deth%4Fd=x;maddr=192.0.2.2", "sips:192.0.2.1;maddr=192.0.2.2"),
            ("sip:192.0.2.1;method", "sip:192.0.2.1"),
        ] {
            assert_eq!(
                request_uri_of(target.as_bytes(), false, &mut Vec::new()),
                sent.as_bytes(),
                "{target}"
            );
        }
    }

    /// RFC 3263 §4.1, RFC 3261 §26.2.2, RFC 7118 §5.2.
    #[test]
    fn the_transport_is_what_scheme_and_parameter_say() {
        for (uri, secure, expected) in [
            ("sip:192.0.2.1", false, Ok((Transport::Udp, true))),
            ("sip:192.0.2.1", true, Ok((Transport::Tls, false))),
            ("sip:192.0.2.1;transport=udp", false, Ok((Transport::Udp, false))),
            ("sip:192.0.2.1;transport=udp", true, Err(RelayError::SipsNotAllowed)),
            ("sip:192.0.2.1;transport=TCP", false, Ok((Transport::Tcp, false))),
            ("sip:192.0.2.1;transport=tcp", true, Ok((Transport::Tls, false))),
            ("sip:192.0.2.1;transport=tls", false, Ok((Transport::Tls, false))),
            ("sips:192.0.2.1", false, Ok((Transport::Tls, false))),
            ("sips:192.0.2.1;transport=tcp", false, Ok((Transport::Tls, false))),
            ("sips:192.0.2.1;transport=udp", false, Err(RelayError::SipsNotAllowed)),
            ("sips:192.0.2.1;transport=sctp", false, Err(RelayError::SipsNotAllowed)),
            ("sips:192.0.2.1;transport=ws", false, Ok((Transport::Wss, false))),
            ("sip:192.0.2.1;transport=ws", false, Ok((Transport::Ws, false))),
            ("sip:192.0.2.1;transport=ws", true, Ok((Transport::Wss, false))),
            ("sip:192.0.2.1;transport=wss", false, Ok((Transport::Wss, false))),
        ] {
            let Ok(Uri::Sip(parsed)) = Uri::parse(uri.as_bytes()) else { panic!("{uri}") };
            assert_eq!(transport_of(&parsed, secure), expected, "{uri}");
        }
    }

    #[test]
    fn names_under_invalid_are_nowhere() {
        for (name, nowhere) in [
            ("df7jal23ls0d.invalid", true),
            ("x.INVALID.", true),
            ("invalid", true),
            ("notinvalid", false),
            ("invalid.example", false),
            ("", false),
        ] {
            assert_eq!(is_invalid(name.as_bytes()), nowhere, "{name}");
        }
    }

    #[test]
    fn what_only_looks_like_them_stays() {
        for uri in [
            "sip:a;method=x?y@192.0.2.1;transport=udp",
            "sip:bob@192.0.2.1;maddr=224.0.0.1;ttl=1;methods=x;x=method",
            "sip:bob@192.0.2.1;m%65thod2=x",
            "sip:bob@192.0.2.1",
        ] {
            assert_eq!(request_uri_of(uri.as_bytes(), false, &mut Vec::new()), uri.as_bytes());
        }
    }
}
