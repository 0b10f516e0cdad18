//! Header fields that are lists (RFC 3261 §7.3.1), on one line or on several, between other lines: `header` has each on one.

use super::input::Input;
use super::{agreed, name_addr, show};
use reference::{Judged, is_value, values};
use sip::{HeaderName, Index, Message};

/// Lines of one list that are made of an input.
const LINES_MAX: usize = 5;

/// What a list is made of.
#[derive(Clone, Copy)]
enum Of {
    /// Addresses: Route, Record-Route (RFC 3261 §20.30, §20.34), Path (RFC 3327 §4).
    Addresses,
    /// Tokens: option-tags and methods.
    Tokens,
}

/// Long and compact names.
const LISTS: [(&str, &str, HeaderName, Of); 8] = [
    ("Route", "Route", HeaderName::Route, Of::Addresses),
    ("Record-Route", "Record-Route", HeaderName::RecordRoute, Of::Addresses),
    ("Path", "Path", HeaderName::Path, Of::Addresses),
    ("Supported", "k", HeaderName::Supported, Of::Tokens),
    ("Require", "Require", HeaderName::Require, Of::Tokens),
    ("Proxy-Require", "Proxy-Require", HeaderName::ProxyRequire, Of::Tokens),
    ("Unsupported", "Unsupported", HeaderName::Unsupported, Of::Tokens),
    ("Allow", "Allow", HeaderName::Allow, Of::Tokens),
];

/// See [`TARGETS`](crate::TARGETS). The first byte chooses the list, the second how its lines are written; NULs are between
/// the lines.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let &(long, compact, name, of) = input.pick(&LISTS);
    let mut style = input.byte();
    let lines: Vec<&[u8]> = input.rest().splitn(LINES_MAX, |&byte| byte == 0).collect();
    if lines.iter().any(|line| !is_value(line) || values::trim(line).is_empty()) {
        return;
    }
    let mut bytes = b"OPTIONS sip:h SIP/2.0\r\n".to_vec();
    for line in &lines {
        let spelling = if style & 1 == 0 { long.to_owned() } else { compact.to_ascii_uppercase() };
        bytes.extend_from_slice(spelling.as_bytes());
        bytes.extend_from_slice(if style & 2 == 0 { b": " } else { b"\t:" });
        bytes.extend_from_slice(line);
        // One that only looks like it.
        bytes.extend_from_slice(if style & 4 == 0 {
            b"\r\n"
        } else {
            b"\r\nX-Route: <sip:other>, other\r\n"
        });
        style = style.rotate_right(3);
    }
    bytes.extend_from_slice(b"\r\n");
    let mut index = Index::new();
    let message = Message::parse(&bytes, &mut index).unwrap_or_else(|e| panic!("{e}: {}", show(&bytes)));
    let lines: Vec<&[u8]> = lines.into_iter().map(values::trim).collect();
    let headers: Vec<&[u8]> = message.headers(name).map(|header| header.value).collect();
    assert_eq!(headers, lines, "{}", show(&bytes));
    match of {
        Of::Addresses => addresses(&message, name, &lines, &bytes),
        Of::Tokens => {
            let all = lines.iter().flat_map(|line| line.split(|&byte| byte == b','));
            let wanted: Vec<&[u8]> = all.map(values::trim).filter(|token| !token.is_empty()).collect();
            assert_eq!(message.option_tags(name).collect::<Vec<_>>(), wanted, "{}", show(&bytes));
        }
    }
}

/// The addresses of all lines, in order; none if one of the lines is malformed.
fn addresses(message: &Message<'_>, name: HeaderName, lines: &[&[u8]], bytes: &[u8]) {
    let ours = match name {
        HeaderName::Route => message.routes(),
        HeaderName::RecordRoute => message.record_routes(),
        _ => message.paths(),
    };
    // What comes before a malformed one is given: the rest is not.
    let before = ours.take_while(Result::is_ok).count();
    let mut reference = Judged::Yes(Vec::new());
    let mut sound = 0;
    for line in lines {
        reference = match (reference, values::addresses(line)) {
            (Judged::TooLong, _) | (_, Judged::TooLong) => Judged::TooLong,
            (Judged::Yes(mut all), Judged::Yes(more)) => {
                all.extend(more);
                sound = all.len();
                Judged::Yes(all)
            }
            _ => Judged::No,
        };
    }
    if !matches!(reference, Judged::TooLong) {
        assert!(before >= sound, "{before} of {sound}: {}", show(bytes));
    }
    if let Some((ours, reference)) = agreed(bytes, ours.collect::<Result<Vec<_>, _>>(), reference) {
        assert_eq!(ours.len(), reference.len(), "{}", show(bytes));
        ours.iter().zip(&reference).for_each(|(ours, wanted)| name_addr::same(ours, wanted));
    }
}
