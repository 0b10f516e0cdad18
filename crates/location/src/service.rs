//! The location service as its users see it, whoever shares it (RFC 3261 §10.3, §16.5).

use crate::binding::Binding;
use crate::policy::{Limits, Policy};
use crate::request::{Refusal, Register};
use crate::table::{Changed, Registered, Seeds, Table};
use ahash::RandomState;
use core::cell::RefCell;
use core::ops::ControlFlow;
use sip::Instant;

/// What a registrar writes and a proxy reads.
///
/// Visitors run while the table is held: they copy out what they need and never call back into it. An
/// implementation that threads share is also `Sync`; users that need that say so in their bounds.
pub trait Location {
    /// Applies a REGISTER completely or not at all, then visits what is bound, in the order of
    /// [`lookup`](Location::lookup), with nothing in between: the Contact values of the 200 (RFC 3261 §10.3
    /// step 8).
    ///
    /// # Errors
    ///
    /// A [`Refusal`]; nothing was changed and nothing visited.
    fn register(
        &self,
        now: Instant,
        aor: &[u8],
        request: &Register<'_>,
        policy: &Policy,
        visit: &mut dyn FnMut(&Binding),
    ) -> Result<Registered, Refusal>;

    /// The same for a REGISTER that may have to be undone: `changed` is told each binding that it changes or removes as it
    /// was, and each that it binds or changes as it is, or more than those, which are kept for [`undo`](Location::undo); and
    /// then all that are bound. If it is refused, nothing of that happened.
    ///
    /// An implementation that threads share overrides this, so that nothing comes between.
    ///
    /// # Errors
    ///
    /// A [`Refusal`]; nothing was changed.
    fn register_tentatively(
        &self,
        now: Instant,
        aor: &[u8],
        request: &Register<'_>,
        policy: &Policy,
        changed: &mut dyn FnMut(Changed<'_>),
    ) -> Result<Registered, Refusal> {
        self.lookup(now, aor, &mut |binding| {
            changed(Changed::Before(binding));
            ControlFlow::Continue(())
        });
        self.register(now, aor, request, policy, &mut |binding| {
            changed(Changed::After(binding));
            changed(Changed::Bound(binding));
        })
    }

    /// Visits the bindings of `aor` that exist at `now`, by falling q, newest first, until told to break; returns
    /// how many it visited.
    fn lookup(&self, now: Instant, aor: &[u8], visit: &mut dyn FnMut(&Binding) -> ControlFlow<()>) -> usize;

    /// Removes one contact of `aor`, or all, whatever their Call-ID and CSeq; returns how many.
    fn remove(&self, now: Instant, aor: &[u8], contact: Option<&[u8]>) -> usize;

    /// Undoes what one REGISTER did to `aor`, because its store could not keep it: "all tentative binding updates MUST be
    /// removed" (RFC 3261 §10.3 step 7). `before` is what was bound before it, `after` what it left, as far as either
    /// existed; returns whether it was undone wholly, which it is not if something else has changed one of its contacts since:
    /// what that made of the contact stays.
    fn undo(&self, now: Instant, aor: &[u8], before: &[Binding], after: &[Binding]) -> bool;

    /// Removes what expired, in at most `budget` steps; returns how many bindings were removed.
    fn expire(&self, now: Instant, budget: usize) -> usize;

    /// When [`expire`](Location::expire) next has something to do; `None` while nothing is held.
    fn next_expiry(&self) -> Option<Instant>;

    /// Bindings held.
    fn len(&self) -> usize;

    /// Whether nothing is held.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Addresses-of-record that have a binding.
    fn aors(&self) -> usize;
}

/// A location service for one thread: the simulator's, the bare image's, a test's.
pub struct Local(RefCell<Table>);

impl Local {
    /// An empty one.
    pub fn new(limits: Limits, seeds: Seeds) -> Local {
        Local(RefCell::new(Table::new(limits, seeds)))
    }

    /// The table itself.
    pub fn table(&mut self) -> &mut Table {
        self.0.get_mut()
    }
}

impl Location for Local {
    fn register(
        &self,
        now: Instant,
        aor: &[u8],
        request: &Register<'_>,
        policy: &Policy,
        visit: &mut dyn FnMut(&Binding),
    ) -> Result<Registered, Refusal> {
        let mut table = self.0.borrow_mut();
        let done = table.register(now, aor, request, policy)?;
        if done.bindings > 0 {
            table.lookup(now, aor).for_each(visit);
        }
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
        self.0.borrow_mut().register_tentatively(now, aor, request, policy, changed)
    }

    fn lookup(&self, now: Instant, aor: &[u8], visit: &mut dyn FnMut(&Binding) -> ControlFlow<()>) -> usize {
        let mut visited = 0;
        for binding in self.0.borrow().lookup(now, aor) {
            visited += 1;
            if visit(binding).is_break() {
                break;
            }
        }
        visited
    }

    fn remove(&self, now: Instant, aor: &[u8], contact: Option<&[u8]>) -> usize {
        self.0.borrow_mut().remove(now, aor, contact)
    }

    fn undo(&self, now: Instant, aor: &[u8], before: &[Binding], after: &[Binding]) -> bool {
        self.0.borrow_mut().undo(now, aor, before, after)
    }

    fn expire(&self, now: Instant, budget: usize) -> usize {
        self.0.borrow_mut().expire(now, budget)
    }

    fn next_expiry(&self) -> Option<Instant> {
        self.0.borrow().next_expiry()
    }

    fn len(&self) -> usize {
        self.0.borrow().len()
    }

    fn aors(&self) -> usize {
        self.0.borrow().aors()
    }
}

/// The stripe of `aor` among `stripes` tables, each behind its own lock; 0 if there are none.
///
/// The hash is keyed by `seeds`, so that no client can choose its stripe, and is not the one that the tables use.
pub fn stripe_of(aor: &[u8], stripes: usize, seeds: &Seeds) -> usize {
    let Seeds([a, b, c, d]) = *seeds;
    // Turned by one place: the same seeds may key the tables too.
    let hash = RandomState::with_seeds(d, a, b, c).hash_one(aor);
    ((u128::from(hash) * stripes as u128) >> 64) as usize
}
