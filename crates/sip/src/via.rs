//! Via values (RFC 3261 §20.42, §25.1 `via-parm`; RFC 3581 `rport`; RFC 5118).

use crate::host::{self, Host, HostParts};
use crate::params::{self, Comments, Found, Params};
use crate::span::Span;
use crate::token::{self, skip_lws, slice};
use core::net::IpAddr;
use core::ops::Range;

/// A transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// RFC 3261 §18.
    Udp,
    /// RFC 3261 §18.
    Tcp,
    /// RFC 3261 §26.2.
    Tls,
    /// RFC 4168.
    Sctp,
    /// RFC 7118.
    Ws,
    /// RFC 7118.
    Wss,
    /// Any other token (RFC 4475 §3.1.1.10 has `UNKNOWN`).
    Other,
}

impl Transport {
    /// Classifies a transport's name, any case.
    pub fn of(name: &[u8]) -> Transport {
        const KNOWN: [(&[u8], Transport); 6] = [
            (b"UDP", Transport::Udp),
            (b"TCP", Transport::Tcp),
            (b"TLS", Transport::Tls),
            (b"WS", Transport::Ws),
            (b"WSS", Transport::Wss),
            (b"SCTP", Transport::Sctp),
        ];
        let known = KNOWN.iter().find(|(text, _)| name.eq_ignore_ascii_case(text));
        known.map_or(Transport::Other, |&(_, transport)| transport)
    }

    /// The name as it stands in a Via, `None` for [`Transport::Other`].
    pub const fn as_str(self) -> Option<&'static str> {
        match self {
            Transport::Udp => Some("UDP"),
            Transport::Tcp => Some("TCP"),
            Transport::Tls => Some("TLS"),
            Transport::Sctp => Some("SCTP"),
            Transport::Ws => Some("WS"),
            Transport::Wss => Some("WSS"),
            Transport::Other => None,
        }
    }

    /// True if the transport delivers in order and without loss (RFC 3261 §17 "reliable transport").
    pub const fn is_reliable(self) -> bool {
        !matches!(self, Transport::Udp | Transport::Other)
    }

    /// The port where no other is given: 5061 for TLS, 80 and 443 for WebSocket (RFC 7118 §5.5), else 5060.
    pub const fn default_port(self) -> u16 {
        match self {
            Transport::Tls => 5061,
            Transport::Ws => 80,
            Transport::Wss => 443,
            _ => 5060,
        }
    }
}

/// One value of a Via header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Via<'a> {
    /// The transport it was sent over.
    pub transport: Transport,
    /// The host of sent-by.
    pub host: Host<'a>,
    /// The port of sent-by, if one is given.
    pub port: Option<u16>,
    /// Its parameters.
    pub params: Params<'a>,
    /// The whole value in the message.
    pub span: Range<u32>,
    sent_by: &'a [u8],
    branch: Option<&'a [u8]>,
    received: Option<&'a [u8]>,
    rport: Option<Option<&'a [u8]>>,
    maddr: Option<&'a [u8]>,
}

impl<'a> Via<'a> {
    /// The branch (RFC 3261 §8.1.1.7); it need not start with the magic cookie.
    #[inline]
    pub fn branch(&self) -> Option<&'a [u8]> {
        self.branch
    }

    /// The `received` parameter, brackets or not; `None` if absent or no address.
    pub fn received(&self) -> Option<IpAddr> {
        self.received.and_then(host::ip)
    }

    /// Whether it says `received`, with an address or not.
    pub fn says_received(&self) -> bool {
        self.received.is_some()
    }

    /// The `rport` parameter (RFC 3581): `None` absent, `Some(None)` asked for, `Some(Some(port))` filled in.
    ///
    /// A value that is no port counts as asked for.
    pub fn rport(&self) -> Option<Option<u16>> {
        self.rport.map(|value| value.and_then(token::port))
    }

    /// The `maddr` parameter.
    pub fn maddr(&self) -> Option<Host<'a>> {
        self.maddr.and_then(Host::parse)
    }

    /// The `ttl` parameter, if it is 0 to 255.
    pub fn ttl(&self) -> Option<u8> {
        match token::number(self.params.value(b"ttl")?) {
            token::Number::Fits(n) => u8::try_from(n).ok(),
            _ => None,
        }
    }

    /// sent-by as written: host, colon and port with the white space between them.
    pub fn sent_by_bytes(&self) -> &'a [u8] {
        self.sent_by
    }

    /// The port of sent-by, or the transport's default.
    pub fn port_or_default(&self) -> u16 {
        self.port.unwrap_or(self.transport.default_port())
    }
}

