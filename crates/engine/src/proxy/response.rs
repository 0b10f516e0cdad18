//! Response processing (RFC 3261 §16.7): what a response does to its branch, which one goes upstream, and what is made
//! up where none came.

use crate::context::{Arrival, RelayError};
use crate::io::{Outbox, Output, Path};
use crate::machine::{Actions, Arm, Emit, Report};
use crate::proxy::loop_detection::has_second_via;
use crate::server_non_invite::ServerNonInvite;
use crate::shard::{Core, TRANSPORT_ERROR_SCAN_MAX};
use crate::table::EntryId;
use crate::transaction::{Best, Cancel, Client, Server};
use crate::wheel::Which;
use alloc::vec::Vec;
use core::net::SocketAddr;
use sip::{Edits, HeaderName, Instant, Message, Method};

/// Bytes of collected challenges that are added to a 401 or 407; further ones are left out.
const CHALLENGE_BYTES_MAX: usize = 8_192;

/// What is to be done with a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Verdict {
    /// Nothing more.
    Absorbed,
    /// It goes upstream now.
    Forward,
    /// It is one of those to choose from.
    Collected,
}

/// What becomes of a transaction whose branches may all have failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Settled {
    /// It goes on, or is over already.
    Open,
    /// The targets of the next lower q are due.
    NextGroup,
    /// All is lost; this status is the best.
    Failed(u16),
}

/// How good a response is, smaller is better (RFC 3261 §16.7 item 6).
fn rank(status: u16) -> u16 {
    let class = status / 100;
    match status {
        600.. => 0,
        // What tells the client how to do better.
        401 | 407 | 415 | 420 | 484 => class * 10,
        // Made up as often as received: anything else says more.
        408 | 503 => class * 10 + 2,
        _ => class * 10 + 1,
    }
}

fn is_challenge(status: u16) -> bool {
    matches!(status, 401 | 407)
}

impl<S> Core<S> {
    /// A response with a branch of ours: runs its client transaction.
    pub(crate) fn branch_response(
        &mut self,
        id: EntryId,
        index: u16,
        message: &Message<'_>,
        now: Instant,
        out: &mut Outbox,
    ) -> Verdict {
        let status = message.status().unwrap_or(0);
        let Some(entry) = self.table.get(id) else { return Verdict::Absorbed };
        let Some(branch) = entry.branches.get(usize::from(index)) else { return Verdict::Absorbed };
        let delivery = self.delivery(branch.path.listener);
        // RFC 3261 §17.1.3: the CANCEL has the branch of its INVITE.
        if message.method() == Method::Cancel && entry.method == Method::Invite {
            self.cancel_response(id, index, status, now);
            return Verdict::Absorbed;
        }
        if message.method() != entry.method {
            self.counters.stray_responses += 1;
            return Verdict::Absorbed;
        }
        let timers = &self.config.timers;
        let Some(branch) =
            self.table.get_mut(id).and_then(|entry| entry.branches.get_mut(usize::from(index)))
        else {
            return Verdict::Absorbed;
        };
        branch.replied = true;
        self.waiting.remove(&mut branch.waiting);
        let actions = match &mut branch.client {
            Client::Invite(machine) => machine.on_response(status, timers, delivery),
            Client::NonInvite(machine) => machine.on_response(status, timers, delivery),
            Client::Planned | Client::Resolving | Client::Gone => Actions::NONE,
        };
        // The timer belongs to the CANCEL since that was sent: its copies go on while the INVITE rings (RFC 3261 §9.1).
        let rings = status < 200 && matches!(branch.cancel, Cancel::Sent(_));
        let resend = if rings { Arm::Keep } else { actions.resend };
        self.arm_branch(id, index, Actions { resend, ..actions }, now);
        match actions.emit {
            Emit::Ack => self.acknowledge(id, index, message, out),
            Emit::Again => self.resend_request(id, index, out),
            Emit::New | Emit::Nothing => {}
        }
        if actions.report != Report::Message {
            return Verdict::Absorbed;
        }
        match status {
            ..200 => self.provisional(id, index, status, now, out),
            200..=299 => self.success(id, index, status, now),
            _ => self.failure(id, index, message, status, now, out),
        }
    }

