//! Expiry index: a hierarchical wheel of whole seconds over intrusive lists of slots.
//!
//! Filing, taking out and finding what is due are O(1); a slot filed for the far future is moved to a finer level
//! at most `LEVELS - 1` times, one slot a step. A binding whose expiry only moved later stays where it is filed:
//! when it comes due it is filed again, so a refresh costs nothing here.

use crate::slots::{NONE, Slots};
use sip::Instant;

const LEVEL_BITS: u32 = 6;
const PER_LEVEL: usize = 1 << LEVEL_BITS;
const LEVELS: usize = 6;
/// Latest second that the wheel can name (2,177 years); what is later is filed there.
const TICK_MAX: u64 = (1 << (LEVEL_BITS * LEVELS as u32)) - 1;

/// The wheel. `current` is the second that was last looked at; nothing filed is earlier.
pub(crate) struct Wheel {
    current: u64,
    /// Which lists of a level are not empty, one bit each.
    occupied: [u64; LEVELS],
    heads: [u32; LEVELS * PER_LEVEL],
}

/// What one step of the wheel did.
pub(crate) enum Step {
    /// This slot has expired; it is no longer filed.
    Due(u32),
    /// One slot was filed again, closer to its time.
    Moved,
    /// Nothing is left to do until later.
    Idle,
}

impl Wheel {
    pub(crate) fn new() -> Wheel {
        Wheel { current: 0, occupied: [0; LEVELS], heads: [NONE; LEVELS * PER_LEVEL] }
    }

    /// Looks at `now` next if nothing is filed: a table whose first binding comes long after the origin of time does not
    /// go through the time before it.
    pub(crate) fn skip_to(&mut self, now: Instant) {
        if self.occupied == [0; LEVELS] {
            self.current = self.current.max(now.as_secs().min(TICK_MAX));
        }
    }

    /// Files the slot by its binding's expiry.
    pub(crate) fn file(&mut self, slots: &mut Slots, index: u32) {
        let tick = tick_of(slots.get(index).binding.expires_at()).max(self.current);
        let level = level_of(tick ^ self.current);
        let place = level * PER_LEVEL + digit(tick, level);
        let head = core::mem::replace(&mut self.heads[place], index);
        self.occupied[level] |= 1 << digit(tick, level);
        if head != NONE {
            slots.get_mut(head).previous = index;
        }
        let slot = slots.get_mut(index);
        slot.previous = NONE;
        slot.next = head;
        slot.place = place as u16;
    }

    /// Takes the slot out of the list that it is filed in.
    pub(crate) fn take_out(&mut self, slots: &mut Slots, index: u32) {
        let slot = slots.get(index);
        let (previous, next, place) = (slot.previous, slot.next, usize::from(slot.place));
        if next != NONE {
            slots.get_mut(next).previous = previous;
        }
        if previous != NONE {
            slots.get_mut(previous).next = next;
        } else {
            self.heads[place] = next;
            if next == NONE {
                self.occupied[place / PER_LEVEL] &= !(1 << (place % PER_LEVEL));
            }
        }
    }

    /// Files the slot again if its binding now expires earlier than where it is filed is looked at.
    pub(crate) fn refile_if_earlier(&mut self, slots: &mut Slots, index: u32, old: Instant) {
        let slot = slots.get(index);
        // A list is never looked at after the expiry it was chosen by, so only an earlier expiry can be missed.
        if slot.binding.expires_at() < old {
            self.take_out(slots, index);
            self.file(slots, index);
        }
    }

    /// Does one step of what is due at `now`.
    pub(crate) fn step(&mut self, slots: &mut Slots, now: Instant) -> Step {
        let now_tick = now.as_secs().min(TICK_MAX);
        loop {
            // A coarse list whose time has begun is filed again, slot by slot, before anything in it can be due.
            for level in (1..LEVELS).rev() {
                let index = self.heads[level * PER_LEVEL + digit(self.current, level)];
                if index != NONE {
                    self.take_out(slots, index);
                    self.file(slots, index);
                    return Step::Moved;
                }
            }
            let index = self.heads[digit(self.current, 0)];
            if index != NONE && self.current <= now_tick {
                self.take_out(slots, index);
                if tick_of(slots.get(index).binding.expires_at()) <= self.current {
                    return Step::Due(index);
                }
                self.file(slots, index);
                return Step::Moved;
            }
            match self.next_tick() {
                Some(tick) if tick <= now_tick => self.current = tick,
                _ => {
                    // Nothing is filed between `current` and now, so every list stays the right one.
                    self.current = self.current.max(now_tick);
                    return Step::Idle;
                }
            }
        }
    }

    /// The earliest second at which `step` has something to do; `None` if nothing is filed.
    pub(crate) fn next_tick(&self) -> Option<u64> {
        let bit_here = |level: usize| 1u64 << digit(self.current, level);
        if (0..LEVELS).any(|level| self.occupied[level] & bit_here(level) != 0) {
            return Some(self.current);
        }
        // What a finer level holds is earlier than what a coarser one holds.
        (0..LEVELS).find_map(|level| {
            let later = self.occupied[level] & (u64::MAX << digit(self.current, level));
            let shift = LEVEL_BITS * level as u32;
            let block = (self.current >> shift) & !(PER_LEVEL as u64 - 1);
            (later != 0).then(|| (block | u64::from(later.trailing_zeros())) << shift)
        })
    }
}

/// The first whole second at which a binding that expires at `at` is gone.
fn tick_of(at: Instant) -> u64 {
    at.as_micros().div_ceil(1_000_000).min(TICK_MAX)
}

/// The coarsest level at which two seconds differ, from their exclusive or.
fn level_of(difference: u64) -> usize {
    match difference.checked_ilog2() {
        Some(bit) => ((bit / LEVEL_BITS) as usize).min(LEVELS - 1),
        None => 0,
    }
}

/// The digit of `tick` at `level`, in base 64.
fn digit(tick: u64, level: usize) -> usize {
    (tick >> (LEVEL_BITS * level as u32)) as usize & (PER_LEVEL - 1)
}
