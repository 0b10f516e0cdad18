//! SIP over WebSocket (RFC 7118) as the engine sees it: a reliable transport whose messages end where their frames do,
//! `sips` in clear, and the dialog of the RFC's example.

mod rig;

use std::net::SocketAddr;

use engine::{Alias, Config, FlowId, Listener, ListenerId, Path, Target};
use rig::{ALICE, BOB, Network, PROXY, Request, SIXTY_FOUR_T1, Script, Seen};
use sip::Transport;

const UDP: ListenerId = ListenerId(0);
const WS: ListenerId = ListenerId(2);
const WSS: ListenerId = ListenerId(3);
/// The browser's Via and Contact in the examples (RFC 7118 §8).
const HOST: &str = "df7jal23ls0d.invalid";

/// The proxy of RFC 7118 §8.2, which has TCP, too.
fn config() -> Config {
    let listener = |transport, port, advertise: Option<u16>| Listener {
        transport,
        address: SocketAddr::new(PROXY.ip(), port),
        advertise: advertise.map(|port| ("proxy.example.com".into(), port)),
    };
    let alias = Alias { host: "example.com".into(), port: None, transport: None };
    Config {
        listeners: vec![
            listener(Transport::Udp, 5060, Some(5060)),
            listener(Transport::Tcp, 5060, None),
            listener(Transport::Ws, 80, None),
            listener(Transport::Wss, 443, Some(443)),
        ],
        aliases: vec![alias],
        ..rig::config()
    }
}

/// A browser's connection.
fn connection(listener: ListenerId) -> Path {
    let remote = SocketAddr::new(ALICE.ip(), 40_000);
    Path { flow: FlowId(7), ..Path::new(listener, Some(PROXY.ip()), remote) }
}

/// Sends requests that no Route leads on to a contact, by way of a destination where there is one.
fn to_contact(contact: &'static str, destination: Option<String>) -> Script {
    Script::new(move |cx| {
        let routed = cx.message().to_tag().is_some();
        let _ = cx.loose_route();
        if !routed {
            cx.record_route(b"");
            let destination = destination.as_ref().map(String::as_bytes);
            cx.set_request_target(&Target { destination, ..Target::new(contact.as_bytes()) });
        }
        let _ = cx.relay();
        rig::done()
    })
}

fn to_browser(listener: ListenerId, contact: &'static str) -> Script {
    let transport = if listener == WSS { "wss" } else { "ws" };
    to_contact(contact, Some(format!("sip:{};transport={transport}", connection(listener).remote)))
}

/// RFC 7118 §5: the timers are those of reliable transports.
#[test]
fn nothing_is_sent_again_over_websocket_and_timers_b_and_f_run() {
    for listener in [WS, WSS] {
        let browser = connection(listener).remote;
        for (request, label) in [(Request::invite(1), "INVITE"), (Request::options(1), "OPTIONS")] {
            let script = to_browser(listener, "sip:bob@b0b.invalid;transport=ws");
            let mut network = Network::with(config(), script);
            network.alice(&request);
            network.until_ms(SIXTY_FOUR_T1 - 1);
            assert_eq!(network.sent_at(browser, label), [0], "timers A and E are not started");
            assert!(network.finals(ALICE, label).is_empty());
            network.until_ms(SIXTY_FOUR_T1);
            // RFC 4320 §4.2: what is too late for a request that is no INVITE is not told.
            let told = usize::from(label == "INVITE");
            assert_eq!(network.finals(ALICE, label).len(), told, "timers B and F");
            network.settle();
        }
    }
}

/// RFC 7118 §5: timer G is not started, and timers I and J are zero.
#[test]
fn a_response_goes_to_a_websocket_once() {
    for request in [Request::invite(1), Request::options(1)] {
        let mut network = Network::with(config(), Script::reply(404));
        let client = connection(WS);
        let via = format!("SIP/2.0/WS {HOST};branch=z9hG4bKasudf");
        network.send_on(client, request.clone().via(&via).bytes());
        network.until_ms(10_000);
        assert_eq!(network.sent_at(client.remote, "404"), [0]);
        if request.method == "INVITE" {
            let response = network.only(client.remote, "404");
            network.send_on(client, request.via(&via).ack(&response).bytes());
        }
        network.pass(std::time::Duration::ZERO);
        network.assert_at_rest();
    }
}

