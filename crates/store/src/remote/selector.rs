//! A selector of PostgreSQL or MariaDB: one thread with a pool of connections, which answers questions by their
//! deadlines and looks for a database that is away.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use super::{Driver, runtime};
use crate::StoreError;
use crate::fault::{Cause, Fault};
use crate::health::{Backoff, Health};
use crate::selector::{Reply, Select, Selector, Way, finish, too_late, turn_away};
use crate::session::{OwnedRow, key_texts, select_sql};

/// A connection is looked for with this patience, in the background.
const PROBE: Duration = Duration::from_secs(5);

/// So many questions in a row without an answer in time mean that nobody is there.
const SILENT_MAX: u32 = 3;

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
pub(crate) fn start<D: Driver>(
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
