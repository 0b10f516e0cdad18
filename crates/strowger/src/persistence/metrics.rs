//! What the persister counts, and how it stands.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Written by the persister's thread, read by whoever reports.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// Transactions that were committed.
    pub(super) commits: AtomicU64,
    /// Changes in them.
    pub(super) rows: AtomicU64,
    /// Transactions that failed, each attempt.
    pub(super) failures: AtomicU64,
    /// Rows left out because the database takes everything but them, or the location table cannot hold them.
    pub(super) left_out: AtomicU64,
    /// Questions answered with success.
    pub(super) answered: AtomicU64,
    /// Questions answered otherwise.
    pub(super) unanswered: AtomicU64,
    /// Questions that wait.
    pub(super) waiting: AtomicU64,
    /// Rows read for look-ups that ask the database.
    pub(super) refreshed: AtomicU64,
    /// Whether the database is known to be away.
    pub(super) is_away: AtomicBool,
    /// Microseconds since the server's start at which the oldest change that is not committed was drained; 0 for none.
    pub(super) behind_since: AtomicU64,
    /// The same of the call to the database that is under way; 0 for none.
    pub(super) busy_since: AtomicU64,
    /// Changes drained and not committed.
    pub(super) pending: AtomicU64,
}

/// A copy of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PersistenceState {
    pub(crate) commits: u64,
    pub(crate) rows: u64,
    pub(crate) failures: u64,
    pub(crate) left_out: u64,
    pub(crate) answered: u64,
    pub(crate) unanswered: u64,
    pub(crate) waiting: u64,
    pub(crate) refreshed: u64,
    pub(crate) pending: u64,
    /// How far the database is behind, in seconds.
    pub(crate) behind_secs: u64,
    pub(crate) is_up: bool,
}

impl Metrics {
    pub(super) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }

    /// `uptime_micros` counts from the server's start.
    pub(crate) fn state(&self, uptime_micros: u64) -> PersistenceState {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let behind = match of(&self.behind_since) {
            0 => 0,
            since => uptime_micros.saturating_sub(since) / 1_000_000,
        };
        PersistenceState {
            commits: of(&self.commits),
            rows: of(&self.rows),
            failures: of(&self.failures),
            left_out: of(&self.left_out),
            answered: of(&self.answered),
            unanswered: of(&self.unanswered),
            waiting: of(&self.waiting),
            refreshed: of(&self.refreshed),
            pending: of(&self.pending),
            behind_secs: behind,
            is_up: !self.is_away.load(Ordering::Relaxed),
        }
    }
}
