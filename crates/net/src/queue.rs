//! Between shards: one bounded queue per shard, lock-free, for messages that arrived at another.
//!
//! A message crosses at most once. Its buffer comes from the receiver's pool and goes back there, so that a busy
//! server allocates nothing for it. A full queue drops the datagram and counts it: SIP over UDP sends it again.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam_queue::ArrayQueue;
use engine::{AskId, Path};
use std::net::IpAddr;

/// Messages that may wait for one shard; the next one is dropped and counted.
pub(crate) const QUEUE_MESSAGES_MAX: usize = 8_192;

/// Something for another shard.
#[derive(Debug)]
pub enum Parcel {
    /// A datagram that arrived here and belongs there.
    Datagram {
        /// The way it came.
        path: Path,
        /// The message.
        bytes: Vec<u8>,
    },
    /// The answer to a question asked by that shard; `None` where it could not be had.
    Addresses {
        /// The question.
        id: AskId,
        /// The addresses of the name.
        addresses: Option<Vec<IpAddr>>,
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
    /// Copies a datagram into the queue; `false` when it was full and the datagram is lost.
    pub fn datagram(&self, path: Path, message: &[u8]) -> bool {
        let mut bytes = self.0.pool.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(message);
        self.send(Parcel::Datagram { path, bytes })
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
    /// Takes at most `max` parcels; `handle` gets each, and a datagram's buffer goes back to the pool after it.
    ///
    /// Returns whether the queue may hold more.
    pub(crate) fn drain(&self, max: usize, mut handle: impl FnMut(&Parcel)) -> bool {
        // Cleared first: what is queued from here on wakes again.
        self.0.notified.store(false, Ordering::Release);
        for _ in 0..max {
            let Some(parcel) = self.0.queue.pop() else { return false };
            handle(&parcel);
            if let Parcel::Datagram { bytes, .. } = parcel {
                let _ = self.0.pool.push(bytes);
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
    use engine::{FlowId, ListenerId};

    fn path() -> Path {
        let remote = "127.0.0.1:5060".parse().unwrap();
        Path { listener: ListenerId(0), flow: FlowId::DATAGRAM, local: None, remote }
    }

    #[test]
    fn a_full_queue_drops_and_counts() {
        let poll = mio::Poll::new().unwrap();
        let (post, postbox) = post_office(poll.registry(), mio::Token(0)).unwrap();
        for _ in 0..QUEUE_MESSAGES_MAX {
            assert!(post.datagram(path(), b"x"));
        }
        assert!(!post.datagram(path(), b"y"));
        assert_eq!(postbox.dropped(), 1);
        let mut taken = 0;
        assert!(postbox.drain(100, |_| taken += 1));
        assert_eq!(taken, 100);
        assert!(post.datagram(path(), b"z"));
    }

    #[test]
    fn a_burst_wakes_the_shard_once_and_later_ones_again() {
        let mut poll = mio::Poll::new().unwrap();
        let (post, postbox) = post_office(poll.registry(), mio::Token(7)).unwrap();
        let mut events = mio::Events::with_capacity(8);
        for _ in 0..2 {
            post.datagram(path(), b"a");
            post.datagram(path(), b"b");
            poll.poll(&mut events, Some(std::time::Duration::from_secs(5))).unwrap();
            assert!(events.iter().any(|e| e.token() == mio::Token(7)));
            let mut seen = Vec::new();
            postbox.drain(100, |p| {
                if let Parcel::Datagram { bytes, .. } = p {
                    seen.push(bytes.clone());
                }
            });
            assert_eq!(seen, [b"a", b"b"]);
        }
    }
}
