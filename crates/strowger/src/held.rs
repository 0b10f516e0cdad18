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

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use engine::{Answer, AskId, Outbox, Output, Path};
use location::Location as _;
use modules::Unsaved;
use sip::{HeaderName, Index, Instant, Message, ResponseSpec};

use crate::persistence::{Persister, Tickets};
use crate::striped::Striped;

/// Answers held at once; past it a REGISTER is undone and answered 503.
const HELD_MAX: usize = 65_536;

/// Buffers of answers that are kept for the next ones.
const SPARE_MAX: usize = 8_192;

/// Marks the number of a question as that of an answer held back: the engine's own are counted from 1.
const MARK: u64 = 1 << 63;

/// One answer.
#[derive(Debug)]
struct Reply {
    /// After this it comes too late.
    deadline: Instant,
    path: Path,
    bytes: Vec<u8>,
    unsaved: Unsaved,
}

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
    waiting: VecDeque<Reply>,
    /// The number of the next answer.
    next: u64,
    spare: Vec<Vec<u8>>,
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
            waiting: VecDeque::new(),
            next: 0,
            spare: Vec::new(),
            index: Index::new(),
        }
    }

    /// Whether none is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// When the oldest comes too late.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.waiting.front().map(|reply| reply.deadline)
    }

    /// Takes an answer out of the outbox until its commit.
    pub(crate) fn hold(&mut self, now: Instant, unsaved: Unsaved, out: &mut Outbox) {
        let place = unsaved.output;
        let Some(Output::Send { path, bytes }) = out.outputs.get(place) else { return };
        let path = *path;
        let mut kept = self.spare.pop().unwrap_or_default();
        kept.clear();
        kept.extend_from_slice(out.bytes.get(bytes.clone()).unwrap_or_default());
        out.outputs.remove(place);
        let reply = Reply { deadline: now + self.timeout, path, bytes: kept, unsaved };
        if self.waiting.len() >= HELD_MAX || self.persister.is_stuck() {
            return self.fail(now, reply, Why::Away, out);
        }
        self.waiting.push_back(reply);
        self.next += 1;
        self.persister.want(&self.tickets, self.next);
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
        let upto = id.0 & !MARK;
        let refused = self.tickets.take_refused();
        let first = self.next - self.waiting.len() as u64;
        for _ in first..upto.min(self.next) {
            let Some(reply) = self.waiting.pop_front() else { break };
            let is_left_out = refused.iter().any(|aor| aor[..] == reply.unsaved.aor[..]);
            match answer {
                Answer::Done if !is_left_out => self.send(reply, out),
                Answer::Done | Answer::Refused => self.fail(now, reply, Why::Refused, out),
                _ => self.fail(now, reply, Why::Away, out),
            }
        }
        true
    }

    /// Gives up those that have waited too long.
    pub(crate) fn give_up(&mut self, now: Instant, out: &mut Outbox) {
        while self.waiting.front().is_some_and(|reply| reply.deadline <= now)
            && let Some(reply) = self.waiting.pop_front()
        {
            self.fail(now, reply, Why::Away, out);
        }
    }

    fn send(&mut self, reply: Reply, out: &mut Outbox) {
        out.send(reply.path, |buffer| buffer.extend_from_slice(&reply.bytes));
        if self.spare.len() < SPARE_MAX {
            self.spare.push(reply.bytes);
        }
    }

    /// RFC 3261 §10.3 step 7: "If any one of them fails (for example, because a back-end database commit failed), the
    /// request MUST fail with a 500 (Server Error) response and all tentative binding updates MUST be removed." Where
    /// nobody is there to commit, or too slow, it is 503: the phone may try again.
    fn fail(&mut self, now: Instant, reply: Reply, why: Why, out: &mut Outbox) {
        let Reply { path, bytes, unsaved, .. } = reply;
        self.location.undo(now, &unsaved.aor, &unsaved.before, &unsaved.after);
        // The database may have it, whatever it said.
        self.persister.hurry();
        let retry_after = self.retry_after_secs;
        if let Ok(answer) = Message::parse(&bytes, &mut self.index) {
            let mut headers = Vec::new();
            if retry_after > 0 {
                headers.extend_from_slice(format!("Retry-After: {retry_after}\r\n").as_bytes());
            }
            if let Some(server) = answer.header(HeaderName::Server) {
                headers.extend_from_slice(b"Server: ");
                headers.extend_from_slice(server.value);
                headers.extend_from_slice(b"\r\n");
            }
            let (status, reason): (u16, &[u8]) = match why {
                Why::Refused => (500, b"Server Internal Error"),
                Why::Away => (503, b"Service Unavailable"),
            };
            let spec = ResponseSpec {
                status,
                reason,
                // The tag is there already.
                to_tag: None,
                received: None,
                rport: None,
                record_routes: false,
                headers: &headers,
                body: b"",
            };
            // What a response copies of its request, the one that is not sent has copied.
            out.send(path, |buffer| sip::write_response(&answer, &spec, buffer));
        }
    }
}
