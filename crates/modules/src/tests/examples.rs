//! The example configurations, rule by rule: whose requests they take, where they send them, what they refuse.

use super::*;

const DEFAULT: &str = include_str!("../../../../conf/default.cfg");
const STATELESS: &str = include_str!("../../../../conf/stateless.cfg");
const REDIRECT: &str = include_str!("../../../../conf/redirect.cfg");
const REGISTRAR: &str = include_str!("../../../../conf/registrar.cfg");

/// What a phone writes that has the server as its outbound proxy.
const OUTBOUND_PROXY: &str = "Route: <sip:127.0.0.1:5060;lr>";

fn request(method: &str) -> Request {
    Request::new(method, "sip:bob@127.0.0.1", ALICE)
}

/// RFC 3261 §16.4: our own address in the Route of an initial request is taken off.
#[test]
fn a_phone_may_have_the_server_as_its_outbound_proxy() {
    for text in [DEFAULT, STATELESS] {
        let mut rig = Rig::new(text);
        let register = Request::new("REGISTER", "sip:127.0.0.1", BOB)
            .line(OUTBOUND_PROXY)
            .line(&format!("Contact: <sip:bob@{BOB}>"));
        assert_eq!(rig.status(BOB, &register.text()), "SIP/2.0 200 OK");
        for (method, route) in [
            ("INVITE", OUTBOUND_PROXY),
            ("MESSAGE", OUTBOUND_PROXY),
            ("OPTIONS", "Route: <sip:localhost;lr>"),
            ("SUBSCRIBE", "Route: <sip:127.0.0.1>"),
        ] {
            let sent = rig.send(ALICE, &request(method).call(method).line(route).text());
            let forwarded = sent.iter().find(|sent| sent.to == BOB).expect("the request");
            assert_eq!(forwarded.first(), format!("{method} sip:bob@{BOB} SIP/2.0"));
            assert_eq!(forwarded.header("Route"), None);
        }
    }
}

/// The proxies are the way to their own users only.
#[test]
fn a_foreign_route_is_not_followed() {
    for text in [DEFAULT, STATELESS] {
        let mut rig = Rig::new(text);
        rig.register("bob", BOB, "reg-bob");
        let carol = format!("<sip:{CAROL};lr>");
        for (place, route) in
            [carol.clone(), format!("<sip:127.0.0.1;lr>, {carol}"), format!("<sip:{CAROL}>")]
                .iter()
                .enumerate()
        {
            for method in ["INVITE", "MESSAGE", "OPTIONS"] {
                let call = format!("{place}{method}");
                let request = request(method).call(&call).line(&format!("Route: {route}"));
                assert_eq!(rig.status(ALICE, &request.text()), "SIP/2.0 403 Relaying Denied", "{route}");
            }
        }
    }
}

/// RFC 3261 §16.5: nobody of ours is called for a Request-URI of another domain, whatever its user is called.
#[test]
fn a_foreign_request_uri_calls_nobody_of_ours() {
    for text in [DEFAULT, STATELESS] {
        let mut rig = Rig::new(text);
        rig.register("bob", BOB, "reg-bob");
        let foreign = ["sip:bob@example.org", "sip:bob@127.0.0.1:5099", "sip:bob@192.0.2.1;maddr=192.0.2.2"];
        for (place, uri) in foreign.into_iter().enumerate() {
            let request = Request::new("INVITE", uri, ALICE).call(&place.to_string());
            assert_eq!(rig.status(ALICE, &request.text()), "SIP/2.0 403 Relaying Denied", "{uri}");
        }
    }
}

/// RFC 3261 §16.6 item 4: the proxies stay on the path by the Record-Route of the first request, and leave it at that.
#[test]
fn initial_requests_alone_are_record_routed() {
    for text in [DEFAULT, STATELESS] {
        let mut rig = Rig::new(text);
        rig.register("bob", BOB, "reg-bob");
        let sent = rig.send(ALICE, &request("INVITE").text());
        let invite = sent.iter().find(|sent| sent.to == BOB).expect("the INVITE");
        let route = invite.header("Record-Route").expect("a Record-Route");
        let again = Request::new("INVITE", &format!("sip:bob@{BOB}"), ALICE)
            .to("<sip:bob@127.0.0.1>;tag=b1")
            .cseq(2)
            .line(&format!("Route: {route}"));
        let sent = rig.send(ALICE, &again.text());
        let again = sent.iter().find(|sent| sent.to == BOB).expect("the second INVITE");
        assert_eq!((again.header("Record-Route"), again.header("Route")), (None, None), "{}", again.text);
    }
}

