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

use crate::tally::{Example, Tally};
use sip::Instant;
use std::net::SocketAddr;
use std::ops::Range;

/// A socket of the worker: callers' sockets come first, one per source address, then one callee socket per source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SocketId(pub u16);

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
    /// ICMP said that nothing listens where this socket had sent to.
    Refused {
        /// The socket that was told.
        socket: SocketId,
    },
    /// `now` reached [`Worker::next_timeout`].
    Timeout,
}

/// A datagram to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Send {
    /// From which socket.
    pub socket: SocketId,
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
}

impl Outbox {
    /// Forgets what was sent and keeps the room.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.sends.clear();
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
