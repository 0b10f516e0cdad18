//! The two flows of the thesis: challenged, and with credentials that are used again.

use super::*;

#[test]
fn a_register_is_challenged_then_looked_up_and_done() {
    let mut rig = registrar("");
    let challenge = rig.challenge();
    assert_eq!(piece(&challenge, "realm").as_deref(), Some(REALM));
    assert_eq!(piece(&challenge, "algorithm").as_deref(), Some("MD5"));
    assert_eq!(piece(&challenge, "qop").as_deref(), Some("auth"));
    assert_eq!(piece(&challenge, "stale"), None);
    let phone = Phone::alice(&challenge);
    assert!(rig.send(ALICE, &register(2).line(&phone.line()).text()).is_empty());
    let select = rig.select();
    assert_eq!((&*select.table, select.rows_max), ("subscriber", 1));
    assert_eq!(
        select.columns.iter().map(|it| it.to_string()).collect::<Vec<_>>(),
        ["ha1", "ha1b", "username"]
    );
    assert_eq!(select.keys, [("username".into(), Box::from(&b"alice"[..]))]);
    let reply = rig.rows(&alices_row(SECRET));
    assert_eq!(reply.first(), "SIP/2.0 200 OK");
    assert_eq!(reply.header("Contact"), Some(format!("<sip:alice@{ALICE}>;expires=3600").as_str()));
    assert_eq!(rig.lines(), ["code -5"]);
}

/// The thesis's right-hand flow: credentials are accepted on later requests until their nonce expires.
#[test]
fn credentials_are_good_again_with_the_next_count_and_without_a_question() {
    let mut rig = registrar("");
    let mut phone = rig.remember_alice();
    for cseq in 3..20 {
        phone.count += 1;
        rig.pass(Duration::from_secs(15));
        assert_eq!(rig.status(ALICE, &register(cseq).line(&phone.line()).text()), "SIP/2.0 200 OK");
    }
    assert!(rig.asks.is_empty());
}

#[test]
fn right_credentials_with_an_old_nonce_are_stale() {
    let mut rig = registrar("modparam(\"auth\", \"nonce_expire\", 60)");
    let mut phone = rig.remember_alice();
    rig.pass(Duration::from_secs(61));
    phone.count = 2;
    let reply = rig.one(ALICE, &register(3).line(&phone.line()).text());
    let challenge = reply.header("WWW-Authenticate").unwrap().to_string();
    assert_eq!(piece(&challenge, "stale").as_deref(), Some("true"));
    // The phone goes on without asking its user.
    let again = Phone::alice(&challenge);
    assert_eq!(rig.status(ALICE, &register(4).line(&again.line()).text()), "SIP/2.0 200 OK");
    assert_eq!(rig.lines().last().map(String::as_str), Some("code -4"));
}

/// RFC 7616 §3.3: `stale` tells that the secret was right, so it is not said of a wrong one.
#[test]
fn wrong_credentials_with_an_old_nonce_are_wrong_and_not_stale() {
    let mut rig = registrar("modparam(\"auth\", \"nonce_expire\", 60)");
    let phone = rig.remember_alice();
    rig.pass(Duration::from_secs(61));
    let wrong = Phone { password: "guess".into(), count: 2, ..phone };
    assert!(rig.send(ALICE, &register(3).line(&wrong.line()).text()).is_empty());
    let reply = rig.rows(&alices_row(SECRET));
    assert_eq!(piece(reply.header("WWW-Authenticate").unwrap(), "stale"), None);
    assert_eq!(rig.lines().last().map(String::as_str), Some("code -2"));
}

#[test]
fn a_nonce_that_is_not_ours_asks_no_database() {
    let mut rig = registrar("");
    let phone = Phone { nonce: "dcd98b7102dd2f0e8b11d0f600bfb0c093".into(), ..rig.remember_alice() };
    let reply = rig.one(ALICE, &register(3).line(&phone.line()).text());
    assert_eq!(reply.first(), "SIP/2.0 401 Unauthorized");
    assert_eq!(piece(reply.header("WWW-Authenticate").unwrap(), "stale"), None);
    assert!(rig.asks.is_empty());
    assert_eq!(rig.lines().last().map(String::as_str), Some("code -4"));
}

#[test]
fn a_nonce_is_good_on_every_server_with_the_secret_and_on_no_other() {
    let text = |secret: &str| format!("modparam(\"auth\", \"secret\", \"{secret}\")\n{ROUTE}");
    let challenge = server(&text("a secret of both of them")).challenge();
    for (secret, accepted) in [("a secret of both of them", true), ("a secret of its own", false)] {
        let mut other = server(&text(secret));
        let sent = other.send(ALICE, &register(2).line(&Phone::alice(&challenge).line()).text());
        assert_eq!(sent.is_empty(), accepted, "{secret}: {sent:?}");
    }
}

#[test]
fn an_invite_is_challenged_by_the_proxy_and_goes_on_without_its_credentials() {
    let mut rig = registrar("");
    rig.remember_alice();
    let invite = |cseq| Request::new("INVITE", "sip:bob@127.0.0.1", ALICE).call("i").cseq(cseq);
    let sent = rig.send(ALICE, &invite(1).text());
    let reply = sent.last().unwrap();
    assert_eq!(reply.first(), "SIP/2.0 407 Proxy Authentication Required");
    let phone = Phone {
        method: "INVITE".into(),
        uri: "sip:bob@127.0.0.1".into(),
        ..Phone::alice(reply.header("Proxy-Authenticate").unwrap())
    };
    // RFC 3261 §22.3: credentials for other realms are for other proxies.
    let others = "Proxy-Authorization: Digest username=\"a\", realm=\"elsewhere\", nonce=\"x\", uri=\"sip:x\", response=\"00000000000000000000000000000000\"";
    let request = invite(2).line(others).line(&format!("Proxy-Authorization: {}", phone.value()));
    let sent = rig.send(ALICE, &request.text());
    let forwarded = sent.iter().find(|sent| sent.to == BOB).expect("the INVITE");
    let kept = forwarded.headers("Proxy-Authorization");
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert!(kept[0].contains("realm=\"elsewhere\""));
}

