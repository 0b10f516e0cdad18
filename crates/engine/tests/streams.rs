//! TCP, TLS and WebSocket: which transport a request takes (RFC 3261 §18, RFC 3263 §4.1, RFC 5630), the way back on a
//! connection (RFC 3261 §18.2.2), connections that fail (RFC 3261 §16.9, §18.4), requests too long for UDP (RFC 3261
//! §18.1.1), peers that only their connection leads to (RFC 5626, RFC 7118), aliases (RFC 5923).

mod rig;

use std::net::SocketAddr;
use std::time::Duration;

use engine::{Config, DomainId, FlowId, Input, Listener, ListenerId, Path, TransportFailure};
use rig::text::inside_brackets;
use rig::{ALICE, BOB, CAROL, Network, PROXY, Request, Script, Seen, T1, param, script};
use sip::Transport;

const UDP: ListenerId = ListenerId(0);
const TCP: ListenerId = ListenerId(1);
const TLS: ListenerId = ListenerId(2);
const WS: ListenerId = ListenerId(3);
const WSS: ListenerId = ListenerId(4);

/// A listener of each transport.
fn config() -> Config {
    let listener =
        |transport, port| Listener { transport, address: SocketAddr::new(PROXY.ip(), port), advertise: None };
    Config {
        listeners: vec![
            listener(Transport::Udp, 5060),
            listener(Transport::Tcp, 5060),
            listener(Transport::Tls, 5061),
            listener(Transport::Ws, 80),
            listener(Transport::Wss, 443),
        ],
        ..rig::config()
    }
}

fn network(script: Script) -> Network {
    Network::with(config(), script)
}

/// A connection of Alice's host from an ephemeral port.
fn connection(listener: ListenerId, flow: u64) -> Path {
    let remote = SocketAddr::new(ALICE.ip(), 40_000 + (flow % 100) as u16);
    Path { flow: FlowId(flow), ..Path::new(listener, Some(PROXY.ip()), remote) }
}

/// A request with the Via of another transport.
fn over(transport: &str, request: Request) -> Request {
    let via = request.vias[0].replace("SIP/2.0/UDP", &format!("SIP/2.0/{transport}"));
    request.via(&via)
}

fn tcp(request: Request) -> Request {
    over("TCP", request)
}

/// Sends everything on to its Request-URI, record-routed.
fn recording() -> Script {
    Script::new(|cx| {
        let _ = cx.loose_route();
        cx.record_route(b"");
        let _ = cx.relay();
        rig::done()
    })
}

/// What Bob gets of a request.
fn relayed(network: &mut Network, from: Path, request: &Request) -> Seen {
    network.send_on(from, request.bytes());
    network.only(BOB, &request.method)
}

// --- the way back (RFC 3261 §18.2.2) ------------------------------------------------------------------------------------

#[test]
fn a_response_goes_back_on_its_connection_and_else_to_the_port_of_sent_by() {
    let mut network = network(Script::reply(404));
    let client = connection(TCP, 7);
    for (via, port) in [
        ("SIP/2.0/TCP 10.0.1.1:5077;branch=z9hG4bKa", 5077),
        ("SIP/2.0/TCP phone.example.org;branch=z9hG4bKb;rport", 5060),
    ] {
        network.send_on(client, Request::options(1).via(via).bytes());
        let path = network.last_path();
        assert_eq!((path.flow, path.listener, path.remote), (client.flow, TCP, client.remote));
        assert_eq!(path.fallback_port, port, "{via}");
    }
    let via = "SIP/2.0/TLS phone.example.org;branch=z9hG4bKc";
    network.send_on(connection(TLS, 8), Request::options(1).via(via).bytes());
    assert_eq!(network.last_path().fallback_port, 5061);
}

/// RFC 7118 §5: nobody can connect to a WebSocket client.
#[test]
fn a_websocket_client_is_answered_on_its_connection_or_not_at_all() {
    let mut network = network(Script::reply(404));
    for listener in [WS, WSS] {
        let via = "SIP/2.0/WS df7jal23ls0d.invalid;branch=z9hG4bKa";
        network.send_on(connection(listener, 9), Request::options(1).via(via).bytes());
        assert_eq!((network.last_path().flow, network.last_path().fallback_port), (FlowId(9), 0));
    }
}

/// RFC 3261 §18.2.2, §16.11: without state the branch carries the connection, the same for what belongs together.
#[test]
fn a_stateless_response_finds_the_connection_of_its_request() {
    let mut network = network(Script::stateless());
    let client = connection(TCP, u64::MAX - 3);
    let invite = tcp(Request::invite(1).uri(rig::BOB_URI));
    let received = relayed(&mut network, client, &invite);
    network.send(BOB, received.respond(180, "bob"));
    let path = network.last_path();
    assert_eq!((path.flow, path.listener, path.fallback_port), (client.flow, TCP, 5060));
    let cancel = relayed(&mut network, client, &tcp(invite.cancel()));
    assert_eq!(cancel.branch(), received.branch());
    network.send(BOB, received.respond(486, "bob"));
    let busy = network.log.last().cloned().expect("a response");
    let ack = relayed(&mut network, client, &invite.ack(&busy));
    assert_eq!(ack.branch(), received.branch());
}

#[test]
fn a_stateless_branch_is_no_longer_where_there_is_no_connection() {
    let mut network = network(Script::stateless());
    network.alice(&Request::invite(1).uri(rig::BOB_URI));
    assert_eq!(network.one(BOB).branch().len(), 41);
}

/// A next hop that makes up a connection must not send on somebody else's.
#[test]
fn a_forged_connection_is_not_used() {
    let mut network = network(Script::stateless());
    let client = connection(TCP, 7);
    let received = relayed(&mut network, client, &tcp(Request::invite(1).uri(rig::BOB_URI)));
    let branch = received.branch();
    let response = String::from_utf8(received.respond(200, "bob")).expect("text");
    // The last digit of the connection's number.
    let forged = format!("{}8{}", &branch[..26], &branch[27..]);
    assert_ne!(branch, forged);
    let before = network.log.len();
    network.send(BOB, response.replace(&branch, &forged));
    assert_eq!(network.log.len(), before + 1, "nothing but what Bob sent: {}", network.ladder());
}

