//! Every rule of REGISTER (RFC 3261 §10.3, RFC 3327) and of `lookup`.

use super::*;

fn rig(parameters: &str) -> Rig {
    let route = r#"
request_route {
    if (is_method("REGISTER")) { save("location"); xlog("save $rc\n"); exit; }
    lookup("location"); $var(found) = $rc; xlog("lookup $var(found)\n");
    if ($var(found) < 0) { sl_send_reply("404", "Not Found"); exit; }
    sl_send_reply("302", "Moved");
}
"#;
    Rig::new(&format!("{LOAD}\n{parameters}\n{route}"))
}

fn register(cseq: u32) -> Request {
    Request::new("REGISTER", "sip:127.0.0.1", BOB).cseq(cseq)
}

fn ask(call: &str) -> String {
    Request::new("OPTIONS", "sip:bob@127.0.0.1", ALICE).call(call).text()
}

#[test]
fn a_contact_is_bound_and_listed_with_what_is_left() {
    let mut rig = rig("");
    let reply = rig.one(BOB, &register(1).line("Contact: <sip:bob@10.0.0.1>;q=0.5;expires=120").text());
    assert_eq!(reply.first(), "SIP/2.0 200 OK");
    assert_eq!(reply.header("Contact"), Some("<sip:bob@10.0.0.1>;q=0.5;expires=120"));
    rig.pass(Duration::from_secs(20));
    let reply = rig.one(BOB, &register(2).text());
    assert_eq!(reply.header("Contact"), Some("<sip:bob@10.0.0.1>;q=0.5;expires=100"));
    assert_eq!(rig.lines(), ["save 1", "save 4"]);
}

#[test]
fn the_interval_is_of_the_contact_then_of_the_header_then_the_default() {
    let mut rig = rig("modparam(\"registrar\", \"default_expires\", 1800)");
    let contacts = "Contact: <sip:a@10.0.0.1>;expires=300, <sip:b@10.0.0.2>";
    let reply = rig.one(BOB, &register(1).line(contacts).line("Expires: 600").text());
    let listed = reply.header("Contact").unwrap();
    assert!(listed.contains("<sip:a@10.0.0.1>;expires=300"), "{listed}");
    assert!(listed.contains("<sip:b@10.0.0.2>;expires=600"), "{listed}");
    let reply = rig.one(BOB, &register(2).line("Contact: <sip:c@10.0.0.3>").text());
    assert!(reply.header("Contact").unwrap().contains("<sip:c@10.0.0.3>;expires=1800"));
}

#[test]
fn an_expires_that_is_no_number_is_an_hour() {
    let mut rig = rig("modparam(\"registrar\", \"default_expires\", 60)");
    let reply = rig.one(BOB, &register(1).line("Contact: <sip:c@10.0.0.3>;expires=soon").text());
    assert_eq!(reply.header("Contact"), Some("<sip:c@10.0.0.3>;expires=3600"));
}

#[test]
fn a_brief_interval_is_raised_or_refused_with_423() {
    let mut raising = rig("");
    let brief = register(1).line("Contact: <sip:c@10.0.0.3>;expires=5");
    assert_eq!(raising.one(BOB, &brief.text()).header("Contact"), Some("<sip:c@10.0.0.3>;expires=60"));
    let mut refusing = rig("modparam(\"registrar\", \"min_expires_mode\", 1)");
    let reply = refusing.one(BOB, &brief.text());
    assert_eq!(reply.first(), "SIP/2.0 423 Interval Too Brief");
    assert_eq!(reply.header("Min-Expires"), Some("60"));
    assert_eq!(refusing.lines(), ["save -1"]);
}

#[test]
fn a_long_interval_is_cut() {
    let mut rig = rig("modparam(\"registrar\", \"max_expires\", 600)");
    let reply = rig.one(BOB, &register(1).line("Contact: <sip:c@10.0.0.3>;expires=4294967295").text());
    assert_eq!(reply.header("Contact"), Some("<sip:c@10.0.0.3>;expires=600"));
}

#[test]
fn expires_zero_removes_the_contact() {
    let mut rig = rig("");
    rig.one(BOB, &register(1).line("Contact: <sip:c@10.0.0.3>, <sip:d@10.0.0.4>").text());
    let reply = rig.one(BOB, &register(2).line("Contact: <sip:c@10.0.0.3>;expires=0").text());
    assert_eq!(reply.header("Contact"), Some("<sip:d@10.0.0.4>;expires=3600"));
    assert_eq!(rig.lines(), ["save 1", "save 3"]);
}

