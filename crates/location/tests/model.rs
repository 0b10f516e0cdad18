//! The table against a naive model of RFC 3261 §10.3, over random requests and times.
//!
//! The model keeps a plain list, copies it, processes the contacts of a request in turn on the copy, and keeps
//! the copy if nothing failed. Times are whole seconds, at which the table's own sweep is exact.

#![allow(clippy::unwrap_used)] // helpers of tests are not recognised as tests

use location::{
    AtLimit, BelowMinimum, CONTACTS_PER_REQUEST_MAX, Limits, Policy, Refusal, Register, Registered, Seeds,
    Table, Update,
};
use proptest::prelude::*;
use sip::Instant;

const LIMITS: Limits =
    Limits { bindings_max: 7, bytes_max: 1 << 20, binding_bytes_max: 400, contacts_per_aor_max: 4 };
const AORS: [&[u8]; 3] = [b"sip:alice@h", b"sip:bob@h", b"sip:carol@h"];
const CALL_IDS: [&[u8]; 3] = [b"c-1", b"c-2", b"a-much-longer-call-id@host.example"];
/// Each contact in two spellings that RFC 3261 §19.1.4 calls equivalent.
const CONTACTS: [[&[u8]; 2]; 6] = [
    [b"sip:a@host.example", b"sip:a@HOST.example"],
    [b"sip:b@host.example;transport=tcp", b"sip:b@host.example;TRANSPORT=TCP"],
    [b"sip:%63@host.example", b"sip:c@host.example"],
    [b"sip:d@192.0.2.1:5070", b"SIP:d@192.0.2.1:5070"],
    [b"sips:e@host.example", b"sips:e@Host.Example"],
    [b"sip:f@host.example;lr", b"sip:f@host.example;LR"],
];

#[derive(Clone, Debug, PartialEq)]
struct Bound {
    aor: usize,
    contact: usize,
    spelling: usize,
    call_id: usize,
    cseq: u32,
    q: u16,
    modified: u64,
    expires: u64,
    /// Its place among the contacts of its request.
    turn: u64,
}

#[derive(Clone, Copy, Debug)]
struct Wish {
    contact: usize,
    spelling: usize,
    expires: Option<u32>,
    q: Option<u16>,
}

#[derive(Clone, Debug)]
enum Op {
    Advance(u64),
    Bind { aor: usize, call_id: usize, cseq: u32, wishes: Vec<Wish> },
    RemoveAll { aor: usize, call_id: usize, cseq: u32 },
    Query { aor: usize },
    Remove { aor: usize, contact: usize },
    Expire { budget: usize },
}

/// A request whose own contacts are settled.
struct Newcomer {
    aor: usize,
    call_id: usize,
    cseq: u32,
    added: usize,
    named: Vec<usize>,
}

#[derive(Default)]
struct Model {
    bound: Vec<Bound>,
}

impl Model {
    /// The bindings of `aor`, by falling q, newest first, those of one request as they stood in it.
    fn ordered(&self, aor: usize) -> Vec<Bound> {
        let mut found: Vec<Bound> = self.bound.iter().filter(|b| b.aor == aor).cloned().collect();
        let time = |b: &Bound| (b.modified * 1_000_000).saturating_sub(b.turn);
        found.sort_by_key(|b| (u16::MAX - b.q, u64::MAX - time(b), CONTACTS[b.contact][b.spelling]));
        found
    }

    fn interval(policy: &Policy, expires: Option<u32>) -> Result<u64, Refusal> {
        let Some(asked) = expires else {
            let seconds = policy.default_expires.max(policy.min_expires);
            return Ok(if policy.max_expires > 0 { seconds.min(policy.max_expires) } else { seconds }.into());
        };
        let mut granted = asked;
        if asked > 0 && asked < policy.min_expires {
            match policy.below_minimum {
                BelowMinimum::Raise => granted = policy.min_expires,
                BelowMinimum::Refuse if asked < 3600 => {
                    return Err(Refusal::IntervalTooBrief { min_expires: policy.min_expires });
                }
                BelowMinimum::Refuse => {}
            }
        }
        Ok(if policy.max_expires > 0 { granted.min(policy.max_expires) } else { granted }.into())
    }

