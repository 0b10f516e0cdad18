//! tel URIs (RFC 3966 §3).

use super::sip::scan_params;
use super::{UriError, compare, is_escaped_text};
use crate::params::Params;
use crate::token::slice;
use alloc::vec::Vec;

/// A tel URI, viewed: number and parameters as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TelUri<'a> {
    /// The number as written, visual separators and a leading `+` included.
    pub number: &'a [u8],
    /// The parameters: `ext`, `isub`, `phone-context` and others.
    pub params: Params<'a>,
}

/// A visual separator (RFC 3966 §5.1.1); it means nothing.
pub(super) fn is_separator(b: u8) -> bool {
    matches!(b, b'-' | b'.' | b'(' | b')')
}

/// The bytes of `number` without visual separators, hexadecimal digits in lower case.
pub(super) fn digits(number: &[u8]) -> impl Iterator<Item = u8> {
    number.iter().filter(|&&b| !is_separator(b)).map(u8::to_ascii_lowercase)
}

impl<'a> TelUri<'a> {
    /// Views what follows `tel:`.
    pub(super) fn parse(rest: &'a [u8]) -> Result<TelUri<'a>, UriError> {
        if !is_escaped_text(rest) {
            return Err(UriError::Character);
        }
        let semicolon = memchr::memchr(b';', rest).unwrap_or(rest.len());
        let number = slice(rest, 0, semicolon);
        let uri = TelUri { number, params: scan_params(slice(rest, semicolon, rest.len()), true)? };
        let valid = match number {
            [b'+', global @ ..] => {
                global.iter().all(|&b| b.is_ascii_digit() || is_separator(b))
                    && global.iter().any(u8::is_ascii_digit)
            }
            local => {
                let digit = |b: u8| b.is_ascii_hexdigit() || matches!(b, b'*' | b'#');
                local.iter().all(|&b| digit(b) || is_separator(b))
                    && local.iter().any(|&b| digit(b))
                    // RFC 3966 §5.1.5: a local number MUST have a phone-context.
                    && uri.context().is_some()
            }
        };
        if valid { Ok(uri) } else { Err(UriError::Number) }
    }

    /// True for a global number: one that starts with `+`.
    pub fn is_global(&self) -> bool {
        self.number.first() == Some(&b'+')
    }

    /// The parameter `name`, whatever its case, and escaped or not, as [`SipUri::param`](super::SipUri::param).
    pub(super) fn param(&self, name: &[u8]) -> Option<Option<&'a [u8]>> {
        compare::param(self.params, name)
    }

    /// The `phone-context` of a local number: a domain name or the start of a global number.
    pub fn context(&self) -> Option<&'a [u8]> {
        self.param(b"phone-context")?
    }

    /// The `ext` parameter: an extension behind the number.
    pub fn ext(&self) -> Option<&'a [u8]> {
        self.param(b"ext")?
    }

    /// The `isub` parameter: an ISDN subaddress.
    pub fn isub(&self) -> Option<&'a [u8]> {
        self.param(b"isub")?
    }

    /// Appends the number without visual separators.
    pub fn push_digits(&self, out: &mut Vec<u8>) {
        out.extend(digits(self.number));
    }
}
