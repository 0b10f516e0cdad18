//! Where a request goes: record routing, Route processing with strict routers, destinations, names (RFC 3261 §16.4 to
//! §16.6, §16.12.1).

mod rig;

use std::net::SocketAddr;

use engine::{Alias, Answer, ListenerId};
use rig::{ALICE, BOB, BOB_URI, CAROL, Network, Request, Script, Seen, config, script};

/// A script that record-routes, with extra parameters, and relays.
fn recording(params: &'static [u8]) -> Script {
    Script::new(move |cx| {
        let _ = cx.loose_route();
        cx.record_route(params);
        if script::is_for_us(cx) {
            cx.set_request_uri(BOB_URI.as_bytes());
        }
        let _ = cx.relay();
        rig::done()
    })
}

// --- record routing (RFC 3261 §16.6 item 4) ---------------------------------------------------------------------

/// RFC 3261 §16.6 item 4: our value goes before all others, is a SIP URI and has `lr`.
#[test]
fn a_record_route_is_inserted_before_all_others() {
    let mut network = Network::new(recording(b""));
    network.alice(
        &Request::invite(1)
            .line("Record-Route: <sip:p1.example.com;lr>")
            .line("Record-Route: <sip:p0.example.com>"),
    );
    let received = network.only(BOB, "INVITE");
    let routes = received.values("Record-Route");
    assert_eq!(routes.len(), 3);
    assert!(routes[0].starts_with("<sip:"), "{routes:?}");
    assert!(routes[0].contains(";lr"), "{routes:?}");
    assert!(routes[0].contains("10.0.0.1"), "RFC 3261: must resolve to the element inserting it: {routes:?}");
    assert_eq!(routes[1..], ["<sip:p1.example.com;lr>", "<sip:p0.example.com>"]);
    network.send(BOB, received.accept("bob"));
    assert_eq!(network.only(ALICE, "200").values("Record-Route"), routes, "forwarded as it came back");
}

/// RFC 3261 §16.6 item 4: "The proxy MAY include parameters in the Record-Route header field value."
#[test]
fn parameters_of_the_script_stand_in_the_record_route() {
    let mut network = Network::new(recording(b";ftag=from-1;did=abc"));
    network.alice(&Request::invite(1));
    let routes = network.only(BOB, "INVITE").values("Record-Route");
    assert_eq!(routes.len(), 1);
    assert!(routes[0].contains(";ftag=from-1;did=abc"), "{routes:?}");
}

/// A whole dialog through our own Record-Route: ACK and BYE, both directions (RFC 3261 §12.2.1.1, §16.4).
#[test]
fn requests_of_the_dialog_come_back_by_our_record_route() {
    let mut network = Network::new(recording(b""));
    let invite = Request::invite(1);
    network.alice(&invite);
    let received = network.only(BOB, "INVITE");
    network.send(BOB, received.accept("bob"));
    let ok = network.only(ALICE, "200");
    network.alice(&invite.ack_2xx(&ok));
    let ack = network.only(BOB, "ACK");
    assert_eq!(ack.uri(), BOB_URI);
    assert!(ack.values("Route").is_empty(), "our own Route value is removed (RFC 3261 §16.4)");
    network.alice(&invite.in_dialog("BYE", &ok));
    let bye = network.only(BOB, "BYE");
    assert!(bye.values("Route").is_empty());
    network.send(BOB, bye.respond(200, ""));
    assert_eq!(network.only(ALICE, "200").cseq_method(), "BYE");
    // And from Bob to Alice.
    let mut info = Request::new("INFO", 1).uri("sip:alice@10.0.1.1:5060");
    info.vias = vec![format!("SIP/2.0/UDP {BOB};branch=z9hG4bK-from-bob")];
    info = info.line(&format!("Route: {}", received.values("Record-Route")[0]));
    network.send(BOB, info.bytes());
    let info = network.only(ALICE, "INFO");
    assert!(info.values("Route").is_empty());
    network.settle();
}

