//! Where secrets come from: columns, the memory, a database that is away, tables that lack columns, no user at all.

use super::*;

/// What Alice's phone is answered when her row is this, by these parameters.
fn answered(parameters: &str, phone: impl Fn(Phone) -> Phone, row: &Rows) -> (Sent, Rig) {
    let mut rig = registrar(parameters);
    let phone = phone(Phone::alice(&rig.challenge()));
    assert!(rig.send(ALICE, &register(2).line(&phone.line()).text()).is_empty());
    (rig.rows(row), rig)
}

#[test]
fn the_secret_is_a_hash_in_either_case_or_a_password() {
    let ok = "SIP/2.0 200 OK";
    let hash = ha1(Algorithm::Md5, "alice", SECRET);
    let same = |phone: Phone| phone;
    assert_eq!(answered("", same, &row(&[Some(&hash), None, Some("alice")])).0.first(), ok);
    assert_eq!(answered("", same, &row(&[Some(&hash.to_uppercase()), None, Some("alice")])).0.first(), ok);
    let clear = "modparam(\"auth_db\", \"calculate_ha1\", yes)\nmodparam(\"auth_db\", \"password_column\", \"password\")";
    assert_eq!(answered(clear, same, &row(&[Some(SECRET), Some("alice")])).0.first(), ok);
    // Kamailio with `algorithm` SHA-256 keeps that hash in its usual column.
    let sha256 = ha1(Algorithm::Sha256, "alice", SECRET);
    let parameters = "modparam(\"auth\", \"algorithm\", \"SHA-256\")";
    assert_eq!(
        answered(parameters, same, &row(&[Some(&sha256), None, Some("alice"), None, None])).0.first(),
        ok
    );
    // And a password beside the hashes makes those that are missing.
    assert_eq!(
        answered(parameters, same, &row(&[Some(&hash), None, Some("alice"), None, Some(SECRET)])).0.first(),
        ok
    );
}

/// MariaDB compares without case and without spaces at the end.
#[test]
fn a_row_of_another_spelling_is_another_users() {
    let clear = "modparam(\"auth_db\", \"calculate_ha1\", 1)";
    for spelling in ["Alice", "ALICE", "alice "] {
        let user = |phone| Phone { user: spelling.into(), ..phone };
        let (reply, rig) = answered(clear, user, &row(&[Some(SECRET), Some("alice")]));
        assert_eq!(reply.first(), "SIP/2.0 401 Unauthorized");
        assert_eq!(rig.lines().last().map(String::as_str), Some("code -3"));
    }
}

#[test]
fn a_user_without_a_secret_is_refused_and_the_log_says_so_without_a_name() {
    for secret in [None, Some(""), Some("nonsense")] {
        let (reply, rig) = answered("", |phone| phone, &row(&[secret, secret, Some("alice")]));
        assert_eq!(reply.first(), "SIP/2.0 401 Unauthorized");
        assert!(rig.lines().iter().any(|line| line.contains("no secret")), "{:?}", rig.lines());
        assert!(rig.lines().iter().all(|line| !line.contains("alice")));
    }
}

#[test]
fn an_empty_password_is_nobodys() {
    let clear = "modparam(\"auth_db\", \"calculate_ha1\", 1)";
    let (reply, _) =
        answered(clear, |phone| Phone { password: String::new(), ..phone }, &row(&[Some(""), Some("alice")]));
    assert_eq!(reply.first(), "SIP/2.0 401 Unauthorized");
}

