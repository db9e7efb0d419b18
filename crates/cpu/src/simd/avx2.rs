//! 256-bit vectors: AVX2 with fused multiply-add (FMA) and half-precision conversion (F16C).

use std::arch::x86_64::*;

use half::{bf16, f16};

use super::{Kernel, Simd};

/// Proof that the CPU has AVX2, FMA and F16C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Avx2(());

impl Avx2 {
    /// The token, if the CPU has the three features.
    pub fn detect() -> Option<Self> {
        let found = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        found.then_some(Self(()))
    }

    /// Runs `kernel` compiled for these features.
    #[inline]
    pub(super) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "avx2,fma,f16c")]
        fn featured<K: Kernel>(simd: Avx2, kernel: K) -> K::Output {
            kernel.run(simd)
        }
        // SAFETY: the token proves the features.
        unsafe { featured(self, kernel) }
    }
}

impl Simd for Avx2 {
    const LANES: usize = 8;
    const ROWS: usize = 6;
    type F32 = __m256;
    type Mask = __m256;

    memory_methods! {
        fn load(source: *const f32) -> __m256 { _mm256_loadu_ps(source) }
        fn store(target: *mut f32, value: __m256) { _mm256_storeu_ps(target, value) }
        fn load_f16(source: *const f16) -> __m256 { _mm256_cvtph_ps(_mm_loadu_si128(source.cast())) }
        fn store_f16(target: *mut f16, value: __m256) {
            _mm_storeu_si128(target.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(value))
        }
        fn load_bf16(source: *const bf16) -> __m256 {
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(source.cast()))))
        }
        fn store_bf16(target: *mut bf16, value: __m256) { _mm_storeu_si128(target.cast(), narrow_bf16(value)) }
    }

    #[inline(always)]
    fn prefetch(self, address: *const f32) {
        // SAFETY: a prefetch never faults, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }

    vector_methods! {
        fn splat(value: f32) -> __m256 { _mm256_set1_ps(value) }
        fn add(a: __m256, b: __m256) -> __m256 { _mm256_add_ps(a, b) }
        fn sub(a: __m256, b: __m256) -> __m256 { _mm256_sub_ps(a, b) }
        fn mul(a: __m256, b: __m256) -> __m256 { _mm256_mul_ps(a, b) }
        fn div(a: __m256, b: __m256) -> __m256 { _mm256_div_ps(a, b) }
        fn max(a: __m256, b: __m256) -> __m256 { _mm256_max_ps(a, b) }
        fn min(a: __m256, b: __m256) -> __m256 { _mm256_min_ps(a, b) }
        fn mul_add(a: __m256, b: __m256, c: __m256) -> __m256 { _mm256_fmadd_ps(a, b, c) }
        fn abs(a: __m256) -> __m256 { _mm256_andnot_ps(_mm256_set1_ps(-0.0), a) }
        fn sqrt(a: __m256) -> __m256 { _mm256_sqrt_ps(a) }
        fn round(a: __m256) -> __m256 { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
        fn exp2_int(a: __m256) -> __m256 {
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(_mm256_cvtps_epi32(a), _mm256_set1_epi32(127))))
        }
        fn less_than(a: __m256, b: __m256) -> __m256 { _mm256_cmp_ps::<_CMP_LT_OQ>(a, b) }
        fn select(mask: __m256, yes: __m256, no: __m256) -> __m256 { _mm256_blendv_ps(no, yes, mask) }
        fn reduce_sum(a: __m256) -> f32 {{
            let quad = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let pair = _mm_add_ps(quad, _mm_movehl_ps(quad, quad));
            _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)))
        }}
        fn reduce_max(a: __m256) -> f32 {{
            let quad = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let pair = _mm_max_ps(quad, _mm_movehl_ps(quad, quad));
            _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)))
        }}
    }
}

/// Rounds to bfloat16, ties to even; a NaN is made quiet, so that dropping its low bits cannot make it infinite.
///
/// # Safety
/// The CPU must have the features of the token.
#[inline(always)]
unsafe fn narrow_bf16(value: __m256) -> __m128i {
    // SAFETY: the caller vouches for the features.
    unsafe {
        let bits = _mm256_castps_si256(value);
        let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
        let rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
        let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x0040_0000));
        let is_nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(value, value));
        let high = _mm256_srli_epi32::<16>(_mm256_blendv_epi8(rounded, quiet, is_nan));
        _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256::<1>(high))
    }
}
