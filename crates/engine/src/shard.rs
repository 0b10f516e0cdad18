//! What an endpoint is without its user: tables, timers, buffers, and the carrying out of what the machines ask for.

use crate::config::Config;
use crate::context::{Arrival, EngineError};
use crate::counters::Counters;
use crate::domains::Domains;
use crate::io::{ListenerId, Outbox, Output};
use crate::long::Refusals;
use crate::mac::Keys;
use crate::machine::{Actions, Arm, Delivery, Emit, Report};
use crate::own::{Own, default_port};
use crate::plan::Works;
use crate::pool::Pool;
use crate::refused::Refused;
use crate::reply::{Heard, Reply, is_datagram};
use crate::resolve::Resolver;
use crate::server_invite::ServerInvite;
use crate::server_non_invite::ServerNonInvite;
use crate::table::{EntryId, Table};
use crate::transaction::{Entry, KEY_INLINE, Server};
use crate::waiting::{WAITING_MAX, Waiting};
use crate::wheel::{TimerId, TimerKey, Wheel, Which};
use alloc::vec::Vec;
use sip::{Index, Instant, Message, Method, Transport, Via};
use smallvec::SmallVec;

/// Bytes that the last response of a finished transaction may take by itself; longer ones share
/// [`LONG_BYTES_MAX`].
pub(crate) const FINISHED_BYTES_MAX: usize = 3_072;
/// Bytes of all longer last responses of a shard together, 16 MiB; past it such a response is sent once and not kept, so
/// that it is not sent again.
pub(crate) const LONG_BYTES_MAX: usize = 16 << 20;
/// Slots of the table looked at after an error of a datagram; branches beyond them wait for Timer B or F.
pub(crate) const TRANSPORT_ERROR_SCAN_MAX: usize = 16_384;

/// See the module's documentation.
pub(crate) struct Core<S> {
    pub(crate) config: Config,
    pub(crate) own: Own,
    pub(crate) keys: Keys,
    pub(crate) table: Table<S>,
    pub(crate) wheel: Wheel,
    pub(crate) pool: Pool,
    pub(crate) works: Works,
    pub(crate) resolver: Resolver,
    pub(crate) counters: Counters,
    pub(crate) heard: Heard,
    pub(crate) waiting: Waiting,
    pub(crate) refusals: Refusals,
    pub(crate) refused: Refused,
    pub(crate) domains: Domains,
    /// For parsing what a transaction holds, beside the message at hand.
    pub(crate) spare: Index,
    pub(crate) lines: Vec<u8>,
    pub(crate) error_lines: Vec<u8>,
    pub(crate) text: Vec<u8>,
    pub(crate) draining: bool,
    pub(crate) unfinished: usize,
    /// The key of the request at hand, and its hash.
    pub(crate) key: SmallVec<[u8; KEY_INLINE]>,
    pub(crate) hash: u64,
    /// The transaction being worked on.
    pub(crate) busy: Option<EntryId>,
    /// Bytes of last responses longer than [`FINISHED_BYTES_MAX`].
    pub(crate) long_bytes: usize,
    pub(crate) cookies: u64,
}

impl<S> Core<S> {
    pub(crate) fn new(config: Config) -> Core<S> {
        let keys = Keys::new(config.seed);
        Core {
            own: Own::new(&config, &keys),
            table: Table::new(config.limits.transactions_max),
            resolver: Resolver::new(config.limits.resolves_max, &keys),
            waiting: Waiting::new(WAITING_MAX, &keys),
            refusals: Refusals::new(&keys),
            refused: Refused::default(),
            domains: Domains::new(&keys),
            keys,
            config,
            wheel: Wheel::new(),
            pool: Pool::default(),
            works: Works::default(),
            counters: Counters::default(),
            heard: Heard::new(),
            spare: Index::new(),
            lines: Vec::new(),
            error_lines: Vec::new(),
            text: Vec::new(),
            draining: false,
            unfinished: 0,
            key: SmallVec::new(),
            hash: 0,
            busy: None,
            long_bytes: 0,
            cookies: 0,
        }
    }

