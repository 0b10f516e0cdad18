//! One server: the production endpoint, script machine, modules and location table, with nothing of the
//! operating system below them. What a shard's loop does besides (steering, framing, expiring, asking) is
//! done here in the same order.

mod configuration;
mod connection;
mod held;
mod services;
pub mod shelf;

use crate::faults::{Keeping, Plan, ROOMY, SECOND, Sizes};
use crate::prng::Prng;
use crate::trace::Micros;
pub use crate::trace::Shard;
use configuration::Configured;
pub use configuration::Edition;
use connection::Connection;
pub use connection::{Ending, LastWord};
use engine::{
    Answer, Ask, AskId, Config, Counters, Endpoint, FlowId, Input, Listener, ListenerId, Outbox, Output,
    Path, TransportFailure,
};
use held::Held;
use location::{Location as _, Seeds};
use modules::{Clock, Domains, Environment, NoLog, ScriptUser, Settings};
use route::Program;
use services::Shared;
use shelf::{Shelf, Store};
use sip::{Instant, Transport};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The listener of datagrams.
pub const UDP: ListenerId = ListenerId(0);
/// The listener of streams.
pub const TCP: ListenerId = ListenerId(1);

/// When the world began, in microseconds since 1970.
const WALL_CLOCK: u64 = 1_800_000_000_000_000;
/// `nonce_expire` of the home's configuration.
pub const NONCE_EXPIRE: Micros = 60 * SECOND;
/// Nonces in use that are remembered where sizes are tiny, so that some are forgotten.
const NONCES_FEW: usize = 8;
/// The same elsewhere.
const NONCES_MANY: usize = 1_024;

/// Expired bindings removed in one step: few, so that the rest is met.
const EXPIRE_BUDGET: usize = 4;
/// How soon the removal goes on while some are left over.
const EXPIRE_AGAIN: Duration = Duration::from_millis(10);

/// What a request says of the tables that served it.
pub const TABLE_HEADER: &str = "x-table";
/// What it says of them when it is tried a second time.
pub const SECOND_HEADER: &str = "x-second";
/// What it says of the configuration that served it.
pub const CONFIGURATION_HEADER: &str = "x-configuration";

/// Which configuration a server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Registrar and proxy.
    Home,
    /// A proxy in front of it.
    Edge,
}

/// What a server wants done.
#[derive(Debug)]
pub enum Deed {
    /// A datagram.
    Datagram {
        /// Where to.
        to: SocketAddr,
        /// What.
        bytes: Vec<u8>,
    },
    /// A message on a stream.
    Stream {
        /// Who hears of it if it is lost.
        shard: Shard,
        /// The way that the engine chose.
        path: Path,
        /// What.
        bytes: Vec<u8>,
    },
    /// A question.
    Ask {
        /// Who asks.
        shard: Shard,
        /// To be repeated in the answer.
        id: AskId,
        /// The question.
        ask: Ask,
    },
}

type Core = Endpoint<ScriptUser<Shelf, NoLog>>;

