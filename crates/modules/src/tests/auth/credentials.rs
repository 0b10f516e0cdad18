//! Credentials that are wrong in every way, and those that only look so (RFC 3261 §22.4, RFC 2617 §3.2.2, RFC 8760 §3).

use super::*;

/// The status of a REGISTER with this Authorization, and what the script saw; `None` while the database is asked.
fn status(rig: &mut Rig, cseq: u32, value: &str) -> Option<String> {
    let request = register(cseq).line(&format!("Authorization: {value}"));
    let sent = rig.send(ALICE, &request.text());
    sent.first().map(|sent| sent.first().to_string())
}

fn last_line(rig: &Rig) -> String {
    rig.lines().last().cloned().unwrap_or_default()
}

const CHALLENGED: Option<&str> = Some("SIP/2.0 401 Unauthorized");
const REGISTERED: Option<&str> = Some("SIP/2.0 200 OK");

#[test]
fn a_wrong_password_is_looked_up_once_more_and_challenged_again() {
    let mut rig = registrar("");
    let phone = rig.remember_alice();
    rig.pass(Duration::from_secs(2));
    let wrong = Phone { password: "guess".into(), count: 2, ..phone };
    assert!(rig.send(ALICE, &register(3).line(&wrong.line()).text()).is_empty());
    let reply = rig.rows(&alices_row(SECRET));
    assert_eq!(reply.first(), "SIP/2.0 401 Unauthorized");
    assert_eq!(piece(reply.header("WWW-Authenticate").unwrap(), "stale"), None);
    assert_eq!(last_line(&rig), "code -2");
    // What has just been read is not read again.
    let wrong = Phone { count: 3, ..wrong };
    assert_eq!(status(&mut rig, 4, &wrong.value()).as_deref(), CHALLENGED);
}

#[test]
fn a_new_password_works_at_once_and_the_old_one_no_more() {
    let mut rig = registrar("");
    let old = rig.remember_alice();
    rig.pass(Duration::from_secs(2));
    let new = Phone { password: "another".into(), count: 2, ..old.clone() };
    assert!(rig.send(ALICE, &register(3).line(&new.line()).text()).is_empty());
    assert_eq!(rig.rows(&alices_row("another")).first(), "SIP/2.0 200 OK");
    let old = Phone { count: 3, ..old };
    assert_eq!(status(&mut rig, 4, &old.value()).as_deref(), CHALLENGED);
}

#[test]
fn an_unknown_user_is_challenged_as_one_with_a_wrong_password() {
    let mut rig = registrar("");
    let stranger = Phone { user: "mallory".into(), ..Phone::alice(&rig.challenge()) };
    assert!(rig.send(ALICE, &register(2).line(&stranger.line()).text()).is_empty());
    let reply = rig.rows(&Rows::default());
    assert_eq!(reply.first(), "SIP/2.0 401 Unauthorized");
    assert_eq!(last_line(&rig), "code -3");
    // What has just been read is not read again; later it is, as it is for a wrong password: who exists is not to be
    // told by how long that takes, and a user who was just made is let in.
    assert_eq!(status(&mut rig, 3, &stranger.value()).as_deref(), CHALLENGED);
    rig.pass(Duration::from_secs(1));
    assert_eq!(status(&mut rig, 4, &stranger.value()), None);
    let hash = ha1(Algorithm::Md5, "mallory", SECRET);
    assert_ne!(rig.rows(&row(&[Some(&hash), None, Some("mallory")])).first(), "SIP/2.0 401 Unauthorized");
}

