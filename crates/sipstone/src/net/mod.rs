//! The hands: sockets and worker threads of this host.
//!
//! [`socket`] sends and receives datagrams in batches, `stream` has the connections, [`local`] runs one thread per worker and is the
//! [`Group`](crate::group::Group) of this host.

pub mod cpus;
mod crew_sockets;
pub mod local;
mod pace;
pub mod socket;
pub(crate) mod stream;
mod worker_thread;

use std::time::Instant;

/// Microseconds since an origin that all threads of a group share (CLOCK_MONOTONIC).
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock that starts now.
    #[must_use]
    pub fn start() -> Clock {
        Clock { origin: Instant::now() }
    }

    /// The time on it.
    #[must_use]
    pub fn now(&self) -> sip::Instant {
        sip::Instant::from_micros(u64::try_from(self.origin.elapsed().as_micros()).unwrap_or(u64::MAX))
    }
}
