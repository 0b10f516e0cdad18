//! Equality of URIs (RFC 3261 §19.1.4, RFC 5954 §4.2, RFC 3966 §4).

use super::tel::digits;
use super::{SipUri, TelUri};
use crate::params::Params;
use crate::token;

/// Parameters that make URIs differ when only one of them has it. `transport` is among them because the RFC's
/// examples say so: without it another transport may be resolved.
const DECISIVE: [&[u8]; 5] = [b"transport", b"user", b"ttl", b"method", b"maddr"];

/// RFC 3261 §19.1.4.
pub(super) fn sip(a: &SipUri<'_>, b: &SipUri<'_>) -> bool {
    a.secure == b.secure
        && same_optional(a.user, b.user, Case::Sensitive)
        && same_optional(a.password, b.password, Case::Sensitive)
        && a.host.equivalent(&b.host)
        // An omitted port is not the default port: it may be resolved to another.
        && a.port == b.port
        && params_agree(a, b)
        && params_agree(b, a)
        && headers_agree(a, b)
        && headers_agree(b, a)
}

/// Every parameter of `a` has the same value in `b`, or is absent there and not decisive.
fn params_agree(a: &SipUri<'_>, b: &SipUri<'_>) -> bool {
    a.params.into_iter().all(|(name, value)| match b.param(name) {
        Some(other) => same_optional(value, other, Case::Ignored),
        None => !DECISIVE.iter().any(|decisive| same(name, decisive, Case::Ignored)),
    })
}

/// The parameter with that name, but for case and escapes.
pub(super) fn param<'a>(params: Params<'a>, name: &[u8]) -> Option<Option<&'a [u8]>> {
    params.into_iter().find(|(found, _)| same_name(found, name)).map(|(_, value)| value)
}

/// True if two parameter names are the same but for case and escapes.
pub(super) fn same_name(a: &[u8], b: &[u8]) -> bool {
    a.eq_ignore_ascii_case(b) || same(a, b, Case::Ignored)
}

/// Most header components that are compared; URIs with more are different.
const MAX_HEADERS: usize = 32;

/// Every header component of `a` is in `b`, equally often. Values are compared byte by byte but for their escapes:
/// the rules of §20 for single header fields could only find more URIs equal.
fn headers_agree(a: &SipUri<'_>, b: &SipUri<'_>) -> bool {
    let count = |uri: &SipUri<'_>, (name, value): (&[u8], &[u8])| {
        let equal =
            |&(n, v): &(&[u8], &[u8])| same(n, name, Case::Ignored) && same(v, value, Case::Sensitive);
        uri.header_pairs().filter(equal).count()
    };
    a.header_pairs().nth(MAX_HEADERS).is_none()
        && b.header_pairs().nth(MAX_HEADERS).is_none()
        && a.header_pairs().all(|pair| count(a, pair) == count(b, pair))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Case {
    Sensitive,
    Ignored,
}

fn same_optional(a: Option<&[u8]>, b: Option<&[u8]>, case: Case) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => same(a, b, case),
        (None, None) => true,
        _ => false,
    }
}

/// Equal once escapes are undone, except those of reserved characters: `%40` is not `@`.
fn same(a: &[u8], b: &[u8], case: Case) -> bool {
    if a == b {
        return true;
    }
    let fold = |(byte, escaped): (u8, bool)| match case {
        Case::Sensitive => (byte, escaped),
        Case::Ignored => (byte.to_ascii_lowercase(), escaped),
    };
    Units(a).map(fold).eq(Units(b).map(fold))
}

/// The characters of a text, each with whether it is an escaped reserved one.
struct Units<'a>(&'a [u8]);

impl Iterator for Units<'_> {
    type Item = (u8, bool);

    fn next(&mut self) -> Option<(u8, bool)> {
        if let [b'%', high, low, rest @ ..] = self.0
            && let (Some(high), Some(low)) = (token::hex(*high), token::hex(*low))
        {
            self.0 = rest;
            let byte = high << 4 | low;
            // RFC 3261 §25.1 `reserved`.
            let reserved =
                matches!(byte, b';' | b'/' | b'?' | b':' | b'@' | b'&' | b'=' | b'+' | b'$' | b',' | b'%');
            return Some((byte, reserved));
        }
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some((*first, false))
    }
}

/// RFC 3966 §4: both local or both global, digits equal without separators, the same parameters in any order.
pub(super) fn tel(a: &TelUri<'_>, b: &TelUri<'_>) -> bool {
    a.is_global() == b.is_global()
        && digits(a.number).eq(digits(b.number))
        && a.params.into_iter().count() == b.params.into_iter().count()
        && a.params.into_iter().all(|(name, value)| match b.param(name) {
            Some(other) => same_tel_param(name, value, other),
            None => false,
        })
}

fn same_tel_param(name: &[u8], a: Option<&[u8]>, b: Option<&[u8]>) -> bool {
    let (Some(x), Some(y)) = (a, b) else { return a == b };
    let global = |text: &[u8]| text.first() == Some(&b'+');
    let numeric = same_name(name, b"ext") || (same_name(name, b"phone-context") && global(x) && global(y));
    if numeric { digits(x).eq(digits(y)) } else { same(x, y, Case::Ignored) }
}
