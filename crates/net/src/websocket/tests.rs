use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::io::{self, Read, Write};
use tungstenite::client::IntoClientRequest;
use tungstenite::handshake::client::ClientHandshake;
use tungstenite::{HandshakeError, Message};

/// What was handed out, replies joined where nothing came between them.
#[derive(Clone, Debug, PartialEq)]
enum Seen {
    Message(Vec<u8>),
    Reply(Vec<u8>),
    Closed(Closed),
}

fn policy() -> WebSocketPolicy {
    WebSocketPolicy { message_bytes_max: 1_000, head_bytes_max: 500, ..WebSocketPolicy::default() }
}

fn feed(websocket: &mut WebSocket, bytes: &[u8], policy: &WebSocketPolicy, seen: &mut Vec<Seen>) {
    websocket.receive(bytes, policy, &mut |event| match (event, seen.last_mut()) {
        (Event::Reply(bytes), Some(Seen::Reply(reply))) => reply.extend_from_slice(bytes),
        (Event::Reply(bytes), _) => seen.push(Seen::Reply(bytes.to_vec())),
        (Event::Message(bytes), _) => seen.push(Seen::Message(bytes.to_vec())),
        (Event::Closed(why), _) => seen.push(Seen::Closed(why)),
    });
}

/// The example of RFC 7118 §8, as header lines.
const FIELDS: [&str; 7] = [
    "Host: sip-ws.example.com",
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Origin: http://www.example.com",
    "Sec-WebSocket-Protocol: sip",
    "Sec-WebSocket-Version: 13",
];

/// The example with the field of the same name replaced by these lines.
fn request_with(lines: &str) -> String {
    let name = lines.split(':').next().unwrap().to_ascii_lowercase();
    let kept = FIELDS.iter().filter(|field| !field.to_ascii_lowercase().starts_with(&format!("{name}:")));
    let kept: String = kept.map(|field| format!("{field}\r\n")).collect();
    format!("GET / HTTP/1.1\r\n{kept}{lines}\r\n\r\n")
}

fn request() -> String {
    request_with("X: y")
}

/// What a request is answered, alike in one chunk and byte for byte: the status and the whole response.
fn answer(request: &str, policy: &WebSocketPolicy) -> (u16, String) {
    let (mut whole, mut cut) = (Vec::new(), Vec::new());
    feed(&mut WebSocket::new(), request.as_bytes(), policy, &mut whole);
    let mut websocket = WebSocket::new();
    for byte in request.as_bytes() {
        feed(&mut websocket, &[*byte], policy, &mut cut);
    }
    assert_eq!(whole, cut);
    let Some(Seen::Reply(reply)) = whole.first() else { panic!("no answer: {whole:?}") };
    let reply = String::from_utf8(reply.clone()).unwrap();
    let status = reply.split(' ').nth(1).unwrap().parse().unwrap();
    match status {
        101 => assert_eq!((whole.len(), websocket.is_open()), (1, true)),
        _ => {
            assert_eq!(whole[1..], [Seen::Closed(Closed::Refused(status))]);
            assert!(reply.contains("\r\nConnection: close\r\n"));
            let (head, body) = reply.split_once("\r\n\r\n").unwrap();
            assert!(head.contains(&format!("\r\nContent-Length: {}", body.len())));
            assert!(!websocket.is_open());
        }
    }
    assert_eq!(websocket.memory(), 0);
    (status, reply)
}

fn status(request: &str) -> u16 {
    answer(request, &policy()).0
}

/// A connection whose handshake is done.
fn open() -> WebSocket {
    let (mut websocket, mut seen) = (WebSocket::new(), Vec::new());
    feed(&mut websocket, request().as_bytes(), &policy(), &mut seen);
    assert!(websocket.is_open());
    websocket
}

