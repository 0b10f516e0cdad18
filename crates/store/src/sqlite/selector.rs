//! Questions to a file: a few threads that read, and one that watches the clock.
//!
//! A disk that hangs holds its thread for as long as it likes, so the answer is not bound to it: whoever
//! comes first, the thread with the rows or the watch with the deadline, takes the reply out of its slot.
//!
//! While answers come quickly one thread gives them all, so that what it has read stays in the processor's cache and few are
//! woken; the others help when it is slow or much waits. Whoever has nothing to do sleeps at once, and does not spin in the hope
//! of more, as those who wait at a channel do.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, params_from_iter};

use super::session::{as_text, text};
use super::{Access, FileId, fault, open};
use crate::fault::{Cause, Fault};
use crate::health::{Backoff, Health};
use crate::selector::{Reply, Select, Selector, Way, finish, too_late, turn_away};
use crate::session::{Dialect, OwnedRow, select_sql};
use crate::{Selected, StoreError};

/// The watch looks so often while questions wait, and answers those whose deadline comes before its next
/// look.
const TICK: Duration = Duration::from_millis(20);

/// The other readers help when the first one is at a question for so long, or so many wait for it.
const SLOW: Duration = Duration::from_millis(1);
const MANY: usize = 16;

/// A lock is waited for at least so long, even if the deadline is near.
const BUSY_MIN: Duration = Duration::from_millis(1);

struct Job {
    slot: usize,
    ticket: u64,
    select: Select,
    deadline: Instant,
}

struct Pool(Arc<Shared>);

struct Shared {
    health: Arc<Health>,
    path: PathBuf,
    patience: Duration,
    slots: Mutex<Slots>,
    /// Wakes the first reader.
    first: Condvar,
    /// Wakes one of the others.
    others: Condvar,
    /// Wakes the watch.
    watch: Condvar,
}

#[derive(Default)]
struct Slots {
    pending: Vec<Option<(u64, Instant, Reply)>>,
    free: Vec<usize>,
    tickets: u64,
    /// Questions that no reader has taken; of some the deadline has passed, and their slot is another's.
    jobs: VecDeque<Job>,
    /// When the first reader was woken or took its last question; `None` while it sleeps.
    first_since: Option<Instant>,
    /// The watch is awake.
    is_watched: bool,
    is_closing: bool,
}

/// What a reader finds when it looks for a question.
enum Next {
    Job(Job),
    /// None has come by then.
    Timeout,
    /// Nobody asks any more.
    Closed,
}

impl Slots {
    fn count(&self) -> usize {
        self.pending.len() - self.free.len()
    }

    fn is_pending(&self, job: &Job) -> bool {
        let place = self.pending.get(job.slot).and_then(Option::as_ref);
        place.is_some_and(|(ticket, ..)| *ticket == job.ticket)
    }

    /// The next question whose answer is still wanted.
    fn pop(&mut self) -> Option<Job> {
        while let Some(job) = self.jobs.pop_front() {
            if self.is_pending(&job) {
                return Some(job);
            }
        }
        None
    }

    fn take(&mut self, slot: usize, ticket: u64) -> Option<Reply> {
        let place = self.pending.get_mut(slot)?;
        if place.as_ref().is_none_or(|(number, ..)| *number != ticket) {
            return None;
        }
        let (_, _, reply) = place.take()?;
        self.free.push(slot);
        Some(reply)
    }
}

impl Shared {
    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_waiting(&self, slots: &Slots) {
        self.health.waiting.store(slots.count() as u64, std::sync::atomic::Ordering::Relaxed);
    }

