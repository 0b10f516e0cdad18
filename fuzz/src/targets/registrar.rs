//! The location table (RFC 3261 §10.3) against a list, and a store that follows its changes against the table.

use super::input::Input;
use location::{
    AtLimit, BelowMinimum, Binding, Change, Changed, Limits, Policy, Refusal, Register, Seeds, Table, Traces,
    Update,
};
use sip::Instant;
use std::collections::BTreeMap;

const LIMITS: Limits =
    Limits { bindings_max: 6, bytes_max: 1 << 16, binding_bytes_max: 300, contacts_per_aor_max: 4 };
const POLICY: Policy = Policy {
    default_expires: 100,
    min_expires: 40,
    max_expires: 150,
    default_q: 500,
    max_contacts: 3,
    at_limit: AtLimit::Refuse,
    below_minimum: BelowMinimum::Refuse,
};
const AORS: [&[u8]; 3] = [b"sip:alice@h", b"sip:bob@h", b"sip:carol@h"];
const CALL_IDS: [&[u8]; 3] = [b"c-1", b"c-2", b"a-much-longer-call-id@host.example"];
/// Each contact in two spellings that RFC 3261 §19.1.4 calls equivalent.
const CONTACTS: [[&[u8]; 2]; 6] = [
    [b"sip:a@host.example", b"sip:a@HOST.example"],
    [b"sip:b@host.example;transport=tcp", b"sip:b@host.example;TRANSPORT=TCP"],
    [b"sip:%63@host.example", b"sip:c@host.example"],
    [b"sip:d@192.0.2.1:5070", b"SIP:d@192.0.2.1:5070"],
    [b"sips:e@host.example", b"sips:e@Host.Example"],
    [b"sip:f@[2001:db8::1];lr", b"sip:f@[2001:DB8:0::1];LR"],
];
/// Intervals that a contact asks for.
const INTERVALS: [Option<u32>; 7] =
    [None, Some(0), Some(39), Some(40), Some(90), Some(3_600), Some(u32::MAX)];
/// Most operations of one input.
const OPERATIONS_MAX: usize = 60;

/// A binding as the list has it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Bound {
    aor: usize,
    contact: usize,
    spelling: usize,
    call_id: usize,
    cseq: u32,
    q: u16,
    interval: u64,
    /// When the request came that made it so.
    came: u64,
    expires: u64,
}

/// One contact of a request.
#[derive(Clone, Copy, Debug)]
struct Wish {
    contact: usize,
    spelling: usize,
    expires: Option<u32>,
    q: Option<u16>,
}

/// A request.
#[derive(Clone, Debug)]
struct Asked {
    aor: usize,
    call_id: usize,
    cseq: u32,
    /// How long it has waited, in seconds, if it has.
    waited: Option<u64>,
    wishes: Vec<Wish>,
}

/// See [`TARGETS`](crate::TARGETS). The bytes are operations.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut world = World::new();
    for _ in 0..OPERATIONS_MAX {
        if input.is_empty() {
            break;
        }
        world.operate(&mut input);
        world.check();
    }
    world.end();
}

/// By address-of-record and contact: Call-ID, CSeq and end of a binding.
type Store = BTreeMap<(Vec<u8>, Vec<u8>), (Vec<u8>, u32, Instant)>;

struct World {
    table: Table,
    list: Vec<Bound>,
    /// When the last request came that removed contacts of each address-of-record.
    removals: [u64; AORS.len()],
    /// What a store has that applies every change.
    store: Store,
    now: u64,
}

impl World {
    fn new() -> World {
        let mut table = Table::new(LIMITS, Seeds([1, 2, 3, 4]));
        table.track_changes(1_000);
        World {
            table,
            list: Vec::new(),
            removals: [0; AORS.len()],
            store: BTreeMap::new(),
            now: 1_700_000_000,
        }
    }

    fn operate(&mut self, input: &mut Input<'_>) {
        match input.below(12) {
            0..=5 => {
                let asked = asked(input);
                let undone = input.below(4) == 3;
                self.register(&asked, undone);
            }
            6 => self.remove_all(input),
            7 => {
                self.now += u64::from(input.byte());
                let now = self.now;
                self.list.retain(|bound| bound.expires > now);
            }
            8 => {
                let budget = input.below(5);
                assert!(self.table.expire(at(self.now), budget) <= budget);
            }
            9 => {
                let (aor, contact) = (input.below(3), input.below(6));
                let there = self.list.iter().filter(|b| b.aor == aor && b.contact == contact).count();
                let gone = self.table.remove(at(self.now), AORS[aor], Some(CONTACTS[contact][0]));
                assert_eq!(gone, there);
                self.removals[aor] = self.now;
                self.list.retain(|bound| bound.aor != aor || bound.contact != contact);
            }
            10 => {
                let aor = input.below(3);
                let answer = self.table.register(at(self.now), AORS[aor], &Register::Query, &POLICY);
                let bindings = self.list.iter().filter(|bound| bound.aor == aor).count();
                assert_eq!(answer.map(|done| done.bindings), Ok(bindings));
            }
            _ => {
                self.drain(input.below(4));
            }
        }
    }

