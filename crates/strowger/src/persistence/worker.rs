//! The persister's thread: takes the questions that wait, drains, commits once for all of them, answers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant as SystemClock};

use crossbeam_channel::RecvTimeoutError;
use engine::OwnedAnswer;
use location::{Change, Kept};
use modules::DbMode;
use net::Parcel;
use store::{Contact, LeftOut, StoreError, What};

use super::changes::Changes;
use super::keeper::Keeper;
use super::metrics::Metrics;
use super::recorder::Recorders;
use super::rows::RowMaker;
use super::{BATCH_ROWS_MAX, Order, Plan, Question, Queue, Tickets, uptime_micros};
use crate::clock::Time;
use crate::striped::{STRIPES, StripeSet, Striped};

mod journal;

use journal::Journaling;

/// Changes drained from one stripe while it is held: some tens of microseconds.
const DRAIN_STEPS: usize = 128;

/// Pauses between attempts to reach a database that is away: the first, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A commit costs a flush of the disk, whatever it holds. Where the last one held so many rows the next one begins so
/// long after it began at the earliest: at 20,000 REGISTERs a second that is one flush for 200.
const GATHER: [(usize, Duration); 3] =
    [(512, Duration::from_millis(20)), (64, Duration::from_millis(10)), (2, Duration::from_millis(5))];

/// Rows that the location table does not know, removed in one go after removals were lost.
const STALE_ROWS_MAX: usize = 262_144;

/// Why nothing more is written now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// Nobody there.
    Away,
    /// It refuses whatever it is given.
    Refusing,
}

impl Trouble {
    fn answer(self) -> OwnedAnswer {
        match self {
            Trouble::Away => OwnedAnswer::Failed,
            Trouble::Refusing => OwnedAnswer::Refused,
        }
    }
}

/// How it stands with the database.
#[derive(Debug)]
struct Health {
    trouble: Option<Trouble>,
    since: SystemClock,
    pause: Duration,
    /// Before then it is not tried again.
    next_try: SystemClock,
}

pub(super) struct Worker {
    keeper: Box<dyn Keeper>,
    plan: Plan,
    location: Striped,
    maker: RowMaker,
    metrics: Arc<Metrics>,
    time: Time,
    queue: Queue,
    health: Health,
    /// Where commits go to a journal.
    journaling: Option<Journaling>,
    /// Drained, in order, and not committed.
    changes: Changes,
    /// Stripes that may hold more changes, beside those that the table itself names.
    todo: StripeSet,
    /// Addresses-of-record of rows left out in this turn, and in the one before: who changed them may have asked too late
    /// for that one.
    left_out: Vec<Box<[u8]>>,
    left_out_before: usize,
    left_out_said: bool,
    /// Removals were lost.
    lost: bool,
    questions: Vec<Question>,
    /// Shards that hold answers back, and how many of each were answered.
    holding: Vec<(Arc<Tickets>, u64)>,
    /// Of each, how many this turn answers.
    wanted: Vec<u64>,
    /// Somebody wants what has changed to be written now.
    is_hurried: bool,
    next_flush: SystemClock,
    /// When the last turn began, and how many rows it wrote.
    last_turn: (SystemClock, usize),
    stop_at: Option<SystemClock>,
}

impl Worker {
    pub(super) fn new(
        keeper: Box<dyn Keeper>,
        plan: Plan,
        location: Striped,
        maker: RowMaker,
        metrics: Arc<Metrics>,
        time: Time,
        queue: Queue,
    ) -> Worker {
        let now = SystemClock::now();
        Worker {
            keeper,
            location,
            maker,
            metrics,
            time,
            queue,
            health: Health { trouble: None, since: now, pause: PAUSE_MIN, next_try: now },
            journaling: None,
            changes: Changes::default(),
            todo: StripeSet::default(),
            left_out: Vec::new(),
            left_out_before: 0,
            left_out_said: false,
            lost: false,
            questions: Vec::new(),
            holding: Vec::new(),
            wanted: Vec::new(),
            is_hurried: false,
            next_flush: now + plan.flush_interval,
            last_turn: (now, 0),
            plan,
            stop_at: None,
        }
    }

