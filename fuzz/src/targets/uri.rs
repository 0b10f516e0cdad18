//! URIs (RFC 3261 §19.1, RFC 3966): `sip::Uri` against the reference.

use super::{agreed, show};
use reference::values::{self, Params};
use sip::{Host, Uri};
use std::net::{Ipv4Addr, Ipv6Addr};

/// See [`TARGETS`](crate::TARGETS).
pub fn run(text: &[u8]) {
    check(text, |port| port);
}

/// [`run`] with a bug planted into what the server is said to have read: a port with a leading zero is octal,
/// as in the resolvers of some C libraries.
pub fn canary(text: &[u8]) {
    check(text, |port| {
        let digits = port.0.to_string();
        let octal = u16::from_str_radix(&digits, 8).ok().filter(|_| port.1.starts_with(b"0"));
        (octal.unwrap_or(port.0), port.1)
    });
}

/// A port as the server read it, and as it was written.
type Port<'a> = (u16, &'a [u8]);

fn check(text: &[u8], plant: fn(Port<'_>) -> Port<'_>) {
    let Some((ours, reference)) = agreed(text, Uri::parse(text), values::uri(text)) else { return };
    match (&ours, reference) {
        (Uri::Sip(uri), values::Uri::Sip { secure, user, password, host, port, params, headers }) => {
            assert_eq!(uri.secure, secure, "{}", show(text));
            assert_eq!((uri.user, uri.password), (user, password), "{}", show(text));
            assert!(is_host(&uri.host, host), "{:?} is not {}", uri.host, show(host));
            let written = port.unwrap_or_default();
            let port = uri.port.map(|port| plant((port, written)).0.to_string().into_bytes());
            let wanted = (!written.is_empty()).then(|| without_zeros(written).to_vec());
            assert_eq!(port, wanted, "{}", show(text));
            assert_eq!(uri.params.collect::<Params<'_>>(), params, "{}", show(text));
            assert_eq!(uri.headers, headers, "{}", show(text));
            equality(text, &ours, uri.headers.is_none());
        }
        (Uri::Tel(uri), values::Uri::Tel { number, params }) => {
            assert_eq!((uri.number, uri.params.collect::<Params<'_>>()), (number, params), "{}", show(text));
            equality(text, &ours, true);
        }
        (Uri::Other { scheme, .. }, values::Uri::Other { scheme: wanted }) => {
            assert_eq!(*scheme, wanted, "{}", show(text));
            equality(text, &ours, true);
        }
        (ours, reference) => panic!("{ours:?} is not {reference:?}"),
    }
    let mut aor = Vec::new();
    sip::canonical_aor(&ours, true, &mut aor);
    assert!(aor.len() <= text.len() + 40, "an address-of-record is no longer than its URI: {}", show(&aor));
}

/// A URI equals itself and its spelling with the scheme in capitals (RFC 3261 §19.1.4), and equality has no
/// direction.
fn equality(text: &[u8], uri: &Uri<'_>, reflexive: bool) {
    let mut louder = text.to_vec();
    louder.iter_mut().take_while(|byte| **byte != b':').for_each(|byte| byte.make_ascii_uppercase());
    let louder =
        Uri::parse(&louder).unwrap_or_else(|e| panic!("{e}: a scheme's case counts: {}", show(text)));
    assert_eq!(uri.equivalent(&louder), louder.equivalent(uri), "{}", show(text));
    // URIs with very many header components are not compared.
    assert!(!reflexive || uri.equivalent(&louder), "not equal to itself: {}", show(text));
}

fn without_zeros(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    &digits[zeros..]
}

/// Whether a host means what is written.
pub(super) fn is_host(host: &Host<'_>, written: &[u8]) -> bool {
    let text = String::from_utf8_lossy(written);
    match host {
        Host::Name(name) => *name == written,
        Host::V4(ip) => text.parse() == Ok::<Ipv4Addr, _>(*ip),
        Host::V6(ip) => {
            let bare = text.trim_start_matches('[').trim_end_matches(']').replace(":::", "::");
            bare.parse() == Ok::<Ipv6Addr, _>(*ip)
        }
    }
}
