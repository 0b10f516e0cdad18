//! Location tables in SQLite.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, Statement, TransactionBehavior, params_from_iter};

use super::journal::JournalFiles;
use super::session::{columns, text, text_or_null};
use super::{Access, FileId, fault, open};
use crate::batch::{Batch, TableChanges};
use crate::bindings::{LocationTables, Names};
use crate::fault::{Cause, Fault};
use crate::journal::{Ledger, TABLE};
use crate::load::{Load, REMOVE_STEP, Rows, Staged, q_thousandths};
use crate::location::{COLUMNS, Shape, signed, unsigned};
use crate::ruid::Ruid;
use crate::session::{Dialect, Format};
use crate::time::{Zone, from_julian_day, julian_day, parse_civil};
use crate::{Contact, Written};

/// Whole numbers below this in a column of Kamailio's are days: SQLite stores a day without a fraction as
/// one.
const DAY_MAX: i64 = 10_000_000;

/// The connection that writes, and what it knows of the file.
pub(crate) struct SqliteBindings {
    path: PathBuf,
    patience: Duration,
    names: Names,
    zone: Zone,
    opened: Option<Opened>,
    /// Those of this file, once they were asked for.
    journal: Option<(FileId, JournalFiles)>,
}

struct Opened {
    connection: Connection,
    file: FileId,
    shapes: HashMap<String, Arc<Shape>>,
}

impl fmt::Debug for SqliteBindings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteBindings").field("path", &self.path).finish_non_exhaustive()
    }
}

impl SqliteBindings {
    pub(crate) fn new(path: &Path, patience: Duration, names: Names) -> Result<SqliteBindings, Fault> {
        let mut bindings = SqliteBindings {
            path: path.to_path_buf(),
            patience,
            names,
            zone: Zone::system(),
            opened: None,
            journal: None,
        };
        bindings.ensure_open()?;
        Ok(bindings)
    }

    /// Opens the file unless it is open. A file that was moved away or replaced is not written any more: what
    /// went into it would be lost.
    fn ensure_open(&mut self) -> Result<(), Fault> {
        let file = FileId::of(&self.path);
        if self.opened.as_ref().is_some_and(|opened| file.as_ref().ok() != Some(&opened.file)) {
            self.opened = None;
        }
        let file = file?;
        if self.opened.is_none() {
            let connection = open(&self.path, Access::Write, self.patience)?;
            self.opened = Some(Opened { connection, file, shapes: HashMap::new() });
        }
        Ok(())
    }

    /// Runs a call on the connection; after an error nothing that was known is relied on.
    fn with<T>(
        &mut self,
        table: &str,
        call: impl FnOnce(&mut Connection, &Shape, &mut Zone, &Path) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.ensure_open()?;
        let Some(opened) = &mut self.opened else {
            return Err(Fault::lost(format!("the database file {} is not open", self.path.display())));
        };
        let result = opened
            .shape(table, &self.names, &self.path)
            .and_then(|shape| call(&mut opened.connection, &shape, &mut self.zone, &self.path));
        if let Err(fault) = &result {
            opened.shapes.clear();
            if fault.cause == Cause::Lost {
                self.opened = None;
            }
        }
        result
    }
}

impl LocationTables for SqliteBindings {
    /// What a process did ends with it.
    fn take_over(&mut self, _: &[String]) -> Result<Vec<String>, Fault> {
        Ok(Vec::new())
    }

    /// Locks of the file are the caller's.
    fn claim(&mut self, _: &[String]) -> Result<Option<String>, Fault> {
        Ok(None)
    }

    fn load(&mut self, load: &mut Load<'_>) -> Result<(), Fault> {
        self.with(load.table, |connection, shape, zone, path| {
            load_rows(connection, shape, zone, load).map_err(|error| fault(path, &error))
        })
    }

    fn read(&mut self, rows: &mut Rows<'_>) -> Result<(), Fault> {
        self.with(rows.table, |connection, shape, zone, path| {
            let domain = shape.column("domain");
            let domain = if rows.domain.is_empty() {
                format!("({domain} = ?2 OR {domain} IS NULL)")
            } else {
                format!("{domain} = ?2")
            };
            let sql = format!(
                "SELECT {} FROM {} WHERE {} = ?1 AND {domain}",
                shape.select_list(),
                shape.table,
                shape.column("username")
            );
            let values = [text(rows.username), text(rows.domain)];
            let mut read = || -> rusqlite::Result<()> {
                let mut statement = connection.prepare_cached(&sql)?;
                let mut found = statement.query(params_from_iter(&values))?;
                while let Some(row) = found.next()? {
                    let (id, contact) = contact_of(row, zone)?;
                    if !rows.row(id, &contact) {
                        break;
                    }
                }
                Ok(())
            };
            read().map_err(|error| fault(path, &error))
        })
    }

