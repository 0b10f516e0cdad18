//! Calls between SIPp instances: stateful, stateless, refused, redirected, cancelled.

use end_to_end::{Phone, Server, Sipp};

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
