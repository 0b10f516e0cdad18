//! Failed attempts by source and by user, which slow further ones down (RFC 7616 §5.7: guessing online).
//!
//! Each source (an IPv4 address, an IPv6 /64) and each user has a bucket: so many wrong attempts at once, then
//! one in so many seconds. Past that, credentials are not evaluated, right or wrong: the answer says nothing
//! about them.
//!
//! A user who succeeded from a source in the last day is *known* there, and the two have a bucket of their own,
//! ten times as wide. So whoever tries passwords of others behind the same NAT, or ours from anywhere else,
//! does not lock a phone out; and whoever sits behind the NAT of a phone still cannot try its password without
//! end.
//!
//! Both tables have a fixed size. Where failed attempts have filled their place, a newcomer takes the place of
//! the one with the least to work off, *and what that has to work off*: a flood from many addresses makes new
//! strangers wait, but never gives anybody more attempts than one bucket has. Known pairs lie in a table of
//! their own, where only right passwords write, and a user's pairs in one place that depends on the user alone:
//! one user with many sources pushes out his own first.

use super::nonce::{NonceKey, Purpose, seconds};
use super::window::place;
use crate::services::Services;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;

/// Most sources and users of one table: more are a mistake.
pub(crate) const ENTRIES_MAX: usize = 1 << 24;

/// Places of one set.
const WAYS: usize = 8;

/// Pairs that a user keeps in a full set while there are others in it.
const PAIRS_PER_USER: usize = 4;

/// How wrong attempts are slowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GuardLimits {
    /// Wrong attempts that a source or a user may make at once. 0: nobody is slowed.
    pub(crate) at_once: u32,
    /// Seconds after which one more is allowed.
    pub(crate) secs_per_attempt: u32,
    /// Seconds for which a user and a source stay known to each other after right credentials.
    pub(crate) known_secs: u32,
    /// How many times as many wrong attempts they may make.
    pub(crate) known_factor: u32,
}

impl Default for GuardLimits {
    fn default() -> GuardLimits {
        GuardLimits { at_once: 10, secs_per_attempt: 6, known_secs: 86_400, known_factor: 10 }
    }
}

/// Who tries to authenticate as whom: keyed hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    source: u64,
    user: u64,
    pair: u64,
}

/// Whether credentials may be evaluated.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// They may, in the present call.
    Evaluate(Pass),
    /// They may not, for so many seconds, at least 1: 503 with Retry-After.
    Later {
        /// How long.
        secs: u32,
    },
}

/// Leave to evaluate credentials once; what came of it is to be told with [`failed`](Pass::failed) or
/// [`succeeded`](Pass::succeeded). If they were not evaluated after all, there is nothing to tell.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pass {
    attempt: Attempt,
    standing: Standing,
}

/// How a user and a source stand to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Nobody is slowed.
    Unguarded,
    /// They are known to each other; `renew` if that should be written down again.
    Known { renew: bool },
    /// They are not: each has its own bucket.
    Stranger,
}

impl Attempt {
    /// An attempt from an address (its port does not count) as a user: not as he is written, of which there is no end,
    /// but by what his secret is found. Users that differ in the case of letters are one: some databases do not tell
    /// them apart.
    pub(crate) fn new(key: &NonceKey, source: IpAddr, user: &[u8]) -> Attempt {
        let octets;
        let source: &[u8] = match source.to_canonical() {
            IpAddr::V4(address) => {
                octets = address.to_ipv6_mapped().octets();
                &octets[12..]
            }
            // Whoever has one address of a /64 has all of them.
            IpAddr::V6(address) => {
                octets = address.octets();
                &octets[..8]
            }
        };
        let user = key.hash_user(user);
        Attempt {
            source: key.hash(Purpose::Source, &[source]),
            user,
            pair: key.hash(Purpose::Pair, &[source, &user.to_le_bytes()]),
        }
    }

    /// Asks for leave to evaluate credentials whose nonce is fresh, at `now_secs` since 1970.
    ///
    /// Nothing is charged yet: an office whose phones all come back after a power cut has more attempts on
    /// their way at the same time than a bucket has. So that guesses cannot wait together for the database
    /// either, leave that is older than the present call counts no more: it is asked for again.
    pub(crate) fn admit(&self, services: &dyn Services, limits: &GuardLimits, now_secs: u64) -> Admission {
        if limits.at_once == 0 {
            return Admission::Evaluate(Pass { attempt: *self, standing: Standing::Unguarded });
        }
        let known = visit(services, self.user, |guard| guard.known(self, limits, now_secs));
        let (standing, wait) = match known {
            Some((renew, wait)) => (Standing::Known { renew }, wait),
            None => (Standing::Stranger, self.wait(services, limits, now_secs)),
        };
        match wait {
            Wait(0) => Admission::Evaluate(Pass { attempt: *self, standing }),
            Wait(secs) => Admission::Later { secs },
        }
    }

