//! The branch parameter we write (RFC 3261 §8.1.1.7, §16.6 item 8; RFC 5393 §4.2).
//!
//! ```text
//! z9hG4bK SS LLLLLL GGGGGG BB CCCCCCCCCCCCC . HHHHHHHHHHHHH     stateful
//!         |  slot   gener. |  cookie          loop hash
//!         shard            index of the branch
//! z9hG4bK s SS IIII        CCCCCCCCCCCCC . HHHHHHHHHHHHH        stateless, from a datagram
//!           |  listener    hash of the received branch
//! z9hG4bK s SS IIII FFFFFFFFFFFFF CCCCCCCCCCCCC . HHHHHHHHHHHHH stateless, from a stream
//!                   connection
//! ```
//!
//! Digits are base 32 in lower case, all fields have a fixed width, so a response finds its transaction by reading.

use crate::io::FlowId;
use alloc::vec::Vec;

/// What every branch of RFC 3261 begins with (§8.1.1.7).
pub(crate) const MAGIC: &[u8] = b"z9hG4bK";

/// Whether a branch begins with the magic cookie, in any case.
pub(crate) fn is_magic(branch: &[u8]) -> bool {
    branch.starts_with(MAGIC) || branch.get(..7).is_some_and(|start| start.eq_ignore_ascii_case(MAGIC))
}

/// Highest slot of a table that a branch can name: 30 bits.
pub(crate) const SLOT_MAX: u32 = (1 << 30) - 1;
/// Generations wrap here: 30 bits.
pub(crate) const GENERATION_MASK: u32 = (1 << 30) - 1;
/// Highest branch index that fits: 10 bits.
pub(crate) const BRANCH_INDEX_MAX: u16 = (1 << 10) - 1;

const DIGITS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";
const STATEFUL_LEN: usize = 7 + 2 + 6 + 6 + 2 + 13 + 1 + 13;
const STATELESS_LEN: usize = 7 + 1 + 2 + 4 + 13 + 1 + 13;
const STATELESS_FLOW_LEN: usize = STATELESS_LEN + 13;

/// A branch parameter of our own making.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnBranch {
    /// It names a client transaction.
    Stateful {
        /// The shard that wrote it.
        shard: u8,
        /// The slot of the transaction.
        slot: u32,
        /// The generation of that slot.
        generation: u32,
        /// The branch within the transaction.
        index: u16,
        /// What nobody but the next hop can know.
        cookie: u64,
        /// Where the request would go (RFC 5393 §4.2).
        loop_hash: u64,
    },
    /// It was forwarded without state (RFC 3261 §16.11).
    Stateless {
        /// The shard that wrote it.
        shard: u8,
        /// The listener that the request came by.
        listener: u16,
        /// The connection that it came by, if it was one: the way back (RFC 3261 §18.2.2).
        flow: FlowId,
        /// A hash of the received branch and of the connection.
        unique: u64,
        /// Where the request would go.
        loop_hash: u64,
    },
}

