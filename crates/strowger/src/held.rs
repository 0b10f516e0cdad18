//! Answers to REGISTERs that wait for the commit of what they changed (write-through, RFC 3261 §10.3 step 7).
//!
//! ```text
//!  shard: apply, answer ──▶ held back ──ticket──▶ persister: drain, commit ──ticket──▶ shard: let go
//!                                                              or fails ──▶ undo, answer 500 or 503
//! ```
//!
//! A shard numbers the answers that it holds. It tells the persister the number of the next one, by a counter and, if the
//! persister sleeps, one wake-up; and hears up to which number everything is committed. So a REGISTER costs no message
//! between threads, and all that come during one commit share the next.

use std::sync::Arc;
use std::time::Duration;

use engine::{Answer, AskId, Outbox, Output};
use location::{Location as _, Traces};
use modules::Unsaved;
use sip::{HeaderName, Index, Instant, Message};

use crate::persistence::{Persister, Tickets};
use crate::striped::Striped;

mod queue;

use queue::{Queue, Reply};

/// Answers held at once; past it a REGISTER is undone and answered 503.
const HELD_MAX: usize = 65_536;

/// Answers let go with each message that comes: those of a commit leave among the others instead of in one burst, in batches
/// that are still in the processor's cache, and faster than new ones come.
const RELEASE_WITH_MESSAGE: usize = 2;

/// The same while no message comes.
const RELEASE_ALONE: usize = 128;

/// Marks the number of a question as that of an answer held back: the engine's own are counted from 1.
const MARK: u64 = 1 << 63;

/// Why an answer may not go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// The database cannot keep it.
    Refused,
    /// The database is away, or too late.
    Away,
}

/// The answers that one shard holds.
pub(crate) struct Held {
    persister: Persister,
    tickets: Arc<Tickets>,
    location: Striped,
    timeout: Duration,
    retry_after_secs: u32,
    waiting: Queue,
    /// The number of the next answer.
    next: u64,
    /// The persister knows of those with a lower number.
    asked: u64,
    /// Those with a lower number may go.
    committed: u64,
    index: Index,
}

/// The question that stands for all answers below `upto`.
pub(crate) fn question(upto: u64) -> AskId {
    AskId(upto | MARK)
}

impl Held {
    /// `tickets` are those that the persister looks at for this shard.
    pub(crate) fn new(
        persister: Persister,
        tickets: Arc<Tickets>,
        location: Striped,
        timeout: Duration,
        retry_after_secs: u32,
    ) -> Held {
        Held {
            persister,
            tickets,
            location,
            timeout,
            retry_after_secs,
            waiting: Queue::default(),
            next: 0,
            asked: 0,
            committed: 0,
            index: Index::new(),
        }
    }