/// RFC 3261 §16.6 item 4, §16.7 item 8 (multi-homed hosts): a request that leaves by another listener than it came by
/// carries both addresses, and both are removed from later requests.
#[test]
fn two_record_routes_for_two_listeners() {
    let mut config = config();
    let second: SocketAddr = "[fd00::1]:5060".parse().expect("an address");
    let bob: SocketAddr = "[fd00::2]:5060".parse().expect("an address");
    config.listeners.push(engine::Listener {
        transport: sip::Transport::Udp,
        address: second,
        advertise: None,
    });
    let script = Script::new(|cx| {
        let _ = cx.loose_route();
        cx.record_route(b"");
        if script::is_for_us(cx) {
            cx.set_request_uri(b"sip:bob@[fd00::2]");
        }
        let _ = cx.relay();
        rig::done()
    });
    let mut network = Network::with(config, script);
    let invite = Request::invite(1);
    network.alice(&invite);
    let received = network.only(bob, "INVITE");
    let routes = received.values("Record-Route");
    assert_eq!(routes.len(), 2, "{}", received.text());
    assert!(routes[0].contains("[fd00::1]"), "the first is the one that Bob reaches: {routes:?}");
    assert!(routes[1].contains("10.0.0.1"), "the second is the one that Alice reaches: {routes:?}");
    assert!(received.vias()[0].contains("[fd00::1]"));
    network.send_to(
        ListenerId(1),
        bob,
        received.respond_with(200, "bob", &["Contact: <sip:bob@[fd00::2]>"], ""),
    );
    let ok = network.only(ALICE, "200");
    network.alice(&invite.in_dialog("BYE", &ok));
    let bye = network.only(bob, "BYE");
    assert!(bye.values("Route").is_empty(), "{}", bye.text());
}

// --- route processing (RFC 3261 §16.4, §16.6 item 6, §16.12.1) -----------------------------------------------------

/// The element of the RFC's examples, under one of its names.
fn element(name: &str) -> Network {
    let mut config = config();
    config.aliases.push(Alias { host: name.into(), port: None, transport: None });
    Network::with(config, Script::proxy())
}

/// Answers the question for a host's address with Bob's.
fn resolve_to_bob(network: &mut Network, expected: &str) {
    assert_eq!(network.asks.len(), 1, "one question: {:?}", network.asks);
    let engine::Ask::Resolve { host } = &network.asks[0].1 else { panic!("{:?}", network.asks) };
    assert_eq!(host, expected);
    network.answer(Answer::Addresses(&[BOB.ip()]));
}

/// RFC 3261 §16.12.1.1, the BYE at P1: own Route removed, sent to the next Route.
#[test]
fn basic_trapezoid_at_p1() {
    let mut network = element("p1.example.com");
    let bye = Request::new("BYE", 1)
        .uri("sip:callee@u2.domain.com")
        .line("Route: <sip:p1.example.com;lr>,<sip:p2.domain.com;lr>");
    network.alice(&bye);
    resolve_to_bob(&mut network, "p2.domain.com");
    let seen = network.only(BOB, "BYE");
    assert_eq!(seen.uri(), "sip:callee@u2.domain.com");
    assert_eq!(seen.values("Route"), ["<sip:p2.domain.com;lr>"]);
}

/// RFC 3261 §16.12.1.1, the BYE at P2: last Route removed, sent to the Request-URI.
#[test]
fn basic_trapezoid_at_p2() {
    let mut network = element("p2.domain.com");
    network
        .alice(&Request::new("BYE", 1).uri("sip:callee@u2.domain.com").line("Route: <sip:p2.domain.com;lr>"));
    resolve_to_bob(&mut network, "u2.domain.com");
    let seen = network.only(BOB, "BYE");
    assert_eq!(seen.uri(), "sip:callee@u2.domain.com");
    assert!(seen.header("Route").is_none());
}

/// RFC 3261 §16.12.1.2, the BYE at P4: the next hop is a strict router.
#[test]
fn strict_routing_at_p4() {
    let mut network = element("p4.domain.com");
    let bye = Request::new("BYE", 1)
        .uri("sip:caller@u1.example.com")
        .line("Route: <sip:p4.domain.com;lr>")
        .line("Route: <sip:p3.middle.com>")
        .line("Route: <sip:p2.example.com;lr>")
        .line("Route: <sip:p1.example.com;lr>");
    network.alice(&bye);
    resolve_to_bob(&mut network, "p3.middle.com");
    let seen = network.only(BOB, "BYE");
    assert_eq!(seen.uri(), "sip:p3.middle.com");
    assert_eq!(
        seen.values("Route"),
        ["<sip:p2.example.com;lr>", "<sip:p1.example.com;lr>", "<sip:caller@u1.example.com>"]
    );
}

