//! Bindings that outlive the process: a thread of its own writes what changes in the location table to a database.
//!
//! ```text
//!  shards ──change──▶ Striped ──drain──▶ Changes ──one transaction──▶ Keeper (the database)
//!     └──Persist, Refresh──▶ bounded queue ──▶ persister's thread ──▶ Post ──▶ shard
//! ```
//!
//! - Write-back: every flush interval all that changed is written, at most [`BATCH_ROWS_MAX`] rows in a transaction.
//! - Write-through: a question ([`engine::Ask::Persist`]) is answered when what was changed before it is committed. All
//!   that wait at the same time share one commit (RFC 3261 §10.3 step 7 asks that a REGISTER whose commit failed fails).
//! - Where the database has a journal, shards write down each change for it as they make it ([`Recorders`]), and a commit is of
//!   these records. Rows follow from the table within seconds, and the records go (`worker/journal.rs`).
//! - What was drained is kept until it is committed, whatever happens to the database; meanwhile the table's own change
//!   log holds four bytes for each further binding that changes.
//! - While the database is known to be away questions are answered at once, and it is tried again with growing pauses.

mod changes;
mod keeper;
mod load;
mod metrics;
mod recorder;
mod rows;
#[cfg(test)]
pub(crate) mod tests;
mod worker;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant as SystemClock};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use engine::{AskId, OwnedAnswer};
use location::Traces;
use modules::DbMode;
use net::{Parcel, Post};

use crate::clock::Time;
use crate::striped::Striped;

pub(crate) use keeper::{DatabaseKeeper, Keeper};
pub(crate) use load::load;
pub(crate) use metrics::{Metrics, PersistenceState};
pub(crate) use recorder::Recorders;
pub(crate) use rows::RowMaker;

/// Changes in one transaction: some tenths of a second on a slow disk.
pub(crate) const BATCH_ROWS_MAX: usize = 10_000;

/// Questions that may wait; the next one is answered that it failed.
const QUESTIONS_MAX: usize = 65_536;

/// Removed bindings that wait to be drained, over all stripes, about 100 MB; past it the table is compared with the
/// database.
pub(crate) const REMOVALS_MAX: usize = 262_144;

/// Who waits for an answer.
#[derive(Debug)]
enum Asker {
    /// A script of a shard.
    Shard(AskId, Post),
    /// An administrator.
    Admin(Sender<OwnedAnswer>),
}

/// A question: of a shard, or of an administrator.
#[derive(Debug)]
struct Question {
    asker: Asker,
    aor: Box<[u8]>,
    /// When nobody waits for the answer any more.
    deadline: SystemClock,
    is_refresh: bool,
}

impl Question {
    fn answer(self, answer: OwnedAnswer) {
        match self.asker {
            // A full queue: the deadline of who asked answers.
            Asker::Shard(id, post) => {
                post.send(Parcel::Answer { id, answer });
            }
            Asker::Admin(sender) => {
                let _ = sender.try_send(answer);
            }
        }
    }
}

/// What a shard and the persister know together of answers that wait for commits: see [`crate::held`].
#[derive(Debug)]
pub(crate) struct Tickets {
    /// How many answers the shard has held back so far.
    asked: AtomicU64,
    /// Where it is told of commits.
    post: Post,
    /// Addresses-of-record that commits left out, each with the number below which answers are about that commit.
    refused: Mutex<Vec<(u64, Box<[u8]>)>>,
    /// Whether there are any.
    is_refused: AtomicBool,
}

impl Tickets {
    /// Those of the shard that gets `post`.
    pub(crate) fn new(post: Post) -> Tickets {
        Tickets {
            asked: AtomicU64::new(0),
            post,
            refused: Mutex::default(),
            is_refused: AtomicBool::new(false),
        }
    }