    /// Registers in the table and in the list, and undoes it in the table if asked.
    fn register(&mut self, asked: &Asked, undone: bool) {
        let updates: Vec<Update<'_>> =
            asked.wishes.iter().map(|wish| update(asked, wish, self.now)).collect();
        let (mut before, mut after): (Vec<Binding>, Vec<Binding>) = (Vec::new(), Vec::new());
        let (mut bound, mut traces) = (Vec::new(), Traces::default());
        let now = at(self.now);
        let aor = AORS[asked.aor];
        let request = Register::Bind(&updates);
        let answer = self.table.register_tentatively(now, aor, &request, &POLICY, &mut |changed| {
            traces.note(&changed);
            match changed {
                Changed::Before(binding) => before.push(binding.clone()),
                Changed::After(binding) => after.push(binding.clone()),
                Changed::Bound(binding) => bound.push(binding.clone()),
            }
        });
        if answer.is_ok() {
            assert!(self.table.lookup(now, aor).eq(&bound), "{asked:?}");
        }
        assert_eq!(Traces::read(traces.as_bytes()), (before.clone(), after.clone()), "{asked:?}");
        let wanted = bind(&self.list, self.now, asked, self.removals[asked.aor]);
        assert_eq!(answer.map(|_| ()), wanted.as_ref().map(|_| ()).map_err(|refusal| *refusal), "{asked:?}");
        if wanted.is_ok() && asked.wishes.iter().any(|wish| wish.expires == Some(0)) {
            self.removals[asked.aor] = self.removals[asked.aor].max(asked.came(self.now));
        }
        match wanted {
            Ok(_) if undone => assert!(self.table.undo(now, aor, &before, &after), "{asked:?}"),
            Ok(list) => self.list = list,
            Err(refusal) => assert!((400..600).contains(&refusal.status())),
        }
    }

    fn remove_all(&mut self, input: &mut Input<'_>) {
        let asked = Asked { wishes: Vec::new(), ..asked(input) };
        let Asked { aor, call_id, cseq, .. } = asked;
        let waiting_since = asked.waited.map(|waited| at(self.now - waited));
        let request = Update { expires: Some(0), waiting_since, ..Update::new(&[], CALL_IDS[call_id], cseq) };
        let star = Register::star(1, &request).expect("invariant: alone and with Expires 0");
        let answer = self.table.register(at(self.now), AORS[aor], &star, &POLICY);
        let blocked =
            self.list.iter().any(|bound| bound.aor == aor && bound.call_id == call_id && cseq <= bound.cseq);
        let overtaken = self.list.iter().any(|bound| bound.aor == aor && asked.is_overtaken(bound, self.now));
        if blocked {
            assert_eq!(answer.err(), Some(Refusal::OutOfOrder));
        } else if overtaken {
            assert_eq!(answer.err(), Some(Refusal::Overtaken));
        } else {
            self.removals[aor] = self.removals[aor].max(asked.came(self.now));
            assert_eq!(answer.map(|done| done.bindings), Ok(0));
            self.list.retain(|bound| bound.aor != aor);
        }
    }

    fn drain(&mut self, budget: usize) -> usize {
        let store = &mut self.store;
        let drained = self.table.drain_changes(budget, &mut |change| match change {
            Change::Saved(binding) => {
                let kept = (binding.call_id().to_vec(), binding.cseq(), binding.expires_at());
                store.insert((binding.aor().to_vec(), binding.contact().to_vec()), kept);
            }
            Change::Removed(binding) => {
                store.remove(&(binding.aor().to_vec(), binding.contact().to_vec()));
            }
        });
        assert!(drained.changes <= budget && !drained.lost);
        drained.left
    }

    fn check(&self) {
        for (number, aor) in AORS.iter().enumerate() {
            let mut wanted: Vec<_> = self
                .list
                .iter()
                .filter(|bound| bound.aor == number)
                .map(|b| (CONTACTS[b.contact][b.spelling], CALL_IDS[b.call_id], b.cseq, b.q, at(b.expires)))
                .collect();
            wanted.sort();
            let found: Vec<&Binding> = self.table.lookup(at(self.now), aor).collect();
            // RFC 3261 §16.5: higher q first.
            assert!(found.windows(2).all(|pair| pair[0].q() >= pair[1].q()));
            let mut found: Vec<_> =
                found.iter().map(|b| (b.contact(), b.call_id(), b.cseq(), b.q(), b.expires_at())).collect();
            found.sort();
            assert_eq!(found, wanted);
        }
        assert!(self.table.len() <= LIMITS.bindings_max);
        assert!(self.table.len() >= self.list.len());
    }

