//! How a kernel's work is cut into blocks and vectors, and its extents as arguments.

use crate::CudaError;

use super::Argument;

/// The most blocks that the first axis of a grid has.
const MOST_BLOCKS: usize = i32::MAX as usize;

/// Bytes of the widest access of a thread.
pub(crate) const WIDEST_ACCESS: usize = 16;

/// Blocks as a grid counts them.
///
/// # Errors
/// Where there are more than a grid can have.
pub(crate) fn grid(blocks: usize) -> Result<u32, CudaError> {
    match u32::try_from(blocks) {
        Ok(count) if blocks <= MOST_BLOCKS => Ok(count),
        _ => Err(CudaError::TooLarge(format!("a grid of {blocks} blocks"))),
    }
}

/// An extent as a 32-bit argument; `what` is its name in the error.
///
/// # Errors
/// Where it does not fit.
pub(crate) fn int(extent: usize, what: &str) -> Result<Argument, CudaError> {
    let extent = i32::try_from(extent).map_err(|_| CudaError::TooLarge(format!("{what} of {extent}")))?;
    Ok(Argument::I32(extent))
}

/// An extent as a 64-bit argument. Extents are of tensors in memory, which is smaller than that.
pub(crate) fn long(extent: usize) -> Argument {
    Argument::I64(extent as i64)
}

/// How many elements a thread moves at once: the largest power of two up to `most` that divides the extent.
pub(crate) fn vector(extent: usize, most: usize) -> usize {
    let powers = extent.trailing_zeros().min(most.max(1).ilog2());
    1 << powers
}

/// How many accesses a thread has in flight: several where there is work enough to fill the chip nonetheless.
pub(crate) fn unroll(vectors: usize, threads: usize, multiprocessors: u32, most: usize) -> usize {
    let filled = vectors >= threads * most * 4 * multiprocessors as usize;
    if filled { most } else { 1 }
}

/// The unsigned integer that counts up to some number and a block further, as CUDA names it: the narrow one divides
/// several times faster.
pub(crate) fn index_type(count: usize) -> &'static str {
    if count < 1 << 31 { "u32" } else { "u64" }
}

/// The bytes of a struct of 64-bit members.
pub(crate) fn words(members: impl IntoIterator<Item = u64>) -> Argument {
    Argument::Bytes(members.into_iter().flat_map(u64::to_le_bytes).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_divide_the_extent() {
        assert_eq!([1, 3, 4, 12, 40, 0].map(|extent| vector(extent, 8)), [1, 1, 4, 4, 8, 8]);
        assert_eq!(vector(64, 1), 1);
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        assert_eq!(grid(7).ok(), Some(7));
        assert!(grid(1 << 31).is_err());
        assert_eq!(int(7, "rows").ok(), Some(Argument::I32(7)));
        assert!(int(1 << 31, "rows").unwrap_err().to_string().contains("rows"));
    }

    #[test]
    fn structs_are_little_endian() {
        assert_eq!(words([1]), Argument::Bytes(vec![1, 0, 0, 0, 0, 0, 0, 0]));
    }
}
