//! The persister over SQLite: what was promised is there for the next run.

use std::ops::Range;
use std::time::Duration;

use engine::OwnedAnswer;
use location::Location as _;
use modules::DbMode;
use store::{Contact, Database, Encoder, Journal, Records, StoreError, Url, Written};

use super::super::changes::Changes;
use super::super::{DatabaseKeeper, Keeper};
use super::rig::{self, Fake, Mood, Rig};
use crate::state::tests::Scratch;

fn open(scratch: &Scratch, mode: DbMode) -> Rig {
    let url = Url::parse("sqlite:", &scratch.0).unwrap();
    let database = Database::open(&url, Duration::from_secs(5)).unwrap();
    let phones = store::Needed { table: "phones".into(), kind: "location", columns: Vec::new() };
    database.create_needed(&[phones]).unwrap();
    let tables = ["location".to_owned(), "phones".to_owned()];
    let keeper = DatabaseKeeper::new(database.bindings(&[]).unwrap(), &tables, mode).unwrap();
    assert_eq!(keeper.has_journal(), mode == DbMode::WriteThrough);
    let fake = Fake::default();
    Rig::over(mode, fake.clone(), Box::new(Moody { keeper, fake }), rig::striped())
}

/// SQLite, which is away when the fake database is.
struct Moody {
    keeper: DatabaseKeeper,
    fake: Fake,
}

impl Keeper for Moody {
    fn write(&mut self, changes: &Changes, range: Range<usize>) -> Result<Written, StoreError> {
        self.fake.around(|| self.keeper.write(changes, range))
    }

    fn encoder(&self) -> Option<Encoder> {
        self.keeper.encoder()
    }

    fn journal(&mut self) -> Option<&mut Journal> {
        self.keeper.journal()
    }

    fn commit(
        &mut self,
        records: &mut Records,
        rows: &Changes,
        is_last: bool,
    ) -> Result<Written, StoreError> {
        self.fake.around(|| self.keeper.commit(records, rows, is_last))
    }