// --- which transport (RFC 3263 §4.1, RFC 5630, RFC 7118) ------------------------------------------------------------------

#[test]
fn scheme_and_transport_of_the_uri_choose_the_listener() {
    for (uri, listener, port, via) in [
        ("sip:bob@10.0.2.1", UDP, 5060, "UDP"),
        ("sip:bob@10.0.2.1;transport=tcp", TCP, 5060, "TCP"),
        ("sip:bob@10.0.2.1:5099;transport=TLS", TLS, 5099, "TLS"),
        ("sip:bob@10.0.2.1;transport=tls", TLS, 5061, "TLS"),
        ("sip:bob@10.0.2.1:40000;transport=ws", WS, 40000, "WS"),
        ("sip:bob@10.0.2.1:40000;transport=wss", WSS, 40000, "WSS"),
    ] {
        let mut network = network(Script::proxy());
        network.alice(&Request::options(1).uri(uri));
        let path = network.last_path();
        assert_eq!((path.listener, path.remote.port(), path.flow), (listener, port, FlowId::NONE), "{uri}");
        let sent = network.log.last().expect("a request").clone();
        assert!(sent.vias()[0].starts_with(&format!("SIP/2.0/{via} 10.0.0.1:")), "{}", sent.text());
    }
    let mut network = network(Script::proxy());
    network.alice(&Request::options(1).uri("sips:bob@10.0.2.1"));
    assert_eq!((network.last_path().listener, network.last_path().remote.port()), (TLS, 5061));
}

/// RFC 7118 §5: contacts of WebSocket clients cannot be resolved.
#[test]
fn a_name_of_a_websocket_client_leads_nowhere() {
    for uri in [
        "sip:x@df7jal23ls0d.invalid;transport=ws",
        "sip:x@df7jal23ls0d.invalid",
        "sip:x@a.example;transport=ws",
    ] {
        let mut network = network(Script::proxy());
        network.alice(&Request::options(1).uri(uri));
        assert!(network.asks.is_empty(), "{uri}");
        assert_eq!(network.labels(ALICE), ["478"], "{uri}");
    }
}

/// RFC 5922 §7.1: the peer proves the name that was asked for; an address is its own name.
#[test]
fn tls_carries_the_name_that_the_peer_must_prove() {
    let mut network = network(Script::proxy());
    network.alice(&Request::options(1).uri("sip:bob@Proxy.Example.NET;transport=tls"));
    network.answer(engine::Answer::Addresses(&[BOB.ip()]));
    let path = network.last_path();
    assert_eq!(network.engine.domain(path.domain), b"proxy.example.net");
    network.alice(&Request::options(2).uri("sips:bob@proxy.example.net"));
    assert_eq!(network.last_path().domain, path.domain);
    network.alice(&Request::options(3).uri("sips:bob@10.0.2.1"));
    assert_eq!(network.last_path().domain, DomainId::NONE);
    network.alice(&Request::options(4).uri("sip:bob@proxy.example.net"));
    assert_eq!((network.last_path().listener, network.last_path().domain), (UDP, DomainId::NONE));
}

/// A server that listens on TCP alone serves URIs that name no transport by it.
#[test]
fn without_a_udp_listener_tcp_is_taken() {
    let mut config = config();
    config.listeners.remove(0);
    let mut network = Network::with(config, Script::proxy());
    let client = Path { listener: ListenerId(0), ..connection(TCP, 7) };
    network.send_on(client, tcp(Request::options(1).uri("sip:bob@10.0.2.1")).bytes());
    assert_eq!(network.last_path().listener, ListenerId(0));
    network.send_on(client, tcp(Request::options(2).uri("sip:bob@10.0.2.1;transport=udp")).bytes());
    let path = network.last_path();
    assert_eq!((path.flow, network.log.last().and_then(Seen::status)), (client.flow, Some(478)));
}

/// RFC 5630 §5.3: no `sips` request goes to a `sip` URI, and none leaves without TLS.
#[test]
fn a_sips_request_is_not_sent_on_without_tls() {
    for (uri, targets) in [
        ("sips:bob@example.org", Some("sip:bob@10.0.2.1")),
        ("sips:bob@example.org", Some("sip:bob@10.0.2.1;transport=tls")),
        ("sips:bob@10.0.2.1;transport=udp", None),
    ] {
        let script = targets.map_or_else(Script::proxy, |target| Script::fork(&[(target, 1000)]));
        let mut network = network(script);
        network.alice(&Request::invite(1).uri(uri));
        let refused = network.only(ALICE, "480");
        assert_eq!(refused.header("Warning").as_deref(), Some("380 10.0.0.1:5060 \"SIPS Not Allowed\""));
        network.assert_quiet(BOB);
    }
}

/// RFC 3261 §16.6 item 7: TLS also where a `sip` Route says the next hop, and never a Route by UDP.
#[test]
fn a_sips_request_follows_its_route_by_tls() {
    let mut network = network(Script::proxy());
    network.alice(&Request::options(1).uri("sips:x@example.net").line("Route: <sip:10.0.2.1;lr>"));
    assert_eq!((network.last_path().listener, network.last_path().remote.port()), (TLS, 5061));
    network
        .alice(&Request::options(2).uri("sips:x@example.net").line("Route: <sip:10.0.2.1;transport=udp;lr>"));
    assert_eq!(network.log.last().and_then(Seen::status), Some(480));
}

