//! What happened in a run, in order: the base of every judgement, and of the proof that a seed reproduces its
//! run.

use crate::text::Msg;
use engine::TransportFailure;
use std::net::SocketAddr;
use std::rc::Rc;

/// Microseconds since the world began.
pub type Micros = u64;

/// Which server of a world, by its place.
pub type ServerId = usize;

/// Which shard of a server, by its number.
pub type Shard = usize;

/// What happened.
#[derive(Clone, Debug)]
pub enum What {
    /// `node` sent `message` to `peer`.
    Sent,
    /// `node` received `message` from `peer`.
    Received,
    /// The network lost what `node` sent to `peer`.
    Lost,
    /// A server died and began again with what its store had; `table` says whether its bindings went as well.
    Restarted(ServerId),
    /// One shard of a server began again; bindings are not its own and stay.
    ShardRestarted(ServerId, Shard),
    /// The store of a server that follows by write-back has everything that was bound before this time, and what of it
    /// ended.
    Committed(ServerId, Micros),
    /// A commit of a server failed: it is tried again.
    CommitFailed(ServerId),
    /// `node` learnt that what it sends to `peer` does not arrive, or may not have arrived (RFC 3261 §18.4).
    TransportFailed(TransportFailure),
    /// `node` learnt that `peer` sends nothing more on their connection.
    Ended,
    /// A shard of `node` asked for the addresses of a name; they come at this time, if it still waits.
    Asked(Shard, Micros),
    /// For people.
    Note(String),
}

/// One event.
#[derive(Clone, Debug)]
pub struct Entry {
    /// When.
    pub at: Micros,
    /// What.
    pub what: What,
    /// Where it happened.
    pub node: SocketAddr,
    /// The other side.
    pub peer: SocketAddr,
    /// Whether the transport is reliable.
    pub reliable: bool,
    /// Which shard of a server got it, if it was received by one.
    pub shard: Option<Shard>,
    /// The message's bytes; empty where there is none.
    pub bytes: Rc<[u8]>,
    /// The message, if it is one that a well-behaved element could have written.
    pub msg: Option<Rc<Msg>>,
}

/// A run's events.
#[derive(Debug)]
pub struct Trace {
    /// In order.
    pub entries: Vec<Entry>,
    hash: u64,
}

impl Default for Trace {
    fn default() -> Trace {
        Trace { entries: Vec::new(), hash: 0xcbf2_9ce4_8422_2325 }
    }
}

impl Trace {
    /// Appends an event.
    pub fn push(&mut self, entry: Entry) {
        self.mix(&entry.at.to_le_bytes());
        let kind: u8 = match &entry.what {
            What::Sent => 1,
            What::Received => 2,
            What::Lost => 3,
            What::Restarted(_) => 4,
            What::ShardRestarted(..) => 5,
            What::TransportFailed(TransportFailure::Unreachable) => 6,
            What::Note(_) => 7,
            What::TransportFailed(TransportFailure::Broken) => 8,
            What::Ended => 9,
            What::Committed(..) => 10,
            What::CommitFailed(_) => 11,
            What::Asked(..) => 12,
        };
        self.mix(&[kind, u8::from(entry.reliable)]);
        match entry.what {
            What::ShardRestarted(_, shard) => self.mix(&shard.to_le_bytes()),
            What::Committed(_, time) | What::Asked(_, time) => self.mix(&time.to_le_bytes()),
            _ => {}
        }
        self.mix(&entry.node.port().to_le_bytes());
        self.mix(entry.node.ip().to_string().as_bytes());
        self.mix(entry.peer.ip().to_string().as_bytes());
        self.mix(&entry.peer.port().to_le_bytes());
        self.mix(&entry.bytes);
        self.entries.push(entry);
    }

    fn mix(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// FNV-1a over all events: two runs with the same hash were the same.
    pub fn hash(&self) -> u64 {
        self.hash
    }
}

/// `12.345678` seconds.
pub fn seconds(at: Micros) -> String {
    format!("{}.{:06}", at / 1_000_000, at % 1_000_000)
}
