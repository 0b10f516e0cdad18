//! Requests that a proxy makes itself from an INVITE that it sent: ACK for a non-2xx and CANCEL.

use crate::response::{lines, push_first, push_line};
use crate::token::push_number;
use crate::{HeaderName, Message};
use alloc::vec::Vec;

/// Appends the ACK for a non-2xx final `response` to the sent `invite` (RFC 3261 §17.1.1.3).
///
/// Request-URI, topmost Via alone, Route, From, Call-ID and CSeq number are the INVITE's, To is the response's.
pub fn write_ack(invite: &Message<'_>, response: &Message<'_>, out: &mut Vec<u8>) {
    let to = if response.header(HeaderName::To).is_some() { response } else { invite };
    write(invite, b"ACK", to, out);
}

/// Appends the CANCEL of the sent `invite` (RFC 3261 §9.1): like the ACK, but To is the INVITE's.
pub fn write_cancel(invite: &Message<'_>, out: &mut Vec<u8>) {
    write(invite, b"CANCEL", invite, out);
}

fn write(invite: &Message<'_>, method: &[u8], to: &Message<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(method);
    out.push(b' ');
    out.extend_from_slice(invite.request_uri());
    out.extend_from_slice(b" SIP/2.0\r\n");
    if let Ok(via) = invite.via_top() {
        out.extend_from_slice(b"Via: ");
        out.extend_from_slice(
            invite.bytes.get(via.span.start as usize..via.span.end as usize).unwrap_or(&[]),
        );
        out.extend_from_slice(b"\r\n");
    }
    lines(invite, HeaderName::Route).for_each(|line| push_line(invite, line, out));
    // RFC 3261 §8.1.1.6: SHOULD be 70.
    out.extend_from_slice(b"Max-Forwards: 70\r\n");
    push_first(invite, HeaderName::From, out);
    push_first(to, HeaderName::To, out);
    push_first(invite, HeaderName::CallId, out);
    out.extend_from_slice(b"CSeq: ");
    push_number(out, invite.cseq().map_or(0, |cseq| cseq.number));
    out.push(b' ');
    out.extend_from_slice(method);
    out.extend_from_slice(b"\r\nContent-Length: 0\r\n\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Index, Method, validate};

    const INVITE: &[u8] = b"INVITE sip:bob@192.0.2.4;x=y SIP/2.0\r\n\
        v: SIP/2.0/UDP p.example;branch=z9hG4bKp ,\r\n SIP/2.0/UDP c.example;branch=z9hG4bKc\r\n\
        Route: <sip:r1;lr>, <sip:r2;lr>\r\nf: <sip:a@a>;tag=1\r\nt: <sip:b@b>\r\ni: abc\r\nRoute: <sip:r3;lr>\r\n\
        CSeq: 0009\r\n INVITE\r\nContact: <sip:a@c>\r\nContent-Length: 2\r\n\r\nhi";

    #[test]
    fn the_ack_has_one_via_the_routes_and_the_to_of_the_response() {
        let (mut a, mut b, mut c) = (Index::new(), Index::new(), Index::new());
        let invite = Message::parse(INVITE, &mut a).unwrap();
        let busy = b"SIP/2.0 486 Busy Here\r\nTo: <sip:b@b>;tag=2\r\n\r\n";
        let busy = Message::parse(busy, &mut b).unwrap();
        let mut out = Vec::new();
        write_ack(&invite, &busy, &mut out);
        let ack = Message::parse(&out, &mut c).unwrap();
        assert_eq!(validate::request(&ack), Ok(()));
        assert_eq!(ack.method(), Method::Ack);
        assert_eq!(ack.request_uri(), b"sip:bob@192.0.2.4;x=y");
        assert_eq!(ack.vias().count(), 1);
        assert_eq!(ack.via_top().unwrap().branch(), Some(&b"z9hG4bKp"[..]));
        assert!(ack.routes().map(|r| r.unwrap().uri).eq([&b"sip:r1;lr"[..], b"sip:r2;lr", b"sip:r3;lr"]));
        assert_eq!((ack.from_tag(), ack.to_tag()), (Some(&b"1"[..]), Some(&b"2"[..])));
        assert_eq!(ack.cseq().unwrap().number, 9);
        assert_eq!(ack.max_forwards(), Ok(Some(70)));
        assert_eq!(ack.header(HeaderName::Contact), None);
        assert_eq!(ack.body(), b"");
    }

    #[test]
    fn the_cancel_has_the_to_of_the_request() {
        let (mut a, mut c) = (Index::new(), Index::new());
        let invite = Message::parse(INVITE, &mut a).unwrap();
        let mut out = Vec::new();
        write_cancel(&invite, &mut out);
        let cancel = Message::parse(&out, &mut c).unwrap();
        assert_eq!(validate::request(&cancel), Ok(()));
        assert_eq!(cancel.method(), Method::Cancel);
        assert_eq!((cancel.from_tag(), cancel.to_tag()), (Some(&b"1"[..]), None));
        assert_eq!(cancel.cseq().unwrap().method, Method::Cancel);
    }
}
