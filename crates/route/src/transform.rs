//! Transformations: `{s.substr,0,3}`, `{uri.user}`, `{param.value,name}` and their like.
//!
//! Each takes the value before it and constant or computed arguments. What cannot be computed is null,
//! except where the language says an empty string.

use crate::code::{SubstPiece, Substitution};
use crate::machine::Sink;
use crate::value::{Decimal, ValueRef, parse_int};

/// Arguments that a transformation may have.
pub(crate) const ARGUMENTS_MAX: usize = 3;

/// One transformation of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TransformId(pub(crate) u8);

/// A transformation as the checker and the reference see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transform {
    pub(crate) name: &'static str,
    pub(crate) min: u8,
    pub(crate) max: u8,
    kind: Kind,
    pub(crate) doc: &'static str,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Len,
    Int,
    Substr,
    Select,
    Lower,
    Upper,
    Index,
    Replace,
    Remove,
    Trim,
    TrimLeft,
    TrimRight,
    Prefixes,
    Count,
    Ftrim,
    Uri(UriPart),
    UriParam,
    ParamValue,
    ParamName,
    ParamCount,
    AddressUri,
    AddressName,
    AddressLen,
    AddressParams,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UriPart {
    Scheme,
    User,
    Password,
    Host,
    Port,
    Params,
    Headers,
    Duri,
}

const fn entry(name: &'static str, min: u8, max: u8, kind: Kind, doc: &'static str) -> Transform {
    Transform { name, min, max, kind, doc }
}

/// All transformations but `re.subst`, which is prepared at load.
pub(crate) static TRANSFORMS: &[Transform] = &[
    entry("s.len", 0, 0, Kind::Len, "length in bytes"),
    entry("s.int", 0, 0, Kind::Int, "the string as an integer"),
    entry(
        "s.substr",
        2,
        2,
        Kind::Substr,
        "from an offset (negative: from the end), this many bytes (0: all)",
    ),
    entry("s.select", 2, 2, Kind::Select, "the n-th field (negative: from the end) between separators"),
    entry("s.tolower", 0, 0, Kind::Lower, "ASCII letters in lower case"),
    entry("s.toupper", 0, 0, Kind::Upper, "ASCII letters in upper case"),
    entry("s.index", 1, 2, Kind::Index, "where a string is, from an offset; -1 when nowhere"),
    entry("s.replace", 2, 2, Kind::Replace, "every occurrence of one string replaced by another"),
    entry("s.rm", 1, 1, Kind::Remove, "every occurrence of a string removed"),
    entry("s.trim", 0, 0, Kind::Trim, "white space removed at both ends"),
    entry("s.ltrim", 0, 0, Kind::TrimLeft, "white space removed at the start"),
    entry("s.rtrim", 0, 0, Kind::TrimRight, "white space removed at the end"),
    entry("s.ftrim", 0, 0, Kind::Ftrim, "white space removed at both ends and inside"),
    entry("s.prefixes", 0, 1, Kind::Prefixes, "all prefixes with commas between, up to a length"),
    entry("s.count", 1, 1, Kind::Count, "how often a character occurs"),
    entry("uri.user", 0, 0, Kind::Uri(UriPart::User), "the user of a URI"),
    entry("uri.passwd", 0, 0, Kind::Uri(UriPart::Password), "the password of a URI"),
    entry("uri.host", 0, 0, Kind::Uri(UriPart::Host), "the host of a URI"),
    entry("uri.port", 0, 0, Kind::Uri(UriPart::Port), "the port of a URI"),
    entry("uri.params", 0, 0, Kind::Uri(UriPart::Params), "the parameters of a URI"),
    entry("uri.headers", 0, 0, Kind::Uri(UriPart::Headers), "the headers of a URI"),
    entry("uri.scheme", 0, 0, Kind::Uri(UriPart::Scheme), "the scheme of a URI"),
    entry("uri.duri", 0, 0, Kind::Uri(UriPart::Duri), "the scheme, host, port and transport of a URI"),
    entry("uri.param", 1, 1, Kind::UriParam, "one parameter of a URI"),
    entry("param.value", 1, 2, Kind::ParamValue, "the value of a parameter in a list"),
    entry("param.name", 1, 2, Kind::ParamName, "the name of the n-th parameter of a list"),
    entry("param.count", 0, 1, Kind::ParamCount, "how many parameters a list has"),
    entry("nameaddr.uri", 0, 0, Kind::AddressUri, "the URI of an address with a display name"),
    entry("nameaddr.name", 0, 0, Kind::AddressName, "the display name, quotes included"),
    entry("nameaddr.len", 0, 0, Kind::AddressLen, "the length of the address without its parameters"),
    entry("nameaddr.params", 0, 0, Kind::AddressParams, "the parameters behind the address"),
];

