//! WebSocket (RFC 6455) with SIP in it (RFC 7118): the upgrade, frames of every kind, and what is neither.

use std::time::Duration;

use end_to_end::{
    Connection, Frame, Message, PATIENCE, Phone, QUIET, Received, Server, Start, Transport, fragment, frame,
    only_strowger, unique, upgrade_request,
};

/// Within so long every bad peer must have been answered or closed.
const SECONDS: Duration = Duration::from_secs(30);

const WEBSOCKETS: [Transport; 2] = [Transport::Ws, Transport::Wss];

fn server() -> Server {
    Start::configuration("transports").over(&Transport::STREAMS).spawn()
}

fn open(server: &Server, transport: Transport) -> Connection {
    Connection::open(transport, server.address_over(transport), Some(&server.credentials()))
}

/// What is below WebSocket, before the upgrade.
fn below(server: &Server, transport: Transport) -> Connection {
    let lower = if transport == Transport::Wss { Transport::Tls } else { Transport::Tcp };
    Connection::open(lower, server.address_over(transport), Some(&server.credentials()))
}

/// A request that every server answers at once, with 483.
fn question(transport: Transport) -> Message {
    let (call_id, branch) = (unique(), unique());
    let start = "OPTIONS sip:server.invalid SIP/2.0".to_owned();
    let request = Message { start, headers: Vec::new(), body: String::new() };
    request
        .with("Via", format!("SIP/2.0/{} {}.invalid;branch=z9hG4bK{branch}", transport.via(), unique()))
        .with("Max-Forwards", 0)
        .with("From", "<sip:peer@peer.invalid>;tag=1")
        .with("To", "<sip:server.invalid>")
        .with("Call-ID", call_id)
        .with("CSeq", "1 OPTIONS")
        .with("Content-Length", 0)
}

fn assert_serves(server: &Server) {
    let mut connection = open(server, Transport::Ws);
    connection.send_message(question(Transport::Ws).to_string());
    connection.expect_response(483);
}

/// The next frame that is no message.
fn control(connection: &mut Connection) -> Frame {
    match connection.receive(PATIENCE) {
        Some(Received::Frame(frame)) => frame,
        other => panic!("wants a frame, got {other:?}; {connection:?}"),
    }
}

/// The server must close with this code, then end the connection.
fn expect_close(connection: &mut Connection, code: u16) {
    assert_eq!(control(connection).close_code(), Some(code));
    connection.expect_end(SECONDS);
}

#[test]
fn requests_are_answered_over_websocket() {
    let server = server();
    for transport in WEBSOCKETS {
        let mut connection = open(&server, transport);
        for _ in 0..3 {
            connection.send_message(question(transport).to_string());
            connection.expect_response(483);
        }
    }
}

/// RFC 6455 §4.2.2, RFC 7118 §4: what is asked for badly gets an HTTP response that says so, and the end.
#[test]
fn an_upgrade_that_is_none_is_refused() {
    only_strowger!("Kamailio's script decides, and it says 404 or 400 differently");
    let server = server();
    let good = upgrade_request("server.invalid", "");
    let cases = [
        (good.replace("Sec-WebSocket-Protocol: sip\r\n", ""), 400),
        (good.replace("Protocol: sip", "Protocol: xmpp"), 400),
        (good.replace("Version: 13", "Version: 8"), 426),
        (good.replace("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", ""), 400),
        (good.replace("Upgrade: websocket\r\n", ""), 426),
        (good.replace("GET ", "POST "), 405),
        (good.replace("Host: server.invalid\r\n", ""), 400),
    ];
    for transport in WEBSOCKETS {
        for (request, status) in &cases {
            let mut connection = below(&server, transport);
            connection.send(request);
            let head = connection.http_head().unwrap_or_else(|error| panic!("{error} to\n{request}"));
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{request}\nwas answered\n{head}");
            if *status == 426 {
                assert!(
                    head.contains("Sec-WebSocket-Version: 13") || head.contains("Upgrade: websocket"),
                    "{head}"
                );
            }
            connection.expect_end(SECONDS);
        }
    }
    assert_serves(&server);
}

