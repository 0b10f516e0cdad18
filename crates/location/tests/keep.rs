//! What outlives a process, against a model of its store: change log, restoring, undoing (RFC 3261 §10.3 step 7).

#![allow(clippy::unwrap_used)] // helpers of tests are not recognised as tests

use std::collections::BTreeMap;

use location::{
    Binding, Change, Changed, Kept, Limits, Policy, Refusal, Register, Registered, Seeds, Table, Update,
};
use proptest::prelude::*;
use sip::Instant;

/// 400 days: what an instant is at the start of a server.
const START_SECS: u64 = 400 * 86_400;
const AORS: [&[u8]; 2] = [b"sip:alice@h", b"sip:bob@h"];
/// The first two are one contact (RFC 3261 §19.1.4).
const CONTACTS: [&[u8]; 4] = [b"sip:a@host.example", b"sip:a@HOST.example", b"sip:b@h2", b"sip:c@h3"];

fn at(seconds: u64) -> Instant {
    Instant::from_micros((START_SECS + seconds) * 1_000_000)
}

fn table() -> Table {
    let mut table = Table::new(Limits::default(), Seeds([1, 2, 3, 4]));
    table.track_changes(1_000);
    table
}

fn update(contact: &'static [u8], cseq: u32, expires: u32) -> Update<'static> {
    Update { expires: Some(expires), ..Update::new(contact, b"call", cseq) }
}

fn kept(binding: &Binding) -> Kept<'_> {
    Kept {
        update: Update {
            received: binding.received().unwrap_or(b""),
            path: binding.path().unwrap_or(b""),
            instance: binding.instance().unwrap_or(b""),
            user_agent: binding.user_agent().unwrap_or(b""),
            reg_id: binding.reg_id().unwrap_or(0),
            flow: binding.flow(),
            methods: binding.methods(),
            flags: binding.flags(),
            ..Update::new(binding.contact(), binding.call_id(), binding.cseq())
        },
        q: binding.q(),
        expires_at: binding.expires_at(),
        modified_at: binding.modified_at(),
        is_foreign: false,
    }
}

/// A REGISTER that can be undone: what it changed.
#[derive(Default)]
struct Tentative {
    before: Vec<Binding>,
    after: Vec<Binding>,
}

