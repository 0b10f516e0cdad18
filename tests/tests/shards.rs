//! Two shards, and messages of one call that arrive at either.
//!
//! The kernel chooses a shard by the source address and port, so a phone that sends every message from another port
//! reaches both. Another server than ours runs these tests with whatever workers it has.

use end_to_end::{Dialog, Message, Phone, QUIET, Server, Start};

/// Enough calls for every message to arrive at the wrong shard in some of them.
const CALLS: usize = 12;

fn two_shards(configuration: &str) -> (Server, Phone, Phone) {
    let server = Start::configuration(configuration).arguments(&["--shards", "2"]).spawn();
    let (alice, bob) = (Phone::new(&server, "alice"), Phone::new(&server, "bob"));
    for phone in [&alice, &bob] {
        let register = phone.register_request();
        phone.send_from_elsewhere(&register);
        phone.expect_response(200, &register);
    }
    (server, alice, bob)
}

/// An INVITE that has arrived and rings.
fn ring(alice: &Phone, bob: &Phone) -> (Message, Message) {
    let invite = alice.request("INVITE", &bob.address_of_record());
    alice.send_from_elsewhere(&invite);
    let arrived = bob.expect_request("INVITE");
    // A copy that arrives elsewhere belongs to the same transaction, and is not forwarded again.
    alice.send_from_elsewhere(&invite);
    bob.send_from_elsewhere(&arrived.response(180, "Ringing", "bobs"));
    alice.expect_response(180, &invite);
    (invite, arrived)
}

#[test]
fn a_call_works_whichever_shard_its_messages_reach() {
    for configuration in ["default", "stateless"] {
        let (_server, alice, bob) = two_shards(configuration);
        for _ in 0..CALLS {
            let (invite, arrived) = ring(&alice, &bob);
            let ok = arrived.response(200, "OK", "bobs").with("Contact", format!("<{}>", bob.contact()));
            bob.send_from_elsewhere(&ok);
            let answer = alice.expect_response(200, &invite);
            let ours = Dialog::of_caller(&invite, &answer);
            alice.send_from_elsewhere(&ours.ack(&alice));
            bob.expect_request("ACK");
            let bye = ours.request(&alice, "BYE");
            alice.send_from_elsewhere(&bye);
            let arrived = bob.expect_request("BYE");
            bob.send_from_elsewhere(&arrived.response(200, "OK", "bobs"));
            alice.expect_response(200, &bye);
        }
    }
}

#[test]
fn a_cancel_finds_its_call_whichever_shard_it_reaches() {
    let (_server, alice, bob) = two_shards("default");
    for _ in 0..CALLS {
        let (invite, arrived) = ring(&alice, &bob);
        let cancel = invite_within(&invite, "CANCEL");
        alice.send_from_elsewhere(&cancel);
        alice.expect_response(200, &cancel);
        let cancelled = bob.expect_request("CANCEL");
        bob.send_from_elsewhere(&cancelled.response(200, "OK", "bobs"));
        bob.send_from_elsewhere(&arrived.response(487, "Request Terminated", "bobs"));
        bob.expect_request("ACK");
        let refused = alice.expect_response(487, &invite);
        let ack = invite_within(&invite, "ACK").set("To", refused.header("To"));
        alice.send_from_elsewhere(&ack);
    }
    // Had an ACK not found its transaction, its 487 would be repeated after T1 (Timer G, §17.2.1).
    assert_eq!(alice.receive_bytes(2 * QUIET), None);
    bob.expect_nothing();
}

#[test]
fn a_registration_at_one_shard_is_known_to_the_other() {
    let (server, alice, bob) = two_shards("redirect");
    for _ in 0..CALLS {
        let invite = alice.request("INVITE", &server.uri("bob"));
        alice.send_from_elsewhere(&invite);
        let moved = alice.expect_response(302, &invite);
        assert_eq!(moved.uri_of("Contact"), bob.contact());
        alice.send_from_elsewhere(&invite_within(&invite, "ACK").set("To", moved.header("To")));
    }
}

/// The ACK or CANCEL of an INVITE's own transaction (RFC 3261 §9.1, §17.1.1.3).
fn invite_within(invite: &Message, method: &str) -> Message {
    let invite = invite.clone().without("Contact");
    let start = format!("{method} {} SIP/2.0", invite.uri());
    invite.start(start).set("CSeq", format!("1 {method}"))
}