/// RFC 3261 §25.1: a quoted pair is the character. Who is meant does not depend on how it is written.
#[test]
fn a_user_name_with_escapes_is_the_same_user() {
    let route = r#"request_route {
        if (!auth_check("127.0.0.1", "subscriber", "1")) { xlog("code $rc\n"); auth_challenge("127.0.0.1", "1"); exit; }
        save("location");
    }"#;
    for (to, code) in [("sip:alice@127.0.0.1", None), ("sip:al%5Cice@127.0.0.1", Some("code -8"))] {
        let mut rig = server(route);
        let phone = Phone::alice(&rig.challenge());
        // What is hashed is as it is written.
        let phone = Phone { user: "al\\ice".into(), ..phone };
        let request = Request::new("REGISTER", "sip:127.0.0.1", ALICE)
            .to(&format!("<{to}>"))
            .from(&format!("<{to}>;tag=1"));
        let request = request.cseq(2).line(&format!("Contact: <sip:alice@{ALICE}>")).line(&phone.line());
        assert!(rig.send(ALICE, &request.text()).is_empty());
        assert_eq!(&*rig.select().keys[0].1, b"alice");
        let hash = ha1(Algorithm::Md5, "al\\ice", SECRET);
        let reply = rig.rows(&row(&[Some(&hash), None, Some("alice")]));
        match code {
            None => assert_eq!(reply.first(), "SIP/2.0 200 OK"),
            Some(code) => assert!(rig.lines().iter().any(|line| line == code), "{:?}", rig.lines()),
        }
    }
}

/// What was read before an administrator's change, and arrives after it, is not believed.
#[test]
fn a_row_of_before_a_change_is_read_again() {
    let shared = Shared::new();
    let mut rig = server_with(ROUTE, &shared);
    let phone = Phone::alice(&rig.challenge());
    assert!(rig.send(ALICE, &register(2).line(&phone.line()).text()).is_empty());
    shared.epoch.store(1, Ordering::Relaxed);
    assert!(rig.answer(Answer::Rows(&alices_row(SECRET))).is_empty(), "it is asked again");
    assert_eq!(rig.rows(&alices_row("another")).first(), "SIP/2.0 401 Unauthorized");
    let old = Phone { count: 2, ..phone };
    assert_eq!(status(&mut rig, 3, &old.value()).as_deref(), CHALLENGED, "nor is it remembered");
}

/// RFC 7616 §3.4: a count is good once.
#[test]
fn a_replay_is_refused_and_a_retransmission_is_not() {
    let mut rig = registrar("");
    let phone = rig.remember_alice();
    // The same request once more, as if its 200 was lost.
    assert_eq!(status(&mut rig, 2, &phone.value()).as_deref(), REGISTERED);
    // The same credentials in another request.
    let other = register(3).call("other").line(&phone.line()).text();
    let reply = rig.one(CAROL, &other);
    assert_eq!(reply.first(), "SIP/2.0 401 Unauthorized");
    assert_eq!(piece(reply.header("WWW-Authenticate").unwrap(), "stale").as_deref(), Some("true"));
    assert_eq!(last_line(&rig), "code -6");
}

/// RFC 7616 §5.5: who has overheard a request has not sent it; a retransmission has its branch (RFC 3261 §17.2.3).
#[test]
fn an_overheard_request_with_another_branch_source_or_contact_is_a_replay() {
    let contact = |text: &str, to: &str| text.replace(&format!("<sip:alice@{ALICE}>"), to);
    let branch = |text: &str| text.replacen(";branch=z9hG4bK", ";branch=z9hG4bKtheft", 1);
    let sent_by = |text: &str| text.replacen(&format!("UDP {ALICE};"), &format!("UDP {CAROL};"), 1);
    for (source, change) in [
        (CAROL, &(|text: &str| text.to_string()) as &dyn Fn(&str) -> String),
        (ALICE, &branch),
        (ALICE, &sent_by),
        (ALICE, &|text| contact(text, &format!("<sip:alice@{CAROL}>"))),
        (ALICE, &|text| contact(text, &format!("<sip:alice@{ALICE}>\r\nm: <sip:alice@{CAROL}>"))),
    ] {
        let mut rig = registrar("");
        let heard = register(2).line(&rig.remember_alice().line()).text();
        let reply = rig.one(source, &change(&heard));
        assert_eq!(reply.first(), "SIP/2.0 401 Unauthorized", "{source} {}", change(&heard));
        assert_eq!(piece(reply.header("WWW-Authenticate").unwrap(), "stale").as_deref(), Some("true"));
        assert_eq!(last_line(&rig), "code -6");
        // The phone itself is not disturbed by it.
        assert_eq!(rig.status(ALICE, &heard), "SIP/2.0 200 OK");
    }
}

#[test]
fn a_replay_passes_only_where_the_script_does_not_count() {
    let mut rig = registrar("modparam(\"auth\", \"nonce_count\", 0)");
    let phone = rig.remember_alice();
    assert_eq!(status(&mut rig, 3, &phone.value()).as_deref(), REGISTERED);
}

