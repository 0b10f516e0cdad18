//! The world: servers, phones and networks, moved on from event to event.

mod changes;
mod last_words;
mod loops;
mod users;

use crate::faults::{Keeping, Link, MILLI, Plan, SECOND};
use crate::phone::{Keys, Phone, Task, Way};
use crate::prng::Prng;
use crate::server::{Deed, Server, Shard};
use crate::streams::{End, Side, Streams};
use crate::text::Msg;
use crate::trace::{Entry, Micros, ServerId, Trace, What};
use engine::{Ask, AskId, OwnedAnswer, Path, TransportFailure};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

pub use loops::ROUND;
pub use users::THIEF;

/// Events of one run, at most: a world that needs more does not come to rest.
const EVENTS_MAX: usize = 400_000;
/// The same for each phone of a world that has many.
const EVENTS_PER_PHONE: usize = 2_000;
/// How long after the last new request everything must be over: Timer C twice in each of a few servers, and
/// bindings.
const REST: Micros = 3_600 * SECOND;

/// Where noise comes from.
const NOISE: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::new(10, 3, 0, 1)), 5060);
/// Far jumps of the wall clock are shorter than this.
const JUMP_MAX: u64 = 400 * 24 * 3_600 * SECOND;
/// What a clock is set right by (s).
const STEPS: [i64; 7] = [1, 2, 5, 20, 60, 200, 600];

/// Something that happens at a time.
#[derive(Debug)]
enum Event {
    Packet {
        from: SocketAddr,
        to: SocketAddr,
        bytes: Rc<[u8]>,
    },
    Chunk {
        stream: u64,
        towards: Side,
        bytes: Vec<u8>,
    },
    /// The end of a connection reaches a side.
    Broken {
        stream: u64,
        side: Side,
        node: SocketAddr,
        peer: SocketAddr,
    },
    /// A side has said its last word; the other one hears of it.
    Ended {
        stream: u64,
        towards: Side,
    },
    /// A node says its last word.
    End {
        stream: u64,
        node: SocketAddr,
        end: End,
    },
    /// A server has waited long enough for the answers that it owes on a connection.
    Linger {
        server: ServerId,
        incarnation: u64,
        stream: u64,
    },
    /// What a shard sent by a stream was lost.
    Failed {
        server: ServerId,
        incarnation: u64,
        shard: Shard,
        path: Path,
    },
    Answer {
        server: ServerId,
        /// Who has asked.
        life: (u64, u64),
        shard: Shard,
        id: AskId,
        answer: OwnedAnswer,
    },
    Flush {
        server: ServerId,
        incarnation: u64,
    },
    Committed {
        server: ServerId,
        incarnation: u64,
    },
    Fault(Fault),
}

/// A fault that happens at a time.
#[derive(Clone, Debug)]
enum Fault {
    Cut(SocketAddr, Micros),
    Kill(ServerId),
    /// It dies just before its next commit is confirmed, or just behind the next one that fails.
    Doom(ServerId, Doom),
    RestartShard(ServerId, Shard),
    Jump(ServerId, u64),
    /// The wall clock is set right by so many microseconds.
    Step(ServerId, i64),
    /// It takes nothing new.
    Drain(ServerId),
    /// It has ended what it had begun, as far as it had the time, and starts again.
    Replace(ServerId),
    Noise(Vec<u8>, ServerId),
    Change(ServerId, changes::Change),
    /// Overheard credentials come to a server, chosen by this number.
    Replay(ServerId, u64),
}

/// When a server dies that is to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doom {
    AmidCommit,
    BehindFailure,
}

#[derive(Debug)]
struct Timed {
    at: Micros,
    sequence: u64,
    event: Event,
}

impl PartialEq for Timed {
    fn eq(&self, other: &Timed) -> bool {
        self.sequence == other.sequence
    }
}

impl Eq for Timed {}

impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Timed) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timed {
    fn cmp(&self, other: &Timed) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

/// See the module's documentation.
pub struct World {
    /// What the seed decided.
    pub plan: Plan,
    /// The servers, in a row.
    pub servers: Vec<Server>,
    /// The phones.
    pub phones: Vec<Phone>,
    /// What has happened.
    pub trace: Trace,
    /// Microseconds since the beginning.
    pub now: Micros,
    /// Whether it did not come to rest.
    pub restless: bool,
    /// How often each kind of fault has struck: what was planned may hit nothing.
    pub struck: BTreeMap<&'static str, u64>,
    heap: BinaryHeap<Reverse<Timed>>,
    sequence: u64,
    streams: Streams,
    /// Which phone has an address.
    places: BTreeMap<SocketAddr, usize>,
    /// When phones have something to do, the first one first.
    due: BTreeSet<(Micros, usize)>,
    /// The same of each phone.
    due_at: Vec<Option<Micros>>,
    /// Servers that die when their stores give the sign.
    doomed: BTreeMap<ServerId, Doom>,
    /// When the last packet from one node to another arrives.
    last_arrivals: BTreeMap<(SocketAddr, SocketAddr), Micros>,
    /// Who is cut off, until when.
    cut: BTreeMap<SocketAddr, Micros>,
    network: Prng,
    outside: Prng,
    last_words: Prng,
    users: Prng,
}

/// The address of a server.
pub fn server_address(index: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1 + index as u8], 5060))
}

/// The address of a phone.
pub fn phone_address(index: usize) -> SocketAddr {
    SocketAddr::from(([10, 1, (index / 250) as u8, 1 + (index % 250) as u8], 5060))
}

impl World {
    /// A world as its plan wants it, before anything has happened.
    pub fn new(plan: Plan) -> World {
        let mut prng = Prng::part(plan.seed, "requests");
        let mut world = World::bare(plan);
        world.plan_phones(&mut prng);
        world.plan_faults();
        world.plan_changes(&mut Prng::part(world.plan.seed, "changes"));
        world.plan_loops(&mut Prng::part(world.plan.seed, "rounds"));
        world
    }

    /// The same servers, phones and networks, and nothing that anybody is going to do.
    pub fn bare(plan: Plan) -> World {
        let mut prng = Prng::part(plan.seed, "phones");
        let servers =
            (0..plan.servers).map(|index| Server::new(&plan, index, server_address(index))).collect();
        let home = server_address(plan.servers - 1);
        let phones = (0..plan.phones).map(|index| {
            let user = format!("u{}", index % plan.users);
            let tcp = prng.chance(plan.tcp);
            let own = Prng::part(plan.seed, &format!("phone {index}"));
            let mut phone = Phone::new(phone_address(index), user, tcp, server_address(0), home, own);
            if Prng::part(plan.seed, &format!("ports {index}")).chance(30) {
                phone.speak_elsewhere();
            }
            if plan.digest.is_some() {
                phone.set_keys(Keys::draw(Prng::part(plan.seed, &format!("keys {index}"))));
            }
            phone
        });
        World {
            servers,
            phones: phones.collect(),
            trace: Trace::default(),
            now: 0,
            restless: false,
            struck: BTreeMap::new(),
            places: BTreeMap::new(),
            due: BTreeSet::new(),
            due_at: Vec::new(),
            doomed: BTreeMap::new(),
            last_arrivals: BTreeMap::new(),
            heap: BinaryHeap::new(),
            sequence: 0,
            streams: Streams::default(),
            cut: BTreeMap::new(),
            network: Prng::part(plan.seed, "network"),
            outside: Prng::part(plan.seed, "outside"),
            last_words: Prng::part(plan.seed, "who says last words"),
            users: Prng::part(plan.seed, "users"),
            plan,
        }
    }

    fn plan_phones(&mut self, prng: &mut Prng) {
        let (active, users) = (self.plan.active, self.plan.users as u64);
        for phone in &mut self.phones {
            if prng.chance(92) {
                phone.register_until(prng.below(3 * SECOND), active);
            }
        }
        for _ in 0..self.plan.requests {
            let user = match prng.below(30) {
                0 => "nobody".to_owned(),
                1 => "loop".to_owned(),
                2 | 3 => format!("spiral-u{}", prng.below(users)),
                4 | 5 => format!("second-u{}", prng.below(users)),
                _ => format!("u{}", prng.below(users)),
            };
            let at = prng.between(2 * SECOND, active);
            let task = match prng.below(10) {
                0 => Task::Ask("MESSAGE", user),
                1 => Task::Ask("OPTIONS", user),
                _ => Task::Call(user),
            };
            let phone = prng.below(self.phones.len() as u64) as usize;
            self.phones[phone].plan(at, task);
        }
    }