/// RFC 5630 §5.3: a contact that is `sips` gets a request for a `sip` URI as `sip`, by TLS.
#[test]
fn a_sip_request_to_a_sips_contact_keeps_its_scheme_and_takes_tls() {
    let mut network = network(Script::fork(&[("sips:bob@10.0.2.1:5061;transport=tcp", 1000)]));
    network.alice(&Request::invite(1));
    let bob = SocketAddr::new(BOB.ip(), 5061);
    assert_eq!(network.only(bob, "INVITE").uri(), "sip:bob@10.0.2.1:5061;transport=tcp");
    assert_eq!(network.last_path().listener, TLS);
}

#[test]
fn a_sips_contact_without_a_tls_listener_is_unavailable() {
    let mut config = config();
    config.listeners.truncate(2);
    let mut network = Network::with(config, Script::fork(&[("sips:bob@10.0.2.1", 1000)]));
    network.alice(&Request::invite(1));
    let refused = network.only(ALICE, "480");
    assert_eq!(refused.header("Warning").as_deref(), Some("381 10.0.0.1:5060 \"SIPS Required\""));
}

// --- record routing (RFC 3261 §16.6 item 4) -------------------------------------------------------------------------------

#[test]
fn a_change_of_transport_is_recorded_on_both_sides_and_followed_back() {
    let mut network = network(recording());
    let client = connection(TCP, 7);
    let contact = format!("Contact: <sip:alice@{};transport=tcp>", client.remote);
    let mut invite = tcp(Request::invite(1).uri(rig::BOB_URI));
    invite.lines[0] = contact;
    let received = relayed(&mut network, client, &invite);
    let routes = received.values("Record-Route");
    assert_eq!(routes.len(), 2, "{routes:?}");
    assert!(routes[0].contains("@10.0.0.1:5060;r2=on;lr"), "{routes:?}");
    assert!(routes[1].contains("@10.0.0.1:5060;transport=tcp;r2=on;lr"), "{routes:?}");
    network.send(BOB, received.accept("bob"));
    let ok = network.log.last().cloned().expect("the 200");
    let bye = relayed(&mut network, client, &tcp(invite.in_dialog("BYE", &ok)));
    assert_eq!((bye.uri(), bye.header("Route")), (rig::BOB_URI.to_owned(), None));
    assert_eq!(network.last_path().listener, UDP);
}

/// The listener of our second Route is the one to leave by, not just any that fits.
#[test]
fn the_second_own_route_chooses_the_listener() {
    let mut config = config();
    let inside: SocketAddr = "10.9.0.1:5060".parse().expect("an address");
    config.listeners.push(Listener { transport: Transport::Udp, address: inside, advertise: None });
    let mut network = Network::with(config, Script::proxy());
    let routes = "Route: <sip:10.0.0.1:5060;transport=tcp;r2=on;lr>, <sip:10.9.0.1:5060;r2=on;lr>";
    network.send_on(connection(TCP, 7), tcp(Request::options(1).uri(rig::BOB_URI).line(routes)).bytes());
    assert_eq!(network.last_path().listener, ListenerId(5));
    // Where it does not fit, another does.
    let request = Request::options(2).uri("sip:bob@10.0.2.1;transport=tcp").line(routes);
    network.send_on(connection(TCP, 7), tcp(request).bytes());
    assert_eq!(network.last_path().listener, TCP);
}

/// RFC 3261 §16.6 item 4: `sips` where the Request-URI is.
#[test]
fn a_sips_request_is_recorded_as_sips() {
    let mut network = network(recording());
    let client = connection(TLS, 7);
    let mut invite = over("TLS", Request::invite(1).uri("sips:bob@10.0.2.1"));
    invite.lines[0] = format!("Contact: <sips:alice@{}>", client.remote);
    network.send_on(client, invite.bytes());
    let received = network.only(SocketAddr::new(BOB.ip(), 5061), "INVITE");
    let routes = received.values("Record-Route");
    assert_eq!(routes.len(), 1);
    assert!(routes[0].starts_with("<sips:") && routes[0].contains("@10.0.0.1:5061;lr"), "{routes:?}");
}

#[test]
fn a_sip_request_by_tls_is_recorded_with_its_transport() {
    let mut network = network(recording());
    let client = connection(TLS, 7);
    let received = relayed(&mut network, client, &over("TLS", Request::invite(1).uri(rig::BOB_URI)));
    let routes = received.values("Record-Route");
    assert!(routes[1].starts_with("<sip:") && routes[1].contains("@10.0.0.1:5061;transport=tls;r2=on;lr"));
}

/// RFC 5626 §5.3, RFC 7118 §5: what a dialog sends to a WebSocket client takes its connection, both ways.
#[test]
fn a_dialog_with_websocket_clients_finds_their_connections() {
    for (listener, via) in [(WS, "WS"), (WSS, "WSS")] {
        let (alice, bob) = (connection(listener, 7), connection(listener, 8));
        let target = format!("sip:{}", bob.remote);
        let to_bob = registered_by(&target, "sip:bob@b0b.invalid;transport=ws", via);
        let mut network = network(to_bob);
        let mut invite = over(via, Request::invite(1));
        invite.vias[0] = format!("SIP/2.0/{via} al1ce.invalid;branch=z9hG4bK1");
        invite.lines[0] = "Contact: <sip:alice@al1ce.invalid;transport=ws>".into();
        network.send_on(alice, invite.bytes());
        let received = network.only(bob.remote, "INVITE");
        assert_eq!(received.uri(), "sip:bob@b0b.invalid;transport=ws");
        assert_eq!(received.values("Record-Route").len(), 2, "{}", received.text());
        let contact = "Contact: <sip:bob@b0b.invalid;transport=ws>";
        network.send_on(bob, received.respond_with(200, "bob", &[contact], ""));
        let ok = network.only(alice.remote, "200");
        // From the caller.
        network.send_on(alice, over(via, invite.in_dialog("BYE", &ok)).bytes());
        let bye = network.only(bob.remote, "BYE");
        assert_eq!(bye.uri(), "sip:bob@b0b.invalid;transport=ws");
        assert_eq!((network.last_path().listener, network.last_path().remote), (listener, bob.remote));
        // From the callee: its route set is the other way round.
        let mut back = over(via, Request::new("BYE", 2).uri("sip:alice@al1ce.invalid;transport=ws"));
        let routes = received.values("Record-Route").join(", ");
        back = back.with_to_tag("from-1").line(&format!("Route: {routes}"));
        network.send_on(bob, back.bytes());
        assert_eq!(network.only(alice.remote, "BYE").header("Route"), None);
    }
}

