//! WebSocket connections (RFC 6455, RFC 7118): `net`'s reader in chunks of any size, against the reference.

use super::input::Input;
use super::show;
use crate::net::websocket::{Closed, Event, WebSocket, WebSocketPolicy};
use reference::frames;

/// What a browser's phone asks for first (RFC 7118 §4.1).
const REQUEST: &[u8] =
    b"GET / HTTP/1.1\r\nHost: proxy.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: sip\r\n\
    Sec-WebSocket-Version: 13\r\n\r\n";

/// What a connection came to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Message(Vec<u8>),
    Reply(Vec<u8>),
    Closed(Closed),
}

/// See [`TARGETS`](crate::TARGETS). The first byte says whether a handshake goes before the rest, the next
/// ones are limits and sizes of chunks.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let opened = !input.flag();
    let message_bytes_max = *input.pick(&[65_535, 20, 130]);
    let origins = if input.flag() { vec!["https://phone.example".to_owned()] } else { Vec::new() };
    let sizes: Vec<usize> = (0..5).map(|_| input.below(40) + 1).collect();
    let policy = WebSocketPolicy { origins, message_bytes_max, head_bytes_max: 600 };
    let frames = input.rest();
    let bytes = if opened { [REQUEST, frames].concat() } else { frames.to_vec() };
    let whole = feed(&bytes, &policy, std::iter::repeat(bytes.len().max(1)));
    assert_eq!(feed(&bytes, &policy, std::iter::repeat(1)), whole, "byte by byte: {}", show(&bytes));
    let chunked = feed(&bytes, &policy, sizes.iter().copied().cycle());
    assert_eq!(chunked, whole, "in chunks of {sizes:?}: {}", show(&bytes));
    if opened && policy.origins.is_empty() {
        let [Seen::Reply(answer), seen @ ..] = whole.as_slice() else { panic!("no answer: {whole:?}") };
        assert!(answer.starts_with(b"HTTP/1.1 101 "), "{}", show(answer));
        assert_eq!(seen, expected(frames, message_bytes_max), "{}", show(frames));
    }
}

fn feed(bytes: &[u8], policy: &WebSocketPolicy, sizes: impl Iterator<Item = usize>) -> Vec<Seen> {
    let (mut socket, mut seen, mut rest) = (WebSocket::new(), Vec::new(), bytes);
    for size in sizes {
        let (chunk, later) = rest.split_at(size.min(rest.len()));
        rest = later;
        socket.receive(chunk, policy, &mut |event| {
            seen.push(match event {
                Event::Message(message) => Seen::Message(message.to_vec()),
                Event::Reply(reply) => Seen::Reply(reply.to_vec()),
                Event::Closed(why) => Seen::Closed(why),
            });
        });
        // A vector may have twice the room that it needs; a control frame has 125 bytes.
        let most = 2 * policy.message_bytes_max.max(policy.head_bytes_max) + 1_024;
        assert!(socket.memory() <= most, "{} bytes are held", socket.memory());
        if rest.is_empty() {
            break;
        }
    }
    let messages =
        seen.iter().filter_map(|seen| if let Seen::Message(message) = seen { Some(message) } else { None });
    for message in messages {
        assert!(!message.is_empty() && message.len() <= policy.message_bytes_max);
    }
    let ends = seen.iter().filter(|seen| matches!(seen, Seen::Closed(_))).count();
    assert!(ends <= 1 && (ends == 0 || matches!(seen.last(), Some(Seen::Closed(_)))), "{seen:?}");
    seen
}

/// What the reference makes of the frames.
fn expected(bytes: &[u8], message_bytes_max: usize) -> Vec<Seen> {
    let mut seen = Vec::new();
    for event in frames::read(bytes, message_bytes_max) {
        match event {
            // A message without a byte says nothing.
            frames::Event::Message(message) if message.is_empty() => {}
            frames::Event::Message(message) => seen.push(Seen::Message(message)),
            frames::Event::Ping(payload) => seen.push(Seen::Reply(control(0x8a, &payload))),
            frames::Event::Close(code) => {
                let code = code.map(u16::to_be_bytes);
                seen.push(Seen::Reply(control(0x88, code.as_ref().map_or(&[][..], |code| &code[..]))));
                seen.push(Seen::Closed(Closed::ByPeer));
            }
            frames::Event::Violation(code) => {
                seen.push(Seen::Reply(control(0x88, &code.to_be_bytes())));
                seen.push(Seen::Closed(Closed::Violation(code)));
            }
        }
    }
    seen
}

/// A control frame of a server (RFC 6455 §5.5).
fn control(first: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).expect("invariant: the reference has checked that it is short");
    [&[first, length][..], payload].concat()
}
