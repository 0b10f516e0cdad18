//! Scripts and branches that wait for answers.

use super::*;
use core::net::IpAddr;

fn asking() -> Script {
    Box::new(|cx| {
        *cx.state += 1;
        cx.edits.append_header(&cx.message(), b"X-Before: 1\r\n");
        cx.set_request_uri(b"sip:callee@192.0.2.20");
        let ask = Ask::Resolve { host: "who.example".to_string() };
        Handled::Suspend { state: 7, ask, deadline: Duration::from_secs(2) }
    })
}

fn asking_rig() -> Rig {
    let mut rig = Rig::new(asking());
    rig.endpoint.user_mut().answer = Box::new(|cx| {
        assert_eq!(*cx.state, 1);
        let _ = cx.relay();
        Handled::Done
    });
    rig
}

#[test]
fn a_suspended_script_goes_on_with_its_answer() {
    let mut rig = asking_rig();
    assert_eq!(kinds(&rig.receive(CALLER, &invite("1"))), ["100"]);
    assert_eq!(kinds(&rig.receive(CALLER, &invite("1"))), ["100"]);
    let (id, _) = rig.asks[0].clone();
    let address: IpAddr = "192.0.2.77".parse().unwrap();
    let sent = rig.input(Input::Answer { id, answer: Answer::Addresses(&[address]) });
    assert_eq!(kinds(&sent), ["INVITE"]);
    assert_eq!((sent[0].to.as_str(), sent[0].header("X-Before")), (CALLEE, "1"));
    assert_eq!(rig.endpoint.user().answers, ["7 Addresses([192.0.2.77])"]);
    // A second answer finds nobody.
    assert!(rig.input(Input::Answer { id, answer: Answer::Failed }).is_empty());
    let sent = rig.receive(CALLEE, &response(&sent[0], "404 Not Found", ""));
    assert_eq!(kinds(&sent), ["ACK", "404"]);
    rig.rest();
}

#[test]
fn its_deadline_answers_for_the_outside() {
    let mut rig = asking_rig();
    let _ = rig.receive(CALLER, &invite("1"));
    let sent = rig.pass(Duration::from_secs(2));
    assert_eq!((sent[0].0, sent[0].1.method()), (2_000, "INVITE"));
    assert_eq!(rig.endpoint.user().answers, ["7 Failed"]);
    rig.rest();
}

#[test]
fn a_cancel_ends_a_suspended_script() {
    let mut rig = asking_rig();
    let _ = rig.receive(CALLER, &invite("1"));
    rig.endpoint.user_mut().script = relay();
    let sent = rig.receive(CALLER, &request("CANCEL", &format!("sip:callee@{CALLEE}"), "1", ""));
    assert_eq!(kinds(&sent), ["200", "487"]);
    let (id, _) = rig.asks[0].clone();
    assert!(rig.input(Input::Answer { id, answer: Answer::Failed }).is_empty());
    assert!(rig.endpoint.user().answers.is_empty());
    rig.rest();
}

#[test]
fn too_many_suspended_scripts_are_refused() {
    let mut config = config();
    config.limits.suspended_max = 1;
    let mut rig = Rig::with(config, asking());
    let _ = rig.receive(CALLER, &invite("1"));
    let sent = rig.receive(CALLER, &invite("2"));
    assert_eq!((kinds(&sent), sent[0].header("Retry-After")), (alloc::vec!["503".to_string()], "5"));
    assert_eq!(rig.endpoint.transactions(), 1);
}

#[test]
fn a_named_next_hop_is_resolved_and_remembered() {
    let mut rig = Rig::new(relay());
    let text = |branch: &str| request("OPTIONS", "sip:callee@Far.Example:5070", branch, "");
    assert!(rig.receive(CALLER, &text("1")).is_empty());
    let (id, ask) = rig.asks[0].clone();
    assert_eq!(ask, Ask::Resolve { host: "far.example".to_string() });
    let addresses: [IpAddr; 2] = ["2001:db8::9".parse().unwrap(), "192.0.2.66".parse().unwrap()];
    let sent = rig.input(Input::Answer { id, answer: Answer::Addresses(&addresses) });
    // No listener speaks IPv6 here: the first address that one can reach.
    assert_eq!((kinds(&sent), sent[0].to.as_str()), (alloc::vec!["OPTIONS".to_string()], "192.0.2.66:5070"));
    assert_eq!(rig.receive(CALLER, &text("2"))[0].to, "192.0.2.66:5070");
    let _ = rig.pass(Duration::from_secs(31));
    let before = rig.asks.len();
    let _ = rig.receive(CALLER, &text("3"));
    assert_eq!(rig.asks.len(), before + 1);
}