    /// Branches that a request may have over its life.
    pub(crate) fn branches_max(&self) -> u16 {
        self.config.limits.branches_max.min(crate::branch::BRANCH_INDEX_MAX)
    }

    /// How a listener's transport delivers.
    pub(crate) fn delivery(&self, listener: ListenerId) -> Delivery {
        if is_datagram(self.own.transport(listener)) { Delivery::Unreliable } else { Delivery::Reliable }
    }

    /// The port that a connection may be used for (RFC 5923): `port`, else that of the topmost Via; `None` where the
    /// request came by a datagram, or from a WebSocket client, which listens nowhere.
    pub(crate) fn alias_port(
        &self,
        message: &Message<'_>,
        transport: Transport,
        port: Option<u16>,
    ) -> Option<u16> {
        if !matches!(transport, Transport::Tcp | Transport::Tls) {
            return None;
        }
        let via = message.via_top().ok()?;
        Some(port.or(via.port).unwrap_or(default_port(transport)))
    }

    // --- matching (RFC 3261 §17.2.3) ----------------------------------------------------------------------------------

    /// The server transaction of a request; for an ACK that of its INVITE.
    ///
    /// Its key is kept for [`Core::create`], which can only be called for the same request.
    pub(crate) fn find(&mut self, message: &Message<'_>) -> Option<EntryId> {
        let method = match message.method() {
            Method::Ack => Method::Invite,
            method => method,
        };
        write_request_key(message, method, &mut self.key);
        self.hash = self.keys.hash(&[&self.key]);
        self.table.find(self.hash, &self.key)
    }

    /// The INVITE that a CANCEL or an ACK is for (RFC 3261 §9.2, §17.2.3).
    pub(crate) fn find_invite(&self, message: &Message<'_>) -> Option<EntryId> {
        self.find_as(message, Method::Invite)
    }

    /// Whether a CANCEL is for a request that is here and no INVITE (RFC 3261 §9.2). It does not say which method that has,
    /// which is a part of the key: those that have a name of their own are found.
    pub(crate) fn cancels_other(&self, cancel: &Message<'_>) -> bool {
        let is_other = |method: &&Method| !matches!(method, Method::Invite | Method::Ack | Method::Cancel);
        Method::NAMED.iter().filter(is_other).any(|method| self.find_as(cancel, *method).is_some())
    }

    fn find_as(&self, message: &Message<'_>, method: Method) -> Option<EntryId> {
        let key = request_key(message, method)?;
        self.table.find(self.keys.hash(&[&key]), &key)
    }

    // --- life of an entry ---------------------------------------------------------------------------------------------

    /// Makes a server transaction.
    pub(crate) fn create(
        &mut self,
        message: &Message<'_>,
        arrival: &Arrival,
        now: Instant,
    ) -> Result<EntryId, EngineError> {
        let id = self.create_ephemeral(message, arrival, now)?;
        self.keep_transaction(id);
        Ok(id)
    }

