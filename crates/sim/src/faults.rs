//! What a seed makes of its world: how big, how bad, how long. Each seed switches a random subset of faults
//! on, so that each is met alone and together with others.

use crate::digest::Algorithm;
use crate::prng::Prng;

/// A second.
pub const SECOND: u64 = 1_000_000;
/// A millisecond.
pub const MILLI: u64 = 1_000;

/// How bad the packet network is, each way of each hop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Microseconds that every packet takes.
    pub delay: u64,
    /// Up to so many microseconds more, which reorders.
    pub jitter: u64,
    /// Percent of packets that vanish.
    pub loss: u64,
    /// Percent of packets that arrive twice.
    pub duplicates: u64,
    /// Longer packets vanish; 0: none do.
    pub mtu: usize,
}

/// How bindings outlive a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// Not at all.
    Memory,
    /// A REGISTER is answered when it is committed.
    WriteThrough,
    /// The store follows by at most a second.
    WriteBack,
}

/// How users prove who they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    /// What challenges offer, the best first.
    pub algorithms: Vec<Algorithm>,
    /// Whether the store has hashes, not passwords.
    pub holds_hashes: bool,
    /// How often somebody sends credentials that were overheard.
    pub replays: usize,
}

/// Users whose contacts lead back to the servers, to each other: requests for them loop and fork (RFC 5393 §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loops {
    /// Such users; each has all of them as its contacts.
    pub users: usize,
    /// Whether each has a phone, too, that requests arrive at.
    pub has_phones: bool,
    /// Percent of contacts that lead through the first server, if that is not the home.
    pub by_edge: u64,
    /// Requests for them.
    pub requests: usize,
}

/// How bad the store is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreFaults {
    /// Longest commit (µs).
    pub slowest: u64,
    /// Percent of commits that fail, half of them by refusing.
    pub failures: u64,
    /// Percent of failures that were committed all the same.
    pub lies: u64,
}

/// Sizes of a server: tiny ones are met all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Transactions at once.
    pub transactions: usize,
    /// Branches of a request.
    pub branches: u16,
    /// Scripts that wait at once.
    pub suspended: usize,
    /// Names asked for at once.
    pub resolves: usize,
    /// Max-Breadth.
    pub breadth: u32,
    /// Timers in one step.
    pub timers_per_step: u32,
    /// Bindings.
    pub bindings: usize,
    /// Bytes of a message.
    pub message_bytes: usize,
}

/// Sizes that are never met.
pub const ROOMY: Sizes = Sizes {
    transactions: 100_000,
    branches: 16,
    suspended: 10_000,
    resolves: 10_000,
    breadth: 60,
    timers_per_step: 1_024,
    bindings: 100_000,
    message_bytes: 65_535,
};

/// Everything that a seed decides before its world begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// Phones.
    pub phones: usize,
    /// Users; phones share them.
    pub users: usize,
    /// Calls and other requests begun by all phones together.
    pub requests: usize,
    /// How long phones begin something new (µs).
    pub active: u64,
    /// Servers in a row; the last one is the phones' home.
    pub servers: usize,
    /// Shards of each server.
    pub shards: u8,
    /// The packet network.
    pub link: Link,
    /// How often a phone or a server is cut off for a while.
    pub partitions: usize,
    /// How often a server is killed and started again.
    pub kills: usize,
    /// How often the home dies in the midst of a commit, or behind one that failed.
    pub kills_about_commits: usize,
    /// How often one shard begins again: of several, or the only one.
    pub shard_restarts: usize,
    /// How often one shard of several does.
    pub lone_restarts: usize,
    /// How often the wall clock jumps far.
    pub clock_jumps: usize,
    /// How often it is set right, by seconds or minutes in either direction; most often while the server is down.
    pub clock_steps: usize,
    /// How often a server is told to stop, ends what it has begun, and starts again.
    pub drains: usize,
    /// Whether an administrator changes tables and the home's configuration meanwhile.
    pub changes: bool,
    /// How users prove who they are; `None`: they need not.
    pub digest: Option<Digest>,
    /// Users who lead in circles.
    pub loops: Option<Loops>,
    /// Whether the script of an edge leaves Max-Forwards to the proxy core.
    pub lax_edges: bool,
    /// How bindings are kept.
    pub keeping: Keeping,
    /// Whether answers that wait for a commit wait outside of the script, as in the server binary.
    pub holds_answers: bool,
    /// The store.
    pub store: StoreFaults,
    /// Percent of names that cannot be resolved, are answered late or wrongly.
    pub dns: u64,
    /// Percent of phones that speak by TCP.
    pub tcp: u64,
    /// Percent of pieces of a stream after which its connection breaks.
    pub resets: u64,
    /// Percent of messages by stream after which a phone says that it was its last one there.
    pub last_words: u64,
    /// Messages that no well-behaved element sends.
    pub noise: usize,
    /// Sizes of the servers.
    pub sizes: Sizes,
}

