//! One worker: its operations, its callees, its counts.

use super::arrivals::Arrivals;
use super::callee::Callees;
use super::caller::Callers;
use super::ledger::{Ledger, PREAMBLE};
use super::message::{Contacts, Identity, SocketText, Texts};
use super::timers::{Side, Timers};
use super::users::{Chooser, Names};
use super::{ConnectionId, Counts, Input, Outbox, Preamble, Send, SocketId};
use crate::spec::{Assignment, Connections, ContactRange, Delay, Link, Role, Shape, Transport, Workload};
use crate::tally::{Example, Failure};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sip::{Instant, Message};
use std::hash::Hasher;
use std::net::SocketAddr;

/// Most operations begun in one call of [`Worker::handle`], so that what has been received meanwhile is not kept
/// waiting by a backlog of arrivals.
const ARRIVALS_MAX: u32 = 64;
/// Most timer entries looked at in one call of [`Worker::handle`].
const WAKES_MAX: u32 = 256;

/// One worker of a group.
pub struct Worker {
    shared: Shared,
    callers: Callers,
    callees: Callees,
    index: sip::Index,
    arrivals: Option<Arrivals>,
    /// Classes by the sum of the weights up to and including theirs.
    weights: Vec<f64>,
    /// When the arrivals are over; open operations may go on for the drain time.
    over: Option<Instant>,
    place: Place,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker")
            .field("place", &self.place)
            .field("open", &self.open())
            .finish_non_exhaustive()
    }
}

/// Which worker it is.
#[derive(Clone, Copy, Debug)]
struct Place {
    group: u16,
    index: u16,
    of: u16,
    rate: f64,
    role: Role,
    seed: u64,
    named: Named,
}

/// Whether the run has its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    NotYet,
    Yes,
}

/// What callers and callees both need.
pub(super) struct Shared {
    pub(super) workload: Workload,
    pub(super) texts: Texts,
    pub(super) names: Names,
    pub(super) chooser: Chooser,
    pub(super) rng: Xoshiro256PlusPlus,
    pub(super) timers: Timers,
    pub(super) ledger: Ledger,
    pub(super) contacts: Contacts,
    pub(super) sockets: Vec<SocketText>,
    /// How many of the sockets are callers'.
    pub(super) caller_sockets: u16,
    /// The own callees, one range per socket that has any.
    pub(super) own: Vec<(ContactRange, SocketId)>,
    /// Whether anything ever came from anywhere.
    pub(super) heard: bool,
    /// The callers' shared connections, if they have any.
    pub(super) pool: u32,
    /// Connections that nobody needs any more.
    pub(super) closing: Vec<ConnectionId>,
}

/// Where a message goes, and by which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) socket: SocketId,
    pub(super) connection: ConnectionId,
    pub(super) to: SocketAddr,
}

impl Shared {
    pub(super) fn socket(&self, id: SocketId) -> Option<&SocketText> {
        self.sockets.get(usize::from(id.0))
    }

    /// The socket on which an own user is called.
    pub(super) fn own_socket(&self, user: u32) -> Option<SocketId> {
        let behind = self.own.partition_point(|(range, _)| range.first <= user);
        let (range, socket) = self.own.get(behind.checked_sub(1)?)?;
        (user - range.first < range.count).then_some(*socket)
    }

    /// How the callers reach the server.
    pub(super) fn caller_link(&self) -> Link {
        self.workload.links.caller
    }

    /// How the callees do.
    pub(super) fn callee_link(&self) -> Link {
        self.workload.links.callee
    }

    /// What the messages of a socket travel in.
    pub(super) fn transport_of(&self, socket: SocketId) -> Transport {
        let caller = socket.0 < self.caller_sockets;
        if caller { self.caller_link().transport } else { self.callee_link().transport }
    }

    /// Where requests from a socket go.
    pub(super) fn server_of(&self, socket: SocketId) -> SocketAddr {
        let caller = socket.0 < self.caller_sockets;
        let link = if caller { self.caller_link() } else { self.callee_link() };
        link.address.unwrap_or(self.workload.target.address)
    }

    /// Closes a message that was written to the end of `out.bytes`, from `start` on.
    pub(super) fn finish(&mut self, out: &mut Outbox, way: Way, start: usize) {
        let Way { socket, connection, to } = way;
        out.sends.push(Send { socket, connection, to, range: start..out.bytes.len(), planned: None });
    }

