//! Via values (RFC 3261 §20.42): `Message::vias` against the reference.

use super::uri::is_host;
use super::{agreed, show};
use reference::{is_value, values};
use sip::{Index, Message};

/// See [`TARGETS`](crate::TARGETS).
pub fn run(value: &[u8]) {
    if !is_value(value) {
        return;
    }
    let bytes = [b"OPTIONS sip:h SIP/2.0\r\nVia:", value, b"\r\n\r\n"].concat();
    let mut index = Index::new();
    let message = Message::parse(&bytes, &mut index).unwrap_or_else(|e| panic!("{e}: {}", show(&bytes)));
    let ours: Result<Vec<sip::Via<'_>>, _> = message.vias().collect();
    let reference = values::vias(values::trim(value));
    if let Some((ours, reference)) = agreed(value, ours, reference) {
        same(&ours, &reference);
        assert_eq!(message.via_top().ok().as_ref(), ours.first(), "{}", show(value));
        assert_eq!(message.via_below().as_ref(), ours.get(1), "{}", show(value));
    }
}

/// What the server read is what the reference read.
pub(super) fn same(ours: &[sip::Via<'_>], reference: &[values::Via<'_>]) {
    assert_eq!(ours.len(), reference.len(), "{reference:?}");
    for (ours, wanted) in ours.iter().zip(reference) {
        let transport = sip::Transport::of(wanted.transport);
        assert_eq!(ours.transport, transport, "{wanted:?}");
        assert!(is_host(&ours.host, wanted.host), "{:?} is not {wanted:?}", ours.host);
        let port = wanted.port.map(|port| String::from_utf8_lossy(port).parse().expect("invariant: judged"));
        assert_eq!(ours.port, port, "{wanted:?}");
        assert_eq!(ours.params.collect::<values::Params<'_>>(), wanted.params, "{wanted:?}");
        let param = |name: &[u8]| {
            let found = wanted.params.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
            found.map(|(_, value)| *value)
        };
        assert_eq!(ours.branch(), param(b"branch").flatten(), "{wanted:?}");
        assert_eq!(ours.rport().is_some(), param(b"rport").is_some(), "{wanted:?}");
        let ttl = param(b"ttl").flatten().filter(|ttl| ttl.iter().all(u8::is_ascii_digit));
        let ttl = ttl.and_then(|ttl| String::from_utf8_lossy(ttl).parse().ok());
        assert_eq!(ours.ttl(), ttl, "{wanted:?}");
    }
}
