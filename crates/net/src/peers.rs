//! What all shards know of all connections: which one leads to an address, and how many there are.
//!
//! Written when a connection begins and ends, read when a message goes to an address without a connection being named. The
//! maps are in stripes, one lock at a time and never for longer than one look-up.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::FlowId;
use sip::Transport;

const STRIPES: usize = 16;

/// Where a connection leads: what must be equal for a request to use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    transport: Transport,
    remote: SocketAddr,
    /// The keyed hash of the domain that the peer has proved (RFC 5922); 0 for none.
    domain: u64,
}

#[derive(Debug, Default)]
struct Stripe {
    flows: HashMap<Key, FlowId>,
    sources: HashMap<IpAddr, usize>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Peers {
    stripes: [Mutex<Stripe>; STRIPES],
    hasher: RandomState,
    open: AtomicUsize,
    open_tls: AtomicUsize,
}

impl Peers {
    pub(crate) fn new() -> Peers {
        Peers {
            stripes: std::array::from_fn(|_| Mutex::default()),
            hasher: RandomState::new(),
            open: AtomicUsize::new(0),
            open_tls: AtomicUsize::new(0),
        }
    }

    /// The key of an address; `domain` is empty where none is to be proved, and counts for TLS alone.
    pub(crate) fn key(&self, transport: Transport, remote: SocketAddr, domain: &[u8]) -> Key {
        let proves = transport == Transport::Tls && !domain.is_empty();
        let lower = || domain.to_ascii_lowercase();
        Key { transport, remote, domain: if proves { self.hasher.hash_one(lower()) | 1 } else { 0 } }
    }

    /// The connection that leads there.
    pub(crate) fn find(&self, key: &Key) -> Option<FlowId> {
        self.stripe(key).flows.get(key).copied()
    }

    /// From now on `flow` leads there; of two connections for one address the later one counts.
    pub(crate) fn insert(&self, key: Key, flow: FlowId) {
        self.stripe(&key).flows.insert(key, flow);
    }

    /// `flow` leads there no more.
    pub(crate) fn remove(&self, key: &Key, flow: FlowId) {
        let mut stripe = self.stripe(key);
        if stripe.flows.get(key) == Some(&flow) {
            stripe.flows.remove(key);
        }
    }

    /// Counts a connection from a source; `false` (and not counted) where it has `max` already.
    pub(crate) fn admit(&self, source: IpAddr, max: usize) -> bool {
        let source = network(source);
        let mut stripe = self.stripe(&source);
        let count = stripe.sources.entry(source).or_insert(0);
        let admitted = *count < max;
        *count += usize::from(admitted);
        if *count == 0 {
            stripe.sources.remove(&source);
        }
        admitted
    }

    /// A connection that was counted has ended.
    pub(crate) fn dismiss(&self, source: IpAddr) {
        let source = network(source);
        let mut stripe = self.stripe(&source);
        if let Some(count) = stripe.sources.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                stripe.sources.remove(&source);
            }
        }
    }

    /// A connection begins.
    pub(crate) fn opened(&self, tls: bool) {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.open_tls.fetch_add(usize::from(tls), Ordering::Relaxed);
    }

    /// A connection has ended.
    pub(crate) fn closed(&self, tls: bool) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.open_tls.fetch_sub(usize::from(tls), Ordering::Relaxed);
    }

    /// Connections of all shards.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Those over TLS.
    pub(crate) fn open_tls(&self) -> usize {
        self.open_tls.load(Ordering::Relaxed)
    }

    fn stripe<T: std::hash::Hash>(&self, key: &T) -> MutexGuard<'_, Stripe> {
        let place = self.hasher.hash_one(key) as usize % STRIPES;
        self.stripes[place].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What counts as one source: an IPv4 address, an IPv6 /64 (whoever has one address of it has all).
fn network(source: IpAddr) -> IpAddr {
    match source {
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => IpAddr::V4(v4),
            None => IpAddr::from((u128::from(v6) >> 64 << 64).to_be_bytes()),
        },
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_later_connection_to_an_address_counts_and_the_earlier_does_not_take_it_away() {
        let peers = Peers::new();
        let key = peers.key(Transport::Tcp, at("192.0.2.1:5060"), b"");
        peers.insert(key, FlowId(1));
        peers.insert(key, FlowId(2));
        peers.remove(&key, FlowId(1));
        assert_eq!(peers.find(&key), Some(FlowId(2)));
        peers.remove(&key, FlowId(2));
        assert_eq!(peers.find(&key), None);
    }

    #[test]
    fn transports_and_domains_are_told_apart_but_for_tcp_and_case() {
        let peers = Peers::new();
        let key = |transport, domain: &[u8]| peers.key(transport, at("192.0.2.1:5061"), domain);
        assert_ne!(key(Transport::Tcp, b""), key(Transport::Tls, b""));
        assert_ne!(key(Transport::Ws, b""), key(Transport::Wss, b""));
        assert_ne!(key(Transport::Tls, b"a.example"), key(Transport::Tls, b""));
        assert_ne!(key(Transport::Tls, b"a.example"), key(Transport::Tls, b"b.example"));
        assert_eq!(key(Transport::Tls, b"a.example"), key(Transport::Tls, b"A.example"));
        assert_eq!(key(Transport::Tcp, b"a.example"), key(Transport::Tcp, b""));
    }

    #[test]
    fn a_source_is_admitted_up_to_its_limit() {
        let peers = Peers::new();
        let (one, same): (IpAddr, IpAddr) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
        assert!(peers.admit(one, 2) && peers.admit(same, 2) && !peers.admit(one, 2));
        assert!(peers.admit("2001:db8:0:1::1".parse().unwrap(), 2));
        peers.dismiss(same);
        assert!(peers.admit(one, 2));
        assert!(!peers.admit("192.0.2.1".parse().unwrap(), 0));
    }
}
