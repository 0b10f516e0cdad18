//! Client transactions: the ACK of a non-2xx, CANCEL, and which responses match (RFC 3261 §17.1, §9.1).

mod rig;

use rig::{ALICE, BOB, MALLORY, Network, PROXY, Request, Seen, invited, labels, to_bob};

/// RFC 3261 §17.1.1.3: Call-ID, From and Request-URI of the request, To of the response, the request's top Via alone,
/// the same CSeq number with method ACK.
#[test]
fn the_ack_of_a_non_2xx_is_built_from_the_invite_and_the_response() {
    let (mut network, _, received) = invited(to_bob());
    network.send(BOB, received.respond(486, "bob-tag"));
    let ack = network.one(BOB);
    assert_eq!(ack.start_line(), format!("ACK {} SIP/2.0", received.uri()));
    assert_eq!(ack.vias(), received.vias()[..1], "a single Via, equal to the top Via of the INVITE");
    assert_eq!(ack.header("From"), received.header("From"));
    assert_eq!(ack.header("Call-ID"), received.header("Call-ID"));
    assert_eq!(ack.header("CSeq").as_deref(), Some("1 ACK"));
    assert_eq!(ack.header("To"), Some(format!("{};tag=bob-tag", received.header("To").unwrap_or_default())));
    assert_eq!(ack.header("Max-Forwards").as_deref(), Some("70"));
    assert_eq!(ack.values("Route"), Vec::<String>::new());
    assert_eq!(ack.body(), "");
    assert_eq!(ack.header("Content-Length").as_deref(), Some("0"));
}

/// RFC 3261 §17.1.1.3: "If the INVITE request whose response is being acknowledged had Route header fields, those
/// header fields MUST appear in the ACK."
#[test]
fn the_ack_of_a_non_2xx_has_the_routes_of_the_invite() {
    let mut network = Network::new(to_bob());
    let invite = Request::invite(1)
        .uri("sip:bob@elsewhere.example.net")
        .line("Route: <sip:10.0.2.1;lr>, <sip:next.example.net;lr>")
        .line("Route: <sip:last.example.net;lr>");
    network.alice(&invite);
    let received = network.only(BOB, "INVITE");
    assert_eq!(received.values("Route").len(), 3);
    network.send(BOB, received.respond(486, "bob"));
    let ack = network.one(BOB);
    assert_eq!(ack.values("Route"), received.values("Route"));
}

/// RFC 3261 §17.1.1.2, Completed: each retransmitted final gets its ACK, and is not passed on again.
#[test]
fn every_retransmitted_final_is_acknowledged_again() {
    let (mut network, _, received) = invited(to_bob());
    network.send(BOB, received.respond(486, "bob"));
    let first = network.one(BOB);
    for at in [500, 1500, 3500] {
        network.until_ms(at);
        network.send(BOB, received.respond(486, "bob"));
        assert_eq!(network.one(BOB).bytes, first.bytes);
    }
    assert_eq!(network.engine.user().count("reply 486"), 1, "the user sees it once");
}

/// RFC 3261 §17.1.1.2: every class from 300 to 699 is acknowledged by the transaction.
#[test]
fn every_failure_class_is_acknowledged() {
    for status in [300, 302, 404, 487, 500, 503, 600, 699] {
        let (mut network, _, received) = invited(to_bob());
        network.send(BOB, received.respond(status, "bob"));
        assert_eq!(network.labels(BOB), ["ACK"], "{status}");
    }
}

/// RFC 3261 §17.1.1.2: a proxy sends no ACK of its own for a 2xx.
#[test]
fn a_2xx_is_not_acknowledged_by_the_proxy() {
    let (mut network, _, received) = invited(to_bob());
    network.send(BOB, received.accept("bob"));
    network.assert_quiet(BOB);
}

/// A response that pretends to belong to our branch.
fn with_branch(received: &Seen, branch: &str) -> Vec<u8> {
    let text = String::from_utf8(received.accept("forged")).expect("our own text");
    text.replacen(&received.branch(), branch, 1).into_bytes()
}