    fn read(
        &mut self,
        table: &str,
        username: &[u8],
        domain: &[u8],
        visit: &mut dyn FnMut(&Contact<'_>),
    ) -> Result<(), StoreError> {
        self.keeper.read(table, username, domain, visit)
    }

    fn load(
        &mut self,
        table: &str,
        now_unix_micros: u64,
        progress: &mut dyn FnMut(u64, u64),
        visit: &mut dyn FnMut(&Contact<'_>) -> bool,
    ) -> Result<u64, StoreError> {
        self.keeper.load(table, now_unix_micros, progress, visit)
    }
}

/// Users and CSeqs of what a run after this one finds.
fn found(scratch: &Scratch) -> Vec<(String, u32)> {
    let rig = open(scratch, DbMode::WriteThrough);
    let mut found = Vec::new();
    for stripe in 0..crate::striped::STRIPES {
        rig.location.visit(stripe, |binding| {
            found.push((String::from_utf8_lossy(binding.aor()).into_owned(), binding.cseq()));
        });
    }
    found.sort();
    found
}

/// Changes that no sheet and no commit has room for, however often the persister tries meanwhile.
const TIMES: u32 = 100_000;

/// Files of the journal that are there, and those that are in use: byte 8 says so.
fn journals(scratch: &Scratch) -> (usize, usize) {
    let entries = std::fs::read_dir(&scratch.0).unwrap().map(|entry| entry.unwrap().path());
    let names = entries.filter(|path| path.to_string_lossy().contains("-changes-"));
    let files: Vec<_> = names.map(|path| std::fs::read(path).unwrap()).collect();
    (files.len(), files.iter().filter(|file| file.get(8) == Some(&1)).count())
}

/// How many files of the journal are in use, and how many rows the table has.
fn journals_and_rows(scratch: &Scratch) -> (usize, usize) {
    let url = Url::parse("sqlite:", &scratch.0).unwrap();
    let database = Database::open(&url, Duration::from_secs(5)).unwrap();
    let count = |table| database.rows(table, &["id"], 1_000_000).unwrap().len();
    (journals(scratch).1, count("location"))
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
    assert_eq!(journals(&scratch), (0, 0));
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

#[test]
fn rows_follow_the_journal_and_its_pages_go() {
    let scratch = Scratch::new();
    let mut rig = open(&scratch, DbMode::WriteThrough);
    for user in 0..300 {
        rig.bind(&format!("user{user}"), "sip:phone@192.0.2.1");
    }
    assert_eq!(rig.persist("user1"), OwnedAnswer::Done);
    assert_eq!(journals_and_rows(&scratch), (1, 0), "nobody waits for the rows");
    rig.until("all is in the table", |_| journals_and_rows(&scratch) == (0, 300));
    rig.rebind("user7", "sip:phone@192.0.2.1", 2);
    rig.location.remove(rig.time.now(), b"user8", None);
    assert_eq!(rig.persist("user7"), OwnedAnswer::Done);
    std::mem::forget(rig);
    let found = found(&scratch);
    assert_eq!(found.len(), 299);
    assert!(found.contains(&("user7".into(), 2)), "what the journal says is newer than its row");
}

#[test]
fn what_was_undone_does_not_come_back_from_the_journal() {
    let scratch = Scratch::new();
    let mut rig = open(&scratch, DbMode::WriteThrough);
    rig.bind("bob", "sip:bob@192.0.2.1");
    assert_eq!(rig.persist("bob"), OwnedAnswer::Done);
    rig.fake.set(Mood::CommitsAndGoes);
    rig.bind("alice", "sip:alice@192.0.2.1");
    assert_eq!(rig.persist("alice"), OwnedAnswer::Failed, "nobody knows whether it was committed");
    let now = rig.time.now();
    let after = rig::bindings(&rig.location, now, b"alice");
    assert!(rig.location.undo(now, b"alice", &[], &after));
    rig.fake.set(Mood::Fine);
    rig.until("the database is back", |rig| rig.state().is_up);
    assert_eq!(rig.persist("alice"), OwnedAnswer::Done);
    std::mem::forget(rig);
    assert_eq!(found(&scratch), [("bob".into(), 1)]);
}

/// More changes than can be written down while the database is away: the rows are written instead, and nothing older comes
/// back over them.
#[test]
fn records_that_are_missing_cost_nothing_but_time() {
    let scratch = Scratch::new();
    let mut rig = open(&scratch, DbMode::WriteThrough);
    for user in ["alice", "bob", "carol"] {
        rig.bind(user, "sip:phone@192.0.2.1");
    }
    assert_eq!(rig.persist("alice"), OwnedAnswer::Done);
    rig.fake.set(Mood::Away);
    assert_eq!(rig.persist("alice"), OwnedAnswer::Done, "there is nothing to be written");
    rig.rebind("alice", "sip:phone@192.0.2.1", 2);
    assert_eq!(rig.persist("alice"), OwnedAnswer::Failed);
    for cseq in 3..TIMES {
        rig.rebind("alice", "sip:phone@192.0.2.1", cseq);
    }
    rig.location.remove(rig.time.now(), b"bob", None);
    rig.fake.set(Mood::Fine);
    rig.until("all is in the table", |_| journals_and_rows(&scratch) == (0, 2));
    rig.rebind("carol", "sip:phone@192.0.2.1", 2);
    assert_eq!(rig.persist("carol"), OwnedAnswer::Done);
    std::mem::forget(rig);
    assert_eq!(found(&scratch), [("alice".into(), TIMES - 1), ("carol".into(), 2)]);
}

#[test]
fn what_is_in_no_journal_is_counted_at_the_end() {
    let scratch = Scratch::new();
    let mut rig = open(&scratch, DbMode::WriteThrough);
    rig.bind("alice", "sip:phone@192.0.2.1");
    assert_eq!(rig.persist("alice"), OwnedAnswer::Done);
    rig.fake.set(Mood::Away);
    rig.bind("bob", "sip:phone@192.0.2.1");
    rig.bind("carol", "sip:phone@192.0.2.1");
    assert_eq!(rig.end(), 2, "what is in the journal is not lost");
    std::mem::forget(rig);
    assert_eq!(found(&scratch), [("alice".into(), 1)]);
}

/// A generation that ends while another one's rows are being written takes the pages of both.
#[test]
fn missing_records_while_rows_are_written_leave_no_older_page() {
    let scratch = Scratch::new();
    let mut rig = open(&scratch, DbMode::WriteThrough);
    for user in 0..30_000 {
        rig.bind(&format!("user{user}"), "sip:phone@192.0.2.1");
    }
    rig.bind("alice", "sip:phone@192.0.2.1");
    assert_eq!(rig.persist("alice"), OwnedAnswer::Done);
    rig.until("rows follow", |_| journals_and_rows(&scratch).1 > 0);
    rig.rebind("alice", "sip:phone@192.0.2.1", 2);
    assert_eq!(rig.persist("alice"), OwnedAnswer::Done);
    rig.fake.set(Mood::Away);
    for cseq in 3..TIMES {
        rig.rebind("alice", "sip:phone@192.0.2.1", cseq);
    }
    rig.until("it is away", |rig| !rig.state().is_up);
    rig.fake.set(Mood::Fine);
    rig.until("all is in the table", |_| journals_and_rows(&scratch) == (0, 30_001));
    std::mem::forget(rig);
    assert!(found(&scratch).contains(&("alice".into(), TIMES - 1)));
}
