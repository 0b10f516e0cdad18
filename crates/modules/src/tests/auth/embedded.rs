//! The embedded configuration, once there is a user: who must prove what.

use super::*;

const DEFAULT: &str = include_str!("../../../../../conf/default.cfg");

/// The embedded configuration with one user, Alice, who is registered and remembered.
fn with_alice() -> (Rig, Phone) {
    let environment = Environment { services: Shared::new(), ..Environment::default() };
    let mut rig = Rig::with(DEFAULT, &[], environment);
    rig.no_users = false;
    assert!(rig.send(ALICE, &register(1).text()).is_empty());
    let reply = rig.rows(&row(&[Some("alice")]));
    let phone = Phone::alice(reply.header("WWW-Authenticate").unwrap());
    assert!(rig.send(ALICE, &alices(2).line(&phone.line()).text()).is_empty());
    assert_eq!(rig.rows(&alices_row(SECRET)).first(), "SIP/2.0 200 OK");
    (rig, phone)
}

/// A REGISTER whose From is Alice, too.
fn alices(cseq: u32) -> Request {
    register(cseq).from("<sip:alice@127.0.0.1>;tag=a")
}

/// RFC 8760 §2.6 item 8: a server always sends a qop.
#[test]
fn the_embedded_challenge_offers_qop() {
    let environment = Environment { services: Shared::new(), ..Environment::default() };
    let mut rig = Rig::with(DEFAULT, &[], environment);
    rig.no_users = false;
    assert!(rig.send(ALICE, &register(1).text()).is_empty());
    let reply = rig.rows(&row(&[Some("alice")]));
    assert!(reply.header("WWW-Authenticate").unwrap().contains(", qop=\"auth\""), "{reply:?}");
    let call = Request::new("INVITE", "sip:bob@127.0.0.1", ALICE).from("<sip:alice@127.0.0.1>;tag=1");
    let sent = rig.send(ALICE, &call.text());
    let reply = sent.last().unwrap();
    assert!(reply.header("Proxy-Authenticate").unwrap().contains(", qop=\"auth\""), "{reply:?}");
}

#[test]
fn nobody_registers_another_ones_address() {
    let (mut rig, phone) = with_alice();
    let phone = Phone { count: 2, ..phone };
    let bobs = alices(3).to("<sip:bob@127.0.0.1>").line(&phone.line());
    assert_eq!(rig.status(ALICE, &bobs.text()), "SIP/2.0 403 Not Your Name");
    assert_eq!(rig.status(BOB, &register(4).call("b").text()), "SIP/2.0 401 Unauthorized");
}

#[test]
fn whoever_says_to_be_ours_must_be_it_and_others_need_not() {
    let (mut rig, phone) = with_alice();
    let invite = |from: &str, call: &str| {
        let request = Request::new("INVITE", "sip:alice@127.0.0.1", BOB).from(from).call(call);
        request.to("<sip:alice@127.0.0.1>")
    };
    let sent = rig.send(BOB, &invite("<sip:alice@127.0.0.1>;tag=1", "1").text());
    assert_eq!(sent.last().map(Sent::first), Some("SIP/2.0 407 Proxy Authentication Required"));
    let phone = Phone { method: "INVITE".into(), uri: "sip:alice@127.0.0.1".into(), count: 5, ..phone };
    let line = format!("Proxy-Authorization: {}", phone.value());
    let sent = rig.send(BOB, &invite("<sip:bob@127.0.0.1>;tag=1", "2").line(&line).text());
    assert_eq!(sent.last().map(Sent::first), Some("SIP/2.0 403 Not Your Name"));
    let phone = Phone { count: 6, ..phone };
    let line = format!("Proxy-Authorization: {}", phone.value());
    for (from, call, line) in [
        ("<sip:alice@127.0.0.1>;tag=1", "3", line.as_str()),
        ("<sip:carol@example.org>;tag=1", "4", "X-None: none"),
    ] {
        let sent = rig.send(BOB, &invite(from, call).line(line).text());
        let forwarded = sent.iter().find(|sent| sent.to == ALICE).expect("the INVITE");
        assert_eq!(forwarded.header("Proxy-Authorization"), None);
    }
}

#[test]
fn kamailio_sees_the_same_rules_without_what_is_ours() {
    // What Kamailio reads: our name is not defined there.
    let elsewhere = DEFAULT.replace("STROWGER", "NOT_DEFINED");
    let mut rig = Rig::new(&elsewhere);
    rig.register("bob", BOB, "reg-bob");
    assert_eq!(rig.endpoint.user().settings().databases.len(), 0);
}
