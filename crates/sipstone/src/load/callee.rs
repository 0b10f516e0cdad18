//! Callees: the users of one worker who are called (RFC 3261 §8.2, §9.2, §13.3, §15.1.2, §17.2).
//!
//! ```text
//!  INVITE --180--> Ringing --ring is over: 200--> Answered --ACK--> Confirmed --BYE--> gone
//!                     |                              |--BYE--> HungUp --ACK--> gone
//!                     +--CANCEL: 200, 487--> Cancelled --ACK--> gone
//! ```
//!
//! Answered and Cancelled send their answer again from T1 to T2 until the ACK, for 64·T1 (§13.3.1.4, Timers G and H).
//! Requests within a dialog find it by the tag that we gave it, new ones by a keyed hash of Call-ID and CSeq number.
//! The hash of a dialog that has ended is remembered, so that a late copy of its INVITE makes no second dialog
//! (RFC 6026 §7.1, state Accepted).

use super::ledger::{Place, Seen, Window};
use super::message::{Key, push_body, push_copied, push_dialog_headers, read_note, reply_address};
use super::timers::{Alarm, Side as TimerSide, Sleeper, Wake};
use super::worker::{Hashed, Shared, Way, mix};
use super::{ConnectionId, Outbox, SocketId};
use crate::spec::{Close, Connections, Delay, Workload};
use crate::tally::{Direction, Side};
use ahash::RandomState;
use sip::{Instant, Message, Method, Via};
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::net::SocketAddr;
use std::time::Duration;

/// Most hashes of ended dialogs and answered MESSAGEs that are remembered; the oldest go first.
const ENDED_MAX: usize = 1 << 17;
/// Dialogs of callees per operation that may be open here: other workers' callers call our callees too.
const DIALOGS_PER_OPERATION: u32 = 4;
/// Longest ringing that a caller may ask for.
const RING_MAX: Duration = Duration::from_secs(3600);

/// What a Call-ID stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// A dialog, in this slot.
    Dialog(u32),
    /// A dialog or MESSAGE of this class that has ended.
    Ended(u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Free,
    Ringing,
    Answered,
    Confirmed,
    /// BYE came before the ACK.
    HungUp,
    Cancelled,
}

/// One dialog, or the room for one.
#[derive(Debug)]
struct Dialog {
    generation: u32,
    phase: Phase,
    alarm: Alarm,
    key: Key,
    window: Window,
    traced: bool,
    /// How answers to the INVITE go.
    reply: Way,
    /// Whether it keeps the connection that the INVITE came on from being closed.
    holds: bool,
    hash: u64,
    interval: Duration,
    retransmit_at: Instant,
    deadline: Instant,
    messages_in: u32,
    messages_out: u32,
    /// What all answers to the INVITE have in common; from `dialog_at` on, what only those have that make a dialog.
    common: Vec<u8>,
    dialog_at: usize,
}

impl Default for Dialog {
    fn default() -> Dialog {
        Dialog {
            generation: 0,
            phase: Phase::Free,
            alarm: Alarm::OFF,
            key: Key { slot: 0, generation: 0, class: 0, step: 0 },
            window: Window::Outside,
            traced: false,
            reply: Way {
                socket: SocketId(0),
                connection: ConnectionId::NONE,
                to: SocketAddr::from(([0, 0, 0, 0], 0)),
            },
            holds: false,
            hash: 0,
            interval: Duration::ZERO,
            retransmit_at: Instant::NEVER,
            deadline: Instant::NEVER,
            messages_in: 0,
            messages_out: 0,
            common: Vec::new(),
            dialog_at: 0,
        }
    }
}

/// What surrounds a request while it is handled.
struct Cx<'a, 'm> {
    shared: &'a mut Shared,
    out: &'a mut Outbox,
    now: Instant,
    /// Where it came from.
    way: Way,
    request: &'a Message<'m>,
    via: &'a Via<'m>,
}

/// The callees of a worker.
pub(super) struct Callees {
    dialogs: Vec<Dialog>,
    free: Vec<u32>,
    open: u32,
    open_max: u32,
    random: RandomState,
    known: HashMap<u64, Known, BuildHasherDefault<Hashed>>,
    ended: VecDeque<(Instant, u64)>,
    /// 64·T1 (RFC 3261 §13.3.1.4, Timers H and L).
    patience: Duration,
    /// How long a dialog may last after its ACK: the longest hold time and that.
    lifetime: Duration,
    /// When a connection on which the server calls is closed here.
    closes: Closes,
    /// Dialogs or transactions that still need a connection that is to be closed after them. At most one entry for each
    /// open dialog.
    needed: HashMap<ConnectionId, u32>,
}

