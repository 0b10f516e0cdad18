//! `name-addr` and `addr-spec`: the values of From, To, Contact, Route and their kin (RFC 3261 §20.10, §25.1).

use crate::params::{self, Comments, Params};
use crate::span::Span;
use crate::token::{self, Number, skip_lws, skip_quoted, slice};
use crate::uri::{Uri, UriError};
use crate::{HeaderError, HeaderName, Problem};
use core::ops::Range;

/// One value of a header that carries a URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameAddr<'a> {
    /// The display name as written, quotes and escapes included; `None` if there is none.
    pub display: Option<&'a [u8]>,
    /// The URI without its angle brackets. It has a scheme and no white space; more is not checked yet.
    pub uri: &'a [u8],
    /// The parameters behind the URI. Without angle brackets these are header parameters (RFC 3261 §20.10).
    pub params: Params<'a>,
    /// The whole value in the message (or in the parsed text).
    pub span: Range<u32>,
}

/// A preference, 0 to 1000 thousandths (RFC 3261 §25.1 `qvalue`). Higher is preferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Q(u16);

impl Q {
    /// The highest preference, 1.0.
    pub const MAX: Q = Q(1000);

    /// A preference of `thousandths`, `None` above 1000.
    pub const fn from_thousandths(thousandths: u16) -> Option<Q> {
        if thousandths <= 1000 { Some(Q(thousandths)) } else { None }
    }

    /// The preference in thousandths.
    pub const fn thousandths(self) -> u16 {
        self.0
    }

    /// Reads a `qvalue`: `0`, `0.ddd`, `1` or `1.000`; a bare `.5` is tolerated.
    pub fn parse(text: &[u8]) -> Option<Q> {
        let dot = text.iter().position(|&b| b == b'.').unwrap_or(text.len());
        let (whole, fraction) = (slice(text, 0, dot), slice(text, dot + 1, text.len()));
        let mut value = match whole {
            b"0" => 0,
            b"1" => 1000,
            b"" if !fraction.is_empty() => 0,
            _ => return None,
        };
        if fraction.len() > 3 {
            return None;
        }
        let mut weight = 100;
        for &b in fraction {
            if !b.is_ascii_digit() {
                return None;
            }
            value += u16::from(b - b'0') * weight;
            weight /= 10;
        }
        Q::from_thousandths(value)
    }
}

/// What a malformed `expires` parameter of a Contact counts as, in seconds (RFC 3261 §20.10).
const MALFORMED_EXPIRES_SECS: u32 = 3600;

impl<'a> NameAddr<'a> {
    /// Reads a text that is one whole value.
    ///
    /// # Errors
    /// `Malformed` if it is none, or if more follows. The error's name is `Other`, for a text has no header.
    pub fn parse(text: &'a [u8]) -> Result<NameAddr<'a>, HeaderError> {
        match read(text, 0) {
            Some((parts, next)) if next == text.len() => Ok(parts.view(text)),
            _ => Err(HeaderError { name: HeaderName::Other, problem: Problem::Malformed }),
        }
    }

    /// The URI, parsed.
    ///
    /// # Errors
    /// What is wrong with it (see [`Uri::parse`]).
    pub fn uri(&self) -> Result<Uri<'a>, UriError> {
        Uri::parse(self.uri)
    }

    /// The `tag` parameter.
    #[inline]
    pub fn tag(&self) -> Option<&'a [u8]> {
        self.params.value(b"tag")
    }

    /// The `q` parameter, `None` if absent or malformed.
    pub fn q(&self) -> Option<Q> {
        self.params.value(b"q").and_then(Q::parse)
    }

    /// The `expires` parameter in seconds; too large saturates, malformed counts as 3600 (RFC 3261 §20.10).
    pub fn expires(&self) -> Option<u32> {
        Some(match token::number(self.params.get(b"expires")?.unwrap_or(&[])) {
            Number::Fits(n) => n,
            Number::TooLarge => u32::MAX,
            Number::NotDigits => MALFORMED_EXPIRES_SECS,
        })
    }
}

