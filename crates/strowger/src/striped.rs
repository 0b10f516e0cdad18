//! The location table that all shards share: stripes of it, each behind its own lock.
//!
//! A REGISTER or a look-up takes one lock for well under a microsecond; with many more stripes than shards two
//! shards rarely meet. No lock is held while another is taken.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use location::{
    Binding, Change, Changed, Drained, Kept, Limits, Location, Policy, Recorder, Refusal, Register,
    Registered, Seeds, Table, stripe_of,
};
use sip::Instant;

/// Stripes of the table. Many more than shards, so that two rarely want the same.
pub(crate) const STRIPES: usize = 256;

/// Words of a set of stripes.
const WORDS: usize = STRIPES / 64;

/// The shared location service; clones are the same one.
#[derive(Clone)]
pub(crate) struct Striped(Arc<Stripes>);

struct Stripes {
    tables: Box<[Mutex<Table>]>,
    seeds: Seeds,
    /// The stripe at which the next [`Location::expire`] begins.
    next: AtomicUsize,
    /// Whether changes are recorded.
    tracked: AtomicBool,
    /// Stripes that may have changes to be drained, one bit each.
    changed: [AtomicU64; WORDS],
}

/// A set of stripes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StripeSet([u64; WORDS]);

impl StripeSet {
    /// All of them.
    pub(crate) const ALL: StripeSet = StripeSet([u64::MAX; WORDS]);

    /// Adds one.
    pub(crate) fn insert(&mut self, stripe: usize) {
        if let Some(word) = self.0.get_mut(stripe / 64) {
            *word |= 1 << (stripe % 64);
        }
    }

    /// Takes one out, if it is there.
    pub(crate) fn remove(&mut self, stripe: usize) {
        if let Some(word) = self.0.get_mut(stripe / 64) {
            *word &= !(1 << (stripe % 64));
        }
    }

    /// Takes one out; `None` if there is none.
    pub(crate) fn pop(&mut self) -> Option<usize> {
        let word = self.0.iter().position(|&word| word != 0)?;
        let bit = self.0[word].trailing_zeros();
        self.0[word] &= self.0[word] - 1;
        Some(word * 64 + bit as usize)
    }

    /// Whether it is in it.
    #[cfg(test)]
    pub(crate) fn contains(&self, stripe: usize) -> bool {
        self.0.get(stripe / 64).is_some_and(|word| word >> (stripe % 64) & 1 == 1)
    }

    /// Whether there is none.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }
}

impl Striped {
    /// An empty one; `limits` are for all stripes together.
    pub(crate) fn new(limits: &Limits, seeds: Seeds) -> Striped {
        let share = limits.per_stripe(STRIPES);
        let tables = (0..STRIPES).map(|_| Mutex::new(Table::new(share, seeds))).collect();
        Striped(Arc::new(Stripes {
            tables,
            seeds,
            next: AtomicUsize::new(0),
            tracked: AtomicBool::new(false),
            changed: [const { AtomicU64::new(0) }; WORDS],
        }))
    }

    /// The stripe of an address-of-record.
    pub(crate) fn stripe_of(&self, aor: &[u8]) -> usize {
        stripe_of(aor, STRIPES, &self.0.seeds)
    }