impl Plan {
    /// What `seed` makes of its world.
    pub fn of(seed: u64) -> Plan {
        let mut prng = Prng::part(seed, "plan");
        let phones = prng.between(2, 9) as usize;
        let mut plan = Plan {
            seed,
            phones,
            users: prng.between(1, phones as u64) as usize,
            requests: prng.between(2, 16) as usize,
            active: prng.between(20, 240) * SECOND,
            servers: if prng.chance(35) { prng.between(2, 3) as usize } else { 1 },
            shards: if prng.chance(30) { prng.between(2, 4) as u8 } else { 1 },
            link: Link { delay: prng.between(1, 80) * MILLI, ..Link::default() },
            partitions: 0,
            kills: 0,
            kills_about_commits: 0,
            shard_restarts: 0,
            lone_restarts: 0,
            clock_jumps: 0,
            clock_steps: 0,
            drains: 0,
            changes: false,
            digest: None,
            loops: None,
            lax_edges: false,
            keeping: *prng.pick(&[Keeping::Memory, Keeping::WriteThrough, Keeping::WriteBack]),
            holds_answers: false,
            store: StoreFaults { slowest: 20 * MILLI, ..StoreFaults::default() },
            dns: 0,
            tcp: 0,
            resets: 0,
            last_words: 0,
            noise: 0,
            sizes: ROOMY,
        };
        plan.add_network_faults(&mut prng);
        plan.add_server_faults(&mut prng);
        plan.add_last_words(&mut Prng::part(seed, "last words"));
        plan.holds_answers = Prng::part(seed, "holds answers").chance(50);
        plan.add_digest(&mut Prng::part(seed, "digest"));
        plan.changes = Prng::part(seed, "administrator").chance(20);
        if plan.shards > 1 {
            plan.add_lone_restarts(&mut Prng::part(seed, "lone restarts"));
        }
        plan.add_kills_about_commits(&mut Prng::part(seed, "kills amid commits"));
        plan.add_clock_steps(&mut Prng::part(seed, "clock steps"));
        plan.add_loops(&mut Prng::part(seed, "loops"));
        plan
    }

    fn add_digest(&mut self, prng: &mut Prng) {
        if prng.chance(25) {
            let algorithms: [&[Algorithm]; 3] =
                [&[Algorithm::Md5], &[Algorithm::Sha256], &[Algorithm::Sha256, Algorithm::Md5]];
            self.digest = Some(Digest {
                algorithms: prng.pick(&algorithms).to_vec(),
                holds_hashes: prng.chance(50),
                replays: if prng.chance(60) { prng.between(1, 12) as usize } else { 0 },
            });
        }
    }

    fn add_lone_restarts(&mut self, prng: &mut Prng) {
        if prng.chance(50) {
            self.lone_restarts = prng.between(1, 3) as usize;
        }
    }

    fn add_kills_about_commits(&mut self, prng: &mut Prng) {
        if self.keeping != Keeping::Memory && prng.chance(15) {
            self.kills_about_commits = prng.between(1, 3) as usize;
        }
    }

    fn add_clock_steps(&mut self, prng: &mut Prng) {
        if prng.chance(15) {
            self.clock_steps = prng.between(1, 3) as usize;
        }
    }

    fn add_loops(&mut self, prng: &mut Prng) {
        if prng.chance(12) {
            self.loops = Some(Loops {
                users: prng.between(2, 3) as usize,
                has_phones: prng.chance(60),
                by_edge: *prng.pick(&[0, 40, 100]),
                requests: prng.between(1, 3) as usize,
            });
        }
        self.lax_edges = prng.chance(25);
    }

