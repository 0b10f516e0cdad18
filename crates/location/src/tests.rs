//! Behaviour of the table, rule by rule (RFC 3261 §10.3).

use crate::*;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::ControlFlow;
use sip::Instant;

const SEEDS: Seeds = Seeds([1, 2, 3, 4]);
const AOR: &[u8] = b"sip:alice@atlanta.example";
const PC: &[u8] = b"sip:alice@pc33.atlanta.example";
const MOBILE: &[u8] = b"sip:alice@192.0.2.7:5070";

fn at(seconds: u64) -> Instant {
    Instant::from_micros(seconds * 1_000_000)
}

fn table() -> Table {
    Table::new(Limits::default(), SEEDS)
}

fn update<'a>(contact: &'a [u8], call_id: &'a [u8], cseq: u32, expires: u32) -> Update<'a> {
    Update { expires: Some(expires), ..Update::new(contact, call_id, cseq) }
}

fn star_of(
    contacts: usize,
    expires: Option<u32>,
    call_id: &[u8],
    cseq: u32,
) -> Result<Register<'_>, Refusal> {
    Register::star(contacts, &Update { expires, ..Update::new(&[], call_id, cseq) })
}

fn bind(table: &mut Table, now: u64, updates: &[Update<'_>]) -> Result<Registered, Refusal> {
    table.register(at(now), AOR, &Register::Bind(updates), &Policy::default())
}

fn bind_under(
    table: &mut Table,
    now: u64,
    updates: &[Update<'_>],
    policy: &Policy,
) -> Result<Registered, Refusal> {
    table.register(at(now), AOR, &Register::Bind(updates), policy)
}

/// The same update, of a request that came at `since`.
fn waiting(since: u64, update: Update<'_>) -> Update<'_> {
    Update { waiting_since: Some(at(since)), ..update }
}

fn contacts(table: &Table, now: u64) -> Vec<String> {
    table.lookup(at(now), AOR).map(|binding| String::from_utf8_lossy(binding.contact()).to_string()).collect()
}

fn names(expected: &[&[u8]]) -> Vec<String> {
    expected.iter().map(|name| String::from_utf8_lossy(name).to_string()).collect()
}

// ---- step 6: no Contact, "*" ---------------------------------------------------------------------------------

#[test]
fn query_changes_nothing_and_counts_what_is_bound() {
    let mut table = table();
    bind(&mut table, 0, &[update(PC, b"c", 1, 600)]).unwrap();
    let done = table.register(at(1), AOR, &Register::Query, &Policy::default()).unwrap();
    assert_eq!(done, Registered { bindings: 1, ..Registered::default() });
    assert_eq!(contacts(&table, 1), names(&[PC]));
}

#[test]
fn query_of_an_unknown_address_finds_nothing_and_stores_nothing() {
    let mut table = table();
    let done = table.register(at(1), AOR, &Register::Query, &Policy::default()).unwrap();
    assert_eq!(done.bindings, 0);
    assert_eq!((table.len(), table.aors()), (0, 0));
}

#[test]
fn star_removes_all_bindings_of_other_call_ids() {
    let mut table = table();
    bind(&mut table, 0, &[update(PC, b"c1", 9, 600)]).unwrap();
    bind(&mut table, 0, &[update(MOBILE, b"c2", 9, 600)]).unwrap();
    let star = star_of(1, Some(0), b"other", 1).unwrap();
    let done = table.register(at(1), AOR, &star, &Policy::default()).unwrap();
    assert_eq!((done.removed, done.bindings), (2, 0));
    assert!(table.is_empty());
    assert_eq!(table.aors(), 0);
}

#[test]
fn star_of_the_same_call_id_needs_a_higher_cseq_and_else_removes_nothing() {
    let mut table = table();
    bind(&mut table, 0, &[update(PC, b"other", 1, 600)]).unwrap();
    bind(&mut table, 0, &[update(MOBILE, b"c", 5, 600)]).unwrap();
    for cseq in [4, 5] {
        let star = star_of(1, Some(0), b"c", cseq).unwrap();
        let refusal = table.register(at(1), AOR, &star, &Policy::default()).unwrap_err();
        assert_eq!((refusal, refusal.status()), (Refusal::OutOfOrder, 500));
        assert_eq!(table.lookup(at(1), AOR).count(), 2);
    }
    let star = star_of(1, Some(0), b"c", 6).unwrap();
    table.register(at(1), AOR, &star, &Policy::default()).unwrap();
    assert!(table.is_empty());
}

#[test]
fn retransmitted_star_succeeds_once_nothing_is_bound() {
    let mut table = table();
    bind(&mut table, 0, &[update(PC, b"c", 1, 600)]).unwrap();
    let star = star_of(1, Some(0), b"c", 2).unwrap();
    for _ in 0..2 {
        assert_eq!(table.register(at(1), AOR, &star, &Policy::default()).unwrap().bindings, 0);
    }
}

#[test]
fn star_beside_another_contact_is_refused() {
    let refusal = star_of(2, Some(0), b"c", 1).unwrap_err();
    assert_eq!((refusal, refusal.status()), (Refusal::StarWithOthers, 400));
}

#[test]
fn star_without_expires_zero_is_refused() {
    for expires in [None, Some(1), Some(3600)] {
        let refusal = star_of(1, expires, b"c", 1).unwrap_err();
        assert_eq!((refusal, refusal.status()), (Refusal::StarExpiresNotZero, 400));
    }
}

// ---- step 7: the interval --------------------------------------------------------------------------------------

fn interval_of(policy: &Policy, expires: Option<u32>) -> Result<u32, Refusal> {
    let mut table = table();
    let update = Update { expires, ..Update::new(PC, b"c", 1) };
    bind_under(&mut table, 100, &[update], policy)?;
    let binding = table.lookup(at(100), AOR).next().unwrap();
    assert_eq!(binding.interval(), binding.expires_in(at(100)));
    Ok(binding.interval())
}

#[test]
fn requested_interval_is_granted_and_the_default_taken_if_none_is_requested() {
    let policy = Policy { default_expires: 1800, ..Policy::default() };
    assert_eq!(interval_of(&policy, Some(120)), Ok(120));
    assert_eq!(interval_of(&policy, None), Ok(1800));
    assert_eq!(interval_of(&policy, Some(u32::MAX)), Ok(u32::MAX));
}

#[test]
fn interval_above_the_maximum_is_shortened() {
    let policy = Policy { max_expires: 900, ..Policy::default() };
    assert_eq!(interval_of(&policy, Some(901)), Ok(900));
    assert_eq!(interval_of(&policy, None), Ok(900));
}

#[test]
fn interval_below_the_minimum_is_refused_with_423() {
    let policy = Policy { min_expires: 120, ..Policy::default() };
    let refusal = interval_of(&policy, Some(119)).unwrap_err();
    assert_eq!(refusal, Refusal::IntervalTooBrief { min_expires: 120 });
    assert_eq!(refusal.status(), 423);
    assert_eq!(interval_of(&policy, Some(120)), Ok(120));
}

#[test]
fn interval_of_an_hour_is_never_too_brief() {
    let policy = Policy { min_expires: 7200, ..Policy::default() };
    assert_eq!(interval_of(&policy, Some(3599)), Err(Refusal::IntervalTooBrief { min_expires: 7200 }));
    assert_eq!(interval_of(&policy, Some(3600)), Ok(3600));
}

#[test]
fn interval_below_the_minimum_can_be_raised_instead() {
    let policy = Policy { min_expires: 120, below_minimum: BelowMinimum::Raise, ..Policy::default() };
    assert_eq!(interval_of(&policy, Some(1)), Ok(120));
}

#[test]
fn default_interval_is_never_too_brief_nor_zero() {
    assert_eq!(
        interval_of(&Policy { default_expires: 30, min_expires: 60, ..Policy::default() }, None),
        Ok(60)
    );
    assert_eq!(interval_of(&Policy { default_expires: 0, min_expires: 0, ..Policy::default() }, None), Ok(1));
}

#[test]
fn zero_is_not_too_brief_but_removes() {
    let mut table = table();
    bind(&mut table, 0, &[update(PC, b"c", 1, 600), update(MOBILE, b"c", 1, 600)]).unwrap();
    let done = bind(&mut table, 1, &[update(PC, b"c", 2, 0)]).unwrap();
    assert_eq!((done.removed, done.bindings), (1, 1));
    assert_eq!(contacts(&table, 1), names(&[MOBILE]));
}

#[test]
fn contacts_are_compared_as_uris() {
    let mut table = table();
    bind(&mut table, 0, &[update(b"sip:%61lice@PC.example;transport=udp", b"c", 1, 600)]).unwrap();
    let spelt = b"sip:alice@pc.example;TRANSPORT=UDP";
    let done = bind(&mut table, 1, &[update(spelt, b"c", 2, 600)]).unwrap();
    assert_eq!((done.updated, done.bindings), (1, 1));
    assert_eq!(contacts(&table, 1), names(&[spelt]));
    for other in
        [&b"sip:alice@pc.example"[..], b"sip:Alice@pc.example;transport=udp", b"not a uri", b"Not a uri"]
    {
        assert_eq!(bind(&mut table, 1, &[update(other, b"c", 2, 600)]).unwrap().added, 1);
    }
    let twice = [update(b"sip:b@h", b"c", 3, 600), update(b"sip:b@H", b"c", 3, 0)];
    let done = bind(&mut table, 2, &twice).unwrap();
    assert_eq!((done.added, done.bindings), (0, 5));
}

#[test]
fn the_same_bytes_are_preferred_to_an_equivalent_uri() {
    let mut table = table();
    // Equivalent to the plain one, not to each other (RFC 3261 §19.1.4).
    bind(&mut table, 0, &[update(b"sip:carol@chicago.com;newparam=5", b"c", 1, 600)]).unwrap();
    bind(&mut table, 1, &[update(b"sip:carol@chicago.com;newparam=6", b"c", 2, 600)]).unwrap();
    bind(&mut table, 2, &[update(b"sip:carol@chicago.com;newparam=5", b"c", 3, 0)]).unwrap();
    assert_eq!(contacts(&table, 2), names(&[b"sip:carol@chicago.com;newparam=6"]));
    assert_eq!(bind(&mut table, 3, &[update(b"sip:carol@chicago.com", b"c", 4, 0)]).unwrap().removed, 1);
}

#[test]
fn equivalent_spelling_replaces_what_the_store_has() {
    let mut table = table();
    table.track_changes(10);
    bind(&mut table, 0, &[update(b"sip:1@h", b"c", 1, 600)]).unwrap();
    assert_eq!(drained(&mut table), ["+sip:1@h"]);
    bind(&mut table, 1, &[update(b"sip:1@H", b"c", 2, 600)]).unwrap();
    assert_eq!(drained(&mut table), ["+sip:1@H", "-sip:1@h"]);
}

#[test]
fn removing_what_is_not_bound_succeeds() {
    let mut table = table();
    assert_eq!(bind(&mut table, 1, &[update(PC, b"c", 2, 0)]), Ok(Registered::default()));
    assert!(table.is_empty());
}

// ---- step 7: Call-ID and CSeq ------------------------------------------------------------------------------------

#[test]
fn refresh_with_a_higher_cseq_updates_in_place() {
    let mut table = table();
    bind(&mut table, 0, &[update(PC, b"c", 1, 600)]).unwrap();
    let bytes = table.bytes();
    let place = |table: &Table| table.lookup(at(500), AOR).next().unwrap().aor().as_ptr();
    let before = place(&table);
    let done = bind(&mut table, 500, &[update(PC, b"c", 2, 600)]).unwrap();
    assert_eq!(place(&table), before, "a refresh that fits allocates nothing");
    assert_eq!((done.updated, done.added, done.bindings), (1, 0, 1));
    let binding = table.lookup(at(500), AOR).next().unwrap();
    assert_eq!((binding.cseq(), binding.expires_at()), (2, at(1100)));
    assert_eq!((table.len(), table.bytes()), (1, bytes));
}

#[test]
fn another_call_id_updates_whatever_its_cseq() {
    let mut table = table();
    bind(&mut table, 0, &[update(PC, b"before-reboot", 500, 600)]).unwrap();
    let done = bind(&mut table, 10, &[update(PC, b"after", 1, 600)]).unwrap();
    assert_eq!(done.updated, 1);
    let binding = table.lookup(at(10), AOR).next().unwrap();
    assert_eq!((binding.call_id(), binding.cseq()), (&b"after"[..], 1));
}

#[test]
fn another_call_id_removes_whatever_its_cseq() {
    let mut table = table();
    bind(&mut table, 0, &[update(PC, b"before-reboot", 500, 600)]).unwrap();
    assert_eq!(bind(&mut table, 10, &[update(PC, b"after", 1, 0)]).unwrap().removed, 1);
}

#[test]
fn lower_cseq_of_the_same_call_id_fails_and_changes_nothing() {
    let mut table = table();
    bind(&mut table, 0, &[update(PC, b"c", 7, 600)]).unwrap();
    for expires in [0, 300, 600] {
        let refusal = bind(&mut table, 10, &[update(PC, b"c", 6, expires)]).unwrap_err();
        assert_eq!((refusal, refusal.status()), (Refusal::OutOfOrder, 500));
    }
    assert_eq!(table.lookup(at(10), AOR).next().unwrap().expires_at(), at(600));
}

#[test]
fn retransmission_is_answered_again_and_changes_nothing() {
    let mut table = table();
    let request = [update(PC, b"c", 7, 600)];
    bind(&mut table, 0, &request).unwrap();
    let done = bind(&mut table, 4, &request).unwrap();
    assert_eq!((done.repeated, done.updated, done.bindings), (1, 0, 1));
    assert_eq!(table.lookup(at(4), AOR).next().unwrap().expires_at(), at(600));
}

#[test]
fn equal_cseq_that_asks_for_something_else_is_no_retransmission() {
    let mut table = table();
    bind(&mut table, 0, &[update(PC, b"c", 7, 600)]).unwrap();
    let other_q = Update { q: Some(100), ..update(PC, b"c", 7, 600) };
    for request in [update(PC, b"c", 7, 601), update(PC, b"c", 7, 0), other_q] {
        assert_eq!(bind(&mut table, 4, &[request]), Err(Refusal::OutOfOrder));
    }
}

#[test]
fn call_ids_are_compared_byte_by_byte() {
    let mut table = table();
    bind(&mut table, 0, &[update(PC, b"C", 7, 600)]).unwrap();
    assert_eq!(bind(&mut table, 4, &[update(PC, b"c", 1, 600)]).unwrap().updated, 1);
}

#[test]
fn expired_binding_orders_nothing_any_more() {
    let mut table = table();
    bind(&mut table, 0, &[update(PC, b"c", 7, 60)]).unwrap();
    let done = bind(&mut table, 60, &[update(PC, b"c", 1, 60)]).unwrap();
    assert_eq!((done.added, done.bindings, table.len()), (1, 1, 1));
}

// ---- the order of reception, where some wait --------------------------------------------------------------------

#[test]
fn what_waited_counts_from_when_it_came() {
    let mut table = table();
    bind(&mut table, 5, &[waiting(2, update(PC, b"c", 1, 600))]).unwrap();
    let binding = table.lookup(at(5), AOR).next().unwrap();
    assert_eq!((binding.modified_at(), binding.expires_at(), binding.interval()), (at(2), at(602), 600));
    // A copy of it waited, too.
    let done = bind(&mut table, 6, &[waiting(3, update(PC, b"c", 1, 600))]).unwrap();
    assert_eq!((done.repeated, done.bindings), (1, 1));
}

#[test]
fn a_star_that_was_overtaken_removes_nothing() {
    let mut table = table();
    bind(&mut table, 0, &[update(PC, b"a", 1, 600)]).unwrap();
    bind(&mut table, 3, &[update(MOBILE, b"b", 1, 600)]).unwrap();
    let late = Update { expires: Some(0), ..waiting(2, Update::new(&[], b"c", 1)) };
    let star = Register::star(1, &late).unwrap();
    let refusal = table.register(at(4), AOR, &star, &Policy::default()).unwrap_err();
    assert_eq!((refusal, refusal.status(), refusal.retryable()), (Refusal::Overtaken, 500, true));
    assert_eq!(contacts(&table, 4), names(&[MOBILE, PC]));
    // One that came after all that is bound removes it, however long it waits.
    let star = Register::star(1, &Update { waiting_since: Some(at(5)), ..late }).unwrap();
    assert_eq!(table.register(at(9), AOR, &star, &Policy::default()).unwrap().removed, 2);
}

#[test]
fn a_contact_is_not_bound_again_behind_a_removal_that_came_later() {
    let star = |table: &mut Table| {
        let star = star_of(1, Some(0), b"other", 1).unwrap();
        table.register(at(3), AOR, &star, &Policy::default()).unwrap();
    };
    let one = |table: &mut Table| {
        bind(table, 3, &[update(PC, b"other", 1, 0)]).unwrap();
    };
    let by_hand = |table: &mut Table| {
        table.remove(at(3), AOR, None);
    };
    for (case, remove) in [star, one, by_hand].into_iter().enumerate() {
        for was_bound in [false, true] {
            let mut table = table();
            if was_bound {
                bind(&mut table, 1, &[update(PC, b"c", 1, 600)]).unwrap();
            }
            remove(&mut table);
            let late = bind(&mut table, 4, &[waiting(2, update(PC, b"c", 1, 600))]);
            assert_eq!(late, Err(Refusal::Overtaken), "{case}, {was_bound}");
            assert!(table.is_empty());
            // What came after the removal is bound, and so is what did not wait.
            bind(&mut table, 6, &[waiting(4, update(PC, b"c", 2, 600))]).unwrap();
            bind(&mut table, 6, &[update(MOBILE, b"d", 1, 600)]).unwrap();
        }
    }
}

#[test]
fn a_contact_stays_what_a_later_request_has_made_of_it() {
    for expires in [0, 600] {
        let mut table = table();
        bind(&mut table, 3, &[update(PC, b"b", 7, 900)]).unwrap();
        let late = bind(&mut table, 4, &[waiting(2, update(PC, b"a", 1, expires))]);
        assert_eq!(late, Err(Refusal::Overtaken));
        // All or nothing: nor is the other contact bound.
        let both = [waiting(2, update(MOBILE, b"a", 1, 600)), waiting(2, update(PC, b"a", 1, expires))];
        assert_eq!(bind(&mut table, 4, &both), Err(Refusal::Overtaken));
        assert_eq!(contacts(&table, 4), names(&[PC]));
        // The other contact alone is nobody's but this request's.
        bind(&mut table, 4, &[waiting(2, update(MOBILE, b"a", 1, 600))]).unwrap();
        assert_eq!(contacts(&table, 4), names(&[PC, MOBILE]), "the newest first: the one that came later");
    }
}

#[test]
fn the_requests_of_one_client_are_in_the_order_of_their_cseq() {
    let mut table = table();
    bind(&mut table, 3, &[update(PC, b"c", 1, 600)]).unwrap();
    bind(&mut table, 4, &[waiting(2, update(PC, b"c", 2, 900))]).unwrap();
    assert_eq!(table.lookup(at(4), AOR).next().unwrap().cseq(), 2);
}

#[test]
fn what_another_node_has_written_in_times_to_come_overtakes_nothing() {
    let mut table = table();
    let written = Update { expires: Some(600), ..Update::new(PC, b"b", 1) };
    let kept = Kept { update: written, q: 1000, expires_at: at(609), modified_at: at(9), is_foreign: false };
    table.restore(at(3), AOR, &kept).unwrap();
    bind(&mut table, 4, &[waiting(2, update(PC, b"a", 1, 600))]).unwrap();
}

#[test]
fn copies_of_a_request_do_not_make_it_an_earlier_one() {
    let mut table = table();
    let update = update(PC, b"b", 1, 600);
    for _ in 0..60 {
        let request = Register::Bind(core::slice::from_ref(&update));
        table.register_tentatively(at(3), AOR, &request, &Policy::default(), &mut |_| {}).unwrap();
    }
    let late = waiting(3, Update { call_id: b"a", ..update });
    assert_eq!(bind(&mut table, 4, &[late]), Err(Refusal::Overtaken));
}

#[test]
fn what_came_later_is_not_pushed_out() {
    let policies = [AtLimit::ReplaceOldest, AtLimit::KeepOnlyNamed];
    for policy in policies.map(|at_limit| Policy { max_contacts: 1, at_limit, ..Policy::default() }) {
        let mut table = table();
        bind(&mut table, 3, &[update(PC, b"b", 1, 600)]).unwrap();
        let late = bind_under(&mut table, 4, &[waiting(2, update(MOBILE, b"a", 1, 600))], &policy);
        assert_eq!(late, Err(Refusal::Overtaken));
        assert_eq!(contacts(&table, 4), names(&[PC]));
        bind_under(&mut table, 6, &[waiting(4, update(MOBILE, b"a", 2, 600))], &policy).unwrap();
        assert_eq!(contacts(&table, 6), names(&[MOBILE]));
    }
}

// ---- step 7: all or nothing ----------------------------------------------------------------------------------------

#[test]
fn one_refused_contact_refuses_all() {
    let mut table = table();
    bind(&mut table, 0, &[update(PC, b"c", 7, 600)]).unwrap();
    let good = update(MOBILE, b"c", 6, 600);
    assert_eq!(bind(&mut table, 1, &[good, update(PC, b"c", 6, 600)]), Err(Refusal::OutOfOrder));
    let brief = update(PC, b"c", 8, 5);
    assert_eq!(bind(&mut table, 1, &[good, brief]), Err(Refusal::IntervalTooBrief { min_expires: 60 }));
    assert_eq!(contacts(&table, 1), names(&[PC]));
}

#[test]
fn last_value_for_a_contact_in_one_request_counts() {
    let mut table = table();
    let twice = [update(PC, b"c", 1, 600), update(MOBILE, b"c", 1, 600), update(PC, b"c", 1, 700)];
    let done = bind(&mut table, 0, &twice).unwrap();
    assert_eq!((done.added, done.bindings), (2, 2));
    let interval = |table: &Table| table.lookup(at(0), AOR).find(|b| b.contact() == PC).unwrap().interval();
    assert_eq!(interval(&table), 700);
    bind(&mut table, 1, &[update(PC, b"c", 2, 0), update(PC, b"c", 2, 800)]).unwrap();
    assert_eq!(table.lookup(at(1), AOR).find(|b| b.contact() == PC).unwrap().interval(), 800);
    let done = bind(&mut table, 2, &[update(PC, b"c", 3, 800), update(PC, b"c", 3, 0)]).unwrap();
    assert_eq!((done.removed, done.updated, done.bindings), (1, 0, 1));
}

// ---- limits --------------------------------------------------------------------------------------------------------

#[test]
fn contact_past_the_limit_is_refused_but_refreshes_and_removals_go_on() {
    let mut table = table();
    let policy = Policy { max_contacts: 1, ..Policy::default() };
    bind_under(&mut table, 0, &[update(PC, b"c", 1, 600)], &policy).unwrap();
    let refusal = bind_under(&mut table, 1, &[update(MOBILE, b"d", 1, 600)], &policy).unwrap_err();
    assert_eq!((refusal, refusal.status()), (Refusal::TooManyContacts { limit: 1 }, 503));
    assert_eq!(contacts(&table, 1), names(&[PC]));
    assert_eq!(bind_under(&mut table, 2, &[update(PC, b"e", 1, 600)], &policy).unwrap().updated, 1);
    let swap = [update(PC, b"e", 2, 0), update(MOBILE, b"e", 2, 600)];
    assert_eq!(bind_under(&mut table, 3, &swap, &policy).unwrap().bindings, 1);
    assert_eq!(contacts(&table, 3), names(&[MOBILE]));
}

#[test]
fn expired_binding_does_not_count_against_the_limit() {
    let mut table = table();
    let policy = Policy { max_contacts: 1, ..Policy::default() };
    bind_under(&mut table, 0, &[update(PC, b"c", 1, 60)], &policy).unwrap();
    bind_under(&mut table, 60, &[update(MOBILE, b"d", 1, 60)], &policy).unwrap();
    assert_eq!(contacts(&table, 60), names(&[MOBILE]));
}

#[test]
fn oldest_binding_can_make_way() {
    let mut table = table();
    let policy = Policy { max_contacts: 2, at_limit: AtLimit::ReplaceOldest, ..Policy::default() };
    bind_under(&mut table, 0, &[update(b"sip:1@h", b"c1", 1, 600)], &policy).unwrap();
    bind_under(&mut table, 1, &[update(b"sip:2@h", b"c2", 1, 600)], &policy).unwrap();
    bind_under(&mut table, 2, &[update(b"sip:1@h", b"c1", 2, 600)], &policy).unwrap();
    let done = bind_under(&mut table, 3, &[update(b"sip:3@h", b"c3", 1, 600)], &policy).unwrap();
    assert_eq!((done.added, done.removed, done.bindings), (1, 1, 2));
    assert_eq!(contacts(&table, 3), names(&[b"sip:3@h", b"sip:1@h"]));
}

#[test]
fn request_with_more_new_contacts_than_may_be_is_refused_even_if_others_make_way() {
    let mut table = table();
    let policy = Policy { max_contacts: 1, at_limit: AtLimit::ReplaceOldest, ..Policy::default() };
    bind_under(&mut table, 0, &[update(PC, b"c", 1, 600)], &policy).unwrap();
    let two = [update(b"sip:1@h", b"d", 1, 600), update(b"sip:2@h", b"d", 1, 600)];
    assert_eq!(bind_under(&mut table, 1, &two, &policy), Err(Refusal::TooManyContacts { limit: 1 }));
    assert_eq!(contacts(&table, 1), names(&[PC]));
}

#[test]
fn only_named_contacts_can_be_kept() {
    let mut table = table();
    bind(&mut table, 0, &[update(PC, b"c", 1, 600), update(MOBILE, b"c", 1, 600)]).unwrap();
    let policy = Policy { at_limit: AtLimit::KeepOnlyNamed, ..Policy::default() };
    bind_under(&mut table, 1, &[update(b"sip:new@h", b"c", 2, 600)], &policy).unwrap();
    assert_eq!(contacts(&table, 1), names(&[b"sip:new@h"]));
}

#[test]
fn late_request_pushes_out_nothing_that_its_client_bound_later() {
    let mut table = table();
    let policy = Policy { at_limit: AtLimit::KeepOnlyNamed, ..Policy::default() };
    bind_under(&mut table, 0, &[update(PC, b"c", 1, 600)], &policy).unwrap();
    bind_under(&mut table, 1, &[update(MOBILE, b"c", 2, 600)], &policy).unwrap();
    assert_eq!(bind_under(&mut table, 2, &[update(PC, b"c", 1, 600)], &policy), Err(Refusal::OutOfOrder));
    assert_eq!(contacts(&table, 2), names(&[MOBILE]));
}

#[test]
fn unlimited_contacts_end_at_the_tables_own_limit() {
    let mut table = Table::new(Limits { contacts_per_aor_max: 2, ..Limits::default() }, SEEDS);
    for (n, contact) in [b"sip:1@h", b"sip:2@h"].into_iter().enumerate() {
        bind(&mut table, n as u64, &[update(contact, b"c", n as u32, 600)]).unwrap();
    }
    let refusal = bind(&mut table, 3, &[update(b"sip:3@h", b"c", 9, 600)]).unwrap_err();
    assert_eq!(refusal, Refusal::TooManyContacts { limit: 2 });
}

#[test]
fn request_with_too_many_values_is_refused() {
    let mut table = table();
    let many = vec![update(PC, b"c", 1, 600); CONTACTS_PER_REQUEST_MAX + 1];
    let refusal = bind(&mut table, 0, &many).unwrap_err();
    assert_eq!(refusal, Refusal::TooManyContacts { limit: CONTACTS_PER_REQUEST_MAX });
    assert!(bind(&mut table, 0, &many[1..]).is_ok());
}

#[test]
fn full_table_refuses_new_bindings_until_one_expires() {
    let mut table = Table::new(Limits { bindings_max: 1, ..Limits::default() }, SEEDS);
    let policy = Policy::default();
    bind(&mut table, 0, &[update(PC, b"c", 1, 60)]).unwrap();
    let bob = update(b"sip:bob@h", b"d", 1, 60);
    let refusal = table.register(at(59), b"sip:bob@biloxi", &Register::Bind(&[bob]), &policy).unwrap_err();
    assert_eq!((refusal, refusal.status(), refusal.retryable()), (Refusal::TableFull, 503, true));
    assert_eq!(bind(&mut table, 59, &[update(PC, b"c", 2, 60)]).unwrap().updated, 1);
    table.register(at(119), b"sip:bob@biloxi", &Register::Bind(&[bob]), &policy).unwrap();
    assert_eq!((table.len(), table.aors()), (1, 1));
}

#[test]
fn bytes_are_bounded_in_sum_and_each() {
    let limits = Limits { bytes_max: 250, binding_bytes_max: 200, ..Limits::default() };
    let mut table = Table::new(limits, SEEDS);
    let long = [b'x'; 300];
    let refusal = bind(&mut table, 0, &[update(&long, b"c", 1, 600)]).unwrap_err();
    assert_eq!((refusal, refusal.status()), (Refusal::BindingTooLarge { limit: 200 }, 513));
    bind(&mut table, 0, &[update(&long[..100], b"c", 1, 600)]).unwrap();
    assert_eq!(bind(&mut table, 0, &[update(&long[..101], b"d", 1, 600)]), Err(Refusal::TableFull));
    let grown = Update { user_agent: &long[..60], ..update(&long[..100], b"c", 2, 600) };
    assert_eq!(bind(&mut table, 0, &[grown]).unwrap().updated, 1);
}

// ---- lookup --------------------------------------------------------------------------------------------------------

#[test]
fn lookup_orders_by_q_then_newest_first() {
    let mut table = table();
    let with_q = |contact, cseq, q| Update { q, ..update(contact, b"c", cseq, 600) };
    bind(&mut table, 0, &[with_q(b"sip:low@h", 1, Some(100))]).unwrap();
    bind(&mut table, 1, &[with_q(b"sip:old@h", 2, Some(500))]).unwrap();
    bind(&mut table, 2, &[with_q(b"sip:new@h", 3, Some(500))]).unwrap();
    bind(&mut table, 3, &[with_q(b"sip:default@h", 4, None)]).unwrap();
    assert_eq!(contacts(&table, 4), names(&[b"sip:default@h", b"sip:new@h", b"sip:old@h", b"sip:low@h"]));
    bind(&mut table, 5, &[with_q(b"sip:old@h", 6, Some(500))]).unwrap();
    bind(&mut table, 5, &[with_q(b"sip:default@h", 6, Some(0))]).unwrap();
    assert_eq!(contacts(&table, 5), names(&[b"sip:old@h", b"sip:new@h", b"sip:low@h", b"sip:default@h"]));
}

#[test]
fn contacts_of_one_request_keep_its_order() {
    let mut table = table();
    bind(&mut table, 1, &[update(PC, b"c", 1, 600), update(MOBILE, b"c", 1, 600)]).unwrap();
    assert_eq!(contacts(&table, 1), names(&[PC, MOBILE]));
}

#[test]
fn expired_binding_is_never_returned() {
    let mut table = table();
    bind(&mut table, 0, &[update(PC, b"c", 1, 60), update(MOBILE, b"c", 1, 61)]).unwrap();
    assert_eq!(table.lookup(Instant::from_micros(59_999_999), AOR).count(), 2);
    assert_eq!(contacts(&table, 60), names(&[MOBILE]));
    assert_eq!(table.lookup(at(61), AOR).count(), 0);
    assert_eq!(table.len(), 2);
}

#[test]
fn everything_that_the_update_said_is_remembered() {
    let mut table = table();
    let full = Update {
        expires: Some(600),
        q: Some(1500),
        received: b"sip:198.51.100.1:1024",
        path: b"<sip:edge.example;lr>",
        instance: b"<urn:uuid:1>",
        user_agent: b"Phone/1",
        reg_id: 2,
        flow: 42,
        methods: 7,
        flags: 3,
        ..Update::new(PC, b"c", 9)
    };
    bind(&mut table, 5, &[full]).unwrap();
    let binding = table.lookup(at(5), AOR).next().unwrap();
    assert_eq!((binding.aor(), binding.contact(), binding.call_id()), (AOR, PC, &b"c"[..]));
    assert_eq!(binding.received(), Some(full.received));
    assert_eq!(binding.path(), Some(full.path));
    assert_eq!(binding.instance(), Some(full.instance));
    assert_eq!(binding.user_agent(), Some(full.user_agent));
    assert_eq!((binding.reg_id(), binding.flow(), binding.methods(), binding.flags()), (Some(2), 42, 7, 3));
    assert_eq!((binding.q(), binding.cseq(), binding.modified_at()), (1000, 9, at(5)));
    bind(&mut table, 6, &[update(PC, b"c", 10, 600)]).unwrap();
    let binding = table.lookup(at(6), AOR).next().unwrap();
    assert_eq!((binding.received(), binding.path(), binding.instance()), (None, None, None));
    assert_eq!((binding.user_agent(), binding.reg_id()), (None, None));
}

// ---- expiry --------------------------------------------------------------------------------------------------------

#[test]
fn expiry_removes_in_bounded_steps() {
    let mut table = table();
    let policy = Policy::default();
    for n in 0..100_u32 {
        let aor = alloc::format!("sip:{n}@h");
        let one = [update(aor.as_bytes(), b"c", 1, 60)];
        table.register(at(0), aor.as_bytes(), &Register::Bind(&one), &policy).unwrap();
    }
    assert_eq!(table.expire(at(59), 1000), 0);
    assert_eq!(table.len(), 100);
    let mut calls = 0;
    while table.next_expiry().is_some_and(|due| due <= at(60)) {
        assert!(table.expire(at(60), 7) <= 7);
        calls += 1;
    }
    assert!(calls >= 100 / 7);
    assert_eq!((table.len(), table.aors(), table.next_expiry()), (0, 0, None));
}

#[test]
fn refreshed_binding_survives_its_first_expiry_and_goes_at_its_second() {
    let mut table = table();
    bind(&mut table, 0, &[update(PC, b"c", 1, 60)]).unwrap();
    bind(&mut table, 50, &[update(PC, b"c", 2, 100)]).unwrap();
    assert_eq!(table.expire(at(149), 1000), 0);
    assert_eq!(table.expire(at(150), 1000), 1);
}

#[test]
fn expiry_brought_forward_is_kept() {
    let mut table = table();
    bind(&mut table, 0, &[update(PC, b"c", 1, 86_400)]).unwrap();
    bind(&mut table, 1, &[update(PC, b"c", 2, 60)]).unwrap();
    assert_eq!(table.expire(at(60), 1000), 0);
    assert_eq!(table.expire(at(61), 1000), 1);
}

#[test]
fn expiry_is_found_at_any_distance() {
    for interval in [60, 63, 64, 65, 4095, 4096, 300_000, 1 << 24, 1 << 30, u32::MAX] {
        for start in [0, 1, 63, 64, 4_095, 1_700_000_000] {
            let mut table = table();
            bind(&mut table, start, &[update(PC, b"c", 1, interval)]).unwrap();
            let end = start + u64::from(interval);
            assert_eq!(table.expire(at(end - 1), 100), 0, "{start} + {interval}");
            assert!(table.next_expiry().unwrap() <= at(end));
            assert_eq!(table.expire(at(end), 100), 1, "{start} + {interval}");
        }
    }
}

#[test]
fn time_that_stands_still_or_never_ends_harms_nothing() {
    let mut table = table();
    table
        .register(Instant::NEVER, AOR, &Register::Bind(&[update(PC, b"c", 1, 60)]), &Policy::default())
        .unwrap();
    assert_eq!(table.lookup(Instant::NEVER, AOR).count(), 0);
    assert_eq!(table.expire(Instant::NEVER, 100), 1);
    assert_eq!(table.expire(at(0), 100), 0);
    bind(&mut table, 0, &[update(PC, b"c", 1, 60)]).unwrap();
    assert_eq!(contacts(&table, 0), names(&[PC]));
}

// ---- administration, changes, sharing ------------------------------------------------------------------------------

#[test]
fn administrator_removes_one_contact_or_all() {
    let mut table = table();
    bind(&mut table, 0, &[update(PC, b"c", 9, 60), update(MOBILE, b"c", 9, 60)]).unwrap();
    assert_eq!(table.remove(at(1), AOR, Some(b"sip:nobody@h")), 0);
    assert_eq!(table.remove(at(1), AOR, Some(PC)), 1);
    assert_eq!(table.remove(at(1), AOR, None), 1);
    assert!(table.is_empty());
}

fn drained(table: &mut Table) -> Vec<String> {
    let mut seen = Vec::new();
    let done = table.drain_changes(usize::MAX, &mut |change| {
        let (sign, binding) = match change {
            Change::Saved(binding) => ('+', binding),
            Change::Removed(binding) => ('-', binding),
        };
        seen.push(alloc::format!("{sign}{}", String::from_utf8_lossy(binding.contact())));
    });
    assert_eq!((done.changes, done.left, done.lost), (seen.len(), 0, false));
    seen
}

#[test]
fn changes_are_recorded_once_however_often_a_binding_changes() {
    let mut table = table();
    bind(&mut table, 0, &[update(b"sip:before@h", b"c", 1, 600)]).unwrap();
    table.track_changes(10);
    bind(&mut table, 0, &[update(b"sip:1@h", b"c", 1, 600)]).unwrap();
    bind(&mut table, 1, &[update(b"sip:1@h", b"c", 2, 600)]).unwrap();
    assert_eq!(drained(&mut table), ["+sip:before@h", "+sip:1@h"]);
    assert!(drained(&mut table).is_empty());
}

#[test]
fn removal_is_a_change_only_if_the_store_knows_the_binding() {
    let mut table = table();
    table.track_changes(10);
    bind(&mut table, 0, &[update(b"sip:1@h", b"c", 1, 600)]).unwrap();
    assert_eq!(drained(&mut table), ["+sip:1@h"]);
    bind(&mut table, 1, &[update(b"sip:2@h", b"c", 2, 600)]).unwrap();
    bind(&mut table, 2, &[update(b"sip:1@h", b"c", 3, 0), update(b"sip:2@h", b"c", 3, 0)]).unwrap();
    assert_eq!(drained(&mut table), ["-sip:1@h"]);
    bind(&mut table, 3, &[update(b"sip:1@h", b"c", 4, 600)]).unwrap();
    bind(&mut table, 4, &[update(b"sip:1@h", b"c", 5, 0)]).unwrap();
    bind(&mut table, 5, &[update(b"sip:1@h", b"c", 6, 60)]).unwrap();
    assert_eq!(drained(&mut table), ["+sip:1@h"]);
    assert_eq!(table.expire(at(65), 100), 1);
    assert_eq!(drained(&mut table), ["-sip:1@h"]);
}

#[test]
fn removals_past_the_logs_limit_are_confessed() {
    let mut table = table();
    table.track_changes(1);
    bind(&mut table, 0, &[update(b"sip:1@h", b"c", 1, 600), update(b"sip:2@h", b"c", 1, 600)]).unwrap();
    assert_eq!(drained(&mut table).len(), 2);
    table.remove(at(1), AOR, None);
    let lost = |table: &mut Table| table.drain_changes(10, &mut |_| {}).lost;
    assert!(lost(&mut table));
    assert!(!lost(&mut table));
}

#[test]
fn local_service_visits_what_is_bound_after_a_register() {
    let service = Local::new(Limits::default(), SEEDS);
    let request = [update(PC, b"c", 1, 600), update(MOBILE, b"c", 1, 700)];
    let mut seen = Vec::new();
    let done = service.register(at(1), AOR, &Register::Bind(&request), &Policy::default(), &mut |binding| {
        seen.push((binding.contact().to_vec(), binding.expires_in(at(1))));
    });
    assert_eq!(done.unwrap().bindings, 2);
    assert_eq!(seen, [(PC.to_vec(), 600), (MOBILE.to_vec(), 700)]);
    let visited = service.lookup(at(1), AOR, &mut |_| ControlFlow::Break(()));
    assert_eq!(visited, 1);
    assert_eq!(service.lookup(at(1), b"sip:bob@h", &mut |_| ControlFlow::Continue(())), 0);
    assert_eq!((service.len(), service.aors()), (2, 1));
    assert_eq!(service.expire(at(701), 100), 2);
    assert!(service.is_empty());
}

#[test]
fn service_is_usable_behind_a_pointer_and_the_table_behind_a_lock() {
    fn sendable<T: Send + Sync>(_: &T) {}
    sendable(&table());
    let service: Box<dyn Location> = Box::new(Local::new(Limits::default(), SEEDS));
    assert_eq!((service.len(), service.next_expiry()), (0, None));
}

#[test]
fn stripes_are_evenly_used_and_depend_on_the_seeds() {
    let mut counts = [0_u32; 16];
    let mut moved = 0;
    for n in 0..16_000 {
        let aor = alloc::format!("sip:user{n}@example.com");
        let stripe = stripe_of(aor.as_bytes(), 16, &SEEDS);
        counts[stripe] += 1;
        moved += u32::from(stripe != stripe_of(aor.as_bytes(), 16, &Seeds([5, 6, 7, 8])));
    }
    assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
    assert!(moved > 14_000);
    assert_eq!(stripe_of(b"sip:a@b", 0, &SEEDS), 0);
}

#[test]
fn stripes_share_the_sums_and_keep_what_concerns_one_user() {
    let whole = Limits { bindings_max: 10, bytes_max: 1000, ..Limits::default() };
    let share = whole.per_stripe(4);
    assert_eq!((share.bindings_max, share.bytes_max), (3, 250));
    assert_eq!(share.contacts_per_aor_max, whole.contacts_per_aor_max);
    assert_eq!(whole.per_stripe(0), whole);
}

#[test]
fn bindings_do_not_show_who_they_are_of_in_logs() {
    let mut table = table();
    bind(&mut table, 0, &[update(PC, b"c", 1, 600)]).unwrap();
    let shown = alloc::format!("{:?}", table.iter().next().unwrap());
    assert!(!shown.contains("alice") && shown.contains("cseq"));
}

// ---- the time that one request may take ------------------------------------------------------------------------

/// A contact with parameters in an order of its own.
fn turned(params: usize, n: usize) -> String {
    let mut uri = String::from("sip:a@192.0.2.1");
    for param in 0..params {
        uri.push_str(&alloc::format!(";p{}=1", (param + n) % params));
    }
    uri
}

#[test]
fn comparisons_of_ordinary_contacts_are_never_cut_short() {
    let mut table = table();
    let texts: Vec<String> = (0..8).map(|n| alloc::format!("{};id={n}", turned(6, n))).collect();
    let updates: Vec<Update<'_>> = texts.iter().map(|text| update(text.as_bytes(), b"c", 1, 600)).collect();
    assert_eq!(bind(&mut table, 0, &updates).unwrap().added, 8);
    let texts: Vec<String> = (0..8).map(|n| alloc::format!("{};id={n}", turned(6, n + 1))).collect();
    let updates: Vec<Update<'_>> = texts.iter().map(|text| update(text.as_bytes(), b"c", 2, 600)).collect();
    let done = bind(&mut table, 1, &updates).unwrap();
    assert_eq!((done.added, done.updated, done.bindings), (0, 8, 8));
}

#[test]
fn past_the_bound_of_comparisons_contacts_are_told_apart_by_their_bytes() {
    let mut table = table();
    for n in 0..24 {
        let text = alloc::format!("{};id={n}", turned(60, 0));
        bind(&mut table, 0, &[update(text.as_bytes(), b"c", n + 1, 600)]).unwrap();
    }
    // The same contacts, written otherwise: too much to be compared.
    let texts: Vec<String> = (0..8).map(|n| alloc::format!("{};id={n}", turned(60, 1))).collect();
    let updates: Vec<Update<'_>> = texts.iter().map(|text| update(text.as_bytes(), b"d", 1, 600)).collect();
    let done = bind(&mut table, 1, &updates).unwrap();
    assert!(done.added > 0 && done.bindings <= 32, "{done:?}");
    // The same bytes are found whatever they cost.
    let texts: Vec<String> = (0..16).map(|n| alloc::format!("{};id={n}", turned(60, 0))).collect();
    let updates: Vec<Update<'_>> = texts.iter().map(|text| update(text.as_bytes(), b"c", 100, 600)).collect();
    assert_eq!(bind(&mut table, 2, &updates).unwrap().added, 0);
}
