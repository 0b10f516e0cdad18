//! Equality of URIs (RFC 3261 §19.1.4, RFC 5954 §4.2, RFC 3966 §4), against the rules written out slowly.

use super::input::Input;
use super::show;
use reference::Judged;
use reference::values::{self, Params};
use sip::Uri;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Most changes that make the second URI of the first.
const CHANGES_MAX: usize = 8;
/// URIs with more header components are equal to none, themselves included.
const HEADERS_MAX: usize = 32;
/// RFC 3261 §25.1 `reserved`, and the sign of escapes itself: the escape of one of these is not the character.
const RESERVED: &[u8] = b";/?:@&=+$,%";

/// See [`TARGETS`](crate::TARGETS). A line feed parts two URIs; without one the second is made of the first, by as many
/// changes as the first byte says: what and where are a byte each.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let count = input.below(CHANGES_MAX + 1);
    let changes: Vec<(u8, u8)> = (0..count).map(|_| (input.byte(), input.byte())).collect();
    let rest = input.rest();
    let (a, mut b) = match rest.iter().position(|&byte| byte == b'\n') {
        Some(at) => (&rest[..at], rest[at + 1..].to_vec()),
        None => (rest, rest.to_vec()),
    };
    for (what, place) in changes {
        change(&mut b, what, usize::from(place));
    }
    let (Ok(ours_a), Ok(ours_b)) = (Uri::parse(a), Uri::parse(&b)) else { return };
    let equal = ours_a.equivalent(&ours_b);
    let pair = || format!("{} and {}", show(a), show(&b));
    assert_eq!(equal, ours_b.equivalent(&ours_a), "equality has a direction: {}", pair());
    if let (Judged::Yes(one), Judged::Yes(other)) = (values::uri(a), values::uri(&b)) {
        assert_eq!(equal, are_equal(&one, &other, a, &b), "{}", pair());
    }
}

/// Changes a URI a little, so that it may still be the same.
fn change(uri: &mut Vec<u8>, what: u8, place: usize) {
    if uri.is_empty() {
        return;
    }
    let at = place % uri.len();
    let byte = uri[at];
    match what % 6 {
        0 => uri[at] ^= if byte.is_ascii_alphabetic() { 0x20 } else { 0 },
        1 => drop(uri.splice(at..=at, format!("%{byte:02x}").into_bytes())),
        2 => drop(uri.splice(at..=at, format!("%{byte:02X}").into_bytes())),
        3 => drop(uri.remove(at)),
        4 => uri.insert(at, byte),
        _ => {
            // The parameter or header component that begins here changes places with the one behind it.
            let ends = |byte: &u8| matches!(byte, b';' | b'&' | b'?');
            let Some(length) = uri[at + 1..].iter().position(ends) else { return };
            let second = at + 1 + length;
            let end = uri[second + 1..].iter().position(ends).map_or(uri.len(), |length| second + 1 + length);
            uri[at..end].rotate_left(length + 1);
        }
    }
}

/// RFC 3261 §19.1.4: every rule by itself.
fn are_equal(a: &values::Uri<'_>, b: &values::Uri<'_>, text_a: &[u8], text_b: &[u8]) -> bool {
    use values::Uri as U;
    match (a, b) {
        (
            U::Sip { secure, user, password, host, port, params, headers },
            U::Sip {
                secure: secure_b,
                user: user_b,
                password: password_b,
                host: host_b,
                port: port_b,
                params: params_b,
                headers: headers_b,
            },
        ) => {
            // "A SIP and SIPS URI are never equivalent."
            secure == secure_b
                // "Comparison of the userinfo of SIP and SIPS URIs is case-sensitive."
                && user.map(plain) == user_b.map(plain)
                && password.map(plain) == password_b.map(plain)
                && host_of(host) == host_of(host_b)
                // "... a URI omitting the optional port component will not match a URI explicitly declaring port 5060."
                && port_of(*port) == port_of(*port_b)
                && do_params_agree(params, params_b)
                && headers_of(*headers).is_some_and(|headers| headers_of(*headers_b) == Some(headers))
        }
        (U::Tel { number, params }, U::Tel { number: number_b, params: params_b }) => {
            number.starts_with(b"+") == number_b.starts_with(b"+")
                && digits(number) == digits(number_b)
                && tel_params(params) == tel_params(params_b)
        }
        (U::Other { scheme }, U::Other { scheme: scheme_b }) => {
            scheme.eq_ignore_ascii_case(scheme_b) && text_a[scheme.len()..] == text_b[scheme_b.len()..]
        }
        _ => false,
    }
}