#[test]
fn a_name_without_address_fails_the_branch() {
    let mut rig = Rig::new(relay());
    let text = request("INVITE", "sip:callee@nowhere.example", "1", "");
    assert_eq!(kinds(&rig.receive(CALLER, &text)), ["100"]);
    let (id, _) = rig.asks[0].clone();
    assert_eq!(kinds(&rig.input(Input::Answer { id, answer: Answer::Failed })), ["500"]);
    rig.rest();
    // And so does silence.
    let mut rig = Rig::new(relay());
    let _ = rig.receive(CALLER, &text);
    let sent = rig.pass(Duration::from_secs(5));
    assert_eq!((sent[0].0, sent[0].1.first_line()), (4_000, "SIP/2.0 500 Server Internal Error"));
    rig.rest();
}

// ---- a script that waits only to answer (RFC 3261 §8.2.7) ----------------------------------------------------------

/// Asks, and answers 200 when there is an answer.
fn answering_rig() -> Rig {
    let mut rig = Rig::new(Box::new(|cx| {
        assert!(!cx.has_transaction());
        let ask = Ask::Persist { aor: (*b"alice").into() };
        Handled::Suspend { state: 1, ask, deadline: Duration::from_secs(2) }
    }));
    rig.endpoint.user_mut().answer = Box::new(|cx| {
        assert!(!cx.has_transaction());
        cx.reply(200, b"OK", b"X-Kept: 1\r\n", b"").unwrap();
        Handled::Done
    });
    rig
}

fn register(branch: &str) -> String {
    request("REGISTER", "sip:example.com", branch, "")
}

impl Rig {
    fn answer(&mut self, answer: Answer<'_>) -> Vec<Sent> {
        let (id, _) = self.asks.remove(0);
        self.input(Input::Answer { id, answer })
    }

    /// Nothing is left, now and not later.
    fn assert_empty(&self) {
        assert_eq!((self.endpoint.transactions(), self.endpoint.next_timeout()), (0, None));
        assert!(self.endpoint.is_idle());
    }
}

#[test]
fn a_request_that_waited_only_to_be_answered_leaves_nothing() {
    let mut rig = answering_rig();
    assert!(rig.receive(CALLER, &register("1")).is_empty());
    assert_eq!(rig.endpoint.transactions(), 1);
    // Copies are absorbed while it waits, and no second question is asked.
    assert!(rig.receive(CALLER, &register("1")).is_empty());
    assert_eq!((rig.asks.len(), rig.endpoint.counters().retransmissions_in), (1, 1));
    let sent = rig.answer(Answer::Done);
    assert_eq!((kinds(&sent), sent[0].header("X-Kept")), (alloc::vec!["200".to_string()], "1"));
    rig.assert_empty();
    assert_eq!(rig.endpoint.counters().transactions_created, 0);
}

#[test]
fn a_copy_after_a_lost_answer_runs_the_script_anew_and_gets_the_same() {
    let mut rig = answering_rig();
    let mut answers = Vec::new();
    for _ in 0..2 {
        assert!(rig.receive(CALLER, &register("1")).is_empty());
        answers.push(rig.answer(Answer::Done).remove(0).text);
        rig.assert_empty();
    }
    assert_eq!(answers[0], answers[1]);
    assert_eq!(rig.endpoint.user().requests.len(), 2);
}

#[test]
fn an_answer_after_the_deadline_finds_nobody() {
    let mut rig = answering_rig();
    let _ = rig.receive(CALLER, &register("1"));
    let sent = rig.pass(Duration::from_secs(3));
    assert_eq!((sent.len(), sent[0].0, rig.endpoint.user().answers[0].as_str()), (1, 2_000, "1 Failed"));
    assert!(rig.answer(Answer::Done).is_empty());
    rig.assert_empty();
}

#[test]
fn a_script_may_wait_again_before_it_answers() {
    let mut rig = answering_rig();
    let mut turns = 0;
    rig.endpoint.user_mut().answer = Box::new(move |cx| {
        turns += 1;
        if turns < 3 {
            let ask = Ask::Refresh { aor: (*b"alice").into() };
            return Handled::Suspend { state: turns, ask, deadline: Duration::from_secs(2) };
        }
        cx.reply(200, b"OK", b"", b"").unwrap();
        Handled::Done
    });
    let _ = rig.receive(CALLER, &register("1"));
    for _ in 0..2 {
        assert!(rig.answer(Answer::Done).is_empty());
        assert!(rig.receive(CALLER, &register("1")).is_empty());
    }
    assert_eq!(kinds(&rig.answer(Answer::Done)), ["200"]);
    rig.assert_empty();
}

