//! Server transactions: what is absorbed, repeated and passed on (RFC 3261 §17.2, RFC 6026 §7.1, RFC 4320 §4).

mod rig;

use rig::{
    ALICE, BOB, BOB_URI, CAROL, MALLORY, Network, Request, Script, Seen, invited, labels, script, to_bob,
};

/// RFC 3261 §17.2.1: an INVITE server transaction quenches retransmissions with 100.
#[test]
fn a_relayed_invite_is_answered_100_at_once() {
    let (mut network, _, _) = invited(to_bob());
    assert_eq!(network.sent_at(ALICE, "100"), [0]);
    let trying = network.only(ALICE, "100");
    assert_eq!(trying.to_tag(), None, "RFC 3261 §17.2.1: no To tag in 100");
    assert_eq!(trying.vias().len(), 1);
}

/// RFC 3261 §16.2: no 100 for other methods.
#[test]
fn a_relayed_options_is_not_answered_100_at_once() {
    let mut network = Network::new(to_bob());
    network.alice(&Request::options(1));
    network.assert_quiet(ALICE);
}

/// RFC 3261 §17.2.1, Proceeding: the most recent provisional response is sent again.
#[test]
fn a_retransmitted_invite_gets_the_last_provisional_again() {
    let (mut network, invite, received) = invited(to_bob());
    network.take(ALICE);
    network.alice(&invite);
    assert_eq!(network.labels(ALICE), ["100"]);
    network.send(BOB, received.respond(180, "bob"));
    assert_eq!(network.labels(ALICE), ["180"]);
    network.alice(&invite);
    assert_eq!(network.labels(ALICE), ["180"]);
    network.send(BOB, received.respond(183, "bob"));
    network.take(ALICE);
    network.alice(&invite);
    assert_eq!(network.labels(ALICE), ["183"]);
    assert_eq!(network.sent_at(BOB, "INVITE"), [0], "Bob saw it once");
    assert_eq!(network.engine.user().count("request INVITE"), 1);
}

/// RFC 3261 §17.2.1, Completed: the final response is sent again.
#[test]
fn a_retransmitted_invite_gets_the_final_again() {
    let (mut network, invite, received) = invited(to_bob());
    network.send(BOB, received.respond(486, "bob"));
    let busy = network.only(ALICE, "486");
    network.alice(&invite);
    assert_eq!(network.one(ALICE).bytes, busy.bytes);
    assert_eq!(network.engine.user().count("request INVITE"), 1);
}

/// RFC 3261 §17.2.1, Confirmed: after the ACK a stray retransmission is absorbed.
#[test]
fn a_retransmitted_invite_after_the_ack_is_absorbed() {
    let (mut network, invite, received) = invited(to_bob());
    network.send(BOB, received.respond(486, "bob"));
    let busy = network.only(ALICE, "486");
    network.alice(&invite.ack(&busy));
    network.alice(&invite);
    network.assert_quiet(ALICE);
    assert_eq!(network.engine.user().count("request INVITE"), 1);
}

/// RFC 6026 §7.1, Accepted: a retransmission is absorbed without any response.
#[test]
fn a_retransmitted_invite_after_a_2xx_is_absorbed() {
    let (mut network, invite, received) = invited(to_bob());
    network.send(BOB, received.accept("bob"));
    network.take(ALICE);
    network.take(BOB);
    network.alice(&invite);
    network.assert_quiet(ALICE);
    network.assert_quiet(BOB);
}

/// RFC 3261 §17.2.1: the ACK of a non-2xx belongs to the transaction and goes nowhere.
#[test]
fn the_ack_of_a_non_2xx_is_absorbed() {
    let (mut network, invite, received) = invited(to_bob());
    network.send(BOB, received.respond(486, "bob"));
    let busy = network.only(ALICE, "486");
    assert_eq!(network.labels(BOB), ["ACK"], "our own, hop by hop");
    network.alice(&invite.ack(&busy));
    network.alice(&invite.ack(&busy));
    network.assert_quiet(BOB);
    assert_eq!(network.engine.user().count("request ACK"), 0);
    network.settle();
}