    /// The addresses-of-record that were left out of the commits of answers below `upto`, since the last call. What later ones
    /// left out may be there already, and stays.
    pub(crate) fn take_refused(&self, upto: u64) -> Vec<Box<[u8]>> {
        if !self.is_refused.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = refused.extract_if(.., |(of, _)| *of <= upto).map(|(_, aor)| aor).collect();
        self.is_refused.store(!refused.is_empty(), Ordering::Release);
        taken
    }

    fn refuse(&self, aors: &[Box<[u8]>], upto: u64) {
        if aors.is_empty() {
            return;
        }
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.extend(aors.iter().map(|aor| (upto, aor.clone())));
        self.is_refused.store(true, Ordering::Release);
    }
}

#[derive(Debug)]
enum Order {
    Question(Question),
    /// A shard holds answers back from now on.
    Hold(Arc<Tickets>),
    /// Some shard has held back an answer since the last turn.
    Wake,
    /// Write what is left until then, and end.
    Stop(SystemClock),
}

/// The end of the persister's thread.
#[derive(Debug)]
struct Queue {
    orders: Receiver<Order>,
    /// See [`Persister`].
    is_woken: Arc<AtomicBool>,
}

/// The way to the persister's thread.
#[derive(Clone, Debug)]
pub(crate) struct Persister {
    orders: Sender<Order>,
    /// Whether a [`Order::Wake`] is under way.
    is_woken: Arc<AtomicBool>,
    /// Who writes changes down for the journal, if there is one.
    recorders: Option<Recorders>,
    metrics: Arc<Metrics>,
    time: Time,
    /// A call to the database that takes longer than this is one to a database that is away.
    patience: Duration,
}

/// The thread; [`Running::stop`] ends it.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) persister: Persister,
    /// How many changes could not be written.
    ended: Receiver<usize>,
}

/// How a persister works.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) mode: DbMode,
    pub(crate) flush_interval: Duration,
    /// See [`modules::PersistenceSettings::commit_timeout`].
    pub(crate) commit_timeout: Duration,
    /// What the log calls the database.
    pub(crate) database: String,
}

/// Starts the thread; changes of `location` must be tracked already.
///
/// # Errors
///
/// When the system refuses a thread.
pub(crate) fn start(
    keeper: Box<dyn Keeper>,
    plan: Plan,
    location: Striped,
    maker: RowMaker,
    metrics: Arc<Metrics>,
    time: Time,
) -> io::Result<Running> {
    let (orders, queue) = bounded(QUESTIONS_MAX);
    let (end, ended) = bounded(1);
    let recorders = keeper.encoder().map(|encoder| Recorders::start(&location, maker.clone(), encoder));
    let persister = Persister {
        orders,
        is_woken: Arc::default(),
        recorders: recorders.clone(),
        metrics: metrics.clone(),
        time,
        patience: plan.commit_timeout,
    };
    let queue = Queue { orders: queue, is_woken: persister.is_woken.clone() };
    let worker =
        worker::Worker::new(keeper, plan, location, maker, metrics, time, queue).with_journal(recorders);
    thread::Builder::new().name("persister".to_owned()).spawn(move || {
        let left = worker.run();
        let _ = end.send(left);
    })?;
    Ok(Running { persister, ended })
}

impl Persister {
    /// Asks that what changed of an address-of-record is written, or that its bindings are read again; the answer goes to
    /// `post`, at once if it is known to be in vain.
    pub(crate) fn ask(
        &self,
        id: AskId,
        aor: Box<[u8]>,
        is_refresh: bool,
        deadline: SystemClock,
        post: &Post,
    ) {
        self.put(Question { asker: Asker::Shard(id, post.clone()), aor, deadline, is_refresh });
    }

    /// Has what changed of an address-of-record written now; `false` if the database has not taken it in `timeout`. It is
    /// written later then, unless the server ends before.
    pub(crate) fn write_now(&self, aor: Box<[u8]>, timeout: Duration) -> bool {
        let (sender, answer) = bounded(1);
        let deadline = SystemClock::now() + timeout;
        self.put(Question { asker: Asker::Admin(sender), aor, deadline, is_refresh: false });
        answer.recv_timeout(timeout) == Ok(OwnedAnswer::Done)
    }

