//! The persister over a database that fails, hangs, and comes back.

mod held;
pub(crate) mod rig;
mod sqlite;

use std::time::{Duration, Instant as SystemClock};

use engine::OwnedAnswer;
use location::Location as _;
use modules::DbMode;
use rig::{Fake, Mood, Rig};

const HOUR: Duration = Duration::from_secs(3_600);

/// A database that holds these users' contacts, written by somebody.
fn holding(rows: &[(&str, &str, &str)]) -> Fake {
    let fake = Fake::default();
    let time = crate::clock::Time::start();
    fake.lock().expires_unix_micros = time.unix_micros(time.now() + HOUR);
    for (user, contact, writer) in rows {
        let key = ("location".to_owned(), (*user).to_owned(), (*contact).to_owned());
        fake.lock().rows.insert(key, (*writer).to_owned());
    }
    fake
}

#[test]
fn write_through_answers_after_the_commit() {
    let mut rig = Rig::new(DbMode::WriteThrough, Fake::default());
    rig.bind("alice", "sip:alice@192.0.2.1");
    assert_eq!(rig.persist("alice"), OwnedAnswer::Done);
    assert_eq!(rig.stored(), [("alice".into(), "sip:alice@192.0.2.1".into())]);
    assert_eq!((rig.state().rows, rig.state().waiting), (1, 0));
}

#[test]
fn those_that_wait_share_one_commit() {
    let mut rig = Rig::new(DbMode::WriteThrough, Fake::default());
    rig.fake.set(Mood::Hanging);
    rig.bind("first", "sip:first@192.0.2.1");
    rig.ask("first", false);
    rig.until("the first commit is under way", |rig| rig.state().pending == 1);
    for user in 0..200 {
        let user = format!("user{user}");
        rig.bind(&user, "sip:phone@192.0.2.1");
        rig.ask(&user, false);
    }
    rig.fake.set(Mood::Fine);
    for _ in 0..201 {
        assert_eq!(rig.answer().1, OwnedAnswer::Done);
    }
    let transactions = rig.fake.lock().transactions.clone();
    assert!(transactions.len() <= 8, "{transactions:?}");
    assert_eq!(rig.stored().len(), 201);
}

#[test]
fn write_back_needs_no_question() {
    let rig = Rig::new(DbMode::WriteBack, Fake::default());
    rig.bind("alice", "sip:alice@192.0.2.1");
    rig.until("a flush", |rig| rig.stored().len() == 1);
    rig.location.remove(rig.time.now(), b"alice", None);
    rig.until("the removal is written too", |rig| rig.stored().is_empty());
}

#[test]
fn bindings_that_expire_go_from_the_database_in_write_through_too() {
    let mut rig = Rig::new(DbMode::WriteThrough, Fake::default());
    rig.bind("alice", "sip:alice@192.0.2.1");
    assert_eq!(rig.persist("alice"), OwnedAnswer::Done);
    rig.location.expire(rig.time.now() + HOUR, 100_000);
    rig.until("the removal is written", |rig| rig.stored().is_empty());
}

#[test]
fn a_database_that_is_away_costs_nothing_but_time() {
    let rig = Rig::new(DbMode::WriteBack, Fake::default());
    rig.fake.set(Mood::Away);
    rig.bind("alice", "sip:alice@192.0.2.1");
    rig.until("a failure", |rig| rig.state().failures > 0);
    assert!(!rig.state().is_up && rig.state().pending == 1);
    let users = 2 * super::BATCH_ROWS_MAX;
    for user in 0..users {
        rig.bind(&format!("user{user}"), "sip:phone@192.0.2.1");
    }
    assert!(rig.state().pending <= super::BATCH_ROWS_MAX as u64, "no more than a batch is drained meanwhile");
    rig.fake.set(Mood::Fine);
    rig.until("all is written", |rig| rig.stored().len() == users + 1);
    rig.until("it is up", |rig| rig.state().is_up && rig.state().pending == 0);
    assert_eq!(rig.state().behind_secs, 0);
}

#[test]
fn while_it_is_known_to_be_away_the_answer_comes_at_once() {
    let mut rig = Rig::new(DbMode::WriteThrough, Fake::default());
    rig.fake.set(Mood::Away);
    rig.bind("alice", "sip:alice@192.0.2.1");
    assert_eq!(rig.persist("alice"), OwnedAnswer::Failed);
    let (begin, failures) = (SystemClock::now(), rig.state().failures);
    for _ in 0..20 {
        assert_eq!(rig.persist("alice"), OwnedAnswer::Failed);
    }
    assert!(rig.state().failures <= failures + 3, "it is not asked each time");
    assert!(begin.elapsed() < Duration::from_secs(20));
    rig.fake.set(Mood::Fine);
    rig.until("it is back", |rig| rig.state().is_up);
    assert_eq!(rig.persist("alice"), OwnedAnswer::Done);
}

