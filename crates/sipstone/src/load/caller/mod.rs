//! Callers: the operations of one worker, from the arrival to the verdict.
//!
//! This file has the table and what surrounds an operation; what an operation does is in [`operation`], its answers to
//! challenges in [`auth`].

mod auth;
mod operation;

use super::ledger::{PREAMBLE, Seen};
use super::message::{AckOf, Key, Remote, Routed};
use super::timers::{Sleeper, Timers, Wake};
use super::worker::{Shared, Way};
use super::{ConnectionId, Outbox};
use crate::spec::{Auth, Scenario, Workload};
use crate::tally::{ClassTally, Direction, Failure, Side};
use auth::Desk;
use operation::{Operation, Party};
use sip::{Instant, Message, Method};
use std::time::Duration;

/// What surrounds an operation while it handles something.
struct Cx<'a> {
    shared: &'a mut Shared,
    desk: &'a mut Desk,
    out: &'a mut Outbox,
    now: Instant,
    sleeper: Sleeper,
}

/// How an operation stands after it has handled something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
enum Outcome {
    Goes,
    Ends(Result<(), Failure>),
}

/// The operations of a worker.
pub(super) struct Callers {
    operations: Vec<Operation>,
    free: Vec<u32>,
    open: u32,
    open_max: u32,
    desk: Desk,
    own: (u32, u32),
    /// Users of `register` in order: the next one's place, and how far to go on.
    turn: Turn,
    /// Of whom is called in turn: the next place, and how far to go on.
    called: (u64, u64),
    preamble: Registrations,
    window: u32,
    users: u32,
}

/// Users in order.
#[derive(Clone, Copy, Debug)]
struct Turn {
    first: u32,
    count: u32,
    next: u64,
    stride: u32,
}

impl Turn {
    fn next(&mut self) -> u32 {
        let place = self.next % u64::from(self.count.max(1));
        self.next = self.next.wrapping_add(self.stride.into());
        self.first.saturating_add(u32::try_from(place).unwrap_or(0))
    }
}

/// The registrations of the preamble.
#[derive(Clone, Copy, Debug, Default)]
struct Registrations {
    next: u32,
    left: u32,
    outstanding: u32,
    /// How many may be outstanding: halved when a request had to be sent again, one more after each round without.
    window: u32,
    /// Answers since the window last changed.
    answers: u32,
}

impl Registrations {
    /// Takes the end of one, with the largest window that was asked for.
    fn ended(&mut self, sent_again: bool, window_max: u32) {
        self.outstanding = self.outstanding.saturating_sub(1);
        self.answers += 1;
        if sent_again && self.answers > 1 {
            (self.window, self.answers) = ((self.window / 2).max(1), 0);
        } else if self.answers > self.window {
            (self.window, self.answers) = ((self.window + 1).min(window_max), 0);
        }
    }
}

impl Callers {
    pub(super) fn new(workload: &Workload, own: (u32, u32), (index, of): (u16, u16)) -> Callers {
        // A loader without users of its own shares everybody's with the other workers of its group.
        let turn = match own {
            (first, count) if count > 0 => Turn { first, count, next: 0, stride: 1 },
            _ => Turn { first: 0, count: workload.users.count, next: index.into(), stride: of.into() },
        };
        Callers {
            operations: Vec::new(),
            free: Vec::new(),
            open: 0,
            open_max: workload.open_operations_max,
            desk: Desk::default(),
            own,
            turn,
            called: (index.into(), of.into()),
            preamble: Registrations::default(),
            window: workload.preamble_window.max(1),
            users: workload.users.count,
        }
    }

    pub(super) fn own_users(&self) -> u32 {
        self.own.1
    }

    /// Operations begun and not ended, the preamble's too.
    pub(super) fn open(&self) -> u64 {
        self.open.into()
    }

    pub(super) fn begin_preamble(&mut self) {
        self.preamble = Registrations {
            next: self.own.0,
            left: self.own.1,
            window: self.window,
            ..Registrations::default()
        };
    }

    /// Registers further own users, as long as the window has room.
    pub(super) fn continue_preamble(&mut self, shared: &mut Shared, now: Instant, out: &mut Outbox) {
        while self.preamble.left > 0 && self.preamble.outstanding < self.preamble.window {
            let user = self.preamble.next;
            self.preamble.left -= 1;
            self.preamble.next = user.saturating_add(1);
            self.preamble.outstanding += 1;
            match self.take_slot() {
                Some(slot) => {
                    let party = Party { scenario: Scenario::Register, class: PREAMBLE, from: user, to: user };
                    self.start(shared, now, slot, party, now, out);
                }
                None => self.end_preamble_user(shared, Err(Failure::GeneratorDropped), false),
            }
        }
    }

    /// The preamble is given up: who is not registered yet stays so.
    pub(super) fn stop_preamble(&mut self) {
        self.preamble.left = 0;
    }

    fn end_preamble_user(&mut self, shared: &mut Shared, result: Result<(), Failure>, sent_again: bool) {
        self.preamble.ended(sent_again, self.window);
        match result {
            Ok(()) => shared.ledger.preamble.registered += 1,
            Err(_) => shared.ledger.preamble.failed += 1,
        }
    }

