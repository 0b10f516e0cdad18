//! What a store gives back, and what it could not take: restoring, reconciling, undoing (RFC 3261 §10.3 step 7).

use crate::binding::{Binding, Granted};
use crate::changes::Log;
use crate::plan::matching;
use crate::request::{Kept, Refusal, Update};
use crate::slots::{DIRTY, FLUSHED, NONE};
use crate::table::{Changed, Place, RECLAIM_STEPS, Table};
use core::time::Duration;
use sip::Instant;
use smallvec::SmallVec;

/// Undone updates remembered that others had replaced meanwhile; past it the oldest is forgotten. Each is of two
/// REGISTERs for one contact that waited for the same failing store.
const SUPERSEDED_MAX: usize = 64;

/// Removals of contacts that were not bound, remembered for the same reason.
const ABSENT_MAX: usize = 64;

/// An update that was undone when another had replaced it: what it had left, and what was there before it.
pub(crate) struct Superseded {
    after: Binding,
    before: Option<Binding>,
}

impl Table {
    /// See [`Location::undo`](crate::Location::undo). `before` and `after` hold at least the bindings that
    /// [`Table::register_tentatively`] named.
    ///
    /// Each contact is looked at by itself: what another REGISTER has made of it since stays; what that one found there
    /// is then undone with it, should it be undone itself. What the store holds follows by the change log.
    pub fn undo(&mut self, now: Instant, aor: &[u8], before: &[Binding], after: &[Binding]) -> bool {
        let hash = self.hash(aor);
        let mut undone = true;
        self.absent.retain(|absent| !before.contains(absent));
        for left in after {
            let earlier = before.iter().find(|earlier| earlier.contact() == left.contact());
            if earlier == Some(left) {
                continue;
            }
            match self.exactly(aor, left.contact()) {
                Some(index) if self.slots.get(index).binding == *left => {
                    match self.standing(earlier).filter(|earlier| !earlier.is_expired(now)) {
                        Some(earlier) => self.put_back(hash, aor, index, earlier),
                        None => self.discard(hash, index),
                    }
                }
                None if left.is_expired(now) => {}
                _ => {
                    self.remember(left, earlier);
                    undone = false;
                }
            }
        }
        let is_gone = |earlier: &&Binding| after.iter().all(|left| left.contact() != earlier.contact());
        for earlier in before.iter().filter(is_gone) {
            undone &= self.bind_again(now, hash, aor, earlier);
        }
        undone
    }

    fn put_back(&mut self, hash: u32, aor: &[u8], index: u32, earlier: Binding) {
        // Earlier updates of the contact may have been written otherwise.
        let contact = SmallVec::<[u8; 128]>::from_slice(earlier.contact());
        self.rewrite((hash, aor), index, &contact, |binding| *binding = earlier);
        self.note_saved(index);
    }

