//! Substitutions, `/expression/replacement/flags`, searches in text, and text on its way into a message.
//!
//! # What a peer wrote ends no line of ours
//!
//! Line ends come into a script from its own literals and from messages. Of the latter, header values are read unfolded
//! (RFC 3261 §7.3.1), so that only whole pieces of a message hold any: the body, the header section, the message itself.
//! Once a run has read such a piece ([`Prepared::lines_read`](crate::run::Prepared)), the header lines that it computes
//! are taken one per call, as nobody can say any more which line ends are the script's own. A NUL becomes a space.

use alloc::boxed::Box;
use alloc::vec::Vec;
use route::{Case, Regex, Sink};

/// Replacements that one `g` substitution makes in one text; past it the rest stays as it is.
const REPLACEMENTS_MAX: usize = 256;

/// A substitution: what to look for and what to put in its place.
#[derive(Debug)]
pub(crate) struct Substitution {
    regex: Regex,
    pieces: Vec<Piece>,
    all: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Bytes(Box<[u8]>),
    Group(usize),
}

impl Substitution {
    /// Reads `/expression/replacement/flags`; any byte may stand for the slash, and a backslash before it makes it an
    /// ordinary one. Flags: `i` ignores case, `g` replaces all. `\0` is the match, `\1` to `\9` are its groups.
    ///
    /// # Errors
    ///
    /// What is wrong, in one line.
    pub(crate) fn parse(text: &[u8]) -> Result<Substitution, &'static str> {
        let (&delimiter, rest) =
            text.split_first().ok_or("a substitution is /expression/replacement/flags")?;
        let (expression, rest) = cut(rest, delimiter)
            .ok_or("a substitution needs three delimiters: /expression/replacement/flags")?;
        let (replacement, flags) = cut(rest, delimiter)
            .ok_or("a substitution needs three delimiters: /expression/replacement/flags")?;
        let (mut all, mut case) = (false, Case::Sensitive);
        for flag in flags {
            match flag {
                b'g' => all = true,
                b'i' => case = Case::Insensitive,
                // A dot matches the end of a line as well, always.
                b's' => {}
                _ => return Err("the flags of a substitution are i, g and s"),
            }
        }
        let regex =
            Regex::with_groups(&expression, case).map_err(|_| "the expression of a substitution is none")?;
        Ok(Substitution { regex, pieces: pieces(&replacement)?, all })
    }

    /// Appends `text` with its matches replaced to `out`; how many there were.
    pub(crate) fn apply(&self, text: &[u8], out: &mut Vec<u8>) -> usize {
        let mut done = 0;
        let mut from = 0;
        while done < REPLACEMENTS_MAX {
            let Some(captures) = self.regex.captures(text, from) else { break };
            let Some(whole) = captures.get_group(0).map(|group| group.range()) else { break };
            out.extend_from_slice(text.get(from..whole.start).unwrap_or(&[]));
            for piece in &self.pieces {
                match piece {
                    Piece::Bytes(bytes) => out.extend_from_slice(bytes),
                    Piece::Group(number) => {
                        let range = captures.get_group(*number).map(|group| group.range());
                        out.extend_from_slice(range.and_then(|range| text.get(range)).unwrap_or(&[]));
                    }
                }
            }
            done += 1;
            from = whole.end;
            if whole.is_empty() {
                out.extend_from_slice(text.get(from..from + 1).unwrap_or(&[]));
                from += 1;
            }
            if !self.all || from > text.len() {
                break;
            }
        }
        out.extend_from_slice(text.get(from..).unwrap_or(&[]));
        done
    }
}

/// Cuts at the next delimiter that has no backslash before it; that backslash goes.
fn cut(text: &[u8], delimiter: u8) -> Option<(Vec<u8>, &[u8])> {
    let mut piece = Vec::new();
    let mut at = 0;
    loop {
        match text.get(at..)? {
            [b'\\', next, ..] if *next == delimiter => {
                piece.push(delimiter);
                at += 2;
            }
            [b'\\', next, ..] => {
                piece.extend_from_slice(&[b'\\', *next]);
                at += 2;
            }
            [byte, rest @ ..] if *byte == delimiter => return Some((piece, rest)),
            [byte, ..] => {
                piece.push(*byte);
                at += 1;
            }
            [] => return None,
        }
    }
}

