//! Forking: groups by q, the choice of the best response, CANCEL of the losers, serial search (RFC 3261 §16.6, §16.7,
//! §16.10).

mod rig;

use rig::{
    ALICE, BOB, BOB_URI, CAROL, CAROL_URI, DAVE, DAVE_URI, MALLORY, Network, Request, SIXTY_FOUR_T1, Script,
    Seen, script,
};
use std::net::SocketAddr;

/// A call that was forked in parallel to all callees named, each of which received its INVITE.
fn forked(callees: &[(SocketAddr, &str)]) -> (Network, Request, Vec<Seen>) {
    let targets: Vec<(&str, u16)> = callees.iter().map(|&(_, uri)| (uri, 1000)).collect();
    let mut network = Network::new(Script::fork(&targets));
    let invite = Request::invite(1);
    network.alice(&invite);
    let received = callees.iter().map(|&(at, _)| network.only(at, "INVITE")).collect();
    network.take(ALICE);
    (network, invite, received)
}

const THREE: [(SocketAddr, &str); 3] = [(BOB, BOB_URI), (CAROL, CAROL_URI), (DAVE, DAVE_URI)];
const TWO: [(SocketAddr, &str); 2] = [(BOB, BOB_URI), (CAROL, CAROL_URI)];

/// Answers the CANCEL that `at` got, and the INVITE with 487.
fn obey_cancel(network: &mut Network, at: SocketAddr, invite: &Seen) {
    let cancel = network.only(at, "CANCEL");
    network.send(at, cancel.respond(200, "x"));
    network.send(at, invite.respond(487, "x"));
}

/// The labels of all final responses to the INVITE that Alice got.
fn finals(network: &Network) -> Vec<String> {
    network.finals(ALICE, "INVITE").iter().map(Seen::label).collect()
}

/// RFC 3261 §16.6: equal q, in parallel; each with its own Request-URI and its own branch.
#[test]
fn targets_of_equal_q_are_tried_in_parallel() {
    let (_, _, received) = forked(&THREE);
    let uris: Vec<String> = received.iter().map(Seen::uri).collect();
    assert_eq!(uris, [BOB_URI, CAROL_URI, DAVE_URI]);
    assert_ne!(received[0].branch(), received[1].branch());
    assert_ne!(received[1].branch(), received[2].branch());
    assert_ne!(received[0].branch(), received[2].branch());
    assert!(received.iter().all(|seen| seen.values("Max-Forwards") == ["69"] && seen.at == 0));
}

/// RFC 3261 §16.7 items 5 and 10: one answers, the others are cancelled, their 487 are absorbed, one final goes up.
#[test]
fn one_answers_and_the_others_are_cancelled() {
    let (mut network, invite, received) = forked(&THREE);
    network.send(BOB, received[0].respond(180, "bob"));
    network.send(CAROL, received[1].respond(180, "carol"));
    network.send(DAVE, received[2].respond(183, "dave"));
    assert_eq!(network.labels(ALICE), ["180", "180", "183"], "all provisionals are forwarded");
    network.until_ms(1000);
    network.send(CAROL, received[1].accept("carol"));
    let ok = network.one(ALICE);
    assert_eq!(ok.to_tag().as_deref(), Some("carol"));
    obey_cancel(&mut network, BOB, &received[0]);
    obey_cancel(&mut network, DAVE, &received[2]);
    assert_eq!(network.labels(BOB), ["ACK"], "the 487 is acknowledged by us");
    assert_eq!(network.labels(DAVE), ["ACK"]);
    network.assert_quiet(CAROL);
    network.alice(&invite.ack_2xx(&ok));
    assert_eq!(network.labels(CAROL), ["ACK"]);
    network.settle();
    assert_eq!(finals(&network), ["200"]);
}

/// RFC 3261 §9.1: a branch without any provisional response is not cancelled before one comes.
#[test]
fn a_silent_loser_is_cancelled_when_its_first_provisional_comes() {
    let (mut network, _, received) = forked(&TWO);
    network.send(BOB, received[0].accept("bob"));
    network.assert_quiet(CAROL);
    network.until_ms(300);
    network.send(CAROL, received[1].respond(180, "carol"));
    assert_eq!(network.sent_at(CAROL, "CANCEL"), [300]);
    assert_eq!(network.sent_at(ALICE, "180"), Vec::<u64>::new(), "no provisional after the final");
    obey_cancel(&mut network, CAROL, &received[1]);
    network.settle();
    assert_eq!(finals(&network), ["200"]);
}