/// A script that sends requests for our domain to a contact by way of where it was registered from.
fn registered_by(received: &str, contact: &str, via: &str) -> Script {
    registered_at(&format!("{received};transport={via}"), contact)
}

fn registered_at(received: &str, contact: &str) -> Script {
    let (received, contact) = (received.to_owned(), contact.to_owned());
    Script::new(move |cx| {
        let _ = cx.loose_route();
        if script::is_for_us(cx) {
            cx.record_route(b"");
            cx.set_request_target(&engine::Target {
                destination: Some(received.as_bytes()),
                ..engine::Target::new(contact.as_bytes())
            });
        }
        let _ = cx.relay();
        rig::done()
    })
}

/// RFC 5626 §5.2: an address that we have not written into a Route is not taken from it.
#[test]
fn a_forged_connection_in_a_route_is_not_followed() {
    let (alice, bob) = (connection(WS, 7), connection(WS, 8));
    let script = registered_by(&format!("sip:{}", bob.remote), "sip:bob@b0b.invalid;transport=ws", "ws");
    let mut network = network(script);
    network.send_on(alice, over("WS", Request::invite(1)).bytes());
    let received = network.only(bob.remote, "INVITE");
    let route = received.values("Record-Route").remove(0);
    let user = inside_brackets(&route).split(['@', ':']).nth(1).expect("a user").to_owned();
    let forged = format!("{}{}", &user[..user.len() - 1], if user.ends_with('0') { '1' } else { '0' });
    let request = Request::new("BYE", 1).uri("sip:bob@b0b.invalid;transport=ws");
    let request = request.line(&format!("Route: {}", route.replace(&user, &forged)));
    network.send_on(alice, over("WS", request).bytes());
    network.assert_quiet(bob.remote);
    assert_eq!(network.log.last().and_then(Seen::status), Some(478));
}

// --- connections that fail (RFC 3261 §16.9, §18.4) -----------------------------------------------------------------------

const BOB_BY_TCP: &str = "sip:bob@10.0.2.1:5060;transport=tcp";
const CAROL_BY_TCP: &str = "sip:carol@10.0.2.2:5060;transport=tcp";

/// No connection can be made.
fn lost(network: &mut Network, listener: ListenerId, remote: SocketAddr) {
    let path = Path::new(listener, None, remote);
    network.handle(Input::TransportError { path, failure: TransportFailure::Unreachable });
}

/// A connection ends behind what was sent by it.
fn broken(network: &mut Network, remote: SocketAddr) {
    let path = Path { flow: FlowId(9), ..Path::new(TCP, Some(PROXY.ip()), remote) };
    network.handle(Input::TransportError { path, failure: TransportFailure::Broken });
}

#[test]
fn a_connection_that_fails_takes_the_next_target_at_once() {
    let mut network = network(Script::fork(&[(BOB_BY_TCP, 1000), (CAROL_BY_TCP, 500)]));
    network.alice(&Request::invite(1));
    assert_eq!(network.labels(BOB), ["INVITE"]);
    lost(&mut network, TCP, BOB);
    let carol = network.only(CAROL, "INVITE");
    assert_eq!(network.now.as_micros(), 0);
    network.send(CAROL, carol.respond(486, "carol"));
    assert_eq!(network.labels(ALICE), ["100", "486"]);
    network.settle();
}

/// RFC 3261 §18.1.1: for a response "the transport layer MUST also be prepared to receive an incoming connection": its
/// Via says whose it is, whatever connection it comes by.
#[test]
fn a_response_on_another_connection_is_taken() {
    let mut network = network(Script::fork(&[(BOB_BY_TCP, 1000)]));
    network.alice(&Request::invite(1));
    let received = network.only(BOB, "INVITE");
    let port = SocketAddr::new(BOB.ip(), 40_077);
    let other = Path { flow: FlowId(77), ..Path::new(TCP, Some(PROXY.ip()), port) };
    network.send_on(other, received.respond(180, "bob"));
    network.send_on(other, received.accept("bob"));
    assert_eq!(network.labels(ALICE), ["100", "180", "200"]);
    network.settle();
}

#[test]
fn a_connection_that_fails_is_a_500_if_it_was_all_there_was() {
    let mut network = network(Script::fork(&[(BOB_BY_TCP, 1000)]));
    network.alice(&Request::invite(1));
    lost(&mut network, TCP, BOB);
    // RFC 3261 §16.7 item 6: a 503 goes upstream as 500.
    assert_eq!(network.labels(ALICE), ["100", "500"]);
    network.settle();
}

/// Another peer's failure, another listener's, and one after the first response change nothing.
#[test]
fn only_branches_that_wait_at_the_peer_fail() {
    let mut network = network(Script::fork(&[(BOB_BY_TCP, 1000), (CAROL_BY_TCP, 1000)]));
    network.alice(&Request::invite(1));
    let (bob, carol) = (network.only(BOB, "INVITE"), network.only(CAROL, "INVITE"));
    lost(&mut network, TLS, BOB);
    lost(&mut network, UDP, BOB);
    lost(&mut network, TCP, rig::MALLORY);
    network.send_on(Path::new(TCP, None, BOB), bob.respond(180, "bob"));
    lost(&mut network, TCP, BOB);
    lost(&mut network, TCP, CAROL);
    let _ = carol;
    assert_eq!(network.labels(ALICE), ["100", "180"]);
    network.send_on(Path::new(TCP, None, BOB), bob.accept("bob"));
    assert_eq!(network.labels(ALICE), ["200"]);
    network.settle();
}

