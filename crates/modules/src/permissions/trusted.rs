//! The rules of the `trusted` table: peers whose requests need no authentication.
//!
//! Their expressions are POSIX *basic* ones, as Kamailio reads them from this table: `+`, `?`, `|` and
//! parentheses are operators behind a backslash and ordinary characters without one, so that `^sip:+1` is a
//! number of North America.

use super::addresses::Peer;
use crate::domain::text;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use hashbrown::HashMap;
use route::{Case, Regex};
use sip::Transport;

/// Rules that one address may have: each is tried for a request that comes from there.
const RULES_PER_SOURCE_MAX: usize = 256;
/// Different expressions that a table may have: each is compiled, and may take up to half a megabyte.
const PATTERNS_MAX: usize = 2_000;
/// Longest expression or tag, in bytes.
const TEXT_BYTES_MAX: usize = 255;

/// Rules by the address that they are for.
#[derive(Clone, Debug)]
pub(super) struct Trusted {
    /// The rules of a source, those of the highest priority first.
    rules: HashMap<Source, Vec<Rule>, ahash::RandomState>,
}

/// What a rule's `src_ip` names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Source {
    /// An address.
    Address(IpAddr),
    /// What a script may ask for instead, in lower case.
    Name(Box<[u8]>),
}

impl Source {
    fn of(peer: Peer<'_>) -> Option<Source> {
        match peer {
            Peer::Address(ip) => Some(Source::Address(ip)),
            Peer::Name(name) if name.is_empty() || name.len() > TEXT_BYTES_MAX => None,
            Peer::Name(name) => Some(Source::Name(name.to_ascii_lowercase().into())),
        }
    }
}

/// A transport that a rule is for, or that a script asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// Any.
    Any,
    /// None: the rule is switched off.
    None,
    /// This one.
    Is(Transport),
}

/// One rule.
#[derive(Clone, Debug)]
struct Rule {
    protocol: Protocol,
    /// What the URI of From must match.
    from: Option<Arc<Pattern>>,
    /// What the Request-URI must match.
    request_uri: Option<Arc<Pattern>>,
    tag: Option<Box<str>>,
    priority: i64,
}

/// An expression that two rules may be compared by.
#[derive(Debug)]
struct Pattern {
    text: Box<str>,
    regex: Regex,
}

/// The expressions so far: tables repeat them.
type Patterns = HashMap<Box<str>, Arc<Pattern>, ahash::RandomState>;

impl PartialEq for Rule {
    fn eq(&self, other: &Rule) -> bool {
        let texts = |rule: &Rule| {
            let text = |pattern: &Option<Arc<Pattern>>| pattern.as_ref().map(|pattern| pattern.text.clone());
            (text(&rule.from), text(&rule.request_uri))
        };
        (self.protocol, self.priority, &self.tag) == (other.protocol, other.priority, &other.tag)
            && texts(self) == texts(other)
    }
}

/// The keys are the operator's, never a peer's: the seed need not be secret.
fn hasher() -> ahash::RandomState {
    ahash::RandomState::with_seeds(21, 22, 23, 24)
}

impl Default for Trusted {
    fn default() -> Trusted {
        Trusted { rules: HashMap::with_hasher(hasher()) }
    }
}

impl PartialEq for Trusted {
    fn eq(&self, other: &Trusted) -> bool {
        self.rules == other.rules
    }
}

impl Eq for Trusted {}

impl Protocol {
    /// Reads `udp`, `tcp`, `tls`, `sctp`, `ws`, `wss`, `any` or `none`, in either case.
    pub(super) fn parse(text: &[u8]) -> Option<Protocol> {
        Some(match text.to_ascii_lowercase().as_slice() {
            b"any" => Protocol::Any,
            b"none" => Protocol::None,
            b"udp" => Protocol::Is(Transport::Udp),
            b"tcp" => Protocol::Is(Transport::Tcp),
            b"tls" => Protocol::Is(Transport::Tls),
            b"sctp" => Protocol::Is(Transport::Sctp),
            b"ws" => Protocol::Is(Transport::Ws),
            b"wss" => Protocol::Is(Transport::Wss),
            _ => return None,
        })
    }

    /// Whether a rule for `self` is meant when `asked` is asked for.
    fn fits(self, asked: Protocol) -> bool {
        match (self, asked) {
            (Protocol::None, _) | (_, Protocol::None) => false,
            (Protocol::Any, _) | (_, Protocol::Any) => true,
            (Protocol::Is(own), Protocol::Is(asked)) => own == asked,
        }
    }
}