    /// Sends a copy of `bytes`.
    pub(super) fn send(&mut self, out: &mut Outbox, way: Way, bytes: &[u8]) {
        let start = out.bytes.len();
        out.bytes.extend_from_slice(bytes);
        self.finish(out, way, start);
    }
}

impl Worker {
    /// A worker that owns `callees` (first user relative to `users.first`, count) of the assignment.
    ///
    /// `index` of `of` workers in the group. `callers` and `callees_at` are the local addresses of its sockets, in the
    /// order of [`SocketId`](super::SocketId): callers first.
    #[must_use]
    pub fn new(
        assignment: &Assignment,
        index: u16,
        of: u16,
        callees: (u32, u32),
        callers: &[SocketAddr],
        callees_at: &[SocketAddr],
    ) -> Worker {
        let workload = &assignment.workload;
        let seed = mix(workload.seed ^ mix(u64::from(assignment.group) << 16 | u64::from(index)));
        let place = Place {
            group: assignment.group,
            index,
            of: of.max(1),
            rate: workload.rate * assignment.rate_share / f64::from(of.max(1)),
            role: assignment.role,
            seed,
            named: Named::NotYet,
        };
        let caller_sockets = u16::try_from(callers.len()).unwrap_or(u16::MAX);
        let shared = Shared {
            texts: Texts::new(workload, Identity::new(0, assignment.group, index)),
            names: Names::new(&workload.users),
            chooser: Chooser::new(workload.users.choice, workload.users.count),
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            timers: Timers::new(delays(workload)),
            ledger: Ledger::new(
                workload.classes.iter().map(|class| class.name.clone()).collect(),
                workload.trace,
            ),
            contacts: Contacts::default(),
            sockets: texts_of(workload, callers, callees_at),
            caller_sockets,
            own: own_ranges(callees, callees_at, caller_sockets),
            heard: false,
            pool: pool_of(workload.links.caller.connections, (index, of.max(1))),
            closing: Vec::new(),
            workload: workload.clone(),
        };
        let mut sum = 0.0;
        let weight = |weight: f64| {
            sum += weight.max(0.0);
            sum
        };
        Worker {
            callers: Callers::new(workload, callees, (index, of.max(1))),
            callees: Callees::new(workload, seed, callees.1),
            index: sip::Index::new(),
            arrivals: None,
            weights: workload.classes.iter().map(|class| class.weight).map(weight).collect(),
            over: None,
            place,
            shared,
        }
    }

    /// The contacts of the own callees, one range per callee socket.
    #[must_use]
    pub fn contacts(&self) -> Vec<ContactRange> {
        self.shared.own.iter().map(|(range, _)| range.clone()).collect()
    }

    /// Begins to register the own users. Drive it with [`handle`](Worker::handle) until [`preamble`](Worker::preamble)
    /// is done.
    pub fn register(&mut self, now: Instant, contacts: &[ContactRange], out: &mut Outbox) {
        self.name_run(now);
        self.shared.contacts = Contacts::new(contacts, self.shared.callee_link().transport);
        self.shared.ledger.preamble = Preamble { users: self.callers.own_users(), ..Preamble::default() };
        self.callers.begin_preamble();
        self.callers.continue_preamble(&mut self.shared, now, out);
    }

    /// How far the preamble is.
    #[must_use]
    pub fn preamble(&self) -> Preamble {
        self.shared.ledger.preamble.clone()
    }

    /// Plans the first arrival: the warm-up begins at `start`, which may lie ahead.
    pub fn start(&mut self, start: Instant, contacts: &[ContactRange]) {
        self.name_run(start);
        let workload = &self.shared.workload;
        self.shared.contacts = Contacts::new(contacts, workload.links.callee.transport);
        self.shared.ledger.begin(start, workload.warm_up, workload.measure);
        let total = workload.warm_up + workload.measure;
        self.over = Some(start + total);
        let part = (u32::from(self.place.index), u32::from(self.place.of));
        let loads = self.place.role != Role::Handler && self.place.rate > 0.0 && !self.weights.is_empty();
        let share = self.place.rate / workload.rate;
        let shape = match workload.shape {
            Shape::Ramp { from } => Shape::Ramp { from: from * share },
            shape => shape,
        };
        self.arrivals =
            loads.then(|| Arrivals::new(shape, self.place.rate, start, total, mix(self.place.seed), part));
    }

