//! `domain`: what is local, attributes, and domains that are names of the server.

use super::*;
use crate::{Addresses, Domains, Guard, NonceWindow, Services};

/// Services of a server that has read its tables.
#[derive(Default)]
pub(super) struct Known {
    pub(super) domains: Arc<Domains>,
    pub(super) addresses: Arc<Addresses>,
}

impl Services for Known {
    fn with_nonces(&self, hash: u64, visit: &mut dyn FnMut(&mut NonceWindow)) {
        crate::services::NoServices.with_nonces(hash, visit);
    }

    fn with_guard(&self, hash: u64, visit: &mut dyn FnMut(&mut Guard)) {
        crate::services::NoServices.with_guard(hash, visit);
    }

    fn users_epoch(&self) -> u64 {
        0
    }

    fn domains(&self) -> Arc<Domains> {
        self.domains.clone()
    }

    fn addresses(&self) -> Arc<Addresses> {
        self.addresses.clone()
    }
}

impl Known {
    /// A server with these tables.
    pub(super) fn rig(self, text: &str) -> Rig {
        Rig::with(text, &[], Environment { services: Arc::new(self), ..Environment::default() })
    }
}

/// Rows of a table, `NULL` for NULL.
pub(super) fn rows(rows: &[&[&str]]) -> Vec<Vec<Option<String>>> {
    let column = |text: &&str| (*text != "NULL").then(|| (*text).to_string());
    rows.iter().map(|row| row.iter().map(column).collect()).collect()
}

/// A configuration with a main route.
fn whole(text: &str) -> String {
    let main = if text.contains("request_route") { "" } else { "request_route { exit; }" };
    format!("{text}\n{main}\n")
}

/// What a configuration sets.
pub(super) fn settings_of(text: &str) -> Settings {
    Settings::from_program(&program(&whole(text), &crate::catalogue()))
        .unwrap_or_else(|errors| panic!("{errors:?}"))
}

/// What is wrong with a configuration, in words; nothing if it can be run.
pub(super) fn errors_of(text: &str) -> String {
    match check(&whole(text), &crate::catalogue()) {
        Err(rejected) => rejected.render(Colour::Never),
        Ok(program) => {
            let errors = Settings::from_program(&program).err().unwrap_or_default();
            errors.iter().map(|error| format!("{} {}\n", error.code, error.message)).collect()
        }
    }
}

fn domains() -> Domains {
    Domains::from_rows(
        &settings_of("loadmodule \"domain.so\"").domain,
        &rows(&[&["Example.org", "NULL"], &["b.example", "tenant1"], &["b2.example", "tenant1"]]),
        &rows(&[
            &["tenant1", "limit", "0", "42"],
            &["tenant1", "name", "2", "Tenant One"],
            &["tenant1", "name", "2", "second"],
            &["Example.org", "y", "2", "exact"],
        ]),
    )
    .unwrap()
}

fn rig(parameters: &str, body: &str) -> Rig {
    let known = Known { domains: Arc::new(domains()), ..Known::default() };
    known.rig(&format!("{LOAD}\nloadmodule \"domain.so\"\n{parameters}\nrequest_route {{\n{body}\n}}\n"))
}

/// What a route logs for a request.
fn logged(body: &str, request: &Request) -> Vec<String> {
    let mut rig = rig("", body);
    rig.send(ALICE, &request.text());
    rig.lines()
}

fn code(call: &str, request: &Request) -> String {
    logged(&format!("{call}; xlog(\"$rc\\n\");"), request).concat()
}

fn invite(uri: &str, from: &str) -> Request {
    Request::new("INVITE", uri, ALICE).from(&format!("<{from}>;tag=a"))
}

#[test]
fn hosts_are_local_if_the_table_has_them() {
    for (call, uri, from, expected) in [
        ("is_from_local()", "sip:x@y", "sip:a@example.org", "1"),
        ("is_from_local()", "sip:x@y", "sip:a@EXAMPLE.ORG:5070", "1"),
        ("is_from_local()", "sip:b.example", "sip:a@nope.example", "-1"),
        ("is_from_local()", "sip:b.example", "tel:+123", "-1"),
        ("is_uri_host_local()", "sip:a@b.example;x=y", "sip:a@y", "1"),
        ("is_uri_host_local()", "sip:a@nope.example", "sip:example.org", "-1"),
        ("is_uri_host_local()", "tel:+123", "sip:a@y", "-1"),
        ("is_domain_local(\"$rd\")", "sip:a@B.example", "sip:a@y", "1"),
        ("is_domain_local(\"$fd\")", "sip:a@y", "sip:a@example.org", "1"),
        ("is_domain_local(\"b.example\")", "sip:a@y", "sip:a@y", "1"),
        ("is_domain_local(\"b.example:5060\")", "sip:a@y", "sip:a@y", "-1"),
        ("is_domain_local(\"\")", "sip:a@y", "sip:a@y", "-1"),
        ("is_domain_local(\"$hdr(Nope)\")", "sip:a@y", "sip:a@y", "-1"),
    ] {
        assert_eq!(code(call, &invite(uri, from)), expected, "{call} {uri} {from}");
    }
    // The Request-URI as it would be sent.
    assert_eq!(code("$rd = \"b2.example\"; is_uri_host_local()", &invite("sip:a@y", "sip:a@y")), "1");
}

