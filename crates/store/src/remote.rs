//! What PostgreSQL and MariaDB have in common: connections over a network that may be lost, silent or
//! refused.
//!
//! One thread has one runtime and waits in it; nothing here runs on a thread that carries messages.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use crate::StoreError;
use crate::fault::{Cause, Fault};
use crate::health::{Backoff, Health};
use crate::selector::{Reply, Select, Selector, Way, finish, too_late, turn_away};
use crate::session::{Column, Dialect, OwnedRow, Row, Session, key_texts, select_sql};

/// A connection is looked for with this patience, in the background.
const PROBE: Duration = Duration::from_secs(5);

/// How long to wait before looking again whether an earlier connection has ended.
const ENDING: Duration = Duration::from_millis(10);

/// So many questions in a row without an answer in time mean that nobody is there.
const SILENT_MAX: u32 = 3;

/// How a kind of database is spoken to.
pub(crate) trait Driver: Send + Sync + 'static {
    type Connection: Send + 'static;
    const DIALECT: Dialect;

    fn connect(&self) -> impl Future<Output = Result<Self::Connection, Fault>> + Send;

    /// What the server calls this connection.
    fn identity(
        connection: &mut Self::Connection,
    ) -> impl Future<Output = Result<Vec<OwnedRow>, Fault>> + Send;

    /// Ends an earlier connection with this identity, if the server still has it; true when it has it no
    /// more.
    fn end_earlier(
        connection: &mut Self::Connection,
        identity: &[Option<&str>],
    ) -> impl Future<Output = Result<bool, Fault>> + Send;

    fn columns(
        connection: &mut Self::Connection,
        table: &str,
    ) -> impl Future<Output = Result<Vec<Column>, Fault>> + Send;

    fn execute(
        connection: &mut Self::Connection,
        sql: &str,
        values: &[Option<&str>],
    ) -> impl Future<Output = Result<u64, Fault>> + Send;

    fn query(
        connection: &mut Self::Connection,
        sql: &str,
        values: &[Option<&str>],
    ) -> impl Future<Output = Result<Vec<OwnedRow>, Fault>> + Send;
}

/// A connection for a thread that may wait, opened again when it was lost.
pub(crate) struct Link<D: Driver> {
    pub(crate) driver: D,
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
        let opened = self.runtime.block_on(async {
            let open = open(&self.driver, self.is_ordered, self.earlier.as_ref());
            timeout(self.patience, open).await
        });
        let (connection, identity) = opened.map_err(|_| self.silent())??;
        self.connection = Some(connection);
        self.earlier = identity;
        Ok(())
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

/// Opens a connection; if order matters, ends the earlier one first, and tells the new one's identity.
async fn open<D: Driver>(
    driver: &D,
    is_ordered: bool,
    earlier: Option<&OwnedRow>,
) -> Result<(D::Connection, Option<OwnedRow>), Fault> {
    let mut connection = driver.connect().await?;
    if !is_ordered {
        return Ok((connection, None));
    }
    if let Some(earlier) = earlier {
        let text =
            |part: &Option<Box<[u8]>>| part.as_deref().map(|part| String::from_utf8_lossy(part).into_owned());
        let parts: Vec<Option<String>> = earlier.iter().map(text).collect();
        let parts: Vec<Option<&str>> = parts.iter().map(Option::as_deref).collect();
        // The caller's patience ends this.
        while !D::end_earlier(&mut connection, &parts).await? {
            tokio::time::sleep(ENDING).await;
        }
    }
    let identity = D::identity(&mut connection).await?;
    Ok((connection, identity.into_iter().next()))
}

fn runtime() -> Result<Runtime, Fault> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Fault::refused(format!("the system refuses what a connection needs: {error}")))
}

