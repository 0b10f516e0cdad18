//! Passwords from the script, identities, and what scripts can read of credentials.

use super::*;

/// A server that knows one password.
fn knowing(body: &str) -> Rig {
    server(&format!("request_route {{ {body} }}"))
}

fn reply_to(rig: &mut Rig, request: &Request) -> Sent {
    rig.one(ALICE, &request.text())
}

#[test]
fn a_password_of_the_script_or_its_hash_is_enough() {
    let hash = ha1(Algorithm::Md5, "alice", SECRET);
    for (password, flags) in [(SECRET, "0"), (hash.as_str(), "1")] {
        let mut rig = knowing(&format!(
            r#"if (!pv_www_authenticate("127.0.0.1", "{password}", "{flags}")) {{ www_challenge("127.0.0.1", "1"); exit; }}
            send_reply("200", "OK");"#
        ));
        let phone = Phone::alice(&rig.challenge());
        let reply = reply_to(&mut rig, &register(2).line(&phone.line()));
        assert_eq!(reply.first(), "SIP/2.0 200 OK", "{flags}");
    }
}

#[test]
fn the_method_may_be_given() {
    let mut rig = knowing(
        r#"if (!pv_www_authenticate("127.0.0.1", "open sesame", "0", "INVITE")) { www_challenge("127.0.0.1", "1"); exit; }
        send_reply("200", "OK");"#,
    );
    let phone = Phone { method: "INVITE".into(), ..Phone::alice(&rig.challenge()) };
    assert_eq!(reply_to(&mut rig, &register(2).line(&phone.line())).first(), "SIP/2.0 200 OK");
}

/// A variable without a value must not be a password that everybody knows.
#[test]
fn no_credentials_are_right_for_an_empty_password() {
    let mut rig = knowing(
        r#"if (!pv_www_authenticate("127.0.0.1", "$avp(none)", "0")) { xlog("code $rc\n"); www_challenge("127.0.0.1", "1"); exit; }
        send_reply("200", "OK");"#,
    );
    for password in ["", "<null>", "$null"] {
        let phone = Phone { password: password.into(), ..Phone::alice(&rig.challenge()) };
        let reply = reply_to(&mut rig, &register(2).line(&phone.line()));
        assert_eq!(reply.first(), "SIP/2.0 401 Unauthorized");
    }
}

#[test]
fn a_challenge_is_left_to_the_script_where_it_wants_to_send_it() {
    let mut rig = knowing(
        r#"if (!pv_www_authenticate("127.0.0.1", "open sesame", "4")) {
            append_to_reply("$avp(digest_challenge)");
            send_reply("401", "Do Tell");
        }"#,
    );
    let reply = reply_to(&mut rig, &register(1));
    assert_eq!(reply.first(), "SIP/2.0 401 Do Tell");
    assert_eq!(piece(reply.header("WWW-Authenticate").unwrap(), "qop").as_deref(), Some("auth"));
    let mut rig = knowing(
        r#"if (auth_get_www_authenticate("r", "4", "$avp(x)")) xlog("$avp(x)\n");
        if (!auth_get_www_authenticate("r", "4", "$var(x)")) xlog("no\n"); send_reply("200", "OK");"#,
    );
    reply_to(&mut rig, &register(1));
    assert!(rig.lines()[0].starts_with("Digest realm=\"r\", nonce="), "{:?}", rig.lines());
    assert_eq!(rig.lines().last().map(String::as_str), Some("no"));
}

/// What `auth_check` says of a request whose credentials are right.
fn checked(flags: &str, request: &Request, phone: impl Fn(Phone) -> Phone) -> String {
    let mut rig = server(&format!(
        r#"modparam("auth_db", "use_domain", 1)
        request_route {{
            if (!auth_check("127.0.0.1", "subscriber", "{flags}")) {{
                if ($rc == -5) {{ auth_challenge("127.0.0.1", "1"); exit; }}
                sl_send_reply("403", "$rc");
                exit;
            }}
            sl_send_reply("200", "OK");
        }}"#
    ));
    let first = rig.send(ALICE, &request.text());
    let reply = first.last().unwrap();
    let (challenge, header) = match reply.header("WWW-Authenticate") {
        Some(challenge) => (challenge, "Authorization"),
        None => (reply.header("Proxy-Authenticate").unwrap(), "Proxy-Authorization"),
    };
    let method = request.method.clone();
    let phone = phone(Phone { method, uri: request.uri.clone(), ..Phone::alice(challenge) });
    let again = request.clone().cseq(2).line(&format!("{header}: {}", phone.value()));
    let sent = rig.send(ALICE, &again.text());
    assert!(sent.iter().all(|sent| sent.first() == "SIP/2.0 100 Trying"), "{sent:?}");
    let sent = rig.answer(Answer::Rows(&alices_row(SECRET)));
    sent.last().unwrap().first().to_string()
}

