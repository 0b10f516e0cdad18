//! PostgreSQL, by its asynchronous driver on a runtime of one thread.

mod bindings;
mod copy;

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgArguments, PgConnectOptions, PgConnection, PgRow};
use sqlx::{ConnectOptions, Executor, Row as _, ValueRef};

use crate::bindings::Names;
use crate::fault::{Cause, Fault};
use crate::health::Health;
use crate::remote::{Driver, Link, RemoteBindings};
use crate::session::{Column, Dialect, Format, OwnedRow, Session};
use crate::{Bindings, Selector, StoreError};

/// The server ends a statement that takes so long: longer than anybody here waits, but not for ever, so that
/// statements that nobody waits for do not pile up behind a lock.
const STATEMENT_LIMIT: Duration = Duration::from_secs(30);

/// The number of the advisory lock for a table of this schema.
const CLAIM: &str = "hashtextextended(CONCAT_WS('.', 'strowger', current_schema(), CAST($1 AS TEXT)), 0)";

/// How to reach a database, and what its connections are for.
pub(crate) struct Postgres {
    options: PgConnectOptions,
    /// Whether a commit must be on disk.
    commits: bool,
}

fn driver(url: &str, commits: bool) -> Result<Postgres, StoreError> {
    let options = PgConnectOptions::from_str(url)
        .map_err(|_| StoreError::Wrong("the database's URL cannot be read".to_string()))?
        .application_name("strowger")
        .disable_statement_logging();
    Ok(Postgres { options, commits })
}

/// A connection for one thread.
pub(crate) fn session(url: &str, name: &str, patience: Duration) -> Result<Box<dyn Session>, StoreError> {
    Ok(Box::new(Link::new(driver(url, true)?, name, patience)?))
}

/// Location tables, for one thread.
pub(crate) fn bindings(
    url: &str,
    name: &str,
    patience: Duration,
    names: Names,
) -> Result<Bindings, StoreError> {
    Ok(Bindings::new(RemoteBindings::new(driver(url, true)?, name, patience, names)?))
}

/// Threads that answer questions.
pub(crate) fn start_selector(
    url: &str,
    connections: usize,
    waiting_max: usize,
    health: Arc<Health>,
) -> Result<Selector, StoreError> {
    crate::remote::start_selector(driver(url, false)?, connections, waiting_max, health)
}

impl Driver for Postgres {
    type Connection = PgConnection;
    const DIALECT: Dialect = Dialect::Postgres;

    async fn connect(&self) -> Result<PgConnection, Fault> {
        let unreachable = |error| fault(&error).and_lost();
        let mut connection = self.options.connect().await.map_err(unreachable)?;
        // What is acknowledged is on disk, even where the server's default is to be quicker than that.
        let commit = if self.commits {
            "SELECT set_config('synchronous_commit', 'on', false) \
             WHERE current_setting('synchronous_commit') = 'off'; "
        } else {
            ""
        };
        let settings = format!("{commit}SET statement_timeout = {}", STATEMENT_LIMIT.as_millis());
        connection.execute(sqlx::raw_sql(&settings)).await.map_err(unreachable)?;
        Ok(connection)
    }

    async fn identity(connection: &mut PgConnection) -> Result<Vec<OwnedRow>, Fault> {
        let sql = "SELECT CAST(pid AS TEXT), CAST(backend_start AS TEXT) FROM pg_catalog.pg_stat_activity \
                   WHERE pid = pg_backend_pid()";
        Self::query(connection, sql, &[]).await
    }

    async fn end_earlier(connection: &mut PgConnection, identity: &[Option<&str>]) -> Result<bool, Fault> {
        // Numbers of processes are used again; the time of the start tells them apart.
        let sql = "SELECT CAST(pg_terminate_backend(pid) AS TEXT) FROM pg_catalog.pg_stat_activity \
                   WHERE pid = CAST($1 AS INTEGER) AND pid <> pg_backend_pid() \
                   AND CAST(backend_start AS TEXT) = $2";
        Ok(Self::query(connection, sql, identity).await?.is_empty())
    }

    async fn claim(connection: &mut PgConnection, table: &str) -> Result<bool, Fault> {
        let sql = format!("SELECT CAST(pg_try_advisory_lock({CLAIM}) AS TEXT)");
        let done = Self::query(connection, &sql, &[Some(table)]).await?;
        Ok(done.first().and_then(|row| row.first()?.as_deref()) == Some(b"true"))
    }

