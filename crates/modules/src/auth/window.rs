//! Nonce counts that were seen (RFC 7616 §3.4 `nc`, §5.5 replay), in a table of fixed size.
//!
//! A count that was taken is not taken again, but for a retransmission. For each nonce the table has the
//! highest count and a window of 64 counts below it, as they may overtake each other on the way, and what the
//! last requests were.
//!
//! The table is made of sets of eight nonces. In a full set the newcomer takes the place of the nonce that was
//! issued first, and the set remembers when that was: what was issued up to then and is not in it is *stale*,
//! as its counts may have been forgotten. Nothing that was forgotten is ever accepted again; the price of a
//! table that is too small is one more challenge. How long it remembers is its size over the rate of nonces
//! that are used.

use super::nonce::{Nonce, seconds};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

/// Most nonces of one table: more are a mistake (a gigabyte).
pub(crate) const NONCES_MAX: usize = 1 << 24;

/// Seconds in which the same request again is a retransmission: 64*T1 (RFC 3261 §17.1.1.2, §17.1.2.2), after
/// which no client transaction sends it any more.
pub(crate) const RETRANSMISSION_SECS: u16 = 32;

/// Nonces of one set.
const WAYS: usize = 8;

/// Requests of one nonce whose retransmissions are known.
const USES: usize = 5;

/// One part of the counts.
///
/// It takes 65 bytes for each nonce, all at once when the first count is taken, and nothing before or after.
pub struct NonceWindow {
    sets: Vec<Set>,
    /// How many sets there are to be.
    sets_max: usize,
}

/// A nonce that is used, in credentials that are right.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NonceUse {
    /// The nonce, fresh.
    pub(crate) nonce: Nonce,
    /// `nc`.
    pub(crate) count: u32,
    /// [`NonceKey::fingerprint`](super::NonceKey::fingerprint) of the request.
    pub(crate) fingerprint: u64,
    /// Seconds since 1970.
    pub(crate) now_secs: u64,
    /// By how many seconds a nonce may be ahead of that and be accepted.
    pub(crate) drift_secs: u32,
}

/// What a nonce count means.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    /// It was not seen before.
    New,
    /// It was seen with the very same request, in the last 32 seconds.
    Retransmission,
    /// It was seen with another request or too long ago, or may have been: the nonce is stale.
    Stale,
}

#[derive(Clone, Debug)]
struct Set {
    nonces: [Counts; WAYS],
    /// What was issued up to then and is not here was forgotten, or may have been.
    forgotten_secs: u32,
}

/// What is known of a nonce.
#[derive(Clone, Debug)]
struct Counts {
    identity: u64,
    /// Bit n: `highest - n` was seen.
    seen: u64,
    /// The last uses, in a ring: the next one goes to the front.
    uses: [Use; USES],
    highest: u32,
    /// Zero: there is no nonce here.
    issued_secs: u32,
}

/// A use: 47 bits of its fingerprint, a one (so that it is never all zero), and 16 bits of its time in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Use(u64);

const _: () = assert!(size_of::<Set>() == 65 * WAYS, "the documentation says so");

impl NonceWindow {
    /// Room for this many nonces, rounded up to a multiple of eight; for `NONCES_MAX` (2^24) at most.
    pub fn new(nonces_max: usize) -> NonceWindow {
        NonceWindow { sets: Vec::new(), sets_max: nonces_max.clamp(1, NONCES_MAX).div_ceil(WAYS) }
    }

    /// Takes a count, once. Only for credentials that are right, or else anybody could use up the counts of
    /// others.
    ///
    /// The first count of a nonce may be any: others may have been seen by another node with the same key, or
    /// before a restart, so those below it are never taken.
    pub(crate) fn take(&mut self, used: &NonceUse) -> Count {
        if self.sets.is_empty() {
            self.sets = vec![Set::EMPTY; self.sets_max];
        }
        let at = place(used.nonce.identity, self.sets.len());
        self.sets.get_mut(at).map_or(Count::Stale, |set| set.take(used))
    }
}

