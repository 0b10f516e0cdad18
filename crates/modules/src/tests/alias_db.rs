//! `alias_db`: what is asked of the database, and what becomes of its answers.

use super::domain::{errors_of, settings_of};
use super::*;
use engine::{Ask, Rows};

const MODULE: &str = "loadmodule \"alias_db.so\"\n";

fn rig(parameters: &str, body: &str) -> Rig {
    Rig::new(&format!(
        "{LOAD}\n{MODULE}{parameters}\nrequest_route {{\n{body}\nxlog(\"$rc $ru $br $avp(o)\\n\");\nsl_send_reply(\"404\", \"Not Found\");\n}}\n"
    ))
}

/// Rows of an answer.
pub(super) fn rows(rows: &[&[&str]]) -> Rows {
    let column = |text: &&str| (*text != "NULL").then(|| text.as_bytes().into());
    Rows(rows.iter().map(|row| row.iter().map(column).collect()).collect())
}

/// What the script asked: table, keys and rows.
pub(super) fn asked(rig: &mut Rig) -> (String, String, u16) {
    let Some(Ask::Select(select)) = rig.question.take() else { panic!("no question") };
    let keys: Vec<_> = select
        .keys
        .iter()
        .map(|(column, value)| format!("{column}={}", String::from_utf8_lossy(value)))
        .collect();
    (format!("{} of {}", select.columns.join(","), select.table), keys.join(" "), select.rows_max)
}

fn invite(uri: &str) -> String {
    Request::new("INVITE", uri, ALICE).text()
}

#[test]
fn an_alias_becomes_its_user() {
    for (parameters, call, uri, keys, user) in [
        ("", "alias_db_lookup(\"dbaliases\")", "sip:al@Example.org", "alias_username=al", "u3"),
        (
            "",
            "alias_db_lookup(\"dbaliases\", \"u\")",
            "sip:al@Example.org:5070;x=y",
            "alias_username=al alias_domain=example.org",
            "u3",
        ),
        (
            "modparam(\"alias_db\", \"use_domain\", 1)",
            "alias_db_lookup(\"dbaliases\")",
            "sip:al@example.org",
            "alias_username=al alias_domain=example.org",
            "u3",
        ),
        (
            "modparam(\"alias_db\", \"use_domain\", 1)",
            "alias_db_lookup(\"dbaliases\", \"d\")",
            "sip:al@example.org",
            "alias_username=al",
            "u3",
        ),
        (
            "modparam(\"alias_db\", \"use_domain\", 1)\nmodparam(\"alias_db\", \"domain_prefix\", \"SIP.\")",
            "alias_db_lookup(\"dbaliases\")",
            "sip:al@sip.example.org",
            "alias_username=al alias_domain=example.org",
            "u3",
        ),
        (
            "",
            "alias_db_lookup(\"dbaliases\", \"ru\")",
            "sip:al@example.org",
            "username=al domain=example.org",
            "u3",
        ),
    ] {
        let mut rig = rig(parameters, &format!("{call};"));
        rig.send(ALICE, &invite(uri));
        let columns = if call.contains("ru") { "alias_username,alias_domain" } else { "username,domain" };
        assert_eq!(asked(&mut rig), (format!("{columns} of dbaliases"), keys.to_string(), 1), "{call} {uri}");
        let sent = rig.answer(Answer::Rows(&rows(&[&[user, "b.example"]])));
        assert!(sent.iter().any(|sent| sent.first() == "SIP/2.0 404 Not Found"), "{sent:#?}");
        assert_eq!(rig.lines(), ["1 sip:u3@b.example <null> <null>"]);
    }
}

#[test]
fn what_is_no_alias_stays() {
    let call = "alias_db_lookup(\"dbaliases\", \"u\");";
    let mut with_answer = rig("", call);
    with_answer.send(ALICE, &invite("sip:al@example.org"));
    with_answer.answer(Answer::Rows(&rows(&[])));
    assert_eq!(with_answer.lines(), ["-1 sip:al@example.org <null> <null>"]);
    // Nobody is asked about what can be nobody's alias.
    let long = format!("sip:{}@example.org", "a".repeat(256));
    for uri in ["sip:example.org", "tel:+123", &long] {
        let mut rig = rig("", call);
        rig.send(ALICE, &invite(uri));
        assert!(rig.asks.is_empty(), "{uri}");
        assert_eq!(rig.lines(), [format!("-1 {uri} <null> <null>")]);
    }
}

#[test]
fn an_alias_of_several_users_has_them_all() {
    let parameter = "modparam(\"alias_db\", \"append_branches\", 1)";
    let found = rows(&[&["u3", "b.example"], &["u1", "example.org"]]);
    let mut lookup = rig(parameter, "alias_db_lookup(\"dbaliases\");");
    lookup.send(ALICE, &invite("sip:al@example.org"));
    assert_eq!(asked(&mut lookup).2, 31);
    lookup.answer(Answer::Rows(&found));
    assert_eq!(lookup.lines(), ["1 sip:u3@b.example sip:u1@example.org <null>"]);
    let mut find = rig(
        parameter,
        "alias_db_find(\"dbaliases\", \"sip:al@example.org\", \"$avp(o)\"); xlog(\"$(avp(o)[*])\\n\");",
    );
    find.send(ALICE, &invite("sip:x@y"));
    find.answer(Answer::Rows(&found));
    assert_eq!(find.lines()[0], "sip:u1@example.org,sip:u3@b.example");
}

