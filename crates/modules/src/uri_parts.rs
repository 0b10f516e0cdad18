//! A SIP URI cut into the pieces that scripts read and rewrite (RFC 3261 §19.1.1), and put together again.
//!
//! The pieces are the very bytes of the URI, escapes and brackets included: what a script does not change stays as the
//! peer wrote it.

use alloc::vec::Vec;

/// The pieces of a URI; concatenated with their delimiters they are the URI again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UriParts<'a> {
    /// The scheme without its colon.
    pub(crate) scheme: &'a [u8],
    /// The user, up to the password's colon. The number of a tel: URI.
    pub(crate) user: Option<&'a [u8]>,
    /// The password.
    pub(crate) password: Option<&'a [u8]>,
    /// The host, with the brackets of an IPv6 reference. Empty in a tel: URI.
    pub(crate) host: &'a [u8],
    /// The port's digits.
    pub(crate) port: Option<&'a [u8]>,
    /// The parameters, without the first semicolon; empty if there are none.
    pub(crate) params: &'a [u8],
    /// The headers, without the question mark.
    pub(crate) headers: Option<&'a [u8]>,
}

impl<'a> UriParts<'a> {
    /// Cuts `uri`; `None` for a scheme that has no such pieces and for what is no URI at all.
    pub(crate) fn parse(uri: &'a [u8]) -> Option<UriParts<'a>> {
        let (scheme, rest) = split_once(uri, b':')?;
        if scheme.eq_ignore_ascii_case(b"tel") {
            let (number, params) = split_once(rest, b';').unwrap_or((rest, &[]));
            return Some(UriParts { scheme, user: Some(number), params, ..UriParts::default() });
        }
        if !scheme.eq_ignore_ascii_case(b"sip") && !scheme.eq_ignore_ascii_case(b"sips") {
            return None;
        }
        let (userinfo, rest) = match split_once(rest, b'@') {
            Some((userinfo, rest)) => (Some(userinfo), rest),
            None => (None, rest),
        };
        let (user, password) = match userinfo {
            None => (None, None),
            Some(userinfo) => match split_once(userinfo, b':') {
                Some((user, password)) => (Some(user), Some(password)),
                None => (Some(userinfo), None),
            },
        };
        let (rest, headers) = match split_once(rest, b'?') {
            Some((rest, headers)) => (rest, Some(headers)),
            None => (rest, None),
        };
        let (hostport, params) = split_once(rest, b';').unwrap_or((rest, &[]));
        let (host, port) = split_hostport(hostport);
        if host.is_empty() {
            return None;
        }
        Some(UriParts { scheme, user, password, host, port, params, headers })
    }

    /// The user as tables have it: without escapes (RFC 3261 §19.1.4: a character and its escape are the same).
    pub(crate) fn plain_user(&self) -> Option<Vec<u8>> {
        let mut plain = Vec::new();
        sip::uri::push_unescaped(self.user?, &mut plain);
        Some(plain)
    }

    /// Whether the scheme is `tel`.
    pub(crate) fn is_tel(&self) -> bool {
        self.scheme.eq_ignore_ascii_case(b"tel")
    }

    /// The value of the parameter `name`: `None` if it is not there, an empty value if it has none.
    pub(crate) fn param(&self, name: &[u8]) -> Option<&'a [u8]> {
        self.params.split(|&byte| byte == b';').find_map(|param| {
            let (key, value) = split_once(param, b'=').unwrap_or((param, &[]));
            key.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    /// The port as a number; the scheme's default where there is none, 0 where it is out of range.
    pub(crate) fn port_or_default(&self) -> u16 {
        match self.port {
            Some(digits) => decimal(digits).and_then(|port| u16::try_from(port).ok()).unwrap_or(0),
            None if self.scheme.eq_ignore_ascii_case(b"sips") => 5061,
            None => 5060,
        }
    }

    /// Appends the URI to `out`.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.scheme);
        out.push(b':');
        if let Some(user) = self.user {
            out.extend_from_slice(user);
            if let Some(password) = self.password {
                out.push(b':');
                out.extend_from_slice(password);
            }
            if !self.is_tel() {
                out.push(b'@');
            }
        }
        out.extend_from_slice(self.host);
        if let Some(port) = self.port {
            out.push(b':');
            out.extend_from_slice(port);
        }
        if !self.params.is_empty() {
            out.push(b';');
            out.extend_from_slice(self.params);
        }
        if let Some(headers) = self.headers {
            out.push(b'?');
            out.extend_from_slice(headers);
        }
    }
}

/// Cuts `host[:port]`; an IPv6 reference keeps its colons.
pub(crate) fn split_hostport(hostport: &[u8]) -> (&[u8], Option<&[u8]>) {
    let after_brackets = match hostport.first() {
        Some(b'[') => hostport.iter().position(|&byte| byte == b']').map_or(hostport.len(), |end| end + 1),
        _ => 0,
    };
    let (brackets, rest) = hostport.split_at(after_brackets.min(hostport.len()));
    match rest.iter().position(|&byte| byte == b':') {
        Some(colon) => {
            let (host, port) = hostport.split_at(brackets.len() + colon);
            (host, port.get(1..))
        }
        None => (hostport, None),
    }
}

/// Cuts at the first `delimiter`, which belongs to neither piece.
pub(crate) fn split_once(bytes: &[u8], delimiter: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|&byte| byte == delimiter)?;
    let (head, tail) = bytes.split_at(at);
    Some((head, tail.get(1..).unwrap_or(&[])))
}

/// The number that `digits` are, `None` if they are not all digits or too many.
pub(crate) fn decimal(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u32, |number, &digit| {
        if !digit.is_ascii_digit() {
            return None;
        }
        number.checked_mul(10)?.checked_add(u32::from(digit - b'0'))
    })
}

