//! What holds for any bytes and for any message: no panic, one meaning, edits that mean what they say.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use proptest::collection::vec;
use proptest::prelude::*;
use sip::{Edits, HeaderName, Index, Message, NameAddr, ResponseSpec, Uri, validate};

/// Everything that a reader can ask of a message, asked.
fn read_all(m: &Message<'_>) {
    let _ = (m.method(), m.method_bytes(), m.request_uri(), m.status(), m.reason(), m.version_ok());
    let _ = (m.via_top(), m.from(), m.to(), m.call_id(), m.cseq(), m.from_tag(), m.to_tag());
    let _ = (m.max_forwards(), m.expires(), m.content_length(), m.body(), m.headers_end());
    for via in m.vias().flatten() {
        let _ = (via.branch(), via.received(), via.rport(), via.maddr(), via.ttl(), via.params.count());
    }
    for address in m.routes().chain(m.record_routes()).chain(m.paths()).chain(m.contacts()).flatten() {
        let _ = (address.tag(), address.q(), address.expires(), address.params.count());
        read_uri(address.uri);
    }
    read_uri(m.request_uri());
    for header in m.all_headers() {
        assert!(m.headers_named(header.name_bytes).any(|h| h.line == header.line));
        let _ = NameAddr::parse(header.value);
    }
    let _ = m.option_tags(HeaderName::Supported).count();
    let _ = (validate::request(m), validate::response(m));
}

fn read_uri(text: &[u8]) {
    if let Ok(uri) = Uri::parse(text) {
        assert!(uri.equivalent(&uri));
        let mut out = Vec::new();
        sip::canonical_aor(&uri, true, &mut out);
        sip::canonical_aor(&uri, false, &mut out);
    }
}

/// What a message says, as owned values, so that two messages can be compared.
#[derive(Debug, PartialEq)]
struct Meaning {
    start: (Vec<u8>, Option<u16>, Vec<u8>),
    vias: Vec<Vec<u8>>,
    routes: Vec<Vec<u8>>,
    record_routes: Vec<Vec<u8>>,
    identity: [Vec<u8>; 4],
    max_forwards: Option<u32>,
    others: Vec<(Vec<u8>, Vec<u8>)>,
    body: Vec<u8>,
}

fn meaning(m: &Message<'_>) -> Meaning {
    let of = |span: std::ops::Range<u32>| m.bytes()[span.start as usize..span.end as usize].to_vec();
    let others = m.all_headers().filter(|h| h.name == HeaderName::Other);
    Meaning {
        start: (m.method_bytes().to_vec(), m.status(), m.request_uri().to_vec()),
        vias: m.vias().map(|v| of(v.unwrap().span)).collect(),
        routes: m.routes().map(|r| r.unwrap().uri.to_vec()).collect(),
        record_routes: m.record_routes().map(|r| r.unwrap().uri.to_vec()).collect(),
        identity: [
            m.from().unwrap().uri.to_vec(),
            m.to().unwrap().uri.to_vec(),
            m.call_id().unwrap().to_vec(),
            m.cseq().unwrap().number.to_string().into_bytes(),
        ],
        max_forwards: m.max_forwards().unwrap(),
        others: others.map(|h| (h.name_bytes.to_vec(), h.value.to_vec())).collect(),
        body: m.body().to_vec(),
    }
}

fn lws() -> impl Strategy<Value = String> {
    prop_oneof![Just(" ".into()), Just("\r\n ".into()), Just("\t \r\n\t".into())]
}

/// Linear white space where none is needed.
fn maybe_lws() -> impl Strategy<Value = String> {
    prop_oneof![3 => Just(String::new()), 1 => lws()]
}