    /// The run's identity comes from the seed and the moment it began, so that one run's identifiers are not the next
    /// one's, and stays the same from the preamble on.
    fn name_run(&mut self, now: Instant) {
        if self.place.named == Named::NotYet {
            let run = mix(self.shared.workload.seed ^ mix(now.as_micros()));
            let run = u32::try_from(run >> 32).unwrap_or_default();
            self.shared.texts.identity = Identity::new(run, self.place.group, self.place.index);
            self.place.named = Named::Yes;
        }
    }

    /// Takes one input and writes what is to be sent.
    ///
    /// One call begins at most 64 operations and looks at no more than 256 timers; when more are due,
    /// [`next_timeout`](Worker::next_timeout) says so.
    pub fn handle(&mut self, now: Instant, input: Input<'_>, out: &mut Outbox) {
        match input {
            Input::Datagram { socket, from, bytes } => {
                let way = Way { socket, connection: ConnectionId::NONE, to: from };
                self.on_message(now, way, bytes, out);
            }
            Input::Message { socket, connection, from, bytes } => {
                self.on_message(now, Way { socket, connection, to: from }, bytes, out);
            }
            Input::Lost { connection, failure } => {
                self.callers.on_lost(&mut self.shared, now, connection, failure);
            }
            Input::Refused { .. } => self.on_refused(now),
            Input::Timeout => self.on_timeout(now, out),
        }
        self.callers.continue_preamble(&mut self.shared, now, out);
        out.closes.append(&mut self.shared.closing);
    }

    /// What stood in the outbox was handed to the sockets at `now`: the turnaround of the callees is counted, whose
    /// first answers were among it. Without this call there is none in the tally.
    pub fn sent(&mut self, now: Instant) {
        self.shared.ledger.count_turnarounds(now);
    }

    /// A message came; `way` is the way back.
    fn on_message(&mut self, now: Instant, way: Way, bytes: &[u8], out: &mut Outbox) {
        let Worker { shared, callers, callees, index, .. } = self;
        shared.heard = true;
        let known = match Message::parse(bytes, index) {
            Ok(message) if message.is_request() => callees.on_request(shared, now, way, &message, out),
            Ok(message) => callers.on_response(shared, now, way, &message, out),
            Err(_) => None,
        };
        if known.is_none() {
            shared.ledger.count_generator(now, |generator| generator.strays += 1);
        }
    }

    /// Where nothing ever answered, nothing listens; later, the message is one that was lost.
    fn on_refused(&mut self, now: Instant) {
        self.shared.ledger.count_generator(now, |generator| generator.icmp_refused += 1);
        if !self.shared.heard {
            self.callers.fail_all(&mut self.shared, now, Failure::Unreachable);
        }
    }

    fn on_timeout(&mut self, now: Instant, out: &mut Outbox) {
        for _ in 0..WAKES_MAX {
            let Some((at, sleeper)) = self.shared.timers.pop(now) else { break };
            match sleeper.side {
                Side::Caller => self.callers.on_entry(&mut self.shared, now, at, sleeper, out),
                Side::Callee => self.callees.on_entry(&mut self.shared, now, at, sleeper, out),
            }
        }
        for _ in 0..ARRIVALS_MAX {
            if self.next_arrival().is_none_or(|planned| planned > now) {
                break;
            }
            let Some(planned) = self.arrivals.as_mut().and_then(Arrivals::next) else { break };
            let class = self.choose_class();
            self.callers.begin(&mut self.shared, now, class, planned, out);
        }
        if self.drained_at().is_some_and(|end| end <= now) {
            self.callers.fail_all(&mut self.shared, now, Failure::Unfinished);
        }
    }

    fn next_arrival(&self) -> Option<Instant> {
        self.arrivals.as_ref().and_then(Arrivals::peek)
    }

    /// When what is still open has failed.
    fn drained_at(&self) -> Option<Instant> {
        self.over.map(|over| over + self.shared.workload.drain)
    }

    fn choose_class(&mut self) -> u16 {
        let total = self.weights.last().copied().unwrap_or(0.0);
        if self.weights.len() < 2 || total <= 0.0 {
            return 0;
        }
        let drawn = self.shared.rng.random::<f64>() * total;
        let class = self.weights.partition_point(|sum| *sum <= drawn).min(self.weights.len() - 1);
        // A class beyond what an identifier can name is never drawn; no mix is that long.
        u16::try_from(class).unwrap_or(0).min(PREAMBLE - 1)
    }