/// RFC 7118 §5: "a WebSocket message MUST NOT contain more than one SIP message". What stands behind one is nobody's.
#[test]
fn a_second_message_in_a_frame_is_neither_read_nor_passed_on() {
    let mut network = Network::with(config(), to_contact(rig::BOB_URI, None));
    let (first, second) = (Request::invite(1), Request::options(2));
    network.send_on(connection(WS), format!("{}{}", first.text(), second.text()));
    let received = network.take(BOB);
    assert_eq!(rig::labels(&received), ["INVITE"]);
    assert_eq!(received[0].body(), first.body);
    assert!(!received[0].text().contains("OPTIONS"), "{}", received[0].text());
}

/// RFC 7118 §5: a message needs no Content-Length, its frame ends it; a stream that it leaves by does (RFC 3261 §20.14).
#[test]
fn a_body_without_content_length_ends_with_its_frame() {
    for (uri, length) in [(rig::BOB_URI, None), ("sip:bob@10.0.2.1:5060;transport=tcp", Some(()))] {
        let mut network = Network::with(config(), to_contact(uri, None));
        let invite = Request::invite(1);
        let line = format!("Content-Length: {}\r\n", invite.body.len());
        let text = invite.text();
        assert!(!invite.body.is_empty() && text.contains(&line));
        network.send_on(connection(WSS), text.replace(&line, ""));
        let received = network.only(BOB, "INVITE");
        assert_eq!(received.body(), invite.body);
        assert_eq!(received.header("Content-Length"), length.map(|()| invite.body.len().to_string()));
    }
}

/// RFC 7118 §9.2: a WebSocket on the way of a `sips` request is one over TLS.
#[test]
fn a_sips_request_takes_no_websocket_in_clear() {
    for listener in [WS, WSS] {
        // Whatever the contact was registered by, the way is one over TLS, which no connection in clear is.
        let mut network = Network::with(config(), to_browser(listener, "sips:bob@b0b.invalid;transport=ws"));
        network.alice(&Request::invite(1).uri("sips:bob@example.com"));
        network.only(connection(listener).remote, "INVITE");
        assert_eq!(network.last_path().listener, WSS);

        // The same where a Route of ours leads to a connection.
        let mut network = Network::with(config(), to_contact(rig::BOB_URI, None));
        network.send_on(connection(listener), Request::invite(1).bytes());
        let routes = network.only(BOB, "INVITE").values("Record-Route").join(", ");
        network.take(ALICE);
        network.take(connection(listener).remote);
        let back = Request::new("BYE", 2).uri("sips:alice@al1ce.invalid;transport=ws").with_to_tag("from-1");
        network.send(BOB, back.line(&format!("Route: {routes}")).bytes());
        let reached = network.labels(connection(listener).remote);
        assert_eq!(reached, if listener == WSS { vec!["BYE"] } else { vec![] }, "{}", network.ladder());
    }
}

/// Header lines, in their order, that `seen` has of each name.
fn assert_lines(seen: &Seen, lines: &[(&str, &[&str])]) {
    for (name, values) in lines {
        assert_eq!(seen.values(name), *values, "{}", seen.text());
    }
}

