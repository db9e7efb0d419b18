//! The storage types of tensors: what a kernel loads and stores around its f32 arithmetic.

use half::{bf16, f16};

use super::{MAX_LANES, Simd};

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for half::f16 {}
    impl Sealed for half::bf16 {}
}

/// A storage type: f32, f16 or bf16. Arithmetic is always in f32.
pub trait Float: kinora_graph::dtype::Element + sealed::Sealed + Default + PartialEq {
    /// The value as f32; exact.
    fn to_f32(self) -> f32;
    /// The nearest value of this type, ties to even.
    fn from_f32(value: f32) -> Self;

    /// Reads and widens `S::LANES` values.
    ///
    /// # Safety
    /// `source` must be valid for reading `S::LANES` values.
    unsafe fn load<S: Simd>(simd: S, source: *const Self) -> S::F32;
    /// Narrows and writes `S::LANES` values.
    ///
    /// # Safety
    /// `target` must be valid for writing `S::LANES` values.
    unsafe fn store<S: Simd>(simd: S, target: *mut Self, value: S::F32);

    /// Reads and widens the first `count` lanes, the others zero.
    ///
    /// # Safety
    /// `source` must be valid for reading `count` values, and `count` at most `S::LANES`.
    #[inline(always)]
    unsafe fn load_partial<S: Simd>(simd: S, source: *const Self, count: usize) -> S::F32 {
        debug_assert!(count <= S::LANES);
        let mut buffer = [Self::default(); MAX_LANES];
        // SAFETY: the caller vouches for `count` values at `source`, and the buffer holds MAX_LANES >= LANES >= count.
        unsafe {
            std::ptr::copy_nonoverlapping(source, buffer.as_mut_ptr(), count);
            Self::load(simd, buffer.as_ptr())
        }
    }

    /// Narrows and writes the first `count` lanes.
    ///
    /// # Safety
    /// `target` must be valid for writing `count` values, and `count` at most `S::LANES`.
    #[inline(always)]
    unsafe fn store_partial<S: Simd>(simd: S, target: *mut Self, value: S::F32, count: usize) {
        debug_assert!(count <= S::LANES);
        let mut buffer = [Self::default(); MAX_LANES];
        // SAFETY: the buffer holds MAX_LANES >= LANES >= count, and the caller vouches for `count` values at `target`.
        unsafe {
            Self::store(simd, buffer.as_mut_ptr(), value);
            std::ptr::copy_nonoverlapping(buffer.as_ptr(), target, count);
        }
    }
}

/// Implements [`Float`] for one type by its conversions and its vector load and store.
macro_rules! float {
    ($type:ty, $load:ident, $store:ident, $to_f32:expr, $from_f32:expr) => {
        impl Float for $type {
            #[inline(always)]
            fn to_f32(self) -> f32 {
                $to_f32(self)
            }
            #[inline(always)]
            fn from_f32(value: f32) -> Self {
                $from_f32(value)
            }
            #[inline(always)]
            unsafe fn load<S: Simd>(simd: S, source: *const Self) -> S::F32 {
                // SAFETY: the contract is the caller's, passed on unchanged.
                unsafe { simd.$load(source) }
            }
            #[inline(always)]
            unsafe fn store<S: Simd>(simd: S, target: *mut Self, value: S::F32) {
                // SAFETY: the contract is the caller's, passed on unchanged.
                unsafe { simd.$store(target, value) }
            }
        }
    };
}

float!(f32, load, store, std::convert::identity, std::convert::identity);
float!(f16, load_f16, store_f16, f16::to_f32, f16::from_f32);
float!(bf16, load_bf16, store_bf16, bf16::to_f32, bf16::from_f32);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{Isa, Kernel};

    /// Stores f32 values as `E`, whole vectors first and then a partial one, and loads them back the same way.
    struct RoundTrip<'a, E> {
        values: &'a [f32],
        stored: &'a mut [E],
        loaded: &'a mut [f32],
    }

    impl<E: Float> Kernel for RoundTrip<'_, E> {
        type Output = ();

        #[inline(always)]
        fn run<S: Simd>(self, simd: S) {
            let whole = self.values.len() / S::LANES * S::LANES;
            let tail = self.values.len() - whole;
            for at in (0..whole).step_by(S::LANES) {
                // SAFETY: `at + LANES` is within the three slices, which have one length.
                unsafe {
                    E::store(simd, self.stored.as_mut_ptr().add(at), simd.load(self.values.as_ptr().add(at)));
                    simd.store(self.loaded.as_mut_ptr().add(at), E::load(simd, self.stored.as_ptr().add(at)));
                }
            }
            // SAFETY: `whole + tail` is the length of the three slices, and `tail` < LANES.
            unsafe {
                let value = f32::load_partial(simd, self.values.as_ptr().add(whole), tail);
                E::store_partial(simd, self.stored.as_mut_ptr().add(whole), value, tail);
                let value = E::load_partial(simd, self.stored.as_ptr().add(whole), tail);
                f32::store_partial(simd, self.loaded.as_mut_ptr().add(whole), value, tail);
            }
        }
    }

    fn check<E: Float + std::fmt::Debug>() {
        let mut values =
            vec![0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-8, 6e-5, 65519.0, 65520.0, 1e38];
        // A NaN whose payload sits only in the bits that bf16 drops, and values half way between two bf16 and f16 values.
        values.extend([
            f32::from_bits(0x7f80_0001),
            f32::from_bits(0x3f80_8000),
            f32::from_bits(0x3f81_8000),
        ]);
        values.extend([
            f32::from_bits(0x3f80_1000),
            f32::from_bits(0x3f80_3000),
            f32::from_bits(0xff7f_ffff),
        ]);
        // Subnormal values, which some instructions take as zero.
        values.extend([1e-39, -1e-39, 9.2e-41, f32::from_bits(0x0000_8000), f32::from_bits(0x007f_ffff)]);
        values.extend((0..2001).map(|i| (i as f32 - 1000.0) * 0.0137));
        for isa in Isa::available() {
            for length in [0, 1, 3, 7, 8, 9, values.len()] {
                let values = &values[..length];
                let mut stored = vec![E::default(); length];
                let mut loaded = vec![f32::NAN; length];
                isa.dispatch(RoundTrip { values, stored: &mut stored, loaded: &mut loaded });
                for ((&value, &stored), &loaded) in values.iter().zip(&stored).zip(&loaded) {
                    if value.is_nan() {
                        assert!(stored.to_f32().is_nan() && loaded.is_nan(), "{isa:?}");
                    } else {
                        assert_eq!(stored, E::from_f32(value), "{isa:?} {value}");
                        assert_eq!(
                            loaded.to_bits(),
                            E::from_f32(value).to_f32().to_bits(),
                            "{isa:?} {value}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn storing_and_loading_agree_with_scalar_conversion() {
        check::<f32>();
        check::<f16>();
        check::<bf16>();
    }
}
