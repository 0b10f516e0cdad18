//! A seeded bad network between a caller, the engine and a callee.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use sip::Instant;

use super::callee::Callee;
use super::caller::Caller;
use super::prng::Prng;
use super::text::Seen;
use super::{ALICE, BOB, Network, PROXY, Script, config};
use engine::{Config, FlowId, Input, ListenerId, Path};

/// How bad the network is, each way of each hop.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// Microseconds that every datagram takes.
    pub latency: u64,
    /// Up to so many microseconds more, which reorders.
    pub jitter: u64,
    /// Percent of datagrams that vanish.
    pub loss: u64,
    /// Percent of datagrams that arrive twice.
    pub duplication: u64,
}

/// Nothing is lost and everything takes ten milliseconds.
pub const PERFECT: Link = Link { latency: 10_000, jitter: 0, loss: 0, duplication: 0 };

struct Flight {
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

/// Alice, the engine and Bob, and what is in flight between them.
pub struct World {
    pub network: Network,
    pub caller: Caller,
    pub callee: Callee,
    pub link: Link,
    prng: Prng,
    flights: BTreeMap<(u64, u64), Flight>,
    sequence: u64,
    /// The most transactions that the engine ever held.
    pub most: usize,
}

impl World {
    pub fn new(seed: u64, link: Link, script: Script) -> World {
        World::with(config(), seed, link, script)
    }

    pub fn with(config: Config, seed: u64, link: Link, script: Script) -> World {
        let mut network = Network::with(config, script.silent());
        network.keep_log = false;
        network.fresh = Some(Vec::new());
        World {
            network,
            caller: Caller::new(),
            callee: Callee::new(),
            link,
            prng: Prng::new(seed),
            flights: BTreeMap::new(),
            sequence: 0,
            most: 0,
        }
    }

    fn fly(&mut self, now: u64, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) {
        if self.prng.chance(self.link.loss) {
            return;
        }
        let copies = 1 + u64::from(self.prng.chance(self.link.duplication));
        for _ in 0..copies {
            let late = if self.link.jitter == 0 { 0 } else { self.prng.below(self.link.jitter) };
            self.sequence += 1;
            let flight = Flight { from, to, bytes: bytes.clone() };
            self.flights.insert((now + self.link.latency + late, self.sequence), flight);
        }
    }

    /// Runs until `end` microseconds, event by event.
    pub fn run_until(&mut self, end: u64) {
        let mut out = Vec::new();
        loop {
            let engine = self.network.engine.next_timeout().map(Instant::as_micros);
            let flight = self.flights.first_key_value().map(|(&(at, _), _)| at);
            let nexts = [engine, flight, self.caller.next(), self.callee.next()];
            let Some(now) = nexts.into_iter().flatten().min().filter(|&at| at <= end) else { break };
            let now = now.max(self.network.now.as_micros());
            self.network.now = Instant::from_micros(now);
            while let Some(entry) = self.flights.first_entry().filter(|entry| entry.key().0 <= now) {
                let flight = entry.remove();
                self.deliver(now, flight);
            }
            self.caller.tick(now, &mut out);
            self.drain(now, ALICE, &mut out);
            self.callee.tick(now, &mut out);
            self.drain(now, BOB, &mut out);
            if self.network.engine.next_timeout().is_some_and(|at| at.as_micros() <= now) {
                self.network.handle(Input::Timeout);
                self.drain_engine(now);
            }
        }
        self.network.now = Instant::from_micros(end);
    }

    fn deliver(&mut self, now: u64, flight: Flight) {
        let Flight { from, to, bytes } = flight;
        let mut out = Vec::new();
        if to == PROXY {
            let path = Path::new(ListenerId(0), Some(PROXY.ip()), from);
            self.network.handle(Input::Message { path, bytes: &bytes });
            self.most = self.most.max(self.network.engine.transactions());
            self.drain_engine(now);
        } else if to == ALICE {
            self.caller.receive(now, &Seen { at: now, from, to, bytes }, &mut out);
            self.drain(now, ALICE, &mut out);
        } else if to == BOB {
            self.callee.receive(now, &Seen { at: now, from, to, bytes }, &mut out);
            self.drain(now, BOB, &mut out);
        }
    }

    fn drain(&mut self, now: u64, from: SocketAddr, out: &mut Vec<Vec<u8>>) {
        for bytes in out.drain(..) {
            self.fly(now, from, PROXY, bytes);
        }
    }

    fn drain_engine(&mut self, now: u64) {
        let fresh = self.network.fresh.replace(Vec::new()).unwrap_or_default();
        for (to, bytes) in fresh {
            self.fly(now, PROXY, to, bytes);
        }
    }
}