    fn plan_faults(&mut self) {
        let mut prng = Prng::part(self.plan.seed, "faults");
        let plan = self.plan.clone();
        let at = |prng: &mut Prng| prng.between(SECOND, plan.active);
        for _ in 0..plan.partitions {
            let nodes = (plan.phones + plan.servers) as u64;
            let node = prng.below(nodes) as usize;
            let address =
                if node < plan.servers { server_address(node) } else { phone_address(node - plan.servers) };
            let (at, long) = (at(&mut prng), prng.between(1, 60) * SECOND);
            self.at(at, Event::Fault(Fault::Cut(address, at + long)));
        }
        for _ in 0..plan.kills {
            let (at, server) = (at(&mut prng), prng.below(plan.servers as u64) as usize);
            self.at(at, Event::Fault(Fault::Kill(server)));
        }
        for _ in 0..plan.shard_restarts {
            let (at, server) = (at(&mut prng), prng.below(plan.servers as u64) as usize);
            let shard = prng.below(plan.shards.into()) as usize;
            self.at(at, Event::Fault(Fault::RestartShard(server, shard)));
        }
        for _ in 0..plan.clock_jumps {
            let (at, server) = (at(&mut prng), prng.below(plan.servers as u64) as usize);
            let offset = prng.below(JUMP_MAX);
            self.at(at, Event::Fault(Fault::Jump(server, offset)));
        }
        for _ in 0..plan.drains {
            let (at, server) = (at(&mut prng), prng.below(plan.servers as u64) as usize);
            self.at(at, Event::Fault(Fault::Drain(server)));
            self.at(at + prng.between(1, 40) * SECOND, Event::Fault(Fault::Replace(server)));
        }
        self.plan_clock_steps(&mut Prng::part(plan.seed, "steps"));
        let mut lone = Prng::part(plan.seed, "restarts of one shard");
        for _ in 0..plan.lone_restarts {
            let (at, server) = (at(&mut lone), lone.below(plan.servers as u64) as usize);
            let shard = lone.below(plan.shards.into()) as usize;
            self.at(at, Event::Fault(Fault::RestartShard(server, shard)));
        }
        let mut dooms = Prng::part(plan.seed, "dooms");
        for _ in 0..plan.kills_about_commits {
            let at = at(&mut dooms);
            let is_behind = plan.store.failures > 0 && dooms.chance(50);
            let doom = if is_behind { Doom::BehindFailure } else { Doom::AmidCommit };
            self.at(at, Event::Fault(Fault::Doom(plan.servers - 1, doom)));
        }
        let mut replays = Prng::part(plan.seed, "replays");
        for _ in 0..plan.digest.as_ref().map_or(0, |digest| digest.replays) {
            let at = replays.between(2 * SECOND, plan.active);
            let replay = Fault::Replay(plan.servers - 1, replays.number());
            self.at(at, Event::Fault(replay));
        }
        for _ in 0..plan.noise {
            let (at, server) = (at(&mut prng), prng.below(plan.servers as u64) as usize);
            let bytes = crate::noise::draw(&mut prng, server_address(server));
            self.at(at, Event::Fault(Fault::Noise(bytes, server)));
        }
    }

    /// A clock is set right while its server is up, which reads it at its next start, or while it is down.
    fn plan_clock_steps(&mut self, prng: &mut Prng) {
        let (servers, active) = (self.plan.servers as u64, self.plan.active);
        for _ in 0..self.plan.clock_steps {
            let at = prng.between(SECOND, active);
            let server = if prng.chance(70) { servers - 1 } else { prng.below(servers) } as usize;
            let sign = if prng.chance(60) { -1 } else { 1 };
            let step = sign * *prng.pick(&STEPS) * SECOND as i64;
            self.at(at, Event::Fault(Fault::Step(server, step)));
            if prng.chance(80) {
                self.at(at, Event::Fault(Fault::Kill(server)));
            }
        }
    }

    fn at(&mut self, at: Micros, event: Event) {
        self.sequence += 1;
        self.heap.push(Reverse(Timed { at: at.max(self.now), sequence: self.sequence, event }));
    }

    // --- the run
    // ------------------------------------------------------------------------------------------------------

    /// Runs until nothing can happen any more.
    pub fn run(&mut self) {
        let end = self.plan.active + REST;
        self.find_phones();
        for _ in 0..EVENTS_MAX.max(EVENTS_PER_PHONE * self.phones.len()) {
            let heap = self.heap.peek().map(|Reverse(timed)| timed.at);
            let servers = self.servers.iter().filter_map(Server::next_timeout).min();
            let phones = self.due.first().map(|(at, _)| *at);
            let Some(next) = [heap, servers, phones].into_iter().flatten().min() else { return };
            if next > end {
                break;
            }
            self.now = self.now.max(next);
            if heap.is_some_and(|at| at <= self.now) {
                if let Some(Reverse(timed)) = self.heap.pop() {
                    self.happen(timed.event);
                }
                continue;
            }
            self.tick();
        }
        self.restless = true;
    }

