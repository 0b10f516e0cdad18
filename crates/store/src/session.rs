//! A connection for one thread, as far as the three databases can be used alike: statements with texts as
//! values.

use crate::fault::Fault;
use crate::{Select, StoreError};

/// Names of columns, tables and the like are at most this long (PostgreSQL's limit, the tightest).
const NAME_LEN_MAX: usize = 63;

/// How a database writes SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
    MySql,
}

impl Dialect {
    /// A checked name, quoted. Without quotes PostgreSQL takes names as lower-case ones, and so do we.
    pub(crate) fn quote(self, name: &str) -> String {
        match self {
            Dialect::Sqlite => format!("\"{name}\""),
            Dialect::Postgres => format!("\"{}\"", name.to_ascii_lowercase()),
            Dialect::MySql => format!("`{name}`"),
        }
    }

    /// The place of the value with this number, from 1.
    pub(crate) fn place(self, number: usize) -> String {
        match self {
            Dialect::Sqlite => format!("?{number}"),
            Dialect::Postgres => format!("${number}"),
            Dialect::MySql => "?".to_string(),
        }
    }

    /// A column, read as a text.
    pub(crate) fn as_text(self, quoted: &str) -> String {
        match self {
            Dialect::Sqlite => quoted.to_string(),
            Dialect::Postgres => format!("CAST({quoted} AS TEXT)"),
            Dialect::MySql => format!("CAST({quoted} AS CHAR)"),
        }
    }

    /// A column to sort by, byte by byte.
    pub(crate) fn as_bytes(self, quoted: &str) -> String {
        match self {
            Dialect::Sqlite => quoted.to_string(),
            Dialect::Postgres => format!("{quoted} COLLATE \"C\""),
            Dialect::MySql => format!("CAST({quoted} AS BINARY)"),
        }
    }
}

/// Letters, digits and underscores: all that a name may have, since it cannot be bound as a value.
pub(crate) fn check_name(name: &str) -> Result<&str, StoreError> {
    let fits = !name.is_empty()
        && name.len() <= NAME_LEN_MAX
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if fits {
        return Ok(name);
    }
    Err(StoreError::Wrong(format!(
        "{name:?} is not a name of a table or column: letters, digits and underscores, at most {NAME_LEN_MAX}"
    )))
}

/// How a column keeps what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// A time with so many digits of the fraction.
    Time(u8),
    /// Whole numbers.
    Integer,
    /// Anything else.
    Other,
}

/// A column of a table that is there.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// Characters at most, where it has such a limit.
    pub(crate) width: Option<usize>,
    pub(crate) is_nullable: bool,
    pub(crate) format: Format,
}

/// A row's texts, `None` for NULL.
pub(crate) type Row<'a> = [Option<&'a [u8]>];

/// The same, owned.
pub(crate) type OwnedRow = Vec<Option<Box<[u8]>>>;

/// A connection that is opened again when it was lost. Every call has a time limit.
pub(crate) trait Session: Send {
    fn dialect(&self) -> Dialect;

    /// The table's columns; none if there is no such table.
    fn columns(&mut self, table: &str) -> Result<Vec<Column>, Fault>;

    /// Runs a statement; returns how many rows it changed.
    fn execute(&mut self, sql: &str, values: &[Option<&str>]) -> Result<u64, Fault>;

    /// Runs statements in one transaction, as far as the database can.
    fn execute_all(&mut self, statements: &[String]) -> Result<(), Fault>;

    /// Visits the rows of a query until `visit` returns false.
    fn query(
        &mut self,
        sql: &str,
        values: &[Option<&str>],
        visit: &mut dyn FnMut(&Row<'_>) -> bool,
    ) -> Result<(), Fault>;
}

/// The query for a [`Select`]. With `casts` keys are compared as texts, whatever their column's type.
///
/// # Errors
///
/// [`StoreError::Wrong`] for names that are none.
pub(crate) fn select_sql(dialect: Dialect, select: &Select, casts: bool) -> Result<String, StoreError> {
    use std::fmt::Write as _;
    let mut sql = String::with_capacity(160);
    sql.push_str("SELECT ");
    for (index, column) in select.columns.iter().enumerate() {
        let quoted = dialect.quote(check_name(column)?);
        sql.push_str(if index > 0 { ", " } else { "" });
        sql.push_str(&dialect.as_text(&quoted));
    }
    if select.columns.is_empty() {
        sql.push('1');
    }
    let _ = write!(sql, " FROM {}", dialect.quote(check_name(&select.table)?));
    for (index, (column, _)) in select.keys.iter().enumerate() {
        let quoted = dialect.quote(check_name(column)?);
        let column = if casts { dialect.as_text(&quoted) } else { quoted };
        sql.push_str(if index == 0 { " WHERE " } else { " AND " });
        let _ = write!(sql, "{column} = {}", dialect.place(index + 1));
    }
    let _ = write!(sql, " LIMIT {}", select.rows_max);
    Ok(sql)
}

/// The keys' values as texts; `None` if one is not valid UTF-8 or holds a NUL, which no text of PostgreSQL's
/// or MariaDB's equals.
pub(crate) fn key_texts(select: &Select) -> Option<Vec<&str>> {
    select
        .keys
        .iter()
        .map(|(_, value)| std::str::from_utf8(value).ok().filter(|text| !text.contains('\0')))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_letters_digits_and_underscores() {
        for good in ["location", "a_1", "User"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        let long = "a".repeat(64);
        for bad in ["", "a b", "a\"b", "a;--", "a`b", "a.b", "é", &long] {
            assert!(matches!(check_name(bad), Err(StoreError::Wrong(_))), "{bad}");
        }
    }

    #[test]
    fn selects_are_written_for_each_database() {
        let select = Select {
            table: "Sub".into(),
            columns: ["ha1".into(), "password".into()].into(),
            keys: vec![
                ("username".into(), b"a".as_slice().into()),
                ("domain".into(), b"b".as_slice().into()),
            ],
            rows_max: 2,
        };
        assert_eq!(
            select_sql(Dialect::Postgres, &select, false).unwrap(),
            "SELECT CAST(\"ha1\" AS TEXT), CAST(\"password\" AS TEXT) FROM \"sub\" \
             WHERE \"username\" = $1 AND \"domain\" = $2 LIMIT 2"
        );
        assert_eq!(
            select_sql(Dialect::MySql, &select, true).unwrap(),
            "SELECT CAST(`ha1` AS CHAR), CAST(`password` AS CHAR) FROM `Sub` \
             WHERE CAST(`username` AS CHAR) = ? AND CAST(`domain` AS CHAR) = ? LIMIT 2"
        );
        assert_eq!(
            select_sql(Dialect::Sqlite, &select, false).unwrap(),
            "SELECT \"ha1\", \"password\" FROM \"Sub\" WHERE \"username\" = ?1 AND \"domain\" = ?2 LIMIT 2"
        );
    }
}