impl Trusted {
    /// The rules of these rows: src_ip, proto, from_pattern, ruri_pattern, tag, priority.
    pub(super) fn from_rows(rows: &[Vec<Option<String>>]) -> Result<Trusted, String> {
        let mut trusted = Trusted::default();
        let mut patterns = Patterns::with_hasher(hasher());
        for row in rows {
            let source = text(row, 0).unwrap_or_default().trim();
            let rule = rule(row, source, &mut patterns)?;
            let Some(key) = Source::of(Peer::parse(source.as_bytes())) else {
                return Err(format!("`{source}` is no source of requests: write an address"));
            };
            let rules = trusted.rules.entry(key).or_default();
            if rules.len() >= RULES_PER_SOURCE_MAX {
                return Err(format!(
                    "`{source}` has more than {RULES_PER_SOURCE_MAX} rules: join them in expressions of `a|b`"
                ));
            }
            rules.push(rule);
        }
        for rules in trusted.rules.values_mut() {
            rules.sort_by_key(|rule| core::cmp::Reverse(rule.priority));
        }
        Ok(trusted)
    }

    /// Visits the tag of each rule that a request fits, until `visit` returns false; how many there were.
    pub(super) fn each<'s>(
        &'s self,
        source: Peer<'_>,
        protocol: Protocol,
        from: &[u8],
        request_uri: &[u8],
        visit: &mut dyn FnMut(Option<&'s str>) -> bool,
    ) -> usize {
        let rules = Source::of(source).and_then(|key| self.rules.get(&key));
        let matches = |pattern: &Option<Arc<Pattern>>, uri: &[u8]| {
            pattern.as_ref().is_none_or(|pattern| pattern.regex.is_match(uri))
        };
        let mut count = 0;
        for rule in rules.into_iter().flatten() {
            if rule.protocol.fits(protocol)
                && matches(&rule.from, from)
                && matches(&rule.request_uri, request_uri)
            {
                count += 1;
                if !visit(rule.tag.as_deref()) {
                    break;
                }
            }
        }
        count
    }
}

fn rule(row: &[Option<String>], source: &str, patterns: &mut Patterns) -> Result<Rule, String> {
    let proto = text(row, 1).unwrap_or_default().trim();
    let Some(protocol) = Protocol::parse(proto.as_bytes()) else {
        return Err(format!(
            "`{proto}` is no transport of `{source}`: write any, udp, tcp, tls, sctp, ws, wss or none"
        ));
    };
    let mut pattern = |column| match text(row, column) {
        None | Some("") => Ok(None),
        Some(text) => pattern(text, patterns).map(Some).map_err(|why| format!("a rule of `{source}`: {why}")),
    };
    let priority = text(row, 5).map_or("0", str::trim);
    let tag = text(row, 4);
    if tag.is_some_and(|tag| tag.len() > TEXT_BYTES_MAX) {
        return Err(format!("a tag of `{source}` is longer than {TEXT_BYTES_MAX} bytes: shorten it"));
    }
    Ok(Rule {
        protocol,
        from: pattern(2)?,
        request_uri: pattern(3)?,
        tag: tag.map(Box::from),
        priority: priority
            .parse()
            .map_err(|_| format!("`{priority}` is no priority of `{source}`: write a number"))?,
    })
}

fn pattern(text: &str, patterns: &mut Patterns) -> Result<Arc<Pattern>, String> {
    if let Some(known) = patterns.get(text) {
        return Ok(known.clone());
    }
    if text.len() > TEXT_BYTES_MAX {
        return Err(format!("an expression is longer than {TEXT_BYTES_MAX} bytes: shorten it"));
    }
    if patterns.len() >= PATTERNS_MAX {
        return Err(format!("more than {PATTERNS_MAX} different expressions: join some as `a\\|b`"));
    }
    let regex = Regex::new(&extended(text.as_bytes()), Case::Sensitive)
        .map_err(|why| format!("`{text}` is no expression: {why}"))?;
    let pattern = Arc::new(Pattern { text: text.into(), regex });
    patterns.insert(text.into(), pattern.clone());
    Ok(pattern)
}

