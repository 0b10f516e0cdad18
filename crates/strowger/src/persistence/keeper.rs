//! Who keeps the rows: a database in the server, something that fails on purpose in tests.

use std::ops::Range;

use modules::DbMode;
use store::{Batch, Bindings, Contact, Encoder, Journal, Records, StoreError, Written};

use super::changes::Changes;

/// Location tables, for the persister's thread.
pub(crate) trait Keeper: Send {
    /// Writes these changes in one transaction: all or nothing, but for rows that no table could hold.
    ///
    /// # Errors
    ///
    /// As [`Bindings::write`].
    fn write(&mut self, changes: &Changes, range: Range<usize>) -> Result<Written, StoreError>;

    /// How changes are written down for its journal; `None` if it has none.
    fn encoder(&self) -> Option<Encoder> {
        None
    }

    /// Its journal.
    fn journal(&mut self) -> Option<&mut Journal> {
        None
    }

    /// Commits records to the journal, and rows to their tables; see [`Bindings::commit`]. Without a journal there are no
    /// records.
    ///
    /// # Errors
    ///
    /// As that says.
    fn commit(
        &mut self,
        _records: &mut Records,
        rows: &Changes,
        _is_last: bool,
    ) -> Result<Written, StoreError> {
        self.write(rows, 0..rows.len())
    }

    /// See [`Bindings::read`].
    ///
    /// # Errors
    ///
    /// As that says.
    fn read(
        &mut self,
        table: &str,
        username: &[u8],
        domain: &[u8],
        visit: &mut dyn FnMut(&Contact<'_>),
    ) -> Result<(), StoreError>;

    /// See [`Bindings::load`].
    ///
    /// # Errors
    ///
    /// As that says.
    fn load(
        &mut self,
        table: &str,
        now_unix_micros: u64,
        progress: &mut dyn FnMut(u64, u64),
        visit: &mut dyn FnMut(&Contact<'_>) -> bool,
    ) -> Result<u64, StoreError>;
}

/// A database.
#[derive(Debug)]
pub(crate) struct DatabaseKeeper {
    bindings: Bindings,
    /// Where changes are before they are in their tables, if it has one, and how they get there.
    journal: Option<(Journal, Encoder)>,
    /// Used again from transaction to transaction.
    batch: Batch,
}

impl DatabaseKeeper {
    /// Takes the tables from whoever wrote them, and brings them up to date with what an earlier run has left in the
    /// journal. In write-through mode commits go there from now on, if the database has one, and rows follow within seconds.
    ///
    /// # Errors
    ///
    /// As [`Bindings::recover`].
    pub(crate) fn new(
        mut bindings: Bindings,
        tables: &[String],
        mode: DbMode,
    ) -> Result<DatabaseKeeper, StoreError> {
        // In db_mode 3 others write them, too.
        if mode != DbMode::DatabaseOnly {
            for other in bindings.take_over(tables)? {
                tracing::warn!("another server wrote these tables ({other}); its connection has been ended");
            }
        }
        let recovered = bindings.recover(tables)?;
        if recovered > 0 {
            tracing::info!("the journal held {recovered} changes of bindings; they are in their tables now");
        }
        let journal = if mode == DbMode::WriteThrough { bindings.journal(tables)? } else { None };
        Ok(DatabaseKeeper { bindings, journal, batch: Batch::default() })
    }

    /// Whether commits go to a journal.
    pub(crate) fn has_journal(&self) -> bool {
        self.journal.is_some()
    }
}

impl Keeper for DatabaseKeeper {
    fn write(&mut self, changes: &Changes, range: Range<usize>) -> Result<Written, StoreError> {
        self.batch.clear();
        changes.rows(range).for_each(|change| self.batch.note(&change));
        self.bindings.write(&self.batch)
    }

    fn encoder(&self) -> Option<Encoder> {
        self.journal.as_ref().map(|(_, encoder)| encoder.clone())
    }

    fn journal(&mut self) -> Option<&mut Journal> {
        self.journal.as_mut().map(|(journal, _)| journal)
    }

    fn commit(
        &mut self,
        records: &mut Records,
        rows: &Changes,
        is_last: bool,
    ) -> Result<Written, StoreError> {
        let Some((journal, _)) = &mut self.journal else { return self.write(rows, 0..rows.len()) };
        self.batch.clear();
        rows.rows(0..rows.len()).for_each(|change| self.batch.note(&change));
        self.bindings.commit(journal, records, &self.batch, is_last)
    }

    fn read(
        &mut self,
        table: &str,
        username: &[u8],
        domain: &[u8],
        visit: &mut dyn FnMut(&Contact<'_>),
    ) -> Result<(), StoreError> {
        self.bindings.read(table, username, domain, visit)
    }

    fn load(
        &mut self,
        table: &str,
        now_unix_micros: u64,
        progress: &mut dyn FnMut(u64, u64),
        visit: &mut dyn FnMut(&Contact<'_>) -> bool,
    ) -> Result<u64, StoreError> {
        self.bindings.load(table, now_unix_micros, progress, visit)
    }
}