    fn bind(
        &mut self,
        now: u64,
        aor: usize,
        call_id: usize,
        cseq: u32,
        wishes: &[Wish],
        policy: &Policy,
    ) -> Result<(), Refusal> {
        assert!(wishes.len() <= CONTACTS_PER_REQUEST_MAX);
        let before = self.bound.clone();
        let find = |list: &[Bound], contact| list.iter().position(|b| b.aor == aor && b.contact == contact);
        let mut after = before.clone();
        let mut named = Vec::new();
        for (turn, wish) in (0..).zip(wishes) {
            let interval = Model::interval(policy, wish.expires)?;
            let q = wish.q.unwrap_or(policy.default_q);
            let old = find(&before, wish.contact).map(|at| &before[at]);
            if let Some(old) = old.filter(|old| old.call_id == call_id && cseq <= old.cseq) {
                let same = cseq == old.cseq && old.expires - old.modified == interval && old.q == q;
                if !same || interval == 0 {
                    return Err(Refusal::OutOfOrder);
                }
                named.push(wish.contact);
                continue;
            }
            if let Some(at) = find(&after, wish.contact) {
                after.remove(at);
            }
            named.retain(|contact| *contact != wish.contact);
            if interval > 0 {
                named.push(wish.contact);
                after.push(Bound {
                    aor,
                    contact: wish.contact,
                    spelling: wish.spelling,
                    call_id,
                    cseq,
                    q,
                    modified: now,
                    expires: now + interval,
                    turn,
                });
            }
        }
        let added = named.iter().filter(|contact| find(&before, **contact).is_none()).count();
        self.make_room(&mut after, Newcomer { aor, call_id, cseq, added, named }, policy)?;
        if after.len() > LIMITS.bindings_max && after.len() > before.len() {
            return Err(Refusal::TableFull);
        }
        self.bound = after;
        Ok(())
    }

    /// Lets others make way for the newcomer, or refuses it.
    fn make_room(&self, after: &mut Vec<Bound>, new: Newcomer, policy: &Policy) -> Result<(), Refusal> {
        let Newcomer { aor, call_id, cseq, added, named } = new;
        let limit = match policy.max_contacts {
            0 => LIMITS.contacts_per_aor_max,
            n => n.min(LIMITS.contacts_per_aor_max),
        };
        let is_other = |b: &Bound| b.aor == aor && !named.contains(&b.contact);
        let others = after.iter().filter(|b| is_other(b)).count();
        let total = after.iter().filter(|b| b.aor == aor).count();
        let leaving = match policy.at_limit {
            AtLimit::KeepOnlyNamed if !named.is_empty() => others,
            AtLimit::ReplaceOldest if added > 0 => total.saturating_sub(limit).min(others),
            _ => 0,
        };
        if added > 0 && total - leaving > limit {
            return Err(Refusal::TooManyContacts { limit });
        }
        for _ in 0..leaving {
            let oldest = self.ordered(aor).into_iter().filter(|b| is_other(b) && after.contains(b));
            let oldest = oldest.min_by_key(|b| (b.modified * 1_000_000).saturating_sub(b.turn)).unwrap();
            if oldest.call_id == call_id && cseq <= oldest.cseq {
                return Err(Refusal::OutOfOrder);
            }
            after.retain(|b| *b != oldest);
        }
        Ok(())
    }

    fn remove_all(&mut self, aor: usize, call_id: usize, cseq: u32) -> Result<(), Refusal> {
        if self.bound.iter().any(|b| b.aor == aor && b.call_id == call_id && cseq <= b.cseq) {
            return Err(Refusal::OutOfOrder);
        }
        self.bound.retain(|b| b.aor != aor);
        Ok(())
    }
}

fn at(seconds: u64) -> Instant {
    Instant::from_micros(seconds * 1_000_000)
}

fn wish() -> impl Strategy<Value = Wish> {
    let expires = prop_oneof![
        3 => Just(None),
        3 => Just(Some(0)),
        6 => (20_u32..200).prop_map(Some),
        1 => (3590_u32..3610).prop_map(Some),
    ];
    let q = prop_oneof![Just(None), Just(Some(0)), Just(Some(500)), Just(Some(1000))];
    (0..CONTACTS.len(), 0..2_usize, expires, q).prop_map(|(contact, spelling, expires, q)| Wish {
        contact,
        spelling,
        expires,
        q,
    })
}

fn op() -> impl Strategy<Value = Op> {
    let (aor, call_id, cseq) = (0..AORS.len(), 0..CALL_IDS.len(), 0_u32..8);
    prop_oneof![
        3 => (0_u64..90).prop_map(Op::Advance),
        1 => (3000_u64..9000).prop_map(Op::Advance),
        12 => (aor.clone(), call_id.clone(), cseq.clone(), prop::collection::vec(wish(), 1..4))
            .prop_map(|(aor, call_id, cseq, wishes)| Op::Bind { aor, call_id, cseq, wishes }),
        1 => (aor.clone(), call_id, cseq).prop_map(|(aor, call_id, cseq)| Op::RemoveAll { aor, call_id, cseq }),
        1 => aor.clone().prop_map(|aor| Op::Query { aor }),
        1 => (aor, 0..CONTACTS.len()).prop_map(|(aor, contact)| Op::Remove { aor, contact }),
        2 => (0_usize..6).prop_map(|budget| Op::Expire { budget }),
    ]
}