/// A value with positions instead of references.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameAddrParts {
    /// Empty if there is no display name.
    display: Span,
    uri: Span,
    params: Span,
    /// The value of the tag, empty if it has none.
    pub(crate) tag: Option<Span>,
    pub(crate) value: Span,
}

impl NameAddrParts {
    // What the caller does not look at is not made.
    #[inline(always)]
    pub(crate) fn view<'a>(&self, bytes: &'a [u8]) -> NameAddr<'a> {
        let display = self.display.of(bytes);
        NameAddr {
            display: (!display.is_empty()).then_some(display),
            uri: self.uri.of(bytes),
            params: Params::new(self.params.of(bytes)),
            span: self.value.range(),
        }
    }
}

/// Reads the value at `at` of a header value that ends where `bytes` ends; gives it and the comma behind it
/// (or the end).
#[inline]
pub(crate) fn read(bytes: &[u8], at: usize) -> Option<(NameAddrParts, usize)> {
    let start = skip_lws(bytes, at);
    let mut display = Span::new(start, start);
    let open = if bytes.get(start) == Some(&b'"') {
        let end = skip_quoted(bytes, start)?;
        display = Span::new(start, end);
        let open = skip_lws(bytes, end);
        if bytes.get(open) != Some(&b'<') {
            return None;
        }
        Some(open)
    } else {
        let (end, open) = unquoted_display(bytes, start);
        display.end = end as u32;
        open
    };
    let (uri, params_at) = match open {
        Some(open) => {
            let end = token::skip_uri(bytes, open + 1);
            if bytes.get(end) != Some(&b'>') {
                return None;
            }
            (Span::new(open + 1, end), end + 1)
        }
        None => {
            // addr-spec: a comma, question mark or semicolon would have to stand in angle brackets, so a semicolon
            // starts header parameters, a comma the next value, and a question mark is a doubt (§20.10).
            display.end = display.start;
            let end = token::skip_param_value(bytes, start);
            if memchr::memchr(b'?', slice(bytes, start, end)).is_some() {
                return None;
            }
            (Span::new(start, end), end)
        }
    };
    if !has_scheme(uri.of(bytes)) {
        return None;
    }
    let mut tag = None;
    let scanned = params::scan(bytes, params_at, Comments::Refused, |name, found| {
        if name == b"tag" || name.eq_ignore_ascii_case(b"tag") {
            tag = found.value_span();
        }
    })?;
    let parts = NameAddrParts {
        display,
        uri,
        params: Span::new(params_at, scanned.end),
        tag,
        value: Span::new(start, scanned.end),
    };
    Some((parts, scanned.next))
}

/// The end of an unquoted display name at `start`, and the `<` behind it if there is one before the value ends.
///
/// The grammar has tokens only; what phones really write there (umlauts, slashes) is kept as long as it cannot be
/// taken for a delimiter.
#[inline]
fn unquoted_display(bytes: &[u8], start: usize) -> (usize, Option<usize>) {
    let mut end = start;
    for (i, &b) in bytes.iter().enumerate().skip(start) {
        match b {
            b'<' => return (end, Some(i)),
            b',' | b';' | b'"' | b'>' => break,
            _ if token::is_lws(b) => {}
            _ => end = i + 1,
        }
    }
    (end, None)
}

