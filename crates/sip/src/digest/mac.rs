//! A message authentication code: HMAC-SHA-256 (RFC 2104).

use core::fmt;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Bytes of a code.
pub const MAC_BYTES: usize = 32;

/// Bytes that SHA-256 takes at once.
const BLOCK: usize = 64;

/// A key, prepared: a code costs as many blocks as the data has, and two.
#[derive(Clone)]
pub struct MacKey {
    /// SHA-256 after the inner and after the outer key.
    inner: Sha256,
    outer: Sha256,
}

impl MacKey {
    /// Prepares a key of any length; one longer than 64 bytes counts as its hash (RFC 2104 §2).
    pub fn new(key: &[u8]) -> MacKey {
        let mut block = [0; BLOCK];
        match block.get_mut(..key.len()) {
            Some(short) => short.copy_from_slice(key),
            None => block[..MAC_BYTES].copy_from_slice(&Sha256::digest(key)),
        }
        let start = |pad: u8| Sha256::new_with_prefix(block.map(|byte| byte ^ pad));
        MacKey { inner: start(0x36), outer: start(0x5c) }
    }

    /// The code of these parts, one behind the other. Nothing marks where one ends: where that matters, all but
    /// the last have a fixed length or bring their own.
    pub fn mac(&self, parts: &[&[u8]]) -> [u8; MAC_BYTES] {
        let mut inner = self.inner.clone();
        parts.iter().for_each(|part| inner.update(part));
        let mut outer = self.outer.clone();
        outer.update(inner.finalize());
        outer.finalize().into()
    }
}

/// Whether two codes (or pieces of them) are the same; takes as long wherever they differ.
pub fn same_mac(one: &[u8], other: &[u8]) -> bool {
    one.ct_eq(other).into()
}

impl fmt::Debug for MacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MacKey")
    }
}
