//! Forking and the choice of a response (RFC 3261 §16.7), serial forking, transport errors.

use super::*;

const ONE: &str = "192.0.2.21:5060";
const TWO: &str = "192.0.2.22:5060";
const THREE: &str = "192.0.2.23:5060";

fn to(sent: &[Sent], address: &str) -> Sent {
    sent.iter().find(|sent| sent.to == address).unwrap_or_else(|| panic!("nothing for {address}")).clone()
}

fn three() -> Rig {
    Rig::new(fork(&[("sip:a@192.0.2.21", 1_000), ("sip:b@192.0.2.22", 1_000), ("sip:c@192.0.2.23", 1_000)]))
}

#[test]
fn one_answers_and_the_others_are_cancelled() {
    let mut rig = three();
    let sent = rig.receive(CALLER, &invite("1"));
    assert_eq!(kinds(&sent), ["100", "INVITE", "INVITE", "INVITE"]);
    let (one, two, three) = (to(&sent, ONE), to(&sent, TWO), to(&sent, THREE));
    assert_eq!(one.first_line(), "INVITE sip:a@192.0.2.21 SIP/2.0");
    let breadths: Vec<&str> = [&one, &two, &three].iter().map(|sent| sent.header("Max-Breadth")).collect();
    assert_eq!(breadths, ["20", "20", "20"]);
    let _ = rig.receive(ONE, &response(&one, "180 Ringing", ""));
    let _ = rig.receive(TWO, &response(&two, "180 Ringing", ""));
    let sent = rig.receive(TWO, &response(&two, "200 OK", ""));
    assert_eq!(kinds(&sent), ["200", "CANCEL"]);
    assert_eq!(sent[1].to, ONE);
    // The third one had not rung yet: it is cancelled when it does, and its 2xx would go upstream too.
    assert_eq!(kinds(&rig.receive(THREE, &response(&three, "180 Ringing", ""))), ["CANCEL"]);
    assert_eq!(kinds(&rig.receive(THREE, &response(&three, "200 OK", ""))), ["200"]);
    assert_eq!(kinds(&rig.receive(ONE, &response(&one, "487 Request Terminated", ""))), ["ACK"]);
    assert!(rig.endpoint.is_idle());
    rig.rest();
}

#[test]
fn the_best_of_all_failures_goes_upstream() {
    let mut rig = three();
    let sent = rig.receive(CALLER, &invite("1"));
    assert_eq!(kinds(&rig.receive(ONE, &response(&to(&sent, ONE), "500 Oops", ""))), ["ACK"]);
    assert_eq!(kinds(&rig.receive(TWO, &response(&to(&sent, TWO), "404 Not Found", ""))), ["ACK"]);
    let sent = rig.receive(THREE, &response(&to(&sent, THREE), "503 Busy", ""));
    assert_eq!(kinds(&sent), ["ACK", "404"]);
    rig.rest();
}

#[test]
fn a_6xx_cancels_the_others_and_wins() {
    let mut rig = three();
    let sent = rig.receive(CALLER, &invite("1"));
    let _ = rig.receive(ONE, &response(&to(&sent, ONE), "180 Ringing", ""));
    let _ = rig.receive(THREE, &response(&to(&sent, THREE), "180 Ringing", ""));
    let after = rig.receive(TWO, &response(&to(&sent, TWO), "603 Decline", ""));
    assert_eq!(kinds(&after), ["ACK", "CANCEL", "CANCEL"]);
    let _ = rig.receive(ONE, &response(&to(&sent, ONE), "487 Request Terminated", ""));
    let last = rig.receive(THREE, &response(&to(&sent, THREE), "487 Request Terminated", ""));
    assert_eq!(kinds(&last), ["ACK", "603"]);
    rig.rest();
}

#[test]
fn challenges_of_all_branches_are_gathered() {
    let mut rig = three();
    let sent = rig.receive(CALLER, &invite("1"));
    let www = |realm: &str| format!("WWW-Authenticate: Digest realm=\"{realm}\", nonce=\"1\"\r\n");
    let _ = rig.receive(ONE, &response(&to(&sent, ONE), "401 Unauthorized", &www("a")));
    let proxy = "Proxy-Authenticate: Digest realm=\"b\", nonce=\"1\"\r\n";
    let _ = rig.receive(TWO, &response(&to(&sent, TWO), "407 Proxy Authentication", proxy));
    let last = rig.receive(THREE, &response(&to(&sent, THREE), "401 Unauthorized", &www("c")));
    assert_eq!(kinds(&last), ["ACK", "401"]);
    assert_eq!(last[1].all("WWW-Authenticate").len(), 2);
    assert_eq!(last[1].all("Proxy-Authenticate").len(), 1);
}

#[test]
fn a_lone_503_becomes_500() {
    let mut rig = Rig::new(relay());
    let copy = rig.receive(CALLER, &invite("1"))[1].clone();
    let sent = rig.receive(CALLEE, &response(&copy, "503 Service Unavailable", ""));
    assert_eq!(kinds(&sent), ["ACK", "500"]);
    rig.rest();
}

