//! The endpoint: inputs in, outputs out, and the calls to the transaction user in between.

mod events;
mod script;
mod settle;

use crate::branch::OwnBranch;
use crate::config::Config;
use crate::context::{Arrival, ReplyContext, ReplyVerdict, TransactionId, TransactionUser};
use crate::counters::Counters;
use crate::io::{DomainId, Input, Outbox, Output, Path};
use crate::proxy::response::Verdict;
use crate::reply::{Reply, arrival, is_datagram, next_via_path};
use crate::shard::Core;
use crate::table::EntryId;
use crate::transaction::Branch;
use alloc::boxed::Box;
use hashbrown::HashMap;
use sip::{Edits, HeaderName, Index, Instant, Message, Method, Transport};

/// Transactions, timers and proxy core of one shard.
///
/// [`Endpoint::handle`] is the only way in; after each call, everything in the [`Outbox`] is to be done, in order, and
/// [`Endpoint::next_timeout`] says when to call it with [`Input::Timeout`] at the latest.
pub struct Endpoint<U: TransactionUser> {
    core: Core<U::State>,
    user: U,
    /// Away while a message is at hand; in a box, so that taking it moves no more than a pointer.
    index: Option<Box<Index>>,
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
            index: None,
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
        self.core.wheel.skip_to(now);
        let first = out.outputs.len();
        match input {
            Input::Message { path, bytes } => self.on_message(path, bytes, now, out),
            Input::TransportError { path, failure } => self.on_transport_error(path, failure, now, out),
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

    /// Buffers that transactions hold now; 0 at rest, or one has been lost, and with it what the pool saves.
    pub fn buffers_held(&self) -> usize {
        self.core.pool.lent()
    }

    /// Scripts that wait for an answer now: never more than
    /// [`Limits::suspended_max`](crate::Limits::suspended_max), and none at rest.
    pub fn suspended(&self) -> usize {
        self.suspended.len()
    }

    /// Questions without an answer, those of scripts among them; 0 at rest.
    pub fn questions(&self) -> usize {
        self.core.resolver.open()
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

    /// The name that the TLS peer of a path must prove ([`Path::domain`]), in lower case; empty if there is none: then it
    /// is the address.
    pub fn domain(&self, id: DomainId) -> &[u8] {
        self.core.domains.name(id)
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
        let mut index = self.index.take().unwrap_or_default();
        match Message::parse(bytes, &mut index) {
            Ok(message) if message.is_request() => self.on_request(&message, path, now, out),
            Ok(message) => self.on_response(&message, path, now, out),
            Err(_) => {
                self.core.counters.parse_errors += 1;
                crate::bad::answer(bytes, path, &mut self.core.counters, out);
            }
        }
        self.index = Some(index);
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
        if is_too_large(message, transport, core.config.limits.message_bytes_max) {
            core.counters.too_large += 1;
            if !ack {
                core.reply_stateless(message, &arrival, &Reply::bare(513), out);
            }
            return;
        }
        if let Err(reject) = check(message, transport) {
            core.counters.invalid_requests += 1;
            // A Via that does not parse is sent back as it stands, to where the request came from.
            if !ack && message.header(HeaderName::Via).is_some() {
                let reason = reject.reason.as_bytes();
                let reply = Reply { status: reject.status, reason, headers: b"", body: b"" };
                core.reply_stateless(message, &arrival, &reply, out);
            }
            return;
        }
        if core.config.transports.accept_aliases
            && transport == Transport::Tcp
            && message.via_top().is_ok_and(|via| via.params.has(b"alias"))
            && let Some(port) = core.alias_port(message, transport, None)
        {
            out.outputs.push(Output::Alias { path, port });
        }
        if let Some(id) = core.find(message) {
            if !ack {
                core.request_again(id, now, out);
                return;
            }
            // RFC 3261 §17.2.1: the ACK of a failure ends here, be it one without state to an earlier copy; that of a 2xx
            // is the user's.
            if !core.ack(id, message, now) || core.is_own_ack(message) {
                core.counters.acks_absorbed += 1;
                return;
            }
        } else if ack && core.is_own_ack(message) {
            core.counters.acks_absorbed += 1;
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
            Some(OwnBranch::Stateless { listener, flow, unique, .. }) => {
                let listener = crate::ListenerId(listener);
                // The peer's address is put in from the Via.
                let way_back = Path { flow, ..Path::new(listener, None, path.remote) };
                self.stateless_response(message, path, (way_back, unique), now, out);
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

    /// RFC 3261 §16.11: to the next Via, if the branch, of which this is the way back and the unique part, was written for
    /// that.
    fn stateless_response(
        &mut self,
        message: &Message<'_>,
        path: Path,
        (way_back, unique): (Path, u64),
        now: Instant,
        out: &mut Outbox,
    ) {
        let listener = way_back.listener;
        let via = message.via_below().filter(|via| {
            // RFC 6026 §3, §8.9: nobody sends by us but in answer to what we have sent.
            self.core.own.has(listener) && self.core.stateless_unique(message, via, way_back.flow) == unique
        });
        let Some(via) = via else {
            self.core.counters.stray_responses += 1;
            return;
        };
        // RFC 4320 §4.1: not even from the next hop.
        let provisional = message.status().is_some_and(|status| (101..200).contains(&status));
        if provisional && message.method() != Method::Invite {
            return;
        }
        let local = if listener == path.listener { path.local } else { None };
        let from = Path { local, ..way_back };
        let Some(to) = next_via_path(&via, from, self.core.own.transport(listener)) else {
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
            if edits.is_overflowed() {
                self.core.counters.edits_full += 1;
            } else {
                let core = &mut self.core;
                out.send(to, |buffer| {
                    let start = buffer.len();
                    edits.write(message, buffer);
                    core.add_content_length(message, to.listener, start, buffer);
                });
                self.core.counters.responses_forwarded += 1;
            }
        }
        self.reply_edits = edits;
    }
}

/// Whether a request is longer than it may be. Of one on a stream only the head has come then, and its Content-Length
/// says so.
fn is_too_large(message: &Message<'_>, transport: Transport, max: usize) -> bool {
    let promised = match message.content_length() {
        Ok(Some(length)) if !is_datagram(transport) => message.headers_end().saturating_add(length as usize),
        _ => 0,
    };
    message.bytes().len().max(promised) > max
}

/// What every element checks (RFC 3261 §8.2, §16.3 item 1), and that a branch names something: one that is the magic
/// cookie alone would be the same for all requests (RFC 4475 §3.2.1 leaves the choice).
fn check(message: &Message<'_>, transport: Transport) -> Result<(), sip::Reject> {
    sip::validate::request(message)?;
    // RFC 3261 §18.3: what a stream's messages are told apart by; a WebSocket frame needs none (RFC 7118 §5).
    if matches!(transport, Transport::Tcp | Transport::Tls) && message.content_length() == Ok(None) {
        return Err(sip::Reject { status: 400, reason: "Missing Content-Length" });
    }
    let branch = message.via_top().ok().and_then(|via| via.branch());
    if branch.is_some_and(|branch| branch.eq_ignore_ascii_case(crate::branch::MAGIC)) {
        return Err(sip::Reject { status: 400, reason: "Empty Branch" });
    }
    Ok(())
}
