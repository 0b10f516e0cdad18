//! The contract between the engine and whoever carries its bytes: inputs, outputs, no I/O.
//!
//! One mutation ([`Endpoint::handle`](crate::Endpoint::handle)), drain all outputs, next mutation.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::ops::Range;

/// Which of the configured listeners, by its place in [`Config::listeners`](crate::Config::listeners).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerId(pub u16);

/// One connection of a stream transport, [`FlowId::NONE`] or [`FlowId::STANDING`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowId(pub u64);

impl FlowId {
    /// No particular connection: on datagrams the listener's socket, on streams whichever leads to the peer.
    pub const NONE: FlowId = FlowId(0);

    /// Whichever connection leads to the peer, if there is one; none is opened. For a peer that connects from a port where
    /// it does not listen.
    pub const STANDING: FlowId = FlowId(u64::MAX);

    /// Whether it names one connection.
    #[must_use]
    pub fn is_one(self) -> bool {
        self != FlowId::NONE && self != FlowId::STANDING
    }
}

/// A name that a TLS peer must prove (RFC 5922), known by [`Endpoint::domain`](crate::Endpoint::domain).
///
/// Each shard has its own; a number is not used for another name afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DomainId(pub u32);

impl DomainId {
    /// No name: the peer's address is what it must prove.
    pub const NONE: DomainId = DomainId(0);
}

/// A way to and from a peer: enough to answer on the path by which a message came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// The listener that received the message, or that shall send it.
    pub listener: ListenerId,
    /// The connection, for stream transports.
    pub flow: FlowId,
    /// Our address on this path where it is known: the destination of a received datagram, the source of one to
    /// be sent. A listener on a wildcard address answers from the address that was asked (RFC 3581 §4).
    pub local: Option<IpAddr>,
    /// The peer.
    pub remote: SocketAddr,
    /// On a stream transport the port of the peer to connect to if `flow` is gone: that of its sent-by (RFC 3261
    /// §18.2.2); 0 where nothing is to be opened then.
    pub fallback_port: u16,
    /// Whom a TLS connection that is opened for this must lead to.
    pub domain: DomainId,
}

impl Path {
    /// A path without a particular connection.
    pub fn new(listener: ListenerId, local: Option<IpAddr>, remote: SocketAddr) -> Path {
        Path { listener, flow: FlowId::NONE, local, remote, fallback_port: 0, domain: DomainId::NONE }
    }
}

/// Names a question that left by [`Output::Ask`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AskId(pub u64);

/// A question to the outside; the script that asked it waits, nothing else does.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ask {
    /// The addresses of a host name (A and AAAA).
    Resolve {
        /// The name, as it stood in the URI.
        host: alloc::string::String,
    },
    /// Rows of a table: [`Answer::Rows`].
    Select(Box<Select>),
    /// All changes of this address-of-record's bindings that were made so far reach their store: [`Answer::Done`].
    Persist {
        /// The key of the address-of-record in the location service.
        aor: Box<[u8]>,
    },
    /// The bindings of this address-of-record are replaced by what their store holds, which others write, too:
    /// [`Answer::Done`].
    Refresh {
        /// The key of the address-of-record in the location service.
        aor: Box<[u8]>,
    },
}

/// Rows that are asked of a database: those in which each key column equals its value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Select {
    /// Which of the configuration's databases, by its place among them.
    pub database: u16,
    /// The table.
    pub table: Arc<str>,
    /// The columns that are wanted, in the order of the answer's.
    pub columns: Arc<[Arc<str>]>,
    /// Key columns and their values.
    pub keys: Vec<(Arc<str>, Box<[u8]>)>,
    /// Rows that are wanted at most.
    pub rows_max: u16,
}

/// Rows of a table; each has a text for every column that was asked for, `None` where it is NULL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows(pub Vec<Vec<Option<Box<[u8]>>>>);