    async fn claimant(connection: &mut PgConnection, table: &str) -> Result<Vec<OwnedRow>, Fault> {
        let sql = format!(
            "SELECT CAST(pid AS TEXT), CONCAT('process ', pid, ' of PostgreSQL for ', \
             COALESCE(HOST(client_addr), 'somebody'), ', since ', DATE_TRUNC('second', backend_start)) \
             FROM pg_catalog.pg_locks JOIN pg_catalog.pg_stat_activity USING (pid) \
             WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND pid <> pg_backend_pid() \
             AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()) \
             AND (CAST(classid AS BIGINT) << 32) | CAST(objid AS BIGINT) = {CLAIM}"
        );
        Self::query(connection, &sql, &[Some(table)]).await
    }

    async fn end(connection: &mut PgConnection, number: &str) -> Result<(), Fault> {
        let sql = "SELECT CAST(pg_terminate_backend(CAST($1 AS INTEGER)) AS TEXT)";
        Self::query(connection, sql, &[Some(number)]).await.map(drop)
    }

    async fn columns(connection: &mut PgConnection, table: &str) -> Result<Vec<Column>, Fault> {
        let sql = "SELECT CAST(attname AS TEXT), CAST(attnotnull AS TEXT), CAST(atttypid AS TEXT), \
                   CAST(atttypmod AS TEXT) FROM pg_catalog.pg_attribute \
                   WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped ORDER BY attnum";
        let quoted = Dialect::Postgres.quote(table);
        let rows = Self::query(connection, sql, &[Some(&quoted)]).await?;
        Ok(rows.iter().map(column).collect())
    }

    async fn execute(
        connection: &mut PgConnection,
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
        connection: &mut PgConnection,
        sql: &str,
        values: &[Option<&str>],
    ) -> Result<Vec<OwnedRow>, Fault> {
        let rows = bound(sql, values).fetch_all(connection).await.map_err(|error| fault(&error))?;
        Ok(rows.iter().map(|row| (0..row.len()).map(|at| bytes(row, at).map(Box::from)).collect()).collect())
    }
}

fn bound<'q>(
    sql: &'q str,
    values: &'q [Option<&'q str>],
) -> sqlx::query::Query<'q, sqlx::Postgres, PgArguments> {
    values.iter().fold(sqlx::query(sql), |query, value| query.bind(*value))
}

/// A value as the server sent it.
fn bytes(row: &PgRow, at: usize) -> Option<&[u8]> {
    let value = row.try_get_raw(at).ok()?;
    if value.is_null() {
        return None;
    }
    value.as_bytes().ok()
}

/// A row of the catalogue: name, not null, type and its modifier.
fn column(row: &OwnedRow) -> Column {
    let text = |at: usize| {
        let bytes = row.get(at).and_then(Option::as_deref).unwrap_or_default();
        String::from_utf8_lossy(bytes).into_owned()
    };
    let modifier: i32 = text(3).parse().unwrap_or(-1);
    let (width, format) = match text(2).as_str() {
        // bpchar and varchar
        "1042" | "1043" => (usize::try_from(modifier - 4).ok(), Format::Other),
        "1114" => (None, Format::Time(u8::try_from(modifier).unwrap_or(6))),
        "20" | "21" | "23" => (None, Format::Integer),
        _ => (None, Format::Other),
    };
    Column { name: text(0), width, is_nullable: text(1) != "true", format }
}

/// What an error of the driver's means. Its text names tables and columns, never values.
pub(crate) fn fault(error: &sqlx::Error) -> Fault {
    let database = match error {
        sqlx::Error::Database(database) => database,
        sqlx::Error::Io(error) => return Fault::lost(format!("PostgreSQL cannot be reached: {error}")),
        sqlx::Error::Tls(error) => {
            return Fault::lost(format!(
                "no encrypted connection to PostgreSQL: {error}; see sslmode in its URL"
            ));
        }
        other => return Fault::lost(format!("the connection to PostgreSQL failed: {other}")),
    };
    let code = database.code().unwrap_or_default();
    let text = format!("PostgreSQL says: {} ({code})", database.message());
    let class = code.get(..2).unwrap_or_default();
    match (class, &*code) {
        (_, "23505") => Fault::new(Cause::Duplicate, StoreError::Refused(text)),
        (_, "42883") => Fault::new(Cause::Types, StoreError::Refused(text)),
        ("22" | "23", _) => Fault::data(text),
        // A statement that was prepared for a table that has changed since.
        (_, "0A000" | "26000") => Fault::lost(text),
        ("08" | "57" | "58", _) | (_, "53300") => Fault::lost(text),
        ("40", _) | (_, "55P03") => Fault::other(StoreError::Away(text)),
        (_, "53100") => Fault::refused(format!("the disk of PostgreSQL is full; make room on it ({code})")),
        _ => Fault::refused(text),
    }
}