#[test]
fn a_database_that_refuses_says_so_and_loses_nothing() {
    let mut rig = Rig::new(DbMode::WriteThrough, Fake::default());
    rig.fake.set(Mood::Refusing);
    rig.bind("alice", "sip:alice@192.0.2.1");
    assert_eq!(rig.persist("alice"), OwnedAnswer::Refused);
    rig.fake.set(Mood::Fine);
    rig.until("what was refused is written", |rig| rig.stored().len() == 1);
}

#[test]
fn what_was_undone_does_not_stay_in_the_database() {
    let mut rig = Rig::new(DbMode::WriteThrough, Fake::default());
    rig.fake.set(Mood::CommitsAndGoes);
    rig.bind("alice", "sip:alice@192.0.2.1");
    assert_eq!(rig.persist("alice"), OwnedAnswer::Failed, "nobody knows whether it was committed");
    let now = rig.time.now();
    let after = rig::bindings(&rig.location, now, b"alice");
    assert!(rig.location.undo(now, b"alice", &[], &after));
    rig.fake.set(Mood::Fine);
    rig.until("it is gone", |rig| rig.stored().is_empty() && rig.state().is_up);
}

#[test]
fn one_row_that_no_table_can_hold_costs_that_row_alone() {
    let mut rig = Rig::new(DbMode::WriteThrough, Fake::default());
    rig.fake.lock().unfit = Some("mallory");
    rig.fake.set(Mood::Slow(Duration::from_millis(30)));
    rig.bind("first", "sip:first@192.0.2.1");
    rig.ask("first", false);
    for user in ["alice", "mallory", "bob"] {
        rig.bind(user, "sip:phone@192.0.2.1");
        rig.ask(user, false);
    }
    let answers: Vec<_> = (0..4).map(|_| rig.answer()).collect();
    let of = |id| answers.iter().find(|(of, _)| of.0 == id).map(|(_, answer)| answer.clone());
    assert_eq!([of(1), of(2), of(4)], [const { Some(OwnedAnswer::Done) }; 3]);
    assert_eq!(of(3), Some(OwnedAnswer::Refused));
    assert_eq!((rig.stored().len(), rig.state().left_out), (3, 1));
}

#[test]
fn a_database_that_hangs_is_not_waited_for() {
    let mut rig = Rig::new(DbMode::WriteThrough, Fake::default());
    rig.fake.set(Mood::Hanging);
    rig.bind("alice", "sip:alice@192.0.2.1");
    rig.ask("alice", false);
    std::thread::sleep(Duration::from_millis(500));
    let id = rig.ask("bob", false);
    assert_eq!(rig.answer(), (id, OwnedAnswer::Failed), "it hangs for longer than a REGISTER would wait");
    rig.fake.set(Mood::Fine);
    assert_eq!(rig.answer().1, OwnedAnswer::Done);
}

#[test]
fn large_changes_are_several_transactions() {
    let mut rig = Rig::new(DbMode::WriteBack, Fake::default());
    rig.fake.set(Mood::Away);
    rig.bind("first", "sip:first@192.0.2.1");
    rig.until("it is away", |rig| !rig.state().is_up);
    let users = super::BATCH_ROWS_MAX * 2 + 7;
    for user in 0..users {
        rig.bind(&format!("user{user}"), "sip:phone@192.0.2.1");
    }
    rig.fake.set(Mood::Fine);
    rig.running.stop(Duration::from_secs(60));
    assert_eq!(rig.stored().len(), users + 1);
    let transactions = rig.fake.lock().transactions.clone();
    assert!(transactions.iter().all(|rows| *rows <= super::BATCH_ROWS_MAX), "{transactions:?}");
}

#[test]
fn at_the_end_everything_is_written() {
    let mut rig = Rig::new(DbMode::WriteBack, Fake::default());
    for user in 0..500 {
        rig.bind(&format!("user{user}"), "sip:phone@192.0.2.1");
    }
    rig.running.stop(Duration::from_secs(20));
    assert_eq!(rig.stored().len(), 500);
}