/// RFC 3261 §17.1.3 condition 1: another branch is another transaction; a guessed branch finds nothing.
#[test]
fn a_forged_branch_matches_nothing() {
    let (mut network, _, received) = invited(to_bob());
    network.take(ALICE);
    let branch = received.branch();
    for (at, _) in branch.char_indices().skip("z9hG4bK".len()) {
        // One character changed, anywhere in it.
        let mut forged: Vec<u8> = branch.clone().into_bytes();
        forged[at] = if forged[at] == b'0' { b'1' } else { b'0' };
        if forged != branch.as_bytes() {
            let forged = String::from_utf8(forged).expect("ASCII");
            network.send(MALLORY, with_branch(&received, &forged));
            network.assert_quiet(ALICE);
        }
    }
    let cut = &branch[..branch.len() - 1];
    let longer = format!("{branch}0");
    for forged in ["z9hG4bK", "z9hG4bK0", "", "1", cut, &longer] {
        network.send(MALLORY, with_branch(&received, forged));
        network.assert_quiet(ALICE);
    }
    network.send(BOB, received.accept("bob"));
    assert_eq!(network.labels(ALICE), ["200"]);
}

/// RFC 3261 §17.1.3 condition 2: the method in CSeq must be the request's.
#[test]
fn a_response_with_the_cseq_method_of_another_request_matches_nothing() {
    let (mut network, _, received) = invited(to_bob());
    network.take(ALICE);
    let text = String::from_utf8(received.accept("bob")).expect("our own text");
    network.send(BOB, text.replace("1 INVITE", "1 OPTIONS"));
    network.assert_quiet(ALICE);
    network.send(BOB, received.accept("bob"));
    assert_eq!(network.labels(ALICE), ["200"]);
}

/// RFC 3261 §16.7 item 3: a response without another Via was meant for this element, and is not forwarded. The caller
/// is not left without a final response either.
#[test]
fn a_response_without_a_second_via_is_not_forwarded() {
    let (mut network, _, received) = invited(to_bob());
    let text = String::from_utf8(received.accept("bob")).expect("our own text");
    let second = format!("Via: {}\r\n", received.vias()[1]);
    network.send(BOB, text.replacen(&second, "", 1));
    network.settle();
    assert!(network.sent_at(ALICE, "200").is_empty(), "{}", network.ladder());
    assert_eq!(network.finals(ALICE, "INVITE").len(), 1, "{}", network.ladder());
}

/// RFC 3261 §16.7 item 5: a stateful proxy must not forward any 100.
#[test]
fn a_100_is_not_forwarded() {
    let (mut network, _, received) = invited(to_bob());
    network.take(ALICE);
    network.send(BOB, received.respond(100, ""));
    network.assert_quiet(ALICE);
}

/// RFC 3261 §9.1: Request-URI, Call-ID, To, CSeq number, From and Route of the request; its top Via alone.
#[test]
fn a_cancel_is_built_from_the_invite() {
    let mut network = Network::new(to_bob());
    let invite = Request::invite(1).uri("sip:bob@elsewhere.example.net").line("Route: <sip:10.0.2.1;lr>");
    network.alice(&invite);
    let received = network.only(BOB, "INVITE");
    network.send(BOB, received.respond(180, "bob"));
    network.alice(&invite.cancel());
    let cancel = network.one(BOB);
    assert_eq!(cancel.start_line(), format!("CANCEL {} SIP/2.0", received.uri()));
    assert_eq!(cancel.vias(), received.vias()[..1]);
    for name in ["From", "To", "Call-ID"] {
        assert_eq!(cancel.header(name), received.header(name), "{name}");
    }
    assert_eq!(cancel.header("CSeq").as_deref(), Some("1 CANCEL"));
    assert_eq!(cancel.values("Route"), received.values("Route"));
    assert_eq!(cancel.values("Require"), Vec::<String>::new());
    assert_eq!(cancel.body(), "");
}

/// RFC 3261 §9.1, §17.1.2: our CANCEL is a non-INVITE transaction of its own: repeated until answered.
#[test]
fn a_cancel_is_retransmitted_until_it_is_answered() {
    let (mut network, invite, received) = invited(to_bob());
    network.send(BOB, received.respond(180, "bob"));
    network.alice(&invite.cancel());
    network.until_ms(2000);
    let cancel = network.take(BOB).pop().expect("a CANCEL");
    network.send(BOB, cancel.respond(200, "bob"));
    network.until_ms(20_000);
    assert_eq!(network.sent_at(BOB, "CANCEL"), [0, 500, 1500]);
}

