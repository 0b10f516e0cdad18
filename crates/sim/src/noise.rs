//! Messages that no well-behaved element sends: strays, fragments, contradictions. Their Call-IDs begin with
//! `noise`, and no promise holds for them but those about sizes, rest and panics.

use crate::prng::Prng;
use std::net::SocketAddr;

/// The beginning of every Call-ID here.
pub const CALL_ID: &str = "noise";

/// One such message for a server.
pub fn draw(prng: &mut Prng, server: SocketAddr) -> Vec<u8> {
    let word = prng.word();
    let branch =
        *prng.pick(&["z9hG4bK", "z9hG4bKx", "old-style", "z9hG4bK-very-long-very-long-very-long-very-long"]);
    let head = format!(
        "Via: SIP/2.0/UDP 10.3.0.1;branch={branch}{word}\r\nMax-Forwards: 9\r\nFrom: <sip:x@y>;tag={word}\r\n\
         To: <sip:noise@home.example>\r\n\
         Call-ID: {CALL_ID}-{word}\r\n"
    );
    let methods = ["INVITE", "ACK", "CANCEL", "BYE", "REGISTER", "OPTIONS", "PRACK", "FOO"];
    let (method, other) = (*prng.pick(&methods), *prng.pick(&methods));
    let text = match prng.below(7) {
        0 => format!("SIP/2.0 200 OK\r\n{head}CSeq: 1 {method}\r\n\r\n"),
        1 => format!(
            "SIP/2.0 180 Ringing\r\nVia: SIP/2.0/UDP {server};branch=z9hG4bK{word}\r\n{head}CSeq: 1 {method}\r\n\r\n"
        ),
        2 => format!(
            "{method} sip:u0@home.example SIP/2.0\r\n{head}CSeq: 1 {other}\r\nContent-Length: 0\r\n\r\n"
        ),
        3 => format!(
            "{method} sip:u0@{server} SIP/2.0\r\n{head}CSeq: 1 {method}\r\nContent-Length: 700\r\n\r\n"
        ),
        4 => format!("{method} sip:u0@home.example SIP/2.0\r\n{head}{head}CSeq: 1 {method}\r\n\r\n"),
        5 => format!(
            "{method} sip:u0@home.example;;=\"\" SIP/2.0\r\n{head}CSeq: 1 {method}\r\nRoute: <sip:{server};lr>, <\r\n\r\n"
        ),
        _ => format!(
            "{method} sip:u0@home.example SIP/2.0\r\n{head}CSeq: 1 {method}\r\nContact: <sip:x@10.3.0.1>\r\n\r\n"
        ),
    };
    let mut bytes = text.into_bytes();
    if prng.chance(50) {
        for _ in 0..prng.between(1, 4) {
            let at = prng.below(bytes.len() as u64) as usize;
            // Neither the Call-ID nor its name may become another.
            let keeps =
                bytes.windows(5).skip(at.saturating_sub(80)).take(100).any(|five| five == CALL_ID.as_bytes());
            if !keeps {
                bytes[at] = prng.below(256) as u8;
            }
        }
    }
    bytes
}
