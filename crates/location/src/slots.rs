//! Slots of bindings, addressed by number: they never move, and growing never copies them.

use crate::binding::Binding;
use alloc::vec::Vec;

/// No slot.
pub(crate) const NONE: u32 = u32::MAX;
/// Slots allocated at once.
const CHUNK: usize = 1 << CHUNK_BITS;
const CHUNK_BITS: u32 = 9;

/// The slot holds a binding.
pub(crate) const LIVE: u8 = 1;
/// The slot's number waits in the change log.
pub(crate) const QUEUED: u8 = 2;
/// The binding changed since it was last drained from the change log.
pub(crate) const DIRTY: u8 = 4;
/// The store may hold the binding, as it was drained from the change log or restored: its removal is a change too.
pub(crate) const FLUSHED: u8 = 8;

/// A binding and its places in the lists.
pub(crate) struct Slot {
    pub(crate) binding: Binding,
    /// Hash of the address-of-record.
    pub(crate) hash: u32,
    /// Next binding of the same address-of-record, by falling preference.
    pub(crate) sibling: u32,
    /// Neighbours in the wheel's list (`next` also chains free slots).
    pub(crate) previous: u32,
    pub(crate) next: u32,
    /// The wheel's list that this slot is in.
    pub(crate) place: u16,
    pub(crate) marks: u8,
}

/// All slots of a table.
pub(crate) struct Slots {
    chunks: Vec<Vec<Slot>>,
    free: u32,
    live: usize,
}

impl Slots {
    pub(crate) fn new() -> Slots {
        Slots { chunks: Vec::new(), free: NONE, live: 0 }
    }

    /// Slots that hold a binding.
    pub(crate) fn live(&self) -> usize {
        self.live
    }

    /// Bytes allocated for slots, their blocks apart.
    pub(crate) fn bytes(&self) -> usize {
        self.chunks.len() * CHUNK * size_of::<Slot>()
    }

    pub(crate) fn get(&self, index: u32) -> &Slot {
        &self.chunks[index as usize >> CHUNK_BITS][index as usize & (CHUNK - 1)]
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> &mut Slot {
        &mut self.chunks[index as usize >> CHUNK_BITS][index as usize & (CHUNK - 1)]
    }

    /// Takes a free slot for a binding of the address-of-record with `hash`. The caller bounds their number.
    pub(crate) fn take(&mut self, hash: u32) -> u32 {
        if self.free == NONE {
            self.grow();
        }
        let index = self.free;
        let slot = self.get_mut(index);
        let next = slot.next;
        slot.hash = hash;
        slot.sibling = NONE;
        slot.previous = NONE;
        slot.next = NONE;
        // The number may still wait in the change log from the slot's last life.
        slot.marks = LIVE | (slot.marks & QUEUED);
        self.free = next;
        self.live += 1;
        index
    }

    /// Gives the slot back and returns what it held.
    pub(crate) fn give_back(&mut self, index: u32) -> Binding {
        let free = self.free;
        let slot = self.get_mut(index);
        let binding = core::mem::replace(&mut slot.binding, Binding::vacant());
        slot.marks &= QUEUED;
        slot.next = free;
        self.free = index;
        self.live -= 1;
        binding
    }

    /// The slots of one address-of-record from `head` on, by falling preference.
    pub(crate) fn chain(&self, head: u32) -> Chain<'_> {
        Chain { slots: self, next: head }
    }

    /// Every slot that holds a binding, in no meaningful order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Slot)> {
        (0..NONE).zip(self.chunks.iter().flatten()).filter(|(_, slot)| slot.marks & LIVE != 0)
    }

    /// The same, to be marked.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.chunks.iter_mut().flatten().filter(|slot| slot.marks & LIVE != 0)
    }

    #[cold]
    fn grow(&mut self) {
        let first = self.chunks.len() << CHUNK_BITS;
        let number = |offset: usize| u32::try_from(first + offset).unwrap_or(NONE);
        let mut chunk = Vec::with_capacity(CHUNK);
        for offset in 0..CHUNK {
            let next = if offset + 1 < CHUNK { number(offset + 1) } else { NONE };
            chunk.push(Slot {
                binding: Binding::vacant(),
                hash: 0,
                sibling: NONE,
                previous: NONE,
                next,
                place: 0,
                marks: 0,
            });
        }
        self.chunks.push(chunk);
        self.free = number(0);
    }
}

/// See [`Slots::chain`].
#[derive(Clone)]
pub(crate) struct Chain<'a> {
    slots: &'a Slots,
    next: u32,
}

impl<'a> Iterator for Chain<'a> {
    type Item = (u32, &'a Slot);

    fn next(&mut self) -> Option<(u32, &'a Slot)> {
        if self.next == NONE {
            return None;
        }
        let index = self.next;
        let slot = self.slots.get(index);
        self.next = slot.sibling;
        Some((index, slot))
    }
}
