//! Responses (RFC 3261 §8.2.6), and the ACK and CANCEL that a proxy makes itself (§17.1.1.3, §9.1).

use super::input::Input;
use super::meaning::{Meaning, is_sound};
use super::show;
use reference::Judged;
use reference::message;
use sip::{HeaderName, Index, MAX_HEADERS, Message, Method, ParseErrorKind, ResponseSpec, write_response};

/// Statuses of the responses: one of each kind that is written differently.
const STATUSES: [u16; 6] = [100, 180, 200, 302, 400, 699];

/// What a response has beside what it copies: a header of its own and Content-Length.
const LINES_OF_OURS: usize = 2;

/// See [`TARGETS`](crate::TARGETS). The first bytes say what is answered, the rest is the request.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let status = *input.pick(&STATUSES);
    let (to_tag, received, rport) = (input.flag(), input.flag(), input.flag());
    let record_routes = input.flag();
    let reason = input.bytes(12);
    let spec = ResponseSpec {
        status,
        reason,
        to_tag: to_tag.then_some(b"tag-of-ours"),
        received: received.then(|| "2001:db8::7".parse().expect("invariant: an address")),
        rport: rport.then_some(5062),
        record_routes,
        headers: b"X-Ours: 1\r\n",
        body: b"body",
    };
    let mut index = Index::new();
    let Ok(request) = Message::parse(input.rest(), &mut index) else { return };
    let mut out = Vec::new();
    write_response(&request, &spec, &mut out);
    let mut index = Index::new();
    let response = match Message::parse(&out, &mut index) {
        Ok(response) => response,
        Err(error) => {
            // Every Via has to be in it (RFC 3261 §8.2.6.2), whatever else is: of a request with as many lines as
            // there may be it has more than that.
            let is_full = request.all_headers().count() + LINES_OF_OURS > MAX_HEADERS;
            assert!(is_full && error.kind == ParseErrorKind::TooManyHeaders, "{error}: {}", show(&out));
            return;
        }
    };
    assert_eq!(response.status(), Some(status), "{}", show(&out));
    no_line_is_new(&request, &response, &out);
    if request.is_request() && is_sound(&request) {
        sound(&request, &spec, &response, &out);
        derived(&request, &response);
    }
}

/// Every header line is one that a response copies, once if it may be there once, or ours: whatever the
/// request, its bytes begin no line of their own.
fn no_line_is_new(request: &Message<'_>, response: &Message<'_>, out: &[u8]) {
    use HeaderName as N;
    let lists = [N::Via, N::RecordRoute];
    for name in lists {
        assert!(response.headers(name).count() <= request.headers(name).count(), "{}", show(out));
    }
    for name in [N::From, N::To, N::CallId, N::CSeq, N::Timestamp, N::ContentLength] {
        assert!(response.headers(name).count() <= 1, "{}", show(out));
    }
    let known = [N::From, N::To, N::CallId, N::CSeq, N::Timestamp, N::ContentLength];
    let strange = response.all_headers().filter(|h| !lists.contains(&h.name) && !known.contains(&h.name));
    let strange: Vec<_> = strange.map(|h| (h.name_bytes, h.value)).collect();
    assert_eq!(strange, [(&b"X-Ours"[..], &b"1"[..])], "{}", show(out));
    assert_eq!(response.body(), b"body", "{}", show(out));
}

fn sound(request: &Message<'_>, spec: &ResponseSpec<'_>, response: &Message<'_>, out: &[u8]) {
    assert_eq!(sip::validate::response(response), Ok(()), "{}", show(out));
    assert!(!matches!(message::message(out), Judged::No), "the reference refuses it: {}", show(out));
    assert_eq!(response.call_id(), request.call_id());
    assert_eq!(response.cseq(), request.cseq());
    assert_eq!(response.from_tag(), request.from_tag());
    assert_eq!(response.to_tag(), request.to_tag().or(spec.to_tag), "{}", show(out));
    let (top, was) = (response.via_top().expect("sound"), request.via_top().expect("sound"));
    assert_eq!((top.branch(), top.sent_by_bytes()), (was.branch(), was.sent_by_bytes()));
    if spec.received.is_some() {
        assert_eq!(top.received(), spec.received, "{}", show(out));
    }
    if spec.rport.is_some() {
        // RFC 3581 §4: filled in where it was asked for, and only there.
        assert_eq!(top.rport(), was.rport().map(|_| spec.rport), "{}", show(out));
    }
    let lower =
        |m: &Message<'_>| m.vias().skip(1).map(|via| via.map(|v| v.branch().map(<[u8]>::to_vec))).collect();
    let (now, before): (Vec<_>, Vec<_>) = (lower(response), lower(request));
    assert_eq!(now, before, "{}", show(out));
}

/// The CANCEL of a sound request, and the ACK of its response, are sound; they go where it went.
fn derived(request: &Message<'_>, response: &Message<'_>) {
    let mut cancel = Vec::new();
    sip::derived::write_cancel(request, &mut cancel);
    let mut ack = Vec::new();
    sip::derived::write_ack(request, response, &mut ack);
    for (bytes, method) in [(cancel, Method::Cancel), (ack, Method::Ack)] {
        let mut index = Index::new();
        let made = Message::parse(&bytes, &mut index).unwrap_or_else(|e| panic!("{e}: {}", show(&bytes)));
        assert_eq!(sip::validate::request(&made), Ok(()), "{}", show(&bytes));
        assert_eq!(made.method(), method);
        assert_eq!(made.request_uri(), request.request_uri());
        assert_eq!(made.vias().count(), 1, "{}", show(&bytes));
        assert_eq!(made.cseq().map(|cseq| cseq.number), request.cseq().map(|cseq| cseq.number));
        let routes = |m: &Message<'_>| Meaning::of(m).map(|meaning| meaning.routes);
        if let Some(wanted) = routes(request) {
            assert_eq!(routes(&made), Some(wanted), "{}", show(&bytes));
        }
    }
}
