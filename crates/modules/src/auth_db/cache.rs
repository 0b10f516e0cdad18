//! What a shard remembers of users: rows of the `subscriber` table, bounded in number and in age.
//!
//! The memory is a fixed number of slots with an index of hashes. When all are taken, a hand that goes round gives the
//! next slot that was not used since it last came by (the clock algorithm): constant work, and close to "the one unused
//! longest goes first". Keys come from the network, so their hashes are keyed by a secret.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;
use hashbrown::HashTable;
use sip::Instant;

/// Slots that one search for a free one looks at; past it the one under the hand goes.
const SWEEP_MAX: usize = 16;
/// Tables that are remembered as lacking the optional columns.
const REDUCED_MAX: usize = 16;
/// Tables of which it is remembered whether they have a user; a further one takes the place of the first.
const FIRST_MAX: usize = 16;
/// How long that is believed: a database may refuse for another reason, which passes.
const REDUCED_AGE: Duration = Duration::from_secs(60);
/// How long it is believed that there is no user at all.
const EMPTY_AGE: Duration = Duration::from_secs(1);

/// The columns of one user, in the order in which they were asked for.
pub(crate) type Row = Box<[Option<Box<[u8]>>]>;

/// How long what was read may be believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ages {
    /// The row of a user.
    pub(crate) known: Duration,
    /// That there is no such user.
    pub(crate) unknown: Duration,
}

/// One thing that was read: the row, or that there is none. It has no `Debug`: rows hold secrets.
struct Slot {
    key: Box<[u8]>,
    hash: u64,
    read: Instant,
    row: Option<Row>,
    used: bool,
}

/// Whether a table of users has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstUser {
    /// There was none then.
    None(Instant),
    /// There was one: the question is answered for good.
    Seen,
}

/// Kinds of lines that are written to the log at most once in a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Said {
    /// The database did not answer.
    Away,
    /// There is no user yet.
    NoUser,
    /// A user has no secret for the algorithm.
    NoSecret,
    /// A function was called where it cannot wait.
    CannotWait,
    /// Attempts are slowed.
    Slowed,
    /// The database of another module did not answer.
    Unanswered,
    /// It refused what it was asked.
    Refused,
}

/// Kinds of [`Said`].
const SAID: usize = 7;

/// What one shard remembers of users.
pub(crate) struct Users {
    hasher: ahash::RandomState,
    index: HashTable<u32>,
    slots: Vec<Slot>,
    slots_max: usize,
    hand: usize,
    epoch: u64,
    /// Tables that refused the optional columns, and when.
    reduced: Vec<(Arc<str>, Instant)>,
    /// Tables that were asked whether they have a user.
    first: Vec<(Arc<str>, FirstUser)>,
    said: [Option<Instant>; SAID],
    serial: u64,
}

impl Users {
    /// Room for `slots_max` users; `key` keeps the hashes from being guessed.
    pub(crate) fn new(slots_max: usize, key: &[u8; 32]) -> Users {
        let mut seeds = [0u64; 4];
        for (seed, bytes) in seeds.iter_mut().zip(key.chunks_exact(8)) {
            *seed = bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        }
        let [a, b, c, d] = seeds;
        Users {
            hasher: ahash::RandomState::with_seeds(a, b, c, d),
            index: HashTable::new(),
            slots: Vec::new(),
            slots_max: slots_max.min(u32::MAX as usize),
            hand: 0,
            epoch: 0,
            reduced: Vec::new(),
            first: Vec::new(),
            said: [None; SAID],
            serial: 0,
        }
    }

