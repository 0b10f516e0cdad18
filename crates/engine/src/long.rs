//! Requests that are too long for a datagram (RFC 3261 §18.1.1): they go by a stream where the next hop leaves the
//! transport to us, and by a datagram all the same where it has no stream.

use crate::io::Path;
use crate::mac::Keys;
use crate::own::default_port;
use crate::reply::is_datagram;
use crate::shard::Core;
use core::net::SocketAddr;
use core::time::Duration;
use hashbrown::HashMap;
use sip::{Instant, Transport};

/// How long a peer that could not be reached by a stream gets datagrams of any length.
const REFUSAL_TTL: Duration = Duration::from_secs(60);
/// Peers remembered at most; past it those whose time is over are forgotten, and all if there are none.
const REFUSALS_MAX: usize = 4_096;

/// Peers that could not be reached by a stream.
#[derive(Debug)]
pub(crate) struct Refusals(HashMap<SocketAddr, Instant, ahash::RandomState>);

impl Refusals {
    pub(crate) fn new(keys: &Keys) -> Refusals {
        Refusals(HashMap::with_hasher(keys.random_state(b"refusals")))
    }

    /// A peer could not be reached.
    pub(crate) fn remember(&mut self, remote: SocketAddr, now: Instant) {
        if self.0.len() >= REFUSALS_MAX {
            self.0.retain(|_, until| *until > now);
            if self.0.len() >= REFUSALS_MAX {
                self.0.clear();
            }
        }
        self.0.insert(remote, now + REFUSAL_TTL);
    }

    fn holds(&self, remote: SocketAddr, now: Instant) -> bool {
        self.0.get(&remote).is_some_and(|until| *until > now)
    }
}

impl<S> Core<S> {
    /// The stream that a request of `len` bytes takes instead of the datagram that it would be; `None` where it stays
    /// one.
    pub(crate) fn stream_instead(&self, len: usize, to: &Path, now: Instant) -> Option<Path> {
        let settings = &self.config.transports;
        let transport = settings.long_transport?;
        if settings.datagram_bytes_max == 0
            || len <= settings.datagram_bytes_max
            || !is_datagram(self.own.transport(to.listener))
        {
            return None;
        }
        let mut remote = to.remote;
        if remote.port() == default_port(Transport::Udp) {
            remote.set_port(default_port(transport));
        }
        if self.refusals.holds(remote, now) {
            return None;
        }
        let listener = self.own.listener_for(transport, remote.ip(), to.listener)?;
        Some(Path { listener, remote, ..*to })
    }

    /// A stream to a peer failed: what is too long for a datagram is one for a while all the same.
    pub(crate) fn note_refusal(&mut self, path: &Path, now: Instant) {
        let transport = self.own.transport(path.listener);
        if self.config.transports.long_transport == Some(transport) {
            self.refusals.remember(path.remote, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_remembered_for_a_minute() {
        let mut refusals = Refusals::new(&Keys::new([1; 4]));
        let peer = "192.0.2.1:5060".parse().unwrap();
        refusals.remember(peer, Instant::ZERO);
        assert!(refusals.holds(peer, Instant::ZERO + Duration::from_secs(59)));
        assert!(!refusals.holds(peer, Instant::ZERO + REFUSAL_TTL));
        assert!(!refusals.holds("192.0.2.1:5061".parse().unwrap(), Instant::ZERO));
    }

    #[test]
    fn refusals_are_bounded() {
        let mut refusals = Refusals::new(&Keys::new([1; 4]));
        for port in 0..=u16::MAX {
            refusals.remember(SocketAddr::from(([192, 0, 2, 1], port)), Instant::ZERO);
            assert!(refusals.0.len() <= REFUSALS_MAX);
        }
    }
}