/// RFC 3261 §16.7 item 5: "Any 2xx response to an INVITE request" is forwarded, even after another.
#[test]
fn two_2xx_are_both_forwarded() {
    let (mut network, _, received) = forked(&TWO);
    network.send(BOB, received[0].respond(180, "bob"));
    network.send(CAROL, received[1].respond(180, "carol"));
    network.send(BOB, received[0].accept("bob"));
    network.send(CAROL, received[1].accept("carol"));
    let tags: Vec<_> = network.finals(ALICE, "INVITE").iter().filter_map(Seen::to_tag).collect();
    assert_eq!(tags, ["bob", "carol"]);
    network.settle();
}

/// RFC 3261 §16.7 items 5 and 6: a failure waits until all branches have ended.
#[test]
fn failures_wait_for_the_last_branch() {
    let (mut network, _, received) = forked(&THREE);
    network.send(BOB, received[0].respond(486, "bob"));
    network.send(CAROL, received[1].respond(404, "carol"));
    network.assert_quiet(ALICE);
    assert_eq!(network.sent_at(BOB, "ACK"), [0], "acknowledged at once");
    network.until_ms(5000);
    network.send(DAVE, received[2].respond(480, "dave"));
    assert_eq!(finals(&network).len(), 1);
    assert_eq!(network.take(ALICE).len(), 1);
    network.settle();
    assert_eq!(finals(&network).len(), 1);
}

/// The status that goes upstream when the callees answer so, in this order.
fn best_of(statuses: &[u16]) -> u16 {
    let addresses = [(BOB, BOB_URI), (CAROL, CAROL_URI), (DAVE, DAVE_URI), (MALLORY, "sip:m@10.0.9.9:5060")];
    let callees = &addresses[..statuses.len()];
    let (mut network, invite, received) = forked(callees);
    for ((&status, &(at, _)), invite) in statuses.iter().zip(callees).zip(&received) {
        network.send(at, invite.respond(status, &format!("tag-{status}")));
    }
    let finals = network.finals(ALICE, "INVITE");
    assert_eq!(finals.len(), 1, "{statuses:?}: exactly one final response\n{}", network.ladder());
    network.alice(&invite.ack(&finals[0]));
    network.settle();
    assert_eq!(network.finals(ALICE, "INVITE").len(), 1);
    finals[0].status().expect("a response")
}

/// RFC 3261 §16.7 item 6: 6xx first, then the lowest class, preferring what tells how to try again; a lone 503 is 500.
#[test]
fn the_best_response_is_chosen() {
    let table: [(&[u16], u16); 17] = [
        (&[486], 486),
        (&[404, 503], 404),
        (&[404, 500], 404),
        (&[302, 404], 302),
        (&[302, 503, 404], 302),
        (&[600, 302], 600),
        (&[603, 404, 500], 603),
        (&[503, 407, 501, 404], 407),
        (&[486, 401], 401),
        (&[486, 407], 407),
        (&[404, 415], 415),
        (&[486, 420], 420),
        (&[480, 484], 484),
        (&[500, 501], 0),
        (&[503], 500),
        (&[503, 503], 500),
        (&[503, 500], 500),
    ];
    for (statuses, expected) in table {
        let backwards: Vec<u16> = statuses.iter().rev().copied().collect();
        for order in [statuses, &backwards[..]] {
            let best = best_of(order);
            if expected == 0 {
                assert!(statuses.contains(&best), "any of its class: {order:?} gave {best}");
            } else {
                assert_eq!(best, expected, "{order:?}");
            }
        }
    }
}

/// RFC 3261 §16.7 item 6 keeps the To tag of a response that is simply forwarded.
#[test]
fn the_best_response_keeps_its_to_tag_and_body() {
    let (mut network, _, received) = forked(&TWO);
    network.send(BOB, received[0].respond(500, "bob"));
    network.send(CAROL, received[1].respond_with(302, "carol", &["Contact: <sip:c@192.0.2.9>"], "moved"));
    let best = network.one(ALICE);
    assert_eq!(best.to_tag().as_deref(), Some("carol"));
    assert_eq!(best.header("Contact").as_deref(), Some("<sip:c@192.0.2.9>"));
    assert_eq!(best.body(), "moved");
}

