//! Functions and variables one by one, with their failures.

use super::*;

/// What a route logs for an INVITE from Alice to `sip:bob@127.0.0.1`.
fn logged(body: &str) -> Vec<String> {
    logged_of(body, &Request::new("INVITE", "sip:bob@127.0.0.1", ALICE).text())
}

fn logged_of(body: &str, message: &str) -> Vec<String> {
    let mut rig = Rig::route(body);
    rig.send(ALICE, message);
    rig.lines()
}

/// What one expression is, as text.
fn value(expression: &str) -> String {
    value_of(expression, &Request::new("INVITE", "sip:bob@127.0.0.1", ALICE).text())
}

fn value_of(expression: &str, message: &str) -> String {
    logged_of(&format!("xlog(\"{expression}\");"), message).pop().unwrap_or_default()
}

/// Which of these calls are true.
fn truths(calls: &[&str], message: &str) -> Vec<bool> {
    let body: String =
        calls.iter().map(|call| format!("if ({call}) xlog(\"true\"); else xlog(\"false\");\n")).collect();
    let mut lines = logged_of(&body, message);
    lines.retain(|line| line == "true" || line == "false");
    assert_eq!(lines.len(), calls.len(), "{lines:?}");
    lines.iter().map(|line| line == "true").collect()
}

fn all(expected: bool, calls: &[&str], message: &str) {
    for (call, found) in calls.iter().zip(truths(calls, message)) {
        assert_eq!(found, expected, "{call}");
    }
}

fn invite() -> Request {
    Request::new("INVITE", "sip:bob@127.0.0.1", ALICE)
}

#[test]
fn variables_of_the_request_uri_are_read() {
    let message = Request::new("INVITE", "sips:b.ob:pw@Example.org:5099;transport=tcp;x=1", ALICE).text();
    for (variable, expected) in [
        ("$ru", "sips:b.ob:pw@Example.org:5099;transport=tcp;x=1"),
        ("$rU", "b.ob"),
        ("$rd", "Example.org"),
        ("$rp", "5099"),
        ("$rP", "TCP"),
        ("$rz", "sips"),
        ("$ou", "sips:b.ob:pw@Example.org:5099;transport=tcp;x=1"),
        ("$du", "<null>"),
    ] {
        assert_eq!(value_of(variable, &message), expected, "{variable}");
    }
    assert_eq!(value("$rp"), "5060");
    assert_eq!(value_of("$rU", &Request::new("OPTIONS", "sip:127.0.0.1", ALICE).text()), "<null>");
}

#[test]
fn variables_of_the_message_are_read() {
    let message = invite()
        .line("User-Agent: Phone/1.0")
        .line("Contact: <sip:alice@10.0.0.1>")
        .line("Content-Type: text/plain")
        .line("X-A: one")
        .line("X-A: two")
        .body("hello")
        .text();
    for (variable, expected) in [
        ("$rm", "INVITE"),
        ("$fu", "sip:alice@127.0.0.1"),
        ("$fU", "alice"),
        ("$fd", "127.0.0.1"),
        ("$ft", "a1"),
        ("$fn", "Alice"),
        ("$tu", "sip:bob@127.0.0.1"),
        ("$tU", "bob"),
        ("$td", "127.0.0.1"),
        ("$tt", "<null>"),
        ("$ci", "call-1"),
        ("$cs", "1"),
        ("$si", "127.0.0.1"),
        ("$sp", "5061"),
        ("$su", "sip:127.0.0.1:5061"),
        ("$sas", "udp:127.0.0.1:5061"),
        ("$Ri", "127.0.0.1"),
        ("$Rp", "5060"),
        ("$RAi", "127.0.0.1"),
        ("$Ru", "sip:127.0.0.1:5060"),
        ("$pr", "udp"),
        ("$proto", "udp"),
        ("$af", "IPv4"),
        ("$ua", "Phone/1.0"),
        ("$ct", "<sip:alice@10.0.0.1>"),
        ("$cT", "text/plain"),
        ("$cl", "5"),
        ("$rb", "hello"),
        ("$bs", "5"),
        ("$mt", "1"),
        ("$rs", "<null>"),
        ("$hdr(x-a)", "one"),
        ("$(hdr(X-A)[1])", "two"),
        ("$(hdr(X-A)[-1])", "two"),
        ("$(hdr(X-A)[*])", "one,two"),
        ("$hdrc(X-A)", "2"),
        ("$hdr(X-B)", "<null>"),
        ("$hdr(f)", "Alice <sip:alice@127.0.0.1>;tag=a1"),
        ("$msg(body)", "hello"),
        ("$msg(body_size)", "5"),
        ("$msg(fline)", "INVITE sip:bob@127.0.0.1 SIP/2.0"),
        ("$TS", "1700000001"),
        ("$Ts", "1700000001"),
        ("$TV(sn)", "1700000001.000000"),
        ("$T_branch_idx", "-1"),
    ] {
        assert_eq!(value_of(variable, &message), expected, "{variable}");
    }
    assert_eq!(value_of("$ml", &message), message.len().to_string());
    assert_eq!(value_of("$msg(len)", &message), message.len().to_string());
}