/// When callees close the connections on which the server calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closes {
    Never,
    AfterDialog,
    AfterTransaction,
}

impl Closes {
    fn of(workload: &Workload) -> Closes {
        let link = workload.links.callee;
        // Over WebSocket the connection is the one that has registered, and stays.
        if workload.links.close == Close::Server
            || !link.transport.is_stream()
            || link.transport.is_websocket()
        {
            return Closes::Never;
        }
        match link.connections {
            Connections::Single | Connections::Pool(_) => Closes::Never,
            Connections::PerCall => Closes::AfterDialog,
            Connections::PerTransaction => Closes::AfterTransaction,
        }
    }
}

impl Callees {
    /// `users`: how many are called here. Where there are any, room is taken at once, for a table that grows under load
    /// would delay answers.
    pub(super) fn new(workload: &Workload, seed: u64, users: u32) -> Callees {
        let hold = |delay: &Delay| match delay {
            Delay::None => Duration::ZERO,
            Delay::Constant(time) => *time,
            Delay::Exponential { max, .. } => *max,
        };
        let longest = workload.classes.iter().map(|class| hold(&class.hold)).max().unwrap_or_default();
        let patience = workload.t1.saturating_mul(64);
        let room = if users > 0 { ENDED_MAX } else { 0 };
        Callees {
            dialogs: Vec::new(),
            free: Vec::new(),
            open: 0,
            open_max: workload.open_operations_max.saturating_mul(DIALOGS_PER_OPERATION),
            random: RandomState::with_seeds(mix(seed), mix(seed ^ 1), mix(seed ^ 2), mix(seed ^ 3)),
            known: HashMap::with_capacity_and_hasher(2 * room, BuildHasherDefault::default()),
            ended: VecDeque::with_capacity(room),
            patience,
            lifetime: longest.saturating_add(patience),
            closes: Closes::of(workload),
            needed: HashMap::new(),
        }
    }

    /// Dialogs that have not ended.
    pub(super) fn open(&self) -> u32 {
        self.open
    }

    /// A request came; `None` if it belongs to nothing, or is no sound request.
    pub(super) fn on_request(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        way: Way,
        request: &Message<'_>,
        out: &mut Outbox,
    ) -> Option<()> {
        let via = request.via_top().ok()?;
        let cseq = request.cseq().ok()?;
        let call_id = request.call_id().ok()?;
        let key = request.to_tag().and_then(|tag| shared.texts.identity.of_tag(tag));
        let tagged = request.to_tag().is_some();
        // The number tells a call's second INVITE, with credentials, from its first.
        let hash = mix(self.random.hash_one(call_id) ^ u64::from(cseq.number));
        let mut cx = Cx { shared, out, now, way, request, via: &via };
        match (request.method(), key) {
            (Method::Ack, Some(key)) => self.on_ack(&mut cx, key),
            (Method::Ack, None) => None,
            (Method::Bye, Some(key)) => self.on_bye(&mut cx, key),
            (Method::Invite, None) if !tagged => self.on_invite(&mut cx, hash),
            (Method::Cancel, None) => self.on_cancel(&mut cx, hash),
            (Method::Message, None) if !tagged => self.on_message(&mut cx, hash),
            (Method::Options, None) if !tagged => cx.answer(b"200 OK", hash).map(drop),
            (Method::Bye, None) => cx.answer(b"481 Call/Transaction Does Not Exist", hash).map(drop),
            _ if tagged => cx.answer(b"481 Call/Transaction Does Not Exist", hash).map(drop),
            _ => cx
                .answer(b"405 Method Not Allowed\r\nAllow: INVITE, ACK, BYE, CANCEL, MESSAGE, OPTIONS", hash)
                .map(drop),
        }
    }

    fn find(&mut self, slot: u32) -> Option<&mut Dialog> {
        self.dialogs.get_mut(usize::try_from(slot).ok()?).filter(|dialog| dialog.phase != Phase::Free)
    }