/// RFC 3261 §16.7 item 7: all challenges of all 401 and 407 go upstream.
#[test]
fn challenges_are_collected() {
    let (mut network, _, received) = forked(&THREE);
    let (a, b) = (
        "WWW-Authenticate: Digest realm=\"bob\", nonce=\"1,2\"",
        "Proxy-Authenticate: Digest realm=\"carol\", nonce=\"3\"",
    );
    let c = "WWW-Authenticate: Digest realm=\"dave\", nonce=\"4\"";
    network.send(BOB, received[0].respond_with(401, "bob", &[a], ""));
    network.send(CAROL, received[1].respond_with(407, "carol", &[b], ""));
    network
        .send(DAVE, received[2].respond_with(401, "dave", &[c, "Proxy-Authenticate: Basic realm=\"e\""], ""));
    let best = network.one(ALICE);
    assert!([Some(401), Some(407)].contains(&best.status()));
    let text = best.text();
    for line in [a, b, c, "Proxy-Authenticate: Basic realm=\"e\""] {
        assert_eq!(text.matches(line).count(), 1, "{line}\n{text}");
    }
}

/// RFC 8760 §2.5: the challenges of one response keep their order, whichever response they are added to.
#[test]
fn challenges_of_one_response_keep_their_order() {
    let bobs = [
        "Proxy-Authenticate: Digest realm=\"bob\", nonce=\"1\", algorithm=SHA-512-256",
        "WWW-Authenticate: Digest realm=\"bob\", nonce=\"1\", algorithm=SHA-256",
        "Proxy-Authenticate: Digest realm=\"bob\", nonce=\"1\", algorithm=MD5",
    ];
    let carols = [
        "WWW-Authenticate: Digest realm=\"carol\", nonce=\"2\", algorithm=SHA-256",
        "WWW-Authenticate: Digest realm=\"carol\", nonce=\"2\", algorithm=MD5",
    ];
    for bob_is_first in [true, false] {
        let (mut network, _, received) = forked(&TWO);
        let bob = |network: &mut Network| {
            network.send(BOB, received[0].respond_with(407, "bob", &bobs, ""));
        };
        if bob_is_first {
            bob(&mut network);
        }
        network.send(CAROL, received[1].respond_with(401, "carol", &carols, ""));
        if !bob_is_first {
            bob(&mut network);
        }
        let text = network.one(ALICE).text();
        for lines in [&bobs[..], &carols[..]] {
            let places: Vec<_> = lines.iter().map(|line| text.find(line)).collect();
            assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}\n{text}");
        }
    }
}

/// RFC 3261 §16.7 item 5: a 6xx cancels the others at once, and goes upstream when they have ended.
#[test]
fn a_6xx_cancels_the_others_and_wins() {
    let (mut network, _, received) = forked(&THREE);
    network.send(CAROL, received[1].respond(180, "carol"));
    network.send(DAVE, received[2].respond(180, "dave"));
    network.take(ALICE);
    network.send(BOB, received[0].respond(603, "bob"));
    network.assert_quiet(ALICE);
    obey_cancel(&mut network, CAROL, &received[1]);
    network.assert_quiet(ALICE);
    obey_cancel(&mut network, DAVE, &received[2]);
    assert_eq!(network.labels(ALICE), ["603"]);
    network.settle();
    assert_eq!(finals(&network), ["603"]);
}

/// RFC 3261 §16.7 item 5: a 2xx that crosses the CANCEL of a 6xx is forwarded, and the 6xx is not.
#[test]
fn a_2xx_that_crosses_a_6xx_is_the_only_final() {
    let (mut network, _, received) = forked(&TWO);
    network.send(CAROL, received[1].respond(180, "carol"));
    network.send(BOB, received[0].respond(600, "bob"));
    network.send(CAROL, received[1].accept("carol"));
    network.settle();
    assert_eq!(finals(&network), ["200"]);
}

/// RFC 3261 §16.7 item 5: after a 6xx no new branches are created.
#[test]
fn a_6xx_ends_the_search() {
    let mut network = Network::new(Script::fork(&[(BOB_URI, 1000), (CAROL_URI, 500)]));
    network.alice(&Request::invite(1));
    let received = network.only(BOB, "INVITE");
    network.send(BOB, received.respond(600, "bob"));
    network.settle();
    assert!(network.all(CAROL).is_empty());
    assert_eq!(finals(&network), ["600"]);
}

