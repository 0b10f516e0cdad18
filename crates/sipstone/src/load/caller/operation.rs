//! One operation of a caller: its requests, its transactions and its verdict (RFC 3261 §9.1, §12, §13.2, §17.1).
//!
//! ```text
//!  INVITE:  Calling --1xx--> Proceeding --cancel due--> Cancelling --487 and the CANCEL's 200--> ended
//!              |                 |                          |
//!              +-------2xx-------+--------2xx---------------+--ACK--> Holding --hold is over--> Trying (BYE) --> ended
//!              +-----3xx-6xx-----+------3xx-6xx-------------+--ACK--> ended, or Calling again with credentials
//!  others:  Trying --final answer--> ended, or Trying again with credentials
//! ```

use super::super::ledger::{Ledger, Place, Seen, Window};
use super::super::message::{
    AckOf, Binding, Called, InDialog, Kept, Key, NewRequest, Note, Remote, Routed, Verb, has_contact,
    push_contact_uri,
};
use super::super::timers::{Alarm, Side as TimerSide, Sleeper};
use super::super::users::draw;
use super::super::{ConnectionId, SocketId};
use super::auth::{self, Cache, Purpose, Reused};
use super::{Cx, Outcome, answers_challenges, arm, send_ack, transaction_time};
use crate::load::worker::Way;
use crate::spec::{Auth, Close, Connections, Scenario};
use crate::tally::{ClassTally, Direction, Failure, Side};
use rand::Rng;
use sip::{HeaderName, Instant, Message, Method};
use std::net::SocketAddr;
use std::time::Duration;

/// Longest ringing that a callee is asked for.
const RING_MAX: Duration = Duration::from_secs(3600);

/// Who does what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Party {
    pub(super) scenario: Scenario,
    pub(super) class: u16,
    pub(super) from: u32,
    pub(super) to: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The slot is free.
    Free,
    /// INVITE sent, nothing heard (Timers A and B).
    Calling,
    /// A provisional answer came; the proxy's Timer C watches the rest.
    Proceeding,
    /// CANCEL sent (Timers E and F).
    Cancelling,
    /// Answered; the BYE is written and waits.
    Holding,
    /// Another request is sent (Timers E and F).
    Trying,
}

/// When a connection of an operation's own is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closes {
    /// It is not the operation's own.
    Never,
    /// With the operation.
    AtEnd,
    /// With the transaction.
    EachTransaction,
}

/// What has come of a cancelled call's two endings.
#[derive(Clone, Copy, Debug, Default)]
struct Ending {
    cancel_answered: bool,
    invite_ended: bool,
}

/// What provisional answers have been seen, to tell repeats.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    /// To the INVITE: a 100.
    trying: bool,
    /// To the INVITE: the last status above 100; zero if there was none.
    provisional: u16,
    /// To any other request: the last status; zero if there was none.
    other: u16,
}

/// One operation, or the room for one: its buffers are used again.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) generation: u32,
    pub(super) alarm: Alarm,
    phase: Phase,
    party: Party,
    verb: Verb,
    window: Window,
    traced: bool,
    socket: SocketId,
    /// The one that the current transaction uses.
    connection: ConnectionId,
    /// Whether the connection is this operation's own, to be closed when it is no longer needed.
    closes: Closes,
    tag: u32,
    /// Of the current request; of the last INVITE.
    step: u8,
    invite_step: Option<u8>,
    cseq: u8,
    /// Challenges met for the current request.
    challenges: u8,
    planned: Instant,
    first_sent: Instant,
    /// When the current request was first sent, and the first of its kind (before challenges).
    sent: Instant,
    begun: Instant,
    /// When the CANCEL was due.
    cancel_due: Instant,
    /// To the next retransmission.
    interval: Duration,
    retransmit_at: Instant,
    /// When the transaction times out, or the wait of the phase ends.
    deadline: Instant,
    destination: SocketAddr,
    heard: Heard,
    ending: Ending,
    verdict: Option<Failure>,
    times: Times,
    counts: Counts,
    /// The current request.
    kept: Kept,
    /// The ACK of the 2xx.
    ack: Kept,
    ack_to: SocketAddr,
}

/// What was measured, of those that end well.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    from_planned: Option<Duration>,
    from_sent: Option<Duration>,
    first_18x: Option<Duration>,
    bye: Option<Duration>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    messages_in: u32,
    messages_out: u32,
    trying: u32,
    sent_again: u32,
    received_again: u32,
}