    fn tick(&mut self) {
        for server in 0..self.servers.len() {
            if self.servers[server].next_timeout().is_some_and(|at| at <= self.now) {
                let deeds = self.servers[server].timeout(self.now);
                self.do_all(server, deeds);
                self.plan_flush(server);
            }
        }
        let mut due: Vec<usize> =
            self.due.range(..=(self.now, usize::MAX)).map(|(_, phone)| *phone).collect();
        due.sort_unstable();
        for phone in due {
            self.phones[phone].tick(self.now);
            self.drain_phone(phone);
        }
    }

    /// Where the phones are, and when each has something to do: a world may have thousands.
    fn find_phones(&mut self) {
        self.places = self.phones.iter().enumerate().map(|(place, phone)| (phone.address, place)).collect();
        self.due.clear();
        self.due_at = vec![None; self.phones.len()];
        for phone in 0..self.phones.len() {
            self.note_due(phone);
        }
    }

    /// A phone may have something else to do now.
    fn note_due(&mut self, phone: usize) {
        let next = self.phones[phone].next();
        let before = std::mem::replace(&mut self.due_at[phone], next);
        if before != next {
            before.map(|at| self.due.remove(&(at, phone)));
            self.due.extend(next.map(|at| (at, phone)));
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Packet { from, to, bytes } => self.deliver(from, to, &bytes),
            Event::Chunk { stream, towards, bytes } => self.deliver_chunk(stream, towards, &bytes),
            Event::Broken { stream, side, node, peer } => self.deliver_end(stream, side, node, peer),
            Event::Ended { stream, towards } => self.deliver_last_word(stream, towards),
            Event::End { stream, node, end } => self.end_stream(stream, node, end),
            Event::Linger { server, incarnation, stream } => {
                if self.servers[server].incarnation == incarnation {
                    self.stop_lingering(server, stream);
                }
            }
            Event::Failed { server, incarnation, shard, path } => {
                if self.servers[server].incarnation == incarnation {
                    let failure = TransportFailure::Unreachable;
                    self.note_failure(failure, self.servers[server].address, path);
                    let deeds = self.servers[server].failed(self.now, shard, path, failure);
                    self.do_all(server, deeds);
                }
            }
            Event::Answer { server, life, shard, id, answer } => {
                if self.servers[server].life(shard) == life {
                    self.answer(server, shard, id, &answer);
                }
            }
            Event::Flush { server, incarnation } => {
                if self.servers[server].incarnation == incarnation {
                    self.servers[server].flush_planned = false;
                    self.begin_commit(server);
                }
            }
            Event::Committed { server, incarnation } => {
                if self.servers[server].incarnation == incarnation {
                    self.end_commit(server);
                }
            }
            Event::Fault(fault) => self.strike(fault),
        }
    }

    fn answer(&mut self, server: ServerId, shard: Shard, id: AskId, answer: &OwnedAnswer) {
        let deeds = self.servers[server].answer(self.now, shard, id, answer.as_answer());
        self.do_all(server, deeds);
        self.plan_flush(server);
    }

    fn count(&mut self, fault: &'static str) {
        *self.struck.entry(fault).or_default() += 1;
    }

    fn note(&mut self, what: What, node: SocketAddr, peer: SocketAddr) {
        self.record(what, node, peer, false, &Rc::from([]));
    }

    /// A server learns that one of its ways has failed: which one, its transport says as well as its peer.
    fn note_failure(&mut self, failure: TransportFailure, node: SocketAddr, path: Path) {
        let reliable = path.listener == crate::server::TCP;
        self.record(What::TransportFailed(failure), node, path.remote, reliable, &Rc::from([]));
    }

    fn record(&mut self, what: What, node: SocketAddr, peer: SocketAddr, reliable: bool, bytes: &Rc<[u8]>) {
        let msg = Msg::parse(bytes).map(Rc::new);
        let taker = matches!(what, What::Received).then(|| self.servers.iter().find(|s| s.address == node));
        let shard = taker.flatten().map(|server| server.shard_of(bytes));
        let bytes = bytes.clone();
        self.trace.push(Entry { at: self.now, what, node, peer, reliable, shard, bytes, msg });
    }

    // --- packets
    // ------------------------------------------------------------------------------------------------------

    fn is_cut(&self, node: SocketAddr) -> bool {
        self.cut.get(&node).is_some_and(|until| *until > self.now)
    }