#[test]
fn many_requests_on_one_connection_fail_with_it() {
    let mut network = network(Script::fork(&[(BOB_BY_TCP, 1000)]));
    for n in 0..50 {
        network.alice(&Request::options(n));
    }
    lost(&mut network, TCP, BOB);
    assert_eq!(network.labels(ALICE).iter().filter(|label| *label == "500").count(), 50);
    network.settle();
}

/// A contact that was registered from a connection is tried at its own port when that is gone.
#[test]
fn a_phone_whose_connection_is_gone_is_tried_where_it_listens() {
    let registered = SocketAddr::new(BOB.ip(), 41_000);
    let script = registered_by(&format!("sip:{registered}"), "sip:bob@10.0.2.1:5070;transport=tcp", "tcp");
    let mut network = network(script);
    network.alice(&Request::invite(1));
    assert_eq!(network.labels(registered), ["INVITE"]);
    lost(&mut network, TCP, registered);
    let listens = SocketAddr::new(BOB.ip(), 5070);
    assert_eq!(network.labels(listens), ["INVITE"]);
    lost(&mut network, TCP, listens);
    assert_eq!(network.labels(ALICE), ["100", "500"]);
    network.settle();
}

/// The same within a dialog, whose connection may be gone by the time it ends.
#[test]
fn a_dialog_whose_connection_is_gone_goes_on_where_the_phone_listens() {
    let mut network = network(recording());
    let client = connection(TCP, 7);
    let mut invite = tcp(Request::invite(1).uri(rig::BOB_URI));
    invite.lines[0] = "Contact: <sip:alice@10.0.1.1:5070;transport=tcp>".into();
    let received = relayed(&mut network, client, &invite);
    let routes = received.values("Record-Route").join(", ");
    network.send(BOB, received.accept("bob"));
    let bye = Request::new("BYE", 2).uri("sip:alice@10.0.1.1:5070;transport=tcp").with_to_tag("from-1");
    network.send(
        BOB,
        bye.via("SIP/2.0/UDP 10.0.2.1;branch=z9hG4bKbye").line(&format!("Route: {routes}")).bytes(),
    );
    assert_eq!(network.only(client.remote, "BYE").header("Route"), None);
    assert_eq!(network.last_path().flow, FlowId::STANDING, "nobody listens where a phone connects from");
    lost(&mut network, TCP, client.remote);
    let listens = SocketAddr::new(ALICE.ip(), 5070);
    let bye = network.only(listens, "BYE");
    assert_eq!(network.last_path().flow, FlowId::NONE);
    network.send_on(Path::new(TCP, None, listens), bye.respond(200, "alice"));
    assert_eq!(network.log.last().and_then(Seen::status), Some(200));
    assert_eq!(network.last_path().remote, BOB);
}

#[test]
fn a_phone_behind_a_nat_is_not_looked_for_at_its_private_address() {
    let registered = SocketAddr::new(BOB.ip(), 41_000);
    let script = registered_by(&format!("sip:{registered}"), "sip:bob@192.168.1.2:5070;transport=tcp", "tcp");
    let mut network = network(script);
    network.alice(&Request::invite(1));
    lost(&mut network, TCP, registered);
    assert_eq!(network.labels(ALICE), ["100", "500"]);
    network.settle();
}

/// The first copy may have arrived: what it is answered counts, and its receiver takes the second for a copy (RFC 3261
/// §17.2.3, §18.2.2).
#[test]
fn a_request_whose_connection_breaks_is_sent_again_with_the_same_branch() {
    for uri in [BOB_BY_TCP, "sip:bob@10.0.2.1"] {
        let mut network = network(Script::fork(&[(uri, 1000), (CAROL_BY_TCP, 500)]));
        network.alice(&long(1));
        let first = network.only(BOB, "INVITE");
        broken(&mut network, BOB);
        let second = network.only(BOB, "INVITE");
        assert_eq!((second.text(), network.last_path().listener), (first.text(), TCP));
        assert_eq!(network.last_path().flow, FlowId::NONE);
        network.assert_quiet(CAROL);
        let bobs = Path { flow: FlowId(10), ..Path::new(TCP, Some(PROXY.ip()), BOB) };
        network.send_on(bobs, first.accept("bob"));
        assert_eq!(network.labels(ALICE), ["100", "200"]);
        network.settle();
    }
}

/// RFC 3261 §16.9, RFC 3263 §4.3; §18.1.1: UDP is for peers that have no TCP, and this one had a connection.
#[test]
fn a_request_whose_connection_breaks_twice_takes_the_next_target() {
    for fails in [broken, |network: &mut Network, remote| lost(network, TCP, remote)] {
        for uri in [BOB_BY_TCP, "sip:bob@10.0.2.1"] {
            let mut network = network(Script::fork(&[(uri, 1000), (CAROL_BY_TCP, 500)]));
            network.alice(&long(1));
            broken(&mut network, BOB);
            assert_eq!(network.labels(BOB), ["INVITE", "INVITE"]);
            fails(&mut network, BOB);
            network.assert_quiet(BOB);
            let carol = network.only(CAROL, "INVITE");
            network.send(CAROL, carol.respond(486, "carol"));
            assert_eq!(network.labels(ALICE), ["100", "486"]);
            network.settle();
        }
    }
}

