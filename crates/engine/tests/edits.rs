//! Changes to messages past their limits, targets that cannot be written, and the way back that a script forces.

mod rig;

use engine::{Handled, ReplyVerdict, Target};
use rig::{ALICE, BOB, BOB_URI, CAROL, CAROL_URI, Network, Request, Script, invited, script, to_bob};
use sip::MAX_EDITS;
use std::time::Duration;

/// One more than there may be.
fn overflow(edits: &mut sip::Edits, message: &sip::Message<'_>) {
    for _ in 0..=MAX_EDITS {
        edits.append_header(message, b"X-A: 1\r\n");
    }
    assert!(edits.is_overflowed());
}

#[test]
fn a_request_with_too_many_edits_is_answered_500() {
    for stateless in [false, true] {
        let mut network = Network::new(Script::new(move |cx| {
            let message = cx.message();
            overflow(cx.edits, &message);
            let _ = if stateless { cx.forward(Some(BOB_URI.as_bytes())) } else { cx.relay() };
            Handled::Done
        }));
        let invite = Request::invite(1).uri(BOB_URI);
        network.alice(&invite);
        network.assert_quiet(BOB);
        assert_eq!(network.finals(ALICE, "INVITE").last().and_then(rig::Seen::status), Some(500));
        assert_eq!(network.engine.counters().edits_full, 1);
        network.settle();
    }
}

#[test]
fn a_branch_with_too_many_edits_fails_alone() {
    let targets: Vec<(&str, u16)> = vec![(BOB_URI, 1000), (CAROL_URI, 1000)];
    let script = Script::fork(&targets).on_branch(|cx| {
        if cx.index() == 0 {
            let message = cx.message();
            overflow(cx.edits, &message);
        }
        engine::BranchVerdict::Send
    });
    let mut network = Network::new(script);
    network.alice(&Request::invite(1));
    network.assert_quiet(BOB);
    let received = network.only(CAROL, "INVITE");
    network.send(CAROL, received.accept("carol"));
    assert_eq!(
        network.finals(ALICE, "INVITE").iter().filter_map(rig::Seen::status).collect::<Vec<_>>(),
        [200]
    );
}

#[test]
fn a_response_with_too_many_edits_is_dropped_and_a_failure_becomes_one_of_ours() {
    let script = to_bob().on_reply(|cx| {
        let message = cx.message();
        overflow(cx.edits, &message);
        ReplyVerdict::Forward
    });
    let (mut network, _, received) = invited(script);
    network.take(ALICE);
    network.send(BOB, received.respond(180, "bob"));
    network.assert_quiet(ALICE);
    network.send(BOB, received.respond(486, "bob"));
    let reply = network.one(ALICE);
    assert_eq!((reply.status(), reply.header("X-A")), (Some(486), None), "one of our own");
    assert_eq!(network.engine.counters().edits_full, 2);
    network.settle();
}

#[test]
fn a_success_with_too_many_edits_becomes_a_500() {
    let script = to_bob().on_reply(|cx| {
        let message = cx.message();
        overflow(cx.edits, &message);
        ReplyVerdict::Forward
    });
    let (mut network, _, received) = invited(script);
    network.take(ALICE);
    network.send(BOB, received.accept("bob"));
    assert_eq!(network.one(ALICE).status(), Some(500));
    network.settle();
}

#[test]
fn a_stateless_response_with_too_many_edits_is_dropped() {
    let script = Script::stateless().on_reply(|cx| {
        let message = cx.message();
        overflow(cx.edits, &message);
        ReplyVerdict::Forward
    });
    let mut network = Network::new(script);
    network.alice(&Request::invite(1).uri(BOB_URI));
    let received = network.only(BOB, "INVITE");
    network.send(BOB, received.respond(200, "bob"));
    network.assert_quiet(ALICE);
    assert_eq!(network.engine.counters().edits_full, 1);
}