    /// An arrival.
    pub(super) fn begin(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        class: u16,
        planned: Instant,
        out: &mut Outbox,
    ) {
        let Some(scenario) = shared.workload.classes.get(usize::from(class)).map(|class| class.scenario)
        else {
            return;
        };
        let window = shared.ledger.window_of(planned);
        shared.ledger.count(class, window, |tally| tally.offered += 1);
        let slot = if shared.sockets.is_empty() { None } else { self.take_slot() };
        let Some(slot) = slot else {
            let dropped =
                |tally: &mut ClassTally| *tally.failures.entry(Failure::GeneratorDropped).or_default() += 1;
            shared.ledger.count(class, window, dropped);
            shared.ledger.failure_example(class, Failure::GeneratorDropped, &[]);
            return;
        };
        let (from, to) = self.choose_users(shared, scenario);
        self.start(shared, now, slot, Party { scenario, class, from, to }, planned, out);
    }

    /// Caller and callee; a caller never calls itself.
    fn choose_users(&mut self, shared: &mut Shared, scenario: Scenario) -> (u32, u32) {
        if matches!(scenario, Scenario::Register | Scenario::RegisterLogout) {
            let user = self.turn.next();
            return (user, user);
        }
        let from = shared.chooser.choose(&mut shared.rng);
        if matches!(scenario, Scenario::RegisterUpdate | Scenario::Options) {
            return (from, from);
        }
        let to = match self.next_called(shared) {
            Some(to) => to,
            None => shared.chooser.choose(&mut shared.rng),
        };
        let next = if to + 1 < self.users { to + 1 } else { 0 };
        (from, if to == from { next } else { to })
    }

    /// Whoever is called next, where each call is to have a connection of its own: two calls at a time to one contact would
    /// share it, and the end of one could meet the beginning of the other.
    fn next_called(&mut self, shared: &Shared) -> Option<u32> {
        let link = shared.callee_link();
        if !link.transport.is_stream() || link.connections.stay() {
            return None;
        }
        let turn = self.called.0;
        self.called.0 = turn.wrapping_add(self.called.1);
        shared.contacts.in_turn(turn)
    }

    fn take_slot(&mut self) -> Option<u32> {
        if self.open >= self.open_max {
            return None;
        }
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                let slot = u32::try_from(self.operations.len()).ok()?;
                self.operations.push(Operation::default());
                slot
            }
        };
        self.open += 1;
        Some(slot)
    }

    fn start(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        slot: u32,
        party: Party,
        planned: Instant,
        out: &mut Outbox,
    ) {
        self.run(shared, now, slot, None, out, |operation, cx| operation.begin(cx, party, planned));
    }

    /// Lets the operation of a slot handle something, and ends it if that was its end. `answer`: what decided.
    fn run(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        slot: u32,
        answer: Option<&[u8]>,
        out: &mut Outbox,
        handle: impl FnOnce(&mut Operation, &mut Cx<'_>) -> Outcome,
    ) {
        let Some(operation) = self.operations.get_mut(index(slot)) else {
            return;
        };
        let sleeper = operation.sleeper(slot);
        let outcome = handle(operation, &mut Cx { shared, desk: &mut self.desk, out, now, sleeper });
        if let Outcome::Ends(result) = outcome {
            self.end(shared, now, slot, result, answer);
        }
    }

    /// A timer entry came up.
    pub(super) fn on_entry(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        at: Instant,
        sleeper: Sleeper,
        out: &mut Outbox,
    ) {
        let Some(operation) = self.find(sleeper.slot, sleeper.generation) else { return };
        if shared.timers.wake(&mut operation.alarm, now, at, sleeper) == Wake::Due {
            self.run(shared, now, sleeper.slot, None, out, Operation::on_alarm);
        }
    }

    /// The operation of a slot, if it is still that one.
    fn find(&mut self, slot: u32, generation: u32) -> Option<&mut Operation> {
        let operation = self.operations.get_mut(index(slot))?;
        (operation.generation == generation && operation.is_open()).then_some(operation)
    }

    /// An answer came; `None` if it belongs to nothing of this run.
    pub(super) fn on_response(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        way: Way,
        answer: &Message<'_>,
        out: &mut Outbox,
    ) -> Option<()> {
        let via = answer.via_top().ok()?;
        let key = shared.texts.identity.of_branch(via.branch()?)?;
        let status = answer.status()?;
        let method = answer.cseq().ok()?.method;
        if answer.via_below().is_some() {
            // RFC 3261 §8.1.3.3: more than one Via means that it went astray.
            return None;
        }
        if self.find(key.slot, key.generation).is_none() {
            return on_late_answer(shared, way, answer, (key, status, method), out);
        }
        self.run(shared, now, key.slot, Some(answer.bytes()), out, |operation, cx| {
            operation.on_answer(cx, answer, key.step, status, method)
        });
        Some(())
    }

    /// A connection was lost or could not be made: what waits for answers on it has failed.
    pub(super) fn on_lost(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        connection: ConnectionId,
        failure: Failure,
    ) {
        let slots = match connection.owner() {
            Some(slot) => slot..slot.saturating_add(1),
            None => 0..u32::try_from(self.operations.len()).unwrap_or(u32::MAX),
        };
        for slot in slots {
            if self.operations.get(index(slot)).is_some_and(|operation| operation.waits_on(connection)) {
                self.end(shared, now, slot, Err(failure), None);
            }
        }
    }

    /// All that is open fails: the run is over, or there is nobody.
    pub(super) fn fail_all(&mut self, shared: &mut Shared, now: Instant, failure: Failure) {
        for slot in 0..u32::try_from(self.operations.len()).unwrap_or(u32::MAX) {
            if self.operations.get(index(slot)).is_some_and(|operation| operation.is_open()) {
                self.end(shared, now, slot, Err(failure), None);
            }
        }
    }

    /// Books the end of an operation and frees its slot.
    fn end(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        slot: u32,
        result: Result<(), Failure>,
        answer: Option<&[u8]>,
    ) {
        let Some(operation) = self.operations.get_mut(index(slot)) else {
            return;
        };
        let class = operation.class();
        if let Err(failure) = result {
            let sent = operation.last_request();
            let received = answer.map(|bytes| received(now, bytes));
            let messages = [Some(sent), received];
            let count = if received.is_some() { 2 } else { 1 };
            let messages: Vec<Seen<'_>> = messages.into_iter().flatten().take(count).collect();
            shared.ledger.failure_example(class, failure, &messages);
        }
        let sent_again = operation.was_sent_again();
        operation.book(&mut shared.ledger, result);
        operation.hang_up(shared.workload.links.close, result, &mut shared.closing);
        operation.close();
        self.free.push(slot);
        self.open -= 1;
        if class == PREAMBLE {
            self.end_preamble_user(shared, result, sent_again);
        }
    }
}