#[test]
fn the_request_uri_is_rewritten() {
    for (body, expected) in [
        (r#"$ru = "sip:x@y";"#, "sip:x@y"),
        (r#"$rU = "carol";"#, "sip:carol@127.0.0.1"),
        (r#"$rU = $null;"#, "sip:127.0.0.1"),
        (r#"$rd = "example.org";"#, "sip:bob@example.org"),
        (r#"$rp = 5099;"#, "sip:bob@127.0.0.1:5099"),
        (r#"rewritehost("h");"#, "sip:bob@h"),
        (r#"sethostport("h:1");"#, "sip:bob@h:1"),
        (r#"setuser("u");"#, "sip:u@127.0.0.1"),
        (r#"rewriteuserpass("u:p");"#, "sip:u:p@127.0.0.1"),
        (r#"setport("99");"#, "sip:bob@127.0.0.1:99"),
        (r#"seturi("tel:+123");"#, "tel:+123"),
        (r#"prefix("00");"#, "sip:00bob@127.0.0.1"),
        (r#"strip(1);"#, "sip:ob@127.0.0.1"),
        (r#"strip(9);"#, "sip:127.0.0.1"),
        (r#"strip_tail(1);"#, "sip:bo@127.0.0.1"),
        (r#"setuser("u"); revert_uri();"#, "sip:bob@127.0.0.1"),
        (r#"add_uri_param("x=1"); add_uri_param("lr");"#, "sip:bob@127.0.0.1;x=1;lr"),
        (r#"$ru = "sip:a@b;x=1;y=2"; uri_param_rm("x");"#, "sip:a@b;y=2"),
        (r#"subst_uri("/bob/carol/");"#, "sip:carol@127.0.0.1"),
        (r#"subst_user("/^b(.*)$/x\1y/");"#, "sip:xoby@127.0.0.1"),
    ] {
        assert_eq!(logged(&format!("{body} xlog(\"$ru\");")), [expected], "{body}");
    }
}

#[test]
fn what_is_no_uri_leaves_the_request_uri_as_it_is() {
    for body in [
        r#"$ru = "nonsense";"#,
        r#"$rd = "";"#,
        r#"$rd = "a b";"#,
        r#"$rp = "x";"#,
        r#"$rU = "a@b@c";"#,
        r#"seturi("nonsense");"#,
        r#"setport("x");"#,
        r#"sethost("");"#,
        r#"subst_uri("/.*/nonsense/");"#,
        r#"$du = "nonsense";"#,
    ] {
        let lines = logged(&format!("{body} xlog(\"$ru $du\");"));
        assert_eq!(lines.last().unwrap(), "sip:bob@127.0.0.1 <null>", "{body}");
    }
}

#[test]
fn the_next_hop_and_branches_are_kept() {
    assert_eq!(
        logged(
            r#"if (isdsturiset()) xlog("set"); else xlog("unset");
            setdsturi("sip:10.0.0.1:5099;transport=tcp"); xlog("$du $dd $dp $dP");
            if (isdsturiset()) xlog("set"); else xlog("unset");
            resetdsturi(); xlog("$du");
            append_branch("sip:c@10.0.0.2", "0.5"); append_branch("sip:d@10.0.0.3"); xlog("$br $bR");
            if (append_branch("nonsense")) xlog("true"); else xlog("false");
            clear_branches(); xlog("$br");"#
        ),
        [
            "unset",
            "sip:10.0.0.1:5099;transport=tcp 10.0.0.1 5099 TCP",
            "set",
            "<null>",
            "sip:c@10.0.0.2 sip:c@10.0.0.2,sip:d@10.0.0.3",
            "false",
            "<null>"
        ]
    );
}

#[test]
fn flags_and_avps_belong_to_the_transaction() {
    assert_eq!(
        logged(
            r#"setflag(3); if (isflagset(3)) xlog("set $mf"); resetflag(3); if (!isflagset(3)) xlog("reset $mf");
            $avp(x) = 1; $avp(s:x) = "two"; xlog("$avp(x) $(avp(x)[1]) $(avp(x)[*])"); $avp(x) = $null; xlog("$avp(x)");"#
        ),
        ["set 8", "reset 0", "two 1 two,1", "1"]
    );
}

#[test]
fn texts_are_compared() {
    let message = invite().text();
    all(
        true,
        &[
            r#"is_method("INVITE|ACK")"#,
            r#"cmp_str("$rU", "bob")"#,
            r#"cmp_istr("$rU", "BOB")"#,
            r#"starts_with("$rU", "bo")"#,
            r#"ends_with("$rU", "ob")"#,
            r#"str_find("$ru", "bob@")"#,
            r#"str_ifind("$ru", "BOB@")"#,
            r#"in_list("fi", "dk, fi,no", ",")"#,
            r#"in_list_prefix("final", "dk,fi", ",")"#,
            r#"search("^INVITE sip:bob")"#,
            r#"search_str("$rU", "^b.b$")"#,
            r#"search_hf("From", "alice", "a")"#,
            r#"is_present_hf("f")"#,
            r#"is_present_hf_re("^max-")"#,
            r#"is_request()"#,
            r#"is_first_hop()"#,
            r#"uri == myself"#,
            r#"method == "INVITE""#,
            r#"src_ip == 127.0.0.1"#,
            r#"pv_isset("$rU")"#,
            r#"t_is_set("failure_route") == -1 || 1 == 1"#,
        ],
        &message,
    );
    all(
        false,
        &[
            r#"is_method("BYE")"#,
            r#"cmp_str("$rU", "BOB")"#,
            r#"in_list("f", "dk,fi,no", ",")"#,
            r#"search_body("x")"#,
            r#"search_hf("From", "carol", "l")"#,
            r#"is_present_hf("Route")"#,
            r#"is_reply()"#,
            r#"has_totag()"#,
            r#"has_body()"#,
            r#"t_check_trans()"#,
            r#"t_lookup_request()"#,
            r#"t_lookup_cancel()"#,
            r#"t_is_set("onreply_route")"#,
            r#"registered("location")"#,
            r#"loose_route()"#,
            r#"is_supported("path")"#,
            r#"is_privacy("id")"#,
            r#"options_reply()"#,
            r#"t_reply("404", "x")"#,
            r#"save("location")"#,
        ],
        &message,
    );
}

#[test]
fn uris_and_numbers_are_judged() {
    let message = Request::new("INVITE", "sip:+4312345@h;user=phone;lr", ALICE).text();
    all(
        true,
        &[
            r#"is_uri("sip:a@b")"#,
            r#"is_uri_user_e164("$ru")"#,
            r#"is_e164("+4312345")"#,
            r#"is_tel_number("012")"#,
            r#"is_numeric("012")"#,
            r#"is_alphanum("a1")"#,
            r#"is_alphanumex("a-1", "-")"#,
            r#"uri_param("user", "phone")"#,
            r#"uri_param("lr")"#,
            r#"uri_param_any("user")"#,
            r#"cmp_uri("sip:%61lice@Example.org", "sip:alice@example.org")"#,
            r#"cmp_aor("sip:a@h:5;x=1", "sip:a@h")"#,
            r#"cmp_hdr_name("f", "From")"#,
        ],
        &message,
    );
    all(
        false,
        &[
            r#"is_uri("nonsense")"#,
            r#"is_e164("4312345")"#,
            r#"is_e164("+012")"#,
            r#"is_tel_number("+")"#,
            r#"is_numeric("")"#,
            r#"is_alphanum("a-1")"#,
            r#"uri_param("user", "ip")"#,
            r#"uri_param("x")"#,
            r#"cmp_uri("sip:a@h", "sip:A@h")"#,
            r#"cmp_aor("sip:a@h", "nonsense")"#,
            r#"uri_param_rm("x")"#,
        ],
        &message,
    );
}

/// What Bob gets when this route relays an INVITE to him.
fn relayed(body: &str, request: &Request) -> Sent {
    let mut rig = Rig::route(&format!("{body} $du = \"sip:{BOB}\"; forward();"));
    rig.one(ALICE, &request.text())
}

#[test]
fn headers_are_added_changed_and_removed() {
    let request = invite().line("X-A: one").line("X-A: two").line("Subject: hello");
    let sent = relayed(
        r#"append_hf("X-Last: $rU\r\n"); insert_hf("X-First: 1\r\n"); append_hf("X-After: 1\r\n", "Call-ID");
        remove_hf("x-a"); subst_hf("Subject", "/hel/HEL/", "a");"#,
        &request,
    );
    assert_eq!(sent.header("X-Last"), Some("bob"));
    assert_eq!(sent.header("X-First"), Some("1"));
    assert!(sent.text.contains("Call-ID: call-1\r\nX-After: 1\r\n"), "{}", sent.text);
    assert_eq!(sent.header("X-A"), None);
    assert_eq!(sent.header("Subject"), Some("HELlo"));
    let sent = relayed(r#"remove_hf_re("^x-"); subst("/^Subject: (.*)$/Subject: <\1>/");"#, &request);
    assert_eq!((sent.header("X-A"), sent.header("Subject")), (None, Some("<hello>")));
}

#[test]
fn what_is_no_header_line_is_not_added() {
    for body in [
        r#"append_hf("no end")"#,
        r#"append_hf("no colon\r\n")"#,
        r#"insert_hf(": no name\r\n")"#,
        r#"append_to_reply("X: 1")"#,
        r#"append_hf("X: 1\r\n\r\nbody\r\n")"#,
    ] {
        let lines = logged(&format!("if ({body}) xlog(\"true\"); else xlog(\"false\");"));
        assert_eq!(lines.last().unwrap(), "false", "{body}");
    }
}

#[test]
fn the_body_is_replaced_and_removed() {
    let request = invite().line("Content-Type: text/plain").body("hello");
    let sent = relayed(r#"set_body("hi $rU", "text/x");"#, &request);
    assert!(sent.text.ends_with("\r\n\r\nhi bob"), "{}", sent.text);
    assert_eq!((sent.header("Content-Length"), sent.header("Content-Type")), (Some("6"), Some("text/x")));
    let sent = relayed("remove_body();", &request);
    assert_eq!((sent.header("Content-Length"), sent.header("Content-Type")), (Some("0"), None));
    let message = request.text();
    all(true, &["has_body()", r#"has_body("TEXT/plain")"#], &message);
    all(false, &[r#"has_body("application/sdp")"#], &message);
}

#[test]
fn replies_carry_what_was_added() {
    let mut rig = Rig::route(r#"append_to_reply("X-A: $rU\r\n"); sl_send_reply("486", "Busy $rU"); "#);
    let reply = rig.one(ALICE, &invite().text());
    assert_eq!((reply.first(), reply.header("X-A")), ("SIP/2.0 486 Busy bob", Some("bob")));
    assert_eq!(reply.header("Server"), Some("strowger"));
}

#[test]
fn a_reason_cannot_end_the_line() {
    let mut rig = Rig::route("sl_send_reply(\"486\", \"$rb\");");
    let request = invite().line("Content-Type: text/plain").body("Busy\r\nX-Evil: 1");
    let reply = rig.one(ALICE, &request.text());
    assert_eq!((reply.first(), reply.header("X-Evil")), ("SIP/2.0 486 Busy", None));
}

#[test]
fn a_transaction_replies_again_to_a_retransmission() {
    let mut rig = Rig::route(r#"t_newtran(); xlog("once"); t_reply("404", "Not Found");"#);
    let reply = rig.status(ALICE, &invite().text());
    assert_eq!(reply, "SIP/2.0 404 Not Found");
    assert_eq!(rig.status(ALICE, &invite().text()), "SIP/2.0 404 Not Found");
    assert_eq!(rig.lines(), ["once"]);
}

#[test]
fn an_ack_is_never_answered() {
    let mut rig = Rig::route(r#"sl_send_reply("200", "OK"); send_reply("200", "OK"); sl_reply_error();"#);
    assert!(rig.send(ALICE, &Request::new("ACK", "sip:bob@127.0.0.1", ALICE).text()).is_empty());
}

#[test]
fn hops_are_counted() {
    let body = r#"mf_process_maxfwd_header("10"); xlog("$rc"); if (is_maxfwd_lt("7")) xlog("few"); else xlog("$rc");"#;
    for (hops, expected) in [
        (Some("70"), ["1", "-1"]),
        (None, ["2", "-1"]),
        (Some("7"), ["1", "few"]),
        (Some("0"), ["-1", "few"]),
    ] {
        assert_eq!(logged_of(body, &invite().max_forwards(hops).text()), expected, "{hops:?}");
    }
    assert_eq!(
        relayed(r#"mf_process_maxfwd_header("10");"#, &invite().max_forwards(None)).header("Max-Forwards"),
        Some("10")
    );
}

#[test]
fn routes_are_followed_as_kamailio_does() {
    let body = r#"loose_route(); xlog("$rc");"#;
    let own = format!("Route: <sip:{SERVER};lr>");
    let further = format!("Route: <sip:{SERVER};lr>, <sip:10.0.0.9;lr>");
    let initial = |route: &str| invite().line(route).text();
    let within = |route: &str| invite().to("<sip:bob@127.0.0.1>;tag=b").line(route).text();
    assert_eq!(logged(body), ["-1"]);
    assert_eq!(logged_of(body, &initial(&own)), ["-1"]);
    assert_eq!(logged_of(body, &initial(&further)), ["-3"]);
    assert_eq!(logged_of(body, &within(&own)), ["1"]);
    assert_eq!(logged_of(body, &within(&further)), ["1"]);
    let preloaded = r#"if (loose_route_preloaded()) xlog("true"); else xlog("false");"#;
    assert_eq!(logged_of(preloaded, &initial(&further)), ["true"]);
    assert_eq!(logged_of(preloaded, &initial(&own)), ["false"]);
}

#[test]
fn the_record_route_carries_what_was_added() {
    let sent = relayed(r#"add_rr_param(";a=1"); record_route(";b=2"); add_rr_param("c=3");"#, &invite());
    let route = sent.header("Record-Route").unwrap();
    for param in [";lr", ";a=1", ";b=2", ";c=3", ";ftag=a1"] {
        assert!(route.contains(param), "{route}");
    }
    assert_eq!(sent.headers("Record-Route").len(), 1);
    let sent = relayed(r#"record_route_preset("10.0.0.1:5060;x=1");"#, &invite());
    assert_eq!(sent.header("Record-Route"), Some("<sip:10.0.0.1:5060;x=1;lr>"));
    let sent = relayed(r#"record_route(";evil>\r\nX: 1");"#, &invite());
    assert_eq!(sent.header("X"), None);
}

#[test]
fn the_direction_is_known_by_the_from_tag() {
    let body = r#"loose_route();
        if (is_direction("downstream")) xlog("down"); if (is_direction("upstream")) xlog("up");
        if (check_route_param("nat=yes")) xlog("nat"); if (rr_next_hop_route()) xlog("further"); xlog("$route_uri");"#;
    let uri = format!("sip:{SERVER};lr;ftag=a1;nat=yes");
    let route = format!("Route: <{uri}>");
    let down = invite().to("<sip:bob@127.0.0.1>;tag=b").line(&route);
    assert_eq!(logged_of(body, &down.text()), ["down", "nat", &uri]);
    let up = down.from("<sip:bob@127.0.0.1>;tag=b").to("<sip:alice@127.0.0.1>;tag=a1");
    assert_eq!(logged_of(body, &up.text()), ["up", "nat", &uri]);
}

#[test]
fn insane_requests_are_answered() {
    let mut rig = Rig::route(r#"sanity_check("18407", "15"); xlog("sane"); sl_send_reply("200", "OK");"#);
    assert_eq!(rig.status(ALICE, &invite().text()), "SIP/2.0 200 OK");
    for (request, expected) in [
        (invite().call("1").line("Expires: soon"), "SIP/2.0 400 Expires Value Is Illegal"),
        (invite().call("2").line("Contact: <nonsense>"), "SIP/2.0 400 Bad Contact URI"),
        (
            Request::new("INVITE", "http://x", ALICE).call("3"),
            "SIP/2.0 416 Unsupported URI Scheme in Request URI",
        ),
        (invite().call("4").line("Proxy-Require: x"), "SIP/2.0 420 Bad Extension"),
    ] {
        let reply = rig.one(ALICE, &request.text());
        assert_eq!(reply.first(), expected);
        if expected.contains("420") {
            assert_eq!(reply.header("Unsupported"), Some("x"));
        }
    }
    assert_eq!(rig.lines(), ["sane"]);
}

#[test]
fn options_for_the_server_itself_are_answered() {
    let mut rig = Rig::route("options_reply();");
    let reply = rig.one(ALICE, &Request::new("OPTIONS", "sip:127.0.0.1", ALICE).text());
    assert_eq!((reply.first(), reply.header("Accept")), ("SIP/2.0 200 OK", Some("*/*")));
}

#[test]
fn lookup_branches_finds_every_target() {
    let mut rig = Rig::route(
        r#"if (is_method("REGISTER")) { save("location"); exit; }
        append_branch("sip:carol@127.0.0.1"); append_branch("sip:else@10.0.0.9");
        lookup_branches("location"); xlog("$rc $ru $bR");"#,
    );
    rig.register("bob", BOB, "1");
    rig.register("carol", CAROL, "2");
    rig.send(ALICE, &invite().text());
    assert_eq!(rig.lines(), [format!("1 sip:bob@{BOB} sip:carol@{CAROL},sip:else@10.0.0.9")]);
}

#[test]
fn log_lines_have_their_levels() {
    let mut rig =
        Rig::route(r#"xlog("L_INFO", "a"); xdbg("b\n"); xerr("c"); log(1, "d\n"); log("e"); xalert("f");"#);
    rig.send(ALICE, &invite().text());
    let found = rig.lines.0.borrow().clone();
    let expected = [
        (Level::Info, "a"),
        (Level::Debug, "b"),
        (Level::Error, "c"),
        (Level::Notice, "d"),
        (Level::Error, "e"),
        (Level::Alert, "f"),
    ];
    assert_eq!(found, expected.map(|(level, line)| (level, line.to_string())));
}

#[test]
fn an_endless_script_is_stopped_and_the_next_request_is_served() {
    let mut rig =
        Rig::route(r#"if (is_method("INVITE")) { while (1) { $var(x) = 1; } } sl_send_reply("200", "OK");"#);
    rig.send(ALICE, &invite().text());
    assert_eq!(rig.lines().len(), 1, "{:?}", rig.lines());
    assert_eq!(
        rig.status(ALICE, &Request::new("OPTIONS", "sip:127.0.0.1", ALICE).call("2").text()),
        "SIP/2.0 200 OK"
    );
}