#[test]
fn a_user_name_with_a_domain_has_its_own_hash_and_its_own_row() {
    let user = |phone| Phone { user: "alice@127.0.0.1".into(), ..phone };
    let (reply, rig) = answered("modparam(\"auth_db\", \"use_domain\", 1)", user, &alices_row(SECRET));
    assert_eq!(reply.first(), "SIP/2.0 200 OK");
    let keys: Vec<_> =
        rig.select().keys.iter().map(|(column, value)| (column.to_string(), value.to_vec())).collect();
    assert_eq!(
        keys,
        [("username".to_string(), b"alice".to_vec()), ("domain".to_string(), b"127.0.0.1".to_vec())]
    );
    // Without one the realm is the domain.
    let (_, rig) = answered("modparam(\"auth_db\", \"use_domain\", 1)", |phone| phone, &alices_row(SECRET));
    assert_eq!(&*rig.select().keys[1].1, REALM.as_bytes());
}

#[test]
fn columns_have_the_names_that_they_are_given_and_the_table_too() {
    let mut rig = server(
        r#"modparam("auth_db", "db_url", "postgres://u:hidden@db/x")
        modparam("auth_db", "user_column", "login")
        modparam("auth_db", "password_column", "secret")
        modparam("auth_db", "load_credentials", "$avp(mail)=email;rpid")
        request_route {
            if (www_authorize("127.0.0.1", "people")) { xlog("$avp(mail) $avp(rpid)\n"); exit; }
            www_challenge("127.0.0.1", "1");
        }"#,
    );
    let phone = Phone::alice(&rig.challenge());
    rig.send(ALICE, &register(2).line(&phone.line()).text());
    let select = rig.select();
    assert_eq!((&*select.table, &*select.keys[0].0), ("people", "login"));
    let columns: Vec<_> = select.columns.iter().map(|it| it.to_string()).collect();
    assert_eq!(columns, ["secret", "ha1b", "login", "email", "rpid"]);
    let hash = ha1(Algorithm::Md5, "alice", SECRET);
    rig.answer(Answer::Rows(&row(&[Some(&hash), None, Some("alice"), Some("alice@example.com"), None])));
    assert_eq!(rig.lines(), ["alice@example.com <null>"]);
    let settings = rig.endpoint.user().settings();
    let needed = settings.tables_needed();
    assert_eq!((needed[0].table.as_str(), needed[0].kind, needed[0].database), ("people", "subscriber", 0));
    assert_eq!(needed[0].columns, [("username", "login".to_string()), ("ha1", "secret".to_string())]);
    assert!(!format!("{settings:?}").contains("hidden"));
}

#[test]
fn a_database_that_is_away_is_a_503_and_the_end_of_the_script() {
    for answer in [Answer::Failed, Answer::Refused] {
        let mut rig = registrar("");
        let phone = Phone::alice(&rig.challenge());
        rig.send(ALICE, &register(2).line(&phone.line()).text());
        let sent = rig.answer(answer);
        assert_eq!(sent[0].first(), "SIP/2.0 503 Service Unavailable");
        assert_eq!(sent[0].header("Retry-After"), Some("5"));
        assert_eq!(sent.len(), 1);
        assert_eq!(rig.lines().iter().filter(|line| line.contains("does not answer")).count(), 1);
        // It is told once, not for each request.
        rig.send(ALICE, &register(3).line(&phone.line()).text());
        rig.answer(Answer::Failed);
        assert_eq!(rig.lines().iter().filter(|line| line.contains("does not answer")).count(), 1);
    }
}

#[test]
fn a_database_that_takes_too_long_is_not_waited_for() {
    let mut rig = registrar("modparam(\"auth_db\", \"query_timeout\", 700)");
    let phone = Phone::alice(&rig.challenge());
    rig.send(ALICE, &register(2).line(&phone.line()).text());
    assert!(rig.pass(Duration::from_millis(699)).is_empty());
    let sent = rig.pass(Duration::from_millis(2));
    assert_eq!(sent[0].first(), "SIP/2.0 503 Service Unavailable");
}

#[test]
fn who_is_remembered_does_not_notice_that_the_database_is_away() {
    let mut rig = registrar("");
    let mut phone = rig.remember_alice();
    let other = Phone { user: "bob".into(), count: 2, ..phone.clone() };
    rig.send(BOB, &register(2).call("b").line(&other.line()).text());
    for cseq in 3..8 {
        phone.count += 1;
        assert_eq!(rig.status(ALICE, &register(cseq).line(&phone.line()).text()), "SIP/2.0 200 OK");
    }
    assert_eq!(rig.asks.len(), 1);
}