    /// Has changes committed to the journal, as these recorders write them down.
    pub(super) fn with_journal(mut self, recorders: Option<Recorders>) -> Worker {
        self.journaling = recorders.map(Journaling::new);
        self
    }

    /// Works until it is told to stop; returns how many changes could not be written.
    pub(super) fn run(mut self) -> usize {
        while self.stop_at.is_none() {
            self.wait();
            self.gather();
            self.look();
            let is_asked = !self.questions.is_empty() || self.is_hurried || self.is_wanted();
            if is_asked || SystemClock::now() >= self.next_flush || self.stop_at.is_some() {
                self.turn();
            }
        }
        self.finish()
    }

    /// Waits for a question, or until it is time to flush; takes all questions that are there.
    fn wait(&mut self) {
        let timeout = self.next_flush.saturating_duration_since(SystemClock::now());
        match self.queue.orders.recv_timeout(timeout) {
            Ok(order) => self.note(order),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => self.stop_at = Some(SystemClock::now()),
        }
        while let Ok(order) = self.queue.orders.try_recv() {
            self.note(order);
            if self.questions.len() >= BATCH_ROWS_MAX {
                break;
            }
        }
    }

    /// Lets more come together while there is much.
    fn gather(&self) {
        let (began, rows) = self.last_turn;
        let pause = GATHER.iter().find(|(least, _)| rows >= *least && self.stop_at.is_none());
        if let Some((_, pause)) = pause {
            std::thread::sleep(pause.saturating_sub(began.elapsed()));
        }
    }

    fn note(&mut self, order: Order) {
        match order {
            Order::Question(question) => self.questions.push(question),
            Order::Hold(tickets) => self.holding.push((tickets, 0)),
            Order::Wake => {}
            Order::Stop(at) => self.stop_at = Some(at),
        }
    }

    /// Notes what shards wait for, before anything is drained.
    fn look(&mut self) {
        // First: who asks from here on wakes again.
        self.is_hurried = self.queue.is_woken.swap(false, Ordering::SeqCst);
        self.wanted.clear();
        self.wanted.extend(self.holding.iter().map(|(tickets, _)| tickets.asked.load(Ordering::SeqCst)));
    }

    fn is_wanted(&self) -> bool {
        self.holding.iter().zip(&self.wanted).any(|((_, answered), wanted)| wanted > answered)
    }

    /// Lets shards know of what they waited for when the turn began.
    fn answer_held(&mut self, answer: &OwnedAnswer) {
        for ((tickets, answered), wanted) in self.holding.iter_mut().zip(&self.wanted) {
            if wanted <= answered {
                continue;
            }
            let counter = match answer {
                OwnedAnswer::Done => &self.metrics.answered,
                _ => &self.metrics.unanswered,
            };
            Metrics::add(counter, wanted - *answered);
            tickets.refuse(&self.left_out, *wanted);
            let parcel = Parcel::Answer { id: crate::held::question(*wanted), answer: answer.clone() };
            // A full queue: the next answer says it again, and for the rest there is the deadline of who waits.
            if tickets.post.send(parcel) {
                *answered = *wanted;
            }
        }
    }

    /// Writes what has changed, and answers the questions that were taken before.
    fn turn(&mut self) {
        if self.health.trouble == Some(Trouble::Away) && SystemClock::now() < self.health.next_try {
            self.next_flush = self.health.next_try;
            self.answer_held(&OwnedAnswer::Failed);
            return self.answer_all(OwnedAnswer::Failed);
        }
        self.last_turn = (SystemClock::now(), 0);
        self.next_flush = self.last_turn.0 + self.plan.flush_interval;
        self.left_out.drain(..self.left_out_before);
        self.left_out_before = self.left_out.len();
        match self.flush() {
            Ok(()) => {
                self.answer_held(&OwnedAnswer::Done);
                self.answer_persisted();
                self.refresh();
                self.plan_fold();
            }
            Err(trouble) => {
                self.answer_held(&trouble.answer());
                self.answer_all(trouble.answer());
            }
        }
    }

