//! "Is this me?": listeners, advertised names, aliases (RFC 3261 §16.4, §16.12, §18.1.2), and what we write of
//! ourselves into Via and Record-Route.
//!
//! Own Record-Route URIs carry a token in their user part, so that most Routes are recognised by one comparison and
//! not by comparing hosts (thesis on SER, §3.4.2). A Route without it is compared the slow way.
//!
//! ```text
//! sip:TOKEN@host                           13 digits: this server
//! sip:TOKEN PPPP AAAAAAA MMMMMMMMMMMMM@host             and the connection from port P of address A (IPv4)
//! sip:TOKEN PPPP AAAAAAAAAAAAAAAAAAAAAAAAAA MMMM..@host                                            (IPv6)
//! ```
//!
//! A peer that can only be reached by the connection that it opened has the address of that connection behind the token
//! (a flow token, RFC 5626 §5.2), with a MAC M over address and listener: what the peer's dialogs send there is sent by
//! that connection.

use crate::branch;
use crate::config::{Alias, Config};
use crate::io::ListenerId;
use crate::mac::{Keys, Purpose};
use alloc::vec::Vec;
use core::fmt::Write;
use core::net::{IpAddr, SocketAddr};
use sip::{Host, SipUri, Transport, Uri, Via};

/// Local addresses learned for wildcard listeners, at most; past it further ones are not recognised as own.
const LEARNED_MAX: usize = 64;

/// Digits of the token, and of a MAC.
const TOKEN_LEN: usize = 13;
/// Digits of a port.
const PORT_LEN: usize = 4;
/// Digits of an IPv4 address.
const V4_LEN: usize = 7;
/// Digits of an IPv6 address.
const V6_LEN: usize = 26;

/// Who this server is.
#[derive(Clone, Debug)]
pub struct Own {
    listeners: Vec<OwnListener>,
    aliases: Vec<Alias>,
    token: Vec<u8>,
    learned: Vec<IpAddr>,
    keys: Keys,
}

/// One side of a request that is record-routed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    /// The listener of that side, and our address there.
    pub(crate) listener: ListenerId,
    pub(crate) local: Option<IpAddr>,
    /// The peer, if it can only be reached by the connection that it has with us.
    pub(crate) connection: Option<SocketAddr>,
    /// Whether a `sips` URI is asked for (RFC 3261 §16.6 item 4).
    pub(crate) secure: bool,
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

/// The port that a transport has by default (RFC 3261 §18.1.1, RFC 7118 §5.5).
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

/// Whether a transport is TLS or runs over it.
pub(crate) fn is_secure(transport: Transport) -> bool {
    matches!(transport, Transport::Tls | Transport::Wss)
}

/// Whether a transport carries WebSocket: its peers are browsers, which nobody can connect to (RFC 7118 §5).
pub(crate) fn is_websocket(transport: Transport) -> bool {
    matches!(transport, Transport::Ws | Transport::Wss)
}

/// Whether `transport` of a URI may mean a listener's: `ws` stands for both kinds (RFC 7118 §5.2).
fn is_meant(asked: Transport, listener: Transport) -> bool {
    asked == listener || (asked == Transport::Ws && listener == Transport::Wss)
}

