//! Workers, a network and a server on virtual time: what the net threads and the conductor of a trial do with real
//! ones.

use crate::server::{SERVER, Server};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sip::Instant;
use sipstone::criterion::Criterion;
use sipstone::load::{Input, Outbox, SocketId, Worker};
use sipstone::report::assemble::{self, RawTrial};
use sipstone::report::model::TrialReport;
use sipstone::spec::*;
use sipstone::tally::{GeneratorTally, Tally};
use sipstone::validity;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// How much later than the first the second copy of a doubled datagram comes.
const COPY_LATER: Duration = Duration::from_micros(300);
/// Longest run of events in a preamble, so that one that hangs fails.
const PREAMBLE_STEPS_MAX: u32 = 5_000_000;

/// What the network does to datagrams, both ways alike, once a trial has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conditions {
    /// One way.
    pub(crate) delay: Duration,
    /// Share of datagrams that are lost.
    pub(crate) lost: f64,
    /// Share of Call-IDs all of whose datagrams are lost.
    pub(crate) operations_lost: f64,
    /// Share of datagrams that come twice.
    pub(crate) doubled: f64,
    /// What the draws come from.
    pub(crate) seed: u64,
}

impl Default for Conditions {
    fn default() -> Conditions {
        Conditions {
            delay: Duration::from_micros(100),
            lost: 0.0,
            operations_lost: 0.0,
            doubled: 0.0,
            seed: 20_261_121,
        }
    }
}

/// A datagram under way. One that is `served` has come to the server and through its queue.
struct Packet {
    at: Instant,
    order: u64,
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
    served: bool,
}

impl PartialEq for Packet {
    fn eq(&self, other: &Packet) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Packet {}

impl PartialOrd for Packet {
    fn partial_cmp(&self, other: &Packet) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Packet {
    fn cmp(&self, other: &Packet) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

struct Network {
    conditions: Conditions,
    random: Xoshiro256PlusPlus,
    under_way: BinaryHeap<Reverse<Packet>>,
    order: u64,
}

impl Network {
    fn new(delay: Duration) -> Network {
        Network {
            conditions: Conditions { delay, ..Conditions::default() },
            random: Xoshiro256PlusPlus::seed_from_u64(0),
            under_way: BinaryHeap::new(),
            order: 0,
        }
    }

    fn impose(&mut self, conditions: Conditions) {
        self.conditions = conditions;
        self.random = Xoshiro256PlusPlus::seed_from_u64(conditions.seed);
    }

    fn carry(&mut self, now: Instant, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        let Conditions { delay, lost, operations_lost, doubled, seed } = self.conditions;
        let gone = operations_lost > 0.0 && share_of(seed, call_id(bytes)) < operations_lost;
        if gone || self.happens(lost) {
            return;
        }
        self.put(now + delay, from, to, bytes.to_vec(), false);
        if self.happens(doubled) {
            self.put(now + delay + COPY_LATER, from, to, bytes.to_vec(), false);
        }
    }

    fn happens(&mut self, share: f64) -> bool {
        share > 0.0 && self.random.random::<f64>() < share
    }

    fn put(&mut self, at: Instant, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>, served: bool) {
        self.order += 1;
        self.under_way.push(Reverse(Packet { at, order: self.order, from, to, bytes, served }));
    }

    fn next(&self) -> Instant {
        self.under_way.peek().map_or(Instant::NEVER, |Reverse(packet)| packet.at)
    }
}

/// A datagram as it left a worker or came to one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) at: Instant,
    /// The worker's end.
    pub(crate) local: SocketAddr,
    /// The other end.
    pub(crate) remote: SocketAddr,
    /// Of the first request of an operation that left.
    pub(crate) planned: Option<Instant>,
    pub(crate) bytes: Vec<u8>,
}

/// Decides from (offered, succeeded, failed) per class whether a trial may end now.
pub(crate) type Early<'a> = &'a dyn Fn(&[(u64, u64, u64)]) -> bool;

/// The whole.
pub(crate) struct Rig {
    pub(crate) workers: Vec<Worker>,
    /// All that left workers since the trial began, if [`Rig::watch`] asked for it.
    pub(crate) sent: Vec<Seen>,
    /// All that came to workers.
    pub(crate) received: Vec<Seen>,
    watched: bool,
    /// Workers look at the clock only at multiples of this.
    tick: Duration,
    workload: Workload,
    server: Server,
    network: Network,
    now: Instant,
    out: Outbox,
    /// The measured window; after it a trial may end.
    window: (Instant, Instant),
    /// Of the current second, and of the window.
    generator: GeneratorTally,
    generator_measured: GeneratorTally,
}

impl Rig {
    /// One group of workers that share the users and the rate in equal parts.
    pub(crate) fn new(workload: &Workload, workers: u16, server: Server) -> Rig {
        let users = workload.users.count;
        let assignment = assignment(workload, 0, (Role::Both, 1.0, (0, users)), workers);
        let cut = |index: u16| users * u32::from(index) / u32::from(workers);
        let worker = |index: u16| {
            let own = (cut(index), cut(index + 1) - cut(index));
            let [caller, callee] = sockets(index);
            Worker::new(&assignment, index, workers, own, &[caller], &[callee])
        };
        Rig::of_workers((0..workers).map(worker).collect(), workload, server)
    }