    /// A store that has applied all changes has what the table has; at rest both are empty.
    fn end(mut self) {
        for _ in 0..1_000 {
            if self.drain(3) == 0 {
                break;
            }
        }
        let held: Store = self
            .table
            .iter()
            .map(|b| {
                ((b.aor().to_vec(), b.contact().to_vec()), (b.call_id().to_vec(), b.cseq(), b.expires_at()))
            })
            .collect();
        assert_eq!(self.store, held, "the store lags behind");
        while let Some(next) = self.table.next_expiry() {
            self.now = self.now.max(next.as_secs());
            self.table.expire(at(self.now), 3);
        }
        while self.drain(5) > 0 {}
        assert_eq!((self.table.len(), self.table.aors(), self.store.len()), (0, 0, 0));
    }
}

fn at(seconds: u64) -> Instant {
    Instant::from_micros(seconds * 1_000_000)
}

impl Asked {
    fn came(&self, now: u64) -> u64 {
        now - self.waited.unwrap_or(0)
    }

    /// Whether the request waited while another client's, that came no earlier, made a binding what it is.
    fn is_overtaken(&self, bound: &Bound, now: u64) -> bool {
        self.waited.is_some() && bound.came >= self.came(now) && bound.call_id != self.call_id
    }
}

fn asked(input: &mut Input<'_>) -> Asked {
    let (aor, call_id, cseq) = (input.below(3), input.below(3), u32::from(input.byte() % 8));
    let mut wishes: Vec<Wish> = Vec::new();
    for _ in 0..1 + input.below(3) {
        let wish = Wish {
            contact: input.below(6),
            spelling: input.below(2),
            expires: *input.pick(&INTERVALS),
            q: *input.pick(&[None, Some(0), Some(1_000)]),
        };
        // What a contact that is there twice means, the table's own tests say.
        if wishes.iter().all(|other| other.contact != wish.contact) {
            wishes.push(wish);
        }
    }
    let waited = *input.pick(&[None, None, None, Some(0), Some(1), Some(30)]);
    Asked { aor, call_id, cseq, waited, wishes }
}

fn update<'a>(asked: &Asked, wish: &Wish, now: u64) -> Update<'a> {
    let contact = CONTACTS[wish.contact][wish.spelling];
    let (expires, q) = (wish.expires, wish.q);
    let waiting_since = asked.waited.map(|waited| at(now - waited));
    Update { expires, q, waiting_since, ..Update::new(contact, CALL_IDS[asked.call_id], asked.cseq) }
}

/// RFC 3261 §10.3 step 7, all or nothing: the list afterwards. The last request that removed contacts came at `removal`.
fn bind(list: &[Bound], now: u64, asked: &Asked, removal: u64) -> Result<Vec<Bound>, Refusal> {
    let mut after = list.to_vec();
    let mut added = 0;
    for wish in &asked.wishes {
        let interval = interval(wish.expires)?;
        let q = wish.q.unwrap_or(POLICY.default_q);
        let place = after.iter().position(|b| b.aor == asked.aor && b.contact == wish.contact);
        if let Some(old) = place.map(|place| &after[place])
            && old.call_id == asked.call_id
            && asked.cseq <= old.cseq
        {
            // A copy of the request that made the binding changes nothing; anything else is out of order.
            let copy = asked.cseq == old.cseq && (old.interval, old.q) == (interval, q) && interval > 0;
            if !copy {
                return Err(Refusal::OutOfOrder);
            }
            continue;
        }
        // In the order that they are received: what came later stands.
        let is_overtaken = match place.map(|place| &after[place]) {
            Some(old) => asked.is_overtaken(old, now),
            None => interval > 0 && asked.waited.is_some() && removal >= asked.came(now),
        };
        if is_overtaken {
            return Err(Refusal::Overtaken);
        }
        if let Some(place) = place {
            after.remove(place);
        }
        if interval > 0 {
            added += usize::from(place.is_none());
            after.push(Bound {
                aor: asked.aor,
                contact: wish.contact,
                spelling: wish.spelling,
                call_id: asked.call_id,
                cseq: asked.cseq,
                q,
                interval,
                came: asked.came(now),
                expires: asked.came(now) + interval,
            });
        }
    }
    if added > 0 && after.iter().filter(|bound| bound.aor == asked.aor).count() > POLICY.max_contacts {
        return Err(Refusal::TooManyContacts { limit: POLICY.max_contacts });
    }
    if after.len() > LIMITS.bindings_max && after.len() > list.len() {
        return Err(Refusal::TableFull);
    }
    Ok(after)
}

fn interval(expires: Option<u32>) -> Result<u64, Refusal> {
    match expires {
        None => Ok(100),
        Some(seconds @ 1..=39) => {
            assert!(seconds < POLICY.min_expires);
            Err(Refusal::IntervalTooBrief { min_expires: POLICY.min_expires })
        }
        Some(seconds) => Ok(u64::from(seconds.min(POLICY.max_expires))),
    }
}