#[test]
fn an_upgrade_that_comes_byte_by_byte_is_accepted() {
    let server = server();
    for transport in WEBSOCKETS {
        let mut connection = below(&server, transport);
        for byte in upgrade_request("server.invalid", "Origin: https://phone.example\r\n").into_bytes() {
            connection.send([byte]);
        }
        let head = connection.http_head().expect("a response");
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        let mut connection = connection.as_websocket();
        connection.send_message(question(transport).to_string());
        connection.expect_response(483);
    }
}

/// RFC 6455 §4.1 lets clients wait for the answer; those that do not are served as well.
#[test]
fn a_message_right_behind_the_upgrade_is_answered() {
    only_strowger!("Kamailio loses it");
    let server = server();
    let mut connection = below(&server, Transport::Ws);
    let mut bytes = upgrade_request("server.invalid", "").into_bytes();
    bytes.extend(frame(Frame::TEXT, question(Transport::Ws).to_string().as_bytes()));
    connection.send(bytes);
    let head = connection.http_head().expect("a response");
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    connection.as_websocket().expect_response(483);
}

/// RFC 6455 §5.5.2, §5.5.3.
#[test]
fn a_ping_is_answered_with_what_it_carried() {
    let server = server();
    for transport in WEBSOCKETS {
        let mut connection = open(&server, transport);
        connection.send(frame(Frame::PING, b"are you there"));
        let pong = control(&mut connection);
        assert_eq!((pong.opcode, pong.payload.as_slice()), (Frame::PONG, b"are you there".as_slice()));
        connection.send(frame(Frame::PONG, b"nobody asked"));
        connection.send_message(question(transport).to_string());
        connection.expect_response(483);
    }
}

/// RFC 6455 §5.4: a message in several frames, with a ping between them.
#[test]
fn a_message_in_fragments_is_put_together() {
    only_strowger!("Kamailio takes no fragments");
    let server = server();
    for transport in WEBSOCKETS {
        let mut connection = open(&server, transport);
        let text = question(transport).to_string();
        let (first, rest) = text.as_bytes().split_at(10);
        let (second, third) = rest.split_at(100);
        connection.send(fragment(Frame::TEXT, first));
        connection.send(frame(Frame::PING, b"between"));
        connection.send(fragment(0, second));
        connection.send(fragment(0x80, third));
        assert_eq!(control(&mut connection).opcode, Frame::PONG);
        connection.expect_response(483);
    }
}

/// RFC 7118 §4.2: text and binary frames are as good as each other.
#[test]
fn a_message_in_a_binary_frame_is_answered() {
    let server = server();
    let mut connection = open(&server, Transport::Ws);
    connection.send(frame(Frame::BINARY, question(Transport::Ws).to_string().as_bytes()));
    connection.expect_response(483);
}

/// RFC 6455 §5.5.1.
#[test]
fn a_close_is_answered_and_ends_the_connection() {
    let server = server();
    for transport in WEBSOCKETS {
        let mut connection = open(&server, transport);
        connection.send(frame(Frame::CLOSE, &1000_u16.to_be_bytes()));
        expect_close(&mut connection, 1000);
    }
}