/// RFC 3261 §25.1: rows are text of somebody's; what makes no SIP URI, or another one, is not used.
#[test]
fn a_row_that_makes_no_uri_is_passed_over() {
    let parameter = "modparam(\"alias_db\", \"append_branches\", 1)";
    let mut rig = rig(parameter, "alias_db_lookup(\"dbaliases\");");
    rig.send(ALICE, &invite("sip:al@example.org"));
    rig.answer(Answer::Rows(&rows(&[
        &["NULL", "b.example"],
        &["u", "NULL"],
        &["", ""],
        &["u@evil", "b.example"],
        &["u", "b.example;x=y"],
        &["u\r\nX: y", "b.example"],
        &["u"],
        &["u9", "b.example"],
    ])));
    let lines = rig.lines();
    assert_eq!(lines.last().unwrap(), "1 sip:u9@b.example <null> <null>");
    assert_eq!(lines.iter().filter(|line| line.contains("passed over")).count(), 7);
}

#[test]
fn an_alias_is_found_without_changing_the_request() {
    let mut rig = rig("", "alias_db_find(\"dbaliases\", \"$fu\", \"$avp(o)\", \"r\");");
    rig.send(ALICE, &invite("sip:x@y"));
    assert_eq!(asked(&mut rig).1, "username=alice");
    rig.answer(Answer::Rows(&rows(&[&["al", "example.org"]])));
    assert_eq!(rig.lines(), ["1 sip:x@y <null> sip:al@example.org"]);
}

/// RFC 3261 §21.5.4, §20.33: the database may be back soon.
#[test]
fn without_the_database_the_request_is_answered_503() {
    for call in ["alias_db_lookup(\"dbaliases\");", "alias_db_find(\"dbaliases\", \"sip:a@b\", \"$avp(o)\");"]
    {
        let mut rig = rig("modparam(\"registrar\", \"retry_after\", 7)", call);
        rig.send(ALICE, &invite("sip:al@example.org"));
        let sent = rig.answer(Answer::Failed);
        let reply = sent.iter().find(|sent| sent.first() == "SIP/2.0 503 Service Unavailable").expect("503");
        assert_eq!(reply.header("Retry-After"), Some("7"));
        let lines = rig.lines();
        assert_eq!(lines.len(), 1, "the script ends: {lines:?}");
        assert!(lines[0].contains("does not answer"), "{lines:?}");
    }
}

/// RFC 3261 §21.5.1: the database answered, and whoever asks again gets the same.
#[test]
fn a_database_that_refuses_is_answered_500() {
    let mut rig = rig("", "alias_db_lookup(\"nosuch\");");
    rig.send(ALICE, &invite("sip:al@example.org"));
    let sent = rig.answer(Answer::Refused);
    let reply = sent.iter().find(|sent| sent.first().starts_with("SIP/2.0 500 ")).expect("500");
    assert_eq!(reply.header("Retry-After"), Some("5"));
    assert!(rig.lines().concat().contains("refuses"), "{:?}", rig.lines());
}

#[test]
fn an_answer_that_never_comes_is_a_503() {
    let mut rig = rig("modparam(\"alias_db\", \"query_timeout\", 500)", "alias_db_lookup(\"dbaliases\");");
    rig.send(ALICE, &invite("sip:al@example.org"));
    assert!(rig.pass(Duration::from_millis(450)).is_empty());
    let sent = rig.pass(Duration::from_millis(200));
    assert!(sent.iter().any(|sent| sent.first() == "SIP/2.0 503 Service Unavailable"), "{sent:#?}");
}

#[test]
fn the_tables_are_those_of_the_script() {
    let set = settings_of(&format!(
        "{LOAD}{MODULE}modparam(\"alias_db\", \"alias_user_column\", \"nick\")
        request_route {{ alias_db_lookup(\"one\"); alias_db_lookup(\"one\", \"r\"); alias_db_find(\"two\", \"$fu\", \"$avp(o)\"); alias_db_lookup(\"x_$rU\"); }}"
    ));
    let needed = set.tables_needed();
    let names: Vec<_> = needed.iter().map(|needed| (needed.table.as_str(), needed.kind)).collect();
    assert_eq!(names, [("one", "dbaliases"), ("two", "dbaliases")]);
    assert_eq!(needed[0].columns[0], ("alias_username", "nick".to_string()));
    assert_eq!(settings_of(MODULE).tables_needed().len(), 0);
}

#[test]
fn what_makes_no_sense_is_an_error() {
    for (body, why) in [
        ("alias_db_lookup(\"dbaliases\", \"q\");", "the flags are d"),
        ("alias_db_find(\"dbaliases\", \"$fu\", \"$var(o)\");", "no variable that a result can be put into"),
        ("alias_db_find(\"dbaliases\", \"$fu\", \"o\");", "no variable that a result can be put into"),
        ("alias_db_find(\"dbaliases\", \"$fu\");", "3 to 4 arguments"),
    ] {
        let errors = errors_of(&format!("{LOAD}{MODULE}request_route {{ {body} }}"));
        assert!(errors.contains(why), "{body}: {errors}");
    }
    // Nobody can wait there.
    let text = "request_route { exit; } failure_route[F] { alias_db_lookup(\"a\"); }";
    assert!(errors_of(&format!("{MODULE}{text}")).contains("failure_route"));
    let right = "alias_db_find(\"dbaliases\", \"$fu\", \"$avp(o)\", \"rd\");";
    assert_eq!(errors_of(&format!("{LOAD}{MODULE}request_route {{ {right} }}")), "");
}
