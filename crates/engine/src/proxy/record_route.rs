//! Route information preprocessing (RFC 3261 §16.4), with strict routers on either side.

use crate::context::{RequestContext, RouteVerdict};
use crate::own::default_port;
use sip::{HeaderName, Transport, Uri};

/// Own Route values taken off one request at most: two per pass (thesis §3.4.1), so that a loop of ours ends.
const OWN_ROUTES_MAX: usize = 2;

impl<S> RequestContext<'_, S> {
    /// Removes what the Routes say about this server: undoes a strict router's rewriting, strips an own `maddr`,
    /// removes the own topmost Route and its `r2` partner. A second call does nothing more.
    pub fn loose_route(&mut self) -> RouteVerdict {
        if self.plan.routes_removed > 0 || self.plan.last_route_removed {
            return RouteVerdict::Routed;
        }
        // What the script has removed is neither looked at nor removed again.
        let routes = !self.plan.routes_gone && self.message.header(HeaderName::Route).is_some();
        let strict = routes && self.undo_strict_router();
        self.strip_maddr();
        if !routes {
            return RouteVerdict::NotRouted;
        }
        if self.remove_own_routes() || strict { RouteVerdict::Routed } else { RouteVerdict::Foreign }
    }

    /// RFC 3261 §16.4: the Request-URI is one of our Record-Routes: the real one is the last Route value.
    fn undo_strict_router(&mut self) -> bool {
        let ours = self.message.parsed_request_uri().is_ok_and(|uri| self.core.own.is_own_record_route(&uri));
        if !ours {
            return false;
        }
        let count = self.message.routes().count();
        let Some(Ok(last)) = self.message.routes().last() else { return false };
        self.plan.set_uri(0, last.uri);
        self.plan.last_route_removed = true;
        self.edits.remove_route(&self.message, count - 1);
        true
    }

    /// RFC 3261 §16.4: a maddr that is ours, on the port and transport that the request came by.
    fn strip_maddr(&mut self) {
        let Ok(Uri::Sip(uri)) = self.message.parsed_request_uri() else { return };
        if !uri.params.has(b"maddr") {
            return;
        }
        let Some(maddr) = uri.maddr() else { return };
        let here = self.listener();
        let transport = uri.transport().unwrap_or(if uri.secure { Transport::Tls } else { Transport::Udp });
        let port = uri.port.unwrap_or(default_port(transport));
        if transport != here.transport || port != here.address.port() || self.plan.uri(0).is_some() {
            return;
        }
        if !self.core.own.is_own_host(&maddr, Some(port), Some(transport)) {
            return;
        }
        let mut text = core::mem::take(&mut self.core.text);
        text.clear();
        without_maddr(self.message.request_uri(), &mut text);
        self.plan.set_uri(0, &text);
        self.core.text = text;
    }

    fn remove_own_routes(&mut self) -> bool {
        let mut partner = false;
        let mut routes = self.message.routes().enumerate();
        while let Some((place, route)) = routes.next() {
            if self.plan.last_route_removed && routes.clone().next().is_none() {
                self.plan.routes_gone = true;
                break;
            }
            let Ok(route) = route else { break };
            let Ok(uri) = route.uri() else { break };
            let r2 = matches!(&uri, Uri::Sip(sip) if sip.params.get(b"r2").is_some());
            // Thesis §3.4.1: the partner of an own r2 Route needs no comparison if it is marked too; a proxy next to us
            // may mark its own so, hence the comparison all the same.
            let take = place == 0 || (partner && r2);
            if !take || place == OWN_ROUTES_MAX || !self.core.own.is_own_route(&uri) {
                break;
            }
            partner = r2;
            // What a phone has put in as its outbound proxy chooses nothing.
            if let Uri::Sip(sip) = &uri
                && (r2 || self.core.own.is_recorded(sip))
            {
                let listener = self.core.own.listener_of(sip);
                self.plan.way_out = listener;
                self.plan.connection =
                    listener.and_then(|listener| self.core.own.connection_of(sip, listener));
            }
            self.edits.remove_route(&self.message, place);
            self.plan.routes_removed = place + 1;
            self.plan.routes_gone = routes.clone().next().is_none();
        }
        self.plan.routes_removed > 0
    }
}

/// Appends a URI without `maddr`, a port, and `transport`.
fn without_maddr(uri: &[u8], out: &mut alloc::vec::Vec<u8>) {
    let headers = uri.iter().position(|&byte| byte == b'?').unwrap_or(uri.len());
    let (main, tail) = uri.split_at(headers);
    for (place, part) in main.split(|&byte| byte == b';').enumerate() {
        let name = part.split(|&byte| byte == b'=').next().unwrap_or(part);
        if place == 0 {
            let colon = part.iter().rposition(|&byte| byte == b':' || byte == b']' || byte == b'@');
            let keep = match colon {
                Some(at) if part.get(at) == Some(&b':') && at > 4 => at,
                _ => part.len(),
            };
            out.extend_from_slice(part.get(..keep).unwrap_or(part));
        } else if !name.eq_ignore_ascii_case(b"maddr") && !name.eq_ignore_ascii_case(b"transport") {
            out.push(b';');
            out.extend_from_slice(part);
        }
    }
    out.extend_from_slice(tail);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maddr_port_and_transport_are_stripped() {
        for (uri, stripped) in [
            ("sip:a@example.com:5070;maddr=192.0.2.1;x=1;transport=udp", "sip:a@example.com;x=1"),
            ("sip:[2001:db8::1];maddr=192.0.2.1?a=b", "sip:[2001:db8::1]?a=b"),
            ("sip:[2001:db8::1]:5070;maddr=192.0.2.1", "sip:[2001:db8::1]"),
            ("sips:example.com;maddr=a", "sips:example.com"),
        ] {
            let mut out = alloc::vec::Vec::new();
            without_maddr(uri.as_bytes(), &mut out);
            assert_eq!(out, stripped.as_bytes());
        }
    }
}