    fn send(&mut self, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) {
        let bytes: Rc<[u8]> = bytes.into();
        self.record(What::Sent, from, to, false, &bytes);
        let Link { delay, jitter, loss, duplicates, mtu } = self.plan.link;
        let too_long = mtu > 0 && bytes.len() > mtu;
        let fault = match () {
            () if too_long => Some("packets too long"),
            () if self.network.chance(loss) => Some("packets lost"),
            () if self.is_cut(from) || self.is_cut(to) => Some("packets cut off"),
            () => None,
        };
        if let Some(fault) = fault {
            self.count(fault);
            self.note(What::Lost, from, to);
            return;
        }
        let is_doubled = self.network.chance(duplicates);
        if is_doubled {
            self.count("packets doubled");
        }
        for _ in 0..1 + u64::from(is_doubled) {
            let at = self.now + delay + self.network.below(jitter + 1);
            let last = self.last_arrivals.entry((from, to)).or_default();
            let is_overtaking = at < *last;
            *last = at.max(*last);
            if is_overtaking {
                self.count("packets overtaken");
            }
            self.at(at, Event::Packet { from, to, bytes: bytes.clone() });
        }
    }

    /// A datagram that leaves some time later.
    fn send_later(&mut self, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>, later: Micros) {
        let bytes: Rc<[u8]> = bytes.into();
        self.at(self.now + later + self.plan.link.delay, Event::Packet { from, to, bytes });
    }

    fn deliver(&mut self, from: SocketAddr, to: SocketAddr, bytes: &Rc<[u8]>) {
        if let Some(server) = self.servers.iter().position(|server| server.address == to) {
            self.record(What::Received, to, from, false, bytes);
            if from == NOISE {
                self.count("noise");
            }
            let deeds = self.servers[server].datagram(self.now, from, bytes);
            self.do_all(server, deeds);
            self.plan_flush(server);
        } else if let Some(phone) = self.places.get(&to).copied() {
            self.record(What::Received, to, from, false, bytes);
            if let Some(msg) = Msg::parse(bytes) {
                self.phones[phone].receive(self.now, Way::Datagram(from), &msg);
            }
            self.drain_phone(phone);
        }
    }

    // --- streams
    // ------------------------------------------------------------------------------------------------------

    fn deliver_chunk(&mut self, stream: u64, towards: Side, bytes: &[u8]) {
        let Some(open) = self.streams.get_mut(stream) else { return };
        let (node, peer) = (open.node(towards), open.seen_by(towards));
        if open.end(towards) == End::Whole {
            return self.break_stream(stream);
        }
        if let Some(phone) = self.places.get(&node).copied() {
            for message in open.read(towards, bytes) {
                let message: Rc<[u8]> = message.into();
                self.record(What::Received, node, peer, true, &message);
                if let Some(msg) = Msg::parse(&message) {
                    self.phones[phone].receive(self.now, Way::Stream(stream), &msg);
                }
            }
            self.drain_phone(phone);
            if towards == Side::Acceptor {
                self.maybe_last_word(stream, node);
            }
        } else if let Some(server) = self.servers.iter().position(|server| server.address == node) {
            let Some((messages, sound)) = self.servers[server].received(stream, bytes) else {
                return self.break_stream(stream);
            };
            for message in messages {
                let message: Rc<[u8]> = message.into();
                self.record(What::Received, node, peer, true, &message);
                let deeds = self.servers[server].stream_message(self.now, stream, peer, &message);
                self.do_all(server, deeds);
            }
            self.plan_flush(server);
            if !sound {
                self.break_stream(stream);
            }
        }
    }

    /// Sends on an open connection, in pieces.
    fn send_on(&mut self, stream: u64, from: SocketAddr, bytes: Vec<u8>) {
        let Some(open) = self.streams.get_mut(stream) else { return };
        let side = open.side_of(from);
        let (towards, to) = (side.other(), open.seen_by(side));
        let bytes: Rc<[u8]> = bytes.into();
        self.record(What::Sent, from, to, true, &bytes);
        self.transmit(stream, towards, &bytes);
    }

    /// Bytes go on their way.
    fn transmit(&mut self, stream: u64, towards: Side, bytes: &[u8]) {
        let delay = self.plan.link.delay;
        let mut rest = bytes;
        while !rest.is_empty() {
            let length = if self.network.chance(50) {
                rest.len()
            } else {
                self.network.between(1, rest.len() as u64) as usize
            };
            let (piece, after) = rest.split_at(length);
            rest = after;
            if self.network.chance(self.plan.resets) {
                self.count("connections broken");
                self.break_stream(stream);
                return;
            }
            let late = self.network.below(self.plan.link.jitter + 1);
            let Some(open) = self.streams.get_mut(stream) else { return };
            let at = open.arrival(towards, self.now + delay + late);
            self.at(at, Event::Chunk { stream, towards, bytes: piece.to_vec() });
        }
    }

