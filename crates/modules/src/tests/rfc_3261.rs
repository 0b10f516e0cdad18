//! Requirements of RFC 3261 on registrars and redirect servers that no other file shows, each under its section.

use super::{ALICE, BOB, LOAD, Request, Rig};
use std::format;

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
