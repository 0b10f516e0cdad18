//! Digest authentication under attack and under sloppy phones (RFC 3261 §22, RFC 7616, RFC 8760): who knows no password
//! gets nothing, who knows it is not locked out.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use end_to_end::{
    Algorithm, Challenge, Digest, House, Message, PATIENCE, Phone, Server, Signal, Sql, Start, Subscriber,
    again, final_answer, only_strowger, written,
};

/// A server with users in SQLite. Each has the password that [`subscriber`] says.
fn house(users: &[&str]) -> (House, Server) {
    started(House::new(Sql::Sqlite, "1").define("WITH_AUTH", ""), users)
}

fn started(house: House, users: &[&str]) -> (House, Server) {
    let server = house.start().spawn();
    for user in users {
        house.add_user(user, &subscriber(user).password);
    }
    (house, server)
}

fn subscriber(user: &str) -> Subscriber {
    Subscriber::new(user, &format!("the password of {user}"))
}

/// A phone of a user, a REGISTER of his, and right credentials for it: not sent yet.
fn challenged(server: &Server, user: &str) -> (Phone, Message, Digest) {
    let phone = Phone::new(server, user);
    let request = phone.register_request();
    let answer = subscriber(user).challenged(&phone, &request);
    let digest = Digest::to(&Challenge::find(&answer, Algorithm::Md5), &request, &subscriber(user));
    (phone, request, digest)
}

/// What the server answers to a REGISTER.
fn answer_to(phone: &Phone, request: &Message) -> Message {
    phone.send(request);
    final_answer(phone, request)
}

/// It was refused in one of the ways that tell a client what to do.
fn assert_refused(answer: &Message, what: &str) {
    let refusals = [400, 401, 403, 407];
    assert!(answer.status().is_some_and(|status| refusals.contains(&status)), "{what}:\n{answer}");
}

#[test]
fn the_right_password_is_accepted_and_another_is_not() {
    let (_house, server) = house(&["bob"]);
    let (bob, request, digest) = challenged(&server, "bob");
    assert_eq!(answer_to(&bob, &digest.apply(&bob, &request)).status(), Some(200));
    let (bob, request, mut digest) = challenged(&server, "bob");
    digest.password.push('!');
    let answer = answer_to(&bob, &digest.apply(&bob, &request));
    assert_eq!(answer.status(), Some(401), "{answer}");
    // Stale would make the phone try the same password again and again (RFC 7616 §3.3).
    assert!(Challenge::all(&answer).iter().all(|challenge| !challenge.is_stale()), "{answer}");
}

#[test]
fn a_user_who_does_not_exist_is_refused_in_the_same_way() {
    let (_house, server) = house(&["bob"]);
    let wrong = |user: &str| {
        let (phone, request, mut digest) = challenged(&server, user);
        digest.password.push('!');
        let answer = answer_to(&phone, &digest.apply(&phone, &request));
        let names = answer.headers.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        (answer.start.clone(), names)
    };
    assert_eq!(wrong("bob"), wrong("nobody"), "who exists must not be found out");
}

#[test]
fn a_copy_of_a_request_is_answered_again() {
    let (_house, server) = house(&["bob"]);
    let (bob, request, digest) = challenged(&server, "bob");
    let with = digest.apply(&bob, &request);
    assert_eq!(answer_to(&bob, &with).status(), Some(200));
    bob.send(&with);
    let bytes = bob.receive_bytes(PATIENCE).expect("an answer to the copy");
    let answer = Message::parse(&bytes).expect("a message");
    assert_eq!(answer.status(), Some(200), "{answer}");
}

#[test]
fn credentials_that_were_overheard_are_worth_nothing() {
    only_strowger!("counting is an option of Kamailio's");
    let (_house, server) = house(&["bob"]);
    let (bob, request, digest) = challenged(&server, "bob");
    let with = digest.apply(&bob, &request);
    assert_eq!(answer_to(&bob, &with).status(), Some(200));
    let mallory = Phone::new(&server, "bob");
    let stolen = mallory.register_request().with("Authorization", digest.value());
    assert_refused(&answer_to(&mallory, &stolen), "credentials were replayed");
    assert!(
        !contacts_with(&bob, &digest, 2)
            .iter()
            .any(|contact| contact.contains(&mallory.address().to_string()))
    );
    // The same from bob's own address, in a new transaction and a new call.
    let replayed = again(&bob, &with).set("Call-ID", "another-call");
    assert_refused(&answer_to(&bob, &replayed), "credentials were replayed");
}

