//! A REGISTER that waits for its commit, and look-ups that read the database first (`db_mode` 1 and 3; RFC 3261 §10.3
//! step 7).

use super::*;
use crate::DbMode;
use engine::Ask;
use location::Location;

const CONTACT: &str = "Contact: <sip:bob@10.0.0.1>;expires=600";
const OTHER: &str = "Contact: <sip:bob@10.0.0.2>;expires=600";
const KEPT: &str = "SIP/2.0 200 OK";
const REFUSED: &str = "SIP/2.0 500 Registration Not Stored";
const AWAY: &str = "SIP/2.0 503 Service Unavailable";

/// One whose commits wait for the test.
fn waiting(text: &str) -> Rig {
    let mut rig = Rig::new(text);
    rig.commits = false;
    rig
}

fn rig_with(mode: u8, parameters: &str) -> Rig {
    let route = r#"
request_route {
    append_to_reply("X-Before: 1\r\n");
    if (is_method("REGISTER")) { save("location"); xlog("save $rc\n"); exit; }
    if (is_method("MESSAGE")) { unregister("location", "$ru"); xlog("unregister $rc\n"); exit; }
    if (is_method("INFO")) { registered("location"); xlog("registered $rc\n"); exit; }
    lookup("location"); $var(found) = $rc; xlog("lookup $var(found)\n");
    if ($var(found) < 0) { sl_send_reply("404", "Not Found"); exit; }
    sl_send_reply("302", "Moved");
}
"#;
    waiting(&format!(
        "{LOAD}\nmodparam(\"usrloc\", \"db_mode\", {mode})\nmodparam(\"usrloc\", \"db_url\", \"sqlite:\")\n{parameters}\n{route}"
    ))
}

/// Write-through.
fn rig() -> Rig {
    rig_with(1, "")
}

fn register(cseq: u32) -> Request {
    Request::new("REGISTER", "sip:127.0.0.1", BOB).cseq(cseq)
}

fn ask(method: &str, call: &str) -> String {
    Request::new(method, "sip:bob@127.0.0.1", ALICE).call(call).text()
}

impl Rig {
    /// A request that is not answered yet: its question.
    fn waits(&mut self, text: &str) -> Ask {
        self.question = None;
        assert!(self.send(BOB, text).is_empty());
        self.question.clone().expect("a question")
    }

    /// What is sent when the oldest question is answered.
    fn answer_first(&mut self, answer: Answer<'_>) -> Vec<Sent> {
        let id = self.asks.remove(0);
        self.handle(|endpoint, now, out| endpoint.handle(now, Input::Answer { id, answer }, out))
    }

    /// The one answer that is sent then.
    fn answered(&mut self, answer: Answer<'_>) -> Sent {
        let mut sent = self.answer_first(answer);
        assert_eq!(sent.len(), 1, "{sent:#?}");
        sent.remove(0)
    }

    /// The contacts of bob that are bound, by a question.
    fn bound(&mut self) -> Vec<String> {
        let mut found = Vec::new();
        self.endpoint.user().location().lookup(self.now, b"bob", &mut |binding| {
            found.push(String::from_utf8_lossy(binding.contact()).into_owned());
            core::ops::ControlFlow::Continue(())
        });
        found
    }

    fn assert_at_rest(&self) {
        assert_eq!((self.endpoint.transactions(), self.endpoint.next_timeout()), (0, None));
    }
}

fn persist() -> Ask {
    Ask::Persist { aor: (*b"bob").into() }
}

fn refresh() -> Ask {
    Ask::Refresh { aor: (*b"bob").into() }
}

#[test]
fn the_200_leaves_after_the_commit() {
    let mut rig = rig();
    let request = register(1).to("<sip:bob@127.0.0.1>").line(CONTACT).text();
    assert_eq!(rig.waits(&request), persist());
    // A copy of it changes nothing.
    assert!(rig.send(BOB, &request).is_empty());
    assert_eq!(rig.asks.len(), 1);
    rig.now += Duration::from_millis(1_500);
    let reply = rig.answered(Answer::Done);
    assert_eq!((reply.first(), reply.header("X-Before")), (KEPT, Some("1")));
    assert_eq!(reply.header("Contact"), Some("<sip:bob@10.0.0.1>;expires=599"));
    assert_eq!(rig.lines(), ["save 1"]);
    rig.assert_at_rest();
}

