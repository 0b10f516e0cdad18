//! Questions for a few rows, from threads that may not wait.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use crate::StoreError;
use crate::health::{Health, Outcome};

/// Which rows: those in which every key column equals its value.
#[derive(Clone, Debug, Default)]
pub struct Select {
    /// The table.
    pub table: Arc<str>,
    /// The columns that are wanted.
    pub columns: Arc<[Arc<str>]>,
    /// Key columns and their values.
    pub keys: Vec<(Arc<str>, Box<[u8]>)>,
    /// Rows at most.
    pub rows_max: u16,
}

/// What was found: a text for each column, `None` for NULL.
pub type Selected = Result<Vec<Vec<Option<Box<[u8]>>>>, StoreError>;

/// How it stands with a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SelectorState {
    /// Questions answered with rows, or none.
    pub answered: u64,
    /// Questions that the database refused.
    pub refused: u64,
    /// Questions that came to nothing: too late, connection lost.
    pub failed: u64,
    /// Questions turned away because too many waited.
    pub full: u64,
    /// Connections opened again after one was lost.
    pub reconnects: u64,
    /// Questions that wait.
    pub waiting: u64,
    /// Whether the last attempt reached the database.
    pub is_up: bool,
}

/// Who wants to know.
pub(crate) type Reply = Box<dyn FnOnce(Selected) + Send>;

/// The way to the threads that ask; they end when the last clone is dropped, after the questions that wait
/// are answered.
///
/// A database that is found to be away is looked for in the background, at first after 100 ms and then ever
/// more rarely, up to every ten seconds; until it is back every question fails at once. One line of the log
/// says that it is away, one that it is back.
#[derive(Clone)]
pub struct Selector {
    health: Arc<Health>,
    way: Arc<dyn Way>,
}

/// How questions reach a database.
pub(crate) trait Way: Send + Sync {
    /// Takes a question that is in time, for a database that is not known to be away; calls `reply` once.
    fn ask(&self, select: Select, deadline: Instant, reply: Reply);
}

impl Selector {
    pub(crate) fn new(health: Arc<Health>, way: Arc<dyn Way>) -> Selector {
        Selector { health, way }
    }

    /// Asks; `reply` is called exactly once, on a thread of the selector's (or at once, when too many wait),
    /// and at `deadline` at the latest with [`StoreError::Away`].
    pub fn ask(&self, select: Select, deadline: Instant, reply: Box<dyn FnOnce(Selected) + Send>) {
        if self.health.is_down() {
            let away = format!("{} is away; the server looks for it", self.health.name());
            return finish(&self.health, reply, Err(StoreError::Away(away)));
        }
        self.way.ask(select, deadline, reply);
    }

    /// How it stands.
    pub fn state(&self) -> SelectorState {
        self.health.state()
    }
}

impl fmt::Debug for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Selector").field("state", &self.state()).finish()
    }
}

/// Counts an answer and gives it.
pub(crate) fn finish(health: &Health, reply: Reply, answer: Selected) {
    health.count(match &answer {
        Ok(_) => Outcome::Answered,
        Err(StoreError::Away(_)) => Outcome::Failed,
        Err(_) => Outcome::Refused,
    });
    reply(answer);
}

/// Turns a question away.
pub(crate) fn turn_away(health: &Health, reply: Reply) {
    health.count(Outcome::Full);
    reply(Err(StoreError::Away(format!("too many questions wait for {}", health.name()))));
}

/// What who asked is told at the deadline.
pub(crate) fn too_late(health: &Health) -> StoreError {
    StoreError::Away(format!("{} did not answer in time", health.name()))
}