/// RFC 3261 §17.1.1.3: the ACK of a failure has the Route of its INVITE; without state it follows the INVITE.
#[test]
fn the_ack_of_a_failure_follows_its_invite_through_the_stateless_proxy() {
    let mut rig = Rig::new(STATELESS);
    rig.register("bob", BOB, "reg-bob");
    let invite = rig.one(ALICE, &request("INVITE").line(OUTBOUND_PROXY).text());
    let busy = rig.one(BOB, &respond(&invite, "486 Busy Here", "b1"));
    let mut ack = request("INVITE").to(busy.header("To").unwrap()).line(OUTBOUND_PROXY);
    ack.method = "ACK".into();
    let ack = rig.one(ALICE, &ack.text());
    assert_eq!((ack.to.as_str(), ack.first()), (BOB, format!("ACK sip:bob@{BOB} SIP/2.0").as_str()));
    assert_eq!(ack.headers("Via")[0], invite.headers("Via")[0], "§16.11: the branch of the INVITE");
}

/// RFC 3261 §10.3 steps 1 and 5.
#[test]
fn only_the_users_of_the_own_domain_can_register() {
    for (text, foreign) in [
        (DEFAULT, "SIP/2.0 403 Relaying Denied"),
        (STATELESS, "SIP/2.0 403 Relaying Denied"),
        (REDIRECT, "SIP/2.0 404 Not Found"),
        (REGISTRAR, "SIP/2.0 404 Not Found"),
    ] {
        let mut rig = Rig::new(text);
        for (place, (domain, to, expected)) in [
            ("sip:127.0.0.1", "sip:bob@127.0.0.1", "SIP/2.0 200 OK"),
            ("sip:127.0.0.1:5060", "sip:bob@127.0.0.1:5060", "SIP/2.0 200 OK"),
            ("sip:localhost", "sip:bob@localhost", "SIP/2.0 200 OK"),
            ("sip:127.0.0.1", "sip:bob@localhost", "SIP/2.0 200 OK"),
            ("sip:127.0.0.1", "sip:bob@example.org", "SIP/2.0 404 Not Found"),
            ("sip:example.org", "sip:bob@example.org", foreign),
            ("sip:example.org", "sip:bob@127.0.0.1", foreign),
        ]
        .into_iter()
        .enumerate()
        {
            let register = Request::new("REGISTER", domain, BOB)
                .to(&format!("<{to}>"))
                .call(&format!("reg-{place}"))
                .line(&format!("Contact: <sip:bob@{BOB}>"));
            assert_eq!(rig.status(BOB, &register.text()), expected, "{domain} {to}");
        }
    }
}

/// RFC 3261 §8.2.2.3, §11.2.
#[test]
fn the_default_says_what_it_can_do() {
    let mut rig = Rig::new(DEFAULT);
    let options = Request::new("OPTIONS", "sip:127.0.0.1", ALICE);
    let reply = rig.one(ALICE, &options.text());
    assert_eq!(reply.first(), "SIP/2.0 200 OK");
    for (name, part) in [("Allow", "INVITE, ACK, CANCEL, BYE"), ("Accept", "*/*"), ("Accept-Language", "en")]
    {
        assert!(reply.header(name).is_some_and(|value| value.contains(part)), "{name}: {}", reply.text);
    }
    let reply = rig.one(ALICE, &options.call("2").line("Require: teleport, 100rel").text());
    assert_eq!(
        (reply.first(), reply.header("Unsupported"), reply.header("Allow")),
        ("SIP/2.0 420 Bad Extension", Some("teleport, 100rel"), None)
    );
}

/// RFC 3261 §8.3: a redirect server ignores "any unknown option tags in Require, or even method names", and redirects;
/// a proxy passes them on (§16.3).
#[test]
fn what_is_required_hinders_neither_redirection_nor_proxy() {
    let mut rig = Rig::new(REDIRECT);
    rig.register("bob", BOB, "reg-bob");
    for method in ["INVITE", "TELEPORT"] {
        let reply = rig.one(ALICE, &request(method).line("Require: 100rel").text());
        let contact = format!("<sip:bob@{BOB}>");
        assert_eq!(
            (reply.first(), reply.header("Contact")),
            ("SIP/2.0 302 Moved Temporarily", Some(contact.as_str()))
        );
    }
    let mut rig = Rig::new(DEFAULT);
    rig.register("bob", BOB, "reg-bob");
    let sent = rig.send(ALICE, &request("INVITE").line("Require: 100rel").text());
    assert!(sent.iter().any(|sent| sent.to == BOB && sent.header("Require") == Some("100rel")), "{sent:#?}");
}

