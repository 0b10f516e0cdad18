//! Timers of operations and dialogs: RFC 3261 Timers A, B, E, F, G and H, and the waits of the scenarios.
//!
//! Whoever waits has one [`Alarm`] and at most one entry in here that counts. To set an alarm later costs nothing, for
//! the entry that is there already notices when it fires; and a call that ends at once leaves one entry behind, which
//! is dropped when its time comes. Entries of the usual delays (T1, its doubles, constant ring and hold times) stand in
//! queues, where they are in order as they come; only a delay that was drawn costs a heap's logarithm.

use sip::Instant;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

/// Most delays that have a queue of their own; further ones share the heap.
const QUEUES_MAX: usize = 12;

/// Whose alarm it is: a place in a table, and which of its tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Sleeper {
    pub(super) side: Side,
    pub(super) slot: u32,
    pub(super) generation: u32,
}

/// The two tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    Caller,
    Callee,
}

/// When its owner wants to be woken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alarm {
    due: Instant,
    /// The entry that counts; an earlier one never comes.
    queued: Instant,
}

impl Alarm {
    /// Not set.
    pub(super) const OFF: Alarm = Alarm { due: Instant::NEVER, queued: Instant::NEVER };
}

/// What an entry that came up means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wake {
    /// The time has come.
    Due,
    /// The alarm was put off or switched off since.
    NotYet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    at: Instant,
    sleeper: Sleeper,
}

#[derive(Debug)]
struct Queue {
    delay: Duration,
    entries: VecDeque<Entry>,
}

/// All entries of a worker.
///
/// Bounded by what may wait: an alarm has one entry that counts, and stale ones live no longer than their delay.
#[derive(Debug)]
pub(super) struct Timers {
    queues: Vec<Queue>,
    drawn: BinaryHeap<Reverse<Entry>>,
}

impl Timers {
    /// With queues for these delays; the first are searched first.
    pub(super) fn new(delays: impl IntoIterator<Item = Duration>) -> Timers {
        let mut queues: Vec<Queue> = Vec::new();
        for delay in delays {
            if queues.len() < QUEUES_MAX
                && !delay.is_zero()
                && queues.iter().all(|queue| queue.delay != delay)
            {
                queues.push(Queue { delay, entries: VecDeque::new() });
            }
        }
        Timers { queues, drawn: BinaryHeap::new() }
    }

    /// Sets an alarm for `at`, whenever it was set for before.
    pub(super) fn set(&mut self, alarm: &mut Alarm, now: Instant, at: Instant, sleeper: Sleeper) {
        alarm.due = at;
        if at < alarm.queued {
            alarm.queued = at;
            self.push(now, Entry { at, sleeper });
        }
    }

    /// Switches an alarm off.
    pub(super) fn clear(alarm: &mut Alarm) {
        alarm.due = Instant::NEVER;
    }

    fn push(&mut self, now: Instant, entry: Entry) {
        let delay = entry.at.since(now);
        let queue = self.queues.iter_mut().find(|queue| queue.delay == delay);
        match queue {
            // In order as long as the clock does not go back.
            Some(queue) if queue.entries.back().is_none_or(|last| last.at <= entry.at) => {
                queue.entries.push_back(entry);
            }
            _ => self.drawn.push(Reverse(entry)),
        }
    }

    /// When the next entry comes up; it may turn out to be stale.
    pub(super) fn next(&self) -> Option<Instant> {
        let queued = self.queues.iter().filter_map(|queue| queue.entries.front());
        queued.chain(self.drawn.peek().map(|Reverse(entry)| entry)).map(|entry| entry.at).min()
    }

    /// Takes an entry whose time has come. Ask [`wake`](Timers::wake) what it means, if its owner still lives.
    pub(super) fn pop(&mut self, now: Instant) -> Option<(Instant, Sleeper)> {
        let due = |entry: &&Entry| entry.at <= now;
        for queue in &mut self.queues {
            if queue.entries.front().filter(due).is_some() {
                return queue.entries.pop_front().map(|entry| (entry.at, entry.sleeper));
            }
        }
        self.drawn.peek().map(|Reverse(entry)| entry).filter(due)?;
        self.drawn.pop().map(|Reverse(entry)| (entry.at, entry.sleeper))
    }

