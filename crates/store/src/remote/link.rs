//! A connection to PostgreSQL or MariaDB for a thread that may wait: opened again when it was lost, given up
//! when it is silent, and the only one to write the tables that it has claimed.

use std::future::Future;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::{Driver, runtime};
use crate::StoreError;
use crate::fault::{Cause, Fault};
use crate::session::{Column, Dialect, OwnedRow, Row, Session};

/// How long to wait before looking again whether an earlier connection has ended.
const ENDING: Duration = Duration::from_millis(10);

/// How long an earlier process's connection may take to end by itself: the database sees at once that a process
/// on the same host has died, and need only finish what it is at.
const LEAVING: Duration = Duration::from_millis(500);

/// A connection for a thread that may wait, opened again when it was lost.
pub(crate) struct Link<D: Driver> {
    driver: D,
    /// The database, for errors; without a password.
    name: String,
    patience: Duration,
    runtime: Runtime,
    connection: Option<D::Connection>,
    /// The server's name for the last connection, if calls through this link change what is stored. A
    /// statement that nobody waits for any more must not be carried out behind later ones, so that connection
    /// is ended first.
    earlier: Option<OwnedRow>,
    is_ordered: bool,
    /// Tables that nobody else may write as long as there is a connection.
    claims: Vec<String>,
}

/// A connection that has claimed a table.
struct Claimant {
    number: String,
    words: String,
}

impl<D: Driver> Link<D> {
    pub(crate) fn new(driver: D, name: &str, patience: Duration) -> Result<Link<D>, Fault> {
        Ok(Link {
            driver,
            name: name.to_string(),
            patience,
            runtime: runtime()?,
            connection: None,
            earlier: None,
            is_ordered: false,
            claims: Vec::new(),
        })
    }

    /// From now on what a lost connection was told is done before anything else, or never.
    pub(crate) fn keep_order(&mut self) {
        self.is_ordered = true;
    }

    /// Makes sure that there is a connection.
    pub(crate) fn ensure_open(&mut self) -> Result<(), Fault> {
        if self.connection.is_some() {
            return Ok(());
        }
        let earlier = self.is_ordered.then_some(&mut self.earlier);
        let opened = self.runtime.block_on(async {
            let open = open(&self.driver, earlier, &self.claims);
            timeout(self.patience, open).await
        });
        self.connection = Some(opened.map_err(|_| self.silent())??);
        Ok(())
    }

    /// Claims these tables; tells who has one of them already, in which case none is claimed.
    pub(crate) fn claim(&mut self, tables: &[String]) -> Result<Option<String>, Fault> {
        let other = self.run(async |connection| {
            for table in tables {
                if let Some(other) = claimant::<D>(connection, table).await? {
                    return Ok(Some(other.words));
                }
            }
            Ok(None)
        })?;
        match &other {
            Some(_) => self.close(),
            None => self.claims = tables.to_vec(),
        }
        Ok(other)
    }

    /// Claims these tables, and ends the connections that have done so if they do not end by themselves;
    /// returns words about these.
    pub(crate) fn take_over(&mut self, tables: &[String]) -> Result<Vec<String>, Fault> {
        let ended = self.run_steps(async |connection, patience| {
            let (mut ended, begun) = (Vec::new(), Instant::now());
            for table in tables {
                while let Some(other) = step(patience, claimant::<D>(connection, table)).await? {
                    if begun.elapsed() < LEAVING.min(patience) {
                        tokio::time::sleep(ENDING).await;
                        continue;
                    }
                    let cannot = |why: &dyn std::fmt::Display| {
                        Fault::refused(format!(
                            "another server writes the table {table}: {}, which cannot be ended: {why}",
                            other.words
                        ))
                    };
                    if begun.elapsed() > LEAVING + patience {
                        return Err(cannot(&format!("it is still there after {} s", patience.as_secs_f64())));
                    }
                    let done = step(patience, D::end(connection, &other.number)).await;
                    done.map_err(|fault| match fault.cause {
                        Cause::Lost => fault,
                        _ => cannot(&fault.error),
                    })?;
                    if ended.last() != Some(&other.words) {
                        ended.push(other.words);
                    }
                    tokio::time::sleep(ENDING).await;
                }
            }
            Ok(ended)
        })?;
        self.claims = tables.to_vec();
        Ok(ended)
    }

    /// The database's name for errors.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether there is a connection, as far as is known.
    pub(crate) fn is_open(&self) -> bool {
        self.connection.is_some()
    }

    fn silent(&self) -> Fault {
        let seconds = self.patience.as_secs_f64();
        Fault::late(format!("the database {} did not answer within {seconds} s", self.name))
    }

    /// Runs a call that ends in time, or its connection is given up.
    pub(crate) fn run<T>(
        &mut self,
        call: impl AsyncFnOnce(&mut D::Connection) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.ensure_open()?;
        let Some(mut connection) = self.connection.take() else { return Err(self.silent()) };
        let done = self.runtime.block_on(async { timeout(self.patience, call(&mut connection)).await });
        let result = done.unwrap_or_else(|_| Err(self.silent()));
        self.keep_unless_lost(connection, &result);
        result
    }

