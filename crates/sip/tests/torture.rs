//! The torture messages of RFC 4475 and RFC 5118 (`tests/torture/`): each is rejected by the layer that
//! `manifest.tsv` names, with the status it names; what is accepted means what the RFC says it means, can be
//! answered, and can be forwarded.

use sip::{
    CSeq, Edits, HeaderName, Host, Index, Message, Method, NameAddr, ResponseSpec, SipUri, Transport, Uri,
    Via, validate, write_response,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

#[path = "torture/rfc4475.rs"]
mod rfc4475;
#[path = "torture/rfc5118.rs"]
mod rfc5118;

/// One line of the manifest.
struct Row {
    file: String,
    kind: String,
    layer: String,
    status: String,
}

impl Row {
    /// True if `Message::parse` and `validate` must both let it pass.
    fn passes_sip(&self) -> bool {
        !matches!(self.layer.as_str(), "parse" | "validate")
    }
}

fn torture_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/torture")
}

fn manifest() -> Vec<Row> {
    let text = std::fs::read_to_string(torture_dir().join("manifest.tsv")).expect("the manifest is there");
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    assert_eq!(lines.next(), Some("file\tsection\tkind\tlayer\tstatus\tnote"));
    lines
        .map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            let &[file, _section, kind, layer, status, note] = fields.as_slice() else {
                panic!("not six columns: {line}")
            };
            assert!(!note.is_empty(), "{file} has no reason");
            Row { file: file.into(), kind: kind.into(), layer: layer.into(), status: status.into() }
        })
        .collect()
}

fn bytes_of(file: &str) -> Vec<u8> {
    std::fs::read(torture_dir().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Parses and validates a message that passes `sip`, and hands it to the test.
fn accepted(file: &str, test: impl FnOnce(Message<'_>)) {
    let bytes = bytes_of(file);
    let mut index = Index::new();
    let message = Message::parse(&bytes, &mut index).unwrap_or_else(|error| panic!("{file}: {error}"));
    validated(&message).unwrap_or_else(|status| panic!("{file} is rejected with {status}"));
    test(message);
}

/// Parses a message that `validate` rejects, and hands it to the test.
fn rejected(file: &str, test: impl FnOnce(Message<'_>)) {
    let bytes = bytes_of(file);
    let mut index = Index::new();
    let message = Message::parse(&bytes, &mut index).unwrap_or_else(|error| panic!("{file}: {error}"));
    assert!(validated(&message).is_err(), "{file} is accepted");
    test(message);
}

/// `Err` has the status.
fn validated(message: &Message<'_>) -> Result<(), u16> {
    let verdict = if message.is_request() { validate::request(message) } else { validate::response(message) };
    verdict.map_err(|reject| reject.status)
}

fn sip_uri(bytes: &[u8]) -> SipUri<'_> {
    match Uri::parse(bytes) {
        Ok(Uri::Sip(uri)) => uri,
        _ => panic!("{:?} is no SIP URI", String::from_utf8_lossy(bytes)),
    }
}

fn vias<'a>(message: &Message<'a>) -> Vec<Via<'a>> {
    message.vias().map(|via| via.expect("a well-formed Via")).collect()
}

fn contacts<'a>(message: &Message<'a>) -> Vec<NameAddr<'a>> {
    message.contacts().map(|contact| contact.expect("a well-formed Contact")).collect()
}

fn only_contact<'a>(message: &Message<'a>) -> NameAddr<'a> {
    let all = contacts(message);
    assert_eq!(all.len(), 1);
    all.into_iter().next().expect("invariant: one, counted above")
}

fn cseq<'a>(message: &Message<'a>) -> CSeq<'a> {
    message.cseq().expect("a well-formed CSeq")
}

/// The values of all header lines called `name`, as written.
fn values<'a>(message: &Message<'a>, name: &[u8]) -> Vec<&'a [u8]> {
    message.headers_named(name).map(|header| header.value).collect()
}

fn v6(text: &str) -> Host<'static> {
    Host::V6(text.parse::<Ipv6Addr>().expect("an IPv6 address"))
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

// ---- every message ------------------------------------------------------------------------------

