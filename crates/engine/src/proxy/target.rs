//! The next hop of a target (RFC 3261 §16.6 items 6 and 7, RFC 3263 §4): destination, Path, Route, Request-URI, in
//! this order.

use crate::context::RelayError;
use crate::io::{FlowId, Path};
use crate::own::default_port;
use crate::plan::Plan;
use crate::resolve::Known;
use crate::shard::Core;
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
        if ip.is_unspecified() {
            return Err(RelayError::NoRoute);
        }
        let listener = self.own.listener_for(transport, ip, from.listener).ok_or(RelayError::NoRoute)?;
        let local = if listener == from.listener { from.local } else { None };
        Ok(Path { listener, flow: FlowId::DATAGRAM, local, remote: SocketAddr::new(ip, port) })
    }
}