    fn provisional(
        &mut self,
        id: EntryId,
        index: u16,
        status: u16,
        now: Instant,
        out: &mut Outbox,
    ) -> Verdict {
        let timer_c = self.config.timers.timer_c;
        let Some(entry) = self.table.get_mut(id) else { return Verdict::Absorbed };
        let (server, invite) = (entry.server, entry.method == Method::Invite);
        let Some(branch) = entry.branches.get_mut(usize::from(index)) else { return Verdict::Absorbed };
        match branch.cancel {
            // RFC 3261 §9.1: now the CANCEL may go out.
            Cancel::Wanted => self.send_cancel(id, index, now, out),
            Cancel::No if invite && (status > 100 || branch.expire_is_timer_b()) => {
                // RFC 3261 §16.7 item 2: Timer C starts again with each 101 to 199.
                let from = if status > 100 { now } else { branch.sent_at };
                branch.timer_c = true;
                let left = (from + branch.ringing.unwrap_or(timer_c)).since(now);
                self.arm_branch(id, index, Actions { expire: Arm::After(left), ..Actions::NONE }, now);
            }
            Cancel::No | Cancel::Sent(_) => {}
        }
        // RFC 3261 §16.7 item 5; RFC 4320 §4.1: no provisional response to a non-INVITE but our own 100.
        if status == 100 || !invite || server.is_final() { Verdict::Absorbed } else { Verdict::Forward }
    }

    fn success(&mut self, id: EntryId, index: u16, status: u16, now: Instant) -> Verdict {
        let timer_f = self.config.timers.timer_f;
        let Some(entry) = self.table.get_mut(id) else { return Verdict::Absorbed };
        let invite = entry.method == Method::Invite;
        // RFC 4320 §4.2: no late final response to a non-INVITE.
        let late = !invite && (entry.server.is_final() || entry.is_given_up(timer_f, now));
        let is_answered = entry.server.is_final();
        let Some(branch) = entry.branches.get_mut(usize::from(index)) else { return Verdict::Absorbed };
        branch.status = status;
        branch.cancel = Cancel::No;
        self.pool.drop(&mut branch.sent);
        if !late {
            return Verdict::Forward;
        }
        if !is_answered {
            self.stay_silent(id, None, now);
        }
        Verdict::Absorbed
    }

    /// Ends a non-INVITE transaction without a final response (RFC 4320 §4.2). The request is that of the transaction where the
    /// caller has not taken it.
    pub(crate) fn stay_silent(&mut self, id: EntryId, request: Option<&Message<'_>>, now: Instant) {
        let Some(path) = self.table.get(id).map(|entry| entry.path) else { return };
        let delivery = self.delivery(path.listener);
        let Some(entry) = self.table.get_mut(id) else { return };
        let Server::NonInvite(machine) = &mut entry.server else { return };
        // The client's Timer F, and what is in the network then.
        let left = (entry.created + self.config.timers.timer_f + self.config.timers.t4).since(now);
        let actions = machine.on_silence(left, delivery);
        let is_due = *machine == ServerNonInvite::Silent;
        self.arm_server(id, actions, now);
        match request {
            Some(request) if is_due => self.write_trying(id, request),
            None if is_due => self.write_trying_of_held(id),
            _ => {}
        }
        self.finish(id, 0);
    }

