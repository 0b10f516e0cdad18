//! One shard of the server: an engine with the script as its user, and what it does besides messages.

use std::sync::Arc;
use std::time::Duration;

use engine::{Ask, AskId, DomainId, Endpoint, Input, Outbox};
use location::Location as _;
use modules::ScriptUser;
use net::{Control, Handler, Post, Statistics};
use sip::Instant;

use crate::asks::Asks;
use crate::held::Held;
use crate::log::ScriptLog;
use crate::striped::Striped;
use crate::totals::{Snapshot, Totals};

/// How soon the removal of expired bindings goes on while some are left over.
const EXPIRE_AGAIN: Duration = Duration::from_millis(10);

/// Expired bindings removed in one step, over all stripes: some tenths of a millisecond.
const EXPIRE_BUDGET: usize = 1_024;

/// What a shard's loop drives.
pub(crate) struct ShardHandler {
    pub(crate) index: usize,
    pub(crate) shards: u8,
    /// Key of the hash that steers requests: the same for all shards.
    pub(crate) steer_key: [u64; 4],
    pub(crate) endpoint: Endpoint<ScriptUser<Striped, ScriptLog>>,
    pub(crate) location: Striped,
    pub(crate) asks: Asks,
    /// Answers that wait for commits; `None` where none do.
    pub(crate) held: Option<Held>,
    pub(crate) totals: Arc<Totals>,
    pub(crate) control: Arc<Control>,
    /// How often expired bindings are removed while none are left over; look-ups never see them anyway.
    pub(crate) expire_every: Duration,
    /// When this shard next removes expired bindings; only the first one does.
    pub(crate) expire_at: Instant,
}

impl ShardHandler {
    fn expire(&mut self, now: Instant) {
        if self.expire_at > now {
            return;
        }
        let removed = self.location.expire(now, EXPIRE_BUDGET);
        self.expire_at = now + if removed < EXPIRE_BUDGET { self.expire_every } else { EXPIRE_AGAIN };
    }
}

impl Handler for ShardHandler {
    fn shard_of(&self, message: &[u8]) -> usize {
        usize::from(engine::steer(message, self.shards, self.steer_key))
    }

    fn handle(&mut self, now: Instant, input: Input<'_>, out: &mut Outbox) {
        if let Some(held) = &mut self.held {
            if let Input::Answer { id, answer } = &input
                && held.answered(now, *id, answer, out)
            {
                return;
            }
            held.give_up(now, out);
            held.release(matches!(input, Input::Message { .. }), out);
        }
        if matches!(input, Input::Timeout) {
            self.expire(now);
        }
        self.endpoint.handle(now, input, out);
        if let Some(held) = &mut self.held {
            // The last one first: the places of the others stay what they are.
            while let Some(unsaved) = self.endpoint.user_mut().take_unsaved() {
                held.hold(now, &unsaved, out);
            }
        }
    }

    fn settle(&mut self) {
        if let Some(held) = &mut self.held {
            held.ask_for_commit();
        }
    }

    fn domain(&self, id: DomainId) -> &[u8] {
        self.endpoint.domain(id)
    }

    fn ask(&mut self, id: AskId, ask: Ask, deadline: Instant, post: &Post) {
        self.asks.ask(id, ask, deadline, post);
    }

    fn next_timeout(&self) -> Option<Instant> {
        let held = self.held.as_ref().and_then(Held::next_timeout);
        let engine = self.endpoint.next_timeout();
        [engine, held, Some(self.expire_at)].into_iter().flatten().min()
    }

    fn is_idle(&self) -> bool {
        self.endpoint.is_idle() && self.held.as_ref().is_none_or(Held::is_empty)
    }

    fn report(&mut self, statistics: &Statistics) {
        let snapshot = Snapshot {
            reports: self.control.reports(),
            loop_statistics: *statistics,
            counters: self.endpoint.counters().clone(),
            authentication: self.endpoint.user().auth_counters(),
            transactions: self.endpoint.transactions(),
        };
        self.totals.put(self.index, snapshot);
    }
}