/// See the module's documentation.
pub struct Server {
    /// Its address, on both transports.
    pub address: SocketAddr,
    /// What it is there for.
    pub role: Role,
    /// How often it has been killed.
    pub incarnation: u64,
    /// What survives.
    pub store: Store,
    /// Questions about commits that wait for the next one.
    pub waiting: Vec<(Shard, AskId)>,
    /// Questions that the commit under way answers; `None` while there is none.
    pub committing: Option<Vec<(Shard, AskId)>>,
    /// Whether a flush is due some time.
    pub flush_planned: bool,
    /// The most transactions that a shard ever held.
    pub most: usize,
    /// The most bindings that its table ever held.
    pub most_bindings: usize,
    /// The most scripts of a shard that ever waited.
    most_suspended: usize,
    /// The most names that a shard ever asked for at once.
    most_names: usize,
    /// What was counted before the last restart.
    counted: Vec<Counters>,
    shards: Vec<Core>,
    /// How often each shard has begun again by itself.
    shard_restarts: Vec<u64>,
    shelf: Shelf,
    sizes: Sizes,
    seed: [u64; 4],
    /// What the wall clock is set to, from the next start on (µs).
    clock_to_be: i64,
    /// How far the wall clock was off (µs), as it was read at each start.
    pub clocks_in_use: Vec<(Micros, i64)>,
    started_unix_secs: u64,
    /// What nonces are signed with; it outlives the server.
    nonce_key: [u8; 32],
    program: Arc<Program>,
    settings: Arc<Settings>,
    /// What the next start begins with.
    next: (Edition, Configured),
    /// Editions of the configuration, and since when each was in use.
    pub configurations_in_use: Vec<(Micros, Edition)>,
    /// The same of the tables.
    pub tables_in_use: Vec<(Micros, Edition)>,
    shared: Arc<Shared>,
    plan: Plan,
    index: usize,
    expire_at: Micros,
    connections: BTreeMap<u64, Connection>,
    held: Held,
    out: Outbox,
    prng: Prng,
}

impl Server {
    /// The server number `index` of a plan's row; the last one is the home.
    pub fn new(plan: &Plan, index: usize, address: SocketAddr) -> Server {
        let role = if index + 1 == plan.servers { Role::Home } else { Role::Edge };
        let Some(configured) = configuration::read(plan, role, index, Edition::One) else {
            unreachable!("the simulator's own files are right: a test says so")
        };
        let mut prng = Prng::part(plan.seed, &format!("server {index}"));
        let mut server = Server {
            address,
            role,
            incarnation: 0,
            store: Store::default(),
            waiting: Vec::new(),
            committing: None,
            flush_planned: false,
            most: 0,
            most_bindings: 0,
            most_suspended: 0,
            most_names: 0,
            counted: Vec::new(),
            shards: Vec::new(),
            shard_restarts: vec![0; plan.shards.into()],
            shelf: Shelf::new(location::Limits::default(), Seeds([0; 4])),
            sizes: plan.sizes,
            seed: four(&mut prng),
            clock_to_be: 0,
            clocks_in_use: Vec::new(),
            started_unix_secs: 0,
            nonce_key: [index as u8 + 1; 32],
            program: configured.0.clone(),
            settings: configured.1.clone(),
            next: (Edition::One, configured),
            configurations_in_use: Vec::new(),
            tables_in_use: Vec::new(),
            shared: Arc::new(Shared::new(Domains::default(), NONCES_FEW)),
            plan: plan.clone(),
            index,
            expire_at: 0,
            connections: BTreeMap::new(),
            held: Held::default(),
            out: Outbox::new(),
            prng,
        };
        server.start(0);
        server
    }

    fn start(&mut self, now: Micros) {
        self.seed = four(&mut self.prng);
        self.clocks_in_use.push((now, self.clock_to_be));
        let limits = location::Limits { bindings_max: self.sizes.bindings, ..location::Limits::default() };
        self.shelf = Shelf::new(limits, Seeds(four(&mut self.prng)));
        if self.plan.keeping != Keeping::Memory {
            self.store.restore(&self.shelf, Instant::from_micros(now), self.clock());
            self.most_bindings = self.most_bindings.max(self.shelf.len());
        }
        let (edition, (program, settings)) = self.next.clone();
        (self.program, self.settings) = (program, settings);
        self.configurations_in_use.push((now, edition));
        let nonces_max = if self.sizes == ROOMY { NONCES_MANY } else { NONCES_FEW };
        self.shared = Arc::new(Shared::new(Domains::default(), nonces_max));
        self.started_unix_secs = self.clock().unix_micros(Instant::from_micros(now)) / SECOND;
        // With tables that make no sense it would not start: somebody has put them right by then.
        let tables = self.tables_in_use.last().map_or(Edition::One, |(_, edition)| *edition);
        self.read_tables(now, tables);
        let shards = self.plan.shards;
        self.shards = (0..shards).map(|shard| self.endpoint(shard, shards, self.seed)).collect();
        self.expire_at = now;
    }

