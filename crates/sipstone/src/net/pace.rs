//! When a busy thread lets datagrams gather.
//!
//! To be woken for each datagram costs more than to handle it: at 10,000 calls a second, waking alone fills most of a core
//! that could carry 50,000. So a thread that is busy sleeps for a moment before it looks again, and finds several datagrams at
//! once. A thread that is not busy is woken at once: its times are exact to the wake-up.

use super::worker_thread::thread_cpu;
use sip::Instant;
use std::time::Duration;

/// How long a busy thread sleeps: its share of a measured time, and of the send lag, is at most this.
const NAP: Duration = Duration::from_micros(100);

/// How often it is decided anew whether the thread is busy.
const LOOK: Duration = Duration::from_millis(20);

/// A thread is busy from this use of its CPU on, per cent; napping lowers the use, so that it must fall well below
/// before the naps end.
const BUSY_PERCENT: u128 = 50;
const IDLE_PERCENT: u128 = 15;

/// Decides whether to nap.
#[derive(Debug)]
pub(super) struct Pace {
    looked_at: Instant,
    cpu: Duration,
    napping: bool,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Pace {
        Pace { looked_at: now, cpu: thread_cpu(), napping: false }
    }

    /// Sleeps for a moment if the thread is busy, and says whether it did. `due`: the next timeout; one that has passed is
    /// not held up any longer.
    pub(super) fn rest(&mut self, now: Instant, due: Instant) -> bool {
        if now.since(self.looked_at) >= LOOK {
            self.look(now, thread_cpu());
        }
        let naps = self.napping && due > now;
        if naps {
            std::thread::sleep(NAP);
        }
        naps
    }

    fn look(&mut self, now: Instant, cpu: Duration) {
        let passed = now.since(self.looked_at).as_micros();
        let used = cpu.saturating_sub(self.cpu).as_micros();
        let limit = if self.napping { IDLE_PERCENT } else { BUSY_PERCENT };
        self.napping = used * 100 > passed * limit;
        (self.looked_at, self.cpu) = (now, cpu);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_naps_from_when_it_is_busy_until_it_has_little_to_do() {
        let mut pace = Pace::new(Instant::ZERO);
        let cpu = pace.cpu;
        let after = |ms: u64, used_ms: u64, pace: &mut Pace| {
            pace.look(Instant::from_micros(ms * 1000), cpu + Duration::from_millis(used_ms));
            pace.napping
        };
        assert!(!after(20, 8, &mut pace));
        assert!(after(40, 20, &mut pace));
        assert!(after(60, 25, &mut pace), "napping lowers the use");
        assert!(!after(80, 27, &mut pace));
    }
}