fn pieces(replacement: &[u8]) -> Result<Vec<Piece>, &'static str> {
    let mut pieces = Vec::new();
    let mut bytes = Vec::new();
    let mut rest = replacement;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte == b'$' && matches!(tail.first(), Some(next) if next.is_ascii_alphabetic() || *next == b'(') {
            return Err("variables in the replacement of a substitution are not supported");
        }
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let Some((&escaped, tail)) = rest.split_first() else {
            return Err("a replacement ends in a backslash");
        };
        rest = tail;
        match escaped {
            b'0'..=b'9' => {
                if !bytes.is_empty() {
                    pieces.push(Piece::Bytes(core::mem::take(&mut bytes).into_boxed_slice()));
                }
                pieces.push(Piece::Group(usize::from(escaped - b'0')));
            }
            b'n' => bytes.push(b'\n'),
            b'r' => bytes.push(b'\r'),
            b't' => bytes.push(b'\t'),
            b'u' => return Err("`\\u` in the replacement of a substitution is not supported"),
            other => bytes.push(other),
        }
    }
    if !bytes.is_empty() {
        pieces.push(Piece::Bytes(bytes.into_boxed_slice()));
    }
    Ok(pieces)
}

/// Whether a text can stand in one line of a message: no CR, LF or NUL.
pub(crate) fn is_line(text: &[u8]) -> bool {
    !text.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0))
}

/// The pieces of a folded header value between which a fold stands for one space (RFC 3261 §7.3.1).
fn unfolded(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| matches!(byte, b'\r' | b'\n')).map(<[u8]>::trim_ascii).filter(|piece| !piece.is_empty())
}

/// Appends a header's value to what a script reads, unfolded.
pub(crate) fn put_unfolded(out: &mut Sink<'_>, value: &[u8]) {
    if !value.contains(&b'\n') && !value.contains(&b'\r') {
        return out.push(value);
    }
    out.push(b"");
    for (place, piece) in unfolded(value).enumerate() {
        out.push(if place > 0 { b" " } else { b"" });
        out.push(piece);
    }
}

/// Runs `with` with a header's value, unfolded.
pub(crate) fn with_unfolded<T>(value: &[u8], with: impl FnOnce(&[u8]) -> T) -> T {
    if !value.contains(&b'\n') && !value.contains(&b'\r') {
        return with(value);
    }
    // Folds are rare: the copy may be made anew each time.
    let mut copy = Vec::with_capacity(value.len());
    push_unfolded(value, &mut copy);
    with(&copy)
}

/// Appends a header's value, unfolded.
pub(crate) fn push_unfolded(value: &[u8], out: &mut Vec<u8>) {
    for (place, piece) in unfolded(value).enumerate() {
        out.extend_from_slice(if place > 0 { b" " } else { b"" });
        out.extend_from_slice(piece);
    }
}

/// Appends a text with its control characters turned into spaces, for a place within a line.
pub(crate) fn push_line(text: &[u8], out: &mut Vec<u8>) {
    out.extend(text.iter().map(|byte| if byte.is_ascii_control() { b' ' } else { *byte }));
}

/// Whether `needle` is somewhere in `text`.
pub(crate) fn contains(text: &[u8], needle: &[u8]) -> bool {
    // Most windows differ in their first byte, which costs no call.
    needle.is_empty()
        || text.windows(needle.len()).any(|window| window.first() == needle.first() && window == needle)
}

/// The same, letters in either case.
pub(crate) fn contains_ignoring_case(text: &[u8], needle: &[u8]) -> bool {
    needle.is_empty() || text.windows(needle.len()).any(|window| window.eq_ignore_ascii_case(needle))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn substituted(expression: &str, text: &str) -> Option<alloc::string::String> {
        let made = Substitution::parse(expression.as_bytes()).unwrap();
        let mut out = Vec::new();
        (made.apply(text.as_bytes(), &mut out) > 0).then(|| alloc::string::String::from_utf8(out).unwrap())
    }

    #[test]
    fn groups_are_put_in() {
        let prefixed = substituted("/^sip:([0-9]+)@(.*)$/sip:3463\\1@\\2;orig=\\0/i", "SIP:12@x").unwrap();
        assert_eq!(prefixed, "sip:346312@x;orig=SIP:12@x");
        assert_eq!(substituted("/^sip:x/y/", "SIP:x"), None);
    }

    #[test]
    fn g_replaces_all_and_another_delimiter_will_do() {
        assert_eq!(substituted("/a/b/", "aaa").unwrap(), "baa");
        assert_eq!(substituted("/a/b/g", "aaa").unwrap(), "bbb");
        assert_eq!(substituted("#/#\\##g", "1/2/3").unwrap(), "1#2#3");
        assert_eq!(substituted("/x*/-/g", "ab").unwrap(), "-a-b-");
    }

    #[test]
    fn a_fold_is_one_space() {
        let mut out = Vec::new();
        push_unfolded(b"a \r\n\t b\r\n  \r\n c", &mut out);
        assert_eq!(out, b"a b c");
        assert_eq!(with_unfolded(b"a  b", <[u8]>::to_vec), b"a  b");
        assert_eq!(with_unfolded(b"\r\n a", <[u8]>::to_vec), b"a");
    }

    #[test]
    fn what_is_no_substitution_is_refused() {
        for bad in ["", "/a/b", "/a", "/(/b/", "/a/b/q", "/a/\\u/", "/a/$fU/", "/a/b\\"] {
            assert!(Substitution::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
