//! 128-bit vectors of 64-bit ARM.

use std::arch::aarch64::*;
use std::arch::asm;

use half::{bf16, f16};

use super::{Kernel, Simd};

/// Proof that the CPU has NEON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neon(());

impl Neon {
    /// The token, if the CPU has the feature.
    pub fn detect() -> Option<Self> {
        std::arch::is_aarch64_feature_detected!("neon").then_some(Self(()))
    }

    /// Runs `kernel` compiled for this feature.
    #[inline]
    pub(super) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "neon")]
        fn featured<K: Kernel>(simd: Neon, kernel: K) -> K::Output {
            kernel.run(simd)
        }
        // SAFETY: the token proves the feature.
        unsafe { featured(self, kernel) }
    }
}

impl Simd for Neon {
    const LANES: usize = 4;
    // 12 × 2 accumulators, two vectors of B and a broadcast fill 27 of the 32 registers.
    const ROWS: usize = 12;
    type F32 = float32x4_t;
    type Mask = uint32x4_t;

    memory_methods! {
        fn load(source: *const f32) -> float32x4_t { vld1q_f32(source) }
        fn store(target: *mut f32, value: float32x4_t) { vst1q_f32(target, value) }
        fn load_f16(source: *const f16) -> float32x4_t { widen_f16(vld1_u16(source.cast())) }
        fn store_f16(target: *mut f16, value: float32x4_t) { vst1_u16(target.cast(), narrow_f16(value)) }
        fn load_bf16(source: *const bf16) -> float32x4_t {
            vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(source.cast())))
        }
        fn store_bf16(target: *mut bf16, value: float32x4_t) { vst1_u16(target.cast(), narrow_bf16(value)) }
    }

    vector_methods! {
        fn splat(value: f32) -> float32x4_t { vdupq_n_f32(value) }
        fn add(a: float32x4_t, b: float32x4_t) -> float32x4_t { vaddq_f32(a, b) }
        fn sub(a: float32x4_t, b: float32x4_t) -> float32x4_t { vsubq_f32(a, b) }
        fn mul(a: float32x4_t, b: float32x4_t) -> float32x4_t { vmulq_f32(a, b) }
        fn div(a: float32x4_t, b: float32x4_t) -> float32x4_t { vdivq_f32(a, b) }
        fn max(a: float32x4_t, b: float32x4_t) -> float32x4_t { vmaxq_f32(a, b) }
        fn min(a: float32x4_t, b: float32x4_t) -> float32x4_t { vminq_f32(a, b) }
        fn mul_add(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t { vfmaq_f32(c, a, b) }
        fn abs(a: float32x4_t) -> float32x4_t { vabsq_f32(a) }
        fn sqrt(a: float32x4_t) -> float32x4_t { vsqrtq_f32(a) }
        fn round(a: float32x4_t) -> float32x4_t { vrndnq_f32(a) }
        fn exp2_int(a: float32x4_t) -> float32x4_t {
            vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(vcvtq_s32_f32(a), vdupq_n_s32(127))))
        }
        fn less_than(a: float32x4_t, b: float32x4_t) -> uint32x4_t { vcltq_f32(a, b) }
        fn select(mask: uint32x4_t, yes: float32x4_t, no: float32x4_t) -> float32x4_t { vbslq_f32(mask, yes, no) }
        fn reduce_sum(a: float32x4_t) -> f32 { vaddvq_f32(a) }
        fn reduce_max(a: float32x4_t) -> f32 { vmaxvq_f32(a) }
    }
}

/// Rounds to bfloat16, ties to even; a NaN is made quiet, so that dropping its low bits cannot make it infinite.
///
/// # Safety
/// The CPU must have the feature of the token.
#[inline(always)]
unsafe fn narrow_bf16(value: float32x4_t) -> uint16x4_t {
    // SAFETY: the caller vouches for the feature.
    unsafe {
        let bits = vreinterpretq_u32_f32(value);
        let odd = vandq_u32(vshrq_n_u32::<16>(bits), vdupq_n_u32(1));
        let rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
        let quiet = vorrq_u32(bits, vdupq_n_u32(0x0040_0000));
        let is_number = vceqq_f32(value, value);
        vshrn_n_u32::<16>(vbslq_u32(is_number, rounded, quiet))
    }
}

/// Widens half precision. The conversions are base instructions of the architecture, but their intrinsics need Rust's
/// `f16` type, which is not stable.
///
/// # Safety
/// The CPU must have the feature of the token.
#[inline(always)]
unsafe fn widen_f16(half: uint16x4_t) -> float32x4_t {
    // SAFETY: the caller vouches for the feature.
    unsafe {
        let wide: float32x4_t;
        asm!("fcvtl {0:v}.4s, {1:v}.4h", out(vreg) wide, in(vreg) half, options(pure, nomem, nostack, preserves_flags));
        wide
    }
}

/// Rounds to half precision, ties to even.
///
/// # Safety
/// The CPU must have the feature of the token.
#[inline(always)]
unsafe fn narrow_f16(wide: float32x4_t) -> uint16x4_t {
    // SAFETY: the caller vouches for the feature.
    unsafe {
        let half: uint16x4_t;
        asm!("fcvtn {0:v}.4h, {1:v}.4s", out(vreg) half, in(vreg) wide, options(pure, nomem, nostack, preserves_flags));
        half
    }
}