    fn failure(
        &mut self,
        id: EntryId,
        index: u16,
        message: &Message<'_>,
        status: u16,
        now: Instant,
        out: &mut Outbox,
    ) -> Verdict {
        let timer_f = self.config.timers.timer_f;
        let Some(entry) = self.table.get_mut(id) else { return Verdict::Absorbed };
        let invite = entry.method == Method::Invite;
        let Some(branch) = entry.branches.get_mut(usize::from(index)) else { return Verdict::Absorbed };
        branch.status = status;
        branch.cancel = Cancel::No;
        if !invite {
            self.pool.drop(&mut branch.sent);
        }
        if entry.server.is_final() {
            return Verdict::Absorbed;
        }
        let alone = entry.branches.len() == 1 && entry.best.is_none() && entry.work.is_none();
        if alone && entry.passes_on(status, timer_f, now) {
            return Verdict::Forward;
        }
        self.collect(id, index, status, Some(message));
        if status >= 600 {
            // RFC 3261 §16.7 item 5: no new branches, and the pending ones are cancelled.
            if let Some(entry) = self.table.get_mut(id) {
                entry.declined = true;
            }
            self.cancel_branches(id, now, out);
        }
        Verdict::Collected
    }

    /// Remembers a failure, received or made up (RFC 3261 §16.7 items 4 and 6).
    pub(crate) fn collect(&mut self, id: EntryId, index: u16, status: u16, response: Option<&Message<'_>>) {
        let Some(entry) = self.table.get_mut(id) else { return };
        let mut challenges = core::mem::take(&mut entry.challenges);
        let better = entry.best.as_ref().is_none_or(|best| rank(status) < best.rank);
        if better {
            let bytes = response.map_or_else(Vec::new, |response| self.pool.copy(response.bytes()));
            if let Some(mut old) =
                entry.best.replace(Best { status, rank: rank(status), branch: index, bytes })
            {
                if is_challenge(old.status) {
                    let mut index = core::mem::take(&mut self.spare);
                    if let Ok(old) = Message::parse(&old.bytes, &mut index) {
                        take_challenges(&old, &mut challenges);
                    }
                    self.spare = index;
                }
                self.pool.drop(&mut old.bytes);
            }
        } else if let Some(response) = response.filter(|_| is_challenge(status)) {
            take_challenges(response, &mut challenges);
        }
        if let Some(entry) = self.table.get_mut(id) {
            entry.challenges = challenges;
        }
    }

    /// Targets that cannot be tried for want of Max-Breadth are what the client is told of, whatever the others have said
    /// (RFC 5393 §5.3.3).
    pub(crate) fn note_breadth(&mut self, id: EntryId, error: Option<RelayError>) {
        if error != Some(RelayError::Breadth) {
            return;
        }
        let Some(entry) = self.table.get_mut(id) else { return };
        let branch = entry.best.as_ref().map_or(0, |best| best.branch);
        let best = Best { status: RelayError::Breadth.status(), rank: 0, branch, bytes: Vec::new() };
        if let Some(mut old) = entry.best.replace(best) {
            self.pool.drop(&mut old.bytes);
        }
    }

    /// A branch failed without a response (RFC 3261 §16.8, §16.9).
    pub(crate) fn fail_branch(&mut self, id: EntryId, index: u16, status: u16) {
        let Some(entry) = self.table.get_mut(id) else { return };
        let open = !entry.server.is_final();
        let Some(branch) = entry.branches.get_mut(usize::from(index)) else { return };
        if branch.is_final() {
            return;
        }
        branch.status = status;
        branch.client = Client::Gone;
        branch.cancel = Cancel::No;
        self.wheel.cancel(&mut branch.resend);
        self.wheel.cancel(&mut branch.expire);
        self.waiting.remove(&mut branch.waiting);
        self.pool.drop(&mut branch.sent);
        if open {
            self.collect(id, index, status, None);
        }
    }