/// RFC 3261 §10.3 step 7: a REGISTER that is refused for want of room has bound nothing.
#[test]
fn what_cannot_wait_is_undone() {
    let limits = engine::Limits { suspended_max: 0, ..engine::Limits::default() };
    let text = format!(
        "{LOAD}\nmodparam(\"usrloc\", \"db_mode\", 1)\nmodparam(\"usrloc\", \"db_url\", \"sqlite:\")\nrequest_route {{ save(\"location\"); }}"
    );
    let mut rig = Rig::with_limits(&text, &[], Environment::default(), limits);
    rig.commits = false;
    assert_eq!(rig.status(BOB, &register(1).line(CONTACT).text()), AWAY);
    assert!(rig.bound().is_empty());
    rig.assert_at_rest();
}

#[test]
fn path_and_date_are_in_a_200_that_waited_too() {
    let mut rig = rig_with(1, "modparam(\"registrar\", \"use_path\", 1)");
    let path = "Path: <sip:p1.example;lr>\r\nPath: <sip:p2.example;lr>\r\nSupported: path";
    rig.waits(&register(1).line(CONTACT).line(path).text());
    let reply = rig.answered(Answer::Done);
    assert_eq!(reply.header("Path"), Some("<sip:p1.example;lr>, <sip:p2.example;lr>"));
    assert_eq!(reply.header("Date"), Some("Tue, 14 Nov 2023 22:13:21 GMT"));
}

/// RFC 3261 §10.3 step 7: "all tentative binding updates MUST be removed".
#[test]
fn a_refused_commit_is_undone_and_answered_500() {
    for (answer, status) in [(Answer::Refused, REFUSED), (Answer::Failed, AWAY)] {
        let mut rig = rig();
        rig.waits(&register(1).line(CONTACT).text());
        rig.answered(Answer::Done);
        rig.waits(&register(2).line("Contact: <sip:bob@10.0.0.1>;expires=0").line(OTHER).text());
        assert_eq!(rig.bound(), ["sip:bob@10.0.0.2"]);
        let reply = rig.answered(answer);
        assert_eq!((reply.first(), reply.header("Retry-After")), (status, Some("5")));
        assert_eq!((reply.header("Contact"), rig.bound()), (None, ["sip:bob@10.0.0.1".to_string()].into()));
        assert_eq!(rig.lines(), ["save 1", "save -3"]);
        rig.assert_at_rest();
    }
}

#[test]
fn past_the_deadline_it_is_undone_and_answered_503() {
    let mut rig = rig_with(1, "modparam(\"usrloc\", \"commit_timeout\", 700)");
    rig.waits(&register(1).line(CONTACT).text());
    assert!(rig.pass(Duration::from_millis(690)).is_empty());
    let sent = rig.pass(Duration::from_millis(20));
    assert_eq!((sent.len(), sent[0].first()), (1, AWAY));
    assert!(rig.bound().is_empty());
    // What comes after all finds nobody.
    assert!(rig.answer_first(Answer::Done).is_empty());
    rig.assert_at_rest();
}

#[test]
fn what_changes_nothing_is_not_waited_for() {
    let mut rig = rig();
    assert_eq!(rig.status(BOB, &register(1).text()), KEPT);
    let brief = register(2).line("Contact: <sip:>").text();
    assert_eq!(rig.status(BOB, &brief), "SIP/2.0 400 Invalid Contact");
    assert!(rig.asks.is_empty());
}

/// A copy that comes by another way has another branch: its 200 would promise what is not kept yet.
#[test]
fn a_request_that_repeats_another_waits_with_it() {
    for (line, after) in [(CONTACT, 1), ("Contact: <sip:bob@10.0.0.1>;expires=0", 0)] {
        let mut rig = rig();
        rig.waits(&register(1).line(CONTACT).text());
        rig.answered(Answer::Done);
        rig.waits(&register(2).line(line).text());
        let mut other_way = register(2).line(line);
        other_way.via.push_str("-other");
        assert_eq!(rig.waits(&other_way.text()), persist());
        assert_eq!(rig.answered(Answer::Done).first(), KEPT);
        assert_eq!(rig.answered(Answer::Done).first(), KEPT);
        assert_eq!(rig.bound().len(), after);
        // And when it fails, both are told so, and it is undone once.
        rig.waits(&register(3).line(OTHER).text());
        let mut other_way = register(3).line(OTHER);
        other_way.via.push_str("-other");
        rig.waits(&other_way.text());
        assert_eq!(rig.answered(Answer::Failed).first(), AWAY);
        assert_eq!(rig.answered(Answer::Failed).first(), AWAY);
        assert_eq!(rig.bound().len(), after);
    }
}