#[test]
fn users_are_asked_for_again_when_they_are_old_or_an_administrator_changed_some() {
    let shared = Shared::new();
    let text = format!("modparam(\"auth_db\", \"cache_age\", 100)\n{ROUTE}");
    let mut rig = server_with(&text, &shared);
    let phone = rig.remember_alice();
    let asks = |rig: &mut Rig, count: u32| {
        let phone = Phone { count, ..phone.clone() };
        let asked = rig.send(ALICE, &register(count + 1).line(&phone.line()).text()).is_empty();
        if asked {
            assert_eq!(rig.rows(&alices_row(SECRET)).first(), "SIP/2.0 200 OK");
        }
        asked
    };
    assert!(!asks(&mut rig, 2));
    rig.pass(Duration::from_secs(100));
    assert!(asks(&mut rig, 3));
    assert!(!asks(&mut rig, 4));
    shared.epoch.store(1, Ordering::Relaxed);
    assert!(asks(&mut rig, 5));
}

#[test]
fn without_a_memory_every_request_asks() {
    for parameter in ["cache_size", "cache_age"] {
        let mut rig = registrar(&format!("modparam(\"auth_db\", \"{parameter}\", 0)"));
        let mut phone = rig.remember_alice();
        for cseq in 3..6 {
            phone.count += 1;
            assert!(rig.send(ALICE, &register(cseq).line(&phone.line()).text()).is_empty());
            assert_eq!(rig.rows(&alices_row(SECRET)).first(), "SIP/2.0 200 OK");
        }
    }
}

/// Kamailio's table has no columns for the stronger hashes.
#[test]
fn a_table_that_lacks_our_columns_is_asked_without_them() {
    let mut rig = registrar("modparam(\"auth\", \"algorithm\", \"SHA-256,MD5\")");
    let phone = Phone { algorithm: Algorithm::Md5, ..Phone::alice(&rig.challenge()) };
    rig.send(ALICE, &register(2).line(&phone.line()).text());
    assert_eq!(rig.select().columns.len(), 5);
    assert!(rig.answer(Answer::Refused).is_empty());
    assert_eq!(rig.select().columns.len(), 3);
    assert_eq!(rig.rows(&alices_row(SECRET)).first(), "SIP/2.0 200 OK");
    // From then on it is known.
    let other = Phone { user: "bob".into(), ..phone };
    rig.send(BOB, &register(2).call("b").line(&other.line()).text());
    assert_eq!(rig.select().columns.len(), 3);
}

/// A database may refuse once for another reason: while it is migrated, or its rights are changed.
#[test]
fn what_a_table_was_thought_to_lack_is_asked_for_again() {
    let sha256 = ha1(Algorithm::Sha256, "alice", SECRET);
    let whole = row(&[None, None, Some("alice"), Some(&sha256), None]);
    for by_epoch in [false, true] {
        let shared = Shared::new();
        let mut rig =
            server_with(&format!("modparam(\"auth\", \"algorithm\", \"SHA-256,MD5\")\n{ROUTE}"), &shared);
        let phone = Phone::alice(&rig.challenge());
        rig.send(ALICE, &register(2).line(&phone.line()).text());
        assert!(rig.answer(Answer::Refused).is_empty());
        let without = row(&[None, None, Some("alice")]);
        assert_eq!(rig.rows(&without).first(), "SIP/2.0 401 Unauthorized");
        // What is still under way when that is forgotten does not renew it.
        rig.pass(Duration::from_millis(59_900));
        let other = Phone { user: "bob".into(), ..phone.clone() };
        rig.send(BOB, &register(2).call("b").line(&other.line()).text());
        assert_eq!(rig.select().columns.len(), 3);
        if by_epoch {
            shared.epoch.store(1, Ordering::Relaxed);
        } else {
            rig.pass(Duration::from_millis(200));
            rig.rows(&Rows::default());
        }
        assert!(rig.send(ALICE, &register(3).line(&phone.line()).text()).is_empty());
        assert_eq!(rig.select().columns.len(), 5);
        assert_eq!(rig.rows(&whole).first(), "SIP/2.0 200 OK");
    }
}