    /// Groups of one worker each, as on several hosts: role, share of the rate, users (first, count).
    pub(crate) fn of_groups(workload: &Workload, groups: &[(Role, f64, (u32, u32))], server: Server) -> Rig {
        let worker = |(group, part): (u16, &(Role, f64, (u32, u32)))| {
            let [caller, callee] = sockets(group);
            Worker::new(&assignment(workload, group, *part, 1), 0, 1, part.2, &[caller], &[callee])
        };
        Rig::of_workers((0..).zip(groups).map(worker).collect(), workload, server)
    }

    fn of_workers(workers: Vec<Worker>, workload: &Workload, server: Server) -> Rig {
        Rig {
            workers,
            sent: Vec::new(),
            received: Vec::new(),
            watched: false,
            tick: Duration::from_micros(1),
            workload: workload.clone(),
            server,
            network: Network::new(Conditions::default().delay),
            now: Instant::from_micros(1_000_000),
            out: Outbox::default(),
            window: (Instant::NEVER, Instant::NEVER),
            generator: GeneratorTally::default(),
            generator_measured: GeneratorTally::default(),
        }
    }

    /// Keeps all datagrams from now on.
    pub(crate) fn watch(mut self) -> Rig {
        self.watched = true;
        self
    }

    /// Lets the workers look at the clock only at multiples of `tick`, as on a machine that has too much to do.
    pub(crate) fn sluggish(mut self, tick: Duration) -> Rig {
        self.tick = tick;
        self
    }

    /// Runs one trial over a network of these conditions, with a preamble before it if the workload has one.
    pub(crate) fn trial(
        &mut self,
        phase: &str,
        conditions: Conditions,
        early: Option<Early<'_>>,
    ) -> RawTrial {
        if self.workload.preamble {
            self.preamble();
        }
        self.network.impose(conditions);
        let workload = self.workload.clone();
        let start = self.now + Duration::from_millis(100);
        self.window = (start + workload.warm_up, start + workload.warm_up + workload.measure);
        let contacts = self.contacts();
        for worker in &mut self.workers {
            drop(worker.counts());
            worker.start(start, &contacts);
        }
        let mut raw = RawTrial {
            phase: phase.into(),
            measured: Tally::new(workload.classes.len()),
            workload,
            seconds: Vec::new(),
            server: Vec::new(),
            ended_early: false,
            examples: Vec::new(),
        };
        for second in 0.. {
            self.run_until(start + Duration::from_secs(u64::from(second) + 1));
            raw.seconds.push((second, self.cut()));
            if early.is_some_and(|certain| certain(&self.measured())) {
                raw.ended_early = true;
                self.workers.iter_mut().for_each(|worker| worker.stop(self.now, false));
                break;
            }
            if self.is_over() {
                break;
            }
        }
        for worker in &mut self.workers {
            raw.measured.merge(&worker.counts().measured);
            raw.examples.extend(worker.examples());
        }
        raw.measured.generator.merge(&self.generator_measured);
        raw
    }

    fn contacts(&self) -> Vec<ContactRange> {
        self.workers.iter().flat_map(Worker::contacts).collect()
    }