    // --- writing ------------------------------------------------------------------------------------------------------

    /// Writes everything that had changed when it was called.
    fn flush(&mut self) -> Result<(), Trouble> {
        self.take_changed();
        if self.journaling.is_some() {
            return self.flush_to_journal();
        }
        // What has been undone since a batch failed goes with it, as far as there is room: what was answered 503 shall not be
        // written first. More is not drained while it waits: what changes again and again is one change of the next.
        if !self.changes.is_empty() {
            self.drain();
            self.commit()?;
        }
        loop {
            self.drain();
            if self.changes.is_empty() {
                break;
            }
            self.commit()?;
        }
        if self.lost {
            self.remove_stale()?;
            self.lost = false;
        }
        Ok(())
    }

    fn take_changed(&mut self) {
        let mut changed = self.location.take_changed();
        while let Some(stripe) = changed.pop() {
            self.todo.insert(stripe);
        }
    }

    /// Drains stripes until a batch is full or nothing is left.
    fn drain(&mut self) {
        let Worker { changes, maker, location, todo, lost, .. } = self;
        while changes.len() < BATCH_ROWS_MAX
            && let Some(stripe) = todo.pop()
        {
            let budget = DRAIN_STEPS.min(BATCH_ROWS_MAX - changes.len());
            let drained = location.drain_changes(stripe, budget, &mut |change| match change {
                Change::Saved(binding) => changes.push(What::Save, binding, maker),
                Change::Removed(binding) => changes.push(What::Remove, binding, maker),
            });
            *lost |= drained.lost;
            if drained.left > 0 {
                todo.insert(stripe);
            }
        }
        self.note_pending();
    }

    fn note_pending(&self) {
        let pending = self.changes.len() + self.journaling.as_ref().map_or(0, Journaling::changes);
        self.metrics.pending.store(pending as u64, Ordering::Relaxed);
        if pending == 0 {
            self.metrics.behind_since.store(0, Ordering::Relaxed);
        } else if self.metrics.behind_since.load(Ordering::Relaxed) == 0 {
            self.metrics.behind_since.store(uptime_micros(self.time), Ordering::Relaxed);
        }
    }

    /// Writes what was drained, at most [`BATCH_ROWS_MAX`] rows in a transaction.
    fn commit(&mut self) -> Result<(), Trouble> {
        let mut from = 0;
        while from < self.changes.len() {
            let to = self.changes.len().min(from + BATCH_ROWS_MAX);
            self.metrics.busy_since.store(uptime_micros(self.time), Ordering::Relaxed);
            let done = self.keeper.write(&self.changes, from..to);
            self.metrics.busy_since.store(0, Ordering::Relaxed);
            match done {
                Ok(written) => {
                    Metrics::add(&self.metrics.commits, 1);
                    Metrics::add(&self.metrics.rows, (to - from) as u64);
                    self.last_turn.1 += to - from;
                    self.leave_out(&written.left_out);
                    self.leave_behind(&written.left_behind);
                }
                Err(error) => {
                    Metrics::add(&self.metrics.failures, 1);
                    return Err(self.in_trouble(trouble_of(&error), &error));
                }
            }
            from = to;
        }
        self.changes.clear();
        self.note_pending();
        self.recovered();
        Ok(())
    }

    /// The database takes everything but these.
    fn leave_out(&mut self, rows: &[LeftOut]) {
        for row in rows {
            let contact = Contact { username: &row.username, domain: &row.domain, ..Contact::default() };
            let mut key = Vec::new();
            if self.maker.key(&row.table, &contact, &mut key) {
                self.left_out.push(key.into_boxed_slice());
            }
        }
        self.leave_behind(rows);
    }

    /// The same of rows that nobody waits for any more.
    fn leave_behind(&mut self, rows: &[LeftOut]) {
        if let Some(row) = rows.first() {
            self.say_left_out(rows.len() as u64, &format!("in table {}: {}", row.table, row.reason));
        }
    }