    /// What becomes of a transaction after something happened to its branches.
    pub(crate) fn settled(&self, id: EntryId) -> Settled {
        let Some(entry) = self.table.get(id) else { return Settled::Open };
        if entry.server.is_final() || entry.suspended.is_some() || !entry.all_final() {
            return Settled::Open;
        }
        if entry.branches.is_empty() {
            return Settled::Open;
        }
        // A final response that could not be forwarded leaves nothing to choose from.
        let status = entry.best.as_ref().map_or(500, |best| best.status);
        let more = entry.work.as_ref().is_some_and(|work| work.plan.has_untried());
        // RFC 3261 §16.10: a cancelled request gets no new branches.
        if more && !entry.cancelled && !entry.declined { Settled::NextGroup } else { Settled::Failed(status) }
    }

    /// Sends a response upstream, the topmost Via taken off.
    pub(crate) fn forward_response(
        &mut self,
        id: EntryId,
        message: &Message<'_>,
        edits: &mut Edits,
        now: Instant,
        out: &mut Outbox,
    ) {
        let status = message.status().unwrap_or(0);
        // RFC 3261 §16.7 item 3: without a further Via it was meant for us.
        if !has_second_via(message) {
            self.counters.invalid_responses += 1;
            return;
        }
        let Some(entry) = self.table.get_mut(id) else { return };
        let (path, invite) = (entry.reply_path, entry.method == Method::Invite);
        if is_challenge(status) && !entry.challenges.is_empty() {
            // RFC 3261 §16.7 item 7.
            edits.append_header(message, &entry.challenges);
        }
        edits.pop_via(message);
        if edits.is_overflowed() {
            // A final response that is missing is made up for by the caller.
            self.counters.edits_full += 1;
            return;
        }
        let start = out.bytes.len();
        edits.write(message, &mut out.bytes);
        self.add_content_length(message, path.listener, start, &mut out.bytes);
        let end = out.bytes.len();
        let passes = self.sent_upstream(id, status, now, out.bytes.get(start..end).unwrap_or(b""));
        // RFC 3261 §16.7 item 5: every 2xx to an INVITE, whatever was sent before.
        let accepted = invite && (200..300).contains(&status);
        if !passes && !accepted {
            out.bytes.truncate(start);
            return;
        }
        out.outputs.push(Output::Send { path, bytes: start..end });
        self.counters.responses_forwarded += 1;
        if accepted {
            // RFC 3261 §16.7 item 10.
            self.cancel_branches(id, now, out);
        }
    }

    /// Replies with the best status where it cannot be forwarded: nothing was received, or it is a 503 (RFC 3261 §16.7
    /// item 6). A non-INVITE gets no 408 (RFC 4320 §4.2): its client has long given up.
    pub(crate) fn reply_best(&mut self, id: EntryId, status: u16, now: Instant, out: &mut Outbox) {
        let Some(entry) = self.table.get_mut(id) else { return };
        let late = entry.is_given_up(self.config.timers.timer_f, now);
        if entry.method != Method::Invite && (status == 408 || late) {
            self.stay_silent(id, None, now);
            return;
        }
        self.reply_local(id, if status == 503 { 500 } else { status }, now, out);
        // A request that is not there to be answered must not stay for ever.
        if let Some(entry) = self.table.get_mut(id)
            && !entry.server.is_final()
        {
            entry.server.terminate();
            self.arm_server(id, Actions::END, now);
            self.finish(id, 0);
        }
    }