/// A Via value with positions instead of references.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ViaParts {
    transport: Transport,
    host: HostParts,
    port: Option<u16>,
    sent_by: Span,
    params: Span,
    branch: Found,
    pub(crate) received: Found,
    pub(crate) rport: Found,
    maddr: Found,
    pub(crate) value: Span,
}

impl ViaParts {
    // What the caller does not look at is not made.
    #[inline(always)]
    pub(crate) fn view<'a>(&self, bytes: &'a [u8]) -> Via<'a> {
        Via {
            transport: self.transport,
            host: self.host.view(bytes),
            port: self.port,
            params: Params::new(self.params.of(bytes)),
            span: self.value.range(),
            sent_by: self.sent_by.of(bytes),
            branch: self.branch.value(bytes),
            received: self.received.value(bytes),
            rport: self.rport.get(bytes),
            maddr: self.maddr.value(bytes),
        }
    }
}

/// Reads the value at `at` of a header value that ends where `bytes` ends; gives it and the comma behind it
/// (or the end).
#[inline]
pub(crate) fn read(bytes: &[u8], at: usize) -> Option<(ViaParts, usize)> {
    let start = skip_lws(bytes, at);
    let transport_at = sent_protocol(bytes, start)?;
    let transport_end = token::skip_token(bytes, transport_at);
    let transport = match bytes.get(transport_at..transport_end)? {
        b"" => return None,
        b"UDP" => Transport::Udp,
        name => Transport::of(name),
    };
    let host_at = skip_lws(bytes, transport_end);
    if host_at == transport_end {
        return None;
    }
    let (host, host_end) = host::read(bytes, host_at)?;
    let mut end = host_end;
    let mut port = None;
    let colon = skip_lws(bytes, host_end);
    if bytes.get(colon) == Some(&b':') {
        let digits = skip_lws(bytes, colon + 1);
        end = digits;
        while matches!(bytes.get(end), Some(b'0'..=b'9')) {
            end += 1;
        }
        port = Some(token::port(slice(bytes, digits, end))?);
    }
    let (mut branch, mut received) = (Found::default(), Found::default());
    let (mut rport, mut maddr) = (Found::default(), Found::default());
    let scanned = params::scan(bytes, end, Comments::Allowed, |name, found| {
        let (place, known) = match name.len() {
            6 => (&mut branch, &b"branch"[..]),
            5 if matches!(name, [b'r' | b'R', ..]) => (&mut rport, &b"rport"[..]),
            5 => (&mut maddr, &b"maddr"[..]),
            8 => (&mut received, &b"received"[..]),
            _ => return,
        };
        if name == known || name.eq_ignore_ascii_case(known) {
            *place = found;
        }
    })?;
    let parts = ViaParts {
        transport,
        host,
        port,
        sent_by: Span::new(host_at, end),
        params: Span::new(end, scanned.end),
        branch,
        received,
        rport,
        maddr,
        value: Span::new(start, scanned.end),
    };
    Some((parts, scanned.next))
}

