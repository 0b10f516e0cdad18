//! Parameters of header values and URIs: `;name`, `;name=value`, `;name="quoted"` (RFC 3261 §7.3.1, §25.1).

use crate::span::Span;
use crate::token::{
    self, skip_comment, skip_lws, skip_param_name, skip_param_value, skip_quoted, slice, trim,
};

/// Most parameters of one value. A value with more is malformed; it bounds the search for repeated names.
pub const MAX_PARAMS: usize = 64;

/// The parameters of one value, in their order: an iterator of `(name, value)`.
///
/// A value is as written, quotes and escapes included; [`Params::get`] finds one by its case-insensitive name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Params<'a> {
    rest: &'a [u8],
}

impl<'a> Params<'a> {
    /// Views `text`, which starts with `;` (or is empty) and has been scanned.
    pub(crate) fn new(text: &'a [u8]) -> Params<'a> {
        Params { rest: text }
    }

    /// The text of all (remaining) parameters, from the first `;` on; empty if there are none.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.rest
    }

    /// The parameter `name` (any case): `None` if absent, `Some(None)` if it has no value.
    #[inline]
    pub fn get(&self, name: &[u8]) -> Option<Option<&'a [u8]>> {
        let at = self.locate(name)?;
        Some(at.value.map(|(start, end)| slice(self.rest, start, end)))
    }

    /// The value of parameter `name` (any case), if it is there and has one.
    #[inline]
    pub fn value(&self, name: &[u8]) -> Option<&'a [u8]> {
        self.get(name).flatten()
    }

    #[inline]
    fn locate(self, name: &[u8]) -> Option<At> {
        let mut from = 0;
        loop {
            let at = step(self.rest, from)?;
            if slice(self.rest, at.name, at.name_end).eq_ignore_ascii_case(name) {
                return Some(at);
            }
            from = at.next;
        }
    }

    /// True if the parameter `name` (any case) is there, with or without a value.
    pub fn has(&self, name: &[u8]) -> bool {
        self.get(name).is_some()
    }
}

impl<'a> Iterator for Params<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let text = self.rest;
        let Some(at) = step(text, 0) else {
            self.rest = &[];
            return None;
        };
        self.rest = text.get(at.next..).unwrap_or(&[]);
        Some((slice(text, at.name, at.name_end), at.value.map(|(start, end)| slice(text, start, end))))
    }
}

/// Where one parameter is.
struct At {
    name: usize,
    name_end: usize,
    value: Option<(usize, usize)>,
    /// Behind the parameter.
    next: usize,
}

/// The parameter whose semicolon is the next thing at `from`.
#[inline]
fn step(text: &[u8], from: usize) -> Option<At> {
    let mut semicolon = skip_lws(text, from);
    // Only a Via of RFC 2543 has comments, and `scan` has let them pass: what follows one counts all the same.
    while text.get(semicolon) == Some(&b'(') {
        semicolon = skip_lws(text, skip_comment(text, semicolon)?);
    }
    if text.get(semicolon) != Some(&b';') {
        return None;
    }
    let name = skip_lws(text, semicolon + 1);
    let name_end = skip_param_name(text, name);
    let equals = skip_lws(text, name_end);
    if text.get(equals) != Some(&b'=') {
        return Some(At { name, name_end, value: None, next: equals });
    }
    let start = skip_lws(text, equals + 1);
    let end = skip_quoted(text, start).unwrap_or_else(|| skip_param_value(text, start));
    Some(At { name, name_end, value: Some((start, end)), next: end })
}

/// Where a parameter that was found while scanning is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found {
    /// Behind the name; zero if the parameter is absent.
    name_end: u32,
    /// Empty at the name's end if there is no value.
    value: Span,
}

impl Found {
    /// The value; `None` if the parameter is absent or has none.
    #[inline]
    pub(crate) fn value(self, bytes: &[u8]) -> Option<&[u8]> {
        (self.value.start < self.value.end).then(|| self.value.of(bytes))
    }

    /// Like [`Params::get`].
    #[inline]
    pub(crate) fn get(self, bytes: &[u8]) -> Option<Option<&[u8]>> {
        (self.name_end != 0).then(|| self.value(bytes))
    }

    /// Where the value is, empty if there is none; `None` if the parameter is absent.
    #[inline]
    pub(crate) fn value_span(self) -> Option<Span> {
        (self.name_end != 0).then_some(self.value)
    }

    /// What stands behind the name: `=value`, or nothing. `None` if the parameter is absent.
    pub(crate) fn behind_name(self) -> Option<Span> {
        (self.name_end != 0).then_some(Span { start: self.name_end, end: self.value.end })
    }
}

/// Where the parameters of a header value end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scanned {
    /// Behind the last parameter, white space and comments left out.
    pub(crate) end: usize,
    /// The comma that ends the value, or the end of the bytes.
    pub(crate) next: usize,
}

/// Whether comments may follow the parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comments {
    /// `(...)` is skipped; only the Via of RFC 2543 §6.40 has them.
    Allowed,
    /// `(...)` is malformed.
    Refused,
}

