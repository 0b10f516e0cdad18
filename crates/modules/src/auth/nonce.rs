//! Nonces that carry their own time and proof (RFC 7616 §3.3, §5.4): they need a key and no table.
//!
//! ```text
//! base64url( issued: u32 seconds | random: u64 | 15 bytes of HMAC-SHA-256(key, issued | random | realm) )
//! ```
//!
//! Whoever has the key (every shard, every node with the same `secret`) knows a nonce of any of them. What the
//! code has beyond the 15 bytes that are shown is never shown: 8 bytes of it are the nonce's identity, which is
//! where its counts are kept, so that nobody can choose nonces that meet there.

use core::fmt;
use core::hash::Hasher;
use sip::digest::{MAC_BYTES, MacKey, same_mac};

/// Bytes of a nonce before they are encoded.
const BYTES: usize = TIME_BYTES + RANDOM_BYTES + SHOWN_BYTES;
const TIME_BYTES: usize = 4;
const RANDOM_BYTES: usize = 8;
/// Bytes of the code that are shown: 120 bits to be guessed.
const SHOWN_BYTES: usize = 15;

/// Characters of a nonce: a multiple of four, so that there is no padding.
pub(crate) const NONCE_CHARS: usize = BYTES / 3 * 4;

/// Everything keyed that authentication needs, made once from the server's secret. `Debug` shows nothing of it.
#[derive(Clone)]
pub(crate) struct NonceKey {
    mac: MacKey,
    /// Keys of the fast hashes; see [`Purpose`].
    sip: [u64; 2],
}

/// What a fast keyed hash is for: two purposes never give the same value for the same bytes by construction.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(crate) enum Purpose {
    /// What a request with a nonce count looked like.
    Fingerprint = 1,
    /// Where failed attempts from an address are counted.
    Source = 2,
    /// Where failed attempts for a user are counted.
    User = 3,
    /// A user and an address that belong together.
    Pair = 4,
}

/// A nonce of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nonce {
    /// Tells it from others; nobody outside can know or choose it. It is the `hash` of
    /// [`Services::with_nonces`](crate::services::Services::with_nonces), too.
    pub(crate) identity: u64,
    /// When it was made, in seconds since 1970.
    pub(crate) issued_secs: u32,
}

impl Nonce {
    /// Whether it has not expired at `now_secs` since 1970. One from more than `drift_secs` ahead, by which the clocks of two
    /// nodes with one key may differ, was made before this clock was put back.
    pub(crate) fn is_young(&self, now_secs: u64, expire_secs: u32, drift_secs: u32) -> bool {
        let now = seconds(now_secs);
        let (ahead, age) = (self.issued_secs.saturating_sub(now), now.saturating_sub(self.issued_secs));
        ahead <= drift_secs && age <= expire_secs
    }
}

/// A nonce as it is written: base64url (RFC 4648 §5), so that nothing has to be escaped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct NonceText([u8; NONCE_CHARS]);

impl NonceText {
    /// Its characters.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for NonceText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.escape_ascii(), f)
    }
}

impl fmt::Debug for NonceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NonceKey")
    }
}

impl NonceKey {
    /// The key of a server: `secret` of the configuration, of any length, or 32 random bytes. Equal secrets
    /// make equal keys.
    pub(crate) fn new(secret: &[u8]) -> NonceKey {
        let root = MacKey::new(secret);
        // A key of its own for each use: what one tells does not help with the other.
        let [a, b, ..] = words(&root.mac(&[b"strowger fast hashes"]));
        NonceKey { mac: MacKey::new(&root.mac(&[b"strowger nonces"])), sip: [a, b] }
    }

    /// A new nonce for `realm`. `now_secs` are seconds since 1970 (until the year 2106), `random` comes from
    /// the shard's generator: equal arguments make equal nonces.
    pub(crate) fn issue(&self, realm: &[u8], now_secs: u64, random: u64) -> NonceText {
        let mut bytes = [0; BYTES];
        let (issued, rest) = bytes.split_at_mut(TIME_BYTES);
        issued.copy_from_slice(&seconds(now_secs).to_be_bytes());
        rest[..RANDOM_BYTES].copy_from_slice(&random.to_le_bytes());
        let code = self.code(&bytes, realm);
        bytes[TIME_BYTES + RANDOM_BYTES..].copy_from_slice(&code[..SHOWN_BYTES]);
        NonceText(encode(&bytes))
    }

    /// A nonce that was made with this key for `realm`; `None`: it is not ours, and credentials with it are none. Takes as long
    /// whichever byte of the code is wrong.
    pub(crate) fn read(&self, realm: &[u8], nonce: &[u8]) -> Option<Nonce> {
        let bytes = decode(nonce)?;
        let code = self.code(&bytes, realm);
        let shown = &bytes[TIME_BYTES + RANDOM_BYTES..];
        if !same_mac(shown, &code[..SHOWN_BYTES]) {
            return None;
        }
        let [.., identity, _] = words(&code);
        let [a, b, c, d, ..] = bytes;
        Some(Nonce { identity, issued_secs: u32::from_be_bytes([a, b, c, d]) })
    }