#[test]
fn manifest_and_directory_name_the_same_files() {
    let mut named: Vec<String> = manifest().into_iter().map(|row| row.file).collect();
    let mut found = Vec::new();
    for set in ["rfc4475", "rfc5118"] {
        for entry in std::fs::read_dir(torture_dir().join(set)).unwrap() {
            found.push(format!("{set}/{}", entry.unwrap().file_name().into_string().unwrap()));
        }
    }
    named.sort();
    found.sort();
    assert_eq!(named, found);
    // 49 messages of RFC 4475 and one that is only in its archive; 12 of RFC 5118 and one as printed.
    assert_eq!(found.len(), 50 + 13);
}

#[test]
fn every_message_is_rejected_by_the_layer_the_manifest_names() {
    let mut wrong = Vec::new();
    for row in manifest() {
        let bytes = bytes_of(&row.file);
        let mut index = Index::new();
        let seen = match Message::parse(&bytes, &mut index) {
            Err(_) => "parse".to_string(),
            Ok(message) => {
                assert_eq!(message.is_request(), row.kind == "request", "{}", row.file);
                match validated(&message) {
                    Ok(()) => "accept".to_string(),
                    Err(_) if !message.is_request() => "validate drop".to_string(),
                    Err(status) => format!("validate {status}"),
                }
            }
        };
        let want = match row.layer.as_str() {
            "parse" => "parse".to_string(),
            "validate" => format!("validate {}", row.status),
            "accept" | "transaction" | "proxy" | "registrar" => "accept".to_string(),
            other => panic!("{}: no such layer: {other}", row.file),
        };
        if seen != want {
            wrong.push(format!("{}: {seen}, but should be {want}", row.file));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_request_that_parses_can_be_answered() {
    for row in manifest().iter().filter(|row| row.kind == "request" && row.layer != "parse") {
        let bytes = bytes_of(&row.file);
        let mut index = Index::new();
        let request = Message::parse(&bytes, &mut index).unwrap();
        for status in [100, 200, 400, 505] {
            answer(&row.file, &request, status, row.passes_sip());
        }
    }
}

/// RFC 3261 §8.2.6.2: From, Call-ID, CSeq and Via of the request, To with a tag.
fn answer(file: &str, request: &Message<'_>, status: u16, well_formed: bool) {
    let spec = ResponseSpec {
        status,
        reason: b"Because",
        to_tag: Some(b"torture"),
        received: Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 254))),
        rport: None,
        record_routes: true,
        headers: b"X-Torture: yes\r\n",
        body: b"",
    };
    let mut out = Vec::new();
    write_response(request, &spec, &mut out);
    let mut index = Index::new();
    let response = Message::parse(&out, &mut index).unwrap_or_else(|error| panic!("{file}: {error}"));
    assert!(!response.is_request(), "{file}");
    assert_eq!((response.status(), response.reason()), (Some(status), &b"Because"[..]), "{file}");
    assert_eq!(values(&response, b"x-torture"), [b"yes"], "{file}");
    if !well_formed {
        return;
    }
    assert_eq!(validated(&response), Ok(()), "{file}: {}", String::from_utf8_lossy(&out));
    assert_eq!(response.from().map(|from| from.uri), request.from().map(|from| from.uri), "{file}");
    assert_eq!(response.from_tag(), request.from_tag(), "{file}");
    assert_eq!(response.to().map(|to| to.uri), request.to().map(|to| to.uri), "{file}");
    assert_eq!(response.call_id(), request.call_id(), "{file}");
    assert_eq!(cseq(&response).number, cseq(request).number, "{file}");
    assert_eq!(cseq(&response).method_bytes, cseq(request).method_bytes, "{file}");
    if status != 100 {
        assert_eq!(response.to_tag(), request.to_tag().or(Some(b"torture")), "{file}");
    }
    let (theirs, ours) = (vias(request), vias(&response));
    assert_eq!(theirs.len(), ours.len(), "{file}");
    for (theirs, ours) in theirs.iter().zip(&ours) {
        assert_eq!(theirs.sent_by_bytes(), ours.sent_by_bytes(), "{file}");
        assert_eq!(theirs.branch(), ours.branch(), "{file}");
    }
    assert_eq!(ours.first().and_then(Via::received), spec.received, "{file}");
}

#[test]
fn every_request_that_passes_can_be_forwarded() {
    for row in manifest().iter().filter(|row| row.kind == "request" && row.passes_sip()) {
        accepted(&row.file, |request| forward(&row.file, &request));
    }
}