    // --- administration
    // -----------------------------------------------------------------------------------------------

    /// Reads the tables again, of which this edition is there; `false`: it makes no sense, and nothing
    /// changes.
    pub fn read_tables(&mut self, now: Micros, edition: Edition) -> bool {
        if !self.plan.changes || self.role != Role::Home {
            return false;
        }
        let Ok(domains) = configuration::domains(&self.settings, edition) else { return false };
        self.shared.set_domains(domains);
        self.tables_in_use.push((now, edition));
        true
    }

    /// What is remembered of users is stale.
    pub fn users_changed(&self) {
        self.shared.users_changed();
    }

    /// The next start is to begin with this edition of the configuration; `false`: it is refused.
    pub fn set_configuration(&mut self, edition: Edition) -> bool {
        let read = configuration::read(&self.plan, self.role, self.index, edition);
        let is_right = read.is_some();
        if let Some(configured) = read {
            self.next = (edition, configured);
        }
        is_right
    }

    fn endpoint(&self, shard: u8, shards: u8, seed: [u64; 4]) -> Core {
        let listener = |transport| Listener { transport, address: self.address, advertise: None };
        let listeners = vec![listener(Transport::Udp), listener(Transport::Tcp)];
        let sizes = &self.sizes;
        let limits = engine::Limits {
            transactions_max: sizes.transactions,
            branches_max: sizes.branches.min(self.settings.branches_max),
            message_bytes_max: sizes.message_bytes,
            max_breadth: sizes.breadth,
            suspended_max: sizes.suspended,
            resolves_max: sizes.resolves,
            timers_per_step_max: sizes.timers_per_step,
            ..engine::Limits::default()
        };
        let config = Config {
            listeners: listeners.clone(),
            aliases: self.settings.aliases.clone(),
            timers: self.settings.timers.clone(),
            limits,
            transports: self.settings.transports.clone(),
            shard,
            shards,
            server_header: self.settings.server_header.clone(),
            seed,
            auto_100: self.settings.auto_100,
        };
        let environment = Environment {
            clock: self.clock(),
            listeners,
            message_bytes_max: u32::try_from(sizes.message_bytes).unwrap_or(u32::MAX),
            holds_answers: self.plan.holds_answers,
            nonce_key: self.nonce_key,
            started_unix_secs: self.started_unix_secs,
            services: self.shared.clone(),
            ..Environment::default()
        };
        let shelf = self.shelf.clone();
        Endpoint::new(
            config,
            ScriptUser::new(self.program.clone(), self.settings.clone(), shelf, NoLog, environment),
        )
    }

    fn clock(&self) -> Clock {
        let offset = self.clocks_in_use.last().map_or(0, |(_, offset)| *offset);
        Clock { unix_micros_at_zero: WALL_CLOCK.saturating_add_signed(offset) }
    }

    // --- input
    // -------------------------------------------------------------------------------------------------------
    // -

    /// A datagram came.
    pub fn datagram(&mut self, now: Micros, from: SocketAddr, bytes: &[u8]) -> Vec<Deed> {
        let path = Path::new(UDP, Some(self.address.ip()), from);
        self.message(now, path, bytes)
    }

    fn message(&mut self, now: Micros, path: Path, bytes: &[u8]) -> Vec<Deed> {
        self.handle(now, self.shard_of(bytes), Input::Message { path, bytes })
    }

    /// In which of its lives a shard is: what an earlier one asked is not for it.
    pub fn life(&self, shard: Shard) -> (u64, u64) {
        (self.incarnation, self.shard_restarts[shard])
    }

    /// Which shard gets a message.
    pub fn shard_of(&self, bytes: &[u8]) -> Shard {
        let shards = u8::try_from(self.shards.len()).unwrap_or(u8::MAX);
        usize::from(engine::steer(bytes, shards, self.seed))
    }

