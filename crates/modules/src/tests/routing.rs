//! Whole configurations: the thesis's, the anchors', the repository's own.

use super::*;

const THESIS: &str = include_str!("../../../../conf/ser-2003.cfg");
const STATELESS: &str = include_str!("../../../../conf/stateless.cfg");
const REDIRECT: &str = include_str!("../../../../conf/redirect.cfg");
const REGISTRAR: &str = include_str!("../../../../conf/registrar.cfg");
const DEFAULT: &str = include_str!("../../../../conf/default.cfg");
const ANCHOR_STATEFUL: &str = include_str!("../../tests/data/kamailio-stateful.cfg");
const ANCHOR_STATELESS: &str = include_str!("../../tests/data/kamailio-stateless.cfg");
const ANCHOR_REDIRECT: &str = include_str!("../../tests/data/kamailio-redirect.cfg");

/// An initial INVITE from Alice to Bob.
fn invite() -> Request {
    Request::new("INVITE", "sip:bob@127.0.0.1", ALICE).line(&format!("Contact: <sip:alice@{ALICE}>"))
}

/// The ACK of a non-2xx, by whom the INVITE was.
fn ack_of(request: &Request, reply: &Sent) -> String {
    let mut ack = request.clone();
    ack.method = "ACK".into();
    ack.to = reply.header("To").unwrap().into();
    ack.lines.clear();
    ack.text()
}

/// A call from INVITE to BYE through a stateful, record-routing proxy.
fn call_through(rig: &mut Rig) {
    rig.register("bob", BOB, "reg-bob");
    let sent = rig.send(ALICE, &invite().text());
    let forwarded = sent.iter().find(|sent| sent.to == BOB).expect("the INVITE");
    assert_eq!(forwarded.first(), format!("INVITE sip:bob@{BOB} SIP/2.0"));
    assert!(sent.iter().any(|sent| sent.to == ALICE && sent.first() == "SIP/2.0 100 Trying"), "{sent:#?}");
    assert_eq!(forwarded.header("Max-Forwards"), Some("69"));
    let record_route = forwarded.header("Record-Route").expect("Record-Route").to_string();
    let ringing = rig.one(BOB, &respond(forwarded, "180 Ringing", "b1"));
    assert_eq!((ringing.to.as_str(), ringing.first()), (ALICE, "SIP/2.0 180 Ringing"));
    let ok = rig.one(BOB, &respond(forwarded, "200 OK", "b1"));
    assert_eq!((ok.to.as_str(), ok.first()), (ALICE, "SIP/2.0 200 OK"));
    assert_eq!(ok.headers("Via").len(), 1);

    for (method, cseq) in [("ACK", 1), ("BYE", 2)] {
        let request = Request::new(method, &format!("sip:bob@{BOB}"), ALICE)
            .to("<sip:bob@127.0.0.1>;tag=b1")
            .cseq(cseq)
            .line(&format!("Route: {record_route}"));
        let sent = rig.send(ALICE, &request.text());
        let forwarded = sent.iter().find(|sent| sent.to == BOB).expect("the request in the dialog");
        assert_eq!(forwarded.first(), format!("{method} sip:bob@{BOB} SIP/2.0"));
        assert_eq!(forwarded.header("Route"), None);
        if method == "BYE" {
            let ok = rig.one(BOB, &respond(forwarded, "200 OK", "b1"));
            assert_eq!(ok.first(), "SIP/2.0 200 OK");
        }
    }
    rig.pass(Duration::from_secs(60));
    assert_eq!(rig.endpoint.transactions(), 0);
}

#[test]
fn the_thesis_configuration_carries_a_call() {
    call_through(&mut Rig::new(THESIS));
}

#[test]
fn the_default_configuration_carries_a_call() {
    call_through(&mut Rig::new(DEFAULT));
}

#[test]
fn the_stateful_anchor_carries_a_call() {
    call_through(&mut Rig::new(ANCHOR_STATEFUL));
}

#[test]
fn the_thesis_configuration_refuses_what_it_says() {
    let mut rig = Rig::new(THESIS);
    let reply = rig.one(ALICE, &invite().text());
    assert_eq!(reply.first(), "SIP/2.0 404 Not Found");
    assert!(reply.header("To").unwrap().contains(";tag="));
    assert!(rig.send(ALICE, &ack_of(&invite(), &reply)).is_empty());
    let reply = rig.status(ALICE, &invite().call("hops").max_forwards(Some("0")).text());
    assert_eq!(reply, "SIP/2.0 483 Too Many Hops");
}

#[test]
fn the_thesis_configuration_refuses_a_message_longer_than_max_len() {
    let environment = Environment { message_bytes_max: 600, ..Environment::default() };
    let mut rig = Rig::with(THESIS, &[], environment);
    let reply = rig.status(ALICE, &invite().body(&"x".repeat(600)).text());
    assert_eq!(reply, "SIP/2.0 513 Message too big");
}

