//! Statements with texts as values.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, params_from_iter};

use super::{Access, fault, open};
use crate::fault::{Cause, Fault};
use crate::session::{Column, Dialect, Format, Row, Session};

/// A file, opened again when a call found it unusable.
pub(crate) struct SqliteSession {
    path: PathBuf,
    patience: Duration,
    connection: Option<Connection>,
}

impl SqliteSession {
    pub(crate) fn new(path: &Path, patience: Duration) -> SqliteSession {
        SqliteSession { path: path.to_path_buf(), patience, connection: None }
    }

    fn with<T>(&mut self, call: impl FnOnce(&mut Connection) -> rusqlite::Result<T>) -> Result<T, Fault> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => open(&self.path, Access::Write, self.patience)?,
        };
        let result = call(&mut connection).map_err(|error| fault(&self.path, &error));
        if !result.as_ref().is_err_and(|fault| fault.cause == Cause::Lost) {
            self.connection = Some(connection);
        }
        result
    }
}

/// A text as it is, whatever its bytes.
pub(super) fn text(bytes: &[u8]) -> ToSqlOutput<'_> {
    ToSqlOutput::Borrowed(ValueRef::Text(bytes))
}

/// A text or NULL.
pub(super) fn text_or_null(bytes: Option<&[u8]>) -> ToSqlOutput<'_> {
    bytes.map_or(ToSqlOutput::Owned(Value::Null), text)
}

/// A value as a text; `owned` keeps what is none by itself.
pub(super) fn as_text<'a>(value: ValueRef<'a>, owned: &'a mut String) -> Option<&'a [u8]> {
    match value {
        ValueRef::Null => return None,
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => return Some(bytes),
        ValueRef::Integer(number) => *owned = number.to_string(),
        ValueRef::Real(number) => *owned = number.to_string(),
    }
    Some(owned.as_bytes())
}

/// The columns of a table.
pub(super) fn columns(connection: &Connection, table: &str) -> rusqlite::Result<Vec<Column>> {
    let mut statement =
        connection.prepare_cached("SELECT name, type, \"notnull\" FROM pragma_table_info(?1)")?;
    let rows = statement.query_map([table], |row| {
        let declared = row.get::<_, String>(1)?.to_ascii_uppercase();
        let format = if declared.contains("INT") {
            Format::Integer
        } else if declared.contains("TIME") || declared.contains("DATE") {
            Format::Time(6)
        } else {
            Format::Other
        };
        Ok(Column { name: row.get(0)?, width: None, is_nullable: row.get::<_, i64>(2)? == 0, format })
    })?;
    rows.collect()
}

impl Session for SqliteSession {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn columns(&mut self, table: &str) -> Result<Vec<Column>, Fault> {
        self.with(|connection| columns(connection, table))
    }

    fn execute(&mut self, sql: &str, values: &[Option<&str>]) -> Result<u64, Fault> {
        self.with(|connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let values = values.iter().map(|value| text_or_null(value.map(str::as_bytes)));
            statement.execute(params_from_iter(values)).map(|rows| rows as u64)
        })
    }

    fn execute_all(&mut self, statements: &[String]) -> Result<(), Fault> {
        self.with(|connection| {
            let transaction =
                connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
            for statement in statements {
                transaction.execute_batch(statement)?;
            }
            transaction.commit()
        })
    }

    fn query(
        &mut self,
        sql: &str,
        values: &[Option<&str>],
        visit: &mut dyn FnMut(&Row<'_>) -> bool,
    ) -> Result<(), Fault> {
        self.with(|connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let count = statement.column_count();
            let values = values.iter().map(|value| text_or_null(value.map(str::as_bytes)));
            let mut rows = statement.query(params_from_iter(values))?;
            let mut numbers = vec![String::new(); count];
            while let Some(row) = rows.next()? {
                let mut texts = Vec::with_capacity(count);
                for (index, number) in numbers.iter_mut().enumerate() {
                    texts.push(as_text(row.get_ref(index)?, number));
                }
                if !visit(&texts) {
                    break;
                }
            }
            Ok(())
        })
    }
}