    fn stripe(&self, aor: &[u8]) -> MutexGuard<'_, Table> {
        lock(&self.0.tables[self.stripe_of(aor)])
    }

    /// The same, for a change.
    fn change(&self, aor: &[u8]) -> MutexGuard<'_, Table> {
        let stripe = self.stripe_of(aor);
        let table = lock(&self.0.tables[stripe]);
        self.note_changed(stripe);
        table
    }

    /// Notes that a stripe may have changes. Called with the stripe locked, so that who takes the note before the change
    /// is made waits for it.
    fn note_changed(&self, stripe: usize) {
        if !self.0.tracked.load(Ordering::Relaxed) {
            return;
        }
        let (word, bit) = (&self.0.changed[stripe / 64], 1 << (stripe % 64));
        // Mostly it is noted already: then nobody's cache line is touched.
        if word.load(Ordering::Acquire) & bit == 0 {
            word.fetch_or(bit, Ordering::AcqRel);
        }
    }

    // --- for a store ---------------------------------------------------------------------------------------------------

    /// Brings the table to `now` while it is empty, so that it need not step there with bindings in it.
    pub(crate) fn begin(&self, now: Instant) {
        for table in &self.0.tables {
            lock(table).expire(now, 1);
        }
    }

    /// See [`Table::restore`].
    ///
    /// # Errors
    ///
    /// As that says.
    pub(crate) fn restore(&self, now: Instant, aor: &[u8], kept: &Kept<'_>) -> Result<(), Refusal> {
        self.change(aor).restore(now, aor, kept)
    }

    /// See [`Table::reconcile`].
    pub(crate) fn reconcile(&self, now: Instant, aor: &[u8], rows: &[Kept<'_>]) {
        self.change(aor).reconcile(now, aor, rows);
    }

    /// Records changes from now on. Bindings already held count as changed, unless they were restored. At most
    /// `removals_max` removed ones wait to be drained, over all stripes.
    pub(crate) fn track_changes(&self, removals_max: usize) {
        self.0.tracked.store(true, Ordering::Release);
        for (stripe, table) in self.0.tables.iter().enumerate() {
            let mut table = lock(table);
            table.track_changes(removals_max.div_ceil(STRIPES));
            self.note_changed(stripe);
        }
    }

    /// Gives each stripe the recorder of its changes. They are noted as changed from the first one on, if changes are
    /// recorded ([`Striped::track_changes`]).
    pub(crate) fn record_changes(&self, recorder: &mut dyn FnMut(usize) -> Box<dyn Recorder>) {
        for (stripe, table) in self.0.tables.iter().enumerate() {
            lock(table).record_changes(recorder(stripe));
        }
    }

    /// Runs `call` while nothing changes in these stripes, from the first on, which it does not touch itself. Nobody else may
    /// hold several.
    pub(crate) fn hold<const N: usize, T>(&self, first: usize, call: impl FnOnce() -> T) -> T {
        let _held: [_; N] = std::array::from_fn(|i| self.0.tables.get(first + i).map(lock));
        call()
    }

    /// Takes the set of stripes that may have changes, all of those made before included.
    pub(crate) fn take_changed(&self) -> StripeSet {
        let mut set = StripeSet::default();
        for (word, changed) in set.0.iter_mut().zip(&self.0.changed) {
            // Mostly there is nothing: then nobody's cache line is touched.
            if changed.load(Ordering::Acquire) != 0 {
                *word = changed.swap(0, Ordering::AcqRel);
            }
        }
        set
    }

    /// Visits at most `budget` changes of one stripe; see [`Table::drain_changes`].
    pub(crate) fn drain_changes(
        &self,
        stripe: usize,
        budget: usize,
        visit: &mut dyn FnMut(Change<'_>),
    ) -> Drained {
        match self.0.tables.get(stripe) {
            Some(table) => lock(table).drain_changes(budget, visit),
            None => Drained { changes: 0, left: 0, lost: false },
        }
    }

    /// Whether this contact of `aor` is bound.
    pub(crate) fn holds(&self, now: Instant, aor: &[u8], contact: &[u8]) -> bool {
        self.stripe(aor).lookup(now, aor).any(|binding| binding.contact() == contact)
    }

    /// Visits every binding of one stripe, in no order, expired ones included.
    pub(crate) fn visit(&self, stripe: usize, visit: impl FnMut(&Binding)) {
        if let Some(table) = self.0.tables.get(stripe) {
            lock(table).iter().for_each(visit);
        }
    }

    fn sum(&self, count: impl Fn(&Table) -> usize) -> usize {
        self.0.tables.iter().map(|s| count(&lock(s))).sum()
    }
}

/// A panic while a stripe was held is our bug; the bindings that it holds are worth more than stopping.
fn lock(stripe: &Mutex<Table>) -> MutexGuard<'_, Table> {
    stripe.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Location for Striped {
    fn register(
        &self,
        now: Instant,
        aor: &[u8],
        request: &Register<'_>,
        policy: &Policy,
        visit: &mut dyn FnMut(&Binding),
    ) -> Result<Registered, Refusal> {
        let mut table = self.change(aor);
        let done = table.register(now, aor, request, policy)?;
        table.lookup(now, aor).for_each(visit);
        Ok(done)
    }

    fn register_tentatively(
        &self,
        now: Instant,
        aor: &[u8],
        request: &Register<'_>,
        policy: &Policy,
        changed: &mut dyn FnMut(Changed<'_>),
    ) -> Result<Registered, Refusal> {
        self.change(aor).register_tentatively(now, aor, request, policy, changed)
    }

    fn lookup(&self, now: Instant, aor: &[u8], visit: &mut dyn FnMut(&Binding) -> ControlFlow<()>) -> usize {
        let mut visited = 0;
        for binding in self.stripe(aor).lookup(now, aor) {
            visited += 1;
            if visit(binding).is_break() {
                break;
            }
        }
        visited
    }

    fn remove(&self, now: Instant, aor: &[u8], contact: Option<&[u8]>) -> usize {
        self.change(aor).remove(now, aor, contact)
    }

    fn undo(&self, now: Instant, aor: &[u8], before: &[Binding], after: &[Binding]) -> bool {
        self.change(aor).undo(now, aor, before, after)
    }

    /// `budget` is shared by all stripes; the next call goes on where this one ended.
    fn expire(&self, now: Instant, budget: usize) -> usize {
        let first = self.0.next.load(Ordering::Relaxed);
        let mut removed = 0;
        for i in (first..first + STRIPES).map(|i| i % STRIPES) {
            let mut table = lock(&self.0.tables[i]);
            let gone = table.expire(now, budget - removed);
            if gone > 0 {
                self.note_changed(i);
            }
            drop(table);
            removed += gone;
            if removed >= budget {
                self.0.next.store(i, Ordering::Relaxed);
                break;
            }
        }
        removed
    }

    fn next_expiry(&self) -> Option<Instant> {
        self.0.tables.iter().filter_map(|s| lock(s).next_expiry()).min()
    }

    fn len(&self) -> usize {
        self.sum(Table::len)
    }

    fn aors(&self) -> usize {
        self.sum(Table::aors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use location::Update;

    const HOUR_SECS: u32 = 3_600;

    fn bind(striped: &Striped, aor: &str, now: Instant) {
        let update = Update { expires: Some(HOUR_SECS), ..Update::new(b"sip:phone@192.0.2.1", b"c", 1) };
        striped
            .register(now, aor.as_bytes(), &Register::Bind(&[update]), &Policy::default(), &mut |_| {})
            .unwrap();
    }

    #[test]
    fn stripes_make_one_table() {
        let striped = Striped::new(&Limits::default(), Seeds([1, 2, 3, 4]));
        for i in 0..1_000 {
            bind(&striped.clone(), &format!("sip:user{i}@example.com"), Instant::ZERO);
        }
        assert_eq!((striped.len(), striped.aors()), (1_000, 1_000));
        let mut seen = 0;
        let visited = striped.lookup(Instant::ZERO, b"sip:user7@example.com", &mut |_| {
            seen += 1;
            ControlFlow::Continue(())
        });
        assert_eq!((visited, seen), (1, 1));
    }

    #[test]
    fn only_stripes_with_changes_are_drained() {
        let striped = Striped::new(&Limits::default(), Seeds([1, 2, 3, 4]));
        bind(&striped, "sip:before@example.com", Instant::ZERO);
        assert!(striped.take_changed().is_empty(), "nothing is recorded unless it is asked for");
        striped.track_changes(1_000);
        assert_eq!(striped.take_changed(), StripeSet::ALL);
        for stripe in 0..STRIPES {
            let _ = striped.drain_changes(stripe, 100, &mut |_| {});
        }
        bind(&striped, "sip:user@example.com", Instant::ZERO);
        let mut changed = striped.take_changed();
        let stripe = striped.stripe_of(b"sip:user@example.com");
        assert!(changed.contains(stripe) && !changed.contains(stripe ^ 1));
        assert_eq!(changed.pop(), Some(stripe));
        assert_eq!((changed.pop(), changed.is_empty()), (None, true));
        let mut seen = 0;
        let drained = striped.drain_changes(stripe, 100, &mut |change| {
            seen += usize::from(matches!(change, Change::Saved(_)));
        });
        assert_eq!((seen, drained.left, drained.lost), (1, 0, false));
        assert!(striped.take_changed().is_empty());
    }

    #[test]
    fn expired_bindings_are_changes_too() {
        let striped = Striped::new(&Limits::default(), Seeds([1, 2, 3, 4]));
        striped.track_changes(1_000);
        bind(&striped, "sip:user@example.com", Instant::ZERO);
        let stripe = striped.stripe_of(b"sip:user@example.com");
        let _ = striped.drain_changes(stripe, 100, &mut |_| {});
        striped.take_changed();
        striped.expire(Instant::ZERO + std::time::Duration::from_secs(2 * u64::from(HOUR_SECS)), 100_000);
        assert!(striped.take_changed().contains(stripe));
        let mut removed = 0;
        let _ = striped.drain_changes(stripe, 100, &mut |change| {
            removed += usize::from(matches!(change, Change::Removed(_)));
        });
        assert_eq!(removed, 1);
    }

    #[test]
    fn expiry_stays_within_its_budget_and_goes_on_where_it_was() {
        let striped = Striped::new(&Limits::default(), Seeds([1, 2, 3, 4]));
        for i in 0..1_000 {
            bind(&striped, &format!("sip:user{i}@example.com"), Instant::ZERO);
        }
        let later = Instant::ZERO + std::time::Duration::from_secs(u64::from(HOUR_SECS) + 10);
        assert_eq!(striped.lookup(later, b"sip:user7@example.com", &mut |_| ControlFlow::Continue(())), 0);
        let mut calls = 0;
        while !striped.is_empty() {
            let before = striped.len();
            striped.expire(later, 100);
            assert!(before - striped.len() <= 100);
            calls += 1;
            assert!(calls < 100_000, "expiry does not come to an end");
        }
    }
}