#[test]
fn a_star_removes_all_and_only_with_expires_zero_and_alone() {
    let mut rig = rig("");
    rig.one(BOB, &register(1).line("Contact: <sip:c@10.0.0.3>, <sip:d@10.0.0.4>").text());
    assert_eq!(rig.status(BOB, &register(2).line("Contact: *").text()), "SIP/2.0 400 Star Needs Expires 0");
    let nonzero = register(3).line("Contact: *").line("Expires: 10");
    assert_eq!(rig.status(BOB, &nonzero.text()), "SIP/2.0 400 Star Needs Expires 0");
    let reply = rig.one(BOB, &register(4).line("Contact: *").line("Expires: 0").text());
    assert_eq!((reply.first(), reply.header("Contact")), ("SIP/2.0 200 OK", None));
}

/// RFC 3261 §7.3.1, §20.19: a malformed Expires is an hour; two, alike or not, bind and remove nothing.
#[test]
fn one_malformed_expires_has_a_default_and_two_are_refused() {
    let mut rig = rig("");
    let malformed = register(1).line("Contact: <sip:c@10.0.0.3>").line("Expires: soon");
    let bound = Some("<sip:c@10.0.0.3>;expires=3600");
    assert_eq!(rig.one(BOB, &malformed.text()).header("Contact"), bound);
    for (cseq, contact, second) in
        [(2, "<sip:c@10.0.0.3>", "0"), (3, "<sip:d@10.0.0.4>", "60"), (4, "*", "0"), (5, "*", "soon")]
    {
        let contact = format!("Contact: {contact}");
        let twice = register(cseq).line(&contact).line("Expires: 0").line(&format!("eXPIRES : {second}"));
        assert_eq!(rig.status(BOB, &twice.text()), "SIP/2.0 400 More Than One Expires");
    }
    assert_eq!(rig.one(BOB, &register(6).text()).header("Contact"), bound);
}

#[test]
fn a_star_beside_another_contact_is_refused() {
    let mut rig = rig("");
    let reply = rig.status(BOB, &register(1).line("Contact: *, <sip:c@10.0.0.3>").line("Expires: 0").text());
    assert!(reply.starts_with("SIP/2.0 400 "), "{reply}");
}

#[test]
fn an_update_out_of_order_is_refused_and_a_repeated_one_is_not() {
    let mut rig = rig("");
    let contact = "Contact: <sip:c@10.0.0.3>;expires=100";
    rig.one(BOB, &register(5).line(contact).text());
    assert_eq!(rig.status(BOB, &register(4).line(contact).text()), "SIP/2.0 500 CSeq Out of Order");
    assert_eq!(rig.status(BOB, &register(5).line(contact).text()), "SIP/2.0 200 OK");
    // Another Call-ID has an order of its own.
    assert_eq!(rig.status(BOB, &register(1).call("other").line(contact).text()), "SIP/2.0 200 OK");
}

#[test]
fn a_contact_that_is_none_changes_nothing() {
    let mut rig = rig("");
    for bad in ["Contact: <sip:>", "Contact: sip:x@y?z", "Contact: <sip:ok@10.0.0.1>, <nonsense>"] {
        assert_eq!(rig.status(BOB, &register(1).line(bad).text()), "SIP/2.0 400 Invalid Contact", "{bad}");
    }
    let long = format!("Contact: <sip:{}@10.0.0.1>", "x".repeat(600));
    assert_eq!(rig.status(BOB, &register(1).line(&long).text()), "SIP/2.0 400 Contact Too Long");
    assert_eq!(rig.one(BOB, &register(2).text()).header("Contact"), None);
}

#[test]
fn too_many_contacts_are_refused_with_503_and_retry_after() {
    let mut rig = rig("modparam(\"registrar\", \"max_contacts\", 1)");
    rig.one(BOB, &register(1).line("Contact: <sip:c@10.0.0.3>").text());
    let reply = rig.one(BOB, &register(2).line("Contact: <sip:d@10.0.0.4>").text());
    assert_eq!(reply.first(), "SIP/2.0 503 Too Many Registered Contacts");
    assert_eq!(reply.header("Retry-After"), Some("5"));
    assert_eq!(rig.status(BOB, &register(3).line("Contact: <sip:c@10.0.0.3>").text()), "SIP/2.0 200 OK");
    assert_eq!(rig.lines(), ["save 1", "save -2", "save 2"]);
}

