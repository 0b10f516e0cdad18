//! Hosts: names, IPv4 addresses and IPv6 references (RFC 3261 §25.1 `host`, RFC 5954 §4.1, RFC 5118).

use crate::span::Span;
use crate::token::{self, slice};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A host of a URI or a Via.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host<'a> {
    /// A domain name as written; compare without case.
    Name(&'a [u8]),
    /// A dotted IPv4 address.
    V4(Ipv4Addr),
    /// An IPv6 reference; the brackets are left out.
    V6(Ipv6Addr),
}

impl Host<'_> {
    /// Reads a whole text as a host: a name, an IPv4 address or a bracketed IPv6 address.
    pub fn parse(text: &[u8]) -> Option<Host<'_>> {
        let (parts, end) = read(text, 0)?;
        (end == text.len()).then(|| parts.view(text))
    }

    /// The address, if the host is one.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Host::Name(_) => None,
            Host::V4(ip) => Some(IpAddr::V4(*ip)),
            Host::V6(ip) => Some(IpAddr::V6(*ip)),
        }
    }

    /// True if both name the same host: names without case, addresses by value (RFC 5954 §4.2).
    pub fn equivalent(&self, other: &Host<'_>) -> bool {
        match (self, other) {
            (Host::Name(a), Host::Name(b)) => a.eq_ignore_ascii_case(b),
            _ => self == other,
        }
    }
}

/// A host with positions instead of references.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HostParts {
    Name(Span),
    V4(Ipv4Addr),
    V6(Ipv6Addr),
}

impl HostParts {
    #[inline]
    pub(crate) fn view(self, bytes: &[u8]) -> Host<'_> {
        match self {
            HostParts::Name(span) => Host::Name(span.of(bytes)),
            HostParts::V4(ip) => Host::V4(ip),
            HostParts::V6(ip) => Host::V6(ip),
        }
    }
}

/// Reads the host at `at`; gives it and the index behind it.
///
/// A name of digits and dots only that is no IPv4 address is refused: no `toplabel` starts with a digit, and
/// resolvers disagree about what such a text means.
#[inline]
pub(crate) fn read(bytes: &[u8], at: usize) -> Option<(HostParts, usize)> {
    let first = *bytes.get(at)?;
    if first == b'[' {
        let close = at + memchr::memchr(b']', bytes.get(at..)?)?;
        let ip = ipv6(slice(bytes, at + 1, close))?;
        return Some((HostParts::V6(ip), close + 1));
    }
    if first.is_ascii_digit()
        && let Some((ip, end)) = ipv4_at(bytes, at)
    {
        return Some((HostParts::V4(ip), end));
    }
    let end = token::skip_host(bytes, at);
    let name = slice(bytes, at, end);
    if name.is_empty() {
        return None;
    }
    if first.is_ascii_digit() && name.iter().all(|&b| b.is_ascii_digit() || b == b'.') {
        return None;
    }
    if first == b'.' {
        return None;
    }
    Some((HostParts::Name(Span::new(at, end)), end))
}

/// Reads a whole text as an IPv4 address.
#[inline]
pub(crate) fn ipv4(text: &[u8]) -> Option<Ipv4Addr> {
    ipv4_at(text, 0).and_then(|(ip, end)| (end == text.len()).then_some(ip))
}

/// Reads `1*3DIGIT` four times, up to what can be no part of a host; gives the address and the index behind it. An octet
/// with a leading zero is refused, for some read it as octal.
#[inline]
fn ipv4_at(bytes: &[u8], at: usize) -> Option<(Ipv4Addr, usize)> {
    let (mut address, mut octet, mut digits, mut dots) = (0u32, 0u32, 0u32, 0u32);
    let mut end = at;
    while let Some(&b) = bytes.get(end) {
        let digit = u32::from(b.wrapping_sub(b'0'));
        if digit <= 9 {
            octet = octet * 10 + digit;
            // The first digit was a zero, or there are too many.
            if octet > 255 || (digits > 0 && octet < 10) {
                return None;
            }
            digits += 1;
        } else if b == b'.' {
            dots += 1;
            if digits == 0 || dots > 3 {
                return None;
            }
            address = address << 8 | octet;
            (octet, digits) = (0, 0);
        } else {
            break;
        }
        end += 1;
    }
    let whole = dots == 3 && digits > 0 && token::skip_host(bytes, end) == end;
    whole.then(|| (Ipv4Addr::from(address << 8 | octet), end))
}

/// Reads an IPv6 address without brackets.
///
/// The grammar of RFC 3261 lets three colons stand before an embedded IPv4 address; they mean what two mean
/// (RFC 5118 §4.10, RFC 5954 §4.1), so they are understood.
pub(crate) fn ipv6(text: &[u8]) -> Option<Ipv6Addr> {
    const LONGEST: usize = 46;
    if text.len() > LONGEST {
        return None;
    }
    let str = core::str::from_utf8(text).ok()?;
    if let Ok(ip) = str.parse() {
        return Some(ip);
    }
    let at = str.find(":::")?;
    let tail = slice(text, at + 3, text.len());
    ipv4(tail)?;
    let mut fixed = [0u8; LONGEST];
    let head = slice(text, 0, at + 2);
    fixed.get_mut(..head.len())?.copy_from_slice(head);
    fixed.get_mut(head.len()..head.len() + tail.len())?.copy_from_slice(tail);
    core::str::from_utf8(slice(&fixed, 0, head.len() + tail.len())).ok()?.parse().ok()
}

