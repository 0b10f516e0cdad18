//! `uri_db`: URIs of the authenticated user, and users that exist. RFC 3261 §22.1: credentials say who somebody
//! is, From and To what he says.

use super::alias_db::{asked, rows};
use super::domain::{errors_of, settings_of};
use super::*;
use crate::run::{Authenticated, Run};
use crate::table::{Function, MESSAGES, Module};
use route::{Args, Outcome, Param, ParamKind};

/// Authenticates whoever the script says.
pub(super) static TRUSTING: Module = Module {
    name: "trusting",
    doc: "Takes somebody's word.",
    functions: &[Function::new(
        "i_am",
        &[Param::new("username", ParamKind::Format), Param::new("realm", ParamKind::Format)],
        MESSAGES,
        i_am,
        "Authenticates a user.",
    )],
    parameters: &[],
    variables: &[],
};

fn i_am(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let user = Authenticated { username: args.str(0).into(), realm: args.str(1).into() };
    run.state().authenticated = Some(user);
    Outcome::True
}

const TABLE: &str = "modparam(\"uri_db\", \"use_uri_table\", 1)\nmodparam(\"uri_db\", \"db_table\", \"uri\")";
const BOB: &str = "i_am(\"bob\", \"example.org\");";

fn rig(parameters: &str, body: &str) -> Rig {
    let text = format!(
        "{LOAD}\nloadmodule \"uri_db.so\"\nloadmodule \"trusting.so\"\n{parameters}\nrequest_route {{\n{body}\nxlog(\"$rc\\n\");\nsl_send_reply(\"404\", \"Not Found\");\n}}\n"
    );
    Rig::with(&text, &[&TRUSTING], Environment::default())
}

fn register(to: &str) -> Request {
    Request::new("REGISTER", "sip:example.org", ALICE).to(&format!("<{to}>")).from(&format!("<{to}>;tag=a"))
}

#[test]
fn a_uri_belongs_to_the_user_of_its_name() {
    for (user, to, expected) in [
        (BOB, "sip:bob@example.org", "1"),
        (BOB, "sip:BOB@example.org", "1"),
        (BOB, "sip:bob@other.org", "1"),
        (BOB, "sip:carol@example.org", "-10"),
        (BOB, "sip:bobby@example.org", "-10"),
        (BOB, "sip:example.org", "-4"),
        ("", "sip:bob@example.org", "-2"),
        ("i_am(\"bob@example.org\", \"x\");", "sip:bob@example.org", "1"),
        ("i_am(\"\", \"\");", "sip:bob@example.org", "-10"),
    ] {
        for check in ["check_to()", "check_from()", "check_uri(\"$tu\")"] {
            let mut rig = rig("", &format!("{user} {check};"));
            rig.send(ALICE, &register(to).text());
            assert_eq!(rig.lines(), [expected], "{user} {check} {to}");
            assert!(rig.asks.is_empty());
        }
    }
    for (uri, expected) in [("", "-1"), ("nonsense", "-1"), ("http://x", "-1"), ("sips:bob@x", "1")] {
        let mut rig = rig("", &format!("{BOB} check_uri(\"{uri}\");"));
        rig.send(ALICE, &register("sip:a@b").text());
        assert_eq!(rig.lines(), [expected], "{uri}");
    }
}

#[test]
fn a_table_says_which_uris_belong_to_a_user() {
    for (user, keys) in [
        (BOB, "username=bob domain=example.org uri_user=sales"),
        ("i_am(\"bob@b.example\", \"x\");", "username=bob domain=b.example uri_user=sales"),
    ] {
        for (found, expected) in [(rows(&[&["bob"]]), "1"), (rows(&[]), "-9")] {
            let mut rig = rig(TABLE, &format!("{user} check_to();"));
            rig.send(ALICE, &register("sip:sales@other.org").text());
            assert_eq!(asked(&mut rig), ("username of uri".to_string(), keys.to_string(), 1));
            rig.answer(Answer::Rows(&found));
            assert_eq!(rig.lines(), [expected]);
        }
    }
    for (body, to, expected) in
        [("check_to();", "sip:a@b", "-2"), (&*format!("{BOB} check_to();"), "sip:example.org", "-4")]
    {
        let mut rig = rig(TABLE, body);
        rig.send(ALICE, &register(to).text());
        assert_eq!((rig.lines(), rig.asks.len()), (Vec::from([expected.to_string()]), 0));
    }
}

#[test]
fn users_exist_or_not() {
    let domain = "modparam(\"uri_db\", \"use_domain\", 1)";
    let request = Request::new("INVITE", "sip:bob@EXAMPLE.org", ALICE);
    for (parameters, question, keys) in [
        ("", "username of subscriber", "username=bob"),
        (domain, "username of subscriber", "username=bob domain=example.org"),
        (TABLE, "username of uri", "uri_user=bob"),
        (&*format!("{TABLE}\n{domain}"), "username of uri", "uri_user=bob domain=example.org"),
    ] {
        for (found, expected) in [(rows(&[&["bob"]]), "1"), (rows(&[]), "-5")] {
            let mut rig = rig(parameters, "does_uri_exist();");
            rig.send(ALICE, &request.text());
            assert_eq!(asked(&mut rig), (question.to_string(), keys.to_string(), 1), "{parameters}");
            rig.answer(Answer::Rows(&found));
            assert_eq!(rig.lines(), [expected]);
        }
    }
    let mut rig = rig("", "does_uri_exist();");
    rig.send(ALICE, &Request::new("INVITE", "sip:example.org", ALICE).text());
    assert_eq!((rig.lines(), rig.asks.len()), (Vec::from(["-5".to_string()]), 0));
}

/// RFC 3261 §21.5.4: not 404 and not 403, which phones would believe.
#[test]
fn without_the_database_nobody_is_called_unknown() {
    for (parameters, body) in [("", "does_uri_exist();"), (TABLE, &*format!("{BOB} check_to();"))] {
        for (answer, first) in [(Answer::Failed, "SIP/2.0 503 "), (Answer::Refused, "SIP/2.0 500 ")] {
            let mut rig = rig(parameters, body);
            rig.send(ALICE, &Request::new("OPTIONS", "sip:bob@example.org", ALICE).text());
            let sent = rig.answer(answer);
            assert_eq!(sent.len(), 1, "{sent:#?}");
            assert!(
                sent[0].first().starts_with(first) && sent[0].header("Retry-After") == Some("5"),
                "{sent:#?}"
            );
            assert_eq!(rig.lines().len(), 1);
        }
    }
}

#[test]
fn a_database_is_needed_by_who_asks_it() {
    let load = "loadmodule \"uri_db.so\"\n";
    let tables = |text: &str| -> Vec<(String, &str)> {
        let set = settings_of(&format!("{load}{text}"));
        set.tables_needed().into_iter().map(|needed| (needed.table, needed.kind)).collect()
    };
    assert_eq!(tables("request_route { check_to(); }"), []);
    assert_eq!(tables("request_route { does_uri_exist(); }"), [("subscriber".to_string(), "subscriber")]);
    assert_eq!(tables(TABLE), [("uri".to_string(), "uri")]);
    let unnamed = errors_of(&format!("{load}modparam(\"uri_db\", \"use_uri_table\", 1)"));
    assert!(unnamed.contains("the table of URIs is not named"), "{unnamed}");
}
