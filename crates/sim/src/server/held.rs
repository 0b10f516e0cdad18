//! Answers to REGISTERs that wait for the commit of what they changed, as the server binary holds them back
//! (its `held.rs`; write-through, RFC 3261 §10.3 step 7).

use super::{Deed, Server, Shard, deed_of};
use crate::trace::Micros;
use engine::{Answer, Output, Path};
use location::{Location as _, Traces};
use modules::Unsaved;
use sip::{Index, Instant, Message};
use std::collections::VecDeque;

/// One answer.
struct Reply {
    shard: Shard,
    /// After this it comes too late.
    deadline: Micros,
    path: Path,
    bytes: Vec<u8>,
    unsaved: Unsaved,
    /// Who would send it has begun again.
    is_gone: bool,
}

/// The answers that a server holds, the oldest first.
#[derive(Default)]
pub(super) struct Held {
    waiting: VecDeque<Reply>,
    /// The number of the next one.
    next: u64,
    /// The commit under way is for those below this number.
    asked: u64,
}

impl Held {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn deadline(&self) -> Option<Micros> {
        self.waiting.front().map(|reply| reply.deadline)
    }

    /// What a shard that begins again had held goes nowhere.
    pub(super) fn forget(&mut self, shard: Shard) {
        for reply in self.waiting.iter_mut().filter(|reply| reply.shard == shard) {
            reply.is_gone = true;
        }
    }
}

impl Server {
    /// Takes the answers that must wait out of what a shard has just done.
    pub(super) fn hold(&mut self, now: Micros, shard: Shard) {
        // The last one first: the places of the others stay what they are.
        while let Some(unsaved) = self.shards[shard].user_mut().take_unsaved() {
            let Some(Output::Send { path, bytes }) = self.out.outputs.get(unsaved.output).cloned() else {
                continue;
            };
            let bytes = self.out.bytes[bytes].to_vec();
            self.out.outputs.remove(unsaved.output);
            let timeout = self.settings.persistence.commit_timeout.as_micros() as u64;
            self.held.waiting.push_back(Reply {
                shard,
                deadline: now + timeout,
                path,
                bytes,
                unsaved,
                is_gone: false,
            });
            self.held.next += 1;
        }
    }

    /// Whether an answer waits for which no commit has begun.
    pub fn wants_commit(&self) -> bool {
        self.held.asked < self.held.next
    }

    /// A commit begins that is for all answers that are held.
    pub fn ask_for_held(&mut self) {
        self.held.asked = self.held.next;
    }

    /// The store has answered: those go that the commit was for; all, if there is no store.
    pub fn settle(&mut self, now: Micros, answer: Answer<'_>) -> Vec<Deed> {
        let upto = if answer == Answer::Done { self.held.asked } else { self.held.next };
        let first = self.held.next - self.held.waiting.len() as u64;
        self.held.asked = self.held.asked.max(upto);
        let mut deeds = Vec::new();
        for _ in first..upto {
            let Some(reply) = self.held.waiting.pop_front() else { break };
            if reply.is_gone {
                continue;
            }
            deeds.extend(match answer {
                Answer::Done => Some(deed_of(reply.shard, reply.path, reply.bytes)),
                Answer::Refused => self.fail(now, reply, 500),
                _ => self.fail(now, reply, 503),
            });
        }
        deeds
    }

    /// Gives up those that have waited too long.
    pub(super) fn give_up(&mut self, now: Micros) -> Vec<Deed> {
        let mut deeds = Vec::new();
        while self.held.deadline().is_some_and(|deadline| deadline <= now)
            && let Some(reply) = self.held.waiting.pop_front()
        {
            if !reply.is_gone {
                deeds.extend(self.fail(now, reply, 503));
            }
        }
        deeds
    }

    /// What was changed is undone, and the answer is another one.
    fn fail(&mut self, now: Micros, reply: Reply, status: u16) -> Option<Deed> {
        let Reply { shard, path, bytes, unsaved, .. } = reply;
        let (before, after) = Traces::read(unsaved.traces.as_bytes());
        self.shelf.undo(Instant::from_micros(now), &unsaved.aor, &before, &after);
        let mut index = Index::new();
        let answer = Message::parse(&bytes, &mut index).ok()?;
        let mut written = Vec::new();
        Unsaved::write_failure(&answer, status, b"Retry-After: 5\r\n", &mut written);
        Some(deed_of(shard, path, written))
    }
}