/// The contacts of a user, asked for with credentials whose nonce was used `count - 1` times.
fn contacts_with(phone: &Phone, digest: &Digest, count: u32) -> Vec<String> {
    let query = phone.register_request().without("Contact").without("Expires");
    let answer = answer_to(phone, &Digest { count, ..digest.clone() }.apply(phone, &query));
    assert_eq!(answer.status(), Some(200), "the nonce is good for more:\n{answer}");
    end_to_end::listed(&answer)
}

#[test]
fn one_nonce_is_good_for_many_requests() {
    let (_house, server) = house(&["bob"]);
    let (bob, request, digest) = challenged(&server, "bob");
    for count in 1..=100 {
        let with = Digest { count, ..digest.clone() }.apply(&bob, &request);
        let with = with.set("CSeq", format!("{} REGISTER", count + 1));
        let answer = answer_to(&bob, &with);
        assert_eq!(answer.status(), Some(200), "use {count}:\n{answer}");
    }
}

#[test]
fn a_count_that_was_used_is_not_used_again() {
    only_strowger!("counting is an option of Kamailio's");
    let (_house, server) = house(&["bob"]);
    let (bob, request, digest) = challenged(&server, "bob");
    let mut cseq = 10;
    let mut with = |count: u32| {
        cseq += 1;
        let with = Digest { count, ..digest.clone() }.apply(&bob, &request);
        answer_to(&bob, &with.set("CSeq", format!("{cseq} REGISTER"))).status()
    };
    assert_eq!(with(1), Some(200));
    assert_eq!(with(9), Some(200), "requests may overtake each other");
    assert_eq!(with(5), Some(200), "requests may overtake each other");
    for used in [1, 5, 9] {
        assert_eq!(with(used), Some(401), "count {used} was used");
    }
    assert_eq!(with(10), Some(200));
    assert_eq!(with(2_000), Some(200));
    assert_eq!(with(10), Some(401), "count 10 was used");
    assert_eq!(with(11), Some(401), "far behind what was used nobody knows what was used");
}

#[test]
fn a_stale_nonce_is_named_so_to_who_knows_the_password() {
    let (_house, server) =
        started(House::new(Sql::Sqlite, "1").define("WITH_AUTH", "").define("NONCE_EXPIRE", "2"), &["bob"]);
    let (bob, request, digest) = challenged(&server, "bob");
    let wrong = Digest { password: "a guess".to_owned(), ..digest.clone() };
    thread::sleep(Duration::from_millis(4_100));
    let answer = answer_to(&bob, &wrong.apply(&bob, &request));
    assert_eq!(answer.status(), Some(401), "{answer}");
    let with = digest.apply(&bob, &request).set("CSeq", "9 REGISTER");
    let answer = answer_to(&bob, &with);
    assert_eq!(answer.status(), Some(401), "{answer}");
    assert!(Challenge::all(&answer).iter().all(Challenge::is_stale), "{answer}");
    let digest = Digest::to(&Challenge::find(&answer, Algorithm::Md5), &with, &subscriber("bob"));
    assert_eq!(answer_to(&bob, &digest.apply(&bob, &with)).status(), Some(200));
}

#[test]
fn nonces_that_this_server_has_not_made_are_refused() {
    let (_house, server) = house(&["bob"]);
    let (_other_house, other) = house(&["bob"]);
    let (_, _, of_other) = challenged(&other, "bob");
    let (_, _, own) = challenged(&server, "bob");
    let mut nonces =
        vec![of_other.nonce, String::new(), "0".to_owned(), "A".repeat(own.nonce.len()), own.nonce.repeat(2)];
    nonces.extend((0..own.nonce.len()).step_by(own.nonce.len() / 8 + 1).map(|at| {
        let other = if own.nonce.as_bytes()[at] == b'A' { "B" } else { "A" };
        format!("{}{other}{}", &own.nonce[..at], &own.nonce[at + 1..])
    }));
    for nonce in nonces {
        let (bob, request, digest) = challenged(&server, "bob");
        let answer = answer_to(&bob, &Digest { nonce: nonce.clone(), ..digest }.apply(&bob, &request));
        assert_refused(&answer, &format!("nonce {nonce:?} is not ours"));
    }
}

