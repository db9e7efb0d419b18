//! Tensor storage whose element type is known at run time.

use half::{bf16, f16};

use crate::simd::{Element, Simd};

/// Borrowed values of one of the storage types.
#[derive(Clone, Copy, Debug)]
pub enum Values<'a> {
    /// Single precision.
    F32(&'a [f32]),
    /// Half precision.
    F16(&'a [f16]),
    /// bfloat16.
    BF16(&'a [bf16]),
}

impl Values<'_> {
    /// The number of values.
    pub fn len(&self) -> usize {
        match self {
            Values::F32(values) => values.len(),
            Values::F16(values) => values.len(),
            Values::BF16(values) => values.len(),
        }
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `length` values from `start` on.
    ///
    /// # Panics
    /// Where there are not that many.
    pub fn range(self, start: usize, length: usize) -> Self {
        match self {
            Values::F32(values) => Values::F32(&values[start..start + length]),
            Values::F16(values) => Values::F16(&values[start..start + length]),
            Values::BF16(values) => Values::BF16(&values[start..start + length]),
        }
    }

    /// Copies `target.len()` values from `start` on, as f32.
    #[inline(always)]
    pub fn widen<S: Simd>(&self, simd: S, start: usize, target: &mut [f32]) {
        let range = start..start + target.len();
        match self {
            Values::F32(values) => target.copy_from_slice(&values[range]),
            Values::F16(values) => widen(simd, &values[range], target),
            Values::BF16(values) => widen(simd, &values[range], target),
        }
    }
}

/// Copies `source` as f32; the slices must have one length.
#[inline(always)]
pub(super) fn widen<S: Simd, E: Element>(simd: S, source: &[E], target: &mut [f32]) {
    assert_eq!(source.len(), target.len());
    let mut at = 0;
    while at < source.len() {
        let count = (source.len() - at).min(S::LANES);
        // SAFETY: `count` values from `at` on are within both slices, and only a whole vector is read or written whole.
        unsafe {
            let (source, target) = (source.as_ptr().add(at), target.as_mut_ptr().add(at));
            if count == S::LANES {
                simd.store(target, E::load(simd, source));
            } else {
                f32::store_partial(simd, target, E::load_partial(simd, source, count), count);
            }
        }
        at += count;
    }
}

/// Mutably borrowed values of one of the storage types.
#[derive(Debug)]
pub enum ValuesMut<'a> {
    /// Single precision.
    F32(&'a mut [f32]),
    /// Half precision.
    F16(&'a mut [f16]),
    /// bfloat16.
    BF16(&'a mut [bf16]),
}

impl ValuesMut<'_> {
    /// The number of values.
    pub fn len(&self) -> usize {
        match self {
            ValuesMut::F32(values) => values.len(),
            ValuesMut::F16(values) => values.len(),
            ValuesMut::BF16(values) => values.len(),
        }
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