/// The transformation called `name`, such as `s.len`.
pub(crate) fn find(name: &str) -> Option<(TransformId, &'static Transform)> {
    let at = TRANSFORMS.iter().position(|transform| transform.name == name)?;
    Some((TransformId(u8::try_from(at).ok()?), TRANSFORMS.get(at)?))
}

/// Computes a transformation of `value` into `out`.
pub(crate) fn apply(id: TransformId, value: ValueRef<'_>, args: &[ValueRef<'_>], out: &mut Sink<'_>) {
    let Some(transform) = TRANSFORMS.get(usize::from(id.0)) else { return };
    let decimal;
    let text = match value {
        ValueRef::Null => return,
        ValueRef::Int(int) => {
            decimal = Decimal::new(int);
            decimal.as_bytes()
        }
        ValueRef::Str(bytes) => bytes,
    };
    let first = args.first().copied().unwrap_or(ValueRef::Null);
    let second = args.get(1).copied().unwrap_or(ValueRef::Null);
    match transform.kind {
        Kind::Len => out.int(i64::try_from(text.len()).unwrap_or(i64::MAX)),
        Kind::Int => out.int(parse_int(text).unwrap_or(0)),
        Kind::Substr => substr(text, first.to_int(), second.to_int(), out),
        Kind::Select => select(text, first.to_int(), bytes_of(&second), out),
        Kind::Lower => mapped(text, u8::to_ascii_lowercase, out),
        Kind::Upper => mapped(text, u8::to_ascii_uppercase, out),
        Kind::Index => index(text, bytes_of(&first), second.to_int(), out),
        Kind::Replace => replace(text, bytes_of(&first), bytes_of(&second), out),
        Kind::Remove => replace(text, bytes_of(&first), b"", out),
        Kind::Trim => out.str(text.trim_ascii()),
        Kind::TrimLeft => out.str(text.trim_ascii_start()),
        Kind::TrimRight => out.str(text.trim_ascii_end()),
        Kind::Ftrim => {
            out.push(b"");
            text.split(u8::is_ascii_whitespace).for_each(|part| out.push(part));
        }
        Kind::Prefixes => prefixes(text, first.to_int(), out),
        Kind::Count => {
            let count = bytes_of(&first)
                .first()
                .map_or(0, |wanted| text.iter().filter(|byte| *byte == wanted).count());
            out.int(i64::try_from(count).unwrap_or(i64::MAX));
        }
        Kind::Uri(part) => uri_part(text, part, out),
        Kind::UriParam => found(param(split_uri(text).params, bytes_of(&first), b';'), out),
        Kind::ParamValue => found(param(text, bytes_of(&first), separator(&second)), out),
        Kind::ParamName => {
            let n = usize::try_from(first.to_int()).unwrap_or(usize::MAX);
            match pairs(text, separator(&second)).nth(n) {
                Some((name, _)) => out.str(name),
                None => out.null(),
            }
        }
        Kind::ParamCount => {
            let count = pairs(text, separator(&first)).count();
            out.int(i64::try_from(count).unwrap_or(i64::MAX));
        }
        Kind::AddressUri => out.str(split_address(text).uri),
        Kind::AddressName => out.str(split_address(text).name),
        Kind::AddressLen => out.int(i64::try_from(split_address(text).len).unwrap_or(i64::MAX)),
        Kind::AddressParams => out.str(split_address(text).params),
    }
}

fn bytes_of<'a>(value: &ValueRef<'a>) -> &'a [u8] {
    value.as_str().unwrap_or_default()
}

fn separator(value: &ValueRef<'_>) -> u8 {
    bytes_of(value).first().copied().unwrap_or(b';')
}

fn found(value: Option<&[u8]>, out: &mut Sink<'_>) {
    match value {
        Some(bytes) => out.str(bytes),
        None => out.null(),
    }
}