#[test]
fn the_end_does_not_wait_for_ever() {
    for mood in [Mood::Away, Mood::Refusing, Mood::Hanging] {
        let mut rig = Rig::new(DbMode::WriteBack, Fake::default());
        rig.fake.set(mood);
        rig.bind("alice", "sip:alice@192.0.2.1");
        rig.running.stop(Duration::from_millis(300));
        // It comes to this though the database is what it was.
        rig.fake.set(Mood::Fine);
    }
}

#[test]
fn what_could_not_be_written_is_counted_at_the_end() {
    for mode in [DbMode::WriteBack, DbMode::WriteThrough] {
        let rig = Rig::new(mode, Fake::default());
        rig.fake.set(Mood::Away);
        for user in ["alice", "bob", "carol"] {
            rig.bind(user, "sip:phone@192.0.2.1");
        }
        assert_eq!(rig.end(), 3, "{mode:?}");
    }
}

#[test]
fn forgotten_removals_are_found_by_comparison() {
    let rows: Vec<(String, String)> =
        (0..3_000).map(|user| (format!("user{user}"), "sip:phone@192.0.2.1".to_owned())).collect();
    let rows: Vec<_> = rows.iter().map(|(user, contact)| (user.as_str(), contact.as_str(), "ours")).collect();
    let fake = holding(&rows);
    let location = rig::striped();
    // A log of one removal for each stripe.
    location.track_changes(1);
    let rig = Rig::over(DbMode::WriteBack, fake.clone(), Box::new(fake), location);
    assert_eq!(rig.location.len(), 3_000);
    rig.bind("alice", "sip:alice@192.0.2.1");
    for user in 0..2_999 {
        rig.location.remove(rig.time.now(), format!("user{user}").as_bytes(), None);
    }
    rig.until("only what is bound is left", |rig| rig.stored().len() == 2);
    assert_eq!(rig.stored()[0].0, "alice");
}

#[test]
fn what_another_server_wrote_is_taken_over_before_anything_is_served() {
    let rig = Rig::new(
        DbMode::WriteThrough,
        holding(&[("alice", "sip:a@192.0.2.1", "uloc-1"), ("bob", "sip:b@192.0.2.1", "ours")]),
    );
    assert_eq!(rig.location.len(), 2);
    let writers: Vec<_> = rig.fake.lock().rows.values().cloned().collect();
    assert_eq!(writers, ["ours", "ours"]);
}

#[test]
fn rows_that_name_nobody_are_left_out_and_counted() {
    let rig = Rig::new(
        DbMode::WriteThrough,
        holding(&[("", "sip:x@192.0.2.1", "ours"), ("bob", "sip:b@192.0.2.1", "ours")]),
    );
    assert_eq!((rig.location.len(), rig.state().left_out), (1, 1));
}

#[test]
fn a_database_that_others_write_is_asked_again() {
    let mut rig = Rig::new(DbMode::DatabaseOnly, holding(&[("alice", "sip:a@192.0.2.1", "uloc-1")]));
    assert_eq!(rig.fake.lock().rows.values().next().map(String::as_str), Some("uloc-1"), "theirs as well");
    let key = ("location".to_owned(), "alice".to_owned(), "sip:new@192.0.2.9".to_owned());
    rig.fake.lock().rows.insert(key, "uloc-2".to_owned());
    rig.ask("alice", true);
    assert_eq!(rig.answer().1, OwnedAnswer::Done);
    assert_eq!(rig::bindings(&rig.location, rig.time.now(), b"alice").len(), 2);
    assert!(rig.fake.lock().rows.values().all(|writer| writer == "ours"));
    rig.fake.lock().rows.clear();
    rig.ask("alice", true);
    assert_eq!(rig.answer().1, OwnedAnswer::Done);
    assert!(rig::bindings(&rig.location, rig.time.now(), b"alice").is_empty());
    rig.bind("alice", "sip:mine@192.0.2.1");
    rig.ask("alice", true);
    assert_eq!(rig.answer().1, OwnedAnswer::Done);
    assert_eq!(rig.stored().len(), 1, "what changed here is written before it is read");
    rig.fake.set(Mood::Away);
    rig.ask("alice", true);
    assert_eq!(rig.answer().1, OwnedAnswer::Failed);
    rig.fake.set(Mood::Fine);
    let begin = SystemClock::now();
    loop {
        rig.ask("alice", true);
        if rig.answer().1 == OwnedAnswer::Done {
            break;
        }
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "nothing waits to be written, and yet it comes back"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}