    /// Registers all users over a network that loses nothing.
    fn preamble(&mut self) {
        let contacts = self.contacts();
        for index in 0..self.workers.len() {
            self.workers[index].register(self.now, &contacts, &mut self.out);
            self.send(index);
        }
        for _ in 0..PREAMBLE_STEPS_MAX {
            if self.workers.iter().all(|worker| worker.preamble().done()) {
                break;
            }
            self.step(Instant::NEVER);
        }
        let failed: Vec<_> =
            self.workers.iter().map(Worker::preamble).filter(|p| p.failed > 0 || !p.done()).collect();
        assert!(failed.is_empty(), "{failed:?}");
        self.sent.clear();
        self.received.clear();
        self.generator = GeneratorTally::default();
    }

    /// A worker whose time is up says that it has finished, but books what is open only when it handles the timeout.
    fn is_over(&self) -> bool {
        let finished = |worker: &Worker| {
            worker.finished(self.now) && worker.next_timeout().is_none_or(|at| at > self.now)
        };
        self.now >= self.window.1 && self.network.under_way.is_empty() && self.workers.iter().all(finished)
    }

    fn run_until(&mut self, end: Instant) {
        while !self.is_over() {
            self.step(end);
            if self.now >= end && self.due() > end {
                break;
            }
        }
    }

    /// When a worker looks at its next timeout.
    fn timeout(&self, worker: &Worker) -> Instant {
        let Some(due) = worker.next_timeout() else { return Instant::NEVER };
        let tick_us = u64::try_from(self.tick.as_micros()).unwrap();
        Instant::from_micros(due.as_micros().div_ceil(tick_us) * tick_us)
    }

    /// When the next thing happens.
    fn due(&self) -> Instant {
        let timeouts = self.workers.iter().map(|worker| self.timeout(worker));
        timeouts.chain([self.network.next()]).min().unwrap_or(Instant::NEVER)
    }

    /// Lets the next thing happen, if it is not after `end`.
    fn step(&mut self, end: Instant) {
        let timeouts = self.workers.iter().map(|worker| self.timeout(worker)).enumerate();
        let (index, timeout) = timeouts.min_by_key(|(_, timeout)| *timeout).unwrap();
        let next = timeout.min(self.network.next());
        if next > end || next == Instant::NEVER {
            self.now = end;
            return;
        }
        self.now = self.now.max(next);
        if timeout <= next {
            self.workers[index].handle(self.now, Input::Timeout, &mut self.out);
            self.send(index);
        } else if let Some(Reverse(packet)) = self.network.under_way.pop() {
            self.deliver(packet);
        }
    }

    fn deliver(&mut self, packet: Packet) {
        let Packet { from, to, bytes, served, .. } = packet;
        if to != SERVER {
            return self.hand_over(from, to, &bytes);
        }
        if served {
            let mut out = std::mem::take(&mut self.out);
            self.server.serve(self.now, from, &bytes, &mut out);
            for send in &out.sends {
                self.network.carry(self.now, SERVER, send.to, out.datagram(send));
            }
            out.clear();
            self.out = out;
        } else if let Some(at) = self.server.front.admit(self.now) {
            self.network.put(at, from, to, bytes, true);
        }
    }

    /// Gives a datagram to the worker that has the socket.
    fn hand_over(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        let (index, socket) = owner(to, self.workers.len());
        self.generator.datagrams_received += 1;
        if self.watched {
            let bytes = bytes.to_vec();
            self.received.push(Seen { at: self.now, local: to, remote: from, planned: None, bytes });
        }
        self.workers[index].handle(self.now, Input::Datagram { socket, from, bytes }, &mut self.out);
        self.send(index);
    }

    /// Puts what a worker wants sent on its way.
    fn send(&mut self, index: usize) {
        let mut out = std::mem::take(&mut self.out);
        for send in &out.sends {
            let local = sockets(u16::try_from(index).unwrap())[usize::from(send.socket.0)];
            let bytes = out.datagram(send);
            self.generator.datagrams_sent += 1;
            if let Some(planned) = send.planned {
                let lag = self.now.since(planned);
                self.generator.send_lag.record(lag);
                if planned >= self.window.0 && planned < self.window.1 {
                    self.generator_measured.send_lag.record(lag);
                }
            }
            if self.watched {
                let bytes = bytes.to_vec();
                self.sent.push(Seen { at: self.now, local, remote: send.to, planned: send.planned, bytes });
            }
            self.network.carry(self.now, local, send.to, bytes);
        }
        out.clear();
        self.out = out;
    }

