//! Plain Rust over four lanes, for CPUs without one of the other instruction sets.

use half::{bf16, f16};

use super::Simd;

/// Plain Rust; always available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portable;

const LANES: usize = 4;

#[inline(always)]
fn map(a: [f32; LANES], f: impl Fn(f32) -> f32) -> [f32; LANES] {
    [f(a[0]), f(a[1]), f(a[2]), f(a[3])]
}

#[inline(always)]
fn zip(a: [f32; LANES], b: [f32; LANES], f: impl Fn(f32, f32) -> f32) -> [f32; LANES] {
    [f(a[0], b[0]), f(a[1], b[1]), f(a[2], b[2]), f(a[3], b[3])]
}

impl Simd for Portable {
    const LANES: usize = LANES;
    const ROWS: usize = 4;
    const PAIRS: bool = true;
    type F32 = [f32; LANES];
    type Mask = [bool; LANES];

    #[inline(always)]
    fn splat(self, value: f32) -> Self::F32 {
        [value; LANES]
    }
    #[inline(always)]
    unsafe fn load(self, source: *const f32) -> Self::F32 {
        // SAFETY: the caller vouches for LANES values, and an array needs no more alignment than its elements.
        unsafe { source.cast::<[f32; LANES]>().read() }
    }
    #[inline(always)]
    unsafe fn store(self, target: *mut f32, value: Self::F32) {
        // SAFETY: as in `load`.
        unsafe { target.cast::<[f32; LANES]>().write(value) }
    }
    #[inline(always)]
    unsafe fn load_f16(self, source: *const f16) -> Self::F32 {
        // SAFETY: as in `load`.
        unsafe { source.cast::<[f16; LANES]>().read() }.map(f16::to_f32)
    }
    #[inline(always)]
    unsafe fn store_f16(self, target: *mut f16, value: Self::F32) {
        // SAFETY: as in `load`.
        unsafe { target.cast::<[f16; LANES]>().write(value.map(f16::from_f32)) }
    }
    #[inline(always)]
    unsafe fn load_bf16(self, source: *const bf16) -> Self::F32 {
        // SAFETY: as in `load`.
        unsafe { source.cast::<[bf16; LANES]>().read() }.map(bf16::to_f32)
    }
    #[inline(always)]
    unsafe fn store_bf16(self, target: *mut bf16, value: Self::F32) {
        // SAFETY: as in `load`.
        unsafe { target.cast::<[bf16; LANES]>().write(value.map(bf16::from_f32)) }
    }
    #[inline(always)]
    fn add(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        zip(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        zip(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        zip(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn div(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        zip(a, b, |a, b| a / b)
    }
    #[inline(always)]
    fn max(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        zip(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn min(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        zip(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn mul_add(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32 {
        // Not `f32::mul_add`: without the instruction that is a library call for every lane.
        self.add(self.mul(a, b), c)
    }
    #[inline(always)]
    fn abs(self, a: Self::F32) -> Self::F32 {
        map(a, f32::abs)
    }
    #[inline(always)]
    fn sqrt(self, a: Self::F32) -> Self::F32 {
        map(a, f32::sqrt)
    }
    #[inline(always)]
    fn round(self, a: Self::F32) -> Self::F32 {
        // Adding 1.5·2^23 leaves no fraction bits, which rounds in the current mode without a library call.
        const NO_FRACTION: f32 = 12_582_912.0;
        const INTEGRAL_FROM: f32 = 4_194_304.0;
        map(
            a,
            |a| {
                if a.abs() < INTEGRAL_FROM { (a + NO_FRACTION) - NO_FRACTION } else { a.round_ties_even() }
            },
        )
    }
    #[inline(always)]
    fn exp2_int(self, a: Self::F32) -> Self::F32 {
        map(a, |a| f32::from_bits(((a as i32).wrapping_add(127) as u32) << 23))
    }
    #[inline(always)]
    fn less_than(self, a: Self::F32, b: Self::F32) -> Self::Mask {
        [a[0] < b[0], a[1] < b[1], a[2] < b[2], a[3] < b[3]]
    }
    #[inline(always)]
    fn select(self, mask: Self::Mask, yes: Self::F32, no: Self::F32) -> Self::F32 {
        let pick = |lane: usize| if mask[lane] { yes[lane] } else { no[lane] };
        [pick(0), pick(1), pick(2), pick(3)]
    }
    #[inline(always)]
    fn reduce_sum(self, a: Self::F32) -> f32 {
        (a[0] + a[2]) + (a[1] + a[3])
    }
    #[inline(always)]
    fn reduce_max(self, a: Self::F32) -> f32 {
        a[0].max(a[2]).max(a[1].max(a[3]))
    }
}