    /// An answer came.
    pub fn answer(&mut self, now: Micros, shard: Shard, id: AskId, answer: Answer<'_>) -> Vec<Deed> {
        self.handle(now, shard, Input::Answer { id, answer })
    }

    /// What was sent on `path` is lost, or may be.
    pub fn failed(&mut self, now: Micros, shard: Shard, path: Path, failure: TransportFailure) -> Vec<Deed> {
        self.handle(now, shard, Input::TransportError { path, failure })
    }

    /// The clock reached [`Server::next_timeout`].
    pub fn timeout(&mut self, now: Micros) -> Vec<Deed> {
        let instant = Instant::from_micros(now);
        if self.expire_at <= now && !self.shelf.is_empty() {
            let removed = self.shelf.expire(instant, EXPIRE_BUDGET);
            let pause = if removed < EXPIRE_BUDGET { self.settings.expire_interval } else { EXPIRE_AGAIN };
            self.expire_at = now + pause.as_micros() as u64;
        }
        let mut deeds = self.give_up(now);
        for shard in 0..self.shards.len() {
            if self.shards[shard].next_timeout().is_some_and(|at| at <= instant) {
                deeds.extend(self.handle(now, shard, Input::Timeout));
            }
        }
        deeds
    }

    fn handle(&mut self, now: Micros, shard: Shard, input: Input<'_>) -> Vec<Deed> {
        self.out.clear();
        self.shards[shard].handle(Instant::from_micros(now), input, &mut self.out);
        let core = &self.shards[shard];
        self.most = self.most.max(core.transactions());
        self.most_suspended = self.most_suspended.max(core.suspended());
        self.most_names = self.most_names.max(core.questions().saturating_sub(core.suspended()));
        self.most_bindings = self.most_bindings.max(self.shelf.len());
        self.hold(now, shard);
        let bytes = &self.out.bytes;
        let deed = |output: &Output| match output {
            Output::Send { path, bytes: range } => Some(deed_of(shard, *path, bytes[range.clone()].to_vec())),
            Output::Ask { id, ask, .. } => Some(Deed::Ask { shard, id: *id, ask: ask.clone() }),
            Output::Alias { .. } => None,
        };
        self.out.outputs.iter().filter_map(deed).collect()
    }

    // --- streams
    // ------------------------------------------------------------------------------------------------------

    /// A connection is up.
    pub fn connected(&mut self, flow: u64, remote: SocketAddr) {
        self.connections.insert(flow, Connection::new(remote));
    }

    /// A connection is gone: the responses that may not have arrived.
    pub fn disconnected(&mut self, flow: u64) -> Vec<LastWord> {
        self.connections.remove(&flow).map_or_else(Vec::new, |mut connection| connection.take_words())
    }

    /// The peer of a connection has said its last word; `None`: there is no such connection.
    pub fn ended(&mut self, now: Micros, flow: u64) -> Option<Ending> {
        self.connections.get_mut(&flow).map(|connection| connection.ended(now))
    }

    /// A message goes out on a connection; whether the server's direction ends with it.
    pub fn sent(&mut self, now: Micros, flow: u64, shard: Shard, path: Path, message: &[u8]) -> bool {
        self.connections.get_mut(&flow).is_some_and(|connection| connection.sent(now, shard, path, message))
    }

    /// The connection on which a message goes out; `None`: one is to be opened to the address, or, without
    /// one, nothing can be done.
    pub fn connection_for(&self, path: &Path) -> Result<u64, Option<SocketAddr>> {
        if path.flow.is_one() {
            if self.connections.get(&path.flow.0).is_some_and(Connection::takes_answers) {
                return Ok(path.flow.0);
            }
            let back = SocketAddr::new(path.remote.ip(), path.fallback_port);
            return self.connection_to(back).ok_or((path.fallback_port != 0).then_some(back));
        }
        let open = (path.flow != FlowId::STANDING).then_some(path.remote);
        self.connection_to(path.remote).ok_or(open)
    }