/// RFC 3261 §17.2.2: on a stream its receiver may have forgotten it, and would take a copy for a new one; nor is it sent by
/// UDP, which is for peers that have no TCP (§18.1.1).
#[test]
fn a_request_that_is_no_invite_is_not_sent_again_when_its_connection_breaks() {
    let mut network = network(Script::fork(&[("sip:bob@10.0.2.1", 1000), (CAROL_BY_TCP, 500)]));
    let mut options = Request::options(1);
    options.body = "y".repeat(1_300);
    network.alice(&options);
    assert_eq!(network.last_path().listener, TCP);
    broken(&mut network, BOB);
    assert_eq!(network.labels(BOB), ["OPTIONS"]);
    let carol = network.only(CAROL, "OPTIONS");
    network.send(CAROL, carol.respond(200, "carol"));
    assert_eq!(network.labels(ALICE), ["200"]);
    network.settle();
}

/// RFC 3261 §9.1: what may have arrived is cancelled as soon as it says so; what has not is not sent.
#[test]
fn a_cancelled_request_whose_connection_breaks_is_not_sent_again() {
    let mut network = network(Script::fork(&[(BOB_BY_TCP, 1000)]));
    let invite = Request::invite(1);
    network.alice(&invite);
    let sent = network.only(BOB, "INVITE");
    network.alice(&invite.cancel());
    broken(&mut network, BOB);
    network.assert_quiet(BOB);
    network.send_on(Path::new(TCP, None, BOB), sent.respond(180, "bob"));
    assert_eq!(network.labels(BOB), ["CANCEL"]);
    network.send_on(Path::new(TCP, None, BOB), sent.respond(487, "bob"));
    assert_eq!(network.labels(ALICE), ["100", "200", "180", "487"]);
    network.settle();
}

/// Where the peer says that it listens, if that is not where its connection came from.
#[test]
fn a_phone_whose_connection_breaks_is_sent_a_copy_where_it_listens() {
    let registered = SocketAddr::new(BOB.ip(), 41_000);
    let mut network = network(registered_by(&format!("sip:{registered}"), BOB_BY_TCP, "tcp"));
    network.alice(&Request::invite(1));
    let first = network.only(registered, "INVITE");
    broken(&mut network, registered);
    assert_eq!(network.only(BOB, "INVITE").text(), first.text());
    assert_eq!(network.last_path().flow, FlowId::NONE);
    network.settle();
}

// --- requests too long for UDP (RFC 3261 §18.1.1) -------------------------------------------------------------------------

fn long(n: u32) -> Request {
    let mut request = Request::invite(n);
    request.body = format!("{}a=x:{}\r\n", request.body, "y".repeat(1_300));
    request
}

#[test]
fn a_long_request_takes_tcp_where_its_uri_names_no_transport() {
    let mut network = network(recording());
    network.alice(&long(1).uri("sip:bob@10.0.2.1"));
    let sent = network.only(BOB, "INVITE");
    assert_eq!(network.last_path().listener, TCP);
    assert!(sent.vias()[0].starts_with("SIP/2.0/TCP"), "{}", sent.text());
    assert!(sent.values("Record-Route")[0].contains(";transport=tcp"), "{}", sent.text());
    // One that does name it, and a short one, stay.
    network.alice(&long(2).uri("sip:bob@10.0.2.1;transport=udp"));
    assert_eq!(network.last_path().listener, UDP);
    network.alice(&Request::options(3).uri("sip:bob@10.0.2.1"));
    assert_eq!(network.last_path().listener, UDP);
}

#[test]
fn a_long_request_goes_by_udp_after_all_where_there_is_no_tcp() {
    let mut network = network(Script::proxy());
    network.alice(&long(1).uri("sip:bob@10.0.2.1"));
    assert!(network.only(BOB, "INVITE").vias()[0].starts_with("SIP/2.0/TCP"));
    lost(&mut network, TCP, BOB);
    let again = network.only(BOB, "INVITE");
    assert!(again.vias()[0].starts_with("SIP/2.0/UDP"), "{}", again.text());
    assert_eq!(again.uri(), "sip:bob@10.0.2.1");
    // It is an ordinary branch by UDP: it is sent again until it is answered.
    network.pass(T1);
    assert_eq!(network.labels(BOB), ["INVITE"]);
    network.send(BOB, again.respond(486, "bob"));
    assert_eq!(network.labels(ALICE), ["100", "486"]);
    assert_eq!(network.labels(BOB), ["ACK"]);
    // The peer is known for a minute.
    network.alice(&long(2).uri("sip:bob@10.0.2.1"));
    assert_eq!(network.last_path().listener, UDP);
    network.pass(Duration::from_secs(61));
    network.alice(&long(3).uri("sip:bob@10.0.2.1"));
    assert!(network.log.last().expect("a request").vias()[0].starts_with("SIP/2.0/TCP"));
    network.settle();
}

/// A phone that registered by UDP has shown that this reaches it; where it was registered from, nothing else does.
#[test]
fn a_long_request_to_where_a_contact_was_registered_from_stays_a_datagram() {
    let mut network = network(registered_at("sip:10.0.2.1:41000", "sip:bob@192.168.1.2"));
    network.alice(&long(1));
    assert_eq!((network.last_path().listener, network.last_path().remote.port()), (UDP, 41_000));
}

/// The second way is tried once; a request that was answered, or cancelled, not at all.
#[test]
fn a_long_request_is_moved_once() {
    let mut network = network(Script::proxy());
    network.alice(&long(1).uri("sip:bob@10.0.2.1"));
    lost(&mut network, TCP, BOB);
    lost(&mut network, UDP, BOB);
    assert_eq!(network.labels(ALICE), ["100", "500"]);
    network.pass(Duration::from_secs(61));
    network.take(BOB);
    let invite = long(2).uri("sip:bob@10.0.2.1");
    network.alice(&invite);
    network.alice(&invite.cancel());
    lost(&mut network, TCP, BOB);
    assert_eq!(network.labels(BOB), ["INVITE"], "not again once it is cancelled");
    network.settle();
}

