//! Products of few columns: as dot products, with the lanes along the depth.
//!
//! A panel of `2·LANES` columns would mostly multiply zeros for, say, the four latent channels that a UNet ends in.

use super::microkernel::{Left, Runs, Strided, Update};
use crate::simd::{Float, Simd};

/// The most columns that are multiplied this way; with more of them, half a panel is no worse.
pub(super) const MOST_COLUMNS: usize = 8;

/// Rows and columns multiplied at once: twelve accumulators, and seven vectors loaded for twelve multiply-adds.
const ROWS: usize = 3;
const COLUMNS: usize = 4;

/// `C[rows, columns] (+)= A[rows, depth] · B[columns, depth]ᵀ`.
///
/// # Safety
/// Each start must be readable for the length of its run, `b` for `columns` rows of the lengths' sum, and `c` writable
/// (and initialised, to add) for as many rows of `columns` values, which overlap neither of the others.
#[inline(always)]
pub(super) unsafe fn multiply_dots<S: Simd>(
    simd: S,
    a: Runs<'_>,
    b: Strided<*const f32>,
    columns: usize,
    c: Strided<*mut f32>,
    update: Update,
) {
    let rows = a.rows;
    for row in (0..rows).step_by(ROWS) {
        for column in (0..columns).step_by(COLUMNS) {
            // SAFETY: row and column are within those that the caller vouches for.
            unsafe {
                let b = Strided { start: b.start.add(column * b.stride), ..b };
                let c = Strided { start: c.start.add(row * c.stride + column), ..c };
                let extents = [(rows - row).min(ROWS), (columns - column).min(COLUMNS)];
                block(simd, a, row, b, c, extents, update);
            }
        }
    }
}

/// At most `ROWS × COLUMNS` dot products. Rows and columns that do not exist repeat the last one and are not stored.
///
/// # Safety
/// As for [`multiply_dots`], with the extents instead of all rows and columns.
#[inline(always)]
unsafe fn block<S: Simd>(
    simd: S,
    a: Runs<'_>,
    first: usize,
    b: Strided<*const f32>,
    c: Strided<*mut f32>,
    [rows, columns]: [usize; 2],
    update: Update,
) {
    let mut sums = [[simd.zero(); COLUMNS]; ROWS];
    let mut right = [std::ptr::null::<f32>(); COLUMNS];
    for (index, start) in right.iter_mut().enumerate() {
        *start = b.start.wrapping_add(index.min(columns - 1) * b.stride);
    }
    for run in 0..a.runs() {
        let mut left = [std::ptr::null::<f32>(); ROWS];
        for (index, start) in left.iter_mut().enumerate() {
            // SAFETY: the caller vouches for `rows` rows from `first` on.
            *start = unsafe { a.start(run, first + index.min(rows - 1)) };
        }
        let length = a.length(run);
        let whole = length - length % S::LANES;
        for k in (0..whole).step_by(S::LANES) {
            // SAFETY: a whole vector from `k` on is within the run and within the rows of B.
            unsafe {
                // The rows are fewer than the columns: kept instead of them, they leave a register for each sum.
                let mut values = [simd.zero(); ROWS];
                for (value, start) in values.iter_mut().zip(left) {
                    *value = simd.load(start.add(k));
                }
                for (column, start) in right.iter().enumerate() {
                    let vector = simd.load(start.add(k));
                    for (sums, &value) in sums.iter_mut().zip(&values) {
                        sums[column] = simd.mul_add(value, vector, sums[column]);
                    }
                }
            }
        }
        if whole < length {
            for (start, sums) in left.iter().zip(&mut sums) {
                for (sum, right) in sums.iter_mut().zip(right) {
                    // SAFETY: what is left of the run is less than a vector, and as much of B.
                    unsafe {
                        let values = f32::load_partial(simd, start.add(whole), length - whole);
                        let vector = f32::load_partial(simd, right.add(whole), length - whole);
                        *sum = simd.mul_add(values, vector, *sum);
                    }
                }
            }
        }
        for start in &mut right {
            *start = start.wrapping_add(length);
        }
    }
    for (index, sums) in sums.iter().enumerate().take(rows) {
        for (column, &sum) in sums.iter().enumerate().take(columns) {
            let sum = simd.reduce_sum(sum);
            // SAFETY: row and column exist.
            unsafe {
                let target = c.start.add(index * c.stride + column);
                *target = match update {
                    Update::Replace => sum,
                    Update::Add => *target + sum,
                };
            }
        }
    }
}
