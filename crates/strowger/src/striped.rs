//! The location table that all shards share: stripes of it, each behind its own lock.
//!
//! A REGISTER or a look-up takes one lock for well under a microsecond; with many more stripes than shards two
//! shards rarely meet. No lock is held while another is taken.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use location::{Binding, Limits, Location, Policy, Refusal, Register, Registered, Seeds, Table, stripe_of};
use sip::Instant;

/// Stripes of the table. Many more than shards, so that two rarely want the same.
const STRIPES: usize = 256;

/// The shared location service.
pub(crate) struct Striped {
    stripes: Box<[Mutex<Table>]>,
    seeds: Seeds,
    /// The stripe at which the next [`Location::expire`] begins.
    next: AtomicUsize,
}

impl Striped {
    /// An empty one; `limits` are for all stripes together.
    pub(crate) fn new(limits: &Limits, seeds: Seeds) -> Striped {
        let share = Limits {
            bindings_max: limits.bindings_max.div_ceil(STRIPES),
            bytes_max: limits.bytes_max.div_ceil(STRIPES),
            ..*limits
        };
        let stripes = (0..STRIPES).map(|_| Mutex::new(Table::new(share, seeds))).collect();
        Striped { stripes, seeds, next: AtomicUsize::new(0) }
    }

    fn stripe(&self, aor: &[u8]) -> MutexGuard<'_, Table> {
        lock(&self.stripes[stripe_of(aor, STRIPES, &self.seeds)])
    }

    fn sum(&self, count: impl Fn(&Table) -> usize) -> usize {
        self.stripes.iter().map(|s| count(&lock(s))).sum()
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
        let first = self.next.load(Ordering::Relaxed);
        let mut removed = 0;
        for i in (first..first + STRIPES).map(|i| i % STRIPES) {
            removed += lock(&self.stripes[i]).expire(now, budget - removed);
            if removed >= budget {
                self.next.store(i, Ordering::Relaxed);
                break;
            }
        }
        removed
    }

    fn next_expiry(&self) -> Option<Instant> {
        self.stripes.iter().filter_map(|s| lock(s).next_expiry()).min()
    }

    fn len(&self) -> usize {
        self.sum(Table::len)
    }

    fn aors(&self) -> usize {
        self.sum(Table::aors)
    }
}
