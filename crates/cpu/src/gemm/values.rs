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

    /// Whether the values are bfloat16.
    pub(crate) fn is_bf16(&self) -> bool {
        matches!(self, Values::BF16(_))
    }

    /// Whether the values are f32 or bfloat16, of which products can read the steps of their depth where they lie.
    pub(crate) fn is_readable_in_steps(&self) -> bool {
        matches!(self, Values::F32(_) | Values::BF16(_))
    }

    /// Where the values from `start` on lie, of whatever type they are.
    ///
    /// # Panics
    /// If `start` is beyond their end.
    #[inline(always)]
    pub(crate) fn address(&self, start: usize) -> *const f32 {
        match self {
            Values::F32(values) => values[start..].as_ptr(),
            Values::F16(values) => values[start..].as_ptr().cast(),
            Values::BF16(values) => values[start..].as_ptr().cast(),
        }
    }

    /// Copies `target.len()` values from `start` on, in the type of the target.
    #[inline(always)]
    pub(crate) fn copy<S: Simd, T: Float>(&self, simd: S, start: usize, target: &mut [T]) {
        let range = start..start + target.len();
        match self {
            Values::F32(values) => copy(simd, &values[range], target),
            Values::F16(values) => copy(simd, &values[range], target),
            Values::BF16(values) => copy(simd, &values[range], target),
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

/// Copies `source` in the type of the target; the slices must have one length.
#[inline(always)]
pub(super) fn copy<S: Simd, E: Float, T: Float>(simd: S, source: &[E], target: &mut [T]) {
    assert_eq!(source.len(), target.len());
    if E::DTYPE == T::DTYPE {
        return target.copy_from_slice(bytemuck::cast_slice(source));
    }
    // SAFETY: both slices are that long, and a mutable one overlaps no other.
    unsafe { convert(simd, source.as_ptr(), target.as_mut_ptr(), source.len()) };
}