    /// A connection breaks; both sides learn of it a little later.
    fn break_stream(&mut self, stream: u64) {
        let Some(open) = self.streams.close(stream) else { return };
        for side in [Side::Opener, Side::Acceptor] {
            let event = Event::Broken { stream, side, node: open.node(side), peer: open.seen_by(side) };
            self.at(self.now + self.plan.link.delay, event);
        }
    }

    fn deliver_end(&mut self, stream: u64, side: Side, node: SocketAddr, peer: SocketAddr) {
        if let Some(phone) = self.places.get(&node).copied() {
            if side == Side::Opener {
                self.phones[phone].broken(peer);
                self.note_due(phone);
            }
        } else if let Some(server) = self.servers.iter().position(|server| server.address == node) {
            let words = self.servers[server].disconnected(stream);
            self.tell_of_loss(server, stream, peer);
            for word in words {
                self.send_anew(server, word);
            }
        }
    }

    fn open(&mut self, from: SocketAddr, to: SocketAddr) -> Option<u64> {
        let listens = self.servers.iter().any(|server| server.address == to)
            || self.places.get(&to).is_some_and(|phone| self.phones[*phone].tcp);
        if !listens || self.is_cut(from) || self.is_cut(to) {
            return None;
        }
        let stream = self.streams.open(from, to);
        let source = self.streams.get_mut(stream).map(|open| open.source)?;
        for server in &mut self.servers {
            if server.address == from {
                server.connected(stream, to);
            } else if server.address == to {
                server.connected(stream, source);
            }
        }
        Some(stream)
    }

    // --- what nodes do
    // ------------------------------------------------------------------------------------------------

    fn drain_phone(&mut self, phone: usize) {
        let from = self.phones[phone].address;
        self.note_due(phone);
        for (way, bytes) in std::mem::take(&mut self.phones[phone].out) {
            match way {
                Way::Datagram(to) => self.send(self.phones[phone].sends_from(&bytes), to, bytes),
                Way::Stream(stream) => self.answer_on(stream, from, bytes),
                Way::Connect(to) => match self.streams.find(from, to).or_else(|| self.open(from, to)) {
                    Some(stream) => {
                        self.send_on(stream, from, bytes);
                        self.maybe_last_word(stream, from);
                    }
                    None => self.at(
                        self.now + 100 * MILLI,
                        Event::Broken { stream: 0, side: Side::Opener, node: from, peer: to },
                    ),
                },
            }
        }
    }

    fn do_all(&mut self, server: ServerId, deeds: Vec<Deed>) {
        for deed in deeds {
            match deed {
                Deed::Datagram { to, bytes } => self.send(self.servers[server].address, to, bytes),
                Deed::Stream { shard, path, bytes } => self.send_by_stream(server, shard, path, bytes),
                Deed::Ask { shard, id, ask } => self.ask(server, shard, id, ask),
            }
        }
        if self.servers[server].wants_commit() {
            self.begin_commit(server);
        }
    }

    fn send_by_stream(&mut self, server: ServerId, shard: Shard, path: Path, bytes: Vec<u8>) {
        let from = self.servers[server].address;
        let stream = match self.servers[server].connection_for(&path) {
            Ok(stream) => Some(stream),
            Err(Some(to)) => self.open(from, to),
            Err(None) => None,
        };
        if let Some(open) = stream.filter(|stream| self.streams.get_mut(*stream).is_some()) {
            let is_last = self.servers[server].sent(self.now, open, shard, path, &bytes);
            self.send_on(open, from, bytes);
            if is_last {
                self.end_stream(open, from, End::Half);
            }
            return;
        }
        self.record(What::Sent, from, path.remote, true, &bytes.into());
        self.note(What::Lost, from, path.remote);
        // A connection whose end is on the way takes bytes, and loses them.
        if stream.is_none() {
            self.fail(server, shard, path);
        }
    }

    fn fail(&mut self, server: ServerId, shard: Shard, path: Path) {
        let incarnation = self.servers[server].incarnation;
        self.at(self.now + 100 * MILLI, Event::Failed { server, incarnation, shard, path });
    }

