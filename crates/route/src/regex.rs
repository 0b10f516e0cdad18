//! Regular expressions: POSIX extended, case-insensitive, as `=~` has them, on a linear-time engine.
//!
//! The text is translated to the engine's own syntax: a backslash inside brackets is an ordinary
//! character, the engine's set operators are not operators, and escapes that POSIX does not know are
//! refused instead of meaning something else than on Kamailio.

use crate::limits::{REGEX_DENSE_MAX, REGEX_PROGRAM_MAX, REGEX_TEXT_MAX};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::util::captures::Captures;
use regex_automata::util::syntax;
use regex_automata::{Input, MatchKind, meta};

/// Whether letters match in either case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Case {
    /// `a` matches only `a`.
    Sensitive,
    /// `a` matches `A`, as `=~` has it.
    Insensitive,
}

/// A compiled regular expression.
#[derive(Debug, Clone)]
pub struct Regex {
    /// The fast engine: one table lookup per byte. Absent when the table would be too large.
    dense: Option<Box<dense::DFA<Vec<u32>>>>,
    /// The engine that knows about groups, built when the expression is used to replace.
    groups: Option<Box<meta::Regex>>,
}

impl Regex {
    /// Compiles a POSIX extended regular expression for searching.
    ///
    /// # Errors
    /// One line that says what is wrong with the text, when it is no such expression, is longer than
    /// [`REGEX_TEXT_MAX`] bytes, or needs a program larger than [`REGEX_PROGRAM_MAX`] bytes.
    pub fn new(text: &[u8], case: Case) -> Result<Self, String> {
        let pattern = translate(text)?;
        let dense = dense::Builder::new()
            .syntax(syntax_of(case))
            .thompson(thompson::Config::new().utf8(false).nfa_size_limit(Some(REGEX_PROGRAM_MAX)))
            .configure(
                dense::Config::new()
                    .start_kind(StartKind::Unanchored)
                    .match_kind(MatchKind::All)
                    .dfa_size_limit(Some(REGEX_DENSE_MAX))
                    .determinize_size_limit(Some(4 * REGEX_DENSE_MAX)),
            )
            .build(&pattern);
        match dense {
            Ok(dense) => Ok(Self { dense: Some(Box::new(dense)), groups: None }),
            Err(_) => Ok(Self { dense: None, groups: Some(Box::new(meta_engine(&pattern, case)?)) }),
        }
    }

    /// Compiles a POSIX extended regular expression for finding its groups as well.
    ///
    /// # Errors
    /// As [`Regex::new`].
    pub fn with_groups(text: &[u8], case: Case) -> Result<Self, String> {
        let pattern = translate(text)?;
        Ok(Self { dense: None, groups: Some(Box::new(meta_engine(&pattern, case)?)) })
    }

    /// Compiles for one use at run time: no dense automaton, whose building costs the most.
    pub(crate) fn dynamic(text: &[u8]) -> Result<Self, String> {
        Self::with_groups(text, Case::Insensitive)
    }

    /// Whether the expression matches anywhere in `bytes`.
    #[must_use]
    pub fn is_match(&self, bytes: &[u8]) -> bool {
        if let Some(dense) = &self.dense {
            let input = Input::new(bytes).earliest(true);
            return matches!(dense.try_search_fwd(&input), Ok(Some(_)));
        }
        self.groups.as_ref().is_some_and(|groups| groups.is_match(bytes))
    }

    /// The ranges of the first match at or after `from`: the whole, then each group. `None` without a
    /// match, and for expressions that were compiled without groups.
    #[must_use]
    pub fn captures(&self, bytes: &[u8], from: usize) -> Option<Captures> {
        let groups = self.groups.as_ref()?;
        let mut captures = groups.create_captures();
        let input = Input::new(bytes).range(from.min(bytes.len())..);
        groups.search_captures(&input, &mut captures);
        captures.is_match().then_some(captures)
    }
}

fn syntax_of(case: Case) -> syntax::Config {
    syntax::Config::new()
        .unicode(false)
        .utf8(false)
        .dot_matches_new_line(true)
        .case_insensitive(case == Case::Insensitive)
        .nest_limit(64)
}