/// `"SIP" SLASH "2.0" SLASH`, with white space and folds around the slashes (RFC 4475 §3.1.1.1); gives the index
/// of the transport.
#[inline]
fn sent_protocol(bytes: &[u8], start: usize) -> Option<usize> {
    if bytes.get(start..start + 8) == Some(b"SIP/2.0/") {
        return Some(skip_lws(bytes, start + 8));
    }
    let mut at = start;
    for part in [&b"SIP"[..], b"2.0"] {
        let end = at + part.len();
        if !bytes.get(at..end)?.eq_ignore_ascii_case(part) {
            return None;
        }
        at = skip_lws(bytes, end);
        if bytes.get(at) != Some(&b'/') {
            return None;
        }
        at = skip_lws(bytes, at + 1);
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn via(text: &[u8]) -> Option<Via<'_>> {
        let (parts, next) = read(text, 0)?;
        (next == text.len()).then(|| parts.view(text))
    }

    #[test]
    fn white_space_stands_around_slashes_colons_and_parameters() {
        let text = b"SIP  / 2.0\r\n /UDP\r\n    192.0.2.2 : 5070 ;branch = z9hG4bK390skdjuw ; hidden";
        let via = via(text).unwrap();
        assert_eq!(via.transport, Transport::Udp);
        assert_eq!(via.host, Host::V4([192, 0, 2, 2].into()));
        assert_eq!(via.port, Some(5070));
        assert_eq!(via.branch(), Some(&b"z9hG4bK390skdjuw"[..]));
        assert_eq!(via.params.get(b"HIDDEN"), Some(None));
        assert_eq!(via.sent_by_bytes(), b"192.0.2.2 : 5070");
    }

    #[test]
    fn ipv6_sent_by_and_received() {
        let via = via(
            b"SIP/2.0/TLS [2001:db8::9:1]:5061;received=[2001:db8::9:255];rport=99;branch=z9hG4bKas3-111",
        )
        .unwrap();
        assert_eq!(via.host.ip(), Some("2001:db8::9:1".parse().unwrap()));
        assert_eq!(via.received(), Some("2001:db8::9:255".parse().unwrap()));
        assert_eq!(via.rport(), Some(Some(99)));
        assert_eq!(via.port_or_default(), 5061);
    }

    #[test]
    fn joined_values_are_read_one_after_the_other() {
        let text = b"SIP/2.0/UDP a;x=\"1,2\",SIP/2.0/TCP b";
        let (first, comma) = read(text, 0).unwrap();
        assert_eq!(first.value.of(text), b"SIP/2.0/UDP a;x=\"1,2\"");
        let (second, end) = read(text, comma + 1).unwrap();
        assert_eq!(second.value.of(text), b"SIP/2.0/TCP b");
        assert_eq!(end, text.len());
    }

    #[test]
    fn doubtful_values_are_refused() {
        for text in [
            &b"SIP/2.0/UDP 192.0.2.15;;,;,,"[..],
            b"SIP/2.0/UDP",
            b"SIP/2.0/ host",
            b"SIP/2.0/UDPhost;branch=1",
            b"SIP/7.0/UDP host",
            b"HTTP/2.0/UDP host",
            b"SIP/2.0/UDP 2001:db8::9:1",
            b"SIP/2.0/UDP host:0",
            b"SIP/2.0/UDP host:65536",
            b"SIP/2.0/UDP host:",
            b"SIP/2.0/UDP host;branch=a;branch=b",
            b"SIP/2.0/UDP host other",
            b"",
        ] {
            assert_eq!(via(text), None, "{:?}", core::str::from_utf8(text));
        }
    }

    #[test]
    fn the_comment_of_rfc_2543_is_skipped() {
        let via = via(b"SIP/2.0/UDP a:4000;ttl=16;maddr=224.2.0.1 (Example, Inc.)").unwrap();
        assert_eq!(via.ttl(), Some(16));
        assert_eq!(via.maddr(), Some(Host::V4([224, 2, 0, 1].into())));
    }

    #[test]
    fn a_comment_stands_behind_a_name_without_space() {
        for text in [
            &b"SIP/2.0/TCP a.example.com()"[..],
            b"SIP/2.0/TCP a()",
            b"SIP/2.0/TCP a()()",
            b"SIP/2.0/TCP a(())",
        ] {
            let via = via(text).unwrap();
            assert!(via.sent_by.starts_with(b"a") && !via.sent_by.contains(&b'('), "{via:?}");
        }
    }

    /// What stands behind a comment is looked up, and found twice, like everything else.
    #[test]
    fn a_comment_hides_no_parameter() {
        let text = b"SIP/2.0/UDP a:4000(c;x=1);branch=z9 (d) ;hidden";
        let via = via(text).unwrap();
        assert_eq!(via.branch(), via.params.value(b"branch"));
        assert_eq!(via.params.get(b"hidden"), Some(None));
        assert_eq!((via.params.count(), via.params.get(b"x")), (2, None));
    }

    #[test]
    fn a_parameter_behind_a_comment_is_not_there_twice() {
        assert_eq!(via(b"SIP/2.0/UDP a (c);branch=z9;branch=z8"), None);
        assert_eq!(via(b"SIP/2.0/UDP a;x (c);branch=z9;branch=z8"), None);
    }
}