#[test]
fn the_limit_and_the_transport_of_long_requests_can_be_set() {
    let mut config = config();
    config.transports.datagram_bytes_max = 0;
    let mut network = Network::with(config.clone(), Script::proxy());
    network.alice(&long(1).uri("sip:bob@10.0.2.1"));
    assert_eq!(network.last_path().listener, UDP);
    config.transports.datagram_bytes_max = 500;
    config.transports.long_transport = Some(Transport::Tls);
    let mut network = Network::with(config, Script::proxy());
    network.alice(&Request::invite(1).uri("sip:bob@10.0.2.1"));
    assert_eq!((network.last_path().listener, network.last_path().remote.port()), (TLS, 5061));
    let remote = network.last_path().remote;
    lost(&mut network, TLS, remote);
    assert_eq!(network.last_path(), Path::new(UDP, Some(PROXY.ip()), BOB));
}

#[test]
fn without_a_tcp_listener_a_long_request_is_a_datagram() {
    let mut network = Network::new(Script::proxy());
    network.alice(&long(1).uri("sip:bob@10.0.2.1"));
    assert_eq!(network.last_path().listener, UDP);
}

#[test]
fn a_long_request_without_state_takes_tcp_and_then_udp() {
    let mut network = network(Script::stateless());
    network.alice(&long(1).uri("sip:bob@10.0.2.1"));
    assert_eq!(network.last_path().listener, TCP);
    lost(&mut network, TCP, BOB);
    // Its retransmission finds the peer known.
    network.alice(&long(1).uri("sip:bob@10.0.2.1"));
    assert_eq!(network.last_path().listener, UDP);
}

// --- aliases (RFC 5923) ----------------------------------------------------------------------------------------------------

#[test]
fn an_alias_is_taken_over_tcp_where_the_configuration_says_so() {
    let via = "SIP/2.0/TCP 10.0.1.1:5070;branch=z9hG4bKa;alias";
    let request = Request::options(1).via(via).bytes();
    let mut refusing = network(Script::reply(200));
    refusing.send_on(connection(TCP, 7), &request);
    assert!(refusing.aliases.is_empty());
    let mut config = config();
    config.transports.accept_aliases = true;
    let mut network = Network::with(config, Script::reply(200));
    network.send_on(connection(TCP, 7), &request);
    assert_eq!(network.aliases, [(connection(TCP, 7), 5070)]);
    // By TLS, WebSocket and UDP nobody has proved anything.
    for listener in [TLS, WS, WSS] {
        network.send_on(connection(listener, 8), &request);
    }
    network.send(ALICE, &request);
    assert_eq!(network.aliases.len(), 1);
}

#[test]
fn a_script_makes_an_alias_by_hand() {
    let script = || {
        Script::new(|cx| {
            let one = cx.alias(None);
            let two = cx.alias(Some(5099));
            let _ = cx.reply(200, b"OK", format!("X-Done: {one} {two}\r\n").as_bytes(), b"");
            rig::done()
        })
    };
    let via = "SIP/2.0/TLS 10.0.1.1;branch=z9hG4bKa";
    let mut network = network(script());
    let client = connection(TLS, 7);
    network.send_on(client, Request::options(1).via(via).bytes());
    assert_eq!(network.aliases, [(client, 5061), (client, 5099)]);
    network.alice(&Request::options(2));
    assert_eq!(network.log.last().and_then(|seen| seen.header("X-Done")).as_deref(), Some("false false"));
}

// --- timers over reliable transports (RFC 3261 Table 4) -------------------------------------------------------------------

#[test]
fn nothing_is_sent_again_over_tcp_and_timers_b_and_f_run() {
    for (request, label) in [(Request::invite(1), "INVITE"), (Request::options(1), "OPTIONS")] {
        let mut network = network(Script::fork(&[(BOB_BY_TCP, 1000)]));
        network.alice(&request);
        network.until_ms(31_999);
        assert_eq!(network.sent_at(BOB, label), [0], "timers A and E are not started");
        network.settle();
    }
    let mut network = network(Script::fork(&[(BOB_BY_TCP, 1000)]));
    network.alice(&Request::invite(1));
    network.until_ms(32_000);
    assert_eq!(network.labels(ALICE), ["100", "408"]);
}

/// Timers D and K are zero.
#[test]
fn a_client_transaction_over_tcp_ends_with_its_final_response() {
    for (request, label) in [(tcp(Request::invite(1)), "INVITE"), (tcp(Request::options(1)), "OPTIONS")] {
        let mut network = network(Script::fork(&[(BOB_BY_TCP, 1000)]));
        let client = connection(TCP, 7);
        network.send_on(client, request.bytes());
        let sent = network.only(BOB, label);
        network.send_on(Path::new(TCP, None, BOB), sent.respond(404, "bob"));
        let not_found = network.only(client.remote, "404");
        if label == "INVITE" {
            assert_eq!(network.labels(BOB), ["ACK"]);
            network.send_on(client, request.ack(&not_found).bytes());
        }
        network.pass(Duration::ZERO);
        network.assert_at_rest();
    }
}

/// A CANCEL takes the way of its INVITE and is sent once (timer E).
#[test]
fn a_cancel_takes_the_connection_of_its_invite() {
    let mut network = network(Script::fork(&[(BOB_BY_TCP, 1000)]));
    let invite = Request::invite(1);
    network.alice(&invite);
    let sent = network.only(BOB, "INVITE");
    network.send_on(Path::new(TCP, None, BOB), sent.respond(180, "bob"));
    network.alice(&invite.cancel());
    let path = *network.paths.iter().rfind(|path| path.remote == BOB).expect("a CANCEL");
    assert_eq!(path.listener, TCP);
    network.until_ms(10_000);
    assert_eq!(network.sent_at(BOB, "CANCEL"), [0]);
    network.settle();
}

// --- what a stream cannot frame (RFC 3261 §18.3) ---------------------------------------------------------------------------

