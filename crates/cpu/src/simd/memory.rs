//! Runs of values in memory whose length need not be a whole number of vectors.

use super::{Float, Simd};

/// Vectors that a loop handles at a time, so that the loop's own overhead does not count.
pub(crate) const UNROLL: usize = 4;

/// Converts `count` values; the two runs may be the same memory only if the types have the same size.
///
/// # Safety
/// Both pointers are valid for `count` values.
#[inline(always)]
pub(crate) unsafe fn convert<S: Simd, From: Float, To: Float>(
    simd: S,
    from: *const From,
    to: *mut To,
    count: usize,
) {
    let mut at = 0;
    // SAFETY: no vector goes beyond `count`.
    unsafe {
        while at + UNROLL * S::LANES <= count {
            for i in 0..UNROLL {
                let at = at + i * S::LANES;
                To::store(simd, to.add(at), From::load(simd, from.add(at)));
            }
            at += UNROLL * S::LANES;
        }
        while at < count {
            let lanes = (count - at).min(S::LANES);
            store_up_to(simd, to.add(at), load_up_to(simd, from.add(at), lanes), lanes);
            at += lanes;
        }
    }
}

/// Reads a whole vector, or as many lanes as there are left.
///
/// # Safety
/// `from` is valid for reading `lanes` values, at most `S::LANES`.
#[inline(always)]
pub(crate) unsafe fn load_up_to<S: Simd, E: Float>(simd: S, from: *const E, lanes: usize) -> S::F32 {
    // SAFETY: passed on from the caller.
    unsafe { if lanes == S::LANES { E::load(simd, from) } else { E::load_partial(simd, from, lanes) } }
}

/// Writes a whole vector, or as many lanes as there are left.
///
/// # Safety
/// `to` is valid for writing `lanes` values, at most `S::LANES`.
#[inline(always)]
pub(crate) unsafe fn store_up_to<S: Simd, E: Float>(simd: S, to: *mut E, value: S::F32, lanes: usize) {
    // SAFETY: passed on from the caller.
    unsafe {
        if lanes == S::LANES { E::store(simd, to, value) } else { E::store_partial(simd, to, value, lanes) }
    }
}
