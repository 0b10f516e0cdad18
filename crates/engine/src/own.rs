//! "Is this me?": listeners, advertised names, aliases (RFC 3261 §16.4, §16.12, §18.1.2), and what we write of
//! ourselves into Via and Record-Route.
//!
//! Own Record-Route URIs carry a token in their user part, so that most Routes are recognised by one comparison and
//! not by comparing hosts (thesis on SER, §3.4.2). A Route without it is compared the slow way.

use crate::config::{Alias, Config};
use crate::io::ListenerId;
use crate::mac::{Keys, Purpose};
use alloc::vec::Vec;
use core::fmt::Write;
use core::net::{IpAddr, SocketAddr};
use sip::{Host, Transport, Uri, Via};

/// Local addresses learned for wildcard listeners, at most; past it further ones are not recognised as own.
const LEARNED_MAX: usize = 64;

/// Who this server is.
#[derive(Clone, Debug)]
pub struct Own {
    listeners: Vec<OwnListener>,
    aliases: Vec<Alias>,
    token: Vec<u8>,
    learned: Vec<IpAddr>,
}

#[derive(Clone, Debug)]
struct OwnListener {
    transport: Transport,
    address: SocketAddr,
    advertised: Option<(Vec<u8>, u16)>,
    /// `host:port` as it stands in our Via and Record-Route; empty for a wildcard address without advertised name.
    sent_by: Vec<u8>,
}

/// Formats into bytes; never fails.
pub(crate) struct Text<'a>(pub(crate) &'a mut Vec<u8>);

impl core::fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// The port that a transport has by default (RFC 3261 §18.1.1, RFC 7118 §5.3).
pub(crate) fn default_port(transport: Transport) -> u16 {
    match transport {
        Transport::Tls => 5061,
        Transport::Ws => 80,
        Transport::Wss => 443,
        _ => 5060,
    }
}

/// The transport's name in a Via.
fn via_name(transport: Transport) -> &'static [u8] {
    match transport {
        Transport::Tcp => b"TCP",
        Transport::Tls => b"TLS",
        Transport::Sctp => b"SCTP",
        Transport::Ws => b"WS",
        Transport::Wss => b"WSS",
        _ => b"UDP",
    }
}

/// The transport's URI parameter; none for UDP.
fn uri_param(transport: Transport) -> &'static [u8] {
    match transport {
        Transport::Tcp => b";transport=tcp",
        Transport::Tls => b";transport=tls",
        Transport::Sctp => b";transport=sctp",
        Transport::Ws | Transport::Wss => b";transport=ws",
        _ => b"",
    }
}

impl Own {
    pub(crate) fn new(config: &Config, keys: &Keys) -> Own {
        let mut token = Vec::new();
        crate::branch::put(&mut token, keys.mac(Purpose::OwnToken, &[b"record-route"]), 13);
        let listeners = config
            .listeners
            .iter()
            .map(|listener| {
                let mut sent_by = Vec::new();
                match &listener.advertise {
                    Some((host, port)) => {
                        let _ = write!(Text(&mut sent_by), "{host}:{port}");
                    }
                    None if listener.address.ip().is_unspecified() => {}
                    None => write_address(&mut sent_by, listener.address),
                }
                let advertised =
                    listener.advertise.as_ref().map(|(host, port)| (host.as_bytes().to_vec(), *port));
                OwnListener { transport: listener.transport, address: listener.address, advertised, sent_by }
            })
            .collect();
        Own { listeners, aliases: config.aliases.clone(), token, learned: Vec::new() }
    }

    /// Remembers an address that a wildcard listener was reached by: it is one of ours.
    pub(crate) fn learn(&mut self, listener: ListenerId, local: Option<IpAddr>) {
        let Some(local) = local else { return };
        let wildcard = self
            .listeners
            .get(usize::from(listener.0))
            .is_some_and(|listener| listener.address.ip().is_unspecified());
        if wildcard && !self.learned.contains(&local) && self.learned.len() < LEARNED_MAX {
            self.learned.push(local);
        }
    }

    /// Whether a URI points to this server: host, port (5060 or 5061 if it has none) and transport (any if it has
    /// none). A tel: URI never does.
    pub fn is_own_uri(&self, uri: &Uri<'_>) -> bool {
        let Uri::Sip(uri) = uri else { return false };
        self.is_own_host(&uri.host, Some(uri.port_or_default()), uri.transport())
    }

    /// Whether a host means this server. Without a port, any port of ours will do; without a transport, any transport.
    pub fn is_own_host(&self, host: &Host<'_>, port: Option<u16>, transport: Option<Transport>) -> bool {
        self.listeners.iter().any(|listener| {
            let transport_fits = transport.is_none_or(|transport| transport == listener.transport);
            transport_fits && self.is_listener(listener, host, port)
        }) || self.is_alias(host, port, transport)
    }

    /// Whether the sent-by of a Via is ours (RFC 3261 §18.1.2).
    pub(crate) fn is_own_via(&self, via: &Via<'_>) -> bool {
        let written = via.sent_by_bytes();
        if self.listeners.iter().any(|listener| listener.sent_by == written) {
            return true;
        }
        let port = via.port.unwrap_or(default_port(via.transport));
        self.listeners.iter().any(|listener| self.is_listener(listener, &via.host, Some(port)))
    }

