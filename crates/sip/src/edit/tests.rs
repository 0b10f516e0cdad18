//! RFC 3261 §16.4, §16.6, §16.7: what a proxy changes.

use super::*;
use crate::{Index, validate};
use alloc::string::String;

const INVITE: &str = "INVITE sip:b@b SIP/2.0\r\nVia: SIP/2.0/UDP 10.0.0.1;rport;branch=z9hG4bK1\r\n\
Route: <sip:r1;lr>, <sip:r2;lr>,\r\n <sip:r3;lr>\r\nMax-Forwards: 70\r\nFrom: <sip:a@a>;tag=1\r\nTo: <sip:b@b>\r\n\
Call-ID: c1\r\nCSeq: 1 INVITE\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nhi";

fn edited(text: &str, edit: impl FnOnce(&Message<'_>, &mut Edits)) -> String {
    let (mut index, mut again) = (Index::new(), Index::new());
    let message = Message::parse(text.as_bytes(), &mut index).unwrap();
    let mut edits = Edits::new();
    edit(&message, &mut edits);
    assert!(!edits.is_overflowed());
    let mut out = Vec::new();
    edits.write(&message, &mut out);
    let written = Message::parse(&out, &mut again).unwrap();
    if message.is_request() && validate::request(&message).is_ok() {
        assert_eq!(validate::request(&written), Ok(()));
    }
    String::from_utf8(out).unwrap()
}

#[test]
fn no_edits_write_the_same_bytes() {
    assert_eq!(edited(INVITE, |_, _| {}), INVITE);
    let surplus = [&["\r\n\r\n", INVITE].concat()[..], "surplus"].concat();
    assert_eq!(edited(&surplus, |_, _| {}), INVITE);
}

#[test]
fn a_forwarded_invite_has_all_its_changes() {
    let text = edited(INVITE, |m, e| {
        e.set_received(m, "192.0.2.7".parse().ok(), Some(999));
        e.set_request_uri(m, b"sip:first");
        e.set_max_forwards(m, 69);
        e.insert_record_route(m, b"<sip:me;lr>");
        e.pop_route(m);
        e.push_via(m, |v| v.extend_from_slice(b"SIP/2.0/UDP me;branch=z9hG4bK2"));
        e.append_header(m, b"X: y\r\n");
        e.set_request_uri(m, b"sip:b@192.0.2.9");
    });
    assert_eq!(
        text,
        "INVITE sip:b@192.0.2.9 SIP/2.0\r\nVia: SIP/2.0/UDP me;branch=z9hG4bK2\r\nRecord-Route: <sip:me;lr>\r\n\
         Via: SIP/2.0/UDP 10.0.0.1;rport=999;branch=z9hG4bK1;received=192.0.2.7\r\n\
         Route: <sip:r2;lr>,\r\n <sip:r3;lr>\r\nMax-Forwards: 69\r\nFrom: <sip:a@a>;tag=1\r\nTo: <sip:b@b>\r\n\
         Call-ID: c1\r\nCSeq: 1 INVITE\r\nContent-Type: text/plain\r\nContent-Length: 2\r\nX: y\r\n\r\nhi"
    );
}

#[test]
fn rport_behind_which_nothing_stands_is_filled_before_received() {
    let request = INVITE.replace(";rport;branch=z9hG4bK1", ";branch=z9hG4bK1;rport");
    let text = edited(&request, |m, e| {
        e.set_received(m, "1.2.3.4".parse().ok(), None);
        e.set_received(m, "192.0.2.7".parse().ok(), Some(999));
    });
    assert!(text.contains(";branch=z9hG4bK1;rport=999;received=192.0.2.7\r\n"), "{text}");
}

#[test]
fn max_forwards_is_added_where_there_is_none() {
    let without = INVITE.replace("Max-Forwards: 70\r\n", "");
    let text = edited(&without, |m, e| {
        e.set_max_forwards(m, 70);
        e.set_max_forwards(m, 69);
    });
    assert_eq!(text.matches("Max-Forwards: ").count(), 1);
    assert!(text.contains("\r\nMax-Forwards: 69\r\n"));
}

fn routes(text: &str) -> Vec<String> {
    let mut index = Index::new();
    let message = Message::parse(text.as_bytes(), &mut index).unwrap();
    message.routes().map(|r| String::from_utf8(r.unwrap().uri.to_vec()).unwrap()).collect()
}

#[test]
fn any_order_of_route_removals_leaves_the_others() {
    let all = ["sip:r1;lr", "sip:r2;lr", "sip:r3;lr"];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        for count in 0..=3 {
            let gone = order.get(..count).unwrap();
            let text = edited(INVITE, |m, e| gone.iter().for_each(|&nth| e.remove_route(m, nth)));
            let left: Vec<_> = (0..3).filter(|i| !gone.contains(i)).map(|i| all[i]).collect();
            assert_eq!(routes(&text), left, "{gone:?}");
            assert_eq!(text.contains("Route:"), count < 3);
        }
    }
}

#[test]
fn each_pop_takes_one_more() {
    for (pops, left) in [(1, 2), (2, 1), (3, 0), (4, 0)] {
        let text = edited(INVITE, |m, e| (0..pops).for_each(|_| e.pop_route(m)));
        assert_eq!(routes(&text).len(), left);
    }
}