/// RFC 3261 §9.1, §17.1.2.2: a copy of the INVITE's provisional response that comes late answers no CANCEL.
#[test]
fn a_late_provisional_response_does_not_stop_the_cancel() {
    let (mut network, invite, received) = invited(to_bob());
    network.send(BOB, received.respond(180, "bob"));
    network.alice(&invite.cancel());
    network.until_ms(100);
    network.send(BOB, received.respond(180, "bob"));
    network.until_ms(2000);
    assert_eq!(network.sent_at(BOB, "CANCEL"), [0, 500, 1500]);
}

/// RFC 3261 §16.7 item 3: responses to our own CANCEL are not forwarded.
#[test]
fn responses_to_our_cancel_are_not_forwarded() {
    let (mut network, invite, received) = invited(to_bob());
    network.send(BOB, received.respond(180, "bob"));
    network.alice(&invite.cancel());
    let cancel = network.only(BOB, "CANCEL");
    network.take(ALICE);
    network.send(BOB, cancel.respond(200, "bob"));
    network.send(BOB, cancel.respond(200, "bob"));
    network.assert_quiet(ALICE);
    network.send(BOB, received.respond(487, "bob"));
    assert_eq!(network.labels(ALICE), ["487"]);
}

/// RFC 3261 §16.9: a transport error counts as 503 of that branch; §16.7 item 6: a lone 503 goes upstream as 500.
#[test]
fn a_transport_error_fails_the_branch() {
    let (mut network, _, _) = invited(to_bob());
    network.take(ALICE);
    network.unreachable(BOB);
    assert_eq!(network.labels(ALICE), ["500"]);
    network.until_ms(31_000);
    assert_eq!(network.sent_at(BOB, "INVITE"), [0], "a failed transaction does not retransmit");
    network.settle();
}

/// RFC 3261 §16.9: an error of sending a response upstream cancels nothing.
#[test]
fn a_transport_error_upstream_is_ignored() {
    let (mut network, _, received) = invited(to_bob());
    network.send(BOB, received.respond(180, "bob"));
    network.unreachable(ALICE);
    network.assert_at_ease_towards_bob();
    network.send(BOB, received.accept("bob"));
    assert_eq!(network.sent_at(ALICE, "200"), [0]);
}

/// RFC 3261 §17.1.4: an error about somebody else is nobody's failure.
#[test]
fn a_transport_error_of_a_stranger_is_ignored() {
    let (mut network, _, received) = invited(to_bob());
    network.take(ALICE);
    network.unreachable(MALLORY);
    network.assert_quiet(ALICE);
    network.send(BOB, received.accept("bob"));
    assert_eq!(network.labels(ALICE), ["200"]);
}

/// RFC 3261 §18.1.2: a response is matched by its branch, from whatever address it comes.
#[test]
fn a_response_from_another_port_matches() {
    let (mut network, _, received) = invited(to_bob());
    network.take(ALICE);
    network.send(std::net::SocketAddr::new(BOB.ip(), 33_000), received.respond(180, "bob"));
    assert_eq!(network.labels(ALICE), ["180"]);
}

/// RFC 3261 §18.2.1, §16.6 item 8: our Via has our own sent-by and a branch with the cookie.
#[test]
fn our_via_has_our_sent_by_and_the_cookie() {
    let (_, _, received) = invited(to_bob());
    let via = &received.vias()[0];
    let expected = [format!("SIP/2.0/UDP {PROXY};"), format!("SIP/2.0/UDP {};", PROXY.ip())];
    assert!(expected.iter().any(|start| via.starts_with(start.as_str())), "{via}");
    assert!(received.branch().starts_with("z9hG4bK"));
    assert!(
        received.branch().bytes().all(|b| b.is_ascii_alphanumeric() || b"-.!%*_+`'~".contains(&b)),
        "a token"
    );
}

/// RFC 3261 §8.1.1.7: branches are unique across space and time.
#[test]
fn branches_never_repeat() {
    let mut network = Network::new(to_bob());
    for n in 0..500 {
        network.alice(&Request::invite(n));
    }
    let invites = network.take(BOB);
    assert_eq!(labels(&invites).len(), 500);
    let branches: std::collections::BTreeSet<String> = invites.iter().map(Seen::branch).collect();
    assert_eq!(branches.len(), 500);
}