// --- serial ------------------------------------------------------------------------------------------------------

/// RFC 3261 §16.6: from the highest q to the lowest, group by group.
#[test]
fn the_next_q_is_tried_after_a_failure() {
    let mut network = Network::new(Script::fork(&[(DAVE_URI, 100), (CAROL_URI, 500), (BOB_URI, 1000)]));
    network.alice(&Request::invite(1));
    let bob = network.only(BOB, "INVITE");
    network.assert_quiet(CAROL);
    network.until_ms(100);
    network.send(BOB, bob.respond(486, "bob"));
    let carol = network.only(CAROL, "INVITE");
    network.assert_quiet(DAVE);
    network.until_ms(200);
    network.send(CAROL, carol.respond(480, "carol"));
    let dave = network.only(DAVE, "INVITE");
    assert_eq!(network.take(ALICE).iter().filter_map(Seen::status).collect::<Vec<_>>(), [100]);
    network.send(DAVE, dave.accept("dave"));
    network.settle();
    assert_eq!(finals(&network), ["200"]);
}

/// The same after silence: Timer B of the first group starts the second.
#[test]
fn the_next_q_is_tried_after_a_timeout() {
    let mut network = Network::new(Script::fork(&[(BOB_URI, 1000), (CAROL_URI, 500)]));
    network.alice(&Request::invite(1));
    network.until_ms(SIXTY_FOUR_T1 + 600);
    assert_eq!(network.sent_at(CAROL, "INVITE"), [SIXTY_FOUR_T1, SIXTY_FOUR_T1 + 500]);
    let carol = network.take(CAROL).remove(0);
    network.send(CAROL, carol.accept("carol"));
    assert_eq!(finals(&network), ["200"]);
    network.settle();
    assert_eq!(network.sent_at(BOB, "INVITE").len(), 7);
}

/// A 2xx ends the search.
#[test]
fn the_next_q_is_not_tried_after_a_2xx() {
    let mut network = Network::new(Script::fork(&[(BOB_URI, 1000), (CAROL_URI, 500)]));
    network.alice(&Request::invite(1));
    let bob = network.only(BOB, "INVITE");
    network.send(BOB, bob.accept("bob"));
    network.settle();
    assert!(network.all(CAROL).is_empty());
}

/// The best response is chosen among all groups.
#[test]
fn the_best_response_is_chosen_among_all_groups() {
    let mut network = Network::new(Script::fork(&[(BOB_URI, 1000), (CAROL_URI, 500)]));
    network.alice(&Request::invite(1));
    let bob = network.only(BOB, "INVITE");
    network.send(BOB, bob.respond(302, "bob"));
    let carol = network.only(CAROL, "INVITE");
    network.send(CAROL, carol.respond(404, "carol"));
    assert_eq!(finals(&network), ["302"]);
    network.settle();
}

/// RFC 3261 §16.5: "Targets can only be placed in the target set once" (equality by §19.1.4).
#[test]
fn the_same_target_is_tried_once() {
    let same =
        [(BOB_URI, 1000), (BOB_URI, 1000), ("SIP:bob@10.0.2.1:5060", 1000), ("sip:%62ob@10.0.2.1:5060", 500)];
    let mut network = Network::new(Script::fork(&same));
    network.alice(&Request::invite(1));
    let bob = network.only(BOB, "INVITE");
    network.send(BOB, bob.respond(486, "bob"));
    assert_eq!(finals(&network), ["486"]);
    network.settle();
    assert_eq!(network.sent_at(BOB, "INVITE"), [0]);
}

/// RFC 4320 §4.2: the second target of a serial search answers when the client has given up: nobody hears it, and nothing
/// is left.
#[test]
fn a_late_success_of_a_non_invite_leaves_nothing() {
    let mut network = Network::new(Script::fork(&[(BOB_URI, 1000), (CAROL_URI, 500)]));
    network.alice(&Request::options(1));
    network.until_ms(SIXTY_FOUR_T1 + 100);
    let received = network.take(CAROL).pop().expect("an OPTIONS");
    network.send(CAROL, received.respond(200, "carol"));
    assert!(network.sent_at(ALICE, "200").is_empty());
    network.settle();
}

