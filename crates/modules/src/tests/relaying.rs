//! Targets, timers, the way back and "is this me?", as scripts see them.

use super::*;

fn invite() -> Request {
    Request::new("INVITE", &format!("sip:bob@{BOB}"), ALICE)
}

/// Request-URIs of what leaves for callees.
fn forked(body: &str) -> Vec<String> {
    let mut rig = Rig::route(body);
    let sent = rig.send(ALICE, &invite().text());
    let first = sent.iter().filter(|sent| sent.to != ALICE).map(|sent| sent.first().to_string());
    first.map(|line| line.split(' ').nth(1).unwrap_or_default().to_string()).collect()
}

#[test]
fn the_target_that_was_appended_stays_when_the_request_uri_changes() {
    let carol = format!("sip:carol@{CAROL}");
    let both = [carol.clone(), format!("sip:bob@{BOB}")];
    assert_eq!(forked(&format!("append_branch(); $ru = \"{carol}\"; t_relay();")), both);
}

#[test]
fn the_same_target_is_relayed_to_once() {
    // RFC 3261 §16.5, by §19.1.4.
    let bob = format!("sip:bob@{BOB}");
    assert_eq!(forked("append_branch(); t_relay();"), ::core::slice::from_ref(&bob));
    assert_eq!(
        forked(&format!("append_branch(\"SIP:b%6Fb@{BOB}\"); append_branch(\"{bob}\"); t_relay();")),
        [bob]
    );
}

const OWN: &str = "request_route { t_on_branch(\"1\"); t_relay(); }\nbranch_route[1] {\n if (uri == myself) xlog(\"mine\"); else xlog(\"not mine\");\n if (from_uri == myself) xlog(\"from here\");\n}\n";

#[test]
fn a_branch_route_knows_who_this_server_is() {
    let mut rig = Rig::new(&format!("{LOAD}\nalias=\"example.org\"\n{OWN}"));
    rig.send(ALICE, &invite().from("<sip:a@example.org>;tag=1").text());
    assert_eq!(rig.lines(), ["not mine", "from here"]);
    let mut rig = Rig::new(&format!("{LOAD}\nalias=\"127.0.0.1:5062\"\n{OWN}"));
    rig.send(ALICE, &invite().text());
    assert_eq!(rig.lines()[0], "mine");
}

/// Alice behind a NAT: her Via names another port than she sends from.
const NATTED: &str = "127.0.0.1:40000";

#[test]
fn responses_go_to_the_source_port_where_the_script_says_so() {
    for (body, to) in [("", ALICE), ("force_rport();", NATTED), ("add_rport();", NATTED)] {
        let mut rig = Rig::route(&format!("{body} sl_send_reply(486, \"Busy\");"));
        let reply = rig.one(NATTED, &invite().text());
        assert_eq!(reply.to, to, "{body}");
        assert_eq!(reply.header("Via").unwrap().contains(";rport=40000"), to == NATTED, "{}", reply.text);
        let mut rig = Rig::route(&format!("{body} t_relay();"));
        let sent = rig.send(NATTED, &invite().text());
        let request = sent.iter().find(|sent| sent.to == BOB).unwrap();
        assert_eq!(request.headers("Via")[1].contains(";rport=40000"), to == NATTED, "{}", request.text);
        assert_eq!(rig.one(BOB, &respond(request, "180 Ringing", "b1")).to, to, "{body}");
        // Without state the Via alone says where the response goes.
        let mut rig = Rig::route(&format!("{body} forward();"));
        let request = rig.one(NATTED, &invite().text());
        assert_eq!(rig.one(BOB, &respond(&request, "180 Ringing", "b1")).to, to, "{body}");
    }
}

#[test]
fn force_rport_counts_for_a_transaction_that_is_there_already() {
    let mut rig = Rig::route("t_newtran(); force_rport(); t_reply(486, \"Busy\");");
    assert_eq!(rig.one(NATTED, &invite().text()).to, NATTED);
    assert_eq!(rig.one(NATTED, &invite().text()).to, NATTED, "the retransmission");
}

#[test]
fn a_client_that_asks_for_rport_gets_it_once() {
    let mut request = invite();
    request.via.push_str(";rport");
    let mut rig = Rig::route("force_rport(); sl_send_reply(486, \"Busy\");");
    let reply = rig.one(NATTED, &request.text());
    assert_eq!((reply.to.as_str(), reply.text.matches("rport").count()), (NATTED, 1));
}

#[test]
fn the_settings_do_the_same_for_every_request() {
    let text = format!("{LOAD}\nforce_rport=yes\nlocal_rport=yes\nrequest_route {{ t_relay(); }}\n");
    let mut rig = Rig::new(&text);
    let sent = rig.send(NATTED, &invite().text());
    assert!(sent.iter().any(|sent| sent.to == NATTED && sent.first() == "SIP/2.0 100 Trying"), "{sent:#?}");
    let request = sent.iter().find(|sent| sent.to == BOB).unwrap();
    assert!(request.headers("Via")[0].ends_with(";rport"), "{}", request.text);
}

#[test]
fn our_via_asks_for_rport_where_the_script_says_so() {
    for (body, asks) in [("", false), ("add_local_rport();", true)] {
        let mut rig = Rig::route(&format!("{body} t_relay();"));
        let sent = rig.send(ALICE, &invite().text());
        let request = sent.iter().find(|sent| sent.to == BOB).unwrap();
        assert_eq!(request.headers("Via")[0].contains(";rport"), asks);
        // The response is known whatever was put into the parameter.
        let answer =
            respond(request, "180 Ringing", "b1").replacen(";rport", ";rport=5060;received=127.0.0.1", 1);
        assert_eq!(rig.one(BOB, &answer).first(), "SIP/2.0 180 Ringing");
    }
}

