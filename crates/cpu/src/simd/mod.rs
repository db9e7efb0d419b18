//! A small portable SIMD layer over f32 vectors.
//!
//! A kernel is written once, generic over the instruction set ([`Simd`]) and over the storage type ([`Float`]),
//! and [`Isa::dispatch`] runs it compiled for the instruction set asked for:
//!
//! ```
//! use kinora_cpu::simd::{Float, Isa, Kernel, Simd};
//!
//! struct Sum<'a, E>(&'a [E]);
//!
//! impl<E: Float> Kernel for Sum<'_, E> {
//!     type Output = f32;
//!
//!     #[inline(always)]
//!     fn run<S: Simd>(self, simd: S) -> f32 {
//!         let mut total = simd.zero();
//!         let mut chunks = self.0.chunks_exact(S::LANES);
//!         for chunk in &mut chunks {
//!             // SAFETY: `chunks_exact` yields exactly LANES elements.
//!             total = simd.add(total, unsafe { E::load(simd, chunk.as_ptr()) });
//!         }
//!         let tail = chunks.remainder();
//!         // SAFETY: the remainder holds `tail.len()` < LANES elements.
//!         total = simd.add(total, unsafe { E::load_partial(simd, tail.as_ptr(), tail.len()) });
//!         simd.reduce_sum(total)
//!     }
//! }
//!
//! let values = vec![half::f16::from_f32(0.5); 21];
//! assert_eq!(Isa::detect().dispatch(Sum(&values)), 10.5);
//! ```
//!
//! Every function on the way from [`Kernel::run`] to an intrinsic is `#[inline(always)]`, so that the whole kernel
//! lands in the one function that enables the target features. A closure handed to another thread leaves that
//! function: dispatch inside the task, not around the parallel loop.

/// Methods that are one expression of intrinsics on vectors.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! vector_methods {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $output:ty { $body:expr })*) => {
        $(#[inline(always)]
        fn $name(self, $($argument: $type),*) -> $output {
            // SAFETY: the token proves the features that the intrinsics need.
            unsafe { $body }
        })*
    };
}

/// Methods that are one expression of intrinsics around a memory access.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! memory_methods {
    ($(fn $name:ident($($argument:ident: $type:ty),*) $(-> $output:ty)? { $body:expr })*) => {
        $(#[inline(always)]
        unsafe fn $name(self, $($argument: $type),*) $(-> $output)? {
            // SAFETY: the token proves the features, the caller vouches for the pointer; no access needs
            // alignment beyond that of one element.
            unsafe { $body }
        })*
    };
}

pub(crate) mod activation;
#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod float;
mod isa;
pub mod math;
mod memory;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
#[cfg(test)]
mod software_tiles;
#[cfg_attr(not(any(target_arch = "x86_64", test)), allow(dead_code, reason = "no other CPU has tiles"))]
pub(crate) mod tiles;

#[cfg(target_arch = "x86_64")]
pub use amx::Amx;
#[cfg(target_arch = "x86_64")]
pub use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub use avx512::Avx512;
pub use float::Float;
pub use isa::{Isa, Kernel};
pub(crate) use memory::{UNROLL, convert, load_up_to, store_up_to};
#[cfg(target_arch = "aarch64")]
pub use neon::Neon;
pub use portable::Portable;

use half::{bf16, f16};

mod sealed {
    pub trait Sealed {}
}

/// Makes a token an instruction set, and checks what unsafe code relies on: buffers of [`MAX_LANES`] and [`MAX_ROWS`].
macro_rules! seal {
    ($token:ty) => {
        impl sealed::Sealed for $token {}
        const _: () = assert!(<$token as Simd>::LANES <= MAX_LANES && <$token as Simd>::ROWS <= MAX_ROWS);
    };
}

#[cfg(target_arch = "x86_64")]
seal!(Avx2);
#[cfg(target_arch = "x86_64")]
seal!(Avx512<true>);
#[cfg(target_arch = "x86_64")]
seal!(Avx512<false>);
#[cfg(target_arch = "aarch64")]
seal!(Neon);
seal!(Portable);

