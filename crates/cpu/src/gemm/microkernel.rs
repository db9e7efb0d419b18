//! The innermost loop: a register tile of C, from a few rows of A and one panel of B.

use crate::simd::{MAX_ROWS, Simd};

/// Columns of a register tile, and of a panel of B.
pub(crate) const fn panel_columns<S: Simd>() -> usize {
    2 * S::LANES
}

/// f32 values in a line of cache.
const LINE: usize = 16;

/// What becomes of a tile's old values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Update {
    /// The product replaces them.
    Replace,
    /// The product is added to them.
    Add,
}

/// Rows of f32 values in memory, `stride` values apart.
#[derive(Clone, Copy)]
pub(crate) struct Strided<P> {
    /// The first value of the first row.
    pub(crate) start: P,
    /// Values from one row to the next.
    pub(crate) stride: usize,
}

/// `C[rows, 2·LANES] (+)= A[rows, depth] · panel[depth, 2·LANES]`, any number of rows.
///
/// # Safety
/// `a` must be readable for `rows` rows of `depth` values, `panel` for `depth · 2·LANES` values, and `c` writable (and
/// initialised, to add) for `rows` rows of `2·LANES` values that overlap neither of the others.
#[inline(always)]
pub(crate) unsafe fn multiply_panel<S: Simd>(
    simd: S,
    rows: usize,
    depth: usize,
    a: Strided<*const f32>,
    panel: *const f32,
    c: Strided<*mut f32>,
    update: Update,
) {
    const { assert!(S::ROWS <= MAX_ROWS) };
    let mut row = 0;
    while row < rows {
        // SAFETY: `row` is within the rows that the caller vouches for, and so are the rows of the tile from there on.
        unsafe {
            let a = Strided {
                start: a.start.add(row * a.stride),
                ..a
            };
            let c = Strided {
                start: c.start.add(row * c.stride),
                ..c
            };
            if rows - row >= S::ROWS {
                whole_tile(simd, depth, a, panel, c, update);
            } else {
                rest_tile(simd, rows - row, depth, a, panel, c, update);
            }
        }
        row += S::ROWS;
    }
}

/// Calls `tile` with the constant number of rows that equals `$rows`, among those the instruction set has registers for.
macro_rules! with_rows {
    ($simd:ty, $rows:expr, [$($count:literal)*], $call:ident $arguments:tt) => {
        match $rows {
            $($count if $count <= <$simd>::ROWS => $call::<$simd, $count> $arguments,)*
            _ => {}
        }
    };
}

/// A tile of all `S::ROWS` rows.
///
/// # Safety
/// As for [`multiply_panel`].
#[inline(always)]
unsafe fn whole_tile<S: Simd>(
    simd: S,
    depth: usize,
    a: Strided<*const f32>,
    panel: *const f32,
    c: Strided<*mut f32>,
    update: Update,
) {
    // SAFETY: the contract is the caller's, passed on unchanged.
    unsafe { with_rows!(S, S::ROWS, [4 6 8 12], tile(simd, depth, a, panel, c, update)) }
}

/// A tile of fewer rows: what the whole tiles leave over.
///
/// # Safety
/// As for [`multiply_panel`].
#[inline(always)]
unsafe fn rest_tile<S: Simd>(
    simd: S,
    rows: usize,
    depth: usize,
    a: Strided<*const f32>,
    panel: *const f32,
    c: Strided<*mut f32>,
    update: Update,
) {
    // SAFETY: the contract is the caller's, passed on unchanged.
    unsafe {
        with_rows!(S, rows, [1 2 3 4 5 6 7 8 9 10 11], tile(simd, depth, a, panel, c, update))
    }
}

/// One register tile. `ROWS` is a constant so that the accumulators are registers and every loop over them unrolls.
///
/// # Safety
/// As for [`multiply_panel`], for `ROWS` rows.
#[inline(always)]
unsafe fn tile<S: Simd, const ROWS: usize>(
    simd: S,
    depth: usize,
    a: Strided<*const f32>,
    panel: *const f32,
    c: Strided<*mut f32>,
    update: Update,
) {
    let mut sums = [[simd.zero(); 2]; ROWS];
    let mut k = 0;
    while k < depth {
        // The rows of the next tile come from L2, in pieces too short for the hardware to foresee.
        for row in ROWS..2 * ROWS {
            simd.prefetch(a.start.wrapping_add(row * a.stride + k));
        }
        let end = depth.min(k + LINE);
        while k < end {
            // SAFETY: `k < depth`, so the row of the panel and the value of each row of A are the caller's.
            unsafe {
                let line = panel.add(k * panel_columns::<S>());
                let columns = [simd.load(line), simd.load(line.add(S::LANES))];
                for (index, sums) in sums.iter_mut().enumerate() {
                    let value = simd.splat(*a.start.add(index * a.stride + k));
                    sums[0] = simd.mul_add(value, columns[0], sums[0]);
                    sums[1] = simd.mul_add(value, columns[1], sums[1]);
                }
            }
            k += 1;
        }
    }
    for (index, sums) in sums.iter().enumerate() {
        for (half, &sum) in sums.iter().enumerate() {
            // SAFETY: the caller vouches for ROWS rows of two vectors.
            unsafe {
                let target = c.start.add(index * c.stride + half * S::LANES);
                match update {
                    Update::Replace => simd.store(target, sum),
                    Update::Add => simd.store(target, simd.add(simd.load(target), sum)),
                }
            }
        }
    }
}