const FAILING: &str = "failure_route[1] {\n if (t_is_canceled()) { xlog(\"cancelled\"); exit; }\n if (t_any_timeout()) xlog(\"any timeout\");\n if (t_branch_timeout()) xlog(\"branch timeout\");\n if (t_any_replied()) xlog(\"any replied\");\n if (t_branch_replied()) xlog(\"branch replied\");\n}\n";

fn failing(before: &str) -> (Rig, Vec<Sent>) {
    let mut rig =
        Rig::new(&format!("{LOAD}\nrequest_route {{ t_on_failure(\"1\"); {before} t_relay(); }}\n{FAILING}"));
    let sent = rig.send(ALICE, &invite().text());
    (rig, sent.into_iter().filter(|sent| sent.to != ALICE).collect())
}

#[test]
fn a_failure_route_knows_what_became_of_the_branches() {
    let (mut rig, _) = failing("");
    rig.pass(Duration::from_secs(40));
    assert_eq!(rig.lines(), ["any timeout", "branch timeout"]);

    let (mut rig, sent) = failing("");
    rig.send(BOB, &respond(&sent[0], "486 Busy Here", "b1"));
    assert_eq!(rig.lines(), ["any replied", "branch replied"]);

    let (mut rig, sent) = failing(&format!("append_branch(\"sip:carol@{CAROL}\");"));
    rig.send(CAROL, &respond(&sent[1], "486 Busy Here", "c1"));
    rig.pass(Duration::from_secs(40));
    // 486 is better than the 408 that stands for Bob's silence.
    assert_eq!(rig.lines(), ["any timeout", "any replied", "branch replied"]);
}

#[test]
fn a_failure_route_knows_of_the_cancel() {
    let (mut rig, sent) = failing("");
    rig.send(BOB, &respond(&sent[0], "180 Ringing", "b1"));
    let mut cancel = invite();
    cancel.method = "CANCEL".into();
    rig.send(ALICE, &cancel.text());
    let sent = rig.send(BOB, &respond(&sent[0], "487 Request Terminated", "b1"));
    assert!(sent.iter().any(|sent| sent.to == ALICE && sent.first().contains("487")), "{sent:#?}");
    assert_eq!(rig.lines(), ["cancelled"]);
}

/// Seconds until Alice hears that the call failed; Bob rings or is silent.
fn fails_after(before: &str, rings: bool) -> u64 {
    let mut rig = Rig::route(&format!("{before} t_relay();"));
    let sent = rig.send(ALICE, &invite().text());
    let request = sent.iter().find(|sent| sent.to == BOB).unwrap();
    if rings {
        rig.one(BOB, &respond(request, "180 Ringing", "b1"));
    }
    for second in 1..400 {
        for sent in rig.pass(Duration::from_secs(1)) {
            if sent.to == ALICE && sent.first().starts_with("SIP/2.0 4")
                || sent.first().starts_with("CANCEL ")
            {
                return second;
            }
        }
    }
    0
}

#[test]
fn a_script_sets_the_timers_of_one_transaction() {
    assert_eq!((fails_after("", false), fails_after("", true)), (32, 185));
    assert_eq!(fails_after("t_set_fr(0, 3000);", false), 3);
    assert_eq!(fails_after("t_set_fr(0, 3000);", true), 185);
    assert_eq!(fails_after("t_set_fr(20000, 3000);", true), 20);
    assert_eq!(fails_after("t_set_fr(20000);", false), 32);
    assert_eq!(fails_after("t_set_fr(20000, 3000); t_reset_fr();", true), 185);
    // Out of range: nothing is set.
    assert_eq!(fails_after("t_set_fr(0, 99999999);", false), 32);
    assert_eq!(fails_after("t_set_fr(-1);", true), 185);
}

#[test]
fn a_reply_to_nothing_in_particular_is_the_configured_one() {
    let request = invite().text();
    assert_eq!(Rig::route("sl_reply_error();").status(ALICE, &request), "SIP/2.0 500 Server Internal Error");
    let text = format!(
        "{LOAD}\nmodparam(\"sl\", \"default_code\", 505)\nmodparam(\"sl\", \"default_reason\", \"Not Today\")\nrequest_route {{ if (!t_relay()) sl_reply_error(); else exit; }}\n"
    );
    // A failure that is known is answered as what it is.
    let unknown = Request::new("INVITE", "tel:+1", ALICE).text();
    assert_eq!(Rig::new(&text).status(ALICE, &unknown), "SIP/2.0 416 Unsupported URI Scheme");
    let text = text.replace("if (!t_relay()) sl_reply_error(); else exit;", "sl_reply_error();");
    assert_eq!(Rig::new(&text).status(ALICE, &request), "SIP/2.0 505 Not Today");
}

#[test]
fn more_edits_than_there_may_be_are_answered_500() {
    let line = "append_hf(\"X-A: 1\\r\\n\");".repeat(300);
    let mut rig = Rig::route(&format!("{line} t_relay();"));
    let sent = rig.send(ALICE, &invite().text());
    assert!(sent.iter().all(|sent| sent.to == ALICE), "{sent:#?}");
    assert!(sent.iter().any(|sent| sent.first() == "SIP/2.0 500 Server Internal Error"), "{sent:#?}");
    assert_eq!(rig.endpoint.counters().edits_full, 1);
    let mut rig = Rig::route(&format!("{line} forward();"));
    assert_eq!(rig.status(ALICE, &invite().text()), "SIP/2.0 500 Server Internal Error");
}