/// RFC 6455 §7.4.1: 1002 for what breaks the protocol, 1007 for text that is none, 1009 for what is too long.
#[test]
fn frames_that_break_the_protocol_close_the_connection() {
    only_strowger!("Kamailio is content with some of these");
    let server = server();
    let unmasked = [&[0x81, 4][..], b"SIP!"].concat();
    let cases: [(&str, Vec<u8>, u16); 7] = [
        ("not masked (§5.1)", unmasked, 1002),
        ("a reserved bit (§5.2)", fragment(0xc1, b"x"), 1002),
        ("an unknown opcode (§5.2)", frame(3, b"x"), 1002),
        ("a fragmented ping (§5.5)", fragment(Frame::PING, b"x"), 1002),
        ("a long ping (§5.5)", frame(Frame::PING, &[0; 126]), 1002),
        ("a continuation of nothing (§5.4)", frame(0, b"x"), 1002),
        ("a close with one byte (§5.5.1)", frame(Frame::CLOSE, &[3]), 1002),
    ];
    for transport in WEBSOCKETS {
        for (name, bytes, code) in &cases {
            let mut connection = open(&server, transport);
            connection.send(bytes);
            let close = control(&mut connection);
            assert_eq!(close.close_code(), Some(*code), "{name}: {close:?}");
            connection.expect_end(SECONDS);
        }
    }
    assert_serves(&server);
}

#[test]
fn a_frame_past_the_limit_closes_the_connection() {
    only_strowger!("Kamailio just closes");
    let server = server();
    for length in [65_536_u64 * 4, u64::from(u32::MAX) + 1, (1 << 62) + 1] {
        let mut connection = open(&server, Transport::Ws);
        let mut head = vec![0x81, 0x80 | 127];
        head.extend(length.to_be_bytes());
        head.extend([0; 4]);
        connection.send(head);
        expect_close(&mut connection, 1009);
    }
    // In pieces that are each short enough.
    let mut connection = open(&server, Transport::Ws);
    connection.send(fragment(Frame::TEXT, &[b'x'; 60_000]));
    let _ = connection.try_send(&fragment(0, &[b'x'; 60_000]));
    expect_close(&mut connection, 1009);
    assert_serves(&server);
}

#[test]
fn sip_without_websocket_is_refused() {
    only_strowger!("Kamailio listens for both on one port");
    let server = server();
    for transport in WEBSOCKETS {
        let mut connection = below(&server, transport);
        connection.send(question(Transport::Tcp).to_string());
        connection.expect_end(SECONDS);
    }
    assert_serves(&server);
}

#[test]
fn what_is_no_http_is_closed() {
    only_strowger!("Kamailio listens for both on one port");
    let server = server();
    let endless = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(20_000));
    let inputs: [&[u8]; 4] =
        [b"\x16\x03\x01\x00\xc8\x01\x00\x00\xc4", &[0; 500], b"nonsense\r\n\r\n", endless.as_bytes()];
    for transport in WEBSOCKETS {
        for bytes in inputs {
            let mut connection = below(&server, transport);
            let _ = connection.try_send(bytes);
            assert_serves(&server);
            connection.expect_end(SECONDS);
        }
    }
}

#[test]
fn text_that_is_no_sip_harms_nobody() {
    let server = server();
    let mut connection = open(&server, Transport::Ws);
    connection.send_message("hello");
    connection.send_message("");
    connection.send_message("\r\n\r\n");
    assert_serves(&server);
}

/// RFC 7118 §5: nobody can connect to a browser, so a phone whose connection has gone is unavailable.
#[test]
fn a_phone_without_its_connection_is_unavailable_at_once() {
    only_strowger!("Kamailio lets the caller wait");
    let server = server();
    for transport in WEBSOCKETS {
        let (alice, bob) = (Phone::new(&server, "alice"), Phone::over(transport, &server, "bob"));
        bob.register();
        bob.cut(end_to_end::Cut::Close);
        let invite = alice.request("INVITE", &bob.address_of_record());
        alice.send(&invite);
        let answer = alice.receive(SECONDS).expect("an answer");
        assert!(matches!(answer.status(), Some(404 | 410 | 430 | 480 | 500 | 503)), "{answer}");
    }
}

#[test]
fn a_connection_that_is_left_open_stays_quiet() {
    let server = server();
    let mut connection = open(&server, Transport::Ws);
    assert_eq!(connection.receive(QUIET), None);
    connection.send_message(question(Transport::Ws).to_string());
    connection.expect_response(483);
}
