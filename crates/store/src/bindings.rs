//! Bindings in `location` tables of whichever database: read whole at start, then written in batches.

use std::fmt;
use std::sync::Arc;

use crate::batch::Batch;
use crate::fault::Fault;
use crate::journal::Ledger;
use crate::load::{Load, Rows};
use crate::location::Shape;
use crate::{StoreError, time};

/// A row of a location table, as the caller's numbers; texts that are empty are NULL where the table allows
/// it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contact<'a> {
    /// User part of the address-of-record.
    pub username: &'a [u8],
    /// Its domain; empty where addresses-of-record are users alone.
    pub domain: &'a [u8],
    /// The contact's URI.
    pub contact: &'a [u8],
    /// Where it really is (NAT), a URI.
    pub received: &'a [u8],
    /// The Path.
    pub path: &'a [u8],
    /// Microseconds since 1970 when it expires; [`Contact::NEVER`] if it does not.
    pub expires_unix_micros: u64,
    /// Preference in thousandths.
    pub q: u16,
    /// Call-ID of the last REGISTER.
    pub call_id: &'a [u8],
    /// Its CSeq.
    pub cseq: u32,
    /// Microseconds since 1970 when it was last updated.
    pub modified_unix_micros: u64,
    /// Flags of the binding itself (column `flags`).
    pub flags: u32,
    /// Flags for the branches that lead to it (column `cflags`).
    pub cflags: u32,
    /// User-Agent.
    pub user_agent: &'a [u8],
    /// The listener, `udp:192.0.2.1:5060`.
    pub socket: &'a [u8],
    /// Methods as Kamailio numbers them; `None` for all.
    pub methods: Option<u32>,
    /// `+sip.instance`.
    pub instance: &'a [u8],
    /// `reg-id`.
    pub reg_id: u32,
    /// The row's identifier as it was read, for [`Batch::remove_ruid`]. Not used when a binding is written.
    pub ruid: &'a [u8],
    /// Whether somebody else wrote the row (or moved it): ours has another identifier, so this one must be
    /// removed when ours is written. Not used when a binding is written.
    pub is_foreign: bool,
}

impl Contact<'_> {
    /// A binding that ends then or later never ends (the end of the year 9999). Kamailio stores such bindings
    /// as ones that ended in 1970.
    pub const NEVER: u64 = time::LAST_MICROS;
}

/// A row that was not written, because no table of this database can hold it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The table.
    pub table: String,
    /// User part of the address-of-record.
    pub username: Box<[u8]>,
    /// Its domain.
    pub domain: Box<[u8]>,
    /// The contact.
    pub contact: Box<[u8]>,
    /// Why, in a sentence.
    pub reason: String,
}

/// What came of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Rows written and changes made that concern a row each.
    pub rows: usize,
    /// Bindings that the table cannot hold; the rest of the batch is written. What was stored for the same
    /// address-of-record and contact stays as it was.
    pub left_out: Vec<LeftOut>,
    /// The same of earlier batches, which are in the journal and not in their table: constraints of the
    /// table's own do not allow them.
    pub left_behind: Vec<LeftOut>,
}

impl Written {
    /// At most so many are named; the rest is only counted, by its absence from `rows`.
    const LEFT_OUT_MAX: usize = 10_000;

    pub(crate) fn leave_out(&mut self, table: &str, contact: &Contact<'_>, reason: String) {
        if self.left_out.len() < Written::LEFT_OUT_MAX {
            self.left_out.push(LeftOut {
                table: table.to_string(),
                username: contact.username.into(),
                domain: contact.domain.into(),
                contact: contact.contact.into(),
                reason,
            });
        }
    }
}

/// Names that the configuration gives to columns of location tables.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names(Vec<(String, String)>);

impl Names {
    /// Takes pairs of Kamailio's name and the name here.
    pub(crate) fn new(columns: &[(String, String)]) -> Result<Names, StoreError> {
        for (_, here) in columns {
            crate::session::check_name(here)?;
        }
        Ok(Names(columns.to_vec()))
    }

    /// The name here of the column that Kamailio calls `name`.
    pub(crate) fn here<'a>(&'a self, name: &'a str) -> &'a str {
        self.0.iter().find(|(kamailio, _)| kamailio == name).map_or(name, |(_, here)| here)
    }
}

/// A connection for location tables, for one thread. A connection that was lost is opened again by the next
/// call.
///
/// Every call to PostgreSQL or MariaDB ends with [`StoreError::Away`] when the database is silent for as long
/// as the `patience` that it was opened with; SQLite's wait for a lock ends then.
#[derive(Debug)]
pub struct Bindings {
    pub(crate) inner: Box<dyn LocationTables>,
}

/// Location tables in one kind of database. What each does is said at [`Bindings`].
pub(crate) trait LocationTables: fmt::Debug + Send {
    fn take_over(&mut self, tables: &[String]) -> Result<Vec<String>, Fault>;

