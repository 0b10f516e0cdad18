//! The persister where the database has a journal: what shards have recorded is committed, and rows follow.
//!
//! A generation of the journal's pages ends when they are large or old enough. Then the location table's own change log is
//! drained, stripe by stripe, some rows with each commit: it knows of every change that these pages hold, or of a later one of
//! the same contact. The last rows take the pages with them.
//!
//! Where records are missing, because there were too many while the database was away, the rows are written first: that is the
//! same, in one go.

use std::sync::atomic::Ordering;
use std::time::Instant as SystemClock;

use location::Change;
use store::{Records, What};

use super::{DRAIN_STEPS, Trouble, Worker, trouble_of};
use crate::persistence::metrics::Metrics;
use crate::persistence::recorder::{Recorders, SHEET_STRIPES, Taken};
use crate::persistence::{BATCH_ROWS_MAX, uptime_micros};
use crate::striped::{STRIPES, StripeSet};

/// Records of one commit; past it the rest is another one's.
const COMMIT_BYTES_MAX: usize = 8 << 20;

/// The rows of an ended generation go with commits in so many parts, each of at least so many rows: they are written before the
/// next generation ends, and no commit takes much longer for it.
const PARTS: usize = 200;
const STEP_ROWS_MIN: usize = 64;

/// The same of a commit that nobody waits for.
const STEP_ROWS_IDLE: usize = 1_000;

/// What is on its way into the journal, and out of it.
pub(super) struct Journaling {
    recorders: Recorders,
    /// Taken and not committed.
    records: Records,
    /// How many.
    changes: usize,
    /// The stripe that is drained next, while an ended generation is there.
    stripe: usize,
    /// Rows that go with a commit.
    step: usize,
    /// Records are missing.
    is_torn: bool,
}

impl Journaling {
    pub(super) fn new(recorders: Recorders) -> Journaling {
        Journaling { recorders, records: Records::default(), changes: 0, stripe: 0, step: 0, is_torn: false }
    }

    /// Changes taken and not committed.
    pub(super) fn changes(&self) -> usize {
        self.changes
    }

    /// Whether all rows of the ended generation are drained.
    fn is_drained(&self) -> bool {
        self.stripe >= STRIPES
    }
}

impl Worker {
    /// Commits everything that was recorded when it was called, and some rows.
    pub(super) fn flush_to_journal(&mut self) -> Result<(), Trouble> {
        if self.is_due() {
            self.end_generation();
        }
        loop {
            self.take_records();
            if self.journaling.as_ref().is_some_and(|journaling| journaling.is_torn) {
                return self.mend();
            }
            let recorded = self.journaling.as_ref().map_or(0, Journaling::changes);
            let step = self.journaling.as_ref().map_or(0, |journaling| journaling.step);
            self.drain_ended(if recorded == 0 { step.max(STEP_ROWS_IDLE) } else { step });
            self.commit_records()?;
            if self.todo == StripeSet::default() {
                break;
            }
        }
        if std::mem::take(&mut self.lost) {
            self.remove_stale().inspect_err(|_| self.lost = true)?;
        }
        Ok(())
    }

    /// When the journal wants to be worked on next, if nobody asks.
    pub(super) fn plan_fold(&mut self) {
        if let Some(journal) = self.keeper.journal() {
            let next = if journal.is_ending() { Some(SystemClock::now()) } else { journal.due_at() };
            self.next_flush = next.map_or(self.next_flush, |next| next.min(self.next_flush));
        }
    }

    /// At the end: brings all rows into their tables, as far as there is time. What is in the journal is not lost if there is
    /// not, or if it fails.
    pub(super) fn empty_journal(&mut self, until: SystemClock) {
        let has_pages = self.keeper.journal().is_some_and(|all| all.is_ending() || all.due_at().is_some());
        if has_pages {
            let _ = self.write_rows(Some(until));
        }
    }

    /// Changes that were recorded and are in no journal; `None` where there is none.
    pub(super) fn uncommitted(&mut self) -> Option<usize> {
        self.journaling.as_ref()?;
        self.discard_records();
        self.journaling.as_ref().map(Journaling::changes)
    }

    /// Takes all sheets, and counts only what was on them.
    fn discard_records(&mut self) {
        self.todo = StripeSet::ALL;
        while self.todo != StripeSet::default() {
            self.take_records();
            let Some(journaling) = &mut self.journaling else { return };
            journaling.records.clear();
        }
    }

    /// Whether the database cannot hold what was changed last of an address-of-record.
    pub(super) fn is_refused(&self, aor: &[u8]) -> bool {
        let recorders = self.journaling.as_ref().map(|journaling| &journaling.recorders);
        recorders.is_some_and(|recorders| recorders.take_refused(&self.location, aor, None))
    }

    fn is_due(&mut self) -> bool {
        let Some(journal) = self.keeper.journal() else { return false };
        !journal.is_ending() && journal.due_at().is_some_and(|due| due <= SystemClock::now())
    }