    /// A copy of a REGISTER that may still be undone answers for the binding, too: its 200 promises it. So the binding
    /// becomes the copy's, by being a microsecond older; it stays if the first alone is undone, and goes with the copy.
    pub(crate) fn vouch(&mut self, place: &Place<'_>, index: u32, changed: &mut dyn FnMut(Changed<'_>)) {
        if !place.is_tentative {
            return;
        }
        changed(Changed::Before(&self.slots.get(index).binding));
        let mut own = self.slots.get(index).binding.clone();
        own.modified_at = own.modified_at - Duration::from_micros(1);
        self.put_back(place.hash, place.aor, index, own);
        changed(Changed::After(&self.slots.get(index).binding));
    }

    /// What an update found there, unless that has been undone since: then what was there before that.
    fn standing(&mut self, earlier: Option<&Binding>) -> Option<Binding> {
        let mut standing = earlier.cloned();
        while let Some(binding) = &standing
            && let Some(at) = self.superseded.iter().position(|superseded| superseded.after == *binding)
        {
            standing = self.superseded.remove(at).and_then(|superseded| superseded.before);
        }
        standing
    }

    fn remember(&mut self, after: &Binding, before: Option<&Binding>) {
        if self.superseded.len() >= SUPERSEDED_MAX {
            self.superseded.pop_front();
        }
        self.superseded.push_back(Superseded { after: after.clone(), before: before.cloned() });
    }

    /// A contact is to be removed, or all without one, that is not bound: another REGISTER may have removed it, and be
    /// undone. What is not there is noted as a binding that has expired.
    pub(crate) fn note_absent(
        &mut self,
        place: &Place<'_>,
        update: &Update<'_>,
        changed: &mut dyn FnMut(Changed<'_>),
    ) {
        // What is longer than any binding may be was never bound.
        if !place.is_tentative || Binding::bytes_needed(place.aor, update) > self.limits.binding_bytes_max {
            return;
        }
        let mut absent = Binding::vacant();
        absent.write(place.aor, update, Granted { modified_at: place.now, expires_at: place.now, q: 0 });
        changed(Changed::Before(&absent));
        if self.absent.len() >= ABSENT_MAX {
            self.absent.pop_front();
        }
        self.absent.push_back(absent);
    }

    /// The contact is bound: what wanted it removed before has nothing to do with that any more.
    pub(crate) fn forget_absent(&mut self, aor: &[u8], contact: &[u8]) {
        if !self.absent.is_empty() {
            self.absent.retain(|absent| !names(absent, aor, contact));
        }
    }

    /// Binds what an update had removed, and what its removal of all has found undone; whether it is bound.
    fn bind_again(&mut self, now: Instant, hash: u32, aor: &[u8], earlier: &Binding) -> bool {
        let mut bound = self.bind_standing(now, hash, aor, earlier);
        while self.superseded.iter().any(|superseded| superseded.after == *earlier) {
            bound &= self.bind_standing(now, hash, aor, earlier);
        }
        bound
    }

    fn bind_standing(&mut self, now: Instant, hash: u32, aor: &[u8], earlier: &Binding) -> bool {
        let Some(earlier) = self.standing(Some(earlier)).filter(|earlier| !earlier.is_expired(now)) else {
            return true;
        };
        let absent = self.absent.iter().find(|absent| names(absent, aor, earlier.contact()));
        if let Some(absent) = absent.cloned() {
            self.remember(&absent, Some(&earlier));
            return false;
        }
        let head = self.drop_expired(now, hash, aor);
        let taken = head != NONE && matching(&self.slots, head, earlier.contact()).is_some();
        if taken || self.check_newcomer(now, head, earlier.block_bytes()).is_err() {
            return false;
        }
        let index = self.insert(now, hash, aor, earlier);
        self.note_saved(index);
        true
    }

    /// Binds what a store had kept of an earlier run: exactly this expiry and this time of the last update, whatever any
    /// policy says; one that has expired is passed over. A contact that is bound already stays as it is if it was updated
    /// later, or at the same time. It counts as drained, and as changed only if it is foreign ([`Kept::is_foreign`]).
    ///
    /// A store that holds one contact in two spellings (equivalent URIs, RFC 3261 §19.1.4) loses the older one, if
    /// changes are recorded already ([`Table::track_changes`]).
    ///
    /// # Errors
    ///
    /// [`Refusal::TableFull`], [`Refusal::BindingTooLarge`] or [`Refusal::TooManyContacts`]; nothing has changed then.
    pub fn restore(&mut self, now: Instant, aor: &[u8], kept: &Kept<'_>) -> Result<(), Refusal> {
        if kept.expires_at <= now {
            return Ok(());
        }
        let needed = Binding::bytes_needed(aor, &kept.update);
        let bytes_max = self.limits.binding_bytes_max.min(usize::from(u16::MAX));
        if needed > bytes_max {
            return Err(Refusal::BindingTooLarge { limit: bytes_max });
        }
        let hash = self.hash(aor);
        let head = self.head(hash, aor);
        let found = if head == NONE { None } else { matching(&self.slots, head, kept.update.contact) };
        let index = match found {
            Some(index) if self.slots.get(index).binding.modified_at() >= kept.modified_at => {
                self.pass_over(aor, index, kept);
                return Ok(());
            }
            Some(index) => {
                let write = |binding: &mut Binding| binding.write(aor, &kept.update, granted(kept));
                self.rewrite((hash, aor), index, kept.update.contact, write);
                index
            }
            None => {
                self.check_newcomer(now, head, Binding::vacant_block_bytes(needed))?;
                self.insert(now, hash, aor, bound(aor, kept))
            }
        };
        self.slots.get_mut(index).marks |= FLUSHED;
        if kept.is_foreign {
            self.slots.get_mut(index).marks |= DIRTY;
            self.note_saved(index);
        }
        Ok(())
    }

    /// A row of the store that is older than what is bound.
    fn pass_over(&mut self, aor: &[u8], index: u32, kept: &Kept<'_>) {
        let slot = self.slots.get_mut(index);
        if slot.binding.contact() == kept.update.contact {
            // The store knows the contact, so that its removal will be a change.
            slot.marks |= FLUSHED;
        } else if let Some(log) = &mut self.log {
            log.removed(FLUSHED, bound(aor, kept));
        }
    }

    /// Makes the bindings of `aor` what its store holds, which others write, too; what has changed here and has not been
    /// drained yet stays as it is. Rows beyond the limits are passed over. Nothing of this is recorded as a change.
    pub fn reconcile(&mut self, now: Instant, aor: &[u8], rows: &[Kept<'_>]) {
        let hash = self.hash(aor);
        let head = self.drop_expired(now, hash, aor);
        let clean = self.slots.chain(head).filter(|(_, slot)| slot.marks & DIRTY == 0);
        let clean: SmallVec<[u32; 4]> = clean.map(|(index, _)| index).collect();
        for index in clean {
            let slot = self.slots.get_mut(index);
            if rows.iter().all(|row| row.update.contact != slot.binding.contact()) {
                // It is not there any more, so there is nothing to be removed.
                slot.marks &= !FLUSHED;
                self.discard(hash, index);
            }
        }
        let leaving = |log: &Option<alloc::boxed::Box<Log>>, contact: &[u8]| {
            log.as_ref().is_some_and(|log| log.is_leaving(aor, contact))
        };
        for row in rows.iter().filter(|row| row.expires_at > now) {
            if leaving(&self.log, row.update.contact) {
                continue;
            }
            let existing = self.exactly(aor, row.update.contact);
            match existing.filter(|&index| self.slots.get(index).marks & DIRTY == 0) {
                Some(index) => {
                    let write = |binding: &mut Binding| binding.write(aor, &row.update, granted(row));
                    let fits = Binding::bytes_needed(aor, &row.update)
                        <= self.limits.binding_bytes_max.min(usize::from(u16::MAX));
                    if fits {
                        self.rewrite((hash, aor), index, row.update.contact, write);
                    }
                }
                None if existing.is_none() => {
                    let _ = self.restore(now, aor, &Kept { is_foreign: false, ..*row });
                }
                None => {}
            }
        }
    }

    /// Whether there is room for one more binding with a block of `bytes`, after an attempt to make it.
    fn check_newcomer(&mut self, now: Instant, head: u32, bytes: usize) -> Result<(), Refusal> {
        let limit = self.limits.contacts_per_aor_max;
        if self.slots.chain(head).count() >= limit {
            return Err(Refusal::TooManyContacts { limit });
        }
        let fits = |table: &Table| {
            table.len() < table.limits.bindings_max && table.block_bytes + bytes <= table.limits.bytes_max
        };
        if !fits(self) {
            self.expire(now, RECLAIM_STEPS);
        }
        if fits(self) { Ok(()) } else { Err(Refusal::TableFull) }
    }
}

fn granted(kept: &Kept<'_>) -> Granted {
    Granted { modified_at: kept.modified_at, expires_at: kept.expires_at, q: kept.q.min(1000) }
}

fn bound(aor: &[u8], kept: &Kept<'_>) -> Binding {
    let mut binding = Binding::vacant();
    binding.write(aor, &kept.update, granted(kept));
    binding
}

/// Whether a removal was of this contact, or of all.
fn names(absent: &Binding, aor: &[u8], contact: &[u8]) -> bool {
    absent.aor() == aor && (absent.contact().is_empty() || absent.contact() == contact)
}