    /// Makes a server transaction for the time that a script waits: nobody has asked for one.
    pub(crate) fn create_ephemeral(
        &mut self,
        message: &Message<'_>,
        arrival: &Arrival,
        now: Instant,
    ) -> Result<EntryId, EngineError> {
        let method = message.method();
        if method == Method::Ack {
            return Err(EngineError::Ack);
        }
        if self.table.is_full() {
            self.counters.table_full += 1;
            return Err(EngineError::TableFull);
        }
        let key = self.key.clone();
        let (server, actions) = match method {
            Method::Invite => (Server::Invite(ServerInvite::Proceeding), Actions::NONE),
            _ => {
                let (machine, actions) = ServerNonInvite::start(&self.config.timers);
                (Server::NonInvite(machine), actions)
            }
        };
        let entry = Entry {
            hash: self.hash,
            key,
            server,
            method,
            path: arrival.path,
            reply_path: arrival.reply_path,
            fix: arrival.fix,
            request: self.pool.copy(message.bytes()),
            response: Vec::new(),
            created: now,
            resend: TimerId::NONE,
            expire: TimerId::NONE,
            branches: SmallVec::new(),
            best: None,
            challenges: Vec::new(),
            work: None,
            ephemeral: true,
            suspended: None,
            held_back: false,
            long: false,
            cancelled: false,
            declined: false,
            final_sent: 0,
            unfinished: true,
            state: None,
        };
        let id = self.table.insert(entry).ok_or(EngineError::TableFull)?;
        self.busy = Some(id);
        self.unfinished += 1;
        self.arm_server(id, actions, now);
        Ok(id)
    }

    /// Somebody wants this transaction, or a provisional response has gone out: it lives by its timers.
    pub(crate) fn keep_transaction(&mut self, id: EntryId) {
        if let Some(entry) = self.table.get_mut(id)
            && core::mem::take(&mut entry.ephemeral)
        {
            self.counters.transactions_created += 1;
        }
    }

    /// Whether a transaction is there only for the time that its script waits.
    pub(crate) fn is_ephemeral(&self, id: EntryId) -> bool {
        self.table.get(id).is_some_and(|entry| entry.ephemeral)
    }

    /// Counts what is finished and forgets what is over.
    pub(crate) fn tidy(&mut self, id: EntryId) {
        let Some(entry) = self.table.get_mut(id) else { return };
        let open = !entry.server.is_final() || !entry.all_final();
        if entry.unfinished != open {
            entry.unfinished = open;
            self.unfinished = if open { self.unfinished + 1 } else { self.unfinished.saturating_sub(1) };
        }
        let over = entry.server.is_terminated()
            && entry.suspended.is_none()
            && entry.branches.iter().all(|branch| branch.client.is_terminated());
        if over {
            self.remove(id);
        }
    }

    pub(crate) fn remove(&mut self, id: EntryId) {
        self.drop_response(id);
        let Some(mut entry) = self.table.remove(id) else { return };
        if entry.unfinished {
            self.unfinished = self.unfinished.saturating_sub(1);
        }
        self.wheel.cancel(&mut entry.resend);
        self.wheel.cancel(&mut entry.expire);
        self.pool.drop(&mut entry.request);
        for branch in &mut entry.branches {
            self.wheel.cancel(&mut branch.resend);
            self.wheel.cancel(&mut branch.expire);
            self.waiting.remove(&mut branch.waiting);
            self.pool.drop(&mut branch.sent);
        }
        if let Some(best) = &mut entry.best {
            self.pool.drop(&mut best.bytes);
        }
        if let Some(work) = entry.work.take() {
            self.works.give(work);
        }
    }

    // --- timers -------------------------------------------------------------------------------------------------------

    pub(crate) fn arm_server(&mut self, id: EntryId, actions: Actions, now: Instant) {
        let Some(entry) = self.table.get_mut(id) else { return };
        let key = |which| TimerKey { entry: id, branch: None, which };
        apply(&mut self.wheel, &mut entry.resend, actions.resend, now, key(Which::Resend));
        apply(&mut self.wheel, &mut entry.expire, actions.expire, now, key(Which::Expire));
    }

    pub(crate) fn arm_branch(&mut self, id: EntryId, index: u16, actions: Actions, now: Instant) {
        let Some(entry) = self.table.get_mut(id) else { return };
        let Some(branch) = entry.branches.get_mut(usize::from(index)) else { return };
        let key = |which| TimerKey { entry: id, branch: Some(index), which };
        apply(&mut self.wheel, &mut branch.resend, actions.resend, now, key(Which::Resend));
        apply(&mut self.wheel, &mut branch.expire, actions.expire, now, key(Which::Expire));
    }

