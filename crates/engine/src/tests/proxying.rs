//! One caller, one callee (RFC 3261 §16.6, §16.7, §17).

use super::*;

fn established(rig: &mut Rig) -> (Sent, Vec<Sent>) {
    let sent = rig.receive(CALLER, &invite("1"));
    assert_eq!(kinds(&sent), ["100", "INVITE"]);
    let copy = sent[1].clone();
    assert_eq!(kinds(&rig.receive(CALLEE, &response(&copy, "180 Ringing", ""))), ["180"]);
    let sent = rig.receive(CALLEE, &response(&copy, "200 OK", ""));
    (copy, sent)
}

#[test]
fn an_invite_is_relayed_and_its_responses_come_back() {
    let mut rig = Rig::new(relay());
    let (copy, sent) = established(&mut rig);
    assert_eq!(copy.to, CALLEE);
    assert_eq!(copy.header("Max-Forwards"), "69");
    assert_eq!(copy.all("Via").len(), 2);
    assert!(copy.header("Via").starts_with("SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bK"));
    assert_eq!(kinds(&sent), ["200"]);
    assert_eq!(sent[0].to, CALLER);
    assert_eq!(sent[0].all("Via").len(), 1);
    assert_eq!(rig.endpoint.user().replies, [180, 200]);
    assert!(rig.endpoint.is_idle());
    rig.rest();
}

#[test]
fn second_2xx_is_forwarded_after_accept() {
    let mut rig = Rig::new(relay());
    let (copy, _) = established(&mut rig);
    let sent = rig.receive(CALLEE, &response(&copy, "200 OK", ""));
    assert_eq!(kinds(&sent), ["200"]);
    // RFC 6026 §7.2: until Timer M, and nothing stray afterwards.
    let _ = rig.pass(Duration::from_secs(33));
    assert!(rig.receive(CALLEE, &response(&copy, "200 OK", "")).is_empty());
    assert_eq!(rig.endpoint.counters().stray_responses, 1);
    rig.rest();
}

#[test]
fn the_ack_of_a_2xx_is_forwarded_without_state() {
    let mut rig = Rig::new(relay());
    let _ = established(&mut rig);
    let text = request("ACK", &format!("sip:callee@{CALLEE}"), "ack", "")
        .replace("To: <sip:callee@example.com>", "To: <sip:callee@example.com>;tag=callee");
    let sent = rig.receive(CALLER, &text);
    assert_eq!(kinds(&sent), ["ACK"]);
    let again = rig.receive(CALLER, &text);
    assert_eq!(sent[0].text, again[0].text);
    assert_eq!(rig.endpoint.transactions(), 1);
    rig.rest();
}

#[test]
fn a_failure_is_acknowledged_downstream_and_resent_upstream() {
    let mut rig = Rig::new(relay());
    let copy = rig.receive(CALLER, &invite("1"))[1].clone();
    let busy = response(&copy, "486 Busy Here", "");
    let sent = rig.receive(CALLEE, &busy);
    assert_eq!(kinds(&sent), ["ACK", "486"]);
    assert_eq!(sent[0].all("Via"), [copy.header("Via")]);
    assert_eq!(sent[0].header("To"), "<sip:callee@example.com>;tag=callee");
    // Its retransmission is acknowledged and goes no further.
    assert_eq!(kinds(&rig.receive(CALLEE, &busy)), ["ACK"]);
    // Timer G.
    let resent = rig.pass(Duration::from_millis(3_500));
    assert_eq!(resent.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [500, 1_500, 3_500]);
    assert!(resent.iter().all(|(_, sent)| sent.text == resent[0].1.text));
    assert!(rig.receive(CALLER, &ack("1", &sent[1])).is_empty());
    assert!(rig.receive(CALLER, &ack("1", &sent[1])).is_empty());
    assert_eq!(rig.endpoint.counters().acks_absorbed, 2);
    assert_eq!(rig.endpoint.user().requests, ["INVITE"]);
    rig.rest();
}

#[test]
fn retransmissions_are_absorbed_and_answered() {
    let mut rig = Rig::new(relay());
    let copy = rig.receive(CALLER, &invite("1"))[1].clone();
    assert_eq!(kinds(&rig.receive(CALLER, &invite("1"))), ["100"]);
    let _ = rig.receive(CALLEE, &response(&copy, "180 Ringing", ""));
    assert_eq!(kinds(&rig.receive(CALLER, &invite("1"))), ["180"]);
    assert_eq!(rig.endpoint.user().requests.len(), 1);
    assert_eq!(rig.endpoint.counters().retransmissions_in, 2);
}