/// RFC 3261 §16.12.1.2, the BYE at P2: the Request-URI is what we placed into Record-Route, so a strict router sent it.
#[test]
fn strict_routing_at_p2() {
    let mut network = Network::new(recording(b""));
    network.alice(&Request::invite(1));
    let placed = network.only(BOB, "INVITE").values("Record-Route").remove(0);
    let placed = rig::text::inside_brackets(&placed).to_owned();
    let bye = Request::new("BYE", 2)
        .uri(&placed)
        .line("Route: <sip:p1.example.com;lr>")
        .line("Route: <sip:caller@u1.example.com>");
    network.alice(&bye);
    resolve_to_bob(&mut network, "p1.example.com");
    let seen = network.only(BOB, "BYE");
    assert_eq!(seen.uri(), "sip:caller@u1.example.com");
    assert_eq!(seen.values("Route"), ["<sip:p1.example.com;lr>"]);
}

/// RFC 3261 §16.12.1.2, the BYE at P1: the last Route is ours.
#[test]
fn strict_routing_at_p1() {
    let mut network = element("p1.example.com");
    network.alice(
        &Request::new("BYE", 1).uri("sip:caller@u1.example.com").line("Route: <sip:p1.example.com;lr>"),
    );
    resolve_to_bob(&mut network, "u1.example.com");
    let seen = network.only(BOB, "BYE");
    assert_eq!(seen.uri(), "sip:caller@u1.example.com");
    assert!(seen.header("Route").is_none());
}

/// RFC 3261 §16.6 item 7: the first Route, not the Request-URI, says where a request goes.
#[test]
fn a_request_goes_to_its_first_route() {
    let mut network = Network::new(Script::proxy());
    let invite =
        Request::invite(1).uri("sip:bob@10.0.9.9").line("Route: <sip:10.0.2.2;lr>, <sip:10.0.2.3;lr>");
    network.alice(&invite);
    let seen = network.only(CAROL, "INVITE");
    assert_eq!(seen.uri(), "sip:bob@10.0.9.9");
    assert_eq!(seen.values("Route"), ["<sip:10.0.2.2;lr>", "<sip:10.0.2.3;lr>"]);
}

/// A Route by our address, port given or not; the other values stay in place and order.
#[test]
fn our_own_route_is_removed_however_it_is_written() {
    for own in [
        "sip:10.0.0.1;lr",
        "sip:10.0.0.1:5060;lr",
        "sip:example.org;lr",
        "sip:EXAMPLE.org:5060;LR=on",
        "sip:x@10.0.0.1;lr;foo=bar",
    ] {
        let mut network = Network::new(Script::proxy());
        network.alice(
            &Request::invite(1)
                .uri("sip:bob@10.0.9.9")
                .line(&format!("Route: \"me, and\" <{own}>,<sip:10.0.2.1;lr>;x=\"y,z\"")),
        );
        let seen = network.only(BOB, "INVITE");
        assert_eq!(seen.values("Route"), ["<sip:10.0.2.1;lr>;x=\"y,z\""], "{own}");
    }
}

/// A destination of the script's overrides Route and Request-URI (RFC 3261 §16.6 item 7, local policy).
#[test]
fn a_destination_overrides_the_request_uri() {
    let mut network = Network::new(Script::new(|cx| {
        cx.set_destination_uri(Some(b"sip:10.0.2.2:5060"));
        let _ = cx.relay();
        rig::done()
    }));
    network.alice(&Request::invite(1));
    let seen = network.only(CAROL, "INVITE");
    assert_eq!(seen.uri(), "sip:bob@example.org");
    assert!(seen.header("Route").is_none());
}

/// RFC 3327 §5.1: a target's path becomes its Route, and its first value the next hop.
#[test]
fn the_path_of_a_target_becomes_its_route() {
    let mut network = Network::new(Script::new(|cx| {
        let target = engine::Target {
            path: Some(b"<sip:10.0.2.2;lr>,<sip:10.0.2.3;lr>"),
            ..script::target(BOB_URI, 1000)
        };
        cx.set_request_target(&target);
        let _ = cx.relay();
        rig::done()
    }));
    network.alice(&Request::invite(1));
    let seen = network.only(CAROL, "INVITE");
    assert_eq!(seen.uri(), BOB_URI);
    assert_eq!(seen.values("Route"), ["<sip:10.0.2.2;lr>", "<sip:10.0.2.3;lr>"]);
}

// --- names -------------------------------------------------------------------------------------------------------