fn meta_engine(pattern: &str, case: Case) -> Result<meta::Regex, String> {
    meta::Builder::new()
        .syntax(syntax_of(case))
        .configure(
            meta::Config::new()
                .utf8_empty(false)
                .nfa_size_limit(Some(REGEX_PROGRAM_MAX))
                .onepass(false)
                .backtrack(false)
                .dfa(false)
                .hybrid(false),
        )
        .build(pattern)
        .map_err(|error| match error.syntax_error() {
            Some(syntax) => last_line(&syntax.to_string()),
            None => format!("it needs more than {REGEX_PROGRAM_MAX} bytes when compiled"),
        })
}

/// The engine's errors draw the pattern first and say what is wrong last.
fn last_line(text: &str) -> String {
    let line = text.lines().last().unwrap_or_default().trim();
    line.strip_prefix("error: ").unwrap_or(line).to_string()
}

/// POSIX extended syntax to the engine's.
fn translate(text: &[u8]) -> Result<String, String> {
    if text.len() > REGEX_TEXT_MAX {
        return Err(format!("it is longer than {REGEX_TEXT_MAX} bytes"));
    }
    let mut out = String::with_capacity(text.len() + 8);
    // What ended just before: a `*`, `+` or `?`, or the `}` of an interval.
    let mut repeated = None;
    let mut interval = false;
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at += 1;
        let before = repeated.take();
        match byte {
            b'\\' => at = escape(text, at, &mut out)?,
            b'[' => at = bracket(text, at, &mut out)?,
            b'(' if text.get(at) == Some(&b'?') => {
                return Err("`(?` is not part of POSIX extended regular expressions".to_string());
            }
            b'*' | b'+' | b'?' => {
                repeated = Some(repetition(&mut out, before, byte)?);
            }
            b'{' if !text.get(at).is_some_and(u8::is_ascii_digit) => out.push_str("\\{"),
            b'{' => {
                interval = true;
                out.push('{');
            }
            b'}' if interval => {
                interval = false;
                repeated = Some(b'}');
                out.push('}');
            }
            b'}' => out.push_str("\\}"),
            _ => push_byte(&mut out, byte),
        }
    }
    Ok(out)
}

/// `a*?` is not lazy in POSIX but a repetition of a repetition: two operators mean the one if they are
/// equal and `*` if not.
fn repetition(out: &mut String, before: Option<u8>, byte: u8) -> Result<u8, String> {
    match before {
        None => {
            out.push(char::from(byte));
            Ok(byte)
        }
        Some(b'}') => Err("a repetition of a repetition needs parentheses".to_string()),
        Some(before) if before == byte => Ok(byte),
        Some(_) => {
            out.pop();
            out.push('*');
            Ok(b'*')
        }
    }
}

fn push_byte(out: &mut String, byte: u8) {
    if byte.is_ascii_graphic() || byte == b' ' {
        out.push(char::from(byte));
    } else {
        out.push_str(&format!("\\x{byte:02X}"));
    }
}

/// One escape outside brackets; `at` is behind the backslash. Returns the place behind the escape.
fn escape(text: &[u8], at: usize, out: &mut String) -> Result<usize, String> {
    let Some(&byte) = text.get(at) else {
        return Err("it ends in a backslash".to_string());
    };
    match byte {
        b'w' => out.push_str("[0-9A-Za-z_]"),
        b'W' => out.push_str("[^0-9A-Za-z_]"),
        b's' => out.push_str("[ \\t\\n\\r\\x0B\\x0C]"),
        b'S' => out.push_str("[^ \\t\\n\\r\\x0B\\x0C]"),
        b'b' | b'B' => {
            out.push_str("(?-u:\\");
            out.push(char::from(byte));
            out.push(')');
        }
        b'd' => return Err("`\\d` is not part of POSIX regular expressions: write `[0-9]`".to_string()),
        b'1'..=b'9' => return Err("back-references are not supported".to_string()),
        b'n' => out.push_str("\\n"),
        b't' => out.push_str("\\t"),
        b'r' => out.push_str("\\r"),
        _ if byte.is_ascii_alphanumeric() => {
            return Err(format!(
                "`\\{0}` is not part of POSIX regular expressions: write `{0}`",
                char::from(byte)
            ));
        }
        _ if byte.is_ascii_punctuation() => {
            out.push('\\');
            out.push(char::from(byte));
        }
        _ => push_byte(out, byte),
    }
    Ok(at + 1)
}