#[test]
fn an_unanswered_invite_is_resent_by_timer_a_and_ends_with_408() {
    let mut rig = Rig::new(relay());
    let _ = rig.receive(CALLER, &invite("1"));
    let sent = rig.pass(Duration::from_secs(32));
    let invites: Vec<u64> = sent.iter().filter(|(_, s)| s.method() == "INVITE").map(|(at, _)| *at).collect();
    assert_eq!(invites, [500, 1_500, 3_500, 7_500, 15_500, 31_500]);
    let (at, last) = sent.last().unwrap();
    assert_eq!((*at, last.first_line()), (32_000, "SIP/2.0 408 Request Timeout"));
    rig.rest();
}

#[test]
fn an_unanswered_non_invite_gets_100_and_no_408() {
    let mut rig = Rig::new(relay());
    let _ = rig.receive(CALLER, &request("OPTIONS", &format!("sip:{CALLEE}"), "1", ""));
    let sent = rig.pass(Duration::from_secs(64));
    let (to_callee, to_caller): (Vec<_>, Vec<_>) = sent.iter().partition(|(_, sent)| sent.to == CALLEE);
    let at: Vec<u64> = to_callee.iter().map(|(at, _)| *at).collect();
    assert_eq!(at, [500, 1_500, 3_500, 7_500, 11_500, 15_500, 19_500, 23_500, 27_500, 31_500]);
    assert_eq!(to_caller.len(), 1);
    assert_eq!((to_caller[0].0, to_caller[0].1.first_line()), (3_500, "SIP/2.0 100 Trying"));
    rig.rest();
}

#[test]
fn a_non_invite_is_answered_again_when_it_comes_again() {
    let mut rig = Rig::new(relay());
    let text = request("MESSAGE", &format!("sip:{CALLEE}"), "1", "");
    let copy = rig.receive(CALLER, &text)[0].clone();
    assert!(rig.receive(CALLER, &text).is_empty());
    assert!(rig.receive(CALLEE, &response(&copy, "183 Progress", "")).is_empty());
    assert_eq!(kinds(&rig.receive(CALLEE, &response(&copy, "202 Accepted", ""))), ["202"]);
    assert_eq!(kinds(&rig.receive(CALLER, &text)), ["202"]);
    assert!(rig.receive(CALLEE, &response(&copy, "202 Accepted", "")).is_empty());
    rig.rest();
}

#[test]
fn a_cancel_waits_for_the_first_provisional_response() {
    let mut rig = Rig::new(relay());
    let copy = rig.receive(CALLER, &invite("1"))[1].clone();
    let cancel = request("CANCEL", &format!("sip:callee@{CALLEE}"), "1", "");
    assert_eq!(kinds(&rig.receive(CALLER, &cancel)), ["200"]);
    assert_eq!(kinds(&rig.receive(CALLER, &cancel)), ["200"]);
    assert_eq!(rig.endpoint.user().requests, ["INVITE", "CANCEL"]);
    let sent = rig.receive(CALLEE, &response(&copy, "100 Trying", ""));
    assert_eq!(kinds(&sent), ["CANCEL"]);
    let cancel = sent[0].clone();
    assert_eq!(cancel.all("Via"), [copy.header("Via")]);
    assert_eq!(cancel.first_line(), copy.first_line().replace("INVITE", "CANCEL"));
    let again = rig.pass(Duration::from_millis(600));
    assert_eq!(again[0].1.text, cancel.text);
    assert!(rig.receive(CALLEE, &response(&cancel, "200 OK", "")).is_empty());
    assert!(rig.pass(Duration::from_secs(3)).is_empty());
    let sent = rig.receive(CALLEE, &response(&copy, "487 Request Terminated", ""));
    assert_eq!(kinds(&sent), ["ACK", "487"]);
    rig.rest();
}

#[test]
fn a_cancelled_branch_without_an_end_is_given_up() {
    let mut rig = Rig::new(relay());
    let copy = rig.receive(CALLER, &invite("1"))[1].clone();
    let _ = rig.receive(CALLEE, &response(&copy, "180 Ringing", ""));
    let sent = rig.receive(CALLER, &request("CANCEL", &format!("sip:callee@{CALLEE}"), "1", ""));
    assert_eq!(kinds(&sent), ["200", "CANCEL"]);
    let sent = rig.pass(Duration::from_secs(32));
    assert_eq!(sent.last().unwrap().1.first_line(), "SIP/2.0 487 Request Terminated");
    rig.rest();
}

