//! The notation `/expression/replacement/flags`, shared by `#!subst` and `{re.subst,...}`.

use crate::code::{SubstPiece, Substitution};
use crate::regex::{Case, Regex};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Expression, replacement, flags.
type Parts = (Vec<u8>, Vec<u8>, Vec<u8>);

/// The three parts of the notation; the first byte is the separator.
pub(crate) fn split(text: &[u8]) -> Result<Parts, String> {
    let Some((&separator, rest)) = text.split_first() else {
        return Err("it is empty: write `/expression/replacement/`".to_string());
    };
    let mut parts = Vec::new();
    let mut part = Vec::new();
    let mut bytes = rest.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if byte == b'\\' && bytes.peek() == Some(&separator) {
            part.push(separator);
            bytes.next();
        } else if byte == separator && parts.len() < 2 {
            parts.push(core::mem::take(&mut part));
        } else {
            part.push(byte);
        }
    }
    let mut parts = parts.into_iter();
    match (parts.next(), parts.next()) {
        (Some(pattern), Some(replacement)) => Ok((pattern, replacement, part)),
        _ => Err("it needs the form `/expression/replacement/flags`".to_string()),
    }
}

/// Prepares a substitution. Flags: `g` replaces all matches, `i` ignores case.
pub(crate) fn prepare(text: &[u8]) -> Result<Substitution, String> {
    let (pattern, replacement, flags) = split(text)?;
    let mut all = false;
    let mut case = Case::Sensitive;
    for flag in flags {
        match flag {
            b'g' => all = true,
            b'i' => case = Case::Insensitive,
            _ => {
                return Err(alloc::format!("`{}` is not a flag: there are `g` and `i`", flag.escape_ascii()));
            }
        }
    }
    let regex = Regex::with_groups(&pattern, case)?;
    Ok(Substitution { regex, pieces: pieces(&replacement), all })
}

/// Text and `\1` groups; `\0` is the whole match.
fn pieces(replacement: &[u8]) -> Vec<SubstPiece> {
    let mut out = Vec::new();
    let mut text = Vec::new();
    let mut bytes = replacement.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            text.push(byte);
            continue;
        }
        match bytes.next() {
            Some(digit @ b'0'..=b'9') => {
                if !text.is_empty() {
                    out.push(SubstPiece::Bytes(core::mem::take(&mut text).into()));
                }
                out.push(SubstPiece::Group(usize::from(digit - b'0')));
            }
            Some(b'n') => text.push(b'\n'),
            Some(b'r') => text.push(b'\r'),
            Some(b't') => text.push(b'\t'),
            Some(byte) => text.push(byte),
            None => text.push(b'\\'),
        }
    }
    if !text.is_empty() {
        out.push(SubstPiece::Bytes(text.into()));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Sink;
    use crate::value::ValueRef;

    fn run(rule: &str, text: &str) -> Vec<u8> {
        let substitution = prepare(rule.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        let fill = |sink: &mut Sink<'_>| {
            crate::transform::substitute(&substitution, text.as_bytes(), sink);
        };
        match Sink::collect(&mut bytes, fill) {
            ValueRef::Str(bytes) => bytes.to_vec(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn matches_are_replaced_once_or_everywhere() {
        assert_eq!(run("/b/x/", "abab"), b"axab");
        assert_eq!(run("/b/x/g", "abab"), b"axax");
        assert_eq!(run("/(a)(b)/\\2\\1/g", "abab"), b"baba");
        assert_eq!(run("!A!/!i", "bab"), b"b/b");
        assert_eq!(run("/x*/-/g", "ab"), b"-a-b-");
        assert!(prepare(b"/a/b").is_err());
        assert!(prepare(b"/a/b/z").is_err());
    }
}
