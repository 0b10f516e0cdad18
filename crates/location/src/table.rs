//! The table of bindings: REGISTER applied all or nothing, lookup by preference, expiry in bounded steps
//! (RFC 3261 §10.3).

use crate::binding::{Binding, Granted};
use crate::changes::{Change, Log, Recorder};
use crate::keep::Superseded;
use crate::order::Order;
use crate::plan::{Plan, Scene, Step, matching, q_of};
use crate::policy::{Limits, Policy};
use crate::request::{Refusal, Register, Update};
use crate::slots::{Chain, NONE, Slots};
use crate::wheel::{self, Wheel};
use ahash::RandomState;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::cmp::Reverse;
use core::time::Duration;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use sip::Instant;

/// Steps of expiry that a request takes to make room before it is refused for a full table.
pub(crate) const RECLAIM_STEPS: usize = 256;

/// Random numbers that key the hashes of addresses-of-record: unknown to clients, who choose the addresses.
#[derive(Clone, Copy)]
pub struct Seeds(pub [u64; 4]);

impl core::fmt::Debug for Seeds {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Seeds(..)")
    }
}

/// What a REGISTER did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registered {
    /// Bindings that the address-of-record has now.
    pub bindings: usize,
    /// Bindings that are new.
    pub added: usize,
    /// Bindings that were updated.
    pub updated: usize,
    /// Bindings that were removed, those that made way for others included.
    pub removed: usize,
    /// Bindings left as they were, because the request repeats the one that made them.
    pub repeated: usize,
}