#[test]
fn a_table_that_is_gone_is_no_table_that_lacks_columns() {
    let mut rig = registrar("modparam(\"auth\", \"algorithm\", \"SHA-256,MD5\")");
    let phone = Phone { algorithm: Algorithm::Md5, ..Phone::alice(&rig.challenge()) };
    rig.send(ALICE, &register(2).line(&phone.line()).text());
    assert!(rig.answer(Answer::Refused).is_empty());
    assert_eq!(rig.answer(Answer::Refused)[0].first(), "SIP/2.0 503 Service Unavailable");
    rig.send(ALICE, &register(3).line(&phone.line()).text());
    assert_eq!(rig.select().columns.len(), 5);
}

#[test]
fn subscribers_are_found_and_what_is_loaded_with_them() {
    let mut rig = server(
        r#"modparam("auth_db", "load_credentials", "email")
        request_route {
            if (is_subscriber("$ru", "subscriber", "1")) xlog("yes $avp(email)\n"); else xlog("no $rc\n");
            if (is_subscriber("sip:127.0.0.1", "subscriber", "1")) xlog("a host is none\n");
            send_reply("404", "Not Found");
        }"#,
    );
    let ask =
        |user: &str| Request::new("OPTIONS", &format!("sip:{user}@example.org"), ALICE).call(user).text();
    rig.send(ALICE, &ask("%62ob"));
    let keys: Vec<_> = rig.select().keys.iter().map(|(_, value)| value.to_vec()).collect();
    assert_eq!(keys, [b"bob".to_vec(), b"example.org".to_vec()]);
    rig.answer(Answer::Rows(&row(&[None, None, Some("bob"), Some("bob@example.org")])));
    rig.send(ALICE, &ask("carol"));
    rig.answer(Answer::Rows(&Rows::default()));
    rig.send(ALICE, &ask("bob"));
    rig.send(ALICE, &ask("dave"));
    assert_eq!(rig.answer(Answer::Failed)[0].first(), "SIP/2.0 503 Service Unavailable");
    assert_eq!(&rig.lines()[..3], ["yes bob@example.org", "no -1", "yes bob@example.org"]);
}

#[test]
fn a_route_that_cannot_wait_goes_on_and_says_so() {
    let mut rig = server(
        r#"request_route { t_on_failure("F"); $du = "sip:127.0.0.1:5062"; t_relay(); }
        failure_route[F] { if (!proxy_authorize("127.0.0.1", "subscriber")) xlog("code $rc\n"); }"#,
    );
    // A challenge of another rig with the same key.
    let challenge = registrar("").challenge();
    let phone =
        Phone { method: "INVITE".into(), uri: "sip:bob@127.0.0.1".into(), ..Phone::alice(&challenge) };
    let request = Request::new("INVITE", "sip:bob@127.0.0.1", ALICE)
        .line(&format!("Proxy-Authorization: {}", phone.value()));
    let sent = rig.send(ALICE, &request.text());
    let forwarded = sent.iter().find(|sent| sent.to == BOB).unwrap();
    rig.send(BOB, &respond(forwarded, "486 Busy Here", "b"));
    assert!(rig.asks.is_empty());
    let lines = rig.lines();
    assert!(lines[0].contains("cannot wait"), "{lines:?}");
    assert_eq!(lines[1], "code -1");
}

const OPEN: &str = "modparam(\"auth_db\", \"open_until_first_user\", 1)";

