//! Parties on virtual time: raw SIP text in, the engine's datagrams out, every one with its moment.
//!
//! Nothing here sleeps or reads a clock. [`Network`] is for scripted tests, one datagram at a time on a perfect
//! network; [`world::World`] connects machines of their own over a network with latency, loss, duplication and
//! reordering.

#![allow(dead_code, unreachable_pub, unused_imports, reason = "each test file uses its own part of the rig")]

pub mod callee;
pub mod caller;
pub mod prng;
pub mod script;
pub mod text;
pub mod world;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use engine::{
    Alias, Answer, Ask, AskId, Config, Endpoint, FlowId, Input, Listener, ListenerId, Outbox, Output, Path,
    TransportFailure,
};
use sip::Instant;

pub use script::{Script, State};
pub use text::{Request, Seen, param};

/// The proxy's listener 0.
pub const PROXY: SocketAddr = address(0, 1);
/// The caller.
pub const ALICE: SocketAddr = address(1, 1);
/// Callees.
pub const BOB: SocketAddr = address(2, 1);
/// Another callee.
pub const CAROL: SocketAddr = address(2, 2);
/// A third callee.
pub const DAVE: SocketAddr = address(2, 3);
/// Somebody who belongs to no call.
pub const MALLORY: SocketAddr = address(9, 9);
/// The domain that the proxy is responsible for.
pub const DOMAIN: &str = "example.org";

/// URIs of the callees.
pub const BOB_URI: &str = "sip:bob@10.0.2.1:5060";
/// Carol's.
pub const CAROL_URI: &str = "sip:carol@10.0.2.2:5060";
/// Dave's.
pub const DAVE_URI: &str = "sip:dave@10.0.2.3:5060";

/// RFC 3261 Table 4.
pub const T1: Duration = Duration::from_millis(500);
/// 64*T1 in milliseconds.
pub const SIXTY_FOUR_T1: u64 = 32_000;

const fn address(net: u8, host: u8) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, net, host)), 5060)
}

/// One UDP listener, our domain, and every default.
pub fn config() -> Config {
    Config {
        listeners: vec![Listener { transport: sip::Transport::Udp, address: PROXY, advertise: None }],
        aliases: vec![Alias { host: DOMAIN.into(), port: None, transport: None }],
        seed: [1, 2, 3, 4],
        ..Config::default()
    }
}

/// An engine, its clock and the log of all that it received and sent.
pub struct Network {
    pub now: Instant,
    pub engine: Endpoint<Script>,
    pub log: Vec<Seen>,
    /// Questions that wait for [`Network::answer`].
    pub asks: Vec<(AskId, Ask, Instant)>,
    /// The ways of all that was sent, in order.
    pub paths: Vec<Path>,
    /// Connections that became aliases, with their ports.
    pub aliases: Vec<(Path, u16)>,
    /// Long runs keep no log; `handle` still returns what was sent.
    pub keep_log: bool,
    /// Where a [`world::World`] takes what was sent.
    pub fresh: Option<Vec<(SocketAddr, Vec<u8>)>>,
    listeners: Vec<SocketAddr>,
    out: Outbox,
    taken: BTreeMap<SocketAddr, usize>,
}

impl Network {
    pub fn new(script: Script) -> Network {
        Network::with(config(), script)
    }

    pub fn with(config: Config, script: Script) -> Network {
        let listeners = config.listeners.iter().map(|listener| listener.address).collect();
        Network {
            now: Instant::ZERO,
            engine: Endpoint::new(config, script),
            log: Vec::new(),
            asks: Vec::new(),
            paths: Vec::new(),
            aliases: Vec::new(),
            keep_log: true,
            fresh: None,
            listeners,
            out: Outbox::new(),
            taken: BTreeMap::new(),
        }
    }

    // --- time -----------------------------------------------------------------------------------------------