    fn add_last_words(&mut self, prng: &mut Prng) {
        if self.tcp > 0 && prng.chance(60) {
            self.last_words = *prng.pick(&[5, 20, 60]);
        }
    }

    fn add_network_faults(&mut self, prng: &mut Prng) {
        if prng.chance(50) {
            self.link.loss = *prng.pick(&[1, 3, 10, 20, 35]);
        }
        if prng.chance(40) {
            self.link.duplicates = *prng.pick(&[2, 10, 30]);
        }
        if prng.chance(40) {
            self.link.jitter = *prng.pick(&[5, 50, 400, 1_500]) * MILLI;
        }
        if prng.chance(10) {
            self.link.mtu = *prng.pick(&[1_000, 1_300]);
        }
        if prng.chance(20) {
            self.partitions = prng.between(1, 3) as usize;
        }
        if prng.chance(30) {
            self.tcp = *prng.pick(&[30, 60, 100]);
            if prng.chance(40) {
                self.resets = *prng.pick(&[1, 5]);
            }
        }
        if prng.chance(30) {
            self.noise = prng.between(5, 60) as usize;
        }
    }

    fn add_server_faults(&mut self, prng: &mut Prng) {
        if prng.chance(20) {
            self.kills = prng.between(1, 3) as usize;
        }
        if prng.chance(15) {
            self.shard_restarts = prng.between(1, 3) as usize;
        }
        if prng.chance(20) {
            self.clock_jumps = prng.between(1, 4) as usize;
        }
        if prng.chance(20) {
            self.drains = prng.between(1, 2) as usize;
        }
        if prng.chance(30) {
            self.dns = *prng.pick(&[10, 50]);
        }
        if prng.chance(40) {
            self.store = StoreFaults {
                slowest: *prng.pick(&[50, 500, 3_000]) * MILLI,
                failures: *prng.pick(&[0, 10, 40]),
                lies: *prng.pick(&[0, 50]),
            };
        }
        if prng.chance(25) {
            self.sizes = Sizes {
                transactions: prng.between(1, 12) as usize,
                branches: prng.between(1, 4) as u16,
                suspended: prng.between(0, 3) as usize,
                resolves: prng.between(0, 2) as usize,
                breadth: prng.between(1, 4) as u32,
                timers_per_step: prng.between(1, 3) as u32,
                bindings: prng.between(1, 6) as usize,
                message_bytes: *prng.pick(&[1_200, 4_096, 65_535]),
            };
        }
    }

    /// Whether nothing is lost, cut off, killed or refused: every promise must be kept to the end then.
    pub fn is_fair(&self) -> bool {
        let network = self.link.loss == 0 && self.link.mtu == 0 && self.partitions == 0;
        let streams = self.resets == 0 && self.last_words == 0;
        let restarts = self.shard_restarts + self.lone_restarts;
        let kills = self.kills + self.kills_about_commits + self.clock_steps;
        let servers = restarts == 0 && kills == 0 && !self.refuses();
        network && streams && servers && self.dns == 0 && self.store.failures == 0
    }

    /// Whether a server may refuse requests for want of room, or because it stops: without state, by a 503.
    pub fn refuses(&self) -> bool {
        self.sizes != ROOMY || self.drains > 0 || self.changes
    }

    /// The faults that are on, for people.
    pub fn describe(&self) -> String {
        format!(
            "{} phones of {} users, {} server(s) of {} shard(s), {:?}, {:?}, partitions {}, kills {}, about commits {}, shard restarts {}, of one of several {}, \
             clock jumps {}, clock steps {}, drains {}, changes {}, digest {:?}, loops {:?}, lax edges {}, holds answers {}, store {:?}, dns {} %, tcp {} %, resets {} %, last words {} %, noise {}, {}",
            self.phones,
            self.users,
            self.servers,
            self.shards,
            self.keeping,
            self.link,
            self.partitions,
            self.kills,
            self.kills_about_commits,
            self.shard_restarts,
            self.lone_restarts,
            self.clock_jumps,
            self.clock_steps,
            self.drains,
            self.changes,
            self.digest,
            self.loops,
            self.lax_edges,
            self.holds_answers,
            self.store,
            self.dns,
            self.tcp,
            self.resets,
            self.last_words,
            self.noise,
            if self.sizes == ROOMY { "roomy".to_owned() } else { format!("{:?}", self.sizes) },
        )
    }
}
