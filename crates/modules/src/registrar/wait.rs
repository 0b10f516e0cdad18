//! What `save` and its relatives wait for: the commit of what they changed (`db_mode` 1 and 3), and what others have
//! written (`db_mode` 3).
//!
//! ```text
//!  save ----------------------> apply --Persist--> Done: 200
//!    `--Refresh (db_mode 3)----^                   Refused, Failed: undo, 500 or 503
//!  lookup, registered --Refresh (db_mode 3)--> find
//!  unregister --Refresh (db_mode 3)--> remove --Persist--> done
//! ```
//!
//! The server may hold back the 200 of a request without a transaction instead ([`Unsaved`]): the script goes on at once,
//! nothing is kept of the request but its answer, and a busy registrar is spared most of what waiting costs.
//!
//! An update is visible from the moment that it is applied, earlier than RFC 3261 §10.3 step 7 has it ("committed (that
//! is, made visible to the proxy or redirect server)"): a `lookup`, a question and the 200 of another REGISTER see it
//! while its commit is under way, and no longer once it has been undone. A call that reaches a phone a few milliseconds
//! early does no harm; two tables would. What is promised is the 200: it leaves after the commit. So does that of a request that changed nothing, because a copy of it that came another way did: its commit
//! is waited for, too.

use super::lookup::{self, Place};
use super::save;
use crate::run::{Context, Run, Then};
use crate::usrloc::DbMode;
use alloc::boxed::Box;
use alloc::vec::Vec;
use engine::{Answer, Ask};
use location::{Location, Traces};
use route::Outcome;
use sip::{Instant, Message, Method, ResponseSpec};
use smallvec::SmallVec;

/// Bytes of an address-of-record that are held without an allocation of their own.
const AOR_BYTES: usize = 96;

/// A function of `registrar` that waits.
#[derive(Debug)]
pub(crate) struct Pending {
    /// The key of the address-of-record that the question is about.
    pub(super) aor: SmallVec<[u8; AOR_BYTES]>,
    pub(super) task: Task,
}

/// What is to be done when there is an answer.
#[derive(Debug)]
pub(super) enum Task {
    /// The REGISTER is to be applied.
    Apply { flags: i64 },
    /// It was applied and is to be answered.
    Commit(Tentative),
    /// The contacts are to become targets.
    Find(Place),
    /// The contacts of several users are to become targets; `rest` are still to be read.
    FindAll { table: Box<[u8]>, rest: Vec<Box<[u8]>> },
    /// It is asked whether there is a contact.
    Registered,
    /// All contacts are to be removed.
    Remove,
    /// They were removed.
    Removed,
}

/// A REGISTER that was applied: how it is answered, and what is needed to undo it.
#[derive(Debug, Default)]
pub(super) struct Tentative {
    pub(super) flags: i64,
    /// What `save` returns.
    pub(super) code: i32,
    pub(super) traces: Traces,
}

impl Tentative {
    pub(super) fn undo(&self, location: &dyn Location, now: Instant, aor: &[u8]) {
        let (before, after) = Traces::read(self.traces.as_bytes());
        location.undo(now, aor, &before, &after);
    }
}

/// A REGISTER that was applied and answered, and whose answer must not leave before the database has what it changed. Who
/// holds it back either lets it go then, or undoes the changes ([`location::Location::undo`]) and answers otherwise.
#[derive(Debug)]
pub struct Unsaved {
    /// The key of the address-of-record.
    pub aor: SmallVec<[u8; AOR_BYTES]>,
    /// What was bound before and after it.
    pub traces: Traces,
    /// The place of the answer among the outputs of the engine.
    pub output: usize,
}

impl Unsaved {
    /// Writes what is sent in place of `answer`, which was held back, after the changes have been undone: 500 where the
    /// database cannot keep them, as RFC 3261 §10.3 step 7 asks, 503 where it is away or too late. `headers` are full lines
    /// with CRLF. What a response copies of its request, the one that is not sent has copied.
    pub fn write_failure(answer: &Message<'_>, status: u16, headers: &[u8], out: &mut Vec<u8>) {
        let spec = ResponseSpec {
            status,
            reason: sip::reason_phrase(status).as_bytes(),
            // The tag is there already.
            to_tag: None,
            received: None,
            rport: None,
            record_routes: false,
            headers,
            body: b"",
        };
        sip::write_response(answer, &spec, out);
    }
}