    fn on_invite(&mut self, cx: &mut Cx<'_, '_>, hash: u64) -> Option<()> {
        match self.known.get(&hash).copied() {
            Some(Known::Ended(class)) => {
                cx.count_repeated(class);
                return Some(());
            }
            Some(Known::Dialog(slot)) => {
                let dialog = self.find(slot)?;
                cx.count_repeated(dialog.key.class);
                cx.note(dialog, true);
                dialog.answer_again(cx.shared, cx.out, cx.now);
                return Some(());
            }
            None => {}
        }
        if self.open >= self.open_max {
            cx.shared.ledger.count_generator(cx.now, |generator| generator.callees_refused += 1);
            return cx.answer(b"503 Service Unavailable", hash).map(drop);
        }
        let slot = self.take_slot()?;
        let (patience, dialog) = (self.patience, self.dialogs.get_mut(usize::try_from(slot).ok()?)?);
        if dialog.ring(cx, slot, hash, patience).is_none() {
            self.free.push(slot);
            return None;
        }
        self.open += 1;
        self.known.insert(hash, Known::Dialog(slot));
        self.hold(cx.way.connection, slot);
        Some(())
    }

    /// Keeps a connection open for a dialog.
    fn hold(&mut self, connection: ConnectionId, slot: u32) {
        if self.closes != Closes::Never
            && let Some(dialog) = self.find(slot)
        {
            dialog.holds = true;
            *self.needed.entry(connection).or_default() += 1;
        }
    }

    /// A dialog or transaction no longer needs its connection: the last one closes it.
    fn release(&mut self, connection: ConnectionId, closing: &mut Vec<ConnectionId>) {
        let left = match self.needed.get_mut(&connection) {
            Some(count) => {
                *count -= 1;
                *count
            }
            None => 0,
        };
        if left == 0 {
            self.needed.remove(&connection);
            closing.push(connection);
        }
    }

    /// A transaction on a connection is over: it is closed unless a dialog still needs it.
    fn close_if_idle(&self, cx: &mut Cx<'_, '_>) {
        let connection = cx.way.connection;
        if self.closes != Closes::Never && !self.needed.contains_key(&connection) {
            cx.shared.closing.push(connection);
        }
    }

    fn take_slot(&mut self) -> Option<u32> {
        self.free.pop().or_else(|| {
            let slot = u32::try_from(self.dialogs.len()).ok()?;
            self.dialogs.push(Dialog::default());
            Some(slot)
        })
    }

    fn on_ack(&mut self, cx: &mut Cx<'_, '_>, key: Key) -> Option<()> {
        let (now, lifetime) = (cx.now, self.lifetime);
        let Some(dialog) = self.find(key.slot).filter(|dialog| dialog.generation == key.generation) else {
            // Of a dialog that has ended.
            cx.count_repeated(key.class);
            return Some(());
        };
        let repeated = matches!(dialog.phase, Phase::Confirmed | Phase::Ringing);
        cx.note(dialog, repeated);
        if repeated {
            cx.count_repeated(key.class);
            return Some(());
        }
        dialog.messages_out += 1;
        if dialog.phase == Phase::Answered {
            // The alarm is left as it is: most calls have ended before it rings.
            dialog.phase = Phase::Confirmed;
            dialog.retransmit_at = Instant::NEVER;
            dialog.deadline = now + lifetime;
            let (connection, held) = (dialog.reply.connection, dialog.holds);
            if held && self.closes == Closes::AfterTransaction {
                if let Some(dialog) = self.find(key.slot) {
                    dialog.holds = false;
                }
                self.release(connection, &mut cx.shared.closing);
            }
        } else {
            self.end(cx.shared, now, key.slot, End::Complete);
        }
        Some(())
    }

    fn on_bye(&mut self, cx: &mut Cx<'_, '_>, key: Key) -> Option<()> {
        let (now, hash) = (cx.now, 0);
        let Some(dialog) = self.find(key.slot).filter(|dialog| dialog.generation == key.generation) else {
            return self.on_late_bye(cx, key);
        };
        let traced = dialog.traced;
        match dialog.phase {
            Phase::HungUp => {
                cx.count_repeated(key.class);
                cx.note(dialog, true);
                cx.answer(b"200 OK", hash)?;
                cx.count_sent_again(key.class);
            }
            Phase::Answered | Phase::Confirmed => {
                cx.note(dialog, false);
                dialog.messages_out += 1;
                dialog.messages_in += 1;
                let confirmed = dialog.phase == Phase::Confirmed;
                if !confirmed {
                    // No answer to the INVITE any more, but its ACK may just have been overtaken.
                    dialog.phase = Phase::HungUp;
                    dialog.retransmit_at = Instant::NEVER;
                }
                let range = cx.answer(b"200 OK", hash)?;
                if traced {
                    let bytes = cx.out.bytes.get(range).unwrap_or(&[]);
                    let seen = Seen {
                        at: now,
                        side: Side::Callee,
                        direction: Direction::Sent,
                        repeated: false,
                        bytes,
                    };
                    cx.shared.ledger.trace(key.class, &seen);
                }
                if confirmed {
                    self.end(cx.shared, now, key.slot, End::Complete);
                    self.close_if_idle(cx);
                }
            }
            _ => cx.answer(b"481 Call/Transaction Does Not Exist", hash).map(drop)?,
        }
        Some(())
    }