impl fmt::Debug for NonceWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NonceWindow").field("nonces_max", &(self.sets_max * WAYS)).finish_non_exhaustive()
    }
}

/// Which of `sets` a hash falls into. It is stirred first, as its bits have chosen this part of the table
/// already.
pub(super) fn place(hash: u64, sets: usize) -> usize {
    let hash = (hash ^ hash >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let hash = (hash ^ hash >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    ((u128::from(hash) * sets as u128) >> 64) as usize
}

impl Set {
    const EMPTY: Set = Set { nonces: [const { Counts::NONE }; WAYS], forgotten_secs: 0 };

    fn take(&mut self, used: &NonceUse) -> Count {
        let now = seconds(used.now_secs);
        let issued = used.nonce.issued_secs.max(1);
        let known = |counts: &&mut Counts| counts.identity == used.nonce.identity && counts.issued_secs != 0;
        if let Some(counts) = self.nonces.iter_mut().find(known) {
            return counts.take(used);
        }
        // What is issued further ahead is from before the clock was put back: such nonces have expired. What
        // was forgotten since then cannot be told from what is older, so that all is stale that was not issued
        // just now.
        let ahead = now.saturating_add(used.drift_secs);
        if self.forgotten_secs > ahead {
            self.forgotten_secs = now.saturating_sub(1);
        }
        if issued <= self.forgotten_secs {
            return Count::Stale;
        }
        // An empty place, or one of a nonce that is too far ahead, or the oldest's.
        let age = |counts: &&mut Counts| match counts.issued_secs {
            issued if issued > ahead => 0,
            issued => issued,
        };
        let Some(oldest) = self.nonces.iter_mut().min_by_key(age) else { return Count::Stale };
        let gone = age(&oldest);
        if gone >= issued {
            // The newcomer is the oldest.
            return Count::Stale;
        }
        *oldest = Counts::first(used, issued);
        self.forgotten_secs = self.forgotten_secs.max(gone);
        Count::New
    }
}

impl Counts {
    const NONE: Counts = Counts { identity: 0, seen: 0, uses: [Use(0); USES], highest: 0, issued_secs: 0 };

    /// A nonce that was not known.
    fn first(used: &NonceUse, issued_secs: u32) -> Counts {
        let mut counts = Counts {
            identity: used.nonce.identity,
            seen: u64::MAX,
            highest: used.count,
            issued_secs,
            ..Counts::NONE
        };
        counts.remember(used);
        counts
    }

    fn take(&mut self, used: &NonceUse) -> Count {
        if !self.mark(used.count) {
            let again = self.uses.iter().any(|known| known.is_again(used));
            return if again { Count::Retransmission } else { Count::Stale };
        }
        self.remember(used);
        Count::New
    }

    /// Notes that a count was seen; false if it was before, or is below the window.
    fn mark(&mut self, count: u32) -> bool {
        if count > self.highest {
            self.seen = self.seen.checked_shl(count - self.highest).unwrap_or(0) | 1;
            self.highest = count;
            return true;
        }
        let Some(bit) = 1u64.checked_shl(self.highest - count) else { return false };
        let new = self.seen & bit == 0;
        self.seen |= bit;
        new
    }

    fn remember(&mut self, used: &NonceUse) {
        self.uses.rotate_right(1);
        self.uses[0] = Use::of(used);
    }
}

impl Use {
    fn of(used: &NonceUse) -> Use {
        // The lowest 16 bits are enough: nothing here outlives its nonce for long, and what is compared is the
        // whole request.
        Use(used.fingerprint & !0xffff | 1 << 16 | used.now_secs & 0xffff)
    }

    /// Whether `used` is this one again, in time.
    fn is_again(self, used: &NonceUse) -> bool {
        let again = Use::of(used).0;
        let age = (again as u16).wrapping_sub(self.0 as u16);
        self.0 >> 16 == again >> 16 && age <= RETRANSMISSION_SECS
    }
}

#[cfg(test)]
mod tests;