    fn ask(&mut self, server: ServerId, shard: Shard, id: AskId, ask: Ask) {
        let life = self.servers[server].life(shard);
        match ask {
            Ask::Persist { .. } => {
                self.servers[server].waiting.push((shard, id));
                self.begin_commit(server);
            }
            Ask::Resolve { host } => {
                let (after, answer) = self.resolve(&host);
                let address = self.servers[server].address;
                self.note(What::Asked(shard, self.now + after), address, address);
                self.at(self.now + after, Event::Answer { server, life, shard, id, answer });
            }
            Ask::Select(select) => {
                let (after, answer) = self.select(&select);
                self.at(self.now + after, Event::Answer { server, life, shard, id, answer });
            }
            _ => self.at(self.now, Event::Answer { server, life, shard, id, answer: OwnedAnswer::Failed }),
        }
    }

    /// The addresses of a name, after so long.
    fn resolve(&mut self, host: &str) -> (Micros, OwnedAnswer) {
        let last = self.servers.len() - 1;
        let of = |server: usize| vec![server_address(server).ip()];
        let right: Vec<IpAddr> = match host {
            "home.example" => of(last),
            _ => host
                .strip_prefix("edge")
                .and_then(|rest| rest.strip_suffix(".example")?.parse().ok())
                .filter(|server| *server < last)
                .map_or_else(Vec::new, of),
        };
        let after = self.outside.between(1, 50) * MILLI;
        if !self.outside.chance(self.plan.dns) {
            return (after, OwnedAnswer::Addresses(right));
        }
        let (fault, after, answer) = match self.outside.below(4) {
            0 => {
                // Whoever waits must not wait as long as that.
                let after = if self.outside.chance(50) { 60 * SECOND } else { after };
                ("names without an answer", after, OwnedAnswer::Failed)
            }
            1 => ("names that are not there", after, OwnedAnswer::Addresses(Vec::new())),
            // Nobody is there.
            2 => ("wrong names", after, OwnedAnswer::Addresses(vec![IpAddr::from([10, 9, 9, 9])])),
            _ => ("late names", self.outside.between(1, 8) * SECOND, OwnedAnswer::Addresses(right)),
        };
        self.count(fault);
        (after, answer)
    }

    // --- the store
    // ----------------------------------------------------------------------------------------------------

    /// The store follows by a second at most, whoever asks.
    fn plan_flush(&mut self, server: ServerId) {
        if self.servers[server].keeps() && !self.servers[server].flush_planned {
            self.servers[server].flush_planned = true;
            let incarnation = self.servers[server].incarnation;
            self.at(self.now + SECOND, Event::Flush { server, incarnation });
        }
    }

    /// Begins a commit of all that has changed, for all who wait, unless one is under way. Questions are taken
    /// first and changes afterwards, so that what a question is about is in the batch.
    fn begin_commit(&mut self, server: ServerId) {
        let slowest = self.plan.store.slowest;
        let keeper = &mut self.servers[server];
        if keeper.committing.is_some() {
            return;
        }
        // A batch that failed goes first, by itself: the changes of those who wait are not in it.
        let is_free = keeper.store.is_quiet();
        let taken = if is_free { std::mem::take(&mut keeper.waiting) } else { Vec::new() };
        let is_wanted = keeper.wants_commit() || !taken.is_empty();
        if is_free {
            keeper.ask_for_held();
        }
        keeper.drain(self.now);
        if keeper.store.is_quiet() && !is_wanted {
            return self.note_committed(server);
        }
        keeper.committing = Some(taken);
        let incarnation = keeper.incarnation;
        let after = self.outside.below(slowest + 1);
        if after > SECOND {
            self.count("commits of more than a second");
        }
        self.meet_doom(server, Doom::AmidCommit, after.saturating_sub(1));
        self.at(self.now + after, Event::Committed { server, incarnation });
    }

    fn meet_doom(&mut self, server: ServerId, doom: Doom, after: Micros) {
        if self.doomed.get(&server) == Some(&doom) {
            self.doomed.remove(&server);
            self.at(self.now + after, Event::Fault(Fault::Kill(server)));
        }
    }