    /// Lets time pass; every timeout happens at its own instant.
    pub fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        let mut stuck = 0;
        while let Some(at) = self.engine.next_timeout().filter(|&at| at <= end) {
            // A timeout in the past, again and again, would be a loop without end.
            stuck = if at > self.now { 0 } else { stuck + 1 };
            assert!(stuck < 10_000, "next_timeout() does not advance at {:?}", self.now);
            self.now = self.now.max(at);
            self.handle(Input::Timeout);
        }
        self.now = end;
    }

    /// Lets time pass until `ms` after the start.
    pub fn until_ms(&mut self, ms: u64) {
        self.pass(Instant::from_micros(ms * 1000).since(self.now));
    }

    /// Nothing is held and nothing is armed.
    pub fn assert_at_rest(&mut self) {
        assert_eq!(self.engine.transactions(), 0, "transactions left at {:?}", self.now);
        // A wheel may turn once more to see that it is empty.
        self.pass(Duration::from_secs(1));
        assert_eq!(self.engine.next_timeout(), None, "a timer is armed though nothing is held");
    }

    /// Passes ten minutes and checks that nothing is left.
    pub fn settle(&mut self) {
        self.pass(Duration::from_secs(600));
        self.assert_at_rest();
    }

    // --- in -------------------------------------------------------------------------------------------------

    /// A datagram from `from` reaches the engine now.
    pub fn send(&mut self, from: SocketAddr, bytes: impl AsRef<[u8]>) {
        self.send_to(ListenerId(0), from, bytes);
    }

    /// The same, on another listener.
    pub fn send_to(&mut self, listener: ListenerId, from: SocketAddr, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        self.record(from, PROXY, bytes);
        let local = self.listeners.get(usize::from(listener.0)).map(SocketAddr::ip);
        let path = Path::new(listener, local, from);
        self.handle(Input::Message { path, bytes });
    }

    /// A message reaches the engine on a path of its own.
    pub fn send_on(&mut self, path: Path, bytes: impl AsRef<[u8]>) {
        self.record(path.remote, PROXY, bytes.as_ref());
        self.handle(Input::Message { path, bytes: bytes.as_ref() });
    }

    /// The way of the last message that was sent.
    pub fn last_path(&self) -> Path {
        *self.paths.last().expect("something was sent")
    }

    /// What a request of `text` looks like on its way, from Alice.
    pub fn alice(&mut self, request: &Request) {
        self.send(ALICE, request.bytes());
    }

    /// The host at `to` is unreachable (RFC 3261 §18.4).
    pub fn unreachable(&mut self, to: SocketAddr) {
        let path = Path::new(ListenerId(0), Some(PROXY.ip()), to);
        self.handle(Input::TransportError { path, failure: TransportFailure::Unreachable });
    }

    /// Answers the oldest open question.
    pub fn answer(&mut self, answer: Answer<'_>) {
        let (id, _, _) = self.asks.remove(0);
        self.handle(Input::Answer { id, answer });
    }

    /// One input; returns how many datagrams came out of it.
    pub fn handle(&mut self, input: Input<'_>) -> usize {
        self.out.clear();
        self.engine.handle(self.now, input, &mut self.out);
        let out = std::mem::take(&mut self.out);
        let mut sent = 0;
        for output in &out.outputs {
            match output {
                Output::Send { path, bytes } => {
                    sent += 1;
                    if self.keep_log {
                        self.paths.push(*path);
                    }
                    let bytes = out.bytes.get(bytes.clone()).expect("a range within the outbox");
                    self.record(PROXY, path.remote, bytes);
                }
                Output::Ask { id, ask, deadline } => self.asks.push((*id, ask.clone(), *deadline)),
                Output::Alias { path, port } => self.aliases.push((*path, *port)),
            }
        }
        self.out = out;
        sent
    }

    fn record(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        if let Some(fresh) = self.fresh.as_mut().filter(|_| from == PROXY) {
            fresh.push((to, bytes.to_vec()));
        }
        if self.keep_log {
            self.log.push(Seen { at: self.now.as_micros(), from, to, bytes: bytes.to_vec() });
        }
    }

    // --- out ------------------------------------------------------------------------------------------------

    /// What reached `at` since the last time anybody asked.
    pub fn take(&mut self, at: SocketAddr) -> Vec<Seen> {
        let start = self.taken.insert(at, self.log.len()).unwrap_or(0);
        self.log[start..].iter().filter(|seen| seen.from == PROXY && seen.to == at).cloned().collect()
    }

    /// The one datagram that reached `at` since the last time anybody asked.
    pub fn one(&mut self, at: SocketAddr) -> Seen {
        let mut seen = self.take(at);
        assert_eq!(labels(&seen).len(), 1, "{at} should have received one datagram: {:?}", labels(&seen));
        seen.remove(0)
    }

    /// The one datagram with that label which reached `at` since the last time anybody asked, among others.
    pub fn only(&mut self, at: SocketAddr, label: &str) -> Seen {
        let seen = self.take(at);
        let mut of_label: Vec<Seen> = seen.iter().filter(|seen| seen.label() == label).cloned().collect();
        assert_eq!(of_label.len(), 1, "{at} should have received one {label}: {:?}", labels(&seen));
        of_label.remove(0)
    }

    /// Labels of what reached `at` since the last time anybody asked.
    pub fn labels(&mut self, at: SocketAddr) -> Vec<String> {
        labels(&self.take(at))
    }

    /// Nothing reached `at` since the last time anybody asked.
    #[track_caller]
    pub fn assert_quiet(&mut self, at: SocketAddr) {
        let seen = self.take(at);
        assert!(seen.is_empty(), "{at} should have received nothing: {:?}", labels(&seen));
    }

    /// Bob has received no CANCEL.
    #[track_caller]
    pub fn assert_at_ease_towards_bob(&mut self) {
        assert!(self.sent_at(BOB, "CANCEL").is_empty(), "{}", self.ladder());
    }

    /// When (in ms) the engine sent datagrams of that label to `to`, over the whole test.
    pub fn sent_at(&self, to: SocketAddr, label: &str) -> Vec<u64> {
        self.log
            .iter()
            .filter(|seen| seen.from == PROXY && seen.to == to && seen.label() == label)
            .map(Seen::ms)
            .collect()
    }

    /// Everything that was ever sent to `to`.
    pub fn all(&self, to: SocketAddr) -> Vec<Seen> {
        self.log.iter().filter(|seen| seen.from == PROXY && seen.to == to).cloned().collect()
    }

    /// The distinct final responses to `method` that ever reached `to`, retransmissions taken together.
    pub fn finals(&self, to: SocketAddr, method: &str) -> Vec<Seen> {
        let mut finals: Vec<Seen> = Vec::new();
        for seen in self.all(to) {
            let is_final = seen.status().is_some_and(|status| status >= 200) && seen.cseq_method() == method;
            if is_final && !finals.iter().any(|old| old.bytes == seen.bytes) {
                finals.push(seen);
            }
        }
        finals
    }

    /// The whole log as a ladder, for a human.
    pub fn ladder(&self) -> String {
        let line =
            |seen: &Seen| format!("{:>9} ms {} -> {} {}\n", seen.ms(), seen.from, seen.to, seen.start_line());
        self.log.iter().map(line).collect()
    }
}

/// Methods and statuses of datagrams.
pub fn labels(seen: &[Seen]) -> Vec<String> {
    seen.iter().map(Seen::label).collect()
}

/// A call that `script` relayed to Bob: returns the network, Alice's INVITE and what Bob received.
pub fn invited(script: Script) -> (Network, Request, Seen) {
    let mut network = Network::new(script);
    let invite = Request::invite(1);
    network.alice(&invite);
    let received = network.only(BOB, "INVITE");
    (network, invite, received)
}

/// The usual script of these tests: our domain's requests go to Bob.
pub fn to_bob() -> Script {
    Script::fork(&[(BOB_URI, 1000)])
}

/// The script is done.
pub fn done() -> engine::Handled<script::Suspended> {
    engine::Handled::Done
}