    fn remove_rows(&mut self, table: &str, ids: &[i64], until: Option<u64>) -> Result<(), Fault> {
        for step in ids.chunks(REMOVE_STEP) {
            self.with(table, |connection, shape, zone, path| {
                let mut remove = || -> rusqlite::Result<()> {
                    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                    let (id, expires) = (shape.column("id"), shape.column("expires"));
                    let until = until.map(|until| time_value(shape.expires, until, zone));
                    let limit = if until.is_some() { format!(" AND {expires} <= ?2") } else { String::new() };
                    let sql = format!("DELETE FROM {} WHERE {id} = ?1{limit}", shape.table);
                    let mut statement = transaction.prepare_cached(&sql)?;
                    for &id in step {
                        let id = ToSqlOutput::Owned(Value::Integer(id));
                        statement.execute(params_from_iter(std::iter::once(id).chain(until.clone())))?;
                    }
                    drop(statement);
                    transaction.commit()
                };
                remove().map_err(|error| fault(path, &error))
            })?;
        }
        Ok(())
    }

    fn write(&mut self, batch: &Batch, ledger: &Ledger<'_>) -> Result<Written, Fault> {
        self.ensure_open()?;
        let Some(opened) = &mut self.opened else {
            return Err(Fault::lost(format!("the database file {} is not open", self.path.display())));
        };
        let result = opened.journal(&mut self.journal, ledger, &self.path).and_then(|journal| {
            opened.write(batch, (ledger, journal), &self.names, &mut self.zone, &self.path)
        });
        if let Err(fault) = &result {
            opened.shapes.clear();
            if fault.cause == Cause::Lost {
                self.opened = None;
            }
        }
        result
    }

    fn pages(&mut self, table: &str, after: i64) -> Result<Vec<(i64, Vec<u8>)>, Fault> {
        self.ensure_open()?;
        let Some(opened) = &self.opened else { return Ok(Vec::new()) };
        opened.journal_files(&mut self.journal, &self.path)?.pages(table, after)
    }

    fn has_table(&mut self, table: &str) -> Result<bool, Fault> {
        self.ensure_open()?;
        let Some(opened) = &self.opened else { return Ok(false) };
        Ok(!columns(&opened.connection, table).map_err(|error| fault(&self.path, &error))?.is_empty())
    }

    fn shape(&mut self, _: &str) -> Result<Option<Arc<Shape>>, Fault> {
        Ok(None)
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }
}

impl Opened {
    fn shape(&mut self, table: &str, names: &Names, path: &Path) -> Result<Arc<Shape>, Fault> {
        if let Some(shape) = self.shapes.get(table) {
            return Ok(Arc::clone(shape));
        }
        let columns = columns(&self.connection, table).map_err(|error| fault(path, &error))?;
        let shape = Arc::new(Shape::new(Dialect::Sqlite, table, names, &columns)?);
        self.shapes.insert(table.to_string(), Arc::clone(&shape));
        Ok(shape)
    }

    /// The journal's files, opened when they are first asked for.
    fn journal_files<'j>(
        &self,
        journal: &'j mut Option<(FileId, JournalFiles)>,
        path: &Path,
    ) -> Result<&'j mut JournalFiles, Fault> {
        // Of another file that has taken this one's place.
        if journal.as_ref().is_some_and(|(file, _)| *file != self.file) {
            *journal = None;
        }
        let files = match journal.take() {
            Some((_, files)) => files,
            None => JournalFiles::open(path, &self.connection)?,
        };
        Ok(&mut journal.insert((self.file, files)).1)
    }

    fn journal<'j>(
        &self,
        journal: &'j mut Option<(FileId, JournalFiles)>,
        ledger: &Ledger<'_>,
        path: &Path,
    ) -> Result<Option<&'j mut JournalFiles>, Fault> {
        if ledger.is_empty() { Ok(None) } else { self.journal_files(journal, path).map(Some) }
    }

    fn write(
        &mut self,
        batch: &Batch,
        (ledger, journal): (&Ledger<'_>, Option<&mut JournalFiles>),
        names: &Names,
        zone: &mut Zone,
        path: &Path,
    ) -> Result<Written, Fault> {
        for changes in batch.changes() {
            self.shape(&changes.name, names, path)?;
        }
        let at = |error: rusqlite::Error| fault(path, &error);
        // Immediate: it waits for the lock here, and not in the middle, where it could not be waited for.
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(at)?;
        if !ledger.pages.is_empty() {
            // Where the table is, the journal is used; and who keeps others from writing keeps us, too.
            let sql = format!("SELECT count(*) FROM {TABLE} WHERE id = 0");
            transaction.prepare_cached(&sql).and_then(|mut sql| sql.query_row([], |_| Ok(()))).map_err(at)?;
        }
        let mut written = Written::default();
        for changes in batch.changes() {
            let Some(shape) = self.shapes.get(&changes.name) else { continue };
            remove(&transaction, shape, changes, &mut written).map_err(at)?;
            save(&transaction, shape, batch, changes, zone, path, &mut written)?;
        }
        let Some(journal) = journal else {
            transaction.commit().map_err(at)?;
            return Ok(written);
        };
        // Behind the rows, which may be refused again and again: what is in the files stays there. Before they are
        // committed: without these pages the rows would be newer than what was promised, and older pages would undo them.
        let appended = journal.append(&ledger.pages)?;
        if let Err(error) = transaction.commit() {
            if let Some(appended) = appended {
                journal.take_back(appended);
            }
            return Err(at(error));
        }
        if let Some((tables, generation)) = ledger.trim {
            journal.trim(tables, generation)?;
        }
        Ok(written)
    }
}

