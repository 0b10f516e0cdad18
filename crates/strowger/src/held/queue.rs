//! Replies that wait, in the order in which they came.
//!
//! What belongs to one lies together in a large buffer, one behind the other: it is written once and read once, from start to end,
//! so that thousands of them cost no allocations and the processor sees the next one coming.

use std::collections::VecDeque;

use engine::Path;
use sip::Instant;

/// Bytes of a buffer, unless one reply needs more.
const BUFFER_BYTES: usize = 64 << 10;

/// Buffers that are kept for the next replies: 8 MB.
const SPARE_MAX: usize = 128;

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reply<'a> {
    /// After this it comes too late.
    pub(super) deadline: Instant,
    /// Where it goes.
    pub(super) path: Path,
    /// The message.
    pub(super) answer: &'a [u8],
    /// The address-of-record that the request changed.
    pub(super) aor: &'a [u8],
    /// What it changed ([`location::Traces`]).
    pub(super) traces: &'a [u8],
}

/// What is beside the bytes.
#[derive(Debug)]
struct Entry {
    deadline: Instant,
    path: Path,
    /// Lengths of the three parts.
    answer: usize,
    aor: usize,
    traces: usize,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    entries: VecDeque<Entry>,
    /// The bytes of all entries, in their order; those of one are in one buffer.
    buffers: VecDeque<Vec<u8>>,
    /// Where those of the first entry begin.
    read: usize,
    spare: Vec<Vec<u8>>,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// When the first one comes too late.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.entries.front().map(|entry| entry.deadline)
    }

    /// Adds one behind the others.
    pub(super) fn push(&mut self, reply: &Reply<'_>) {
        let Reply { deadline, path, answer, aor, traces } = *reply;
        let bytes = answer.len() + aor.len() + traces.len();
        let room = self.buffers.back().map_or(0, |buffer| buffer.capacity() - buffer.len());
        if self.buffers.is_empty() || room < bytes {
            let mut buffer = self.spare.pop().unwrap_or_default();
            buffer.reserve_exact(bytes.max(BUFFER_BYTES));
            self.buffers.push_back(buffer);
        }
        if let Some(buffer) = self.buffers.back_mut() {
            buffer.extend_from_slice(answer);
            buffer.extend_from_slice(aor);
            buffer.extend_from_slice(traces);
        }
        let (answer, aor, traces) = (answer.len(), aor.len(), traces.len());
        self.entries.push_back(Entry { deadline, path, answer, aor, traces });
    }

    /// The first one.
    pub(super) fn front(&self) -> Option<Reply<'_>> {
        let Entry { deadline, path, answer, aor, traces } = *self.entries.front()?;
        let bytes = self.buffers.front()?.get(self.read..)?;
        let (answer, bytes) = bytes.split_at_checked(answer)?;
        let (aor, bytes) = bytes.split_at_checked(aor)?;
        Some(Reply { deadline, path, answer, aor, traces: bytes.get(..traces)? })
    }

    /// Forgets the first one.
    pub(super) fn drop_front(&mut self) {
        let Some(entry) = self.entries.pop_front() else { return };
        self.read += entry.answer + entry.aor + entry.traces;
        let Some(first) = self.buffers.front_mut() else { return };
        if self.read < first.len() {
            return;
        }
        self.read = 0;
        first.clear();
        // The last one is written on.
        if self.buffers.len() > 1
            && let Some(buffer) = self.buffers.pop_front()
            && buffer.capacity() <= 2 * BUFFER_BYTES
            && self.spare.len() < SPARE_MAX
        {
            self.spare.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::ListenerId;

    fn reply<'a>(answer: &'a [u8], aor: &'a [u8], traces: &'a [u8]) -> Reply<'a> {
        let path = Path::new(ListenerId(0), None, "127.0.0.1:5060".parse().unwrap());
        Reply { deadline: Instant::from_micros(answer.len() as u64), path, answer, aor, traces }
    }

    /// Parts of a length that the number says, and of bytes that it says.
    fn parts(number: usize) -> [Vec<u8>; 3] {
        [number * 7 % 5_000, number % 3, number * 31 % 300].map(|length| vec![number as u8; length])
    }

    #[test]
    fn replies_come_out_as_they_went_in() {
        let (mut queue, mut next, mut first) = (Queue::default(), 0, 0);
        for turn in 0..4_000 {
            // It grows and shrinks, to nothing at times.
            let grows = turn % 400 < 220;
            for _ in 0..if grows { 3 } else { 1 } {
                let [answer, aor, traces] = parts(next);
                queue.push(&reply(&answer, &aor, &traces));
                next += 1;
            }
            for _ in 0..if grows { 1 } else { 5 } {
                let Some(front) = queue.front() else { break };
                let [answer, aor, traces] = parts(first);
                assert!(front.answer == answer && front.aor == aor && front.traces == traces, "{first}");
                assert_eq!(queue.deadline(), Some(front.deadline));
                queue.drop_front();
                first += 1;
            }
            assert_eq!(queue.len(), next - first);
        }
        while !queue.is_empty() {
            queue.drop_front();
        }
        assert!(queue.front().is_none() && queue.deadline().is_none());
        assert_eq!(queue.buffers.len(), 1, "one is kept to be written on");
    }

    #[test]
    fn what_was_needed_once_is_given_back() {
        let mut queue = Queue::default();
        let long = vec![0; 300_000];
        for answer in [&long[..], b"short"] {
            for _ in 0..1_000 {
                queue.push(&reply(answer, b"", b""));
            }
        }
        while !queue.is_empty() {
            queue.drop_front();
        }
        let kept = queue.spare.iter().chain(&queue.buffers).map(Vec::capacity).sum::<usize>();
        assert!(kept <= (SPARE_MAX + 1) * 2 * BUFFER_BYTES, "{kept}");
    }
}
