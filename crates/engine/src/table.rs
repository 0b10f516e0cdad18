//! The table of transactions: a slab with generations, and the index by which requests find their transaction
//! (RFC 3261 §17.2.3).

use crate::branch::{GENERATION_MASK, SLOT_MAX};
use crate::transaction::Entry;
use alloc::vec::Vec;
use hashbrown::HashTable;

/// Entries are allocated this many at a time, so that growing never moves them.
const CHUNK: usize = 256;
const NIL: u32 = u32::MAX;

/// A transaction: its slot, and the generation that tells it from earlier ones in that slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EntryId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

#[derive(Debug)]
struct Slot<S> {
    generation: u32,
    next_free: u32,
    entry: Option<Entry<S>>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Table<S> {
    chunks: Vec<Vec<Slot<S>>>,
    free: u32,
    len: usize,
    max: usize,
    index: HashTable<(u64, u32)>,
}

impl<S> Table<S> {
    pub(crate) fn new(max: usize) -> Table<S> {
        Table {
            chunks: Vec::new(),
            free: NIL,
            len: 0,
            max: max.min(SLOT_MAX as usize),
            index: HashTable::new(),
        }
    }

    /// Transactions alive.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether another transaction would be one too many.
    pub(crate) fn is_full(&self) -> bool {
        self.len >= self.max
    }

    /// Takes in a transaction; `None` when full.
    pub(crate) fn insert(&mut self, entry: Entry<S>) -> Option<EntryId> {
        if self.is_full() {
            return None;
        }
        if self.free == NIL {
            self.grow();
        }
        let slot = self.free;
        let hash = entry.hash;
        let place = self.slot_mut(slot)?;
        let (next_free, generation) = (place.next_free, place.generation);
        place.entry = Some(entry);
        self.free = next_free;
        self.len += 1;
        self.index.insert_unique(hash, (hash, slot), |(hash, _)| *hash);
        Some(EntryId { slot, generation })
    }

    /// Forgets a transaction.
    pub(crate) fn remove(&mut self, id: EntryId) -> Option<Entry<S>> {
        let free = self.free;
        let place = self.slot_mut(id.slot).filter(|slot| slot.generation == id.generation)?;
        let entry = place.entry.take()?;
        place.generation = (place.generation + 1) & GENERATION_MASK;
        place.next_free = free;
        self.free = id.slot;
        self.len -= 1;
        if let Ok(found) = self.index.find_entry(entry.hash, |(_, slot)| *slot == id.slot) {
            found.remove();
        }
        Some(entry)
    }

    /// A transaction, if it is still there.
    pub(crate) fn get(&self, id: EntryId) -> Option<&Entry<S>> {
        let slot = self.chunks.get(id.slot as usize / CHUNK)?.get(id.slot as usize % CHUNK)?;
        if slot.generation == id.generation { slot.entry.as_ref() } else { None }
    }

    /// A transaction, if it is still there.
    pub(crate) fn get_mut(&mut self, id: EntryId) -> Option<&mut Entry<S>> {
        let slot = self.slot_mut(id.slot)?;
        if slot.generation == id.generation { slot.entry.as_mut() } else { None }
    }

    /// The transaction whose request has this key.
    pub(crate) fn find(&self, hash: u64, key: &[u8]) -> Option<EntryId> {
        let found = self.index.find(hash, |(stored, slot)| {
            *stored == hash
                && self.slot(*slot).and_then(|s| s.entry.as_ref()).is_some_and(|e| e.key[..] == *key)
        });
        let (_, slot) = found?;
        Some(EntryId { slot: *slot, generation: self.slot(*slot)?.generation })
    }

    /// The transactions alive at this moment, in the order of their slots.
    pub(crate) fn ids(&self) -> impl Iterator<Item = EntryId> {
        self.chunks
            .iter()
            .flatten()
            .enumerate()
            .filter(|(_, slot)| slot.entry.is_some())
            .map(|(place, slot)| EntryId { slot: place as u32, generation: slot.generation })
    }

    fn slot(&self, slot: u32) -> Option<&Slot<S>> {
        self.chunks.get(slot as usize / CHUNK)?.get(slot as usize % CHUNK)
    }

    fn slot_mut(&mut self, slot: u32) -> Option<&mut Slot<S>> {
        self.chunks.get_mut(slot as usize / CHUNK)?.get_mut(slot as usize % CHUNK)
    }

    fn grow(&mut self) {
        let first = (self.chunks.len() * CHUNK) as u32;
        let mut chunk = Vec::with_capacity(CHUNK);
        for place in 0..CHUNK as u32 {
            let next_free = if place + 1 == CHUNK as u32 { self.free } else { first + place + 1 };
            chunk.push(Slot { generation: 0, next_free, entry: None });
        }
        self.chunks.push(chunk);
        self.free = first;
    }
}
