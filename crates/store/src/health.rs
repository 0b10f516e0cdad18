//! Whether a database answers, and the two log lines that say so.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use crate::selector::SelectorState;

/// Counters of a selector, and the state that they are about.
#[derive(Debug)]
pub(crate) struct Health {
    /// The database, for the log; without a password.
    name: String,
    answered: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    full: AtomicU64,
    reconnects: AtomicU64,
    pub(crate) waiting: AtomicU64,
    is_down: AtomicBool,
    /// When it went away, and how many questions had failed by then.
    down_since: Mutex<Option<(Instant, u64)>>,
}

/// What became of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Answered,
    Refused,
    Failed,
    Full,
}

impl Health {
    pub(crate) fn new(name: String) -> Health {
        Health {
            name,
            answered: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            full: AtomicU64::new(0),
            reconnects: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            is_down: AtomicBool::new(false),
            down_since: Mutex::new(None),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn count(&self, outcome: Outcome) {
        let counter = match outcome {
            Outcome::Answered => &self.answered,
            Outcome::Refused => &self.refused,
            Outcome::Failed => &self.failed,
            Outcome::Full => &self.full,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn reconnected(&self) {
        self.reconnects.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn is_down(&self) -> bool {
        self.is_down.load(Ordering::Acquire)
    }

    /// Notes that it is away; true for whoever is the first to notice, and has to look for its return.
    pub(crate) fn went_away(&self, why: &str) -> bool {
        if self.is_down.swap(true, Ordering::AcqRel) {
            return false;
        }
        if let Ok(mut since) = self.down_since.lock() {
            *since = Some((Instant::now(), self.failed.load(Ordering::Relaxed)));
        }
        tracing::warn!("{} is away: {why}; questions fail until it is back", self.name);
        true
    }

    /// Notes that it is back.
    pub(crate) fn is_back(&self) {
        if !self.is_down.swap(false, Ordering::AcqRel) {
            return;
        }
        let since = self.down_since.lock().ok().and_then(|mut since| since.take());
        if let Some((since, failed)) = since {
            let failed = self.failed.load(Ordering::Relaxed).saturating_sub(failed);
            let seconds = since.elapsed().as_secs_f64();
            tracing::info!("{} is back after {seconds:.1} s; {failed} questions failed meanwhile", self.name);
        }
    }

    pub(crate) fn state(&self) -> SelectorState {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SelectorState {
            answered: read(&self.answered),
            refused: read(&self.refused),
            failed: read(&self.failed),
            full: read(&self.full),
            reconnects: read(&self.reconnects),
            waiting: read(&self.waiting),
            is_up: !self.is_down(),
        }
    }
}

/// Time until the next attempt: 100 ms at first, then doubling to 10 s, each up to a quarter longer by
/// chance, so that many servers do not come at once.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    attempts: u32,
}

impl Backoff {
    const FIRST_MS: u64 = 100;
    const LAST_MS: u64 = 10_000;

    pub(crate) fn next(&mut self) -> std::time::Duration {
        use std::hash::{BuildHasher, Hasher};
        let wait = (Backoff::FIRST_MS << self.attempts.min(10)).min(Backoff::LAST_MS);
        self.attempts += 1;
        let chance = std::collections::hash_map::RandomState::new().build_hasher().finish();
        std::time::Duration::from_millis(wait + chance % (wait / 4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_become_rarer_up_to_ten_seconds() {
        let mut backoff = Backoff::default();
        let waits: Vec<u64> = (0..40).map(|_| backoff.next().as_millis() as u64).collect();
        assert!((100..125).contains(&waits[0]) && (200..250).contains(&waits[1]), "{waits:?}");
        assert!(waits[10..].iter().all(|wait| (10_000..12_500).contains(wait)), "{waits:?}");
    }

    #[test]
    fn going_and_coming_back_is_noticed_once() {
        let health = Health::new("db".into());
        assert!(health.state().is_up);
        assert!(health.went_away("x") && !health.went_away("y"));
        assert!(!health.state().is_up);
        health.is_back();
        health.is_back();
        assert!(health.state().is_up && health.went_away("z"));
    }
}
