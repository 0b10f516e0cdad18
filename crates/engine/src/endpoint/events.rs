//! Timers, transport errors (RFC 3261 §16.9, §18.4) and answers.

use super::{Endpoint, Ran};
use crate::context::TransactionUser;
use crate::io::{Answer, AskId, Outbox, Path, TransportFailure};
use crate::machine::{Actions, Arm};
use crate::reply::is_datagram;
use crate::resolve::Waiter;
use crate::table::EntryId;
use crate::transaction::Client;
use crate::wheel::{TimerKey, Which};
use core::net::{IpAddr, SocketAddr};
use sip::{Instant, Message};

impl<U: TransactionUser> Endpoint<U> {
    pub(super) fn on_timers(&mut self, now: Instant, out: &mut Outbox) {
        let mut budget = self.core.config.limits.timers_per_step_max.max(1);
        while let Some(key) = self.core.wheel.pop(now, &mut budget) {
            self.on_timer(key, now, out);
        }
    }

    pub(super) fn on_timer(&mut self, key: TimerKey, now: Instant, out: &mut Outbox) {
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

    /// RFC 3261 §16.9, §18.4: the requests that were sent there and have no response yet have failed, as by a 503, if
    /// there is no other way for them.
    pub(super) fn on_transport_error(
        &mut self,
        path: Path,
        failure: TransportFailure,
        now: Instant,
        out: &mut Outbox,
    ) {
        let hit = if is_datagram(self.core.own.transport(path.listener)) {
            self.core.waiting_for_datagrams(&path)
        } else {
            if failure == TransportFailure::Unreachable {
                self.core.note_refusal(&path, now);
            }
            self.core.waiting_on_stream(&path)
        };
        for (id, index) in hit {
            self.core.counters.transport_errors += 1;
            let goes_on = match failure {
                TransportFailure::Unreachable => self.try_second(id, index, now, out),
                TransportFailure::Broken => {
                    self.core.send_again(id, index, out) || self.try_second(id, index, now, out)
                }
            };
            if goes_on {
                continue;
            }
            self.core.fail_branch(id, index, 503);
            self.settle(id, now, out);
        }
    }

    /// Sends a branch another way after the first has failed, if there is one; it goes past
    /// [`TransactionUser::on_branch`] again, as it is written anew.
    fn try_second(&mut self, id: EntryId, index: u16, now: Instant, out: &mut Outbox) -> bool {
        let Some(entry) = self.core.table.get_mut(id) else { return false };
        if entry.cancelled || entry.server.is_final() || entry.work.is_none() {
            return false;
        }
        let Some(branch) = entry.branches.get_mut(usize::from(index)) else { return false };
        let Some((listener, port)) = branch.second.take() else { return false };
        let remote = SocketAddr::new(branch.path.remote.ip(), port);
        let local = if listener == entry.path.listener { entry.path.local } else { None };
        branch.path = Path { domain: branch.path.domain, ..Path::new(listener, local, remote) };
        branch.free = false;
        branch.client = Client::Planned;
        self.core.pool.drop(&mut branch.sent);
        self.core.arm_branch(id, index, Actions::END, now);
        self.with_held(id, |this, message, arrival, mut work, mut state| {
            this.send_planned(id, message, arrival, &mut work, &mut state, now, out);
            this.keep(id, work, state);
        });
        self.settle(id, now, out);
        true
    }

    pub(super) fn on_answer(&mut self, id: AskId, answer: Answer<'_>, now: Instant, out: &mut Outbox) {
        let Some(waiter) = self.core.resolver.answered(id) else { return };
        let addresses: &[IpAddr] = match &answer {
            Answer::Addresses(addresses) => addresses,
            _ => &[],
        };
        match waiter {
            Waiter::Request { held, name } => {
                self.core.resolver.remember(&name, addresses, now);
                self.core.forward_held(*held, now, out);
            }
            Waiter::Branch { entry, index, name } => {
                self.core.resolver.remember(&name, addresses, now);
                self.resolved(entry, index, addresses, now, out);
            }
            Waiter::Script { entry } => self.resume(entry, answer, now, out),
        }
    }

    /// The addresses of a branch's next hop are known.
    pub(super) fn resolved(
        &mut self,
        id: EntryId,
        index: u16,
        addresses: &[IpAddr],
        now: Instant,
        out: &mut Outbox,
    ) {
        let branch = self.core.table.get(id).and_then(|entry| entry.branches.get(usize::from(index)));
        let Some(branch) = branch.filter(|branch| branch.client == Client::Resolving) else { return };
        let target = usize::from(branch.target);
        if addresses.is_empty() {
            self.core.counters.resolve_failures += 1;
        }
        self.with_held(id, |this, message, arrival, mut work, mut state| {
            let (core, from) = (&mut this.core, &arrival.path);
            match core.next_hop_at(message, &work.plan, target, from, addresses, now) {
                Ok(way) => {
                    if let Some(entry) = this.core.table.get_mut(id)
                        && let Some(branch) = entry.branches.get_mut(usize::from(index))
                    {
                        branch.client = Client::Planned;
                        branch.path = way.path;
                        branch.free = way.free;
                    }
                    this.core.arm_branch(id, index, Actions::END, now);
                    this.send_planned(id, message, arrival, &mut work, &mut state, now, out);
                }
                // RFC 3261 §16.7: as if a 503 had come.
                Err(_) => this.core.fail_branch(id, index, 503),
            }
            this.keep(id, work, state);
        });
        self.settle(id, now, out);
    }

    /// The answer that a script waited for.
    pub(super) fn resume(&mut self, id: EntryId, answer: Answer<'_>, now: Instant, out: &mut Outbox) {
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
        let mut index = self.index.take().unwrap_or_default();
        let mut ran = Ran { entry: Some(id), cancelled: None };
        if let Ok(message) = Message::parse(&bytes, &mut index) {
            ran = self.run(&message, &arrival, Some(id), work, state, now, out, Some((suspended, answer)));
        }
        self.index = Some(index);
        self.core.give_request_back(id, &mut bytes);
        self.after_script(ran, now, out);
    }
}