/// RFC 3263 §4.2: a name is resolved, and the URI's port kept; the branch waits, the caller has its 100.
#[test]
fn a_host_name_is_resolved_before_the_branch_is_sent() {
    let mut network = Network::new(Script::proxy());
    network.alice(&Request::invite(1).uri("sip:bob@host.example.net:5070"));
    assert_eq!(network.labels(ALICE), ["100"]);
    network.until_ms(1000);
    let at = SocketAddr::new(BOB.ip(), 5070);
    resolve_to_bob(&mut network, "host.example.net");
    assert_eq!(network.sent_at(at, "INVITE"), [1000]);
    network.until_ms(1600);
    assert_eq!(network.sent_at(at, "INVITE"), [1000, 1500], "Timer A starts when it is sent");
}

/// RFC 3261 §16.9, §16.7: a name without addresses fails the branch, and the caller gets one final response.
#[test]
fn a_name_that_has_no_address_fails_the_branch() {
    for answer in [Answer::Addresses(&[]), Answer::Failed] {
        let mut network = Network::new(Script::proxy());
        network.alice(&Request::invite(1).uri("sip:bob@nowhere.example.net"));
        network.take(ALICE);
        network.answer(answer);
        let response = network.one(ALICE);
        assert!(
            response.status().is_some_and(|status| (400..600).contains(&status) && status != 503),
            "{}",
            response.text()
        );
        network.settle();
    }
}

/// Nobody answers the question: the branch fails at the deadline.
#[test]
fn a_name_that_is_never_resolved_fails_the_branch() {
    let mut network = Network::new(Script::proxy());
    network.alice(&Request::invite(1).uri("sip:bob@nowhere.example.net"));
    network.until_ms(40_000);
    assert_eq!(network.finals(ALICE, "INVITE").len(), 1, "{}", network.ladder());
    network.settle();
}

/// RFC 3261 §16.10: a call that is cancelled while its name is looked up is never sent.
#[test]
fn a_cancelled_call_is_not_sent_when_its_name_resolves() {
    let mut network = Network::new(Script::proxy());
    let invite = Request::invite(1).uri("sip:bob@host.example.net");
    network.alice(&invite);
    network.alice(&invite.cancel());
    network.answer(Answer::Addresses(&[BOB.ip()]));
    network.settle();
    assert!(network.all(BOB).is_empty(), "{}", network.ladder());
    let finals: Vec<_> = network.finals(ALICE, "INVITE").iter().map(Seen::label).collect();
    assert_eq!(finals.len(), 1);
    assert!(["487", "408"].contains(&finals[0].as_str()));
}

/// RFC 3261 §16.11: without state a request waits for its name as well, its CANCEL behind it, and both go the way that they
/// would have gone at once.
#[test]
fn without_state_a_request_waits_for_its_name() {
    let mut network = Network::new(Script::stateless());
    let invite = Request::invite(1).uri("sip:bob@host.example.net");
    network.alice(&invite);
    network.until_ms(200);
    network.alice(&invite.cancel());
    assert_eq!((network.all(BOB).len(), network.all(ALICE).len()), (0, 0), "{}", network.ladder());
    network.answer(Answer::Addresses(&[BOB.ip()]));
    let sent = network.only(BOB, "INVITE");
    network.answer(Answer::Addresses(&[BOB.ip()]));
    assert_eq!(network.only(BOB, "CANCEL").branch(), sent.branch());
    assert_eq!(sent.header("Max-Forwards").as_deref(), Some("69"));
    // The next one finds the address.
    network.alice(&invite);
    assert_eq!(network.only(BOB, "INVITE").branch(), sent.branch());
    assert!(network.asks.is_empty());
    network.settle();
}

/// Where there is no address, or it is not known in time, the sender is told; who sent an ACK is not.
#[test]
fn without_state_a_name_without_an_address_is_answered() {
    let invite = Request::invite(1).uri("sip:bob@nowhere.example.net");
    let ack = Request::new("ACK", 2).uri("sip:bob@nowhere.example.net");
    for (answer, after_ms) in
        [(Answer::Addresses(&[]), 100), (Answer::Failed, 100), (Answer::Addresses(&[BOB.ip()]), 4_100)]
    {
        let mut network = Network::new(Script::stateless());
        network.alice(&invite);
        network.alice(&ack);
        network.until_ms(after_ms);
        network.answer(answer.clone());
        network.answer(answer);
        assert_eq!(network.labels(ALICE), ["478"], "{}", network.ladder());
        assert!(network.all(BOB).is_empty(), "{}", network.ladder());
        network.settle();
    }
}

