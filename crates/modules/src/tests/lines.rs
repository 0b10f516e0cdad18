//! What a peer wrote ends no line of ours: values of messages in header lines, URIs and reasons.

use super::*;

fn invite() -> Request {
    Request::new("INVITE", &format!("sip:bob@{BOB}"), ALICE)
}

/// What Bob gets of `request` past `body`, which then relays.
fn forwarded(body: &str, request: &Request) -> Sent {
    let mut rig = Rig::route(&format!("{body}\nt_relay();"));
    let sent = rig.send(ALICE, &request.text());
    sent.into_iter().find(|sent| sent.to == BOB).unwrap_or_else(|| panic!("{:?}", rig.lines()))
}

/// No line but those that were meant to be there.
fn assert_no_evil(sent: &Sent) {
    let head = sent.text.split("\r\n\r\n").next().unwrap_or_default();
    assert!(!head.contains("\r\nEvil"), "{}", sent.text);
    for (at, _) in sent.text.match_indices(['\r', '\n']) {
        let pair =
            sent.text.get(at..at + 2) == Some("\r\n") || at > 0 && sent.text.get(at - 1..=at) == Some("\r\n");
        assert!(pair, "a line end alone: {}", sent.text);
    }
}

#[test]
fn a_folded_header_is_read_as_one_line() {
    let request = invite().line("X-Long: one\r\n  two\r\n\tEvil: yes");
    let sent = forwarded("append_hf(\"X-Copy: $hdr(X-Long)\\r\\n\");", &request);
    assert_eq!(sent.header("X-Copy"), Some("one two Evil: yes"));
    assert_no_evil(&sent);
    let sent = forwarded("append_hf(\"X-Copy: $(hdr(X-Long)[*])\\r\\n\");", &request);
    assert_eq!(sent.header("X-Copy"), Some("one two Evil: yes"));
}

#[test]
fn a_folded_display_name_is_read_as_one_line() {
    let request = invite().from("\"Al\r\n Evil: yes\r\n ice\" <sip:alice@127.0.0.1>;tag=a1");
    let sent = forwarded("append_hf(\"X-Name: $fn\\r\\n\");", &request);
    assert_eq!(sent.header("X-Name"), Some("\"Al Evil: yes ice\""));
    assert_no_evil(&sent);
}

#[test]
fn a_nul_becomes_a_space() {
    let request = invite().from("\"a\\\0b\" <sip:alice@127.0.0.1>;tag=a1");
    let sent = forwarded("insert_hf(\"X-Name: $fn\\r\\n\");", &request);
    assert_eq!(sent.header("X-Name"), Some("\"a\\ b\""));
}

#[test]
fn an_escaped_line_end_stays_escaped() {
    let request = Request::new("INVITE", &format!("sip:b%0d%0aEvil:%20yes@{BOB}"), ALICE);
    let body =
        "append_hf(\"X-User: $rU\\r\\n\"); add_rr_param(\";u=$rU\"); record_route(); $rU = \"x\" + $rU;";
    let sent = forwarded(body, &Request { uri: request.uri.replace("Evil:", "Evil"), ..request });
    assert_eq!(sent.header("X-User"), Some("b%0d%0aEvil%20yes"));
    assert_eq!(sent.first(), format!("INVITE sip:xb%0d%0aEvil%20yes@{BOB} SIP/2.0"));
    assert!(sent.header("Record-Route").unwrap().contains(";u=b%0d%0aEvil%20yes"));
    assert_no_evil(&sent);
}

#[test]
fn a_uri_with_a_line_end_is_not_taken() {
    let request = invite().body("sip:x@127.0.0.1:5063\r\nEvil: yes");
    for body in
        ["$ru = $rb;", "rewriteuri(\"$rb\");", "$rU = $rb;", "$rd = $rb;", "rewritehostport(\"$rb\");"]
    {
        let sent = forwarded(body, &request);
        assert_eq!(sent.first(), format!("INVITE sip:bob@{BOB} SIP/2.0"), "{body}");
        assert_no_evil(&sent);
    }
    let mut rig = Rig::route("append_branch(\"$rb\"); $du = $rb; sl_send_reply(302, \"Moved\");");
    let reply = rig.one(ALICE, &request.text());
    assert_eq!(reply.header("Contact"), None);
    assert_no_evil(&reply);
}

