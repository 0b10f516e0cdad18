//! Calls between SIPp instances: stateful, stateless, refused, redirected, cancelled.

use end_to_end::{Phone, Server, Sipp, is_strowger};

/// Enough for their messages to overlap.
const CALLS: u32 = 50;
const RATE: u32 = 50;

/// Plays a caller's and a callee's scenario against each other through the server.
fn between(configuration: &str, caller: &str, callee: &str) {
    let server = Server::start(configuration);
    let callee = Sipp::new(callee, CALLS, &server).user("bob");
    let contact = callee.address().to_string();
    Phone::new(&server, "bob").register_contact(format!("<sip:bob@{contact}>"));
    let callee = callee.key("contact", &contact).spawn();
    Sipp::new(caller, CALLS, &server).user("bob").rate(RATE).run();
    callee.finish();
}

#[test]
fn answered_calls_complete_statefully() {
    between("default", "caller", "callee");
}

#[test]
fn answered_calls_complete_statelessly() {
    between("stateless", "caller", "callee");
}

#[test]
fn busy_reaches_the_caller_of_a_stateful_proxy() {
    between("default", "caller_busy", "callee_busy");
}

#[test]
fn busy_reaches_the_caller_of_a_stateless_proxy() {
    between("stateless", "caller_busy", "callee_busy");
}

#[test]
fn cancel_ends_a_ringing_call_statefully() {
    between("default", "caller_cancels", "callee_cancelled");
}

#[test]
fn cancel_ends_a_ringing_call_statelessly() {
    between("stateless", "caller_cancels", "callee_cancelled");
}

#[test]
fn users_without_contact_are_not_found() {
    for configuration in ["default", "stateless", "redirect"] {
        let server = Server::start(configuration);
        Sipp::new("caller_not_found", CALLS, &server).user("nobody").rate(RATE).run();
    }
}

#[test]
fn callers_are_redirected_to_the_contact() {
    let server = Server::start("redirect");
    Phone::new(&server, "bob").register_contact("<sip:bob@127.0.0.1:5099>");
    Sipp::new("caller_redirected", CALLS, &server).user("bob").rate(RATE).run();
}

#[test]
fn a_redirect_lists_every_contact_by_preference() {
    let server = Server::start("redirect");
    let bob = Phone::new(&server, "bob");
    bob.register_contact("<sip:bob@127.0.0.1:5091>;q=0.2, <sip:bob@127.0.0.1:5092>;q=0.9");
    let alice = Phone::new(&server, "alice");
    let invite = alice.request("INVITE", &server.uri("bob"));
    alice.send(&invite);
    let moved = alice.expect_response(302, &invite);
    alice.acknowledge(&invite, &moved);
    let contacts = moved.all("Contact");
    assert_eq!(contacts.len(), 2, "{moved}");
    assert!(contacts[0].contains("sip:bob@127.0.0.1:5092"), "{moved}");
    assert!(contacts[1].contains("sip:bob@127.0.0.1:5091"), "{moved}");
    alice.expect_nothing();
}

/// RFC 3261 §16.4: what phones write whose outbound proxy is the server itself.
#[test]
fn the_server_may_be_the_outbound_proxy_of_its_phones() {
    for configuration in ["default", "stateless"] {
        let server = Server::start(configuration);
        let (alice, bob) = (Phone::new(&server, "alice"), Phone::new(&server, "bob"));
        let route = format!("<sip:{};lr>", server.address());
        let register = bob.register_request().with("Route", &route);
        bob.send(&register);
        bob.expect_response(200, &register);
        let invite = alice.request("INVITE", &bob.address_of_record()).with("Route", &route);
        alice.send(&invite);
        let arrived = bob.expect_request("INVITE");
        assert!(arrived.find("Route").is_none(), "{arrived}");
        bob.answer(&arrived, 486, "Busy Here");
        let refused = alice.expect_response(486, &invite);
        // §17.1.1.3: the ACK has the Route of its INVITE. Kamailio loses it where it has no state.
        alice.acknowledge(&invite, &refused);
        if configuration == "stateless" && !is_strowger() {
            continue;
        }
        let ack = bob.expect_request("ACK");
        assert_eq!(ack.all("Via")[0], arrived.all("Via")[0], "{configuration}");
        bob.expect_nothing();
        alice.expect_nothing();
    }
}

#[test]
fn a_route_to_others_is_not_followed() {
    for configuration in ["default", "stateless"] {
        let server = Server::start(configuration);
        let (alice, bob) = (Phone::new(&server, "alice"), Phone::new(&server, "bob"));
        let stranger = Phone::new(&server, "stranger");
        bob.register();
        let own = format!("<sip:{};lr>", server.address());
        for route in
            [format!("<sip:{};lr>", stranger.address()), format!("{own}, <sip:{};lr>", stranger.address())]
        {
            let request = alice.request("MESSAGE", &bob.address_of_record()).with("Route", &route);
            alice.send(&request);
            alice.expect_response(403, &request);
        }
        stranger.expect_nothing();
        bob.expect_nothing();
    }
}
