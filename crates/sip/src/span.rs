//! Positions in a message, small and copyable, so that parsed values can be remembered beside it.

use core::ops::Range;

/// A range of bytes in a message of at most [`MAX_MESSAGE_BYTES`](crate::MAX_MESSAGE_BYTES).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Span {
    #[inline]
    pub(crate) fn new(start: usize, end: usize) -> Span {
        Span { start: start as u32, end: end as u32 }
    }

    #[inline]
    pub(crate) fn of(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.start as usize..self.end as usize).unwrap_or(&[])
    }

    #[inline]
    pub(crate) fn range(self) -> Range<u32> {
        self.start..self.end
    }
}