#[test]
fn the_default_configuration_refuses_what_it_says() {
    let mut rig = Rig::new(DEFAULT);
    // Whether there is a user is asked of the database, and the caller waits.
    let sent = rig.send(ALICE, &invite().text());
    assert_eq!(sent.last().map(Sent::first), Some("SIP/2.0 404 Not Found"));
    let foreign = Request::new("INVITE", "sip:bob@example.org", ALICE).call("foreign");
    assert_eq!(rig.status(ALICE, &foreign.text()), "SIP/2.0 403 Relaying Denied");
    let options = Request::new("OPTIONS", "sip:127.0.0.1", ALICE).call("options");
    assert_eq!(rig.status(ALICE, &options.text()), "SIP/2.0 200 OK");
    let no_user = Request::new("MESSAGE", "sip:127.0.0.1", ALICE).call("nobody");
    assert_eq!(rig.status(ALICE, &no_user.text()), "SIP/2.0 484 Address Incomplete");
    let stray = Request::new("BYE", "sip:bob@127.0.0.1", ALICE).to("<sip:bob@127.0.0.1>;tag=x").call("stray");
    assert_eq!(rig.status(ALICE, &stray.text()), "SIP/2.0 404 Not Here");
}

#[test]
fn a_cancel_reaches_the_callee_and_the_caller_hears_487() {
    let mut rig = Rig::new(DEFAULT);
    rig.register("bob", BOB, "reg-bob");
    let sent = rig.send(ALICE, &invite().text());
    let forwarded = sent.iter().find(|sent| sent.to == BOB).unwrap();
    rig.one(BOB, &respond(forwarded, "180 Ringing", "b1"));
    let mut cancel = invite();
    cancel.method = "CANCEL".into();
    let sent = rig.send(ALICE, &cancel.text());
    assert!(sent.iter().any(|sent| sent.to == ALICE && sent.first() == "SIP/2.0 200 OK"), "{sent:#?}");
    assert!(sent.iter().any(|sent| sent.to == BOB && sent.first().starts_with("CANCEL ")), "{sent:#?}");
    let sent = rig.send(BOB, &respond(forwarded, "487 Request Terminated", "b1"));
    assert!(sent.iter().any(|sent| sent.to == BOB && sent.first().starts_with("ACK ")), "{sent:#?}");
    assert!(sent.iter().any(|sent| sent.to == ALICE && sent.first() == "SIP/2.0 487 Request Terminated"));
}

#[test]
fn a_user_with_two_phones_is_called_on_both() {
    let mut rig = Rig::new(DEFAULT);
    rig.register("bob", BOB, "reg-1");
    rig.register("bob", CAROL, "reg-2");
    let sent = rig.send(ALICE, &invite().text());
    let mut called: Vec<_> =
        sent.iter().filter(|sent| sent.first().starts_with("INVITE")).map(|sent| &sent.to).collect();
    called.sort();
    assert_eq!(called, [BOB, CAROL]);
}

fn stateless_call(rig: &mut Rig) {
    rig.register("bob", BOB, "reg-bob");
    let forwarded = rig.one(ALICE, &invite().text());
    assert_eq!(
        (forwarded.to.as_str(), forwarded.first()),
        (BOB, format!("INVITE sip:bob@{BOB} SIP/2.0").as_str())
    );
    assert_eq!(rig.endpoint.transactions(), 0);
    let ok = rig.one(BOB, &respond(&forwarded, "200 OK", "b1"));
    assert_eq!((ok.to.as_str(), ok.first()), (ALICE, "SIP/2.0 200 OK"));
    let route = forwarded.header("Record-Route").unwrap();
    let bye = Request::new("BYE", &format!("sip:bob@{BOB}"), ALICE)
        .to("<sip:bob@127.0.0.1>;tag=b1")
        .cseq(2)
        .line(&format!("Route: {route}"));
    let forwarded = rig.one(ALICE, &bye.text());
    assert_eq!((forwarded.to.as_str(), forwarded.header("Route")), (BOB, None));
}

#[test]
fn the_stateless_configuration_carries_a_call_without_transactions() {
    stateless_call(&mut Rig::new(STATELESS));
}

#[test]
fn the_stateless_anchor_carries_a_call_without_transactions() {
    stateless_call(&mut Rig::new(ANCHOR_STATELESS));
}

