//! Questions to a file: a few threads that read, and one that watches the clock.
//!
//! A disk that hangs holds its thread for as long as it likes, so the answer is not bound to it: whoever
//! comes first, the thread with the rows or the watch with the deadline, takes the reply out of its slot.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
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

/// A lock is waited for at least so long, even if the deadline is near.
const BUSY_MIN: Duration = Duration::from_millis(1);

struct Job {
    slot: usize,
    ticket: u64,
    select: Select,
    deadline: Instant,
}

struct Pool {
    jobs: Sender<Job>,
    shared: Arc<Shared>,
}

struct Shared {
    health: Arc<Health>,
    path: PathBuf,
    patience: Duration,
    slots: Mutex<Slots>,
    watch: Condvar,
}

#[derive(Default)]
struct Slots {
    pending: Vec<Option<(u64, Instant, Reply)>>,
    free: Vec<usize>,
    tickets: u64,
    is_closing: bool,
}

impl Slots {
    fn count(&self) -> usize {
        self.pending.len() - self.free.len()
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

    fn is_pending(&self, job: &Job) -> bool {
        let slots = self.slots();
        slots
            .pending
            .get(job.slot)
            .is_some_and(|place| matches!(place, Some((ticket, ..)) if *ticket == job.ticket))
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
    let (jobs, receiver) = bounded(room);
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
        watch: Condvar::new(),
    });
    let pool = Pool { jobs, shared: Arc::clone(&shared) };
    let watched = Arc::clone(&shared);
    spawn("sqlite watch", move || watch(&watched))?;
    for _ in 0..connections {
        let (shared, receiver) = (Arc::clone(&shared), receiver.clone());
        spawn("sqlite read", move || Reader { shared, jobs: receiver, opened: None }.run())?;
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
        let mut slots = self.shared.slots();
        let Some(slot) = slots.free.pop() else {
            drop(slots);
            return turn_away(&self.shared.health, reply);
        };
        slots.tickets += 1;
        let ticket = slots.tickets;
        slots.pending[slot] = Some((ticket, deadline, reply));
        self.shared.note_waiting(&slots);
        if slots.count() == 1 {
            self.shared.watch.notify_one();
        }
        drop(slots);
        let sent = self.jobs.try_send(Job { slot, ticket, select, deadline });
        if let Err(error) = sent {
            // A slot whose deadline has passed is free before its job is taken off the queue.
            let job = error.into_inner();
            let reply = self.shared.slots().take(job.slot, job.ticket);
            if let Some(reply) = reply {
                turn_away(&self.shared.health, reply);
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.slots().is_closing = true;
        self.shared.watch.notify_all();
    }
}

/// Answers what would be too late.
fn watch(shared: &Shared) {
    loop {
        let mut slots = shared.slots();
        while slots.count() == 0 {
            if slots.is_closing {
                return;
            }
            slots = shared.watch.wait(slots).unwrap_or_else(PoisonError::into_inner);
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
        drop(slots);
        for reply in replies {
            finish(&shared.health, reply, Err(too_late(&shared.health)));
        }
        std::thread::sleep(TICK);
    }
}

/// A thread with a connection that reads.
struct Reader {
    shared: Arc<Shared>,
    jobs: Receiver<Job>,
    opened: Option<(Connection, FileId)>,
}

impl Reader {
    fn run(mut self) {
        while let Ok(job) = self.jobs.recv() {
            if !self.shared.is_pending(&job) {
                continue;
            }
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
                match self.jobs.recv_deadline(until) {
                    Ok(job) => self.shared.answer(&job, Err(too_late(&self.shared.health))),
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => return false,
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