/// RFC 7118 §8.2, F1 to F11: as it is printed, but for what a proxy chooses itself.
#[test]
fn the_dialog_of_rfc_7118_section_8_2() {
    let mut network = Network::with(config(), to_contact("sip:bob@10.0.2.1:5060", None));
    let alice = connection(WSS);
    let via = format!("SIP/2.0/WSS {HOST};branch=z9hG4bK56sdasks");
    let contact = "<sip:alice@example.com\r\n ;gr=urn:uuid:f81-7dec-14a06cf1;ob>";
    let common =
        "From: sip:alice@example.com;tag=asdyka899\r\nTo: sip:bob@example.com\r\nCall-ID: asidkj3ss\r\n";
    let f1 = format!(
        "INVITE sip:bob@example.com SIP/2.0\r\nVia: {via}\r\n{common}CSeq: 1 INVITE\r\nMax-Forwards: 70\r\n\
         Supported: path, outbound, gruu\r\nRoute: <sip:proxy.example.com:443;transport=ws;lr>\r\n\
         Contact: {contact}\r\nContent-Type: application/sdp\r\n\r\nv=0\r\n"
    );
    network.send_on(alice, f1);
    let f2 = network.only(alice.remote, "100");
    // The example leaves `received` out, which the RFC allows (§5.3); we add it, with the port where it was asked for.
    let received = format!("{via};received={}", alice.remote.ip());
    assert_lines(&f2, &[("Via", &[&received]), ("CSeq", &["1 INVITE"])]);

    let f3 = network.only(BOB, "INVITE");
    assert_eq!(f3.uri(), "sip:bob@10.0.2.1:5060");
    assert_eq!(f3.vias()[1], received);
    assert!(f3.vias()[0].starts_with("SIP/2.0/UDP proxy.example.com:5060;branch=z9hG4bK"), "{}", f3.text());
    assert_lines(
        &f3,
        &[("Max-Forwards", &["69"]), ("Supported", &["path", "outbound", "gruu"]), ("Route", &[])],
    );
    let routes = f3.values("Record-Route");
    assert_eq!(routes.len(), 2, "{}", f3.text());
    assert!(routes[0].contains("proxy.example.com") && !routes[0].contains("transport=ws"), "{routes:?}");
    assert!(
        routes[1].contains("@proxy.example.com:443;transport=ws") && routes[1].contains(";lr"),
        "{routes:?}"
    );
    assert_eq!(f3.body(), "v=0\r\n");

    let bobs = "Contact: <sip:bob@10.0.2.1:5060;transport=udp>";
    network.send(BOB, f3.respond_with(200, "bmqkjhsd", &[bobs], ""));
    let f5 = network.only(alice.remote, "200");
    assert_eq!(network.last_path().flow, alice.flow);
    assert_lines(&f5, &[("Via", &[&received]), ("Contact", &["<sip:bob@10.0.2.1:5060;transport=udp>"])]);
    assert_eq!(f5.values("Record-Route"), routes);

    let common = common.replace("bob@example.com\r\n", "bob@example.com;tag=bmqkjhsd\r\n");
    let f6 = format!(
        "ACK sip:bob@10.0.2.1:5060;transport=udp SIP/2.0\r\nVia: SIP/2.0/WSS {HOST};branch=z9hG4bKhgqqp090\r\n\
         Route: {},\r\n {}\r\n{common}CSeq: 1 ACK\r\nMax-Forwards: 70\r\n\r\n",
        routes[1], routes[0]
    );
    network.send_on(alice, f6);
    let f7 = network.only(BOB, "ACK");
    assert_eq!(f7.uri(), "sip:bob@10.0.2.1:5060;transport=udp");
    assert_lines(&f7, &[("Max-Forwards", &["69"]), ("Route", &[])]);
    assert_eq!(network.last_path().listener, UDP);

    let gruu = "sip:alice@example.com;gr=urn:uuid:f81-7dec-14a06cf1;ob";
    let f8 = format!(
        "BYE {gruu} SIP/2.0\r\nVia: SIP/2.0/UDP {BOB};branch=z9hG4bKbiuiansd001\r\nRoute: {},\r\n {}\r\n\
         From: sip:bob@example.com;tag=bmqkjhsd\r\nTo: sip:alice@example.com;tag=asdyka899\r\n\
         Call-ID: asidkj3ss\r\nCSeq: 1201 BYE\r\nMax-Forwards: 70\r\n\r\n",
        routes[0], routes[1]
    );
    network.send(BOB, f8);
    let f9 = network.only(alice.remote, "BYE");
    assert_eq!((f9.uri().as_str(), network.last_path().listener), (gruu, WSS));
    assert!(f9.vias()[0].starts_with("SIP/2.0/WSS proxy.example.com:443;branch=z9hG4bK"), "{}", f9.text());
    assert_lines(&f9, &[("Max-Forwards", &["69"]), ("Route", &[])]);
    network.send_on(alice, f9.respond(200, ""));
    assert_lines(&network.only(BOB, "200"), &[("CSeq", &["1201 BYE"])]);
}
