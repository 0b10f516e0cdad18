//! Sessions kept as client, so that the next connection to a peer resumes (RFC 5246 §7.3, RFC 8446 §2.2).
//!
//! One entry per peer: profile, address and name. A session is resumed only with what it was made with:
//! `rustls` compares verifier and certificates, the name is part of the key, so what was proved then is what is
//! asked for now.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::{ServerName, UnixTime};

/// Tickets of TLS 1.3 kept for one peer: each serves once (RFC 8446 §C.4), so several connections at once need
/// several.
const TICKETS_PER_PEER_MAX: usize = 4;

/// The sessions of all client profiles.
#[derive(Debug)]
pub(super) struct ClientSessions {
    peers: Mutex<Peers>,
    /// Peers kept; the one that was added first goes first.
    max: usize,
    /// Seconds for which a session may be resumed.
    lifetime: u64,
}

#[derive(Debug, Default)]
struct Peers {
    of: HashMap<PeerKey, Peer>,
    order: VecDeque<PeerKey>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PeerKey {
    profile: usize,
    address: SocketAddr,
    name: ServerName<'static>,
}

#[derive(Debug, Default)]
struct Peer {
    group: Option<NamedGroup>,
    tls12: Option<(u64, Tls12ClientSessionValue)>,
    /// The newest last.
    tls13: VecDeque<(u64, Tls13ClientSessionValue)>,
}

impl ClientSessions {
    pub(super) fn new(max: usize, lifetime: u64) -> ClientSessions {
        ClientSessions { peers: Mutex::default(), max, lifetime }
    }

    fn lock(&self) -> MutexGuard<'_, Peers> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_fresh(&self, made: u64) -> bool {
        now().saturating_sub(made) <= self.lifetime
    }

    fn change(&self, key: PeerKey, change: impl FnOnce(&mut Peer)) {
        let mut peers = self.lock();
        let Peers { of, order } = &mut *peers;
        if !of.contains_key(&key) {
            while of.len() >= self.max {
                let Some(oldest) = order.pop_front() else { return };
                of.remove(&oldest);
            }
            order.push_back(key.clone());
        }
        change(of.entry(key).or_default());
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let peers = self.lock();
        assert_eq!(peers.of.len(), peers.order.len());
        peers.of.len()
    }
}

fn now() -> u64 {
    UnixTime::now().as_secs()
}

/// The sessions of one profile with one address, as `rustls` asks for them.
#[derive(Debug)]
pub(super) struct PeerSessions {
    pub(super) sessions: Arc<ClientSessions>,
    pub(super) profile: usize,
    pub(super) address: SocketAddr,
}

impl PeerSessions {
    fn key(&self, name: ServerName<'static>) -> PeerKey {
        PeerKey { profile: self.profile, address: self.address, name }
    }

    fn look<T>(&self, name: &ServerName<'_>, look: impl FnOnce(&mut Peer) -> Option<T>) -> Option<T> {
        self.sessions.lock().of.get_mut(&self.key(name.to_owned())).and_then(look)
    }
}

impl ClientSessionStore for PeerSessions {
    fn set_kx_hint(&self, name: ServerName<'static>, group: NamedGroup) {
        self.sessions.change(self.key(name), |peer| peer.group = Some(group));
    }

    fn kx_hint(&self, name: &ServerName<'_>) -> Option<NamedGroup> {
        self.look(name, |peer| peer.group)
    }

    fn set_tls12_session(&self, name: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.sessions.change(self.key(name), |peer| peer.tls12 = Some((now(), value)));
    }

    fn tls12_session(&self, name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        let (made, value) = self.look(name, |peer| peer.tls12.clone())?;
        self.sessions.is_fresh(made).then_some(value)
    }

    fn remove_tls12_session(&self, name: &ServerName<'static>) {
        self.look(name, |peer| peer.tls12.take());
    }

    fn insert_tls13_ticket(&self, name: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.sessions.change(self.key(name), |peer| {
            if peer.tls13.len() >= TICKETS_PER_PEER_MAX {
                peer.tls13.pop_front();
            }
            peer.tls13.push_back((now(), value));
        });
    }

    fn take_tls13_ticket(&self, name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        let (made, value) = self.look(name, |peer| peer.tls13.pop_back())?;
        self.sessions.is_fresh(made).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_peers_are_kept_than_allowed_and_the_oldest_goes_first() {
        let sessions = Arc::new(ClientSessions::new(3, 60));
        let peer = |port| PeerSessions {
            sessions: sessions.clone(),
            profile: 0,
            address: SocketAddr::from(([127, 0, 0, 1], port)),
        };
        let name = ServerName::try_from("example.org").unwrap();
        for port in 1..=5 {
            peer(port).set_kx_hint(name.clone(), NamedGroup::X25519);
        }
        assert_eq!(sessions.len(), 3);
        assert_eq!(peer(2).kx_hint(&name), None);
        assert_eq!(peer(3).kx_hint(&name), Some(NamedGroup::X25519));
        assert_eq!(peer(5).kx_hint(&ServerName::try_from("example.net").unwrap()), None);
        let other_profile = PeerSessions { profile: 1, ..peer(5) };
        assert_eq!(other_profile.kx_hint(&name), None);
    }

    #[test]
    fn none_are_kept_where_none_may_be() {
        let sessions = Arc::new(ClientSessions::new(0, 60));
        let address = SocketAddr::from(([127, 0, 0, 1], 5061));
        let peer = PeerSessions { sessions: sessions.clone(), profile: 0, address };
        peer.set_kx_hint(ServerName::try_from("example.org").unwrap(), NamedGroup::X25519);
        assert_eq!(sessions.len(), 0);
    }
}