impl OwnBranch {
    /// Appends the parameter's value.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(MAGIC);
        match *self {
            OwnBranch::Stateful { shard, slot, generation, index, cookie, loop_hash } => {
                put(out, u64::from(shard), 2);
                put(out, u64::from(slot), 6);
                put(out, u64::from(generation), 6);
                put(out, u64::from(index), 2);
                put(out, cookie, 13);
                out.push(b'.');
                put(out, loop_hash, 13);
            }
            OwnBranch::Stateless { shard, listener, flow, unique, loop_hash } => {
                out.push(b's');
                put(out, u64::from(shard), 2);
                put(out, u64::from(listener), 4);
                if flow != FlowId::NONE {
                    put(out, flow.0, 13);
                }
                put(out, unique, 13);
                out.push(b'.');
                put(out, loop_hash, 13);
            }
        }
    }

    /// Reads a value; `None` if it has not the shape that we write.
    pub(crate) fn parse(text: &[u8]) -> Option<OwnBranch> {
        if !text.starts_with(MAGIC) {
            return None;
        }
        match text.len() {
            STATEFUL_LEN => Some(OwnBranch::Stateful {
                shard: read(text, 7, 2)? as u8,
                slot: read(text, 9, 6)? as u32,
                generation: read(text, 15, 6)? as u32,
                index: read(text, 21, 2)? as u16,
                cookie: read(text, 23, 13)?,
                loop_hash: dot(text, 36).and_then(|()| read(text, 37, 13))?,
            }),
            STATELESS_FLOW_LEN if text.get(7) == Some(&b's') => Some(OwnBranch::Stateless {
                shard: read(text, 8, 2)? as u8,
                listener: read(text, 10, 4)? as u16,
                flow: FlowId(read(text, 14, 13)?),
                unique: read(text, 27, 13)?,
                loop_hash: dot(text, 40).and_then(|()| read(text, 41, 13))?,
            }),
            STATELESS_LEN if text.get(7) == Some(&b's') => Some(OwnBranch::Stateless {
                shard: read(text, 8, 2)? as u8,
                listener: read(text, 10, 4)? as u16,
                flow: FlowId::NONE,
                unique: read(text, 14, 13)?,
                loop_hash: dot(text, 27).and_then(|()| read(text, 28, 13))?,
            }),
            _ => None,
        }
    }

    /// The shard that wrote it.
    pub(crate) fn shard(&self) -> u8 {
        match *self {
            OwnBranch::Stateful { shard, .. } | OwnBranch::Stateless { shard, .. } => shard,
        }
    }

    /// The mark by which a loop is seen.
    pub(crate) fn loop_hash(&self) -> u64 {
        match *self {
            OwnBranch::Stateful { loop_hash, .. } | OwnBranch::Stateless { loop_hash, .. } => loop_hash,
        }
    }
}

/// Appends the lowest `digits` base-32 digits of `value`, the highest first.
pub(crate) fn put(out: &mut Vec<u8>, value: u64, digits: u32) {
    let mut text = [0u8; 13];
    let mut value = value;
    let text = &mut text[..digits.min(13) as usize];
    for digit in text.iter_mut().rev() {
        *digit = DIGITS[(value & 31) as usize];
        value >>= 5;
    }
    out.extend_from_slice(text);
}

fn dot(text: &[u8], at: usize) -> Option<()> {
    (text.get(at) == Some(&b'.')).then_some(())
}

/// Reads `digits` base-32 digits at `from`.
pub(crate) fn read(text: &[u8], from: usize, digits: usize) -> Option<u64> {
    let mut value = 0u64;
    for &digit in text.get(from..from + digits)? {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'v' => digit - b'a' + 10,
            // Tokens compare without case (RFC 3261 §7.3.1): a hop may have changed it.
            b'A'..=b'V' => digit - b'A' + 10,
            _ => return None,
        };
        value = value << 5 | u64::from(digit);
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let both = [
            OwnBranch::Stateful {
                shard: 255,
                slot: SLOT_MAX,
                generation: 77,
                index: 1023,
                cookie: u64::MAX - 5,
                loop_hash: 42,
            },
            OwnBranch::Stateless {
                shard: 3,
                listener: 9,
                flow: FlowId::NONE,
                unique: u64::MAX,
                loop_hash: 1 << 63,
            },
            OwnBranch::Stateless {
                shard: 3,
                listener: 9,
                flow: FlowId(u64::MAX - 7),
                unique: 0,
                loop_hash: 1,
            },
        ];
        for branch in both {
            let mut text = Vec::new();
            branch.write(&mut text);
            assert_eq!(OwnBranch::parse(&text), Some(branch));
            assert_eq!(OwnBranch::parse(&text[..text.len() - 1]), None);
        }
    }

    #[test]
    fn foreign_branches_are_not_ours() {
        for text in [&b"z9hG4bK"[..], b"", b"z9hG4bK-1234-1-0", &[b'z'; STATEFUL_LEN], &[0xff; STATELESS_LEN]]
        {
            assert_eq!(OwnBranch::parse(text), None);
        }
    }
}