    /// The counts since the last cut.
    fn cut(&mut self) -> Tally {
        let mut tally = Tally::new(self.workload.classes.len());
        for worker in &mut self.workers {
            tally.merge(&worker.counts().interval);
        }
        tally.generator.merge(&std::mem::take(&mut self.generator));
        tally
    }

    fn measured(&self) -> Vec<(u64, u64, u64)> {
        let mut sum = vec![(0, 0, 0); self.workload.classes.len()];
        for counts in self.workers.iter().map(Worker::measured) {
            for (sum, one) in sum.iter_mut().zip(counts) {
                *sum = (sum.0 + one.0, sum.1 + one.1, sum.2 + one.2);
            }
        }
        sum
    }
}

fn assignment(workload: &Workload, group: u16, part: (Role, f64, (u32, u32)), threads: u16) -> Assignment {
    let (role, rate_share, callees) = part;
    let (cpus, sources) = (Vec::new(), Vec::new());
    Assignment { workload: workload.clone(), group, rate_share, callees, role, threads, cpus, sources }
}

/// The sockets of a worker: the callers', then the callees'.
fn sockets(worker: u16) -> [SocketAddr; 2] {
    let ip = IpAddr::V4(Ipv4Addr::new(10, 0, 0, u8::try_from(worker + 1).unwrap()));
    [SocketAddr::new(ip, 6000), SocketAddr::new(ip, 7000)]
}

/// Whose socket an address is.
fn owner(address: SocketAddr, workers: usize) -> (usize, SocketId) {
    for index in 0..workers {
        let place = sockets(u16::try_from(index).unwrap()).iter().position(|socket| *socket == address);
        if let Some(place) = place {
            return (index, SocketId(u16::try_from(place).unwrap()));
        }
    }
    panic!("nobody is at {address}");
}

/// The value of a message's Call-ID.
pub(crate) fn call_id(bytes: &[u8]) -> &[u8] {
    const NAME: &[u8] = b"\r\nCall-ID:";
    let start = bytes.windows(NAME.len()).position(|window| window == NAME).unwrap() + NAME.len();
    let length = bytes[start..].iter().position(|byte| *byte == b'\r').unwrap();
    bytes[start..start + length].trim_ascii()
}

/// A number from 0 to 1 that looks random and is always the same for the same bytes (FNV-1a, finished by SplitMix64).
fn share_of(seed: u64, bytes: &[u8]) -> f64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ seed;
    let hash = bytes.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((hash ^ (hash >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

/// A workload of one scenario: Poisson, the RFC's timers, 200 users, one second of warm-up.
pub(crate) fn workload(scenario: Scenario, rate: f64, measure: Duration) -> Workload {
    Workload {
        target: Target { address: SERVER, domain: SERVER.to_string() },
        links: sipstone::spec::Links::default(),
        classes: vec![Class::plain(scenario)],
        rate,
        shape: Shape::Poisson,
        users: Users {
            count: 200,
            first: 1,
            name: "user{}".into(),
            password: "password{}".into(),
            listed: Vec::new(),
            choice: Choice::Uniform,
        },
        auth: Auth::None,
        auth_every: false,
        proxy: Proxy::Auto,
        seed: 1,
        warm_up: Duration::from_secs(1),
        measure,
        drain: Duration::from_secs(33),
        t1: Duration::from_millis(500),
        t2: Duration::from_secs(4),
        open_operations_max: 1_000_000,
        preamble_window: 10,
        preamble: scenario.facts().preamble,
        expires: 3600,
        trace: false,
    }
}

/// A trial as the commands make one of its counts: assembled, judged and checked.
pub(crate) fn judged(raw: &RawTrial, criterion: &Criterion) -> TrialReport {
    let mut report = assemble::trial(raw);
    report.verdict = criterion.judge(&report).word().into();
    report.invalid = validity::check(&report, &raw.workload, validity::Purpose::Latency);
    report
}

/// One trial of one worker against a server, judged by the default criterion.
pub(crate) fn measure(workload: &Workload, server: Server, conditions: Conditions) -> TrialReport {
    let raw = Rig::new(workload, 1, server).trial("run", conditions, None);
    judged(&raw, &Criterion::default())
}
