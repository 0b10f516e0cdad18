//! The location table that the shards of one server share, and the store behind it.

use crate::trace::Micros;
use location::{
    Binding, Change, Changed, Kept, Limits, Local, Location, Policy, Refusal, Register, Registered, Seeds,
    Update,
};
use modules::Clock;
use sip::Instant;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::rc::Rc;

/// Removed bindings that wait to be written, at most: few, so that the limit is met.
const REMOVALS_MAX: usize = 8;

/// The table as shards see it: one thread, many owners.
#[derive(Clone)]
pub struct Shelf(Rc<RefCell<Local>>);

impl Shelf {
    /// An empty one.
    pub fn new(limits: Limits, seeds: Seeds) -> Shelf {
        Shelf(Rc::new(RefCell::new(Local::new(limits, seeds))))
    }
}

impl Location for Shelf {
    fn register(
        &self,
        now: Instant,
        aor: &[u8],
        request: &Register<'_>,
        policy: &Policy,
        visit: &mut dyn FnMut(&Binding),
    ) -> Result<Registered, Refusal> {
        self.0.borrow().register(now, aor, request, policy, visit)
    }

    fn register_tentatively(
        &self,
        now: Instant,
        aor: &[u8],
        request: &Register<'_>,
        policy: &Policy,
        changed: &mut dyn FnMut(Changed<'_>),
    ) -> Result<Registered, Refusal> {
        self.0.borrow().register_tentatively(now, aor, request, policy, changed)
    }

    fn lookup(&self, now: Instant, aor: &[u8], visit: &mut dyn FnMut(&Binding) -> ControlFlow<()>) -> usize {
        self.0.borrow().lookup(now, aor, visit)
    }

    fn remove(&self, now: Instant, aor: &[u8], contact: Option<&[u8]>) -> usize {
        self.0.borrow().remove(now, aor, contact)
    }

    fn undo(&self, now: Instant, aor: &[u8], before: &[Binding], after: &[Binding]) -> bool {
        self.0.borrow().undo(now, aor, before, after)
    }

    fn expire(&self, now: Instant, budget: usize) -> usize {
        self.0.borrow().expire(now, budget)
    }

    fn next_expiry(&self) -> Option<Instant> {
        self.0.borrow().next_expiry()
    }

    fn len(&self) -> usize {
        self.0.borrow().len()
    }

    fn aors(&self) -> usize {
        self.0.borrow().aors()
    }
}

/// A row's key: address-of-record and contact.
type Key = (Vec<u8>, Vec<u8>);

/// A row: times in it are those of the wall clock, as the server that wrote it had it (µs since 1970).
#[derive(Clone)]
struct Row {
    binding: Binding,
    expires_at: u64,
    modified_at: u64,
}

impl Row {
    fn of(binding: &Binding, clock: Clock) -> Row {
        Row {
            binding: binding.clone(),
            expires_at: clock.unix_micros(binding.expires_at()),
            modified_at: clock.unix_micros(binding.modified_at()),
        }
    }
}

/// One write of a batch; `None` deletes.
type Write = (Key, Option<Row>);

/// The store: what survives a kill, and the one batch that is on its way there (the rules are those of
/// `crates/location/src/changes.rs`, "What a persister does").
#[derive(Default)]
pub struct Store {
    rows: BTreeMap<Key, Row>,
    batch: Vec<Write>,
    /// The batch replaces everything.
    whole: bool,
    /// When the batch was filled: what changed before is in it, or in the store.
    pub filled_at: Micros,
}

impl Store {
    /// Fills the batch with what has changed, unless the last one is still to be written.
    pub fn drain(&mut self, now: Micros, shelf: &Shelf, clock: Clock) {
        if !self.batch.is_empty() || self.whole {
            return;
        }
        self.filled_at = now;
        let mut local = shelf.0.borrow_mut();
        let batch = &mut self.batch;
        let drained = local.table().drain_changes(usize::MAX, &mut |change| {
            batch.push(write_of(&change, clock));
        });
        if drained.lost {
            batch.clear();
            let row = |binding: &Binding| (key(binding), Some(Row::of(binding, clock)));
            local.table().drain_all(&mut |binding| batch.push(row(binding)));
            self.whole = true;
        }
    }

    /// The batch is committed; it may be written twice.
    pub fn commit(&mut self) {
        if self.whole {
            self.rows.clear();
        }
        for (key, row) in &self.batch {
            match row {
                Some(row) => self.rows.insert(key.clone(), row.clone()),
                None => self.rows.remove(key),
            };
        }
    }

    /// The store has said that it is.
    pub fn confirmed(&mut self) {
        self.batch.clear();
        self.whole = false;
    }

    /// The process died: what was on its way is gone.
    pub fn forget_batch(&mut self) {
        self.confirmed();
    }

    /// Puts all rows into an empty table, as a start does, and removes those that have ended by the wall clock.
    pub fn restore(&mut self, shelf: &Shelf, now: Instant, clock: Clock) {
        let mut local = shelf.0.borrow_mut();
        local.table().track_changes(REMOVALS_MAX);
        self.rows.retain(|_, row| row.expires_at > clock.unix_micros(now));
        for row in self.rows.values() {
            // A row that does not fit any more is passed over, as the server does.
            let _ = local.table().restore(now, row.binding.aor(), &kept(row, clock));
        }
    }

    /// Whether nothing is on its way.
    pub fn is_quiet(&self) -> bool {
        self.batch.is_empty() && !self.whole
    }
}

fn write_of(change: &Change<'_>, clock: Clock) -> Write {
    match change {
        Change::Saved(binding) => (key(binding), Some(Row::of(binding, clock))),
        Change::Removed(binding) => (key(binding), None),
    }
}

fn key(binding: &Binding) -> Key {
    (binding.aor().to_vec(), binding.contact().to_vec())
}

fn kept(row: &Row, clock: Clock) -> Kept<'_> {
    let instant = |micros: u64| Instant::from_micros(micros.saturating_sub(clock.unix_micros_at_zero));
    let binding = &row.binding;
    let update = Update {
        received: binding.received().unwrap_or_default(),
        path: binding.path().unwrap_or_default(),
        instance: binding.instance().unwrap_or_default(),
        user_agent: binding.user_agent().unwrap_or_default(),
        reg_id: binding.reg_id().unwrap_or(0),
        flow: binding.flow(),
        methods: binding.methods(),
        flags: binding.flags(),
        ..Update::new(binding.contact(), binding.call_id(), binding.cseq())
    };
    Kept {
        update,
        q: binding.q(),
        expires_at: instant(row.expires_at),
        modified_at: instant(row.modified_at),
        is_foreign: false,
    }
}
