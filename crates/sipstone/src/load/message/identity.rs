//! What tells one worker of one run from all others: branches, tags and Call-IDs of fixed width.
//!
//! A branch and a callee's tag say where their operation or dialog is, so that nothing is looked up for an answer or for
//! a request within a dialog; and those of an earlier run are recognised as strays.

/// What every branch begins with (RFC 3261 §8.1.1.7).
const COOKIE: &[u8; 7] = b"z9hG4bK";
/// Hex digits of run, group and worker, with which all our identifiers begin.
const PREFIX: usize = 16;
/// Hex digits behind the prefix in a branch: slot, generation, class, step.
const BRANCH_REST: usize = 22;
/// Hex digits behind the prefix in a callee's tag: slot, generation, class.
const TAG_REST: usize = 20;
/// `N` hex digits of a number, the lowest ones.
pub(in crate::load) fn hex<const N: usize>(number: u64) -> [u8; N] {
    let mut rest = number;
    let mut digits = [b'0'; N];
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789abcdef"[usize::from((rest & 15) as u8)];
        rest >>= 4;
    }
    digits
}

/// The number that these hex digits (lower case, at most 16) are.
fn unhex(digits: &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for &digit in digits {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        number = number << 4 | u64::from(value);
    }
    Some(number)
}

/// Which request of which operation, or which dialog (its step is zero).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::load) struct Key {
    pub(in crate::load) slot: u32,
    pub(in crate::load) generation: u32,
    pub(in crate::load) class: u16,
    pub(in crate::load) step: u8,
}

/// What tells this worker of this run from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::load) struct Identity {
    prefix: [u8; PREFIX],
}

impl Identity {
    pub(in crate::load) fn new(run: u32, group: u16, worker: u16) -> Identity {
        let number = u64::from(run) << 32 | u64::from(group) << 16 | u64::from(worker);
        Identity { prefix: hex(number) }
    }

    /// The key in a branch of this worker, in this run; `None` in any other.
    pub(in crate::load) fn of_branch(&self, branch: &[u8]) -> Option<Key> {
        let rest = branch.strip_prefix(COOKIE)?.strip_prefix(&self.prefix)?;
        let rest: &[u8; BRANCH_REST] = rest.try_into().ok()?;
        let step = u8::try_from(unhex(&rest[20..])?).ok()?;
        Some(Key { step, ..key_of(rest)? })
    }

    /// The key in a tag of a callee of this worker, in this run; `None` in any other.
    pub(in crate::load) fn of_tag(&self, tag: &[u8]) -> Option<Key> {
        let rest: &[u8; TAG_REST] = tag.strip_prefix(&self.prefix)?.try_into().ok()?;
        key_of(rest)
    }

    /// The tag of a callee's dialog.
    pub(in crate::load) fn tag(&self, key: Key) -> [u8; PREFIX + TAG_REST] {
        let mut tag = [0; PREFIX + TAG_REST];
        tag[..PREFIX].copy_from_slice(&self.prefix);
        tag[16..24].copy_from_slice(&hex::<8>(key.slot.into()));
        tag[24..32].copy_from_slice(&hex::<8>(key.generation.into()));
        tag[32..].copy_from_slice(&hex::<4>(key.class.into()));
        tag
    }

    /// Everything of a branch but its step.
    pub(super) fn push_branch(&self, key: Key, out: &mut Vec<u8>) {
        out.extend_from_slice(COOKIE);
        out.extend_from_slice(&self.tag(key));
    }

    /// `RUN.GROUP.WORKER.SLOT.GENERATION@sipstone`: never used before, so that a registrar cannot take one run's
    /// REGISTER for a late one of another's (RFC 3261 §10.3 item 7).
    pub(super) fn push_call_id(&self, key: Key, out: &mut Vec<u8>) {
        let mut id = *b"rrrrrrrr.gggg.wwww.ssssssss.nnnnnnnn@sipstone";
        id[..8].copy_from_slice(&self.prefix[..8]);
        id[9..13].copy_from_slice(&self.prefix[8..12]);
        id[14..18].copy_from_slice(&self.prefix[12..]);
        id[19..27].copy_from_slice(&hex::<8>(key.slot.into()));
        id[28..36].copy_from_slice(&hex::<8>(key.generation.into()));
        out.extend_from_slice(&id);
    }
}

fn key_of(rest: &[u8]) -> Option<Key> {
    Some(Key {
        slot: u32::try_from(unhex(rest.get(..8)?)?).ok()?,
        generation: u32::try_from(unhex(rest.get(8..16)?)?).ok()?,
        class: u16::try_from(unhex(rest.get(16..20)?)?).ok()?,
        step: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key { slot: 0xdead_beef, generation: 7, class: 0xffff, step: 3 };

    #[test]
    fn keys_are_read_from_what_was_written() {
        let identity = Identity::new(0x1234_5678, 9, 2);
        let mut branch = Vec::new();
        identity.push_branch(KEY, &mut branch);
        branch.extend_from_slice(&hex::<2>(KEY.step.into()));
        assert_eq!(branch, b"z9hG4bK1234567800090002deadbeef00000007ffff03");
        assert_eq!(identity.of_branch(&branch), Some(KEY));
        assert_eq!(identity.of_tag(&identity.tag(KEY)), Some(Key { step: 0, ..KEY }));
    }

    #[test]
    fn identifiers_of_others_are_none_of_ours() {
        let identity = Identity::new(1, 2, 3);
        for other in [Identity::new(0, 2, 3), Identity::new(1, 0, 3), Identity::new(1, 2, 0)] {
            let mut branch = Vec::new();
            other.push_branch(KEY, &mut branch);
            branch.extend_from_slice(b"00");
            assert_eq!(identity.of_branch(&branch), None);
            assert_eq!(identity.of_tag(&other.tag(KEY)), None);
        }
        for text in [&b""[..], b"z9hG4bK", b"z9hG4bK000000010002000300000000000000000000zz"] {
            assert_eq!(identity.of_branch(text), None);
            assert_eq!(identity.of_tag(text), None);
        }
    }
}
