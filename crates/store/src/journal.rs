//! Changes that are on disk before their rows are: write-through at the price of an append.
//!
//! A row of a location table that changes costs a page of the table and one of an index, wherever they are.
//! So the changes of a batch are committed as one page of the table `strowger_journal`, written one after
//! another, and the rows follow later, each once however often it has changed since. Pages have a generation:
//! when all rows of a generation are written, its pages go, in the same transaction as the last of the rows.
//! Who starts after a crash first writes the rows of all pages that are left, in the order of the pages.
//!
//! ```text
//!  batch ──▶ page of generation 7 ──▶ gathered rows of generation 7
//!                                          │ enough of them, or old enough
//!                                          ▼
//!            pages of 6 go ◀── last ── rows of generation 6, some with each commit
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::batch::{Batch, Change, What, ruid_of};
use crate::location::Shape;
use crate::{Bindings, StoreError, Written};

mod page;

pub(crate) use page::Page;
use page::Pages;

/// The table of the pages.
pub(crate) const TABLE: &str = "strowger_journal";

/// A generation ends when so many rows are to be written, its pages have so many bytes, or the first of them is so
/// old.
const ROWS_MAX: usize = 50_000;
const BYTES_MAX: usize = 64 << 20;
const AGE_MAX: Duration = Duration::from_secs(10);

/// Rows of an ended generation that go with a commit are at least so many, and at least twice as many as the
/// commit adds: it is written before the next one ends.
const STEP_ROWS_MIN: usize = 256;

/// Rows written in one transaction where nobody waits for it.
const STEP_ROWS_IDLE: usize = 1_000;

/// Rows of pages that an earlier run has left, written in one transaction.
const RECOVER_ROWS: usize = 20_000;

/// Pages read at once.
pub(crate) const PAGES_READ: usize = 16;

/// What a transaction does to the journal beside what it does to location tables.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// New pages.
    pub(crate) pages: Vec<Page>,
    /// Tables whose pages of this generation and earlier ones go.
    pub(crate) trim: Option<(Vec<String>, i32)>,
}

impl Ledger {
    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.trim.is_none()
    }
}

/// What is in the journal and not yet in its tables. It belongs to one [`Bindings`].
#[derive(Debug)]
pub struct Journal {
    tables: Vec<String>,
    /// The generation of new pages.
    generation: i32,
    /// Its rows.
    gathered: Batch,
    /// When the first of them came.
    since: Instant,
    /// Bytes of its pages.
    bytes: usize,
    /// The rows of the generation before it that are still to be written.
    ended: Batch,
    /// Those of its rows that are under way; kept until they are committed.
    step: Batch,
}

impl Journal {
    /// Takes the next rows of the ended generation, or ends one.
    fn prepare(&mut self, rows: usize, age_max: Duration, now: Instant) -> Ledger {
        if !self.is_folding() && self.has_enough(age_max, now) {
            self.ended.clear();
            std::mem::swap(&mut self.gathered, &mut self.ended);
            self.generation += 1;
            self.bytes = 0;
        }
        if self.step.is_empty() {
            self.step.clear();
            self.ended.move_to(&mut self.step, rows);
        }
        let is_last = !self.step.is_empty() && self.ended.is_empty();
        let trim = is_last.then(|| (self.tables.clone(), self.generation - 1));
        Ledger { pages: Vec::new(), trim }
    }

    fn is_folding(&self) -> bool {
        !self.ended.is_empty() || !self.step.is_empty()
    }

    fn has_enough(&self, age_max: Duration, now: Instant) -> bool {
        !self.gathered.is_empty()
            && (self.gathered.len() >= ROWS_MAX
                || self.bytes >= BYTES_MAX
                || now.duration_since(self.since) >= age_max)
    }

    /// How many rows are in the journal only.
    #[must_use]
    pub fn len(&self) -> usize {
        self.gathered.len() + self.step.len() + self.ended.len()
    }

    /// Whether all rows are in their tables.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Bindings {
    /// Writes the rows that an earlier run has left in the journal of these tables, if there is one, and empties it;
    /// returns how many there were. To be called before the tables are loaded, whatever is done with them
    /// afterwards.
    ///
    /// # Errors
    ///
    /// As the database says; [`StoreError::Unfit`] for a page that is damaged.
    pub fn recover(&mut self, tables: &[String]) -> Result<u64, StoreError> {
        self.write_pages(tables, true)
    }

    /// The same without emptying it, for who only wants to look: it may be that of a server that runs elsewhere.
    ///
    /// # Errors
    ///
    /// As [`Bindings::recover`].
    pub fn catch_up(&mut self, tables: &[String]) -> Result<u64, StoreError> {
        self.write_pages(tables, false)
    }