#[test]
fn two_phones_of_one_user_wait_apart() {
    let mut rig = rig();
    rig.waits(&register(1).call("one").line(CONTACT).text());
    rig.waits(&register(1).call("two").line(OTHER).text());
    let reply = rig.answered(Answer::Failed);
    assert_eq!((reply.first(), rig.bound()), (AWAY, ["sip:bob@10.0.0.2".to_string()].into()));
    let reply = rig.answered(Answer::Done);
    assert_eq!(reply.header("Contact"), Some("<sip:bob@10.0.0.2>;expires=600"));
    rig.assert_at_rest();
}

#[test]
fn of_a_contact_that_came_twice_nothing_is_left_when_both_fail() {
    let mut rig = rig();
    rig.waits(&register(1).line(CONTACT).text());
    rig.waits(&register(2).line(CONTACT).text());
    assert_eq!(rig.answered(Answer::Refused).first(), REFUSED);
    assert_eq!(rig.bound().len(), 1);
    assert_eq!(rig.answered(Answer::Refused).first(), REFUSED);
    assert!(rig.bound().is_empty());
}

#[test]
fn a_newer_request_that_is_kept_stays_when_an_older_one_is_undone() {
    let mut rig = rig();
    rig.waits(&register(1).line(CONTACT).text());
    rig.waits(&register(2).line("Contact: <sip:bob@10.0.0.1>;expires=900").text());
    assert_eq!(rig.answered(Answer::Failed).first(), AWAY);
    assert_eq!(rig.answered(Answer::Done).header("Contact"), Some("<sip:bob@10.0.0.1>;expires=900"));
}

/// The table has it from the moment that it is applied.
#[test]
fn a_lookup_sees_what_is_not_committed_yet() {
    let mut rig = rig();
    rig.waits(&register(1).line(CONTACT).text());
    assert_eq!(rig.status(ALICE, &ask("OPTIONS", "1")), "SIP/2.0 302 Moved");
    rig.answered(Answer::Failed);
    assert_eq!(rig.status(ALICE, &ask("OPTIONS", "2")), "SIP/2.0 404 Not Found");
}

#[test]
fn a_script_that_answers_itself_gets_its_code_after_the_commit() {
    let route = r#"
request_route {
    save("location", "0x02");
    if ($rc > 0) sl_send_reply("202", "Kept"); else send_reply("504", "Not Kept");
}
"#;
    for (answer, status) in [(Answer::Done, "SIP/2.0 202 Kept"), (Answer::Refused, "SIP/2.0 504 Not Kept")] {
        let mut rig = waiting(&format!(
            "{LOAD}\nmodparam(\"usrloc\", \"db_mode\", 1)\nmodparam(\"usrloc\", \"db_url\", \"sqlite:\")\n{route}"
        ));
        rig.waits(&register(1).line(CONTACT).text());
        assert_eq!(rig.answered(answer).first(), status);
        rig.assert_at_rest();
    }
}

#[test]
fn removal_by_the_script_waits_for_its_commit() {
    for (answer, code) in [(Answer::Done, "unregister 1"), (Answer::Failed, "unregister -2")] {
        let mut rig = rig();
        rig.waits(&register(1).line(CONTACT).text());
        rig.answered(Answer::Done);
        assert_eq!(rig.waits(&ask("MESSAGE", "1")), persist());
        assert!(rig.answer_first(answer).is_empty());
        assert_eq!((rig.lines()[1].as_str(), rig.bound().len()), (code, 0));
        // There is nothing to wait for.
        assert!(rig.send(ALICE, &ask("MESSAGE", "2")).is_empty());
        assert_eq!(rig.lines()[2], "unregister -3");
        assert!(rig.asks.is_empty());
    }
}

#[test]
fn a_route_that_cannot_wait_does_not_apply_what_it_could_not_keep() {
    let mut rig = waiting(&format!(
        r#"{LOAD}
modparam("usrloc", "db_mode", 1)
modparam("usrloc", "db_url", "sqlite:")
request_route {{ t_on_failure("F"); $du = "sip:{CAROL}"; t_relay(); }}
failure_route[F] {{ save("location"); xlog("save $rc\n"); }}
"#
    ));
    let sent = rig.send(BOB, &register(1).line(CONTACT).text());
    let sent = rig.send(CAROL, &respond(&sent[0], "404 Not Found", "c"));
    assert_eq!(sent[0].first(), "SIP/2.0 404 Not Found");
    assert!(rig.asks.is_empty() && rig.bound().is_empty());
    assert!(rig.lines()[0].contains("cannot wait") && rig.lines()[1] == "save -1", "{:?}", rig.lines());
}

