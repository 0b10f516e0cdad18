//! One call to three phones (RFC 3261 §16.6, §16.7, §16.10).

use end_to_end::{Dialog, Message, Phone, Server};

/// A caller and three phones of bob, all ringing; each phone with the INVITE that it got.
struct Fork {
    alice: Phone,
    invite: Message,
    bobs: Vec<(Phone, Message)>,
}

/// Three contacts of equal preference are tried at once.
fn fork(server: &Server) -> Fork {
    let alice = Phone::new(server, "alice");
    let bobs: Vec<Phone> = (0..3).map(|_| Phone::new(server, "bob")).collect();
    bobs.iter().for_each(Phone::register);
    let invite = alice.request("INVITE", &server.uri("bob"));
    alice.send(&invite);
    let ring = |bob: Phone| {
        let arrived = bob.expect_request("INVITE");
        assert_eq!(arrived.uri(), bob.contact());
        bob.answer(&arrived, 180, "Ringing");
        (bob, arrived)
    };
    let bobs: Vec<_> = bobs.into_iter().map(ring).collect();
    let branches: Vec<_> = bobs.iter().filter_map(|(_, invite)| invite.parameter("Via", "branch")).collect();
    assert!(
        branches[0] != branches[1] && branches[1] != branches[2] && branches[0] != branches[2],
        "{branches:?}"
    );
    Fork { alice, invite, bobs }
}

/// The phone gets a CANCEL, and gives up as §9.2 says.
fn give_up(bob: &Phone, invite: &Message) {
    let cancel = bob.expect_request("CANCEL");
    assert_eq!(cancel.parameter("Via", "branch"), invite.parameter("Via", "branch"), "§9.1");
    bob.answer(&cancel, 200, "OK");
    bob.answer(invite, 487, "Request Terminated");
    bob.expect_request("ACK");
}

#[test]
fn the_first_phone_to_answer_gets_the_call() {
    let server = Server::start("default");
    let Fork { alice, invite, bobs } = fork(&server);
    bobs[1].0.accept(&bobs[1].1);
    let answer = alice.expect_response(200, &invite);
    assert_eq!(answer.uri_of("Contact"), bobs[1].0.contact());
    let ours = Dialog::of_caller(&invite, &answer);
    alice.send(&ours.ack(&alice));
    bobs[1].0.expect_request("ACK");
    for loser in [&bobs[0], &bobs[2]] {
        give_up(&loser.0, &loser.1);
    }
    // Exactly one 200 and no 487: the losers' answers end at the server (§16.7 item 5).
    alice.expect_nothing();
    let bye = ours.request(&alice, "BYE");
    alice.send(&bye);
    let arrived = bobs[1].0.expect_request("BYE");
    bobs[1].0.answer(&arrived, 200, "OK");
    alice.expect_response(200, &bye);
}

#[test]
fn two_phones_that_answer_at_once_are_both_heard() {
    let server = Server::start("default");
    let Fork { alice, invite, bobs } = fork(&server);
    bobs[0].0.accept(&bobs[0].1);
    let first = alice.expect_response(200, &invite);
    bobs[2].0.accept(&bobs[2].1);
    // A proxy forwards every 2xx (§16.7 item 5), since each has made a dialog.
    let second = alice.expect_response(200, &invite);
    assert_eq!(first.uri_of("Contact"), bobs[0].0.contact());
    assert_eq!(second.uri_of("Contact"), bobs[2].0.contact());
    give_up(&bobs[1].0, &bobs[1].1);
    alice.expect_nothing();
}

#[test]
fn the_caller_hears_one_refusal_when_all_refuse() {
    let server = Server::start("default");
    let Fork { alice, invite, bobs } = fork(&server);
    for ((bob, arrived), (status, reason)) in
        bobs.iter().zip([(503, "Service Unavailable"), (486, "Busy Here"), (500, "Server Internal Error")])
    {
        bob.answer(arrived, status, reason);
        bob.expect_request("ACK");
    }
    // The lowest class wins (§16.7 item 6).
    let refused = alice.expect_response(486, &invite);
    alice.acknowledge(&invite, &refused);
    alice.expect_nothing();
}

#[test]
fn a_6xx_ends_the_search() {
    let server = Server::start("default");
    let Fork { alice, invite, bobs } = fork(&server);
    bobs[0].0.answer(&bobs[0].1, 603, "Decline");
    bobs[0].0.expect_request("ACK");
    for other in &bobs[1..] {
        give_up(&other.0, &other.1);
    }
    let refused = alice.expect_response(603, &invite);
    alice.acknowledge(&invite, &refused);
    alice.expect_nothing();
}

#[test]
fn a_cancel_stops_every_phone() {
    let server = Server::start("default");
    let Fork { alice, invite, bobs } = fork(&server);
    // The 180s of three phones are on their way to the caller before its CANCEL.
    for _ in &bobs {
        alice.expect_response(180, &invite);
    }
    let cancel = alice.cancel(&invite);
    alice.expect_response(200, &cancel);
    for (bob, arrived) in &bobs {
        give_up(bob, arrived);
    }
    let refused = alice.expect_response(487, &invite);
    alice.acknowledge(&invite, &refused);
    alice.expect_nothing();
}