/// RFC 3261 §16.6: a Via more, Max-Forwards set, the top Route value gone; all else as it was.
fn forward(file: &str, request: &Message<'_>) {
    let mut edits = Edits::default();
    edits.push_via(request, |value| value.extend_from_slice(b"SIP/2.0/UDP 192.0.2.99;branch=z9hG4bKtorture"));
    edits.set_max_forwards(request, 41);
    edits.pop_route(request);
    let mut out = Vec::new();
    edits.write(request, &mut out);

    let mut index = Index::new();
    let forwarded = Message::parse(&out, &mut index).unwrap_or_else(|error| panic!("{file}: {error}"));
    assert_eq!(validated(&forwarded), Ok(()), "{file}: {}", String::from_utf8_lossy(&out));
    assert_eq!(forwarded.method_bytes(), request.method_bytes(), "{file}");
    assert_eq!(forwarded.request_uri(), request.request_uri(), "{file}");
    assert_eq!(forwarded.max_forwards(), Ok(Some(41)), "{file}");

    let (before, after) = (vias(request), vias(&forwarded));
    assert_eq!(after[0].branch(), Some(&b"z9hG4bKtorture"[..]), "{file}");
    assert_eq!(after.len(), before.len() + 1, "{file}");
    for (before, after) in before.iter().zip(&after[1..]) {
        assert_eq!(before.sent_by_bytes(), after.sent_by_bytes(), "{file}");
        assert_eq!(before.branch(), after.branch(), "{file}");
    }

    let routes = |m: &Message<'_>| m.routes().map(|r| r.expect("a Route").uri.to_vec()).collect::<Vec<_>>();
    assert_eq!(routes(&forwarded), routes(request).into_iter().skip(1).collect::<Vec<_>>(), "{file}");

    let untouched = |m: &Message<'_>| {
        let changed = [HeaderName::Via, HeaderName::MaxForwards, HeaderName::Route];
        m.all_headers()
            .filter(|header| !changed.contains(&header.name))
            .map(|header| (header.name_bytes.to_vec(), header.value.to_vec()))
            .collect::<Vec<_>>()
    };
    assert_eq!(untouched(&forwarded), untouched(request), "{file}");
    assert_eq!(forwarded.body(), request.body(), "{file}");
}

/// Bytes that mean something somewhere: put in the place of each byte of each message.
const MEANINGFUL: [u8; 12] = *b"\0\r\n ,;\"<:=%\xff";

#[test]
fn what_is_accepted_of_a_cut_message_is_answered_and_forwarded() {
    for row in manifest() {
        let bytes = bytes_of(&row.file);
        for end in 0..bytes.len() {
            look_at_everything(&format!("{}, first {end} bytes", row.file), &bytes[..end]);
        }
    }
}

#[test]
fn what_is_accepted_of_a_changed_message_is_answered_and_forwarded() {
    for row in manifest() {
        let mut bytes = bytes_of(&row.file);
        for at in 0..bytes.len() {
            let original = bytes[at];
            for byte in MEANINGFUL {
                bytes[at] = byte;
                look_at_everything(&format!("{}, byte {at} is {byte:#x}", row.file), &bytes);
            }
            bytes[at] = original;
        }
    }
}

/// Nothing panics whatever is read; what parses is answered; what validates keeps its meaning when forwarded.
fn look_at_everything(name: &str, bytes: &[u8]) {
    let mut index = Index::new();
    let Ok(message) = Message::parse(bytes, &mut index) else { return };
    let _ = (message.from().map(|from| from.uri()), message.to().map(|to| to.uri()), message.call_id());
    let _ = (message.cseq(), message.max_forwards(), message.expires(), message.content_length());
    for via in message.vias().flatten() {
        let _ = (via.branch(), via.received(), via.rport(), via.maddr(), via.ttl(), via.sent_by_bytes());
    }
    for contact in message.contacts().flatten() {
        let _ = (contact.uri(), contact.q(), contact.expires(), contact.tag());
    }
    for route in message.routes().chain(message.record_routes()).chain(message.paths()).flatten() {
        let _ = (route.uri(), route.params.count());
    }
    let verdict = validated(&message);
    if !message.is_request() {
        return;
    }
    let _ = Uri::parse(message.request_uri());
    // Only the topmost Via and Route need be sound for a message to pass; the others are compared when they are.
    let comparable = message.vias().all(|via| via.is_ok()) && message.routes().all(|route| route.is_ok());
    answer(name, &message, 200, verdict.is_ok() && comparable);
    if verdict.is_ok() && comparable {
        forward(name, &message);
    }
}
