//! A network between a peer and the server that loses datagrams.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::address::SIP_PORT;
use crate::{Message, loopback};

/// One message is lost at most so many times: then every call must complete, whatever the dice say, since the timers of
/// RFC 3261 §17 send each one at least six times.
const LOST_COPIES_MAX: u32 = 2;

/// A relay between one peer and the server that loses a share of what passes, in both directions.
///
/// The peer sends to the relay's address; the server sees the relay as the source and answers there (RFC 3261
/// §18.2.2, `received`). Whether a copy of a message is lost depends on the seed, its identity and which copy it is,
/// not on the order in which messages arrive.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    lost: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    relay: Option<JoinHandle<()>>,
}

impl Link {
    /// Starts a relay that loses `percent` of the datagrams.
    ///
    /// # Panics
    ///
    /// When its address is taken.
    pub fn new(server: SocketAddr, peer: SocketAddr, percent: u64, seed: u64) -> Self {
        let address = SocketAddr::from((loopback(), SIP_PORT));
        let socket = UdpSocket::bind(address).expect("the relay's address is its own");
        socket.set_read_timeout(Some(Duration::from_millis(50))).expect("invariant: the timeout is not zero");
        let (lost, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (lost_count, stopped) = (Arc::clone(&lost), Arc::clone(&stop));
        let relay = thread::spawn(move || {
            let mut dice = Dice { percent, seed, copies: HashMap::new() };
            let mut buffer = vec![0; usize::from(u16::MAX)];
            while !stopped.load(Ordering::Relaxed) {
                let Ok((length, source)) = socket.recv_from(&mut buffer) else { continue };
                let (datagram, target) = (&buffer[..length], if source == server { peer } else { server });
                if dice.lose(datagram) {
                    lost_count.fetch_add(1, Ordering::Relaxed);
                } else {
                    // A peer that has gone is the test's business, not the network's.
                    let _ = socket.send_to(datagram, target);
                }
            }
        });
        Self { address, lost, stop, relay: Some(relay) }
    }

    /// Where the peer sends to, and the server too.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many datagrams were lost so far.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(relay) = self.relay.take() {
            // A relay that panicked has said so already.
            let _ = relay.join();
        }
    }
}

struct Dice {
    percent: u64,
    seed: u64,
    /// By message: copies seen, and copies lost.
    copies: HashMap<u64, (u32, u32)>,
}

impl Dice {
    fn lose(&mut self, datagram: &[u8]) -> bool {
        let identity = identity(datagram);
        let (seen, lost) = self.copies.entry(identity).or_default();
        *seen += 1;
        let mut hasher = DefaultHasher::new();
        (self.seed, identity, *seen).hash(&mut hasher);
        let lose = hasher.finish() % 100 < self.percent && *lost < LOST_COPIES_MAX;
        *lost += u32::from(lose);
        lose
    }
}

/// What the copies of one message have in common, whoever forwarded them.
fn identity(datagram: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    match Message::parse(datagram) {
        Some(message) => (&message.start, message.find("Call-ID"), message.find("CSeq")).hash(&mut hasher),
        None => datagram.hash(&mut hasher),
    }
    hasher.finish()
}
