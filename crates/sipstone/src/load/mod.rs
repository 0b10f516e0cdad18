//! The load engine: callers and callees of one worker, without a socket or a clock.
//!
//! Pure, so that its tests run on virtual time: what comes in is an [`Input`] with the time, what goes out stands in the
//! [`Outbox`]. One worker owns its operations, its callees, its random numbers and its counts.

pub mod arrivals;
mod callee;
mod caller;
pub(crate) mod digest;
mod ledger;
mod message;
mod timers;
pub(crate) mod users;
mod worker;

#[cfg(test)]
mod tests;

pub use worker::Worker;

use crate::tally::{Example, Failure, Tally};
use sip::Instant;
use std::net::SocketAddr;
use std::ops::Range;

/// A local address of the worker: the callers' come first, one per source address, then the callees'.
///
/// With UDP each is a socket. A caller's with connections is where they are opened from, a callee's where the server
/// connects to (over WebSocket: where the connection is opened from on which the callees are called).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SocketId(pub u16);

/// A connection, as worker and hands call it. The worker names those that it opens, the hands those that they accept; no
/// name is used for two at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct ConnectionId(u64);

impl ConnectionId {
    /// No connection: a datagram.
    pub const NONE: ConnectionId = ConnectionId(0);
    /// Slots of operations have 32 bits, of their generations the lower 24 are in the name, of their steps six.
    const GENERATION_BITS: u32 = 24;
    const STEP_BITS: u32 = 6;
    const KIND_SHIFT: u32 = 62;
    const SHARED: u64 = 1;
    const OWN: u64 = 2;
    const ACCEPTED: u64 = 3;

    /// One that many operations use.
    #[must_use]
    pub fn shared(number: u32) -> ConnectionId {
        ConnectionId(Self::SHARED << Self::KIND_SHIFT | u64::from(number))
    }

    /// That of one operation, or of one of its transactions.
    #[must_use]
    pub fn own(slot: u32, generation: u32, step: u8) -> ConnectionId {
        let generation = u64::from(generation) & ((1 << Self::GENERATION_BITS) - 1);
        let step = u64::from(step) & ((1 << Self::STEP_BITS) - 1);
        let lower = step << (32 + Self::GENERATION_BITS) | generation << 32 | u64::from(slot);
        ConnectionId(Self::OWN << Self::KIND_SHIFT | lower)
    }

    /// One that was accepted.
    #[must_use]
    pub fn accepted(slot: u32, generation: u32) -> ConnectionId {
        let generation = u64::from(generation) & ((1 << (Self::GENERATION_BITS + Self::STEP_BITS)) - 1);
        ConnectionId(Self::ACCEPTED << Self::KIND_SHIFT | generation << 32 | u64::from(slot))
    }

    /// Of an operation's own: its slot.
    #[must_use]
    pub fn owner(self) -> Option<u32> {
        (self.0 >> Self::KIND_SHIFT == Self::OWN).then(|| u32::try_from(self.0 & 0xffff_ffff).unwrap_or(0))
    }

    /// Of an accepted one: the slot that its name was made with.
    #[must_use]
    pub fn accepted_slot(self) -> Option<u32> {
        (self.0 >> Self::KIND_SHIFT == Self::ACCEPTED)
            .then(|| u32::try_from(self.0 & 0xffff_ffff).unwrap_or(0))
    }
}

/// What happens to a worker.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// A datagram came.
    Datagram {
        /// On which socket.
        socket: SocketId,
        /// From where.
        from: SocketAddr,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// A message came on a connection.
    Message {
        /// Where the connection leads from or was accepted.
        socket: SocketId,
        /// The connection.
        connection: ConnectionId,
        /// Its other end.
        from: SocketAddr,
        /// The message's bytes.
        bytes: &'a [u8],
    },
    /// A connection was lost, or could not be made; what was sent on it and is not answered never will be.
    Lost {
        /// The connection.
        connection: ConnectionId,
        /// What its operations have failed of.
        failure: Failure,
    },
    /// ICMP said that nothing listens where this socket had sent to.
    Refused {
        /// The socket that was told.
        socket: SocketId,
    },
    /// `now` reached [`Worker::next_timeout`].
    Timeout,
}

/// A message to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Send {
    /// From which socket.
    pub socket: SocketId,
    /// On which connection; one that is not there is opened from `socket` to `to`, unless it was accepted.
    pub connection: ConnectionId,
    /// To where.
    pub to: SocketAddr,
    /// Where its bytes are in [`Outbox::bytes`].
    pub range: Range<usize>,
    /// The first request of an operation: when it was planned, for the send lag.
    pub planned: Option<Instant>,
}

/// What a worker wants sent. Cleared by whoever sends it.
#[derive(Debug, Default)]
pub struct Outbox {
    /// All datagrams, one after the other.
    pub bytes: Vec<u8>,
    /// Where each begins and goes, in the order to send them.
    pub sends: Vec<Send>,
    /// Connections to be closed once everything is sent; some may be closed already.
    pub closes: Vec<ConnectionId>,
}

impl Outbox {
    /// Forgets what was sent and keeps the room.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.sends.clear();
        self.closes.clear();
    }

    /// The bytes of one datagram.
    #[must_use]
    pub fn datagram(&self, send: &Send) -> &[u8] {
        &self.bytes[send.range.clone()]
    }
}

/// How far the registrations of the preamble are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Preamble {
    /// Users to register.
    pub users: u32,
    /// Answered with 200.
    pub registered: u32,
    /// Answered with something else, or not at all.
    pub failed: u32,
    /// The first that failed, with its messages.
    pub example: Option<Example>,
}

impl Preamble {
    /// Whether every user has been answered or given up.
    #[must_use]
    pub fn done(&self) -> bool {
        self.registered + self.failed >= self.users
    }
}

/// What a worker counted since it was last asked.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Everything that happened since the last call, whenever it was planned.
    pub interval: Tally,
    /// Of the operations planned in the measured window: all so far. Cumulative, not a difference.
    pub measured: Tally,
}

/// One example per class is traced, and the first failures; no more than this many altogether.
pub const EXAMPLES_MAX: usize = 16;