/// The same with a failure, whether it is forwarded as it comes or chosen from several.
#[test]
fn a_late_failure_of_a_non_invite_goes_nowhere() {
    for first in [None, Some(404)] {
        let mut network = Network::new(Script::fork(&[(BOB_URI, 1000), (CAROL_URI, 500)]));
        network.alice(&Request::options(1));
        let received = network.only(BOB, "OPTIONS");
        if let Some(status) = first {
            network.until_ms(10_000);
            network.send(BOB, received.respond(status, "bob"));
        }
        network.until_ms(SIXTY_FOUR_T1 + 100);
        let received = network.take(CAROL).pop().expect("an OPTIONS");
        network.send(CAROL, received.respond(486, "carol"));
        assert_eq!(network.labels(ALICE), ["100"]);
        // A copy of the request that was under way is absorbed.
        network.alice(&Request::options(1));
        network.assert_quiet(CAROL);
        network.settle();
        assert!(network.take(ALICE).iter().all(|seen| seen.status() == Some(100)));
    }
}

/// RFC 3261 §16.7 item 6: no final response from anybody: 408, once.
#[test]
fn all_branches_time_out_to_one_408() {
    let (mut network, invite, _) = forked(&THREE);
    network.until_ms(SIXTY_FOUR_T1);
    assert_eq!(network.sent_at(ALICE, "408"), [SIXTY_FOUR_T1]);
    let timeout = network.one(ALICE);
    network.alice(&invite.ack(&timeout));
    network.settle();
    assert_eq!(finals(&network), ["408"]);
    for at in [BOB, CAROL, DAVE] {
        assert_eq!(network.sent_at(at, "INVITE").len(), 7);
    }
}

/// A silent branch loses against one that answered with a failure.
#[test]
fn a_real_response_is_better_than_a_timeout() {
    let (mut network, _, received) = forked(&TWO);
    network.send(BOB, received[0].respond(404, "bob"));
    network.until_ms(SIXTY_FOUR_T1 - 1);
    network.assert_quiet(ALICE);
    network.until_ms(SIXTY_FOUR_T1);
    assert_eq!(finals(&network), ["404"]);
    network.settle();
}

/// RFC 3261 §16.7 item 6, for a non-INVITE: exactly one final response, and nobody is cancelled (§9.1).
#[test]
fn a_forked_non_invite_has_one_final_response() {
    let mut network = Network::new(Script::fork(&[(BOB_URI, 1000), (CAROL_URI, 1000)]));
    network.alice(&Request::new("MESSAGE", 1));
    let bob = network.only(BOB, "MESSAGE");
    let carol = network.only(CAROL, "MESSAGE");
    network.send(BOB, bob.respond(200, "bob"));
    network.send(CAROL, carol.respond(200, "carol"));
    network.settle();
    assert_eq!(network.finals(ALICE, "MESSAGE").len(), 1);
    assert!(network.sent_at(CAROL, "CANCEL").is_empty());
}

// --- CANCEL (RFC 3261 §9, §16.10) --------------------------------------------------------------------------------

/// RFC 3261 §16.10: 200 to the CANCEL at once; every ringing branch is cancelled; one 487 goes upstream.
#[test]
fn a_cancel_reaches_every_ringing_branch() {
    let (mut network, invite, received) = forked(&THREE);
    for (n, &(at, _)) in THREE.iter().enumerate() {
        network.send(at, received[n].respond(180, &format!("callee-{n}")));
    }
    network.take(ALICE);
    network.until_ms(1000);
    network.alice(&invite.cancel());
    let ok = network.one(ALICE);
    assert_eq!((ok.status(), ok.cseq_method().as_str()), (Some(200), "CANCEL"));
    assert!(ok.to_tag().is_some(), "RFC 3261 §9.2, §8.2.6.2");
    for (n, &(at, _)) in THREE.iter().enumerate() {
        network.assert_quiet(ALICE);
        obey_cancel(&mut network, at, &received[n]);
    }
    let terminated = network.one(ALICE);
    assert_eq!(terminated.status(), Some(487));
    network.alice(&invite.ack(&terminated));
    network.settle();
    assert_eq!(finals(&network), ["487"]);
}

