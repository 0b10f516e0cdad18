//! MariaDB and MySQL, by their asynchronous driver on a runtime of one thread.

mod bindings;

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use sqlx::mysql::{MySqlArguments, MySqlConnectOptions, MySqlConnection, MySqlDatabaseError, MySqlRow};
use sqlx::{ConnectOptions, Executor, Row as _};

use crate::bindings::Names;
use crate::fault::{Cause, Fault};
use crate::health::Health;
use crate::remote::{Driver, Link, RemoteBindings};
use crate::session::{Column, Dialect, Format, OwnedRow, Session};
use crate::{Bindings, Selector, StoreError};

/// The server gives up waiting for a lock after so many seconds.
const LOCK_WAIT_S: u32 = 30;

/// The name of the lock for a table of this database; names are common to all databases of a server.
const CLAIM: &str = "CONCAT('strowger ', SHA1(CONCAT(DATABASE(), '.', ?)))";

/// How to reach a database.
pub(crate) struct MySql {
    options: MySqlConnectOptions,
}

fn driver(url: &str) -> Result<MySql, StoreError> {
    let options = MySqlConnectOptions::from_str(url)
        .map_err(|_| StoreError::Wrong("the database's URL cannot be read".to_string()))?
        // Columns hold local times without a zone: nothing is converted.
        .timezone(None)
        .disable_statement_logging();
    Ok(MySql { options })
}

/// A connection for one thread.
pub(crate) fn session(url: &str, name: &str, patience: Duration) -> Result<Box<dyn Session>, StoreError> {
    Ok(Box::new(Link::new(driver(url)?, name, patience)?))
}

/// Location tables, for one thread.
pub(crate) fn bindings(
    url: &str,
    name: &str,
    patience: Duration,
    names: Names,
) -> Result<Bindings, StoreError> {
    Ok(Bindings::new(RemoteBindings::new(driver(url)?, name, patience, names)?))
}

/// Threads that answer questions.
pub(crate) fn start_selector(
    url: &str,
    connections: usize,
    waiting_max: usize,
    health: Arc<Health>,
) -> Result<Selector, StoreError> {
    crate::remote::start_selector(driver(url)?, connections, waiting_max, health)
}

impl Driver for MySql {
    type Connection = MySqlConnection;
    const DIALECT: Dialect = Dialect::MySql;

    async fn connect(&self) -> Result<MySqlConnection, Fault> {
        let unreachable = |error| fault(&error).and_lost();
        let mut connection = self.options.connect().await.map_err(unreachable)?;
        // What does not fit its column is an error and not a guess, whatever the server's default.
        let settings = format!(
            "SET SESSION sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES'), \
             SESSION innodb_lock_wait_timeout = {LOCK_WAIT_S}"
        );
        connection.execute(sqlx::raw_sql(&settings)).await.map_err(unreachable)?;
        Ok(connection)
    }

    async fn identity(connection: &mut MySqlConnection) -> Result<Vec<OwnedRow>, Fault> {
        Self::query(connection, "SELECT CAST(CONNECTION_ID() AS CHAR)", &[]).await
    }

    async fn end_earlier(connection: &mut MySqlConnection, identity: &[Option<&str>]) -> Result<bool, Fault> {
        // Numbers are used again when the server was started again: at worst another connection of this user
        // is ended.
        let sql = "SELECT CAST(id AS CHAR) FROM information_schema.processlist \
                   WHERE id = ? AND id <> CONNECTION_ID() AND user = SUBSTRING_INDEX(CURRENT_USER(), '@', 1)";
        let found = Self::query(connection, sql, identity).await?;
        let Some(id) = found.first().and_then(|row| std::str::from_utf8(row.first()?.as_deref()?).ok())
        else {
            return Ok(true);
        };
        kill(connection, id).await?;
        Ok(false)
    }

    async fn claim(connection: &mut MySqlConnection, table: &str) -> Result<bool, Fault> {
        let sql = format!("SELECT CAST(GET_LOCK({CLAIM}, 0) AS CHAR)");
        let done = Self::query(connection, &sql, &[Some(table)]).await?;
        Ok(done.first().and_then(|row| row.first()?.as_deref()) == Some(b"1"))
    }

    async fn claimant(connection: &mut MySqlConnection, table: &str) -> Result<Vec<OwnedRow>, Fault> {
        // Connections of other users may not be seen.
        let sql = format!(
            "SELECT CAST(owner.id AS CHAR), \
             CONCAT('connection ', owner.id, ' of MariaDB for ', COALESCE(host, 'another user')) \
             FROM (SELECT IS_USED_LOCK({CLAIM}) AS id) AS owner \
             LEFT JOIN information_schema.processlist USING (id) \
             WHERE owner.id IS NOT NULL AND owner.id <> CONNECTION_ID()"
        );
        Self::query(connection, &sql, &[Some(table)]).await
    }