fn mapped(text: &[u8], change: impl Fn(&u8) -> u8, out: &mut Sink<'_>) {
    out.push(b"");
    for chunk in text.chunks(64) {
        let mut buffer = [0; 64];
        for (slot, byte) in buffer.iter_mut().zip(chunk) {
            *slot = change(byte);
        }
        out.push(buffer.get(..chunk.len()).unwrap_or_default());
    }
}

/// An offset from the start, or from the end when it is negative.
fn offset(text: &[u8], at: i64) -> Option<usize> {
    if at < 0 {
        text.len().checked_sub(usize::try_from(at.unsigned_abs()).ok()?)
    } else {
        usize::try_from(at).ok().filter(|at| *at <= text.len())
    }
}

fn substr(text: &[u8], from: i64, len: i64, out: &mut Sink<'_>) {
    let rest = offset(text, from).and_then(|at| text.get(at..));
    let Some(rest) = rest else { return out.null() };
    let len = if len <= 0 { rest.len() } else { usize::try_from(len).unwrap_or(usize::MAX).min(rest.len()) };
    out.str(rest.get(..len).unwrap_or_default());
}

fn select(text: &[u8], n: i64, separator: &[u8], out: &mut Sink<'_>) {
    let Some(&separator) = separator.first() else { return out.null() };
    let mut fields = text.split(|byte| *byte == separator);
    let skip = usize::try_from(n.unsigned_abs()).unwrap_or(usize::MAX);
    let field = if n < 0 { fields.rev().nth(skip - 1) } else { fields.nth(skip) };
    out.str(field.unwrap_or_default());
}

fn find_in(text: &[u8], wanted: &[u8]) -> Option<usize> {
    if wanted.is_empty() {
        return None;
    }
    text.windows(wanted.len()).position(|window| window == wanted)
}

fn index(text: &[u8], wanted: &[u8], from: i64, out: &mut Sink<'_>) {
    let at = offset(text, from).and_then(|at| Some(at + find_in(text.get(at..)?, wanted)?));
    out.int(at.and_then(|at| i64::try_from(at).ok()).unwrap_or(-1));
}

fn replace(text: &[u8], wanted: &[u8], with: &[u8], out: &mut Sink<'_>) {
    out.push(b"");
    let mut rest = text;
    while let Some(at) = find_in(rest, wanted) {
        out.push(rest.get(..at).unwrap_or_default());
        out.push(with);
        rest = rest.get(at + wanted.len()..).unwrap_or_default();
    }
    out.push(rest);
}

fn prefixes(text: &[u8], longest: i64, out: &mut Sink<'_>) {
    let longest = if longest <= 0 { text.len() } else { usize::try_from(longest).unwrap_or(usize::MAX) };
    // The result grows with the square of the length: more than 255 prefixes serve nobody.
    for len in 1..=text.len().min(longest).min(255) {
        if len > 1 {
            out.push(b",");
        }
        out.push(text.get(..len).unwrap_or_default());
    }
}

/// The parts of a SIP or tel URI, found without judging it (RFC 3261 §19.1.1, RFC 3966 §3).
struct UriParts<'a> {
    scheme: &'a [u8],
    user: &'a [u8],
    password: &'a [u8],
    host: &'a [u8],
    port: &'a [u8],
    params: &'a [u8],
    headers: &'a [u8],
}

fn split_once(text: &[u8], separator: u8) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|byte| *byte == separator) {
        Some(at) => (text.get(..at).unwrap_or_default(), text.get(at + 1..)),
        None => (text, None),
    }
}

fn split_uri(text: &[u8]) -> UriParts<'_> {
    let (scheme, rest) = match split_once(text, b':') {
        (scheme, Some(rest)) => (scheme, rest),
        (rest, None) => (&b""[..], rest),
    };
    let (userinfo, rest) = match rest.iter().position(|byte| *byte == b'@') {
        Some(at) => (rest.get(..at).unwrap_or_default(), rest.get(at + 1..).unwrap_or_default()),
        None => (&b""[..], rest),
    };
    let (user, password) = split_once(userinfo, b':');
    let (rest, headers) = split_once(rest, b'?');
    let (place, params) = split_once(rest, b';');
    let port_at = match place.iter().position(|byte| *byte == b']') {
        Some(end) => {
            place.get(end..).and_then(|tail| tail.iter().position(|b| *b == b':')).map(|at| at + end)
        }
        None => place.iter().position(|byte| *byte == b':'),
    };
    let (host, port) = match port_at {
        Some(at) => (place.get(..at).unwrap_or_default(), place.get(at + 1..).unwrap_or_default()),
        None => (place, &b""[..]),
    };
    let tel = scheme.eq_ignore_ascii_case(b"tel");
    let (user, host) = if tel { (host, &b""[..]) } else { (user, host) };
    UriParts {
        scheme,
        user,
        password: password.unwrap_or_default(),
        host,
        port,
        params: params.unwrap_or_default(),
        headers: headers.unwrap_or_default(),
    }
}