// ---- db_mode 3 -----------------------------------------------------------------------------------------------------

#[test]
fn where_others_write_the_database_is_read_before_a_register_is_applied() {
    let mut rig = rig_with(3, "");
    assert_eq!(rig.waits(&register(1).line(CONTACT).text()), refresh());
    assert!(rig.bound().is_empty());
    rig.question = None;
    assert!(rig.answer_first(Answer::Done).is_empty());
    assert_eq!((rig.question.clone(), rig.bound().len()), (Some(persist()), 1));
    assert_eq!(rig.answered(Answer::Done).header("Contact"), Some("<sip:bob@10.0.0.1>;expires=600"));
    // A question needs no commit.
    assert_eq!(rig.waits(&register(2).text()), refresh());
    assert_eq!(rig.answered(Answer::Done).first(), KEPT);
    rig.assert_at_rest();
}

/// RFC 3261 §10.3: REGISTERs "MUST be processed by a registrar in the order that they are received"; one that was read for
/// too late fails.
#[test]
fn a_register_that_was_overtaken_while_it_waited_is_refused() {
    let star = || {
        Request::new("REGISTER", "sip:127.0.0.1", BOB)
            .call("star")
            .line("Contact: *")
            .line("Expires: 0")
            .text()
    };
    let other = || Request::new("REGISTER", "sip:127.0.0.1", BOB).call("other").line(OTHER).text();
    for (first, second, bound) in [
        (register(1).line(OTHER).text(), star(), &[][..]),
        (star(), other(), &["sip:bob@10.0.0.2"]),
        (register(1).line(OTHER).text(), other(), &["sip:bob@10.0.0.2"]),
    ] {
        let mut rig = rig_with(3, "");
        rig.waits(&first);
        rig.now += Duration::from_millis(5);
        rig.waits(&second);
        rig.now += Duration::from_millis(5);
        rig.asks.swap(0, 1);
        // The one that came later is read for, applied and committed.
        assert!(rig.answer_first(Answer::Done).is_empty());
        rig.asks.swap(0, 1);
        assert_eq!(rig.answered(Answer::Done).first(), KEPT);
        let late = rig.answered(Answer::Done);
        assert_eq!(late.first(), "SIP/2.0 500 Overtaken By A Later Request");
        assert!(late.header("Retry-After").is_some());
        assert_eq!(rig.bound(), bound);
        rig.assert_at_rest();
    }
}

#[test]
fn a_register_that_cannot_read_first_is_not_applied() {
    for (answer, status) in [(Answer::Failed, AWAY), (Answer::Refused, REFUSED)] {
        let mut rig = rig_with(3, "");
        rig.waits(&register(1).line(CONTACT).text());
        assert_eq!(rig.answered(answer).first(), status);
        assert!(rig.bound().is_empty());
    }
}

#[test]
fn a_lookup_reads_first_and_takes_what_it_knew_where_the_database_is_away() {
    let mut rig = rig_with(3, "");
    rig.waits(&register(1).line(CONTACT).text());
    rig.answer_first(Answer::Done);
    rig.answered(Answer::Done);
    for answer in [Answer::Done, Answer::Failed] {
        assert_eq!(rig.waits(&ask("OPTIONS", "1")), refresh());
        assert_eq!(rig.answered(answer).first(), "SIP/2.0 302 Moved");
    }
    assert_eq!(rig.waits(&ask("INFO", "2")), refresh());
    rig.answer_first(Answer::Done);
    // That there is nobody is not known without the database.
    assert_eq!(rig.waits(&ask("MESSAGE", "3")), refresh());
    rig.question = None;
    rig.answer_first(Answer::Done);
    assert_eq!(rig.question, Some(persist()));
    rig.answer_first(Answer::Done);
    rig.waits(&ask("OPTIONS", "4"));
    rig.answered(Answer::Failed);
    rig.waits(&ask("OPTIONS", "5"));
    rig.answered(Answer::Done);
    let lines = rig.lines();
    let expected =
        ["save 1", "lookup 1", "lookup 1", "registered 1", "unregister 1", "lookup -3", "lookup -1"];
    assert_eq!(lines, expected);
}