fn remove(
    connection: &Connection,
    shape: &Shape,
    changes: &TableChanges,
    written: &mut Written,
) -> rusqlite::Result<()> {
    if changes.is_cleared {
        connection.prepare_cached(&format!("DELETE FROM {}", shape.table))?.execute([])?;
        written.rows += 1;
    }
    let sql = format!("DELETE FROM {} WHERE {} = ?1", shape.table, shape.column("ruid"));
    let mut statement = connection.prepare_cached(&sql)?;
    for ruid in changes.removals() {
        statement.execute([ruid.text().as_str()])?;
        written.rows += 1;
    }
    for ruid in &changes.foreign {
        statement.execute([&**ruid])?;
        written.rows += 1;
    }
    Ok(())
}

fn save(
    connection: &Connection,
    shape: &Shape,
    batch: &Batch,
    changes: &TableChanges,
    zone: &mut Zone,
    path: &Path,
    written: &mut Written,
) -> Result<(), Fault> {
    let mut statement: Option<rusqlite::CachedStatement<'_>> = None;
    for (ruid, contact) in batch.saves(changes) {
        let statement = match &mut statement {
            Some(statement) => statement,
            none => none
                .insert(connection.prepare_cached(&upsert_sql(shape)).map_err(|error| fault(path, &error))?),
        };
        match save_one(statement, shape, ruid, &contact, zone).map_err(|error| fault(path, &error)) {
            Ok(()) => written.rows += 1,
            // Only this statement is undone, the transaction goes on.
            Err(fault) if fault.is_about_values() => {
                written.leave_out(&changes.name, &contact, fault.error.to_string());
            }
            Err(fault) => return Err(fault),
        }
    }
    Ok(())
}

fn upsert_sql(shape: &Shape) -> String {
    let places: Vec<String> = (1..COLUMNS.len()).map(|number| format!("?{number}")).collect();
    format!(
        "INSERT INTO {} ({}) VALUES ({}{}) ON CONFLICT ({}) DO UPDATE SET {}",
        shape.table,
        shape.insert_list(),
        places.join(", "),
        shape.constant_list(),
        shape.column("ruid"),
        shape.update_list(|name| format!("excluded.{name}"))
    )
}

fn save_one(
    statement: &mut Statement<'_>,
    shape: &Shape,
    ruid: Ruid,
    row: &Contact<'_>,
    zone: &mut Zone,
) -> rusqlite::Result<()> {
    let optional = |at: usize, bytes| {
        text_or_null(Some(bytes).filter(|bytes: &&[u8]| !bytes.is_empty() || !shape.is_nullable(at)))
    };
    let integer = |number: u32| ToSqlOutput::Owned(Value::Integer(i64::from(signed(number))));
    let methods = match row.methods {
        None if shape.is_nullable(16) => ToSqlOutput::Owned(Value::Null),
        methods => integer(methods.unwrap_or(u32::MAX)),
    };
    let expires = if row.expires_unix_micros >= Contact::NEVER { 0 } else { row.expires_unix_micros };
    let ruid = ruid.text();
    let values = [
        text(ruid.as_str().as_bytes()),
        text(row.username),
        optional(3, row.domain),
        text(row.contact),
        optional(5, row.received),
        optional(6, row.path),
        time_value(shape.expires, expires, zone),
        ToSqlOutput::Owned(Value::Real(f64::from(row.q) / 1000.0)),
        text(row.call_id),
        integer(row.cseq),
        time_value(shape.modified, row.modified_unix_micros, zone),
        integer(row.flags),
        integer(row.cflags),
        text(row.user_agent),
        optional(15, row.socket),
        methods,
        optional(17, row.instance),
        integer(row.reg_id),
    ];
    statement.execute(params_from_iter(values)).map(|_| ())
}