    /// A BYE for a dialog that we had: the answer was lost, or the request came twice (Timer J would still run).
    fn on_late_bye(&mut self, cx: &mut Cx<'_, '_>, key: Key) -> Option<()> {
        let slots = self.dialogs.get(usize::try_from(key.slot).ok()?);
        // Generations count on; the one of a dialog that we had lies behind.
        let ours = slots.is_some_and(|dialog| dialog.generation.wrapping_sub(key.generation) < 1 << 31);
        if !ours {
            return cx.answer(b"481 Call/Transaction Does Not Exist", 0).map(drop);
        }
        cx.count_repeated(key.class);
        cx.answer(b"200 OK", 0)?;
        cx.count_sent_again(key.class);
        Some(())
    }

    fn on_cancel(&mut self, cx: &mut Cx<'_, '_>, hash: u64) -> Option<()> {
        let (now, t1, patience) = (cx.now, cx.shared.workload.t1, self.patience);
        let slot = match self.known.get(&hash).copied() {
            Some(Known::Dialog(slot)) => slot,
            Some(Known::Ended(class)) => {
                cx.count_repeated(class);
                cx.count_sent_again(class);
                return cx.answer(b"200 OK", hash).map(drop);
            }
            None => return cx.answer(b"481 Call/Transaction Does Not Exist", hash).map(drop),
        };
        let dialog = self.find(slot)?;
        let key = dialog.key;
        let repeated = dialog.phase == Phase::Cancelled;
        cx.note(dialog, repeated);
        // RFC 3261 §9.2: the same tag as in the answers to the INVITE.
        let tag = cx.shared.texts.identity.tag(key);
        let range = cx.answer_with(b"200 OK", &tag)?;
        let bytes = cx.out.bytes.get(range).unwrap_or(&[]);
        dialog.note_sent(cx.shared, now, repeated, bytes);
        if repeated {
            cx.count_repeated(key.class);
            cx.count_sent_again(key.class);
            return Some(());
        }
        dialog.messages_out += 1;
        dialog.messages_in += 1;
        if dialog.phase == Phase::Ringing {
            dialog.phase = Phase::Cancelled;
            dialog.messages_in += 1;
            dialog.answer(cx.shared, cx.out, now, false);
            dialog.retransmit_from(cx.shared, now, t1, patience);
            if dialog.reply.connection != ConnectionId::NONE {
                // RFC 3261 §17.2.1: Timer G runs over unreliable transports only.
                dialog.retransmit_at = Instant::NEVER;
                dialog.arm(cx.shared, now);
            }
        }
        Some(())
    }

    fn on_message(&mut self, cx: &mut Cx<'_, '_>, hash: u64) -> Option<()> {
        let note = read_note(cx.request);
        let (class, window) = (note.class, cx.shared.ledger.window_of(cx.now));
        let repeated = self.known.contains_key(&hash);
        let range = cx.answer(b"200 OK", hash)?;
        if note.traced {
            let seen = |direction, bytes| Seen { at: cx.now, side: Side::Callee, direction, repeated, bytes };
            let class = cx.class(class);
            cx.shared.ledger.trace(class, &seen(Direction::Received, cx.request.bytes()));
            cx.shared.ledger.trace(class, &seen(Direction::Sent, cx.out.bytes.get(range).unwrap_or(&[])));
        }
        if repeated {
            cx.count_repeated(class);
            cx.count_sent_again(class);
            return Some(());
        }
        let class = cx.class(class);
        cx.shared.ledger.count(class, window, |tally| {
            tally.callee_messages_in += 1;
            tally.callee_messages_out += 1;
            tally.callee_ended += 1;
        });
        self.remember(cx.now, hash, class);
        self.close_if_idle(cx);
        Some(())
    }