/// Makes right credentials wrong.
type Spoil = fn(&mut Digest);

#[test]
fn credentials_for_something_else_are_refused() {
    let (_house, server) = house(&["bob"]);
    let wrong: [(&str, Spoil); 7] = [
        ("another realm", |digest| digest.realm = "example.org".into()),
        ("another URI", |digest| digest.uri = "sip:example.org".into()),
        ("another method", |digest| digest.method = "INVITE".into()),
        ("an empty user", |digest| digest.user = String::new()),
        ("another qop", |digest| digest.qop = Some("auth-int".into())),
        ("an unknown qop", |digest| digest.qop = Some("none".into())),
        ("another algorithm", |digest| digest.algorithm_name = Some("SHA-1".into())),
    ];
    for (what, spoil) in wrong {
        let (bob, request, mut digest) = challenged(&server, "bob");
        spoil(&mut digest);
        assert_refused(&answer_to(&bob, &digest.apply(&bob, &request)), what);
    }
}

#[test]
fn nobody_registers_for_another() {
    let (_house, server) = house(&["bob", "mallory"]);
    let (_, _, template) = challenged(&server, "mallory");
    let (bob, request, digest) = challenged(&server, "bob");
    let of_mallory = Digest { user: "mallory".into(), password: template.password, ..digest };
    let answer = answer_to(&bob, &of_mallory.apply(&bob, &request));
    assert_eq!(answer.status(), Some(403), "{answer}");
}

#[test]
fn credentials_with_missing_parts_are_refused() {
    let (_house, server) = house(&["bob"]);
    for missing in ["username", "realm", "nonce", "uri", "response", "cnonce", "nc"] {
        let (bob, request, digest) = challenged(&server, "bob");
        let mut parameters = digest.parameters();
        parameters.retain(|(name, _)| name != missing);
        let with = again(&bob, &request).with("Authorization", written(&parameters));
        assert_refused(&answer_to(&bob, &with), &format!("without {missing}"));
    }
}

#[test]
fn credentials_that_are_malformed_are_refused() {
    let (_house, server) = house(&["bob"]);
    let long = "x".repeat(20_000);
    let malformed = [
        "Digest".to_owned(),
        "Digest ".to_owned(),
        "Digest ,,,,".to_owned(),
        "Digest =".to_owned(),
        "Digest username".to_owned(),
        "Digest username=\"bob".to_owned(),
        "Digest username=\"bob\\".to_owned(),
        "Basic Ym9iOmJvYg==".to_owned(),
        "Bearer \"\"".to_owned(),
        format!("Digest username=\"{long}\", realm=\"{long}\""),
        format!("Digest {}", "a=b,".repeat(10_000)),
        format!("{long} a=b"),
        "Digest username=\u{fffd}\u{0}\u{1}, nonce=\u{7f}".to_owned(),
    ];
    for credentials in &malformed {
        let bob = Phone::new(&server, "bob");
        let with = bob.register_request().with("Authorization", credentials);
        let shown: String = credentials.chars().take(60).collect();
        assert_refused(&answer_to(&bob, &with), &shown);
    }
    assert!(server.is_answering());
}