/// Reads an address as `received` and `maddr` write it: IPv4, IPv6 with or without brackets (RFC 5118 §4.5).
pub(crate) fn ip(text: &[u8]) -> Option<IpAddr> {
    if let Some(ip) = ipv4(text) {
        return Some(IpAddr::V4(ip));
    }
    let bare = match text {
        [b'[', inner @ .., b']'] => inner,
        _ => text,
    };
    ipv6(bare).map(IpAddr::V6)
}

/// Appends an address as a host is written: IPv6 in brackets.
pub fn push_ip(out: &mut alloc::vec::Vec<u8>, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => push_ipv4(out, ip),
        IpAddr::V6(ip) => {
            out.push(b'[');
            push_ipv6(out, ip);
            out.push(b']');
        }
    }
}

/// Appends an address as `received` is written: IPv6 without brackets (RFC 3261 §25.1 `via-received`).
pub(crate) fn push_ip_bare(out: &mut alloc::vec::Vec<u8>, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => push_ipv4(out, ip),
        IpAddr::V6(ip) => push_ipv6(out, ip),
    }
}

fn push_ipv4(out: &mut alloc::vec::Vec<u8>, ip: Ipv4Addr) {
    for (i, octet) in ip.octets().into_iter().enumerate() {
        if i > 0 {
            out.push(b'.');
        }
        token::push_number(out, u32::from(octet));
    }
}

fn push_ipv6(out: &mut alloc::vec::Vec<u8>, ip: Ipv6Addr) {
    struct Bytes<'a>(&'a mut alloc::vec::Vec<u8>);
    impl core::fmt::Write for Bytes<'_> {
        fn write_str(&mut self, text: &str) -> core::fmt::Result {
            self.0.extend_from_slice(text.as_bytes());
            Ok(())
        }
    }
    // Writing to a Vec cannot fail.
    let _ = core::fmt::Write::write_fmt(&mut Bytes(out), format_args!("{ip}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn names_addresses_and_references_are_told_apart() {
        assert_eq!(Host::parse(b"a_b.example.com."), Some(Host::Name(b"a_b.example.com.")));
        assert_eq!(Host::parse(b"7c9f1d2ab3"), Some(Host::Name(b"7c9f1d2ab3")));
        assert_eq!(Host::parse(b"192.0.2.1"), Some(Host::V4(Ipv4Addr::new(192, 0, 2, 1))));
        assert_eq!(Host::parse(b"[2001:db8::9:1]"), Some(Host::V6("2001:db8::9:1".parse().unwrap())));
        assert_eq!(Host::parse(b"[::ffff:192.0.2.10]"), Some(Host::V6("::ffff:192.0.2.10".parse().unwrap())));
    }

    #[test]
    fn numbers_that_are_no_address_are_refused() {
        for text in
            [&b"256.1.1.1"[..], b"1.2.3", b"1.2.3.4.5", b"010.0.0.1", b"1234", b"", b".a", b"[::1", b"[g]"]
        {
            assert_eq!(Host::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn an_address_ends_where_a_host_ends() {
        let v4 = |text: &[u8]| matches!(read(text, 0), Some((HostParts::V4(_), _)));
        assert!(v4(b"192.0.2.1") && v4(b"0.0.0.0;x") && v4(b"255.255.255.255:5060"));
        for text in [&b"192.0.2.1a"[..], b"192.0.2.1-b", b"192.0.2.1.example.com", b"1.2.3.4_"] {
            assert!(matches!(read(text, 0), Some((HostParts::Name(_), _))), "{}", text.escape_ascii());
        }
        for text in [
            &b"192.0.2"[..],
            b"192.0.2.",
            b"192.0.2.1.",
            b"192..2.1",
            b"256.0.2.1",
            b"192.0.02.1",
            b"00.1.1.1",
        ] {
            assert!(read(text, 0).is_none(), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn the_extra_colon_of_the_old_grammar_is_understood() {
        assert_eq!(
            Host::parse(b"[2001:db8:::192.0.2.1]"),
            Some(Host::V6("2001:db8::192.0.2.1".parse().unwrap()))
        );
        assert_eq!(Host::parse(b"[2001:db8:::1]"), None);
    }

    #[test]
    fn addresses_compare_by_value() {
        let a = Host::parse(b"[2001:db8::10]").unwrap();
        let b = Host::parse(b"[2001:DB8:0:0:0::10]").unwrap();
        assert!(a.equivalent(&b));
        assert!(Host::Name(b"A.example").equivalent(&Host::Name(b"a.EXAMPLE")));
        assert!(!Host::Name(b"a").equivalent(&Host::Name(b"b")));
    }

    #[test]
    fn received_is_read_with_and_without_brackets_and_written_without() {
        let ip6: IpAddr = "2001:db8::9:255".parse().unwrap();
        assert_eq!(ip(b"[2001:db8::9:255]"), Some(ip6));
        assert_eq!(ip(b"2001:db8::9:255"), Some(ip6));
        let mut out = Vec::new();
        push_ip_bare(&mut out, ip6);
        push_ip(&mut out, ip6);
        push_ip(&mut out, "10.20.30.255".parse().unwrap());
        assert_eq!(out, b"2001:db8::9:255[2001:db8::9:255]10.20.30.255");
    }
}
