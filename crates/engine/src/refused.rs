//! INVITEs within a dialog that were refused without state, and those whose transaction ended by Timer H. The To tag of the
//! ACK may be the dialog's, not one of ours: it is known by its branch, which is that of its INVITE (RFC 3261 §17.1.1.3).

use crate::shard::{Core, is_magic_key, request_key};
use alloc::vec::Vec;
use sip::{Message, Method};

/// Refusals remembered at most, a power of two; a later one may take an earlier one's place, whose ACK then goes on to a
/// callee who ignores it.
const REFUSED_MAX: usize = 4_096;

/// Hashes of their keys; empty until there is one.
#[derive(Debug, Default)]
pub(crate) struct Refused(Vec<u64>);

impl Refused {
    /// An INVITE that has no transaction any more, and was refused.
    pub(crate) fn remember(&mut self, hash: u64) {
        self.0.resize(REFUSED_MAX, 0);
        if let Some(slot) = self.0.get_mut(place(hash)) {
            *slot = mark(hash);
        }
    }

    /// Whether the INVITE with this hash was refused.
    pub(crate) fn holds(&self, hash: u64) -> bool {
        self.0.get(place(hash)) == Some(&mark(hash))
    }
}

fn place(hash: u64) -> usize {
    (hash >> 32) as usize & (REFUSED_MAX - 1)
}

/// Never that of an empty slot.
fn mark(hash: u64) -> u64 {
    hash | 1
}

impl<S> Core<S> {
    /// A request is answered without state.
    pub(crate) fn note_stateless(&mut self, request: &Message<'_>, status: u16) {
        if request.method() != Method::Invite || status < 300 || request.to_tag().is_none() {
            return;
        }
        // Without the magic cookie it has more in common with the ACK of a 2xx than a branch.
        if let Some(key) = request_key(request, Method::Invite).filter(|key| is_magic_key(key)) {
            self.refused.remember(self.keys.hash(&[&key]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_remembered() {
        let mut refused = Refused::default();
        assert!(!refused.holds(0));
        let hashes = |from: u64| (from..from + REFUSED_MAX as u64).map(|place| place << 32 | 7);
        for from in [0, 1 << 20] {
            hashes(from).for_each(|hash| refused.remember(hash));
            assert!(hashes(from).all(|hash| refused.holds(hash)));
        }
        assert!(!hashes(0).any(|hash| refused.holds(hash)));
        assert_eq!(refused.0.len(), REFUSED_MAX);
    }
}
