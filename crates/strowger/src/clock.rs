//! The server's time: one origin for the instants of all shards, and what they are called since 1970.

use std::time::{Duration, Instant as SystemClock, SystemTime, UNIX_EPOCH};

use sip::Instant;

/// How long before the start of the process [`Instant::ZERO`] lies: bindings of earlier runs keep their times.
const BEFORE_THE_START: Duration = Duration::from_secs(400 * 86_400);

/// Instants and the system's clocks, as they were at the start.
///
/// The wall clock is read once: a step that is made to it later moves no binding's expiry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time {
    origin: SystemClock,
    unix_micros_at_zero: u64,
}

impl Time {
    /// The time from now on.
    pub(crate) fn start() -> Time {
        let (origin, unix) = both_clocks();
        let zero = unix.saturating_sub(BEFORE_THE_START);
        Time { origin, unix_micros_at_zero: u64::try_from(zero.as_micros()).unwrap_or(u64::MAX) }
    }

    /// The start of the process by the system's clock.
    pub(crate) fn origin(self) -> SystemClock {
        self.origin
    }

    /// The start of the process as an [`Instant`].
    pub(crate) fn origin_at(self) -> Instant {
        Instant::ZERO + BEFORE_THE_START
    }

    /// Now.
    pub(crate) fn now(self) -> Instant {
        self.origin_at() + self.origin.elapsed()
    }

    /// What scripts know of the wall clock.
    pub(crate) fn wall_clock(self) -> modules::Clock {
        modules::Clock { unix_micros_at_zero: self.unix_micros_at_zero }
    }

    /// Microseconds from 1970 to `at`.
    pub(crate) fn unix_micros(self, at: Instant) -> u64 {
        self.wall_clock().unix_micros(at)
    }

    /// The instant so many microseconds after 1970; what lies before [`Instant::ZERO`] becomes that.
    pub(crate) fn instant(self, unix_micros: u64) -> Instant {
        Instant::from_micros(unix_micros.saturating_sub(self.unix_micros_at_zero))
    }

    /// `at` by the system's clock, for those who wait for it.
    pub(crate) fn system(self, at: Instant) -> SystemClock {
        self.origin + at.since(self.origin_at())
    }
}

/// One moment by both clocks. Who is held up between reading the one and the other would move every stored binding by
/// that, so the closest of some readings counts.
fn both_clocks() -> (SystemClock, Duration) {
    let read = || {
        let before = SystemClock::now();
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        (before.elapsed(), before, unix)
    };
    let (_, origin, unix) = (0..8).map(|_| read()).min().unwrap_or_else(read);
    (origin, unix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_of_earlier_runs_have_names() {
        let time = Time::start();
        let now = time.now();
        let unix = time.unix_micros(now);
        assert_eq!(time.instant(unix), now);
        let last_week = unix - 7 * 86_400 * 1_000_000;
        assert_eq!(time.unix_micros(time.instant(last_week)), last_week);
        assert_eq!(now.since(time.instant(last_week)), Duration::from_secs(7 * 86_400));
        assert_eq!(time.instant(0), Instant::ZERO, "before all that is known");
    }

    #[test]
    fn deadlines_are_told_by_the_systems_clock() {
        let time = Time::start();
        let deadline = time.system(time.now() + Duration::from_secs(2));
        let left = deadline.saturating_duration_since(SystemClock::now());
        assert!(left > Duration::from_millis(1_500) && left <= Duration::from_secs(2), "{left:?}");
    }
}