#[test]
fn what_cannot_be_a_uri_is_no_target() {
    let mut network = Network::new(Script::new(|cx| {
        for bad in
            [&b"sip:x@10.0.2.1\r\nEvil: 1"[..], b"sip:x y@10.0.2.1", b"sip:x@10.0.2.1>", b"sip:x\0@10.0.2.1"]
        {
            cx.set_request_uri(bad);
            assert!(cx.append_target(&Target::new(bad)).is_err());
            let path =
                Target { path: Some(b"<sip:p@10.0.2.1;lr>\r\nEvil: 1"), ..Target::new(b"sip:x@10.0.2.1") };
            assert!(cx.append_target(&path).is_err());
        }
        let _ = cx.relay();
        Handled::Done
    }));
    network.alice(&Request::invite(1).uri(BOB_URI));
    assert_eq!(network.only(BOB, "INVITE").uri(), BOB_URI);
    assert_eq!(network.engine.counters().branches, 1);
}

/// Request-URIs that leave for targets with as many parameters as there may be, equal but for their order.
fn widths(count: usize, params: usize) -> u64 {
    let mut network = Network::new(Script::new(move |cx| {
        for n in 0..count {
            let mut uri = String::from(BOB_URI);
            for param in 0..params {
                uri.push_str(&format!(";p{}=1", (param + n) % params));
            }
            let _ = cx.append_target(&Target::new(uri.as_bytes()));
        }
        let _ = cx.relay();
        Handled::Done
    }));
    network.alice(&Request::invite(1).uri(BOB_URI));
    network.engine.counters().branches
}

#[test]
fn comparisons_of_targets_are_bounded() {
    assert_eq!(widths(10, 3), 1, "RFC 3261 §19.1.4: the order does not matter, nor what only one has");
    // Past the bound, bytes count: further branches up to their limit, and no quadratic work.
    assert!(widths(30, 40) > 1);
}

#[test]
fn a_target_that_was_tried_is_not_tried_again_whatever_it_was_then() {
    let script = Script::fork(&[(BOB_URI, 1000)]).on_failure(|cx| {
        let _ = cx.append_target(&script::target(BOB_URI, 1000));
        let _ = cx.append_target(&script::target(CAROL_URI, 1000));
        let _ = cx.append_target(&script::target(CAROL_URI, 1000));
        let _ = cx.relay();
    });
    let (mut network, _, received) = invited(script);
    network.send(BOB, received.respond(486, "bob"));
    assert_eq!(network.labels(BOB), ["ACK"]);
    let second = network.only(CAROL, "INVITE");
    network.send(CAROL, second.respond(486, "carol"));
    network.settle();
    assert_eq!(network.sent_at(BOB, "INVITE").len() + network.sent_at(CAROL, "INVITE").len(), 2);
}

#[test]
fn a_relayed_response_goes_the_forced_way_also_after_a_failure() {
    let script = to_bob().on_failure(|cx| {
        cx.force_rport();
        let _ = cx.reply(600, b"No", b"", b"");
    });
    let mut network = Network::new(script);
    // Alice's Via names port 5060; behind a NAT she sends from another.
    let natted = std::net::SocketAddr::new(ALICE.ip(), 40_000);
    network.send(natted, Request::invite(1).bytes());
    let received = network.only(BOB, "INVITE");
    network.send(BOB, received.respond(180, "bob"));
    assert!(network.labels(ALICE).contains(&"180".to_owned()), "not forced yet");
    network.send(BOB, received.respond(486, "bob"));
    let reply = network.one(natted);
    assert_eq!(reply.status(), Some(600));
    assert!(reply.vias()[0].contains(";rport=40000"), "{}", reply.text());
}

#[test]
fn timeouts_are_for_what_is_relayed_afterwards() {
    let script = Script::new(|cx| {
        cx.set_timeouts(None, Some(Duration::from_secs(2)));
        cx.set_request_uri(BOB_URI.as_bytes());
        let _ = cx.relay();
        done()
    })
    .on_failure(|cx| {
        if !cx.branches().any_replied {
            cx.set_timeouts(None, None);
            let _ = cx.append_target(&script::target(CAROL_URI, 1000));
            let _ = cx.relay();
        }
    });
    let mut network = Network::new(script);
    network.alice(&Request::invite(1));
    network.pass(Duration::from_secs(60));
    assert_eq!(network.sent_at(CAROL, "INVITE").first(), Some(&2_000));
    assert_eq!(network.finals(ALICE, "INVITE").first().map(rig::Seen::ms), Some(34_000));
    network.settle();
}

fn done() -> Handled<script::Suspended> {
    rig::done()
}
