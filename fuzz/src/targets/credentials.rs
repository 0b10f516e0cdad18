//! Digest credentials and challenges (RFC 3261 §20.7, §20.44, RFC 7616 §3).

use super::{agreed, show};
use reference::{Judged, is_value, values};
use sip::digest::{Algorithm, CREDENTIALS_BYTES_MAX, Challenge, Credentials};

/// See [`TARGETS`](crate::TARGETS).
pub fn run(value: &[u8]) {
    challenge(value);
    if !is_value(value) {
        return;
    }
    let ours = Credentials::parse(value);
    let reference = match values::credentials(value) {
        Judged::Yes(pairs) => judge(&pairs).map_or(Judged::No, Judged::Yes),
        Judged::No => Judged::No,
        Judged::TooLong => Judged::TooLong,
    };
    if let Some((ours, wanted)) = agreed(value, ours, reference) {
        assert!(value.len() <= CREDENTIALS_BYTES_MAX);
        let text = |name: &str| find(&wanted, name);
        assert_eq!(Some(ours.username), text("username"));
        assert_eq!(Some(ours.realm), text("realm"));
        assert_eq!(Some(ours.nonce), text("nonce"));
        assert_eq!(Some(ours.uri), text("uri"));
        assert_eq!(Some(ours.response), text("response"));
        assert_eq!(ours.cnonce, text("cnonce").unwrap_or_default());
        assert_eq!(ours.opaque, text("opaque").unwrap_or_default());
        assert_eq!(ours.nonce_count, text("qop").and(text("nc")));
        let count = ours.nonce_count.map(|nc| String::from_utf8_lossy(nc).to_lowercase());
        assert_eq!(ours.count().map(|count| format!("{count:08x}")), count);
        assert!(!ours.is_right(&[b'0'; 7], b"REGISTER"), "a secret of a wrong length is never right");
    }
}

type Pairs<'a> = Vec<(&'a [u8], &'a [u8])>;

fn find<'a>(pairs: &Pairs<'a>, name: &str) -> Option<&'a [u8]> {
    pairs.iter().find(|(known, _)| known.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| *value)
}

/// What the grammar cannot say of credentials; `None` if they are none that can be checked.
fn judge<'a>(pairs: &Pairs<'a>) -> Option<Pairs<'a>> {
    // Which of two would count would be a guess.
    const SINGLE: [&str; 12] = [
        "username",
        "realm",
        "nonce",
        "uri",
        "response",
        "algorithm",
        "cnonce",
        "opaque",
        "qop",
        "nc",
        "userhash",
        "username*",
    ];
    let times =
        |name: &str| pairs.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name.as_bytes())).count();
    if SINGLE.iter().any(|name| times(name) > 1) {
        return None;
    }
    for name in ["username", "realm", "nonce", "uri"] {
        find(pairs, name)?;
    }
    // RFC 7616 §3.4.4, §3.4: SIP offers neither.
    if find(pairs, "username*").is_some()
        || find(pairs, "userhash").is_some_and(|value| !value.eq_ignore_ascii_case(b"false"))
    {
        return None;
    }
    let is_hex = |text: &[u8]| text.iter().all(u8::is_ascii_hexdigit);
    if !is_hex(find(pairs, "response")?) {
        return None;
    }
    // RFC 8760 §2.1; MD5 where none is named (RFC 7616 §3.4).
    let algorithm = find(pairs, "algorithm").map_or_else(|| "md5".into(), |name| name.to_ascii_lowercase());
    let plain = algorithm.strip_suffix(b"-sess").unwrap_or(&algorithm);
    if ![&b"md5"[..], b"sha-256", b"sha-512-256"].contains(&plain) {
        return None;
    }
    // RFC 7616 §3.4: a cnonce and a count go with a qop, a cnonce with a session.
    let qop = find(pairs, "qop");
    if qop.is_some_and(|qop| !qop.eq_ignore_ascii_case(b"auth")) {
        return None;
    }
    if qop.is_some() && !find(pairs, "nc").is_some_and(|nc| nc.len() == 8 && is_hex(nc)) {
        return None;
    }
    if (qop.is_some() || plain.len() != algorithm.len()) && find(pairs, "cnonce").is_none() {
        return None;
    }
    Some(pairs.clone())
}

/// A challenge is one line of the grammar whatever its realm and nonce are, and says them back.
fn challenge(data: &[u8]) {
    let (realm, nonce) = data.split_at(data.len() / 2);
    let mut out = Vec::new();
    let choice = data.first().copied().unwrap_or(0);
    let algorithm = [Algorithm::Md5, Algorithm::Sha256, Algorithm::Sha512_256][usize::from(choice % 3)];
    Challenge { realm, nonce, algorithm, qop: choice & 8 != 0, stale: choice & 16 != 0 }.write(&mut out);
    // By the grammar a challenge looks as credentials do.
    let pairs = match values::credentials(&out) {
        Judged::Yes(pairs) => pairs,
        Judged::TooLong => return,
        Judged::No => panic!("a challenge that is none: {}", show(&out)),
    };
    for (name, wanted) in [("realm", realm), ("nonce", nonce)] {
        let wanted: Vec<u8> = wanted.iter().copied().filter(|byte| !byte.is_ascii_control()).collect();
        let found = find(&pairs, name).map(unescaped);
        assert_eq!(found, Some(wanted), "{}", show(&out));
    }
}

fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut rest = text.iter();
    while let Some(&byte) = rest.next() {
        plain.push(if byte == b'\\' { rest.next().copied().unwrap_or(byte) } else { byte });
    }
    plain
}
