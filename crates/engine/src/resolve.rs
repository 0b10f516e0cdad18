//! Names of next hops: questions that are open, and answers that are remembered for a short while.
//!
//! RFC 3263 §4.2 without NAPTR and SRV: A and AAAA records and the transport's default port.

use crate::io::AskId;
use crate::mac::Keys;
use crate::proxy::stateless::Held;
use crate::table::EntryId;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;
use hashbrown::HashMap;
use sip::Instant;
use smallvec::SmallVec;

/// How long an answer, good or bad, is remembered.
const TTL: Duration = Duration::from_secs(30);
/// Names remembered at most; past it all are forgotten.
const NAMES_MAX: usize = 4_096;
/// Addresses remembered for one name.
pub(crate) const ADDRESSES_MAX: usize = 4;
/// Longest name that is asked for (RFC 1035 §2.3.4).
const NAME_BYTES_MAX: usize = 255;

/// Who waits for an answer.
#[derive(Debug)]
pub(crate) enum Waiter {
    /// A branch of a transaction.
    Branch { entry: EntryId, index: u16, name: Box<[u8]> },
    /// A script.
    Script { entry: EntryId },
    /// A request that is forwarded without state.
    Request { held: Box<Held>, name: Box<[u8]> },
}

#[derive(Debug)]
struct Remembered {
    addresses: SmallVec<[IpAddr; ADDRESSES_MAX]>,
    until: Instant,
}

/// What is known of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known<'a> {
    /// These addresses, possibly none.
    Addresses(&'a [IpAddr]),
    /// Nothing.
    No,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Resolver {
    names: HashMap<Box<[u8]>, Remembered, ahash::RandomState>,
    open: HashMap<u64, Waiter, ahash::RandomState>,
    /// How many of those are questions for names: those of scripts are bounded by a limit of their own, and a database that is
    /// slow must not keep names from being found.
    open_names: usize,
    next: u64,
    /// Most questions for names that are open.
    max: usize,
}

impl Resolver {
    pub(crate) fn new(max: usize, keys: &Keys) -> Resolver {
        let hasher = || {
            let (one, two) = (keys.hash(&[b"names"]), keys.hash(&[b"open"]));
            ahash::RandomState::with_seeds(one, two, !one, !two)
        };
        Resolver {
            names: HashMap::with_hasher(hasher()),
            open: HashMap::with_hasher(hasher()),
            open_names: 0,
            next: 1,
            max,
        }
    }

    /// What is known of a name; names compare without case, so they are asked for in lower case.
    pub(crate) fn known(&self, name: &[u8], now: Instant) -> Known<'_> {
        let lower: SmallVec<[u8; 64]> = lowered(name).collect();
        match self.names.get(&lower[..]) {
            Some(remembered) if remembered.until > now => Known::Addresses(&remembered.addresses),
            _ => Known::No,
        }
    }

    /// Registers a question for a name; `None` when too many are open or it cannot be one.
    pub(crate) fn ask(&mut self, waiter: Waiter) -> Option<AskId> {
        let too_long = match &waiter {
            Waiter::Branch { name, .. } | Waiter::Request { name, .. } => name.len() > NAME_BYTES_MAX,
            Waiter::Script { .. } => false,
        };
        if self.open_names >= self.max || too_long {
            return None;
        }
        self.open_names += 1;
        let id = self.next;
        self.next += 1;
        self.open.insert(id, waiter);
        Some(AskId(id))
    }

    /// Registers a script's question; those are bounded by their own limit.
    pub(crate) fn ask_script(&mut self, entry: EntryId) -> AskId {
        let id = self.next;
        self.next += 1;
        self.open.insert(id, Waiter::Script { entry });
        AskId(id)
    }

    /// Whose question it was; `None` for one that is not open.
    pub(crate) fn answered(&mut self, id: AskId) -> Option<Waiter> {
        let waiter = self.open.remove(&id.0);
        if matches!(waiter, Some(Waiter::Branch { .. } | Waiter::Request { .. })) {
            self.open_names -= 1;
        }
        waiter
    }

    /// Questions without an answer.
    pub(crate) fn open(&self) -> usize {
        self.open.len()
    }

    /// Remembers an answer.
    pub(crate) fn remember(&mut self, name: &[u8], addresses: &[IpAddr], now: Instant) {
        if self.names.len() >= NAMES_MAX {
            self.names.retain(|_, remembered| remembered.until > now);
            if self.names.len() >= NAMES_MAX {
                self.names.clear();
            }
        }
        let addresses = addresses.iter().copied().take(ADDRESSES_MAX).collect();
        self.names.insert(name.into(), Remembered { addresses, until: now + TTL });
    }
}

/// A name as it is asked for.
pub(crate) fn lower(name: &[u8]) -> Box<[u8]> {
    lowered(name).collect::<Vec<u8>>().into_boxed_slice()
}

fn lowered(name: &[u8]) -> impl Iterator<Item = u8> {
    name.strip_suffix(b".").unwrap_or(name).iter().map(u8::to_ascii_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: EntryId = EntryId { slot: 0, generation: 0 };

    #[test]
    fn answers_are_remembered_for_the_ttl() {
        let mut resolver = Resolver::new(2, &Keys::new([1; 4]));
        let one: IpAddr = "192.0.2.1".parse().unwrap();
        resolver.remember(b"a.example", &[one], Instant::ZERO);
        resolver.remember(b"none.example", &[], Instant::ZERO);
        let later = Instant::ZERO + Duration::from_secs(29);
        assert_eq!(resolver.known(b"a.example", later), Known::Addresses(&[one]));
        assert_eq!(resolver.known(b"none.example", later), Known::Addresses(&[]));
        assert_eq!(resolver.known(b"a.example", Instant::ZERO + TTL), Known::No);
    }

    #[test]
    fn open_questions_are_bounded_and_answered_once() {
        let mut resolver = Resolver::new(2, &Keys::new([1; 4]));
        let name = || Waiter::Branch { entry: ENTRY, index: 0, name: lower(b"A.example.") };
        let id = resolver.ask(name()).unwrap();
        assert!(resolver.ask(name()).is_some());
        assert!(resolver.ask(name()).is_none());
        assert!(matches!(resolver.answered(id), Some(Waiter::Branch { name, .. }) if *name == *b"a.example"));
        assert!(resolver.answered(id).is_none());
        assert!(resolver.ask(name()).is_some());
        assert!(resolver.ask(name()).is_none());
    }

    #[test]
    fn scripts_that_wait_leave_room_for_names() {
        let mut resolver = Resolver::new(1, &Keys::new([1; 4]));
        let ids: Vec<AskId> = (0..10).map(|_| resolver.ask_script(ENTRY)).collect();
        let name = || Waiter::Branch { entry: ENTRY, index: 0, name: lower(b"a.example") };
        assert!(resolver.ask(name()).is_some());
        for id in ids {
            assert!(resolver.answered(id).is_some());
        }
        assert!(resolver.ask(name()).is_none(), "one name is open still");
    }
}
