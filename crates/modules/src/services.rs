//! What all shards share beside the location service, as scripts' functions see it.

use crate::auth::{Guard, NonceWindow};
use crate::domain::Domains;
use crate::permissions::Addresses;
use alloc::sync::Arc;

/// State that belongs to the whole server. The server keeps it behind its locks and hands it in; what is visited is held
/// for the visit only, and visitors never call back.
pub trait Services: Send + Sync {
    /// The part of the nonce counts that `hash` falls into (RFC 7616 §3.4 `nc`).
    fn with_nonces(&self, hash: u64, visit: &mut dyn FnMut(&mut NonceWindow));

    /// The part of the failed attempts that `hash` falls into.
    fn with_guard(&self, hash: u64, visit: &mut dyn FnMut(&mut Guard));

    /// A number that grows whenever an administrator has changed users: what was remembered of them before is stale.
    fn users_epoch(&self) -> u64;

    /// The domains that the `domain` table names, as last read.
    fn domains(&self) -> Arc<Domains>;

    /// The networks that the `address` table names, as last read.
    fn addresses(&self) -> Arc<Addresses>;
}

/// Services of a server that has no databases: nothing is remembered beyond one request.
#[derive(Debug, Default)]
pub(crate) struct NoServices;

impl Services for NoServices {
    fn with_nonces(&self, _hash: u64, visit: &mut dyn FnMut(&mut NonceWindow)) {
        visit(&mut NonceWindow::new(1));
    }

    fn with_guard(&self, _hash: u64, visit: &mut dyn FnMut(&mut Guard)) {
        visit(&mut Guard::new(1));
    }

    fn users_epoch(&self) -> u64 {
        0
    }

    fn domains(&self) -> Arc<Domains> {
        Arc::default()
    }

    fn addresses(&self) -> Arc<Addresses> {
        Arc::default()
    }
}