#[test]
fn a_reply_without_state_is_the_only_one() {
    let mut rig = answering_rig();
    rig.endpoint.user_mut().answer = Box::new(|cx| {
        cx.reply_stateless(404, b"Not Found", b"", b"").unwrap();
        Handled::Done
    });
    let _ = rig.receive(CALLER, &register("1"));
    assert_eq!(kinds(&rig.answer(Answer::Done)), ["404"]);
    rig.assert_empty();
}

#[test]
fn a_script_that_says_nothing_after_waiting_says_nothing() {
    let mut rig = answering_rig();
    rig.endpoint.user_mut().answer = Box::new(|_| Handled::Done);
    let _ = rig.receive(CALLER, &register("1"));
    assert!(rig.answer(Answer::Done).is_empty());
    rig.assert_empty();
}

#[test]
fn a_transaction_that_the_script_asks_for_stays() {
    for before in [true, false] {
        let mut rig = answering_rig();
        if before {
            rig.endpoint.user_mut().script = Box::new(|cx| {
                cx.create_transaction().unwrap();
                let ask = Ask::Persist { aor: (*b"alice").into() };
                Handled::Suspend { state: 1, ask, deadline: Duration::from_secs(2) }
            });
        }
        rig.endpoint.user_mut().answer = Box::new(|cx| {
            cx.create_transaction().unwrap();
            assert!(cx.has_transaction());
            cx.reply(200, b"OK", b"", b"").unwrap();
            Handled::Done
        });
        let _ = rig.receive(CALLER, &register("1"));
        let sent = rig.answer(Answer::Done);
        let again = rig.receive(CALLER, &register("1"));
        assert_eq!(sent[0].text, again[0].text);
        let counters = rig.endpoint.counters();
        assert_eq!((rig.endpoint.transactions(), counters.transactions_created), (1, 1));
        rig.rest();
    }
}

#[test]
fn a_request_that_is_relayed_after_waiting_has_its_transaction() {
    let mut rig = answering_rig();
    rig.endpoint.user_mut().answer = Box::new(|cx| {
        cx.relay().unwrap();
        Handled::Done
    });
    let _ = rig.receive(CALLER, &request("OPTIONS", &format!("sip:callee@{CALLEE}"), "1", ""));
    let sent = rig.answer(Answer::Done);
    assert_eq!(kinds(&sent), ["OPTIONS"]);
    assert_eq!(kinds(&rig.receive(CALLEE, &response(&sent[0], "200 OK", ""))), ["200"]);
    assert_eq!(rig.endpoint.transactions(), 1);
    rig.rest();
}

/// RFC 4320 §4.1: who has sent a 100 answers its copies.
#[test]
fn a_wait_longer_than_t2_makes_a_transaction() {
    let mut rig = answering_rig();
    rig.endpoint.user_mut().script = Box::new(|_| {
        let ask = Ask::Persist { aor: (*b"alice").into() };
        Handled::Suspend { state: 1, ask, deadline: Duration::from_secs(9) }
    });
    rig.endpoint.user_mut().answer = Box::new(|cx| {
        cx.reply(200, b"OK", b"", b"").unwrap();
        Handled::Done
    });
    let _ = rig.receive(CALLER, &register("1"));
    let sent = rig.pass(Duration::from_secs(4));
    assert_eq!((sent.len(), sent[0].0), (1, 3_500));
    assert_eq!(kinds(&rig.answer(Answer::Done)), ["200"]);
    assert_eq!(kinds(&rig.receive(CALLER, &register("1"))), ["200"]);
    rig.rest();
}

/// An INVITE that was answered 100 is not sent again by its client: its failure must be (RFC 3261 §17.2.1).
#[test]
fn an_invite_that_waited_is_answered_reliably() {
    let mut rig = answering_rig();
    rig.endpoint.user_mut().answer = Box::new(|cx| {
        cx.reply(407, b"Proxy Authentication Required", b"", b"").unwrap();
        Handled::Done
    });
    assert_eq!(kinds(&rig.receive(CALLER, &invite("1"))), ["100"]);
    assert_eq!(kinds(&rig.answer(Answer::Done)), ["407"]);
    let again = rig.pass(Duration::from_millis(600));
    assert_eq!((again.len(), again[0].0), (1, 500));
    assert!(rig.receive(CALLER, &ack("1", &again[0].1)).is_empty());
    rig.rest();
}

#[test]
fn a_server_that_starts_long_after_the_origin_of_time_has_nothing_to_catch_up_with() {
    let mut rig = answering_rig();
    rig.now = Instant::from_micros(400 * 86_400 * 1_000_000);
    let _ = rig.receive(CALLER, &register("1"));
    let next = rig.endpoint.next_timeout().unwrap();
    assert_eq!(next.since(rig.now), Duration::from_secs(2));
    let sent = rig.pass(Duration::from_secs(2));
    assert_eq!((sent.len(), sent[0].0), (1, 2_000));
}