    /// Waits for a question, if need be until then or for ever.
    fn next(&self, is_first: bool, until: Option<Instant>) -> Next {
        let mut slots = self.slots();
        loop {
            if let Some(job) = slots.pop() {
                if is_first {
                    slots.first_since = Some(Instant::now());
                }
                return Next::Job(job);
            }
            if slots.is_closing {
                return Next::Closed;
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Next::Timeout;
            }
            if is_first {
                slots.first_since = None;
            }
            let bell = if is_first { &self.first } else { &self.others };
            slots = match left {
                None => bell.wait(slots).unwrap_or_else(PoisonError::into_inner),
                Some(left) => bell.wait_timeout(slots, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
    }

    fn answer(&self, job: &Job, answer: Selected) {
        let mut slots = self.slots();
        let reply = slots.take(job.slot, job.ticket);
        self.note_waiting(&slots);
        drop(slots);
        if let Some(reply) = reply {
            finish(&self.health, reply, answer);
        }
    }
}

/// Starts the threads.
pub(crate) fn start(
    path: PathBuf,
    patience: Duration,
    connections: usize,
    waiting_max: usize,
    health: Arc<Health>,
) -> Result<Selector, StoreError> {
    let connections = connections.max(1);
    let room = waiting_max.saturating_add(connections);
    let slots = Slots {
        pending: (0..room).map(|_| None).collect(),
        free: (0..room).rev().collect(),
        ..Slots::default()
    };
    let shared = Arc::new(Shared {
        health: Arc::clone(&health),
        path,
        patience,
        slots: Mutex::new(slots),
        first: Condvar::new(),
        others: Condvar::new(),
        watch: Condvar::new(),
    });
    let pool = Pool(Arc::clone(&shared));
    let watched = Arc::clone(&shared);
    spawn("sqlite watch", move || watch(&watched))?;
    for number in 0..connections {
        let reader = Reader { shared: Arc::clone(&shared), is_first: number == 0, opened: None };
        spawn("sqlite read", move || reader.run())?;
    }
    Ok(Selector::new(health, Arc::new(pool)))
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), StoreError> {
    let started = std::thread::Builder::new().name(name.to_string()).spawn(body);
    started.map(|_| ()).map_err(|error| {
        StoreError::Refused(format!("the system refuses a thread for the database: {error}"))
    })
}

impl Way for Pool {
    fn ask(&self, select: Select, deadline: Instant, reply: Reply) {
        let Pool(shared) = self;
        let mut slots = shared.slots();
        // A question whose deadline has passed leaves its slot before a reader comes by it.
        let has_room = slots.jobs.len() < slots.pending.len();
        let Some(slot) = slots.free.pop_if(|_| has_room) else {
            drop(slots);
            return turn_away(&shared.health, reply);
        };
        slots.tickets += 1;
        let ticket = slots.tickets;
        slots.pending[slot] = Some((ticket, deadline, reply));
        slots.jobs.push_back(Job { slot, ticket, select, deadline });
        shared.note_waiting(&slots);
        let now = Instant::now();
        let bell = match slots.first_since {
            None => {
                slots.first_since = Some(now);
                Some(&shared.first)
            }
            Some(since) => (slots.jobs.len() > MANY || now > since + SLOW).then_some(&shared.others),
        };
        let is_watched = std::mem::replace(&mut slots.is_watched, true);
        drop(slots);
        if let Some(bell) = bell {
            bell.notify_one();
        }
        if !is_watched {
            shared.watch.notify_one();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.0.slots().is_closing = true;
        self.0.first.notify_all();
        self.0.others.notify_all();
        self.0.watch.notify_all();
    }
}

/// Answers what would be too late, and has the other readers help with what waits.
fn watch(shared: &Shared) {
    loop {
        let mut slots = shared.slots();
        if slots.count() == 0 {
            if slots.is_closing {
                return;
            }
            slots.is_watched = false;
            // Whoever wakes it may have an answer before it looks: it stays awake for a tick all the same.
            slots = shared.watch.wait(slots).unwrap_or_else(PoisonError::into_inner);
            slots.is_watched = true;
        }
        let limit = Instant::now() + TICK;
        let late: Vec<(usize, u64)> = slots
            .pending
            .iter()
            .enumerate()
            .filter_map(|(slot, place)| {
                let (ticket, deadline, _) = place.as_ref()?;
                (*deadline <= limit).then_some((slot, *ticket))
            })
            .collect();
        let replies: Vec<Reply> =
            late.into_iter().filter_map(|(slot, ticket)| slots.take(slot, ticket)).collect();
        shared.note_waiting(&slots);
        let is_work_left = !slots.jobs.is_empty();
        drop(slots);
        if is_work_left {
            shared.others.notify_all();
        }
        for reply in replies {
            finish(&shared.health, reply, Err(too_late(&shared.health)));
        }
        std::thread::sleep(TICK);
    }
}

/// A thread with a connection that reads.
struct Reader {
    shared: Arc<Shared>,
    is_first: bool,
    opened: Option<(Connection, FileId)>,
}

impl Reader {
    fn run(mut self) {
        while let Next::Job(job) = self.shared.next(self.is_first, None) {
            let answer = self.select(&job);
            let lost = match &answer {
                Err(fault) if fault.cause == Cause::Lost => Some(fault.error.to_string()),
                _ => None,
            };
            self.shared.answer(&job, answer.map_err(StoreError::from));
            if let Some(why) = lost {
                self.opened = None;
                if self.shared.health.went_away(&why) && !self.look_for_it() {
                    return;
                }
            }
        }
    }

    /// Tries to open the file until it can be; questions that come meanwhile fail. False when nobody asks any
    /// more.
    fn look_for_it(&mut self) -> bool {
        let mut backoff = Backoff::default();
        loop {
            let until = Instant::now() + backoff.next();
            loop {
                match self.shared.next(self.is_first, Some(until)) {
                    Next::Job(job) => self.shared.answer(&job, Err(too_late(&self.shared.health))),
                    Next::Timeout => break,
                    Next::Closed => return false,
                }
            }
            if self.connection().is_ok() {
                self.shared.health.reconnected();
                self.shared.health.is_back();
                return true;
            }
        }
    }

    fn connection(&mut self) -> Result<&Connection, Fault> {
        let shared = &self.shared;
        let file = FileId::of(&shared.path)?;
        if self.opened.as_ref().is_none_or(|(_, opened)| *opened != file) {
            self.opened = None;
            let connection = open(&shared.path, Access::Read, shared.patience)?;
            connection.execute_batch("PRAGMA query_only=ON").map_err(|error| fault(&shared.path, &error))?;
            self.opened = Some((connection, file));
        }
        let opened = self.opened.as_ref().map(|(connection, _)| connection);
        opened.ok_or_else(|| Fault::lost(format!("the database file {} is not open", shared.path.display())))
    }

    fn select(&mut self, job: &Job) -> Result<Vec<OwnedRow>, Fault> {
        let path = self.shared.path.clone();
        let sql = select_sql(Dialect::Sqlite, &job.select, false)?;
        let connection = self.connection()?;
        let left = job.deadline.saturating_duration_since(Instant::now()).max(BUSY_MIN);
        let mut rows = Vec::new();
        let mut read = || -> rusqlite::Result<()> {
            connection.busy_timeout(left)?;
            let mut statement = connection.prepare_cached(&sql)?;
            let count = statement.column_count();
            let mut found =
                statement.query(params_from_iter(job.select.keys.iter().map(|(_, key)| text(key))))?;
            let mut number = String::new();
            while let Some(row) = found.next()? {
                let mut texts = Vec::with_capacity(count);
                for index in 0..job.select.columns.len() {
                    texts.push(as_text(row.get_ref(index)?, &mut number).map(Box::from));
                }
                rows.push(texts);
            }
            Ok(())
        };
        read().map_err(|error| fault(&path, &error))?;
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const FOR_EVER: Duration = Duration::from_secs(60);

    /// A pool whose readers are played by the test.
    fn pool() -> Pool {
        let slots =
            Slots { pending: (0..64).map(|_| None).collect(), free: (0..64).collect(), ..Slots::default() };
        Pool(Arc::new(Shared {
            health: Arc::new(Health::new("test".to_string())),
            path: PathBuf::new(),
            patience: FOR_EVER,
            slots: Mutex::new(slots),
            first: Condvar::new(),
            others: Condvar::new(),
            watch: Condvar::new(),
        }))
    }

    fn ask(pool: &Pool) {
        pool.ask(Select::default(), Instant::now() + FOR_EVER, Box::new(|_| ()));
    }

    /// Another reader, which says what it gets.
    fn other(pool: &Pool) -> mpsc::Receiver<bool> {
        let (got, gets) = mpsc::channel();
        let shared = Arc::clone(&pool.0);
        std::thread::spawn(move || {
            got.send(matches!(shared.next(false, Some(Instant::now() + FOR_EVER)), Next::Job(_)))
        });
        gets
    }

    fn first_takes_one(pool: &Pool) {
        ask(pool);
        assert!(matches!(pool.0.next(true, None), Next::Job(_)));
    }

    #[test]
    fn another_helps_when_the_first_is_slow() {
        let pool = pool();
        first_takes_one(&pool);
        let gets = other(&pool);
        std::thread::sleep(2 * SLOW);
        ask(&pool);
        assert_eq!(gets.recv_timeout(FOR_EVER / 2), Ok(true));
    }

    #[test]
    fn another_helps_when_many_wait() {
        let pool = pool();
        first_takes_one(&pool);
        let gets = other(&pool);
        (0..=MANY).for_each(|_| ask(&pool));
        assert_eq!(gets.recv_timeout(FOR_EVER / 2), Ok(true));
    }

    #[test]
    fn the_watch_has_another_help_when_nobody_else_asks() {
        let pool = pool();
        first_takes_one(&pool);
        ask(&pool);
        let gets = other(&pool);
        let watched = Arc::clone(&pool.0);
        let watch = std::thread::spawn(move || watch(&watched));
        assert_eq!(gets.recv_timeout(FOR_EVER / 2), Ok(true));
        // Its questions are never answered here; without them it ends.
        pool.0.slots().pending.iter_mut().for_each(|place| *place = None);
        pool.0.slots().free = (0..64).collect();
        drop(pool);
        watch.join().unwrap();
    }

    #[test]
    fn questions_that_nobody_takes_are_turned_away_when_there_is_no_room() {
        let pool = pool();
        (0..70).for_each(|_| ask(&pool));
        assert_eq!(pool.0.slots().jobs.len(), 64);
        assert_eq!(pool.0.health.state().full, 6);
    }

    #[test]
    fn readers_end_after_the_last_question() {
        let pool = pool();
        ask(&pool);
        let shared = Arc::clone(&pool.0);
        drop(pool);
        assert!(matches!(shared.next(true, None), Next::Job(_)));
        assert!(matches!(shared.next(true, None), Next::Closed));
        assert!(matches!(shared.next(false, None), Next::Closed));
    }
}
