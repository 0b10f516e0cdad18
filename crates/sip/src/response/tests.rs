//! RFC 3261 §8.2.6, §18.2.1; RFC 3581 §4.

use super::*;
use crate::{Index, Problem, validate};
use alloc::string::String;

fn respond(request: &[u8], spec: &ResponseSpec<'_>) -> String {
    let mut index = Index::new();
    let request = Message::parse(request, &mut index).unwrap();
    let mut out = Vec::new();
    write_response(&request, spec, &mut out);
    String::from_utf8(out).unwrap()
}

const REQUEST: &str = "INVITE sip:b@b SIP/2.0\r\nRecord-Route: <sip:p1;lr>\r\n\
Via: SIP/2.0/UDP 10.0.0.1;rport;branch=z9hG4bK1, SIP/2.0/TCP c\r\nFrom: <sip:a@a>;tag=1\r\nTo: <sip:b@b>\r\n\
v: SIP/2.0/UDP d\r\nCall-ID: c1\r\nCSeq: 1 INVITE\r\nTimestamp: 54\r\nContact: <sip:a@c>\r\nRecord-Route: <sip:p0;lr>\r\n\
Content-Length: 0\r\n\r\n";

#[test]
fn a_response_copies_what_section_8_2_6_says() {
    let ip = "192.0.2.7".parse().ok();
    let spec = ResponseSpec {
        status: 404,
        to_tag: Some(b"t"),
        received: ip,
        rport: Some(999),
        ..Default::default()
    };
    assert_eq!(
        respond(REQUEST.as_bytes(), &spec),
        "SIP/2.0 404 Not Found\r\n\
         Via: SIP/2.0/UDP 10.0.0.1;rport=999;branch=z9hG4bK1;received=192.0.2.7, SIP/2.0/TCP c\r\n\
         v: SIP/2.0/UDP d\r\nFrom: <sip:a@a>;tag=1\r\nTo: <sip:b@b>;tag=t\r\nCall-ID: c1\r\nCSeq: 1 INVITE\r\n\
         Content-Length: 0\r\n\r\n"
    );
}

#[test]
fn a_100_has_the_timestamp_and_no_tag() {
    let text = respond(REQUEST.as_bytes(), &ResponseSpec { status: 100, ..Default::default() });
    assert!(text.contains("\r\nTimestamp: 54\r\n") && text.contains("\r\nTo: <sip:b@b>\r\n"));
    let text = respond(REQUEST.as_bytes(), &ResponseSpec { status: 180, ..Default::default() });
    assert!(!text.contains("Timestamp"));
}

#[test]
fn record_routes_are_copied_in_order_when_a_dialog_forms() {
    let spec = ResponseSpec {
        status: 200,
        record_routes: true,
        headers: b"X: y\r\n",
        body: b"hi",
        ..Default::default()
    };
    let text = respond(REQUEST.as_bytes(), &spec);
    let (first, second) = (text.find("<sip:p1;lr>").unwrap(), text.find("<sip:p0;lr>").unwrap());
    assert!(first < second);
    assert!(text.ends_with("X: y\r\nContent-Length: 2\r\n\r\nhi"));
}

#[test]
fn a_tag_that_is_there_stays() {
    let spec = ResponseSpec { status: 481, to_tag: Some(b"new"), ..Default::default() };
    let request = REQUEST.replace("To: <sip:b@b>", "To: <sip:b@b>;tag=old");
    assert!(respond(request.as_bytes(), &spec).contains("\r\nTo: <sip:b@b>;tag=old\r\n"));
}

#[test]
fn a_forged_received_is_replaced_and_rport_left_out_where_not_asked_for() {
    let request = REQUEST.replace(";rport;branch=z9hG4bK1", ";received=1.2.3.4");
    let ip = "2001:db8::1".parse().ok();
    let spec = ResponseSpec { status: 200, received: ip, rport: Some(5), ..Default::default() };
    assert!(respond(request.as_bytes(), &spec).contains("10.0.0.1;received=2001:db8::1, SIP"));
}

#[test]
fn line_ends_cannot_be_smuggled_in() {
    let spec = ResponseSpec { status: 500, reason: b"a\r\nX: y", ..Default::default() };
    assert!(respond(REQUEST.as_bytes(), &spec).starts_with("SIP/2.0 500 a  X: y\r\n"));
    let request = REQUEST.replace("c1\r\n", "c1\nX: y\r\n");
    let text = respond(request.as_bytes(), &ResponseSpec { status: 400, ..Default::default() });
    assert!(text.contains("\r\nCall-ID: c1 X: y\r\n"), "{text}");
}

#[test]
fn any_request_that_parses_can_be_answered() {
    let mut many = String::from("FOO bar SIP/9.9\r\n");
    (0..70).for_each(|i| many.push_str(&alloc::format!("Via: SIP/2.0/UDP h{i}\r\n")));
    for request in
        [&many[..], "FOO bar SIP/9.9\r\n", "F SIP/2.0\r\nTo", "F SIP/2.0\r\nTo: \"\r\nVia: ,\r\nCSeq:"]
    {
        let spec = ResponseSpec { status: 400, to_tag: Some(b"t"), rport: Some(1), ..Default::default() };
        let text = respond(request.as_bytes(), &spec);
        let mut index = Index::new();
        let response = Message::parse(text.as_bytes(), &mut index).unwrap();
        assert_eq!(response.status(), Some(400));
        assert_eq!(response.headers(HeaderName::Via).count(), request.matches("Via:").count());
        assert!(validate::response(&response).is_err());
        assert_ne!(response.cseq().unwrap_err().problem, Problem::Repeated);
    }
}

#[test]
fn every_status_has_a_phrase() {
    assert!((100..700).all(|status| !reason_phrase(status).is_empty()));
    assert_eq!(reason_phrase(483), "Too Many Hops");
    assert_eq!(reason_phrase(499), "Bad Request");
}

/// RFC 2543 §6.40: what is written before a comment does not make it a value, nor what is in it parameters.
#[test]
fn a_comment_behind_the_top_via_stays_one() {
    for via in
        ["10.0.0.1(c;branch=z9hG4bKc;rport)", "10.0.0.1;x=\"\"(c;branch=z9hG4bKc)", "10.0.0.1 (c;rport)"]
    {
        let request = REQUEST.replace("10.0.0.1;rport;branch=z9hG4bK1", via);
        let spec = ResponseSpec {
            status: 200,
            received: "192.0.2.7".parse().ok(),
            rport: Some(999),
            ..Default::default()
        };
        let response = respond(request.as_bytes(), &spec);
        let mut index = Index::new();
        let response = Message::parse(response.as_bytes(), &mut index).unwrap();
        let top = response.via_top().unwrap();
        assert_eq!((top.received(), top.branch(), top.rport()), (spec.received, None, None), "{via}");
        assert_eq!(response.vias().count(), 3, "{via}");
    }
}
