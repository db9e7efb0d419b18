//! Reading and writing float memory of any storage type as f32.
//!
//! Kernels compute on short runs of f32. If the memory holds f32, a run is the memory itself; otherwise it is widened
//! into a buffer that stays in the L1 cache. So a kernel is compiled once per instruction set, not once for each
//! combination of its operands' types.

use std::{marker::PhantomData, mem::MaybeUninit};

use half::{bf16, f16};
use kinora_graph::DType;

use crate::{
    simd::{Simd, convert},
    view::{View, ViewMut, with_float},
};

/// Elements that a kernel handles at a time: five such buffers take 10 KiB of a L1 cache of 32.
pub(crate) const BLOCK: usize = 512;

/// A buffer of one block. Nothing reads what was not written.
#[repr(align(64))]
pub(crate) struct Block([MaybeUninit<f32>; BLOCK]);

impl Block {
    pub(crate) const fn uninit() -> Self {
        Block([MaybeUninit::uninit(); BLOCK])
    }

    #[inline(always)]
    pub(crate) fn as_mut_ptr(&mut self) -> *mut f32 {
        self.0.as_mut_ptr().cast()
    }
}

/// Float memory to read.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    data: *const u8,
    dtype: DType,
    life: PhantomData<&'a [u8]>,
}

/// Float memory to write. Copies share it, so that threads can each write their own elements.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    data: *mut u8,
    dtype: DType,
    life: PhantomData<&'a mut [u8]>,
}

// SAFETY: a pointer to plain bytes, under the promise that was made when the view behind it was.
unsafe impl Send for Source<'_> {}
// SAFETY: as above.
unsafe impl Sync for Source<'_> {}
// SAFETY: as above; the kernels give each thread elements of its own.
unsafe impl Send for Target<'_> {}
// SAFETY: as above.
unsafe impl Sync for Target<'_> {}

impl<'a> Source<'a> {
    pub(crate) fn of(view: &View<'a>) -> Self {
        let dtype = view.ty().dtype;
        Source { data: with_float!(dtype, T => view.ptr::<T>().cast()), dtype, life: PhantomData }
    }

    pub(crate) fn of_f32(values: &'a [f32]) -> Self {
        Source { data: values.as_ptr().cast(), dtype: DType::F32, life: PhantomData }
    }

    /// `count` elements from element `at` as f32: the memory itself if it holds f32, otherwise `buffer`, filled.
    ///
    /// # Safety
    /// The elements exist, and `buffer` is valid for writing `count` values.
    #[inline(always)]
    pub(crate) unsafe fn read<S: Simd>(
        self,
        simd: S,
        at: usize,
        count: usize,
        buffer: *mut f32,
    ) -> *const f32 {
        // SAFETY: the caller vouches for the elements and for the buffer.
        unsafe {
            match self.dtype {
                DType::F16 => convert(simd, self.data.cast::<f16>().add(at), buffer, count),
                DType::BF16 => convert(simd, self.data.cast::<bf16>().add(at), buffer, count),
                _ => return self.data.cast::<f32>().add(at),
            }
        }
        buffer
    }

    /// Element `at`.
    ///
    /// # Safety
    /// The element exists.
    #[inline(always)]
    pub(crate) unsafe fn get(self, at: usize) -> f32 {
        // SAFETY: the caller vouches for the element.
        unsafe {
            match self.dtype {
                DType::F16 => self.data.cast::<f16>().add(at).read().to_f32(),
                DType::BF16 => self.data.cast::<bf16>().add(at).read().to_f32(),
                _ => self.data.cast::<f32>().add(at).read(),
            }
        }
    }
}

impl<'a> Target<'a> {
    pub(crate) fn of(view: &ViewMut<'a>) -> Self {
        let dtype = view.ty().dtype;
        Target { data: with_float!(dtype, T => view.ptr::<T>().cast()), dtype, life: PhantomData }
    }

    /// Where to compute the elements from `at` on: the memory itself if it holds f32, otherwise `buffer`.
    ///
    /// # Safety
    /// Element `at` exists.
    #[inline(always)]
    pub(crate) unsafe fn place(self, at: usize, buffer: *mut f32) -> *mut f32 {
        match self.dtype {
            DType::F16 | DType::BF16 => buffer,
            // SAFETY: the caller vouches for the element.
            _ => unsafe { self.data.cast::<f32>().add(at) },
        }
    }

    /// Stores `count` values computed at the [`place`](Target::place) of the elements from `at` on.
    ///
    /// # Safety
    /// The elements exist, no other thread touches them, and `computed` is the place given for `at`, filled.
    #[inline(always)]
    pub(crate) unsafe fn commit<S: Simd>(self, simd: S, at: usize, count: usize, computed: *const f32) {
        // SAFETY: the caller vouches for the elements and for the values.
        unsafe {
            match self.dtype {
                DType::F16 | DType::BF16 => self.write(simd, at, count, computed),
                _ => debug_assert_eq!(computed, self.data.cast::<f32>().add(at).cast_const()),
            }
        }
    }

    /// Stores `count` values from elsewhere as the elements from `at` on.
    ///
    /// # Safety
    /// The elements exist, no other thread touches them, and `values` is valid for reading `count`.
    #[inline(always)]
    pub(crate) unsafe fn write<S: Simd>(self, simd: S, at: usize, count: usize, values: *const f32) {
        // SAFETY: the caller vouches for the elements and for the values.
        unsafe {
            match self.dtype {
                DType::F16 => convert(simd, values, self.data.cast::<f16>().add(at), count),
                DType::BF16 => convert(simd, values, self.data.cast::<bf16>().add(at), count),
                _ => std::ptr::copy_nonoverlapping(values, self.data.cast::<f32>().add(at), count),
            }
        }
    }
}

/// A short vector, such as a bias or a norm's scale, as f32: a copy, since the result may overwrite a value that is
/// both this and another operand.
pub(crate) fn small_vector(view: &View<'_>) -> Vec<f32> {
    let source = Source::of(view);
    // SAFETY: the view has these elements.
    (0..view.ty().elements()).map(|at| unsafe { source.get(at) }).collect()
}
