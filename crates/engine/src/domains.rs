//! The names that TLS peers must prove (RFC 5922 §7.1), as numbers that fit into a [`Path`](crate::Path).

use crate::io::DomainId;
use crate::mac::Keys;
use alloc::boxed::Box;
use alloc::vec::Vec;
use hashbrown::HashMap;
use smallvec::SmallVec;

/// Names known at once. The next one pushes out the one that was learned first; whoever still holds its number finds no
/// name and verifies the address, which proves no less.
const DOMAINS_MAX: usize = 4_096;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Domains {
    numbers: HashMap<Box<[u8]>, u32, ahash::RandomState>,
    /// By number, round and round.
    names: Vec<(u32, Box<[u8]>)>,
    last: u32,
}

impl Domains {
    pub(crate) fn new(keys: &Keys) -> Domains {
        Domains { numbers: HashMap::with_hasher(keys.random_state(b"domains")), names: Vec::new(), last: 0 }
    }

    /// The number of a name; names compare without case and without the dot at their end.
    pub(crate) fn intern(&mut self, name: &[u8]) -> DomainId {
        let bare = name.strip_suffix(b".").unwrap_or(name);
        let lower: SmallVec<[u8; 64]> = bare.iter().map(u8::to_ascii_lowercase).collect();
        if let Some(number) = self.numbers.get(&lower[..]) {
            return DomainId(*number);
        }
        self.last = self.last.checked_add(1).unwrap_or(1);
        let entry = (self.last, Box::from(&lower[..]));
        let place = Domains::place(self.last);
        match self.names.get_mut(place) {
            Some(old) => {
                let (_, old) = core::mem::replace(old, entry);
                self.numbers.remove(&old);
            }
            None => self.names.push(entry),
        }
        self.numbers.insert(Box::from(&lower[..]), self.last);
        DomainId(self.last)
    }

    /// The name of a number; empty if it has none, or no longer.
    pub(crate) fn name(&self, id: DomainId) -> &[u8] {
        match self.names.get(Domains::place(id.0)) {
            Some((number, name)) if *number == id.0 => name,
            _ => b"",
        }
    }

    fn place(number: u32) -> usize {
        (number.wrapping_sub(1) as usize) % DOMAINS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_number_however_it_is_written() {
        let mut domains = Domains::new(&Keys::new([1; 4]));
        let id = domains.intern(b"SIP.Example.org.");
        assert_ne!(id, DomainId::NONE);
        assert_eq!(domains.intern(b"sip.example.org"), id);
        assert_eq!(domains.name(id), b"sip.example.org");
        assert_ne!(domains.intern(b"example.org"), id);
        assert_eq!(domains.name(DomainId::NONE), b"");
        assert_eq!(domains.name(DomainId(77)), b"");
    }

    #[test]
    fn the_oldest_name_is_forgotten_and_its_number_means_nothing_else() {
        let mut domains = Domains::new(&Keys::new([1; 4]));
        let first = domains.intern(b"first");
        for number in 0..DOMAINS_MAX {
            domains.intern(alloc::format!("n{number}").as_bytes());
        }
        assert_eq!(domains.name(first), b"");
        assert_eq!(domains.numbers.len(), DOMAINS_MAX);
        assert_eq!(domains.names.len(), DOMAINS_MAX);
        let again = domains.intern(b"first");
        assert_ne!(again, first);
        assert_eq!(domains.name(again), b"first");
    }
}
