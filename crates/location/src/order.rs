//! REGISTERs "MUST be processed by a registrar in the order that they are received" (RFC 3261 §10.3).
//!
//! One that waits, for its user's secret, say, may be overtaken: a later one whose secret is at hand is applied first. To
//! have that one wait, too, would let anybody hold up a user's phones by REGISTERs whose credentials must be looked up. So
//! it is the one that waited that fails, if it comes to change what the later one has changed: it was never applied, and the
//! others were in order. What is bound says itself when its request came; what was removed is noted here.

use crate::binding::Binding;
use crate::request::Update;
use alloc::vec::Vec;
use core::time::Duration;
use sip::Instant;

/// Addresses-of-record are told apart by so many values of their hash: two that share one may cost a REGISTER that waited
/// a second try.
const CLASSES: usize = 256;

/// Requests that are received together have one instant; the contacts of one request are a microsecond apart each, and every
/// copy of it that may be undone takes them back by another (`Table::vouch`).
const MOMENT: Duration = Duration::from_micros(100);

/// When contacts were last removed.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// By the class of the address-of-record; empty before the first removal.
    removed: Vec<Instant>,
}

impl Order {
    /// A request that came at `came` has removed contacts of an address-of-record with this hash, or has found them gone.
    pub(crate) fn note_removal(&mut self, hash: u32, came: Instant) {
        self.removed.resize(CLASSES, Instant::ZERO);
        if let Some(latest) = self.removed.get_mut(class(hash)) {
            *latest = came.max(*latest);
        }
    }

    /// Whether the request of an update waited while another client's, that came later, made this binding what it is. The
    /// requests of one client are in the order of their CSeq; a time that is not yet is of another node's clock, and says
    /// nothing.
    pub(crate) fn is_overtaken_by(&self, now: Instant, update: &Update<'_>, binding: &Binding) -> bool {
        let Some(since) = update.waiting_since else { return false };
        let modified = binding.modified_at();
        modified + MOMENT > since && modified <= now && binding.call_id() != update.call_id
    }

    /// Whether it waited while one that came later may have removed its contact.
    pub(crate) fn is_overtaken_by_removal(&self, update: &Update<'_>, hash: u32) -> bool {
        let Some(since) = update.waiting_since else { return false };
        self.removed.get(class(hash)).is_some_and(|latest| *latest + MOMENT > since)
    }
}

fn class(hash: u32) -> usize {
    hash as usize % CLASSES
}