    /// Runs a call that may take as long as it likes, as long as each of its steps, awaited by [`step`], ends
    /// in time.
    pub(crate) fn run_steps<T>(
        &mut self,
        call: impl AsyncFnOnce(&mut D::Connection, Duration) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.ensure_open()?;
        let Some(mut connection) = self.connection.take() else { return Err(self.silent()) };
        let result = self.runtime.block_on(call(&mut connection, self.patience));
        self.keep_unless_lost(connection, &result);
        result
    }

    fn keep_unless_lost<T>(&mut self, connection: D::Connection, result: &Result<T, Fault>) {
        // Dropping it closes the socket, which needs the runtime.
        let _inside = self.runtime.enter();
        if result.as_ref().is_err_and(|fault| fault.cause == Cause::Lost) {
            drop(connection);
        } else {
            self.connection = Some(connection);
        }
    }

    /// Closes the connection, to be opened again by the next call.
    pub(crate) fn close(&mut self) {
        let _inside = self.runtime.enter();
        self.connection = None;
    }
}

impl<D: Driver> Drop for Link<D> {
    fn drop(&mut self) {
        self.close();
    }
}

/// Opens a connection; if order matters, ends the earlier one first, and notes the new one's identity there.
/// Tables that were claimed are claimed again: who was taken for dead and has been replaced must not write over
/// its successor.
async fn open<D: Driver>(
    driver: &D,
    earlier: Option<&mut Option<OwnedRow>>,
    claims: &[String],
) -> Result<D::Connection, Fault> {
    let mut connection = driver.connect().await?;
    let Some(earlier) = earlier else { return Ok(connection) };
    if let Some(earlier) = earlier {
        let parts: Vec<Option<String>> = (0..earlier.len()).map(|at| text(earlier, at)).collect();
        let parts: Vec<Option<&str>> = parts.iter().map(Option::as_deref).collect();
        // The caller's patience ends this.
        while !D::end_earlier(&mut connection, &parts).await? {
            tokio::time::sleep(ENDING).await;
        }
    }
    // Before the claims: if this one is given up while it makes them, the next one must know whom to end.
    *earlier = D::identity(&mut connection).await?.into_iter().next();
    for table in claims {
        if let Some(other) = claimant::<D>(&mut connection, table).await? {
            return Err(Fault::other(StoreError::Away(format!(
                "another server has taken over the table {table} ({}); two can share it with db_mode 3 only",
                other.words
            ))));
        }
    }
    Ok(connection)
}

/// Claims a table; tells who has done so already.
async fn claimant<D: Driver>(connection: &mut D::Connection, table: &str) -> Result<Option<Claimant>, Fault> {
    while !D::claim(connection, table).await? {
        let found = D::claimant(connection, table).await?;
        // It may have gone meanwhile.
        if let Some(row) = found.first()
            && let Some(number) = text(row, 0)
        {
            return Ok(Some(Claimant { number, words: text(row, 1).unwrap_or_default() }));
        }
        tokio::time::sleep(ENDING).await;
    }
    Ok(None)
}

fn text(row: &OwnedRow, at: usize) -> Option<String> {
    row.get(at)?.as_deref().map(|text| String::from_utf8_lossy(text).into_owned())
}

/// Awaits one step of a long call.
pub(crate) async fn step<T>(
    patience: Duration,
    what: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    let late = |_| Fault::late(format!("the database did not go on within {} s", patience.as_secs_f64()));
    timeout(patience, what).await.unwrap_or_else(|elapsed| Err(late(elapsed)))
}

/// Awaits a statement that is one step.
pub(crate) async fn run<D: Driver>(
    connection: &mut D::Connection,
    patience: Duration,
    sql: &str,
) -> Result<(), Fault> {
    step(patience, D::execute(connection, sql, &[])).await.map(drop)
}

impl<D: Driver> Session for Link<D> {
    fn dialect(&self) -> Dialect {
        D::DIALECT
    }

    fn columns(&mut self, table: &str) -> Result<Vec<Column>, Fault> {
        self.run(async |connection| D::columns(connection, table).await)
    }

    fn execute(&mut self, sql: &str, values: &[Option<&str>]) -> Result<u64, Fault> {
        self.run(async |connection| D::execute(connection, sql, values).await)
    }

    fn execute_all(&mut self, statements: &[String]) -> Result<(), Fault> {
        let done = self.run(async |connection| {
            D::execute(connection, "BEGIN", &[]).await?;
            for statement in statements {
                D::execute(connection, statement, &[]).await?;
            }
            D::execute(connection, "COMMIT", &[]).await.map(|_| ())
        });
        if done.is_err() {
            // The transaction ends with its connection.
            self.close();
        }
        done
    }

    fn query(
        &mut self,
        sql: &str,
        values: &[Option<&str>],
        visit: &mut dyn FnMut(&Row<'_>) -> bool,
    ) -> Result<(), Fault> {
        let rows = self.run(async |connection| D::query(connection, sql, values).await)?;
        for row in rows {
            let texts: Vec<Option<&[u8]>> = row.iter().map(Option::as_deref).collect();
            if !visit(&texts) {
                break;
            }
        }
        Ok(())
    }
}