/// RFC 3261 §9.2, §17.2.2: a copy of a CANCEL is answered as the CANCEL was, whatever has become of the INVITE.
#[test]
fn a_copy_of_a_cancel_is_answered_when_its_invite_is_forgotten() {
    let mut network = network(Script::proxy());
    let invite = Request::invite(1).uri(BOB_BY_TCP);
    network.alice(&invite);
    let sent = network.only(BOB, "INVITE");
    let bob = Path::new(TCP, None, BOB);
    network.send_on(bob, sent.respond(180, "bob"));
    network.alice(&invite.cancel());
    assert_eq!(network.labels(BOB), ["CANCEL"]);
    network.send_on(bob, sent.respond(487, "bob"));
    let cancelled = network.only(ALICE, "487");
    network.alice(&invite.ack(&cancelled));
    assert_eq!(network.labels(BOB), ["ACK"]);
    let answer = network.log.iter().find(|seen| seen.status() == Some(200)).expect("a 200").text();
    // Timer I has fired.
    network.pass(Duration::from_secs(6));
    network.alice(&invite.cancel());
    assert_eq!(network.one(ALICE).text(), answer);
    network.assert_quiet(BOB);
    network.settle();
}

#[test]
fn a_message_that_is_too_large_is_known_by_its_head() {
    let mut network = network(Script::reply(200));
    let head = tcp(Request::options(1)).text().replace("Content-Length: 0", "Content-Length: 100000");
    network.send_on(connection(TCP, 7), head);
    assert_eq!(network.log.last().and_then(Seen::status), Some(513));
}

#[test]
fn a_message_without_content_length_is_refused_on_streams_but_for_websocket() {
    let mut network = network(Script::reply(200));
    for (listener, status) in [(TCP, 400), (TLS, 400), (WS, 200), (WSS, 200), (UDP, 200)] {
        let text = Request::options(listener.0.into()).text().replace("Content-Length: 0\r\n", "");
        network.send_on(connection(listener, 7), text);
        assert_eq!(network.log.last().and_then(Seen::status), Some(status), "{listener:?}");
    }
}

/// RFC 3261 §20.14: what came by UDP without Content-Length leaves by a stream with it, and so do responses.
#[test]
fn a_content_length_is_added_where_a_stream_needs_it() {
    for script in [Script::fork(&[(BOB_BY_TCP, 1000)]), stateless_to(BOB_BY_TCP)] {
        let mut network = network(script);
        let invite = Request::invite(1);
        let length = format!("Content-Length: {}", invite.body.len());
        network.alice(&invite);
        assert!(network.only(BOB, "INVITE").text().contains(&length));
        let text = Request::invite(2).text().replace(&format!("{length}\r\n"), "");
        network.send(ALICE, &text);
        let sent = network.only(BOB, "INVITE");
        assert_eq!(sent.header("Content-Length"), Some(invite.body.len().to_string()), "{}", sent.text());
        assert_eq!(sent.body(), invite.body);
    }
    let client = connection(TCP, 7);
    for script in [Script::fork(&[(rig::BOB_URI, 1000)]), stateless_to(rig::BOB_URI)] {
        let mut network = network(script);
        let received = relayed(&mut network, client, &tcp(Request::invite(1)));
        let ringing = String::from_utf8(received.respond(180, "bob")).expect("text");
        network.send(BOB, ringing.replace("Content-Length: 0\r\n", ""));
        let sent = network.log.last().expect("a response");
        assert_eq!((network.last_path().flow, sent.status()), (client.flow, Some(180)));
        assert_eq!(sent.header("Content-Length").as_deref(), Some("0"), "{}", sent.text());
    }
}

/// RFC 3261 §7.4.2: "The "chunked" transfer encoding of HTTP/1.1 MUST NOT be used for SIP": who names it is understood
/// by Content-Length all the same, and what is sent on has the body as it came.
#[test]
fn chunked_means_nothing() {
    let body = "5\r\nhello\r\n0\r\n\r\n";
    let mut network = network(Script::fork(&[(BOB_BY_TCP, 1000)]));
    let mut request = tcp(Request::new("MESSAGE", 1).line("Transfer-Encoding: chunked"));
    request.body = body.into();
    network.send_on(connection(TCP, 7), request.bytes());
    let sent = network.only(BOB, "MESSAGE");
    assert_eq!((sent.body().as_str(), sent.header("Content-Length")), (body, Some(body.len().to_string())));
    let text = tcp(Request::new("MESSAGE", 2).line("Transfer-Encoding: chunked")).text();
    let without = text.replace("Content-Length: 0\r\n", "");
    network.send_on(connection(TCP, 8), format!("{without}{body}"));
    assert_eq!(network.log.last().and_then(Seen::status), Some(400));
    network.assert_quiet(BOB);
}

/// A script that forwards without state.
fn stateless_to(uri: &'static str) -> Script {
    Script::new(move |cx| {
        cx.set_request_uri(uri.as_bytes());
        let _ = cx.forward(None);
        rig::done()
    })
}

#[test]
fn a_broken_request_on_a_stream_is_answered_400() {
    let mut network = network(Script::reply(200));
    let text = tcp(Request::options(1)).text().replace("Max-Forwards: 70", "Max Forwards 70");
    network.send_on(connection(TCP, 7), text);
    assert_eq!(network.log.last().and_then(Seen::status), Some(400));
    assert_eq!(network.last_path().flow, FlowId(7));
}

#[test]
fn received_and_rport_are_filled_in_on_streams_too() {
    let mut network = network(Script::proxy());
    let via = "SIP/2.0/TCP 10.0.1.9:5070;rport;branch=z9hG4bKa";
    network.send_on(connection(TCP, 7), Request::options(1).uri(rig::BOB_URI).via(via).bytes());
    let sent = network.only(BOB, "OPTIONS");
    let below = sent.vias().remove(1);
    assert_eq!(param(&below, "received").as_deref(), Some("10.0.1.1"));
    assert_eq!(param(&below, "rport").as_deref(), Some("40007"));
}