/// A binding of the address-of-record of a REGISTER.
#[derive(Debug)]
pub enum Changed<'a> {
    /// It is changed: as it was.
    Before(&'a Binding),
    /// It has been changed: as it is.
    After(&'a Binding),
    /// It is bound in the end, whether or not it has been changed; all come in the order of [`Table::lookup`].
    Bound(&'a Binding),
}

/// Where the bindings of an address-of-record start. Both halves are four bytes: a bucket is eight, and growing
/// the index reads nothing else.
struct Head {
    hash: u32,
    index: u32,
}

/// Bindings of addresses-of-record.
///
/// One table belongs to one thread at a time. Its memory grows with the bindings up to [`Limits`]; slots are
/// kept for reuse, strings are given back.
pub struct Table {
    heads: HashTable<Head>,
    pub(crate) slots: Slots,
    wheel: Wheel,
    pub(crate) log: Option<Box<Log>>,
    pub(crate) recorder: Option<Box<dyn Recorder>>,
    pub(crate) limits: Limits,
    hasher: RandomState,
    pub(crate) block_bytes: usize,
    order: Order,
    pub(crate) superseded: VecDeque<Superseded>,
    /// Removals of what was not bound: see [`Table::note_absent`].
    pub(crate) absent: VecDeque<Binding>,
}

impl Table {
    /// An empty table; it allocates as bindings come.
    pub fn new(limits: Limits, seeds: Seeds) -> Table {
        let Seeds([a, b, c, d]) = seeds;
        Table {
            heads: HashTable::new(),
            slots: Slots::new(),
            wheel: Wheel::new(),
            log: None,
            recorder: None,
            limits: Limits { bindings_max: limits.bindings_max.min(NONE as usize - 1), ..limits },
            hasher: RandomState::with_seeds(a, b, c, d),
            block_bytes: 0,
            order: Order::default(),
            superseded: VecDeque::new(),
            absent: VecDeque::new(),
        }
    }

    /// Applies a REGISTER for `aor`, its canonical form, completely or not at all (RFC 3261 §10.3 steps 6 to 8).
    ///
    /// What it leaves bound is read with [`Table::lookup`]. A refresh whose strings fit where the old ones were
    /// allocates nothing.
    ///
    /// # Errors
    ///
    /// A [`Refusal`], whose [`status`](Refusal::status) answers the request; no binding is changed by it.
    pub fn register(
        &mut self,
        now: Instant,
        aor: &[u8],
        request: &Register<'_>,
        policy: &Policy,
    ) -> Result<Registered, Refusal> {
        self.apply(now, aor, request, policy, None)
    }

    /// The same, and tells `changed` of each binding that it changes, which is what is needed to [`undo`](Table::undo) it, and
    /// then of each that is bound.
    ///
    /// # Errors
    ///
    /// As [`Table::register`].
    pub fn register_tentatively(
        &mut self,
        now: Instant,
        aor: &[u8],
        request: &Register<'_>,
        policy: &Policy,
        changed: &mut dyn FnMut(Changed<'_>),
    ) -> Result<Registered, Refusal> {
        self.apply(now, aor, request, policy, Some(changed))
    }

    /// With `changed` the request is one that may have to be undone.
    fn apply(
        &mut self,
        now: Instant,
        aor: &[u8],
        request: &Register<'_>,
        policy: &Policy,
        changed: Option<&mut dyn FnMut(Changed<'_>)>,
    ) -> Result<Registered, Refusal> {
        let hash = self.hash(aor);
        let head = self.drop_expired(now, hash, aor);
        let place = Place { now, hash, aor, policy, is_tentative: changed.is_some() };
        let ignored: &mut dyn FnMut(Changed<'_>) = &mut |_| {};
        let changed = changed.unwrap_or(ignored);
        let mut done = match *request {
            Register::Query => Registered::default(),
            Register::RemoveAll { call_id, cseq, waiting_since } => {
                let update = Update { waiting_since, ..Update::new(&[], call_id, cseq) };
                self.remove_all(&place, head, &update, changed)?
            }
            Register::Bind(updates) => {
                let (slots, order, limits) = (&self.slots, &self.order, &self.limits);
                let scene = Scene { slots, order, now, hash, head, aor, policy, limits };
                let plan = scene.plan(updates)?;
                self.check_room(now, aor, &plan)?;
                self.wheel.skip_to(now);
                let came = updates.first().map_or(now, |update| place.came(update));
                self.commit(&place, plan, came, changed)
            }
        };
        for binding in self.bound(now, hash, aor) {
            changed(Changed::Bound(binding));
            done.bindings += 1;
        }
        Ok(done)
    }

    /// The bindings of `aor` that exist at `now`, by falling q, the newest first among equals.
    pub fn lookup(&self, now: Instant, aor: &[u8]) -> Bindings<'_> {
        self.bound(now, self.hash(aor), aor)
    }

    fn bound(&self, now: Instant, hash: u32, aor: &[u8]) -> Bindings<'_> {
        Bindings { chain: self.slots.chain(self.head(hash, aor)), now }
    }

    /// Removes one contact of `aor`, or all of them, whatever their Call-ID and CSeq: an administrator's hand,
    /// not a client's. Returns how many existed and are gone.
    pub fn remove(&mut self, now: Instant, aor: &[u8], contact: Option<&[u8]>) -> usize {
        let hash = self.hash(aor);
        self.order.note_removal(hash, now);
        let head = self.drop_expired(now, hash, aor);
        match contact {
            Some(contact) => {
                let found = matching(&self.slots, head, contact);
                found.into_iter().inspect(|&index| self.discard(hash, index)).count()
            }
            None => self.discard_chain(hash, head),
        }
    }

    /// Removes bindings that no longer exist at `now`, in at most `budget` steps of constant cost each; returns
    /// how many were removed. There is more to do while [`next_expiry`](Table::next_expiry) is not after `now`.
    pub fn expire(&mut self, now: Instant, budget: usize) -> usize {
        let mut removed = 0;
        for _ in 0..budget {
            match self.wheel.step(&mut self.slots, now) {
                wheel::Step::Due(index) => {
                    self.forget(self.slots.get(index).hash, index);
                    removed += 1;
                }
                wheel::Step::Moved => {}
                wheel::Step::Idle => break,
            }
        }
        removed
    }

    /// When [`expire`](Table::expire) next has something to do, to the second; `None` while the table is empty.
    /// Never later than the second in which the next binding expires; it may be earlier.
    pub fn next_expiry(&self) -> Option<Instant> {
        self.wheel.next_tick().map(|tick| Instant::ZERO + Duration::from_secs(tick))
    }

    /// Bindings held, expired ones that were not removed yet included.
    pub fn len(&self) -> usize {
        self.slots.live()
    }

    /// Whether the table holds nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Addresses-of-record that have a binding.
    pub fn aors(&self) -> usize {
        self.heads.len()
    }

    /// Bytes allocated, without what the allocator itself adds.
    pub fn bytes(&self) -> usize {
        self.heads.allocation_size() + self.slots.bytes() + self.block_bytes
    }

    /// The sizes that the table never exceeds.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Every binding held, in no meaningful order, expired ones that were not removed yet included.
    pub fn iter(&self) -> impl Iterator<Item = &Binding> {
        self.slots.iter().map(|(_, slot)| &slot.binding)
    }

    pub(crate) fn hash(&self, aor: &[u8]) -> u32 {
        let hash = self.hasher.hash_one(aor);
        (hash ^ (hash >> 32)) as u32
    }

    /// The first slot of `aor`, or `NONE`.
    pub(crate) fn head(&self, hash: u32, aor: &[u8]) -> u32 {
        let is_it = |head: &Head| head.hash == hash && self.slots.get(head.index).binding.aor() == aor;
        self.heads.find(spread(hash), is_it).map_or(NONE, |head| head.index)
    }

    /// The slot of this contact of `aor`, in this spelling.
    pub(crate) fn exactly(&self, aor: &[u8], contact: &[u8]) -> Option<u32> {
        let mut chain = self.slots.chain(self.head(self.hash(aor), aor));
        chain.find(|(_, slot)| slot.binding.contact() == contact).map(|(index, _)| index)
    }

    /// Removes what has expired of `aor` and returns its first slot: the rest of a request sees only what exists.
    pub(crate) fn drop_expired(&mut self, now: Instant, hash: u32, aor: &[u8]) -> u32 {
        let mut head = self.head(hash, aor);
        let expired = |table: &Table, head| {
            table.slots.chain(head).find(|(_, slot)| slot.binding.is_expired(now)).map(|(index, _)| index)
        };
        while let Some(index) = expired(self, head) {
            self.discard(hash, index);
            head = self.head(hash, aor);
        }
        head
    }

    /// `Contact: *` (RFC 3261 §10.3 step 6): `update` without a contact.
    fn remove_all(
        &mut self,
        place: &Place<'_>,
        head: u32,
        update: &Update<'_>,
        changed: &mut dyn FnMut(Changed<'_>),
    ) -> Result<Registered, Refusal> {
        // "If it does agree, it MUST remove the binding only if the CSeq in the request is higher than the value
        // stored for that binding. Otherwise, the update MUST be aborted and the request fails."
        let stale = |binding: &Binding| binding.call_id() == update.call_id && update.cseq <= binding.cseq();
        if self.slots.chain(head).any(|(_, slot)| stale(&slot.binding)) {
            return Err(Refusal::OutOfOrder);
        }
        if self
            .slots
            .chain(head)
            .any(|(_, slot)| self.order.is_overtaken_by(place.now, update, &slot.binding))
        {
            return Err(Refusal::Overtaken);
        }
        self.order.note_removal(place.hash, place.came(update));
        for (_, slot) in self.slots.chain(head) {
            changed(Changed::Before(&slot.binding));
        }
        self.note_absent(place, update, changed);
        Ok(Registered { removed: self.discard_chain(place.hash, head), ..Registered::default() })
    }

    /// Refuses a plan that would exceed the table's sizes, after an attempt to make room.
    fn check_room(&mut self, now: Instant, aor: &[u8], plan: &Plan<'_>) -> Result<(), Refusal> {
        let (mut more, mut fewer, mut grown, mut shrunk) = (0, plan.evicted.len(), 0, 0);
        for &index in &plan.evicted {
            shrunk += self.slots.get(index).binding.block_bytes();
        }
        for step in &plan.steps {
            match *step {
                Step::Add { update, .. } => {
                    more += 1;
                    grown += Binding::vacant_block_bytes(Binding::bytes_needed(aor, update));
                }
                Step::Refresh { index, update, .. } => {
                    let binding = &self.slots.get(index).binding;
                    shrunk += binding.block_bytes();
                    grown += binding.block_bytes_after(Binding::bytes_needed(aor, update));
                }
                Step::Remove { index } => {
                    fewer += 1;
                    shrunk += self.slots.get(index).binding.block_bytes();
                }
                Step::Keep { .. } | Step::Absent { .. } | Step::Nothing => {}
            }
        }
        let fits = |table: &Table| {
            (more <= fewer || table.len() + more - fewer <= table.limits.bindings_max)
                && (grown <= shrunk || table.block_bytes + grown - shrunk <= table.limits.bytes_max)
        };
        if fits(self) {
            return Ok(());
        }
        // The plan's slots are not expired, so they stay where they are.
        self.expire(now, RECLAIM_STEPS);
        if fits(self) { Ok(()) } else { Err(Refusal::TableFull) }
    }

    fn commit(
        &mut self,
        place: &Place<'_>,
        plan: Plan<'_>,
        came: Instant,
        changed: &mut dyn FnMut(Changed<'_>),
    ) -> Registered {
        let mut done = Registered { removed: plan.evicted.len(), ..Registered::default() };
        for index in plan.evicted {
            changed(Changed::Before(&self.slots.get(index).binding));
            self.order.note_removal(place.hash, came);
            self.discard(place.hash, index);
        }
        for (turn, step) in (0..).zip(plan.steps) {
            match step {
                Step::Add { update, interval } => {
                    let index = self.add(place, update, place.granted(update, interval, turn));
                    changed(Changed::After(&self.slots.get(index).binding));
                    done.added += 1;
                }
                Step::Refresh { index, update, interval } => {
                    changed(Changed::Before(&self.slots.get(index).binding));
                    let granted = place.granted(update, interval, turn);
                    let write = |binding: &mut Binding| binding.write(place.aor, update, granted);
                    self.rewrite((place.hash, place.aor), index, update.contact, write);
                    self.note_saved(index);
                    changed(Changed::After(&self.slots.get(index).binding));
                    done.updated += 1;
                }
                Step::Remove { index } => {
                    changed(Changed::Before(&self.slots.get(index).binding));
                    self.order.note_removal(place.hash, came);
                    self.discard(place.hash, index);
                    done.removed += 1;
                }
                Step::Keep { index } => {
                    self.vouch(place, index, changed);
                    done.repeated += 1;
                }
                Step::Absent { update } => {
                    self.order.note_removal(place.hash, came);
                    self.note_absent(place, update, changed);
                }
                Step::Nothing => {}
            }
        }
        done
    }

    fn add(&mut self, place: &Place<'_>, update: &Update<'_>, granted: Granted) -> u32 {
        self.forget_absent(place.aor, update.contact);
        let index = self.slots.take(place.hash);
        self.slots.get_mut(index).binding.write(place.aor, update, granted);
        self.file(place.hash, place.aor, index);
        self.note_saved(index);
        index
    }

    /// Puts a binding in a slot of its own; nothing is recorded. The caller has seen to it that there is room.
    pub(crate) fn insert(&mut self, now: Instant, hash: u32, aor: &[u8], binding: Binding) -> u32 {
        self.wheel.skip_to(now);
        self.forget_absent(aor, binding.contact());
        let index = self.slots.take(hash);
        self.slots.get_mut(index).binding = binding;
        self.file(hash, aor, index);
        index
    }

    /// Counts, files and links a slot that has just got its binding.
    fn file(&mut self, hash: u32, aor: &[u8], index: u32) {
        self.block_bytes += self.slots.get(index).binding.block_bytes();
        self.wheel.file(&mut self.slots, index);
        self.link(hash, aor, index);
    }

    /// Changes a binding of `aor` to one of `contact`, which is the same contact, perhaps in another spelling. The caller
    /// says so to the change log ([`Table::note_saved`]), unless it is what the store holds.
    pub(crate) fn rewrite(
        &mut self,
        (hash, aor): (u32, &[u8]),
        index: u32,
        contact: &[u8],
        write: impl FnOnce(&mut Binding),
    ) {
        self.forget_absent(aor, contact);
        let slot = self.slots.get_mut(index);
        if self.log.is_some() && slot.binding.contact() != contact {
            // An equivalent URI written otherwise: what is stored under the old one has to go.
            let (marks, old) = (slot.marks, slot.binding.clone());
            self.note_removed(marks, old);
        }
        let slot = self.slots.get_mut(index);
        let old_expiry = slot.binding.expires_at();
        self.block_bytes -= slot.binding.block_bytes();
        write(&mut slot.binding);
        self.block_bytes += slot.binding.block_bytes();
        self.wheel.refile_if_earlier(&mut self.slots, index, old_expiry);
        self.relink(hash, aor, index);
    }

    /// Records a change.
    pub(crate) fn note_saved(&mut self, index: u32) {
        if let Some(log) = &mut self.log {
            log.saved(&mut self.slots, index);
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.record(Change::Saved(&self.slots.get(index).binding));
        }
    }

    /// Records the end of a binding whose slot had `marks`.
    fn note_removed(&mut self, marks: u8, binding: Binding) {
        if let Some(recorder) = &mut self.recorder {
            recorder.record(Change::Removed(&binding));
        }
        if let Some(log) = &mut self.log {
            log.removed(marks, binding);
        }
    }

    /// Puts the slot, not in any chain, into the chain of `aor`: behind all that are preferred to it.
    fn link(&mut self, hash: u32, aor: &[u8], index: u32) {
        let slots = &mut self.slots;
        let is_it = |head: &Head| head.hash == hash && slots.get(head.index).binding.aor() == aor;
        match self.heads.entry(spread(hash), is_it, |head| spread(head.hash)) {
            Entry::Vacant(vacant) => {
                slots.get_mut(index).sibling = NONE;
                vacant.insert(Head { hash, index });
            }
            Entry::Occupied(mut occupied) => {
                let own = rank(&slots.get(index).binding);
                let head = occupied.get().index;
                let before = slots.chain(head).take_while(|(_, slot)| rank(&slot.binding) >= own).last();
                match before.map(|(before, _)| before) {
                    Some(before) => {
                        let after = core::mem::replace(&mut slots.get_mut(before).sibling, index);
                        slots.get_mut(index).sibling = after;
                    }
                    None => {
                        slots.get_mut(index).sibling = head;
                        occupied.get_mut().index = index;
                    }
                }
            }
        }
    }

    /// Takes the slot out of its chain; the last one takes the address-of-record with it.
    fn unlink(&mut self, hash: u32, index: u32) {
        let slots = &mut self.slots;
        let aor = slots.get(index).binding.aor();
        let is_it = |head: &Head| {
            head.hash == hash && (head.index == index || slots.get(head.index).binding.aor() == aor)
        };
        let mut entry = self.heads.find_entry(spread(hash), is_it).unwrap_or_else(|_| {
            unreachable!("invariant: a slot in use is in the chain of its address-of-record")
        });
        let sibling = slots.get(index).sibling;
        let head = entry.get().index;
        if head == index && sibling == NONE {
            entry.remove();
        } else if head == index {
            entry.get_mut().index = sibling;
        } else if let Some((before, _)) = slots.chain(head).find(|(_, slot)| slot.sibling == index) {
            slots.get_mut(before).sibling = sibling;
        }
    }

    /// Moves the slot to where its new rank belongs; alone it is in its place already.
    fn relink(&mut self, hash: u32, aor: &[u8], index: u32) {
        let head = self.head(hash, aor);
        if head == index && self.slots.get(index).sibling == NONE {
            return;
        }
        self.unlink(hash, index);
        self.link(hash, aor, index);
    }

    fn discard_chain(&mut self, hash: u32, head: u32) -> usize {
        let (mut index, mut removed) = (head, 0);
        while index != NONE {
            let next = self.slots.get(index).sibling;
            self.discard(hash, index);
            index = next;
            removed += 1;
        }
        removed
    }

    /// Removes a binding before its time.
    pub(crate) fn discard(&mut self, hash: u32, index: u32) {
        self.wheel.take_out(&mut self.slots, index);
        self.forget(hash, index);
    }

    /// Removes a binding that the wheel no longer holds.
    fn forget(&mut self, hash: u32, index: u32) {
        self.unlink(hash, index);
        let marks = self.slots.get(index).marks;
        let binding = self.slots.give_back(index);
        self.block_bytes -= binding.block_bytes();
        self.note_removed(marks, binding);
    }
}

/// Whose bindings a request changes, and by which rules.
pub(crate) struct Place<'a> {
    pub(crate) now: Instant,
    pub(crate) hash: u32,
    pub(crate) aor: &'a [u8],
    policy: &'a Policy,
    /// Whether it may have to be undone.
    pub(crate) is_tentative: bool,
}

impl Place<'_> {
    /// The moment as of which an update counts.
    fn came(&self, update: &Update<'_>) -> Instant {
        update.waiting_since.unwrap_or(self.now)
    }

    /// What the contact that is the request's `turn`th, from 0, gets. Of two with the same preference the first comes
    /// first; so that a store gives that order back, its time is the later one.
    fn granted(&self, update: &Update<'_>, interval: u32, turn: u64) -> Granted {
        let came = self.came(update);
        let expires_at = came + Duration::from_secs(u64::from(interval));
        let modified_at = came - Duration::from_micros(turn);
        Granted { modified_at, expires_at, q: q_of(update, self.policy) }
    }
}

/// See [`Table::lookup`].
#[derive(Clone)]
pub struct Bindings<'a> {
    chain: Chain<'a>,
    now: Instant,
}

impl<'a> Iterator for Bindings<'a> {
    type Item = &'a Binding;

    fn next(&mut self) -> Option<&'a Binding> {
        let now = self.now;
        self.chain.find(|(_, slot)| !slot.binding.is_expired(now)).map(|(_, slot)| &slot.binding)
    }
}

/// Order of preference: higher q first, then what was refreshed last. What is left are requests of the same microsecond;
/// their contacts have a fixed order, so that it does not depend on how the bindings came here.
fn rank(binding: &Binding) -> (u16, Instant, Reverse<&[u8]>) {
    (binding.q(), binding.modified_at(), Reverse(binding.contact()))
}

/// The hash as the index wants it: position from the low bits, tag from the high ones, independent of each other.
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}