#[test]
fn lower_q_is_tried_when_the_higher_failed() {
    let mut rig =
        Rig::new(fork(&[("sip:b@192.0.2.22", 500), ("sip:a@192.0.2.21", 900), ("sip:c@192.0.2.23", 500)]));
    let sent = rig.receive(CALLER, &invite("1"));
    assert_eq!(kinds(&sent), ["100", "INVITE"]);
    let sent = rig.receive(ONE, &response(&to(&sent, ONE), "486 Busy Here", ""));
    assert_eq!(kinds(&sent), ["ACK", "INVITE", "INVITE"]);
    let two = to(&sent, TWO);
    assert_eq!(two.first_line(), "INVITE sip:b@192.0.2.22 SIP/2.0");
    assert_eq!(two.header("Max-Forwards"), "69");
    assert_eq!(kinds(&rig.receive(TWO, &response(&two, "480 Away", ""))), ["ACK"]);
    let last = rig.receive(THREE, &response(&to(&sent, THREE), "480 Away", ""));
    assert_eq!(kinds(&last), ["ACK", "486"]);
    rig.rest();
}

#[test]
fn a_cancelled_request_gets_no_new_branches() {
    let mut rig = Rig::new(fork(&[("sip:a@192.0.2.21", 900), ("sip:b@192.0.2.22", 500)]));
    let sent = rig.receive(CALLER, &invite("1"));
    let _ = rig.receive(ONE, &response(&to(&sent, ONE), "180 Ringing", ""));
    // The same script sees the CANCEL; relaying it cancels.
    let after = rig.receive(CALLER, &request("CANCEL", &format!("sip:callee@{CALLEE}"), "1", ""));
    assert_eq!(kinds(&after), ["200", "CANCEL"]);
    let last = rig.receive(ONE, &response(&to(&sent, ONE), "487 Request Terminated", ""));
    assert_eq!(kinds(&last), ["ACK", "487"]);
    rig.rest();
}

#[test]
fn the_user_may_go_on_after_a_failure() {
    let mut rig = Rig::new(relay());
    let mut tries = 0;
    rig.endpoint.user_mut().failure = Some(Box::new(move |cx| {
        tries += 1;
        // The second time too: the 408 of the second try is no better than the 486 of the first.
        assert_eq!(cx.status(), Some(486));
        if tries == 1 {
            cx.append_target(&Target::new(b"sip:voicemail@192.0.2.22")).unwrap();
            cx.relay().unwrap();
        }
    }));
    let copy = rig.receive(CALLER, &invite("1"))[1].clone();
    let sent = rig.receive(CALLEE, &response(&copy, "486 Busy Here", ""));
    assert_eq!(kinds(&sent), ["ACK", "INVITE"]);
    assert_eq!(to(&sent, TWO).first_line(), "INVITE sip:voicemail@192.0.2.22 SIP/2.0");
    let sent = rig.receive(TWO, &response(&to(&sent, TWO), "408 Request Timeout", ""));
    assert_eq!(kinds(&sent), ["ACK", "486"]);
    rig.rest();
}

#[test]
fn the_user_may_answer_a_failure_itself() {
    let mut rig = Rig::new(relay());
    rig.endpoint.user_mut().failure = Some(Box::new(|cx| cx.reply(480, b"Gone fishing", b"", b"").unwrap()));
    let copy = rig.receive(CALLER, &invite("1"))[1].clone();
    let sent = rig.receive(CALLEE, &response(&copy, "486 Busy Here", ""));
    assert_eq!(kinds(&sent), ["ACK", "480"]);
    rig.rest();
}

fn unreachable(peer: &str) -> Input<'static> {
    Input::TransportError { path: Rig::path(peer), failure: crate::TransportFailure::Unreachable }
}

#[test]
fn a_transport_error_fails_the_branch_at_once() {
    let mut rig = three();
    let sent = rig.receive(CALLER, &invite("1"));
    assert!(rig.input(unreachable(ONE)).is_empty());
    assert!(rig.input(unreachable(TWO)).is_empty());
    let _ = rig.receive(THREE, &response(&to(&sent, THREE), "180 Ringing", ""));
    assert!(rig.input(unreachable(THREE)).is_empty());
    let last = rig.receive(THREE, &response(&to(&sent, THREE), "404 Not Found", ""));
    assert_eq!(kinds(&last), ["ACK", "404"]);
    let mut rig = Rig::new(relay());
    let _ = rig.receive(CALLER, &invite("1"));
    assert_eq!(kinds(&rig.input(unreachable(CALLEE))), ["500"]);
    rig.rest();
}

#[test]
fn a_response_without_a_second_via_is_not_forwarded_and_the_caller_is_answered() {
    let mut rig = Rig::new(relay());
    let copy = rig.receive(CALLER, &invite("1"))[1].clone();
    let text = response(&copy, "404 Not Found", "");
    let own = format!("Via: {}\r\n", copy.all("Via")[1]);
    assert_eq!(kinds(&rig.receive(CALLEE, &text.replace(&own, ""))), ["ACK", "500"]);
    rig.rest();
}