    /// A timer of a branch.
    pub(crate) fn branch_timer(
        &mut self,
        id: EntryId,
        index: u16,
        which: Which,
        now: Instant,
        out: &mut Outbox,
    ) {
        let timers = &self.config.timers;
        let Some(entry) = self.table.get_mut(id) else { return };
        let Some(branch) = entry.branches.get_mut(usize::from(index)) else { return };
        let actions = match (&mut branch.client, &mut branch.cancel, which) {
            (_, Cancel::Sent(machine), Which::Resend) => {
                let actions = machine.on_resend(timers);
                self.arm_branch(id, index, Actions { emit: Emit::Nothing, ..actions }, now);
                if actions.emit == Emit::Again {
                    self.counters.retransmissions_out += 1;
                    self.write_cancel(id, index, out);
                }
                return;
            }
            (Client::Resolving, _, Which::Expire) => {
                self.counters.resolve_failures += 1;
                self.fail_branch(id, index, 503);
                return;
            }
            (Client::Invite(_), Cancel::No, Which::Expire) if branch.timer_c && branch.status == 0 => {
                self.counters.timeouts += 1;
                branch.timed_out = true;
                self.timer_c(id, index, now, out);
                return;
            }
            (Client::Invite(machine), _, Which::Resend) => machine.on_resend(),
            (Client::Invite(machine), _, Which::Expire) => machine.on_expire(),
            (Client::NonInvite(machine), _, Which::Resend) => machine.on_resend(timers),
            (Client::NonInvite(machine), _, Which::Expire) => machine.on_expire(),
            _ => Actions::NONE,
        };
        if actions.emit == Emit::Again {
            self.resend_request(id, index, out);
        }
        self.arm_branch(id, index, actions, now);
        if actions.report == Report::Timeout {
            self.counters.timeouts += 1;
            self.note_timeout(id, index);
            // RFC 3261 §16.7: a timeout is a 408; of a cancelled branch it is the end that the CANCEL asked for.
            let cancelled = self.table.get(id).is_some_and(|entry| entry.cancelled);
            self.fail_branch(id, index, if cancelled { 487 } else { 408 });
        } else {
            self.release_branch(id, index);
        }
    }

    fn note_timeout(&mut self, id: EntryId, index: u16) {
        let entry = self.table.get_mut(id);
        if let Some(branch) = entry.and_then(|entry| entry.branches.get_mut(usize::from(index))) {
            branch.timed_out = true;
        }
    }

    /// Gives back what an ended branch held.
    fn release_branch(&mut self, id: EntryId, index: u16) {
        if let Some(entry) = self.table.get_mut(id)
            && let Some(branch) = entry.branches.get_mut(usize::from(index))
            && branch.client.is_terminated()
        {
            self.pool.drop(&mut branch.sent);
        }
    }

    fn resend_request(&mut self, id: EntryId, index: u16, out: &mut Outbox) {
        let Some(branch) = self.table.get(id).and_then(|entry| entry.branches.get(usize::from(index))) else {
            return;
        };
        if branch.sent.is_empty() {
            return;
        }
        out.send(branch.path, |buffer| buffer.extend_from_slice(&branch.sent));
        self.counters.retransmissions_out += 1;
    }

    /// Sends an INVITE once more whose connection has broken, by another one; whether it goes on.
    ///
    /// The first copy may have arrived. So this one has the same branch: whoever has the first takes it for a copy (RFC
    /// 3261 §17.2.3), and what the first is answered, by a connection that its receiver opens (§18.2.2), still counts.
    /// Other requests are forgotten on streams as soon as they are answered (§17.2.2, Timer J): a copy would be a new one.
    pub(crate) fn send_again(&mut self, id: EntryId, index: u16, out: &mut Outbox) -> bool {
        let Some(entry) = self.table.get_mut(id) else { return false };
        let invite = entry.method == Method::Invite;
        let is_final = entry.server.is_final();
        let Some(branch) = entry.branches.get_mut(usize::from(index)) else { return false };
        let listener = branch.path.listener;
        // RFC 3261 §18.1.1: a peer that had a connection needs no UDP.
        branch.second = branch.second.take().filter(|second| second.0 == listener);
        if is_final || branch.cancel != Cancel::No {
            // RFC 3261 §9.1: if it rings, it says so and is cancelled; what does not must not begin to.
            return true;
        }
        if !invite || core::mem::replace(&mut branch.sent_again, true) {
            return false;
        }
        // The port where the peer says that it listens.
        if let Some((_, port)) = branch.second.take() {
            let remote = SocketAddr::new(branch.path.remote.ip(), port);
            branch.path =
                Path { domain: branch.path.domain, ..Path::new(listener, branch.path.local, remote) };
        }
        branch.waiting = self.waiting.insert(listener, branch.path.remote, id, index);
        self.resend_request(id, index, out);
        true
    }

