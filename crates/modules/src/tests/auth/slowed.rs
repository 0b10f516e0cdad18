//! Brute force is slowed, by source and by user, and nobody is locked out (503 with Retry-After, RFC 3261 §21.5.4).

use super::*;

/// One guess of Alice's password from `source`; the first line of the answer.
fn guess(rig: &mut Rig, source: &str, cseq: u32, phone: &Phone) -> String {
    let wrong = Phone { password: format!("guess {cseq}"), count: cseq, ..phone.clone() };
    let request = register(cseq).call(source).line(&wrong.line());
    let mut sent = rig.send(source, &request.text());
    if sent.is_empty() {
        sent = rig.answer(Answer::Rows(&alices_row(SECRET)));
    }
    sent[0].first().to_string()
}

const SLOWED: &str = "SIP/2.0 503 Service Unavailable";
const WRONG: &str = "SIP/2.0 401 Unauthorized";

#[test]
fn guesses_are_slowed_and_then_not_even_looked_up() {
    let mut rig = registrar("modparam(\"auth\", \"attempts_max\", 3)");
    let phone = Phone::alice(&rig.challenge());
    for cseq in 2..5 {
        assert_eq!(guess(&mut rig, ALICE, cseq, &phone), WRONG);
    }
    let request = register(9).line(&Phone { count: 9, ..phone.clone() }.line());
    let reply = rig.one(ALICE, &request.text());
    assert_eq!(reply.first(), SLOWED);
    let secs: u64 = reply.header("Retry-After").unwrap().parse().unwrap();
    assert!((1..=6).contains(&secs), "{secs}");
    assert!(rig.lines().iter().any(|line| line == "code -7"), "{:?}", rig.lines());
    assert!(rig.asks.is_empty());
    // A while later it may try again, and the right password works.
    rig.pass(Duration::from_secs(secs));
    let right = register(10).line(&Phone { count: 10, ..phone }.line());
    let mut sent = rig.send(ALICE, &right.text());
    if sent.is_empty() {
        sent = rig.answer(Answer::Rows(&alices_row(SECRET)));
    }
    assert_eq!(sent[0].first(), "SIP/2.0 200 OK");
}

/// However a user is written, it is one user: from sources that have tried nothing yet.
#[test]
fn other_spellings_of_a_user_are_no_further_tries() {
    let by_script = r#"request_route {
        if (!pv_www_authenticate("127.0.0.1", "open sesame", "0")) { www_challenge("127.0.0.1", "1"); exit; }
        send_reply("200", "OK");
    }"#;
    for route in [ROUTE, by_script] {
        let mut rig = server(&format!("modparam(\"auth\", \"attempts_max\", 3)\n{route}"));
        let phone = Phone::alice(&rig.challenge());
        for (number, user) in ["alice@a.example", "alice@b.example", "al\\ice", "ALICE@c"].iter().enumerate()
        {
            let phone = Phone { user: (*user).into(), realm: "127.0.\\0.1".into(), ..phone.clone() };
            let source = format!("192.0.2.{number}:5060");
            let expected = if number < 3 { WRONG } else { SLOWED };
            assert_eq!(guess(&mut rig, &source, 20 + number as u32, &phone), expected, "{user}");
        }
    }
}

#[test]
fn a_phone_that_registered_is_not_locked_out_by_guesses_of_others() {
    let mut rig = registrar("modparam(\"auth\", \"attempts_max\", 3)");
    let phone = rig.remember_alice();
    for number in 0..20 {
        guess(&mut rig, &format!("192.0.2.{number}:5060"), 20 + number, &phone);
    }
    assert_eq!(guess(&mut rig, "192.0.2.99:5060", 90, &phone), SLOWED);
    let right = Phone { count: 91, ..phone };
    assert_eq!(rig.status(ALICE, &register(91).line(&right.line()).text()), "SIP/2.0 200 OK");
}

#[test]
fn guesses_are_not_slowed_where_the_script_says_so() {
    let mut rig = registrar("modparam(\"auth\", \"attempts_max\", 0)");
    let phone = Phone::alice(&rig.challenge());
    for cseq in 2..40 {
        assert_eq!(guess(&mut rig, ALICE, cseq, &phone), WRONG);
    }
}

#[test]
fn no_attempt_is_counted_that_the_database_left_open() {
    let mut rig = registrar("modparam(\"auth\", \"attempts_max\", 2)");
    let phone = Phone::alice(&rig.challenge());
    for cseq in 2..12 {
        let request = register(cseq).line(&Phone { count: cseq, ..phone.clone() }.line());
        assert!(rig.send(ALICE, &request.text()).is_empty(), "{cseq}");
        assert_eq!(rig.answer(Answer::Failed)[0].first(), SLOWED);
    }
}

#[test]
fn passwords_that_the_script_knows_are_guarded_as_well() {
    let mut rig = server(
        r#"modparam("auth", "attempts_max", 2)
        request_route {
            if (!pv_www_authenticate("127.0.0.1", "open sesame", "0")) {
                xlog("code $rc\n");
                www_challenge("127.0.0.1", "1");
            } else { send_reply("200", "OK"); }
        }"#,
    );
    let phone = Phone::alice(&rig.challenge());
    for (cseq, expected) in [(2, WRONG), (3, WRONG), (4, SLOWED)] {
        assert_eq!(guess(&mut rig, ALICE, cseq, &phone), expected);
    }
}
