//! The timers of a shard: a hierarchical wheel, O(1) to arm, to cancel and to fire.
//!
//! Five levels of 64 slots; a tick is a millisecond. A timer lies on the level of the highest bit in which its tick
//! differs from the wheel's, so all timers of a level come before those of the next. Each slot remembers its earliest
//! timer; [`Wheel::next`] reads five of them. A cancelled timer may leave that memory early, never late.

use crate::table::EntryId;
use alloc::vec::Vec;
use sip::Instant;

/// The wheel's resolution: no timer fires early, none more than this late.
const TICK_MICROS: u64 = 1_000;
const LEVELS: usize = 5;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
/// The farthest tick from now that the wheel can hold, about 12 days: one slot of the top level less than a round, so
/// that the slot of the next round is never the current one. Later timers are moved on from there.
const SPAN_TICKS: u64 = (1 << (SLOT_BITS * LEVELS as u32)) - (1 << (SLOT_BITS * (LEVELS as u32 - 1))) - 1;
const NIL: u32 = u32::MAX;

/// An armed timer, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimerId(u32);

impl TimerId {
    /// Not armed.
    pub(crate) const NONE: TimerId = TimerId(NIL);

    /// Whether a timer is armed.
    pub(crate) fn is_armed(self) -> bool {
        self != TimerId::NONE
    }
}

/// Which of its two timers a machine gets back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// Send again: timers A, E, G; 100 for a late non-INVITE.
    Resend,
    /// Stop waiting: timers B, C, D, F, H, I, J, K, L, M and the deadlines of questions.
    Expire,
}

/// Whose timer it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimerKey {
    /// The transaction.
    pub(crate) entry: EntryId,
    /// The branch, or `None` for the server transaction.
    pub(crate) branch: Option<u16>,
    /// Which of the two.
    pub(crate) which: Which,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    tick: u64,
    previous: u32,
    next: u32,
    home: u16,
    key: Option<TimerKey>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    head: u32,
    tail: u32,
    earliest: u64,
}

const EMPTY: Slot = Slot { head: NIL, tail: NIL, earliest: u64::MAX };

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Wheel {
    nodes: Vec<Node>,
    free: u32,
    slots: [[Slot; SLOTS]; LEVELS],
    occupied: [u64; LEVELS],
    elapsed: u64,
    armed: usize,
}

impl Wheel {
    pub(crate) fn new() -> Wheel {
        Wheel {
            nodes: Vec::new(),
            free: NIL,
            slots: [[EMPTY; SLOTS]; LEVELS],
            occupied: [0; LEVELS],
            elapsed: 0,
            armed: 0,
        }
    }

    /// Timers armed now.
    #[cfg(test)]
    pub(crate) fn armed(&self) -> usize {
        self.armed
    }

    /// Goes on to `now` if nothing is armed: a server that starts long after the origin of time does not go through the
    /// time before it.
    pub(crate) fn skip_to(&mut self, now: Instant) {
        if self.armed == 0 {
            self.elapsed = self.elapsed.max(now.as_micros() / TICK_MICROS);
        }
    }

    /// Arms `id` for `at`, moving it if it was armed.
    pub(crate) fn arm(&mut self, id: &mut TimerId, at: Instant, key: TimerKey) {
        let tick = at.as_micros().div_ceil(TICK_MICROS);
        if id.is_armed() {
            self.unlink(id.0);
        } else {
            *id = TimerId(self.allocate());
        }
        if let Some(node) = self.nodes.get_mut(id.0 as usize) {
            node.tick = tick;
            node.key = Some(key);
        }
        self.link(id.0);
    }

    /// Disarms `id`.
    pub(crate) fn cancel(&mut self, id: &mut TimerId) {
        if id.is_armed() {
            self.unlink(id.0);
            self.release(id.0);
            *id = TimerId::NONE;
        }
    }

    /// When [`Wheel::pop`] shall be called next: never later than the earliest timer.
    pub(crate) fn next(&self) -> Option<Instant> {
        if self.armed == 0 {
            return None;
        }
        let mut earliest = u64::MAX;
        for level in 0..LEVELS {
            if let Some(slot) = self.first_slot(level) {
                earliest = earliest.min(self.slots[level][slot].earliest);
            }
        }
        Some(Instant::from_micros(earliest.saturating_mul(TICK_MICROS)))
    }