    fn say_left_out(&mut self, rows: u64, why: &str) {
        Metrics::add(&self.metrics.left_out, rows);
        if !std::mem::replace(&mut self.left_out_said, true) {
            tracing::error!(
                "a binding cannot be stored {why}; further ones are counted (persist_left_out) and not named"
            );
        }
    }

    /// Removes rows that the location table does not hold, after it had to forget removals.
    ///
    /// The table is not emptied first: there is no moment at which it lacks what was promised.
    fn remove_stale(&mut self) -> Result<(), Trouble> {
        if self.plan.mode == DbMode::DatabaseOnly {
            tracing::warn!(
                "removed bindings stay in the database, which others write, too, until they expire"
            );
            return Ok(());
        }
        tracing::warn!(
            "more bindings were removed than could be remembered: the database is compared with memory"
        );
        for table in self.maker.tables().to_vec() {
            while self.remove_stale_of(&table)? {}
        }
        Ok(())
    }

    /// Returns whether there may be more.
    fn remove_stale_of(&mut self, table: &str) -> Result<bool, Trouble> {
        let Worker { keeper, changes, maker, location, time, .. } = self;
        let now = time.now();
        let mut key = Vec::new();
        let loaded = keeper.load(table, time.unix_micros(now), &mut |_, _| {}, &mut |contact| {
            if !maker.key(table, contact, &mut key) || !location.holds(now, &key, contact.contact) {
                changes.push_stale(table, contact);
            }
            changes.len() < STALE_ROWS_MAX
        });
        if let Err(error) = loaded {
            self.changes.clear();
            return Err(self.in_trouble(trouble_of(&error), &error));
        }
        let found = self.changes.len();
        if found == 0 {
            return Ok(false);
        }
        self.note_pending();
        self.commit()?;
        Ok(found >= STALE_ROWS_MAX)
    }

    // --- the database's health ------------------------------------------------------------------------------------------

    fn in_trouble(&mut self, trouble: Trouble, error: &StoreError) -> Trouble {
        let now = SystemClock::now();
        let health = &mut self.health;
        if health.trouble.is_none() {
            health.since = now;
        } else {
            health.pause = (health.pause * 2).min(PAUSE_MAX);
        }
        if health.trouble != Some(trouble) {
            let (database, what) = (&self.plan.database, consequence(self.plan.mode));
            match trouble {
                Trouble::Away => tracing::error!("the database {database} is away: {error}; {what}"),
                Trouble::Refusing => {
                    tracing::error!("the database {database} refuses to store bindings: {error}; {what}");
                }
            }
        }
        health.trouble = Some(trouble);
        health.next_try = now + health.pause;
        self.next_flush = self.next_flush.min(health.next_try).max(now + PAUSE_MIN);
        self.metrics.is_away.store(true, Ordering::Relaxed);
        trouble
    }

    fn recovered(&mut self) {
        if self.health.trouble.take().is_some() {
            let seconds = self.health.since.elapsed().as_secs();
            tracing::info!("the database {} stores bindings again, after {seconds} s", self.plan.database);
            self.health.pause = PAUSE_MIN;
            self.metrics.is_away.store(false, Ordering::Relaxed);
        }
    }

    // --- answers --------------------------------------------------------------------------------------------------------

    /// Answers those that asked for a commit.
    fn answer_persisted(&mut self) {
        let all = std::mem::take(&mut self.questions);
        for question in all {
            if question.is_refresh {
                self.questions.push(question);
                continue;
            }
            let is_left_out = self.left_out.contains(&question.aor);
            self.answer(question, if is_left_out { OwnedAnswer::Refused } else { OwnedAnswer::Done });
        }
    }

    fn answer_all(&mut self, answer: OwnedAnswer) {
        for question in std::mem::take(&mut self.questions) {
            self.answer(question, answer.clone());
        }
    }