/// What `transport` of a URI says of a listener: in a `sips` URI the protocol under TLS (RFC 3261 §26.2.2).
fn asked_transport(uri: &SipUri<'_>) -> Option<Transport> {
    match (uri.secure, uri.transport()) {
        (true, Some(Transport::Tcp)) => Some(Transport::Tls),
        (true, Some(Transport::Ws)) => Some(Transport::Wss),
        (_, transport) => transport,
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
        branch::put(&mut token, keys.mac(Purpose::OwnToken, &[b"record-route"]), TOKEN_LEN as u32);
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
        Own { listeners, aliases: config.aliases.clone(), token, learned: Vec::new(), keys: keys.clone() }
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
        let transport = asked_transport(uri);
        let port = match (uri.port, transport) {
            (Some(port), _) => port,
            (None, Some(transport)) if uri.secure => default_port(transport),
            (None, _) => uri.port_or_default(),
        };
        self.is_own_host(&uri.host, Some(port), transport)
    }

    /// Whether a host means this server. Without a port, any port of ours will do; without a transport, any transport.
    pub fn is_own_host(&self, host: &Host<'_>, port: Option<u16>, transport: Option<Transport>) -> bool {
        self.listeners.iter().any(|listener| {
            let transport_fits = transport.is_none_or(|transport| is_meant(transport, listener.transport));
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
            Some(user) => self.has_token(user),
            None => sip.lr() && self.is_own_uri(uri),
        }
    }

    /// Whether a Route value indicates this server (RFC 3261 §16.4).
    pub(crate) fn is_own_route(&self, uri: &Uri<'_>) -> bool {
        let Uri::Sip(sip) = uri else { return false };
        self.is_recorded(sip) || self.is_own_uri(uri)
    }

    /// Whether a URI carries our token: we have put it into a Record-Route.
    pub(crate) fn is_recorded(&self, uri: &SipUri<'_>) -> bool {
        uri.user.is_some_and(|user| self.has_token(user))
    }

    fn has_token(&self, user: &[u8]) -> bool {
        user.starts_with(&self.token)
    }

    /// The listener that an own Route names.
    pub(crate) fn listener_of(&self, uri: &SipUri<'_>) -> Option<ListenerId> {
        let default = if uri.secure { Transport::Tls } else { Transport::Udp };
        let transport = asked_transport(uri).unwrap_or(default);
        let port = uri.port.unwrap_or(default_port(transport));
        let fits = |listener: &OwnListener| {
            is_meant(transport, listener.transport) && self.is_listener(listener, &uri.host, Some(port))
        };
        self.listeners.iter().position(fits).and_then(|place| u16::try_from(place).ok()).map(ListenerId)
    }

    /// The peer of the connection that an own Route names (RFC 5626 §5.3); `None` if it names none, or was not written
    /// by us.
    pub(crate) fn connection_of(&self, uri: &SipUri<'_>, listener: ListenerId) -> Option<SocketAddr> {
        let digits = uri.user?.strip_prefix(&self.token[..])?;
        let (address, mac) = digits.split_at_checked(digits.len().checked_sub(TOKEN_LEN)?)?;
        let (port, ip) = address.split_at_checked(PORT_LEN)?;
        let half = |from: usize| branch::read(ip, from, V6_LEN / 2);
        let ip = match ip.len() {
            V4_LEN => IpAddr::from(u32::try_from(branch::read(ip, 0, V4_LEN)?).ok()?.to_be_bytes()),
            V6_LEN => {
                let bits = u128::from(half(0)?) << 64 | u128::from(half(V6_LEN / 2)?);
                IpAddr::from(bits.to_be_bytes())
            }
            _ => return None,
        };
        let port = u16::try_from(branch::read(port, 0, PORT_LEN)?).ok()?;
        let remote = SocketAddr::new(ip, port);
        (branch::read(mac, 0, TOKEN_LEN)? == self.connection_mac(listener, remote)).then_some(remote)
    }

    fn connection_mac(&self, listener: ListenerId, remote: SocketAddr) -> u64 {
        let mut address = [0; 18];
        match remote.ip() {
            IpAddr::V4(ip) => address[..4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => address[..16].copy_from_slice(&ip.octets()),
        }
        address[16..].copy_from_slice(&remote.port().to_be_bytes());
        let kind = [u8::from(remote.is_ipv4())];
        self.keys.mac(Purpose::FlowToken, &[&listener.0.to_be_bytes(), &kind, &address])
    }

    fn write_connection(&self, listener: ListenerId, remote: SocketAddr, out: &mut Vec<u8>) {
        branch::put(out, u64::from(remote.port()), PORT_LEN as u32);
        match remote.ip() {
            IpAddr::V4(ip) => branch::put(out, u64::from(u32::from(ip)), V4_LEN as u32),
            IpAddr::V6(ip) => {
                let bits = u128::from(ip);
                branch::put(out, (bits >> 64) as u64, V6_LEN as u32 / 2);
                branch::put(out, bits as u64, V6_LEN as u32 / 2);
            }
        }
        branch::put(out, self.connection_mac(listener, remote), TOKEN_LEN as u32);
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

    /// Appends `<sip:token@host:port;transport=..;r2=on;lr` + `params` + `>`, with `sips:` where that is asked for and
    /// the listener's transport has TLS.
    pub(crate) fn write_record_route(&self, side: &Side, two: bool, params: &[u8], out: &mut Vec<u8>) {
        let transport = self.transport(side.listener);
        let secure = side.secure && is_secure(transport);
        out.extend_from_slice(if secure { b"<sips:" } else { b"<sip:" });
        out.extend_from_slice(&self.token);
        if let Some(remote) = side.connection {
            self.write_connection(side.listener, remote, out);
        }
        out.push(b'@');
        self.write_sent_by(side.listener, side.local, out);
        // RFC 5630 §3.1.4: `transport=tls` says nothing in a `sips` URI.
        if !secure || transport != Transport::Tls {
            out.extend_from_slice(uri_param(transport));
        }
        if two {
            out.extend_from_slice(b";r2=on");
        }
        out.extend_from_slice(b";lr");
        out.extend_from_slice(params);
        out.push(b'>');
    }

    /// Appends `host:port` of a listener.
    pub(crate) fn write_sent_by(&self, listener: ListenerId, local: Option<IpAddr>, out: &mut Vec<u8>) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Listener;

    fn own() -> Own {
        let listener = |transport, address: &str| Listener {
            transport,
            address: address.parse().unwrap(),
            advertise: None,
        };
        let config = Config {
            listeners: alloc::vec![
                listener(Transport::Udp, "192.0.2.1:5060"),
                listener(Transport::Tcp, "192.0.2.1:5060"),
                listener(Transport::Tls, "192.0.2.1:5061"),
                listener(Transport::Ws, "192.0.2.1:80"),
                listener(Transport::Wss, "192.0.2.1:443"),
            ],
            ..Config::default()
        };
        Own::new(&config, &Keys::new([1, 2, 3, 4]))
    }

    fn record_route(own: &Own, side: Side) -> alloc::string::String {
        let mut text = Vec::new();
        own.write_record_route(&side, false, b"", &mut text);
        let text = alloc::string::String::from_utf8(text).unwrap();
        text[1..text.len() - 1].into()
    }

    fn side(listener: u16, secure: bool, connection: Option<&str>) -> Side {
        let connection = connection.map(|text| text.parse().unwrap());
        Side { listener: ListenerId(listener), local: None, connection, secure }
    }

    fn parsed(text: &str) -> SipUri<'_> {
        match Uri::parse(text.as_bytes()) {
            Ok(Uri::Sip(uri)) => uri,
            other => panic!("{text}: {other:?}"),
        }
    }

    /// RFC 3261 §16.6 item 4: the URI leads back to the listener that it was written for, `sips` where that is asked for
    /// and possible.
    #[test]
    fn a_record_route_names_its_listener() {
        let own = own();
        for listener in 0..5 {
            for secure in [false, true] {
                let text = record_route(&own, side(listener, secure, None));
                assert_eq!(text.starts_with("sips:"), secure && listener % 2 == 0 && listener > 0, "{text}");
                assert_eq!(own.listener_of(&parsed(&text)), Some(ListenerId(listener)), "{text}");
                assert!(own.is_own_route(&Uri::parse(text.as_bytes()).unwrap()));
            }
        }
    }

    /// RFC 5626 §5.2: a flow token can be read by us and by nobody forged.
    #[test]
    fn a_connection_is_read_back_and_cannot_be_forged() {
        let own = own();
        for remote in ["198.51.100.7:40123", "[2001:db8::7]:1", "255.255.255.255:65535"] {
            let text = record_route(&own, side(3, false, Some(remote)));
            let uri = parsed(&text);
            assert_eq!(own.connection_of(&uri, ListenerId(3)), Some(remote.parse().unwrap()), "{text}");
            assert_eq!(own.connection_of(&uri, ListenerId(4)), None);
            assert!(own.is_own_record_route(&Uri::Sip(uri)));
            let at = text.find('@').unwrap();
            let last = if text.as_bytes()[at - 1] == b'0' { "1" } else { "0" };
            let forged = alloc::format!("{}{last}{}", &text[..at - 1], &text[at..]);
            assert_eq!(own.connection_of(&parsed(&forged), ListenerId(3)), None);
            let cut = alloc::format!("{}{}", &text[..at - 1], &text[at..]);
            assert_eq!(own.connection_of(&parsed(&cut), ListenerId(3)), None);
        }
        let plain = record_route(&own, side(3, false, None));
        assert_eq!(own.connection_of(&parsed(&plain), ListenerId(3)), None);
    }

    /// RFC 3261 §26.2.2: in a `sips` URI the transport is the one under TLS; RFC 7118 §5.2: `ws` is both.
    #[test]
    fn own_uris_are_recognised_by_what_their_transport_means() {
        let own = own();
        for (text, ours) in [
            ("sip:192.0.2.1", true),
            ("sip:192.0.2.1;transport=tls", true),
            ("sips:192.0.2.1", true),
            ("sips:192.0.2.1:5061;transport=tcp", true),
            ("sips:192.0.2.1;transport=ws", true),
            ("sip:192.0.2.1;transport=ws", true),
            ("sip:192.0.2.1:443;transport=ws", true),
            ("sip:192.0.2.1:5061;transport=tcp", false),
            ("sips:192.0.2.1:80;transport=ws", false),
            ("sip:192.0.2.1:5062", false),
        ] {
            assert_eq!(own.is_own_uri(&Uri::parse(text.as_bytes()).unwrap()), ours, "{text}");
        }
    }
}