    /// What tells a retransmission from another request: a keyed hash of the parts of it that do.
    pub(crate) fn fingerprint(&self, parts: &[&[u8]]) -> u64 {
        self.hash(Purpose::Fingerprint, parts)
    }

    /// A fast hash that an outsider cannot know. Each part is closed: moving bytes between parts changes it.
    pub(crate) fn hash(&self, purpose: Purpose, parts: &[&[u8]]) -> u64 {
        let mut hasher = self.hasher(purpose);
        for part in parts {
            hasher.write(part);
            close(&mut hasher, part);
        }
        hasher.finish()
    }

    /// The same of a user in lower case.
    pub(crate) fn hash_user(&self, user: &[u8]) -> u64 {
        let mut hasher = self.hasher(Purpose::User);
        user.iter().for_each(|byte| hasher.write(&[byte.to_ascii_lowercase()]));
        close(&mut hasher, user);
        hasher.finish()
    }

    #[allow(deprecated)] // SipHash-2-4 of core: deprecated as a map's hasher, not as a function.
    fn hasher(&self, purpose: Purpose) -> core::hash::SipHasher {
        let mut hasher = core::hash::SipHasher::new_with_keys(self.sip[0], self.sip[1]);
        hasher.write(&[purpose as u8]);
        hasher
    }

    /// The code of a nonce. All but the realm has a fixed length.
    fn code(&self, bytes: &[u8; BYTES], realm: &[u8]) -> [u8; MAC_BYTES] {
        self.mac.mac(&[&bytes[..TIME_BYTES + RANDOM_BYTES], realm])
    }
}

/// Ends a part that was hashed.
fn close(hasher: &mut impl Hasher, part: &[u8]) {
    hasher.write(&(part.len() as u64).to_le_bytes());
}

/// Seconds since 1970 as they are kept: in the year 2106 time stands still.
pub(super) fn seconds(secs: u64) -> u32 {
    u32::try_from(secs).unwrap_or(u32::MAX)
}

