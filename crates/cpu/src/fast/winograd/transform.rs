//! The transforms of input patches and of sums, a vector of channels at a time.

use super::tiling::Tiling;
use crate::simd::{Float, Simd};

/// `Bᵀ` times a column, and by symmetry a row times `B`.
#[inline(always)]
pub(super) fn input_transform<S: Simd>(simd: S, d: [S::F32; 4]) -> [S::F32; 4] {
    [simd.sub(d[0], d[2]), simd.add(d[1], d[2]), simd.sub(d[2], d[1]), simd.sub(d[1], d[3])]
}

/// `Aᵀ` times a column, and by symmetry a row times `A`.
#[inline(always)]
pub(super) fn output_transform<S: Simd>(simd: S, m: [S::F32; 4]) -> [S::F32; 2] {
    [simd.add(simd.add(m[0], m[1]), m[2]), simd.sub(simd.sub(m[1], m[2]), m[3])]
}

/// Transforms `count` channels of a patch, given by its pixels: plane p goes to `target + p · plane`.
///
/// # Safety
/// Each of `patch` must be readable for `count` values, and each plane of `target` writable for `count` values rounded up
/// to whole vectors.
#[inline(always)]
pub(super) unsafe fn transform_input<S, E, T, const PLANES: usize, const PIXELS: usize>(
    simd: S,
    patch: &[*const E; PLANES],
    count: usize,
    target: *mut f32,
    plane: usize,
) where
    S: Simd,
    E: Float,
    T: Tiling<PLANES, PIXELS>,
{
    let mut at = 0;
    // SAFETY: whole vectors are read only where that many values are left; the planes have room for whole vectors.
    unsafe {
        while at + S::LANES <= count {
            transform_vector::<S, E, T, PLANES, PIXELS, true>(simd, patch, at, S::LANES, target, plane);
            at += S::LANES;
        }
        if at < count {
            transform_vector::<S, E, T, PLANES, PIXELS, false>(simd, patch, at, count - at, target, plane);
        }
    }
}

/// One vector of [`transform_input`], at channel `at`, of which `count` values exist; all of them if `WHOLE`.
///
/// # Safety
/// As for [`transform_input`], for `count` values at `at`.
#[inline(always)]
unsafe fn transform_vector<S, E, T, const PLANES: usize, const PIXELS: usize, const WHOLE: bool>(
    simd: S,
    patch: &[*const E; PLANES],
    at: usize,
    count: usize,
    target: *mut f32,
    plane: usize,
) where
    S: Simd,
    E: Float,
    T: Tiling<PLANES, PIXELS>,
{
    let mut values = [simd.zero(); PLANES];
    for (value, start) in values.iter_mut().zip(patch) {
        // SAFETY: the caller vouches for `count` values at `at` of every pixel.
        unsafe {
            let source = start.add(at);
            *value = if WHOLE { E::load(simd, source) } else { E::load_partial(simd, source, count) };
        }
    }
    let planes = T::transform_patch(simd, values);
    for (index, &value) in planes.iter().enumerate() {
        // SAFETY: the caller vouches for a whole vector in every plane.
        unsafe { simd.store(target.add(index * plane + at), value) };
    }
}

/// Transforms `count` columns, whole vectors, of a tile's sums, whose plane p is at `source + p · plane`: its pixels, times
/// `factor`, go to `target`, `count` values apart.
///
/// # Safety
/// Each plane must be readable for `count` values, and `target` writable for `PIXELS` times as many.
#[inline(always)]
pub(super) unsafe fn transform_output<S, T, const PLANES: usize, const PIXELS: usize>(
    simd: S,
    source: *const f32,
    plane: usize,
    count: usize,
    factor: f32,
    target: *mut f32,
) where
    S: Simd,
    T: Tiling<PLANES, PIXELS>,
{
    let factor = simd.splat(factor);
    for at in (0..count).step_by(S::LANES) {
        let mut sums = [simd.zero(); PLANES];
        for (index, sum) in sums.iter_mut().enumerate() {
            // SAFETY: the caller vouches for a whole vector in every plane.
            *sum = unsafe { simd.load(source.add(index * plane + at)) };
        }
        let pixels = T::transform_sums(simd, sums);
        for (pixel, &value) in pixels.iter().enumerate() {
            // SAFETY: the caller vouches for a row of `count` values a pixel.
            unsafe { simd.store(target.add(pixel * count + at), simd.mul(value, factor)) };
        }
    }
}