/// Right credentials with one part spoilt, in ways that a hasty parser takes for right.
#[test]
fn parts_that_are_malformed_spoil_the_whole() {
    let (_house, server) = house(&["bob"]);
    let long = "f".repeat(10_000);
    let spoilt = [
        ("response", "\"\""),
        ("response", "\"zz\""),
        ("response", "00000000000000000000000000000000"),
        ("response", long.as_str()),
        ("nc", "00000000"),
        ("nc", "1"),
        ("nc", "0000000g"),
        ("nc", "-0000001"),
        ("nc", "ffffffffffffffffffffffffffffffff"),
        ("cnonce", "\"\\\""),
        ("username", "\"bob\\\""),
        ("username", "\"BOB\""),
        ("username", "\"bob \""),
        ("qop", "\"auth,auth-int\""),
        ("algorithm", "MD5-sess"),
        ("algorithm", long.as_str()),
    ];
    for (number, (name, value)) in spoilt.into_iter().enumerate() {
        let (bob, request, digest) = challenged(&server, "bob");
        let mut parameters = digest.parameters();
        for parameter in parameters.iter_mut().filter(|(other, _)| other == name) {
            value.clone_into(&mut parameter.1);
        }
        let with = again(&bob, &request).with("Authorization", written(&parameters));
        let answer = answer_to(&bob, &with);
        let shown: String = value.chars().take(40).collect();
        // After so many wrong ones they may be slowed down, which is no acceptance either.
        let is_slowed = number >= 9 && answer.status() == Some(503);
        assert!(
            is_slowed || answer.status().is_some_and(|status| (400..=407).contains(&status)),
            "{name}={shown}:\n{answer}"
        );
    }
}

/// RFC 3261 §22.3: credentials of several realms, in several lines; ours are among them.
#[test]
fn the_credentials_for_our_realm_are_found_among_others() {
    let (_house, server) = house(&["bob"]);
    let (bob, request, digest) = challenged(&server, "bob");
    let foreign = Digest { realm: "example.org".into(), nonce: "of another".into(), ..digest.clone() };
    let with =
        again(&bob, &request).with("Authorization", foreign.value()).with("Authorization", digest.value());
    let answer = answer_to(&bob, &with);
    assert_eq!(answer.status(), Some(200), "{answer}");
}

/// RFC 3261 §22.4 item 8: phones of RFC 2069 send neither qop nor nc.
#[test]
fn a_phone_without_qop_is_accepted() {
    let (_house, server) = house(&["bob"]);
    let (bob, request, digest) = challenged(&server, "bob");
    let answer = answer_to(&bob, &Digest { qop: None, ..digest }.apply(&bob, &request));
    assert_eq!(answer.status(), Some(200), "{answer}");
}

/// Names and tokens in any case, blanks where the grammar allows them, parameters nobody knows (RFC 7616 §3.4).
#[test]
fn unusual_spellings_are_accepted() {
    let (_house, server) = house(&["bob"]);
    let (bob, request, digest) = challenged(&server, "bob");
    let parameters = digest.parameters();
    let upper: Vec<String> =
        parameters.iter().rev().map(|(name, value)| format!("{}  =\t{value}", name.to_uppercase())).collect();
    let with = again(&bob, &request)
        .with("Authorization", format!("dIGEST   {} , future=\"a, b\"", upper.join(" ,  ")));
    let answer = answer_to(&bob, &with);
    assert_eq!(answer.status(), Some(200), "{answer}");
}

fn call(caller: &Phone, callee: &Phone, subscriber: &Subscriber) -> Message {
    let invite = caller.request("INVITE", &callee.address_of_record());
    let answer = subscriber.challenged(caller, &invite);
    assert_eq!(answer.status(), Some(407), "{answer}");
    let digest = Digest::to(&Challenge::find(&answer, Algorithm::Md5), &invite, subscriber);
    let with = digest.apply(caller, &invite);
    caller.send(&with);
    with
}