#[test]
fn all_targets_of_lookup_branches_are_read_first() {
    let mut rig = waiting(&format!(
        r#"{LOAD}
modparam("usrloc", "db_mode", 3)
modparam("usrloc", "db_url", "sqlite:")
request_route {{
    if (is_method("REGISTER")) {{ save("location"); exit; }}
    append_branch("sip:carol@127.0.0.1"); append_branch("sip:bob@127.0.0.1");
    lookup_branches("location"); xlog("$rc $ru\n");
}}
"#
    ));
    rig.waits(&register(1).line(CONTACT).text());
    rig.answer_first(Answer::Done);
    rig.answered(Answer::Done);
    assert_eq!(rig.waits(&ask("OPTIONS", "1")), Ask::Refresh { aor: (*b"carol").into() });
    rig.question = None;
    rig.answer_first(Answer::Done);
    assert_eq!(rig.question, Some(refresh()));
    rig.question = None;
    assert!(rig.answer_first(Answer::Done).is_empty());
    assert_eq!((rig.question.clone(), rig.lines()), (None, ["1 sip:bob@10.0.0.1".to_string()].into()));
}

/// A failure route takes what was read last: a call that goes to the next phone does not wait.
#[test]
fn a_route_that_cannot_wait_looks_up_what_was_read_last() {
    let mut rig = waiting(&format!(
        r#"{LOAD}
modparam("usrloc", "db_mode", 3)
modparam("usrloc", "db_url", "sqlite:")
request_route {{
    if (is_method("REGISTER")) {{ save("location"); exit; }}
    t_on_failure("F"); $du = "sip:{CAROL}"; t_relay();
}}
failure_route[F] {{ lookup("location"); xlog("lookup $rc\n"); }}
"#
    ));
    rig.waits(&register(1).line(CONTACT).text());
    rig.answer_first(Answer::Done);
    rig.answered(Answer::Done);
    let sent = rig.send(ALICE, &ask("OPTIONS", "1"));
    rig.send(CAROL, &respond(&sent[0], "404 Not Found", "c"));
    assert_eq!(rig.lines(), ["lookup 1"]);
    assert!(rig.asks.is_empty());
}

/// RFC 3261 §17: an ACK has no transaction, so that there is nothing in which it could wait.
#[test]
fn an_ack_takes_what_was_read_last() {
    let mut rig = rig_with(3, "");
    rig.waits(&register(1).line(CONTACT).text());
    rig.answer_first(Answer::Done);
    rig.answered(Answer::Done);
    assert!(rig.send(ALICE, &ask("ACK", "1")).is_empty());
    assert_eq!(rig.lines(), ["save 1", "lookup 1"]);
    assert!(rig.asks.is_empty());
}

// ---- intervals that differ -----------------------------------------------------------------------------------------

#[test]
fn intervals_are_spread_below_what_is_asked_for_and_about_the_default() {
    let range = "modparam(\"registrar\", \"expires_range\", 30)\nmodparam(\"registrar\", \"default_expires_range\", 50)\nmodparam(\"registrar\", \"default_expires\", 200)";
    let mut rig = rig_with(0, range);
    let expires = |reply: &Sent| {
        let text = reply.header("Contact").and_then(|contact| contact.rsplit_once('='));
        text.map_or(0, |(_, expires)| expires.parse::<u32>().unwrap_or(0))
    };
    let (mut asked, mut default) = (Vec::new(), Vec::new());
    for cseq in 1..200 {
        let reply = rig.one(BOB, &register(cseq).line(CONTACT).text());
        // A copy of it gets the same (RFC 3261 §8.2.7).
        let mut copy = register(cseq).line(CONTACT);
        copy.via.push_str("-copy");
        assert_eq!(rig.one(BOB, &copy.text()).header("Contact"), reply.header("Contact"));
        asked.push(expires(&reply));
        let other = Request::new("REGISTER", "sip:127.0.0.1", BOB).to("<sip:carol@127.0.0.1>").cseq(cseq);
        default.push(expires(&rig.one(BOB, &other.line("Contact: <sip:c@10.0.0.3>").text())));
    }
    let bounds = |all: &[u32]| (*all.iter().min().unwrap(), *all.iter().max().unwrap());
    let ((low, high), (shortest, longest)) = (bounds(&asked), bounds(&default));
    assert!((420..430).contains(&low) && (590..=600).contains(&high), "{low} to {high}");
    assert!((100..105).contains(&shortest) && (295..=300).contains(&longest), "{shortest} to {longest}");
    // Nobody is refused or shortened below the minimum; zero stays zero.
    let brief = register(500).line("Contact: <sip:bob@10.0.0.1>;expires=61").text();
    assert!((60..=61).contains(&expires(&rig.one(BOB, &brief))));
    let gone = register(501).line("Contact: <sip:bob@10.0.0.1>;expires=0").text();
    assert_eq!(rig.one(BOB, &gone).header("Contact"), None);
}

