//! A group of workers, here or on another host, as the conductor of a trial sees it.
//!
//! The conductor sends [`Command`]s and receives [`Event`]s; whether a channel or a TCP connection carries them makes no
//! difference to it. A group carries out one assignment after another:
//!
//! ```text
//!  Prepare ──▶ Prepared ──▶ Register ──▶ Registering* ──▶ Registered ──▶ Start ──▶ Interval* ──▶ Finished
//!                           (skipped without preamble)                  (Stop ends the arrivals early)
//! ```

use crate::load::EXAMPLES_MAX;
use crate::spec::{Assignment, ContactRange};
use crate::tally::{Example, Tally};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// What a group is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Command {
    /// Open sockets for this assignment; what an earlier one had is closed.
    Prepare(Box<Assignment>),
    /// Register the own users, with the contacts of the own callees. `contacts` are those of all groups.
    Register {
        /// Every user's contact.
        contacts: Vec<ContactRange>,
    },
    /// Begin the warm-up after this time; the group's own clock counts from there.
    Start {
        /// From the receipt of this command. The conductor subtracts what the way took.
        after: Duration,
        /// Every user's contact.
        contacts: Vec<ContactRange>,
    },
    /// No more arrivals. With `drain`, open operations may end as planned; without, they end now as `unfinished`.
    Stop {
        /// Whether open operations may still end.
        drain: bool,
    },
    /// For the measurement of clock offset and way: answered at once with [`Event::Pong`].
    Ping {
        /// Sent back.
        token: u64,
    },
}

/// What a group says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// The sockets are open.
    Prepared {
        /// Contacts of the own callees; empty for a loader.
        contacts: Vec<ContactRange>,
    },
    /// Registrations so far; a few times a second.
    Registering {
        /// To register.
        users: u32,
        /// Registered.
        registered: u32,
        /// Failed.
        failed: u32,
    },
    /// The preamble has ended.
    Registered {
        /// Registered.
        registered: u32,
        /// Failed.
        failed: u32,
        /// The first failure.
        example: Option<Example>,
    },
    /// One second's counts of all workers of the group.
    Interval(Box<Interval>),
    /// Everything has ended.
    Finished(Box<Finished>),
    /// The group cannot go on; the run ends with this sentence.
    Problem {
        /// What, and what to do about it.
        message: String,
    },
    /// The answer to [`Command::Ping`].
    Pong {
        /// As sent.
        token: u64,
        /// The group's own clock (Unix time), microseconds.
        clock_us: u64,
    },
}

/// One second of one group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The second, counted from the start of the warm-up.
    pub second: u32,
    /// What happened in it.
    pub tally: Tally,
    /// Of the measured window, so far, per class: offered, succeeded, failed. For early decisions.
    pub measured: Vec<(u64, u64, u64)>,
}

/// The result of one group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Finished {
    /// The operations planned in the measured window.
    pub measured: Tally,
    /// Traced operations and first failures.
    pub examples: Vec<Example>,
}

/// Whoever carries out assignments.
pub trait Group: Send {
    /// Its name in messages: `this host`, or the agent's address.
    fn name(&self) -> &str;

    /// Passes a command on.
    ///
    /// # Errors
    /// The group is gone; the sentence says how that was noticed.
    fn send(&mut self, command: Command) -> Result<(), Gone>;

    /// The next event; `None` when none came within `wait`.
    ///
    /// # Errors
    /// The group is gone; the sentence says how that was noticed.
    fn receive(&mut self, wait: Duration) -> Result<Option<Event>, Gone>;
}

/// A group died: the run ends with exit code 3 and a report of what was measured until then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone {
    /// Which.
    pub group: String,
    /// How it was noticed.
    pub reason: String,
}

impl std::fmt::Display for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} is gone: {}", self.group, self.reason)
    }
}

impl std::error::Error for Gone {}

/// Adds up what several parts report of one trial: the workers of a group, or the groups of a trial.
///
/// A second is complete when every part has reported it or has finished before it.
#[derive(Clone, Debug, Default)]
pub struct Merger {
    parts: Vec<Part>,
    seconds: BTreeMap<u32, Tally>,
    result: Finished,
}

/// One part of a [`Merger`].
#[derive(Clone, Debug, Default)]
struct Part {
    next: u32,
    measured: Vec<(u64, u64, u64)>,
    finished: bool,
}

impl Merger {
    /// For this many parts.
    #[must_use]
    pub fn new(parts: usize) -> Merger {
        Merger { parts: vec![Part::default(); parts], ..Merger::default() }
    }

    /// Takes a second of a part; its window so far takes the place of what it said before.
    pub fn interval(&mut self, part: usize, interval: Interval) {
        let Some(part) = self.parts.get_mut(part) else { return };
        part.next = interval.second.saturating_add(1);
        part.measured = interval.measured;
        match self.seconds.get_mut(&interval.second) {
            Some(sum) => sum.merge(&interval.tally),
            None => {
                self.seconds.insert(interval.second, interval.tally);
            }
        }
    }