/// RFC 3261 §22.1: there is no way to answer a challenge of an ACK, and a CANCEL cannot be sent again.
#[test]
fn ack_and_cancel_are_never_challenged() {
    let (_house, server) = house(&["alice", "bob"]);
    let (alice, bob) = (Phone::new(&server, "alice"), Phone::new(&server, "bob"));
    subscriber("bob").register(&bob);
    let invite = call(&alice, &bob, &subscriber("alice"));
    let arrived = bob.expect_request("INVITE");
    bob.answer(&arrived, 180, "Ringing");
    alice.expect_response(180, &invite);
    let cancel = alice.cancel(&invite);
    alice.expect_response(200, &cancel);
    let cancelled = bob.expect_request("CANCEL");
    bob.answer(&cancelled, 200, "OK");
    bob.answer(&arrived, 487, "Request Terminated");
    bob.expect_request("ACK");
    let answer = alice.expect_response(487, &invite);
    alice.acknowledge(&invite, &answer);
    // And a call that comes to pass: its ACK has no credentials.
    let invite = call(&alice, &bob, &subscriber("alice"));
    let arrived = bob.expect_request("INVITE");
    bob.accept(&arrived);
    let answer = alice.expect_response(200, &invite);
    let ack = alice
        .request("ACK", answer.uri_of("Contact"))
        .set("From", invite.header("From"))
        .set("To", answer.header("To"))
        .set("Call-ID", invite.header("Call-ID"))
        .set("CSeq", invite.header("CSeq").replace("INVITE", "ACK"))
        .with("Route", answer.header("Record-Route"));
    alice.send(&ack);
    let arrived = bob.expect_request("ACK");
    assert!(arrived.find("Proxy-Authorization").is_none());
    alice.expect_nothing();
}

#[test]
fn credentials_do_not_leave_the_proxy() {
    let (_house, server) = house(&["alice", "bob"]);
    let (alice, bob) = (Phone::new(&server, "alice"), Phone::new(&server, "bob"));
    subscriber("bob").register(&bob);
    let invite = call(&alice, &bob, &subscriber("alice"));
    let arrived = bob.expect_request("INVITE");
    assert_eq!(arrived.find("Proxy-Authorization"), None, "{arrived}");
    bob.answer(&arrived, 486, "Busy Here");
    let answer = alice.expect_response(486, &invite);
    alice.acknowledge(&invite, &answer);
}

/// The thesis's right-hand flow: later requests carry credentials at once and are not challenged.
#[test]
fn credentials_are_used_again_for_later_calls() {
    let (_house, server) = house(&["alice", "bob"]);
    let (alice, bob) = (Phone::new(&server, "alice"), Phone::new(&server, "bob"));
    subscriber("bob").register(&bob);
    let first = alice.request("INVITE", &bob.address_of_record());
    let answer = subscriber("alice").challenged(&alice, &first);
    let digest = Digest::to(&Challenge::find(&answer, Algorithm::Md5), &first, &subscriber("alice"));
    for count in 1..=5 {
        let invite = alice.request("INVITE", &bob.address_of_record());
        let invite = Digest { count, ..digest.clone() }.apply(&alice, &invite);
        alice.send(&invite);
        let arrived = bob.expect_request("INVITE");
        bob.answer(&arrived, 486, "Busy Here");
        let answer = alice.expect_response(486, &invite);
        alice.acknowledge(&invite, &answer);
        bob.expect_request("ACK");
    }
}

#[test]
fn guessing_is_slowed_down_and_the_neighbour_is_not() {
    only_strowger!("Kamailio lets guess");
    let (_house, mut server) = house(&["victim", "neighbour"]);
    let victim = Phone::new(&server, "victim");
    subscriber("victim").register(&victim);
    let mallory = Phone::new(&server, "victim");
    let mut slowed = None;
    for guess in 0..60 {
        let request = mallory.register_request();
        let answer = answer_to(&mallory, &request);
        if answer.status() == Some(503) {
            slowed = Some((guess, answer));
            break;
        }
        let challenge = Challenge::find(&answer, Algorithm::Md5);
        let digest = Digest::to(&challenge, &request, &Subscriber::new("victim", &format!("guess {guess}")));
        let answer = answer_to(&mallory, &digest.apply(&mallory, &request));
        match answer.status() {
            Some(401) => {}
            Some(503) => {
                slowed = Some((guess, answer));
                break;
            }
            _ => panic!("guess {guess}:\n{answer}"),
        }
    }
    let (guess, answer) = slowed.expect("nobody may guess sixty times in a moment");
    assert!(guess >= 3, "a phone with a typing error must not be slowed at once: {guess}");
    assert!(answer.find("Retry-After").is_some(), "{answer}");
    // Who has the password is not locked out by who has not; neither is another user.
    subscriber("victim").register(&victim);
    let neighbour = Phone::new(&server, "neighbour");
    subscriber("neighbour").register(&neighbour);
    server.stop(Signal::Terminate);
    server.expect_log("auth_accepted=3 ");
    server.expect_log(&format!("auth_wrong={guess} "));
    assert!(!server.log().contains("auth_slowed=0 "), "{}", server.log());
}