#[test]
fn who_is_authenticated_is_compared_with_who_is_named() {
    let (ok, mismatch) = ("SIP/2.0 200 OK", "SIP/2.0 403 -8");
    let same = |phone: Phone| phone;
    let (alice, bob) = ("<sip:alice@127.0.0.1>", "<sip:bob@127.0.0.1>;tag=1");
    let invite = Request::new("INVITE", "sip:bob@127.0.0.1", ALICE);
    let register = Request::new("REGISTER", "sip:127.0.0.1", ALICE).to(alice);
    let publish = Request::new("PUBLISH", "sip:alice@127.0.0.1", ALICE).to(alice);
    let others = "<sip:alice@example.org>;tag=1";
    for (flags, request, expected) in [
        ("0", invite.clone().from(bob), ok),
        ("1", invite.clone(), ok),
        ("1", invite.clone().from("<sip:%61lice@127.0.0.1>;tag=1"), ok),
        ("1", invite.clone().from(bob), mismatch),
        ("1", invite.clone().from("<sip:Alice@127.0.0.1>;tag=1"), mismatch),
        ("1", invite.clone().from(others), mismatch),
        ("1", invite.clone().from("<sip:127.0.0.1>;tag=1"), mismatch),
        ("3", invite.from(bob), ok),
        ("1", register.clone(), ok),
        ("1", register.clone().to("<sip:bob@127.0.0.1>"), mismatch),
        ("1", register.clone().from(bob), mismatch),
        ("3", register.to("<sip:bob@127.0.0.1>"), mismatch),
        ("1", publish.clone(), ok),
        ("1", Request { uri: "sip:bob@127.0.0.1".into(), ..publish }, mismatch),
    ] {
        assert_eq!(checked(flags, &request, same), expected, "{flags} {request:?}", request = request.text());
    }
    // A user name may have the domain.
    let with_domain = |phone: Phone| Phone { user: "alice@127.0.0.1".into(), ..phone };
    assert_eq!(checked("1", &Request::new("INVITE", "sip:bob@127.0.0.1", ALICE), with_domain), ok);
}

#[test]
fn the_script_reads_what_credentials_say() {
    let mut rig = knowing(
        r#"xlog("$au|$aU|$ad|$ar|$adu|$aa|$adc|$ado\n");
        if (has_credentials("127.0.0.1")) xlog("has\n");
        if (has_credentials("elsewhere")) xlog("has not\n");
        if (consume_credentials()) xlog("consumed\n");
        send_reply("404", "Not Found");"#,
    );
    reply_to(&mut rig, &register(1));
    let challenge = registrar("").challenge();
    let phone = Phone { user: "alice@home".into(), ..Phone::alice(&challenge) };
    reply_to(&mut rig, &register(2).line(&phone.line()));
    assert_eq!(
        rig.lines(),
        [
            "$null|$null|$null|$null|$null|$null|$null|$null".replace("$null", "<null>").as_str(),
            "alice|alice@home|home|127.0.0.1|sip:127.0.0.1|MD5|0a4f113b|<null>",
            "has",
        ]
    );
}

/// What authenticated is read, not what came first.
#[test]
fn the_credentials_that_were_right_go_before_others() {
    let mut rig = knowing(
        r#"if (!pv_proxy_authenticate("127.0.0.1", "open sesame", "0")) { proxy_challenge("127.0.0.1", "1"); exit; }
        xlog("$au $ar\n"); send_reply("200", "OK");"#,
    );
    let request = Request::new("OPTIONS", "sip:127.0.0.1", ALICE);
    let reply = reply_to(&mut rig, &request);
    let phone =
        Phone { method: "OPTIONS".into(), ..Phone::alice(reply.header("Proxy-Authenticate").unwrap()) };
    let other = Phone { user: "mallory".into(), realm: "elsewhere".into(), ..phone.clone() };
    let request = request
        .cseq(2)
        .line(&format!("Proxy-Authorization: {}", other.value()))
        .line(&format!("Proxy-Authorization: {}", phone.value()));
    reply_to(&mut rig, &request);
    assert_eq!(rig.lines(), ["alice 127.0.0.1"]);
}