impl Default for Operation {
    fn default() -> Operation {
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        Operation {
            generation: 0,
            alarm: Alarm::OFF,
            phase: Phase::Free,
            party: Party { scenario: Scenario::Options, class: 0, from: 0, to: 0 },
            verb: Verb::Options,
            window: Window::Outside,
            traced: false,
            socket: SocketId(0),
            connection: ConnectionId::NONE,
            closes: Closes::Never,
            tag: 0,
            step: 0,
            invite_step: None,
            cseq: 1,
            challenges: 0,
            planned: Instant::ZERO,
            first_sent: Instant::ZERO,
            sent: Instant::ZERO,
            begun: Instant::ZERO,
            cancel_due: Instant::NEVER,
            interval: Duration::ZERO,
            retransmit_at: Instant::NEVER,
            deadline: Instant::NEVER,
            destination: nowhere,
            heard: Heard::default(),
            ending: Ending::default(),
            verdict: None,
            times: Times::default(),
            counts: Counts::default(),
            kept: Kept::default(),
            ack: Kept::default(),
            ack_to: nowhere,
        }
    }
}

/// The verb of a scenario's first request.
fn verb_of(scenario: Scenario) -> Verb {
    match scenario {
        Scenario::Options => Verb::Options,
        Scenario::Register | Scenario::RegisterUpdate | Scenario::RegisterLogout => Verb::Register,
        Scenario::Message => Verb::Message,
        Scenario::Invite
        | Scenario::InviteCancel
        | Scenario::InviteNotfound
        | Scenario::Redirect
        | Scenario::Outbound => Verb::Invite,
    }
}

impl Operation {
    pub(super) fn is_open(&self) -> bool {
        self.phase != Phase::Free
    }

    pub(super) fn class(&self) -> u16 {
        self.party.class
    }

    pub(super) fn sleeper(&self, slot: u32) -> Sleeper {
        Sleeper { side: TimerSide::Caller, slot, generation: self.generation }
    }

    /// Frees it: what still comes for it comes too late.
    pub(super) fn close(&mut self) {
        self.phase = Phase::Free;
        self.generation = self.generation.wrapping_add(1);
        self.alarm = Alarm::OFF;
    }

