//! Tensor storage whose element type is known at run time.

use half::{bf16, f16};
use kinora_graph::DType;

use crate::simd::{Float, Simd, convert};
use crate::view::View;

/// Borrowed values of one of the storage types.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Values<'a> {
    /// Single precision.
    F32(&'a [f32]),
    /// Half precision.
    F16(&'a [f16]),
    /// bfloat16.
    BF16(&'a [bf16]),
}

impl<'a> Values<'a> {
    /// The elements of a tensor.
    ///
    /// # Safety
    /// Nothing writes the tensor's memory while the values live.
    pub(crate) unsafe fn of(view: View<'a>) -> Self {
        // SAFETY: the caller promises it.
        unsafe {
            match view.ty().dtype {
                DType::F16 => Values::F16(view.slice()),
                DType::BF16 => Values::BF16(view.slice()),
                // Matrix products take only float operands; the graph has checked it.
                _ => Values::F32(view.slice()),
            }
        }
    }

    /// The number of values.
    pub(crate) fn len(&self) -> usize {
        match self {
            Values::F32(values) => values.len(),
            Values::F16(values) => values.len(),
            Values::BF16(values) => values.len(),
        }
    }

    /// `length` values from `start` on.
    ///
    /// # Panics
    /// If there are not that many.
    pub(crate) fn range(self, start: usize, length: usize) -> Self {
        match self {
            Values::F32(values) => Values::F32(&values[start..start + length]),
            Values::F16(values) => Values::F16(&values[start..start + length]),
            Values::BF16(values) => Values::BF16(&values[start..start + length]),
        }
    }

    /// Prefetches `length` values from `start` on.
    pub(crate) fn prefetch(&self, start: usize, length: usize) {
        match self {
            Values::F32(values) => prefetch(&values[start..start + length]),
            Values::F16(values) => prefetch(&values[start..start + length]),
            Values::BF16(values) => prefetch(&values[start..start + length]),
        }
    }

    /// Copies `target.len()` values from `start` on, as f32.
    #[inline(always)]
    pub(crate) fn widen<S: Simd>(&self, simd: S, start: usize, target: &mut [f32]) {
        let range = start..start + target.len();
        match self {
            Values::F32(values) => target.copy_from_slice(&values[range]),
            Values::F16(values) => widen(simd, &values[range], target),
            Values::BF16(values) => widen(simd, &values[range], target),
        }
    }
}

/// Prefetches a slice into the L2 cache. It is a hint: on architectures without a universal prefetch instruction,
/// nothing happens.
fn prefetch<T>(values: &[T]) {
    #[cfg(target_arch = "x86_64")]
    for line in values.chunks(64 / size_of::<T>()) {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a hint reads nothing, and every CPU of this architecture has it.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = values;
}

/// Copies `source` as f32; the slices must have one length.
#[inline(always)]
pub(super) fn widen<S: Simd, E: Float>(simd: S, source: &[E], target: &mut [f32]) {
    assert_eq!(source.len(), target.len());
    // SAFETY: both slices are that long, and a mutable one overlaps no other.
    unsafe { convert(simd, source.as_ptr(), target.as_mut_ptr(), source.len()) };
}