    /// A connection that leads to an address.
    pub fn connection_to(&self, remote: SocketAddr) -> Option<u64> {
        let leads = |connection: &Connection| connection.remote == remote && connection.takes_requests();
        self.connections.iter().find(|(_, connection)| leads(connection)).map(|(flow, _)| *flow)
    }

    /// Bytes came on a connection: the messages that are whole now, and whether the stream is sound;
    /// `None`: there is no such connection.
    pub fn received(&mut self, flow: u64, bytes: &[u8]) -> Option<(Vec<Vec<u8>>, bool)> {
        let limit = self.sizes.message_bytes;
        self.connections.get_mut(&flow).map(|connection| connection.received(bytes, limit))
    }

    /// A message that a connection brought.
    pub fn stream_message(&mut self, now: Micros, flow: u64, remote: SocketAddr, bytes: &[u8]) -> Vec<Deed> {
        let path = Path { flow: FlowId(flow), ..Path::new(TCP, Some(self.address.ip()), remote) };
        self.message(now, path, bytes)
    }

    // --- time and faults
    // ----------------------------------------------------------------------------------------------

    /// When to call [`Server::timeout`].
    pub fn next_timeout(&self) -> Option<Micros> {
        let expire = (!self.shelf.is_empty()).then_some(self.expire_at);
        let engine = self.shards.iter().filter_map(Core::next_timeout).map(Instant::as_micros).min();
        [engine, expire, self.held.deadline()].into_iter().flatten().min()
    }

    /// It dies, and begins again with what the store has.
    pub fn kill(&mut self, now: Micros) {
        self.count();
        self.incarnation += 1;
        self.store.forget_batch();
        self.waiting.clear();
        self.committing = None;
        self.flush_planned = false;
        self.connections.clear();
        self.held = Held::default();
        self.start(now);
    }

    /// Nothing new is taken from now on.
    pub fn stop_taking(&mut self, now: Micros) -> Vec<Deed> {
        (0..self.shards.len()).flat_map(|shard| self.handle(now, shard, Input::Drain)).collect()
    }

    /// Everything that has changed is written, as at the end of a server that is told to stop.
    pub fn flush(&mut self, now: Micros) {
        if self.keeps() {
            self.store.commit();
            self.store.confirmed();
            self.drain(now);
            self.store.commit();
            self.store.confirmed();
        }
    }

    /// One shard begins again.
    pub fn restart_shard(&mut self, shard: Shard) {
        self.count();
        let shards = u8::try_from(self.shards.len()).unwrap_or(u8::MAX);
        let number = u8::try_from(shard).unwrap_or(0);
        // What the old one asked is not for the new one.
        self.waiting.retain(|(asker, _)| *asker != shard);
        if let Some(committing) = &mut self.committing {
            committing.retain(|(asker, _)| *asker != shard);
        }
        self.held.forget(shard);
        self.shard_restarts[shard] += 1;
        // Steering goes on as before; branches and tags are new ones.
        let seed = four(&mut self.prng);
        self.shards[shard] = self.endpoint(number, shards, seed);
    }

    /// The wall clock jumps; the server reads it when it starts, and measures intervals by another one. What is stored
    /// would live as much longer as it went back.
    pub fn set_clock(&mut self, offset: u64) {
        let offset = i64::try_from(offset).unwrap_or(i64::MAX);
        self.clock_to_be = if self.keeps() { offset.max(self.clock_to_be) } else { offset };
    }

    /// The wall clock is set right.
    pub fn step_clock(&mut self, step: i64) {
        self.clock_to_be = self.clock_to_be.saturating_add(step);
    }

    /// By how much the clock of the next start will be another one.
    pub fn clock_step(&self) -> i64 {
        self.clock_to_be - self.clocks_in_use.last().map_or(0, |(_, offset)| *offset)
    }