/// RFC 3261 §9.1: the CANCEL waits for the first provisional response of its branch.
#[test]
fn a_cancel_before_any_provisional_waits() {
    let (mut network, invite, received) = forked(&TWO);
    network.until_ms(100);
    network.alice(&invite.cancel());
    assert_eq!(network.labels(ALICE), ["200"]);
    network.assert_quiet(BOB);
    network.until_ms(200);
    network.send(BOB, received[0].respond(100, ""));
    assert_eq!(network.sent_at(BOB, "CANCEL"), [200]);
    network.until_ms(300);
    network.send(CAROL, received[1].respond(180, "carol"));
    assert_eq!(network.sent_at(CAROL, "CANCEL"), [300]);
    obey_cancel(&mut network, BOB, &received[0]);
    obey_cancel(&mut network, CAROL, &received[1]);
    network.settle();
    assert_eq!(finals(&network), ["487"]);
}

/// RFC 3261 §9.1: a final response that comes instead ends the matter: there is nothing to cancel.
#[test]
fn a_cancel_that_is_overtaken_by_an_answer_does_nothing() {
    let (mut network, invite, received) = forked(&TWO[..1]);
    network.alice(&invite.cancel());
    network.send(BOB, received[0].accept("bob"));
    network.settle();
    assert_eq!(finals(&network), ["200"]);
    assert!(network.sent_at(BOB, "CANCEL").is_empty());
}

/// RFC 3261 §9.2: a CANCEL after the final response is answered 200 and changes nothing.
#[test]
fn a_cancel_after_the_final_changes_nothing() {
    let (mut network, invite, received) = forked(&TWO[..1]);
    network.send(BOB, received[0].accept("bob"));
    network.take(ALICE);
    network.take(BOB);
    network.alice(&invite.cancel());
    assert_eq!(network.labels(ALICE), ["200"]);
    network.assert_quiet(BOB);
    network.settle();
}

/// A retransmitted CANCEL gets its 200 again, and callees no second CANCEL (RFC 3261 §17.2.2).
#[test]
fn a_retransmitted_cancel_is_answered_again_and_not_passed_on() {
    let (mut network, invite, received) = forked(&TWO[..1]);
    network.send(BOB, received[0].respond(180, "bob"));
    network.take(ALICE);
    network.alice(&invite.cancel());
    let first = network.one(ALICE);
    network.alice(&invite.cancel());
    assert_eq!(network.one(ALICE).bytes, first.bytes);
    assert_eq!(network.sent_at(BOB, "CANCEL"), [0]);
}

/// RFC 3261 §16.10, §16.6: a cancelled call tries nobody else.
#[test]
fn a_cancel_ends_a_serial_search() {
    let mut network = Network::new(Script::fork(&[(BOB_URI, 1000), (CAROL_URI, 500)]));
    let invite = Request::invite(1);
    network.alice(&invite);
    let bob = network.only(BOB, "INVITE");
    network.send(BOB, bob.respond(180, "bob"));
    network.alice(&invite.cancel());
    obey_cancel(&mut network, BOB, &bob);
    network.settle();
    assert!(network.all(CAROL).is_empty(), "{}", network.ladder());
    assert_eq!(finals(&network), ["487"]);
}

/// RFC 3261 §9.2: a CANCEL matches by branch and sent-by; a stranger's does not end the call.
#[test]
fn a_cancel_with_another_branch_cancels_nothing() {
    let (mut network, invite, received) = forked(&TWO[..1]);
    network.send(BOB, received[0].respond(180, "bob"));
    let mut cancel = invite.cancel().branch("z9hG4bK-guess").uri("sip:nobody@10.0.9.9:5060");
    network.send(MALLORY, cancel.bytes());
    cancel.vias[0] = "SIP/2.0/UDP 10.0.9.9:5060;branch=z9hG4bK-alice-1-INVITE".into();
    network.send(MALLORY, cancel.bytes());
    assert!(network.sent_at(BOB, "CANCEL").is_empty());
}

/// A cancelled branch that never answers the INVITE is given up 64*T1 later (RFC 3261 §9.1).
#[test]
fn a_cancelled_branch_that_stays_silent_is_given_up() {
    let (mut network, invite, received) = forked(&TWO[..1]);
    network.send(BOB, received[0].respond(180, "bob"));
    network.until_ms(1000);
    network.alice(&invite.cancel());
    let cancel = network.only(BOB, "CANCEL");
    network.send(BOB, cancel.respond(200, "bob"));
    network.until_ms(1000 + SIXTY_FOUR_T1 + 10);
    assert_eq!(finals(&network).len(), 1, "the caller is not left waiting\n{}", network.ladder());
    assert!(["408", "487"].contains(&finals(&network)[0].as_str()));
    network.settle();
}