fn uri_part(text: &[u8], part: UriPart, out: &mut Sink<'_>) {
    let uri = split_uri(text);
    match part {
        UriPart::Scheme => out.str(uri.scheme),
        UriPart::User => out.str(uri.user),
        UriPart::Password => out.str(uri.password),
        UriPart::Host => out.str(uri.host),
        UriPart::Port => out.str(uri.port),
        UriPart::Params => out.str(uri.params),
        UriPart::Headers => out.str(uri.headers),
        UriPart::Duri => {
            out.str(uri.scheme);
            out.push(b":");
            out.push(uri.host);
            if !uri.port.is_empty() {
                out.push(b":");
                out.push(uri.port);
            }
            if let Some(transport) = param(uri.params, b"transport", b';') {
                out.push(b";transport=");
                out.push(transport);
            }
        }
    }
}

/// The name=value pairs of a list; separators inside quotes do not separate.
fn pairs(text: &[u8], separator: u8) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = text;
    core::iter::from_fn(move || {
        loop {
            if rest.is_empty() {
                return None;
            }
            let mut quoted = false;
            let mut escaped = false;
            let end = rest.iter().position(|byte| {
                let at_end = *byte == separator && !quoted;
                if *byte == b'"' && !escaped {
                    quoted = !quoted;
                }
                escaped = *byte == b'\\' && !escaped;
                at_end
            });
            let (item, tail) = match end {
                Some(at) => (rest.get(..at).unwrap_or_default(), rest.get(at + 1..).unwrap_or_default()),
                None => (rest, &b""[..]),
            };
            rest = tail;
            let (name, value) = split_once(item, b'=');
            let name = name.trim_ascii();
            if !name.is_empty() {
                let value = value.unwrap_or_default().trim_ascii();
                let bare = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
                return Some((name, bare.unwrap_or(value)));
            }
        }
    })
}

fn param<'a>(text: &'a [u8], name: &[u8], separator: u8) -> Option<&'a [u8]> {
    pairs(text, separator).find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// The parts of a name-addr or addr-spec (RFC 3261 §25.1).
struct AddressParts<'a> {
    name: &'a [u8],
    uri: &'a [u8],
    params: &'a [u8],
    len: usize,
}

fn split_address(text: &[u8]) -> AddressParts<'_> {
    let mut quoted = false;
    let mut escaped = false;
    let open = text.iter().position(|byte| {
        let here = *byte == b'<' && !quoted;
        if *byte == b'"' && !escaped {
            quoted = !quoted;
        }
        escaped = *byte == b'\\' && !escaped;
        here
    });
    let close = open.and_then(|open| {
        text.get(open..).and_then(|tail| tail.iter().position(|byte| *byte == b'>')).map(|at| open + at)
    });
    match (open, close) {
        (Some(open), Some(close)) => {
            let tail = text.get(close + 1..).unwrap_or_default().trim_ascii_start();
            AddressParts {
                name: text.get(..open).unwrap_or_default().trim_ascii(),
                uri: text.get(open + 1..close).unwrap_or_default(),
                params: tail.strip_prefix(b";").unwrap_or_default(),
                len: close + 1,
            }
        }
        _ => {
            let (uri, params) = split_once(text, b';');
            AddressParts { name: b"", uri, params: params.unwrap_or_default(), len: uri.len() }
        }
    }
}