/// RFC 3261 §13.2.2.4: the ACK of a 2xx has a branch of its own and goes end to end, each time.
#[test]
fn the_ack_of_a_2xx_passes_through() {
    let (mut network, invite, received) = invited(to_bob());
    network.send(BOB, received.accept("bob"));
    let ok = network.only(ALICE, "200");
    network.take(BOB);
    let ack = invite.ack_2xx(&ok);
    network.alice(&ack);
    let passed = network.one(BOB);
    assert_eq!(passed.start_line(), format!("ACK {BOB_URI} SIP/2.0"));
    assert_eq!(passed.vias().len(), 2);
    network.alice(&ack);
    assert_eq!(network.one(BOB).bytes, passed.bytes, "forwarded alike (RFC 3261 §16.11)");
    network.pass(std::time::Duration::from_secs(60));
    network.assert_quiet(BOB);
    network.assert_at_rest();
}

/// RFC 6026 §7.1: in the Accepted state an ACK that matches the transaction is passed to the transaction user.
#[test]
fn an_ack_of_a_2xx_with_the_branch_of_the_invite_passes_through() {
    let (mut network, invite, received) = invited(to_bob());
    network.send(BOB, received.accept("bob"));
    let ok = network.only(ALICE, "200");
    network.take(BOB);
    let mut ack = invite.ack(&ok);
    ack.uri = BOB_URI.into();
    network.alice(&ack);
    assert_eq!(network.labels(BOB), ["ACK"]);
}

/// RFC 3261 §17.2.2, Trying: retransmissions are discarded while there is no response.
#[test]
fn a_retransmitted_non_invite_is_absorbed_while_unanswered() {
    let mut network = Network::new(to_bob());
    let options = Request::options(1);
    network.alice(&options);
    network.take(BOB);
    network.alice(&options);
    network.assert_quiet(BOB);
    network.assert_quiet(ALICE);
    assert_eq!(network.engine.user().count("request OPTIONS"), 1);
}

/// RFC 3261 §17.2.2, Completed: the final response is sent again, and only the first final counts.
#[test]
fn a_retransmitted_non_invite_gets_the_final_again() {
    let mut network = Network::new(to_bob());
    let options = Request::options(1);
    network.alice(&options);
    let received = network.only(BOB, "OPTIONS");
    network.send(BOB, received.respond(200, "bob"));
    let ok = network.one(ALICE);
    network.alice(&options);
    assert_eq!(network.one(ALICE).bytes, ok.bytes);
    network.assert_quiet(BOB);
    network.send(BOB, received.respond(404, "bob"));
    network.assert_quiet(ALICE);
    network.settle();
}

/// RFC 3261 §17.2.2 and §17.2.1: what is sent again is the response, however long, body and all.
#[test]
fn a_long_final_is_repeated_whole() {
    let body = "y".repeat(9000);
    for method in ["OPTIONS", "INVITE"] {
        let mut network = Network::new(to_bob());
        // A long request and two datagrams of hers: no suspicion of amplification.
        let request = Request::new(method, 1).line(&format!("X-Long: {}", "x".repeat(9000)));
        network.alice(&request);
        network.alice(&request);
        let received = network.only(BOB, method);
        network.send(BOB, received.respond_with(300, "bob", &["Content-Type: text/plain"], &body));
        let first = network.only(ALICE, "300");
        assert_eq!(first.body(), body);
        network.until_ms(100);
        network.alice(&request);
        assert_eq!(network.one(ALICE).bytes, first.bytes, "{method}");
        network.settle();
    }
}

/// RFC 4320 §4.1: a non-INVITE request that has waited until Timer E reaches T2 (3.5 s) is answered 100, not before.
#[test]
fn an_unanswered_non_invite_gets_100_when_timer_e_reaches_t2() {
    let mut network = Network::new(to_bob());
    let options = Request::options(1);
    network.alice(&options);
    network.until_ms(3499);
    network.assert_quiet(ALICE);
    network.until_ms(3600);
    assert_eq!(network.sent_at(ALICE, "100"), [3500]);
    network.take(ALICE);
    network.alice(&options);
    assert_eq!(network.labels(ALICE), ["100"], "RFC 3261 §17.2.2, Proceeding: repeated for a retransmission");
}

