//! Scripts that wait for an answer from outside: nothing blocks, nothing is lost, nothing is done twice.

mod rig;

use std::time::Duration;

use engine::Answer;
use rig::{ALICE, BOB, BOB_URI, Network, Request, SIXTY_FOUR_T1, Script, Seen, config, labels, script};

const DEADLINE: Duration = Duration::from_secs(2);

/// Suspends, then goes to Bob where there was an answer, and replies 500 where there was none.
fn lookup() -> Script {
    Script::suspend(DEADLINE).answer(|cx, suspended, answer| {
        assert_eq!(suspended, 7, "what was kept comes back");
        match answer {
            Answer::Addresses(_) => {
                if script::is_for_us(cx) {
                    cx.set_request_uri(BOB_URI.as_bytes());
                }
                let _ = cx.relay();
            }
            _ => {
                let _ = cx.reply(500, b"No answer", b"", b"");
            }
        }
        rig::done()
    })
}

/// The script resumes with its answer and the same message.
#[test]
fn a_suspended_script_resumes_with_its_answer() {
    let mut network = Network::new(lookup());
    let invite = Request::invite(1);
    network.alice(&invite);
    network.assert_quiet(BOB);
    assert_eq!(network.asks.len(), 1);
    assert_eq!(network.asks[0].2, sip::Instant::ZERO + DEADLINE, "the deadline that the script gave");
    network.until_ms(100);
    network.answer(Answer::Addresses(&[BOB.ip()]));
    let received = network.only(BOB, "INVITE");
    assert_eq!(received.body(), invite.body);
    assert_eq!(received.vias().len(), 2);
    network.send(BOB, received.accept("bob"));
    assert_eq!(network.sent_at(ALICE, "200"), [100]);
    assert_eq!(network.engine.user().diary[..3], ["request INVITE", "answer 7", "branch 0"]);
    network.settle();
}

/// `Answer::Failed` from outside.
#[test]
fn a_failed_answer_reaches_the_script() {
    let mut network = Network::new(lookup());
    network.alice(&Request::options(1));
    network.answer(Answer::Failed);
    assert_eq!(network.labels(ALICE), ["500"]);
    network.settle();
}

/// No answer by the deadline is `Answer::Failed`, at that instant; a late answer is nobody's.
#[test]
fn the_deadline_fails_the_question() {
    let mut network = Network::new(lookup());
    network.alice(&Request::options(1));
    network.until_ms(1999);
    network.assert_quiet(ALICE);
    network.until_ms(2000);
    assert_eq!(network.sent_at(ALICE, "500"), [2000]);
    network.answer(Answer::Addresses(&[BOB.ip()]));
    network.assert_quiet(BOB);
    assert_eq!(network.engine.user().count("answer 7"), 0);
    assert_eq!(network.engine.user().count("failed 7"), 1);
    network.settle();
}

/// An answer counts once.
#[test]
fn a_second_answer_is_ignored() {
    let mut network = Network::new(lookup());
    network.alice(&Request::invite(1));
    let again = network.asks[0].clone();
    network.answer(Answer::Addresses(&[BOB.ip()]));
    network.asks.push(again);
    network.answer(Answer::Addresses(&[BOB.ip()]));
    assert_eq!(network.labels(BOB), ["INVITE"]);
    network.handle(engine::Input::Answer { id: engine::AskId(u64::MAX), answer: Answer::Failed });
    network.assert_quiet(BOB);
    network.settle();
}

/// RFC 3261 §17.2: retransmissions are absorbed while the script waits.
#[test]
fn retransmissions_are_absorbed_while_suspended() {
    let mut network = Network::new(lookup());
    let (invite, options) = (Request::invite(1), Request::options(2));
    network.alice(&invite);
    network.alice(&options);
    for at in [500, 1500] {
        network.until_ms(at);
        network.alice(&invite);
        network.alice(&options);
    }
    assert_eq!(network.asks.len(), 2);
    assert_eq!(network.engine.user().diary, ["request INVITE", "request OPTIONS"]);
    assert!(network.finals(ALICE, "OPTIONS").is_empty());
    network.answer(Answer::Addresses(&[BOB.ip()]));
    network.answer(Answer::Addresses(&[BOB.ip()]));
    assert_eq!(labels(&network.take(BOB)), ["INVITE", "OPTIONS"]);
    network.settle();
}

/// RFC 3261 §9.2: a CANCEL while the script waits is answered 200, the INVITE 487, and nobody is called.
#[test]
fn a_cancel_while_suspended_ends_the_call() {
    let mut network = Network::new(lookup());
    let invite = Request::invite(1);
    network.alice(&invite);
    network.until_ms(100);
    network.alice(&invite.cancel());
    assert_eq!(network.finals(ALICE, "CANCEL").len(), 1);
    network.answer(Answer::Addresses(&[BOB.ip()]));
    let finals: Vec<_> = network.finals(ALICE, "INVITE").iter().map(Seen::label).collect();
    assert_eq!(finals, ["487"], "{}", network.ladder());
    network.settle();
    assert!(network.all(BOB).is_empty(), "{}", network.ladder());
    assert_eq!(network.finals(ALICE, "INVITE").len(), 1);
}

