//! How a kernel's work is cut into blocks and vectors.

use crate::launch::limits;

/// Bytes of the widest access of a thread.
pub(crate) const WIDEST_ACCESS: usize = 16;

/// How many elements a thread moves at once: the largest power of two up to `most` that divides the extent.
pub(crate) fn vector(extent: usize, most: usize) -> usize {
    let powers = extent.trailing_zeros().min(most.max(1).ilog2());
    1 << powers
}

/// How many accesses a thread has in flight: several if there is enough work to fill the chip anyway.
pub(crate) fn unroll(vectors: usize, threads: usize, multiprocessors: u32, most: usize) -> usize {
    let filled = vectors >= threads * most * 4 * multiprocessors as usize;
    if filled { most } else { 1 }
}

/// The unsigned integer that counts up to some number and a block further, as CUDA names it: the narrow one divides
/// several times faster.
pub(crate) fn index_type(count: usize) -> &'static str {
    if limits::is_counted_in_i32(count) { "u32" } else { "u64" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_divide_the_extent() {
        assert_eq!([1, 3, 4, 12, 40, 0].map(|extent| vector(extent, 8)), [1, 1, 4, 4, 8, 8]);
        assert_eq!(vector(64, 1), 1);
    }
}