/// Many users tried from one address: the address is slowed down, whatever names it tries.
#[test]
fn guessing_with_many_names_is_slowed_down() {
    only_strowger!("Kamailio lets guess");
    let (_house, server) = house(&["bob"]);
    let mallory = Phone::new(&server, "mallory");
    let mut slowed = false;
    for guess in 0..80 {
        let request = mallory.register_request();
        let answer = answer_to(&mallory, &request);
        slowed = answer.status() == Some(503);
        if slowed {
            break;
        }
        let challenge = Challenge::find(&answer, Algorithm::Md5);
        let name = format!("user{guess}");
        let digest = Digest::to(&challenge, &request, &Subscriber::new(&name, "1234"));
        slowed = answer_to(&mallory, &digest.apply(&mallory, &request)).status() == Some(503);
        if slowed {
            break;
        }
    }
    assert!(slowed, "eighty names were tried in a moment");
    subscriber("bob").register(&Phone::new(&server, "bob"));
}

/// One user tried from many addresses: the user is slowed down, wherever the next attempt comes from, and his own phone is not.
#[test]
fn guessing_from_many_addresses_is_slowed_down() {
    only_strowger!("Kamailio lets guess");
    let (_house, server) = house(&["victim", "neighbour"]);
    let victim = Phone::new(&server, "victim");
    subscriber("victim").register(&victim);
    let guess_from = |number: u8, password: &str| {
        let source = Ipv4Addr::new(127, 201, 7, number);
        let mallory = Phone::between(server.address(), SocketAddr::from((source, 0)), "victim");
        let request = mallory.register_request();
        let answer = answer_to(&mallory, &request);
        assert_eq!(answer.status(), Some(401), "a challenge costs nobody anything:\n{answer}");
        let challenge = Challenge::find(&answer, Algorithm::Md5);
        let digest = Digest::to(&challenge, &request, &Subscriber::new("victim", password));
        answer_to(&mallory, &digest.apply(&mallory, &request))
    };
    let slowed = (1..60).find(|number| {
        let answer = guess_from(*number, "guess");
        assert!(matches!(answer.status(), Some(401 | 503)), "guess {number}:\n{answer}");
        answer.status() == Some(503)
    });
    let slowed = slowed.expect("nobody is guessed at sixty times in a moment");
    assert!(slowed > 3, "a user whose second phone has a typing error must not be slowed at once: {slowed}");
    // Past that the answer says nothing about the password.
    assert_eq!(guess_from(60, &subscriber("victim").password).status(), Some(503));
    subscriber("victim").register(&victim);
    subscriber("neighbour").register(&Phone::new(&server, "neighbour"));
}

#[test]
fn an_algorithm_that_was_not_offered_is_refused() {
    only_strowger!("one of its algorithms is Kamailio's");
    let house = House::new(Sql::Sqlite, "1")
        .define("WITH_AUTH", "")
        .define("ALGORITHM", "\"SHA-256\"")
        .define("CLEAR_TEXT", "");
    let server = house.start().spawn();
    let ip = house.address().ip();
    let password = subscriber("bob").password;
    house.database.run(&format!(
        "INSERT INTO subscriber (username, domain, password, ha1, ha1b) VALUES ('bob', '{ip}', '{password}', '', '');"
    ));
    let bob = Phone::new(&server, "bob");
    let request = bob.register_request();
    let answer = subscriber("bob").challenged(&bob, &request);
    let offered: Vec<_> = Challenge::all(&answer).iter().map(Challenge::algorithm).collect();
    assert_eq!(offered, [Some(Algorithm::Sha256)], "{answer}");
    let challenge = Challenge::find(&answer, Algorithm::Sha256);
    let right = Digest::to(&challenge, &request, &subscriber("bob"));
    for name in [None, Some("MD5".to_owned())] {
        let weak = Digest { algorithm: Algorithm::Md5, algorithm_name: name, ..right.clone() };
        assert_refused(&answer_to(&bob, &weak.apply(&bob, &request)), "MD5 was not offered");
    }
    let answer = answer_to(&bob, &right.apply(&bob, &request).set("CSeq", "9 REGISTER"));
    assert_eq!(answer.status(), Some(200), "{answer}");
}

