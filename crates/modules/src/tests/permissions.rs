//! `permissions`: addresses and trusted peers, as scripts ask for them.

use super::domain::{Known, errors_of, rows, settings_of};
use super::*;
use crate::Addresses;

const MODULE: &str = "loadmodule \"permissions.so\"\n";
const TAGS: &str = "modparam(\"permissions\", \"peer_tag_avp\", \"$avp(tag)\")\n";
const DATABASE: &str = "modparam(\"permissions\", \"db_url\", \"sqlite:\")\n";

fn addresses() -> Addresses {
    Addresses::from_rows(
        &settings_of(MODULE).permissions,
        &rows(&[
            &["1", "127.0.0.0", "8", "0", "loop8"],
            &["1", "127.0.0.1", "32", "0", "exact"],
            &["2", "10.0.0.0", "8", "5060", "ten"],
            &["4", "gw.example.org", "32", "0", "gw"],
            &["5", "192.0.2.1", "0", "0", "NULL"],
        ]),
        &rows(&[
            &["127.0.0.1", "any", "^sip:alice@", "NULL", "t-any", "0"],
            &["127.0.0.1", "udp", "NULL", "^sip:x", "t-ruri", "5"],
            &["127.0.0.1", "tcp", "NULL", "NULL", "t-tcp", "9"],
        ]),
    )
    .unwrap()
}

fn logged(parameters: &str, body: &str, request: &Request) -> String {
    let known = Known { addresses: Arc::new(addresses()), ..Known::default() };
    let mut rig = known.rig(&format!("{LOAD}\n{MODULE}{parameters}\nrequest_route {{\n{body}\n}}\n"));
    rig.send(ALICE, &request.text());
    rig.lines().concat()
}

fn invite(uri: &str, from: &str) -> Request {
    Request::new("INVITE", uri, ALICE).from(&format!("<{from}>;tag=a"))
}

#[test]
fn addresses_and_their_tags_are_found() {
    for (call, expected) in [
        ("allow_address(\"1\", \"127.0.0.2\", \"5060\")", "1 loop8"),
        ("allow_address(1, \"$si\", \"$sp\")", "1 exact"),
        ("allow_address(\"2\", \"10.2.0.1\", \"5060\")", "1 ten"),
        ("allow_address(\"2\", \"10.2.0.1\", \"5061\")", "-1 <null>"),
        ("allow_address(\"4\", \"gw.example.org\", \"5060\")", "1 gw"),
        ("allow_address(\"5\", \"192.0.2.1\", \"0\")", "1 <null>"),
        ("allow_address(\"1\", \"127.0.0.1\", \"x\")", "-1 <null>"),
        ("allow_address(\"1\", \"127.0.0.1\", \"70000\")", "-1 <null>"),
        ("allow_address(\"1\", \"\", \"1\")", "-1 <null>"),
        ("allow_address(\"0\", \"127.0.0.1\", \"1\")", "-1 <null>"),
        ("allow_source_address()", "1 exact"),
        ("allow_source_address(\"1\")", "1 exact"),
        ("allow_source_address(\"2\")", "-1 <null>"),
        ("allow_source_address_group()", "1 exact"),
        ("allow_address_group(\"10.9.9.9\", \"5060\")", "2 ten"),
        ("allow_address_group(\"gw.example.org\", \"5060\")", "4 gw"),
        ("allow_address_group(\"10.9.9.9\", \"5061\")", "-1 <null>"),
    ] {
        let body = format!("{call}; xlog(\"$rc $avp(tag)\\n\");");
        assert_eq!(logged(TAGS, &body, &invite("sip:a@b", "sip:a@b")), expected, "{call}");
        // Without `peer_tag_avp` no tag goes anywhere.
        let code = expected.split(' ').next().unwrap();
        assert_eq!(logged("", &body, &invite("sip:a@b", "sip:a@b")), format!("{code} <null>"), "{call}");
    }
}