#[test]
fn a_one_time_nonce_is_good_for_one_request() {
    let mut rig = registrar("modparam(\"auth\", \"one_time_nonce\", 1)");
    let phone = rig.remember_alice();
    for (cseq, phone) in [(3, Phone { count: 2, ..phone.clone() }), (4, Phone { qop: false, ..phone })] {
        assert_eq!(status(&mut rig, cseq, &phone.value()).as_deref(), CHALLENGED);
        assert_eq!(last_line(&rig), "code -6");
    }
}

/// RFC 3261 §22.4 item 8: phones of RFC 2069 send no qop.
#[test]
fn credentials_without_qop_are_good_until_the_nonce_expires() {
    let mut rig = registrar("");
    let phone = Phone { qop: false, ..rig.remember_alice() };
    assert_eq!(status(&mut rig, 3, &phone.value()).as_deref(), REGISTERED);
    assert_eq!(status(&mut rig, 4, &phone.value()).as_deref(), REGISTERED);
    rig.pass(Duration::from_secs(301));
    assert_eq!(status(&mut rig, 5, &phone.value()).as_deref(), CHALLENGED);
}

#[test]
fn credentials_for_another_realm_are_none() {
    let mut rig = registrar("");
    let phone = rig.remember_alice();
    let other = Phone { realm: "example.org".into(), count: 2, ..phone.clone() };
    assert_eq!(status(&mut rig, 3, &other.value()).as_deref(), CHALLENGED);
    assert_eq!(last_line(&rig), "code -5");
    // Its nonce is bound to its realm: another realm of ours does not take it.
    let mut rig = server(
        r#"request_route {
            if (!www_authorize("$rU", "subscriber")) { xlog("code $rc\n"); www_challenge("$rU", "1"); exit; }
        }"#,
    );
    let request = |realm: &str| Request::new("REGISTER", &format!("sip:{realm}@127.0.0.1"), ALICE);
    let reply = rig.one(ALICE, &request("one").text());
    let uri = "sip:two@127.0.0.1".to_string();
    let phone = Phone { realm: "two".into(), uri, ..Phone::alice(reply.header("WWW-Authenticate").unwrap()) };
    rig.one(ALICE, &request("two").cseq(2).line(&phone.line()).text());
    assert_eq!(last_line(&rig), "code -4");
}

/// RFC 2617 §3.2.2.5.
#[test]
fn a_uri_that_is_not_the_request_uri_is_answered_400() {
    for uri in [
        "sip:127.0.0.2",
        "sip:bob@127.0.0.1",
        "sips:127.0.0.1",
        "sip:127.0.0.1:5099",
        "tel:+15551234",
        "*",
        "",
        "/dir/index.html",
    ] {
        let mut rig = registrar("");
        let phone = Phone { uri: uri.into(), count: 2, ..rig.remember_alice() };
        let answer = status(&mut rig, 3, &phone.value());
        assert_eq!(answer.as_deref(), Some("SIP/2.0 400 Digest URI Is Not the Request-URI"), "{uri}");
    }
}

#[test]
fn a_uri_that_means_the_request_uri_will_do() {
    for uri in ["sip:127.0.0.1;transport=udp", "SIP:127.0.0.1", "sip:127.0.0.1:5060", "sip:localhost"] {
        let mut rig = registrar("alias=\"localhost\"");
        let phone = Phone { uri: uri.into(), count: 2, ..rig.remember_alice() };
        assert_eq!(status(&mut rig, 3, &phone.value()).as_deref(), REGISTERED, "{uri}");
    }
}

#[test]
fn the_uri_is_not_compared_where_the_script_says_so() {
    let mut rig = registrar("modparam(\"auth\", \"check_uri\", 0)");
    let phone = Phone { uri: "sip:elsewhere".into(), count: 2, ..rig.remember_alice() };
    assert_eq!(status(&mut rig, 3, &phone.value()).as_deref(), REGISTERED);
}

#[test]
fn the_method_is_part_of_the_response() {
    let mut rig = registrar("");
    let phone = Phone { method: "INVITE".into(), count: 2, ..rig.remember_alice() };
    assert_eq!(status(&mut rig, 3, &phone.value()).as_deref(), CHALLENGED);
}

