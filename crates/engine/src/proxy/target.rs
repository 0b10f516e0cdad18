//! The next hop of a target (RFC 3261 §16.6 items 6 and 7, RFC 3263 §4): destination, Path, Route, Request-URI, in
//! this order.

use crate::context::RelayError;
use crate::io::{FlowId, Path};
use crate::own::default_port;
use crate::plan::Plan;
use crate::reply::unicast;
use crate::resolve::Known;
use crate::shard::Core;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use sip::{HeaderName, Host, Instant, Message, NameAddr, SipUri, Transport, Uri};

/// Where a target's next hop is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextHop<'a> {
    /// Here.
    Path(Path),
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
/// `?headers` and without `method`; made in `text` where it is not that already. A `ttl` stays, as §19.1.5 asks.
pub(crate) fn request_uri_of<'a>(uri: &'a [u8], text: &'a mut Vec<u8>) -> &'a [u8] {
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

/// The transport of a next hop (RFC 3263 §4.1 without NAPTR): what the URI says, TLS for sips, else UDP.
fn transport_of(uri: &SipUri<'_>) -> Transport {
    match (uri.secure, uri.transport()) {
        (true, None | Some(Transport::Tcp | Transport::Tls)) => Transport::Tls,
        (true, Some(Transport::Ws)) => Transport::Wss,
        (_, Some(transport)) => transport,
        (false, None) => Transport::Udp,
    }
}

impl<S> Core<S> {
    /// Finds the next hop of a target.
    pub(crate) fn next_hop<'a>(
        &self,
        message: &Message<'a>,
        plan: &'a Plan,
        target: usize,
        from: &Path,
        now: Instant,
    ) -> Result<NextHop<'a>, RelayError> {
        let route = match plan.path(target) {
            Some(path) => NameAddr::parse(first_value(path)).ok(),
            None => first_route(message, plan),
        };
        let uri = match (plan.destination(target), route) {
            (Some(destination), _) => Uri::parse(destination),
            (None, Some(route)) => Uri::parse(route.uri),
            (None, None) => match plan.uri(target) {
                Some(uri) => Uri::parse(uri),
                None => message.parsed_request_uri(),
            },
        };
        match uri {
            Ok(Uri::Sip(uri)) => self.locate(&uri, from, None, now),
            // RFC 3261 §16.3 item 2.
            Ok(_) => Err(RelayError::UnsupportedScheme),
            Err(_) => Err(RelayError::BadRequest),
        }
    }

    /// Finds the way to a URI; `answer` are the addresses of its name where they have just been learned.
    pub(crate) fn locate<'a>(
        &self,
        uri: &SipUri<'a>,
        from: &Path,
        answer: Option<&[IpAddr]>,
        now: Instant,
    ) -> Result<NextHop<'a>, RelayError> {
        let transport = transport_of(uri);
        let port = uri.port.unwrap_or(default_port(transport));
        if port == 0 {
            return Err(RelayError::NoRoute);
        }
        // RFC 3263 §4: maddr is the target where it is given.
        let host = uri.maddr().unwrap_or(uri.host);
        if let Some(ip) = host.ip() {
            return self.path_to(transport, ip, port, from).map(NextHop::Path);
        }
        let Host::Name(name) = host else { return Err(RelayError::NoRoute) };
        let addresses = match answer {
            Some(addresses) => addresses,
            None => match self.resolver.known(name, now) {
                Known::Addresses(addresses) => addresses,
                Known::No => return Ok(NextHop::Name(name)),
            },
        };
        addresses
            .iter()
            .find_map(|ip| self.path_to(transport, *ip, port, from).ok())
            .map(NextHop::Path)
            .ok_or(RelayError::Unresolvable)
    }

    fn path_to(&self, transport: Transport, ip: IpAddr, port: u16, from: &Path) -> Result<Path, RelayError> {
        // RFC 3261 §18.1.1 wants `maddr` and `ttl` in the Via of what goes to a group; nothing of ours goes there: one
        // datagram of a stranger must not become many.
        if unicast(Some(ip.to_canonical())).is_none() {
            return Err(RelayError::NoRoute);
        }
        let listener = self.own.listener_for(transport, ip, from.listener).ok_or(RelayError::NoRoute)?;
        let local = if listener == from.listener { from.local } else { None };
        Ok(Path { listener, flow: FlowId::DATAGRAM, local, remote: SocketAddr::new(ip, port) })
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
            assert_eq!(request_uri_of(target.as_bytes(), &mut Vec::new()), sent.as_bytes(), "{target}");
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
            assert_eq!(request_uri_of(uri.as_bytes(), &mut Vec::new()), uri.as_bytes());
        }
    }
}