/// Whether the answer may be given at once, since the server holds it back: to a request that has no transaction, in
/// whose memory it would be found too early.
pub(super) fn is_held(run: &Run<'_, '_>) -> bool {
    let Context::Request(cx) = &run.cx else { return false };
    run.environment.holds_answers
        && run.settings.persistence.mode == DbMode::WriteThrough
        && cx.status().is_none()
        && !cx.has_transaction()
}

/// Whether an update is kept by the database before it is answered.
pub(super) fn commits(run: &Run<'_, '_>) -> bool {
    matches!(run.settings.persistence.mode, DbMode::WriteThrough | DbMode::DatabaseOnly)
}

/// Whether the database is read first. A route that cannot wait takes what was read last.
pub(super) fn refreshes(run: &Run<'_, '_>) -> bool {
    run.settings.persistence.mode == DbMode::DatabaseOnly && can_wait(run)
}

/// Whether this is a route that can wait: one that a request has begun. An ACK cannot: it has no transaction to wait in
/// (RFC 3261 §17).
pub(super) fn can_wait(run: &Run<'_, '_>) -> bool {
    matches!(&run.cx, Context::Request(cx) if cx.status().is_none() && cx.message().method() != Method::Ack)
}

/// Waits until the database has all changes of `aor`.
pub(super) fn persist(run: &mut Run<'_, '_>, aor: &[u8], task: Task) -> Outcome {
    suspend(run, Ask::Persist { aor: aor.into() }, aor, task, committed)
}

/// Waits until the bindings of `aor` are those that the database holds.
pub(super) fn refresh(run: &mut Run<'_, '_>, aor: &[u8], task: Task) -> Outcome {
    suspend(run, Ask::Refresh { aor: aor.into() }, aor, task, refreshed)
}

fn suspend(run: &mut Run<'_, '_>, ask: Ask, aor: &[u8], task: Task, then: Then) -> Outcome {
    run.prepared.pending = Some(Box::new(Pending { aor: SmallVec::from_slice(aor), task }));
    let deadline = run.settings.persistence.commit_timeout;
    run.suspend(ask, deadline, then)
}

/// What waited will not be asked about: a REGISTER that was applied is refused, and leaves nothing (RFC 3261 §10.3 step 7).
pub(crate) fn abandon(location: &dyn Location, now: Instant, pending: &Pending) {
    if let Task::Commit(tentative) = &pending.task {
        tentative.undo(location, now, &pending.aor);
    }
}

fn committed(run: &mut Run<'_, '_>, answer: &Answer<'_>) -> Outcome {
    let Some(pending) = run.prepared.pending.take() else { return nothing_waits(run) };
    let Pending { aor, task } = *pending;
    match task {
        Task::Commit(tentative) => save::committed(run, &aor, &tentative, answer),
        // What an administrator removed stays removed; the database hears of it as soon as it can.
        Task::Removed if *answer != Answer::Done => Outcome::Code(-2),
        Task::Removed => Outcome::True,
        _ => nothing_waits(run),
    }
}

fn refreshed(run: &mut Run<'_, '_>, answer: &Answer<'_>) -> Outcome {
    let Some(pending) = run.prepared.pending.take() else { return nothing_waits(run) };
    let Pending { aor, task } = *pending;
    let is_read = *answer == Answer::Done;
    match task {
        Task::Apply { flags } => save::refreshed(run, &aor, flags, answer),
        Task::Find(place) => {
            let found = lookup::find_key(run, &aor, place);
            found_or_unknown(found, is_read)
        }
        Task::FindAll { table, mut rest } => match rest.pop() {
            // Where the database says nothing, it will say nothing of the others either.
            Some(next) if is_read => refresh(run, &next, Task::FindAll { table, rest }),
            _ => found_or_unknown(lookup::find_branches(run, &table), is_read),
        },
        Task::Registered if lookup::is_registered(run, &aor) => Outcome::True,
        Task::Registered => found_or_unknown(Outcome::False, is_read),
        Task::Remove if !is_read => Outcome::Code(-2),
        Task::Remove => lookup::remove(run, &aor),
        _ => nothing_waits(run),
    }
}

/// What was read last is better than nothing; but that there is nothing is not known without the database.
fn found_or_unknown(found: Outcome, is_read: bool) -> Outcome {
    if !is_read && matches!(found, Outcome::False) { Outcome::Code(-3) } else { found }
}

fn nothing_waits(run: &mut Run<'_, '_>) -> Outcome {
    run.fail("registrar: an answer came that no function waits for; this is a bug")
}
