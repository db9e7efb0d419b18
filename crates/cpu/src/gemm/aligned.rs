//! Buffers that begin on a cache line, so that none of their vectors straddles two.

use crate::simd::Float;

/// The size of a cache line, in bytes.
const LINE_BYTES: usize = 64;

/// A growing buffer whose first value is at the beginning of a cache line.
///
/// The allocator aligns a large block to 16 bytes past a page; every other vector read from it would touch two lines.
#[derive(Debug, Default)]
pub(crate) struct AlignedBuffer<E> {
    values: Vec<E>,
}

impl<E: Float> AlignedBuffer<E> {
    /// A buffer without memory.
    pub(crate) const fn new() -> Self {
        Self { values: Vec::new() }
    }

    /// Makes room for `length` values; what they hold is unspecified.
    pub(crate) fn reserve(&mut self, length: usize) {
        let needed = length + LINE_BYTES / size_of::<E>();
        if self.values.len() < needed {
            // Not `resize`, which would copy the old values into the new block.
            self.values = vec![E::default(); needed];
        }
    }

    /// The memory of the buffer, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(self.values.as_slice())
    }

    fn start(&self) -> usize {
        // An offset is counted in values and at most a line; `reserve` left that much room.
        self.values.as_ptr().align_offset(LINE_BYTES).min(self.values.len())
    }

    /// The values from the first aligned one on: at least as many as were reserved.
    pub(crate) fn as_slice(&self) -> &[E] {
        &self.values[self.start()..]
    }

    /// As [`AlignedBuffer::as_slice`].
    pub(crate) fn as_mut_slice(&mut self) -> &mut [E] {
        let start = self.start();
        &mut self.values[start..]
    }
}

/// The memory that a buffer of `length` values of `element` bytes takes: a line more, to align it.
pub(crate) fn bytes_of(element: usize, length: usize) -> usize {
    length.saturating_mul(element).saturating_add(LINE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_aligned_and_long_enough() {
        let mut buffer = AlignedBuffer::<half::f16>::new();
        assert!(buffer.as_slice().is_empty());
        for length in [1, 100, 5, 100_000] {
            buffer.reserve(length);
            assert_eq!(buffer.as_slice().as_ptr().addr() % LINE_BYTES, 0);
            assert!(buffer.as_slice().len() >= length && buffer.as_mut_slice().len() >= length);
        }
    }
}
