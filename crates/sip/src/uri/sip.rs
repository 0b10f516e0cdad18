//! sip and sips URIs (RFC 3261 §19.1.1, §25.1 `SIP-URI`).

use super::{Unescaped, UriError, compare};
use crate::Transport;
use crate::host::{self, Host, HostParts};
use crate::params::{Params, Seen};
use crate::span::Span;
use crate::token::{self, slice};
use smallvec::SmallVec;

/// A sip or sips URI, viewed: every part as written, nothing unescaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SipUri<'a> {
    /// True for `sips:`.
    pub secure: bool,
    /// The user; semicolons in it belong to it (`sip:+1;ext=2@host`).
    pub user: Option<&'a [u8]>,
    /// The password behind the user's colon.
    pub password: Option<&'a [u8]>,
    /// The host.
    pub host: Host<'a>,
    /// The port, if one is given.
    pub port: Option<u16>,
    /// The URI parameters.
    pub params: Params<'a>,
    /// Everything behind `?`.
    pub headers: Option<&'a [u8]>,
}

impl<'a> SipUri<'a> {
    /// The parameter `name`, whatever its case, in the message or here, and escaped or not (RFC 3261 §19.1.4):
    /// `None` if absent, `Some(None)` if it has no value. The value is as written.
    pub fn param(&self, name: &[u8]) -> Option<Option<&'a [u8]>> {
        compare::param(self.params, name)
    }

    /// The `transport` parameter.
    pub fn transport(&self) -> Option<Transport> {
        let value = self.param(b"transport")??;
        if !value.contains(&b'%') {
            return Some(Transport::of(value));
        }
        let plain: SmallVec<[u8; 16]> = Unescaped { text: value }.take(16).collect();
        Some(Transport::of(&plain))
    }

    /// True if the URI marks a loose router (RFC 3261 §19.1.1 `lr`); the common `lr=on` counts.
    pub fn lr(&self) -> bool {
        self.param(b"lr").is_some()
    }

    /// The `maddr` parameter, if it is a host.
    pub fn maddr(&self) -> Option<Host<'a>> {
        self.param(b"maddr").flatten().and_then(Host::parse)
    }

    /// The `ttl` parameter, if it is 0 to 255.
    pub fn ttl(&self) -> Option<u8> {
        match token::number(self.param(b"ttl")??) {
            token::Number::Fits(n) => u8::try_from(n).ok(),
            _ => None,
        }
    }

    /// The `method` parameter.
    pub fn method(&self) -> Option<&'a [u8]> {
        self.param(b"method").flatten()
    }

    /// The `user` parameter (`phone` or `ip`).
    pub fn user_param(&self) -> Option<&'a [u8]> {
        self.param(b"user").flatten()
    }

    /// The port, or the default of the scheme and transport (RFC 3261 §19.1.2).
    pub fn port_or_default(&self) -> u16 {
        let transport = self.transport().unwrap_or(Transport::Udp);
        let default = if self.secure { 5061 } else { transport.default_port() };
        self.port.unwrap_or(default)
    }

    /// The headers as pairs of name and value, both still escaped.
    pub fn header_pairs(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        pairs(self.headers.unwrap_or(&[]))
    }
}

/// A sip or sips URI with positions instead of references.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SipParts {
    secure: bool,
    /// Empty if there is none.
    user: Span,
    password: Option<Span>,
    host: HostParts,
    port: Option<u16>,
    params: Span,
    headers: Option<Span>,
}