#[test]
fn a_required_extension_that_is_not_known_is_refused() {
    let mut rig = rig("");
    let reply =
        rig.one(BOB, &register(1).line("Require: outbound, gruu").line("Contact: <sip:c@10.0.0.3>").text());
    assert_eq!(
        (reply.first(), reply.header("Unsupported")),
        ("SIP/2.0 420 Bad Extension", Some("outbound, gruu"))
    );
}

#[test]
fn a_path_is_kept_answered_and_followed() {
    let text = format!(
        r#"{LOAD}
modparam("registrar", "use_path", 1)
request_route {{
    if (is_method("REGISTER")) {{ save("location"); exit; }}
    lookup("location"); t_relay();
}}"#
    );
    let mut rig = Rig::new(&text);
    let path = format!("Path: <sip:{CAROL};lr>");
    let contact = "Contact: <sip:bob@10.0.0.3>";
    let reply = rig.one(BOB, &register(1).line(contact).line(&path).text());
    assert_eq!((reply.first(), reply.header("Unsupported")), ("SIP/2.0 420 Bad Extension", Some("path")));
    let reply = rig.one(BOB, &register(2).line(contact).line(&path).line("Supported: path").text());
    assert_eq!(reply.header("Path"), Some(format!("<sip:{CAROL};lr>").as_str()));
    let sent = rig.send(ALICE, &Request::new("INVITE", "sip:bob@127.0.0.1", ALICE).text());
    let forwarded = sent.iter().find(|sent| sent.to == CAROL).expect("the INVITE at the edge proxy");
    assert_eq!(forwarded.first(), "INVITE sip:bob@10.0.0.3 SIP/2.0");
    assert_eq!(forwarded.header("Route"), Some(format!("<sip:{CAROL};lr>").as_str()));
}

/// RFC 3327 §5.3: a registrar that keeps a Path of a phone which does not say that it supports it does so by its policy.
#[test]
fn path_mode_says_who_hears_of_the_path() {
    let path = format!("Path: <sip:{CAROL};lr>");
    for (mode, supported, heard) in
        [(0, true, false), (0, false, false), (1, true, true), (1, false, false), (2, true, true)]
    {
        let mut rig = rig(&format!(
            "modparam(\"registrar\", \"use_path\", 1)\nmodparam(\"registrar\", \"path_mode\", {mode})"
        ));
        let request = register(1).line("Contact: <sip:bob@10.0.0.3>").line(&path);
        let request = if supported { request.line("Supported: path") } else { request };
        let reply = rig.one(BOB, &request.text());
        assert_eq!(reply.first(), "SIP/2.0 200 OK", "{mode} {supported}");
        assert_eq!(reply.header("Path").is_some(), heard, "{mode} {supported}");
    }
}

/// RFC 3327 §4: what could not be followed is not bound.
#[test]
fn a_path_that_is_none_is_refused() {
    let mut rig = rig("modparam(\"registrar\", \"use_path\", 1)");
    for (cseq, path) in
        (1..).zip(["<sip:edge", "edge", "<sip:a@b>, <sip:", "<tel:+15551234>", "<sip:a b>", ""])
    {
        let request = register(cseq).line("Contact: <sip:bob@10.0.0.3>").line(&format!("Path: {path}"));
        let reply = rig.one(BOB, &request.line("Supported: path").text());
        assert_eq!(reply.first(), "SIP/2.0 400 Invalid Path", "{path:?}");
    }
    assert_eq!(rig.status(ALICE, &ask("1")), "SIP/2.0 404 Not Found");
}

/// RFC 4475 §3.3.12 to §3.3.14: without brackets a parameter is the Contact's, in them all is the URI's.
#[test]
fn a_contact_is_listed_with_what_belongs_to_its_uri() {
    let number = "sip:+19725552222@gw1.example.net";
    let with_parameter = format!("{number};unknownparam");
    let with_header = "sip:user@example.com?Route=%3Csip:sip.example.com%3E";
    for (sent, uri) in [
        (with_parameter.clone(), number),
        (format!("<{with_parameter}>"), with_parameter.as_str()),
        (format!("<{with_header}>"), with_header),
    ] {
        let mut rig = rig("");
        let reply = rig.one(BOB, &register(2).line(&format!("m: {sent}")).text());
        assert_eq!(reply.first(), "SIP/2.0 200 OK");
        for listed in [reply, rig.one(BOB, &register(3).text())] {
            assert!(listed.header("Contact").unwrap().starts_with(&format!("<{uri}>;")), "{listed:?}");
        }
    }
}

