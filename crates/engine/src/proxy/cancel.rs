//! CANCEL (RFC 3261 §9, §16.10) and Timer C (§16.8).

use crate::client_non_invite::ClientNonInvite;
use crate::io::{Outbox, Output};
use crate::machine::{Actions, Arm};
use crate::shard::Core;
use crate::table::EntryId;
use crate::transaction::{Cancel, Client};
use sip::{Instant, Message};

impl<S> Core<S> {
    /// An upstream CANCEL for an INVITE that is here.
    pub(crate) fn cancel_invite(&mut self, id: EntryId, now: Instant, out: &mut Outbox) {
        let Some(entry) = self.table.get_mut(id) else { return };
        entry.cancelled = true;
        // RFC 3261 §9.2: after a final response it has no effect.
        if entry.server.is_final() {
            return;
        }
        self.cancel_branches(id, now, out);
        let Some(entry) = self.table.get(id) else { return };
        if entry.branches.is_empty() {
            // RFC 3261 §9.2: nobody else will answer it.
            self.reply_local(id, 487, now, out);
        }
    }

    /// Cancels all branches without a final response.
    pub(crate) fn cancel_branches(&mut self, id: EntryId, now: Instant, out: &mut Outbox) {
        let count = self.table.get(id).map_or(0, |entry| entry.branches.len() as u16);
        for index in 0..count {
            self.cancel_branch(id, index, now, out);
        }
    }

    fn cancel_branch(&mut self, id: EntryId, index: u16, now: Instant, out: &mut Outbox) {
        use crate::client_invite::ClientInvite;
        let Some(entry) = self.table.get_mut(id) else { return };
        let Some(branch) = entry.branches.get_mut(usize::from(index)) else { return };
        if branch.is_final() {
            return;
        }
        match branch.client {
            // RFC 3261 §9.1: no CANCEL before a provisional response.
            Client::Invite(ClientInvite::Calling { .. }) => branch.cancel = Cancel::Wanted,
            Client::Invite(ClientInvite::Proceeding) if branch.cancel == Cancel::No => {
                self.send_cancel(id, index, now, out);
            }
            Client::Planned | Client::Resolving => self.fail_branch(id, index, 487),
            _ => {}
        }
    }

    /// Sends the CANCEL of a branch that has a provisional response.
    pub(crate) fn send_cancel(&mut self, id: EntryId, index: u16, now: Instant, out: &mut Outbox) {
        let Some(entry) = self.table.get(id) else { return };
        let Some(branch) = entry.branches.get(usize::from(index)) else { return };
        let delivery = self.delivery(branch.path.listener);
        let (machine, actions) = ClientNonInvite::start(&self.config.timers, delivery);
        if let Some(branch) =
            self.table.get_mut(id).and_then(|entry| entry.branches.get_mut(usize::from(index)))
        {
            branch.cancel = Cancel::Sent(machine);
        }
        self.write_cancel(id, index, out);
        self.counters.cancels_out += 1;
        // RFC 3261 §9.1: after 64*T1 without a final response the INVITE is over.
        let expire = Arm::After(self.config.timers.t1 * 64);
        self.arm_branch(id, index, Actions { expire, ..actions }, now);
    }

    pub(crate) fn write_cancel(&mut self, id: EntryId, index: u16, out: &mut Outbox) {
        let Some(entry) = self.table.get(id) else { return };
        let Some(branch) = entry.branches.get(usize::from(index)) else { return };
        let mut spare = core::mem::take(&mut self.spare);
        let start = out.bytes.len();
        if let Ok(invite) = Message::parse(&branch.sent, &mut spare) {
            sip::derived::write_cancel(&invite, &mut out.bytes);
            out.outputs.push(Output::Send { path: branch.path, bytes: start..out.bytes.len() });
        }
        self.spare = spare;
    }

    /// A response to a CANCEL of ours.
    pub(crate) fn cancel_response(&mut self, id: EntryId, index: u16, status: u16, now: Instant) {
        let timers = &self.config.timers;
        let Some(entry) = self.table.get_mut(id) else { return };
        let Some(branch) = entry.branches.get_mut(usize::from(index)) else { return };
        let Cancel::Sent(machine) = &mut branch.cancel else { return };
        let actions = machine.on_response(status, timers, crate::machine::Delivery::Unreliable);
        // The other timer is the INVITE's.
        self.arm_branch(id, index, Actions { expire: Arm::Keep, ..actions }, now);
    }

    /// Timer C fired: the branch had a provisional response, so it is cancelled (RFC 3261 §16.8).
    pub(crate) fn timer_c(&mut self, id: EntryId, index: u16, now: Instant, out: &mut Outbox) {
        self.send_cancel(id, index, now, out);
    }
}