// ---- parameters ----------------------------------------------------------------------------------------------------

fn load(parameters: &str) -> String {
    let lines = parameters.lines().map(|line| format!("modparam(\"usrloc\", {line})\n"));
    format!(
        "loadmodule \"usrloc.so\"\nloadmodule \"registrar.so\"\nloadmodule \"pv.so\"\n{}",
        lines.collect::<String>()
    )
}

#[test]
fn persistence_is_off_unless_it_is_asked_for() {
    let settings = settings::settings(&load("\"db_url\", \"mysql://kamailio:secret@localhost/kamailio\""));
    assert_eq!((settings.persistence.mode, settings.persistence.database), (DbMode::Memory, None));
    assert!(settings.databases.is_empty() && settings.tables_needed().is_empty());
}

#[test]
fn modes_intervals_tables_and_columns_are_read() {
    let text = load(
        "\"db_mode\", 2\n\"db_url\", \"postgres://u:secret@h/d\"\n\"flush_interval\", 5000\n\"timer_interval\", 3\n\"commit_timeout\", 100\n\"preload\", \"attic\"\n\"preload\", \"more\"\n\"user_column\", \"name\"\n\"q_column\", \"q\"",
    );
    let text = format!(
        "{text}\nroute[R] {{ lookup(\"aliases\"); save(\"aliases\"); unregister(\"old\", \"$ru\"); }}"
    );
    let settings = settings::settings(&text);
    let persistence = &settings.persistence;
    assert_eq!((persistence.mode, persistence.database), (DbMode::WriteBack, Some(0)));
    assert_eq!(settings.databases[0].0, "postgres://u:secret@h/d");
    assert!(!format!("{settings:?}").contains("secret"));
    assert_eq!(persistence.flush_interval, Duration::from_secs(3));
    assert_eq!(persistence.commit_timeout, Duration::from_millis(100));
    assert_eq!(persistence.tables, ["location", "aliases", "old", "attic", "more"]);
    assert_eq!(persistence.columns, [("username", "name".to_string())]);
    let needed = settings.tables_needed();
    assert!(needed.iter().all(|table| table.kind == "location" && table.columns.len() == 1));
    assert_eq!(needed.len(), 5);
}

#[test]
fn a_mode_without_a_database_and_names_that_are_none_are_errors() {
    for (parameters, message) in [
        ("\"db_mode\", 1", "no database"),
        ("\"db_mode\", 2\n\"db_url\", \"\"", "no database"),
        ("\"db_mode\", 4\n\"db_url\", \"sqlite:\"", "4"),
        ("\"db_mode\", 1\n\"db_url\", \"sqlite:\"\n\"preload\", \"a b\"", "table"),
        ("\"db_mode\", 1\n\"db_url\", \"sqlite:\"\n\"path_column\", \"path; drop\"", "column"),
        ("\"commit_timeout\", 1", "1"),
    ] {
        let found = settings::errors(&load(parameters));
        assert!(found.len() == 1 && found[0].1.contains(message), "{parameters}: {found:?}");
    }
}

/// What stands between table and user must not come from a client.
#[test]
fn a_user_with_a_zero_byte_has_no_contacts() {
    let mut rig = Rig::route(
        r#"if (is_method("REGISTER")) { save("location"); exit; }
        lookup("location"); xlog("$rc\n");"#,
    );
    let request = register(1).to("<sip:aliases%00bob@127.0.0.1>").line(CONTACT);
    assert_eq!(rig.status(BOB, &request.text()), "SIP/2.0 400 Invalid Address of Record");
    let text = Request::new("OPTIONS", "sip:aliases%00bob@127.0.0.1", ALICE).text();
    assert!(rig.send(ALICE, &text).is_empty());
    assert_eq!(rig.lines(), ["-3"]);
}
