//! Making a new file, whole or not at all.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rusqlite::OpenFlags;

use super::journal::left_behind;
use super::{connect, fault};
use crate::StoreError;
use crate::schema::TABLES;
use crate::session::Dialect;

/// Makes `path` with all tables; a file that somebody else makes there meanwhile is kept. Only the owner may
/// read it, since it holds secrets.
///
/// # Errors
///
/// Directory or disk do not allow it, or a log without its file is there.
pub(super) fn create_file(path: &Path) -> Result<(), StoreError> {
    let logs = ["-wal", "-journal"].map(|suffix| beside(path, suffix));
    for log in logs.into_iter().chain(left_behind(path)) {
        if fs::metadata(&log).is_ok_and(|metadata| metadata.len() > 0) {
            return Err(StoreError::Unfit(format!(
                "the database file {} is missing, but its log {} is there: put the file back, or restore a \
                 backup; remove the log only to start empty",
                path.display(),
                log.display()
            )));
        }
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|error| cannot(path, "its directory cannot be made", &error))?;
    let new = beside(path, &format!(".new-{}", std::process::id()));
    let made = build(&new).and_then(|()| publish(&new, path));
    for suffix in ["", "-wal", "-shm", "-journal"] {
        // What is not there need not be removed.
        let _ = fs::remove_file(beside(&new, suffix));
    }
    made?;
    sync_directory(directory).map_err(|error| cannot(path, "its directory cannot be written", &error))
}

pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn cannot(path: &Path, what: &str, error: &io::Error) -> StoreError {
    StoreError::Refused(format!(
        "the database file {} cannot be made: {what} ({error}); choose another place or \
         give the server's user the right",
        path.display()
    ))
}

fn build(new: &Path) -> Result<(), StoreError> {
    let _ = fs::remove_file(new);
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(new)
        .map_err(|error| cannot(new, "the disk refuses", &error))?;
    let refused = |error: rusqlite::Error| StoreError::from(fault(new, &error));
    let connection = connect(new, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(refused)?;
    let mut sql = String::from("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; BEGIN;");
    for table in TABLES {
        for statement in table.statements(Dialect::Sqlite, table.name, &|name| name.to_string()) {
            sql.push_str(&statement);
            sql.push(';');
        }
    }
    sql.push_str("COMMIT; PRAGMA wal_checkpoint(TRUNCATE);");
    connection.execute_batch(&sql).map_err(refused)?;
    connection.close().map_err(|(_, error)| refused(error))?;
    let file = OpenOptions::new().write(true).open(new);
    file.and_then(|file| file.sync_all()).map_err(|error| cannot(new, "the disk refuses", &error))
}

/// Gives the file its name, unless there is one of that name by now.
fn publish(new: &Path, path: &Path) -> Result<(), StoreError> {
    match fs::hard_link(new, path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        // Some file systems have no links.
        Err(_) if !path.exists() => {
            fs::rename(new, path).map_err(|error| cannot(path, "it cannot be given its name", &error))
        }
        Err(error) => Err(cannot(path, "it cannot be given its name", &error)),
    }
}

pub(super) fn sync_directory(directory: &Path) -> io::Result<()> {
    fs::File::open(directory)?.sync_all()
}