/// RFC 5626 §6.
#[test]
fn an_instance_and_its_flow_are_listed() {
    let mut rig = rig("");
    let instance = "+sip.instance=\"<urn:uuid:00000000-0000-1000-8000-000A95A0E128>\"";
    let contact = format!("Contact: <sip:bob@10.0.0.3>;{instance};reg-id=2;expires=300");
    let reply = rig.one(BOB, &register(1).line(&contact).text());
    for listed in [reply, rig.one(BOB, &register(2).text())] {
        let expected = format!("<sip:bob@10.0.0.3>;expires=300;{instance};reg-id=2");
        assert_eq!(listed.header("Contact"), Some(expected.as_str()));
    }
}

/// RFC 5393 §5.3.5: not even where there is none left.
#[test]
fn max_breadth_means_nothing_to_a_registrar() {
    let mut rig = rig("");
    let none = register(1).line("Contact: <sip:c@10.0.0.3>").line("Max-Breadth: 0");
    assert_eq!(rig.status(BOB, &none.text()), "SIP/2.0 200 OK");
}

#[test]
fn an_expired_contact_is_never_found() {
    let mut rig = rig("");
    rig.one(BOB, &register(1).line("Contact: <sip:c@10.0.0.3>;expires=60").text());
    rig.pass(Duration::from_secs(59));
    assert_eq!(rig.status(ALICE, &ask("1")), "SIP/2.0 302 Moved");
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.status(ALICE, &ask("2")), "SIP/2.0 404 Not Found");
    assert_eq!(rig.lines(), ["save 1", "lookup 1", "lookup -1"]);
}

#[test]
fn users_differ_by_domain_and_case_only_if_told_so() {
    let text = |domain: u8, case: u8| {
        format!(
            "modparam(\"usrloc\", \"use_domain\", {domain})\nmodparam(\"registrar\", \"case_sensitive\", {case})"
        )
    };
    for (domain, case, other_domain, other_case) in [(0, 0, "302", "302"), (1, 1, "404", "404")] {
        let mut rig = rig(&text(domain, case));
        rig.one(BOB, &register(1).line("Contact: <sip:c@10.0.0.3>").text());
        let ask = |uri: &str, call: &str| Request::new("OPTIONS", uri, ALICE).call(call).text();
        assert_eq!(rig.status(ALICE, &ask("sip:%62ob@127.0.0.1:5060;x=y", "1")), "SIP/2.0 302 Moved");
        assert!(rig.status(ALICE, &ask("sip:bob@localhost", "2")).contains(other_domain));
        assert!(rig.status(ALICE, &ask("sip:Bob@127.0.0.1", "3")).contains(other_case));
    }
}

/// RFC 3261 §10.3 step 5.
#[test]
fn an_address_of_record_of_another_domain_is_not_found() {
    let mut rig = rig("alias=\"localhost\"\nalias=\"example.com\"");
    for (domain, to, taken) in [
        ("sip:127.0.0.1", "sip:bob@127.0.0.1", true),
        ("sip:127.0.0.1:5070", "sip:bob@127.0.0.1:5070", true),
        ("sip:127.0.0.1:5060", "sip:bob@127.0.0.1", true),
        ("sip:localhost", "sip:bob@127.0.0.1", true),
        ("sip:127.0.0.1", "sip:bob@LOCALHOST", true),
        ("sip:127.0.0.1;transport=udp", "sip:bob@example.com", true),
        ("sip:example.org", "sip:bob@EXAMPLE.org", true),
        ("sip:127.0.0.1", "sip:bob@example.org", false),
        ("sip:example.org", "sip:bob@127.0.0.1", false),
        ("sip:example.org", "sip:bob@example.net", false),
        ("tel:+15551234", "sip:bob@127.0.0.1", false),
    ] {
        let call = format!("{domain}-{to}");
        let request = Request::new("REGISTER", domain, BOB).to(&format!("<{to}>")).call(&call);
        let expected = if taken { "SIP/2.0 200 OK" } else { "SIP/2.0 404 Not Found" };
        assert_eq!(rig.status(BOB, &request.line("Contact: <sip:c@10.0.0.3>").text()), expected, "{call}");
    }
}