#[test]
fn the_redirect_configurations_answer_with_the_contact() {
    for text in [REDIRECT, ANCHOR_REDIRECT] {
        let mut rig = Rig::new(text);
        rig.register("bob", BOB, "reg-bob");
        let reply = rig.one(ALICE, &invite().text());
        assert_eq!(reply.first(), "SIP/2.0 302 Moved Temporarily");
        assert_eq!(reply.header("Contact"), Some(format!("<sip:bob@{BOB}>").as_str()));
        assert!(rig.send(ALICE, &ack_of(&invite(), &reply)).is_empty());
        let unknown = Request::new("INVITE", "sip:nobody@127.0.0.1", ALICE).call("nobody");
        assert_eq!(rig.status(ALICE, &unknown.text()), "SIP/2.0 404 Not Found");
    }
}

#[test]
fn a_redirection_names_the_most_preferred_contact_first() {
    let mut rig = Rig::new(REDIRECT);
    for (at, q) in [(BOB, "0.3"), (CAROL, "0.9")] {
        let text = Request::new("REGISTER", "sip:127.0.0.1", at)
            .call(at)
            .line(&format!("Contact: <sip:bob@{at}>;q={q}"))
            .text();
        rig.one(at, &text);
    }
    let reply = rig.one(ALICE, &invite().text());
    let expected = format!("<sip:bob@{CAROL}>;q=0.9, <sip:bob@{BOB}>;q=0.3");
    assert_eq!(reply.header("Contact"), Some(expected.as_str()));
}

#[test]
fn the_registrar_configuration_takes_registrations_only() {
    let mut rig = Rig::new(REGISTRAR);
    rig.register("bob", BOB, "reg-bob");
    assert_eq!(rig.status(ALICE, &invite().text()), "SIP/2.0 405 Method Not Allowed");
    let mut ack = invite();
    ack.method = "ACK".into();
    assert!(rig.send(ALICE, &ack.text()).is_empty());
}

#[test]
fn a_failure_route_calls_the_next_number() {
    let mut rig = Rig::new(&format!(
        r#"{LOAD}
request_route {{ t_on_failure("NEXT"); t_on_reply("SEEN"); t_on_branch("OUT"); $ru = "sip:bob@{BOB}"; t_relay(); }}
failure_route[NEXT] {{
    if (t_check_status("486")) {{ xlog("busy: $T_reply_code\n"); $ru = "sip:carol@{CAROL}"; append_branch(); t_relay(); }}
}}
onreply_route[SEEN] {{ xlog("reply $rs from $si:$sp\n"); if (status =~ "18[0-9]") drop; }}
branch_route[OUT] {{ append_hf("X-Branch: $T_branch_idx\r\n"); }}
"#
    ));
    let sent = rig.send(ALICE, &invite().text());
    let first = sent.iter().find(|sent| sent.to == BOB).expect("the first call");
    assert_eq!(first.header("X-Branch"), Some("0"));
    assert!(rig.send(BOB, &respond(first, "180 Ringing", "b")).is_empty());
    let sent = rig.send(BOB, &respond(first, "486 Busy Here", "b"));
    let second = sent.iter().find(|sent| sent.to == CAROL).expect("the second call");
    assert_eq!(second.first(), format!("INVITE sip:carol@{CAROL} SIP/2.0"));
    assert!(!sent.iter().any(|sent| sent.to == ALICE), "{sent:#?}");
    let ok = rig.one(CAROL, &respond(second, "200 OK", "c"));
    assert_eq!((ok.to.as_str(), ok.first()), (ALICE, "SIP/2.0 200 OK"));
    let lines = rig.lines();
    assert!(lines.contains(&"busy: 486".to_string()), "{lines:?}");
    assert!(lines.contains(&format!("reply 180 from {BOB}")), "{lines:?}");
}

#[test]
fn a_global_reply_route_sees_every_response() {
    let mut rig = Rig::new(&format!(
        "{LOAD}\nrequest_route {{ $du = \"sip:{BOB}\"; t_relay(); }}\nonreply_route {{ append_hf(\"X-Seen: $rm $rs\\r\\n\"); }}\n"
    ));
    let sent = rig.send(ALICE, &invite().text());
    let forwarded = sent.iter().find(|sent| sent.to == BOB).unwrap();
    let ok = rig.one(BOB, &respond(forwarded, "200 OK", "b"));
    assert_eq!(ok.header("X-Seen"), Some("INVITE 200"));
}

#[test]
fn what_cannot_be_relayed_is_answered() {
    let mut rig = Rig::route("if (!t_relay()) sl_reply_error();");
    let unknown = Request::new("INVITE", "http://example.org", ALICE).call("scheme");
    assert_eq!(rig.status(ALICE, &unknown.text()), "SIP/2.0 416 Unsupported URI Scheme");
    let extension = invite().call("ext").line("Proxy-Require: teleport");
    let reply = rig.one(ALICE, &extension.text());
    assert_eq!((reply.first(), reply.header("Unsupported")), ("SIP/2.0 420 Bad Extension", Some("teleport")));
}