    /// How long strangers have to wait.
    fn wait(&self, services: &dyn Services, limits: &GuardLimits, now_secs: u64) -> Wait {
        let rate = limits.of_strangers();
        let wait = |key| visit(services, key, |guard| guard.wait(key, rate, now_secs));
        wait(self.source).max(wait(self.user))
    }
}

impl Pass {
    /// The credentials were wrong, or there is no such user.
    pub(crate) fn failed(self, services: &dyn Services, limits: &GuardLimits, now_secs: u64) {
        let attempt = self.attempt;
        match self.standing {
            Standing::Unguarded => {}
            Standing::Known { .. } => {
                visit(services, attempt.user, |guard| guard.charge_known(&attempt, limits, now_secs));
            }
            Standing::Stranger => {
                let rate = limits.of_strangers();
                for key in [attempt.source, attempt.user] {
                    visit(services, key, |guard| guard.charge(key, rate, now_secs));
                }
            }
        }
    }

    /// The credentials were right. Most often there is nothing to be done then.
    ///
    /// What source and user have to work off stays: somebody with one password must not gain guesses at
    /// another.
    pub(crate) fn succeeded(self, services: &dyn Services, limits: &GuardLimits, now_secs: u64) {
        if matches!(self.standing, Standing::Known { renew: true } | Standing::Stranger) {
            let attempt = self.attempt;
            visit(services, attempt.user, |guard| guard.remember(&attempt, limits, now_secs));
        }
    }
}

/// Visits the part of the guard that a key falls into; the default is for services that have none.
fn visit<T: Default>(services: &dyn Services, key: u64, mut what: impl FnMut(&mut Guard) -> T) -> T {
    let mut result = T::default();
    services.with_guard(key, &mut |guard| result = what(guard));
    result
}

/// Seconds to wait; zero: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Wait(u32);

/// How fast a bucket runs empty, and how much goes into it.
#[derive(Clone, Copy, Debug)]
struct Rate {
    /// Milliseconds that a failed attempt takes to work off.
    attempt_ms: u64,
    /// Milliseconds that fit into the bucket.
    room_ms: u64,
}

impl GuardLimits {
    fn of_strangers(&self) -> Rate {
        let attempt_ms = u64::from(self.secs_per_attempt.max(1)) * 1_000;
        Rate { attempt_ms, room_ms: attempt_ms.saturating_mul(self.at_once.max(1).into()) }
    }

    fn of_known(&self) -> Rate {
        let strangers = self.of_strangers();
        let attempt_ms = (strangers.attempt_ms / u64::from(self.known_factor.max(1))).max(1);
        Rate { attempt_ms, ..strangers }
    }
}

/// What is to be worked off, as the time when it will be, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bucket {
    empty_at_ms: u64,
}

impl Bucket {
    /// How long until another attempt fits in.
    fn wait(&mut self, rate: Rate, now_secs: u64) -> Wait {
        let now = now_secs.saturating_mul(1_000);
        // More than a full bucket: the clock was put back, or the limits were.
        self.empty_at_ms = self.empty_at_ms.min(now.saturating_add(rate.room_ms));
        let backlog = self.empty_at_ms.saturating_sub(now);
        let over = backlog.saturating_add(rate.attempt_ms).saturating_sub(rate.room_ms);
        Wait(seconds(over.div_ceil(1_000)))
    }

    fn add(&mut self, rate: Rate, now_secs: u64) {
        let now = now_secs.saturating_mul(1_000);
        self.empty_at_ms = self.empty_at_ms.max(now).saturating_add(rate.attempt_ms);
    }
}

/// A source or a user and what it has to work off.
#[derive(Clone, Copy, Debug, Default)]
struct Charge {
    key: u64,
    bucket: Bucket,
}

/// A user and a source that are known to each other.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    pair: u64,
    bucket: Bucket,
    /// A piece of the user's hash.
    user: u32,
    /// When right credentials came last; zero: there is no pair here.
    succeeded_secs: u32,
}