/// The answer to an [`Ask`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer<'a> {
    /// The addresses of a name, best first; empty where it has none.
    Addresses(&'a [IpAddr]),
    /// The rows that were found.
    Rows(&'a Rows),
    /// What was asked for is done.
    Done,
    /// The database answered that it cannot: it is full, read-only, or lacks the table. Whoever asks again at once gets
    /// the same answer.
    Refused,
    /// No answer could be had: nobody there, or too late.
    Failed,
}

/// An [`Answer`] that owns what it says, to be carried from another thread.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OwnedAnswer {
    /// See [`Answer::Addresses`].
    Addresses(Vec<IpAddr>),
    /// See [`Answer::Rows`].
    Rows(Rows),
    /// See [`Answer::Done`].
    Done,
    /// See [`Answer::Refused`].
    Refused,
    /// See [`Answer::Failed`].
    Failed,
}

impl OwnedAnswer {
    /// What it says.
    #[must_use]
    pub fn as_answer(&self) -> Answer<'_> {
        match self {
            OwnedAnswer::Addresses(addresses) => Answer::Addresses(addresses),
            OwnedAnswer::Rows(rows) => Answer::Rows(rows),
            OwnedAnswer::Done => Answer::Done,
            OwnedAnswer::Refused => Answer::Refused,
            OwnedAnswer::Failed => Answer::Failed,
        }
    }
}

/// How a transport failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportFailure {
    /// What was sent has not left: an ICMP error came for a datagram, or there is no connection and none could be made.
    Unreachable,
    /// The connection has ended behind what was sent: that may have arrived.
    Broken,
}

/// What happens to an endpoint.
#[derive(Debug)]
pub enum Input<'a> {
    /// One complete message (stream transports have already framed it).
    Message {
        /// The way it came, which is the way back.
        path: Path,
        /// The message, from its first byte to its last.
        bytes: &'a [u8],
    },
    /// The transport under `path` failed for what was sent there (RFC 3261 §18.4).
    TransportError {
        /// The way that failed.
        path: Path,
        /// How.
        failure: TransportFailure,
    },
    /// The answer to an earlier [`Output::Ask`].
    Answer {
        /// Which question.
        id: AskId,
        /// The answer.
        answer: Answer<'a>,
    },
    /// The clock reached [`Endpoint::next_timeout`](crate::Endpoint::next_timeout).
    Timeout,
    /// No new transactions from now on: new requests are refused with 503 until what is in flight has ended.
    Drain,
}

/// What an endpoint wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send `outbox.bytes[bytes]` on `path`.
    Send {
        /// The way out.
        path: Path,
        /// Where the message lies in [`Outbox::bytes`].
        bytes: Range<usize>,
    },
    /// Ask the outside; answer with [`Input::Answer`] by the deadline, with [`Answer::Failed`] if need be.
    Ask {
        /// To be repeated in the answer.
        id: AskId,
        /// The question.
        ask: Ask,
        /// When the engine stops waiting.
        deadline: sip::Instant,
    },
    /// The connection `path.flow` may be used for requests to `path.remote`'s address with this port (RFC 5923): its
    /// peer listens there. Of two connections for one address the later one counts.
    Alias {
        /// The connection.
        path: Path,
        /// The port of the peer's own listener.
        port: u16,
    },
}

/// Where an endpoint puts its outputs: one growing buffer of bytes, reused from batch to batch.
#[derive(Debug, Default)]
pub struct Outbox {
    /// The bytes of all messages to be sent, one after another.
    pub bytes: Vec<u8>,
    /// What to do, in order.
    pub outputs: Vec<Output>,
}

impl Outbox {
    /// An empty outbox.
    pub fn new() -> Outbox {
        Outbox::default()
    }

    /// Forgets all outputs and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.outputs.clear();
    }

    /// Queues whatever `write` appends to the buffer, to be sent on `path`.
    pub fn send(&mut self, path: Path, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        let bytes = start..self.bytes.len();
        self.outputs.push(Output::Send { path, bytes });
    }
}
