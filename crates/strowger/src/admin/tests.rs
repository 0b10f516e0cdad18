//! The commands over SQLite in a state directory of their own, without a server.

use std::time::Duration;

use serde_json::Value;
use store::{Batch, Contact, Database, Draft, Records, Url};

use super::users::tests::{added, changed};
use super::{AdminError, contacts, db, users};
use crate::cli::{Cli, Command};
use crate::clock::Time;
use crate::state::tests::Scratch;
use clap::Parser as _;

/// Runs a command line.
fn run(scratch: &Scratch, arguments: &[&str]) -> Result<String, String> {
    let directory = scratch.0.display().to_string();
    let all = std::iter::once("strowger").chain(arguments.iter().copied());
    let cli = Cli::try_parse_from(all.chain(["--state-dir", &directory])).map_err(|e| e.to_string())?;
    let done = match cli.command {
        Some(Command::User(command)) => users::run(&command),
        Some(Command::Contacts(command)) => contacts::run(&command),
        Some(Command::Db(command)) => db::run(&command),
        _ => panic!("another command"),
    };
    done.map_err(|error| line(&error))
}

fn line(error: &AdminError) -> String {
    match error {
        AdminError::Line(line) => line.clone(),
        AdminError::Configuration(error) => format!("{error:?}"),
    }
}

fn add(scratch: &Scratch, user: &str) -> Result<String, String> {
    let directory = scratch.0.display().to_string();
    added(&[user, "--state-dir", &directory], "secret").map_err(|error| line(&error))
}

#[test]
fn users_are_added_changed_listed_and_removed() {
    let scratch = Scratch::new();
    let said = run(&scratch, &["user", "list"]).unwrap_err();
    assert!(said.contains("strowger user add"), "no silent empty list: {said}");
    let said = add(&scratch, "alice@example.com").unwrap();
    assert!(said.contains("alice@example.com added") && said.contains("no server runs"), "{said}");
    add(&scratch, "bob").unwrap();
    let said = add(&scratch, "alice@example.com").unwrap_err();
    assert!(said.contains("already") && said.contains("passwd"), "{said}");
    let listed: Value = serde_json::from_str(&run(&scratch, &["user", "list", "--json"]).unwrap()).unwrap();
    let names: Vec<_> = listed.as_array().unwrap().iter().map(|user| &user["username"]).collect();
    assert_eq!(names.len(), 2);
    assert_eq!(listed[0]["secrets"], serde_json::json!(["MD5", "SHA-256", "SHA-512-256"]));
    let shown = run(&scratch, &["user", "list", "--domain", "example.com"]).unwrap();
    assert!(shown.contains("alice") && !shown.contains("bob") && shown.contains("1 user"), "{shown}");
    let directory = scratch.0.display().to_string();
    let said = changed(&["alice@example.com", "--state-dir", &directory], "other").unwrap();
    assert!(said.contains("new password"), "{said}");
    assert!(changed(&["carol", "--state-dir", &directory], "x").is_err());
    assert!(run(&scratch, &["user", "del", "alice@example.com"]).unwrap().contains("removed"));
    assert!(run(&scratch, &["user", "del", "alice@example.com"]).unwrap_err().contains("user list"));
}

#[test]
fn the_password_is_nowhere_unless_it_shall_be() {
    let scratch = Scratch::new();
    let directory = scratch.0.display().to_string();
    added(&["alice", "--state-dir", &directory], "zanzibar-17").unwrap();
    let held = |name: &str| {
        let all = std::fs::read(scratch.0.join(name)).unwrap_or_default();
        all.windows(11).any(|window| window == b"zanzibar-17")
    };
    assert!(!held("strowger.sqlite") && !held("strowger.sqlite-wal"));
    added(&["bob", "--clear", "--state-dir", &directory], "zanzibar-17").unwrap();
    assert!(held("strowger.sqlite") || held("strowger.sqlite-wal"));
}

/// A database that holds a binding of alice.
fn stored() -> Scratch {
    let scratch = Scratch::new();
    let url = Url::parse("sqlite:", &scratch.0).unwrap();
    let database = Database::open(&url, Duration::from_secs(5)).unwrap();
    let time = Time::start();
    let alice = |contact| Contact {
        username: b"alice",
        contact,
        call_id: b"call",
        cseq: 7,
        user_agent: b"Phone \x1b[31m",
        expires_unix_micros: time.unix_micros(time.now() + Duration::from_secs(600)),
        modified_unix_micros: time.unix_micros(time.now()),
        ..Contact::default()
    };
    let mut batch = Batch::default();
    batch.save("location", &alice(b"sip:alice@192.0.2.1:5060"));
    let mut bindings = database.bindings(&[]).unwrap();
    bindings.write(&batch).unwrap();
    // The other one is where a server that was killed has left it.
    let (mut journal, encoder) = bindings.journal(&["location".to_owned()]).unwrap().unwrap();
    let (mut records, mut draft) = (Records::default(), Draft::default());
    encoder.save(0, &alice(b"sip:alice@192.0.2.2:5060"), &mut draft).unwrap();
    records.push(0, &mut draft);
    bindings.commit(&mut journal, &mut records, &Batch::default(), false).unwrap();
    scratch
}

#[test]
fn contacts_come_from_the_database_where_no_server_runs() {
    let scratch = stored();
    let shown = run(&scratch, &["contacts", "list"]).unwrap();
    assert!(shown.contains("sip:alice@192.0.2.1:5060") && shown.contains("2 contacts"), "{shown}");
    assert!(shown.contains("no server runs") && !shown.contains('\u{1b}'), "{shown}");
    let listed: Value =
        serde_json::from_str(&run(&scratch, &["contacts", "list", "--json"]).unwrap()).unwrap();
    assert_eq!((listed.as_array().map(Vec::len), &listed[0]["cseq"]), (Some(2), &Value::from(7)));
    let shown = run(&scratch, &["contacts", "show", "alice"]).unwrap();
    assert!(shown.contains("2 contacts of alice") && shown.contains("CSeq"), "{shown}");
    let said = run(&scratch, &["contacts", "rm", "alice", "sip:alice@192.0.2.1:5060"]).unwrap();
    assert!(said.contains("1 contact of alice removed"), "{said}");
    run(&scratch, &["contacts", "rm", "alice"]).unwrap();
    assert!(run(&scratch, &["contacts", "rm", "alice"]).unwrap_err().contains("no contact"));
}

#[test]
fn tables_are_made_and_checked() {
    let scratch = Scratch::new();
    assert!(run(&scratch, &["db", "check"]).unwrap_err().contains("there is no database"));
    run(&scratch, &["db", "create"]).unwrap();
    let said = run(&scratch, &["db", "check"]).unwrap();
    assert!(said.contains("subscriber") && said.contains("location"), "{said}");
    assert!(run(&scratch, &["db", "create"]).unwrap().contains("all tables are there"));
}

#[test]
fn what_is_no_database_is_named_and_left_alone() {
    let scratch = Scratch::new();
    let file = scratch.0.join("strowger.sqlite");
    std::fs::write(&file, "this is not a database, but it is somebody's").unwrap();
    let said = add(&scratch, "alice").unwrap_err();
    assert!(said.contains("strowger.sqlite"), "{said}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "this is not a database, but it is somebody's");
    let said = run(&scratch, &["user", "list", "--db", "oracle://x"]).unwrap_err();
    assert!(said.contains("sqlite:"), "it says what to write: {said}");
}
