//! 512-bit vectors: the AVX-512 features every server CPU since Skylake has (F, BW, DQ, VL), and with or without BF16.

use std::arch::x86_64::*;

use half::{bf16, f16};

use super::{Kernel, Simd};

/// Proof that the CPU has AVX-512 F, BW, DQ and VL, and AVX2, FMA and F16C; and AVX-512 BF16, if that is `BF16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Avx512<const BF16: bool = false>(());

impl<const BF16: bool> Avx512<BF16> {
    /// The token, if the CPU has the features.
    pub fn detect() -> Option<Self> {
        let found = super::Avx2::detect().is_some()
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && (!BF16 || is_x86_feature_detected!("avx512bf16"));
        found.then_some(Self(()))
    }
}

impl Avx512<false> {
    /// Runs `kernel` compiled for these features.
    #[inline]
    pub(super) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
        fn featured<K: Kernel>(simd: Avx512<false>, kernel: K) -> K::Output {
            kernel.run(simd)
        }
        // SAFETY: the token proves the features.
        unsafe { featured(self, kernel) }
    }
}

impl Avx512<true> {
    /// Runs `kernel` compiled for these features.
    #[inline]
    pub(super) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c")]
        fn featured<K: Kernel>(simd: Avx512<true>, kernel: K) -> K::Output {
            kernel.run(simd)
        }
        // SAFETY: the token proves the features.
        unsafe { featured(self, kernel) }
    }
}

impl<const BF16: bool> Simd for Avx512<BF16>
where
    Self: super::sealed::Sealed,
{
    const LANES: usize = 16;
    const PAIRS: bool = BF16;
    const ROWS: usize = 12;
    type F32 = __m512;
    type Mask = __mmask16;

    memory_methods! {
        fn load(source: *const f32) -> __m512 { _mm512_loadu_ps(source) }
        fn store(target: *mut f32, value: __m512) { _mm512_storeu_ps(target, value) }
        fn load_f16(source: *const f16) -> __m512 { _mm512_cvtph_ps(_mm256_loadu_si256(source.cast())) }
        fn store_f16(target: *mut f16, value: __m512) {
            _mm256_storeu_si256(target.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(value))
        }
        fn load_bf16(source: *const bf16) -> __m512 {
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(source.cast()))))
        }
        fn store_bf16(target: *mut bf16, value: __m512) {{
            // The instruction gives zero for subnormal values, which are rare.
            let narrow = match BF16 && _mm512_fpclass_ps_mask::<SUBNORMAL>(value) == 0 {
                true => std::mem::transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(value)),
                false => narrow_bf16(value),
            };
            _mm256_storeu_si256(target.cast(), narrow);
        }}
    }

    #[inline(always)]
    fn mul_add_pairs(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        if !BF16 {
            return super::mul_add_pairs_by_lanes(self, a, b, c);
        }
        // SAFETY: the token proves the feature, and the types are 512 bits in which any pattern is a value.
        unsafe {
            let a = std::mem::transmute::<__m512, __m512bh>(a);
            _mm512_dpbf16_ps(c, a, std::mem::transmute::<__m512, __m512bh>(b))
        }
    }

    #[inline(always)]
    fn prefetch(self, address: *const f32) {
        // SAFETY: a prefetch never faults, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }

    vector_methods! {
        fn splat(value: f32) -> __m512 { _mm512_set1_ps(value) }
        fn add(a: __m512, b: __m512) -> __m512 { _mm512_add_ps(a, b) }
        fn sub(a: __m512, b: __m512) -> __m512 { _mm512_sub_ps(a, b) }
        fn mul(a: __m512, b: __m512) -> __m512 { _mm512_mul_ps(a, b) }
        fn div(a: __m512, b: __m512) -> __m512 { _mm512_div_ps(a, b) }
        fn max(a: __m512, b: __m512) -> __m512 { _mm512_max_ps(a, b) }
        fn min(a: __m512, b: __m512) -> __m512 { _mm512_min_ps(a, b) }
        fn mul_add(a: __m512, b: __m512, c: __m512) -> __m512 { _mm512_fmadd_ps(a, b, c) }
        fn abs(a: __m512) -> __m512 { _mm512_abs_ps(a) }
        fn sqrt(a: __m512) -> __m512 { _mm512_sqrt_ps(a) }
        fn round(a: __m512) -> __m512 { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT }>(a) }
        fn exp2_int(a: __m512) -> __m512 {
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(_mm512_add_epi32(_mm512_cvtps_epi32(a), _mm512_set1_epi32(127))))
        }
        fn less_than(a: __m512, b: __m512) -> __mmask16 { _mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b) }
        fn select(mask: __mmask16, yes: __m512, no: __m512) -> __m512 { _mm512_mask_blend_ps(mask, no, yes) }
        fn reduce_sum(a: __m512) -> f32 { _mm512_reduce_add_ps(a) }
        fn reduce_max(a: __m512) -> f32 { _mm512_reduce_max_ps(a) }
    }
}

/// The class of subnormal values of `VFPCLASSPS`.
const SUBNORMAL: i32 = 0x20;

/// Rounds to bfloat16, ties to even; a NaN is made quiet, so that dropping its low bits cannot make it infinite.
///
/// # Safety
/// The CPU must have the features of the token.
#[inline(always)]
unsafe fn narrow_bf16(value: __m512) -> __m256i {
    // SAFETY: the caller vouches for the features.
    unsafe {
        let bits = _mm512_castps_si512(value);
        let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
        let rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
        let quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x0040_0000));
        let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(value, value);
        _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(_mm512_mask_blend_epi32(is_nan, rounded, quiet)))
    }
}
