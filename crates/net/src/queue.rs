//! Between shards: one bounded queue per shard, lock-free, for messages that arrived at another.
//!
//! A message crosses at most once on its way in, and once on its way out where the connection is another shard's. Its
//! buffer comes from the receiver's pool and goes back there, so that a busy server allocates nothing for it. A full queue
//! drops the message and counts it: SIP over UDP sends it again.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam_queue::ArrayQueue;
use engine::{AskId, FlowId, OwnedAnswer, Path, TransportFailure};

use crate::tls::{HandshakeError, Secured};

/// Messages that may wait for one shard; the next one is dropped and counted.
pub(crate) const QUEUE_MESSAGES_MAX: usize = 8_192;

/// Something for another shard.
#[derive(Debug)]
pub enum Parcel {
    /// A message that arrived here and belongs there.
    Message {
        /// The way it came.
        path: Path,
        /// The message.
        bytes: Vec<u8>,
    },
    /// A message to be sent by a connection of that shard.
    Outgoing {
        /// The shard that it is from.
        from: usize,
        /// The connection.
        flow: FlowId,
        /// The way out as the engine knows it.
        path: Path,
        /// The message.
        bytes: Vec<u8>,
    },
    /// An [`Outgoing`](Parcel::Outgoing) whose connection has gone comes back, to be sent in another way.
    Bounced {
        /// The way out as the engine knows it.
        path: Path,
        /// The message.
        bytes: Vec<u8>,
    },
    /// What that shard sent this way is lost, or may never be answered.
    Failed {
        /// The way out as the engine knows it.
        path: Path,
        /// How.
        failure: TransportFailure,
    },
    /// A connection of that shard may be used for requests to the peer's own port (RFC 5923).
    Alias {
        /// The connection.
        path: Path,
        /// The port.
        port: u16,
    },
    /// A TLS handshake for a connection of that shard has ended.
    Secured {
        /// The connection.
        flow: FlowId,
        /// The session and the socket.
        result: Result<Box<Secured>, HandshakeError>,
    },
    /// The answer to a question asked by that shard.
    Answer {
        /// The question.
        id: AskId,
        /// The answer.
        answer: OwnedAnswer,
    },
}

#[derive(Debug)]
struct Shared {
    queue: ArrayQueue<Parcel>,
    pool: ArrayQueue<Vec<u8>>,
    /// Set while a wake-up is under way, so that a burst costs one system call.
    notified: AtomicBool,
    waker: mio::Waker,
    dropped: AtomicU64,
}

/// The sending side: may be cloned to every shard and to the resolver.
#[derive(Clone, Debug)]
pub struct Post(Arc<Shared>);

/// The receiving side: one shard's.
#[derive(Debug)]
pub struct Postbox(Arc<Shared>);

/// A queue for the shard that `registry` polls for; the shard is woken with `token`.
///
/// # Errors
///
/// When the system has no descriptor left for the wake-up event.
pub fn post_office(registry: &mio::Registry, token: mio::Token) -> io::Result<(Post, Postbox)> {
    let shared = Arc::new(Shared {
        queue: ArrayQueue::new(QUEUE_MESSAGES_MAX),
        pool: ArrayQueue::new(QUEUE_MESSAGES_MAX),
        notified: AtomicBool::new(false),
        waker: mio::Waker::new(registry, token)?,
        dropped: AtomicU64::new(0),
    });
    Ok((Post(shared.clone()), Postbox(shared)))
}

impl Post {
    /// Copies a message into the queue; `false` when it was full and the message is lost.
    pub fn message(&self, path: Path, message: &[u8]) -> bool {
        self.send(Parcel::Message { path, bytes: self.copy(message) })
    }

    /// Copies a message for a connection of that shard into the queue; `false` when it was full.
    pub(crate) fn outgoing(&self, from: usize, flow: FlowId, path: Path, message: &[u8]) -> bool {
        self.send(Parcel::Outgoing { from, flow, path, bytes: self.copy(message) })
    }

    fn copy(&self, message: &[u8]) -> Vec<u8> {
        let mut bytes = self.0.pool.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(message);
        bytes
    }

    /// Queues a parcel and wakes the shard; `false` when the queue was full and the parcel is lost.
    pub fn send(&self, parcel: Parcel) -> bool {
        if self.0.queue.push(parcel).is_err() {
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        self.wake();
        true
    }

    /// Whether the queue is so full that streams, whose messages are not sent again, should not be read for a while.
    pub(crate) fn is_congested(&self) -> bool {
        self.0.queue.len() > QUEUE_MESSAGES_MAX / 4 * 3
    }

    /// Wakes the shard, whatever it waits for.
    pub fn wake(&self) {
        if !self.0.notified.swap(true, Ordering::AcqRel)
            && let Err(error) = self.0.waker.wake()
        {
            tracing::error!(%error, "cannot wake a shard");
        }
    }
}

impl Postbox {
    /// Takes at most `max` parcels; `handle` gets each and gives back its buffer, which goes to the pool.
    ///
    /// Returns whether the queue may hold more.
    pub(crate) fn drain(&self, max: usize, mut handle: impl FnMut(Parcel) -> Option<Vec<u8>>) -> bool {
        // Cleared first: what is queued from here on wakes again.
        self.0.notified.store(false, Ordering::Release);
        for _ in 0..max {
            let Some(parcel) = self.0.queue.pop() else { return false };
            if let Some(buffer) = handle(parcel) {
                let _ = self.0.pool.push(buffer);
            }
        }
        true
    }

    /// Messages lost because the queue was full, since the start.
    pub(crate) fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::ListenerId;

    fn path() -> Path {
        let remote = "127.0.0.1:5060".parse().unwrap();
        Path::new(ListenerId(0), None, remote)
    }

    #[test]
    fn a_full_queue_drops_and_counts() {
        let poll = mio::Poll::new().unwrap();
        let (post, postbox) = post_office(poll.registry(), mio::Token(0)).unwrap();
        for _ in 0..QUEUE_MESSAGES_MAX {
            assert!(post.message(path(), b"x"));
        }
        assert!(!post.message(path(), b"y"));
        assert_eq!(postbox.dropped(), 1);
        let mut taken = 0;
        assert!(postbox.drain(100, |_| {
            taken += 1;
            None
        }));
        assert_eq!(taken, 100);
        assert!(post.message(path(), b"z"));
    }

    #[test]
    fn a_burst_wakes_the_shard_once_and_later_ones_again() {
        let mut poll = mio::Poll::new().unwrap();
        let (post, postbox) = post_office(poll.registry(), mio::Token(7)).unwrap();
        let mut events = mio::Events::with_capacity(8);
        for _ in 0..2 {
            post.message(path(), b"a");
            post.message(path(), b"b");
            poll.poll(&mut events, Some(std::time::Duration::from_secs(5))).unwrap();
            assert!(events.iter().any(|e| e.token() == mio::Token(7)));
            let mut seen = Vec::new();
            postbox.drain(100, |p| {
                let Parcel::Message { bytes, .. } = p else { panic!("not a message") };
                seen.push(bytes.clone());
                Some(bytes)
            });
            assert_eq!(seen, [b"a", b"b"]);
        }
    }
}