fn words(bytes: &[u8; MAC_BYTES]) -> [u64; 4] {
    let (words, _) = bytes.as_chunks::<8>();
    let word = |n: usize| words.get(n).map_or(0, |word| u64::from_le_bytes(*word));
    [word(0), word(1), word(2), word(3)]
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

fn encode(bytes: &[u8; BYTES]) -> [u8; NONCE_CHARS] {
    let mut text = [0; NONCE_CHARS];
    let (threes, _) = bytes.as_chunks::<3>();
    for (four, &[a, b, c]) in text.chunks_exact_mut(4).zip(threes) {
        let bits = u32::from_be_bytes([0, a, b, c]);
        for (digit, shift) in four.iter_mut().zip([18, 12, 6, 0]) {
            *digit = DIGITS[(bits >> shift & 63) as usize];
        }
    }
    text
}

/// The bytes of a nonce; `None` for what [`encode`] never writes.
fn decode(text: &[u8]) -> Option<[u8; BYTES]> {
    let text: &[u8; NONCE_CHARS] = text.try_into().ok()?;
    let mut bytes = [0; BYTES];
    let (fours, _) = text.as_chunks::<4>();
    for (three, four) in bytes.chunks_exact_mut(3).zip(fours) {
        let mut bits = 0;
        for &digit in four {
            bits = bits << 6 | u32::from(value(digit)?);
        }
        let [_, a, b, c] = bits.to_be_bytes();
        three.copy_from_slice(&[a, b, c]);
    }
    Some(bytes)
}

fn value(digit: u8) -> Option<u8> {
    match digit {
        b'A'..=b'Z' => Some(digit - b'A'),
        b'a'..=b'z' => Some(digit - b'a' + 26),
        b'0'..=b'9' => Some(digit - b'0' + 52),
        b'-' => Some(62),
        b'_' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use std::format;

    const REALM: &[u8] = b"biloxi.com";
    const NOW: u64 = 1_790_000_000;

    fn key() -> NonceKey {
        NonceKey::new(b"a secret")
    }

    #[test]
    fn a_nonce_is_known_wherever_the_key_is() {
        let text = key().issue(REALM, NOW, 7);
        let nonce = key().read(REALM, text.as_bytes()).unwrap();
        assert_eq!(u64::from(nonce.issued_secs), NOW);
        // The same arguments make the same; any other makes another, with another identity.
        assert_eq!(text, key().issue(REALM, NOW, 7));
        for other in [key().issue(REALM, NOW, 8), key().issue(REALM, NOW + 1, 7)] {
            assert_ne!(text, other);
            let other = key().read(REALM, other.as_bytes()).unwrap();
            assert_ne!(nonce.identity, other.identity);
        }
    }

    #[test]
    fn it_needs_no_escapes() {
        for random in 0..1_000u64 {
            let text = key().issue(REALM, NOW, random.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            assert_eq!(text.as_bytes().len(), 36);
            let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
            assert!(text.as_bytes().iter().all(plain), "{text:?}");
        }
    }

    #[test]
    fn a_nonce_of_another_key_or_for_another_realm_is_foreign() {
        let text = key().issue(REALM, NOW, 7);
        for (key, realm) in
            [(NonceKey::new(b"another secret"), REALM), (key(), b"atlanta.com"), (NonceKey::new(b""), REALM)]
        {
            assert_eq!(key.read(realm, text.as_bytes()), None);
        }
    }

    #[test]
    fn any_other_character_anywhere_makes_it_foreign() {
        let text = key().issue(REALM, NOW, 7);
        for at in 0..NONCE_CHARS {
            for byte in 0..=u8::MAX {
                let mut wrong = text.as_bytes().to_vec();
                wrong[at] = byte;
                assert_eq!(key().read(REALM, &wrong).is_none(), wrong != text.as_bytes(), "{at} {byte}");
            }
        }
    }

    #[test]
    fn what_is_no_nonce_is_foreign() {
        let text = key().issue(REALM, NOW, 7);
        let long = [text.as_bytes(), b"A"].concat();
        let many = [b'A'; 4_096];
        let padded = [&text.as_bytes()[..35], b"="].concat();
        for wrong in [&b""[..], b"n", &text.as_bytes()[1..], &long, &padded, &many[..NONCE_CHARS], &many] {
            assert_eq!(key().read(REALM, wrong), None);
        }
    }

    /// Whether one that was made at `NOW` is young.
    fn is_young(now: u64, expire: u32) -> bool {
        let nonce = key().read(REALM, key().issue(REALM, NOW, 7).as_bytes()).unwrap();
        nonce.is_young(now, expire, 3)
    }

    #[test]
    fn it_expires() {
        assert!(is_young(NOW + 300, 300) && !is_young(NOW + 301, 300));
        assert!(is_young(NOW, 0) && !is_young(NOW + 1, 0));
        assert!(is_young(NOW + 86_400, u32::MAX) && !is_young(u64::MAX, 300));
    }

    #[test]
    fn a_nonce_from_before_the_clock_was_put_back_is_not_young() {
        assert!(is_young(NOW - 3, 300), "another node's clock may be a little ahead");
        assert!(!is_young(NOW - 4, 300) && !is_young(0, 300));
    }

    #[test]
    fn clocks_without_a_battery_and_clocks_of_the_far_future_are_no_trouble() {
        for now in [0, 1, u64::from(u32::MAX), u64::MAX] {
            let text = key().issue(REALM, now, u64::MAX);
            let nonce = key().read(REALM, text.as_bytes()).unwrap();
            assert!(nonce.is_young(now, 300, 3), "{now}");
        }
    }

    #[test]
    fn identities_are_spread_and_not_to_be_seen() {
        let mut identities: Vec<u64> = Vec::new();
        for random in 0..4_096 {
            let text = key().issue(REALM, NOW, random);
            let identity = key().read(REALM, text.as_bytes()).unwrap().identity;
            let bytes = decode(text.as_bytes()).unwrap();
            assert!(!bytes.windows(8).any(|eight| eight == identity.to_le_bytes()));
            identities.push(identity);
        }
        let low = identities.iter().filter(|identity| **identity & 1 == 0).count();
        let high = identities.iter().filter(|identity| **identity >> 63 == 0).count();
        assert!((1_800..2_300).contains(&low) && (1_800..2_300).contains(&high), "{low} {high}");
        identities.sort_unstable();
        identities.dedup();
        assert_eq!(identities.len(), 4_096);
    }

    #[test]
    fn fingerprints_depend_on_key_and_parts_and_where_these_end() {
        let one = key().fingerprint(&[b"call", b"1 INVITE", b"00"]);
        assert_eq!(one, key().fingerprint(&[b"call", b"1 INVITE", b"00"]));
        assert_ne!(one, key().fingerprint(&[b"call1", b" INVITE", b"00"]));
        assert_ne!(one, key().fingerprint(&[b"call", b"1 INVITE", b"01"]));
        assert_ne!(one, NonceKey::new(b"other").fingerprint(&[b"call", b"1 INVITE", b"00"]));
        assert_ne!(one, key().hash(Purpose::Pair, &[b"call", b"1 INVITE", b"00"]));
    }

    #[test]
    fn the_key_is_not_shown() {
        assert_eq!(format!("{:?}", key()), "NonceKey");
    }

    #[test]
    fn the_layout_is_the_one_that_is_documented() {
        // python3: key = hmac(b"a secret", b"strowger nonces"),
        // code = hmac(key, 1790000000.to_bytes(4) + (7).to_bytes(8, "little") + b"biloxi.com"), all SHA-256;
        // base64.urlsafe_b64encode(… + code[:15]). A node of another version must know these, too.
        let text = key().issue(REALM, NOW, 7);
        assert_eq!(format!("{text:?}"), "arE7gAcAAAAAAAAAz5S1dO0Sa_9f8Y2BDSwF");
        let identity = key().read(REALM, text.as_bytes()).unwrap().identity;
        assert_eq!(identity, 0x7222_fcca_9a45_d9ce);
    }
}
