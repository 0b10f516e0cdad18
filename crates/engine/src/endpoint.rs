//! The endpoint: inputs in, outputs out, and the calls to the transaction user in between.

use crate::branch::OwnBranch;
use crate::config::Config;
use crate::context::{
    Arrival, BranchContext, BranchVerdict, Handled, RelayError, ReplyContext, ReplyVerdict, RequestContext,
    TransactionId, TransactionUser,
};
use crate::counters::Counters;
use crate::io::{Answer, Ask, AskId, Input, Outbox, Output, Path};
use crate::machine::{Actions, Arm};
use crate::plan::Work;
use crate::proxy::response::{Settled, Verdict};
use crate::proxy::target::NextHop;
use crate::reply::{Reply, arrival, is_datagram, next_via_path};
use crate::resolve::Waiter;
use crate::shard::{Core, TRANSPORT_ERROR_SCAN_MAX};
use crate::table::EntryId;
use crate::transaction::{Branch, Client};
use crate::wheel::{TimerKey, Which};
use alloc::boxed::Box;
use core::net::IpAddr;
use hashbrown::HashMap;
use sip::{Edits, HeaderName, Index, Instant, Message, Method, NameAddr, Uri};

/// Rounds of failure and new branches after one event, at most: each takes a target, and targets are bounded.
const ROUNDS_MAX: u32 = 64;

/// Transactions, timers and proxy core of one shard.
///
/// [`Endpoint::handle`] is the only way in; after each call, everything in the [`Outbox`] is to be done, in order, and
/// [`Endpoint::next_timeout`] says when to call it with [`Input::Timeout`] at the latest.
pub struct Endpoint<U: TransactionUser> {
    core: Core<U::State>,
    user: U,
    index: Index,
    /// For requests that a transaction holds, while `index` is in use.
    again: Index,
    reply_edits: Edits,
    suspended: HashMap<EntryId, U::Suspended, ahash::RandomState>,
}

/// What a script left behind.
struct Ran {
    /// Its transaction.
    entry: Option<EntryId>,
    /// The INVITE that it cancelled.
    cancelled: Option<EntryId>,
}

impl<U: TransactionUser> Endpoint<U> {
    /// An endpoint at rest.
    pub fn new(config: Config, user: U) -> Endpoint<U> {
        let [one, two, three, four] = config.seed;
        Endpoint {
            suspended: HashMap::with_hasher(ahash::RandomState::with_seeds(two, one, four, three)),
            core: Core::new(config),
            user,
            index: Index::new(),
            again: Index::new(),
            reply_edits: Edits::default(),
        }
    }

    /// Takes in one event; what is to be done is appended to `out`. `now` never goes back.
    ///
    /// A panic in here is a bug of ours or of the user's. Whoever catches it may go on: the next call drops the
    /// transaction that was being worked on and counts it ([`Counters::transactions_lost`]).
    pub fn handle(&mut self, now: Instant, input: Input<'_>, out: &mut Outbox) {
        self.recover();
        let first = out.outputs.len();
        match input {
            Input::Message { path, bytes } => self.on_message(path, bytes, now, out),
            Input::TransportError { path } => self.on_transport_error(path, now, out),
            Input::Answer { id, answer } => self.on_answer(id, answer, now, out),
            Input::Timeout => {}
            Input::Drain => self.core.draining = true,
        }
        self.on_timers(now, out);
        self.core.count_out(out.outputs.get(first..).unwrap_or(&[]));
        self.core.busy = None;
    }

    /// Drops the transaction in whose midst the last call was cut short.
    fn recover(&mut self) {
        if let Some(id) = self.core.busy.take() {
            if let Some(ask) = self.core.table.get(id).and_then(|entry| entry.suspended) {
                self.core.resolver.answered(ask);
            }
            self.suspended.remove(&id);
            self.core.remove(id);
            self.core.counters.transactions_lost += 1;
        }
    }