#[test]
fn a_call_that_waits_for_the_database_is_told_so_and_goes_on() {
    let mut rig = registrar("");
    let sent = rig.send(ALICE, &Request::new("INVITE", "sip:bob@127.0.0.1", ALICE).text());
    let phone = Phone {
        method: "INVITE".into(),
        uri: "sip:bob@127.0.0.1".into(),
        ..Phone::alice(sent.last().unwrap().header("Proxy-Authenticate").unwrap())
    };
    let request = Request::new("INVITE", "sip:bob@127.0.0.1", ALICE)
        .cseq(2)
        .line(&format!("Proxy-Authorization: {}", phone.value()));
    let sent = rig.send(ALICE, &request.text());
    assert!(sent.iter().all(|sent| sent.first() == "SIP/2.0 100 Trying"), "{sent:?}");
    // A retransmission meanwhile changes nothing.
    let sent = rig.send(ALICE, &request.text());
    assert!(sent.iter().all(|sent| sent.first() == "SIP/2.0 100 Trying"), "{sent:?}");
    assert_eq!(rig.asks.len(), 1);
    let sent = rig.answer(Answer::Rows(&alices_row(SECRET)));
    assert!(sent.iter().any(|sent| sent.to == BOB), "{sent:?}");
}

/// RFC 3261 §22.1: "a server MUST NOT challenge an ACK", and a CANCEL cannot be sent again.
#[test]
fn ack_and_cancel_are_never_challenged() {
    let mut rig = server(
        r#"request_route {
            if (www_authorize("r", "subscriber")) xlog("www\n");
            if (proxy_authorize("r", "subscriber")) xlog("proxy\n");
            if (auth_check("r", "subscriber", "1")) xlog("check\n");
            if (pv_www_authenticate("r", "", "0")) xlog("pv\n");
            www_challenge("r", "1"); xlog("challenge $rc\n");
            proxy_challenge("r", "1"); xlog("challenge $rc\n");
        }"#,
    );
    for method in ["ACK", "CANCEL"] {
        rig.lines.0.borrow_mut().clear();
        let sent = rig.send(ALICE, &Request::new(method, "sip:bob@127.0.0.1", ALICE).text());
        assert!(sent.iter().all(|sent| !sent.first().contains(" 40")), "{sent:?}");
        assert_eq!(rig.lines(), ["www", "proxy", "check", "pv", "challenge -1", "challenge -1"], "{method}");
    }
}

/// A script that thinks that it keeps no state does not notice that a function waited.
#[test]
fn a_stateless_script_that_waited_answers_and_forwards_once() {
    for (body, to, first) in [
        ("sl_send_reply(\"404\", \"Not Found\");", ALICE, "SIP/2.0 404 Not Found"),
        ("$du = \"sip:127.0.0.1:5062\"; forward();", BOB, "REGISTER sip:127.0.0.1 SIP/2.0"),
        ("forward(\"127.0.0.1\", 5062);", BOB, "REGISTER sip:127.0.0.1 SIP/2.0"),
    ] {
        let mut rig = server(&format!(
            r#"request_route {{
                if (!www_authorize("127.0.0.1", "subscriber")) {{ www_challenge("127.0.0.1", "1"); exit; }}
                {body}
            }}"#
        ));
        let phone = Phone::alice(&rig.challenge());
        assert!(rig.send(ALICE, &register(2).line(&phone.line()).text()).is_empty());
        let sent = rig.answer(Answer::Rows(&alices_row(SECRET)));
        assert_eq!(
            sent.iter().map(|sent| (sent.to.as_str(), sent.first())).collect::<Vec<_>>(),
            [(to, first)]
        );
        if to == BOB {
            let reply = rig.one(BOB, &respond(&sent[0], "200 OK", "b"));
            assert_eq!((reply.to.as_str(), reply.first()), (ALICE, "SIP/2.0 200 OK"));
        }
    }
}

/// RFC 7616 §5.5: counts are forgotten with a run, so what it accepted is stale to the next one, however soon that begins.
#[test]
fn a_nonce_of_an_earlier_run_is_stale_also_within_a_second() {
    let environment = |started_unix_secs| Environment {
        services: Shared::new(),
        nonce_key: [7; 32],
        started_unix_secs,
        ..Environment::default()
    };
    let text = format!("{LOAD}{AUTH}{ROUTE}");
    let start = |started_unix_secs| {
        let mut rig = Rig::with(&text, &[], environment(started_unix_secs));
        rig.no_users = false;
        rig.pass(Duration::from_secs(100));
        rig
    };
    let now = 1_700_000_000 + start(0).now.as_micros() / 1_000_000;
    // One that has run for long, and one that begins in the second in which the first one gave the nonce.
    let phone = Phone::alice(&start(now - 60).challenge());
    let mut second = start(now);
    assert!(second.send(ALICE, &register(2).line(&phone.line()).text()).is_empty());
    let reply = second.rows(&alices_row(SECRET));
    let challenge = reply.header("WWW-Authenticate").expect("a challenge");
    assert_eq!(piece(challenge, "stale").as_deref(), Some("true"), "{reply:?}");
    // Its own are good from the first moment.
    let mut third = start(now);
    third.remember_alice();
}