    /// Shards that hold transactions.
    pub fn busy_shards(&self) -> Vec<Shard> {
        let is_busy = |(_, core): &(Shard, &Core)| core.transactions() > 0;
        self.shards.iter().enumerate().filter(is_busy).map(|(shard, _)| shard).collect()
    }

    /// Whether something is bound.
    pub fn has_bindings(&self) -> bool {
        !self.shelf.is_empty()
    }

    /// Shards.
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// The store may be written now.
    pub fn drain(&mut self, now: Micros) {
        self.store.drain(now, &self.shelf, self.clock());
    }

    /// Whether there is a store.
    pub fn keeps(&self) -> bool {
        self.plan.keeping != Keeping::Memory && self.role == Role::Home
    }

    fn count(&mut self) {
        self.counted.extend(self.shards.iter().map(|shard| shard.counters().clone()));
    }

    /// What all shards have counted, in all their lives.
    pub fn counters(&self) -> impl Iterator<Item = &Counters> {
        self.counted.iter().chain(self.shards.iter().map(Core::counters))
    }

    /// What came of credentials since the last start.
    pub fn judged_credentials(&self) -> Vec<(&'static str, u64)> {
        let all = self.shards.iter().map(|shard| shard.user().auth_counters());
        let each = all.flat_map(|counters| {
            [
                ("asked for", counters.challenged),
                ("right", counters.accepted),
                ("wrong", counters.wrong),
                ("stale", counters.stale),
                ("slowed", counters.slowed),
            ]
        });
        each.collect()
    }

    /// What is left though nothing happens any more; empty is right.
    pub fn remains(&self) -> Vec<String> {
        let mut remains = Vec::new();
        for (number, shard) in self.shards.iter().enumerate() {
            if shard.transactions() > 0 {
                remains.push(format!("shard {number} holds {} transactions", shard.transactions()));
            }
            if let Some(at) = shard.next_timeout() {
                remains.push(format!("shard {number} has a timer armed for {} µs", at.as_micros()));
            }
            if !shard.is_idle() {
                remains.push(format!("shard {number} says that a request waits for its answer"));
            }
            for (held, what) in [
                (shard.buffers_held(), "buffers"),
                (shard.suspended(), "scripts that wait"),
                (shard.questions(), "questions"),
            ] {
                if held > 0 {
                    remains.push(format!("shard {number} holds {held} {what}"));
                }
            }
        }
        if !self.shelf.is_empty() {
            remains.push(format!("{} bindings are held", self.shelf.len()));
        }
        if !self.held.is_empty() {
            remains.push("answers are held back".to_owned());
        }
        if !self.waiting.is_empty() || self.committing.is_some() || !self.store.is_quiet() {
            remains.push("a commit is under way".to_owned());
        }
        remains
    }

    /// Sizes past their limits; empty is right.
    pub fn excesses(&self) -> Vec<String> {
        let mut excesses = Vec::new();
        if self.most > self.sizes.transactions {
            excesses.push(format!("{} transactions where {} may be", self.most, self.sizes.transactions));
        }
        if self.most_suspended > self.sizes.suspended {
            let limit = self.sizes.suspended;
            excesses.push(format!("{} scripts waited where {limit} may", self.most_suspended));
        }
        if self.most_names > self.sizes.resolves {
            let limit = self.sizes.resolves;
            excesses.push(format!("{} names were asked for where {limit} may be", self.most_names));
        }
        if self.most_bindings > self.sizes.bindings {
            excesses.push(format!("{} bindings where {} may be", self.most_bindings, self.sizes.bindings));
        }
        excesses
    }
}

/// A message on its way.
fn deed_of(shard: Shard, path: Path, bytes: Vec<u8>) -> Deed {
    if path.listener == UDP {
        Deed::Datagram { to: path.remote, bytes }
    } else {
        Deed::Stream { shard, path, bytes }
    }
}

fn four(prng: &mut Prng) -> [u64; 4] {
    [prng.number(), prng.number(), prng.number(), prng.number()]
}
