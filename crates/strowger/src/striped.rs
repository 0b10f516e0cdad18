//! The location table that all shards share: stripes of it, each behind its own lock.
//!
//! A REGISTER or a look-up takes one lock for well under a microsecond; with many more stripes than shards two
//! shards rarely meet. No lock is held while another is taken.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use location::{Binding, Limits, Location, Policy, Refusal, Register, Registered, Seeds, Table, stripe_of};
use sip::Instant;

/// Stripes of the table. Many more than shards, so that two rarely want the same.
const STRIPES: usize = 256;

/// The shared location service; clones are the same one.
#[derive(Clone)]
pub(crate) struct Striped(Arc<Stripes>);

struct Stripes {
    tables: Box<[Mutex<Table>]>,
    seeds: Seeds,
    /// The stripe at which the next [`Location::expire`] begins.
    next: AtomicUsize,
}

impl Striped {
    /// An empty one; `limits` are for all stripes together.
    pub(crate) fn new(limits: &Limits, seeds: Seeds) -> Striped {
        let share = limits.per_stripe(STRIPES);
        let tables = (0..STRIPES).map(|_| Mutex::new(Table::new(share, seeds))).collect();
        Striped(Arc::new(Stripes { tables, seeds, next: AtomicUsize::new(0) }))
    }

    fn stripe(&self, aor: &[u8]) -> MutexGuard<'_, Table> {
        lock(&self.0.tables[stripe_of(aor, STRIPES, &self.0.seeds)])
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
        let mut table = self.stripe(aor);
        let done = table.register(now, aor, request, policy)?;
        table.lookup(now, aor).for_each(visit);
        Ok(done)
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
        self.stripe(aor).remove(now, aor, contact)
    }

    /// `budget` is shared by all stripes; the next call goes on where this one ended.
    fn expire(&self, now: Instant, budget: usize) -> usize {
        let first = self.0.next.load(Ordering::Relaxed);
        let mut removed = 0;
        for i in (first..first + STRIPES).map(|i| i % STRIPES) {
            removed += lock(&self.0.tables[i]).expire(now, budget - removed);
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