impl SipParts {
    /// Reads what stands behind `sip:` (4 bytes) or `sips:` (5 bytes), which end at `start`.
    #[inline]
    pub(super) fn read(text: &[u8], start: usize) -> Result<SipParts, UriError> {
        let marks = Marks::find(text, start)?;
        let mut user = Span::default();
        let mut password = None;
        let mut at = start;
        if let Some(sign) = marks.sign {
            let info = slice(text, start, sign);
            let colon = info.iter().position(|&b| b == b':').unwrap_or(info.len());
            user = Span::new(start, start + colon);
            at = sign + 1;
            if colon < info.len() {
                password = Some(Span::new(start + colon + 1, sign));
            }
            // A second colon would let two parsers see two passwords.
            if colon == 0 || password.is_some_and(|p| p.of(text).contains(&b':')) {
                return Err(UriError::User);
            }
        }
        let (host, mut at) = host::read(text, at).ok_or(UriError::Host)?;
        let mut port = None;
        if text.get(at) == Some(&b':') {
            let digits = at + 1;
            at = digits;
            while matches!(text.get(at), Some(b'0'..=b'9')) {
                at += 1;
            }
            port = Some(token::port(slice(text, digits, at)).ok_or(UriError::Port)?);
        }
        let (params, headers) = match text.get(at) {
            None => (Span::new(at, at), None),
            Some(b';' | b'?') => {
                let end = marks.question.unwrap_or(text.len());
                scan_params(slice(text, at, end), marks.escaped)?;
                (Span::new(at, end), marks.question.map(|at| Span::new(at + 1, text.len())))
            }
            Some(b':') => return Err(UriError::Port),
            Some(_) if port.is_some() => return Err(UriError::Port),
            Some(_) => return Err(UriError::Host),
        };
        Ok(SipParts { secure: start == 5, user, password, host, port, params, headers })
    }

    // What the caller does not look at is not made.
    #[inline(always)]
    pub(super) fn view<'a>(&self, text: &'a [u8]) -> SipUri<'a> {
        SipUri {
            secure: self.secure,
            user: (self.user.start < self.user.end).then(|| self.user.of(text)),
            password: self.password.map(|span| span.of(text)),
            host: self.host.view(text),
            port: self.port,
            params: Params::new(self.params.of(text)),
            headers: self.headers.map(|span| span.of(text)),
        }
    }
}

/// Where the delimiters of a sip URI are.
struct Marks {
    /// The `@` behind the user.
    sign: Option<usize>,
    /// The `?` before the headers.
    question: Option<usize>,
    /// Whether there is a `%`.
    escaped: bool,
}

impl Marks {
    /// One pass over what follows the scheme; checks its characters and escapes.
    #[inline]
    fn find(text: &[u8], start: usize) -> Result<Marks, UriError> {
        let mut marks = Marks { sign: None, question: None, escaped: false };
        let mut at = start;
        loop {
            at = token::skip_plain_uri(text, at);
            match text.get(at) {
                None => return Ok(marks),
                // A second `@` would let two parsers see two hosts.
                Some(b'@') if marks.sign.is_some() => return Err(UriError::User),
                // Question marks before it belong to the user.
                Some(b'@') => marks = Marks { sign: Some(at), question: None, ..marks },
                Some(b'?') => marks.question = marks.question.or(Some(at)),
                Some(b'%') => match text.get(at + 1..at + 3) {
                    Some(&[high, low]) if token::hex(high).is_some() && token::hex(low).is_some() => {
                        marks.escaped = true;
                    }
                    _ => return Err(UriError::Character),
                },
                Some(_) => return Err(UriError::Character),
            }
            at += 1;
        }
    }
}

/// Splits `a=1&b=2`; a part without `=` has an empty value.
fn pairs(headers: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    headers.split(|&b| b == b'&').filter(|part| !part.is_empty()).map(|part| {
        let equals = memchr::memchr(b'=', part).unwrap_or(part.len());
        (slice(part, 0, equals), slice(part, equals + 1, part.len()))
    })
}

/// Checks `;name[=value]` parameters: none empty, no name twice (RFC 3261 §19.1.1), not too many. `escapes` false says
/// that there is no `%` in them.
pub(super) fn scan_params(text: &[u8], escapes: bool) -> Result<Params<'_>, UriError> {
    let mut seen = Seen::default();
    let mut escaped = false;
    let mut at = 0;
    while at < text.len() {
        if text.get(at) != Some(&b';') {
            return Err(UriError::Params);
        }
        let name = at + 1;
        let end = token::skip_param_name(text, name);
        if end == name || !seen.is_new(text, 0, slice(text, name, end)) {
            return Err(UriError::Params);
        }
        escaped |= escapes && slice(text, name, end).contains(&b'%');
        at = end;
        if text.get(at) == Some(&b'=') {
            at = token::skip_param_value(text, end + 1);
            if at == end + 1 {
                return Err(UriError::Params);
            }
        }
    }
    let params = Params::new(text);
    if escaped
        && params
            .into_iter()
            .any(|(a, _)| params.into_iter().filter(|(b, _)| compare::same_name(a, b)).count() > 1)
    {
        return Err(UriError::Params);
    }
    Ok(params)
}
