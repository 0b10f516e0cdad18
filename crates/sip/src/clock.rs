//! The project's own instant: the core reads no clock, so that the same inputs give the same outputs.

use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// A moment in microseconds since an origin of the caller's choosing (usually the start of the process).
///
/// It is handed to the core with every input; arithmetic saturates, so no input can make it wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The origin.
    pub const ZERO: Instant = Instant(0);
    /// A moment that never comes.
    pub const NEVER: Instant = Instant(u64::MAX);

    /// The moment `micros` microseconds after the origin.
    pub const fn from_micros(micros: u64) -> Instant {
        Instant(micros)
    }

    /// Microseconds since the origin.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Whole seconds since the origin.
    pub const fn as_secs(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Time passed since `earlier`, zero if `earlier` is later.
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, after: Duration) -> Instant {
        Instant(self.0.saturating_add(u64::try_from(after.as_micros()).unwrap_or(u64::MAX)))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, after: Duration) {
        *self = *self + after;
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;
    fn sub(self, before: Duration) -> Instant {
        Instant(self.0.saturating_sub(u64::try_from(before.as_micros()).unwrap_or(u64::MAX)))
    }
}
