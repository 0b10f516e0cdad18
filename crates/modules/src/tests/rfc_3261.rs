//! Requirements of RFC 3261 on registrars and redirect servers that no other file shows, each under its section.

use super::{ALICE, BOB, LOAD, Request, Rig};
use std::format;
use std::vec::Vec;

const REDIRECT: &str = include_str!("../../../../conf/redirect.cfg");
const REGISTRAR: &str = include_str!("../../../../conf/registrar.cfg");

/// §8.3: "redirect servers MUST NOT redirect a request to a URI equal to the one in the Request-URI", equal as §19.1.4 has
/// it.
#[test]
fn nobody_is_redirected_to_where_he_asks() {
    let mut rig = Rig::new(REDIRECT);
    for (call, contact) in [("1", "<sip:bob@127.0.0.1;x=y>"), ("2", "<sip:bob@127.0.0.1:5062>")] {
        let register =
            Request::new("REGISTER", "sip:127.0.0.1", BOB).call(call).line(&format!("Contact: {contact}"));
        assert_eq!(rig.status(BOB, &register.text()), "SIP/2.0 200 OK");
    }
    let reply = rig.one(ALICE, &Request::new("INVITE", "sip:bob@127.0.0.1", ALICE).text());
    assert_eq!(reply.header("Contact"), Some("<sip:bob@127.0.0.1:5062>"));
}