/// An answer for an operation that has ended: it is acknowledged all the same, so that its sender gives peace.
fn on_late_answer(
    shared: &mut Shared,
    way: Way,
    answer: &Message<'_>,
    (key, status, method): (Key, u16, Method),
    out: &mut Outbox,
) -> Option<()> {
    let interval = &mut shared.ledger.interval.classes;
    let scenario = shared.workload.classes.get(usize::from(key.class)).map(|class| class.scenario);
    if let Some(tally) = interval.get_mut(usize::from(key.class)) {
        tally.retransmissions_received += 1;
    }
    if method != Method::Invite || status < 200 {
        return Some(());
    }
    let remote = if status < 300 { Some(Remote::of_answer(&shared.texts, answer)?) } else { None };
    let routed = if scenario == Some(Scenario::Outbound) { Routed::ByTarget } else { Routed::ByUri };
    let of = remote.as_ref().map_or(AckOf::Refusal { uri: None, routed }, AckOf::Dialog);
    let to = remote.as_ref().map_or(shared.server_of(way.socket), |remote| remote.address);
    send_ack(shared, Way { to, ..way }, answer, of, out)?;
    if let Some(tally) = shared.ledger.interval.classes.get_mut(usize::from(key.class)) {
        tally.retransmissions_sent += 1;
    }
    Some(())
}

/// Sends an ACK that is made from the answer.
fn send_ack(
    shared: &mut Shared,
    way: Way,
    answer: &Message<'_>,
    of: AckOf<'_>,
    out: &mut Outbox,
) -> Option<()> {
    let start = out.bytes.len();
    let written =
        shared.socket(way.socket).and_then(|text| shared.texts.write_ack(&mut out.bytes, text, answer, of));
    if written.is_none() {
        out.bytes.truncate(start);
        return None;
    }
    shared.finish(out, way, start);
    Some(())
}

/// A slot's place in the table.
fn index(slot: u32) -> usize {
    usize::try_from(slot).unwrap_or(usize::MAX)
}

fn received(at: Instant, bytes: &[u8]) -> Seen<'_> {
    Seen { at, side: Side::Caller, direction: Direction::Received, repeated: false, bytes }
}

/// RFC 3261 §17.1.1.1, §17.1.2.1: how long a transaction lasts, in T1.
const TRANSACTION_T1: u32 = 64;

fn transaction_time(shared: &Shared) -> Duration {
    shared.workload.t1.saturating_mul(TRANSACTION_T1)
}

/// Whether challenges are answered: always in the preamble, which is there to get the users registered.
fn answers_challenges(shared: &Shared, class: u16) -> bool {
    class == PREAMBLE || shared.workload.auth != Auth::None
}

/// Switches an operation's alarm off, or sets it for the earlier of the two.
fn arm(cx: &mut Cx<'_>, alarm: &mut super::timers::Alarm, one: Instant, other: Instant) {
    match one.min(other) {
        Instant::NEVER => Timers::clear(alarm),
        at => cx.shared.timers.set(alarm, cx.now, at, cx.sleeper),
    }
}
