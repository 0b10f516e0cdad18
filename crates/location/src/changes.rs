//! What changed since the last flush, for a store that keeps bindings beyond the process.
//!
//! Nothing is recorded until it is asked for. A changed binding costs four bytes however often it changes; a
//! removed one is kept until it is drained, if the store may hold it.
//!
//! # What a persister does
//!
//! 1. Before anything is bound: [`Table::track_changes`], then [`Table::restore`] for every row of the store.
//! 2. To flush: take the questions that wait for their commit, *then* drain ([`Table::drain_changes`]) every table into
//!    one batch, write it in one transaction, and answer the questions. A change is made before its question is asked,
//!    so that what a question is about is in the batch, or in one before it.
//! 3. Changes are applied in the order in which they are drained, batches in the order in which they were filled. A
//!    [`Change::Saved`] replaces whatever the store holds for that address-of-record and contact; a [`Change::Removed`] of
//!    what is not there is no error. So a batch may be written twice: "I do not know whether it was committed" is
//!    answered by writing it again.
//! 4. A batch that could not be written is kept, whatever its questions were answered, and written again before anything
//!    else is. What has been drained is the persister's: it does not come again. Nothing is drained meanwhile: a binding
//!    that changes a hundred times while the store is away is one change of the next batch.
//! 5. A REGISTER whose commit failed is undone by its registrar ([`Table::undo`]). That is a change like any other, and
//!    comes in a later batch than the one that failed: whether or not that took effect in the end, the store ends with
//!    what was before.
//! 6. [`Drained::lost`]: throw the batch away, [`Table::drain_all`] of every table, and write that in place of all that
//!    the store holds, in one transaction.
//!
//! A store with a journal has each change as it is made instead, from a [`Recorder`], and drains from time to time only: what
//! was drained after a change was recorded holds that change, or a later one.
//!
//! A batch may be cut anywhere: a removal never comes before the save that it makes way for, so that a store that is
//! read between two batches has a contact too many rather than one too few.

use crate::binding::Binding;
use crate::slots::{DIRTY, FLUSHED, LIVE, QUEUED, Slots};
use crate::table::Table;
use alloc::boxed::Box;
use alloc::collections::VecDeque;

/// One change to bring to the store. Apply them in the order that they are drained in.
#[derive(Debug)]
pub enum Change<'a> {
    /// The binding is new or was updated; it replaces what is stored for its address-of-record and contact.
    Saved(&'a Binding),
    /// What is stored for this address-of-record and contact is to be deleted.
    Removed(&'a Binding),
}

/// Is told of every change of a table when it is made, in that order, while the table is held: for a journal.
///
/// It hears of each save and of each removal, also of those that make way for another, end by their time, or are undone.
pub trait Recorder: Send + Sync {
    /// The binding has just been saved, or is about to be gone.
    fn record(&mut self, change: Change<'_>);
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
    /// [`Table::drain_all`](crate::Table::drain_all). Said once.
    pub lost: bool,
}

/// A removed binding that the store may hold.
struct Gone {
    binding: Binding,
    /// How many slots must have left the queue before this does: those queued before it, and the one queued next.
    turn: u64,
}

/// The change log.
pub(crate) struct Log {
    queue: VecDeque<u32>,
    /// Slots that have ever left the queue.
    popped: u64,
    gone: VecDeque<Gone>,
    gone_max: usize,
    lost: bool,
}

/// What is drained next.
enum Next {
    Slot(u32),
    Gone(Binding),
    Nothing,
}

impl Log {
    pub(crate) fn new(gone_max: usize) -> Log {
        Log { queue: VecDeque::new(), popped: 0, gone: VecDeque::new(), gone_max, lost: false }
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
            let turn = self.popped + self.queue.len() as u64 + 1;
            self.gone.push_back(Gone { binding, turn });
        } else {
            self.lost = true;
        }
    }

    /// Whether the removal of this contact has not been drained yet.
    pub(crate) fn is_leaving(&self, aor: &[u8], contact: &[u8]) -> bool {
        self.gone.iter().any(|gone| gone.binding.contact() == contact && gone.binding.aor() == aor)
    }

    fn next(&mut self) -> Next {
        let due = |gone: &Gone| gone.turn <= self.popped || self.queue.is_empty();
        if self.gone.front().is_some_and(due)
            && let Some(gone) = self.gone.pop_front()
        {
            return Next::Gone(gone.binding);
        }
        match self.queue.pop_front() {
            Some(index) => {
                self.popped += 1;
                Next::Slot(index)
            }
            None => Next::Nothing,
        }
    }
}

impl Table {
    /// Starts to record changes, unless it has; every binding already held counts as changed, but those that
    /// [`Table::restore`] made. At most `removals_max` removed bindings wait to be drained; past that,
    /// [`Drained::lost`] is said.
    pub fn track_changes(&mut self, removals_max: usize) {
        if self.log.is_some() {
            return;
        }
        let mut log = Box::new(Log::new(removals_max));
        let unknown = |marks: u8| marks & FLUSHED == 0 || marks & DIRTY != 0;
        let held = self.slots.iter().filter(|(_, slot)| unknown(slot.marks)).map(|(index, _)| index);
        for index in held.collect::<alloc::vec::Vec<_>>() {
            log.saved(&mut self.slots, index);
        }
        self.log = Some(log);
    }

    /// Tells `recorder` of every change from now on.
    pub fn record_changes(&mut self, recorder: Box<dyn Recorder>) {
        self.recorder = Some(recorder);
    }

    /// Visits at most `budget` recorded changes, which then are the visitor's to keep: see the rules in this module's
    /// source, "What a persister does".
    pub fn drain_changes(&mut self, budget: usize, visit: &mut dyn FnMut(Change<'_>)) -> Drained {
        let Some(mut log) = self.log.take() else { return Drained { changes: 0, left: 0, lost: false } };
        let mut changes = 0;
        for _ in 0..budget {
            match log.next() {
                Next::Gone(binding) => match self.exactly(binding.aor(), binding.contact()) {
                    // What is bound again has replaced it in the store already, or will; until then the store holds it.
                    Some(index) => self.slots.get_mut(index).marks |= FLUSHED,
                    None => {
                        visit(Change::Removed(&binding));
                        changes += 1;
                    }
                },
                Next::Slot(index) => {
                    let slot = self.slots.get_mut(index);
                    let dirty = slot.marks & (LIVE | DIRTY) == LIVE | DIRTY;
                    slot.marks &= !(DIRTY | QUEUED);
                    if dirty {
                        slot.marks |= FLUSHED;
                        visit(Change::Saved(&slot.binding));
                        changes += 1;
                    }
                }
                Next::Nothing => break,
            }
        }
        let left = log.gone.len() + log.queue.len();
        let lost = core::mem::take(&mut log.lost);
        self.log = Some(log);
        Drained { changes, left, lost }
    }

    /// Visits every binding held, as if all had changed, and forgets all changes recorded so far: what the store is
    /// written anew from. Returns how many there are. Without [`Table::track_changes`] it does nothing.
    pub fn drain_all(&mut self, visit: &mut dyn FnMut(&Binding)) -> usize {
        let Some(log) = &mut self.log else { return 0 };
        log.gone.clear();
        log.lost = false;
        for index in log.queue.drain(..) {
            log.popped += 1;
            self.slots.get_mut(index).marks &= !(DIRTY | QUEUED);
        }
        let mut visited = 0;
        for slot in self.slots.iter_mut() {
            slot.marks |= FLUSHED;
            visit(&slot.binding);
            visited += 1;
        }
        visited
    }
}