fn register(table: &mut Table, now: Instant, aor: &[u8], updates: &[Update<'_>]) -> Tentative {
    try_register(table, now, aor, updates).unwrap().0
}

fn try_register(
    table: &mut Table,
    now: Instant,
    aor: &[u8],
    updates: &[Update<'_>],
) -> Result<(Tentative, Registered), Refusal> {
    tentatively(table, now, aor, &Register::Bind(updates))
}

fn tentatively(
    table: &mut Table,
    now: Instant,
    aor: &[u8],
    request: &Register<'_>,
) -> Result<(Tentative, Registered), Refusal> {
    let mut tentative = Tentative::default();
    let done =
        table.register_tentatively(now, aor, request, &Policy::default(), &mut |changed| match changed {
            Changed::Before(binding) => tentative.before.push(binding.clone()),
            Changed::After(binding) => tentative.after.push(binding.clone()),
            Changed::Bound(_) => {}
        })?;
    Ok((tentative, done))
}

fn bound(table: &Table, now: Instant) -> Vec<Binding> {
    AORS.into_iter().flat_map(|aor| table.lookup(now, aor).cloned().collect::<Vec<_>>()).collect()
}

/// What a database holds, by address-of-record and contact.
#[derive(Clone, Default)]
struct Store(BTreeMap<(Vec<u8>, Vec<u8>), Binding>);

/// One batch: what is to be saved, or removed.
type Batch = Vec<((Vec<u8>, Vec<u8>), Option<Binding>)>;

impl Store {
    fn apply(&mut self, batch: &Batch) {
        for (key, binding) in batch {
            match binding {
                Some(binding) => self.0.insert(key.clone(), binding.clone()),
                None => self.0.remove(key),
            };
        }
    }

    fn bindings(&self) -> Vec<&Binding> {
        self.0.values().collect()
    }
}

fn drain(table: &mut Table, budget: usize) -> Batch {
    let mut batch = Batch::new();
    let done = table.drain_changes(budget, &mut |change| {
        let (binding, saved) = match change {
            Change::Saved(binding) => (binding, Some(binding.clone())),
            Change::Removed(binding) => (binding, None),
        };
        batch.push(((binding.aor().to_vec(), binding.contact().to_vec()), saved));
    });
    assert!(!done.lost);
    batch
}

fn flush(table: &mut Table, store: &mut Store) {
    let batch = drain(table, usize::MAX);
    store.apply(&batch);
    assert!(drain(table, usize::MAX).is_empty());
}

fn sorted(mut bindings: Vec<Binding>) -> Vec<Binding> {
    bindings.sort_by_key(|b| (b.aor().to_vec(), b.contact().to_vec()));
    bindings
}

/// The store holds what the table does.
fn assert_kept(table: &Table, store: &Store) {
    let held = sorted(table.iter().cloned().collect());
    assert_eq!(sorted(store.0.values().cloned().collect()), held);
}

#[test]
fn what_is_restored_is_exactly_what_was() {
    let mut table = table();
    let first = Update { q: Some(300), user_agent: b"phone", methods: 5, ..update(CONTACTS[0], 7, 100) };
    register(&mut table, at(5), AORS[0], &[update(CONTACTS[2], 7, 4_000), update(CONTACTS[3], 7, 70), first]);
    let mut again = Table::new(Limits::default(), Seeds([9, 9, 9, 9]));
    again.track_changes(10);
    for binding in table.lookup(at(5), AORS[0]) {
        again.restore(at(60), AORS[0], &kept(binding)).unwrap();
    }
    assert_eq!(bound(&again, at(60)), bound(&table, at(60)));
    assert!(drain(&mut again, usize::MAX).is_empty());
    // They go when they would have gone, and the store hears of it.
    assert_eq!(again.expire(at(75), 100), 1);
    let gone = drain(&mut again, usize::MAX);
    assert_eq!(gone, [((AORS[0].to_vec(), CONTACTS[3].to_vec()), None)]);
    // Whoever sends the same REGISTER again gets the same answer.
    let (_, done) = try_register(&mut again, at(80), AORS[0], &[update(CONTACTS[2], 7, 4_000)]).unwrap();
    assert_eq!(done.repeated, 1);
}

#[test]
fn what_has_expired_is_not_restored() {
    let mut table = table();
    register(&mut table, at(0), AORS[0], &[update(CONTACTS[2], 1, 100)]);
    let rows = bound(&table, at(0));
    let mut again = self::table();
    again.restore(at(100), AORS[0], &kept(&rows[0])).unwrap();
    assert!(again.is_empty());
    again.restore(at(99), AORS[0], &kept(&rows[0])).unwrap();
    assert_eq!(again.len(), 1);
}

#[test]
fn rows_of_another_writer_are_written_again() {
    let mut table = table();
    register(&mut table, at(0), AORS[0], &[update(CONTACTS[2], 1, 100)]);
    let rows = bound(&table, at(0));
    for tracked_first in [true, false] {
        let mut again = Table::new(Limits::default(), Seeds([1, 2, 3, 4]));
        if tracked_first {
            again.track_changes(10);
        }
        again.restore(at(1), AORS[0], &Kept { is_foreign: true, ..kept(&rows[0]) }).unwrap();
        again.track_changes(10);
        assert_eq!(drain(&mut again, 10).len(), 1);
        assert!(drain(&mut again, 10).is_empty());
    }
}

#[test]
fn of_two_spellings_in_the_store_the_newer_one_stays() {
    for order in [[0, 1], [1, 0]] {
        let mut table = table();
        let rows: Vec<Binding> = [0, 1]
            .map(|n| {
                let mut one = self::table();
                register(&mut one, at(n as u64), AORS[0], &[update(CONTACTS[n], 1, 900)]);
                bound(&one, at(n as u64)).remove(0)
            })
            .into();
        for n in order {
            table.restore(at(2), AORS[0], &kept(&rows[n])).unwrap();
        }
        assert_eq!(bound(&table, at(2)), rows[1..]);
        assert_eq!(drain(&mut table, 10), [((AORS[0].to_vec(), CONTACTS[0].to_vec()), None)]);
    }
}

#[test]
fn limits_hold_for_what_is_restored() {
    let limits =
        Limits { bindings_max: 2, bytes_max: 4_096, binding_bytes_max: 100, contacts_per_aor_max: 1 };
    let mut source = table();
    register(&mut source, at(0), AORS[0], &[update(CONTACTS[2], 1, 900)]);
    let rows = bound(&source, at(0));
    let row = kept(&rows[0]);
    let mut table = Table::new(limits, Seeds([1, 2, 3, 4]));
    table.restore(at(1), AORS[0], &row).unwrap();
    let other = Kept { update: Update { contact: CONTACTS[3], ..row.update }, ..row };
    assert_eq!(table.restore(at(1), AORS[0], &other), Err(Refusal::TooManyContacts { limit: 1 }));
    let long = Kept { update: Update { user_agent: &[b'x'; 100], ..row.update }, ..row };
    assert_eq!(table.restore(at(1), b"sip:x@h", &long), Err(Refusal::BindingTooLarge { limit: 100 }));
    table.restore(at(1), AORS[1], &row).unwrap();
    assert_eq!(table.restore(at(1), b"sip:carol@h", &row), Err(Refusal::TableFull));
    assert_eq!(table.len(), 2);
}

#[test]
fn a_long_life_before_the_first_binding_costs_nothing() {
    let mut table = table();
    let names: Vec<Vec<u8>> = (0..2_000).map(|user| format!("sip:u{user}@h").into_bytes()).collect();
    for name in &names {
        register(&mut table, at(0), name, &[update(CONTACTS[2], 1, 3_600)]);
    }
    assert!(table.next_expiry().unwrap() > at(0));
    // One step each, and at most one more to bring it to its second.
    assert_eq!(table.expire(at(3_600), 3 * names.len()), names.len());
    assert_eq!(table.next_expiry(), None);
}

#[test]
fn a_removed_contact_that_is_bound_again_stays_in_the_store() {
    let (mut table, mut store) = (table(), Store::default());
    register(&mut table, at(0), AORS[0], &[update(CONTACTS[2], 1, 900)]);
    let in_flight = drain(&mut table, usize::MAX);
    // While that is being written, the contact goes and comes back.
    register(&mut table, at(1), AORS[0], &[update(CONTACTS[2], 2, 0)]);
    register(&mut table, at(2), AORS[0], &[update(CONTACTS[2], 3, 900)]);
    store.apply(&in_flight);
    store.apply(&in_flight);
    flush(&mut table, &mut store);
    assert_kept(&table, &store);
    assert_eq!(store.bindings()[0].cseq(), 3);
}

#[test]
fn a_flush_cut_in_two_has_a_contact_too_many_rather_than_one_too_few() {
    let (mut table, mut store) = (table(), Store::default());
    register(&mut table, at(0), AORS[0], &[update(CONTACTS[0], 1, 900)]);
    flush(&mut table, &mut store);
    register(&mut table, at(1), AORS[0], &[update(CONTACTS[1], 2, 900)]);
    store.apply(&drain(&mut table, 1));
    assert_eq!(store.0.len(), 2);
    flush(&mut table, &mut store);
    assert_kept(&table, &store);
}

#[test]
fn after_a_loss_the_store_is_written_anew() {
    let mut table = Table::new(Limits::default(), Seeds([1, 2, 3, 4]));
    table.track_changes(1);
    let mut store = Store::default();
    register(&mut table, at(0), AORS[0], &[update(CONTACTS[0], 1, 900), update(CONTACTS[2], 1, 900)]);
    flush(&mut table, &mut store);
    register(&mut table, at(1), AORS[1], &[update(CONTACTS[3], 1, 900)]);
    table.remove(at(1), AORS[0], None);
    assert!(table.drain_changes(1, &mut |_| {}).lost);
    let mut all = Batch::new();
    let whole = table.drain_all(&mut |b| {
        all.push(((b.aor().to_vec(), b.contact().to_vec()), Some(b.clone())));
    });
    assert_eq!(whole, 1);
    store = Store::default();
    store.apply(&all);
    assert!(drain(&mut table, usize::MAX).is_empty());
    // What was written so is known to the store.
    table.remove(at(2), AORS[1], None);
    flush(&mut table, &mut store);
    assert_kept(&table, &store);
}

/// RFC 3261 §10.3 step 7: "all tentative binding updates MUST be removed".
#[test]
fn an_undone_register_leaves_what_was_before() {
    for takes_effect in [false, true] {
        let (mut table, mut store) = (table(), Store::default());
        register(&mut table, at(0), AORS[0], &[update(CONTACTS[0], 1, 900), update(CONTACTS[2], 1, 900)]);
        flush(&mut table, &mut store);
        let before = bound(&table, at(1));
        // One in another spelling, one removed, one added.
        let updates = [update(CONTACTS[1], 2, 90), update(CONTACTS[2], 2, 0), update(CONTACTS[3], 2, 90)];
        let done = register(&mut table, at(1), AORS[0], &updates);
        let failed = drain(&mut table, usize::MAX);
        assert!(table.undo(at(2), AORS[0], &done.before, &done.after));
        assert_eq!(bound(&table, at(2)), before);
        if takes_effect {
            store.apply(&failed);
        }
        flush(&mut table, &mut store);
        assert_kept(&table, &store);
    }
}

#[test]
fn two_phones_of_one_user_are_undone_apart() {
    let mut table = table();
    let one = register(&mut table, at(0), AORS[0], &[update(CONTACTS[2], 1, 900)]);
    let two = register(&mut table, at(1), AORS[0], &[update(CONTACTS[3], 1, 900)]);
    assert!(table.undo(at(2), AORS[0], &one.before, &one.after));
    assert_eq!(bound(&table, at(2)), two.after);
    assert!(table.undo(at(2), AORS[0], &two.before, &two.after));
    assert!(table.is_empty());
}

#[test]
fn what_another_register_made_of_a_contact_stays() {
    let mut table = table();
    let one = register(&mut table, at(0), AORS[0], &[update(CONTACTS[2], 1, 900)]);
    let two = register(&mut table, at(1), AORS[0], &[update(CONTACTS[2], 2, 900)]);
    assert!(!table.undo(at(2), AORS[0], &one.before, &one.after));
    assert_eq!(bound(&table, at(2)), two.after);
}

/// RFC 3261 §10.3 steps 7 and 8: who is answered 200 is bound, though it was a copy of a REGISTER that is undone; and none is
/// if all of them are.
#[test]
fn a_contact_stays_bound_unless_all_copies_of_its_register_are_undone() {
    let undone =
        [&[0][..], &[1], &[2], &[0, 1], &[1, 0], &[0, 2], &[1, 2], &[0, 1, 2], &[2, 1, 0], &[1, 2, 0]];
    for (undone, earlier) in undone.iter().flat_map(|undone| [(undone, false), (undone, true)]) {
        let mut table = table();
        if earlier {
            register(&mut table, at(0), AORS[0], &[update(CONTACTS[2], 1, 700)]);
        }
        let before = bound(&table, at(0));
        let copies: Vec<_> = (1..4)
            .map(|now| register(&mut table, at(now), AORS[0], &[update(CONTACTS[2], 2, 900)]))
            .collect();
        for &which in *undone {
            let Tentative { before, after } = &copies[which];
            table.undo(at(4), AORS[0], before, after);
        }
        let found = bound(&table, at(4));
        if undone.len() == copies.len() {
            assert_eq!(found, before, "{undone:?}");
        } else {
            let found: Vec<_> = found.iter().map(|b| (b.cseq(), b.interval(), b.expires_at())).collect();
            assert_eq!(found, [(2, 900, at(901))], "{undone:?}");
        }
    }
}

/// RFC 3261 §10.3 steps 7 and 8: what one REGISTER has removed stays removed, though another that had done so first is
/// undone; if none of them is kept, it is bound again.
#[test]
fn a_contact_is_bound_again_only_if_all_who_removed_it_are_undone() {
    let contact = [update(CONTACTS[2], 2, 0)];
    let ways =
        || [Register::Bind(&contact), Register::RemoveAll { call_id: b"all", cseq: 2, waiting_since: None }];
    for (first, second) in ways().iter().flat_map(|first| ways().map(|second| (first, second))) {
        for undone in [&[0][..], &[1], &[0, 1], &[1, 0]] {
            let mut table = table();
            register(&mut table, at(1), AORS[0], &[update(CONTACTS[2], 1, 900)]);
            let before = bound(&table, at(2));
            let removals = [
                tentatively(&mut table, at(2), AORS[0], first).unwrap().0,
                tentatively(&mut table, at(3), AORS[0], &second).unwrap().0,
            ];
            assert!(table.is_empty());
            for &which in undone {
                let Tentative { before, after } = &removals[which];
                table.undo(at(4), AORS[0], before, after);
            }
            let expected = if undone.len() == 2 { before } else { Vec::new() };
            assert_eq!(bound(&table, at(4)), expected, "{first:?}, {second:?}, {undone:?}");
        }
    }
}

/// A removal of what was not bound says nothing of what is bound later.
#[test]
fn a_contact_that_came_after_a_removal_is_bound_again() {
    let mut table = table();
    register(&mut table, at(1), AORS[0], &[update(CONTACTS[2], 1, 0)]);
    register(&mut table, at(2), AORS[0], &[update(CONTACTS[2], 2, 900)]);
    let before = bound(&table, at(3));
    let removed = register(&mut table, at(3), AORS[0], &[update(CONTACTS[2], 3, 0)]);
    assert!(table.undo(at(4), AORS[0], &removed.before, &removed.after));
    assert_eq!(bound(&table, at(4)), before);
}

#[test]
fn of_two_that_are_undone_in_any_order_nothing_is_left() {
    for later_first in [false, true] {
        for expires in [0, 900] {
            let mut table = table();
            let one = register(&mut table, at(0), AORS[0], &[update(CONTACTS[2], 1, 900)]);
            let two = register(&mut table, at(1), AORS[0], &[update(CONTACTS[2], 2, expires)]);
            let order = if later_first { [&two, &one] } else { [&one, &two] };
            for tentative in order {
                table.undo(at(2), AORS[0], &tentative.before, &tentative.after);
            }
            assert!(table.is_empty(), "later first: {later_first}, expires: {expires}");
        }
    }
}

#[test]
fn what_the_store_holds_replaces_what_is_not_newer_here() {
    let mut source = table();
    register(&mut source, at(0), AORS[0], &[update(CONTACTS[2], 5, 900), update(CONTACTS[3], 5, 900)]);
    let rows = bound(&source, at(0));
    let rows: Vec<Kept<'_>> = rows.iter().map(kept).collect();
    let mut table = table();
    register(&mut table, at(0), AORS[0], &[update(CONTACTS[0], 1, 900), update(CONTACTS[2], 1, 900)]);
    let _ = drain(&mut table, usize::MAX);
    // Written here, and not drained yet.
    register(&mut table, at(1), AORS[0], &[update(CONTACTS[3], 9, 900)]);
    table.reconcile(at(2), AORS[0], &rows);
    let found: Vec<_> = table.lookup(at(2), AORS[0]).map(|b| (b.contact(), b.cseq())).collect();
    assert_eq!(found, [(CONTACTS[3], 9), (CONTACTS[2], 5)]);
    assert_eq!(drain(&mut table, usize::MAX).len(), 1);
    // Removed here, and not drained yet: the row is the past.
    table.remove(at(3), AORS[0], Some(CONTACTS[2]));
    table.reconcile(at(3), AORS[0], &rows[1..]);
    table.reconcile(at(3), AORS[0], &rows);
    assert!(table.lookup(at(3), AORS[0]).all(|b| b.contact() != CONTACTS[2]));
    table.reconcile(at(4), AORS[0], &[]);
    assert!(table.is_empty());
}

#[derive(Clone, Debug)]
enum Op {
    Advance(u64),
    Register { aor: usize, cseq: u32, wishes: Vec<(usize, u32)>, fails: bool },
    Remove { aor: usize, contact: usize },
    Expire,
    Drain(usize),
    Write,
    WriteTwice,
}

fn op() -> impl Strategy<Value = Op> {
    let expires = prop_oneof![Just(0_u32), 60_u32..200];
    prop_oneof![
        2 => (0_u64..50).prop_map(Op::Advance),
        8 => (0..2_usize, 0_u32..30, prop::collection::vec((0..4_usize, expires), 1..3), any::<bool>())
            .prop_map(|(aor, cseq, wishes, fails)| Op::Register { aor, cseq, wishes, fails }),
        1 => (0..2_usize, 0..4_usize).prop_map(|(aor, contact)| Op::Remove { aor, contact }),
        1 => Just(Op::Expire),
        4 => (1_usize..4).prop_map(Op::Drain),
        3 => Just(Op::Write),
        1 => Just(Op::WriteTwice),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is registered, undone, removed, drained in pieces and written twice: the store ends with what the table
    /// holds, and a table made from it is the same.
    #[test]
    fn the_store_follows_the_table(ops in prop::collection::vec(op(), 1..150)) {
        let (mut table, mut store, mut now) = (table(), Store::default(), 0);
        let (mut batches, mut failing): (Vec<Batch>, Vec<(usize, Tentative)>) = (Vec::new(), Vec::new());
        for op in ops {
            match op {
                Op::Advance(seconds) => now += seconds,
                Op::Register { aor, cseq, wishes, fails } => {
                    let updates: Vec<_> = wishes.iter().map(|&(c, e)| update(CONTACTS[c], cseq, e)).collect();
                    if let Ok((tentative, _)) = try_register(&mut table, at(now), AORS[aor], &updates)
                        && fails
                    {
                        failing.push((aor, tentative));
                    }
                }
                Op::Remove { aor, contact } => {
                    table.remove(at(now), AORS[aor], Some(CONTACTS[contact]));
                }
                Op::Expire => {
                    table.expire(at(now), 3);
                }
                Op::Drain(budget) => batches.push(drain(&mut table, budget)),
                Op::Write | Op::WriteTwice => {
                    for batch in batches.drain(..) {
                        store.apply(&batch);
                        if matches!(op, Op::WriteTwice) {
                            store.apply(&batch);
                        }
                    }
                    for (aor, tentative) in failing.drain(..) {
                        table.undo(at(now), AORS[aor], &tentative.before, &tentative.after);
                    }
                }
            }
        }
        batches.drain(..).for_each(|batch| store.apply(&batch));
        flush(&mut table, &mut store);
        assert_kept(&table, &store);
        let mut again = self::table();
        for binding in store.bindings() {
            again.restore(at(now), binding.aor(), &kept(binding)).unwrap();
        }
        prop_assert_eq!(bound(&again, at(now)), bound(&table, at(now)));
        prop_assert!(drain(&mut again, usize::MAX).is_empty());
    }

    /// A REGISTER that is undone at once was never there, in any order of what is bound.
    #[test]
    fn undoing_is_exact(
        first in prop::collection::vec((0..4_usize, 0_u16..3), 0..4),
        second in prop::collection::vec((0..4_usize, prop_oneof![Just(0_u32), 60_u32..200]), 1..4),
    ) {
        let mut table = table();
        let updates: Vec<_> =
            first.iter().map(|&(c, q)| Update { q: Some(q * 500), ..update(CONTACTS[c], 1, 900) }).collect();
        register(&mut table, at(0), AORS[0], &updates);
        let before = bound(&table, at(3));
        let updates: Vec<_> = second.iter().map(|&(c, e)| update(CONTACTS[c], 2, e)).collect();
        let tentative = register(&mut table, at(1), AORS[0], &updates);
        prop_assert!(table.undo(at(3), AORS[0], &tentative.before, &tentative.after));
        prop_assert_eq!(bound(&table, at(3)), before);
    }
}
