//! The hash algorithms of digest authentication and their results (RFC 7616 §3.3, RFC 8760 §2.1).

use crate::token;
use core::fmt;
use md5::Md5;
use sha2::{Digest, Sha256, Sha512_256};
use subtle::ConstantTimeEq;

/// Bytes of the longest hash in hexadecimal.
pub const HEX_MAX: usize = 64;

/// A hash algorithm (RFC 8760 §2.1), the weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// `MD5`: what is meant where no algorithm is named.
    Md5,
    /// `SHA-256`.
    Sha256,
    /// `SHA-512-256`.
    Sha512_256,
}

impl Algorithm {
    /// All of them in the order in which they are offered (RFC 8760 §2.3: the most preferred is the topmost).
    pub const STRONGEST_FIRST: [Algorithm; 3] = [Algorithm::Sha512_256, Algorithm::Sha256, Algorithm::Md5];

    /// Its name in challenges and credentials.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Md5 => "MD5",
            Algorithm::Sha256 => "SHA-256",
            Algorithm::Sha512_256 => "SHA-512-256",
        }
    }

    /// The algorithm of that name, in any case, and whether the name is that of its `-sess` form; `None` if it
    /// is unknown.
    pub fn parse(name: &[u8]) -> Option<(Algorithm, bool)> {
        const SESSION: &[u8] = b"-sess";
        let (base, session) = match name.split_last_chunk::<{ SESSION.len() }>() {
            Some((base, end)) if end.eq_ignore_ascii_case(SESSION) => (base, true),
            _ => (name, false),
        };
        let known = Algorithm::STRONGEST_FIRST;
        let algorithm = known.into_iter().find(|known| known.name().as_bytes().eq_ignore_ascii_case(base))?;
        Some((algorithm, session))
    }

    /// How many digits its hashes have: 32 or 64.
    pub const fn hex_len(self) -> usize {
        match self {
            Algorithm::Md5 => 32,
            Algorithm::Sha256 | Algorithm::Sha512_256 => HEX_MAX,
        }
    }

    /// The hash of these parts with a colon between each two: `H(A1)` of user, realm and password (RFC 7616
    /// §3.4.2).
    pub fn hash_joined(self, parts: &[&[u8]]) -> Hex {
        match self {
            Algorithm::Md5 => joined::<Md5>(parts),
            Algorithm::Sha256 => joined::<Sha256>(parts),
            Algorithm::Sha512_256 => joined::<Sha512_256>(parts),
        }
    }
}

fn joined<D: Digest>(parts: &[&[u8]]) -> Hex {
    let mut hash = D::new();
    let mut between: &[u8] = b"";
    for part in parts {
        hash.update(between);
        hash.update(part);
        between = b":";
    }
    Hex::of(&hash.finalize())
}

/// A hash in lower-case hexadecimal: 32 or 64 digits.
///
/// It may be a password's: comparing two takes as long wherever they differ, and `Debug` does not show it.
#[derive(Clone, Copy)]
pub struct Hex {
    /// Zero behind the digits.
    digits: [u8; HEX_MAX],
    len: u8,
}

impl Hex {
    /// What is in `bytes`, of which there are 32 at most.
    fn of(bytes: &[u8]) -> Hex {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut digits = [0; HEX_MAX];
        let mut len = 0;
        for (two, byte) in digits.chunks_exact_mut(2).zip(bytes) {
            two.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
            len += 2;
        }
        Hex { digits, len }
    }

    /// Reads a hash that was written down: 32 or 64 hexadecimal digits of either case; `None` for anything
    /// else.
    pub fn parse(text: &[u8]) -> Option<Hex> {
        let fits =
            matches!(text.len(), 32 | HEX_MAX) && text.iter().all(|&digit| token::hex(digit).is_some());
        fits.then(|| Hex::lower(text)).flatten()
    }

    /// `text` in lower case, whatever it is; `None` if it is longer than a hash.
    fn lower(text: &[u8]) -> Option<Hex> {
        let mut digits = [0; HEX_MAX];
        digits.get_mut(..text.len())?.copy_from_slice(text);
        digits.make_ascii_lowercase();
        Some(Hex { digits, len: u8::try_from(text.len()).ok()? })
    }

    /// Its digits.
    pub fn as_bytes(&self) -> &[u8] {
        self.digits.get(..usize::from(self.len)).unwrap_or(&[])
    }
}

impl PartialEq for Hex {
    fn eq(&self, other: &Hex) -> bool {
        (self.digits.ct_eq(&other.digits) & self.len.ct_eq(&other.len)).into()
    }
}

impl Eq for Hex {}

impl fmt::Debug for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hex({} digits)", self.len)
    }
}