#[test]
fn trusted_requests_fit_a_rule() {
    for (call, uri, from, expected) in [
        ("allow_trusted()", "sip:b@a", "sip:alice@a", "1 t-any"),
        ("allow_trusted()", "sip:x@a", "sip:alice@a", "1 t-ruri"),
        ("allow_trusted()", "sip:b@a", "sip:z@a", "-1 <null>"),
        ("allow_trusted(\"127.0.0.1\", \"tcp\")", "sip:b@a", "sip:z@a", "1 t-tcp"),
        ("allow_trusted(\"$si\", \"any\")", "sip:b@a", "sip:z@a", "1 t-tcp"),
        ("allow_trusted(\"$si\", \"tls\")", "sip:b@a", "sip:z@a", "-1 <null>"),
        ("allow_trusted(\"$si\", \"$proto\", \"sip:alice@x\")", "sip:b@a", "sip:z@a", "1 t-any"),
        ("allow_trusted(\"10.0.0.1\", \"udp\")", "sip:b@a", "sip:alice@a", "-1 <null>"),
    ] {
        let body = format!("{call}; xlog(\"$rc $avp(tag)\\n\");");
        assert_eq!(logged(TAGS, &body, &invite(uri, from)), expected, "{call} {uri} {from}");
    }
    let all = format!("{TAGS}modparam(\"permissions\", \"peer_tag_mode\", 1)\n");
    let body = "allow_trusted(); xlog(\"$rc $(avp(tag)[*])\\n\");";
    assert_eq!(logged(&all, body, &invite("sip:x@a", "sip:alice@a")), "2 t-any,t-ruri");
    let odd =
        logged(TAGS, "allow_trusted(\"$si\", \"pigeon\"); xlog(\"$rc\\n\");", &invite("sip:x@a", "sip:a@a"));
    assert!(odd.contains("the transport is") && odd.ends_with("-1"), "{odd}");
}

#[test]
fn nobody_is_trusted_before_the_tables_were_read() {
    let mut rig = Rig::new(&format!(
        "{LOAD}\n{MODULE}request_route {{ allow_source_address(); xlog(\"$rc\\n\"); allow_trusted(); xlog(\"$rc\\n\"); allow_source_address_group(); xlog(\"$rc\\n\"); }}"
    ));
    rig.send(ALICE, &invite("sip:x@a", "sip:alice@a").text());
    assert_eq!(rig.lines(), ["-1", "-1", "-1"]);
}

#[test]
fn tables_and_file_are_named() {
    let none = settings_of(MODULE);
    assert_eq!((none.permissions.database, none.tables_needed().len()), (None, 0));
    let kinds = |text: &str| -> Vec<&str> {
        settings_of(&format!("{MODULE}{DATABASE}{text}"))
            .tables_needed()
            .iter()
            .map(|needed| needed.kind)
            .collect()
    };
    assert_eq!(kinds(""), ["address", "trusted"]);
    assert_eq!(kinds("modparam(\"permissions\", \"load_backends\", 1)"), ["address"]);
    assert_eq!(kinds("modparam(\"permissions\", \"load_backends\", 2)"), ["trusted"]);
    assert_eq!(kinds("modparam(\"permissions\", \"address_file\", \"address.list\")"), ["trusted"]);
    let set = settings_of(&format!("{MODULE}{DATABASE}modparam(\"permissions\", \"tag_col\", \"peer\")"));
    assert_eq!(set.permissions.columns, ["grp", "ip_addr", "mask", "port", "peer"]);
    assert_eq!(
        set.permissions.trusted_columns,
        ["src_ip", "proto", "from_pattern", "ruri_pattern", "peer", "priority"]
    );
}

#[test]
fn what_cannot_be_honoured_is_an_error() {
    for (text, why) in [
        ("modparam(\"permissions\", \"peer_tag_avp\", \"$var(x)\")", "no `$avp`"),
        ("modparam(\"permissions\", \"default_deny_file\", \"x\")", "rules in files"),
        ("modparam(\"permissions\", \"peer_tag_mode\", 2)", "peer_tag_mode"),
        ("request_route { allow_routing(); }", "rules in files"),
        ("request_route { allow_register(\"register\"); }", "rules in files"),
        ("request_route { allow_uri(\"x\", \"$ru\"); }", "rules in files"),
        ("request_route { exit; } onreply_route { allow_source_address(); }", "onreply_route"),
        ("request_route { allow_address(\"x\", \"127.0.0.1\", \"0\"); }", "must be an integer"),
    ] {
        let errors = errors_of(&format!("{MODULE}{text}"));
        assert!(errors.contains(why), "{text}: {errors}");
    }
    assert_eq!(errors_of(&format!("{MODULE}request_route {{ allow_source_address(); }}")), "");
}
