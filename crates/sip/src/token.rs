//! Bytes, tokens, white space, quoted strings and numbers: the smallest productions of RFC 3261 §25.1.

/// `token` of RFC 3261 §25.1.
const TOKEN: u8 = 1;
/// Linear white space; CR and LF occur inside a header value only as part of a fold.
const LWS: u8 = 2;
/// May stand in a parameter's name (wider than `token`, so that bytes we do not understand survive).
const NAME: u8 = 4;
/// May stand in a parameter's value outside quotes (`NAME` and `=`).
const VALUE: u8 = 8;
/// May stand in a URI: everything but controls, space, and the delimiters `<`, `>`, `"`.
const URI: u8 = 16;
/// May stand in a host name (`_` is tolerated).
const HOST: u8 = 32;
/// `URI` without what decides how a sip URI is read: `@`, `?`, `%`.
const PLAIN_URI: u8 = 64;

static CLASS: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0u8; 256];
    let mut i = 0;
    while i < 256 {
        let b = i as u8;
        let mut class = 0;
        let alnum = b.is_ascii_alphanumeric();
        if alnum || matches!(b, b'-' | b'.' | b'!' | b'%' | b'*' | b'_' | b'+' | b'`' | b'\'' | b'~') {
            class |= TOKEN;
        }
        if matches!(b, b' ' | b'\t' | b'\r' | b'\n') {
            class |= LWS;
        }
        let control = b < 0x20 || b == 0x7f;
        if !control && !matches!(b, b' ' | b'"' | b'<' | b'>') {
            class |= URI;
            if !matches!(b, b';' | b',') {
                class |= VALUE;
                if b != b'=' {
                    class |= NAME;
                }
            }
        }
        if alnum || matches!(b, b'-' | b'.' | b'_') {
            class |= HOST;
        }
        if class & URI != 0 && !matches!(b, b'@' | b'?' | b'%') {
            class |= PLAIN_URI;
        }
        table[i] = class;
        i += 1;
    }
    table
}

#[inline]
fn is(b: u8, class: u8) -> bool {
    entry(b) & class != 0
}

/// True if `bytes` is a `token`: one or more of its bytes.
#[inline]
pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&b| is(b, TOKEN))
}

/// True if every byte may stand in a URI.
#[inline]
pub(crate) fn is_uri_text(bytes: &[u8]) -> bool {
    bytes.iter().all(|&b| is(b, URI))
}

/// Like [`skip_uri`], but it stops at `@`, `?` and `%` too.
#[inline]
pub(crate) fn skip_plain_uri(bytes: &[u8], at: usize) -> usize {
    skip_class(bytes, at, PLAIN_URI)
}

/// True for space, tab and the CR LF of a fold.
#[inline]
pub(crate) fn is_lws(b: u8) -> bool {
    is(b, LWS)
}

/// The index of the first byte at or after `at` that is not linear white space.
#[inline]
pub(crate) fn skip_lws(bytes: &[u8], at: usize) -> usize {
    let mut at = at;
    while bytes.get(at).is_some_and(|&b| is(b, LWS)) {
        at += 1;
    }
    at
}

/// The index behind the parameter-name bytes at `at`.
#[inline]
pub(crate) fn skip_param_name(bytes: &[u8], at: usize) -> usize {
    skip_class(bytes, at, NAME)
}

/// The index behind the unquoted parameter-value bytes at `at`.
#[inline]
pub(crate) fn skip_param_value(bytes: &[u8], at: usize) -> usize {
    skip_class(bytes, at, VALUE)
}

/// The index behind the bytes at `at` that may stand in a URI.
#[inline]
pub(crate) fn skip_uri(bytes: &[u8], at: usize) -> usize {
    skip_class(bytes, at, URI)
}

/// The index behind the token at `at`.
#[inline]
pub(crate) fn skip_token(bytes: &[u8], at: usize) -> usize {
    skip_class(bytes, at, TOKEN)
}

/// The index behind the host-name bytes at `at`.
#[inline]
pub(crate) fn skip_host(bytes: &[u8], at: usize) -> usize {
    skip_class(bytes, at, HOST)
}

#[inline]
fn skip_class(bytes: &[u8], at: usize, class: u8) -> usize {
    let rest = bytes.get(at..).unwrap_or(&[]);
    let mut skipped = 0;
    // Four bytes at a time, then the last ones.
    let (chunks, _) = rest.as_chunks::<4>();
    for [a, b, c, d] in chunks {
        if entry(*a) & entry(*b) & entry(*c) & entry(*d) & class == 0 {
            break;
        }
        skipped += 4;
    }
    while rest.get(skipped).is_some_and(|&b| is(b, class)) {
        skipped += 1;
    }
    at + skipped
}

#[inline]
fn entry(b: u8) -> u8 {
    // A u8 always indexes a table of 256.
    CLASS[usize::from(b)]
}