/// In a branch route it is the branch's URI that counts.
#[test]
fn each_branch_has_its_host() {
    let known = Known { domains: Arc::new(domains()), ..Known::default() };
    let mut rig = known.rig(&format!(
        "{LOAD}\nloadmodule \"domain.so\"\nrequest_route {{ $ru = \"sip:a@b.example\"; $du = \"sip:{BOB}\"; append_branch(\"sip:a@{CAROL}\"); t_on_branch(\"B\"); t_relay(); }}\nbranch_route[B] {{ is_uri_host_local(); xlog(\"$rd $rc\\n\"); }}\n"
    ));
    rig.send(ALICE, &invite("sip:x@y", "sip:a@y").text());
    assert_eq!(rig.lines(), ["b.example 1", "127.0.0.1 -1"]);
}

#[test]
fn attributes_become_variables() {
    let request = invite("sip:x@y", "sip:a@b2.example");
    let body = r#"if (lookup_domain("$fd", "p_")) xlog("$avp(p_did) $avp(p_limit) $(avp(p_name)[*])\n");
        if ($avp(p_limit) == 42) xlog("a number\n");
        xlog("$avp(did)\n");"#;
    assert_eq!(logged(body, &request), ["tenant1 42 second,Tenant One", "a number", "<null>"]);
    let body = "lookup_domain(\"example.ORG\"); xlog(\"$rc $avp(did) $avp(y)\\n\");";
    assert_eq!(logged(body, &request), ["1 Example.org exact"]);
    let body = "lookup_domain(\"nope\"); xlog(\"$rc $avp(did)\\n\");";
    assert_eq!(logged(body, &request), ["-1 <null>"]);
}

#[test]
fn domains_are_names_of_the_server_if_they_are_registered() {
    let body = "if ($ru == myself) xlog(\"own\\n\"); else xlog(\"foreign\\n\");";
    for (parameters, uri, expected) in [
        ("", "sip:a@b.example", "foreign"),
        ("modparam(\"domain\", \"register_myself\", 1)", "sip:a@B.example", "own"),
        ("modparam(\"domain\", \"register_myself\", 1)", "sip:a@c.example", "foreign"),
        ("modparam(\"domain\", \"register_myself\", 1)", "sip:a@127.0.0.1", "own"),
        ("modparam(\"domain\", \"register_myself\", 1)", "tel:+123", "foreign"),
    ] {
        let mut rig = rig(parameters, body);
        rig.send(ALICE, &invite(uri, "sip:a@y").text());
        assert_eq!(rig.lines(), [expected], "{parameters} {uri}");
    }
}

#[test]
fn nothing_is_local_before_the_tables_were_read() {
    let mut rig = Rig::new(
        "loadmodule \"domain.so\"\nloadmodule \"xlog.so\"\nrequest_route { is_domain_local(\"b.example\"); xlog(\"$rc\\n\"); }",
    );
    rig.send(ALICE, &invite("sip:x@y", "sip:a@y").text());
    assert_eq!(rig.lines(), ["-1"]);
}

#[test]
fn the_tables_are_named() {
    let none = settings_of("loadmodule \"sl.so\"");
    assert_eq!((none.domain.database, none.tables_needed().len(), none.databases.len()), (None, 0, 0));
    let set = settings_of(
        r#"loadmodule "domain.so"
        modparam("domain", "db_url", "postgres://u:p@h/d")
        modparam("domain", "domain_table", "mine")
        modparam("domain", "did_col", "tenant")
        modparam("domain", "value_col", "content")"#,
    );
    assert_eq!(set.databases[usize::from(set.domain.database.unwrap())].0, "postgres://u:p@h/d");
    assert_eq!(set.domain.columns, ["domain", "tenant"]);
    assert_eq!(set.domain.attributes_columns, ["tenant", "name", "type", "content"]);
    let needed = set.tables_needed();
    let names: Vec<_> = needed.iter().map(|needed| (needed.table.as_str(), needed.kind)).collect();
    assert_eq!(names, [("mine", "domain"), ("domain_attrs", "domain_attrs")]);
    assert_eq!(needed[0].columns, [("domain", "domain".to_string()), ("did", "tenant".to_string())]);
}
