//! Typed windows into memory that a plan has laid out.
//!
//! Kernels take raw windows rather than slices because a plan may let a result overwrite an operand that is not needed
//! after the op: two slices of the same memory, one of them mutable, must not exist in Rust, but two pointers may.

use std::marker::PhantomData;

use kinora_graph::{Tensor, TensorType, dtype::Element};

/// Runs a block with a type standing for a float element type found at run time:
/// `with_float!(view.ty().dtype, T => kernel::<T>(…))`.
macro_rules! with_float {
    ($dtype:expr, $element:ident => $body:expr) => {
        match $dtype {
            kinora_graph::DType::F16 => {
                type $element = half::f16;
                $body
            }
            kinora_graph::DType::BF16 => {
                type $element = half::bf16;
                $body
            }
            // Ops take float operands alone here; the graph has checked it.
            _ => {
                type $element = f32;
                $body
            }
        }
    };
}
pub(crate) use with_float;

/// Memory of a tensor, to read.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    ty: &'a TensorType,
    data: *const u8,
    life: PhantomData<&'a [u8]>,
}

/// Memory of a tensor, to write. Every element is written before it is read.
pub(crate) struct ViewMut<'a> {
    ty: &'a TensorType,
    data: *mut u8,
    life: PhantomData<&'a mut [u8]>,
}

// SAFETY: a view is a pointer to plain bytes; its constructor's contract says who may access them when.
unsafe impl Send for View<'_> {}
// SAFETY: as above.
unsafe impl Sync for View<'_> {}
// SAFETY: as above.
unsafe impl Send for ViewMut<'_> {}
// SAFETY: as above; a kernel that shares one between threads has each write its own elements.
unsafe impl Sync for ViewMut<'_> {}

impl<'a> View<'a> {
    /// # Safety
    /// `data` is valid for `ty.bytes()` bytes for `'a`, aligned for the elements, and written meanwhile by nothing but
    /// a kernel that is documented to work in place on it.
    pub(crate) unsafe fn new(ty: &'a TensorType, data: *const u8) -> Self {
        View { ty, data, life: PhantomData }
    }

    pub(crate) fn of(tensor: &'a Tensor) -> Self {
        View { ty: tensor.ty(), data: tensor.bytes().as_ptr(), life: PhantomData }
    }

    pub(crate) fn ty(&self) -> &'a TensorType {
        self.ty
    }

    /// The first byte.
    pub(crate) fn bytes(&self) -> *const u8 {
        self.data
    }

    /// The first element. Kernels dispatch on the element type before they ask.
    pub(crate) fn ptr<T: Element>(&self) -> *const T {
        debug_assert_eq!(self.ty.dtype, T::DTYPE);
        self.data.cast()
    }

    /// The first element, widened. The tensor is a float tensor that is not empty, such as an α.
    pub(crate) fn first(&self) -> f32 {
        // SAFETY: valid and aligned by construction, and the caller promises that there is an element.
        with_float!(self.ty.dtype, T => unsafe { crate::simd::Float::to_f32(*self.ptr::<T>()) })
    }

    /// The elements as a slice.
    ///
    /// # Safety
    /// Nothing writes the memory while the slice lives: never for an operand that the result may overwrite.
    pub(crate) unsafe fn slice<T: Element>(&self) -> &'a [T] {
        // SAFETY: valid and aligned by construction, and the caller promises that nothing writes it.
        unsafe { std::slice::from_raw_parts(self.ptr(), self.ty.elements()) }
    }
}

impl<'a> ViewMut<'a> {
    /// # Safety
    /// `data` is valid for `ty.bytes()` bytes for `'a`, aligned for the elements, and touched meanwhile by nothing but
    /// the kernel that gets this view.
    pub(crate) unsafe fn new(ty: &'a TensorType, data: *mut u8) -> Self {
        ViewMut { ty, data, life: PhantomData }
    }

    pub(crate) fn of(tensor: &'a mut Tensor) -> Self {
        let data = tensor.bytes_mut().as_mut_ptr();
        ViewMut { ty: tensor.ty(), data, life: PhantomData }
    }

    pub(crate) fn ty(&self) -> &'a TensorType {
        self.ty
    }

    /// The first byte.
    pub(crate) fn bytes(&self) -> *mut u8 {
        self.data
    }

    /// The first element. Kernels dispatch on the element type before they ask.
    pub(crate) fn ptr<T: Element>(&self) -> *mut T {
        debug_assert_eq!(self.ty.dtype, T::DTYPE);
        self.data.cast()
    }

    /// The same memory once more.
    ///
    /// # Safety
    /// The users of the two views write different elements.
    pub(crate) unsafe fn again(&self) -> ViewMut<'a> {
        ViewMut { ty: self.ty, data: self.data, life: PhantomData }
    }

    /// The `index`-th of the tensors of type `part` that this one consists of.
    ///
    /// # Safety
    /// That part exists, and no other view of it is used for writing.
    pub(crate) unsafe fn part<'b>(&'b self, part: &'b TensorType, index: usize) -> ViewMut<'b> {
        // SAFETY: the caller promises it.
        ViewMut { ty: part, data: unsafe { self.data.add(index * part.bytes()) }, life: PhantomData }
    }
}
