//! The persister over SQLite: what was promised is there for the next run.

use std::time::Duration;

use engine::OwnedAnswer;
use location::Location as _;
use modules::DbMode;
use store::{Database, Url};

use super::super::DatabaseKeeper;
use super::rig::{self, Fake, Rig};
use crate::state::tests::Scratch;

fn open(scratch: &Scratch, mode: DbMode) -> Rig {
    let url = Url::parse("sqlite:", &scratch.0).unwrap();
    let database = Database::open(&url, Duration::from_secs(5)).unwrap();
    let phones = store::Needed { table: "phones".into(), kind: "location", columns: Vec::new() };
    database.create_needed(&[phones]).unwrap();
    let tables = ["location".to_owned(), "phones".to_owned()];
    let keeper = DatabaseKeeper::new(database.bindings(&[]).unwrap(), &tables, mode).unwrap();
    assert_eq!(keeper.has_journal(), mode == DbMode::WriteThrough);
    Rig::over(mode, Fake::default(), Box::new(keeper), rig::striped())
}

#[test]
fn a_run_that_ends_in_whatever_way_leaves_what_it_answered() {
    let scratch = Scratch::new();
    let mut first = open(&scratch, DbMode::WriteThrough);
    let users = ["alice", "bob", "phones\0carol"];
    let mut before = Vec::new();
    for user in users {
        for contact in ["sip:one@192.0.2.1", "sip:two@192.0.2.1;x=%20", "sips:three@[2001:db8::1]:5061"] {
            first.bind(user, contact);
        }
        assert_eq!(first.persist(user), OwnedAnswer::Done);
        before.push(rig::bindings(&first.location, first.time.now(), user.as_bytes()));
    }
    // As `kill -9`: nobody says goodbye.
    std::mem::forget(first);
    let second = open(&scratch, DbMode::WriteThrough);
    let now = second.time.now();
    for (user, before) in users.iter().zip(before) {
        let after = rig::bindings(&second.location, now, user.as_bytes());
        assert_eq!(after.len(), 3);
        for (before, after) in before.iter().zip(&after) {
            assert_eq!((before.contact(), before.q()), (after.contact(), after.q()), "in the same order");
            assert_eq!((before.call_id(), before.cseq()), (after.call_id(), after.cseq()));
            let moved =
                before.expires_at().since(after.expires_at()) + after.expires_at().since(before.expires_at());
            // The two runs have clocks of their own.
            assert!(moved < Duration::from_secs(5), "{moved:?}");
        }
    }
}

#[test]
fn write_back_flushes_at_the_end() {
    let scratch = Scratch::new();
    let mut first = open(&scratch, DbMode::WriteBack);
    for user in 0..2_000 {
        first.bind(&format!("user{user}"), "sip:phone@192.0.2.1");
    }
    first.location.remove(first.time.now(), b"user7", None);
    first.running.stop(Duration::from_secs(30));
    drop(first);
    let second = open(&scratch, DbMode::WriteBack);
    assert_eq!(second.location.len(), 1_999);
    assert!(rig::bindings(&second.location, second.time.now(), b"user7").is_empty());
}

#[test]
fn the_end_of_a_write_through_run_leaves_nothing_in_the_journal() {
    let scratch = Scratch::new();
    let mut first = open(&scratch, DbMode::WriteThrough);
    for user in 0..3_000 {
        first.bind(&format!("user{user}"), "sip:phone@192.0.2.1");
    }
    assert_eq!(first.persist("user1"), OwnedAnswer::Done);
    first.location.remove(first.time.now(), b"user7", None);
    first.running.stop(Duration::from_secs(30));
    drop(first);
    let url = Url::parse("sqlite:", &scratch.0).unwrap();
    let database = Database::open(&url, Duration::from_secs(5)).unwrap();
    assert!(database.rows("strowger_journal", &["id"], 10).unwrap().is_empty());
    assert_eq!(database.rows("location", &["id"], 10_000).unwrap().len(), 2_999);
}

#[test]
fn a_run_in_another_mode_takes_the_journal_over() {
    let scratch = Scratch::new();
    let mut first = open(&scratch, DbMode::WriteThrough);
    first.bind("alice", "sip:phone@192.0.2.1");
    assert_eq!(first.persist("alice"), OwnedAnswer::Done);
    std::mem::forget(first);
    let second = open(&scratch, DbMode::WriteBack);
    assert_eq!(rig::bindings(&second.location, second.time.now(), b"alice").len(), 1);
}
