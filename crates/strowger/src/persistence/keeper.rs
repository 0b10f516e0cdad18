//! Who keeps the rows: a database in the server, something that fails on purpose in tests.

use std::ops::Range;

use modules::DbMode;
use store::{Batch, Bindings, Contact, Journal, StoreError, Written};

use super::changes::Changes;

/// Location tables, for the persister's thread.
pub(crate) trait Keeper: Send {
    /// Writes these changes in one transaction: all or nothing, but for rows that no table could hold.
    ///
    /// # Errors
    ///
    /// As [`Bindings::write`].
    fn write(&mut self, changes: &Changes, range: Range<usize>) -> Result<Written, StoreError>;

    /// Writes some of the rows that a journal is ahead of its tables, if it is time or `all` shall be written; returns whether
    /// there are more.
    ///
    /// # Errors
    ///
    /// As [`Bindings::fold`].
    fn fold(&mut self, _all: bool) -> Result<(bool, Written), StoreError> {
        Ok((false, Written::default()))
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
    /// Where changes are before they are in their tables, if it has one.
    journal: Option<Journal>,
    /// Used again from transaction to transaction.
    batch: Batch,
}

impl DatabaseKeeper {
    /// Brings the tables up to date with what an earlier run has left in the journal. In write-through mode commits go
    /// there from now on, if the database has one, and rows follow within seconds.
    ///
    /// # Errors
    ///
    /// As [`Bindings::recover`].
    pub(crate) fn new(
        mut bindings: Bindings,
        tables: &[String],
        mode: DbMode,
    ) -> Result<DatabaseKeeper, StoreError> {
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

    /// Who reads the tables finds all that was committed.
    fn fold_all(&mut self) -> Result<(), StoreError> {
        while self.fold(true)?.0 {}
        Ok(())
    }
}

impl Keeper for DatabaseKeeper {
    fn write(&mut self, changes: &Changes, range: Range<usize>) -> Result<Written, StoreError> {
        if let Some(journal) = &mut self.journal {
            return self.bindings.write_to(journal, changes.rows(range));
        }
        self.batch.clear();
        changes.rows(range).for_each(|change| self.batch.note(&change));
        self.bindings.write(&self.batch)
    }

    fn fold(&mut self, all: bool) -> Result<(bool, Written), StoreError> {
        match &mut self.journal {
            Some(journal) => self.bindings.fold(journal, all),
            None => Ok((false, Written::default())),
        }
    }

    fn read(
        &mut self,
        table: &str,
        username: &[u8],
        domain: &[u8],
        visit: &mut dyn FnMut(&Contact<'_>),
    ) -> Result<(), StoreError> {
        self.fold_all()?;
        self.bindings.read(table, username, domain, visit)
    }

    fn load(
        &mut self,
        table: &str,
        now_unix_micros: u64,
        progress: &mut dyn FnMut(u64, u64),
        visit: &mut dyn FnMut(&Contact<'_>) -> bool,
    ) -> Result<u64, StoreError> {
        self.fold_all()?;
        self.bindings.load(table, now_unix_micros, progress, visit)
    }
}
