//! Answers that wait for commits (RFC 3261 §10.3 step 7): let go after them, undone and answered otherwise without them.

use std::time::Duration;

use engine::{ListenerId, Outbox, Output, OwnedAnswer, Path};
use location::{Changed, Location as _, Policy, Register, Traces, Update};
use modules::{DbMode, Unsaved};
use sip::Instant;

use super::rig::{Fake, Mood, Rig, bindings};
use crate::held::Held;

const LONG: Duration = Duration::from_secs(60);

/// A shard that holds answers back.
struct Shard {
    rig: Rig,
    held: Held,
    out: Outbox,
    cseq: u32,
}

fn shard(timeout: Duration) -> Shard {
    let rig = Rig::new(DbMode::WriteThrough, Fake::default());
    let held = rig.held(timeout);
    Shard { rig, held, out: Outbox::new(), cseq: 0 }
}

impl Shard {
    fn now(&self) -> Instant {
        self.rig.time.now()
    }

    /// A REGISTER that was applied and answered 200, which is held back; `other` things were to be done before.
    fn register(&mut self, user: &str, other: usize) {
        self.cseq += 1;
        let contact = format!("sip:{user}@192.0.2.{}", self.cseq);
        let update =
            Update { expires: Some(600), ..Update::new(contact.as_bytes(), user.as_bytes(), self.cseq) };
        let mut unsaved = Unsaved { aor: user.as_bytes().into(), traces: Traces::default(), output: 0 };
        let changed = &mut |changed: Changed<'_>| unsaved.traces.note(&changed);
        let register = Register::Bind(std::slice::from_ref(&update));
        let (location, now) = (&self.rig.location, self.rig.time.now());
        location.register_tentatively(now, user.as_bytes(), &register, &Policy::default(), changed).unwrap();
        let path = Path::new(ListenerId(0), None, "127.0.0.1:5062".parse().unwrap());
        for text in std::iter::repeat_n("other", other).chain([ok(user).as_str()]) {
            unsaved.output = self.out.outputs.len();
            self.out.send(path, |buffer| buffer.extend_from_slice(text.as_bytes()));
        }
        self.held.hold(now, &unsaved, &mut self.out);
        self.held.ask_for_commit();
    }

    /// Hears the persister once.
    fn hear(&mut self) -> OwnedAnswer {
        let (id, answer) = self.rig.answer();
        let now = self.now();
        assert!(self.held.answered(now, id, &answer.as_answer(), &mut self.out));
        while self.held.next_timeout() == Some(Instant::ZERO) {
            self.held.release(false, &mut self.out);
        }
        answer
    }

    /// What leaves now.
    fn sent(&mut self) -> Vec<String> {
        let texts = self.out.outputs.iter().map(|output| match output {
            Output::Send { bytes, .. } => {
                String::from_utf8_lossy(&self.out.bytes[bytes.clone()]).into_owned()
            }
            other => panic!("{other:?}"),
        });
        let texts = texts.collect();
        self.out.clear();
        texts
    }

    fn bound(&self, user: &str) -> usize {
        bindings(&self.rig.location, self.now(), user.as_bytes()).len()
    }
}

fn ok(user: &str) -> String {
    format!(
        "SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP 127.0.0.1:5062;branch=z9hG4bK-{user};rport=5062\r\n\
         From: <sip:{user}@127.0.0.1>;tag=1\r\nTo: <sip:{user}@127.0.0.1>;tag=2\r\nCall-ID: {user}\r\n\
         CSeq: 7 REGISTER\r\nContact: <sip:{user}@192.0.2.1>;expires=600\r\nServer: strowger\r\n\
         Content-Length: 0\r\n\r\n"
    )
}

#[test]
fn an_answer_leaves_after_its_commit() {
    let mut shard = shard(LONG);
    shard.register("alice", 0);
    assert!(shard.sent().is_empty() && !shard.held.is_empty());
    assert_eq!(shard.hear(), OwnedAnswer::Done);
    assert_eq!(shard.rig.stored().len(), 1);
    assert_eq!(shard.sent(), [ok("alice")]);
    assert!(shard.held.is_empty() && shard.held.next_timeout().is_none());
}

#[test]
fn what_else_there_is_to_do_is_not_held_back() {
    let mut shard = shard(LONG);
    shard.register("alice", 2);
    assert_eq!(shard.sent(), ["other", "other"]);
    shard.hear();
    assert_eq!(shard.sent(), [ok("alice")]);
}

#[test]
fn answers_that_wait_share_commits_and_keep_their_order() {
    let mut shard = shard(LONG);
    shard.rig.fake.set(Mood::Hanging);
    let users: Vec<String> = (0..300).map(|n| format!("user{n}")).collect();
    users.iter().for_each(|user| shard.register(user, 0));
    shard.rig.fake.set(Mood::Fine);
    while !shard.held.is_empty() {
        shard.hear();
    }
    assert_eq!(shard.sent(), users.iter().map(|user| ok(user)).collect::<Vec<_>>());
    let transactions = shard.rig.fake.lock().transactions.clone();
    assert!(transactions.len() <= 8, "{transactions:?}");
}

