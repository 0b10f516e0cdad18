//! The identifier of a row of ours in a location table (Kamailio's `ruid`).
//!
//! It is `strowger-` and 32 hexadecimal digits: the first 128 bits of SHA-256 over table, username, domain
//! and contact, each preceded by its length as 64 bits, highest byte first. So it follows from what the row
//! is about, nobody has to remember which rows there are, and a phone cannot choose a contact whose row is
//! another one's. It must stay as it is for ever: rows that older versions wrote are found by it.

use sha2::{Digest, Sha256};

/// What all of our identifiers begin with.
pub(crate) const PREFIX: &str = "strowger-";

/// Bytes of an identifier as text.
pub(crate) const LEN: usize = PREFIX.len() + 32;

/// An identifier's 128 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ruid(u128);

impl Ruid {
    /// The identifier of the row for this address-of-record and contact.
    pub(crate) fn of(table: &str, username: &[u8], domain: &[u8], contact: &[u8]) -> Ruid {
        let mut hash = Sha256::new();
        for part in [table.as_bytes(), username, domain, contact] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let mut first = [0; 16];
        first.copy_from_slice(&hash.finalize()[..16]);
        Ruid(u128::from_be_bytes(first))
    }

    /// Reads an identifier of ours; `None` for those of others.
    pub(crate) fn parse(text: &[u8]) -> Option<Ruid> {
        let digits = text.strip_prefix(PREFIX.as_bytes()).filter(|digits| digits.len() == 32)?;
        let mut value = 0u128;
        for &digit in digits {
            let digit = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'f' => digit - b'a' + 10,
                _ => return None,
            };
            value = value << 4 | u128::from(digit);
        }
        Some(Ruid(value))
    }

    /// The 128 bits.
    pub(crate) fn bits(self) -> u128 {
        self.0
    }

    /// The identifier with these bits.
    pub(crate) fn from_bits(bits: u128) -> Ruid {
        Ruid(bits)
    }

    /// As it is stored.
    pub(crate) fn text(self) -> RuidText {
        let mut text = [0; LEN];
        text[..PREFIX.len()].copy_from_slice(PREFIX.as_bytes());
        for (index, digit) in text[PREFIX.len()..].iter_mut().enumerate() {
            let value = (self.0 >> (124 - 4 * index)) as u8 & 15;
            *digit = if value < 10 { b'0' + value } else { b'a' + value - 10 };
        }
        RuidText(text)
    }
}

/// An identifier as text, without allocation.
#[derive(Clone, Copy)]
pub(crate) struct RuidText([u8; LEN]);

impl RuidText {
    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("invariant: a prefix and hexadecimal digits")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_the_same_for_ever() {
        let ruid = Ruid::of("location", b"alice", b"example.com", b"sip:alice@192.0.2.1:5060");
        assert_eq!(ruid.text().as_str(), "strowger-4c65559da5294ba455c22fb1cb489c58");
        assert_eq!(Ruid::parse(ruid.text().as_str().as_bytes()), Some(ruid));
    }

    #[test]
    fn parts_do_not_run_into_one_another() {
        let one = Ruid::of("location", b"ab", b"c", b"d");
        assert_ne!(one, Ruid::of("location", b"a", b"bc", b"d"));
        assert_ne!(one, Ruid::of("location", b"ab", b"cd", b""));
        assert_ne!(one, Ruid::of("locationab", b"", b"c", b"d"));
    }

    #[test]
    fn identifiers_of_others_are_told_apart() {
        for other in ["", "uloc-6b0277b1-1d1f-1", "strowger-", "strowger-0123456789ABCDEF0123456789ABCDEF"] {
            assert_eq!(Ruid::parse(other.as_bytes()), None, "{other}");
        }
    }
}