// --- on_failure (serial forking by the script) ---------------------------------------------------------------------

/// RFC 3261 §16.5: targets may be added after failures; the failure of the first does not go upstream.
#[test]
fn on_failure_may_relay_again() {
    let script = Script::fork(&[(BOB_URI, 1000)]).on_failure(|cx| {
        if cx.state.failures == 0 {
            cx.state.failures += 1;
            let _ = cx.append_target(&script::target(CAROL_URI, 1000));
            let _ = cx.relay();
        }
    });
    let mut network = Network::new(script);
    network.alice(&Request::invite(1));
    let bob = network.only(BOB, "INVITE");
    network.take(ALICE);
    network.send(BOB, bob.respond(486, "bob"));
    network.assert_quiet(ALICE);
    let carol = network.only(CAROL, "INVITE");
    assert_eq!(carol.uri(), CAROL_URI);
    assert_ne!(carol.branch(), bob.branch());
    assert_eq!(carol.vias().len(), 2);
    network.send(CAROL, carol.respond(180, "carol"));
    assert_eq!(network.labels(ALICE), ["180"]);
    network.send(CAROL, carol.accept("carol"));
    network.settle();
    assert_eq!(finals(&network), ["200"]);
    assert_eq!(network.engine.user().count("failure"), 1);
}

/// The second attempt fails too: its failure is reported, and one response goes upstream.
#[test]
fn on_failure_is_called_for_each_round() {
    let script = Script::fork(&[(BOB_URI, 1000)]).on_failure(|cx| {
        cx.state.failures += 1;
        if cx.state.failures == 1 {
            let _ = cx.append_target(&script::target(CAROL_URI, 1000));
            let _ = cx.relay();
        }
    });
    let mut network = Network::new(script);
    network.alice(&Request::invite(1));
    let bob = network.only(BOB, "INVITE");
    network.send(BOB, bob.respond(486, "bob"));
    let carol = network.only(CAROL, "INVITE");
    network.send(CAROL, carol.respond(480, "carol"));
    assert_eq!(network.engine.user().count("failure"), 2);
    network.settle();
    assert_eq!(finals(&network).len(), 1);
}

/// The script may answer something else than the best response.
#[test]
fn on_failure_may_reply_something_else() {
    let script = Script::fork(&[(BOB_URI, 1000)]).on_failure(|cx| {
        let _ = cx.reply(480, b"Nobody there", b"X-Why: because\r\n", b"");
    });
    let mut network = Network::new(script);
    network.alice(&Request::invite(1));
    let bob = network.only(BOB, "INVITE");
    network.take(ALICE);
    network.send(BOB, bob.respond(486, "bob"));
    let response = network.one(ALICE);
    assert_eq!(response.status(), Some(480));
    assert_eq!(response.header("X-Why").as_deref(), Some("because"));
    network.settle();
    assert_eq!(finals(&network), ["480"]);
}

/// A timeout is a failure too.
#[test]
fn on_failure_is_called_for_a_timeout() {
    let script = Script::fork(&[(BOB_URI, 1000)]).on_failure(|cx| {
        if cx.state.failures == 0 {
            cx.state.failures += 1;
            let _ = cx.append_target(&script::target(CAROL_URI, 1000));
            let _ = cx.relay();
        }
    });
    let mut network = Network::new(script);
    network.alice(&Request::invite(1));
    network.until_ms(SIXTY_FOUR_T1);
    assert_eq!(network.sent_at(CAROL, "INVITE"), [SIXTY_FOUR_T1]);
    let carol = network.only(CAROL, "INVITE");
    network.send(CAROL, carol.accept("carol"));
    network.settle();
    assert_eq!(finals(&network), ["200"]);
}

