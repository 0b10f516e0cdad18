//! Messages as they come in datagrams (RFC 3261 §7, §18.3).

use super::meaning::{Meaning, is_sound};
use super::{agreed, name_addr, show, via};
use reference::message::{self, Start};
use sip::{Edits, Index, Message};

/// See [`TARGETS`](crate::TARGETS).
pub fn run(bytes: &[u8]) {
    let mut index = Index::new();
    let parsed = Message::parse(bytes, &mut index);
    let sound = match &parsed {
        Ok(message) if is_sound(message) => Ok(*message),
        Ok(message) => Err(format!("{:?}", sip::validate::request(message))),
        Err(error) => Err(error.to_string()),
    };
    let _ = sip::response::reason_phrase(parsed.as_ref().ok().and_then(Message::status).unwrap_or(0));
    let Some((ours, reference)) = agreed(bytes, sound, message::message(bytes)) else { return };
    same(&ours, &reference);
    again(&ours, &reference);
}

fn same(ours: &Message<'_>, reference: &message::Message<'_>) {
    match reference.lines.start {
        Start::Request(method, uri) => {
            assert_eq!((ours.method_bytes(), ours.request_uri(), ours.status()), (method, uri, None));
        }
        Start::Status(status, reason) => assert_eq!((ours.status(), ours.reason()), (Some(status), reason)),
    }
    let names = ours.all_headers().map(|header| match header.name.as_str() {
        Some(long) => long.to_ascii_lowercase(),
        None => String::from_utf8_lossy(header.name_bytes).to_ascii_lowercase(),
    });
    let values = ours.all_headers().map(|header| header.value);
    let wanted: Vec<(String, &[u8])> =
        reference.lines.headers.iter().map(|h| (h.name.clone(), h.value)).collect();
    assert_eq!(names.zip(values).collect::<Vec<_>>(), wanted);
    let count = reference.vias.len();
    let vias: Vec<sip::Via<'_>> =
        ours.vias().take(count).collect::<Result<_, _>>().expect("they were judged");
    via::same(&vias, &reference.vias);
    name_addr::same(&ours.from().expect("it was judged"), &reference.from);
    name_addr::same(&ours.to().expect("it was judged"), &reference.to);
    assert_eq!(ours.call_id(), Ok(reference.call_id));
    assert_eq!(ours.cseq().map(|cseq| (cseq.number, cseq.method_bytes)), Ok(reference.cseq));
    if ours.is_request() {
        assert_eq!(ours.max_forwards(), Ok(reference.max_forwards));
    }
    assert_eq!(ours.body(), reference.body);
}

/// Written again, as it is and in a plain spelling of the reference, it means the same.
fn again(ours: &Message<'_>, reference: &message::Message<'_>) {
    let mut copy = Vec::new();
    Edits::new().write(ours, &mut copy);
    let meaning = Meaning::of(ours);
    let mut index = Index::new();
    let written = Message::parse(&copy, &mut index).unwrap_or_else(|e| panic!("{e}: {}", show(&copy)));
    assert_eq!(Meaning::of(&written), meaning, "{}", show(&copy));
    let plain = plainly(reference);
    let mut index = Index::new();
    let written = Message::parse(&plain, &mut index).unwrap_or_else(|e| panic!("{e}: {}", show(&plain)));
    assert!(is_sound(&written), "sound, and not once it is written plainly: {}", show(&plain));
    let names = |m: &Message<'_>| m.all_headers().map(|h| (h.name, h.value.to_vec())).collect::<Vec<_>>();
    assert_eq!(names(&written), names(ours), "{}", show(&plain));
    assert_eq!(written.body(), ours.body(), "{}", show(&plain));
}

/// Long names, one space, no folds before values.
fn plainly(message: &message::Message<'_>) -> Vec<u8> {
    let mut out = match message.lines.start {
        Start::Request(method, uri) => [method, b" ", uri, b" SIP/2.0\r\n"].concat(),
        Start::Status(status, reason) => [format!("SIP/2.0 {status} ").as_bytes(), reason, b"\r\n"].concat(),
    };
    for header in &message.lines.headers {
        out.extend_from_slice(&[header.name.as_bytes(), b": ", header.value, b"\r\n"].concat());
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(message.body);
    out
}