    /// What the database cannot hold is refused, whatever became of the rest.
    fn answer(&self, question: Question, answer: OwnedAnswer) {
        let answer = if self.is_refused(&question.aor) { OwnedAnswer::Refused } else { answer };
        self.metrics.waiting.fetch_sub(1, Ordering::Relaxed);
        let counter = match answer {
            OwnedAnswer::Done => &self.metrics.answered,
            _ => &self.metrics.unanswered,
        };
        Metrics::add(counter, 1);
        question.answer(answer);
    }

    /// Reads bindings again that others may have written, one address-of-record after another.
    fn refresh(&mut self) {
        let (mut rows, mut is_away) = (Changes::default(), false);
        for question in std::mem::take(&mut self.questions) {
            let is_late = SystemClock::now() >= question.deadline;
            // Nobody waits for a late one any more; and one that finds nobody is enough.
            let answer = if is_late || is_away {
                OwnedAnswer::Failed
            } else {
                self.read_again(&question.aor, &mut rows)
            };
            is_away |= self.health.trouble == Some(Trouble::Away);
            self.answer(question, answer);
        }
    }

    fn read_again(&mut self, aor: &[u8], rows: &mut Changes) -> OwnedAnswer {
        rows.clear();
        let stored = self.maker.stored(aor);
        let table = self.maker.table_name(stored.table);
        self.metrics.busy_since.store(uptime_micros(self.time), Ordering::Relaxed);
        let changes = &mut self.changes;
        let read = self.keeper.read(table, stored.username, stored.domain, &mut |contact| {
            rows.push_row(What::Save, table, contact);
            if contact.is_foreign {
                // From now on it is ours to change.
                changes.push_row(What::Save, table, contact);
                changes.push_foreign(table, contact.ruid);
            }
        });
        self.metrics.busy_since.store(0, Ordering::Relaxed);
        match read {
            Ok(()) => {
                if let Err(trouble) = self.commit() {
                    return trouble.answer();
                }
                let kept: Vec<Kept<'_>> =
                    rows.rows(0..rows.len()).map(|row| self.maker.kept(&row.contact)).collect();
                self.location.reconcile(self.time.now(), aor, &kept);
                Metrics::add(&self.metrics.refreshed, kept.len() as u64);
                self.recovered();
                OwnedAnswer::Done
            }
            Err(error) => {
                Metrics::add(&self.metrics.failures, 1);
                let trouble = trouble_of(&error);
                match trouble {
                    Trouble::Away => self.in_trouble(trouble, &error).answer(),
                    Trouble::Refusing => trouble.answer(),
                }
            }
        }
    }

    // --- the end --------------------------------------------------------------------------------------------------------

    /// Writes until everything is written or the time is up; returns how many changes are left.
    fn finish(mut self) -> usize {
        let stop_at = self.stop_at.unwrap_or_else(SystemClock::now);
        self.todo = StripeSet::ALL;
        loop {
            match self.flush() {
                Ok(()) => {
                    self.answer_persisted();
                    self.answer_all(OwnedAnswer::Failed);
                    self.empty_journal(stop_at);
                    return 0;
                }
                Err(trouble) => self.answer_all(trouble.answer()),
            }
            let left = stop_at.saturating_duration_since(SystemClock::now());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(self.health.pause.min(left));
            self.todo = StripeSet::ALL;
        }
        if let Some(left) = self.uncommitted() {
            return left;
        }
        let undrained = |stripe| self.location.drain_changes(stripe, 0, &mut |_| {}).left;
        self.changes.len() + (0..STRIPES).map(undrained).sum::<usize>()
    }
}

fn trouble_of(error: &StoreError) -> Trouble {
    if matches!(error, StoreError::Away(_)) { Trouble::Away } else { Trouble::Refusing }
}

/// What becomes of bindings meanwhile.
fn consequence(mode: DbMode) -> &'static str {
    match mode {
        DbMode::WriteBack => "changes of bindings wait in memory and are written when it is back",
        _ => "REGISTERs are answered 500 or 503 until it is back; calls go on",
    }
}