    /// The request that waits for its answer, or was answered last.
    pub(super) fn last_request(&self) -> Seen<'_> {
        Seen {
            at: self.sent,
            side: Side::Caller,
            direction: Direction::Sent,
            repeated: false,
            bytes: &self.kept.bytes,
        }
    }

    /// Writes and sends the first request.
    pub(super) fn begin(&mut self, cx: &mut Cx<'_>, party: Party, planned: Instant) -> Outcome {
        let kept = std::mem::take(&mut self.kept);
        let ack = std::mem::take(&mut self.ack);
        let socket = socket_for(cx, party);
        let (connection, closes) = connection_for(cx, socket, self.generation);
        *self = Operation {
            generation: self.generation,
            party,
            verb: verb_of(party.scenario),
            window: cx.shared.ledger.window_of(planned),
            traced: cx.shared.workload.trace && cx.shared.ledger.wants_trace(party.class),
            socket,
            connection,
            closes,
            tag: cx.shared.rng.random(),
            planned,
            first_sent: cx.now,
            destination: cx.shared.server_of(socket),
            kept,
            ack,
            ..Operation::default()
        };
        if self.write_first(cx).is_none() {
            // No socket, which the worker has made sure of, or nobody to register.
            return Outcome::Ends(Err(Failure::GeneratorDropped));
        }
        if self.verb == Verb::Invite {
            self.invite_step = Some(0);
            if party.scenario == Scenario::InviteCancel {
                self.cancel_due =
                    cx.now + self.class_of(cx).map_or(Duration::ZERO, |class| class.cancel_after);
            }
        }
        self.preload(cx, self.step, self.cseq);
        self.send_first(cx);
        if let Some(send) = cx.out.sends.last_mut().filter(|_| party.class != super::PREAMBLE) {
            send.planned = Some(planned);
        }
        Outcome::Goes
    }

    fn class_of<'a>(&self, cx: &'a Cx<'_>) -> Option<&'a crate::spec::Class> {
        cx.shared.workload.classes.get(usize::from(self.party.class))
    }

    /// The way of requests to `to`.
    fn way(&self, to: SocketAddr) -> Way {
        Way { socket: self.socket, connection: self.connection, to }
    }

    /// Whether nothing that is sent can be lost unless its connection is (RFC 3261 §17, "reliable transport").
    fn is_reliable(&self, cx: &Cx<'_>) -> bool {
        cx.shared.transport_of(self.socket).is_stream()
    }

    /// A transaction is over: if each has a connection of its own, this one's is closed and the next has another.
    fn next_connection(&mut self, cx: &mut Cx<'_>, step: u8) {
        if self.closes == Closes::EachTransaction {
            self.hang_up(cx.shared.workload.links.close, Ok(()), &mut cx.shared.closing);
            self.connection = ConnectionId::own(cx.sleeper.slot, self.generation, step);
        }
    }

    fn key(&self, cx: &Cx<'_>, step: u8) -> Key {
        Key { slot: cx.sleeper.slot, generation: self.generation, class: self.party.class, step }
    }

    fn write_first(&mut self, cx: &mut Cx<'_>) -> Option<()> {
        let note = self.note(cx);
        let key = self.key(cx, 0);
        let shared = &*cx.shared;
        let Party { scenario, from, to, .. } = self.party;
        let socket = shared.socket(self.socket)?;
        let request = NewRequest { names: &shared.names, socket, key, from, tag: self.tag };
        let contact_of = |user| shared.contacts.host_port(user).unwrap_or(&socket.host_port);
        match scenario {
            Scenario::Options => shared.texts.write_options(&mut self.kept, &request),
            Scenario::Register | Scenario::RegisterUpdate => {
                shared.texts.write_register(&mut self.kept, &request, contact_of(from), Binding::Kept);
            }
            Scenario::RegisterLogout => {
                shared.texts.write_register(&mut self.kept, &request, contact_of(from), Binding::Removed);
            }
            Scenario::Invite | Scenario::InviteCancel | Scenario::Redirect | Scenario::Message => {
                shared.texts.write_call(&mut self.kept, self.verb, &request, Called::User(to), note);
            }
            Scenario::InviteNotfound => {
                shared.texts.write_call(&mut self.kept, self.verb, &request, Called::Nobody(to), note);
            }
            Scenario::Outbound => {
                shared.texts.write_call(
                    &mut self.kept,
                    self.verb,
                    &request,
                    Called::At(to, contact_of(to)),
                    note,
                );
            }
        }
        Some(())
    }

    /// A call that is to be cancelled rings until after the CANCEL must have been settled.
    fn note(&self, cx: &mut Cx<'_>) -> Note {
        let class = cx.shared.workload.classes.get(usize::from(self.party.class));
        let ring = class.map_or(Duration::ZERO, |class| draw(&class.ring, &mut cx.shared.rng));
        let ring = match (self.party.scenario, class) {
            (Scenario::InviteCancel, Some(class)) => ring + class.cancel_after + transaction_time(cx.shared),
            _ => ring,
        };
        let ring_us = u32::try_from(ring.min(RING_MAX).as_micros()).unwrap_or(u32::MAX);
        Note { class: self.party.class, ring_us, traced: self.traced }
    }

    /// With `cached`, a request carries credentials from the start when a nonce is known.
    fn preload(&mut self, cx: &mut Cx<'_>, step: u8, cseq: u8) {
        let user = (self.party.from, self.purpose());
        if cx.shared.workload.auth == Auth::Cached
            && cx.desk.reuse(cx.shared, user, &self.kept) == Reused::Yes
        {
            cx.desk.apply(&mut self.kept, step, cseq);
        }
    }

    fn purpose(&self) -> Purpose {
        if self.verb == Verb::Register { Purpose::Register } else { Purpose::Call }
    }

    /// Sends the kept request for the first time and starts its timers (RFC 3261 §17.1.1.2, §17.1.2.2).
    fn send_first(&mut self, cx: &mut Cx<'_>) {
        self.phase = if self.verb == Verb::Invite { Phase::Calling } else { Phase::Trying };
        self.sent = cx.now;
        if self.challenges == 0 {
            self.begun = cx.now;
        }
        self.counts.messages_in += 1;
        cx.shared.send(cx.out, self.way(self.destination), &self.kept.bytes);
        self.trace(cx, Direction::Sent, false, &self.kept.bytes);
        self.start_transaction(cx);
    }

    fn start_transaction(&mut self, cx: &mut Cx<'_>) {
        self.interval = cx.shared.workload.t1;
        // RFC 3261 §17.1.1.2, §17.1.2.2: Timers A and E run over unreliable transports only.
        self.retransmit_at = if self.is_reliable(cx) { Instant::NEVER } else { cx.now + self.interval };
        self.deadline = cx.now + transaction_time(cx.shared);
        arm(cx, &mut self.alarm, self.retransmit_at, self.deadline);
    }

    /// No retransmission any more; the alarm is for `deadline`.
    fn wait_until(&mut self, cx: &mut Cx<'_>, deadline: Instant) {
        self.retransmit_at = Instant::NEVER;
        self.deadline = deadline;
        arm(cx, &mut self.alarm, Instant::NEVER, deadline);
    }

    pub(super) fn on_alarm(&mut self, cx: &mut Cx<'_>) -> Outcome {
        match self.phase {
            Phase::Free => return Outcome::Goes,
            Phase::Proceeding => self.cancel(cx),
            Phase::Holding => self.bye(cx),
            Phase::Calling | Phase::Cancelling | Phase::Trying => {
                if self.deadline <= cx.now {
                    return Outcome::Ends(Err(self.verdict.unwrap_or(Failure::Timeout)));
                }
                self.retransmit(cx);
            }
        }
        Outcome::Goes
    }

    /// Timer A doubles without end, Timer E up to T2 (RFC 3261 §17.1.1.2, §17.1.2.2).
    fn retransmit(&mut self, cx: &mut Cx<'_>) {
        if self.phase == Phase::Cancelling {
            self.send_cancel(cx, true);
        } else {
            cx.shared.send(cx.out, self.way(self.destination), &self.kept.bytes);
            self.trace(cx, Direction::Sent, true, &self.kept.bytes);
        }
        self.sent_again(cx);
        let doubled = self.interval.saturating_mul(2);
        self.interval =
            if self.phase == Phase::Calling { doubled } else { doubled.min(cx.shared.workload.t2) };
        self.retransmit_at = cx.now + self.interval;
        arm(cx, &mut self.alarm, self.retransmit_at, self.deadline);
    }

    /// RFC 3261 §9.1: only after a provisional answer.
    fn cancel(&mut self, cx: &mut Cx<'_>) {
        self.phase = Phase::Cancelling;
        self.begun = cx.now;
        self.counts.messages_in += 1;
        self.send_cancel(cx, false);
        self.start_transaction(cx);
    }

    fn send_cancel(&mut self, cx: &mut Cx<'_>, repeated: bool) {
        let start = cx.out.bytes.len();
        self.kept.write_cancel(&cx.shared.texts, &mut cx.out.bytes);
        cx.shared.finish(cx.out, self.way(self.destination), start);
        if self.traced {
            let bytes = cx.out.bytes.get(start..).unwrap_or(&[]);
            self.trace_in(&mut cx.shared.ledger, cx.now, Direction::Sent, repeated, bytes);
        }
    }

    fn bye(&mut self, cx: &mut Cx<'_>) {
        self.verb = Verb::Bye;
        self.challenges = 0;
        if cx.shared.workload.auth_every {
            self.preload(cx, self.step, self.cseq);
        }
        self.send_first(cx);
    }

    /// An answer whose branch is this operation's.
    pub(super) fn on_answer(
        &mut self,
        cx: &mut Cx<'_>,
        answer: &Message<'_>,
        step: u8,
        status: u16,
        method: Method,
    ) -> Outcome {
        let before = self.counts.received_again;
        let traced = self.traced.then(|| {
            self.trace_in(&mut cx.shared.ledger, cx.now, Direction::Received, false, answer.bytes())
        });
        let outcome = match method {
            Method::Cancel if self.invite_step == Some(step) => self.on_cancel_answer(cx, status),
            Method::Invite if self.invite_step == Some(step) => self.on_invite_answer(cx, answer, status),
            Method::Invite => self.on_old_invite_answer(cx, answer, status),
            _ if self.phase == Phase::Trying && self.step == step => self.on_other_answer(cx, answer, status),
            _ => self.repeated(cx),
        };
        if self.counts.received_again > before {
            cx.shared.ledger.mark_repeated(traced.flatten());
        }
        outcome
    }

    fn repeated(&mut self, cx: &mut Cx<'_>) -> Outcome {
        self.counts.received_again += 1;
        // Outside: the measured window gets it when the operation ends.
        cx.shared
            .ledger
            .count(self.party.class, Window::Outside, |tally| tally.retransmissions_received += 1);
        Outcome::Goes
    }

    fn sent_again(&mut self, cx: &mut Cx<'_>) {
        self.counts.sent_again += 1;
        cx.shared.ledger.count(self.party.class, Window::Outside, |tally| tally.retransmissions_sent += 1);
    }

    /// Its connection was lost: whether it waits for something that would have come on it.
    pub(super) fn waits_on(&self, connection: ConnectionId) -> bool {
        let waits = match self.phase {
            Phase::Free | Phase::Holding => false,
            Phase::Calling | Phase::Proceeding | Phase::Cancelling | Phase::Trying => true,
        };
        waits && self.connection == connection
    }

    /// It has ended: its own connection is closed. On success the user decides who does that; what failed is closed here.
    pub(super) fn hang_up(&self, close: Close, result: Result<(), Failure>, closing: &mut Vec<ConnectionId>) {
        if self.closes != Closes::Never && (close == Close::Caller || result.is_err()) {
            closing.push(self.connection);
        }
    }

    /// Whether anything had to be sent twice.
    pub(super) fn was_sent_again(&self) -> bool {
        self.counts.sent_again > 0
    }

    /// Whether the INVITE still waits for its final answer.
    fn is_inviting(&self) -> bool {
        match self.phase {
            Phase::Calling | Phase::Proceeding => true,
            Phase::Cancelling => !self.ending.invite_ended,
            Phase::Free | Phase::Holding | Phase::Trying => false,
        }
    }

    fn on_invite_answer(&mut self, cx: &mut Cx<'_>, answer: &Message<'_>, status: u16) -> Outcome {
        match (status, self.is_inviting()) {
            (..200, _) => self.on_provisional(cx, status),
            (200..300, true) => self.on_answered(cx, answer, status),
            (200..300, false) => self.on_answered_again(cx, answer),
            (_, true) => self.on_refused(cx, answer, status),
            (_, false) => self.on_old_invite_answer(cx, answer, status),
        }
    }

    /// Every 2xx that comes again is acknowledged again (RFC 3261 §13.2.2.4); one of another callee, to whom the call
    /// was forked, with an ACK of its own.
    fn on_answered_again(&mut self, cx: &mut Cx<'_>, answer: &Message<'_>) -> Outcome {
        let tag = answer.to_tag().unwrap_or(&[]);
        if memchr::memmem::find(&self.ack.bytes, tag).is_some() {
            cx.shared.send(cx.out, self.way(self.ack_to), &self.ack.bytes);
            self.trace(cx, Direction::Sent, true, &self.ack.bytes);
        } else if let Some(remote) = Remote::of_answer(&cx.shared.texts, answer) {
            let of = AckOf::Dialog(&remote);
            if send_ack(cx.shared, self.way(remote.address), answer, of, cx.out).is_none() {
                return self.repeated(cx);
            }
        }
        self.sent_again(cx);
        self.repeated(cx)
    }

    /// The answer to an INVITE that has its final answer: a refusal that comes again is acknowledged again
    /// (RFC 3261 §17.1.1.2).
    fn on_old_invite_answer(&mut self, cx: &mut Cx<'_>, answer: &Message<'_>, status: u16) -> Outcome {
        if status >= 300 && self.acknowledge(cx, answer, true).is_some() {
            self.sent_again(cx);
        }
        self.repeated(cx)
    }

    fn on_provisional(&mut self, cx: &mut Cx<'_>, status: u16) -> Outcome {
        let new = if status == 100 { !self.heard.trying } else { self.heard.provisional != status };
        if !new {
            return self.repeated(cx);
        }
        self.counts.messages_out += 1;
        if status == 100 {
            self.heard.trying = true;
            self.counts.trying += 1;
        } else {
            self.heard.provisional = status;
        }
        if (180..190).contains(&status) && self.times.first_18x.is_none() {
            self.times.first_18x = Some(cx.now.since(self.first_sent));
        }
        if self.phase == Phase::Calling {
            self.phase = Phase::Proceeding;
            if self.cancel_due <= cx.now {
                self.cancel_due = cx.now;
                self.cancel(cx);
            } else {
                self.wait_until(cx, self.cancel_due);
            }
        }
        Outcome::Goes
    }

    /// The answer that ends the timed part came.
    fn stop_clock(&mut self, cx: &Cx<'_>, planned: Instant, sent: Instant) {
        self.times.from_planned = Some(cx.now.since(planned));
        self.times.from_sent = Some(cx.now.since(sent));
    }

    /// A 2xx to the INVITE: acknowledged, and ended after the hold time.
    fn on_answered(&mut self, cx: &mut Cx<'_>, answer: &Message<'_>, status: u16) -> Outcome {
        self.counts.messages_out += 1;
        self.stop_clock(cx, self.planned, self.first_sent);
        if !matches!(self.party.scenario, Scenario::Invite | Scenario::Outbound) {
            self.verdict = Some(Failure::Status(status));
        }
        if self.confirm(cx, answer).is_none() {
            return Outcome::Ends(Err(Failure::WrongContent));
        }
        self.phase = Phase::Holding;
        self.next_connection(cx, self.step);
        let hold = match self.class_of(cx).map(|class| class.hold) {
            Some(hold) if self.verdict.is_none() => draw(&hold, &mut cx.shared.rng),
            _ => Duration::ZERO,
        };
        if hold.is_zero() {
            self.bye(cx);
        } else {
            self.wait_until(cx, cx.now + hold);
        }
        Outcome::Goes
    }

    /// Sends the ACK and puts the BYE in the INVITE's place (RFC 3261 §13.2.2.4, §15.1.1).
    fn confirm(&mut self, cx: &mut Cx<'_>, answer: &Message<'_>) -> Option<()> {
        let (ack_key, bye_key) = (self.key(cx, self.step + 1), self.key(cx, self.step + 2));
        let Cx { shared, desk, out, now, .. } = cx;
        let to = answer.header(HeaderName::To)?.value;
        let remote = Remote::of_answer(&shared.texts, answer);
        if remote.is_none() {
            self.verdict = Some(Failure::WrongContent);
        }
        let remote = remote.unwrap_or_else(|| Remote::fallback(&shared.texts, self.kept.uri()));
        let socket = shared.socket(self.socket)?;
        let credentials = self.kept.credentials();
        let (cseq, verb, key) = (self.cseq, &b"ACK"[..], ack_key);
        let ack = InDialog { verb, socket, key, remote: &remote, to, cseq, credentials };
        shared.texts.write_in_dialog(&mut self.ack, &self.kept, &ack);
        let bye = InDialog { verb: b"BYE", key: bye_key, cseq: cseq + 1, credentials: &[], ..ack };
        shared.texts.write_in_dialog(&mut desk.next, &self.kept, &bye);
        (self.ack_to, self.destination) = (remote.address, remote.address);
        std::mem::swap(&mut self.kept, &mut desk.next);
        self.cseq += 1;
        self.step = bye_key.step;
        self.counts.messages_in += 1;
        shared.send(out, self.way(self.ack_to), &self.ack.bytes);
        if self.traced {
            self.trace_in(&mut shared.ledger, *now, Direction::Sent, false, &self.ack.bytes);
        }
        Some(())
    }

    /// A final answer to the INVITE that is no 2xx.
    fn on_refused(&mut self, cx: &mut Cx<'_>, answer: &Message<'_>, status: u16) -> Outcome {
        self.counts.messages_out += 1;
        if self.acknowledge(cx, answer, false).is_some() {
            self.counts.messages_in += 1;
        }
        if let Some(outcome) = self.challenged(cx, answer, status) {
            return outcome;
        }
        match (self.party.scenario, status) {
            (Scenario::InviteNotfound, 404) => {}
            (Scenario::Redirect, 302) => {
                if !self.lists_contact(cx, answer, self.party.to) {
                    return Outcome::Ends(Err(Failure::WrongContent));
                }
            }
            (Scenario::InviteCancel, 487) if self.phase == Phase::Cancelling => {
                self.stop_clock(cx, self.cancel_due, self.begun);
                self.ending.invite_ended = true;
                return self.both_ended();
            }
            _ => return Outcome::Ends(Err(Failure::Status(status))),
        }
        self.stop_clock(cx, self.planned, self.first_sent);
        Outcome::Ends(Ok(()))
    }

    fn both_ended(&self) -> Outcome {
        let ended = self.ending.cancel_answered && self.ending.invite_ended;
        if ended { Outcome::Ends(Ok(())) } else { Outcome::Goes }
    }

    fn on_cancel_answer(&mut self, cx: &mut Cx<'_>, status: u16) -> Outcome {
        if self.phase != Phase::Cancelling || self.ending.cancel_answered || status < 200 {
            return self.repeated(cx);
        }
        self.counts.messages_out += 1;
        if status >= 300 {
            return Outcome::Ends(Err(Failure::Status(status)));
        }
        self.ending.cancel_answered = true;
        // §9.1: without a final answer to the INVITE in 64·T1, it never comes.
        self.wait_until(cx, self.deadline);
        self.both_ended()
    }

    /// Sends the ACK of a refusal, in the INVITE's transaction.
    fn acknowledge(&mut self, cx: &mut Cx<'_>, answer: &Message<'_>, repeated: bool) -> Option<()> {
        let routed = if self.party.scenario == Scenario::Outbound { Routed::ByTarget } else { Routed::ByUri };
        let uri = Some(self.kept.uri()).filter(|_| self.verb == Verb::Invite);
        let way = self.way(cx.shared.server_of(self.socket));
        let start = cx.out.bytes.len();
        send_ack(cx.shared, way, answer, AckOf::Refusal { uri, routed }, cx.out)?;
        if self.traced {
            let bytes = cx.out.bytes.get(start..).unwrap_or(&[]);
            self.trace_in(&mut cx.shared.ledger, cx.now, Direction::Sent, repeated, bytes);
        }
        Some(())
    }

    /// An answer to REGISTER, OPTIONS, MESSAGE or BYE.
    fn on_other_answer(&mut self, cx: &mut Cx<'_>, answer: &Message<'_>, status: u16) -> Outcome {
        if status < 200 {
            // §17.1.2.2: from now on it is sent again only every T2.
            self.interval = cx.shared.workload.t2;
            if self.heard.other == status {
                return self.repeated(cx);
            }
            self.heard.other = status;
            self.counts.messages_out += 1;
            return Outcome::Goes;
        }
        self.counts.messages_out += 1;
        if let Some(outcome) = self.challenged(cx, answer, status) {
            return outcome;
        }
        if self.verb == Verb::Bye {
            self.times.bye = Some(cx.now.since(self.begun));
            let wanted = if (200..300).contains(&status) { Ok(()) } else { Err(Failure::Status(status)) };
            return Outcome::Ends(self.verdict.map_or(wanted, Err));
        }
        if status != 200 {
            return Outcome::Ends(Err(Failure::Status(status)));
        }
        let sound = match self.party.scenario {
            Scenario::Register | Scenario::RegisterUpdate => self.lists_contact(cx, answer, self.party.from),
            Scenario::RegisterLogout => !self.lists_contact(cx, answer, self.party.from),
            _ => true,
        };
        self.stop_clock(cx, self.planned, self.first_sent);
        Outcome::Ends(if sound { Ok(()) } else { Err(Failure::WrongContent) })
    }

    /// Whether the answer lists the contact with which a user is registered.
    fn lists_contact(&self, cx: &mut Cx<'_>, answer: &Message<'_>, user: u32) -> bool {
        let Some(socket) = cx.shared.socket(self.socket) else { return false };
        let host_port = cx.shared.contacts.host_port(user).unwrap_or(&socket.host_port);
        cx.desk.scratch.clear();
        push_contact_uri(&cx.shared.names, user, host_port, &mut cx.desk.scratch);
        has_contact(answer, &cx.desk.scratch)
    }

    /// Sends the request again with credentials (RFC 3261 §22.2, §22.3); `None` if it is no challenge to be answered.
    ///
    /// Once per request, and a second time only when the server says that just the nonce was stale (RFC 2617 §3.2.1).
    fn challenged(&mut self, cx: &mut Cx<'_>, answer: &Message<'_>, status: u16) -> Option<Outcome> {
        if !matches!(status, 401 | 407) || !answers_challenges(cx.shared, self.party.class) {
            return None;
        }
        let refused = Some(Outcome::Ends(Err(Failure::Authentication)));
        let Some(challenge) = auth::challenge_of(answer, status) else { return refused };
        if self.phase == Phase::Cancelling || self.challenges > u8::from(challenge.is_stale()) {
            return refused;
        }
        self.challenges += 1;
        let cache = if cx.shared.workload.auth == Auth::Cached { Cache::Keep } else { Cache::Forget };
        cx.desk.meet(cx.shared, challenge, (self.party.from, self.purpose()), &self.kept, cache);
        self.step += 1;
        self.cseq += 1;
        cx.desk.apply(&mut self.kept, self.step, self.cseq);
        self.heard = Heard::default();
        self.next_connection(cx, self.step);
        if self.verb == Verb::Invite {
            self.invite_step = Some(self.step);
        }
        self.send_first(cx);
        Some(Outcome::Goes)
    }

    fn trace(&self, cx: &mut Cx<'_>, direction: Direction, repeated: bool, bytes: &[u8]) {
        if self.traced {
            self.trace_in(&mut cx.shared.ledger, cx.now, direction, repeated, bytes);
        }
    }

    fn trace_in(
        &self,
        ledger: &mut Ledger,
        at: Instant,
        direction: Direction,
        repeated: bool,
        bytes: &[u8],
    ) -> Option<Place> {
        ledger.trace(self.party.class, &Seen { at, side: Side::Caller, direction, repeated, bytes })
    }

    /// Counts the end; in the interval and, if it was planned in the window, there.
    pub(super) fn book(&self, ledger: &mut Ledger, result: Result<(), Failure>) {
        let (class, window) = (self.party.class, self.window);
        ledger.count(class, window, |tally| match result {
            Ok(()) => self.book_success(tally),
            Err(failure) => *tally.failures.entry(failure).or_default() += 1,
        });
        if window == Window::Measured {
            ledger.count_measured(class, |tally| {
                tally.retransmissions_sent += u64::from(self.counts.sent_again);
                tally.retransmissions_received += u64::from(self.counts.received_again);
            });
        }
    }

    fn book_success(&self, tally: &mut ClassTally) {
        tally.succeeded += 1;
        tally.caller_messages_in += u64::from(self.counts.messages_in);
        tally.caller_messages_out += u64::from(self.counts.messages_out);
        tally.trying += u64::from(self.counts.trying);
        let latencies = &mut tally.latencies;
        let into = |times: &mut crate::tally::Times, time: Option<Duration>| {
            if let Some(time) = time {
                times.record(time);
            }
        };
        into(&mut latencies.from_planned, self.times.from_planned);
        into(&mut latencies.from_sent, self.times.from_sent);
        into(&mut latencies.first_18x, self.times.first_18x);
        into(&mut latencies.bye, self.times.bye);
    }
}