    fn put(&self, question: Question) {
        if self.is_stuck() {
            Metrics::add(&self.metrics.unanswered, 1);
            return question.answer(OwnedAnswer::Failed);
        }
        self.metrics.waiting.fetch_add(1, Ordering::Relaxed);
        if let Err(TrySendError::Full(order) | TrySendError::Disconnected(order)) =
            self.orders.try_send(Order::Question(question))
        {
            self.metrics.waiting.fetch_sub(1, Ordering::Relaxed);
            Metrics::add(&self.metrics.unanswered, 1);
            if let Order::Question(question) = order {
                question.answer(OwnedAnswer::Failed);
            }
        }
    }

    /// Tells the thread of a shard whose answers wait for commits.
    ///
    /// # Errors
    ///
    /// When it has ended.
    pub(crate) fn hold(&self, tickets: Arc<Tickets>) -> io::Result<()> {
        self.orders.send(Order::Hold(tickets)).map_err(|_| io::Error::other("the persister has ended"))
    }

    /// Has everything committed that a shard has changed until it holds `upto` answers.
    pub(crate) fn want(&self, tickets: &Tickets, upto: u64) {
        // Sequentially consistent with the worker's look: either it sees the number, or it is woken.
        tickets.asked.store(upto, Ordering::SeqCst);
        self.hurry();
    }

    /// Whether what was just changed of `aor`, of which these are the traces, is nothing that the database can hold. What it
    /// cannot say at once it says with the commit.
    pub(crate) fn is_refused(&self, location: &Striped, aor: &[u8], traces: &Traces) -> bool {
        let recorders = self.recorders.as_ref().filter(|recorders| recorders.have_refused());
        recorders.is_some_and(|recorders| {
            let (_, after) = Traces::read(traces.as_bytes());
            recorders.take_refused(location, aor, Some(&after))
        })
    }

    /// Has what has changed written without waiting for the flush interval.
    pub(crate) fn hurry(&self) {
        // A full queue is being worked on, and its turn sees the number.
        if !self.is_woken.swap(true, Ordering::SeqCst) && self.orders.try_send(Order::Wake).is_err() {
            self.is_woken.store(false, Ordering::SeqCst);
        }
    }

    /// Whether the thread has been waiting for the database for so long that a question would come too late.
    pub(crate) fn is_stuck(&self) -> bool {
        let since = self.metrics.busy_since.load(Ordering::Relaxed);
        since != 0 && self.uptime_micros().saturating_sub(since) > micros(self.patience)
    }

    fn uptime_micros(&self) -> u64 {
        uptime_micros(self.time)
    }

    /// How it stands.
    pub(crate) fn state(&self) -> PersistenceState {
        self.metrics.state(self.uptime_micros())
    }
}

impl Running {
    /// Has everything written that is not yet, for at most `timeout`, and says what could not be.
    pub(crate) fn stop(&mut self, timeout: Duration) {
        let begin = SystemClock::now();
        let _ = self.persister.orders.send_timeout(Order::Stop(begin + timeout), timeout);
        match self.ended.recv_timeout(timeout.saturating_sub(begin.elapsed()) + GRACE) {
            Ok(0) => {}
            Ok(left) => tracing::error!(
                "{left} changes of bindings could not be written to the database and are lost; \
                 phones register again when their interval ends"
            ),
            Err(_) => tracing::error!(
                "the database does not answer: the last changes of bindings are lost, as far as it has not written them; \
                 phones register again when their interval ends"
            ),
        }
    }
}

/// How much longer than its time a thread that is about to end may take.
const GRACE: Duration = Duration::from_millis(500);

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Microseconds since the server's start, at least 1.
fn uptime_micros(time: Time) -> u64 {
    micros(time.origin().elapsed()).max(1)
}
