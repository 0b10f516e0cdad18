//! PostgreSQL: what every database must do, and what may happen to a server.
//!
//! Each test starts a server of its own; `cargo test -p store -- --ignored` runs them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod common;

use std::time::{Duration, Instant};

use common::databases::{Kind, Server};
use common::*;
use store::{Batch, Contact, Database, Records, StoreError, Url, What};

fn open(url: &str, patience: Duration) -> Database {
    Database::open(&Url::parse(url, std::path::Path::new("/")).unwrap(), patience).unwrap()
}

/// A server with our tables.
fn ours() -> (Server, Database) {
    let server = Server::start(Kind::Postgres);
    let database = open(&server.url(), PATIENCE);
    assert!(database.create().unwrap().contains(&"location".to_string()));
    (server, database)
}

fn clear(server: &Server) {
    server.execute("TRUNCATE location");
    server.execute("TRUNCATE subscriber");
}

#[test]
#[ignore = "needs PostgreSQL: cargo test -p store -- --ignored"]
fn does_what_every_database_does() {
    let (server, database) = ours();
    bindings_come_back(&database);
    clear(&server);
    rows_are_replaced_and_removed(&database);
    clear(&server);
    a_journal_keeps_what_was_committed(&database, 40);
    clear(&server);
    a_journal_takes_what_fits(&database);
    clear(&server);
    expired_rows_are_removed(&database);
    clear(&server);
    a_bad_row_does_not_poison_the_batch(&database, false);
    users_are_managed(&database, true);
    clear(&server);
    questions_are_answered(&database);
    too_many_questions_are_turned_away(&database);
    tables_are_checked_and_made(&database, &mut |sql| drop(server.execute(sql)));
}

#[test]
#[ignore = "needs PostgreSQL: cargo test -p store -- --ignored"]
fn kamailios_own_tables_work_as_they_are() {
    let server = Server::start(Kind::Postgres);
    server.make_kamailio_tables();
    let database = open(&server.socket_url(), PATIENCE);
    assert_eq!(database.create().unwrap(), ["strowger_journal"]);
    database.check(&[needed("location", "location"), needed("subscriber", "subscriber")]).unwrap();
    bindings_come_back(&database);
    clear(&server);
    a_bad_row_does_not_poison_the_batch(&database, false);
    users_are_managed(&database, false);
    clear(&server);
    foreign_rows_are_taken_over(&database, &mut |ruid, username, contact, age| {
        server.execute(&format!(
            "SET TIME ZONE '{}'; INSERT INTO location (ruid, username, contact, expires, last_modified) VALUES \
             ('{ruid}', '{username}', '{contact}', localtimestamp(0) + interval '600 s', \
             localtimestamp(0) - interval '{age} s')",
            local_zone()
        ));
    });
}

/// The offset of the local time now, as PostgreSQL writes zones.
fn local_zone() -> String {
    let output = std::process::Command::new("date").arg("+%:z").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    // POSIX counts the other way round.
    let (sign, rest) = text.trim().split_at(1);
    format!("UTC{}{rest}", if sign == "+" { "-" } else { "+" })
}

#[test]
#[ignore = "needs PostgreSQL: cargo test -p store -- --ignored"]
fn rows_that_only_the_database_refuses_are_found() {
    let (server, database) = ours();
    server.execute("ALTER TABLE location ADD CHECK (username <> 'bad')");
    let mut bindings = database.bindings(&[]).unwrap();
    let mut batch = Batch::default();
    let names: Vec<String> = (0..1_000).map(|number| format!("sip:{number}@h")).collect();
    for (number, name) in names.iter().enumerate() {
        let user = if number % 333 == 7 { "bad" } else { "good" };
        batch.save("location", &Contact { contact: name.as_bytes(), ..bare(user, "", now()) });
    }
    let written = bindings.write(&batch).unwrap();
    assert_eq!((written.rows, written.left_out.len()), (997, 3));
    assert!(written.left_out.iter().all(|left| *left.username == *b"bad"), "{written:?}");
    assert_eq!(load_all(&mut bindings, "location", now()).len(), 997);
    // Rows of what is in a journal are left behind, and the rest is not.
    let tables = ["location".to_string()];
    let (mut journal, encoder) = bindings.journal(&tables).unwrap().unwrap();
    let rows = [bare("bad", "sip:b", now()), bare("good", "sip:g", now())];
    let mut batch = Batch::default();
    let mut records = Records::default();
    for row in &rows {
        records.push(0, &mut record(&encoder, What::Save, row).unwrap());
        batch.save("location", row);
    }
    journal.end_generation();
    let written = bindings.commit(&mut journal, &mut records, &batch, false).unwrap();
    assert_eq!((written.rows, written.left_out.len(), written.left_behind.len()), (1, 0, 1));
    journal.end_generation();
    bindings.commit(&mut journal, &mut Records::default(), &Batch::default(), true).unwrap();
    assert_eq!(bindings.recover(&tables).unwrap(), 0);
    assert_eq!(load_all(&mut bindings, "location", now()).len(), 998);
}

#[test]
#[ignore = "needs PostgreSQL: cargo test -p store -- --ignored"]
fn a_server_that_is_killed_is_found_again_and_lost_nothing() {
    let (mut server, database) = ours();
    survives_a_kill(&mut server, &database);
}

#[test]
#[ignore = "needs PostgreSQL: cargo test -p store -- --ignored"]
fn a_server_that_is_paused_is_away_within_the_patience() {
    let (server, _) = ours();
    survives_a_pause(&server, &open(&server.url(), Duration::from_secs(1)));
}

#[test]
#[ignore = "needs PostgreSQL: cargo test -p store -- --ignored"]
fn nobody_there_is_an_error_without_the_password() {
    let server = Server::start(Kind::Postgres);
    let none = server.url().replace("/kamailio", "/no_such");
    let url = Url::parse(&none, std::path::Path::new("/")).unwrap();
    let error = Database::open(&url, PATIENCE).unwrap_err();
    assert!(matches!(&error, StoreError::Refused(text) if text.contains("no_such")), "{error}");
    let url = Url::parse(&server.url(), std::path::Path::new("/")).unwrap();
    drop(server);
    let begun = Instant::now();
    let error = Database::open(&url, PATIENCE).unwrap_err();
    assert!(matches!(&error, StoreError::Away(text) if !text.contains("geheim")), "{error}");
    assert!(begun.elapsed() < PATIENCE);
}

#[test]
#[ignore = "needs PostgreSQL: cargo test -p store -- --ignored"]
fn a_statement_that_was_given_up_is_not_done_later() {
    let (server, _) = ours();
    let database = open(&server.url(), Duration::from_secs(1));
    what_was_given_up_is_not_done_later(&server, &database, "pg_sleep");
}

#[test]
#[ignore = "needs PostgreSQL: cargo test -p store -- --ignored"]
fn a_table_has_one_writer() {
    let (server, database) = ours();
    only_one_writes(&database);
    clear(&server);
    let database = open(&server.url(), Duration::from_secs(1));
    who_died_writes_nothing_more(&server, &database, "pg_sleep");
}
