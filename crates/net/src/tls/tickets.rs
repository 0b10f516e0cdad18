//! Session tickets: what lets a client resume without a full handshake (RFC 5077, RFC 8446 §4.6.1).
//!
//! The server keeps nothing per session: a ticket is the session's state, sealed with a key that only we know.
//! All threads and all profiles share the keys. In front of the state stand the time of the full handshake's
//! ticket and a digest of the *policy*: what the profile asked of the client's certificate, of which CAs, with
//! which revocation list. A ticket counts only under that same policy. Otherwise a session begun under a
//! profile that asks for no certificate would be resumed under one that requires one, or one of a CA that was
//! removed since.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::crypto::aws_lc_rs::{Ticketer, cipher_suite::TLS13_AES_128_GCM_SHA256};
use rustls::pki_types::UnixTime;
use rustls::server::ProducesTickets;

/// The longest life of a ticket: the library forgets a key that is older than twice this.
pub(super) const LIFETIME_MAX: Duration = Duration::from_secs(6 * 3_600);

/// The shortest time for which one key seals, so that a short lifetime does not make many keys.
const KEY_AGE_MIN_SECONDS: u64 = 60;

/// Keys kept; with the rules above there are never more than three that matter.
const KEYS_MAX: usize = 4;

/// A digest of what decides whether a client may resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Policy([u8; 32]);

impl Policy {
    /// The policy that is described by `parts`, in order.
    pub(super) fn of<'a>(parts: impl Iterator<Item = &'a [u8]>) -> Policy {
        let mut digest = [0; 32];
        if let Some(suite) = TLS13_AES_128_GCM_SHA256.tls13() {
            let mut hash = suite.common.hash_provider.start();
            for part in parts {
                hash.update(&(part.len() as u64).to_be_bytes());
                hash.update(part);
            }
            digest.copy_from_slice(hash.finish().as_ref());
        }
        Policy(digest)
    }
}

/// The keys, the newest first.
#[derive(Debug, Default)]
pub(super) struct TicketKeys(Mutex<VecDeque<Key>>);

#[derive(Clone, Debug)]
struct Key {
    seal: Arc<dyn ProducesTickets>,
    /// Seconds since 1970 of its first use.
    since: u64,
}

impl TicketKeys {
    /// The key to seal with; a new one if the newest has served for `lifetime`.
    fn current(&self, now: u64, lifetime: u64) -> Option<Arc<dyn ProducesTickets>> {
        let mut keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let age_max = lifetime.max(KEY_AGE_MIN_SECONDS);
        let fresh = keys.front().is_some_and(|key| now.saturating_sub(key.since) < age_max);
        if !fresh {
            keys.push_front(Key { seal: Ticketer::new().ok()?, since: now });
            keys.truncate(KEYS_MAX);
        }
        keys.front().map(|key| key.seal.clone())
    }

    /// Seals `state` for the policy.
    fn seal(&self, now: u64, lifetime: u64, policy: Policy, state: &[u8]) -> Option<Vec<u8>> {
        let key = self.current(now, lifetime)?;
        let mut plain = Vec::with_capacity(HEAD + state.len());
        plain.extend_from_slice(&now.to_be_bytes());
        plain.extend_from_slice(&policy.0);
        plain.extend_from_slice(state);
        key.encrypt(&plain)
    }

    /// The state in a ticket of ours that is for the policy and not too old.
    fn open(&self, now: u64, lifetime: u64, policy: Policy, ticket: &[u8]) -> Option<Vec<u8>> {
        let keys = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut plain = keys.iter().find_map(|key| key.seal.decrypt(ticket))?;
        let (issued, rest) = plain.split_first_chunk::<8>()?;
        let (bound_to, _) = rest.split_first_chunk::<32>()?;
        let age = now.checked_sub(u64::from_be_bytes(*issued))?;
        if age > lifetime || *bound_to != policy.0 {
            return None;
        }
        plain.drain(..HEAD);
        Some(plain)
    }
}

/// Time and policy in front of the state.
const HEAD: usize = 8 + 32;

/// The tickets of one profile.
#[derive(Debug)]
pub(super) struct Tickets {
    pub(super) keys: Arc<TicketKeys>,
    pub(super) policy: Policy,
    /// Seconds for which a ticket counts; more than zero.
    pub(super) lifetime: u32,
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        self.lifetime
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.keys.seal(UnixTime::now().as_secs(), u64::from(self.lifetime), self.policy, plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.keys.open(UnixTime::now().as_secs(), u64::from(self.lifetime), self.policy, cipher)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(text: &str) -> Policy {
        Policy::of([text.as_bytes()].into_iter())
    }

    #[test]
    fn a_ticket_counts_for_its_lifetime_across_rotations() {
        let (keys, life) = (TicketKeys::default(), 600);
        let off = policy("off");
        let first = keys.seal(1_000, life, off, b"state").unwrap();
        // Others are sealed all the time, so that keys change twice.
        for now in (1_000..3_000).step_by(50) {
            let ticket = keys.seal(now, life, off, b"other").unwrap();
            assert_eq!(keys.open(now, life, off, &ticket).unwrap(), b"other");
            let opened = keys.open(now, life, off, &first);
            assert_eq!(opened.as_deref(), (now <= 1_600).then_some(&b"state"[..]), "{now}");
        }
        // The last that a key seals outlives the key's turn.
        keys.seal(4_000, life, off, b"new key").unwrap();
        let last = keys.seal(4_599, life, off, b"last").unwrap();
        keys.seal(4_600, life, off, b"newer key").unwrap();
        assert_eq!(keys.open(5_199, life, off, &last).unwrap(), b"last");
        assert_eq!(keys.open(5_200, life, off, &last), None);
        assert!(keys.0.lock().unwrap().len() <= KEYS_MAX);
    }

    #[test]
    fn a_ticket_of_another_policy_does_not_count() {
        let keys = TicketKeys::default();
        let ticket = keys.seal(1_000, 600, policy("off"), b"state").unwrap();
        assert_eq!(keys.open(1_000, 600, policy("require"), &ticket), None);
        assert_eq!(keys.open(1_000, 600, policy("off"), &ticket).unwrap(), b"state");
    }

    #[test]
    fn parts_of_a_policy_cannot_be_shifted_into_each_other() {
        assert_ne!(Policy::of([&b"ab"[..], b"c"].into_iter()), Policy::of([&b"a"[..], b"bc"].into_iter()));
    }

    #[test]
    fn what_is_forged_or_changed_does_not_count() {
        let keys = TicketKeys::default();
        let off = policy("off");
        let ticket = keys.seal(1_000, 600, off, b"state").unwrap();
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(keys.open(1_000, 600, off, &changed), None, "byte {at}");
            assert_eq!(keys.open(1_000, 600, off, &ticket[..at]), None, "cut at {at}");
        }
        let strange = TicketKeys::default().seal(1_000, 600, off, b"state").unwrap();
        assert_eq!(keys.open(1_000, 600, off, &strange), None);
    }

    #[test]
    fn a_ticket_from_the_future_does_not_count() {
        let keys = TicketKeys::default();
        let ticket = keys.seal(1_000, 600, policy("off"), b"state").unwrap();
        assert_eq!(keys.open(999, 600, policy("off"), &ticket), None);
    }
}