/// A POSIX basic expression as an extended one (IEEE Std 1003.1, 9.3 and 9.4; `\|`, `\+` and `\?` as GNU has
/// them).
fn extended(basic: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(basic.len() + 8);
    // Whether an expression starts here: `*` is an ordinary character there, and `^` is none.
    let mut starts = true;
    let mut rest = basic;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        let ends = rest.is_empty() || rest.starts_with(b"\\)") || rest.starts_with(b"\\|");
        let mut starts_next = false;
        match byte {
            b'\\' => match rest.split_first() {
                Some((&operator @ (b'(' | b')' | b'{' | b'}' | b'|' | b'+' | b'?'), tail)) => {
                    rest = tail;
                    out.push(operator);
                    starts_next = matches!(operator, b'(' | b'|');
                }
                Some((&escaped, tail)) => {
                    rest = tail;
                    out.extend_from_slice(&[b'\\', escaped]);
                }
                None => out.push(b'\\'),
            },
            b'[' => {
                let length = bracket_length(rest);
                let (inside, tail) = rest.split_at(length);
                rest = tail;
                out.push(b'[');
                out.extend_from_slice(inside);
            }
            b'^' if starts => {
                out.push(b'^');
                starts_next = true;
            }
            b'$' if ends => out.push(b'$'),
            b'*' if !starts => out.push(b'*'),
            b'(' | b')' | b'{' | b'}' | b'|' | b'+' | b'?' | b'^' | b'$' | b'*' => {
                out.extend_from_slice(&[b'\\', byte]);
            }
            _ => out.push(byte),
        }
        starts = starts_next;
    }
    out
}

/// Bytes of a bracket expression behind its `[`, the `]` included.
fn bracket_length(rest: &[u8]) -> usize {
    // A `]` in the first place is one of the characters.
    let first = usize::from(rest.starts_with(b"^"));
    let first = first + usize::from(rest.get(first) == Some(&b']'));
    let mut at = first;
    while let Some(&byte) = rest.get(at) {
        match (byte, rest.get(at + 1)) {
            (b']', _) => return at + 1,
            // `[:alpha:]`, `[.x.]`, `[=x=]`.
            (b'[', Some(&kind @ (b':' | b'.' | b'='))) => {
                let inside = rest.get(at + 2..).unwrap_or(&[]);
                let end = inside.windows(2).position(|pair| pair == [kind, b']']);
                at += end.map_or(2, |end| end + 4);
            }
            _ => at += 1,
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(basic: &str, text: &str) -> bool {
        Regex::new(&extended(basic.as_bytes()), Case::Sensitive).unwrap().is_match(text.as_bytes())
    }

    #[test]
    fn expressions_are_basic_ones() {
        for (basic, text, expected) in [
            ("^sip:+1@", "sip:+1@x", true),
            ("^sip:+1@", "sip:::1@x", false),
            ("^sip:\\(alice\\|x\\)@", "sip:x@y", true),
            ("^sip:(alice|x)@", "sip:x@y", false),
            ("^sip:(alice|x)@", "sip:(alice|x)@", true),
            ("^sip:a\\{2\\}@", "sip:aa@", true),
            ("^sip:a{2}@", "sip:aa@", false),
            ("ab*c", "ac", true),
            ("*b", "*b", true),
            ("^*b", "*b", true),
            ("a^b$c", "a^b$c", true),
            ("example\\.org$", "sip:a@example.org", true),
            ("example\\.org$", "sip:a@example.org.evil", false),
            ("^sip:[^]@]*@", "sip:+|?@", true),
            ("[[:digit:]]\\+x", "12x", true),
            ("[+]x", "+x", true),
            ("ALICE", "alice", false),
            ("a\\?b", "b", true),
            ("", "anything", true),
        ] {
            assert_eq!(matches(basic, text), expected, "{basic} {text}");
        }
    }

    /// Whatever is written: an error or an expression, and no panic.
    #[test]
    fn any_text_is_an_expression_or_an_error() {
        let mut state = 1u64;
        for _ in 0..5_000 {
            let text: Vec<u8> = (0..12)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    b"\\\\([{]})*+?|^$a:.="[(state >> 33) as usize % 18]
                })
                .collect();
            let _ = Regex::with_groups(&extended(&text), Case::Sensitive);
        }
    }

    #[test]
    fn no_expression_panics() {
        for bad in
            ["\\", "[", "[^", "[]", "[[:", "[[:alpha", "\\(", "\\)", "\\{", "*", "^", "$", "\\{9999999\\}"]
        {
            let _ = Regex::new(&extended(bad.as_bytes()), Case::Sensitive);
        }
    }
}
