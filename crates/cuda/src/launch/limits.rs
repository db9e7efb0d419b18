//! The limits of launches and of what kernels count, all in one place.

use crate::CudaError;

/// Blocks of a grid: its first axis, the only one that kernels here use.
pub const GRID_BLOCKS: usize = i32::MAX as usize;

/// Threads of a block.
pub const BLOCK_THREADS: u32 = 1024;

/// Shared memory, in bytes, that a block gets without asking the driver for more.
pub const DEFAULT_SHARED_BYTES: u32 = 48 << 10;

/// Blocks of a cluster that every chip with clusters can run.
pub const PORTABLE_CLUSTER_BLOCKS: u32 = 8;

/// Axes of a tensor that TMA copies.
pub const TENSOR_MAP_AXES: usize = 5;

/// Axes that a kernel for tensors of any rank has left after those that it can treat as one are merged.
pub const MERGED_AXES: usize = 8;

/// An extent that a kernel counts in an `i32`.
pub const EXTENT: usize = i32::MAX as usize;

/// An extent of which a kernel adds up two in an `i32`, and a tile: a row and a diagonal, a pixel and its padding.
pub const SUMMED_EXTENT: usize = (1 << 30) - (1 << 12);

/// Blocks as a grid counts them.
///
/// # Errors
/// If there are more than [`GRID_BLOCKS`].
pub fn grid(blocks: usize) -> Result<u32, CudaError> {
    within(blocks, GRID_BLOCKS, || format!("a grid of {blocks} blocks")).map(i32::cast_unsigned)
}

/// An extent that a kernel counts in an `i32`; `what` is its name in the error.
///
/// # Errors
/// If it is more than [`EXTENT`].
pub fn int(extent: usize, what: &str) -> Result<i32, CudaError> {
    within(extent, EXTENT, || format!("{what} of {extent}"))
}

/// An extent of which a kernel adds up two in an `i32`.
///
/// # Errors
/// If it is more than [`SUMMED_EXTENT`].
pub fn summed(extent: usize) -> Result<i32, CudaError> {
    within(extent, SUMMED_EXTENT, || format!("an extent of {extent}"))
}

/// Several such extents.
///
/// # Errors
/// As [`summed`].
pub fn all_summed<const N: usize>(extents: [usize; N]) -> Result<[i32; N], CudaError> {
    let mut counted = [0; N];
    for (to, extent) in counted.iter_mut().zip(extents) {
        *to = summed(extent)?;
    }
    Ok(counted)
}

/// An extent of a tensor as an `i64`, which holds every one: memory is smaller than that.
pub fn long(extent: usize) -> i64 {
    extent as i64
}

/// Whether an `i32` counts up to some number.
pub fn is_counted_in_i32(count: usize) -> bool {
    count <= EXTENT
}

fn within(number: usize, most: usize, what: impl FnOnce() -> String) -> Result<i32, CudaError> {
    match i32::try_from(number) {
        Ok(counted) if number <= most => Ok(counted),
        _ => Err(CudaError::TooLarge(what())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_an_error() {
        assert_eq!(grid(7).ok(), Some(7));
        assert!(grid(GRID_BLOCKS).is_ok() && grid(GRID_BLOCKS + 1).is_err());
        assert_eq!(int(7, "rows").ok(), Some(7));
        assert!(int(EXTENT + 1, "rows").unwrap_err().to_string().contains("rows"));
        assert!(summed(SUMMED_EXTENT).is_ok() && summed(SUMMED_EXTENT + 1).is_err());
        assert!(all_summed([1, SUMMED_EXTENT + 1]).is_err());
    }

    #[test]
    fn two_extents_and_a_tile_add_up() {
        let largest_tile = 4096;
        assert!(i32::try_from(2 * SUMMED_EXTENT + largest_tile).is_ok());
    }
}