    /// Takes the result of a part. Of each class and failure one example is kept, and no more than [`EXAMPLES_MAX`].
    pub fn finish(&mut self, part: usize, finished: Finished) {
        let Some(part) = self.parts.get_mut(part) else { return };
        part.finished = true;
        self.result.measured.merge(&finished.measured);
        let examples = &mut self.result.examples;
        for example in finished.examples {
            let known =
                examples.iter().any(|old| old.class == example.class && old.failure == example.failure);
            if !known && examples.len() < EXAMPLES_MAX {
                examples.push(example);
            }
        }
    }

    /// Takes out the complete seconds, in order.
    pub fn take_complete(&mut self) -> Vec<(u32, Tally)> {
        let running = self.parts.iter().filter(|part| !part.finished);
        let complete_before = running.map(|part| part.next).min().unwrap_or(u32::MAX);
        let rest = self.seconds.split_off(&complete_before);
        std::mem::replace(&mut self.seconds, rest).into_iter().collect()
    }

    /// Takes out all seconds, complete or not: for a trial that ends before its time.
    pub fn take_all(&mut self) -> Vec<(u32, Tally)> {
        std::mem::take(&mut self.seconds).into_iter().collect()
    }

    /// The measured window so far, per class: offered, succeeded, failed.
    #[must_use]
    pub fn measured(&self) -> Vec<(u64, u64, u64)> {
        let classes = self.parts.iter().map(|part| part.measured.len()).max().unwrap_or(0);
        let mut sum = vec![(0, 0, 0); classes];
        for part in &self.parts {
            for (total, (offered, succeeded, failed)) in sum.iter_mut().zip(&part.measured) {
                *total = (total.0 + offered, total.1 + succeeded, total.2 + failed);
            }
        }
        sum
    }

    /// The first part that has not finished.
    #[must_use]
    pub fn unfinished(&self) -> Option<usize> {
        self.parts.iter().position(|part| !part.finished)
    }

    /// Whether a part has finished; so has one that does not exist.
    #[must_use]
    pub fn finished(&self, part: usize) -> bool {
        self.parts.get(part).is_none_or(|part| part.finished)
    }

    /// The results of all parts that have finished.
    #[must_use]
    pub fn into_result(self) -> Finished {
        self.result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(second: u32, offered: u64) -> Interval {
        let mut tally = Tally::new(1);
        tally.classes[0].offered = offered;
        Interval { second, tally, measured: vec![(offered, 0, 0)] }
    }

    fn offered(seconds: &[(u32, Tally)]) -> Vec<(u32, u64)> {
        seconds.iter().map(|(second, tally)| (*second, tally.classes[0].offered)).collect()
    }

    #[test]
    fn a_second_is_complete_when_every_part_has_reported_it() {
        let mut merger = Merger::new(2);
        merger.interval(0, interval(0, 1));
        assert!(merger.take_complete().is_empty());
        merger.interval(0, interval(1, 2));
        merger.interval(1, interval(0, 10));
        assert_eq!(offered(&merger.take_complete()), [(0, 11)]);
        assert_eq!(merger.measured(), [(12, 0, 0)]);
    }

    #[test]
    fn a_part_that_has_finished_holds_up_no_second() {
        let mut merger = Merger::new(2);
        merger.interval(0, interval(0, 1));
        merger.finish(0, Finished::default());
        merger.interval(1, interval(0, 10));
        merger.interval(1, interval(1, 20));
        assert_eq!(offered(&merger.take_complete()), [(0, 11), (1, 20)]);
        assert_eq!(merger.unfinished(), Some(1));
        merger.finish(1, Finished::default());
        assert_eq!(merger.unfinished(), None);
    }

    #[test]
    fn one_example_of_each_kind_is_kept() {
        let example =
            |failure: &str| Example { class: "c".into(), failure: Some(failure.into()), messages: vec![] };
        let mut merger = Merger::new(2);
        merger.finish(0, Finished { examples: vec![example("a"), example("b")], ..Finished::default() });
        let many = (0..100).map(|n| example(&format!("{n}"))).chain([example("a")]).collect();
        merger.finish(1, Finished { examples: many, ..Finished::default() });
        let result = merger.into_result();
        assert_eq!(result.examples.len(), EXAMPLES_MAX);
        assert_eq!(result.examples[2].failure.as_deref(), Some("0"));
    }

    #[test]
    fn a_part_that_does_not_exist_changes_nothing() {
        let mut merger = Merger::new(0);
        merger.interval(3, interval(0, 1));
        merger.finish(3, Finished::default());
        assert!(merger.take_all().is_empty());
    }
}
