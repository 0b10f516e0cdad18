//! Who keeps the rows: a database in the server, something that fails on purpose in tests.

use std::ops::Range;

use store::{Batch, Bindings, Contact, StoreError, Written};

use super::changes::{Changes, What};

/// Location tables, for the persister's thread.
pub(crate) trait Keeper: Send {
    /// Writes these changes in one transaction: all or nothing, but for rows that no table could hold.
    ///
    /// # Errors
    ///
    /// As [`Bindings::write`].
    fn write(&mut self, changes: &Changes, range: Range<usize>) -> Result<Written, StoreError>;

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
    /// Used again from transaction to transaction.
    batch: Batch,
}

impl DatabaseKeeper {
    pub(crate) fn new(bindings: Bindings) -> DatabaseKeeper {
        DatabaseKeeper { bindings, batch: Batch::default() }
    }
}

impl Keeper for DatabaseKeeper {
    fn write(&mut self, changes: &Changes, range: Range<usize>) -> Result<Written, StoreError> {
        self.batch.clear();
        for row in changes.rows(range) {
            match row.what {
                What::Save => self.batch.save(row.table, &row.contact),
                What::Remove => self.batch.remove(row.table, &row.contact),
                What::RemoveForeign => self.batch.remove_ruid(row.table, row.contact.contact),
            }
        }
        self.bindings.write(&self.batch)
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
