//! SQLite: one file, opened by several connections, each on a thread of its own.
//!
//! The driver is called directly and not through an asynchronous one, which would hand every statement to
//! another thread and back: a batch of a thousand rows has a thousand statements.
//!
//! What a file must survive: it is written ahead (WAL) and flushed at each commit (`synchronous=FULL`), so
//! that a commit outlives a crash of the machine. It is made under another name and linked to its own when it
//! is whole, so that an empty or half-made file is never taken for a new one. A file that is damaged or
//! missing where there was one is an error; nothing is ever made in its place.

mod bindings;
mod create;
mod journal;
mod selector;
mod session;

pub(crate) use bindings::SqliteBindings;
pub(crate) use selector::start as start_selector;
pub(crate) use session::SqliteSession;

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::StoreError;
use crate::fault::{Cause, Fault};

/// The write-ahead log is copied into the file when it has so many pages (of 4 KiB).
const CHECKPOINT_PAGES: u32 = 4_000;

/// The log is cut to this size afterwards.
const LOG_BYTES: u32 = 64 << 20;

/// Memory for pages, for each connection that writes.
const CACHE_KIB: u32 = 32 << 10;

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Write,
    Read,
}

/// Which file a path led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId(u64, u64);

impl FileId {
    pub(crate) fn of(path: &Path) -> Result<FileId, Fault> {
        let metadata = std::fs::metadata(path).map_err(|error| gone(path, &error))?;
        Ok(FileId(metadata.dev(), metadata.ino()))
    }
}

fn gone(path: &Path, error: &std::io::Error) -> Fault {
    let path = path.display();
    let text = if error.kind() == std::io::ErrorKind::NotFound {
        format!(
            "the database file {path} is gone; put it back, or restore a backup, \
             or stop the server to start empty"
        )
    } else {
        format!("the database file {path} cannot be reached: {error}")
    };
    Fault::new(Cause::Lost, StoreError::Unfit(text))
}

/// Makes the file with all tables if there is none, and checks that what is there is a database.
pub(crate) fn prepare(path: &Path, patience: Duration) -> Result<(), StoreError> {
    if !path.exists() {
        create::create_file(path)?;
    }
    open(path, Access::Write, patience)?;
    Ok(())
}

/// Opens a file that is there.
pub(crate) fn open(path: &Path, access: Access, patience: Duration) -> Result<Connection, Fault> {
    let metadata = std::fs::metadata(path).map_err(|error| gone(path, &error))?;
    if metadata.len() == 0 {
        return Err(Fault::other(StoreError::Unfit(format!(
            "the database file {} is empty, which no database is; restore a backup, or remove the \
             file to start anew",
            path.display()
        ))));
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let fault = |error: rusqlite::Error| fault(path, &error);
    let connection = connect(path, flags).map_err(fault)?;
    connection.busy_timeout(patience).map_err(fault)?;
    connection.set_prepared_statement_cache_capacity(64);
    let settings = format!(
        "PRAGMA cell_size_check=ON; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}; \
         PRAGMA journal_size_limit={LOG_BYTES}; PRAGMA temp_store=MEMORY;"
    );
    connection.execute_batch(&settings).map_err(fault)?;
    // Reads the first page and the schema: what is no database, is found here.
    connection
        .query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get::<_, i64>(0))
        .map_err(fault)?;
    if access == Access::Write {
        // Readers and the writer do not wait for each other then. A file on a read-only disk, or one that
        // somebody has locked, stays as it is.
        let _ = connection.query_row("PRAGMA journal_mode=WAL", [], |row| row.get::<_, String>(0));
        connection.execute_batch(&format!("PRAGMA cache_size=-{CACHE_KIB};")).map_err(fault)?;
    }
    Ok(connection)
}

/// A connection to which a name in double quotes is a name, as everywhere else. SQLite takes one that it does not know for a
/// text: where a table has no column `password`, that of every user would be "password". Tables and indexes that are there
/// mean what they did when they were made; a view or a trigger with such a text is refused when it is used.
fn connect(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, flags)?;
    for texts in [DbConfig::SQLITE_DBCONFIG_DQS_DML, DbConfig::SQLITE_DBCONFIG_DQS_DDL] {
        connection.set_db_config(texts, false)?;
    }
    Ok(connection)
}

/// What an error of SQLite's means.
pub(crate) fn fault(path: &Path, error: &rusqlite::Error) -> Fault {
    let name = path.display();
    let (code, extended) = match error {
        rusqlite::Error::SqliteFailure(inner, _) => (inner.code, inner.extended_code),
        rusqlite::Error::SqlInputError { error: inner, .. } => (inner.code, inner.extended_code),
        _ => return Fault::refused(format!("SQLite, {name}: {error}")),
    };
    let lost = |error: StoreError| Fault::new(Cause::Lost, error);
    match code {
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => lost(StoreError::Unfit(format!(
            "the database file {name} is damaged ({error}); stop the server, then restore a backup, or save \
             what is left with `sqlite3 {name} .recover | sqlite3 NEW`, or move it away to start empty"
        ))),
        ErrorCode::DiskFull => Fault::refused(format!("the disk that holds {name} is full; make room on it")),
        ErrorCode::ReadOnly => Fault::refused(format!(
            "the database file {name} cannot be written; give the server's user the right to write \
             it and its directory"
        )),
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => Fault::other(StoreError::Away(format!(
            "the database file {name} is locked by another program for too long; end that program"
        ))),
        ErrorCode::CannotOpen | ErrorCode::PermissionDenied => lost(StoreError::Refused(format!(
            "the database file {name} cannot be opened ({error}); the server's user needs the right to read \
             and write it and its directory"
        ))),
        ErrorCode::SystemIoFailure => lost(StoreError::Refused(format!(
            "the disk that holds {name} fails ({error}); look into the system's log"
        ))),
        ErrorCode::TooBig | ErrorCode::TypeMismatch => Fault::data(format!("SQLite, {name}: {error}")),
        ErrorCode::ConstraintViolation if matches!(extended, 1555 | 2067) => {
            Fault::new(Cause::Duplicate, StoreError::Refused(format!("SQLite, {name}: {error}")))
        }
        ErrorCode::ConstraintViolation => Fault::data(format!("SQLite, {name}: {error}")),
        _ => Fault::refused(format!("SQLite, {name}: {error}")),
    }
}