    /// Sends the ACK of a failure, and keeps it instead of the INVITE (RFC 3261 §17.1.1.3).
    fn acknowledge(&mut self, id: EntryId, index: u16, response: &Message<'_>, out: &mut Outbox) {
        let Some(branch) =
            self.table.get_mut(id).and_then(|entry| entry.branches.get_mut(usize::from(index)))
        else {
            return;
        };
        let mut spare = core::mem::take(&mut self.spare);
        let start = out.bytes.len();
        if let Ok(invite) = Message::parse(&branch.sent, &mut spare) {
            sip::derived::write_ack(&invite, response, &mut out.bytes);
        }
        self.spare = spare;
        let end = out.bytes.len();
        if end == start {
            return;
        }
        let ack = out.bytes.get(start..end).unwrap_or(b"");
        if branch.client.is_terminated() {
            self.pool.drop(&mut branch.sent);
        } else {
            self.pool.store(&mut branch.sent, ack);
            self.pool.fit(&mut branch.sent);
        }
        out.outputs.push(Output::Send { path: branch.path, bytes: start..end });
    }

    /// The branches without a response that were sent to a peer by datagrams, among the first
    /// [`TRANSPORT_ERROR_SCAN_MAX`] transactions.
    pub(crate) fn waiting_for_datagrams(&self, path: &Path) -> Vec<(EntryId, u16)> {
        let mut hit = Vec::new();
        for id in self.table.ids().take(TRANSPORT_ERROR_SCAN_MAX) {
            let Some(entry) = self.table.get(id) else { continue };
            for (index, branch) in entry.branches.iter().enumerate() {
                let there = branch.path.listener == path.listener && branch.path.remote == path.remote;
                if there && branch.client.is_unanswered() {
                    hit.push((id, index as u16));
                }
            }
        }
        hit
    }

    /// The branches without a response that were sent to a peer by a stream; they wait there no longer.
    pub(crate) fn waiting_on_stream(&mut self, path: &Path) -> Vec<(EntryId, u16)> {
        let hit: Vec<(EntryId, u16)> = self.waiting.at(path.listener, path.remote).collect();
        for &(id, index) in &hit {
            let entry = self.table.get_mut(id);
            if let Some(branch) = entry.and_then(|entry| entry.branches.get_mut(usize::from(index))) {
                self.waiting.remove(&mut branch.waiting);
            }
        }
        hit
    }

    /// What a reply of our own to the held request needs.
    pub(crate) fn arrival_of(&self, id: EntryId) -> Option<Arrival> {
        let entry = self.table.get(id)?;
        Some(Arrival { path: entry.path, reply_path: entry.reply_path, fix: entry.fix })
    }
}

/// Appends the challenge lines of a response.
fn take_challenges(response: &Message<'_>, challenges: &mut Vec<u8>) {
    // RFC 8760 §2.5: those of one response keep their order.
    let names = [HeaderName::WwwAuthenticate, HeaderName::ProxyAuthenticate];
    for header in response.all_headers().filter(|header| names.contains(&header.name)) {
        let line = header.line.start as usize..header.line.end as usize;
        let Some(line) = response.bytes().get(line) else { continue };
        if challenges.len() + line.len() <= CHALLENGE_BYTES_MAX {
            challenges.extend_from_slice(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::rank;

    #[test]
    fn the_best_response_is_chosen_as_the_rfc_says() {
        for (better, worse) in
            [(600, 302), (302, 404), (401, 404), (407, 486), (404, 408), (486, 500), (500, 503), (484, 487)]
        {
            assert!(rank(better) < rank(worse), "{better} {worse}");
        }
    }
}
