//! URIs: sip and sips (RFC 3261 §19.1), tel (RFC 3966), and any other kept opaque.

mod compare;
mod sip;
mod tel;

use sip::SipParts;
pub use sip::SipUri;
pub use tel::TelUri;

use crate::host::{self, Host};
use crate::params::Params;
use crate::token;
use alloc::vec::Vec;
use core::fmt;

/// A URI, viewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uri<'a> {
    /// `sip:` or `sips:`.
    Sip(SipUri<'a>),
    /// `tel:`.
    Tel(TelUri<'a>),
    /// Any other scheme: a proxy that must route on it answers 416 (RFC 3261 §16.3 item 2).
    Other {
        /// The scheme as written, without the colon.
        scheme: &'a [u8],
        /// Everything behind the colon.
        rest: &'a [u8],
    },
}

/// Why a text is no URI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UriError {
    /// No scheme, or an impossible one.
    Scheme,
    /// A byte that may not stand there, or a `%` without two hexadecimal digits.
    Character,
    /// An empty user, or more than one `@`.
    User,
    /// No host, or an impossible one.
    Host,
    /// Not a number from 1 to 65535.
    Port,
    /// An empty, repeated or surplus parameter.
    Params,
    /// No telephone number, or a local one without `phone-context` (RFC 3966 §5.1.5).
    Number,
}

impl fmt::Display for UriError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UriError::Scheme => "bad scheme",
            UriError::Character => "forbidden character or broken escape",
            UriError::User => "bad user",
            UriError::Host => "bad host",
            UriError::Port => "bad port",
            UriError::Params => "bad parameters",
            UriError::Number => "bad telephone number",
        })
    }
}

impl core::error::Error for UriError {}

impl<'a> Uri<'a> {
    /// Views `text` as a URI; nothing is copied or unescaped.
    ///
    /// # Errors
    /// What is wrong with a sip, sips or tel URI; other schemes only need to be one.
    pub fn parse(text: &'a [u8]) -> Result<Uri<'a>, UriError> {
        Ok(UriParts::read(text)?.view(text))
    }

    /// The sip or sips URI, if it is one.
    pub fn sip(&self) -> Option<&SipUri<'a>> {
        match self {
            Uri::Sip(uri) => Some(uri),
            _ => None,
        }
    }

    /// True if both identify the same resource (RFC 3261 §19.1.4; RFC 3966 §4 for tel).
    ///
    /// Not transitive, and undefined parameters that only one has are ignored, as the RFC has it. URIs of other
    /// schemes are the same if their bytes are, but for the case of the scheme.
    pub fn equivalent(&self, other: &Uri<'_>) -> bool {
        match (self, other) {
            (Uri::Sip(a), Uri::Sip(b)) => compare::sip(a, b),
            (Uri::Tel(a), Uri::Tel(b)) => compare::tel(a, b),
            (Uri::Other { scheme: s, rest: r }, Uri::Other { scheme: t, rest: u }) => {
                s.eq_ignore_ascii_case(t) && r == u
            }
            _ => false,
        }
    }
}

/// A URI with positions instead of references; they count from the first byte of the URI.
#[derive(Clone, Copy, Debug)]
pub(crate) enum UriParts {
    Sip(SipParts),
    /// The number ends here, and the parameters begin.
    Tel(u32),
    /// Where the colon is.
    Other(u32),
}

/// Bytes of `tel:`.
const TEL: usize = 4;

impl UriParts {
    /// Reads a text that is one whole URI.
    #[inline]
    pub(crate) fn read(text: &[u8]) -> Result<UriParts, UriError> {
        if let [b's' | b'S', b'i' | b'I', b'p' | b'P', b':', ..] = text {
            return SipParts::read(text, 4).map(UriParts::Sip);
        }
        UriParts::read_other(text)
    }

    fn read_other(text: &[u8]) -> Result<UriParts, UriError> {
        let colon = text.iter().position(|&b| b == b':').ok_or(UriError::Scheme)?;
        let (scheme, rest) = (token::slice(text, 0, colon), token::slice(text, colon + 1, text.len()));
        if !crate::name_addr::has_scheme(text) {
            return Err(UriError::Scheme);
        }
        if scheme.eq_ignore_ascii_case(b"sips") {
            return SipParts::read(text, 5).map(UriParts::Sip);
        }
        if scheme.eq_ignore_ascii_case(b"tel") {
            let number = TelUri::parse(rest)?.number;
            return Ok(UriParts::Tel((TEL + number.len()) as u32));
        }
        if !token::is_uri_text(rest) {
            return Err(UriError::Character);
        }
        Ok(UriParts::Other(colon as u32))
    }