/// Only so many requests wait for names.
#[test]
fn without_state_no_more_requests_wait_than_may() {
    let mut config = config();
    config.limits.resolves_max = 1;
    let mut network = Network::with(config, Script::stateless());
    network.alice(&Request::invite(1).uri("sip:bob@host.example.net"));
    network.alice(&Request::invite(2).uri("sip:bob@host.example.net"));
    assert_eq!(network.labels(ALICE), ["478"]);
    resolve_to_bob(&mut network, "host.example.net");
    assert_eq!(network.sent_at(BOB, "INVITE").len(), 1);
    network.settle();
}

// --- what may not stand in a Request-URI (RFC 3261 §16.6 item 2) -------------------------------------------------

/// A target's headers and its `method` are not sent, wherever the request goes: also as the last Route of a strict
/// router, and of a strict router's URI itself.
#[test]
fn headers_and_method_of_a_target_are_removed() {
    let target = "sip:bob@10.0.2.1:5060;method=BYE;x=y?Subject=sold&Route=%3Csip:10.0.9.9%3E";
    for route in [None, Some("Route: <sip:10.0.2.2;method=INVITE>")] {
        let mut network = Network::new(Script::new(move |cx| {
            cx.set_request_uri(target.as_bytes());
            let _ = cx.relay();
            rig::done()
        }));
        let invite = Request::invite(1);
        network.alice(&route.map_or(Request::invite(1), |route| invite.line(route)));
        let (at, uri) =
            if route.is_some() { (CAROL, "sip:10.0.2.2") } else { (BOB, "sip:bob@10.0.2.1:5060;x=y") };
        let seen = network.only(at, "INVITE");
        assert_eq!(seen.uri(), uri);
        if route.is_some() {
            assert_eq!(seen.values("Route"), ["<sip:bob@10.0.2.1:5060;x=y>"]);
        }
        network.settle();
    }
}

/// RFC 3261 §16.5: a foreign Request-URI is the target as it is.
#[test]
fn a_received_request_uri_keeps_what_it_has() {
    let mut network = Network::new(Script::proxy());
    network.alice(&Request::invite(1).uri("sip:bob@10.0.2.1:5060;method=INVITE"));
    assert_eq!(network.only(BOB, "INVITE").uri(), "sip:bob@10.0.2.1:5060;method=INVITE");
    network.settle();
}

// --- removed routes ------------------------------------------------------------------------------------------------

/// What a script has removed is not followed, whether route processing runs before it, after it, or not at all.
#[test]
fn routes_that_the_script_forgot_are_not_followed() {
    let remove = |cx: &mut engine::RequestContext<'_, script::State>| {
        let message = cx.message();
        for header in message.headers(sip::HeaderName::Route) {
            cx.edits.remove_header(&header);
        }
        cx.forget_routes();
    };
    for (before, after) in [(true, false), (false, true), (false, false)] {
        let mut network = Network::new(Script::new(move |cx| {
            if before {
                let _ = cx.loose_route();
            }
            remove(cx);
            if after {
                assert_eq!(cx.loose_route(), engine::RouteVerdict::NotRouted);
            }
            cx.set_request_uri(BOB_URI.as_bytes());
            let _ = cx.relay();
            rig::done()
        }));
        network.alice(&Request::invite(1).line("Route: <sip:10.0.0.1;lr>, <sip:10.0.2.2;lr>"));
        let seen = network.only(BOB, "INVITE");
        assert_eq!((seen.uri().as_str(), seen.values("Route").len()), (BOB_URI, 0));
        network.assert_quiet(CAROL);
        network.settle();
    }
}

// --- groups (RFC 3261 §18.1.1) ---------------------------------------------------------------------------------

/// A request must not make us send to many.
#[test]
fn multicast_and_broadcast_are_no_next_hop() {
    for uri in [
        "sip:224.0.1.75",
        "sip:bob@10.0.2.1;maddr=239.1.2.3",
        "sip:255.255.255.255",
        "sip:0.0.0.0",
        "sip:[ff02::1]",
        "sip:[::ffff:224.0.0.1]",
    ] {
        let mut network = Network::new(Script::proxy());
        network.alice(&Request::invite(1).uri(uri));
        assert_eq!(network.labels(ALICE), ["478"], "{uri}");
        network.settle();
    }
}