    /// Marks the timer that fired as no longer armed.
    pub(crate) fn timer_fired(&mut self, key: TimerKey) {
        let Some(entry) = self.table.get_mut(key.entry) else { return };
        let timers = match key.branch {
            None => Some((&mut entry.resend, &mut entry.expire)),
            Some(index) => entry.branches.get_mut(usize::from(index)).map(|b| (&mut b.resend, &mut b.expire)),
        };
        match (timers, key.which) {
            (Some((resend, _)), Which::Resend) => *resend = TimerId::NONE,
            (Some((_, expire)), Which::Expire) => *expire = TimerId::NONE,
            (None, _) => {}
        }
    }

    /// A timer of a server transaction.
    pub(crate) fn server_timer(&mut self, id: EntryId, which: Which, now: Instant, out: &mut Outbox) {
        let timers = &self.config.timers;
        let Some(entry) = self.table.get_mut(id) else { return };
        let actions = match (&mut entry.server, which) {
            (Server::Invite(machine), Which::Resend) => machine.on_resend(timers),
            (Server::Invite(machine), Which::Expire) => machine.on_expire(),
            (Server::NonInvite(machine), Which::Resend) => {
                match machine.on_resend() {
                    Emit::New => {
                        self.keep_transaction(id);
                        self.reply_local(id, 100, now, out);
                    }
                    Emit::Again => self.send_response(id, out),
                    _ => {}
                }
                return;
            }
            (Server::NonInvite(machine), Which::Expire) => machine.on_expire(),
        };
        if actions.report == Report::Timeout {
            self.counters.ack_timeouts += 1;
            if is_magic_key(&entry.key) {
                // Timer H. The ACK may still come.
                self.refused.remember(entry.hash);
            }
        }
        if actions.emit == Emit::Again {
            self.resend_response(id, out);
        }
        self.arm_server(id, actions, now);
    }

    // --- server transactions ------------------------------------------------------------------------------------------

    /// The request came again.
    pub(crate) fn request_again(&mut self, id: EntryId, now: Instant, out: &mut Outbox) {
        self.counters.retransmissions_in += 1;
        let Some(entry) = self.table.get_mut(id) else { return };
        let actions = match &mut entry.server {
            Server::Invite(machine) => machine.on_request(),
            Server::NonInvite(machine) => machine.on_request(),
        };
        if actions.emit == Emit::Again {
            self.resend_response(id, out);
        }
        self.arm_server(id, actions, now);
    }

    /// An ACK with the branch of an INVITE; whether it is the user's.
    pub(crate) fn ack(&mut self, id: EntryId, message: &Message<'_>, now: Instant) -> bool {
        let Some(path) = self.table.get(id).map(|entry| entry.path) else { return true };
        let delivery = self.delivery(path.listener);
        if !self.ack_fits(id, message) {
            return true;
        }
        let timers = &self.config.timers;
        let Some(entry) = self.table.get_mut(id) else { return true };
        let Server::Invite(machine) = &mut entry.server else { return true };
        let actions = machine.on_ack(timers, delivery);
        let confirmed = matches!(machine, ServerInvite::Confirmed | ServerInvite::Terminated);
        if confirmed {
            // RFC 3261 §17.2.1: nothing is sent any more.
            self.drop_response(id);
        }
        self.arm_server(id, actions, now);
        self.tidy(id);
        actions.report == Report::Message
    }

    /// RFC 3261 §17.2.3: without the magic cookie the To tag of an ACK is that of our response.
    fn ack_fits(&mut self, id: EntryId, ack: &Message<'_>) -> bool {
        let Some(entry) = self.table.get(id) else { return false };
        if entry.key.first() != Some(&b'2') || entry.response.is_empty() {
            return true;
        }
        let mut index = core::mem::take(&mut self.spare);
        let fits = match Message::parse(&entry.response, &mut index) {
            Ok(response) => response.to_tag() == ack.to_tag(),
            Err(_) => true,
        };
        self.spare = index;
        fits
    }