/// Checks the parameters that start at `start` of a header value (white space, then `;`, a comma or the end), and hands
/// each name to `found` with where it is.
///
/// `None` if one is empty, has no name, has an empty value, is repeated, or something else follows. A name
/// that occurs twice has two meanings, one for us and maybe another for the next hop, so it is refused.
#[inline]
pub(crate) fn scan(
    bytes: &[u8],
    start: usize,
    comments: Comments,
    mut found: impl FnMut(&[u8], Found),
) -> Option<Scanned> {
    let mut at = skip_lws(bytes, start);
    let mut end = start;
    let mut seen = Seen::default();
    loop {
        match bytes.get(at) {
            None | Some(b',') => return Some(Scanned { end, next: at }),
            Some(b';') => {}
            Some(b'(') if comments == Comments::Allowed => {
                at = skip_lws(bytes, skip_comment(bytes, at)?);
                continue;
            }
            Some(_) => return None,
        }
        let name = skip_lws(bytes, at + 1);
        end = skip_param_name(bytes, name);
        if end == name || !seen.is_new(bytes, start, slice(bytes, name, end)) {
            return None;
        }
        let name_end = end;
        let mut value = end;
        at = skip_lws(bytes, end);
        if bytes.get(at) == Some(&b'=') {
            value = skip_lws(bytes, at + 1);
            end = if bytes.get(value) == Some(&b'"') {
                skip_quoted(bytes, value)?
            } else {
                skip_param_value(bytes, value)
            };
            if end == value {
                return None;
            }
            at = skip_lws(bytes, end);
        }
        let place = Found { name_end: name_end as u32, value: Span::new(value, end) };
        found(slice(bytes, name, name_end), place);
    }
}

/// Finds repeated names without a table: a 64-bit set of name hashes, and a second look only when two collide.
#[derive(Default)]
pub(crate) struct Seen {
    hashes: u64,
    count: usize,
}

impl Seen {
    /// True if `name` has not occurred among the parameters counted so far, which start at `start`.
    #[inline]
    pub(crate) fn is_new(&mut self, bytes: &[u8], start: usize, name: &[u8]) -> bool {
        let first = name.first().map_or(0, |b| usize::from(b | 0x20));
        let bit = 1u64 << ((first.wrapping_mul(7) + name.len().wrapping_mul(13)) % 64);
        let collides = self.hashes & bit != 0;
        self.hashes |= bit;
        let before = self.count;
        self.count += 1;
        if self.count > MAX_PARAMS {
            return false;
        }
        !collides || !repeated(bytes.get(start..).unwrap_or(&[]), before, name)
    }
}

#[cold]
fn repeated(text: &[u8], before: usize, name: &[u8]) -> bool {
    Params::new(text).take(before).any(|(n, _)| n.eq_ignore_ascii_case(name))
}

/// The values of a plain comma-separated list of tokens, empty ones left out.
pub(crate) fn split_tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&b| b == b',').map(trim).filter(|v| !v.is_empty())
}

/// The text of a quoted string without its quotes, still escaped; other text unchanged.
pub fn unquote(text: &[u8]) -> &[u8] {
    match text {
        [b'"', inner @ .., b'"'] => inner,
        _ => text,
    }
}

/// True if `text` is a token (RFC 3261 §25.1).
pub fn is_token(text: &[u8]) -> bool {
    token::is_token(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn ends(text: &[u8]) -> Option<(usize, usize)> {
        scan(text, 0, Comments::Refused, |_, _| {}).map(|s| (s.end, s.next))
    }

    #[test]
    fn parameters_may_have_white_space_and_folds_around_every_part() {
        let text = b" ;\r\n  tag    = 98asjd8 ; lr ;q= \"a;,b\\\"\" , next";
        let scanned = scan(text, 0, Comments::Refused, |_, _| {}).unwrap();
        assert_eq!(text.get(scanned.next), Some(&b','));
        let params = Params::new(text.get(..scanned.end).unwrap());
        assert_eq!(params.get(b"TAG"), Some(Some(&b"98asjd8"[..])));
        assert_eq!(params.get(b"lr"), Some(None));
        assert_eq!(params.get(b"q"), Some(Some(&b"\"a;,b\\\"\""[..])));
        assert_eq!(params.get(b"x"), None);
        assert_eq!(params.collect::<Vec<_>>().len(), 3);
    }

    #[test]
    fn empty_and_dangling_parameters_are_refused() {
        for text in [&b";;"[..], b";", b";a=", b";=a", b";a b", b";a=b c", b";a=\"open", b"a", b";a=<b>"] {
            assert_eq!(ends(text), None, "{text:?}");
        }
    }

    #[test]
    fn repeated_names_are_refused() {
        assert_eq!(ends(b";tag=a;TAG=b"), None);
        assert!(ends(b";tag=a;gat=b;tbg=c").is_some());
    }

    #[test]
    fn too_many_parameters_are_refused() {
        let mut text = Vec::new();
        for i in 0..=MAX_PARAMS {
            text.extend_from_slice(alloc::format!(";p{i}").as_bytes());
        }
        assert_eq!(ends(&text), None);
    }

    #[test]
    fn a_comment_may_end_a_via_of_rfc_2543() {
        let text = b";ttl=16 (a, comment)";
        let scanned = scan(text, 0, Comments::Allowed, |_, _| {}).unwrap();
        assert_eq!((scanned.end, scanned.next), (7, text.len()));
        assert!(scan(text, 0, Comments::Refused, |_, _| {}).is_none());
    }

    #[test]
    fn a_range_of_garbage_never_loops() {
        for b in 0..=255u8 {
            assert!(Params::new(&[b';', b, b';', b, b'=']).count() <= 5);
        }
    }
}