#[test]
fn until_there_is_a_user_this_host_needs_none_and_others_are_refused() {
    let mut rig =
        server_at(&format!("{OPEN}\n{ROUTE}"), &Shared::new(), &["127.0.0.1:5060", "192.0.2.9:5060"]);
    assert!(rig.send(ALICE, &register(1).text()).is_empty());
    let select = rig.select();
    assert_eq!((select.keys.len(), select.rows_max, select.columns.len()), (0, 1, 1));
    assert_eq!(rig.rows(&Rows::default()).first(), "SIP/2.0 200 OK");
    // Believed for a second.
    assert_eq!(rig.status(ALICE, &register(2).text()), "SIP/2.0 200 OK");
    // What comes to a loopback address is of this host, whichever of its addresses it was sent from.
    assert_eq!(rig.status("192.0.2.1:5060", &register(3).text()), "SIP/2.0 200 OK");
    for cseq in 4..6 {
        let reply = rig.send_by(1, "192.0.2.1:5060", &register(cseq).text()).remove(0);
        assert_eq!(reply.first(), "SIP/2.0 403 No Users Yet");
    }
    assert_eq!(rig.send_by(1, ALICE, &register(6).text()).remove(0).first(), "SIP/2.0 200 OK");
    assert_eq!(rig.lines().iter().filter(|line| line.contains("strowger user add")).count(), 1);
    // The first user ends it for good.
    rig.pass(Duration::from_secs(1));
    assert!(rig.send(ALICE, &register(7).text()).is_empty());
    assert_eq!(rig.rows(&row(&[Some("carol")])).first(), "SIP/2.0 401 Unauthorized");
    rig.pass(Duration::from_secs(3_600));
    assert_eq!(rig.status(ALICE, &register(8).text()), "SIP/2.0 401 Unauthorized");
    assert!(rig.asks.is_empty());
}

#[test]
fn a_database_that_does_not_say_whether_there_are_users_opens_nothing() {
    let mut rig = registrar(OPEN);
    rig.send(ALICE, &register(1).text());
    assert_eq!(rig.answer(Answer::Failed)[0].first(), "SIP/2.0 503 Service Unavailable");
    rig.send(ALICE, &register(2).text());
    assert_eq!(rig.answer(Answer::Refused)[0].first(), "SIP/2.0 503 Service Unavailable");
}

#[test]
fn the_first_user_is_looked_up_right_behind_the_question() {
    let mut rig = registrar(OPEN);
    rig.send(ALICE, &register(1).text());
    let reply = rig.rows(&row(&[Some("alice")]));
    let phone = Phone::alice(reply.header("WWW-Authenticate").unwrap());
    assert!(rig.send(ALICE, &register(2).line(&phone.line()).text()).is_empty());
    assert_eq!(rig.rows(&alices_row(SECRET)).first(), "SIP/2.0 200 OK");
}

/// `calculate_ha1` with the default of `password_column`: passwords are in `ha1`, and no column is there twice.
#[test]
fn no_table_has_two_columns_of_one_name() {
    let route = r#"request_route { www_authorize("127.0.0.1", "people"); }"#;
    let named = |parameters: &str| {
        let rig = server(&format!("{parameters}\n{route}"));
        let columns = rig.endpoint.user().settings().tables_needed()[0].columns.clone();
        columns.into_iter().map(|(usual, here)| (usual.to_string(), here)).collect::<Vec<_>>()
    };
    let pair = |usual: &str, here: &str| (usual.to_string(), here.to_string());
    let calculated = "modparam(\"auth_db\", \"calculate_ha1\", 1)";
    assert_eq!(named(calculated), [pair("password", "ha1"), pair("ha1", "password")]);
    let own = format!("{calculated}\nmodparam(\"auth_db\", \"password_column\", \"password\")");
    assert_eq!(named(&own), []);
    let swapped = "modparam(\"auth_db\", \"password_column\", \"password\")";
    assert_eq!(named(swapped), [pair("ha1", "password"), pair("password", "ha1")]);
}