/// A time as a column of this format keeps it.
fn time_value(format: Format, unix_micros: u64, zone: &mut Zone) -> ToSqlOutput<'static> {
    ToSqlOutput::Owned(match format {
        Format::Integer => Value::Integer(i64::try_from(unix_micros).unwrap_or(i64::MAX)),
        Format::Time(_) => Value::Real(julian_day(unix_micros)),
        Format::Other => Value::Text(crate::time::civil_text(zone.civil(unix_micros), 6)),
    })
}

/// A time, in whichever way it was written: ours, Kamailio's, or as a text.
fn time_of(value: ValueRef<'_>, zone: &mut Zone) -> u64 {
    match value {
        ValueRef::Integer(days) if (1..DAY_MAX).contains(&days) => from_julian_day(days as f64),
        ValueRef::Integer(micros) => u64::try_from(micros).unwrap_or(0),
        ValueRef::Real(days) => from_julian_day(days),
        ValueRef::Text(text) => parse_civil(text).map_or(0, |civil| zone.unix(civil)),
        ValueRef::Null | ValueRef::Blob(_) => 0,
    }
}

fn load_rows(
    connection: &Connection,
    shape: &Shape,
    zone: &mut Zone,
    load: &mut Load<'_>,
) -> rusqlite::Result<()> {
    // As many as there are, or a few more where some were removed; counting would read a whole index.
    let count = format!("SELECT coalesce(max({}), 0) FROM {}", shape.column("id"), shape.table);
    let total: i64 = connection.query_row(&count, [], |row| row.get(0))?;
    load.begin(u64::try_from(total).unwrap_or(0));
    let sql = format!("SELECT {} FROM {}", shape.select_list(), shape.table);
    let mut statement = connection.prepare(&sql)?;
    let mut rows = statement.query([])?;
    let mut staged = Staged::default();
    while let Some(row) = rows.next()? {
        let (id, contact) = contact_of(row, zone)?;
        load.stage(&mut staged, id, &contact);
    }
    load.visit_staged(&staged);
    load.end();
    Ok(())
}

/// The bytes of a text; of anything else none.
fn bytes<'a>(row: &'a rusqlite::Row<'_>, at: usize) -> rusqlite::Result<&'a [u8]> {
    Ok(match row.get_ref(at)? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes,
        _ => b"",
    })
}

fn number(row: &rusqlite::Row<'_>, at: usize) -> rusqlite::Result<Option<i64>> {
    Ok(match row.get_ref(at)? {
        ValueRef::Integer(number) => Some(number),
        ValueRef::Real(number) => Some(number as i64),
        _ => None,
    })
}

fn contact_of<'a>(row: &'a rusqlite::Row<'_>, zone: &mut Zone) -> rusqlite::Result<(i64, Contact<'a>)> {
    let q = match row.get_ref(8)? {
        ValueRef::Real(q) => q,
        ValueRef::Integer(q) => q as f64,
        _ => 1.0,
    };
    let expires = time_of(row.get_ref(7)?, zone);
    let unsigned_at = |at: usize| -> rusqlite::Result<u32> { Ok(number(row, at)?.map_or(0, unsigned)) };
    let contact = Contact {
        ruid: bytes(row, 1)?,
        username: bytes(row, 2)?,
        domain: bytes(row, 3)?,
        contact: bytes(row, 4)?,
        received: bytes(row, 5)?,
        path: bytes(row, 6)?,
        expires_unix_micros: if expires == 0 { Contact::NEVER } else { expires },
        q: q_thousandths(q),
        call_id: bytes(row, 9)?,
        cseq: unsigned_at(10)?,
        modified_unix_micros: time_of(row.get_ref(11)?, zone),
        flags: unsigned_at(12)?,
        cflags: unsigned_at(13)?,
        user_agent: bytes(row, 14)?,
        socket: bytes(row, 15)?,
        methods: number(row, 16)?.map(unsigned),
        instance: bytes(row, 17)?,
        reg_id: unsigned_at(18)?,
        is_foreign: false,
    };
    Ok((number(row, 0)?.unwrap_or(0), contact))
}