#[test]
fn a_body_is_no_header() {
    let request = invite().body("x\r\nEvil: yes");
    for body in [
        "append_hf(\"X-Body: $rb\\r\\n\");",
        "insert_hf(\"X-Body: $rb\\r\\n\");",
        "append_hf(\"X-Body: $rb\\r\\n\", \"To\");",
        "insert_hf(\"X-Body: $rb\\r\\n\", \"To\");",
        "append_hf(\"X-Body: $msg(body)\\r\\n\");",
        "$var(b) = $rb; append_hf(\"X-Body: $var(b)\\r\\n\");",
        "$avp(b) = $rb; append_hf(\"X-Body: $avp(b)\\r\\n\");",
        "append_hf(\"X-Body: $(rb{s.tolower})\\r\\n\");",
    ] {
        let sent = forwarded(body, &request);
        assert_eq!((sent.header("X-Body"), sent.header("evil")), (None, None), "{body}");
        assert_no_evil(&sent);
    }
    let mut rig = Rig::route("append_to_reply(\"X-Body: $rb\\r\\n\"); sl_send_reply(486, \"Busy\");");
    assert_no_evil(&rig.one(ALICE, &request.text()));
    assert!(rig.lines().iter().any(|line| line.contains("one header line per call")), "{:?}", rig.lines());
}

#[test]
fn what_was_kept_of_a_body_is_no_header_later() {
    let text = format!(
        "{LOAD}\nrequest_route {{ $avp(b) = $rb; t_on_reply(\"1\"); t_relay(); }}\nonreply_route[1] {{ append_hf(\"X-Body: $avp(b)\\r\\n\"); append_hf(\"X-Two: 1\\r\\n\"); }}\n"
    );
    let mut rig = Rig::new(&text);
    let sent = rig.send(ALICE, &invite().body("x\r\nEvil: yes").text());
    let request = sent.iter().find(|sent| sent.to == BOB).unwrap();
    let reply = rig.one(BOB, &respond(request, "180 Ringing", "b1"));
    assert_eq!((reply.header("X-Body"), reply.header("X-Two")), (None, Some("1")));
    assert_no_evil(&reply);
}

#[test]
fn the_scripts_own_line_ends_stay() {
    let request = invite().line("X-Long: one\r\n two").body("v=0\r\n");
    let sent = forwarded("append_hf(\"A: $hdr(X-Long)\\r\\nB: $si\\r\\n\");", &request);
    assert_eq!((sent.header("A"), sent.header("B")), (Some("one two"), Some("127.0.0.1")));
    // After the body has been read: literal lines are the script's own, and single ones do no harm.
    let sent = forwarded(
        "xlog(\"$rb\"); append_hf(\"A: 1\\r\\nB: 2\\r\\n\"); append_hf(\"C: $si\\r\\n\"); append_hf(\"D: $si\\r\\nE: 1\\r\\n\");",
        &request,
    );
    let found = ["A", "B", "C", "D", "E"].map(|name| sent.header(name));
    assert_eq!(found, [Some("1"), Some("2"), Some("127.0.0.1"), None, None]);
}

#[test]
fn half_a_line_end_is_none() {
    for line in ["A: 1\\n", "A: 1\\nB: 2\\r\\n", "A: 1\\rB: 2\\r\\n", "A: 1\\r\\n\\r\\n", "A: 1", "\\r\\n"] {
        let sent = forwarded(&format!("append_hf(\"{line}\");"), &invite());
        assert_eq!((sent.header("A"), sent.header("B")), (None, None), "{line}");
        assert_no_evil(&sent);
    }
}

#[test]
fn a_fold_hides_nothing_from_an_expression() {
    let request = invite().line("X-Long: se\r\n cret").line("X-Other: a\r\n b");
    let sent = forwarded(
        "subst_hf(\"X-Long\", \"/se cret/public/\"); subst(\"/^X-Other: a b/X-Other: c/\");",
        &request,
    );
    assert_eq!((sent.header("X-Long"), sent.header("X-Other")), (Some("public"), Some("c")));
    let mut rig = Rig::route("if (search_hf(\"X-Long\", \"^se cret$\")) sl_send_reply(403, \"No\");");
    assert_eq!(rig.status(ALICE, &request.text()), "SIP/2.0 403 No");
}

#[test]
fn a_body_type_is_one_line() {
    let request = invite().body("x\r\nEvil: yes");
    let sent = forwarded("set_body(\"new\", \"$rb\");", &request);
    assert_no_evil(&sent);
    assert!(sent.text.ends_with("x\r\nEvil: yes"));
}

#[test]
fn a_received_avp_that_is_no_uri_is_not_kept() {
    let text = format!(
        "{LOAD}\nmodparam(\"registrar\", \"received_avp\", \"$avp(rcv)\")\nrequest_route {{ $avp(rcv) = $rb; save(\"location\"); }}\n"
    );
    let mut rig = Rig::new(&text);
    let register = Request::new("REGISTER", "sip:127.0.0.1", ALICE).line("Contact: <sip:bob@127.0.0.1:5062>");
    let reply = rig.one(ALICE, &register.clone().body("sip:x@127.0.0.1\r\nEvil: yes").text());
    assert!(!reply.text.contains("received="), "{}", reply.text);
    assert_no_evil(&reply);
    let reply = rig.one(ALICE, &register.cseq(2).body("sip:127.0.0.1:5064").text());
    assert!(reply.header("Contact").unwrap().contains(";received=\"sip:127.0.0.1:5064\""), "{}", reply.text);
}
