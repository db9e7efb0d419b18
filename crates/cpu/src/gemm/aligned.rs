//! Buffers that begin on a cache line, so that none of their vectors straddles two.

use std::marker::PhantomData;

use kinora_graph::tensor::AlignedBytes;

use crate::simd::Float;

/// A growing buffer whose first value is at the beginning of a cache line.
#[derive(Debug, Default)]
pub(crate) struct AlignedBuffer<E> {
    bytes: AlignedBytes,
    values: PhantomData<E>,
}

impl<E: Float> AlignedBuffer<E> {
    /// A buffer without memory.
    pub(crate) const fn new() -> Self {
        Self { bytes: AlignedBytes::new(), values: PhantomData }
    }

    /// Makes room for `length` values; what they hold is unspecified.
    pub(crate) fn reserve(&mut self, length: usize) {
        let needed = length * size_of::<E>();
        if self.bytes.len() < needed {
            // First freed, then allocated: never both at a time.
            self.bytes = AlignedBytes::new();
            self.bytes = AlignedBytes::zeroed(needed);
        }
    }

    /// The memory of the buffer, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The values: at least as many as were reserved.
    pub(crate) fn as_slice(&self) -> &[E] {
        bytemuck::cast_slice(&self.bytes)
    }

    /// As [`AlignedBuffer::as_slice`].
    pub(crate) fn as_mut_slice(&mut self) -> &mut [E] {
        bytemuck::cast_slice_mut(&mut self.bytes)
    }
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
            assert_eq!(buffer.as_slice().as_ptr().addr() % kinora_graph::tensor::ALIGNMENT, 0);
            assert!(buffer.as_slice().len() >= length && buffer.as_mut_slice().len() >= length);
        }
    }
}