    /// Takes one timer that is due. `budget` counts the timers touched, fired or moved; `None` when none is due or it
    /// is used up. The owner's [`TimerId`] is dead after this and must be set to [`TimerId::NONE`].
    pub(crate) fn pop(&mut self, now: Instant, budget: &mut u32) -> Option<TimerKey> {
        let now_tick = now.as_micros() / TICK_MICROS;
        loop {
            let Some((level, slot, start)) = self.first_due() else {
                self.elapsed = self.elapsed.max(now_tick);
                return None;
            };
            if start > now_tick {
                self.elapsed = self.elapsed.max(now_tick);
                return None;
            }
            if *budget == 0 {
                return None;
            }
            *budget -= 1;
            self.elapsed = self.elapsed.max(start);
            let head = self.slots[level][slot].head;
            self.unlink(head);
            let node = self.nodes.get(head as usize).copied()?;
            if node.tick <= now_tick {
                self.release(head);
                return node.key;
            }
            self.link(head);
        }
    }

    /// The slot that begins first, the higher level where two begin together.
    fn first_due(&self) -> Option<(usize, usize, u64)> {
        let mut best: Option<(usize, usize, u64)> = None;
        for level in (0..LEVELS).rev() {
            if let Some(slot) = self.first_slot(level) {
                let start = self.slot_start(level, slot);
                if best.is_none_or(|(_, _, earliest)| start < earliest) {
                    best = Some((level, slot, start));
                }
            }
        }
        best
    }

    fn first_slot(&self, level: usize) -> Option<usize> {
        let bits = self.occupied[level];
        if bits == 0 {
            return None;
        }
        let current = self.elapsed >> (SLOT_BITS * level as u32) & (SLOTS as u64 - 1);
        let ahead = bits >> current;
        // Slots behind the current one belong to the top level's next round only.
        Some(match ahead {
            0 => bits.trailing_zeros() as usize,
            _ => (current as u32 + ahead.trailing_zeros()) as usize,
        })
    }

    fn slot_start(&self, level: usize, slot: usize) -> u64 {
        let shift = SLOT_BITS * level as u32;
        let round = SLOT_BITS * (level as u32 + 1);
        let current = self.elapsed >> shift & (SLOTS as u64 - 1);
        let base = self.elapsed >> round << round;
        let start = base + ((slot as u64) << shift);
        if (slot as u64) < current { start + (1 << round) } else { start }
    }