#[test]
fn users_come_change_and_go_while_the_server_runs() {
    only_strowger!("Kamailio asks every time");
    // One shard: each has its own memory of who is not there.
    let house = House::new(Sql::Sqlite, "1").define("WITH_AUTH", "").arguments(&["--shards", "1"]);
    let (house, server) = started(house, &[]);
    let bob = Phone::new(&server, "bob");
    let tries = |password: &str| {
        let request = bob.register_request();
        let answer = answer_to(&bob, &request);
        assert_eq!(answer.status(), Some(401), "{answer}");
        let who = Subscriber::new("bob", password);
        let digest = Digest::to(&Challenge::find(&answer, Algorithm::Md5), &request, &who);
        answer_to(&bob, &digest.apply(&bob, &request)).status()
    };
    assert_eq!(tries("first"), Some(401), "there is no such user yet");
    house.add_user("bob", "first");
    // That he does not exist may be remembered for a moment, not longer.
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while tries("first") != Some(200) {
        assert!(std::time::Instant::now() < deadline, "bob exists");
        thread::sleep(Duration::from_secs(3));
    }
    let realm = house.address().ip();
    let ha1 = Algorithm::Md5.hash(&format!("bob:{realm}:second"));
    thread::sleep(Duration::from_millis(1_500));
    house.database.run(&format!("UPDATE subscriber SET ha1 = '{ha1}' WHERE username = 'bob';"));
    assert_eq!(tries("second"), Some(200), "the new password works at once");
    // The old one may be remembered for as long as `cache_age` says: the server was not told.
}

#[test]
fn nonces_outlive_a_restart_or_are_called_stale() {
    only_strowger!("it needs a restart in place");
    let (house, server) = house(&["bob"]);
    let (bob, request, digest) = challenged(&server, "bob");
    server.kill_at_once();
    let _server = house.start().spawn();
    let answer = answer_to(&bob, &digest.apply(&bob, &request));
    match answer.status() {
        Some(200) => {}
        Some(401) => assert!(
            Challenge::all(&answer).iter().all(Challenge::is_stale),
            "a phone asks its user:\n{answer}"
        ),
        _ => panic!("{answer}"),
    }
}

/// Whatever the level of the log, it is no place for secrets.
#[test]
fn no_secret_is_logged() {
    only_strowger!("the log is ours");
    let house = House::new(Sql::Sqlite, "1").define("WITH_AUTH", "").arguments(&["--log", "trace"]);
    let (house, mut server) = started(house, &["bob"]);
    let (bob, request, digest) = challenged(&server, "bob");
    answer_to(&bob, &Digest { password: "a wrong one".into(), ..digest.clone() }.apply(&bob, &request));
    answer_to(&bob, &digest.apply(&bob, &request).set("CSeq", "9 REGISTER"));
    server.stop(Signal::Terminate);
    server.wait_for_exit(PATIENCE);
    let log = server.log();
    let ha1 = Algorithm::Md5.hash(&format!("bob:{}:{}", house.address().ip(), digest.password));
    for secret in [ha1.as_str(), &digest.password, &digest.response()] {
        assert!(!log.contains(secret), "{secret} is in the log:\n{log}");
    }
}

/// A database is asked once for many requests of one user.
#[test]
fn every_shard_accepts_every_nonce() {
    let (_house, server) = house(&["bob"]);
    let (bob, request, digest) = challenged(&server, "bob");
    // Calls are spread over the shards by their Call-ID.
    for count in 1..=20 {
        let with =
            Digest { count, ..digest.clone() }.apply(&bob, &request).set("Call-ID", format!("call-{count}"));
        let answer = answer_to(&bob, &with);
        assert_eq!(answer.status(), Some(200), "call {count}:\n{answer}");
    }
}