/// A bracket expression; `at` is behind the `[`. Returns the place behind the `]`.
fn bracket(text: &[u8], mut at: usize, out: &mut String) -> Result<usize, String> {
    out.push('[');
    if text.get(at) == Some(&b'^') {
        out.push('^');
        at += 1;
    }
    let first = at;
    loop {
        let Some(&byte) = text.get(at) else {
            return Err("a `[` is never closed".to_string());
        };
        match byte {
            b']' if at > first => {
                out.push(']');
                return Ok(at + 1);
            }
            b'[' if matches!(text.get(at + 1), Some(b':')) => {
                let rest = text.get(at..).unwrap_or_default();
                let Some(end) = rest.windows(2).position(|pair| pair == b":]") else {
                    return Err("a `[:` is never closed by `:]`".to_string());
                };
                for &byte in rest.get(..end + 2).unwrap_or_default() {
                    push_byte(out, byte);
                }
                at += end + 2;
                continue;
            }
            b'[' if matches!(text.get(at + 1), Some(b'.' | b'=')) => {
                return Err("collating elements are not supported".to_string());
            }
            // A range keeps its `-`; everything that is an operator to the engine is escaped.
            b'-' if at > first && !matches!(text.get(at + 1), Some(b']') | None) => out.push('-'),
            b'[' | b']' | b'\\' | b'&' | b'~' | b'-' | b'^' => {
                out.push('\\');
                out.push(char::from(byte));
            }
            _ => push_byte(out, byte),
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Regex::new(pattern.as_bytes(), Case::Insensitive).unwrap().is_match(text.as_bytes())
    }

    #[test]
    fn posix_expressions_match_as_on_kamailio() {
        assert!(matches("^(\\+|00)[1-9][0-9]{3,20}$", "+420123456"));
        assert!(!matches("^(\\+|00)[1-9][0-9]{3,20}$", "0123"));
        assert!(matches("INV.*", "invite"));
        assert!(matches("friendly|scanner", "a Friendly-Scanner"));
        assert!(matches("^[[:alpha:]]+$", "abc"));
        assert!(matches("[^a-z]", "1"));
        assert!(matches("[]x]", "]"));
        assert!(matches("a.c", "a\nc"));
        assert!(matches("^sip:[^@]+@10\\.", "sip:a@10.1"));
        assert!(matches("[a&&b]", "&"));
        assert!(matches("[\\d]", "\\"));
        assert!(matches("a{,3}", "a{,3}"));
        assert!(matches("^[+]?-$", "+-"));
    }

    #[test]
    fn what_posix_does_not_know_is_refused_with_a_hint() {
        for (text, hint) in [
            ("\\d+", "[0-9]"),
            ("(a", "unclosed"),
            ("[a", "never closed"),
            ("(a)\\1", "back-ref"),
            ("a\\", "backslash"),
        ] {
            let error = Regex::new(text.as_bytes(), Case::Insensitive).unwrap_err();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }

    #[test]
    fn huge_expressions_are_refused() {
        assert!(Regex::new(b"((a{1,500}){1,500}){1,500}", Case::Insensitive).is_err());
        assert!(Regex::new(&[b'a'; 5000], Case::Insensitive).is_err());
    }

    #[test]
    fn groups_are_found() {
        let regex = Regex::with_groups(b"^sip:([^@]+)@(.*)$", Case::Sensitive).unwrap();
        let captures = regex.captures(b"sip:alice@example.com", 0).unwrap();
        assert_eq!(captures.get_group(1).map(|group| group.range()), Some(4..9));
    }
}
