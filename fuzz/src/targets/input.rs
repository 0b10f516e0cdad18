//! Choices out of the bytes of an input: the same bytes, the same choices.

/// Takes choices off the front of an input. When it is used up every choice is 0.
pub(super) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(super) fn new(data: &'a [u8]) -> Input<'a> {
        Input { rest: data }
    }

    /// What has not been taken.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn byte(&mut self) -> u8 {
        let (first, rest) = self.rest.split_first().map_or((0, self.rest), |(first, rest)| (*first, rest));
        self.rest = rest;
        first
    }

    /// 0 to `count - 1`.
    pub(super) fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count.max(1)
    }

    /// One of these.
    pub(super) fn pick<'t, T>(&mut self, choices: &'t [T]) -> &'t T {
        &choices[self.below(choices.len())]
    }

    pub(super) fn flag(&mut self) -> bool {
        self.byte() & 1 != 0
    }

    pub(super) fn number(&mut self) -> u32 {
        u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    /// Up to `max` bytes, as many as the next byte says.
    pub(super) fn bytes(&mut self, max: usize) -> &'a [u8] {
        let len = self.below(max + 1).min(self.rest.len());
        let (taken, rest) = self.rest.split_at(len);
        self.rest = rest;
        taken
    }
}