    /// Forgets everything if an administrator has changed users since.
    pub(crate) fn follow(&mut self, epoch: u64) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.index.clear();
            self.slots.clear();
            self.hand = 0;
            self.reduced.clear();
            self.first.retain(|(_, first)| *first == FirstUser::Seen);
        }
    }

    /// What is remembered under `key`, if it is young enough: how old it is, and the row, `None` if there is no such
    /// user.
    pub(crate) fn get(&mut self, key: &[u8], now: Instant, ages: Ages) -> Option<(Duration, Option<&Row>)> {
        let hash = self.hasher.hash_one(key);
        let slots = &self.slots;
        let place = *self.index.find(hash, |&place| is(slots, place, key))?;
        let slot = self.slots.get_mut(place as usize)?;
        let age = now.since(slot.read);
        let age_max = if slot.row.is_some() { ages.known } else { ages.unknown };
        if age >= age_max {
            return None;
        }
        // What was read for the request in hand is no sign that it is needed again.
        slot.used |= !age.is_zero();
        Some((age, slot.row.as_ref()))
    }

    /// Remembers what was read.
    pub(crate) fn insert(&mut self, key: &[u8], now: Instant, row: Option<Row>) {
        if self.slots_max == 0 {
            return;
        }
        let hash = self.hasher.hash_one(key);
        let slots = &self.slots;
        let known = self.index.find(hash, |&place| is(slots, place, key)).copied();
        if let Some(slot) = known.and_then(|place| self.slots.get_mut(place as usize)) {
            (slot.read, slot.row) = (now, row);
            return;
        }
        let slot = Slot { key: key.into(), hash, read: now, row, used: false };
        let place = if self.slots.len() < self.slots_max {
            self.slots.push(slot);
            self.slots.len() - 1
        } else {
            let place = self.free();
            if let Some(old) = self.slots.get_mut(place) {
                *old = slot;
            }
            place
        };
        let Ok(place) = u32::try_from(place) else { return };
        let slots = &self.slots;
        self.index.insert_unique(hash, place, |&place| slots.get(place as usize).map_or(0, |slot| slot.hash));
    }

    /// A slot that may be written over, out of the index already.
    fn free(&mut self) -> usize {
        for _ in 0..SWEEP_MAX {
            match self.slots.get_mut(self.hand) {
                Some(slot) if slot.used => {
                    slot.used = false;
                    self.hand = (self.hand + 1) % self.slots.len();
                }
                _ => break,
            }
        }
        let place = self.hand;
        self.hand = (self.hand + 1) % self.slots.len().max(1);
        if let Some(slot) = self.slots.get(place)
            && let Ok(entry) = self.index.find_entry(slot.hash, |&at| at as usize == place)
        {
            entry.remove();
        }
        place
    }

    /// When this table refused the optional columns, if that is not long ago.
    pub(crate) fn refused(&self, table: &str, now: Instant) -> Option<Instant> {
        let is_it =
            |(known, then): &&(Arc<str>, Instant)| **known == *table && now.since(*then) < REDUCED_AGE;
        self.reduced.iter().find(is_it).map(|(_, then)| *then)
    }

    /// Remembers that this table refused the optional columns `then`, and has the others.
    pub(crate) fn reduce(&mut self, table: &Arc<str>, then: Instant, now: Instant) {
        self.reduced.retain(|(known, then)| known != table && now.since(*then) < REDUCED_AGE);
        if self.reduced.len() < REDUCED_MAX {
            self.reduced.push((table.clone(), then));
        }
    }

    /// Whether a table has a user: `None` if that must be asked.
    pub(crate) fn has_any(&self, table: &str, now: Instant) -> Option<bool> {
        match self.first.iter().find(|(known, _)| **known == *table)?.1 {
            FirstUser::Seen => Some(true),
            FirstUser::None(then) if now.since(then) < EMPTY_AGE => Some(false),
            FirstUser::None(_) => None,
        }
    }

    /// Remembers whether a table has a user; once it had one, that stays.
    pub(crate) fn saw(&mut self, table: &Arc<str>, any: bool, now: Instant) {
        let new = if any { FirstUser::Seen } else { FirstUser::None(now) };
        match self.first.iter_mut().find(|(known, _)| known == table) {
            Some((_, FirstUser::Seen)) => {}
            Some((_, first)) => *first = new,
            None => {
                if self.first.len() >= FIRST_MAX {
                    self.first.remove(0);
                }
                self.first.push((table.clone(), new));
            }
        }
    }

    /// Whether a line of this kind may be written now, at most one in `interval`.
    pub(crate) fn may_say(&mut self, what: Said, now: Instant, interval: Duration) -> bool {
        let Some(last) = self.said.get_mut(what as usize) else { return false };
        let may = last.is_none_or(|last| now.since(last) >= interval);
        if may {
            *last = Some(now);
        }
        may
    }

    /// A keyed hash, for the tables that the shards share.
    pub(crate) fn hash(&self, bytes: &[u8]) -> u64 {
        self.hasher.hash_one(bytes)
    }

    /// A number that this shard has not had before.
    pub(crate) fn next_serial(&mut self) -> u64 {
        self.serial = self.serial.wrapping_add(1);
        self.serial
    }

    /// How many rows are remembered.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }
}