    fn resend_response(&mut self, id: EntryId, out: &mut Outbox) {
        let before = out.outputs.len();
        self.send_response(id, out);
        self.counters.retransmissions_out += (out.outputs.len() - before) as u64;
    }

    /// Sends the response that the transaction keeps.
    fn send_response(&mut self, id: EntryId, out: &mut Outbox) {
        let Some(entry) = self.table.get(id) else { return };
        if entry.response.is_empty() {
            return;
        }
        if entry.held_back && !self.heard.is_known(self.address_hash(entry.reply_path.remote.ip())) {
            return;
        }
        let (path, bytes) = (entry.reply_path, &entry.response);
        out.send(path, |buffer| buffer.extend_from_slice(bytes));
    }

    /// Tells the server transaction that `bytes` shall go upstream; whether they may.
    pub(crate) fn sent_upstream(&mut self, id: EntryId, status: u16, now: Instant, bytes: &[u8]) -> bool {
        let Some(path) = self.table.get(id).map(|entry| entry.path) else { return false };
        let delivery = self.delivery(path.listener);
        let timers = &self.config.timers;
        let Some(entry) = self.table.get_mut(id) else { return false };
        let first_final = status >= 200 && !entry.server.is_final();
        let actions = match &mut entry.server {
            Server::Invite(machine) => machine.on_response(status, timers, delivery),
            Server::NonInvite(machine) => machine.on_response(status, timers, delivery),
        };
        if actions.emit != Emit::New {
            return false;
        }
        let accepted = matches!(entry.server, Server::Invite(ServerInvite::Accepted));
        if accepted || entry.server.is_terminated() {
            // RFC 6026 §7.1: the 2xx is the callee's to send again.
            self.pool.drop(&mut entry.response);
        } else if status >= 200 && bytes.len() > FINISHED_BYTES_MAX {
            self.store_long(id, bytes);
        } else {
            self.pool.store(&mut entry.response, bytes);
            if status >= 200 {
                self.pool.fit(&mut entry.response);
            }
        }
        self.arm_server(id, actions, now);
        if first_final {
            self.finish(id, status);
        }
        true
    }

    /// Keeps a long final response as long as all of them together are within their bound.
    fn store_long(&mut self, id: EntryId, bytes: &[u8]) {
        let Some(entry) = self.table.get_mut(id) else { return };
        if self.long_bytes + bytes.len() <= LONG_BYTES_MAX {
            self.long_bytes += bytes.len();
            entry.long = true;
            self.pool.store(&mut entry.response, bytes);
        } else {
            self.counters.long_dropped += 1;
            self.pool.drop(&mut entry.response);
        }
    }

    /// Forgets the response of a transaction.
    fn drop_response(&mut self, id: EntryId) {
        let Some(entry) = self.table.get_mut(id) else { return };
        if core::mem::take(&mut entry.long) {
            self.long_bytes = self.long_bytes.saturating_sub(entry.response.len());
        }
        self.pool.drop(&mut entry.response);
    }

    /// A final response has gone upstream: what only an open transaction needs is dropped.
    pub(crate) fn finish(&mut self, id: EntryId, status: u16) {
        let Some(entry) = self.table.get_mut(id) else { return };
        entry.final_sent = status;
        self.pool.drop(&mut entry.request);
        entry.challenges = Vec::new();
        if let Some(mut best) = entry.best.take() {
            self.pool.drop(&mut best.bytes);
        }
        if let Some(work) = entry.work.take() {
            self.works.give(work);
        }
    }