#[test]
fn a_strict_router_gets_the_request_uri_last() {
    let text = edited(INVITE, |m, e| {
        e.set_request_uri(m, b"sip:r1");
        e.pop_route(m);
        e.append_route(m, m.request_uri());
        e.push_route(m, b"sip:p2;lr");
        e.push_route(m, b"sip:p1;lr");
    });
    assert_eq!(routes(&text), ["sip:p1;lr", "sip:p2;lr", "sip:r2;lr", "sip:r3;lr", "sip:b@b"]);
    let text = edited(&INVITE.replace("Route: <sip:r1;lr>, <sip:r2;lr>,\r\n <sip:r3;lr>\r\n", ""), |m, e| {
        e.append_route(m, b"sip:x");
        e.push_route(m, b"sip:w;lr");
        e.append_route(m, b"sip:y");
    });
    assert_eq!(routes(&text), ["sip:w;lr", "sip:x", "sip:y"]);
}

#[test]
fn a_response_loses_its_top_via_only() {
    let response =
        "SIP/2.0 200 OK\r\nv: SIP/2.0/UDP a;x=\"1,2\" ,\r\n SIP/2.0/TCP b\r\nVia: SIP/2.0/UDP c\r\n\r\n";
    let pop = |n: usize| edited(response, |m, e| (0..n).for_each(|_| e.pop_via(m)));
    assert_eq!(pop(1), "SIP/2.0 200 OK\r\nv: SIP/2.0/TCP b\r\nVia: SIP/2.0/UDP c\r\n\r\n");
    assert_eq!(pop(2), "SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP c\r\n\r\n");
    assert_eq!(pop(3), "SIP/2.0 200 OK\r\n\r\n");
    assert_eq!(pop(4), pop(3));
}

#[test]
fn an_outer_removal_swallows_what_is_inside() {
    let text = edited(INVITE, |m, e| {
        e.set_received(m, "1.2.3.4".parse().ok(), Some(1));
        e.remove_header(&m.header(HeaderName::CSeq).unwrap());
        e.pop_via(m);
        e.push_via(m, |v| v.extend_from_slice(b"SIP/2.0/UDP me"));
        e.append_header(m, b"CSeq: 1 INVITE\r\n");
    });
    assert!(!text.contains("1.2.3.4") && text.contains("Via: SIP/2.0/UDP me\r\nRoute:"));
    assert_eq!(text.matches("CSeq").count(), 1);
}

#[test]
fn a_mark_undoes_what_came_after() {
    let (mut index, mut edits, mut out) = (Index::new(), Edits::new(), Vec::new());
    let m = Message::parse(INVITE.as_bytes(), &mut index).unwrap();
    edits.set_max_forwards(&m, 69);
    edits.remove_route(&m, 1);
    edits.write(&m, &mut out);
    let mark = edits.mark();
    edits.set_request_uri(&m, b"sip:x");
    edits.set_max_forwards(&m, 1);
    edits.pop_route(&m);
    edits.push_via(&m, |v| v.extend_from_slice(b"SIP/2.0/UDP me"));
    edits.rewind(mark);
    let mut again = Vec::new();
    edits.write(&m, &mut again);
    assert_eq!(out, again);
    edits.clear();
    assert!(edits.is_empty());
    again.clear();
    edits.write(&m, &mut again);
    assert_eq!(again, INVITE.as_bytes());
}

#[test]
fn bodies_and_the_headers_that_describe_them() {
    let text = edited(INVITE, |m, e| e.set_body(m, b"a/b", b"longer"));
    assert!(text.contains("\r\nContent-Type: a/b\r\nContent-Length: 6\r\n\r\nlonger"), "{text}");
    let text = edited(INVITE, |m, e| e.remove_body(m));
    assert!(!text.contains("Content-Type") && text.ends_with("Content-Length: 0\r\n\r\n"));
    let bare = "INVITE sip:b@b SIP/2.0\r\nc: x/y\r\ne: gzip\r\n\r\n";
    let text = edited(bare, |m, e| {
        e.set_body(m, b"a/b", b"1");
        e.remove_body(m);
        e.set_body(m, b"c/d", b"22");
    });
    assert_eq!(text, "INVITE sip:b@b SIP/2.0\r\nContent-Type: c/d\r\nContent-Length: 2\r\n\r\n22");
}

#[test]
fn spans_can_be_replaced_and_headers_inserted() {
    let text = edited(INVITE, |m, e| {
        let call_id = m.header(HeaderName::CallId).unwrap();
        e.replace_span(call_id.value_start..call_id.value_start + call_id.value.len() as u32, b"c2");
        e.insert_header(m, b"Y: 1\r\n");
        e.insert_header(m, b"X: 1\r\n");
    });
    assert!(text.starts_with("INVITE sip:b@b SIP/2.0\r\nX: 1\r\nY: 1\r\nVia:"));
    assert!(text.contains("\r\nCall-ID: c2\r\n"));
}

#[test]
fn edits_are_bounded_and_say_so() {
    let mut index = Index::new();
    let m = Message::parse(INVITE.as_bytes(), &mut index).unwrap();
    let mut edits = Edits::new();
    for _ in 0..=MAX_EDITS {
        edits.append_header(&m, b"X: y\r\n");
    }
    assert!(edits.is_overflowed());
    edits.clear();
    edits.append_header(&m, &Vec::from([b'x'; MAX_EDIT_BYTES + 1]));
    assert!(edits.is_overflowed());
    let mut out = Vec::new();
    edits.write(&m, &mut out);
    assert_eq!(out, INVITE.as_bytes());
}