    /// When [`Input::Timeout`] is due next: the next arrival or timer. `None`: nothing is under way.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let drained = self.drained_at().filter(|_| self.callers.open() > 0);
        [self.next_arrival(), self.shared.timers.next(), drained].into_iter().flatten().min()
    }

    /// Ends the arrivals; without `drain` all open operations fail as unfinished.
    pub fn stop(&mut self, now: Instant, drain: bool) {
        self.arrivals = None;
        self.callers.stop_preamble();
        self.over = Some(self.over.map_or(now, |over| over.min(now)));
        if !drain {
            self.callers.fail_all(&mut self.shared, now, Failure::Unfinished);
        }
    }

    /// Whether the arrivals are over and no operation is open, or the drain time is up.
    ///
    /// Callees of this worker may still be wanted by operations of others; a [`Role::Handler`], which has no
    /// operations, is finished when the arrivals of the run are over and no dialog is left.
    #[must_use]
    pub fn finished(&self, now: Instant) -> bool {
        let Some(over) = self.over else { return false };
        let arrivals_over = match self.place.role {
            Role::Handler => over <= now && self.callees.open() == 0,
            _ => self.next_arrival().is_none(),
        };
        arrivals_over && self.callers.open() == 0 || self.drained_at().is_some_and(|end| end <= now)
    }

    /// The counts: of the interval since the last call, and of the measured window so far.
    pub fn counts(&mut self) -> Counts {
        self.shared.ledger.take(self.open())
    }

    /// Per class: offered, succeeded, failed of the measured window so far. Cheap.
    #[must_use]
    pub fn measured(&self) -> Vec<(u64, u64, u64)> {
        let classes = &self.shared.ledger.measured.classes;
        classes.iter().map(|class| (class.offered, class.succeeded, class.failed())).collect()
    }

    /// Operations begun and not ended.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.callers.open()
    }

    /// Traces and first failures so far.
    #[must_use]
    pub fn examples(&self) -> Vec<Example> {
        self.shared.ledger.examples()
    }
}

/// For maps whose keys are spread already, by [`mix`] or a keyed hash.
#[derive(Default)]
pub(super) struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = mix(self.0 ^ u64::from(byte));
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// Spreads the bits of a number over all 64 (the finaliser of SplitMix64).
pub(super) fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The delays that occur most: T1 and its doubles up to T2, and what the classes wait.
fn delays(workload: &Workload) -> Vec<std::time::Duration> {
    let mut delays: Vec<_> = (0..4).map(|power| (workload.t1 * (1 << power)).min(workload.t2)).collect();
    for class in &workload.classes {
        for delay in [class.ring, class.hold] {
            if let Delay::Constant(time) = delay {
                delays.push(time);
            }
        }
    }
    delays
}

/// The constant texts of the sockets.
fn texts_of(workload: &Workload, callers: &[SocketAddr], callees_at: &[SocketAddr]) -> Vec<SocketText> {
    let text = |link: Link| move |address: &SocketAddr| SocketText::new(*address, link.transport);
    let callers = callers.iter().map(text(workload.links.caller));
    callers.chain(callees_at.iter().map(text(workload.links.callee))).collect()
}

/// How many shared connections the callers of worker `index` of `of` have.
fn pool_of(connections: Connections, (index, of): (u16, u16)) -> u32 {
    match connections {
        Connections::Single => 1,
        // What cannot be divided evenly makes the first workers' pools larger by one.
        Connections::Pool(count) => {
            count / u32::from(of) + u32::from(u32::from(index) < count % u32::from(of))
        }
        Connections::PerCall | Connections::PerTransaction => 0,
    }
}

/// Divides the own users among the callee sockets, in order, as evenly as can be.
fn own_ranges(
    (first, count): (u32, u32),
    callees_at: &[SocketAddr],
    caller_sockets: u16,
) -> Vec<(ContactRange, SocketId)> {
    let sockets = u32::try_from(callees_at.len()).unwrap_or(u32::MAX);
    let mut from = first;
    let mut ranges = Vec::new();
    for (id, (number, address)) in (caller_sockets..).zip((0..sockets).zip(callees_at)) {
        let share = count / sockets + u32::from(number < count % sockets);
        if share > 0 {
            ranges.push((ContactRange { first: from, count: share, address: *address }, SocketId(id)));
            from = from.saturating_add(share);
        }
    }
    ranges
}