    fn allocate(&mut self) -> u32 {
        self.armed += 1;
        let node = Node { tick: 0, previous: NIL, next: NIL, home: 0, key: None };
        match self.nodes.get(self.free as usize) {
            Some(free) => {
                let id = self.free;
                self.free = free.next;
                self.nodes[id as usize] = node;
                id
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        }
    }

    fn release(&mut self, id: u32) {
        self.armed -= 1;
        let free = self.free;
        if let Some(node) = self.nodes.get_mut(id as usize) {
            node.key = None;
            node.next = free;
            self.free = id;
        }
    }

    fn link(&mut self, id: u32) {
        let elapsed = self.elapsed;
        let Some(node) = self.nodes.get(id as usize) else { return };
        let wanted = node.tick;
        // What is past fires at once; what is too far fires at the end of the span.
        let place = wanted.clamp(elapsed, elapsed + SPAN_TICKS);
        let differing = (elapsed ^ place) | (SLOTS as u64 - 1);
        let level = ((63 - differing.leading_zeros()) / SLOT_BITS).min(LEVELS as u32 - 1) as usize;
        let slot = (place >> (SLOT_BITS * level as u32) & (SLOTS as u64 - 1)) as usize;
        let list = &mut self.slots[level][slot];
        list.earliest = list.earliest.min(place);
        let tail = list.tail;
        list.tail = id;
        if tail == NIL {
            list.head = id;
        } else if let Some(last) = self.nodes.get_mut(tail as usize) {
            last.next = id;
        }
        self.occupied[level] |= 1 << slot;
        if let Some(node) = self.nodes.get_mut(id as usize) {
            node.previous = tail;
            node.next = NIL;
            node.home = (level * SLOTS + slot) as u16;
        }
    }

    fn unlink(&mut self, id: u32) {
        let Some(node) = self.nodes.get(id as usize).copied() else { return };
        let (level, slot) = (node.home as usize / SLOTS, node.home as usize % SLOTS);
        match self.nodes.get_mut(node.previous as usize) {
            Some(previous) => previous.next = node.next,
            None => self.slots[level][slot].head = node.next,
        }
        match self.nodes.get_mut(node.next as usize) {
            Some(next) => next.previous = node.previous,
            None => self.slots[level][slot].tail = node.previous,
        }
        if self.slots[level][slot].head == NIL {
            self.slots[level][slot] = EMPTY;
            self.occupied[level] &= !(1 << slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    fn key(slot: u32) -> TimerKey {
        TimerKey { entry: EntryId { slot, generation: 0 }, branch: None, which: Which::Resend }
    }

    fn drain(wheel: &mut Wheel, now: Instant) -> Vec<u32> {
        let mut fired = Vec::new();
        let mut budget = u32::MAX;
        while let Some(key) = wheel.pop(now, &mut budget) {
            fired.push(key.entry.slot);
        }
        fired
    }

    #[test]
    fn a_timer_fires_at_its_time_and_not_before() {
        for millis in [0u64, 1, 63, 64, 65, 500, 4_096, 32_000, 180_000, 1_000_000, 80_000_000] {
            let mut wheel = Wheel::new();
            let start = Instant::from_micros(12_345_678_000);
            assert!(drain(&mut wheel, start).is_empty());
            let mut id = TimerId::NONE;
            let at = start + Duration::from_millis(millis);
            wheel.arm(&mut id, at, key(7));
            assert_eq!(wheel.next(), Some(at), "{millis}");
            if millis > 0 {
                assert!(drain(&mut wheel, at - Duration::from_millis(1)).is_empty(), "{millis}");
                assert_eq!(wheel.next(), Some(at), "{millis}");
            }
            assert_eq!(drain(&mut wheel, at), [7], "{millis}");
            assert_eq!(wheel.next(), None);
        }
    }

    #[test]
    fn timers_of_all_lengths_fire_in_order() {
        let mut wheel = Wheel::new();
        let mut random = 1u64;
        let mut deadlines = Vec::new();
        let mut ids = [TimerId::NONE; 2_000];
        for (slot, id) in ids.iter_mut().enumerate() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = Instant::from_micros((random >> 33) % 300_000_000);
            wheel.arm(id, at, key(slot as u32));
            deadlines.push(at);
        }
        for slot in (0..2_000).step_by(3) {
            wheel.cancel(&mut ids[slot]);
        }
        let mut now = Instant::ZERO;
        let mut fired = 0;
        while let Some(next) = wheel.next() {
            assert!(next >= now);
            now = next;
            for slot in drain(&mut wheel, now) {
                fired += 1;
                assert_ne!(slot % 3, 0);
                let late = now.since(deadlines[slot as usize]);
                assert!(deadlines[slot as usize] <= now && late < Duration::from_millis(1));
            }
        }
        assert_eq!(fired, 2_000 - 667);
        assert_eq!(wheel.armed(), 0);
    }

    #[test]
    fn the_time_before_the_first_timer_is_skipped() {
        let start = Instant::from_micros(400 * 86_400 * 1_000_000);
        let mut wheel = Wheel::new();
        wheel.skip_to(start);
        let mut id = TimerId::NONE;
        wheel.arm(&mut id, start + Duration::from_millis(3), key(7));
        // While one is armed, nothing is skipped.
        wheel.skip_to(start + Duration::from_secs(9));
        let mut budget = 1;
        assert!(wheel.pop(start + Duration::from_millis(3), &mut budget).is_some());
    }

    #[test]
    fn rearming_moves_and_a_budget_bounds_the_work() {
        let mut wheel = Wheel::new();
        let mut ids = [TimerId::NONE; 100];
        for (slot, id) in ids.iter_mut().enumerate() {
            wheel.arm(id, Instant::from_micros(5_000), key(slot as u32));
        }
        wheel.arm(&mut ids[0], Instant::from_micros(9_000), key(0));
        let now = Instant::from_micros(6_000);
        let mut budget = 10;
        let mut fired = 0;
        while wheel.pop(now, &mut budget).is_some() {
            fired += 1;
        }
        assert_eq!(fired, 10);
        assert!(wheel.next().is_some_and(|next| next <= now));
        assert_eq!(drain(&mut wheel, now).len(), 89);
        assert_eq!(wheel.next(), Some(Instant::from_micros(9_000)));
        assert_eq!(drain(&mut wheel, Instant::from_micros(9_000)), [0]);
    }

    #[test]
    fn a_jump_far_ahead_loses_nothing() {
        let mut wheel = Wheel::new();
        let mut ids = [TimerId::NONE; 64];
        for (slot, id) in ids.iter_mut().enumerate() {
            wheel.arm(id, Instant::from_micros(1 << slot.min(50)), key(slot as u32));
        }
        let mut now = Instant::from_micros(1 << 51);
        let mut all = drain(&mut wheel, now);
        // The farthest was clamped to the span and comes again until its time has come.
        while let Some(next) = wheel.next() {
            now = next;
            all.extend(drain(&mut wheel, now));
        }
        all.sort_unstable();
        assert_eq!(all, (0..64).collect::<Vec<_>>());
    }
}