const _: () = assert!(size_of::<Charge>() + size_of::<Pair>() == 40, "the documentation says so");

/// One part of them.
///
/// It takes 16 bytes for each source and user, all at once at the first failure of strangers, and 24 more for
/// each of as many known pairs at the first success; nothing before or after.
pub struct Guard {
    charges: Vec<[Charge; WAYS]>,
    pairs: Vec<[Pair; WAYS]>,
    /// How many sets each of both is to have.
    sets_max: usize,
}

impl Guard {
    /// Room for this many sources and users together, and for as many pairs of both, rounded up to a multiple
    /// of eight; for `ENTRIES_MAX` (2^24) at most.
    pub fn new(entries_max: usize) -> Guard {
        let sets_max = entries_max.clamp(1, ENTRIES_MAX).div_ceil(WAYS);
        Guard { charges: Vec::new(), pairs: Vec::new(), sets_max }
    }

    /// How long a source or a user has to wait.
    fn wait(&mut self, key: u64, rate: Rate, now_secs: u64) -> Wait {
        self.place_of(key).map_or(Wait(0), |charge| charge.bucket.wait(rate, now_secs))
    }

    /// Charges a source or a user for a failed attempt.
    fn charge(&mut self, key: u64, rate: Rate, now_secs: u64) {
        if self.charges.is_empty() {
            self.charges = vec![[Charge::default(); WAYS]; self.sets_max];
        }
        if let Some(charge) = self.place_of(key) {
            // A newcomer takes over what its place has to work off.
            charge.key = key;
            charge.bucket.add(rate, now_secs);
        }
    }

    /// Its own place, or the one that it would take: that with the least to work off.
    fn place_of(&mut self, key: u64) -> Option<&mut Charge> {
        let at = place(key, self.charges.len());
        let set = self.charges.get_mut(at)?;
        set.iter_mut().min_by_key(|charge| (charge.key != key, charge.bucket.empty_at_ms))
    }

    /// If the two are known to each other: whether that is to be renewed, and how long they have to wait.
    fn known(&mut self, attempt: &Attempt, limits: &GuardLimits, now_secs: u64) -> Option<(bool, Wait)> {
        let now = seconds(now_secs);
        let pair = self.pair(attempt)?;
        let age = now.saturating_sub(pair.succeeded_secs);
        let renew = age > limits.known_secs / 4 || pair.succeeded_secs > now;
        (age <= limits.known_secs).then(|| (renew, pair.bucket.wait(limits.of_known(), now_secs)))
    }

    fn pair(&mut self, attempt: &Attempt) -> Option<&mut Pair> {
        let at = place(attempt.user, self.pairs.len());
        let set = self.pairs.get_mut(at)?;
        set.iter_mut().find(|pair| pair.pair == attempt.pair && pair.succeeded_secs != 0)
    }

    fn charge_known(&mut self, attempt: &Attempt, limits: &GuardLimits, now_secs: u64) {
        if let Some(pair) = self.pair(attempt) {
            pair.bucket.add(limits.of_known(), now_secs);
        }
    }

    /// Writes down that the two are known to each other.
    fn remember(&mut self, attempt: &Attempt, limits: &GuardLimits, now_secs: u64) {
        if self.pairs.is_empty() {
            self.pairs = vec![[Pair::default(); WAYS]; self.sets_max];
        }
        let succeeded_secs = seconds(now_secs).max(1);
        if let Some(pair) = self.pair(attempt) {
            pair.succeeded_secs = succeeded_secs;
            return;
        }
        let user = attempt.user as u32;
        let at = place(attempt.user, self.pairs.len());
        let Some(set) = self.pairs.get_mut(at) else { return };
        let over = |pair: &Pair| succeeded_secs.saturating_sub(pair.succeeded_secs) > limits.known_secs;
        let is_live = |pair: &Pair| pair.succeeded_secs != 0 && !over(pair);
        let own = |pair: &Pair| pair.user == user && is_live(pair);
        let only_own =
            set.iter().all(is_live) && set.iter().filter(|pair| own(pair)).count() >= PAIRS_PER_USER;
        let candidates = set.iter_mut().filter(|pair| !only_own || pair.user == user);
        if let Some(oldest) = candidates.min_by_key(|pair| pair.succeeded_secs) {
            *oldest = Pair { pair: attempt.pair, bucket: Bucket::default(), user, succeeded_secs };
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("entries_max", &(self.sets_max * WAYS)).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