    fn claim(&mut self, tables: &[String]) -> Result<Option<String>, Fault>;

    /// Gives each row of the table to `load`.
    fn load(&mut self, load: &mut Load<'_>) -> Result<(), Fault>;

    /// Gives each row of the address-of-record to `rows`, and perhaps some of others.
    fn read(&mut self, rows: &mut Rows<'_>) -> Result<(), Fault>;

    /// Removes rows by their numbers, in steps; with `until` only those that expire by then.
    fn remove_rows(&mut self, table: &str, ids: &[i64], until: Option<u64>) -> Result<(), Fault>;

    fn write(&mut self, batch: &Batch, ledger: &Ledger<'_>) -> Result<Written, Fault>;

    /// The first pages of a table's journal after this one, in order.
    fn pages(&mut self, table: &str, after: i64) -> Result<Vec<(i64, Vec<u8>)>, Fault>;

    fn has_table(&mut self, table: &str) -> Result<bool, Fault>;

    /// What a location table can hold; `None` if that is everything.
    fn shape(&mut self, table: &str) -> Result<Option<Arc<Shape>>, Fault>;

    /// What errors call it.
    fn place(&self) -> String;
}

impl Bindings {
    pub(crate) fn new(inner: impl LocationTables + 'static) -> Bindings {
        Bindings { inner: Box::new(inner) }
    }

    /// Makes this the only one that writes these tables, which must come before they are loaded by who holds them
    /// in memory: another connection that did so is ended, with what it was still about to write, and returned in a
    /// few words. That is one of a server that died, and whose last statement is still being carried out; or
    /// one that lives, and gets [`StoreError::Away`] from all its further calls.
    ///
    /// Who lost its connection takes the tables again, if nobody else has meanwhile. Nothing happens with SQLite:
    /// what a process did ends with it, and locks of files are the caller's.
    ///
    /// # Errors
    ///
    /// [`StoreError::Refused`] if the other one cannot be ended, and as the database says.
    pub fn take_over(&mut self, tables: &[String]) -> Result<Vec<String>, StoreError> {
        Ok(self.inner.take_over(tables)?)
    }

    /// The same, but that another one is let be, and told of.
    ///
    /// # Errors
    ///
    /// As the database says.
    pub fn claim(&mut self, tables: &[String]) -> Result<Option<String>, StoreError> {
        Ok(self.inner.claim(tables)?)
    }

    /// Visits every binding that has not expired at `now_unix_micros`, each once, those updated longest ago
    /// first, and removes the expired ones; returns how many were visited. `visit` returns false to stop.
    /// `progress` is told now and then how many rows were read, and how many there are.
    ///
    /// Of two rows for the same address-of-record and contact the one that was updated last is visited, and
    /// the other removed. Bindings updated at the same time come in the order of their rows. SQLite reads
    /// every page of the table here, so a damaged one is found.
    ///
    /// # Errors
    ///
    /// As the database says.
    pub fn load(
        &mut self,
        table: &str,
        now_unix_micros: u64,
        progress: &mut dyn FnMut(u64, u64),
        visit: &mut dyn FnMut(&Contact<'_>) -> bool,
    ) -> Result<u64, StoreError> {
        let mut load = Load::new(table, now_unix_micros, progress, visit);
        self.inner.load(&mut load)?;
        self.inner.remove_rows(table, &load.take_expired(), Some(now_unix_micros))?;
        self.inner.remove_rows(table, &load.take_losers(), None)?;
        Ok(load.visited())
    }

    /// Visits the bindings of one address-of-record, expired ones too, those updated longest ago first. Of
    /// two rows for the same contact the one that was updated last is visited, and the other removed.
    ///
    /// # Errors
    ///
    /// As the database says.
    pub fn read(
        &mut self,
        table: &str,
        username: &[u8],
        domain: &[u8],
        visit: &mut dyn FnMut(&Contact<'_>),
    ) -> Result<(), StoreError> {
        let mut rows = Rows::new(table, username, domain);
        self.inner.read(&mut rows)?;
        let losers = rows.visit(visit);
        Ok(self.inner.remove_rows(table, &losers, None)?)
    }

    /// Writes all changes of a batch and commits; all or nothing, and on disk when it returns. After an error
    /// of the kind [`StoreError::Away`] it is not known whether it was committed: writing the same batch
    /// again is always right.
    ///
    /// Rows that the table cannot hold (a contact longer than its column, bytes that are no text there) never
    /// spoil the batch: they are left out and named. A User-Agent that does not fit is cut or has its odd
    /// bytes replaced.
    ///
    /// # Errors
    ///
    /// As the database says.
    pub fn write(&mut self, batch: &Batch) -> Result<Written, StoreError> {
        if batch.is_empty() {
            return Ok(Written::default());
        }
        Ok(self.inner.write(batch, &Ledger::default())?)
    }
}