/// The script's own address-of-record is not questioned.
#[test]
fn an_address_of_record_that_the_script_names_may_be_of_any_domain() {
    let mut rig = Rig::route(r#"save("location", "0", "sip:bob@example.net");"#);
    let request = register(1).to("<sip:bob@example.org>").line("Contact: <sip:c@10.0.0.3>");
    assert_eq!(rig.status(BOB, &request.text()), "SIP/2.0 200 OK");
}

#[test]
fn one_contact_stays_where_save_is_told_so() {
    let mut rig = Rig::route(r#"save("location", "0x04");"#);
    rig.one(BOB, &register(1).line("Contact: <sip:c@10.0.0.3>").text());
    let reply = rig.one(BOB, &register(2).line("Contact: <sip:d@10.0.0.4>").text());
    assert_eq!(reply.header("Contact"), Some("<sip:d@10.0.0.4>;expires=3600"));
}

#[test]
fn save_leaves_the_answer_to_the_script_where_it_is_told_so() {
    let mut rig = Rig::route(r#"save("location", 2, "sip:carol@127.0.0.1"); sl_send_reply("202", "Kept"); "#);
    assert_eq!(rig.status(BOB, &register(1).line("Contact: <sip:c@10.0.0.3>").text()), "SIP/2.0 202 Kept");
}

#[test]
fn tables_are_apart() {
    let mut rig = Rig::route(
        r#"if (is_method("REGISTER")) { save("aliases"); exit; }
        if (registered("location")) xlog("main\n");
        if (registered("aliases")) xlog("aliases\n");
        if (registered("aliases", "sip:nobody@127.0.0.1")) xlog("nobody\n");
        unregister("aliases", "$ru"); xlog("$rc\n");
        unregister("aliases", "$ru"); xlog("$rc\n");
        unregister("aliases", "nonsense"); xlog("$rc\n");"#,
    );
    rig.one(BOB, &register(1).line("Contact: <sip:c@10.0.0.3>").text());
    rig.send(ALICE, &ask("1"));
    assert_eq!(rig.lines(), ["aliases", "1", "-3", "-1"]);
}

#[test]
fn contacts_are_passed_over_whose_allow_lacks_the_method() {
    let mut rig = rig("modparam(\"registrar\", \"method_filtering\", 1)");
    rig.one(BOB, &register(1).line("Contact: <sip:c@10.0.0.3>").line("Allow: INVITE, ACK").text());
    assert_eq!(rig.status(ALICE, &ask("1")), "SIP/2.0 404 Not Found");
    let invite = Request::new("INVITE", "sip:bob@127.0.0.1", ALICE).call("2");
    assert_eq!(rig.status(ALICE, &invite.text()), "SIP/2.0 302 Moved");
    assert_eq!(rig.lines(), ["save 1", "lookup -2", "lookup 1"]);
}

#[test]
fn only_the_best_contact_is_taken_where_branches_are_not_wanted() {
    let mut rig = rig("modparam(\"registrar\", \"append_branches\", 0)");
    let contacts = "Contact: <sip:a@10.0.0.1>;q=0.2, <sip:b@10.0.0.2>;q=0.8";
    rig.one(BOB, &register(1).line(contacts).text());
    assert_eq!(rig.one(ALICE, &ask("1")).header("Contact"), Some("<sip:b@10.0.0.2>"));
}

#[test]
fn where_a_contact_really_is_becomes_the_next_hop() {
    let mut rig = Rig::new(&format!(
        r#"{LOAD}
modparam("registrar", "received_avp", "$avp(s:rcv)")
request_route {{
    if (is_method("REGISTER")) {{ $avp(rcv) = $su; save("location"); exit; }}
    lookup("location"); xlog("$ru $du\n"); t_relay();
}}"#
    ));
    let reply = rig.one(BOB, &register(1).line("Contact: <sip:bob@10.0.0.3>").text());
    let expected = format!("<sip:bob@10.0.0.3>;expires=3600;received=\"sip:{BOB}\"");
    assert_eq!(reply.header("Contact"), Some(expected.as_str()));
    let sent = rig.send(ALICE, &Request::new("INVITE", "sip:bob@127.0.0.1", ALICE).text());
    assert!(sent.iter().any(|sent| sent.to == BOB && sent.first() == "INVITE sip:bob@10.0.0.3 SIP/2.0"));
    assert_eq!(rig.lines(), [format!("sip:bob@10.0.0.3 sip:{BOB}")]);
}

#[test]
fn an_address_of_record_that_is_no_sip_uri_is_refused() {
    let mut rig = rig("");
    for to in ["isbn:2983792873", "tel:+15551234", "<http://www.example.com>"] {
        let answer = rig.status(BOB, &register(1).to(to).text());
        assert!(answer.starts_with("SIP/2.0 400 "), "{to}: {answer}");
    }
}
