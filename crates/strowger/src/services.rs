//! What all shards share beside the location table: nonce counts, failed attempts, domains, groups of addresses.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use modules::{Addresses, Domains, Guard, NonceWindow, Services};

/// Parts of the two tables, each behind a lock of its own. Many more than shards, so that two rarely want the same.
const PARTS: usize = 64;

/// A part of a table, made when it is first used: a server without users pays nothing for it.
type Part<T> = OnceLock<Mutex<T>>;

/// See [`modules::Services`].
pub(crate) struct Shared {
    /// Nonces, and sources and users, that one part remembers.
    nonces_max: usize,
    attempts_max: usize,
    nonces: Box<[Part<NonceWindow>]>,
    guards: Box<[Part<Guard>]>,
    users_epoch: AtomicU64,
    domains: ArcSwap<Domains>,
    addresses: ArcSwap<Addresses>,
}

impl Shared {
    /// Room for so many nonces, and for so many sources and users with failed attempts, in all parts together.
    pub(crate) fn new(nonces_max: usize, attempts_max: usize) -> Shared {
        Shared {
            nonces_max: nonces_max.div_ceil(PARTS),
            attempts_max: attempts_max.div_ceil(PARTS),
            nonces: (0..PARTS).map(|_| OnceLock::new()).collect(),
            guards: (0..PARTS).map(|_| OnceLock::new()).collect(),
            users_epoch: AtomicU64::new(0),
            domains: ArcSwap::default(),
            addresses: ArcSwap::default(),
        }
    }

    /// An administrator has changed users: what shards remember of them is stale.
    pub(crate) fn users_changed(&self) {
        self.users_epoch.fetch_add(1, Ordering::Release);
    }

    /// The `domain` table was read.
    pub(crate) fn set_domains(&self, domains: Domains) {
        self.domains.store(Arc::new(domains));
    }

    /// The `address` table was read.
    pub(crate) fn set_addresses(&self, addresses: Addresses) {
        self.addresses.store(Arc::new(addresses));
    }
}

/// Visits the part that `hash` falls into; `make` makes it.
///
/// The upper half of the hash chooses: the lower one is the part's own to use.
fn visit<T>(parts: &[Part<T>], hash: u64, make: impl FnOnce() -> T, visit: &mut dyn FnMut(&mut T)) {
    let index = (hash >> 32) as usize % parts.len();
    if let Some(part) = parts.get(index) {
        let part = part.get_or_init(|| Mutex::new(make()));
        // A panic while it was held is our bug; counts that are half updated are worth more than none.
        visit(&mut part.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Services for Shared {
    fn with_nonces(&self, hash: u64, with: &mut dyn FnMut(&mut NonceWindow)) {
        visit(&self.nonces, hash, || NonceWindow::new(self.nonces_max), with);
    }

    fn with_guard(&self, hash: u64, with: &mut dyn FnMut(&mut Guard)) {
        visit(&self.guards, hash, || Guard::new(self.attempts_max), with);
    }

    fn users_epoch(&self) -> u64 {
        self.users_epoch.load(Ordering::Acquire)
    }

    fn domains(&self) -> Arc<Domains> {
        self.domains.load_full()
    }

    fn addresses(&self) -> Arc<Addresses> {
        self.addresses.load_full()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_hash_is_always_in_the_same_part() {
        let shared = Shared::new(1_024, 1_024);
        let place = |hash| {
            let mut place = 0;
            shared.with_nonces(hash, &mut |window| place = std::ptr::from_mut(window) as usize);
            place
        };
        assert_eq!(place(7 << 32), place(7 << 32 | 1));
        assert_ne!(place(7 << 32), place(8 << 32));
        for shift in 0..64 {
            assert_ne!(place(1 << shift), 0, "every hash has a part");
        }
    }

    #[test]
    fn parts_are_made_when_they_are_used() {
        let shared = Shared::new(1_024, 1_024);
        let made = |shared: &Shared| shared.guards.iter().filter(|part| part.get().is_some()).count();
        assert_eq!(made(&shared), 0);
        shared.with_guard(1 << 40, &mut |_| {});
        assert_eq!(made(&shared), 1);
    }

    #[test]
    fn changed_users_are_a_new_epoch() {
        let shared = Shared::new(1_024, 1_024);
        let before = shared.users_epoch();
        shared.users_changed();
        assert!(shared.users_epoch() > before);
    }
}