/// "Characters other than those in the "reserved" set are equivalent to their "%" HEX HEX encoding."
fn plain(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let hex =
            text.get(at + 1..at + 3).filter(|hex| text[at] == b'%' && hex.iter().all(u8::is_ascii_hexdigit));
        match hex.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()) {
            Some(byte) if RESERVED.contains(&byte) => {
                plain.extend_from_slice(format!("%{byte:02x}").as_bytes());
            }
            Some(byte) => plain.push(byte),
            None => {
                plain.push(text[at]);
                at += 1;
                continue;
            }
        }
        at += 3;
    }
    plain
}

/// "Comparison of all other components of the URI is case-insensitive unless explicitly defined otherwise."
fn folded(text: &[u8]) -> Vec<u8> {
    plain(text).to_ascii_lowercase()
}

/// A name, or an address by its value (RFC 5954 §4.2).
#[derive(PartialEq, Eq)]
enum Host {
    Name(Vec<u8>),
    V4(Ipv4Addr),
    V6(Ipv6Addr),
}

fn host_of(written: &[u8]) -> Host {
    let text = String::from_utf8_lossy(written);
    // `deviations.abnf` lets a colon too many pass in a reference, as RFC 5954 explains where it comes from.
    let bare = text.trim_start_matches('[').trim_end_matches(']').replace(":::", "::");
    match (text.parse(), bare.parse()) {
        (Ok(ip), _) => Host::V4(ip),
        (_, Ok(ip)) if text.starts_with('[') => Host::V6(ip),
        _ => Host::Name(written.to_ascii_lowercase()),
    }
}

fn port_of(written: Option<&[u8]>) -> Option<u16> {
    String::from_utf8_lossy(written?).parse().ok()
}

/// The `uri-parameter` rules. That `transport` counts although only one URI has it is what the examples say.
fn do_params_agree(a: &Params<'_>, b: &Params<'_>) -> bool {
    let decisive: [&[u8]; 5] = [b"transport", b"user", b"ttl", b"method", b"maddr"];
    let list = |params: &Params<'_>| -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        params.iter().map(|(name, value)| (folded(name), value.map(folded))).collect()
    };
    let (a, b) = (list(a), list(b));
    let agrees = |one: &[(Vec<u8>, Option<Vec<u8>>)], other: &[(Vec<u8>, Option<Vec<u8>>)]| {
        one.iter().all(|(name, value)| match other.iter().find(|(known, _)| known == name) {
            Some((_, theirs)) => theirs == value,
            None => !decisive.contains(&name.as_slice()),
        })
    };
    agrees(&a, &b) && agrees(&b, &a)
}

/// "Any present header component MUST be present in both URIs and match": in any order, values byte by byte but for
/// escapes. `None` for too many.
fn headers_of(headers: Option<&[u8]>) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut list: Vec<(Vec<u8>, Vec<u8>)> = headers
        .unwrap_or_default()
        .split(|&byte| byte == b'&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let equals = pair.iter().position(|&byte| byte == b'=').unwrap_or(pair.len());
            (folded(&pair[..equals]), plain(pair.get(equals + 1..).unwrap_or_default()))
        })
        .collect();
    list.sort();
    (list.len() <= HEADERS_MAX).then_some(list)
}

/// Digits without visual separators (RFC 3966 §5.1.1).
fn digits(number: &[u8]) -> Vec<u8> {
    number.iter().filter(|byte| !b"-.()".contains(byte)).map(u8::to_ascii_lowercase).collect()
}

/// RFC 3966 §4: the same parameters in any order; numbers among them without visual separators.
fn tel_params(params: &Params<'_>) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let value_of = |name: &[u8], value: &[u8]| {
        let is_global = name == b"phone-context" && value.starts_with(b"+");
        if name == b"ext" || is_global { digits(value) } else { folded(value) }
    };
    let mut list: Vec<_> = params
        .iter()
        .map(|(name, value)| {
            let name = folded(name);
            let value = value.map(|value| value_of(&name, value));
            (name, value)
        })
        .collect();
    list.sort();
    list
}
