//! `siputils`: what is asked of requests and URIs beyond the tests in `functions`.

use super::domain::errors_of;
use super::uri_db::TRUSTING;
use super::*;

/// What a call returns and puts into `$avp(x)`.
fn result(call: &str, request: &Request) -> String {
    let text =
        format!("{LOAD}\nloadmodule \"trusting.so\"\nrequest_route {{ {call}; xlog(\"$rc $avp(x)\\n\"); }}");
    let mut rig = Rig::with(&text, &[&TRUSTING], Environment::default());
    rig.send(ALICE, &request.text());
    rig.lines().concat()
}

fn invite(uri: &str) -> Request {
    Request::new("INVITE", uri, ALICE)
}

#[test]
fn parameters_of_the_request_uri_are_read() {
    let request = invite("sip:bob@example.org;p1;p2=V2");
    for (call, expected) in [
        ("get_uri_param(\"p2\", \"$avp(x)\")", "1 V2"),
        ("get_uri_param(\"P2\", \"$avp(x)\")", "1 V2"),
        ("get_uri_param(\"p1\", \"$avp(x)\")", "1"),
        ("get_uri_param(\"p3\", \"$avp(x)\")", "-1 <null>"),
        ("uri_param(\"p1\")", "1 <null>"),
        ("uri_param(\"p2\")", "-1 <null>"),
        ("uri_param(\"p2\", \"v2\")", "1 <null>"),
        ("uri_param(\"p2\", \"x\")", "-1 <null>"),
        ("uri_param(\"p3\")", "-1 <null>"),
        ("uri_param_any(\"p1\")", "1 <null>"),
        ("uri_param_any(\"p2\")", "1 <null>"),
        ("uri_param_any(\"p3\")", "-1 <null>"),
    ] {
        assert_eq!(result(call, &request), expected, "{call}");
    }
}

/// RFC 5627 §3.1: `gr` with a value is a public GRUU, without one a temporary.
#[test]
fn gruus_are_told_apart() {
    for (call, uri, expected) in [
        ("is_gruu()", "sip:bob@example.org;gr=urn:uuid:x;ob", "1"),
        ("is_gruu()", "sip:bob@example.org;gr", "2"),
        ("is_gruu()", "sip:bob@example.org", "-1"),
        ("is_gruu(\"sip:x@y;gr=1\")", "sip:bob@example.org", "1"),
        ("is_gruu(\"sip:x@y\")", "sip:bob@example.org;gr", "-1"),
        ("is_gruu(\"nonsense\")", "sip:bob@example.org;gr", "-1"),
        ("is_gruu(\"tel:+1;gr\")", "sip:bob@example.org;gr", "-1"),
    ] {
        assert_eq!(result(call, &invite(uri)), format!("{expected} <null>"), "{call} {uri}");
    }
}

/// RFC 3261 §19.1.6.
#[test]
fn tel_uris_become_sip_uris() {
    for (tel, expected) in [
        ("tel:+(34)-999-888-777", "1 sip:+34999888777@foo.com;user=phone"),
        (
            "tel:+12-(34)-56-78;Ext=200;ISUB=+123-456",
            "1 sip:+12345678;ext=200;isub=+123-456@foo.com;user=phone",
        ),
        ("tel:7042;phone-context=example.com", "1 sip:7042;phone-context=example.com@foo.com;user=phone"),
        ("TEL:+1.2", "1 sip:+12@foo.com;user=phone"),
        ("tel:*21#;phone-context=x", "1 sip:*21%23;phone-context=x@foo.com;user=phone"),
        ("tel:+1;x=a%20b", "1 sip:+1;x=a%20b@foo.com;user=phone"),
        ("sip:a@b", "2 <null>"),
        ("nonsense", "2 <null>"),
        ("tel:", "-1 <null>"),
        ("tel:-", "-1 <null>"),
    ] {
        let call = format!("tel2sip(\"{tel}\", \"foo.com\", \"$avp(x)\")");
        assert_eq!(result(&call, &invite("sip:a@b")), expected, "{tel}");
    }
    assert_eq!(result("tel2sip(\"tel:+1\", \"no host\", \"$avp(x)\")", &invite("sip:a@b")), "-1 <null>");
    let call = "tel2sip(\"$ru\", \"$fd\", \"$ru\"); $avp(x) = $ru";
    assert!(result(call, &invite("tel:+1-2")).ends_with("sip:+12@127.0.0.1;user=phone"));
}