fn param() -> impl Strategy<Value = String> {
    let value = prop_oneof!["[a-zA-Z0-9.:/\\[\\]-]{1,9}", r#""([a-z,;<>@ ]|\\"|\\\\){0,9}""#];
    ("[b-qs-z][a-z0-9-]{3,12}x", maybe_lws(), maybe_lws(), prop::option::of(value)).prop_map(
        |(name, before, after, value)| match value {
            Some(value) => format!("{before};{after}{name}{before}={after}{value}"),
            None => format!("{before};{name}"),
        },
    )
}

fn params() -> impl Strategy<Value = String> {
    vec(param(), 0..3).prop_filter_map("names differ", |params| {
        let mut names: Vec<String> = params
            .iter()
            .map(|p| {
                p.chars().filter(|c| !c.is_whitespace() && *c != ';').take_while(|c| *c != '=').collect()
            })
            .collect();
        names.sort();
        names.dedup();
        (names.len() == params.len()).then(|| params.concat())
    })
}

fn via() -> impl Strategy<Value = String> {
    let host = prop_oneof!["[a-z][a-z0-9-]{0,8}", Just("192.0.2.1".into()), Just("[2001:db8::1]".into())];
    let port = prop::option::of(1u16..);
    let rport = prop_oneof![Just(""), Just(";rport"), Just(";received=1.2.3.4;rport=7"), Just(";rport=1")];
    (maybe_lws(), lws(), host, port, rport, params()).prop_map(|(sep, gap, host, port, rport, params)| {
        let port = port.map(|p| format!("{sep}:{p}")).unwrap_or_default();
        format!("SIP{sep}/2.0/{sep}UDP{gap}{host}{port};branch=z9hG4bK{rport}{params}")
    })
}

fn route() -> impl Strategy<Value = String> {
    let display = prop_oneof![Just(""), Just("\"a, <b> \\\" ;c\" "), Just("Two Words ")];
    (display, "[a-z?;,&=]{0,5}[a-z]", "[a-z]{1,9}", params())
        .prop_map(|(display, user, host, params)| format!("{display}<sip:{user}@{host};lr>{params}"))
}

/// Values joined by commas on some lines.
fn lines(names: &'static [&'static str], values: Vec<String>, breaks: u8) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for (i, value) in values.into_iter().enumerate() {
        match lines.last_mut() {
            Some(line) if breaks >> (i % 8) & 1 == 0 => line.push_str(&[",\r\n ", &value].concat()),
            _ => lines.push(format!("{}:{value}", names[i % names.len()])),
        }
    }
    lines
}

fn message() -> impl Strategy<Value = Vec<u8>> {
    any::<bool>().prop_flat_map(message_of)
}

/// A request, or a response.
fn message_of(request: bool) -> impl Strategy<Value = Vec<u8>> {
    let vias = (vec(via(), 1..5), any::<u8>());
    let routes = (vec(route(), 0..5), any::<u8>());
    let record_routes = (vec(route(), 0..3), any::<u8>());
    let mandatory = (params(), prop::option::of(0u32..=255), 0u32..(1 << 31), prop::option::of(0usize..12));
    let others = vec("X-[a-z]{1,30}[ ]?:[ ]?[ -~]{0,20}", 0..4);
    (vias, routes, record_routes, mandatory, others, vec(any::<u8>(), 0..12)).prop_map(
        move |(vias, routes, record_routes, (tag, forwards, cseq, length), others, body)| {
            let mut head = match request {
                true => vec!["INVITE sip:b@b.example;x=1 SIP/2.0".to_string()],
                false => vec!["SIP/2.0 180 Ringing".to_string()],
            };
            head.extend(lines(&["Via", "v ", "VIA\t"], vias.0, vias.1));
            let (before, after) = others.split_at(others.len() / 2);
            head.extend_from_slice(before);
            head.extend(lines(&["Route"], routes.0, routes.1));
            head.extend(lines(&["record-route", "Record-Route"], record_routes.0, record_routes.1));
            head.push(format!("f:\"a\\\"\"<sip:a@a?x=y>;tag=1{tag}"));
            head.push("To : sip:b@b".to_string());
            head.push(format!("CSeq: {cseq}\r\n INVITE"));
            head.extend(forwards.map(|n| format!("Max-Forwards: {n}")));
            head.push("i: c1".to_string());
            head.extend_from_slice(after);
            head.extend(length.map(|n| format!("l: {}", n.min(body.len()))));
            let mut bytes = head.join("\r\n").into_bytes();
            bytes.extend_from_slice(b"\r\n\r\n");
            bytes.extend_from_slice(&body);
            bytes
        },
    )
}

#[derive(Clone, Debug)]
enum Change {
    RequestUri,
    PushVia,
    PopVia,
    PopRoute,
    RemoveRoute(usize),
    AppendRoute,
    PushRoute,
    RecordRoute,
    MaxForwards(u32),
    AppendHeader,
    InsertHeader,
    Body(Vec<u8>),
    RemoveBody,
    /// Something done and undone.
    Rewound,
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        Just(Change::RequestUri),
        Just(Change::PushVia),
        Just(Change::PopVia),
        Just(Change::PopRoute),
        (0usize..6).prop_map(Change::RemoveRoute),
        Just(Change::AppendRoute),
        Just(Change::PushRoute),
        Just(Change::RecordRoute),
        (0u32..=255).prop_map(Change::MaxForwards),
        Just(Change::AppendHeader),
        Just(Change::InsertHeader),
        vec(any::<u8>(), 0..9).prop_map(Change::Body),
        Just(Change::RemoveBody),
        Just(Change::Rewound),
    ]
}