/// True if `uri` starts with `scheme:` and something follows (RFC 3261 §25.1 `absoluteURI`).
#[inline]
pub(crate) fn has_scheme(uri: &[u8]) -> bool {
    if matches!(uri, [b's' | b'S', b'i' | b'I', b'p' | b'P', b':', _, ..]) {
        return true;
    }
    let Some(colon) = uri.iter().position(|&b| b == b':') else { return false };
    let scheme = slice(uri, 0, colon);
    scheme.first().is_some_and(u8::is_ascii_alphabetic)
        && scheme.iter().all(|&b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
        && colon + 1 < uri.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &[u8]) -> NameAddr<'_> {
        NameAddr::parse(text).unwrap_or_else(|e| panic!("{e}: {:?}", core::str::from_utf8(text)))
    }

    #[test]
    fn all_three_forms_are_read() {
        let a = value(
            br#""J Rosenberg \\\""       <sip:jdrosen@example.com>
  ;
  tag = 98asjd8"#,
        );
        assert_eq!(a.display, Some(&br#""J Rosenberg \\\"""#[..]));
        assert_eq!(a.uri, b"sip:jdrosen@example.com");
        assert_eq!(a.tag(), Some(&b"98asjd8"[..]));

        let a = value(b"caller<sip:caller@example.com;x=1>;tag=323");
        assert_eq!((a.display, a.uri), (Some(&b"caller"[..]), &b"sip:caller@example.com;x=1"[..]));

        let a = value(b"sip:vivekg@chair-dnrc.example.com ;   tag    = 1918181833n");
        assert_eq!((a.display, a.uri), (None, &b"sip:vivekg@chair-dnrc.example.com"[..]));
        assert_eq!(a.tag(), Some(&b"1918181833n"[..]));
    }

    #[test]
    fn delimiters_inside_quotes_and_brackets_do_not_split() {
        let a = value(b"\"a, <b> ;c\" <sip:x@y?a=1,2>;p=\"q,r;s\"");
        assert_eq!(a.uri, b"sip:x@y?a=1,2");
        assert_eq!(a.params.get(b"p"), Some(Some(&b"\"q,r;s\""[..])));
    }

    #[test]
    fn control_bytes_survive_in_quoted_names() {
        let a = value(b"\"BEL:\\\x07 NUL:\\\x00 DEL:\\\x7F\" <sip:1@example.com>");
        assert_eq!(a.display, Some(&b"\"BEL:\\\x07 NUL:\\\x00 DEL:\\\x7F\""[..]));
    }

    #[test]
    fn without_brackets_parameters_belong_to_the_header() {
        let a = value(b"sip:+19725552222@gw1.example.net;unknownparam");
        assert_eq!(a.uri, b"sip:+19725552222@gw1.example.net");
        assert!(a.params.has(b"unknownparam"));
    }

    #[test]
    fn malformed_values_are_refused() {
        for text in [
            &b"\"Mr. J. User <sip:j.user@example.com>"[..],
            b"\"Watson, Thomas\" < sip:t.watson@example.org >",
            b"Bell, Alexander <sip:a.g.bell@example.com>;tag=43",
            b"sip:user@example.com?Route=%3Csip:sip.example.com%3E",
            b"\"Joe\" <sip:joe@example.org>;;;;",
            b"<sip:a@b",
            b"<>",
            b"<sip:>",
            b"joe",
            b"",
            b"*",
            b"<sip:a@b> x",
            b"\"x\" sip:a@b",
            b"<sip:a@b>;tag=1;tag=2",
            b"<sip:a@b>,<sip:c@d>",
        ] {
            assert!(NameAddr::parse(text).is_err(), "{:?}", core::str::from_utf8(text));
        }
    }

    #[test]
    fn preferences_are_thousandths() {
        assert_eq!(Q::parse(b"0.33").map(Q::thousandths), Some(330));
        assert_eq!(Q::parse(b"1.000"), Some(Q::MAX));
        assert_eq!(Q::parse(b"0"), Q::from_thousandths(0));
        assert_eq!(Q::parse(b".5"), Q::from_thousandths(500));
        for text in [&b"1.001"[..], b"2", b"0.3333", b"-0.1", b"", b".", b"0,5"] {
            assert_eq!(Q::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn expires_saturates_and_a_malformed_one_is_an_hour() {
        assert_eq!(value(b"<sip:a@b>;expires=60").expires(), Some(60));
        assert_eq!(value(b"<sip:a@b>;expires=280297596632815").expires(), Some(u32::MAX));
        assert_eq!(value(b"<sip:a@b>;expires=soon").expires(), Some(3600));
        assert_eq!(value(b"<sip:a@b>").expires(), None);
    }
}
