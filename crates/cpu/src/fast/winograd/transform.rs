//! The transforms of input patches and of sums, a vector of channels at a time.

use crate::simd::{Float, Simd};

/// Values of a patch, and planes of its transform.
pub(super) const PLANES: usize = 16;

/// `Bᵀ` times a column, and by symmetry a row times `B`.
#[inline(always)]
fn input_transform<S: Simd>(simd: S, d: [S::F32; 4]) -> [S::F32; 4] {
    [simd.sub(d[0], d[2]), simd.add(d[1], d[2]), simd.sub(d[2], d[1]), simd.sub(d[1], d[3])]
}

/// `Aᵀ` times a column, and by symmetry a row times `A`.
#[inline(always)]
fn output_transform<S: Simd>(simd: S, m: [S::F32; 4]) -> [S::F32; 2] {
    [simd.add(simd.add(m[0], m[1]), m[2]), simd.sub(simd.sub(m[1], m[2]), m[3])]
}

/// Transforms `count` channels of a patch, given by its pixels: plane p goes to `target + p · plane`.
///
/// # Safety
/// Each of `patch` must be readable for `count` values, and each plane of `target` writable for `count` values rounded up
/// to whole vectors.
#[inline(always)]
pub(super) unsafe fn transform_input<S: Simd, E: Float>(
    simd: S,
    patch: &[*const E; PLANES],
    count: usize,
    target: *mut f32,
    plane: usize,
) {
    let mut at = 0;
    // SAFETY: whole vectors are read only where that many values are left; the planes have room for whole vectors.
    unsafe {
        while at + S::LANES <= count {
            transform_vector::<S, E, true>(simd, patch, at, S::LANES, target, plane);
            at += S::LANES;
        }
        if at < count {
            transform_vector::<S, E, false>(simd, patch, at, count - at, target, plane);
        }
    }
}

/// One vector of [`transform_input`], at channel `at`, of which `count` values are there; all of them where `WHOLE`.
///
/// # Safety
/// As for [`transform_input`], for `count` values at `at`.
#[inline(always)]
unsafe fn transform_vector<S: Simd, E: Float, const WHOLE: bool>(
    simd: S,
    patch: &[*const E; PLANES],
    at: usize,
    count: usize,
    target: *mut f32,
    plane: usize,
) {
    let mut columns = [[simd.zero(); 4]; 4];
    for (x, column) in columns.iter_mut().enumerate() {
        let mut values = [simd.zero(); 4];
        for (y, value) in values.iter_mut().enumerate() {
            // SAFETY: the caller vouches for `count` values at `at` of every pixel.
            unsafe {
                let source = patch[4 * y + x].add(at);
                *value = if WHOLE { E::load(simd, source) } else { E::load_partial(simd, source, count) };
            }
        }
        *column = input_transform(simd, values);
    }
    let [first, second, third, fourth] = columns;
    for y in 0..4 {
        let row = input_transform(simd, [first[y], second[y], third[y], fourth[y]]);
        for (x, &value) in row.iter().enumerate() {
            // SAFETY: the caller vouches for a whole vector in every plane.
            unsafe { simd.store(target.add((4 * y + x) * plane + at), value) };
        }
    }
}

/// Transforms `count` columns, whole vectors, of a tile's sums, whose plane p is at `source + p · plane`: its four pixels
/// go to `target`, `count` values apart.
///
/// # Safety
/// Each plane must be readable for `count` values, and `target` writable for four times as many.
#[inline(always)]
pub(super) unsafe fn transform_output<S: Simd>(
    simd: S,
    source: *const f32,
    plane: usize,
    count: usize,
    target: *mut f32,
) {
    for at in (0..count).step_by(S::LANES) {
        let mut rows = [[simd.zero(); 2]; 4];
        for (y, row) in rows.iter_mut().enumerate() {
            let mut sums = [simd.zero(); 4];
            for (x, sum) in sums.iter_mut().enumerate() {
                // SAFETY: the caller vouches for a whole vector in every plane.
                *sum = unsafe { simd.load(source.add((4 * y + x) * plane + at)) };
            }
            *row = output_transform(simd, sums);
        }
        let [first, second, third, fourth] = rows;
        for x in 0..2 {
            let [upper, lower] = output_transform(simd, [first[x], second[x], third[x], fourth[x]]);
            // SAFETY: the caller vouches for four rows of `count` values.
            unsafe {
                simd.store(target.add(x * count + at), upper);
                simd.store(target.add((2 + x) * count + at), lower);
            }
        }
    }
}