/// RFC 4320 §4.1: no provisional response other than 100 is sent to a non-INVITE request.
#[test]
fn a_provisional_response_to_a_non_invite_is_not_forwarded() {
    let mut network = Network::new(to_bob());
    network.alice(&Request::options(1));
    let received = network.only(BOB, "OPTIONS");
    network.send(BOB, received.respond(180, "bob"));
    network.assert_quiet(ALICE);
    network.send(BOB, received.respond(200, "bob"));
    assert_eq!(network.labels(ALICE), ["200"]);
}

/// RFC 4320 §4.2: no 408 is sent to a non-INVITE request, not even one that came from downstream.
#[test]
fn a_408_to_a_non_invite_is_not_forwarded() {
    let mut network = Network::new(to_bob());
    network.alice(&Request::options(1));
    let received = network.only(BOB, "OPTIONS");
    network.send(BOB, received.respond(408, "bob"));
    assert!(network.sent_at(ALICE, "408").is_empty());
    network.settle();
    assert!(network.sent_at(ALICE, "408").is_empty());
    assert_eq!(
        network.sent_at(ALICE, "100"),
        [3_500],
        "RFC 4320 §4.1: that somebody is here is said all the same"
    );
}

/// RFC 4320 §4.2: whoever gets no final response asks until Timer F; that is the same request still (RFC 3261 §17.2.3).
#[test]
fn a_request_that_is_left_unanswered_is_not_carried_out_twice() {
    let mut network = Network::new(to_bob());
    let options = Request::options(1);
    network.alice(&options);
    let received = network.only(BOB, "OPTIONS");
    network.send(BOB, received.respond(408, "bob"));
    for ms in [500, 1500, 3500, 7500, 11_500, 31_500] {
        network.until_ms(ms);
        network.alice(&options);
    }
    assert_eq!(network.sent_at(BOB, "OPTIONS"), [0]);
    network.settle();
}

/// RFC 4320 §4.3, RFC 6026 §7.3: a response without a transaction is not forwarded by a stateful proxy.
#[test]
fn a_late_response_to_a_non_invite_is_dropped() {
    let mut network = Network::new(to_bob());
    network.alice(&Request::options(1));
    let received = network.only(BOB, "OPTIONS");
    network.settle();
    network.take(ALICE);
    network.send(BOB, received.respond(200, "bob"));
    network.assert_quiet(ALICE);
}

/// RFC 6026 §7.1: retransmissions of a 2xx go through in the Accepted state.
#[test]
fn a_retransmitted_2xx_passes_through() {
    let (mut network, _, received) = invited(to_bob());
    for at in [0, 500, 1500, 3500, 7500, 11_500, 30_000] {
        network.until_ms(at);
        network.send(BOB, received.accept("bob"));
    }
    assert_eq!(network.sent_at(ALICE, "200"), [0, 500, 1500, 3500, 7500, 11_500, 30_000]);
    network.settle();
}

/// RFC 3261 §16.7 item 5: a second 2xx, of another dialog, is forwarded too (a forking proxy downstream).
#[test]
fn a_second_2xx_of_the_same_branch_is_forwarded() {
    let (mut network, _, received) = invited(to_bob());
    network.send(BOB, received.accept("bob-1"));
    network.send(BOB, received.accept("bob-2"));
    let tags: Vec<_> = network.finals(ALICE, "INVITE").iter().filter_map(Seen::to_tag).collect();
    assert_eq!(tags, ["bob-1", "bob-2"]);
}

/// RFC 6026 §7.1, §7.2: after a 2xx neither provisional nor failure responses of that branch are forwarded.
#[test]
fn nothing_but_2xx_is_forwarded_after_a_2xx() {
    let (mut network, _, received) = invited(to_bob());
    network.send(BOB, received.accept("bob"));
    network.take(ALICE);
    network.send(BOB, received.respond(180, "bob"));
    network.send(BOB, received.respond(486, "bob-2"));
    network.assert_quiet(ALICE);
}

// --- matching (RFC 3261 §17.2.3) --------------------------------------------------------------------------------

/// RFC 3261 §17.2.3: sent-by is part of the match.
#[test]
fn the_same_branch_from_another_sent_by_is_another_transaction() {
    let mut network = Network::new(to_bob());
    let first = Request::invite(1).via("SIP/2.0/UDP 10.0.1.1:5060;branch=z9hG4bKsame");
    let second = Request::invite(2).via("SIP/2.0/UDP 10.0.1.1:5070;branch=z9hG4bKsame");
    network.alice(&first);
    network.alice(&second);
    assert_eq!(network.engine.user().count("request INVITE"), 2);
    assert_eq!(network.labels(BOB), ["INVITE", "INVITE"]);
}

