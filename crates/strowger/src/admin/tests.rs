//! The commands over SQLite in a state directory of their own, without a server.

use std::time::Duration;

use serde_json::Value;
use store::{Batch, Contact, Database, Draft, Records, Url};

use super::users::tests::{added, changed};
use super::{AdminError, contacts, db, reload, users};
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
        Some(Command::Reload(command)) => reload::run(&command),
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

/// A configuration with users in tables of names of its own.
fn configured(scratch: &Scratch, settings: &str, calls: &str) -> String {
    let file = scratch.0.join("own.cfg");
    let modules = ["sl", "pv", "usrloc", "registrar", "auth", "auth_db"]
        .map(|name| format!("loadmodule \"{name}.so\"\n"));
    let text = format!("{}{settings}\nrequest_route {{ {calls} }}\n", modules.concat());
    std::fs::write(&file, text).unwrap();
    file.display().to_string()
}

const PEOPLE: &str = "www_authorize(\"$td\", \"people\");";

/// `strowger user add` or `passwd` with a configuration.
fn with(
    scratch: &Scratch,
    file: &str,
    command: fn(&[&str], &str) -> Result<String, AdminError>,
    rest: &[&str],
) -> Result<String, String> {
    let directory = scratch.0.display().to_string();
    let all = [rest, &["-f", file, "--state-dir", &directory]].concat();
    command(&all, "secret").map_err(|error| line(&error))
}

/// All rows of these columns.
fn rows(scratch: &Scratch, table: &str, columns: &[&str]) -> Vec<Vec<Option<String>>> {
    let url = Url::parse("sqlite:", &scratch.0).unwrap();
    Database::open(&url, Duration::from_secs(5)).unwrap().rows(table, columns, 10).unwrap()
}

#[test]
fn users_are_in_the_table_and_the_columns_of_the_configuration() {
    let scratch = Scratch::new();
    let columns = "modparam(\"auth_db\", \"user_column\", \"login\")\nmodparam(\"auth_db\", \"password_column\", \"h\")";
    let file = configured(&scratch, columns, PEOPLE);
    let alice = "alice@example.com";
    let said = with(&scratch, &file, added, &[alice]).unwrap();
    assert!(said.contains("table people"), "{said}");
    let stored = || rows(&scratch, "people", &["login", "h"]);
    let before = stored();
    assert_eq!(before[0][0].as_deref(), Some("alice"));
    assert!(rows(&scratch, "subscriber", &["username"]).is_empty());
    with(&scratch, &file, added, &[alice]).unwrap_err();
    let directory = scratch.0.display().to_string();
    changed(&[alice, "-f", &file, "--state-dir", &directory], "another").unwrap();
    assert!(stored().len() == 1 && stored() != before);
    assert!(run(&scratch, &["user", "list", "-f", &file]).unwrap().contains("1 user"));
    assert!(run(&scratch, &["user", "list"]).unwrap().contains("no users"), "of the built-in configuration");
    run(&scratch, &["user", "del", alice, "-f", &file]).unwrap();
    assert!(stored().is_empty());
}

#[test]
fn of_several_tables_of_users_one_is_asked_for() {
    let scratch = Scratch::new();
    let file = configured(&scratch, "", &format!("{PEOPLE} proxy_authorize(\"$fd\", \"staff\");"));
    let alice = "alice@example.com";
    for command in [added, changed] {
        let said = with(&scratch, &file, command, &[alice]).unwrap_err();
        assert!(said.contains("--table people or --table staff"), "{said}");
    }
    for rest in [["user", "list", "-f", &file].as_slice(), &["user", "del", alice, "-f", &file]] {
        let said = run(&scratch, rest).unwrap_err();
        assert!(said.contains("--table people or --table staff"), "{said}");
    }
    with(&scratch, &file, added, &[alice, "--table", "staff"]).unwrap();
    assert_eq!(rows(&scratch, "staff", &["username"]).len(), 1);
    let file = configured(&scratch, "", "$var(t) = \"staff\"; www_authorize(\"$td\", \"$var(t)\");");
    let said = with(&scratch, &file, added, &["bob@example.com"]).unwrap_err();
    assert!(said.contains("www_authorize") && said.contains("--table TABLE"), "{said}");
    with(&scratch, &file, added, &["bob@example.com", "--table", "staff"]).unwrap();
    assert_eq!(rows(&scratch, "staff", &["username"]).len(), 2);
}