    /// Keeps a hash for 64·T1, as long as there is room.
    fn remember(&mut self, now: Instant, hash: u64, class: u16) {
        self.known.insert(hash, Known::Ended(class));
        self.ended.push_back((now, hash));
        for _ in 0..2 {
            let Some(&(at, oldest)) = self.ended.front() else { break };
            if self.ended.len() <= ENDED_MAX && now.since(at) < self.patience {
                break;
            }
            self.ended.pop_front();
            if matches!(self.known.get(&oldest), Some(Known::Ended(_))) {
                self.known.remove(&oldest);
            }
        }
    }

    fn end(&mut self, shared: &mut Shared, now: Instant, slot: u32, end: End) {
        let Some(dialog) = self.find(slot) else { return };
        if end == End::Complete {
            let (messages_in, messages_out) = (u64::from(dialog.messages_in), u64::from(dialog.messages_out));
            shared.ledger.count(dialog.key.class, dialog.window, |tally| {
                tally.callee_messages_in += messages_in;
                tally.callee_messages_out += messages_out;
                tally.callee_ended += 1;
            });
        }
        dialog.phase = Phase::Free;
        dialog.generation = dialog.generation.wrapping_add(1);
        dialog.alarm = Alarm::OFF;
        let (hash, class) = (dialog.hash, dialog.key.class);
        let held = std::mem::take(&mut dialog.holds).then_some(dialog.reply.connection);
        if let Some(connection) = held {
            self.release(connection, &mut shared.closing);
        }
        self.free.push(slot);
        self.open -= 1;
        self.remember(now, hash, class);
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
        let patience = self.patience;
        let Some(dialog) = self.find(sleeper.slot).filter(|dialog| dialog.generation == sleeper.generation)
        else {
            return;
        };
        if shared.timers.wake(&mut dialog.alarm, now, at, sleeper) == Wake::NotYet {
            return;
        }
        match dialog.phase {
            Phase::Ringing => dialog.pick_up(shared, out, now, patience),
            _ if dialog.deadline <= now => self.end(shared, now, sleeper.slot, End::GivenUp),
            _ if dialog.retransmit_at <= now => {
                dialog.answer_again(shared, out, now);
                dialog.interval = dialog.interval.saturating_mul(2).min(shared.workload.t2);
                dialog.retransmit_at = now + dialog.interval;
                dialog.arm(shared, now);
            }
            _ => dialog.arm(shared, now),
        }
    }
}

/// Whether a dialog ended as it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Complete,
    /// No ACK, or no BYE, in the time there is.
    GivenUp,
}

impl Dialog {
    /// Takes an INVITE: 180, and 200 at once if there is no ring time.
    fn ring(&mut self, cx: &mut Cx<'_, '_>, slot: u32, hash: u64, patience: Duration) -> Option<()> {
        let note = read_note(cx.request);
        let generation = self.generation;
        let key = Key { slot, generation, class: cx.class(note.class), step: 0 };
        self.common.clear();
        let tag = cx.shared.texts.identity.tag(key);
        push_copied(cx.request, cx.via, cx.way.to, &tag, &mut self.common)?;
        self.dialog_at = self.common.len();
        push_dialog_headers(cx.request, cx.shared.socket(cx.way.socket)?, &mut self.common);
        *self = Dialog {
            generation,
            phase: Phase::Ringing,
            key,
            window: cx.shared.ledger.window_of(cx.now),
            traced: note.traced,
            reply: cx.way_back(),
            hash,
            messages_in: 1,
            messages_out: 1,
            common: std::mem::take(&mut self.common),
            dialog_at: self.dialog_at,
            ..Dialog::default()
        };
        cx.note(self, false);
        self.answer(cx.shared, cx.out, cx.now, false);
        cx.shared.ledger.await_turnaround(cx.now);
        let ring = Duration::from_micros(note.ring_us.into()).min(RING_MAX);
        if ring.is_zero() {
            self.pick_up(cx.shared, cx.out, cx.now, patience);
        } else {
            self.deadline = cx.now + ring;
            self.arm(cx.shared, cx.now);
        }
        Some(())
    }

    fn pick_up(&mut self, shared: &mut Shared, out: &mut Outbox, now: Instant, patience: Duration) {
        self.phase = Phase::Answered;
        self.messages_in += 1;
        self.answer(shared, out, now, false);
        self.retransmit_from(shared, now, shared.workload.t1, patience);
    }

    /// From now on the answer is sent again after T1, 2·T1, … T2, until the ACK.
    fn retransmit_from(&mut self, shared: &mut Shared, now: Instant, t1: Duration, patience: Duration) {
        self.interval = t1;
        self.retransmit_at = now + t1;
        self.deadline = now + patience;
        self.arm(shared, now);
    }