/// A client's frame with a length of as few bytes as can be; `first` is its first byte.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [0x37, 0xfa, 0x21, 0x3d];
    let mut frame = vec![first];
    match payload.len() {
        len @ 0..=125 => frame.push(0x80 | len as u8),
        len @ 126..=65_535 => {
            frame.push(0x80 | 126);
            frame.extend((len as u16).to_be_bytes());
        }
        len => {
            frame.push(0x80 | 127);
            frame.extend((len as u64).to_be_bytes());
        }
    }
    frame.extend(mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

const TEXT: u8 = 0x81;
const BINARY: u8 = 0x82;
const CLOSE: u8 = 0x88;
const PING: u8 = 0x89;
const PONG: u8 = 0x8a;

/// What comes of these frames on an open connection, alike in one chunk and byte for byte.
fn frames_with(policy: &WebSocketPolicy, frames: &[&[u8]]) -> Vec<Seen> {
    let bytes = frames.concat();
    let (mut whole, mut cut) = (Vec::new(), Vec::new());
    feed(&mut open(), &bytes, policy, &mut whole);
    let mut websocket = open();
    for byte in &bytes {
        feed(&mut websocket, &[*byte], policy, &mut cut);
    }
    assert_eq!(whole, cut);
    assert_eq!(websocket.memory() > 0, websocket.is_partial());
    whole
}

fn frames(frames: &[&[u8]]) -> Vec<Seen> {
    frames_with(&policy(), frames)
}

fn message(bytes: &[u8]) -> Seen {
    Seen::Message(bytes.to_vec())
}

/// The close frame and the end that a violation leads to.
fn violation(code: u16) -> [Seen; 2] {
    let [high, low] = code.to_be_bytes();
    [Seen::Reply(vec![CLOSE, 2, high, low]), Seen::Closed(Closed::Violation(code))]
}

#[test]
fn the_examples_of_the_rfcs_are_accepted() {
    let (status, answer) = answer(&request(), &policy());
    assert_eq!(status, 101);
    // RFC 6455 §1.3.
    assert!(answer.contains("\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"));
    // RFC 7118 §4.1.
    assert!(answer.contains("\r\nSec-WebSocket-Protocol: sip\r\n"));
    assert!(answer.contains("\r\nUpgrade: websocket\r\n") && answer.contains("\r\nConnection: Upgrade\r\n"));
    assert!(answer.ends_with("\r\n\r\n") && !answer.contains("Extensions"));
}

#[test]
fn header_fields_are_read_as_http_has_them() {
    for lines in [
        "connection: keep-alive, upgrade",
        "CONNECTION:Upgrade",
        "Connection: keep-alive\r\nConnection: Upgrade",
        "Upgrade: h2c, WebSocket",
        "Sec-WebSocket-Protocol: chat, sip",
        "Sec-WebSocket-Protocol: chat\r\nSec-WebSocket-Protocol: sip",
        "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits",
    ] {
        assert_eq!(status(&request_with(lines)), 101, "{lines}");
    }
    for path in ["/", "/ws?token=1", "/a/b/c", "http://sip-ws.example.com/"] {
        assert_eq!(status(&request().replace("GET / ", &format!("GET {path} "))), 101, "{path}");
    }
    assert_eq!(status(&format!("\r\n\r\n{}", request())), 101);
}

#[test]
fn a_request_that_is_no_handshake_is_refused() {
    for (lines, want) in [
        ("Host:", 400),
        ("Host: a\r\nHost: b", 400),
        ("Upgrade: h2c", 426),
        ("Upgrade: websockets", 426),
        ("Connection: keep-alive", 400),
        ("Sec-WebSocket-Key: ", 400),
        ("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ", 400),
        ("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQQ=", 400),
        ("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", 400),
        ("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25j Q==", 400),
        ("Sec-WebSocket-Version: 8", 426),
        ("Sec-WebSocket-Version: 13, 8", 426),
        ("Sec-WebSocket-Version: ", 426),
        ("Sec-WebSocket-Protocol: chat", 400),
        ("Sec-WebSocket-Protocol: sips", 400),
        ("Sec-WebSocket-Protocol: SIP", 400),
        ("Sec-WebSocket-Protocol: ", 400),
        ("X: y\r\nno colon", 400),
        ("X: a\r\n folded", 400),
        ("X: \0", 400),
    ] {
        assert_eq!(status(&request_with(lines)), want, "{lines}");
    }
    for field in &FIELDS {
        let missing = request().replace(&format!("{field}\r\n"), "");
        let optional = field.starts_with("Origin");
        assert_eq!(status(&missing) == 101, optional, "{field}");
    }
    assert_eq!(status(&request().replace("GET", "POST")), 405);
    assert_eq!(status(&request().replace("HTTP/1.1", "HTTP/1.0")), 505);
    assert_eq!(status("PRI * HTTP/2.0\r\n\r\n"), 505);
    assert_eq!(status("GET / HTTP/1.1\r\nHost: a\r\n\n\r\n\r\n"), 400);
}

#[test]
fn a_refusal_says_what_to_do_instead() {
    let header =
        |request: &str, header: &str| answer(request, &policy()).1.contains(&format!("\r\n{header}\r\n"));
    assert!(header(&request_with("Sec-WebSocket-Version: 8"), "Sec-WebSocket-Version: 13"));
    assert!(header("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "Upgrade: websocket"));
    assert!(header(&request().replace("GET", "HEAD"), "Allow: GET"));
}

#[test]
fn only_listed_origins_are_let_in() {
    let origins = vec!["https://phone.example".to_string(), "https://b.example:8443".to_string()];
    let policy = WebSocketPolicy { origins, ..policy() };
    let status = |lines: &str| answer(&request_with(lines), &policy).0;
    assert_eq!(status("Origin: https://phone.example"), 101);
    assert_eq!(status("Origin: HTTPS://Phone.Example"), 101);
    assert_eq!(status("Origin: https://b.example:8443"), 101);
    assert_eq!(status("Origin: https://b.example"), 403);
    assert_eq!(status("Origin: http://phone.example"), 403);
    assert_eq!(status("Origin: https://phone.example.evil.example"), 403);
    assert_eq!(status("Origin: null"), 403);
    assert_eq!(status("Origin: "), 403);
    assert_eq!(status("Origin: https://phone.example\r\nOrigin: https://evil.example"), 403);
    let without = request().replace("Origin: http://www.example.com\r\n", "");
    assert_eq!(answer(&without, &policy).0, 101);
}

#[test]
fn a_request_has_a_limit() {
    let with = |len: usize| {
        let request = request();
        request.replace("X: y", &format!("X: y{}", "y".repeat(len - request.len())))
    };
    assert_eq!((with(500).len(), status(&with(500))), (500, 101));
    assert_eq!(status(&with(501)), 431);
    assert_eq!(status(&"GET".repeat(200)), 431);
    let many: String = (0..65).map(|n| format!("a{n}:\r\n")).collect();
    let roomy = WebSocketPolicy { head_bytes_max: 8_192, ..policy() };
    assert_eq!(answer(&format!("GET / HTTP/1.1\r\n{many}\r\n"), &roomy).0, 431);
}

#[test]
fn sip_on_this_port_is_told_where_it_is() {
    for request in [
        "REGISTER sip:example.com SIP/2.0\r\nVia: SIP/2.0/TCP 192.0.2.1\r\n",
        "SIP/2.0 200 OK\r\n",
        "\r\n\r\nOPTIONS sip:example.com SIP/2.0\r\n",
    ] {
        let (status, answer) = answer(request, &policy());
        assert_eq!(status, 400);
        assert!(answer.contains("SIP over WebSocket"));
    }
}

#[test]
fn noise_is_refused_at_its_first_byte() {
    for noise in ["\x16", "\0", "get", " GET"] {
        assert_eq!(status(noise), 400);
    }
    assert_eq!(status("SSH-2.0-OpenSSH_9.6\r\n"), 400);
}

#[test]
fn frames_may_come_with_the_request() {
    let bytes = [request().as_bytes(), &frame(TEXT, b"one")].concat();
    let mut seen = Vec::new();
    feed(&mut WebSocket::new(), &bytes, &policy(), &mut seen);
    assert_eq!(seen[1..], [message(b"one")]);
}

#[test]
fn each_message_is_handed_out_whole() {
    // RFC 6455 §5.7: a masked text, and the same unmasked from the server.
    let hello = [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
    assert_eq!(frames(&[&hello]), [message(b"Hello")]);
    let mut out = Vec::new();
    open().write(b"Hello", &mut out);
    assert_eq!(out, [0x81, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f]);

    let long = vec![b'x'; 1_000];
    let seen = frames(&[&frame(TEXT, b"a"), &frame(BINARY, b"\xff\0"), &frame(TEXT, &long)]);
    assert_eq!(seen, [message(b"a"), message(b"\xff\0"), message(&long)]);
    assert_eq!(frames(&[&frame(TEXT, b"\r\n\r\n")]), [message(b"\r\n\r\n")]);
    assert_eq!(frames(&[&frame(TEXT, b""), &frame(TEXT, b"a")]), [message(b"a")]);
    assert_eq!(frames(&[&frame(TEXT, &[b'x'; 125]), &frame(TEXT, &[b'x'; 126])]).len(), 2);
}

#[test]
fn lengths_of_eight_bytes_are_read_and_written() {
    let roomy = WebSocketPolicy { message_bytes_max: 70_000, ..policy() };
    for len in [65_535, 65_536, 70_000] {
        let long = vec![b'x'; len];
        let mut seen = Vec::new();
        feed(&mut open(), &frame(TEXT, &long), &roomy, &mut seen);
        assert_eq!(seen, [message(&long)]);
    }
    let mut out = Vec::new();
    open().write(&[b'x'; 65_536], &mut out);
    assert_eq!(out[..10], [0x81, 127, 0, 0, 0, 0, 0, 1, 0, 0]);
    out.clear();
    open().write(&[b'x'; 65_535], &mut out);
    assert_eq!(out[..4], [0x81, 126, 0xff, 0xff]);
}

#[test]
fn fragments_are_joined_and_control_frames_may_come_between_them() {
    let seen = frames(&[
        &frame(0x01, b"on"),
        &frame(PING, b"?"),
        &frame(0x00, b""),
        &frame(PONG, b"!"),
        &frame(0x80, b"e"),
        &frame(TEXT, b"two"),
    ]);
    assert_eq!(seen, [Seen::Reply(vec![PONG, 1, b'?']), message(b"one"), message(b"two")]);
    // A character may be split.
    assert_eq!(frames(&[&frame(0x01, b"\xc3"), &frame(0x80, b"\xbc")]), [message("ü".as_bytes())]);
}

#[test]
fn pings_are_answered_with_what_they_said_and_pongs_are_not() {
    let payload = [b'p'; 125];
    let want = [&[PONG, 125][..], &payload].concat();
    assert_eq!(frames(&[&frame(PING, &payload)]), [Seen::Reply(want)]);
    assert_eq!(frames(&[&frame(PING, b"")]), [Seen::Reply(vec![PONG, 0])]);
    assert!(frames(&[&frame(PONG, b"unasked")]).is_empty());
}

#[test]
fn what_breaks_the_protocol_is_closed_with_1002() {
    let unmasked = [0x81, 0x01, b'a'];
    let long_control = [0x89, 0x80 | 126, 0, 126, 0, 0, 0, 0];
    let not_minimal_16 = [0x81, 0x80 | 126, 0, 125, 0, 0, 0, 0];
    let not_minimal_64 = [0x81, 0x80 | 127, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0];
    let negative = [0x81, 0x80 | 127, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for bad in [&unmasked[..], &long_control, &not_minimal_16, &not_minimal_64, &negative] {
        assert_eq!(frames(&[bad, &frame(TEXT, b"unread")]), violation(1002), "{bad:02x?}");
    }
    // Reserved bits, reserved opcodes, control frames in fragments.
    for first in [0xc1, 0xa1, 0x91, 0x83, 0x87, 0x8b, 0x8f, 0x09, 0x0a, 0x08] {
        assert_eq!(frames(&[&frame(first, b"")]), violation(1002), "{first:02x}");
    }
    // A continuation of nothing, and a message within another one.
    assert_eq!(frames(&[&frame(0x80, b"a")]), violation(1002));
    assert_eq!(frames(&[&frame(0x00, b"a")]), violation(1002));
    assert_eq!(frames(&[&frame(0x01, b"a"), &frame(TEXT, b"b")]), violation(1002));
}

#[test]
fn text_that_is_not_utf_8_is_closed_with_1007() {
    assert_eq!(frames(&[&frame(TEXT, b"a\xffb")]), violation(1007));
    assert_eq!(frames(&[&frame(0x01, b"\xc3"), &frame(0x80, b"x")]), violation(1007));
    assert_eq!(frames(&[&frame(CLOSE, b"\x03\xe8\xff")]), violation(1007));
    assert_eq!(frames(&[&frame(BINARY, b"a\xffb")]), [message(b"a\xffb")]);
}

#[test]
fn a_message_beyond_the_limit_is_closed_with_1009_before_it_comes() {
    assert_eq!(frames(&[&frame(TEXT, &[b'x'; 1_000])]).len(), 1);
    assert_eq!(frames(&[&frame(TEXT, &[b'x'; 1_001])[..8]]), violation(1009));
    assert_eq!(frames(&[&frame(0x01, &[b'x'; 600]), &frame(0x80, &[b'x'; 401])[..8]]), violation(1009));
    let huge = [0x82, 0x80 | 127, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
    assert_eq!(frames(&[&huge]), violation(1009));
}

#[test]
fn a_close_is_answered_with_its_code() {
    let closed = Seen::Closed(Closed::ByPeer);
    let seen = frames(&[&frame(CLOSE, b""), &frame(TEXT, b"unread")]);
    assert_eq!(seen, [Seen::Reply(vec![CLOSE, 0]), closed.clone()]);
    for code in [1000u16, 1001, 1003, 1011, 1014, 3000, 4999] {
        let payload = [&code.to_be_bytes()[..], "tschüß".as_bytes()].concat();
        let [high, low] = code.to_be_bytes();
        let seen = frames(&[&frame(CLOSE, &payload)]);
        assert_eq!(seen, [Seen::Reply(vec![CLOSE, 2, high, low]), closed.clone()]);
    }
}

#[test]
fn a_close_with_a_code_that_nobody_may_send_is_a_violation() {
    for code in [0u16, 999, 1004, 1005, 1006, 1015, 1100, 2999, 5000, 65_535] {
        assert_eq!(frames(&[&frame(CLOSE, &code.to_be_bytes())]), violation(1002), "{code}");
    }
    assert_eq!(frames(&[&frame(CLOSE, b"\x03")]), violation(1002));
}

#[test]
fn after_our_close_nothing_is_sent_and_the_peer_may_end() {
    let (mut websocket, mut out, mut seen) = (open(), Vec::new(), Vec::new());
    websocket.close(close_code::GOING_AWAY, &mut out);
    websocket.close(close_code::GOING_AWAY, &mut out);
    websocket.write(b"late", &mut out);
    websocket.ping(&mut out);
    assert_eq!(out, [CLOSE, 2, 0x03, 0xe9]);
    assert!(!websocket.is_open());
    let last = [frame(PING, b""), frame(TEXT, b"last"), frame(CLOSE, b"\x03\xe9")].concat();
    feed(&mut websocket, &last, &policy(), &mut seen);
    assert_eq!(seen, [message(b"last"), Seen::Closed(Closed::ByPeer)]);

    let (mut websocket, mut seen) = (open(), Vec::new());
    websocket.close(close_code::GOING_AWAY, &mut Vec::new());
    feed(&mut websocket, &[0xff, 0xff], &policy(), &mut seen);
    assert_eq!(seen, [Seen::Closed(Closed::Violation(1002))]);
}

#[test]
fn nothing_is_sent_before_the_handshake_is_done() {
    let (mut websocket, mut out, mut seen) = (WebSocket::new(), Vec::new(), Vec::new());
    websocket.write(b"early", &mut out);
    websocket.ping(&mut out);
    websocket.close(close_code::GOING_AWAY, &mut out);
    assert!(out.is_empty() && !websocket.is_partial());
    feed(&mut websocket, request().as_bytes(), &policy(), &mut seen);
    assert!(seen.is_empty());
}

#[test]
fn what_is_not_utf_8_leaves_as_binary() {
    let mut out = Vec::new();
    let websocket = open();
    websocket.write(b"\xff", &mut out);
    websocket.write("ü".as_bytes(), &mut out);
    websocket.ping(&mut out);
    assert_eq!(out, [BINARY, 1, 0xff, TEXT, 2, 0xc3, 0xbc, PING, 0]);
}

#[test]
fn an_idle_connection_holds_no_memory_and_a_partial_one_what_came() {
    let (mut websocket, mut seen) = (WebSocket::new(), Vec::new());
    assert_eq!((websocket.memory(), websocket.is_partial()), (0, true));
    feed(&mut websocket, request().as_bytes(), &policy(), &mut seen);
    assert_eq!((websocket.memory(), websocket.is_partial()), (0, false));
    // A length that is announced costs nothing.
    let large = WebSocketPolicy { message_bytes_max: 1 << 30, ..policy() };
    feed(&mut websocket, &[BINARY, 0x80 | 127, 0, 0, 0, 0, 0x20, 0, 0, 0, 1, 2, 3, 4], &large, &mut seen);
    assert_eq!((websocket.memory(), websocket.is_partial()), (0, true));
    feed(&mut websocket, &[0; 100], &large, &mut seen);
    assert!((100..=200).contains(&websocket.memory()));

    let mut websocket = open();
    for _ in 0..3 {
        feed(&mut websocket, &frame(TEXT, &[b'x'; 900]), &policy(), &mut seen);
        feed(&mut websocket, &frame(PING, &[b'x'; 100]), &policy(), &mut seen);
        assert_eq!((websocket.memory(), websocket.is_partial()), (0, false));
    }
}

/// A connection of the other implementation, whose ends are two buffers.
#[derive(Debug, Default)]
struct Pipe {
    input: std::collections::VecDeque<u8>,
    output: Vec<u8>,
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.input.is_empty() { Err(io::ErrorKind::WouldBlock.into()) } else { self.input.read(buffer) }
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.output.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The other implementation's client after its handshake with `websocket`.
fn client(websocket: &mut WebSocket) -> tungstenite::WebSocket<Pipe> {
    let mut request = "ws://sip.example/ws".into_client_request().unwrap();
    request.headers_mut().insert("Sec-WebSocket-Protocol", "sip".parse().unwrap());
    let started = ClientHandshake::start(Pipe::default(), request, None).unwrap();
    let Err(HandshakeError::Interrupted(mut waiting)) = started.handshake() else { panic!("no answer yet") };
    let stream = waiting.get_mut().get_mut();
    let sent = std::mem::take(&mut stream.output);
    websocket.receive(&sent, &policy(), &mut |event| match event {
        Event::Reply(answer) => stream.input.extend(answer),
        other => panic!("{other:?}"),
    });
    waiting.handshake().unwrap().0
}

#[test]
fn another_implementation_understands_us_and_we_it() {
    let mut websocket = WebSocket::new();
    let mut client = client(&mut websocket);
    assert!(websocket.is_open());
    for len in [0usize, 1, 125, 126, 1_000] {
        let text = "ü".repeat(len / 2) + &"x".repeat(len % 2);
        let (mut seen, mut out) = (Vec::new(), Vec::new());
        client.send(Message::text(text.clone())).unwrap();
        client.send(Message::Ping(vec![1, 2].into())).unwrap();
        let sent = std::mem::take(&mut client.get_mut().output);
        feed(&mut websocket, &sent, &policy(), &mut seen);
        let pong = Seen::Reply(vec![PONG, 2, 1, 2]);
        assert_eq!(seen, if len == 0 { vec![pong] } else { vec![message(text.as_bytes()), pong] });
        websocket.write(text.as_bytes(), &mut out);
        websocket.write(b"\xff\xfe", &mut out);
        client.get_mut().input.extend(out);
        assert_eq!(client.read().unwrap(), Message::text(text));
        assert_eq!(client.read().unwrap(), Message::binary(vec![0xff, 0xfe]));
    }
    let mut out = Vec::new();
    websocket.close(close_code::GOING_AWAY, &mut out);
    client.get_mut().input.extend(out);
    assert!(client.read().unwrap().is_close());
    let _ = client.flush();
    let mut seen = Vec::new();
    let sent = std::mem::take(&mut client.get_mut().output);
    feed(&mut websocket, &sent, &policy(), &mut seen);
    assert_eq!(seen, [Seen::Closed(Closed::ByPeer)]);
}

/// A frame as it might come, right or wrong.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let first = prop_oneof![
        8 => prop::sample::select(vec![TEXT, BINARY, 0x01, 0x02, 0x00, 0x80, PING, PONG]),
        1 => any::<u8>(),
    ];
    let payload = prop_oneof![
        4 => "[a-zü\r\n]{0,40}".prop_map(String::into_bytes),
        1 => vec(any::<u8>(), 0..200),
        1 => vec(Just(b'x'), 0..1_500),
    ];
    let whole = (first, payload).prop_map(|(first, payload)| frame(first, &payload));
    prop_oneof![
        20 => whole,
        1 => vec(any::<u8>(), 0..20),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_frames_give_the_same_however_they_are_cut(
        frames in vec(any_frame(), 0..12),
        cuts in vec(any::<usize>(), 0..30),
        answered in any::<bool>(),
    ) {
        let bytes = [request().as_bytes(), &frames.concat()[..]].concat();
        let (mut whole, mut cut, mut one) = (Vec::new(), Vec::new(), Vec::new());
        feed(&mut WebSocket::new(), &bytes, &policy(), &mut whole);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let (mut websocket, mut other) = (WebSocket::new(), WebSocket::new());
        for chunk in cuts.windows(2) {
            feed(&mut websocket, &bytes[chunk[0]..chunk[1]], &policy(), &mut cut);
            if answered {
                websocket.write(b"x", &mut Vec::new());
            }
            prop_assert!(websocket.memory() <= 2 * 1_000 + 8 + 2 * 125);
        }
        for byte in &bytes {
            feed(&mut other, &[*byte], &policy(), &mut one);
        }
        prop_assert_eq!(&whole, &cut);
        prop_assert_eq!(&whole, &one);
        let ends = whole.iter().filter(|seen| matches!(seen, Seen::Closed(_))).count();
        prop_assert!(ends <= 1);
        prop_assert_eq!(ends == 0, websocket.is_open());
    }

    #[test]
    fn messages_arrive_as_they_were_sent_in_any_fragments(
        messages in vec((vec(any::<u8>(), 1..300), vec(any::<usize>(), 0..4)), 1..6),
    ) {
        let (mut bytes, mut want) = (Vec::new(), Vec::new());
        for (payload, cuts) in messages {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (payload.len() + 1)).collect();
            cuts.extend([0, payload.len()]);
            cuts.sort_unstable();
            let last = cuts.len() - 2;
            for (n, part) in cuts.windows(2).enumerate() {
                let first = if n == 0 { 0x02 } else { 0x00 } | if n == last { 0x80 } else { 0 };
                bytes.extend(frame(first, &payload[part[0]..part[1]]));
            }
            want.push(Seen::Message(payload));
        }
        prop_assert_eq!(frames(&[&bytes]), want);
    }

    #[test]
    fn random_bytes_do_not_panic(bytes in vec(any::<u8>(), 0..400), opened in any::<bool>()) {
        let mut websocket = if opened { open() } else { WebSocket::new() };
        feed(&mut websocket, &bytes, &policy(), &mut Vec::new());
    }

    #[test]
    fn mutated_requests_do_not_panic(
        mutations in vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..3), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = request().into_bytes();
        for (at, byte, kind) in mutations {
            let at = at.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => { bytes.remove(at); }
                _ => bytes.insert(at, byte),
            }
        }
        let (mut whole, mut cut_up) = (Vec::new(), Vec::new());
        feed(&mut WebSocket::new(), &bytes, &policy(), &mut whole);
        let mut websocket = WebSocket::new();
        let (head, tail) = bytes.split_at(cut.index(bytes.len()));
        feed(&mut websocket, head, &policy(), &mut cut_up);
        feed(&mut websocket, tail, &policy(), &mut cut_up);
        prop_assert_eq!(whole, cut_up);
    }
}
