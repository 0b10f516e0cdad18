//! Addresses (RFC 3261 §20.10): `sip::NameAddr` against the reference.

use super::{agreed, show};
use reference::{Judged, OURS, accepts, is_value, values};
use sip::NameAddr;

/// See [`TARGETS`](crate::TARGETS).
pub fn run(text: &[u8]) {
    if !is_value(text) {
        return;
    }
    if let Some((ours, reference)) = agreed(text, NameAddr::parse(text), values::address(text)) {
        same(&ours, &reference);
    }
}

/// What the server read is what the reference read.
pub(super) fn same(ours: &NameAddr<'_>, wanted: &values::Address<'_>) {
    assert_eq!(ours.display, wanted.display, "{wanted:?}");
    assert_eq!(ours.uri, wanted.uri, "{wanted:?}");
    assert_eq!(ours.params.collect::<values::Params<'_>>(), wanted.params, "{wanted:?}");
    let param = |name: &[u8]| {
        let found = wanted.params.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| *value)
    };
    assert_eq!(ours.tag(), param(b"tag").flatten(), "{wanted:?}");
    // RFC 3261 §20.10: a malformed `expires` counts as 3600.
    let seconds = param(b"expires").map(|value| match value {
        Some(digits) if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) => {
            String::from_utf8_lossy(digits).parse().unwrap_or(u32::MAX)
        }
        _ => 3600,
    });
    assert_eq!(ours.expires(), seconds, "{wanted:?}");
    let q = param(b"q").flatten();
    let sound = q.and_then(|q| accepts(&OURS, "qvalue", q)).unwrap_or(false);
    let q =
        q.filter(|_| sound).map(|q| String::from_utf8_lossy(q).parse::<f64>().expect("invariant: judged"));
    assert_eq!(
        ours.q().map(|q| f64::from(q.thousandths()).round()),
        q.map(|q| (q * 1000.0).round()),
        "{wanted:?}"
    );
    match (ours.uri(), values::uri(wanted.uri)) {
        (Ok(_), Judged::No) | (Err(_), Judged::Yes(_)) => {
            panic!("the URI is judged otherwise: {}", show(ours.uri))
        }
        _ => {}
    }
}