/// Replaces matches of a prepared expression; says how many.
pub(crate) fn substitute(substitution: &Substitution, text: &[u8], out: &mut Sink<'_>) -> usize {
    out.push(b"");
    let mut at = 0;
    let mut replaced = 0;
    // Every round goes at least one byte on.
    while at <= text.len() {
        let Some(captures) = substitution.regex.captures(text, at) else { break };
        let Some(whole) = captures.get_match() else { break };
        out.push(text.get(at..whole.start()).unwrap_or_default());
        replaced += 1;
        for piece in &substitution.pieces {
            match piece {
                SubstPiece::Bytes(bytes) => out.push(bytes),
                SubstPiece::Group(group) => {
                    let range = captures.get_group(*group).map(|span| span.range());
                    out.push(range.and_then(|range| text.get(range)).unwrap_or_default());
                }
            }
        }
        at = whole.end();
        if !substitution.all {
            break;
        }
        if whole.is_empty() {
            out.push(text.get(at..(at + 1).min(text.len())).unwrap_or_default());
            at += 1;
        }
    }
    out.push(text.get(at..).unwrap_or_default());
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use alloc::vec::Vec;

    fn run(name: &str, text: &str, args: &[&str]) -> String {
        let (id, _) = find(name).unwrap();
        let args: Vec<_> = args.iter().map(|arg| ValueRef::Str(arg.as_bytes())).collect();
        let mut bytes = Vec::new();
        match Sink::collect(&mut bytes, |sink| apply(id, ValueRef::Str(text.as_bytes()), &args, sink)) {
            ValueRef::Null => "null".into(),
            ValueRef::Int(int) => alloc::format!("{int}"),
            ValueRef::Str(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
        }
    }

    #[test]
    fn strings_are_cut_and_searched() {
        assert_eq!(run("s.len", "abc", &[]), "3");
        assert_eq!(run("s.int", "042", &[]), "42");
        assert_eq!(run("s.substr", "abcdef", &["1", "3"]), "bcd");
        assert_eq!(run("s.substr", "abcdef", &["-2", "0"]), "ef");
        assert_eq!(run("s.substr", "abc", &["9", "1"]), "null");
        assert_eq!(run("s.select", "a,b,c", &["1", ","]), "b");
        assert_eq!(run("s.select", "a,b,c", &["-1", ","]), "c");
        assert_eq!(run("s.index", "hello", &["l"]), "2");
        assert_eq!(run("s.index", "hello", &["x"]), "-1");
        assert_eq!(run("s.replace", "a-b-c", &["-", "+"]), "a+b+c");
        assert_eq!(run("s.rm", "a-b-c", &["-"]), "abc");
        assert_eq!(run("s.toupper", "aBc", &[]), "ABC");
        assert_eq!(run("s.trim", "  a b ", &[]), "a b");
        assert_eq!(run("s.prefixes", "123", &[]), "1,12,123");
    }

    #[test]
    fn uris_come_apart() {
        let uri = "sip:alice:secret@example.com:5070;transport=tcp;lr?Subject=x";
        assert_eq!(run("uri.user", uri, &[]), "alice");
        assert_eq!(run("uri.host", uri, &[]), "example.com");
        assert_eq!(run("uri.port", uri, &[]), "5070");
        assert_eq!(run("uri.params", uri, &[]), "transport=tcp;lr");
        assert_eq!(run("uri.param", uri, &["transport"]), "tcp");
        assert_eq!(run("uri.param", uri, &["maddr"]), "null");
        assert_eq!(run("uri.scheme", uri, &[]), "sip");
        assert_eq!(run("uri.host", "sip:[::1]:5060", &[]), "[::1]");
        assert_eq!(run("uri.port", "sip:[::1]:5060", &[]), "5060");
        assert_eq!(run("uri.user", "tel:+123;phone-context=x", &[]), "+123");
    }

    #[test]
    fn lists_and_addresses_come_apart() {
        assert_eq!(run("param.value", "a=1;b=\"x;y\";c", &["b"]), "x;y");
        assert_eq!(run("param.value", "a=1,b=2", &["b", ","]), "2");
        assert_eq!(run("param.name", "a=1;b=2", &["1"]), "b");
        assert_eq!(run("param.count", "a;b;c", &[]), "3");
        let address = "\"A <b>\" <sip:a@b;lr>;tag=1";
        assert_eq!(run("nameaddr.uri", address, &[]), "sip:a@b;lr");
        assert_eq!(run("nameaddr.name", address, &[]), "\"A <b>\"");
        assert_eq!(run("nameaddr.params", address, &[]), "tag=1");
        assert_eq!(run("nameaddr.uri", "sip:a@b;tag=1", &[]), "sip:a@b");
    }
}