    /// Views the text that was read.
    #[inline]
    pub(crate) fn view<'a>(&self, text: &'a [u8]) -> Uri<'a> {
        match self {
            UriParts::Sip(parts) => Uri::Sip(parts.view(text)),
            UriParts::Tel(end) => {
                let end = *end as usize;
                let number = token::slice(text, TEL, end);
                Uri::Tel(TelUri { number, params: Params::new(token::slice(text, end, text.len())) })
            }
            UriParts::Other(colon) => {
                let colon = *colon as usize;
                let scheme = token::slice(text, 0, colon);
                Uri::Other { scheme, rest: token::slice(text, colon + 1, text.len()) }
            }
        }
    }
}

/// Appends the canonical address-of-record of `uri` to `out` (RFC 3261 §10.3 step 5).
///
/// sip and sips: scheme in lower case, user unescaped (its case kept), host in lower case (IPv6 in its shortest
/// form), password, port, parameters and headers left out. `with_domain` false gives the user alone, without
/// scheme, or the host if there is no user. tel: the number without visual separators, and `;phone-context=` of a
/// local one. Others: as written.
pub fn canonical_aor(uri: &Uri<'_>, with_domain: bool, out: &mut Vec<u8>) {
    match uri {
        Uri::Sip(uri) => {
            if with_domain {
                out.extend_from_slice(if uri.secure { b"sips:" } else { b"sip:" });
            }
            if let Some(user) = uri.user {
                push_unescaped(user, out);
                if !with_domain {
                    return;
                }
                out.push(b'@');
            }
            push_host(&uri.host, out);
        }
        Uri::Tel(uri) => {
            if with_domain {
                out.extend_from_slice(b"tel:");
            }
            uri.push_digits(out);
            if let Some(context) = uri.context() {
                out.extend_from_slice(b";phone-context=");
                out.extend(context.iter().map(u8::to_ascii_lowercase));
            }
        }
        Uri::Other { scheme, rest } => {
            out.extend_from_slice(scheme);
            out.push(b':');
            out.extend_from_slice(rest);
        }
    }
}

/// Appends `host` in lower case.
fn push_host(host: &Host<'_>, out: &mut Vec<u8>) {
    match host {
        Host::Name(name) => out.extend(name.iter().map(u8::to_ascii_lowercase)),
        Host::V4(ip) => host::push_ip(out, (*ip).into()),
        Host::V6(ip) => host::push_ip(out, (*ip).into()),
    }
}

/// Appends `text` with every `%HH` turned into its byte; `%00` becomes a NUL (RFC 4475 §3.1.1.4).
pub fn push_unescaped(text: &[u8], out: &mut Vec<u8>) {
    out.extend(Unescaped { text });
}

/// The bytes of a text with its `%HH` turned into bytes.
#[derive(Clone, Debug)]
pub(crate) struct Unescaped<'a> {
    text: &'a [u8],
}

impl Iterator for Unescaped<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        if let [b'%', high, low, rest @ ..] = self.text
            && let (Some(high), Some(low)) = (token::hex(*high), token::hex(*low))
        {
            self.text = rest;
            return Some(high << 4 | low);
        }
        let (first, rest) = self.text.split_first()?;
        self.text = rest;
        Some(*first)
    }
}

/// True if every `%` is followed by two hexadecimal digits and every byte may stand in a URI.
#[inline]
pub(crate) fn is_escaped_text(text: &[u8]) -> bool {
    if !token::is_uri_text(text) {
        return false;
    }
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'%', rest) {
        match rest.get(at + 1..at + 3) {
            Some(&[high, low]) if token::hex(high).is_some() && token::hex(low).is_some() => {}
            _ => return false,
        }
        rest = rest.get(at + 3..).unwrap_or(&[]);
    }
    true
}

#[cfg(test)]
mod tests;
