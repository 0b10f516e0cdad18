//! What a message means, so that two can be compared whatever their bytes are.

use sip::{Header, Message};

/// All that an element may act on. Lists are flat, whatever lines they were on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Meaning {
    pub(super) start: (bool, Vec<u8>, Vec<u8>, Option<u16>, Vec<u8>),
    pub(super) vias: Vec<Vec<u8>>,
    pub(super) routes: Vec<Vec<u8>>,
    pub(super) record_routes: Vec<Vec<u8>>,
    pub(super) identity: [Vec<u8>; 4],
    pub(super) max_forwards: Option<u32>,
    /// Names in lower case and values of all other header fields but Content-Length.
    pub(super) others: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) body: Vec<u8>,
}

impl Meaning {
    /// `None` for a message with a value that cannot be read.
    pub(super) fn of(m: &Message<'_>) -> Option<Meaning> {
        let text = |span: std::ops::Range<u32>| m.bytes()[span.start as usize..span.end as usize].to_vec();
        let uris = |values: sip::NameAddrs<'_>| {
            values.map(|value| Some(text(value.ok()?.span))).collect::<Option<_>>()
        };
        let cseq = m.cseq().ok()?;
        Some(Meaning {
            start: (
                m.is_request(),
                m.method_bytes().to_vec(),
                m.request_uri().to_vec(),
                m.status(),
                m.reason().to_vec(),
            ),
            vias: m.vias().map(|via| Some(text(via.ok()?.span))).collect::<Option<_>>()?,
            routes: uris(m.routes())?,
            record_routes: uris(m.record_routes())?,
            identity: [
                text(m.from().ok()?.span),
                text(m.to().ok()?.span),
                m.call_id().ok()?.to_vec(),
                [cseq.number.to_string().as_bytes(), b" ", cseq.method_bytes].concat(),
            ],
            max_forwards: m.max_forwards().ok()?,
            others: others(m).map(|h| (h.name_bytes.to_ascii_lowercase(), h.value.to_vec())).collect(),
            body: m.body().to_vec(),
        })
    }
}

/// The header fields that mean nothing to an element.
pub(super) fn others<'m>(m: &Message<'m>) -> impl Iterator<Item = Header<'m>> {
    use sip::HeaderName as N;
    let lists = [N::Via, N::Route, N::RecordRoute, N::MaxForwards, N::ContentLength];
    let single = [N::From, N::To, N::CallId, N::CSeq];
    m.all_headers().filter(move |h| !lists.contains(&h.name) && !single.contains(&h.name))
}

/// Whether a message may be acted on.
pub(super) fn is_sound(m: &Message<'_>) -> bool {
    let verdict = if m.is_request() { sip::validate::request(m) } else { sip::validate::response(m) };
    verdict.is_ok()
}
