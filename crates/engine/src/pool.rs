//! Buffers of transactions, reused by size, so that a server at rest in its stride allocates nothing.

use alloc::vec::Vec;

/// Sizes of buffers, in bytes; a longer message gets a buffer of its own that is not kept.
const CLASSES: [usize; 10] = [256, 512, 768, 1_024, 1_536, 2_048, 3_072, 4_096, 8_192, 16_384];
/// Bytes kept in free buffers of one class: 4 MiB.
const FREE_BYTES_PER_CLASS_MAX: usize = 4 << 20;

/// Free buffers by class.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    free: [Vec<Vec<u8>>; CLASSES.len()],
    /// Buffers of some class that were taken and not given back.
    lent: usize,
}

impl Pool {
    /// A buffer holding a copy of `bytes`.
    pub(crate) fn copy(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut buffer = self.take(bytes.len());
        buffer.extend_from_slice(bytes);
        buffer
    }

    /// Stores `bytes` in `place`, reusing its buffer if it is large enough.
    pub(crate) fn store(&mut self, place: &mut Vec<u8>, bytes: &[u8]) {
        if place.capacity() < bytes.len() {
            let old = core::mem::replace(place, self.take(bytes.len()));
            self.give(old);
        }
        place.clear();
        place.extend_from_slice(bytes);
    }

    /// Moves the content of `place` to the smallest buffer that holds it.
    pub(crate) fn fit(&mut self, place: &mut Vec<u8>) {
        let wanted = CLASSES.iter().find(|&&size| size >= place.len());
        if wanted.is_some_and(|&size| size < place.capacity()) {
            let small = self.copy(place);
            self.give(core::mem::replace(place, small));
        }
    }

    /// Empties `place` and takes its buffer back.
    pub(crate) fn drop(&mut self, place: &mut Vec<u8>) {
        self.give(core::mem::take(place));
    }

    /// Buffers that are in use.
    pub(crate) fn lent(&self) -> usize {
        self.lent
    }

    fn take(&mut self, len: usize) -> Vec<u8> {
        let Some(class) = CLASSES.iter().position(|&size| size >= len) else {
            return Vec::with_capacity(len);
        };
        self.lent += 1;
        match self.free.get_mut(class).and_then(Vec::pop) {
            Some(buffer) => buffer,
            None => Vec::with_capacity(CLASSES.get(class).copied().unwrap_or(len)),
        }
    }

    fn give(&mut self, mut buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        let Some(class) = CLASSES.iter().position(|&size| size == capacity) else { return };
        self.lent = self.lent.saturating_sub(1);
        if let Some(free) = self.free.get_mut(class)
            && (free.len() + 1) * capacity <= FREE_BYTES_PER_CLASS_MAX
        {
            buffer.clear();
            free.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back() {
        let mut pool = Pool::default();
        let mut buffer = pool.copy(&[7; 700]);
        assert_eq!((buffer.capacity(), buffer.len()), (768, 700));
        let address = buffer.as_ptr();
        pool.drop(&mut buffer);
        assert_eq!((buffer.capacity(), pool.lent()), (0, 0));
        let again = pool.copy(&[8; 600]);
        assert_eq!(again.as_ptr(), address);
        assert_eq!(again, [8; 600]);
        assert_eq!(pool.lent(), 1);
    }

    #[test]
    fn fit_moves_to_a_smaller_buffer() {
        let mut pool = Pool::default();
        let mut buffer = pool.copy(&[7; 4_000]);
        pool.store(&mut buffer, &[1; 100]);
        assert_eq!(buffer.capacity(), 4_096);
        pool.fit(&mut buffer);
        assert_eq!((buffer.capacity(), buffer.len()), (256, 100));
        assert_eq!(pool.lent(), 1);
        pool.store(&mut buffer, &[1; 20_000]);
        assert_eq!(buffer.len(), 20_000);
        // It is not of any class.
        assert_eq!(pool.lent(), 0);
        pool.drop(&mut buffer);
        assert_eq!(pool.lent(), 0);
    }
}