    fn end_commit(&mut self, server: ServerId) {
        let faults = self.plan.store;
        let fails = self.now < self.plan.active && self.outside.chance(faults.failures);
        let lies = fails && self.outside.chance(faults.lies);
        let refuses = self.outside.chance(50);
        match (fails, lies, refuses) {
            (false, ..) => {}
            (true, true, _) => self.count("commits failed that took effect"),
            (true, false, true) => self.count("commits refused"),
            (true, false, false) => self.count("commits failed"),
        }
        let keeper = &mut self.servers[server];
        let mut answered = keeper.committing.take().unwrap_or_default();
        let is_committed = !fails || lies;
        if is_committed {
            keeper.store.commit();
        }
        let answer = match (fails, refuses) {
            (false, _) => OwnedAnswer::Done,
            (true, true) => OwnedAnswer::Refused,
            (true, false) => OwnedAnswer::Failed,
        };
        if fails {
            // Who came meanwhile would wait for a store that is away.
            answered.append(&mut keeper.waiting);
        } else {
            keeper.store.confirmed();
        }
        if is_committed {
            self.note_committed(server);
        }
        if fails {
            let address = self.servers[server].address;
            self.note(What::CommitFailed(server), address, address);
            self.meet_doom(server, Doom::BehindFailure, MILLI);
        }
        let deeds = self.servers[server].settle(self.now, answer.as_answer());
        self.do_all(server, deeds);
        for (shard, id) in answered {
            self.answer(server, shard, id, &answer);
        }
        if fails {
            self.plan_flush(server);
        } else {
            self.begin_commit(server);
        }
    }

    /// The store has what changed before its batch was filled. With write-through the answers say so.
    fn note_committed(&mut self, server: ServerId) {
        let (address, upto) = (self.servers[server].address, self.servers[server].store.filled_at);
        if self.plan.keeping == Keeping::WriteBack {
            self.note(What::Committed(server, upto), address, address);
        }
    }

    // --- faults
    // -------------------------------------------------------------------------------------------------------

    /// What a kill hits: something that the server holds, a commit that is under way, a clock that is another one at the
    /// next start, for what carries its time.
    fn count_kill(&mut self, server: ServerId) {
        let killed = &self.servers[server];
        let (is_busy, is_committing) = (!killed.busy_shards().is_empty(), killed.committing.is_some());
        let is_behind = !is_committing && !killed.store.is_quiet();
        let (has_bindings, step) = (killed.has_bindings(), killed.clock_step());
        if is_busy {
            self.count("kills amid transactions");
        }
        if has_bindings {
            self.count("kills amid bindings");
        }
        if is_committing {
            self.count("kills amid commits");
        }
        if is_behind {
            self.count("kills while a commit is to be tried again");
        }
        if has_bindings || self.plan.digest.is_some() {
            match step {
                ..0 => self.count("starts by a clock that went back"),
                0 => {}
                1.. => self.count("starts by a clock that went forward"),
            }
        }
    }

    fn strike(&mut self, fault: Fault) {
        match fault {
            Fault::Cut(node, until) => {
                self.note(What::Note(format!("{node} is cut off")), node, node);
                self.cut.insert(node, until);
                for stream in self.streams.of(node) {
                    self.count("connections cut off");
                    self.break_stream(stream);
                }
            }
            Fault::Kill(server) => {
                let address = self.servers[server].address;
                // Whether a commit that was under way took effect, nobody can say.
                self.count_kill(server);
                if self.servers[server].committing.is_some() && self.outside.chance(50) {
                    self.servers[server].store.commit();
                    self.note_committed(server);
                }
                for stream in self.streams.of(address) {
                    self.break_stream(stream);
                }
                self.servers[server].kill(self.now);
                self.note(What::Restarted(server), address, address);
            }
            Fault::Doom(server, doom) => {
                self.doomed.insert(server, doom);
            }
            Fault::RestartShard(server, shard) => {
                let busy = self.servers[server].busy_shards();
                if busy.contains(&shard) {
                    self.count("shard restarts");
                    if busy.len() > 1 {
                        self.count("restarts of one shard while others work");
                    }
                }
                self.servers[server].restart_shard(shard);
                let address = self.servers[server].address;
                self.note(What::ShardRestarted(server, shard), address, address);
            }
            Fault::Jump(server, offset) => self.servers[server].set_clock(offset),
            Fault::Step(server, step) => self.servers[server].step_clock(step),
            Fault::Drain(server) => {
                if !self.servers[server].busy_shards().is_empty() {
                    self.count("drains");
                }
                let deeds = self.servers[server].stop_taking(self.now);
                self.do_all(server, deeds);
                let address = self.servers[server].address;
                self.note(What::Note(format!("{address} takes nothing new")), address, address);
            }
            Fault::Replace(server) => {
                if !self.servers[server].busy_shards().is_empty() {
                    self.count("drains cut short");
                }
                self.servers[server].flush(self.now);
                self.note_committed(server);
                self.strike(Fault::Kill(server));
            }
            Fault::Replay(server, number) => self.replay(server, &mut Prng::new(number)),
            Fault::Change(server, change) => self.change(server, change),
            Fault::Noise(bytes, server) => {
                self.send(NOISE, self.servers[server].address, bytes);
            }
        }
    }
}