/// RFC 2617 §3.2.2: what is improper or lacks a part is a 400.
#[test]
fn malformed_credentials_are_answered_400() {
    let mut rig = registrar("");
    let phone = Phone { count: 2, ..rig.remember_alice() };
    let good = phone.value();
    let without = |name: &str| {
        let kept = good.strip_prefix("Digest ").unwrap().split(", ").filter(|part| !part.starts_with(name));
        format!("Digest {}", kept.collect::<Vec<_>>().join(", "))
    };
    let mut bad: Vec<String> = ["username", "realm", "nonce=", "uri", "response", "nc=", "cnonce"]
        .into_iter()
        .map(without)
        .collect();
    bad.push(format!("{good}, realm=\"another\""));
    bad.push(format!("{good}, x=\"never closed"));
    bad.push(format!("{good}, opaque=\"{}\"", "x".repeat(5_000)));
    bad.push(good.replace("nc=00000002", "nc=2"));
    bad.push("Digest".into());
    for (place, value) in bad.iter().enumerate() {
        let cseq = 10 + u32::try_from(place).unwrap();
        let answer = status(&mut rig, cseq, value);
        assert_eq!(answer.as_deref(), Some("SIP/2.0 400 Malformed Credentials"), "{value}");
    }
    assert!(rig.asks.is_empty());
    assert_eq!(status(&mut rig, 99, &good).as_deref(), REGISTERED);
}

#[test]
fn another_scheme_is_no_credentials() {
    let mut rig = registrar("");
    for (cseq, value) in [(2, "Basic YWxpY2U6eA=="), (3, "Bearer eyJhbGciOi")] {
        assert_eq!(status(&mut rig, cseq, value).as_deref(), CHALLENGED);
        assert_eq!(last_line(&rig), "code -5");
    }
}

/// RFC 8760 §3: nobody is talked down.
#[test]
fn an_algorithm_that_was_not_offered_is_not_taken() {
    let mut rig = registrar(
        "modparam(\"auth\", \"algorithm\", \"SHA-256\")\nmodparam(\"auth_db\", \"calculate_ha1\", 1)",
    );
    let phone = Phone { algorithm: Algorithm::Md5, ..Phone::alice(&rig.challenge()) };
    assert_eq!(status(&mut rig, 2, &phone.value()).as_deref(), CHALLENGED);
    let unnamed = phone.value().replace(", algorithm=MD5", "");
    assert_eq!(status(&mut rig, 3, &unnamed).as_deref(), CHALLENGED);
    let session = Phone { algorithm: Algorithm::Sha256, ..phone }.value().replace("SHA-256", "SHA-256-sess");
    assert_eq!(status(&mut rig, 4, &session).as_deref(), CHALLENGED);
    assert_eq!(last_line(&rig), "code -5");
    let unknown = session.replace("SHA-256-sess", "AKAv1-MD5");
    assert_eq!(status(&mut rig, 5, &unknown).as_deref(), CHALLENGED);
    assert!(rig.asks.is_empty());
}

/// RFC 7616 §3.4: a name in two ways is an error, and one in a way that was not offered is nobody's.
#[test]
fn a_name_that_is_hashed_or_extended_is_nobodys() {
    let mut rig = registrar("");
    let phone = Phone { count: 2, ..rig.remember_alice() };
    let good = phone.value();
    let plain = "username=\"alice\"";
    for (cseq, value) in [
        (3, good.replace(plain, "username=\"alice\", username*=UTF-8''alice")),
        (4, good.replace(plain, "username*=UTF-8''alice")),
        (5, format!("{good}, userhash=true")),
    ] {
        assert_eq!(status(&mut rig, cseq, &value).as_deref(), CHALLENGED, "{value}");
        assert_eq!(last_line(&rig), "code -5");
    }
    assert_eq!(status(&mut rig, 6, &format!("{good}, userhash=false")).as_deref(), REGISTERED);
}

