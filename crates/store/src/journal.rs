//! Changes that are on disk before their rows are: write-through at the price of an append.
//!
//! A row of a location table that changes costs a page of the table and one of an index, wherever they are.
//! So a change is written down as a record where it is made ([`Encoder`]), and the records of all who wait for a commit
//! are committed as one page, behind the one before: of the table `strowger_journal`, or of a file beside SQLite's
//! own. The rows follow later, from where the bindings are, each once however often it has changed since. Pages have a
//! generation: the rows of what had changed when it ended are all written, and its pages go with the last of them, in the
//! same transaction, or from a file right after it. Who starts after a crash first writes the rows of all pages that are
//! left, in the order of the pages.
//!
//! ```text
//!  change ──record──▶ Records ──▶ page of generation 7
//!                                          │ large enough, or old enough: it ends, 8 begins
//!                                          ▼
//!            pages of 7 go ◀── last ── rows of all that had changed, some with each commit
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::batch::{Batch, ruid_of};
use crate::location::Shape;
use crate::{Bindings, Contact, StoreError, Written};

mod page;

pub use page::{Draft, Records};
pub(crate) use page::{Page, texts};

/// The table of the pages.
pub(crate) const TABLE: &str = "strowger_journal";

/// A generation ends when its pages have so many bytes, or the first of them is so old.
const BYTES_MAX: usize = 128 << 20;
const AGE_MAX: Duration = Duration::from_secs(10);

/// Rows of pages that an earlier run has left, written in one transaction.
const RECOVER_ROWS: usize = 20_000;

/// Pages read at once.
pub(crate) const PAGES_READ: usize = 16;

/// What a transaction does to the journal beside what it does to location tables.
#[derive(Debug, Default)]
pub(crate) struct Ledger<'a> {
    /// New pages.
    pub(crate) pages: Vec<Page<'a>>,
    /// Tables whose pages of this generation and earlier ones go.
    pub(crate) trim: Option<(&'a [String], i32)>,
}

impl Ledger<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.trim.is_none()
    }
}

/// Writes changes down as the journal keeps them. It knows what the tables could hold when it was made; clones are
/// the same.
#[derive(Clone, Debug)]
pub struct Encoder {
    /// Name, and what it can hold: `None` if that is everything.
    tables: Vec<(String, Option<Arc<Shape>>)>,
}

impl Encoder {
    /// Appends the record of a binding that is new or has changed in the `table`th table.
    ///
    /// # Errors
    ///
    /// Why that table cannot hold it, in a sentence; nothing is appended.
    pub fn save(&self, table: usize, contact: &Contact<'_>, draft: &mut Draft) -> Result<(), String> {
        page::check(contact)?;
        let same = draft.same(contact);
        if let Some((_, Some(shape))) = self.tables.get(table)
            // What the row before had, the table can hold.
            && !shape.holds_plainly(contact, |text| same.text(text))
        {
            shape.fit(contact)?;
        }
        draft.save(contact, same);
        Ok(())
    }

    /// Appends the record of a binding that is gone.
    pub fn remove(&self, table: usize, contact: &Contact<'_>, draft: &mut Draft) {
        if let Some((name, _)) = self.tables.get(table) {
            draft.remove(ruid_of(name, contact));
        }
    }
}

/// How it stands with the journal of some tables. It belongs to one [`Bindings`].
#[derive(Debug)]
pub struct Journal {
    tables: Vec<String>,
    /// The generation of new pages.
    generation: i32,
    /// Bytes of its pages.
    bytes: usize,
    /// When the first of them was written.
    since: Option<Instant>,
    /// Whether the generation before it has pages.
    is_ending: bool,
}

impl Journal {
    /// When this generation is to end, at the latest; `None` while it has no page.
    #[must_use]
    pub fn due_at(&self) -> Option<Instant> {
        self.since.map(|since| if self.bytes >= BYTES_MAX { since } else { since + AGE_MAX })
    }

    /// Ends the generation. From now on the caller finds out what has changed, and gives the rows to
    /// [`Bindings::commit`], all of them; if it was about to do so for an earlier generation, it begins again, and the
    /// last row takes the pages of both.
    pub fn end_generation(&mut self) {
        self.is_ending = true;
        self.generation += 1;
        self.bytes = 0;
        self.since = None;
    }

    /// Whether the rows of an ended generation are being written.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.is_ending
    }
}

impl Bindings {
    /// Writes the rows that an earlier run has left in the journal of these tables, if there is one, and empties it;
    /// returns how many there were. To be called before the tables are loaded, by who has claimed them, whatever is done with
    /// them afterwards.
    ///
    /// # Errors
    ///
    /// As the database says; [`StoreError::Unfit`] for a page that is damaged.
    pub fn recover(&mut self, tables: &[String]) -> Result<u64, StoreError> {
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
                let trim = (is_end && after > 0).then(|| (std::slice::from_ref(table), i32::MAX));
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

    /// The journal of these tables, which must be empty (see [`Bindings::recover`]), and how to write changes
    /// down for it; `None` where the database has no table for it.
    ///
    /// # Errors
    ///
    /// As the database says.
    pub fn journal(&mut self, tables: &[String]) -> Result<Option<(Journal, Encoder)>, StoreError> {
        if !self.has_journal()? {
            return Ok(None);
        }
        let shaped = |name: &String| Ok((name.clone(), self.inner.shape(name)?));
        let encoder = Encoder { tables: tables.iter().map(shaped).collect::<Result<_, StoreError>>()? };
        let tables = tables.to_vec();
        let journal = Journal { tables, generation: 1, bytes: 0, since: None, is_ending: false };
        Ok(Some((journal, encoder)))
    }

    fn has_journal(&mut self) -> Result<bool, StoreError> {
        Ok(self.inner.has_table(TABLE)?)
    }

    /// Has records on disk when it returns, in the journal; and these rows in their tables, which are those of an ended
    /// generation ([`Journal::end_generation`]), with `is_last` the last of them: its pages go with it. Rows that a table
    /// does not take are named in [`Written::left_behind`].
    ///
    /// After an error it is called again with the same records and rows, and others after them, before
    /// anything else is written.
    ///
    /// # Errors
    ///
    /// As the database says.
    pub fn commit(
        &mut self,
        journal: &mut Journal,
        records: &mut Records,
        rows: &Batch,
        is_last: bool,
    ) -> Result<Written, StoreError> {
        let mut ledger = Ledger::default();
        let mut bytes = 0;
        for (table, page) in records.seal() {
            let Some(table) = journal.tables.get(table) else { continue };
            bytes += page.len();
            ledger.pages.push(Page { table, generation: journal.generation, changes: page });
        }
        if is_last {
            ledger.trim = Some((&journal.tables, journal.generation - 1));
        }
        if bytes > 0 {
            // Whatever becomes of it: it may be there.
            journal.since.get_or_insert_with(Instant::now);
        }
        if ledger.is_empty() && rows.is_empty() {
            return Ok(Written::default());
        }
        let written = self.inner.write(rows, &ledger)?;
        journal.bytes += bytes;
        journal.is_ending &= !is_last;
        Ok(Written { rows: written.rows, left_out: Vec::new(), left_behind: written.left_out })
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
