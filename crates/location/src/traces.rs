//! What one update has changed, packed.

use crate::binding::{Binding, NUMBERS};
use crate::table::Changed;
use alloc::vec::Vec;
use core::ops::Range;

/// Marks a binding as it is after the update.
const AFTER: u8 = 1;
/// Marks a binding whose strings are those of the one before it in the buffer: most updates change numbers only.
const SAME_STRINGS: u8 = 2;

/// The bindings before and after an update, in one buffer: what is needed to undo it ([`Location::undo`](crate::Location::undo)),
/// as it is kept while thousands wait for a commit.
#[derive(Clone, Default)]
pub struct Traces {
    bytes: Vec<u8>,
    /// Where the last strings are.
    strings: Range<usize>,
}

impl core::fmt::Debug for Traces {
    // What is in it identifies users.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Traces").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

impl Traces {
    /// Notes what an update says that it does.
    pub fn note(&mut self, changed: &Changed<'_>) {
        let (binding, mark) = match changed {
            Changed::Before(binding) => (binding, 0),
            Changed::After(binding) => (binding, AFTER),
            Changed::Bound(_) => return,
        };
        let strings = binding.strings();
        if self.bytes.is_empty() {
            // As it was, and as it is.
            self.bytes.reserve_exact(2 * (1 + NUMBERS) + strings.len());
        }
        let is_same = !self.bytes.is_empty() && self.bytes[self.strings.clone()] == *strings;
        self.bytes.push(mark | if is_same { SAME_STRINGS } else { 0 });
        self.bytes.extend_from_slice(&binding.numbers());
        if !is_same {
            self.strings = self.bytes.len()..self.bytes.len() + strings.len();
            self.bytes.extend_from_slice(strings);
        }
    }

    /// All of it, to be kept elsewhere.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bindings before and after an update, of [`Traces::as_bytes`].
    pub fn read(bytes: &[u8]) -> (Vec<Binding>, Vec<Binding>) {
        let (mut before, mut after) = (Vec::new(), Vec::new());
        let (mut rest, mut last) = (bytes, &[][..]);
        while let Some((mark, others)) = rest.split_first()
            && let Some((numbers, others)) = others.split_first_chunk::<NUMBERS>()
            && let is_same = mark & SAME_STRINGS != 0
            && let Some((binding, strings)) = Binding::unpack(numbers, if is_same { last } else { others })
        {
            rest = if is_same { others } else { &others[strings.len()..] };
            last = strings;
            if mark & AFTER == 0 { before.push(binding) } else { after.push(binding) }
        }
        (before, after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Register, Update};
    use crate::{Limits, Policy, Seeds, Table};
    use sip::Instant;

    /// What a REGISTER changes, packed, and as it was told.
    fn traced(
        table: &mut Table,
        contact: &[u8],
        cseq: u32,
        path: &[u8],
    ) -> (Traces, Vec<Binding>, Vec<Binding>) {
        let update = Update { path, expires: Some(600), ..Update::new(contact, b"call", cseq) };
        let (mut traces, mut before, mut after) = (Traces::default(), Vec::new(), Vec::new());
        let now = Instant::from_micros(u64::from(cseq) * 1_000_000);
        let register = Register::Bind(core::slice::from_ref(&update));
        let changed = &mut |changed: Changed<'_>| {
            traces.note(&changed);
            match changed {
                Changed::Before(binding) => before.push(binding.clone()),
                Changed::After(binding) => after.push(binding.clone()),
                Changed::Bound(_) => {}
            }
        };
        table.register_tentatively(now, b"alice", &register, &Policy::default(), changed).unwrap();
        (traces, before, after)
    }

    #[test]
    fn what_is_packed_is_what_was_told() {
        let mut table = Table::new(Limits::default(), Seeds([1, 2, 3, 4]));
        let updates = [
            (&b"sip:alice@192.0.2.1"[..], &b""[..]),
            (b"sip:alice@192.0.2.1", b""),
            (b"sip:alice@192.0.2.1", b"<sip:edge.example;lr>"),
            (b"sip:alice@192.0.2.2", b"<sip:edge.example;lr>"),
        ];
        for (cseq, (contact, path)) in (1..).zip(updates) {
            let (traces, before, after) = traced(&mut table, contact, cseq, path);
            assert_eq!(Traces::read(traces.as_bytes()), (before, after), "{cseq}");
        }
    }

    #[test]
    fn a_refresh_has_its_strings_once() {
        let mut table = Table::new(Limits::default(), Seeds([1, 2, 3, 4]));
        let (first, _, _) = traced(&mut table, b"sip:alice@192.0.2.1", 1, b"");
        let (refresh, _, _) = traced(&mut table, b"sip:alice@192.0.2.1", 2, b"");
        assert_eq!(refresh.as_bytes().len(), first.as_bytes().len() + 1 + NUMBERS);
    }

    #[test]
    fn bytes_that_are_no_traces_are_read_as_far_as_they_go() {
        let mut table = Table::new(Limits::default(), Seeds([1, 2, 3, 4]));
        let _ = traced(&mut table, b"sip:alice@192.0.2.1", 1, b"");
        let (traces, ..) = traced(&mut table, b"sip:alice@192.0.2.1", 2, b"");
        for end in 0..traces.as_bytes().len() {
            let (before, after) = Traces::read(&traces.as_bytes()[..end]);
            assert!(before.len() <= 1 && after.is_empty());
        }
        let _ = Traces::read(&[0xFF; 300]);
    }
}