/// RFC 3261 §17.2.3: the method is part of the match.
#[test]
fn the_same_branch_with_another_method_is_another_transaction() {
    let mut network = Network::new(to_bob());
    network.alice(&Request::invite(1).branch("z9hG4bKsame"));
    network.alice(&Request::options(1).branch("z9hG4bKsame"));
    assert_eq!(network.labels(BOB), ["INVITE", "OPTIONS"]);
}

/// RFC 3261 §17.2.3: sent-by and branch are compared, not where the datagram came from.
#[test]
fn a_retransmission_from_another_port_is_a_retransmission() {
    let (mut network, invite, _) = invited(to_bob());
    network.send(std::net::SocketAddr::new(ALICE.ip(), 40_000), invite.bytes());
    network.assert_quiet(BOB);
    assert_eq!(network.engine.user().count("request INVITE"), 1);
}

fn old_invite() -> Request {
    Request::invite(1).via("SIP/2.0/UDP 10.0.1.1:5060")
}

/// RFC 3261 §17.2.3: without the cookie, Request-URI, tags, Call-ID, CSeq and topmost Via tell a retransmission.
#[test]
fn a_retransmission_of_an_rfc_2543_client_is_absorbed() {
    let mut network = Network::new(to_bob());
    network.alice(&old_invite());
    network.take(BOB);
    network.alice(&old_invite());
    network.assert_quiet(BOB);
    assert_eq!(network.engine.user().count("request INVITE"), 1);
}

/// The same with a branch that lacks the cookie, which RFC 2543 clients may write.
#[test]
fn a_branch_without_the_cookie_is_no_key() {
    let mut network = Network::new(to_bob());
    network.alice(&Request::invite(1).branch("1"));
    network.alice(&Request::invite(1).branch("1"));
    assert_eq!(network.labels(BOB), ["INVITE"]);
    network.alice(&Request::invite(2).branch("1"));
    assert_eq!(network.labels(BOB), ["INVITE"], "another Call-ID: another transaction");
    network.alice(&Request::invite(2).branch("1").cseq(2));
    assert_eq!(network.labels(BOB), ["INVITE"], "another CSeq: another transaction");
}

/// RFC 3261 §17.2.3: the old client's ACK matches with the To tag of the response.
#[test]
fn the_ack_of_an_rfc_2543_client_is_absorbed() {
    let mut network = Network::new(to_bob());
    network.alice(&old_invite());
    let received = network.only(BOB, "INVITE");
    network.send(BOB, received.respond(486, "bob"));
    let busy = network.only(ALICE, "486");
    network.take(BOB);
    network.until_ms(400);
    network.alice(&old_invite().ack(&busy));
    network.assert_quiet(BOB);
    network.until_ms(20_000);
    assert_eq!(network.sent_at(ALICE, "486"), [0], "the ACK stopped Timer G");
    network.settle();
}

/// RFC 3261 §9.2, §17.2.3: the old client's CANCEL finds its INVITE.
#[test]
fn the_cancel_of_an_rfc_2543_client_is_matched() {
    let mut network = Network::new(to_bob());
    network.alice(&old_invite());
    let received = network.only(BOB, "INVITE");
    network.send(BOB, received.respond(180, "bob"));
    network.take(ALICE);
    network.alice(&old_invite().cancel());
    assert_eq!(network.labels(ALICE), ["200"]);
    assert_eq!(network.labels(BOB), ["CANCEL"]);
}

/// RFC 3261 §16.3: a proxy must not treat merged requests as an error.
#[test]
fn merged_requests_are_both_forwarded() {
    let mut network = Network::new(to_bob());
    network.alice(&Request::invite(1).branch("z9hG4bK-one-way"));
    network.alice(&Request::invite(1).branch("z9hG4bK-other-way"));
    let seen = network.take(BOB);
    assert_eq!(labels(&seen), ["INVITE", "INVITE"]);
    assert_ne!(seen[0].branch(), seen[1].branch());
}

