//! Header fields with a type of their own (RFC 3261 §20), in every spelling of their names.

use super::input::Input;
use super::{agreed, name_addr, show};
use reference::matcher::Matcher;
use reference::{Judged, OURS, accepts, is_value, values};
use sip::{HeaderName, Index, Message, NameAddr};

/// Names in their long and compact forms (RFC 3261 §7.3.3).
const NAMES: [(&str, &str); 11] = [
    ("From", "f"),
    ("To", "t"),
    ("Call-ID", "i"),
    ("CSeq", "CSeq"),
    ("Max-Forwards", "Max-Forwards"),
    ("Expires", "Expires"),
    ("Content-Length", "l"),
    ("Contact", "m"),
    ("Route", "Route"),
    ("Record-Route", "Record-Route"),
    ("Supported", "k"),
];

/// See [`TARGETS`](crate::TARGETS). The first byte chooses the header field, the second its spelling.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let &(name, compact) = input.pick(&NAMES);
    let spelling = match input.below(4) {
        0 => name.to_owned(),
        1 => compact.to_owned(),
        2 => name.to_ascii_uppercase(),
        _ => compact.to_ascii_uppercase(),
    };
    let colon = *input.pick(&[":", ": ", " \t:", ":\r\n "]);
    let value = input.rest();
    if !is_value(value) || (colon.ends_with(' ') && value.is_empty()) {
        return;
    }
    let head = format!("OPTIONS sip:h SIP/2.0\r\n{spelling}{colon}");
    let bytes = [head.as_bytes(), value, b"\r\n\r\n"].concat();
    let mut index = Index::new();
    let message = Message::parse(&bytes, &mut index).unwrap_or_else(|e| panic!("{e}: {}", show(&bytes)));
    let mut named = message.headers_named(name.as_bytes());
    let header = named.next().unwrap_or_else(|| panic!("{name} is not found: {}", show(&bytes)));
    let text = values::trim(value);
    assert_eq!(header.value, text, "{}", show(&bytes));
    judge(&message, name, text);
}

fn judge(message: &Message<'_>, name: &str, text: &[u8]) {
    match name {
        "From" | "To" => {
            let ours = if name == "From" { message.from() } else { message.to() };
            if let Some((ours, reference)) = agreed(text, ours, tagged(values::address(text))) {
                name_addr::same(&ours, &reference);
            }
        }
        "Call-ID" => {
            if let Some((ours, ())) = agreed(text, message.call_id(), judged(accepts(&OURS, "callid", text)))
            {
                assert_eq!(ours, text);
            }
        }
        "CSeq" => {
            if let Some((ours, (number, method))) = agreed(text, message.cseq(), cseq(text)) {
                assert_eq!((ours.number, ours.method_bytes), (number, method));
            }
        }
        "Max-Forwards" => number(text, message.max_forwards(), 255, 256),
        "Content-Length" => number(text, message.content_length(), u64::from(u32::MAX), u64::from(u32::MAX)),
        "Expires" => number(text, message.expires(), u64::MAX, u64::from(u32::MAX)),
        "Contact" => contacts(message, text),
        "Route" => addresses(text, message.routes().collect()),
        "Record-Route" => addresses(text, message.record_routes().collect()),
        _ => {
            let tags: Vec<&[u8]> = message.option_tags(HeaderName::Supported).collect();
            let wanted = text.split(|&byte| byte == b',').map(values::trim).filter(|tag| !tag.is_empty());
            assert_eq!(tags, wanted.collect::<Vec<_>>(), "{}", show(text));
        }
    }
}

/// A tag is not empty: it would be none to us and maybe one to others.
fn tagged(address: Judged<values::Address<'_>>) -> Judged<values::Address<'_>> {
    let empty = |(name, value): &(&[u8], Option<&[u8]>)| name.eq_ignore_ascii_case(b"tag") && value.is_none();
    match address {
        Judged::Yes(address) if address.params.iter().any(empty) => Judged::No,
        other => other,
    }
}

fn judged(verdict: Option<bool>) -> Judged<()> {
    match verdict {
        Some(true) => Judged::Yes(()),
        Some(false) => Judged::No,
        None => Judged::TooLong,
    }
}

/// RFC 3261 §8.1.1.5: the number is less than 2^31.
fn cseq(text: &[u8]) -> Judged<(u32, &[u8])> {
    let Some(mut matcher) = Matcher::new(&OURS, text) else { return Judged::TooLong };
    let Some(parts) = matcher.parts("CSeq-value", &["cseq-number", "Method"]) else { return Judged::No };
    let part = |at: usize| &text[parts[at].1.clone()];
    match String::from_utf8_lossy(part(0)).parse::<u32>() {
        Ok(number) if number < 1 << 31 => Judged::Yes((number, part(1))),
        _ => Judged::No,
    }
}

/// `1*DIGIT` up to `max`; above `ceiling` it is read as `ceiling`.
fn number<E: std::fmt::Debug>(text: &[u8], ours: Result<Option<u32>, E>, max: u64, ceiling: u64) {
    let digits = judged(accepts(&OURS, "delta-seconds", text));
    let reference = match digits {
        Judged::Yes(()) => match String::from_utf8_lossy(text).parse().unwrap_or(u64::MAX) {
            n if n <= max => Judged::Yes(n.min(ceiling)),
            _ => Judged::No,
        },
        Judged::No => Judged::No,
        Judged::TooLong => Judged::TooLong,
    };
    if let Some((ours, wanted)) = agreed(text, ours, reference) {
        assert_eq!(ours.map(u64::from), Some(wanted), "{}", show(text));
    }
}

fn contacts(message: &Message<'_>, text: &[u8]) {
    let contacts = message.contacts();
    assert_eq!(contacts.is_star(), text == b"*", "{}", show(text));
    if contacts.is_star() {
        assert_eq!(contacts.count(), 0);
    } else {
        addresses(text, contacts.collect());
    }
}

fn addresses<E: std::fmt::Debug>(text: &[u8], ours: Result<Vec<NameAddr<'_>>, E>) {
    if let Some((ours, reference)) = agreed(text, ours, values::addresses(text)) {
        assert_eq!(ours.len(), reference.len(), "{}", show(text));
        ours.iter().zip(&reference).for_each(|(ours, wanted)| name_addr::same(ours, wanted));
    }
}