/// The widest vector of any instruction set here, in f32 lanes; sizes stack buffers for partial vectors.
pub const MAX_LANES: usize = 16;

/// The most microkernel rows of any instruction set here; sizes stack buffers of one value per row.
pub const MAX_ROWS: usize = 12;

/// One instruction set: a token whose existence proves that the CPU has it.
///
/// Tokens can only be made by detection, which is why the arithmetic below is safe to call; only what follows a raw
/// pointer is `unsafe`. The trait is sealed: unsafe code relies on what the implementations here say of themselves.
pub trait Simd: sealed::Sealed + Copy + Send + Sync + 'static {
    /// f32 lanes in a vector, at most [`MAX_LANES`].
    const LANES: usize;
    /// Rows of the matrix-product microkernel, whose tile is `ROWS × 2·LANES`: as many as the register file holds
    /// as accumulators beside two vectors of B and one broadcast. At most [`MAX_ROWS`].
    const ROWS: usize;
    /// Whether matrix products of bfloat16 values use [`Simd::mul_add_pairs`]: where it is an instruction, and in
    /// [`Portable`], so that every machine can test them.
    const PAIRS: bool = false;
    /// A vector of `LANES` f32 values.
    type F32: Copy;
    /// One truth value per lane.
    type Mask: Copy;

    /// Every lane `value`.
    fn splat(self, value: f32) -> Self::F32;

    /// Reads `LANES` values.
    ///
    /// # Safety
    /// `source` must be valid for reading `LANES` values; it need not be aligned to the vector.
    unsafe fn load(self, source: *const f32) -> Self::F32;
    /// Writes `LANES` values.
    ///
    /// # Safety
    /// `target` must be valid for writing `LANES` values; it need not be aligned to the vector.
    unsafe fn store(self, target: *mut f32, value: Self::F32);
    /// Reads and widens `LANES` half-precision values.
    ///
    /// # Safety
    /// As for [`Simd::load`].
    unsafe fn load_f16(self, source: *const f16) -> Self::F32;
    /// Narrows to half precision, to nearest with ties to even, and writes `LANES` values.
    ///
    /// # Safety
    /// As for [`Simd::store`].
    unsafe fn store_f16(self, target: *mut f16, value: Self::F32);
    /// Reads and widens `LANES` bfloat16 values.
    ///
    /// # Safety
    /// As for [`Simd::load`].
    unsafe fn load_bf16(self, source: *const bf16) -> Self::F32;
    /// Narrows to bfloat16, to nearest with ties to even (a NaN stays a NaN), and writes `LANES` values.
    ///
    /// # Safety
    /// As for [`Simd::store`].
    unsafe fn store_bf16(self, target: *mut bf16, value: Self::F32);

    /// `a + b`.
    fn add(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a - b`.
    fn sub(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a · b`.
    fn mul(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a / b`.
    fn div(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// The larger of each pair; NaN if `b` is NaN.
    fn max(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// The smaller of each pair; NaN if `b` is NaN.
    fn min(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a · b + c`, rounded once if the instruction set has a fused form.
    fn mul_add(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32;
    /// `c` plus the sum of two products in every lane: a lane of `a` and `b` holds two bfloat16 values, the first in its
    /// lower half.
    ///
    /// A product of two bfloat16 values is exact in f32. In which order the products are added, and whether the first
    /// sum is rounded, depends on the instruction set. `VDPBF16PS` takes subnormal values as zero, and gives zero for
    /// subnormal sums.
    #[inline(always)]
    fn mul_add_pairs(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32 {
        mul_add_pairs_by_lanes(self, a, b, c)
    }
    /// `|a|`.
    fn abs(self, a: Self::F32) -> Self::F32;
    /// `√a`, correctly rounded.
    fn sqrt(self, a: Self::F32) -> Self::F32;
    /// The nearest integer, ties to even.
    fn round(self, a: Self::F32) -> Self::F32;
    /// `2^a` for an integral `a` in -126..=127, and infinity for 128; any other lane gives an unspecified value.
    fn exp2_int(self, a: Self::F32) -> Self::F32;
    /// Where `a < b`; false where either is NaN.
    fn less_than(self, a: Self::F32, b: Self::F32) -> Self::Mask;
    /// `yes` where the mask holds, `no` elsewhere.
    fn select(self, mask: Self::Mask, yes: Self::F32, no: Self::F32) -> Self::F32;
    /// The sum over the lanes.
    fn reduce_sum(self, a: Self::F32) -> f32;
    /// The largest lane; unspecified if a lane is NaN.
    fn reduce_max(self, a: Self::F32) -> f32;

    /// Prefetches the cache line at `address`, which need not be valid. Does nothing if stable Rust has no instruction
    /// for it.
    #[inline(always)]
    fn prefetch(self, _address: *const f32) {}

    /// Every lane zero.
    #[inline(always)]
    fn zero(self) -> Self::F32 {
        self.splat(0.0)
    }

    /// `-a`, signed zeros included.
    #[inline(always)]
    fn neg(self, a: Self::F32) -> Self::F32 {
        self.sub(self.splat(-0.0), a)
    }
}

/// [`Simd::mul_add_pairs`] for instruction sets that have no instruction for it.
#[inline(always)]
fn mul_add_pairs_by_lanes<S: Simd>(simd: S, a: S::F32, b: S::F32, c: S::F32) -> S::F32 {
    let mut lanes = [[0.0f32; MAX_LANES]; 3];
    for (lanes, vector) in lanes.iter_mut().zip([a, b, c]) {
        // SAFETY: a line holds MAX_LANES >= LANES values.
        unsafe { simd.store(lanes.as_mut_ptr(), vector) };
    }
    let [a, b, mut c] = lanes;
    let low = |pair: f32| f32::from_bits(pair.to_bits() << 16);
    let high = |pair: f32| f32::from_bits(pair.to_bits() & 0xffff_0000);
    for ((sum, a), b) in c.iter_mut().zip(a).zip(b).take(S::LANES) {
        *sum = (*sum + low(a) * low(b)) + high(a) * high(b);
    }
    // SAFETY: as for the stores.
    unsafe { simd.load(c.as_ptr()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    struct MultiplyPairs<'a>(&'a [f32], &'a [f32], &'a mut [f32]);

    impl Kernel for MultiplyPairs<'_> {
        type Output = ();

        #[inline(always)]
        fn run<S: Simd>(self, simd: S) {
            let MultiplyPairs(a, b, c) = self;
            // SAFETY: the test passes LANES pairs and as many sums.
            unsafe {
                let sums = simd.load(c.as_ptr());
                let sums = simd.mul_add_pairs(simd.load(a.as_ptr()), simd.load(b.as_ptr()), sums);
                simd.store(c.as_mut_ptr(), sums);
            }
        }
    }

    /// Two bfloat16 values in each f32, the first in its lower half.
    fn paired(values: &[bf16]) -> Vec<f32> {
        let pair = |pair: &[bf16]| u32::from(pair[0].to_bits()) | u32::from(pair[1].to_bits()) << 16;
        values.chunks_exact(2).map(|values| f32::from_bits(pair(values))).collect()
    }

    #[test]
    fn pairs_are_multiplied_exactly_and_rounded_as_they_are_added() {
        let mut random = Random::new(5);
        for isa in Isa::available() {
            for _ in 0..1000 {
                let (a, b) = (random.vector::<bf16>(2 * isa.lanes()), random.vector::<bf16>(2 * isa.lanes()));
                let before = random.vector::<f32>(isa.lanes());
                let mut sums = before.clone();
                isa.dispatch(MultiplyPairs(&paired(&a), &paired(&b), &mut sums));
                for (lane, (got, before)) in sums.iter().zip(&before).enumerate() {
                    let products = [2 * lane, 2 * lane + 1].map(|at| a[at].to_f64() * b[at].to_f64());
                    let [first, second] = products;
                    let want = f64::from(*before) + first + second;
                    // Two sums, each rounded by 2^-24 of itself.
                    let allowed = (f64::from(before.abs()) + first.abs() + second.abs()) * 2f64.powi(-23);
                    let error = (f64::from(*got) - want).abs();
                    assert!(error <= allowed, "{isa:?} lane {lane}: {got} and not {want}");
                }
            }
        }
    }
}
