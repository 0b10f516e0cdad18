//! What follows when branches have failed (RFC 3261 §16.7): lower q, the user's failure script, the best response.

use super::Endpoint;
use crate::context::{RequestContext, TransactionUser};
use crate::io::Outbox;
use crate::proxy::response::Settled;
use crate::table::EntryId;
use sip::{Instant, Message};

/// Rounds of failure and new branches after one event, at most; past it the best response goes upstream.
const ROUNDS_MAX: u32 = 64;

impl<U: TransactionUser> Endpoint<U> {
    /// Looks at a transaction after something happened to its branches, and does what follows from it.
    pub(super) fn settle(&mut self, id: EntryId, now: Instant, out: &mut Outbox) {
        self.core.busy = Some(id);
        for _ in 0..ROUNDS_MAX {
            match self.core.settled(id) {
                Settled::Open => break,
                Settled::NextGroup => self.next_group(id, now, out),
                Settled::Failed(status) => {
                    if !self.on_failure(id, status, now, out) {
                        break;
                    }
                }
            }
        }
        if self.core.settled(id) != Settled::Open {
            self.forward_best(id, now, out);
        }
        self.core.tidy(id);
    }

    /// The targets of the next lower q.
    pub(super) fn next_group(&mut self, id: EntryId, now: Instant, out: &mut Outbox) {
        self.with_held(id, |this, message, arrival, mut work, mut state| {
            let from = arrival.path;
            if let Err(error) = this.core.plan_group(id, message, &mut work.plan, &from, now, out) {
                for target in &mut work.plan.targets {
                    target.tried = true;
                }
                this.core.note_breadth(id, Some(error));
            }
            this.send_planned(id, message, arrival, &mut work, &mut state, now, out);
            this.keep(id, work, state);
        });
    }

    /// Tells the user that all branches failed; whether it did something about it.
    pub(super) fn on_failure(&mut self, id: EntryId, status: u16, now: Instant, out: &mut Outbox) -> bool {
        let armed = self.core.table.get(id).and_then(|entry| entry.state.as_ref());
        if !armed.is_some_and(|state| self.user.failure_armed(state)) {
            return false;
        }
        let branches = self.core.table.get(id).map_or(0, |entry| entry.branches.len());
        self.with_held(id, |this, message, arrival, mut work, mut state| {
            let mark = work.plan.relayed.take();
            let mut cx = RequestContext {
                state: &mut state,
                edits: &mut work.edits,
                plan: &mut work.plan,
                core: &mut this.core,
                out,
                message: *message,
                now,
                arrival: *arrival,
                entry: Some(id),
                has_waited: false,
                failed: Some(if status == 503 { 500 } else { status }),
            };
            this.user.on_failure(&mut cx);
            let arrival = cx.arrival;
            this.core.note_breadth(id, work.plan.error);
            if work.plan.relayed.is_none() {
                work.plan.relayed = mark;
            }
            this.send_planned(id, message, &arrival, &mut work, &mut state, now, out);
            this.keep(id, work, state);
        });
        self.core.table.get(id).is_none_or(|entry| entry.server.is_final() || entry.branches.len() > branches)
    }

    /// The best response goes upstream (RFC 3261 §16.7 items 6 to 9).
    pub(super) fn forward_best(&mut self, id: EntryId, now: Instant, out: &mut Outbox) {
        let timer_f = self.core.config.timers.timer_f;
        let Some(entry) = self.core.table.get_mut(id) else { return };
        let (status, mut bytes) = match &mut entry.best {
            Some(best) => (best.status, core::mem::take(&mut best.bytes)),
            None => (500, alloc::vec::Vec::new()),
        };
        if !bytes.is_empty() && entry.passes_on(status, timer_f, now) {
            let path = entry.path;
            let mut index = core::mem::take(&mut self.again);
            if let Ok(message) = Message::parse(&bytes, &mut index) {
                self.forward(id, &message, path, now, out);
            }
            self.again = index;
        }
        self.core.pool.drop(&mut bytes);
        // Whatever could not be forwarded is answered all the same.
        if self.core.table.get(id).is_some_and(|entry| !entry.server.is_final()) {
            self.core.reply_best(id, status, now, out);
        }
    }

    /// The script of a transaction that has its final response will not go on.
    pub(super) fn forget_script(&mut self, id: EntryId) {
        let Some(entry) = self.core.table.get_mut(id) else { return };
        if !entry.server.is_final() {
            return;
        }
        if let Some(ask) = entry.suspended.take() {
            self.core.resolver.answered(ask);
            self.suspended.remove(&id);
        }
    }
}