/// The index behind the quoted string that starts at `at` (RFC 3261 §25.1), or `None` if it never ends.
#[inline]
pub(crate) fn skip_quoted(bytes: &[u8], at: usize) -> Option<usize> {
    if bytes.get(at) != Some(&b'"') {
        return None;
    }
    let mut at = at + 1;
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            // quoted-pair: whatever follows belongs to it.
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// The index behind the comment that starts at `at`, nested ones included, or `None` if it never ends.
pub(crate) fn skip_comment(bytes: &[u8], at: usize) -> Option<usize> {
    let mut at = at;
    let mut depth = 0usize;
    loop {
        match bytes.get(at)? {
            b'(' => depth += 1,
            b')' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            b'\\' => at += 1,
            _ => {}
        }
        at += 1;
    }
}

/// `bytes` without linear white space at either end.
#[inline]
pub(crate) fn trim(bytes: &[u8]) -> &[u8] {
    let mut bytes = bytes;
    while let [first, rest @ ..] = bytes {
        if !is_lws(*first) {
            break;
        }
        bytes = rest;
    }
    while let [rest @ .., last] = bytes {
        if !is_lws(*last) {
            break;
        }
        bytes = rest;
    }
    bytes
}

/// The part `start..end` of `bytes`, empty if it is not inside.
#[inline]
pub(crate) fn slice(bytes: &[u8], start: usize, end: usize) -> &[u8] {
    bytes.get(start..end).unwrap_or(&[])
}

/// Offset of the first `byte` in a little-endian word of eight bytes.
#[inline]
pub(crate) fn find_in_word(word: u64, byte: u8) -> Option<usize> {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let x = word ^ (LOW * byte as u64);
    let hit = x.wrapping_sub(LOW) & !x & HIGH;
    (hit != 0).then(|| (hit.trailing_zeros() / 8) as usize)
}

/// An unsigned number made of digits only, or why it is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    /// Fits into 32 bits.
    Fits(u32),
    /// Digits only, but larger than 2^32 - 1.
    TooLarge,
    /// Empty, or something else than digits.
    NotDigits,
}

/// Reads `1*DIGIT`; leading zeros mean nothing (RFC 4475 §3.1.1.1 has `Max-Forwards: 0068`).
#[inline]
pub(crate) fn number(digits: &[u8]) -> Number {
    if digits.is_empty() {
        return Number::NotDigits;
    }
    let mut value: u32 = 0;
    let mut too_large = false;
    for &b in digits {
        if !b.is_ascii_digit() {
            return Number::NotDigits;
        }
        match value.checked_mul(10).and_then(|v| v.checked_add(u32::from(b - b'0'))) {
            Some(v) => value = v,
            None => too_large = true,
        }
    }
    if too_large { Number::TooLarge } else { Number::Fits(value) }
}

/// A port: digits, 1 to 65535. Zero addresses nothing, so it is refused like a larger number.
#[inline]
pub(crate) fn port(digits: &[u8]) -> Option<u16> {
    match number(digits) {
        Number::Fits(n) => u16::try_from(n).ok().filter(|&p| p != 0),
        _ => None,
    }
}

/// The value of one hexadecimal digit.
#[inline]
pub(crate) fn hex(b: u8) -> Option<u8> {
    match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        b'A'..=b'F' => Some(b - b'A' + 10),
        _ => None,
    }
}

/// Appends `n` in decimal.
pub fn push_number(out: &mut alloc::vec::Vec<u8>, n: u32) {
    let mut digits = [0u8; 10];
    let mut n = n;
    let mut used = 0;
    for slot in digits.iter_mut().rev() {
        *slot = b'0' + (n % 10) as u8;
        used += 1;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(digits.len() - used..).unwrap_or(&[]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_digits_only_and_never_wrap() {
        assert_eq!(number(b"0068"), Number::Fits(68));
        assert_eq!(number(b"4294967295"), Number::Fits(u32::MAX));
        assert_eq!(number(b"4294967296"), Number::TooLarge);
        assert_eq!(number(b"36893488147419103232"), Number::TooLarge);
        assert_eq!(number(b"-1"), Number::NotDigits);
        assert_eq!(number(b"+1"), Number::NotDigits);
        assert_eq!(number(b""), Number::NotDigits);
    }

    #[test]
    fn ports_are_one_to_65535() {
        assert_eq!(port(b"5060"), Some(5060));
        assert_eq!(port(b"05060"), Some(5060));
        assert_eq!(port(b"0"), None);
        assert_eq!(port(b"65536"), None);
        assert_eq!(port(b""), None);
    }

    #[test]
    fn quoted_strings_end_at_the_unescaped_quote() {
        assert_eq!(skip_quoted(br#""a\"b" c"#, 0), Some(6));
        assert_eq!(skip_quoted(br#""a\\" c"#, 0), Some(5));
        assert_eq!(skip_quoted(br#""open"#, 0), None);
        assert_eq!(skip_quoted(br#""open\"#, 0), None);
    }

    #[test]
    fn comments_nest() {
        assert_eq!(skip_comment(b"(a (b) \\) c) d", 0), Some(12));
        assert_eq!(skip_comment(b"(a (b)", 0), None);
    }

    #[test]
    fn numbers_are_written_in_decimal() {
        let mut out = alloc::vec::Vec::new();
        for n in [0, 7, 70, 4_294_967_295] {
            push_number(&mut out, n);
            out.push(b' ');
        }
        assert_eq!(out, b"0 7 70 4294967295 ");
    }
}