    /// What is recorded from now on is of the next generation; whatever changed before will be drained.
    fn end_generation(&mut self) {
        if let (Some(journal), Some(journaling)) = (self.keeper.journal(), &mut self.journaling) {
            journal.end_generation();
            journaling.stripe = 0;
            let rows = |stripe| self.location.drain_changes(stripe, 0, &mut |_| {}).left;
            journaling.step = STEP_ROWS_MIN.max((0..STRIPES).map(rows).sum::<usize>() / PARTS);
        }
    }

    /// Takes the sheets of stripes, until there is enough for a commit.
    fn take_records(&mut self) {
        let Worker { journaling: Some(journaling), location, todo, .. } = self else { return };
        let (mut refusals, mut why) = (0, String::new());
        while journaling.records.bytes() < COMMIT_BYTES_MAX
            && let Some(stripe) = todo.pop()
        {
            let first = stripe - stripe % SHEET_STRIPES;
            (first..first + SHEET_STRIPES).for_each(|stripe| todo.remove(stripe));
            let taken = journaling.recorders.take(location, first, &mut journaling.records);
            let Taken { changes, refusals: more, reason, is_overfull } = taken;
            journaling.changes += changes;
            journaling.is_torn |= is_overfull;
            if more > 0 {
                (refusals, why) = (refusals + more, reason);
            }
        }
        if refusals > 0 {
            self.say_left_out(refusals, &format!("in its table: {why}"));
        }
        self.note_pending();
    }

    /// Drains rows of the ended generation, unless there are some already.
    fn drain_ended(&mut self, rows: usize) {
        let is_ending = self.keeper.journal().is_some_and(|journal| journal.is_ending());
        let Worker { journaling: Some(journaling), changes, maker, location, lost, .. } = self else {
            return;
        };
        if !is_ending || !changes.is_empty() {
            return;
        }
        while changes.len() < rows && !journaling.is_drained() {
            let budget = DRAIN_STEPS.min(rows - changes.len());
            let drained = location.drain_changes(journaling.stripe, budget, &mut |change| match change {
                Change::Saved(binding) => changes.push(What::Save, binding, maker),
                Change::Removed(binding) => changes.push(What::Remove, binding, maker),
            });
            *lost |= drained.lost;
            if drained.left == 0 {
                journaling.stripe += 1;
            }
        }
    }

    /// Commits what was taken and drained.
    fn commit_records(&mut self) -> Result<(), Trouble> {
        let is_ending = self.keeper.journal().is_some_and(|journal| journal.is_ending());
        let Worker { journaling: Some(journaling), keeper, changes, .. } = self else { return Ok(()) };
        // Rows that have to be removed yet keep the pages that say so.
        let is_last = is_ending && journaling.is_drained() && !self.lost;
        if journaling.records.is_empty() && changes.is_empty() && !is_last {
            return Ok(());
        }
        self.metrics.busy_since.store(uptime_micros(self.time), Ordering::Relaxed);
        let is_torn = journaling.is_torn;
        let done = keeper.commit(&mut journaling.records, changes, is_last);
        self.metrics.busy_since.store(0, Ordering::Relaxed);
        match done {
            Ok(written) => {
                let recorded = std::mem::take(&mut journaling.changes);
                // Rows of what is in the journal were counted when they went there.
                let rows = if is_torn { changes.len() } else { recorded };
                journaling.records.clear();
                changes.clear();
                Metrics::add(&self.metrics.commits, 1);
                Metrics::add(&self.metrics.rows, rows as u64);
                self.last_turn.1 += rows;
                self.note_pending();
                self.recovered();
                if is_torn {
                    self.leave_out(&written.left_behind);
                } else {
                    self.leave_behind(&written.left_behind);
                }
                Ok(())
            }
            Err(error) => {
                Metrics::add(&self.metrics.failures, 1);
                Err(self.in_trouble(trouble_of(&error), &error))
            }
        }
    }

    /// Gives up what was recorded, and writes the rows of all that has changed instead.
    fn mend(&mut self) -> Result<(), Trouble> {
        self.discard_records();
        if let Some(journaling) = &mut self.journaling {
            journaling.changes = 0;
        }
        self.write_rows(None)?;
        if let Some(journaling) = &mut self.journaling {
            journaling.is_torn = false;
        }
        Ok(())
    }

    /// Writes the rows of all that has changed, as far as there is time, and removes all pages of the journal with the last.
    fn write_rows(&mut self, until: Option<SystemClock>) -> Result<(), Trouble> {
        self.end_generation();
        loop {
            self.drain_ended(BATCH_ROWS_MAX);
            if self.lost && self.journaling.as_ref().is_some_and(Journaling::is_drained) {
                self.commit_records()?;
                self.remove_stale()?;
                self.lost = false;
            }
            self.commit_records()?;
            let is_done = !self.keeper.journal().is_some_and(|journal| journal.is_ending());
            if is_done || until.is_some_and(|until| SystemClock::now() >= until) {
                return Ok(());
            }
        }
    }
}