/// What a list is after its own values were removed and others put around them.
#[derive(Default)]
struct List {
    before: Vec<Vec<u8>>,
    own: Vec<Option<Vec<u8>>>,
    after: Vec<Vec<u8>>,
}

impl List {
    fn of(values: &[Vec<u8>]) -> List {
        List { own: values.iter().cloned().map(Some).collect(), ..List::default() }
    }
    fn pop(&mut self) {
        if let Some(first) = self.own.iter_mut().find(|value| value.is_some()) {
            *first = None;
        }
    }
    fn values(self) -> Vec<Vec<u8>> {
        let own = self.own.into_iter().flatten();
        self.before.into_iter().rev().chain(own).chain(self.after).collect()
    }
}

/// Applies `changes` to the edits and, independently, to the meaning.
fn apply(m: &Message<'_>, changes: &[Change], edits: &mut Edits) -> Meaning {
    let mut want = meaning(m);
    let (mut vias, mut routes) = (List::of(&want.vias), List::of(&want.routes));
    let mut record_routes = List::of(&want.record_routes);
    let (mut first, mut last) = (Vec::new(), Vec::new());
    for (i, change) in changes.iter().enumerate() {
        let uri = format!("sip:new{i}").into_bytes();
        match change {
            Change::RequestUri => {
                edits.set_request_uri(m, &uri);
                if m.is_request() {
                    want.start.2 = uri;
                }
            }
            Change::PushVia => {
                let value = format!("SIP/2.0/UDP h{i};branch=z9").into_bytes();
                edits.push_via(m, |out| out.extend_from_slice(&value));
                vias.before.push(value);
            }
            Change::PopVia => {
                edits.pop_via(m);
                vias.pop();
            }
            Change::PopRoute => {
                edits.pop_route(m);
                routes.pop();
            }
            Change::RemoveRoute(nth) => {
                edits.remove_route(m, *nth);
                if let Some(value) = routes.own.get_mut(*nth) {
                    *value = None;
                }
            }
            Change::AppendRoute => {
                edits.append_route(m, &uri);
                routes.after.push(uri);
            }
            Change::PushRoute => {
                edits.push_route(m, &uri);
                routes.before.push(uri);
            }
            Change::RecordRoute => {
                edits.insert_record_route(m, &[b"<", &uri[..], b">"].concat());
                record_routes.before.push(uri);
            }
            Change::MaxForwards(n) => {
                edits.set_max_forwards(m, *n);
                want.max_forwards = Some(*n);
            }
            Change::AppendHeader => {
                edits.append_header(m, format!("Y-{i}: v\r\n").as_bytes());
                last.push((format!("Y-{i}").into_bytes(), b"v".to_vec()));
            }
            Change::InsertHeader => {
                edits.insert_header(m, format!("Z-{i}: v\r\n").as_bytes());
                first.insert(0, (format!("Z-{i}").into_bytes(), b"v".to_vec()));
            }
            Change::Body(body) => {
                edits.set_body(m, b"a/b", body);
                want.body = body.clone();
            }
            Change::RemoveBody => {
                edits.remove_body(m);
                want.body.clear();
            }
            Change::Rewound => {
                let mark = edits.mark();
                edits.set_max_forwards(m, 1);
                edits.pop_route(m);
                edits.pop_via(m);
                edits.set_body(m, b"c/d", b"undone");
                edits.push_via(m, |out| out.extend_from_slice(b"undone"));
                edits.rewind(mark);
            }
        }
    }
    (want.vias, want.routes, want.record_routes) = (vias.values(), routes.values(), record_routes.values());
    want.others = first.into_iter().chain(want.others).chain(last).collect();
    want
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read_without_panic(bytes in vec(any::<u8>(), 0..300)) {
        let mut index = Index::new();
        if let Ok(m) = Message::parse(&bytes, &mut index) {
            read_all(&m);
        }
        let _ = NameAddr::parse(&bytes);
        read_uri(&bytes);
    }

    #[test]
    fn any_text_behind_a_scheme_is_read_without_panic(text in "(sip|sips|tel|x):[ -~]{0,40}") {
        read_uri(text.as_bytes());
    }

    #[test]
    fn sound_messages_pass_and_keep_their_meaning(bytes in message()) {
        let (mut index, mut again) = (Index::new(), Index::new());
        let m = Message::parse(&bytes, &mut index).unwrap();
        let verdict = if m.is_request() { validate::request(&m) } else { validate::response(&m) };
        prop_assert_eq!(verdict, Ok(()));
        read_all(&m);
        let mut out = Vec::new();
        Edits::new().write(&m, &mut out);
        prop_assert_eq!(meaning(&m), meaning(&Message::parse(&out, &mut again).unwrap()));
    }

    #[test]
    fn mutated_messages_neither_panic_nor_change_meaning_when_written(
        bytes in message(),
        mutations in vec((any::<prop::sample::Index>(), prop_oneof![
            any::<u8>(),
            prop::sample::select(b"\r\n\t ,;:=<>\"\\()@[]?%/\0*".to_vec()),
        ], 0u8..3), 1..4),
    ) {
        let mut bytes = bytes;
        for (at, byte, kind) in mutations {
            let at = at.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => { bytes.remove(at); }
            }
        }
        let (mut index, mut again) = (Index::new(), Index::new());
        if let Ok(m) = Message::parse(&bytes, &mut index) {
            read_all(&m);
            let mut out = Vec::new();
            let spec = ResponseSpec { status: 400, to_tag: Some(b"t"), rport: Some(7), ..Default::default() };
            sip::write_response(&m, &spec, &mut out);
            prop_assert!(Message::parse(&out, &mut Index::new()).is_ok());
            out.clear();
            sip::derived::write_cancel(&m, &mut out);
            let accepted = validate::request(&m).is_ok()
                && m.vias().all(|v| v.is_ok())
                && m.routes().chain(m.record_routes()).all(|r| r.is_ok());
            if accepted {
                let cancel = Message::parse(&out, &mut again).unwrap();
                prop_assert_eq!(validate::request(&cancel), Ok(()));
                out.clear();
                let mut edits = Edits::new();
                let want = apply(&m, &[Change::PushVia, Change::PopRoute, Change::MaxForwards(9)], &mut edits);
                edits.set_received(&m, "192.0.2.9".parse().ok(), Some(99));
                edits.write(&m, &mut out);
                let written = Message::parse(&out, &mut again).unwrap();
                prop_assert_eq!(validate::request(&written), Ok(()));
                let got = meaning(&written);
                prop_assert_eq!(&got.vias[0], &want.vias[0]);
                prop_assert_eq!(Meaning { vias: want.vias.clone(), ..got }, want);
                let top = written.vias().nth(1).unwrap().unwrap();
                prop_assert_eq!(top.received(), "192.0.2.9".parse().ok());
                prop_assert!(top.rport().is_none_or(|port| port == Some(99)));
            }
        }
    }

    #[test]
    fn edits_mean_what_they_say(bytes in message(), changes in vec(change(), 0..12)) {
        let (mut index, mut again) = (Index::new(), Index::new());
        let m = Message::parse(&bytes, &mut index).unwrap();
        let (mut edits, mut out) = (Edits::new(), Vec::new());
        let want = apply(&m, &changes, &mut edits);
        prop_assert!(!edits.is_overflowed());
        edits.write(&m, &mut out);
        let written = Message::parse(&out, &mut again).unwrap();
        prop_assert_eq!(meaning(&written), want);
    }

    #[test]
    fn a_response_to_a_sound_request_is_sound(bytes in message_of(true), record_routes in any::<bool>()) {
        let (mut index, mut again) = (Index::new(), Index::new());
        let m = Message::parse(&bytes, &mut index).unwrap();
        let received = "2001:db8::7".parse().ok();
        let spec = ResponseSpec {
            status: 200, to_tag: Some(b"t"), received, rport: Some(9), record_routes, body: b"x", ..Default::default()
        };
        let mut out = Vec::new();
        sip::write_response(&m, &spec, &mut out);
        let response = Message::parse(&out, &mut again).unwrap();
        prop_assert_eq!(validate::response(&response), Ok(()));
        prop_assert_eq!(response.vias().count(), m.vias().count());
        prop_assert_eq!(response.record_routes().count(), if record_routes { m.record_routes().count() } else { 0 });
        let top = response.via_top().unwrap();
        prop_assert_eq!(top.received(), received);
        prop_assert_eq!(top.rport(), m.via_top().unwrap().rport().map(|_| Some(9)));
        prop_assert_eq!(response.to_tag(), Some(&b"t"[..]));
        prop_assert_eq!(response.body(), b"x");
    }
}