/// RFC 3261 §22.1: a name in a header is nobody's proof.
#[test]
fn only_who_is_authenticated_is_a_user() {
    let claimed = invite("sip:a@b")
        .line("Authorization: Digest username=\"bob\", realm=\"r\", nonce=\"n\", uri=\"u\", response=\"x\"");
    for (call, expected) in [
        ("is_user(\"bob\")", "-1"),
        ("i_am(\"bob\", \"r\"); is_user(\"bob\")", "1"),
        ("i_am(\"bob\", \"r\"); is_user(\"BOB\")", "-1"),
        ("i_am(\"bob\", \"r\"); is_user(\"\")", "-1"),
        ("i_am(\"bob\", \"r\"); is_user(\"$fU\")", "-1"),
    ] {
        assert_eq!(result(call, &claimed), format!("{expected} <null>"), "{call}");
    }
}

/// RFC 3261 §20.17. The tests' clock says Tue, 14 Nov 2023 22:13:21 GMT.
#[test]
fn dates_may_be_too_old() {
    for (date, seconds, expected) in [
        ("Tue, 14 Nov 2023 22:13:21 GMT", 0, "1"),
        ("Tue, 14 Nov 2023 22:13:11 GMT", 10, "1"),
        ("Tue, 14 Nov 2023 22:13:10 GMT", 10, "-4"),
        ("Sat, 13 Nov 2010 23:29:00 GMT", 10, "-4"),
        ("Sat, 13 Nov 2010 23:29:00 GMT", 1_000_000_000, "1"),
        ("Thu, 29 Feb 2024 00:00:00 GMT", 0, "1"),
        ("Tue, 14 Nov 2023 22:13:21 CET", 10, "-1"),
        ("14 Nov 2023 22:13:21 GMT", 10, "-1"),
        ("Tue, 14 Foo 2023 22:13:21 GMT", 10, "-1"),
        ("Tue, 99 Nov 2023 22:13:21 GMT", 10, "-1"),
        ("Tue, 14 Nov 2023 22:13 GMT", 10, "-1"),
        ("nonsense", 10, "-1"),
    ] {
        let request = invite("sip:a@b").line(&format!("Date: {date}"));
        let call = format!("hdr_date_check(\"{seconds}\")");
        assert_eq!(result(&call, &request), format!("{expected} <null>"), "{date}");
    }
    assert_eq!(result("hdr_date_check(10)", &invite("sip:a@b")), "-1 <null>");
}

#[test]
fn outputs_must_be_variables() {
    for (call, why) in [
        ("get_uri_param(\"x\", \"$var(x)\")", "no variable that a result can be put into"),
        ("get_uri_param(\"x\", \"x\")", "no variable that a result can be put into"),
        ("tel2sip(\"$ru\", \"h\", \"$fu\")", "no variable that a result can be put into"),
        ("encode_contact(\"e\", \"h\")", "contacts are passed on"),
        ("append_rpid_hf()", "append_hf"),
    ] {
        let errors = errors_of(&format!("{LOAD}\nrequest_route {{ {call}; }}"));
        assert!(errors.contains(why), "{call}: {errors}");
    }
    assert_eq!(errors_of(&format!("{LOAD}\nrequest_route {{ get_uri_param(\"x\", \"$avp(x)\"); }}")), "");
}