/// The state of the transaction survives suspension.
#[test]
fn the_state_of_the_transaction_survives() {
    let script = Script::new(|cx| {
        cx.state.mark = 42;
        engine::Handled::Suspend {
            state: 7,
            ask: engine::Ask::Resolve { host: "x".into() },
            deadline: DEADLINE,
        }
    })
    .answer(|cx, _, _| {
        let status = if cx.state.mark == 42 { 200 } else { 500 };
        let _ = cx.reply(status, b"Remembered", b"", b"");
        rig::done()
    });
    let mut network = Network::new(script);
    network.alice(&Request::options(1));
    network.answer(Answer::Failed);
    assert_eq!(network.labels(ALICE), ["200"]);
}

/// What the script changed before it waited is in the message that is sent afterwards.
#[test]
fn edits_and_targets_survive() {
    let script = Script::new(|cx| {
        cx.set_request_uri(BOB_URI.as_bytes());
        let message = cx.message();
        cx.edits.append_header(&message, b"X-Before: 1\r\n");
        cx.record_route(b"");
        engine::Handled::Suspend {
            state: 7,
            ask: engine::Ask::Resolve { host: "x".into() },
            deadline: DEADLINE,
        }
    })
    .answer(|cx, _, _| {
        let message = cx.message();
        cx.edits.append_header(&message, b"X-After: 2\r\n");
        let _ = cx.relay();
        rig::done()
    });
    let mut network = Network::new(script);
    network.alice(&Request::invite(1));
    network.answer(Answer::Failed);
    let received = network.only(BOB, "INVITE");
    assert_eq!(received.header("X-Before").as_deref(), Some("1"));
    assert_eq!(received.header("X-After").as_deref(), Some("2"));
    assert_eq!(received.values("Record-Route").len(), 1);
}

/// A script may wait twice.
#[test]
fn a_script_may_suspend_again() {
    let script = Script::suspend(DEADLINE).answer(|cx, suspended, _| {
        if suspended == 7 {
            let ask = engine::Ask::Resolve { host: "again".into() };
            return engine::Handled::Suspend { state: 8, ask, deadline: DEADLINE };
        }
        let _ = cx.reply(200, b"OK", b"", b"");
        rig::done()
    });
    let mut network = Network::new(script);
    network.alice(&Request::options(1));
    network.until_ms(1500);
    network.answer(Answer::Failed);
    assert_eq!(network.asks[0].2, sip::Instant::from_micros(3_500_000));
    network.until_ms(3000);
    network.answer(Answer::Failed);
    assert_eq!(network.sent_at(ALICE, "200"), [3000]);
    assert_eq!(network.engine.user().diary, ["request OPTIONS", "failed 7", "failed 8"]);
    network.settle();
}

/// A script that ends without a word leaves nothing behind: the transaction is dropped in bounded time.
#[test]
fn a_script_that_resumes_and_does_nothing_leaves_nothing() {
    let mut network = Network::new(Script::suspend(DEADLINE).answer(|_, _, _| rig::done()));
    network.alice(&Request::options(1));
    network.alice(&Request::invite(2));
    network.answer(Answer::Failed);
    network.answer(Answer::Failed);
    network.until_ms(10 * SIXTY_FOUR_T1);
    network.settle();
}

/// Past `suspended_max` a request is answered 503 with Retry-After, and the limit recovers.
#[test]
fn too_many_suspended_scripts_are_refused() {
    let mut config = config();
    config.limits.suspended_max = 3;
    let mut network = Network::with(config, lookup());
    for n in 0..4 {
        network.alice(&Request::options(n));
    }
    assert_eq!(network.asks.len(), 3);
    let refused = network.one(ALICE);
    assert_eq!(refused.status(), Some(503));
    assert!(refused.header("Retry-After").is_some());
    assert_eq!(refused.call_id(), Request::options(3).call_id);
    network.answer(Answer::Addresses(&[BOB.ip()]));
    network.alice(&Request::options(5));
    assert_eq!(network.asks.len(), 3, "one place is free again");
    network.settle();
}

/// Ten thousand wait at once; every one gets its own answer.
#[test]
fn ten_thousand_wait_at_once() {
    let mut network = Network::new(lookup());
    for n in 0..10_000 {
        network.alice(&Request::options(n));
    }
    assert_eq!(network.asks.len(), 10_000);
    assert_eq!(network.engine.transactions(), 10_000);
    for n in 0..10_000 {
        // Answers come in another order than questions.
        let at = (n * 7919) % network.asks.len();
        network.asks.swap(0, at);
        network.answer(Answer::Addresses(&[BOB.ip()]));
    }
    let asked: std::collections::BTreeSet<String> = network.take(BOB).iter().map(Seen::call_id).collect();
    assert_eq!(asked.len(), 10_000);
    network.keep_log = false;
    network.settle();
}