/// The whole number at the start of `text`, white space and sign allowed, as the language converts strings.
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    let text = text.trim_ascii();
    let (negative, digits) = match text.split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, text),
    };
    let number = i64::from(decimal(digits)?);
    Some(if negative { -number } else { number })
}

/// Appends a number in decimal.
pub(crate) fn push_number(out: &mut Vec<u8>, number: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut rest = number;
    loop {
        at -= 1;
        if let Some(digit) = digits.get_mut(at) {
            *digit = b'0' + (rest % 10) as u8;
        }
        rest /= 10;
        if rest == 0 || at == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(at..).unwrap_or(&[]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_is_found_and_the_whole_comes_together_again() {
        let uri = b"sip:+1-212:secret@[2001:db8::1]:5070;transport=udp;lr?Subject=x";
        let parts = UriParts::parse(uri).unwrap();
        assert_eq!(parts.user, Some(&b"+1-212"[..]));
        assert_eq!(parts.password, Some(&b"secret"[..]));
        assert_eq!(parts.host, b"[2001:db8::1]");
        assert_eq!(parts.port, Some(&b"5070"[..]));
        assert_eq!(parts.param(b"Transport"), Some(&b"udp"[..]));
        assert_eq!(parts.param(b"lr"), Some(&b""[..]));
        assert_eq!(parts.param(b"maddr"), None);
        let mut out = Vec::new();
        parts.write(&mut out);
        assert_eq!(out, uri);
    }

    #[test]
    fn a_tel_uri_has_a_number_and_no_host() {
        let parts = UriParts::parse(b"tel:+1-212-555;phone-context=x").unwrap();
        assert_eq!(parts.user, Some(&b"+1-212-555"[..]));
        assert!(parts.host.is_empty());
        let mut out = Vec::new();
        parts.write(&mut out);
        assert_eq!(out, b"tel:+1-212-555;phone-context=x");
    }

    #[test]
    fn what_is_no_sip_uri_is_not_cut() {
        for bad in [&b"nonsense"[..], b"http://example.com", b"sip:", b"sip:alice@", b""] {
            assert_eq!(UriParts::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn numbers_are_read_and_written() {
        assert_eq!(decimal(b"4294967296"), None);
        assert_eq!(decimal(b"x"), None);
        assert_eq!(integer(b" -7"), Some(-7));
        let mut out = Vec::new();
        push_number(&mut out, 0);
        push_number(&mut out, u64::MAX);
        assert_eq!(out, b"018446744073709551615");
    }
}