    /// Replies to the request that the transaction holds.
    pub(crate) fn reply_local(&mut self, id: EntryId, status: u16, now: Instant, out: &mut Outbox) {
        let Some(entry) = self.table.get_mut(id) else { return };
        if entry.server.is_final() {
            return;
        }
        let mut request = core::mem::take(&mut entry.request);
        let mut index = core::mem::take(&mut self.spare);
        if let Ok(message) = Message::parse(&request, &mut index) {
            // `reply` may want the spare index too; it gets a fresh one and this one comes back below.
            let _ = self.reply(id, &message, &Reply::bare(status), now, out);
        }
        self.spare = index;
        self.give_request_back(id, &mut request);
    }

    /// Puts the request's bytes back where the transaction still needs them.
    pub(crate) fn give_request_back(&mut self, id: EntryId, request: &mut Vec<u8>) {
        match self.table.get_mut(id) {
            Some(entry) if !entry.server.is_final() => entry.request = core::mem::take(request),
            _ => self.pool.drop(request),
        }
    }

    /// Sends a message that is held elsewhere.
    pub(crate) fn count_out(&mut self, outputs: &[Output]) {
        let sent = outputs.iter().filter(|output| matches!(output, Output::Send { .. })).count();
        self.counters.messages_out += sent as u64;
    }
}

fn apply(wheel: &mut Wheel, id: &mut TimerId, arm: Arm, now: Instant, key: TimerKey) {
    match arm {
        Arm::Keep => {}
        Arm::Stop => wheel.cancel(id),
        Arm::After(duration) => wheel.arm(id, now + duration, key),
    }
}

/// What a retransmission has in common with its request (RFC 3261 §17.2.3): branch and sent-by, or, without the magic
/// cookie, the fields of RFC 2543. `None` if the message has no usable Via.
pub(crate) fn request_key(message: &Message<'_>, method: Method) -> Option<SmallVec<[u8; KEY_INLINE]>> {
    let mut key = SmallVec::new();
    write_request_key(message, method, &mut key).then_some(key)
}

/// Whether a [`request_key`] is that of a branch with the magic cookie.
pub(crate) fn is_magic_key(key: &[u8]) -> bool {
    key.first() == Some(&b'3')
}

fn write_via_key(branch: &[u8], via: &Via<'_>, key: &mut SmallVec<[u8; KEY_INLINE]>) {
    key.extend_from_slice(branch);
    key.push(0);
    let start = key.len();
    key.extend_from_slice(via.sent_by_bytes());
    if let Some(sent_by) = key.get_mut(start..) {
        sent_by.make_ascii_lowercase();
    }
}

/// Makes `key` the [`request_key`]; false and empty if there is none.
fn write_request_key(message: &Message<'_>, method: Method, key: &mut SmallVec<[u8; KEY_INLINE]>) -> bool {
    key.clear();
    let Ok(via) = message.via_top() else { return false };
    let branch = via.branch().unwrap_or(b"");
    // Branches compare without case as all tokens do; the cookie is compared so too.
    let magic = crate::branch::is_magic(branch);
    key.push(if magic && branch.len() > 7 { b'3' } else { b'2' });
    match method {
        Method::Invite => key.push(b'I'),
        Method::Cancel => key.push(b'C'),
        _ => {
            key.extend_from_slice(method.as_str().map_or(message.method_bytes(), str::as_bytes));
            key.push(b' ');
        }
    }
    if is_magic_key(key) {
        write_via_key(branch, &via, key);
        return true;
    }
    for part in [
        message.request_uri(),
        message.from_tag().unwrap_or(b""),
        message.call_id().unwrap_or(b""),
        message.bytes().get(via.span.start as usize..via.span.end as usize).unwrap_or(b""),
    ] {
        key.extend_from_slice(part);
        key.push(0);
    }
    key.extend_from_slice(&message.cseq().map_or(0, |cseq| cseq.number).to_be_bytes());
    if method != Method::Invite && method != Method::Cancel {
        // The ACK of an INVITE has the To tag of the response; the others have the request's.
        key.extend_from_slice(message.to_tag().unwrap_or(b""));
    }
    true
}