    /// Whether the entry of `at` that came up is the alarm's, and its time has really come.
    pub(super) fn wake(&mut self, alarm: &mut Alarm, now: Instant, at: Instant, sleeper: Sleeper) -> Wake {
        if at != alarm.queued {
            return Wake::NotYet;
        }
        alarm.queued = Instant::NEVER;
        if alarm.due <= now {
            alarm.due = Instant::NEVER;
            return Wake::Due;
        }
        if alarm.due != Instant::NEVER {
            self.set(alarm, now, alarm.due, sleeper);
        }
        Wake::NotYet
    }

    /// Entries, stale ones too.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.drawn.len() + self.queues.iter().map(|queue| queue.entries.len()).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T1: Duration = Duration::from_millis(500);
    const SLEEPER: Sleeper = Sleeper { side: Side::Caller, slot: 7, generation: 3 };

    fn at(ms: u64) -> Instant {
        Instant::from_micros(ms * 1000)
    }

    #[test]
    fn an_alarm_that_is_put_off_wakes_once_and_at_its_last_time() {
        let mut timers = Timers::new([T1]);
        let mut alarm = Alarm::OFF;
        timers.set(&mut alarm, at(0), at(500), SLEEPER);
        timers.set(&mut alarm, at(10), at(900), SLEEPER);
        assert_eq!(timers.len(), 1, "putting off needs no second entry");
        let (time, sleeper) = timers.pop(at(500)).unwrap();
        assert_eq!(timers.wake(&mut alarm, at(500), time, sleeper), Wake::NotYet);
        assert_eq!(timers.next(), Some(at(900)));
        assert_eq!(timers.pop(at(899)), None);
        let (time, sleeper) = timers.pop(at(900)).unwrap();
        assert_eq!(timers.wake(&mut alarm, at(900), time, sleeper), Wake::Due);
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn an_alarm_that_is_brought_forward_makes_the_later_entry_stale() {
        let mut timers = Timers::new([T1]);
        let mut alarm = Alarm::OFF;
        timers.set(&mut alarm, at(0), at(500), SLEEPER);
        timers.set(&mut alarm, at(0), at(20), SLEEPER);
        let (time, sleeper) = timers.pop(at(20)).unwrap();
        assert_eq!(timers.wake(&mut alarm, at(20), time, sleeper), Wake::Due);
        let (time, sleeper) = timers.pop(at(500)).unwrap();
        assert_eq!(timers.wake(&mut alarm, at(500), time, sleeper), Wake::NotYet);
        assert_eq!(timers.len(), 0);
    }

    #[test]
    fn a_cleared_alarm_never_wakes() {
        let mut timers = Timers::new([T1]);
        let mut alarm = Alarm::OFF;
        timers.set(&mut alarm, at(0), at(500), SLEEPER);
        Timers::clear(&mut alarm);
        let (time, sleeper) = timers.pop(at(600)).unwrap();
        assert_eq!(timers.wake(&mut alarm, at(600), time, sleeper), Wake::NotYet);
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn a_clock_that_goes_back_does_not_disorder_a_queue() {
        let mut timers = Timers::new([T1]);
        let (mut one, mut two) = (Alarm::OFF, Alarm::OFF);
        timers.set(&mut one, at(100), at(600), SLEEPER);
        timers.set(&mut two, at(50), at(550), Sleeper { slot: 8, ..SLEEPER });
        assert_eq!(timers.next(), Some(at(550)));
        assert_eq!(timers.pop(at(550)).unwrap().1.slot, 8);
    }

    #[test]
    fn constant_and_drawn_delays_come_up_in_order_of_time() {
        let mut timers = Timers::new([T1, 2 * T1]);
        let mut alarms = [Alarm::OFF; 4];
        for (slot, (alarm, ms)) in alarms.iter_mut().zip([1000, 500, 731, 13]).enumerate() {
            let slot = u32::try_from(slot).unwrap();
            timers.set(alarm, at(0), at(ms), Sleeper { slot, ..SLEEPER });
        }
        let mut order = Vec::new();
        while let Some(next) = timers.next() {
            order.push(timers.pop(next).unwrap().1.slot);
        }
        assert_eq!(order, [3, 1, 2, 0]);
    }
}