    /// When to call [`Endpoint::handle`] with [`Input::Timeout`] at the latest; `None` if nothing is pending.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.core.wheel.next()
    }

    /// What has been counted.
    pub fn counters(&self) -> &Counters {
        &self.core.counters
    }

    /// Transactions alive now; 0 at rest.
    pub fn transactions(&self) -> usize {
        self.core.table.len()
    }

    /// Whether no request waits for its final response: after [`Input::Drain`], whether one may stop. Finished
    /// transactions that only absorb retransmissions do not count.
    pub fn is_idle(&self) -> bool {
        self.core.unfinished == 0
    }

    /// Who this server is.
    pub fn own(&self) -> &crate::Own {
        &self.core.own
    }

    #[cfg(test)]
    pub(crate) fn core(&self) -> &Core<U::State> {
        &self.core
    }

    /// The transaction user.
    pub fn user(&self) -> &U {
        &self.user
    }

    /// The transaction user.
    pub fn user_mut(&mut self) -> &mut U {
        &mut self.user
    }

    // --- messages -----------------------------------------------------------------------------------------------------

    fn on_message(&mut self, path: Path, bytes: &[u8], now: Instant, out: &mut Outbox) {
        self.core.counters.messages_in += 1;
        if !self.core.own.has(path.listener) {
            return;
        }
        self.core.own.learn(path.listener, path.local);
        let mut index = core::mem::take(&mut self.index);
        match Message::parse(bytes, &mut index) {
            Ok(message) if message.is_request() => self.on_request(&message, path, now, out),
            Ok(message) => self.on_response(&message, path, now, out),
            Err(_) => {
                self.core.counters.parse_errors += 1;
                let datagram = is_datagram(self.core.own.transport(path.listener));
                crate::bad::answer(bytes, path, datagram, &mut self.core.counters, out);
            }
        }
        self.index = index;
    }

    fn on_request(&mut self, message: &Message<'_>, path: Path, now: Instant, out: &mut Outbox) {
        let core = &mut self.core;
        core.counters.requests_in += 1;
        let transport = core.own.transport(path.listener);
        if is_datagram(transport) {
            let hash = core.address_hash(path.remote.ip());
            core.heard.hear(hash);
        }
        let arrival = arrival(message, path, transport);
        let ack = message.method() == Method::Ack;
        if message.bytes().len() > core.config.limits.message_bytes_max {
            core.counters.too_large += 1;
            if !ack {
                core.reply_stateless(message, &arrival, &Reply::bare(513), out);
            }
            return;
        }
        if let Err(reject) = check(message) {
            core.counters.invalid_requests += 1;
            // A Via that does not parse is sent back as it stands, to where the request came from.
            if !ack && message.header(HeaderName::Via).is_some() {
                let reason = reject.reason.as_bytes();
                let reply = Reply { status: reject.status, reason, headers: b"", body: b"" };
                core.reply_stateless(message, &arrival, &reply, out);
            }
            return;
        }
        if let Some(id) = core.find(message) {
            if !ack {
                core.request_again(id, now, out);
                return;
            }
            // RFC 3261 §17.2.1: the ACK of a failure ends here; that of a 2xx is the user's.
            if !core.ack(id, message, now) {
                core.counters.acks_absorbed += 1;
                return;
            }
        } else if ack && core.is_own_ack(message) {
            core.counters.acks_absorbed += 1;
            return;
        }
        if message.method() == Method::Cancel && self.cancel_again(message, &arrival, out) {
            return;
        }
        if self.refused_while_draining(message, &arrival, out) {
            return;
        }
        let work = self.core.works.take();
        let state = U::State::default();
        let ran = self.run(message, &arrival, None, work, state, now, out, None);
        self.after_script(ran, now, out);
    }

    /// A CANCEL that has been seen: answered as before, without the user.
    fn cancel_again(&mut self, message: &Message<'_>, arrival: &Arrival, out: &mut Outbox) -> bool {
        let Some(invite) = self.core.find_invite(message) else { return false };
        if !self.core.table.get(invite).is_some_and(|entry| entry.cancelled) {
            return false;
        }
        self.core.counters.retransmissions_in += 1;
        self.core.reply_stateless(message, arrival, &Reply::bare(200), out);
        true
    }

    fn refused_while_draining(&mut self, message: &Message<'_>, arrival: &Arrival, out: &mut Outbox) -> bool {
        if !self.core.draining {
            return false;
        }
        let serves = match message.method() {
            Method::Ack | Method::Cancel => true,
            // A call that is up may end; it may not begin again.
            Method::Invite => false,
            _ => message.to_tag().is_some(),
        };
        if !serves {
            self.core.counters.drained += 1;
            self.core.refuse(message, arrival, out);
        }
        !serves
    }

    // --- scripts ------------------------------------------------------------------------------------------------------

    /// Runs the user's script for a request, new or resumed, and does what it left to do; the caller then calls
    /// [`Endpoint::after_script`], when the request's bytes are back in their transaction.
    #[allow(clippy::too_many_arguments)]
    fn run(
        &mut self,
        message: &Message<'_>,
        arrival: &Arrival,
        entry: Option<EntryId>,
        mut work: Box<Work>,
        mut state: U::State,
        now: Instant,
        out: &mut Outbox,
        resumed: Option<(U::Suspended, Answer<'_>)>,
    ) -> Ran {
        let mut cx = RequestContext {
            state: &mut state,
            edits: &mut work.edits,
            plan: &mut work.plan,
            core: &mut self.core,
            out,
            message: *message,
            now,
            arrival: *arrival,
            entry,
            failed: None,
        };
        let handled = match resumed {
            None => self.user.on_request(&mut cx),
            Some((suspended, answer)) => self.user.on_answer(&mut cx, suspended, answer),
        };
        let entry = cx.entry;
        let cancelled = work.plan.cancelled.take();
        let entry = match handled {
            Handled::Done => self.conclude(message, arrival, entry, work, state, now, out),
            Handled::Suspend { state: suspended, ask, deadline } => {
                let wait = (suspended, ask, now + deadline);
                self.suspend(message, arrival, entry, work, state, now, out, wait)
            }
        };
        Ran { entry, cancelled }
    }

    /// Made-up endings of what the script touched go upstream.
    fn after_script(&mut self, ran: Ran, now: Instant, out: &mut Outbox) {
        if let Some(invite) = ran.cancelled {
            self.forget_script(invite);
            self.settle(invite, now, out);
        }
        if let Some(id) = ran.entry {
            self.settle(id, now, out);
        }
    }

    /// The script is done.
    #[allow(clippy::too_many_arguments)]
    fn conclude(
        &mut self,
        message: &Message<'_>,
        arrival: &Arrival,
        entry: Option<EntryId>,
        mut work: Box<Work>,
        mut state: U::State,
        now: Instant,
        out: &mut Outbox,
    ) -> Option<EntryId> {
        let Some(id) = entry else {
            self.answer_error(message, arrival, &work, now, out);
            self.core.works.give(work);
            return None;
        };
        self.send_planned(id, message, arrival, &mut work, &mut state, now, out);
        self.answer_silence(id, message, arrival, &work, now, out);
        self.keep(id, work, state);
        Some(id)
    }

    /// Without a transaction: the error of a relay that the script did not answer.
    fn answer_error(
        &mut self,
        message: &Message<'_>,
        arrival: &Arrival,
        work: &Work,
        now: Instant,
        out: &mut Outbox,
    ) {
        let plan = &work.plan;
        if let Some(error) = plan.error
            && plan.replied.is_none()
            && !plan.forwarded
            && message.method() != Method::Ack
        {
            let _ = self.core.reply_error(None, message, arrival, Some(error), now, out);
        }
    }

    /// With a transaction: a script that neither relayed nor replied leaves the client waiting; it gets the error of
    /// its last relay, or 500.
    fn answer_silence(
        &mut self,
        id: EntryId,
        message: &Message<'_>,
        arrival: &Arrival,
        work: &Work,
        now: Instant,
        out: &mut Outbox,
    ) {
        let Some(entry) = self.core.table.get(id) else { return };
        if entry.server.is_final() || !entry.branches.is_empty() {
            return;
        }
        if entry.cancelled {
            let _ = self.core.reply(id, message, &Reply::bare(487), now, out);
            return;
        }
        let error = work.plan.error;
        let _ = self.core.reply_error(Some(id), message, arrival, error, now, out);
    }

    /// Puts state, and edits and targets where they may be needed again, into the transaction.
    fn keep(&mut self, id: EntryId, work: Box<Work>, state: U::State) {
        let armed = self.user.failure_armed(&state);
        let Some(entry) = self.core.table.get_mut(id) else {
            self.core.works.give(work);
            return;
        };
        let resolving = entry.branches.iter().any(|branch| branch.client == Client::Resolving);
        let untried = work.plan.relayed.is_some() && work.plan.has_untried();
        if !entry.server.is_final() && (armed || resolving || untried) {
            entry.work = Some(work);
        } else {
            self.core.works.give(work);
        }
        entry.state = Some(state);
    }

    /// The script waits for an answer.
    #[allow(clippy::too_many_arguments)]
    fn suspend(
        &mut self,
        message: &Message<'_>,
        arrival: &Arrival,
        entry: Option<EntryId>,
        mut work: Box<Work>,
        mut state: U::State,
        now: Instant,
        out: &mut Outbox,
        (suspended, ask, deadline): (U::Suspended, Ask, Instant),
    ) -> Option<EntryId> {
        let full = self.suspended.len() >= self.core.config.limits.suspended_max;
        let id = match entry {
            Some(id) => Some(id),
            None if full => None,
            None => self.core.create(message, arrival, now).ok(),
        };
        let Some(id) = id.filter(|_| !full) else {
            if full {
                self.core.counters.suspended_full += 1;
            }
            work.plan.error = Some(RelayError::TableFull);
            return self.conclude(message, arrival, entry, work, state, now, out);
        };
        self.send_planned(id, message, arrival, &mut work, &mut state, now, out);
        let open = self.core.table.get(id)?;
        if open.server.is_final() {
            // Nothing can come of the answer; the script has replied already.
            self.keep(id, work, state);
            return Some(id);
        }
        let untouched = open.response.is_empty();
        if untouched && message.method() == Method::Invite && self.core.config.auto_100 {
            // RFC 3261 §17.2.1: the user may need more than 200 ms.
            let _ = self.core.reply(id, message, &Reply::bare(100), now, out);
        }
        let ask_id = self.core.resolver.ask_script(id);
        out.outputs.push(Output::Ask { id: ask_id, ask, deadline });
        self.suspended.insert(id, suspended);
        if let Some(entry) = self.core.table.get_mut(id) {
            entry.suspended = Some(ask_id);
            entry.work = Some(work);
            entry.state = Some(state);
        }
        let expire = Arm::After(deadline.since(now));
        self.core.arm_server(id, Actions { expire, ..Actions::NONE }, now);
        Some(id)
    }

    /// Sends the branches that the script has planned, each past [`TransactionUser::on_branch`].
    #[allow(clippy::too_many_arguments)]
    fn send_planned(
        &mut self,
        id: EntryId,
        message: &Message<'_>,
        arrival: &Arrival,
        work: &mut Work,
        state: &mut U::State,
        now: Instant,
        out: &mut Outbox,
    ) {
        let Some(mark) = work.plan.relayed else { return };
        let count = self.core.table.get(id).map_or(0, |entry| entry.branches.len() as u16);
        for index in 0..count {
            let Some(branch) = self.core.table.get(id).and_then(|e| e.branches.get(usize::from(index)))
            else {
                return;
            };
            if branch.client != Client::Planned {
                continue;
            }
            let (target, path) = (usize::from(branch.target), branch.path);
            work.edits.rewind(mark);
            let verdict = self.user.on_branch(&mut BranchContext {
                state,
                edits: &mut work.edits,
                message: *message,
                index,
                path,
                plan: &mut work.plan,
                target,
                now,
            });
            match verdict {
                BranchVerdict::Send => self.core.send_branch(id, index, message, work, arrival, now, out),
                BranchVerdict::Drop => self.core.fail_branch(id, index, 500),
            }
        }
        work.edits.rewind(mark);
    }

    /// Takes up what a transaction holds, runs `with` on it, and puts it back.
    fn with_held(
        &mut self,
        id: EntryId,
        with: impl FnOnce(&mut Self, &Message<'_>, &Arrival, Box<Work>, U::State),
    ) {
        let Some(arrival) = self.core.arrival_of(id) else { return };
        self.core.busy = Some(id);
        let Some(entry) = self.core.table.get_mut(id) else { return };
        let mut bytes = core::mem::take(&mut entry.request);
        let work = entry.work.take();
        let state = entry.state.take().unwrap_or_default();
        let work = work.unwrap_or_else(|| self.core.works.take());
        let mut index = core::mem::take(&mut self.again);
        match Message::parse(&bytes, &mut index) {
            Ok(message) => with(self, &message, &arrival, work, state),
            Err(_) => self.core.works.give(work),
        }
        self.again = index;
        self.core.give_request_back(id, &mut bytes);
    }

    // --- failures -----------------------------------------------------------------------------------------------------

    /// Looks at a transaction after something happened to its branches, and does what follows from it.
    fn settle(&mut self, id: EntryId, now: Instant, out: &mut Outbox) {
        self.core.busy = Some(id);
        for _ in 0..ROUNDS_MAX {
            match self.core.settled(id) {
                Settled::Open => break,
                Settled::NextGroup => self.next_group(id, now, out),
                Settled::Failed(status) => {
                    if !self.on_failure(id, status, now, out) {
                        self.forward_best(id, now, out);
                        break;
                    }
                }
            }
        }
        self.core.tidy(id);
    }

    /// The targets of the next lower q.
    fn next_group(&mut self, id: EntryId, now: Instant, out: &mut Outbox) {
        self.with_held(id, |this, message, arrival, mut work, mut state| {
            let from = arrival.path;
            if this.core.plan_group(id, message, &mut work.plan, &from, now, out).is_err() {
                for target in &mut work.plan.targets {
                    target.tried = true;
                }
            }
            this.send_planned(id, message, arrival, &mut work, &mut state, now, out);
            this.keep(id, work, state);
        });
    }

    /// Tells the user that all branches failed; whether it did something about it.
    fn on_failure(&mut self, id: EntryId, status: u16, now: Instant, out: &mut Outbox) -> bool {
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
                failed: Some(if status == 503 { 500 } else { status }),
            };
            this.user.on_failure(&mut cx);
            if work.plan.relayed.is_none() {
                work.plan.relayed = mark;
            }
            this.send_planned(id, message, arrival, &mut work, &mut state, now, out);
            this.keep(id, work, state);
        });
        self.core.table.get(id).is_none_or(|entry| entry.server.is_final() || entry.branches.len() > branches)
    }

    /// The best response goes upstream (RFC 3261 §16.7 items 6 to 9).
    fn forward_best(&mut self, id: EntryId, now: Instant, out: &mut Outbox) {
        let Some(entry) = self.core.table.get_mut(id) else { return };
        let (status, mut bytes) = match &mut entry.best {
            Some(best) => (best.status, core::mem::take(&mut best.bytes)),
            None => (500, alloc::vec::Vec::new()),
        };
        let invite = entry.method == Method::Invite;
        let as_it_is = !bytes.is_empty() && status != 503 && (invite || status != 408);
        if as_it_is {
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
    fn forget_script(&mut self, id: EntryId) {
        let Some(entry) = self.core.table.get_mut(id) else { return };
        if !entry.server.is_final() {
            return;
        }
        if let Some(ask) = entry.suspended.take() {
            self.core.resolver.answered(ask);
            self.suspended.remove(&id);
        }
    }

    // --- responses ----------------------------------------------------------------------------------------------------

    fn on_response(&mut self, message: &Message<'_>, path: Path, now: Instant, out: &mut Outbox) {
        self.core.counters.responses_in += 1;
        if sip::validate::response(message).is_err() {
            self.core.counters.invalid_responses += 1;
            return;
        }
        let Ok(via) = message.via_top() else {
            self.core.counters.invalid_responses += 1;
            return;
        };
        // RFC 3261 §18.1.2: a response whose topmost Via is not ours is none for us.
        if !self.core.own.is_own_via(&via) {
            self.core.counters.foreign_responses += 1;
            return;
        }
        match via.branch().and_then(OwnBranch::parse) {
            Some(OwnBranch::Stateful { shard, slot, generation, index, cookie, loop_hash })
                if shard == self.core.config.shard =>
            {
                let id = EntryId { slot, generation };
                let branch = self.core.table.get(id).and_then(|e| e.branches.get(usize::from(index)));
                // RFC 3261 §17.1.3: the whole parameter is compared.
                let ours = |branch: &Branch| branch.cookie == cookie && branch.loop_hash == loop_hash;
                if cookie != 0 && branch.is_some_and(ours) {
                    self.branch_response(id, index, message, path, now, out);
                } else {
                    // RFC 6026 §8.9: a stray response is not forwarded.
                    self.core.counters.stray_responses += 1;
                }
            }
            Some(OwnBranch::Stateless { listener, .. }) => {
                self.stateless_response(message, path, listener, now, out);
            }
            _ => self.core.counters.stray_responses += 1,
        }
    }

    fn branch_response(
        &mut self,
        id: EntryId,
        index: u16,
        message: &Message<'_>,
        path: Path,
        now: Instant,
        out: &mut Outbox,
    ) {
        self.core.busy = Some(id);
        match self.core.branch_response(id, index, message, now, out) {
            Verdict::Absorbed => self.core.tidy(id),
            Verdict::Forward => {
                self.forward(id, message, path, now, out);
                self.settle(id, now, out);
            }
            Verdict::Collected => self.settle(id, now, out),
        }
    }

    /// Past the user and upstream.
    fn forward(&mut self, id: EntryId, message: &Message<'_>, path: Path, now: Instant, out: &mut Outbox) {
        let mut edits = core::mem::take(&mut self.reply_edits);
        edits.clear();
        let mut state = match self.core.table.get_mut(id) {
            Some(entry) => entry.state.take().unwrap_or_default(),
            None => U::State::default(),
        };
        let verdict = self.user.on_reply(&mut ReplyContext {
            state: &mut state,
            edits: &mut edits,
            message: *message,
            path,
            now,
            transaction: Some(TransactionId(id)),
            own: &self.core.own,
        });
        if let Some(entry) = self.core.table.get_mut(id) {
            entry.state = Some(state);
        }
        let provisional = message.status().is_some_and(|status| status < 200);
        if verdict == ReplyVerdict::Forward || !provisional {
            self.core.forward_response(id, message, &mut edits, now, out);
        }
        self.reply_edits = edits;
    }

    /// RFC 3261 §16.11: to the next Via.
    fn stateless_response(
        &mut self,
        message: &Message<'_>,
        path: Path,
        listener: u16,
        now: Instant,
        out: &mut Outbox,
    ) {
        let listener = crate::ListenerId(listener);
        if !self.core.own.has(listener) {
            self.core.counters.stray_responses += 1;
            return;
        }
        let local = if listener == path.listener { path.local } else { None };
        let from = Path { listener, local, ..path };
        let Some(to) = next_via_path(message, from, self.core.own.transport(listener)) else {
            self.core.counters.invalid_responses += 1;
            return;
        };
        let mut edits = core::mem::take(&mut self.reply_edits);
        edits.clear();
        let mut state = U::State::default();
        let verdict = self.user.on_reply(&mut ReplyContext {
            state: &mut state,
            edits: &mut edits,
            message: *message,
            path,
            now,
            transaction: None,
            own: &self.core.own,
        });
        if verdict == ReplyVerdict::Forward {
            edits.pop_via(message);
            out.send(to, |buffer| edits.write(message, buffer));
            self.core.counters.responses_forwarded += 1;
        }
        self.reply_edits = edits;
    }

    // --- timers, errors, answers --------------------------------------------------------------------------------------

    fn on_timers(&mut self, now: Instant, out: &mut Outbox) {
        let mut budget = self.core.config.limits.timers_per_step_max.max(1);
        while let Some(key) = self.core.wheel.pop(now, &mut budget) {
            self.on_timer(key, now, out);
        }
    }

    fn on_timer(&mut self, key: TimerKey, now: Instant, out: &mut Outbox) {
        self.core.timer_fired(key);
        let id = key.entry;
        self.core.busy = Some(id);
        match key.branch {
            Some(index) => self.core.branch_timer(id, index, key.which, now, out),
            None => {
                let waits = self.core.table.get(id).and_then(|entry| entry.suspended);
                match waits.filter(|_| key.which == Which::Expire) {
                    Some(ask) => {
                        self.core.resolver.answered(ask);
                        self.resume(id, Answer::Failed, now, out);
                        return;
                    }
                    None => self.core.server_timer(id, key.which, now, out),
                }
            }
        }
        self.settle(id, now, out);
    }

    /// RFC 3261 §16.9, §18.4: the requests that were sent there and have no response yet have failed, as by a 503.
    fn on_transport_error(&mut self, path: Path, now: Instant, out: &mut Outbox) {
        use crate::client_invite::ClientInvite;
        use crate::client_non_invite::ClientNonInvite;
        let mut hit = alloc::vec::Vec::new();
        for id in self.core.table.ids().take(TRANSPORT_ERROR_SCAN_MAX) {
            let Some(entry) = self.core.table.get(id) else { continue };
            for (index, branch) in entry.branches.iter().enumerate() {
                let waits = matches!(
                    branch.client,
                    Client::Invite(ClientInvite::Calling { .. })
                        | Client::NonInvite(ClientNonInvite::Trying { .. })
                );
                let there = branch.path.listener == path.listener && branch.path.remote == path.remote;
                if waits && there {
                    hit.push((id, index as u16));
                }
            }
        }
        for (id, index) in hit {
            self.core.counters.transport_errors += 1;
            self.core.fail_branch(id, index, 503);
            self.settle(id, now, out);
        }
    }

    fn on_answer(&mut self, id: AskId, answer: Answer<'_>, now: Instant, out: &mut Outbox) {
        let Some(waiter) = self.core.resolver.answered(id) else { return };
        let addresses: &[IpAddr] = match &answer {
            Answer::Addresses(addresses) => addresses,
            Answer::Failed => &[],
        };
        match waiter {
            Waiter::Nobody { name } => self.core.resolver.remember(&name, addresses, now),
            Waiter::Branch { entry, index, name } => {
                self.core.resolver.remember(&name, addresses, now);
                self.resolved(entry, index, addresses, now, out);
            }
            Waiter::Script { entry } => self.resume(entry, answer, now, out),
        }
    }

    /// The addresses of a branch's next hop are known.
    fn resolved(&mut self, id: EntryId, index: u16, addresses: &[IpAddr], now: Instant, out: &mut Outbox) {
        let branch = self.core.table.get(id).and_then(|entry| entry.branches.get(usize::from(index)));
        let Some(branch) = branch.filter(|branch| branch.client == Client::Resolving) else { return };
        let target = usize::from(branch.target);
        if addresses.is_empty() {
            self.core.counters.resolve_failures += 1;
        }
        self.with_held(id, |this, message, arrival, mut work, mut state| {
            let uri = hop_uri(message, &work, target);
            let hop = match uri.and_then(|uri| Uri::parse(uri).ok()) {
                Some(Uri::Sip(uri)) => this.core.locate(&uri, &arrival.path, Some(addresses), now),
                _ => Err(RelayError::NoRoute),
            };
            match hop {
                Ok(NextHop::Path(path)) => {
                    if let Some(entry) = this.core.table.get_mut(id)
                        && let Some(branch) = entry.branches.get_mut(usize::from(index))
                    {
                        branch.client = Client::Planned;
                        branch.path = path;
                    }
                    this.core.arm_branch(id, index, Actions::END, now);
                    this.send_planned(id, message, arrival, &mut work, &mut state, now, out);
                }
                // RFC 3261 §16.7: as if a 503 had come.
                _ => this.core.fail_branch(id, index, 503),
            }
            this.keep(id, work, state);
        });
        self.settle(id, now, out);
    }

    /// The answer that a script waited for.
    fn resume(&mut self, id: EntryId, answer: Answer<'_>, now: Instant, out: &mut Outbox) {
        let Some(suspended) = self.suspended.remove(&id) else { return };
        self.core.busy = Some(id);
        let Some(entry) = self.core.table.get_mut(id) else { return };
        entry.suspended = None;
        self.core.arm_server(id, Actions { expire: Arm::Stop, ..Actions::NONE }, now);
        let final_already = self.core.table.get(id).is_some_and(|entry| entry.server.is_final());
        if final_already {
            self.core.tidy(id);
            return;
        }
        let Some(arrival) = self.core.arrival_of(id) else { return };
        let Some(entry) = self.core.table.get_mut(id) else { return };
        let mut bytes = core::mem::take(&mut entry.request);
        let work = entry.work.take();
        let state = entry.state.take().unwrap_or_default();
        let mut work = work.unwrap_or_else(|| self.core.works.take());
        work.plan.replied = None;
        work.plan.error = None;
        let mut index = Index::new();
        core::mem::swap(&mut index, &mut self.index);
        let mut ran = Ran { entry: Some(id), cancelled: None };
        if let Ok(message) = Message::parse(&bytes, &mut index) {
            ran = self.run(&message, &arrival, Some(id), work, state, now, out, Some((suspended, answer)));
        }
        self.index = index;
        self.core.give_request_back(id, &mut bytes);
        self.after_script(ran, now, out);
    }
}

/// What every element checks (RFC 3261 §8.2, §16.3 item 1), and that a branch names something: one that is the magic
/// cookie alone would be the same for all requests (RFC 4475 §3.2.1 leaves the choice).
fn check(message: &Message<'_>) -> Result<(), sip::Reject> {
    sip::validate::request(message)?;
    let branch = message.via_top().ok().and_then(|via| via.branch());
    if branch.is_some_and(|branch| branch.eq_ignore_ascii_case(crate::branch::MAGIC)) {
        return Err(sip::Reject { status: 400, reason: "Empty Branch" });
    }
    Ok(())
}

/// The URI that a target's next hop was taken from.
fn hop_uri<'a>(message: &Message<'a>, work: &'a Work, target: usize) -> Option<&'a [u8]> {
    let plan = &work.plan;
    if let Some(destination) = plan.destination(target) {
        return Some(destination);
    }
    let route = match plan.path(target) {
        Some(path) => NameAddr::parse(crate::proxy::target::first_value(path)).ok(),
        None => crate::proxy::target::first_route(message, plan),
    };
    Some(route.map_or_else(|| plan.uri(target).unwrap_or(message.request_uri()), |route| route.uri))
}
