//! Registering, updating and removing contacts (RFC 3261 §10.3).

use end_to_end::{Message, Phone, Server, Sipp, is_strowger};

fn register(phone: &Phone, contact: &str, call_id: &str, cseq: u32) -> Message {
    phone
        .register_request()
        .set("Contact", contact)
        .set("Call-ID", call_id)
        .set("CSeq", format!("{cseq} REGISTER"))
}

/// The contacts that the registrar knows, as its answer to an empty REGISTER lists them.
fn contacts(phone: &Phone) -> Vec<String> {
    let query = phone.register_request().without("Contact").without("Expires");
    phone.send(&query);
    let answer = phone.expect_response(200, &query);
    answer.all("Contact").into_iter().map(str::to_owned).collect()
}

#[test]
fn users_register_update_and_log_out() {
    for configuration in ["default", "registrar"] {
        let server = Server::start(configuration);
        Sipp::new("register", 200, &server).user("user").rate(100).run();
    }
}

#[test]
fn a_new_contact_joins_the_others() {
    let server = Server::start("registrar");
    let bob = Phone::new(&server, "bob");
    bob.register_contact("<sip:bob@127.0.0.1:5091>");
    bob.register_contact("<sip:bob@127.0.0.1:5092>;expires=120;q=0.5");
    let known = contacts(&bob);
    assert_eq!(known.len(), 2, "{known:?}");
    let second = known.iter().find(|contact| contact.contains("5092")).expect("the second contact");
    let expires = second.split("expires=").nth(1).and_then(|rest| rest.split(';').next()).unwrap_or_default();
    assert!(expires.parse::<u32>().is_ok_and(|seconds| (100..=120).contains(&seconds)), "{second}");
    assert!(second.contains("q=0.5"), "{second}");
}

#[test]
fn a_star_removes_every_contact() {
    let server = Server::start("registrar");
    let bob = Phone::new(&server, "bob");
    bob.register_contact("<sip:bob@127.0.0.1:5091>, <sip:bob@127.0.0.1:5092>");
    let star = bob.register_request().set("Contact", "*").set("Expires", 0);
    bob.send(&star);
    bob.expect_response(200, &star);
    assert_eq!(contacts(&bob), Vec::<String>::new());
}

#[test]
fn a_star_that_does_not_expire_changes_nothing() {
    let server = Server::start("registrar");
    let bob = Phone::new(&server, "bob");
    bob.register();
    let star = bob.register_request().set("Contact", "*").set("Expires", 60);
    bob.send(&star);
    bob.expect_response(400, &star);
    assert_eq!(contacts(&bob).len(), 1);
}

#[test]
fn an_older_request_of_the_same_call_changes_nothing() {
    let server = Server::start("registrar");
    let bob = Phone::new(&server, "bob");
    let newer = register(&bob, "<sip:bob@127.0.0.1:5091>;expires=600", "same-call", 7);
    bob.send(&newer);
    bob.expect_response(200, &newer);
    let older = register(&bob, "<sip:bob@127.0.0.1:5091>;expires=0", "same-call", 6);
    bob.send(&older);
    let answer = bob.receive(end_to_end::PATIENCE).expect("an answer");
    assert!(
        answer.status().is_some_and(|status| status >= 400),
        "the update must fail (§10.3 item 7):\n{answer}"
    );
    assert_eq!(contacts(&bob).len(), 1);
}

#[test]
fn a_too_brief_expiry_is_refused_with_the_least_one() {
    let server = Server::start("registrar");
    let bob = Phone::new(&server, "bob");
    let brief = bob.register_request().set("Expires", 5);
    bob.send(&brief);
    // The registrar may shorten or lengthen (§10.3 item 7), or refuse and name its minimum (§10.2.8).
    let answer = bob.receive(end_to_end::PATIENCE).expect("an answer");
    match answer.status() {
        Some(423) => assert_eq!(answer.header("Min-Expires"), "60"),
        Some(200) => assert!(answer.header("Contact").contains("expires=60"), "{answer}"),
        _ => panic!("{answer}"),
    }
}

#[test]
fn a_registration_is_not_seen_by_other_users() {
    let server = Server::start("registrar");
    Phone::new(&server, "bob").register();
    assert_eq!(contacts(&Phone::new(&server, "alice")), Vec::<String>::new());
}

/// RFC 3261 §10.3 steps 1 and 5.
#[test]
fn another_domain_is_not_served() {
    for (configuration, status) in
        [("default", 403), ("stateless", 403), ("registrar", 404), ("redirect", 404)]
    {
        let server = Server::start(configuration);
        let bob = Phone::new(&server, "bob");
        let stranger = "<sip:bob@example.org>";
        let mut foreign = bob.register_request().set("To", stranger);
        foreign.start = "REGISTER sip:example.org SIP/2.0".into();
        bob.send(&foreign);
        bob.expect_response(status, &foreign);
        if is_strowger() {
            let misplaced = bob.register_request().set("To", stranger);
            bob.send(&misplaced);
            bob.expect_response(404, &misplaced);
        }
        assert_eq!(contacts(&bob), [""; 0], "{configuration}");
        bob.register();
    }
}
