//! CPU time, and sums of counters whose owners come and go.

use std::collections::BTreeMap;

/// CPU time in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cpu {
    /// User and system.
    pub(super) all_us: u64,
    /// Of that in user mode.
    pub(super) user_us: u64,
}

impl Cpu {
    pub(super) fn of_user_and_system(user_us: u64, system_us: u64) -> Cpu {
        Cpu { all_us: user_us.saturating_add(system_us), user_us }
    }

    #[must_use]
    pub(super) fn plus(self, other: Cpu) -> Cpu {
        Cpu {
            all_us: self.all_us.saturating_add(other.all_us),
            user_us: self.user_us.saturating_add(other.user_us),
        }
    }

    /// The greater of each.
    #[must_use]
    pub(super) fn or_more(self, other: Cpu) -> Cpu {
        Cpu { all_us: self.all_us.max(other.all_us), user_us: self.user_us.max(other.user_us) }
    }
}

/// The sum of counters that only grow and whose owners (threads, sockets) come and go: what one showed last stays in
/// the sum when it is gone. What it counted between that look and its end is lost; looks are a second apart.
#[derive(Debug)]
pub(super) struct Ledger<K> {
    live: BTreeMap<K, u64>,
    kept: u64,
}

impl<K> Default for Ledger<K> {
    fn default() -> Self {
        Ledger { live: BTreeMap::new(), kept: 0 }
    }
}

impl<K: Ord> Ledger<K> {
    /// All that are there now. A counter that fell belongs to a new owner under an old name.
    pub(super) fn update(&mut self, now: BTreeMap<K, u64>) -> u64 {
        for (owner, &last) in &self.live {
            if now.get(owner).is_none_or(|&value| value < last) {
                self.kept = self.kept.saturating_add(last);
            }
        }
        self.live = now;
        self.total()
    }

    /// Whether all that were there at the last look are among these.
    pub(super) fn all_in(&self, now: &BTreeMap<K, u64>) -> bool {
        self.live.keys().all(|owner| now.contains_key(owner))
    }

    /// Another source says that the sum is at least this: what owners counted before the first look and after the last.
    pub(super) fn raise_to(&mut self, floor: u64) {
        self.kept = self.kept.saturating_add(floor.saturating_sub(self.total()));
    }

    pub(super) fn total(&self) -> u64 {
        self.live.values().fold(self.kept, |sum, &value| sum.saturating_add(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ended_owners_counted_stays_in_the_sum() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.update(BTreeMap::from([(1, 10), (2, 5)])), 15);
        assert_eq!(ledger.update(BTreeMap::from([(2, 7), (3, 1)])), 18);
        assert_eq!(ledger.update(BTreeMap::new()), 18);
    }

    #[test]
    fn a_counter_that_fell_belongs_to_a_new_owner() {
        let mut ledger = Ledger::default();
        ledger.update(BTreeMap::from([(1, 10)]));
        assert_eq!(ledger.update(BTreeMap::from([(1, 3)])), 13);
        assert_eq!(ledger.update(BTreeMap::from([(1, 4)])), 14);
    }

    #[test]
    fn a_floor_raises_the_sum_once() {
        let mut ledger = Ledger::default();
        ledger.update(BTreeMap::from([(1, 10)]));
        ledger.raise_to(12);
        assert_eq!(ledger.total(), 12);
        ledger.raise_to(11);
        assert_eq!(ledger.update(BTreeMap::from([(1, 11)])), 13);
    }

    #[test]
    fn sums_stop_at_the_end_of_the_number() {
        let mut ledger = Ledger::default();
        ledger.update(BTreeMap::from([(1, u64::MAX), (2, u64::MAX)]));
        assert_eq!(ledger.update(BTreeMap::from([(3, 1)])), u64::MAX);
        let most = Cpu { all_us: u64::MAX, user_us: 1 };
        assert_eq!(most.plus(most), Cpu { all_us: u64::MAX, user_us: 2 });
    }
}