/// A cancelled call does not run into new attempts.
#[test]
fn on_failure_cannot_revive_a_cancelled_call() {
    let script = Script::fork(&[(BOB_URI, 1000)]).on_failure(|cx| {
        let _ = cx.append_target(&script::target(CAROL_URI, 1000));
        let _ = cx.relay();
    });
    let mut network = Network::new(script);
    let invite = Request::invite(1);
    network.alice(&invite);
    let bob = network.only(BOB, "INVITE");
    network.send(BOB, bob.respond(180, "bob"));
    network.alice(&invite.cancel());
    obey_cancel(&mut network, BOB, &bob);
    network.settle();
    assert!(network.all(CAROL).is_empty(), "{}", network.ladder());
    assert_eq!(finals(&network), ["487"]);
}

/// RFC 3261 §16.7 item 2: Timer C runs per branch.
#[test]
fn timer_c_runs_per_branch() {
    let timer_c = u64::try_from(rig::config().timers.timer_c.as_millis()).expect("a sane timer");
    let (mut network, _, received) = forked(&TWO);
    network.send(BOB, received[0].respond(180, "bob"));
    network.send(CAROL, received[1].respond(180, "carol"));
    network.until_ms(60_000);
    network.send(CAROL, received[1].respond(180, "carol"));
    network.until_ms(timer_c);
    assert_eq!(network.sent_at(BOB, "CANCEL"), [timer_c]);
    assert!(network.sent_at(CAROL, "CANCEL").is_empty());
    network.until_ms(timer_c + 60_000);
    assert_eq!(network.sent_at(CAROL, "CANCEL").first(), Some(&(timer_c + 60_000)));
}

/// A callee that answers from a dropped branch: `on_reply` may drop a response, the transaction goes on without it.
#[test]
fn on_reply_may_drop_a_provisional() {
    let script = Script::fork(&[(BOB_URI, 1000)]).on_reply(|cx| {
        if cx.message().status() == Some(183) {
            engine::ReplyVerdict::Drop
        } else {
            engine::ReplyVerdict::Forward
        }
    });
    let mut network = Network::new(script);
    network.alice(&Request::invite(1));
    let bob = network.only(BOB, "INVITE");
    network.take(ALICE);
    network.send(BOB, bob.respond(183, "bob"));
    network.assert_quiet(ALICE);
    network.send(BOB, bob.respond(180, "bob"));
    assert_eq!(network.labels(ALICE), ["180"]);
}

/// Changes that `on_branch` makes are that branch's alone.
#[test]
fn on_branch_changes_its_own_branch_only() {
    let script = Script::fork(&[(BOB_URI, 1000), (CAROL_URI, 1000)]).on_branch(|cx| {
        if cx.request_uri() == CAROL_URI.as_bytes() {
            let message = cx.message();
            cx.edits.append_header(&message, b"X-For: carol\r\n");
            cx.set_request_uri(b"sip:c2@10.0.2.2:5060");
        }
        engine::BranchVerdict::Send
    });
    let mut network = Network::new(script);
    network.alice(&Request::invite(1));
    let (bob, carol) = (network.only(BOB, "INVITE"), network.only(CAROL, "INVITE"));
    assert_eq!((bob.header("X-For"), bob.uri().as_str()), (None, BOB_URI));
    assert_eq!(
        (carol.header("X-For").as_deref(), carol.uri().as_str()),
        (Some("carol"), "sip:c2@10.0.2.2:5060")
    );
}

/// A branch that `on_branch` drops is never made; the others go on, and their end is the end.
#[test]
fn on_branch_may_drop_a_branch() {
    let script = Script::fork(&[(BOB_URI, 1000), (CAROL_URI, 1000)]).on_branch(|cx| {
        if cx.request_uri() == BOB_URI.as_bytes() {
            engine::BranchVerdict::Drop
        } else {
            engine::BranchVerdict::Send
        }
    });
    let mut network = Network::new(script);
    network.alice(&Request::invite(1));
    let carol = network.only(CAROL, "INVITE");
    network.send(CAROL, carol.respond(486, "carol"));
    assert_eq!(finals(&network), ["486"]);
    network.settle();
    assert!(network.all(BOB).is_empty());
}

/// Where every branch is dropped the caller still gets one final response.
#[test]
fn on_branch_may_drop_every_branch() {
    let script = Script::fork(&[(BOB_URI, 1000)]).on_branch(|_| engine::BranchVerdict::Drop);
    let mut network = Network::new(script);
    network.alice(&Request::invite(1));
    network.settle();
    assert_eq!(finals(&network).len(), 1, "{}", network.ladder());
    assert!(network.all(BOB).is_empty());
}