/// Committed ones leave a few at a time; a commit that fails afterwards is not about them.
#[test]
fn a_commit_that_fails_later_takes_nothing_back() {
    let mut shard = shard(LONG);
    shard.register("alice", 0);
    shard.register("bob", 0);
    while !shard.rig.stored().iter().any(|(user, _)| user == "bob") {
        std::thread::yield_now();
    }
    shard.rig.until("both are answered", |rig| rig.state().answered == 2);
    let answers: Vec<_> = (0..2).map_while(|_| shard.rig.answer_at_once()).collect();
    let now = shard.now();
    for (id, answer) in answers {
        assert!(shard.held.answered(now, id, &answer.as_answer(), &mut shard.out));
    }
    assert!(!shard.held.is_empty(), "they leave with the next inputs");
    shard.rig.fake.set(Mood::Away);
    shard.register("carol", 0);
    let (id, answer) = shard.rig.answer();
    assert!(shard.held.answered(now, id, &answer.as_answer(), &mut shard.out));
    let sent = shard.sent();
    assert_eq!(sent[..2], [ok("alice"), ok("bob")]);
    assert!(sent.len() == 3 && sent[2].starts_with("SIP/2.0 503"), "{sent:?}");
    assert_eq!([shard.bound("alice"), shard.bound("bob"), shard.bound("carol")], [1, 1, 0]);
}

#[test]
fn what_the_database_refuses_is_undone_and_answered_500() {
    let mut shard = shard(LONG);
    shard.rig.fake.set(Mood::Refusing);
    shard.register("alice", 0);
    assert_eq!(shard.bound("alice"), 1);
    assert_eq!(shard.hear(), OwnedAnswer::Refused);
    assert_eq!(shard.bound("alice"), 0, "all tentative binding updates MUST be removed");
    let sent = shard.sent();
    assert_eq!(sent.len(), 1);
    assert!(sent[0].starts_with("SIP/2.0 500 Server Internal Error\r\nVia: SIP/2.0/UDP 127.0.0.1:5062;branch=z9hG4bK-alice;rport=5062\r\n"), "{sent:?}");
    for line in
        ["\r\nRetry-After: 5\r\n", "\r\nServer: strowger\r\n", ";tag=2\r\n", "\r\nCSeq: 7 REGISTER\r\n"]
    {
        assert!(sent[0].contains(line), "{line:?} is not in {sent:?}");
    }
    assert!(!sent[0].contains("Contact"), "{sent:?}");
}

#[test]
fn while_the_database_is_away_it_is_503_and_what_was_bound_stays() {
    let mut shard = shard(LONG);
    shard.register("alice", 0);
    shard.hear();
    shard.sent();
    shard.rig.fake.set(Mood::Away);
    shard.register("alice", 0);
    assert_eq!((shard.bound("alice"), shard.hear()), (2, OwnedAnswer::Failed));
    assert!(shard.sent()[0].starts_with("SIP/2.0 503 Service Unavailable\r\n"));
    assert_eq!(shard.bound("alice"), 1);
    shard.rig.fake.set(Mood::Fine);
    shard.rig.until("the database is back", |rig| rig.state().is_up);
    shard.register("alice", 0);
    assert_eq!(shard.hear(), OwnedAnswer::Done);
    assert_eq!(shard.sent(), [ok("alice")]);
    shard.rig.until("it has what memory has", |rig| rig.stored().len() == 2);
}

#[test]
fn an_answer_that_waits_too_long_is_given_up() {
    let mut shard = shard(Duration::from_millis(300));
    shard.rig.fake.set(Mood::Slow(Duration::from_secs(1)));
    shard.register("alice", 0);
    let due = shard.held.next_timeout().unwrap();
    shard.held.give_up(due, &mut shard.out);
    assert!(shard.sent()[0].starts_with("SIP/2.0 503"));
    assert_eq!((shard.bound("alice"), shard.held.is_empty()), (0, true));
    // The commit that comes after all finds nobody, and its change is undone in the database, too.
    shard.hear();
    assert!(shard.sent().is_empty());
    shard.rig.until("the database hears of it", |rig| rig.stored().is_empty());
}

#[test]
fn a_row_that_no_table_can_hold_concerns_nobody_else() {
    let mut shard = shard(LONG);
    shard.rig.fake.lock().unfit = Some("alice");
    shard.rig.fake.set(Mood::Slow(Duration::from_millis(50)));
    for user in ["bob", "alice", "carol"] {
        shard.register(user, 0);
    }
    while !shard.held.is_empty() {
        shard.hear();
    }
    let sent = shard.sent();
    assert_eq!((&sent[0], &sent[2]), (&ok("bob"), &ok("carol")));
    assert!(sent[1].starts_with("SIP/2.0 500"), "{sent:?}");
    assert_eq!(shard.bound("alice"), 0);
}
