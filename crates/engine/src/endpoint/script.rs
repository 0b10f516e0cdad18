//! Running the user's script for a request, and doing what it left to do.

use super::{Endpoint, Ran};
use crate::context::{
    Arrival, BranchContext, BranchVerdict, Handled, RelayError, RequestContext, TransactionUser,
};
use crate::io::{Answer, Ask, Outbox, Output};
use crate::machine::{Actions, Arm};
use crate::plan::Work;
use crate::reply::Reply;
use crate::table::EntryId;
use crate::transaction::Client;
use alloc::boxed::Box;
use sip::{Instant, Message, Method};

impl<U: TransactionUser> Endpoint<U> {
    /// Runs the user's script for a request, new or resumed, and does what it left to do; the caller then calls
    /// [`Endpoint::after_script`], when the request's bytes are back in their transaction.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn run(
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
            has_waited: resumed.is_some(),
            failed: None,
        };
        let handled = match resumed {
            None => self.user.on_request(&mut cx),
            Some((suspended, answer)) => self.user.on_answer(&mut cx, suspended, answer),
        };
        // The script may have changed the way back.
        let (entry, arrival) = (cx.entry, cx.arrival);
        let arrival = &arrival;
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
    pub(super) fn after_script(&mut self, ran: Ran, now: Instant, out: &mut Outbox) {
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
    pub(super) fn conclude(
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
        if self.core.is_ephemeral(id) {
            // It was there for the time of waiting. Whatever the script has sent, it has sent without state.
            self.answer_error(message, arrival, &work, now, out);
            self.core.works.give(work);
            if let Some(entry) = self.core.table.get_mut(id) {
                entry.server.terminate();
            }
            return Some(id);
        }
        self.send_planned(id, message, arrival, &mut work, &mut state, now, out);
        self.answer_silence(id, message, arrival, &work, now, out);
        self.keep(id, work, state);
        Some(id)
    }

    /// Without a transaction: the error of a relay that the script did not answer.
    pub(super) fn answer_error(
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
    pub(super) fn answer_silence(
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
    pub(super) fn keep(&mut self, id: EntryId, work: Box<Work>, state: U::State) {
        let armed = self.user.failure_armed(&state);
        let Some(entry) = self.core.table.get_mut(id) else {
            self.core.works.give(work);
            return;
        };
        let resolving = entry.branches.iter().any(|branch| branch.client == Client::Resolving);
        let untried = work.plan.relayed.is_some() && work.plan.has_untried();
        let second = entry.branches.iter().any(|branch| branch.second.is_some() && !branch.replied);
        if !entry.server.is_final() && (armed || resolving || untried || second) {
            entry.work = Some(work);
        } else {
            self.core.works.give(work);
        }
        entry.state = Some(state);
    }

    /// The script waits for an answer.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn suspend(
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
            None => self.core.create_ephemeral(message, arrival, now).ok(),
        };
        let Some(id) = id.filter(|_| !full) else {
            if full {
                self.core.counters.suspended_full += 1;
            }
            self.user.on_abandoned(suspended, now);
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
            self.core.keep_transaction(id);
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
    pub(super) fn send_planned(
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
                own: &self.core.own,
            });
            match verdict {
                BranchVerdict::Send => self.core.send_branch(id, index, message, work, arrival, now, out),
                BranchVerdict::Drop => self.core.fail_branch(id, index, 500),
            }
        }
        work.edits.rewind(mark);
    }

    /// Takes up what a transaction holds, runs `with` on it, and puts it back.
    pub(super) fn with_held(
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
}
