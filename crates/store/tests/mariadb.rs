//! MariaDB: what every database must do, and what may happen to a server.
//!
//! Each test starts a server of its own; `cargo test -p store -- --ignored` runs them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod common;

use std::time::Duration;

use common::databases::{Kind, Server};
use common::*;
use store::{Batch, Contact, Database, StoreError, Url};

fn open(url: &str, patience: Duration) -> Database {
    Database::open(&Url::parse(url, std::path::Path::new("/")).unwrap(), patience).unwrap()
}

/// A server with our tables.
fn ours() -> (Server, Database) {
    let server = Server::start(Kind::MariaDb);
    let database = open(&server.url(), PATIENCE);
    assert!(database.create().unwrap().contains(&"location".to_string()));
    (server, database)
}

fn clear(server: &Server) {
    server.execute("TRUNCATE location");
    server.execute("TRUNCATE subscriber");
}

#[test]
#[ignore = "needs MariaDB: cargo test -p store -- --ignored"]
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
#[ignore = "needs MariaDB: cargo test -p store -- --ignored"]
fn kamailios_own_tables_work_as_they_are() {
    let server = Server::start(Kind::MariaDb);
    server.make_kamailio_tables();
    let database = open(&server.socket_url(), PATIENCE);
    assert_eq!(database.create().unwrap(), ["strowger_journal"]);
    database.check(&[needed("location", "location"), needed("subscriber", "subscriber")]).unwrap();
    let now = now();
    let mut bindings = database.bindings(&[]).unwrap();
    let row = Contact { cseq: 5, ..full(now) };
    save(&mut bindings, &[row]);
    let all = load_all(&mut bindings, "location", now);
    // The column keeps full seconds.
    assert_eq!(all[0].numbers[0], row.expires_unix_micros / 1_000_000 * 1_000_000);
    assert_eq!((&all[0].texts, all[0].q), (&written(&row).texts, 700));
    clear(&server);
    a_bad_row_does_not_poison_the_batch(&database, false);
    clear(&server);
    foreign_rows_are_taken_over(&database, &mut |ruid, username, contact, age| {
        server.execute(&format!(
            "INSERT INTO location (ruid, username, contact, expires, last_modified) VALUES \
             ('{ruid}', '{username}', '{contact}', now() + interval 600 second, now() - interval {age} second)"
        ));
    });
}

#[test]
#[ignore = "needs MariaDB: cargo test -p store -- --ignored"]
fn rows_that_only_the_database_refuses_are_found() {
    let (server, database) = ours();
    server.execute("ALTER TABLE location ADD CONSTRAINT good CHECK (username <> 'bad')");
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
}

#[test]
#[ignore = "needs MariaDB: cargo test -p store -- --ignored"]
fn a_server_that_is_killed_is_found_again_and_lost_nothing() {
    let (mut server, database) = ours();
    survives_a_kill(&mut server, &database);
}

#[test]
#[ignore = "needs MariaDB: cargo test -p store -- --ignored"]
fn a_server_that_is_paused_is_away_within_the_patience() {
    let (server, _) = ours();
    survives_a_pause(&server, &open(&server.url(), Duration::from_secs(1)));
}

#[test]
#[ignore = "needs MariaDB: cargo test -p store -- --ignored"]
fn a_wrong_password_is_refused_and_not_printed() {
    let server = Server::start(Kind::MariaDb);
    let url = Url::parse(&server.url().replace("geheim", "falsch"), std::path::Path::new("/")).unwrap();
    let error = Database::open(&url, PATIENCE).unwrap_err();
    assert!(matches!(&error, StoreError::Refused(text) if !text.contains("falsch")), "{error}");
}

#[test]
#[ignore = "needs MariaDB: cargo test -p store -- --ignored"]
fn a_statement_that_was_given_up_is_not_done_later() {
    let (server, _) = ours();
    let database = open(&server.url(), Duration::from_secs(1));
    what_was_given_up_is_not_done_later(&server, &database, "SLEEP");
}

#[test]
#[ignore = "needs MariaDB: cargo test -p store -- --ignored"]
fn a_table_has_one_writer() {
    let (server, database) = ours();
    only_one_writes(&database);
    clear(&server);
    let database = open(&server.url(), Duration::from_secs(1));
    who_died_writes_nothing_more(&server, &database, "SLEEP");
}