/// A script that sends our domain's requests unchanged to Carol, who is a proxy.
fn via_carol() -> Script {
    Script::new(|cx| {
        let _ = cx.loose_route();
        if script::is_for_us(cx) {
            cx.set_destination_uri(Some(b"sip:10.0.2.2:5060"));
        }
        let _ = cx.relay();
        rig::done()
    })
}

/// What a proxy at Carol would send back to us: her Via on top, Max-Forwards one less.
fn back_from_carol(seen: &Seen, uri: &str) -> Vec<u8> {
    let text = seen.text();
    let (start, rest) = text.split_once("\r\n").expect("a start line");
    let old_uri = start.split(' ').nth(1).expect("a Request-URI");
    let start = start.replacen(old_uri, uri, 1);
    format!("{start}\r\nVia: SIP/2.0/UDP 10.0.2.2:5060;branch=z9hG4bK-carol-{}\r\n{rest}", rest.len())
        .into_bytes()
}

/// RFC 3261 §16.3 item 4, RFC 5393 §4.2: a request that returns unchanged has looped: 482.
#[test]
fn a_loop_is_answered_482() {
    let mut network = Network::new(via_carol());
    network.alice(&Request::invite(1));
    let out = network.only(CAROL, "INVITE");
    network.send(CAROL, back_from_carol(&out, &out.uri()));
    let seen = network.take(CAROL);
    assert!(labels(&seen).contains(&"482".to_owned()), "{}", network.ladder());
    assert!(!labels(&seen).contains(&"INVITE".to_owned()));
    network.settle();
}

/// RFC 3261 §16.3 item 4: a request that returns with another Request-URI is a spiral, and goes on.
#[test]
fn a_spiral_is_forwarded() {
    let mut network = Network::new(via_carol());
    network.alice(&Request::invite(1));
    let out = network.only(CAROL, "INVITE");
    network.send(CAROL, back_from_carol(&out, BOB_URI));
    let on = network.only(BOB, "INVITE");
    assert_eq!(on.uri(), BOB_URI);
    assert_eq!(on.vias().len(), 4);
    let mut branches: Vec<_> = on.vias().iter().filter_map(|via| rig::param(via, "branch")).collect();
    branches.dedup();
    assert_eq!(branches.len(), 4, "RFC 3261 §16.6 item 8: a spiral has a branch per visit");
}

/// RFC 3261 §8.2.6.2: a reply of the script carries a To tag, the same for every retransmission.
#[test]
fn a_stateless_reply_has_the_same_tag_for_a_retransmission() {
    let mut network = Network::new(Script::new(|cx| {
        if cx.message().method() != sip::Method::Ack {
            let _ = cx.reply_stateless(404, b"Not Found", b"", b"");
        }
        rig::done()
    }));
    let invite = Request::invite(1);
    network.alice(&invite);
    network.alice(&invite);
    let replies = network.take(ALICE);
    assert_eq!(labels(&replies), ["404", "404"]);
    assert!(replies[0].to_tag().is_some());
    assert_eq!(replies[0].bytes, replies[1].bytes);
    network.assert_at_rest();
}

/// RFC 3261 §8.2.7, §17: the ACK of a stateless reply is absorbed: the script never sees it.
#[test]
fn the_ack_of_a_stateless_reply_is_absorbed() {
    let mut network = Network::new(Script::new(|cx| {
        if cx.message().method() == sip::Method::Ack {
            let _ = cx.relay();
        } else {
            let _ = cx.reply_stateless(404, b"Not Found", b"", b"");
        }
        rig::done()
    }));
    let invite = Request::invite(1);
    network.alice(&invite);
    let not_found = network.one(ALICE);
    network.alice(&invite.ack(&not_found));
    assert_eq!(network.engine.user().count("request ACK"), 0);
    network.assert_quiet(ALICE);
    assert_eq!(network.log.len(), 3);
}

/// A forged ACK must not stop the retransmission of somebody else's final response.
#[test]
fn an_ack_of_another_transaction_changes_nothing() {
    let mut network = Network::new(Script::reply(486));
    let invite = Request::invite(1);
    network.alice(&invite);
    let busy = network.only(ALICE, "486");
    network.send(MALLORY, invite.ack(&busy).branch("z9hG4bK-mallory").bytes());
    network.until_ms(2000);
    assert_eq!(network.sent_at(ALICE, "486"), [0, 500, 1500]);
}