    async fn end(connection: &mut MySqlConnection, number: &str) -> Result<(), Fault> {
        kill(connection, number).await
    }

    async fn columns(connection: &mut MySqlConnection, table: &str) -> Result<Vec<Column>, Fault> {
        let sql = "SELECT CAST(column_name AS CHAR), CAST(is_nullable AS CHAR), CAST(data_type AS CHAR), \
                   CAST(character_maximum_length AS CHAR), CAST(datetime_precision AS CHAR) \
                   FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = ? \
                   ORDER BY ordinal_position";
        let rows = Self::query(connection, sql, &[Some(table)]).await?;
        Ok(rows.iter().map(column).collect())
    }

    async fn execute(
        connection: &mut MySqlConnection,
        sql: &str,
        values: &[Option<&str>],
    ) -> Result<u64, Fault> {
        let done = if values.is_empty() {
            connection.execute(sqlx::raw_sql(sql)).await
        } else {
            bound(sql, values).execute(connection).await
        };
        done.map(|done| done.rows_affected()).map_err(|error| fault(&error))
    }

    async fn query(
        connection: &mut MySqlConnection,
        sql: &str,
        values: &[Option<&str>],
    ) -> Result<Vec<OwnedRow>, Fault> {
        let rows = bound(sql, values).fetch_all(connection).await.map_err(|error| fault(&error))?;
        Ok(rows.iter().map(|row| (0..row.len()).map(|at| bytes(row, at).map(Box::from)).collect()).collect())
    }
}

async fn kill(connection: &mut MySqlConnection, number: &str) -> Result<(), Fault> {
    if !number.bytes().all(|digit| digit.is_ascii_digit()) {
        return Ok(());
    }
    match connection.execute(sqlx::raw_sql(&format!("KILL CONNECTION {number}"))).await {
        // It has ended by itself meanwhile.
        Err(sqlx::Error::Database(error)) if error.message().starts_with("Unknown thread") => Ok(()),
        done => done.map(drop).map_err(|error| fault(&error)),
    }
}

fn bound<'q>(
    sql: &'q str,
    values: &'q [Option<&'q str>],
) -> sqlx::query::Query<'q, sqlx::MySql, MySqlArguments> {
    values.iter().fold(sqlx::query(sql), |query, value| query.bind(*value))
}

/// A text as the server sent it.
fn bytes(row: &MySqlRow, at: usize) -> Option<&[u8]> {
    row.try_get_unchecked::<Option<&[u8]>, _>(at).ok().flatten()
}

/// A row of the catalogue: name, whether it may be NULL, type, characters, digits of the fraction.
fn column(row: &OwnedRow) -> Column {
    let text = |at: usize| {
        let bytes = row.get(at).and_then(Option::as_deref).unwrap_or_default();
        String::from_utf8_lossy(bytes).into_owned()
    };
    let format = match text(2).to_ascii_lowercase().as_str() {
        "datetime" | "timestamp" => Format::Time(text(4).parse().unwrap_or(0)),
        "int" | "bigint" | "smallint" | "mediumint" | "tinyint" => Format::Integer,
        _ => Format::Other,
    };
    Column { name: text(0), width: text(3).parse().ok(), is_nullable: text(1) == "YES", format }
}

/// What an error of the driver's means. The server's text may repeat values of a row, which are no secrets
/// here: rows with secrets have none that are unique or too long.
pub(crate) fn fault(error: &sqlx::Error) -> Fault {
    let database = match error {
        sqlx::Error::Database(database) => database,
        sqlx::Error::Io(error) => return Fault::lost(format!("MariaDB cannot be reached: {error}")),
        sqlx::Error::Tls(error) => {
            return Fault::lost(format!(
                "no encrypted connection to MariaDB: {error}; see ssl-mode in its URL"
            ));
        }
        other => return Fault::lost(format!("the connection to MariaDB failed: {other}")),
    };
    let number = database.try_downcast_ref::<MySqlDatabaseError>().map_or(0, MySqlDatabaseError::number);
    let text = format!("MariaDB says: {} ({number})", database.message());
    match number {
        1062 | 1586 => Fault::new(Cause::Duplicate, StoreError::Refused(text)),
        // Too long, out of range, wrong characters, NULL, a CHECK.
        1048 | 1264 | 1265 | 1292 | 1366 | 1406 | 3819 | 3988 | 4025 => Fault::data(text),
        // Shutdown, too many connections, killed, read or write time-outs, interrupted.
        1040 | 1053 | 1077 | 1152..=1161 | 1203 | 1317 | 1927 | 3024 => Fault::lost(text),
        // Waited for a lock, or deadlock.
        1205 | 1213 => Fault::other(StoreError::Away(text)),
        // A statement that was prepared before the table changed.
        1243 | 1615 => Fault::lost(text),
        1021 | 1030 | 1114 => Fault::refused(format!(
            "the disk of MariaDB is full or fails: {}; make room on it",
            database.message()
        )),
        _ => Fault::refused(text),
    }
}