    fn arm(&mut self, shared: &mut Shared, now: Instant) {
        let sleeper = Sleeper { side: TimerSide::Callee, slot: self.key.slot, generation: self.generation };
        shared.timers.set(&mut self.alarm, now, self.retransmit_at.min(self.deadline), sleeper);
    }

    fn answer_again(&mut self, shared: &mut Shared, out: &mut Outbox, now: Instant) {
        if matches!(self.phase, Phase::Ringing | Phase::Answered | Phase::Cancelled) {
            self.answer(shared, out, now, true);
            shared.ledger.count(self.key.class, self.window, |tally| tally.retransmissions_sent += 1);
        }
    }

    /// Sends the answer to the INVITE that the phase asks for.
    fn answer(&mut self, shared: &mut Shared, out: &mut Outbox, now: Instant, repeated: bool) {
        let start = out.bytes.len();
        let bytes = &mut out.bytes;
        match self.phase {
            Phase::Ringing => {
                bytes.extend_from_slice(b"SIP/2.0 180 Ringing\r\n");
                bytes.extend_from_slice(&self.common);
                push_body(None, bytes);
            }
            Phase::Cancelled => {
                bytes.extend_from_slice(b"SIP/2.0 487 Request Terminated\r\n");
                bytes.extend_from_slice(self.common.get(..self.dialog_at).unwrap_or(&[]));
                push_body(None, bytes);
            }
            _ => {
                bytes.extend_from_slice(b"SIP/2.0 200 OK\r\n");
                bytes.extend_from_slice(&self.common);
                push_body(shared.socket(self.reply.socket), bytes);
            }
        }
        shared.finish(out, self.reply, start);
        let bytes = out.bytes.get(start..).unwrap_or(&[]);
        self.note_sent(shared, now, repeated, bytes);
    }

    fn note_sent(&self, shared: &mut Shared, now: Instant, repeated: bool, bytes: &[u8]) -> Option<Place> {
        let seen = Seen { at: now, side: Side::Callee, direction: Direction::Sent, repeated, bytes };
        self.traced.then(|| shared.ledger.trace(self.key.class, &seen)).flatten()
    }
}

impl Cx<'_, '_> {
    /// The way of an answer: on the connection of the request (RFC 3261 §18.2.2), or by its Via.
    fn way_back(&self) -> Way {
        match self.way.connection {
            ConnectionId::NONE => Way { to: reply_address(self.via, self.way.to), ..self.way },
            _ => self.way,
        }
    }

    /// A class that the workload has; what a caller of another run says counts as the first.
    fn class(&self, class: u16) -> u16 {
        if usize::from(class) < self.shared.workload.classes.len() { class } else { 0 }
    }

    fn note(&mut self, dialog: &Dialog, repeated: bool) {
        if dialog.traced {
            let bytes = self.request.bytes();
            let seen =
                Seen { at: self.now, side: Side::Callee, direction: Direction::Received, repeated, bytes };
            self.shared.ledger.trace(dialog.key.class, &seen);
        }
    }

    fn count_repeated(&mut self, class: u16) {
        let (class, window) = (self.class(class), self.shared.ledger.window_of(self.now));
        self.shared.ledger.count(class, window, |tally| tally.retransmissions_received += 1);
    }

    fn count_sent_again(&mut self, class: u16) {
        let (class, window) = (self.class(class), self.shared.ledger.window_of(self.now));
        self.shared.ledger.count(class, window, |tally| tally.retransmissions_sent += 1);
    }

    /// Answers at once and without a body. The tag is the same for each copy of the request (RFC 3261 §8.2.7).
    fn answer(&mut self, status: &[u8], hash: u64) -> Option<std::ops::Range<usize>> {
        self.answer_with(status, &super::message::hex::<16>(hash))
    }

    fn answer_with(&mut self, status: &[u8], tag: &[u8]) -> Option<std::ops::Range<usize>> {
        let start = self.out.bytes.len();
        let bytes = &mut self.out.bytes;
        bytes.extend_from_slice(b"SIP/2.0 ");
        bytes.extend_from_slice(status);
        bytes.extend_from_slice(b"\r\n");
        if push_copied(self.request, self.via, self.way.to, tag, bytes).is_none() {
            bytes.truncate(start);
            return None;
        }
        push_body(None, bytes);
        let way = self.way_back();
        self.shared.finish(self.out, way, start);
        Some(start..self.out.bytes.len())
    }
}