fn policy() -> impl Strategy<Value = Policy> {
    let at_limit =
        prop_oneof![Just(AtLimit::Refuse), Just(AtLimit::ReplaceOldest), Just(AtLimit::KeepOnlyNamed)];
    let below_minimum = prop_oneof![Just(BelowMinimum::Refuse), Just(BelowMinimum::Raise)];
    let (max_expires, max_contacts) = (prop_oneof![Just(0), Just(150)], 0_usize..4);
    (at_limit, below_minimum, max_expires, max_contacts).prop_map(
        |(at_limit, below_minimum, max_expires, max_contacts)| Policy {
            default_expires: 100,
            min_expires: 40,
            max_expires,
            default_q: 500,
            max_contacts,
            at_limit,
            below_minimum,
        },
    )
}

fn apply(table: &mut Table, now: u64, op: &Op, policy: &Policy) -> Option<Result<Registered, Refusal>> {
    Some(match op {
        Op::Bind { aor, call_id, cseq, wishes } => {
            let updates: Vec<Update<'_>> = wishes
                .iter()
                .map(|wish| Update {
                    expires: wish.expires,
                    q: wish.q,
                    ..Update::new(CONTACTS[wish.contact][wish.spelling], CALL_IDS[*call_id], *cseq)
                })
                .collect();
            table.register(at(now), AORS[*aor], &Register::Bind(&updates), policy)
        }
        Op::RemoveAll { aor, call_id, cseq } => {
            let request = Update { expires: Some(0), ..Update::new(&[], CALL_IDS[*call_id], *cseq) };
            let star = Register::star(1, &request).unwrap();
            table.register(at(now), AORS[*aor], &star, policy)
        }
        Op::Query { aor } => table.register(at(now), AORS[*aor], &Register::Query, policy),
        Op::Remove { aor, contact } => {
            table.remove(at(now), AORS[*aor], Some(CONTACTS[*contact][0]));
            return None;
        }
        Op::Expire { budget } => {
            assert!(table.expire(at(now), *budget) <= *budget);
            return None;
        }
        Op::Advance(_) => return None,
    })
}

fn check(table: &Table, model: &Model, now: u64) {
    for (number, aor) in AORS.into_iter().enumerate() {
        let expected: Vec<_> = model
            .ordered(number)
            .into_iter()
            .map(|b| (CONTACTS[b.contact][b.spelling], CALL_IDS[b.call_id], b.cseq, b.q, at(b.expires)))
            .collect();
        let found: Vec<_> = table
            .lookup(at(now), aor)
            .map(|b| (b.contact(), b.call_id(), b.cseq(), b.q(), b.expires_at()))
            .collect();
        assert_eq!(found, expected);
    }
    let live = table.iter().filter(|binding| !binding.is_expired(at(now))).count();
    assert_eq!(live, model.bound.len());
    assert!(table.len() <= LIMITS.bindings_max);
    if let Some(first) = table.iter().map(|binding| binding.expires_at()).min() {
        assert!(table.next_expiry().unwrap() <= first.max(at(now)));
    }
}

proptest! {
    #[test]
    fn table_does_what_the_naive_model_does(
        policy in policy(),
        start in prop_oneof![Just(0_u64), Just(4_090), Just(1_700_000_000)],
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let mut table = Table::new(LIMITS, Seeds([1, 2, 3, 4]));
        let mut model = Model::default();
        let mut now = start;
        for op in &ops {
            if let Op::Advance(seconds) = op {
                now += seconds;
            }
            model.bound.retain(|b| b.expires > now);
            let expected = match op {
                Op::Bind { aor, call_id, cseq, wishes } => {
                    model.bind(now, *aor, *call_id, *cseq, wishes, &policy)
                }
                Op::RemoveAll { aor, call_id, cseq } => model.remove_all(*aor, *call_id, *cseq),
                Op::Remove { aor, contact } => {
                    model.bound.retain(|b| b.aor != *aor || b.contact != *contact);
                    Ok(())
                }
                Op::Advance(_) | Op::Query { .. } | Op::Expire { .. } => Ok(()),
            };
            if let Some(answer) = apply(&mut table, now, op, &policy) {
                prop_assert_eq!(answer.map(|_| ()), expected, "{:?}", op);
            }
            check(&table, &model, now);
        }
        while table.next_expiry().is_some() {
            now = now.max(table.next_expiry().unwrap().as_secs());
            table.expire(at(now), 3);
        }
        prop_assert_eq!((table.len(), table.aors()), (0, 0));
    }
}
