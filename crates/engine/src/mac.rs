//! Keyed hashes: what an outsider must not be able to guess (SipHash), and what must only be fast (aHash).
//!
//! Both take their keys from [`Config::seed`](crate::Config::seed), so that equal inputs give equal outputs.

use core::hash::Hasher;

/// What a keyed hash is for; two purposes never give the same value for the same bytes by construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Purpose {
    /// The cookie of a branch of ours (RFC 3261 §16.6 item 8).
    Cookie = 1,
    /// The To tag of a response of ours (RFC 3261 §8.2.6.2, §8.2.7).
    ToTag = 2,
    /// The deterministic branch of a stateless proxy (RFC 3261 §16.11).
    Stateless = 3,
    /// The token that marks our Record-Route.
    OwnToken = 4,
    /// The address of a connection in a Record-Route of ours (RFC 5626 §5.2).
    FlowToken = 5,
}

/// The keys of one server; all shards share them.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    seed: [u64; 4],
    fast: ahash::RandomState,
}

impl Keys {
    pub(crate) fn new(seed: [u64; 4]) -> Keys {
        let fast = ahash::RandomState::with_seeds(seed[0], seed[1], seed[2], seed[3]);
        Keys { seed, fast }
    }

    /// An unguessable number for `parts`; each part is closed, so that moving bytes between parts changes it.
    #[allow(deprecated)] // SipHash-2-4 of core: deprecated as a map's hasher, not as a function.
    pub(crate) fn mac(&self, purpose: Purpose, parts: &[&[u8]]) -> u64 {
        let (first, second) = if purpose as u8 & 1 == 0 { (0, 1) } else { (2, 3) };
        let mut hasher = core::hash::SipHasher::new_with_keys(self.seed[first], self.seed[second]);
        hasher.write(&[purpose as u8]);
        for part in parts {
            hasher.write(part);
            hasher.write(&(part.len() as u64).to_le_bytes());
        }
        hasher.finish()
    }

    /// A fast hash for tables and loop marks.
    pub(crate) fn hash(&self, parts: &[&[u8]]) -> u64 {
        use core::hash::BuildHasher;
        let mut hasher = self.fast.build_hasher();
        for part in parts {
            hasher.write(part);
            hasher.write_u32(part.len() as u32);
        }
        hasher.finish()
    }

    /// What the tables of one kind hash with.
    pub(crate) fn random_state(&self, kind: &[u8]) -> ahash::RandomState {
        let (one, two) = (self.hash(&[kind, b"1"]), self.hash(&[kind, b"2"]));
        ahash::RandomState::with_seeds(one, two, !one, !two)
    }

    /// A streaming fast hash.
    pub(crate) fn hasher(&self) -> ahash::AHasher {
        use core::hash::BuildHasher;
        self.fast.build_hasher()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purposes_and_part_boundaries_change_the_value() {
        let keys = Keys::new([1, 2, 3, 4]);
        let one = keys.mac(Purpose::Cookie, &[b"ab", b"c"]);
        assert_eq!(one, keys.mac(Purpose::Cookie, &[b"ab", b"c"]));
        assert_ne!(one, keys.mac(Purpose::Cookie, &[b"a", b"bc"]));
        assert_ne!(one, keys.mac(Purpose::Stateless, &[b"ab", b"c"]));
        assert_ne!(one, Keys::new([1, 2, 3, 5]).mac(Purpose::Cookie, &[b"ab", b"c"]));
        assert_ne!(keys.hash(&[b"ab", b"c"]), keys.hash(&[b"a", b"bc"]));
    }
}