/// Where an operation is sent from. Own users register from where they are called (so that a server that looks at the
/// source sees their contact); all else goes out from the callers' sockets in turn.
///
/// With connections only the preamble registers from the callees' side: the scenarios that register measure the callers'
/// connections. Over WebSocket a user is called on the connection that registered it (RFC 7118 §5), and must keep to it.
fn socket_for(cx: &Cx<'_>, party: Party) -> SocketId {
    let shared = &*cx.shared;
    if verb_of(party.scenario) == Verb::Register {
        let callee = shared.callee_link().transport;
        let called = || shared.workload.classes.iter().any(|class| class.scenario.facts().callee);
        let own = match party.class {
            super::PREAMBLE => true,
            _ if callee.is_websocket() => called(),
            _ => !shared.workload.links.any_stream(),
        };
        let tied = !callee.is_stream() || callee.is_websocket();
        let socket = shared.own_socket(party.from).filter(|_| own);
        // Any connection registers as well as another where the server connects to the contact.
        if let Some(socket) = socket {
            return if tied { socket } else { SocketId(shared.caller_sockets) };
        }
    }
    let callers = u32::from(shared.caller_sockets.max(1));
    let turn = match shared.workload.links.caller {
        link if link.transport.is_stream() && link.connections.stay() => cx.sleeper.slot % shared.pool.max(1),
        _ => cx.sleeper.slot,
    };
    SocketId(u16::try_from(turn % callers).unwrap_or(0))
}

/// The connection of an operation that is sent from there, and when that is closed.
fn connection_for(cx: &Cx<'_>, socket: SocketId, generation: u32) -> (ConnectionId, Closes) {
    let shared = &*cx.shared;
    if !shared.transport_of(socket).is_stream() {
        return (ConnectionId::NONE, Closes::Never);
    }
    if socket.0 >= shared.caller_sockets {
        // Behind the numbers of the callers' pool.
        return (ConnectionId::shared(shared.pool + u32::from(socket.0)), Closes::Never);
    }
    let own = ConnectionId::own(cx.sleeper.slot, generation, 0);
    match shared.caller_link().connections {
        Connections::Single | Connections::Pool(_) => {
            (ConnectionId::shared(cx.sleeper.slot % shared.pool.max(1)), Closes::Never)
        }
        Connections::PerCall => (own, Closes::AtEnd),
        Connections::PerTransaction => (own, Closes::EachTransaction),
    }
}