    /// Whether none is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// When there is something to do next: some may go, or the oldest comes too late.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let deadline = self.waiting.deadline()?;
        Some(if self.first() < self.committed { Instant::ZERO } else { deadline })
    }

    /// The number of the oldest.
    fn first(&self) -> u64 {
        self.next - self.waiting.len() as u64
    }

    /// Takes an answer out of the outbox until its commit.
    pub(crate) fn hold(&mut self, now: Instant, unsaved: &Unsaved, out: &mut Outbox) {
        let Unsaved { aor, traces, output } = unsaved;
        let Some(Output::Send { path, bytes }) = out.outputs.get(*output) else { return };
        let (path, bytes) = (*path, bytes.clone());
        out.outputs.remove(*output);
        let answer = out.bytes.get(bytes).unwrap_or_default();
        let deadline = now + self.timeout;
        let reply = Reply { deadline, path, answer, aor, traces: traces.as_bytes() };
        let why = if self.waiting.len() >= HELD_MAX || self.persister.is_stuck() {
            Some(Why::Away)
        } else if self.persister.is_refused(&self.location, aor, traces) {
            Some(Why::Refused)
        } else {
            None
        };
        if let Some(why) = why {
            let (answer, traces) = (answer.to_vec(), traces.as_bytes());
            return self.fail(now, &Reply { deadline, path, answer: &answer, aor, traces }, why, out);
        }
        self.waiting.push(&reply);
        self.next += 1;
    }

    /// Has what they wait for committed. To be called after [`Held::hold`], once for many: it costs more than one of them.
    pub(crate) fn ask_for_commit(&mut self) {
        if self.asked < self.next {
            self.asked = self.next;
            self.persister.want(&self.tickets, self.next);
        }
    }

    /// Lets all go that are committed, if `id` is about them; `false` if it is a question of the engine's.
    pub(crate) fn answered(
        &mut self,
        now: Instant,
        id: AskId,
        answer: &Answer<'_>,
        out: &mut Outbox,
    ) -> bool {
        if id.0 & MARK == 0 {
            return false;
        }
        let upto = (id.0 & !MARK).min(self.next);
        let refused = self.tickets.take_refused(upto);
        if *answer == Answer::Done && refused.is_empty() {
            self.committed = self.committed.max(upto);
            return true;
        }
        while self.first() < upto
            && let Some(reply) = self.waiting.front()
        {
            let is_left_out = refused.iter().any(|aor| aor[..] == *reply.aor);
            let is_committed = self.first() < self.committed || *answer == Answer::Done;
            match answer {
                _ if is_committed && !is_left_out => self.send_first(out),
                Answer::Done | Answer::Refused => self.fail_first(now, Why::Refused, out),
                _ => self.fail_first(now, Why::Away, out),
            }
        }
        true
    }

    /// Lets some go that are committed, with an input of the shard.
    pub(crate) fn release(&mut self, is_message: bool, out: &mut Outbox) {
        for _ in 0..if is_message { RELEASE_WITH_MESSAGE } else { RELEASE_ALONE } {
            if self.waiting.is_empty() || self.first() >= self.committed {
                break;
            }
            self.send_first(out);
        }
    }

    /// Gives up those that have waited too long.
    pub(crate) fn give_up(&mut self, now: Instant, out: &mut Outbox) {
        while self.first() >= self.committed
            && self.waiting.deadline().is_some_and(|deadline| deadline <= now)
        {
            self.fail_first(now, Why::Away, out);
        }
    }

    fn send_first(&mut self, out: &mut Outbox) {
        if let Some(reply) = self.waiting.front() {
            out.send(reply.path, |buffer| buffer.extend_from_slice(reply.answer));
        }
        self.waiting.drop_front();
    }

    fn fail_first(&mut self, now: Instant, why: Why, out: &mut Outbox) {
        let mut waiting = std::mem::take(&mut self.waiting);
        if let Some(reply) = waiting.front() {
            self.fail(now, &reply, why, out);
        }
        waiting.drop_front();
        self.waiting = waiting;
    }

    /// RFC 3261 §10.3 step 7: "If any one of them fails (for example, because a back-end database commit failed), the
    /// request MUST fail with a 500 (Server Error) response and all tentative binding updates MUST be removed." Where
    /// nobody is there to commit, or too slow, it is 503: the phone may try again.
    fn fail(&mut self, now: Instant, reply: &Reply<'_>, why: Why, out: &mut Outbox) {
        let (before, after) = Traces::read(reply.traces);
        self.location.undo(now, reply.aor, &before, &after);
        // The database may have it, whatever it said.
        self.persister.hurry();
        let retry_after = self.retry_after_secs;
        if let Ok(answer) = Message::parse(reply.answer, &mut self.index) {
            let mut headers = Vec::new();
            if retry_after > 0 {
                headers.extend_from_slice(format!("Retry-After: {retry_after}\r\n").as_bytes());
            }
            if let Some(server) = answer.header(HeaderName::Server) {
                headers.extend_from_slice(b"Server: ");
                headers.extend_from_slice(server.value);
                headers.extend_from_slice(b"\r\n");
            }
            let status = match why {
                Why::Refused => 500,
                Why::Away => 503,
            };
            out.send(reply.path, |buffer| Unsaved::write_failure(&answer, status, &headers, buffer));
        }
    }
}
