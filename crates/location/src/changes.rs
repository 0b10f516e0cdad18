//! What changed since the last flush, for a store that keeps bindings beyond the process.
//!
//! Nothing is recorded until it is asked for. A changed binding costs four bytes however often it changes; a
//! removed one is kept until it is drained, if it had ever been drained as saved.

use crate::binding::Binding;
use crate::slots::{DIRTY, FLUSHED, LIVE, QUEUED, Slots};
use alloc::collections::VecDeque;

/// One change to bring to the store. Apply them in the order that they are drained in.
#[derive(Debug)]
pub enum Change<'a> {
    /// The binding is new or was updated; it replaces what is stored for its address-of-record and contact.
    Saved(&'a Binding),
    /// What is stored for this address-of-record and contact is to be deleted.
    Removed(&'a Binding),
}

/// What [`Table::drain_changes`](crate::Table::drain_changes) did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Drained {
    /// Changes visited.
    pub changes: usize,
    /// Changes that may still wait.
    pub left: usize,
    /// More removals came than the log may hold, and some were forgotten: the store must be written anew from
    /// [`Table::iter`](crate::Table::iter). Said once.
    pub lost: bool,
}

/// The change log.
pub(crate) struct Log {
    queue: VecDeque<u32>,
    gone: VecDeque<Binding>,
    gone_max: usize,
    lost: bool,
}

impl Log {
    pub(crate) fn new(gone_max: usize) -> Log {
        Log { queue: VecDeque::new(), gone: VecDeque::new(), gone_max, lost: false }
    }

    /// The binding in this slot is new or changed. Each slot waits at most once.
    pub(crate) fn saved(&mut self, slots: &mut Slots, index: u32) {
        let slot = slots.get_mut(index);
        if slot.marks & QUEUED == 0 {
            self.queue.push_back(index);
        }
        slot.marks |= DIRTY | QUEUED;
    }

    /// This binding was removed from a slot with `marks`.
    pub(crate) fn removed(&mut self, marks: u8, binding: Binding) {
        if marks & FLUSHED == 0 {
            return;
        }
        if self.gone.len() < self.gone_max {
            self.gone.push_back(binding);
        } else {
            self.lost = true;
        }
    }

    /// Visits at most `budget` changes, removals first, so that a contact removed and bound again stays.
    pub(crate) fn drain(
        &mut self,
        slots: &mut Slots,
        budget: usize,
        visit: &mut dyn FnMut(Change<'_>),
    ) -> Drained {
        let mut changes = 0;
        for _ in 0..budget {
            if let Some(binding) = self.gone.pop_front() {
                visit(Change::Removed(&binding));
                changes += 1;
            } else if let Some(index) = self.queue.pop_front() {
                let slot = slots.get_mut(index);
                let dirty = slot.marks & (LIVE | DIRTY) == LIVE | DIRTY;
                slot.marks &= !(DIRTY | QUEUED);
                if dirty {
                    slot.marks |= FLUSHED;
                    visit(Change::Saved(&slot.binding));
                    changes += 1;
                }
            } else {
                break;
            }
        }
        let left = self.gone.len() + self.queue.len();
        Drained { changes, left, lost: core::mem::take(&mut self.lost) }
    }
}