/// Without users the embedded configuration asks nobody, on loopback only.
#[test]
fn the_embedded_configuration_asks_as_soon_as_one_user_exists() {
    only_strowger!("the configuration is ours");
    let server = Start::configuration("default").embedded().spawn();
    let bob = Phone::new(&server, "bob");
    bob.register();
    let added =
        end_to_end::strowger(server.state(), &["user", "add", "bob", "--password-stdin"], "a password\n");
    assert!(added.status.success(), "{added:?}");
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    loop {
        let request = bob.register_request();
        let answer = answer_to(&bob, &request);
        if answer.status() == Some(401) {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "a user exists:\n{answer}");
        thread::sleep(Duration::from_millis(200));
    }
    Subscriber::new("bob", "a password").register(&bob);
    let alice = Phone::new(&server, "alice");
    let answer = answer_to(&alice, &alice.register_request());
    assert_eq!(answer.status(), Some(401), "{answer}");
}

#[test]
fn each_algorithm_is_offered_in_the_order_of_preference_and_accepted() {
    only_strowger!("Kamailio asks for one");
    let house = House::new(Sql::Sqlite, "1").define("WITH_AUTH", "");
    let house = house.define("ALGORITHM", "\"SHA-512-256,SHA-256,MD5\"");
    let (_house, server) = started(house, &["alice", "bob"]);
    let realm = server.address().ip().to_string();
    let bob = Phone::new(&server, "bob");
    let answer = subscriber("bob").challenged(&bob, &bob.register_request());
    let challenges = Challenge::all(&answer);
    let offered: Vec<_> = challenges.iter().filter_map(Challenge::algorithm).collect();
    assert_eq!(offered, Algorithm::ALL, "RFC 8760 §2.4: the most preferred first:\n{answer}");
    for challenge in &challenges {
        assert_eq!(challenge.parameter("qop"), Some("auth"), "RFC 8760 §2.6:\n{answer}");
        assert_eq!(challenge.parameter("realm"), Some(realm.as_str()), "{answer}");
    }
    for algorithm in Algorithm::ALL {
        let (_, answer) = subscriber("bob").authenticated(&bob, &bob.register_request(), algorithm);
        assert_eq!(answer.status(), Some(200), "{}:\n{answer}", algorithm.name());
        let alice = Phone::new(&server, "alice");
        let invite = alice.request("INVITE", &bob.address_of_record());
        let answer = subscriber("alice").challenged(&alice, &invite);
        let digest = Digest::to(&Challenge::find(&answer, algorithm), &invite, &subscriber("alice"));
        let invite = digest.apply(&alice, &invite);
        alice.send(&invite);
        let arrived = bob.expect_request("INVITE");
        bob.answer(&arrived, 486, "Busy Here");
        let answer = alice.expect_response(486, &invite);
        alice.acknowledge(&invite, &answer);
        bob.expect_request("ACK");
        let wrong = Subscriber::new("bob", "another");
        let (_, answer) = wrong.authenticated(&bob, &bob.register_request(), algorithm);
        assert_eq!(answer.status(), Some(401), "{}:\n{answer}", algorithm.name());
    }
}

/// A nonce is for whoever got it, by whichever of the algorithms that came with it.
#[test]
fn the_right_hash_by_the_wrong_name_is_refused() {
    only_strowger!("Kamailio asks for one");
    let house = House::new(Sql::Sqlite, "1").define("WITH_AUTH", "");
    let (_house, server) = started(house.define("ALGORITHM", "\"SHA-256,MD5\""), &["bob"]);
    for (computed, named) in
        [(Algorithm::Md5, "SHA-256"), (Algorithm::Sha256, "MD5"), (Algorithm::Sha512_256, "SHA-512-256")]
    {
        let bob = Phone::new(&server, "bob");
        let request = bob.register_request();
        let answer = subscriber("bob").challenged(&bob, &request);
        let right = Digest::to(&Challenge::find(&answer, Algorithm::Sha256), &request, &subscriber("bob"));
        let wrong = Digest { algorithm: computed, algorithm_name: Some(named.to_owned()), ..right };
        assert_refused(&answer_to(&bob, &wrong.apply(&bob, &request)), named);
    }
}