#[test]
fn a_server_that_reads_passwords_is_given_them() {
    let scratch = Scratch::new();
    let calculated = "modparam(\"auth_db\", \"calculate_ha1\", 1)";
    for (settings, column) in [
        (calculated.to_owned(), "ha1"),
        (format!("{calculated}\nmodparam(\"auth_db\", \"password_column\", \"password\")"), "password"),
    ] {
        let file = configured(&scratch, &settings, PEOPLE);
        let user = format!("{column}@example.com");
        let said = with(&scratch, &file, added, &[&user]).unwrap_err();
        assert!(said.contains("calculate_ha1") && said.contains("--clear"), "{said}");
        with(&scratch, &file, added, &[&user, "--clear"]).unwrap();
        let stored = || rows(&scratch, "people", &["username", column]);
        let expected = vec![Some(column.to_owned()), Some("secret".to_owned())];
        assert!(stored().contains(&expected), "{:?}", stored());
        let said = with(&scratch, &file, changed, &[&user]).unwrap_err();
        assert!(said.contains("--clear"), "{said}");
        assert!(stored().contains(&expected), "it was not emptied: {:?}", stored());
        with(&scratch, &file, changed, &[&user, "--clear"]).unwrap();
        let listed = run(&scratch, &["user", "list", "-f", &file, "--json"]).unwrap();
        assert!(listed.contains("clear"), "{listed}");
    }
}

#[test]
fn a_password_is_not_stored_where_hashes_are() {
    let scratch = Scratch::new();
    let file = configured(&scratch, "modparam(\"auth_db\", \"password_column\", \"password\")", PEOPLE);
    let said = with(&scratch, &file, added, &["alice@example.com", "--clear"]).unwrap_err();
    assert!(said.contains("password_column"), "{said}");
    with(&scratch, &file, added, &["alice@example.com"]).unwrap();
    let stored = rows(&scratch, "people", &["password"]);
    assert_eq!(stored[0][0].as_ref().map(String::len), Some(32), "the hash: {stored:?}");
}

#[test]
fn a_name_that_differs_in_case_only_is_refused() {
    let scratch = Scratch::new();
    add(&scratch, "bob@example.com").unwrap();
    let said = add(&scratch, "Bob@example.com").unwrap_err();
    assert!(said.contains("bob@example.com") && said.contains("case_sensitive"), "{said}");
    let said = add(&scratch, "bob@example.com").unwrap_err();
    assert!(said.contains("already") && said.contains("passwd"), "{said}");
    add(&scratch, "Bob@example.org").unwrap();
    add(&scratch, "bobby@example.com").unwrap();
    let file = configured(
        &scratch,
        "modparam(\"registrar\", \"case_sensitive\", 1)",
        "auth_check(\"$fd\", \"subscriber\", \"0\");",
    );
    with(&scratch, &file, added, &["Bob@example.com"]).unwrap();
    // Who was there before this was refused can be given a password, and be removed.
    let directory = scratch.0.display().to_string();
    changed(&["Bob@example.com", "--state-dir", &directory], "x").unwrap();
    let said = add(&scratch, "bob@example.com").unwrap_err();
    assert!(said.contains("passwd"), "the same name comes first: {said}");
    run(&scratch, &["user", "del", "Bob@example.com"]).unwrap();
}

#[test]
fn a_name_that_would_be_read_as_another_is_refused() {
    let scratch = Scratch::new();
    for odd in ["a%6Cice", "al\"ice", "al\\ice"] {
        let said = add(&scratch, &format!("{odd}@example.com")).unwrap_err();
        assert!(said.contains(odd) && said.contains("choose one without"), "{said}");
    }
    assert!(add(&scratch, "alice@exam%70le.com").is_err());
    assert!(!scratch.0.join("strowger.sqlite").exists(), "nothing was made");
}

#[test]
fn a_list_that_ends_before_its_time_says_so() {
    let scratch = Scratch::new();
    for user in ["a", "b", "c"] {
        add(&scratch, user).unwrap();
    }
    let list = |limit: &str| run(&scratch, &["user", "list", "--limit", limit]).unwrap();
    assert!(list("2").ends_with("2 users; there are more: --limit 0 lists all\n"), "{}", list("2"));
    for all in ["3", "0"] {
        assert!(list(all).ends_with("3 users\n"), "{}", list(all));
    }
    let listed = run(&scratch, &["user", "list", "--limit", "2", "--json"]).unwrap();
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed.as_array().map(Vec::len), Some(2));
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
fn a_reload_without_a_server_says_what_to_do() {
    let scratch = Scratch::new();
    let said = run(&scratch, &["reload"]).unwrap_err();
    assert!(said.contains("no server runs") && said.contains("--state-dir"), "{said}");
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