fn is(slots: &[Slot], place: u32, key: &[u8]) -> bool {
    slots.get(place as usize).is_some_and(|slot| *slot.key == *key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const AGES: Ages = Ages { known: Duration::from_secs(60), unknown: Duration::from_secs(5) };

    fn row(text: &[u8]) -> Option<Row> {
        Some(vec![Some(text.into())].into())
    }

    fn at(secs: u64) -> Instant {
        Instant::from_micros(secs * 1_000_000)
    }

    #[test]
    fn rows_are_kept_for_their_age_and_unknown_users_for_less() {
        let mut users = Users::new(8, &[1; 32]);
        users.insert(b"alice", at(0), row(b"x"));
        users.insert(b"nobody", at(0), None);
        assert!(users.get(b"alice", at(59), AGES).is_some_and(|(_, row)| row.is_some()));
        assert!(users.get(b"nobody", at(4), AGES).is_some_and(|(_, row)| row.is_none()));
        assert!(users.get(b"alice", at(60), AGES).is_none());
        assert!(users.get(b"nobody", at(5), AGES).is_none());
        assert!(users.get(b"bob", at(0), AGES).is_none());
    }

    #[test]
    fn a_full_memory_gives_up_one_row_for_each_new_one_and_never_grows() {
        let mut users = Users::new(4, &[1; 32]);
        for number in 0..1_000u32 {
            users.insert(&number.to_be_bytes(), at(0), row(b"x"));
            assert!(users.get(&number.to_be_bytes(), at(0), AGES).is_some());
            assert!(users.len() <= 4 && users.slots.len() <= 4);
        }
    }

    #[test]
    fn a_row_that_is_used_outlives_those_that_are_not() {
        let mut users = Users::new(16, &[1; 32]);
        users.insert(b"alice", at(0), row(b"x"));
        for number in 0..100u32 {
            users.insert(&number.to_be_bytes(), at(0), row(b"x"));
            assert!(users.get(b"alice", at(1), AGES).is_some(), "after {number}");
        }
    }

    #[test]
    fn a_change_of_users_empties_the_memory() {
        let mut users = Users::new(4, &[1; 32]);
        users.insert(b"alice", at(0), row(b"x"));
        users.follow(0);
        assert_eq!(users.len(), 1);
        users.follow(1);
        assert_eq!(users.len(), 0);
    }

    #[test]
    fn the_first_user_ends_the_question_for_good() {
        let mut users = Users::new(4, &[1; 32]);
        let table = Arc::from("subscriber");
        assert_eq!(users.has_any(&table, at(0)), None);
        users.saw(&table, false, at(0));
        assert_eq!(users.has_any(&table, at(0)), Some(false));
        assert_eq!(users.has_any(&table, at(1)), None);
        users.saw(&table, true, at(1));
        users.saw(&table, false, at(2));
        users.follow(7);
        assert_eq!(users.has_any(&table, at(3)), Some(true));
    }

    #[test]
    fn a_user_in_one_table_is_none_in_another() {
        let mut users = Users::new(4, &[1; 32]);
        let (full, empty) = (Arc::from("subscriber"), Arc::from("people"));
        users.saw(&full, true, at(0));
        assert_eq!(users.has_any(&empty, at(0)), None);
        users.saw(&empty, false, at(0));
        assert_eq!(users.has_any(&full, at(0)), Some(true));
        assert_eq!(users.has_any(&empty, at(0)), Some(false));
    }

    #[test]
    fn a_line_is_said_once_in_its_interval() {
        let mut users = Users::new(0, &[1; 32]);
        assert!(users.may_say(Said::Away, at(0), Duration::from_secs(60)));
        assert!(!users.may_say(Said::Away, at(59), Duration::from_secs(60)));
        assert!(users.may_say(Said::NoUser, at(59), Duration::from_secs(60)));
        assert!(users.may_say(Said::Away, at(60), Duration::from_secs(60)));
    }
}