#[test]
fn timer_c_cancels_a_ringing_branch() {
    let mut rig = Rig::new(relay());
    let copy = rig.receive(CALLER, &invite("1"))[1].clone();
    let _ = rig.receive(CALLEE, &response(&copy, "100 Trying", ""));
    let _ = rig.pass(Duration::from_secs(100));
    let _ = rig.receive(CALLEE, &response(&copy, "180 Ringing", ""));
    assert!(rig.pass(Duration::from_millis(184_999)).is_empty());
    let sent = rig.pass(Duration::from_millis(1));
    assert_eq!(sent[0].1.method(), "CANCEL");
    let sent = rig.receive(CALLEE, &response(&copy, "487 Request Terminated", ""));
    assert_eq!(kinds(&sent), ["ACK", "487"]);
    rig.rest();
}

#[test]
fn rport_and_received_show_where_a_request_came_from() {
    let mut rig = Rig::new(relay());
    let text = request("OPTIONS", &format!("sip:{CALLEE}"), "1", "")
        .replace("192.0.2.10:5060;branch", "10.0.0.1:5070;rport;branch");
    let copy = rig.receive("192.0.2.99:4000", &text)[0].clone();
    let via = copy.all("Via")[1];
    assert!(via.contains("rport=4000") && via.contains("received=192.0.2.99"), "{via}");
    let sent = rig.receive(CALLEE, &response(&copy, "200 OK", ""));
    assert_eq!(sent[0].to, "192.0.2.99:4000");
    // Without rport: the source's address, the port of sent-by.
    let text = request("OPTIONS", &format!("sip:{CALLEE}"), "2", "")
        .replace("192.0.2.10:5060;branch", "10.0.0.1:5070;branch");
    let copy = rig.receive("192.0.2.99:4000", &text)[0].clone();
    let sent = rig.receive(CALLEE, &response(&copy, "200 OK", ""));
    assert_eq!(sent[0].to, "192.0.2.99:5070");
}

#[test]
fn forwarding_without_state_is_the_same_each_time() {
    let mut rig = Rig::new(Box::new(|cx| {
        cx.forward(None).unwrap();
        Handled::Done
    }));
    let sent = rig.receive(CALLER, &invite("1"));
    assert_eq!(sent[0].text, rig.receive(CALLER, &invite("1"))[0].text);
    let cancel = rig.receive(CALLER, &request("CANCEL", &format!("sip:callee@{CALLEE}"), "1", ""));
    assert_eq!(cancel[0].header("Via"), sent[0].header("Via"));
    let back = rig.receive(CALLEE, &response(&sent[0], "180 Ringing", ""));
    assert_eq!((back[0].to.as_str(), back[0].all("Via").len()), (CALLER, 1));
    assert_eq!(rig.endpoint.transactions(), 0);
}

#[test]
fn responses_that_are_not_ours_or_forged_are_dropped() {
    let mut rig = Rig::new(relay());
    let copy = rig.receive(CALLER, &invite("1"))[1].clone();
    let ok = response(&copy, "200 OK", "");
    assert!(rig.receive(CALLEE, &ok.replace("UDP 192.0.2.1:5060", "UDP 192.0.2.2:5060")).is_empty());
    let cookie = copy.header("Via").find("z9hG4bK").unwrap() + 30;
    let mut via = copy.header("Via").to_string();
    let digit = if &via[cookie..=cookie] == "0" { "1" } else { "0" };
    via.replace_range(cookie..=cookie, digit);
    assert!(rig.receive(CALLEE, &ok.replace(copy.header("Via"), &via)).is_empty());
    let counters = rig.endpoint.counters();
    assert_eq!((counters.foreign_responses, counters.stray_responses), (1, 1));
}

#[test]
fn old_clients_match_by_the_fields_of_rfc_2543() {
    let mut rig = Rig::new(relay());
    let old = |text: String| text.replace(";branch=z9hG4bK1", ";branch=1");
    let copy = rig.receive(CALLER, &old(invite("1")))[1].clone();
    assert_eq!(kinds(&rig.receive(CALLER, &old(invite("1")))), ["100"]);
    let sent = rig.receive(CALLEE, &response(&copy, "486 Busy Here", ""));
    assert_eq!(kinds(&sent), ["ACK", "486"]);
    assert!(rig.receive(CALLER, &old(ack("1", &sent[1]))).is_empty());
    assert_eq!(rig.endpoint.counters().acks_absorbed, 1);
    // Another CSeq is another transaction.
    let other = old(invite("1")).replace("CSeq: 1 ", "CSeq: 2 ");
    assert_eq!(kinds(&rig.receive(CALLER, &other)), ["100", "INVITE"]);
}