/// §8.2.7: without state the To tag is the same for every copy of a request, a CANCEL is ignored, and nothing is sent
/// again.
#[test]
fn a_reply_without_state_is_the_same_for_every_copy_and_is_not_repeated() {
    let mut rig = Rig::route(r#"if (is_method("CANCEL")) { exit; } sl_send_reply("404", "Not Found");"#);
    let invite = Request::new("INVITE", "sip:bob@127.0.0.1", ALICE);
    let first = rig.one(ALICE, &invite.text());
    assert_eq!(first.text, rig.one(ALICE, &invite.text()).text);
    let mut cancel = invite;
    cancel.method = "CANCEL".into();
    assert!(rig.send(ALICE, &cancel.text()).is_empty());
    assert!(rig.pass(core::time::Duration::from_secs(40)).is_empty());
}

/// §8.2.7, §16.11: without state no provisional response is sent but the one that the script sends itself.
#[test]
fn without_state_nothing_but_the_script_sends_a_provisional_response() {
    for (body, reply) in [
        ("forward();", None),
        (r#"sl_send_reply("404", "Not Found");"#, Some("SIP/2.0 404 Not Found")),
        ("sl_reply_error();", Some("SIP/2.0 500 Server Internal Error")),
        (r#"sl_send_reply("180", "Ringing");"#, Some("SIP/2.0 180 Ringing")),
    ] {
        let mut rig = Rig::route(body);
        let invite = Request::new("INVITE", &format!("sip:bob@{BOB}"), ALICE).text();
        let mut sent = rig.send(ALICE, &invite);
        sent.extend(rig.pass(core::time::Duration::from_secs(40)));
        let to_alice: Vec<&str> =
            sent.iter().filter(|sent| sent.to == ALICE).map(|sent| sent.first()).collect();
        assert_eq!(to_alice, reply.into_iter().collect::<Vec<&str>>(), "{body}");
        assert_eq!(rig.endpoint.transactions(), 0);
    }
}

/// §10.3: "A registrar MUST not generate 6xx responses", whatever is wrong with a REGISTER.
#[test]
fn no_register_is_answered_6xx() {
    let strict = format!(
        "{LOAD}\nmodparam(\"registrar\", \"max_contacts\", 1)\nmodparam(\"registrar\", \"min_expires_mode\", 1)\n\
        request_route {{ save(\"location\"); }}\n"
    );
    for text in [strict.as_str(), REGISTRAR] {
        let mut rig = Rig::new(text);
        let mut refused = 0;
        for (place, (domain, to, lines)) in [
            ("sip:127.0.0.1", "<sip:bob@127.0.0.1>", "Contact: <sip:bob@192.0.2.1>"),
            ("sip:127.0.0.1", "<sip:bob@127.0.0.1>", "Contact: <sip:b@192.0.2.2>, <sip:b@192.0.2.3>"),
            ("sip:127.0.0.1", "<sip:bob@127.0.0.1>", "Contact: <sip:bob@192.0.2.1>;expires=1"),
            ("sip:127.0.0.1", "<sip:bob@127.0.0.1>", "Contact: *"),
            ("sip:127.0.0.1", "<sip:bob@127.0.0.1>", "Contact: *, <sip:bob@192.0.2.1>\r\nExpires: 0"),
            ("sip:127.0.0.1", "<sip:bob@127.0.0.1>", "Contact: <sip:bob@>"),
            ("sip:127.0.0.1", "<sip:bob@127.0.0.1>", "Contact: <sips:bob@192.0.2.1>"),
            (
                "sip:127.0.0.1",
                "<sip:bob@127.0.0.1>",
                "Expires: 60\r\nExpires: 70\r\nContact: <sip:bob@192.0.2.1>",
            ),
            ("sip:127.0.0.1", "<sip:bob@127.0.0.1>", "Require: teleport"),
            (
                "sip:127.0.0.1",
                "<sip:bob@127.0.0.1>",
                "Path: <sip:192.0.2.9;lr>\r\nContact: <sip:bob@192.0.2.1>",
            ),
            ("sip:127.0.0.1", "<sip:bob@example.org>", "Contact: <sip:bob@192.0.2.1>"),
            ("sip:127.0.0.1", "<tel:+1234>", "Contact: <sip:bob@192.0.2.1>"),
            ("sip:127.0.0.1", "<sip:@127.0.0.1>", "Contact: <sip:bob@192.0.2.1>"),
            ("sip:example.org", "<sip:bob@example.org>", "Contact: <sip:bob@192.0.2.1>"),
            ("mailto:bob@127.0.0.1", "<sip:bob@127.0.0.1>", "Contact: <sip:bob@192.0.2.1>"),
        ]
        .into_iter()
        .enumerate()
        {
            let register = Request::new("REGISTER", domain, BOB).call(&format!("{place}")).to(to).line(lines);
            for sent in rig.send(BOB, &register.text()) {
                let status =
                    sent.first().strip_prefix("SIP/2.0 ").and_then(|rest| rest.get(..1)).expect("a status");
                assert!(["2", "4", "5"].contains(&status), "{lines}: {}", sent.first());
                refused += usize::from(status != "2");
            }
        }
        assert!(refused >= 8, "{refused}");
    }
}

/// §10.3: a registrar ignores Record-Route, and no response to a REGISTER has one.
#[test]
fn a_record_route_in_a_register_is_ignored_and_not_answered() {
    let mut rig = Rig::new(REGISTRAR);
    let register = Request::new("REGISTER", "sip:127.0.0.1", BOB)
        .line("Record-Route: <sip:192.0.2.9;lr>")
        .line(&format!("Contact: <sip:bob@{BOB}>"));
    let reply = rig.one(BOB, &register.text());
    assert_eq!((reply.first(), reply.header("Record-Route")), ("SIP/2.0 200 OK", None));
    let refused = register.cseq(2).line("Require: teleport");
    let reply = rig.one(BOB, &refused.text());
    assert_eq!((reply.first(), reply.header("Record-Route")), ("SIP/2.0 420 Bad Extension", None));
}

/// §7.3.2, §20: a header field that has no meaning in a request, or an unknown one, changes nothing.
#[test]
fn header_fields_that_mean_nothing_in_a_request_are_ignored() {
    let mut rig = Rig::new(REGISTRAR);
    let register = Request::new("REGISTER", "sip:127.0.0.1", BOB)
        .line("Min-Expires: 7200")
        .line("Unsupported: everything")
        .line("WWW-Authenticate: Digest realm=\"x\", nonce=\"y\"")
        .line("X-Unknown: \u{1}")
        .line(&format!("Contact: <sip:bob@{BOB}>;expires=60"));
    let reply = rig.one(BOB, &register.text());
    assert_eq!(reply.first(), "SIP/2.0 200 OK");
    assert!(reply.header("Contact").is_some_and(|contact| contact.contains("expires=60")), "{}", reply.text);
}

/// §10.3 step 7, §8.2: a REGISTER of which one contact is refused has changed nothing.
#[test]
fn a_register_that_is_refused_half_way_binds_nothing() {
    let mut rig = Rig::new(&format!(
        "{LOAD}\nmodparam(\"registrar\", \"max_contacts\", 1)\nrequest_route {{ save(\"location\"); }}\n"
    ));
    let two =
        Request::new("REGISTER", "sip:127.0.0.1", BOB).line("Contact: <sip:a@192.0.2.1>, <sip:b@192.0.2.2>");
    assert!(rig.status(BOB, &two.text()).starts_with("SIP/2.0 503"));
    let query = Request::new("REGISTER", "sip:127.0.0.1", BOB).cseq(2);
    assert_eq!(rig.one(BOB, &query.text()).header("Contact"), None);
}

/// §16.6 item 4: where the script says so a Record-Route is put before the others of any request: within a dialog,
/// too, and of unknown methods.
#[test]
fn any_request_is_record_routed_where_the_script_says_so() {
    let mut rig = Rig::route("loose_route(); record_route(); t_relay();");
    for method in ["INVITE", "UPDATE", "TELEPORT"] {
        for to in ["<sip:bob@127.0.0.1>", "<sip:bob@127.0.0.1>;tag=b1"] {
            let request = Request::new(method, &format!("sip:bob@{BOB}"), ALICE)
                .to(to)
                .call(&format!("{method}-{}", to.len()))
                .line("Route: <sip:127.0.0.1;lr>")
                .line("Record-Route: <sip:192.0.2.9;lr>");
            let sent = rig.send(ALICE, &request.text());
            let copy = sent.iter().find(|sent| sent.to == BOB).expect("the request");
            let routes = copy.headers("Record-Route");
            assert!(
                routes[0].starts_with("<sip:") && routes[0].contains("127.0.0.1:5060;lr"),
                "{}",
                copy.text
            );
            assert_eq!((routes.last(), copy.header("Route")), (Some(&"<sip:192.0.2.9;lr>"), None));
        }
    }
}
