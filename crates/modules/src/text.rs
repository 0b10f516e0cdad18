//! Substitutions, `/expression/replacement/flags`, and searches in text.

use alloc::boxed::Box;
use alloc::vec::Vec;
use route::{Case, Regex};

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

/// Whether `needle` is somewhere in `text`.
pub(crate) fn contains(text: &[u8], needle: &[u8]) -> bool {
    needle.is_empty() || text.windows(needle.len()).any(|window| window == needle)
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
    fn what_is_no_substitution_is_refused() {
        for bad in ["", "/a/b", "/a", "/(/b/", "/a/b/q", "/a/\\u/", "/a/$fU/", "/a/b\\"] {
            assert!(Substitution::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