/// Awaits one step of a long call.
pub(crate) async fn step<T>(
    patience: Duration,
    what: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    let late = |_| Fault::late(format!("the database did not go on within {} s", patience.as_secs_f64()));
    timeout(patience, what).await.unwrap_or_else(|elapsed| Err(late(elapsed)))
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

struct Question {
    select: Select,
    deadline: Instant,
    reply: Reply,
}

/// The way to the thread with the runtime.
struct Handle {
    questions: mpsc::UnboundedSender<Question>,
    health: Arc<Health>,
    waiting_max: u64,
}

impl Way for Handle {
    fn ask(&self, select: Select, deadline: Instant, reply: Reply) {
        use std::sync::atomic::Ordering;
        // The queue has no bound of its own: this count is it.
        if self.health.waiting.fetch_add(1, Ordering::AcqRel) >= self.waiting_max {
            self.health.waiting.fetch_sub(1, Ordering::AcqRel);
            return turn_away(&self.health, reply);
        }
        if let Err(error) = self.questions.send(Question { select, deadline, reply }) {
            self.health.waiting.fetch_sub(1, Ordering::AcqRel);
            finish(&self.health, error.0.reply, Err(too_late(&self.health)));
        }
    }
}

/// What the tasks of a selector share.
struct Pool<D: Driver> {
    driver: D,
    health: Arc<Health>,
    idle: Mutex<Vec<D::Connection>>,
    /// Connections that may be used at once.
    permits: Semaphore,
    /// Questions in a row that had a connection, or tried to get one, and no answer in time.
    silent: std::sync::atomic::AtomicU32,
    /// How long to wait before the next attempt; a database that is found and does not answer then is looked
    /// for ever more rarely, too.
    backoff: Mutex<Backoff>,
}

/// Starts the thread.
pub(crate) fn start_selector<D: Driver>(
    driver: D,
    connections: usize,
    waiting_max: usize,
    health: Arc<Health>,
) -> Result<Selector, StoreError> {
    let connections = connections.clamp(1, 1024);
    let (sender, receiver) = mpsc::unbounded_channel();
    let runtime = runtime()?;
    let pool = Arc::new(Pool {
        driver,
        health: Arc::clone(&health),
        idle: Mutex::new(Vec::new()),
        permits: Semaphore::new(connections),
        silent: std::sync::atomic::AtomicU32::new(0),
        backoff: Mutex::new(Backoff::default()),
    });
    std::thread::Builder::new()
        .name("sql read".to_string())
        .spawn(move || runtime.block_on(serve(pool, receiver)))
        .map_err(|error| StoreError::Refused(format!("the system refuses a thread: {error}")))?;
    let waiting_max = (waiting_max as u64).saturating_add(connections as u64);
    let handle = Handle { questions: sender, health: Arc::clone(&health), waiting_max };
    Ok(Selector::new(health, Arc::new(handle)))
}

/// Gives each question a task of its own, so that none waits for another beyond its deadline.
async fn serve<D: Driver>(pool: Arc<Pool<D>>, mut questions: mpsc::UnboundedReceiver<Question>) {
    use std::sync::atomic::Ordering;
    while let Some(question) = questions.recv().await {
        let pool = Arc::clone(&pool);
        tokio::spawn(async move {
            let Question { select, deadline, reply } = question;
            let at = tokio::time::Instant::from_std(deadline);
            let answer = tokio::time::timeout_at(at, pool.answer(&select)).await;
            let answer = match answer {
                Ok(answer) => {
                    if answer.as_ref().is_err_and(|fault| fault.cause == Cause::Lost) {
                        pool.look_for_it(&answer);
                    } else {
                        pool.silent.store(0, Ordering::Relaxed);
                        *pool.backoff() = Backoff::default();
                    }
                    answer.map_err(StoreError::from)
                }
                Err(_) => {
                    if pool.silent.fetch_add(1, Ordering::Relaxed) + 1 >= SILENT_MAX {
                        pool.look_for_it(&Err(Fault::lost("it does not answer".to_string())));
                    }
                    Err(too_late(&pool.health))
                }
            };
            pool.health.waiting.fetch_sub(1, Ordering::AcqRel);
            finish(&pool.health, reply, answer);
        });
    }
    // Nobody asks any more; each question that waits is answered by its deadline.
    while pool.health.waiting.load(Ordering::Acquire) > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

impl<D: Driver> Pool<D> {
    /// Asks on a connection of the pool. An idle connection may have been closed by the other side meanwhile:
    /// a question that found one lost is asked once more on a new one.
    async fn answer(self: &Arc<Self>, select: &Select) -> Result<Vec<OwnedRow>, Fault> {
        let _permit = self.permits.acquire().await.map_err(|_| Fault::lost("closed".to_string()))?;
        if let Some(connection) = self.take_idle() {
            let answer = self.answer_on(connection, select).await;
            if !answer.as_ref().is_err_and(|fault| fault.cause == Cause::Lost) {
                return answer;
            }
            self.idle().clear();
            self.health.reconnected();
        }
        let connection = self.driver.connect().await?;
        self.answer_on(connection, select).await
    }

    async fn answer_on(
        &self,
        mut connection: D::Connection,
        select: &Select,
    ) -> Result<Vec<OwnedRow>, Fault> {
        let Some(values) = key_texts(select) else {
            self.idle().push(connection);
            return Ok(Vec::new());
        };
        let values: Vec<Option<&str>> = values.into_iter().map(Some).collect();
        let mut answer = self.ask_on(&mut connection, select, &values, false).await;
        if answer.as_ref().is_err_and(|fault| fault.cause == Cause::Types) {
            answer = self.ask_on(&mut connection, select, &values, true).await;
        }
        if !answer.as_ref().is_err_and(|fault| fault.cause == Cause::Lost) {
            self.idle().push(connection);
        }
        answer
    }

    async fn ask_on(
        &self,
        connection: &mut D::Connection,
        select: &Select,
        values: &[Option<&str>],
        casts: bool,
    ) -> Result<Vec<OwnedRow>, Fault> {
        let sql = select_sql(D::DIALECT, select, casts)?;
        D::query(connection, &sql, values).await
    }

    fn take_idle(&self) -> Option<D::Connection> {
        self.idle().pop()
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<D::Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn backoff(&self) -> std::sync::MutexGuard<'_, Backoff> {
        self.backoff.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the database is away, and looks for it in the background until it is back.
    fn look_for_it(self: &Arc<Self>, answer: &Result<Vec<OwnedRow>, Fault>) {
        let Err(fault) = answer else { return };
        if !self.health.went_away(&fault.error.to_string()) {
            return;
        }
        self.idle().clear();
        let pool = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                // Nobody asks any more if it is gone.
                let Some(wait) = pool.upgrade().map(|pool| pool.backoff().next()) else { return };
                tokio::time::sleep(wait).await;
                let Some(pool) = pool.upgrade() else { return };
                if let Ok(Ok(mut connection)) = timeout(PROBE, pool.driver.connect()).await
                    && matches!(timeout(PROBE, D::query(&mut connection, "SELECT 1", &[])).await, Ok(Ok(_)))
                {
                    pool.idle().push(connection);
                    pool.silent.store(0, std::sync::atomic::Ordering::Relaxed);
                    pool.health.reconnected();
                    return pool.health.is_back();
                }
            }
        });
    }
}
