//! What listeners have to do with messages: advertised and wildcard addresses, IPv6, and reliable transports
//! (RFC 3261 §18, §17).

mod rig;

use std::net::SocketAddr;

use engine::{FlowId, Input, Listener, ListenerId, Path};
use rig::{ALICE, BOB, BOB_URI, Network, PROXY, Request, SIXTY_FOUR_T1, Script, config, param, script};

/// A script that record-routes to Bob.
fn recording() -> Script {
    Script::new(|cx| {
        let _ = cx.loose_route();
        cx.record_route(b"");
        if script::is_for_us(cx) {
            cx.set_request_uri(BOB_URI.as_bytes());
        }
        let _ = cx.relay();
        rig::done()
    })
}

/// An advertised address stands in Via and Record-Route, and is recognised in responses and Routes.
#[test]
fn an_advertised_address_is_written_and_recognised() {
    let mut config = config();
    config.listeners[0].advertise = Some(("public.example.com".into(), 5080));
    let mut network = Network::with(config, recording());
    let invite = Request::invite(1);
    network.alice(&invite);
    let received = network.only(BOB, "INVITE");
    assert!(received.vias()[0].starts_with("SIP/2.0/UDP public.example.com:5080;"), "{}", received.text());
    assert!(received.values("Record-Route")[0].contains("public.example.com:5080"));
    network.send(BOB, received.accept("bob"));
    let ok = network.only(ALICE, "200");
    network.alice(&invite.in_dialog("BYE", &ok));
    let bye = network.only(BOB, "BYE");
    assert!(bye.header("Route").is_none());
    assert_eq!(bye.uri(), BOB_URI);
}

/// A stateless response whose sent-by is the advertised address is ours (RFC 3261 §16.11).
#[test]
fn a_stateless_proxy_recognises_its_advertised_address() {
    let mut config = config();
    config.listeners[0].advertise = Some(("public.example.com".into(), 5080));
    let mut network = Network::with(config, Script::stateless());
    network.alice(&Request::invite(1).uri(BOB_URI));
    let received = network.one(BOB);
    network.send(BOB, received.respond(180, "bob"));
    assert_eq!(network.labels(ALICE), ["180"]);
}

/// A wildcard listener writes the address that the message was sent to.
#[test]
fn a_wildcard_listener_writes_the_local_address_of_the_message() {
    let mut config = config();
    config.listeners[0].address = "0.0.0.0:5060".parse().expect("an address");
    let mut network = Network::with(config, recording());
    let invite = Request::invite(1).bytes();
    let path = Path::new(ListenerId(0), Some(PROXY.ip()), ALICE);
    network.handle(Input::Message { path, bytes: &invite });
    let received = network.only(BOB, "INVITE");
    assert!(received.vias()[0].contains("10.0.0.1"), "{}", received.text());
    assert!(received.values("Record-Route")[0].contains("10.0.0.1"));
    assert!(!received.text().contains("0.0.0.0"));
}

/// RFC 3261 §18.2.1, RFC 5118: IPv6 sources get `received` and `rport`, and their responses.
#[test]
fn ipv6_clients_are_served() {
    let mut config = config();
    let ours: SocketAddr = "[fd00::1]:5060".parse().expect("an address");
    config.listeners = vec![Listener { transport: sip::Transport::Udp, address: ours, advertise: None }];
    let client: SocketAddr = "[fd00::7]:4444".parse().expect("an address");
    let mut network = Network::with(config, Script::reply(404));
    network
        .send(client, Request::options(1).via("SIP/2.0/UDP [fd00::99]:5060;rport;branch=z9hG4bK6").bytes());
    let response = network.one(client);
    let via = response.vias().remove(0);
    assert_eq!(param(&via, "rport").as_deref(), Some("4444"));
    let received = param(&via, "received").expect("received");
    assert_eq!(received.trim_matches(['[', ']']), "fd00::7");
    network.settle();
}

/// The configuration of a TCP listener at the proxy's address.
fn over_tcp(script: Script) -> Network {
    let mut config = config();
    config.listeners[0].transport = sip::Transport::Tcp;
    Network::with(config, script)
}

fn send_over_tcp(network: &mut Network, request: &Request) {
    let remote = SocketAddr::new(ALICE.ip(), 40_000);
    let path = Path { flow: FlowId(7), ..Path::new(ListenerId(0), Some(PROXY.ip()), remote) };
    network.handle(Input::Message { path, bytes: &request.bytes() });
}

fn tcp(request: Request) -> Request {
    let via = request.vias[0].replace("SIP/2.0/UDP", "SIP/2.0/TCP");
    request.via(&via)
}

/// RFC 3261 §17.2.1: no Timer G over a reliable transport; Timer H still runs.
#[test]
fn timer_g_is_not_started_over_tcp() {
    let mut network = over_tcp(Script::reply(486));
    send_over_tcp(&mut network, &tcp(Request::invite(1)));
    network.until_ms(SIXTY_FOUR_T1 - 1);
    let client = SocketAddr::new(ALICE.ip(), 40_000);
    assert_eq!(network.sent_at(client, "486"), [0], "sent once, on the connection it came by");
    assert_eq!(network.engine.transactions(), 1);
    network.until_ms(SIXTY_FOUR_T1);
    network.assert_at_rest();
}

/// RFC 3261 §17.2.1: Timer I is zero over a reliable transport.
#[test]
fn timer_i_is_zero_over_tcp() {
    let mut network = over_tcp(Script::reply(486));
    let invite = tcp(Request::invite(1));
    send_over_tcp(&mut network, &invite);
    let busy = network.only(SocketAddr::new(ALICE.ip(), 40_000), "486");
    send_over_tcp(&mut network, &invite.ack(&busy));
    network.pass(std::time::Duration::ZERO);
    network.assert_at_rest();
}

/// RFC 3261 §17.2.2: Timer J is zero over a reliable transport.
#[test]
fn timer_j_is_zero_over_tcp() {
    let mut network = over_tcp(Script::reply(200));
    send_over_tcp(&mut network, &tcp(Request::options(1)));
    network.pass(std::time::Duration::ZERO);
    network.assert_at_rest();
    assert_eq!(network.all(SocketAddr::new(ALICE.ip(), 40_000)).len(), 1);
}
