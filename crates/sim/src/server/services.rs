//! What the shards of one server share beside bindings, as the server binary keeps it (its `services.rs`).

use modules::{Addresses, Domains, Guard, NonceWindow, Services};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Sources and users whose wrong attempts are remembered.
const ATTEMPTS_MAX: usize = 64;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Shared {
    nonces: Mutex<NonceWindow>,
    guard: Mutex<Guard>,
    users_epoch: AtomicU64,
    domains: Mutex<Arc<Domains>>,
}

impl Shared {
    /// Of a server that has just begun, and remembers so many nonces.
    pub(super) fn new(domains: Domains, nonces_max: usize) -> Shared {
        Shared {
            nonces: Mutex::new(NonceWindow::new(nonces_max)),
            guard: Mutex::new(Guard::new(ATTEMPTS_MAX)),
            users_epoch: AtomicU64::new(0),
            domains: Mutex::new(Arc::new(domains)),
        }
    }

    /// The tables were read again.
    pub(super) fn set_domains(&self, domains: Domains) {
        *self.domains.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(domains);
    }

    /// An administrator has changed users.
    pub(super) fn users_changed(&self) {
        self.users_epoch.fetch_add(1, Ordering::Relaxed);
    }
}

impl Services for Shared {
    fn with_nonces(&self, _hash: u64, visit: &mut dyn FnMut(&mut NonceWindow)) {
        visit(&mut self.nonces.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn with_guard(&self, _hash: u64, visit: &mut dyn FnMut(&mut Guard)) {
        visit(&mut self.guard.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn users_epoch(&self) -> u64 {
        self.users_epoch.load(Ordering::Relaxed)
    }

    fn domains(&self) -> Arc<Domains> {
        self.domains.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn addresses(&self) -> Arc<Addresses> {
        Arc::default()
    }
}