    /// Whether a URI is one that we have put into a Record-Route (RFC 3261 §16.4): it carries our token, or it is ours,
    /// has no user and has `lr`.
    pub(crate) fn is_own_record_route(&self, uri: &Uri<'_>) -> bool {
        let Uri::Sip(sip) = uri else { return false };
        match sip.user {
            Some(user) => user == self.token,
            None => sip.lr() && self.is_own_uri(uri),
        }
    }

    /// Whether a Route value indicates this server (RFC 3261 §16.4).
    pub(crate) fn is_own_route(&self, uri: &Uri<'_>) -> bool {
        let Uri::Sip(sip) = uri else { return false };
        sip.user.is_some_and(|user| user == self.token) || self.is_own_uri(uri)
    }

    /// The listener for a next hop: the one that the request came by if it fits, else the first that does.
    pub(crate) fn listener_for(
        &self,
        transport: Transport,
        remote: IpAddr,
        preferred: ListenerId,
    ) -> Option<ListenerId> {
        let fits = |listener: &OwnListener| {
            listener.transport == transport && listener.address.is_ipv4() == remote.is_ipv4()
        };
        if self.listeners.get(usize::from(preferred.0)).is_some_and(fits) {
            return Some(preferred);
        }
        self.listeners.iter().position(fits).and_then(|place| u16::try_from(place).ok()).map(ListenerId)
    }

    /// The transport of a listener.
    pub(crate) fn transport(&self, listener: ListenerId) -> Transport {
        self.listeners.get(usize::from(listener.0)).map_or(Transport::Udp, |listener| listener.transport)
    }

    /// Whether a listener exists.
    pub(crate) fn has(&self, listener: ListenerId) -> bool {
        usize::from(listener.0) < self.listeners.len()
    }

    /// Appends `SIP/2.0/UDP host:port;branch=`.
    pub(crate) fn write_via(&self, listener: ListenerId, local: Option<IpAddr>, out: &mut Vec<u8>) {
        out.extend_from_slice(b"SIP/2.0/");
        out.extend_from_slice(via_name(self.transport(listener)));
        out.push(b' ');
        self.write_sent_by(listener, local, out);
        out.extend_from_slice(b";branch=");
    }

    /// Appends `<sip:token@host:port;transport=..;r2=on;lr` + `params` + `>`.
    pub(crate) fn write_record_route(
        &self,
        listener: ListenerId,
        local: Option<IpAddr>,
        second: bool,
        params: &[u8],
        out: &mut Vec<u8>,
    ) {
        out.extend_from_slice(b"<sip:");
        out.extend_from_slice(&self.token);
        out.push(b'@');
        self.write_sent_by(listener, local, out);
        out.extend_from_slice(uri_param(self.transport(listener)));
        if second {
            out.extend_from_slice(b";r2=on");
        }
        out.extend_from_slice(b";lr");
        out.extend_from_slice(params);
        out.push(b'>');
    }

    fn write_sent_by(&self, listener: ListenerId, local: Option<IpAddr>, out: &mut Vec<u8>) {
        let Some(listener) = self.listeners.get(usize::from(listener.0)) else { return };
        if !listener.sent_by.is_empty() {
            out.extend_from_slice(&listener.sent_by);
            return;
        }
        let learned = || self.learned.iter().copied().find(|ip| ip.is_ipv4() == listener.address.is_ipv4());
        let ip = local.or_else(learned).unwrap_or(listener.address.ip());
        write_address(out, SocketAddr::new(ip, listener.address.port()));
    }

    fn is_listener(&self, listener: &OwnListener, host: &Host<'_>, port: Option<u16>) -> bool {
        let port_fits = |own: u16| port.is_none_or(|port| port == own);
        if let Some((name, own_port)) = &listener.advertised
            && port_fits(*own_port)
            && is_host(host, name)
        {
            return true;
        }
        if !port_fits(listener.address.port()) {
            return false;
        }
        match host.ip() {
            Some(ip) if ip == listener.address.ip() => true,
            Some(ip) => listener.address.ip().is_unspecified() && self.learned.contains(&ip),
            None => false,
        }
    }

    fn is_alias(&self, host: &Host<'_>, port: Option<u16>, transport: Option<Transport>) -> bool {
        self.aliases.iter().any(|alias| {
            alias.port.is_none_or(|own| port.is_none_or(|port| port == own))
                && alias.transport.is_none_or(|own| transport.is_none_or(|transport| transport == own))
                && is_host(host, alias.host.as_bytes())
        })
    }
}

/// Appends `1.2.3.4:5060` or `[::1]:5060`.
fn write_address(out: &mut Vec<u8>, address: SocketAddr) {
    let _ = write!(Text(out), "{address}");
}

/// Whether `host` is written as `name`: names without case, addresses by value.
fn is_host(host: &Host<'_>, name: &[u8]) -> bool {
    match host {
        Host::Name(written) => {
            let dotless = written.strip_suffix(b".").unwrap_or(written);
            dotless.eq_ignore_ascii_case(name)
        }
        _ => {
            let bare = name.strip_prefix(b"[").and_then(|name| name.strip_suffix(b"]")).unwrap_or(name);
            let literal = core::str::from_utf8(bare).ok().and_then(|text| text.parse::<IpAddr>().ok());
            literal.is_some() && literal == host.ip()
        }
    }
}