    fn write_pages(&mut self, tables: &[String], trims: bool) -> Result<u64, StoreError> {
        if !self.has_journal()? {
            return Ok(0);
        }
        let mut written = 0;
        for table in tables {
            let (mut batch, mut after) = (Batch::default(), 0);
            loop {
                let pages = self.inner.pages(table, after)?;
                for (id, changes) in &pages {
                    let fits = page::read(table, changes, &mut batch);
                    fits.map_err(|why| damaged(&self.inner.place(), *id, table, &why))?;
                    after = *id;
                }
                if !pages.is_empty() && batch.len() < RECOVER_ROWS {
                    continue;
                }
                written += batch.len() as u64;
                // Until the last of their rows all pages stay: who is interrupted begins again.
                let is_end = pages.is_empty();
                let trim = (is_end && trims && after > 0).then(|| (vec![table.clone()], i32::MAX));
                let ledger = Ledger { pages: Vec::new(), trim };
                if !batch.is_empty() || !ledger.is_empty() {
                    for row in self.inner.write(&batch, &ledger)?.left_out {
                        let reason = row.reason;
                        tracing::error!(
                            "a binding of the journal cannot be stored in table {table}: {reason}"
                        );
                    }
                }
                batch.clear();
                if is_end {
                    break;
                }
            }
        }
        Ok(written)
    }

    /// The journal of these tables, which must be empty (see [`Bindings::recover`]); `None` where the
    /// database has no table for it. Rows are written to their tables within seconds.
    ///
    /// # Errors
    ///
    /// As the database says.
    pub fn journal(&mut self, tables: &[String]) -> Result<Option<Journal>, StoreError> {
        Ok(self.has_journal()?.then(|| Journal {
            tables: tables.to_vec(),
            generation: 1,
            gathered: Batch::default(),
            since: Instant::now(),
            bytes: 0,
            ended: Batch::default(),
            step: Batch::default(),
        }))
    }

    fn has_journal(&mut self) -> Result<bool, StoreError> {
        Ok(self.inner.has_table(TABLE)?)
    }

    /// Has changes on disk when it returns: in the journal. Rows that no table can hold are left out and named, as
    /// [`Bindings::write`] does it. Some rows of earlier changes are written to their tables in the same
    /// transaction.
    ///
    /// After an error it is called again with the same changes, and others after them, before anything else is
    /// written.
    ///
    /// # Errors
    ///
    /// As the database says.
    pub fn write_to<'a>(
        &mut self,
        journal: &mut Journal,
        changes: impl ExactSizeIterator<Item = Change<'a>>,
    ) -> Result<Written, StoreError> {
        let now = Instant::now();
        let mut ledger = journal.prepare(STEP_ROWS_MIN.max(changes.len() * 2), AGE_MAX, now);
        if journal.gathered.is_empty() {
            journal.since = now;
        }
        let mut written = Written::default();
        let mut pages = Pages::new(journal.generation);
        let mut shape: Option<(&str, Option<Arc<Shape>>)> = None;
        for Change { table, what, contact } in changes {
            if shape.as_ref().is_none_or(|(known, _)| *known != table) {
                shape = Some((table, self.inner.shape(table)?));
            }
            match what {
                What::Save => {
                    let shape = shape.as_ref().and_then(|(_, shape)| shape.as_deref());
                    let fits = |()| shape.map_or(Ok(()), |shape| shape.fit(&contact).map(drop));
                    if let Err(reason) = page::check(&contact).and_then(fits) {
                        written.leave_out(table, &contact, reason);
                        continue;
                    }
                    pages.save(table, &contact);
                    journal.gathered.save(table, &contact);
                }
                What::Remove => {
                    let ruid = ruid_of(table, &contact);
                    pages.remove(table, ruid);
                    journal.gathered.note_row(table, ruid, None);
                }
                What::RemoveRuid => {
                    pages.remove_ruid(table, contact.ruid);
                    journal.gathered.remove_ruid(table, contact.ruid);
                }
            }
            written.rows += 1;
        }
        ledger.pages = pages.end();
        journal.bytes += ledger.pages.iter().map(|page| page.changes.len()).sum::<usize>();
        let step = self.inner.write(&journal.step, &ledger)?;
        journal.step.clear();
        written.left_behind = step.left_out;
        Ok(written)
    }

    /// Writes some rows from the journal to their tables, if it is time or `all` shall be written; returns whether
    /// there are more.
    ///
    /// # Errors
    ///
    /// As the database says.
    pub fn fold(&mut self, journal: &mut Journal, all: bool) -> Result<(bool, Written), StoreError> {
        let age_max = if all { Duration::ZERO } else { AGE_MAX };
        let ledger = journal.prepare(STEP_ROWS_IDLE, age_max, Instant::now());
        if journal.step.is_empty() {
            return Ok((false, Written::default()));
        }
        let step = self.inner.write(&journal.step, &ledger)?;
        journal.step.clear();
        let more = journal.is_folding() || (all && !journal.is_empty());
        Ok((more, Written { rows: step.rows, left_out: Vec::new(), left_behind: step.left_out }))
    }
}

fn damaged(place: &str, id: i64, table: &str, why: &str) -> StoreError {
    StoreError::Unfit(format!(
        "page {id} of {TABLE} in {place} cannot be read ({why}): it holds the last changes of the table {table}, \
         which would be lost; restore a backup, or give them up with DELETE FROM {TABLE} WHERE table_name = \
         '{table}'"
    ))
}

#[cfg(test)]
mod tests;