/// RFC 7616 §4: whatever letters there are may be in names and passwords, in UTF-8.
#[test]
fn names_and_passwords_may_have_any_letters() {
    for (user, password) in
        [("j\u{e4}s\u{f8}n", "gr\u{fc}\u{df} Gott \u{1f511}"), ("\u{738b}\u{660e}", ": \u{3b1}:")]
    {
        let mut rig = registrar("");
        let phone = Phone { user: user.into(), password: password.into(), ..Phone::alice(&rig.challenge()) };
        assert!(rig.send(ALICE, &register(2).line(&phone.line()).text()).is_empty());
        let hash = ha1(Algorithm::Md5, user, password);
        let reply = rig.rows(&row(&[Some(&hash), Some(""), Some(user)]));
        assert_eq!(reply.first(), "SIP/2.0 200 OK", "{user}");
    }
}

/// Two proxies of one realm in a row have different keys, and the phone sends credentials for both.
#[test]
fn of_several_credentials_the_one_with_our_nonce_counts() {
    let mut rig = registrar("");
    let phone = Phone { count: 2, ..rig.remember_alice() };
    let foreign = Phone { nonce: "of-another-proxy".into(), ..phone.clone() };
    let request = register(3).line(&foreign.line()).line(&phone.line()).line(&foreign.line());
    assert_eq!(rig.status(ALICE, &request.text()), "SIP/2.0 200 OK");
    let broken = "Authorization: Digest username=\"x\"";
    let request = register(4).line(broken).line(&Phone { count: 3, ..phone }.line());
    assert_eq!(rig.status(ALICE, &request.text()), "SIP/2.0 200 OK");
}

#[test]
fn a_hundred_credentials_are_no_more_work_than_a_few() {
    let mut rig = registrar("");
    let phone = Phone { count: 2, ..rig.remember_alice() };
    let mut request = register(3);
    for number in 0..100 {
        request = request.line(&Phone { nonce: format!("foreign-{number}"), ..phone.clone() }.line());
    }
    let reply = rig.one(ALICE, &request.line(&phone.line()).text());
    assert_eq!(reply.first(), "SIP/2.0 401 Unauthorized");
}

#[test]
fn names_that_no_table_has_are_not_looked_up() {
    let mut rig = registrar("");
    let challenge = rig.challenge();
    for (cseq, user) in
        [(2, "x".repeat(300)), (3, String::new()), (4, "a\u{1}b".into()), (5, "@127.0.0.1".into())]
    {
        let phone = Phone { user, ..Phone::alice(&challenge) };
        let answer = status(&mut rig, cseq, &phone.value());
        assert!(
            matches!(answer.as_deref(), CHALLENGED | Some("SIP/2.0 400 Malformed Credentials")),
            "{answer:?}"
        );
        assert!(rig.asks.is_empty());
    }
}

#[test]
fn what_the_checks_name_must_be_as_in_the_challenged_request() {
    let cases = [
        (1, "sip:localhost", "call-1", ALICE),
        (2, "sip:127.0.0.1", "x", ALICE),
        (8, "sip:127.0.0.1", "call-1", "127.0.0.9:5061"),
    ];
    for (bit, uri, call, source) in cases {
        let text = format!("alias=\"localhost\"\nmodparam(\"auth\", \"auth_checks_register\", {bit})");
        let mut rig = registrar(&text);
        let phone = Phone { uri: uri.into(), count: 2, ..rig.remember_alice() };
        let mut request = register(3).line(&phone.line());
        request.uri = uri.into();
        request.call = call.into();
        rig.one(source, &request.text());
        assert_eq!(last_line(&rig), "code -4", "{bit}");
    }
}

/// SIPp names the server alone in its credentials, whoever is called.
#[test]
fn a_uri_that_names_the_server_alone_will_do_for_a_call() {
    for (uri, expected) in [
        ("sip:127.0.0.1:5060", None),
        ("sip:192.0.2.1", Some("SIP/2.0 400 Digest URI Is Not the Request-URI")),
    ] {
        let mut rig = registrar("");
        let request = Request::new("OPTIONS", "sip:bob@127.0.0.1", ALICE);
        let reply = rig.one(ALICE, &request.text());
        let challenge = reply.header("Proxy-Authenticate").unwrap();
        let phone = Phone { method: "OPTIONS".into(), uri: uri.into(), ..Phone::alice(challenge) };
        let request = request.cseq(2).line(&format!("Proxy-Authorization: {}", phone.value()));
        let sent = rig.send(ALICE, &request.text());
        assert_eq!(sent.first().map(Sent::first), expected, "{uri}");
    }
}
