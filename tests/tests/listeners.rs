//! Several addresses at once: IPv4 and IPv6, and the address that a request was sent to (RFC 3261 §18.2.1, §18.2.2).

use end_to_end::{Dialog, Phone, Server, Start, loopback, loopback_v6, only_strowger};

/// A server on IPv4 and IPv6 with one phone on each.
fn across() -> (Server, Phone, Phone) {
    let ipv6 = loopback_v6();
    let server = Start::configuration("default").listening_on([ipv6]).spawn();
    let alice = Phone::between(ipv6, "[::1]:0".parse().expect("an address"), "alice");
    let bob = Phone::new(&server, "bob");
    alice.register();
    bob.register();
    (server, alice, bob)
}

#[test]
fn a_call_from_ipv6_reaches_ipv4() {
    let (_server, alice, bob) = across();
    let (callers, callees) = Dialog::establish(&alice, &bob);
    callers.exchange(&alice, &bob, "INVITE");
    callees.exchange(&bob, &alice, "BYE");
}

#[test]
fn a_call_from_ipv4_reaches_ipv6() {
    let (_server, alice, bob) = across();
    let (callers, callees) = Dialog::establish(&bob, &alice);
    callees.exchange(&alice, &bob, "INVITE");
    callers.exchange(&bob, &alice, "BYE");
}

#[test]
fn both_sides_of_a_call_across_are_recorded() {
    let (server, alice, bob) = across();
    alice.send(&alice.request("INVITE", &bob.address_of_record()));
    let arrived = bob.expect_request("INVITE");
    let recorded = arrived.all("Record-Route");
    assert_eq!(recorded.len(), 2, "one for each side:\n{arrived}");
    assert!(recorded[0].contains(&server.address().ip().to_string()), "the callee's side first:\n{arrived}");
    assert!(recorded[1].contains("[::1]"), "{arrived}");
}

#[test]
fn answers_come_from_the_address_that_was_asked() {
    let second = (loopback(), 5060).into();
    let server = Start::configuration("default").listening_on([second]).spawn();
    assert!(server.is_answering());
    assert!(server.is_answering_at(second));
}

#[test]
fn answers_of_a_wildcard_listener_come_from_the_address_that_was_asked() {
    only_strowger!("Kamailio answers from the address that the system chooses");
    let port = loopback_v6().port();
    let wildcard = ([0, 0, 0, 0], port).into();
    let server = Start::configuration("default").listening_only_on([wildcard]).spawn();
    for _ in 0..3 {
        assert!(server.is_answering_at((loopback(), port).into()));
    }
}