/// RFC 3261 §8.2.1: a 405 names what is allowed.
#[test]
fn the_registrar_names_what_it_allows() {
    let mut rig = Rig::new(REGISTRAR);
    let reply = rig.one(ALICE, &request("INVITE").text());
    assert_eq!((reply.first(), reply.header("Allow")), ("SIP/2.0 405 Method Not Allowed", Some("REGISTER")));
}

/// RFC 3261 §9.2 for the registrar, §8.3 for the redirect server.
#[test]
fn a_cancel_of_what_is_over_is_answered() {
    for (text, expected) in
        [(REGISTRAR, "SIP/2.0 481 Call/Transaction Does Not Exist"), (REDIRECT, "SIP/2.0 200 OK")]
    {
        let mut rig = Rig::new(text);
        rig.register("bob", BOB, "reg-bob");
        rig.one(ALICE, &request("INVITE").text());
        let mut cancel = request("INVITE");
        cancel.method = "CANCEL".into();
        assert_eq!(rig.status(ALICE, &cancel.text()), expected);
    }
}

/// RFC 3261 §16.10: a CANCEL of an INVITE that is not known here goes on without state, and nowhere else than the
/// INVITE might have gone.
#[test]
fn a_cancel_without_its_invite_is_forwarded_without_state() {
    for text in [DEFAULT, STATELESS] {
        let mut rig = Rig::new(text);
        rig.register("bob", BOB, "reg-bob");
        // A REGISTER that waited for the database has a transaction, until Timer J.
        rig.pass(Duration::from_secs(32));
        let cancel = rig.one(ALICE, &request("CANCEL").text());
        assert_eq!(
            (cancel.to.as_str(), cancel.first()),
            (BOB, format!("CANCEL sip:bob@{BOB} SIP/2.0").as_str())
        );
        assert_eq!(rig.endpoint.transactions(), 0);
        let reply = rig.one(BOB, &respond(&cancel, "481 Call/Transaction Does Not Exist", "b1"));
        assert_eq!(reply.to, ALICE);
        let foreign = Request::new("CANCEL", "sip:bob@example.org", ALICE).call("foreign");
        assert_eq!(rig.status(ALICE, &foreign.text()), "SIP/2.0 403 Relaying Denied");
    }
}

/// What a script removes is not followed: the idiom of many configurations.
#[test]
fn a_removed_route_is_not_followed() {
    for removal in [
        r#"remove_hf("Route");"#,
        r#"remove_hf("rOUTE");"#,
        r#"remove_hf_re("^R(oute|equire)$");"#,
        r#"loose_route(); remove_hf("Route");"#,
        r#"remove_hf("Route"); loose_route();"#,
    ] {
        let mut rig = Rig::route(&format!("{removal} $ru = \"sip:bob@{BOB}\"; t_relay();"));
        for (place, route) in
            [format!("<sip:{CAROL};lr>"), format!("<sip:127.0.0.1;lr>, <sip:{CAROL}>")].iter().enumerate()
        {
            let request = request("MESSAGE").call(&place.to_string()).line(&format!("Route: {route}"));
            let sent = rig.one(ALICE, &request.line("Route: <sip:192.0.2.1;lr>").text());
            assert_eq!((sent.to.as_str(), sent.header("Route")), (BOB, None), "{removal} {route}");
        }
    }
}

/// What a script does not remove is.
#[test]
fn a_route_that_stays_is_followed() {
    let mut rig = Rig::route(r#"remove_hf("Require"); remove_hf_re("^Rout$"); t_relay();"#);
    let route = format!("<sip:{CAROL};lr>");
    let request = request("MESSAGE").line(&format!("Route: {route}")).line("Require: x");
    let sent = rig.one(ALICE, &request.text());
    assert_eq!((sent.to.as_str(), sent.header("Require")), (CAROL, None));
    assert_eq!(sent.headers("Route"), [route]);
}
