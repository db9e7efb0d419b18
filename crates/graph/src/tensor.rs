//! Tensors in host memory.

mod aligned;
mod recycling;

use std::{fmt, sync::Arc};

use half::{bf16, f16};

use crate::{DType, Shape, TensorType, dtype::Element, e4m3::E4M3};

pub use aligned::{ALIGNMENT, AlignedBytes};
pub use recycling::Recycling;

/// A tensor in host memory: row-major, aligned, cheap to clone.
#[derive(Clone)]
pub struct Tensor {
    ty: TensorType,
    data: Arc<AlignedBytes>,
}

impl Tensor {
    /// A tensor of zeros, of a type that is known to fit in memory; otherwise use [`Tensor::try_zeros`].
    pub fn zeros(ty: TensorType) -> Self {
        let data = Arc::new(AlignedBytes::zeroed(ty.bytes()));
        Tensor { ty, data }
    }

    /// A tensor of zeros, or `None` if it cannot be allocated.
    pub fn try_zeros(ty: TensorType) -> Option<Self> {
        let data = Arc::new(AlignedBytes::try_zeroed(ty.checked_bytes()?)?);
        Some(Tensor { ty, data })
    }

    /// A tensor of the given elements.
    ///
    /// # Errors
    /// If the number of elements is not the shape's.
    pub fn from_slice<T: Element>(shape: impl Into<Shape>, elements: &[T]) -> Result<Self, TensorError> {
        Tensor::from_bytes(TensorType::new(T::DTYPE, shape), bytemuck::cast_slice(elements))
    }

    /// A tensor from its bytes in memory order.
    ///
    /// # Errors
    /// If the number of bytes is not the type's.
    pub fn from_bytes(ty: TensorType, bytes: &[u8]) -> Result<Self, TensorError> {
        if ty.checked_bytes() != Some(bytes.len()) {
            return Err(TensorError::Length { ty, got: bytes.len() });
        }
        let mut data = AlignedBytes::zeroed(bytes.len());
        data.copy_from_slice(bytes);
        Ok(Tensor { ty, data: Arc::new(data) })
    }

    /// A tensor of `dtype` from f32 elements, each converted as [`Tensor::cast`] would.
    ///
    /// # Errors
    /// If the number of elements is not the shape's.
    pub fn from_f32(dtype: DType, shape: impl Into<Shape>, elements: &[f32]) -> Result<Self, TensorError> {
        Ok(Tensor::from_slice(shape, elements)?.cast(dtype))
    }

    /// Element type and shape.
    pub fn ty(&self) -> &TensorType {
        &self.ty
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.ty.dtype
    }

    /// The extents.
    pub fn shape(&self) -> &Shape {
        &self.ty.shape
    }

    /// The bytes in memory order.
    pub fn bytes(&self) -> &[u8] {
        &self.data
    }

    /// The bytes, writable; copies them first if another clone shares them.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let data: &mut AlignedBytes = Arc::make_mut(&mut self.data);
        data
    }

    /// The elements.
    ///
    /// # Errors
    /// If the tensor's element type is another one.
    pub fn as_slice<T: Element>(&self) -> Result<&[T], TensorError> {
        if T::DTYPE != self.ty.dtype {
            return Err(TensorError::DType { expected: T::DTYPE, got: self.ty.dtype });
        }
        Ok(bytemuck::cast_slice(&self.data))
    }

    /// The elements as f32, whatever they are stored as.
    pub fn to_f32(&self) -> Vec<f32> {
        let bytes: &[u8] = &self.data;
        match self.ty.dtype {
            DType::F32 => bytemuck::cast_slice(bytes).to_vec(),
            DType::F16 => bytemuck::cast_slice::<_, f16>(bytes).iter().map(|x| x.to_f32()).collect(),
            DType::BF16 => bytemuck::cast_slice::<_, bf16>(bytes).iter().map(|x| x.to_f32()).collect(),
            DType::F8E4M3 => bytes.iter().map(|&x| E4M3::from_bits(x).to_f32()).collect(),
            DType::U8 => bytes.iter().map(|&x| f32::from(x)).collect(),
            DType::I32 => bytemuck::cast_slice::<_, i32>(bytes).iter().map(|&x| x as f32).collect(),
        }
    }

    /// The same elements stored as another type. A float becomes an integer by rounding half to even and
    /// saturating; NaN becomes 0. To e4m3 numbers saturate as well.
    pub fn cast(&self, dtype: DType) -> Tensor {
        if dtype == self.ty.dtype {
            return self.clone();
        }
        let ty = TensorType::new(dtype, self.ty.shape.clone());
        let mut out = Tensor::zeros(ty);
        let bytes = out.bytes_mut();
        // i32 to f32 and back loses low bits, so integers convert directly.
        if let (DType::I32, DType::U8) = (self.ty.dtype, dtype) {
            let source: &[i32] = bytemuck::cast_slice(&self.data);
            for (to, &from) in bytes.iter_mut().zip(source) {
                *to = from.clamp(0, 255) as u8;
            }
            return out;
        }
        let source = self.to_f32();
        match dtype {
            DType::F32 => bytemuck::cast_slice_mut(bytes).copy_from_slice(&source),
            DType::F16 => convert(bytes, &source, f16::from_f32),
            DType::BF16 => convert(bytes, &source, bf16::from_f32),
            DType::F8E4M3 => convert(bytes, &source, E4M3::from_f32),
            DType::U8 => convert(bytes, &source, |x| x.round_ties_even() as u8),
            DType::I32 => convert(bytes, &source, |x| x.round_ties_even() as i32),
        }
        out
    }

    /// The same elements in another shape.
    ///
    /// # Errors
    /// If the shapes differ in the number of elements.
    pub fn reshape(&self, shape: impl Into<Shape>) -> Result<Tensor, TensorError> {
        let ty = TensorType::new(self.ty.dtype, shape);
        if ty.checked_bytes() != Some(self.data.len()) {
            return Err(TensorError::Length { ty, got: self.data.len() });
        }
        Ok(Tensor { ty, data: self.data.clone() })
    }

    /// The index of the first element that is NaN or infinite.
    pub fn first_non_finite(&self) -> Option<usize> {
        let bytes: &[u8] = &self.data;
        match self.ty.dtype {
            DType::F32 => first(bytes, |x: &f32| !x.is_finite()),
            DType::F16 => first(bytes, |x: &f16| !x.is_finite()),
            DType::BF16 => first(bytes, |x: &bf16| !x.is_finite()),
            DType::F8E4M3 => first(bytes, |x: &E4M3| !x.is_finite()),
            DType::U8 | DType::I32 => None,
        }
    }
}

/// The index of the first match. Whole blocks are searched without a branch per element, so that they vectorise: models
/// have billions of elements, and most have no match.
fn first<T: bytemuck::Pod>(bytes: &[u8], found: impl Fn(&T) -> bool) -> Option<usize> {
    const BLOCK: usize = 1024;
    let elements = bytemuck::cast_slice::<_, T>(bytes);
    let has_one = |block: &[T]| block.iter().fold(false, |any, x| any | found(x));
    let block = elements.chunks(BLOCK).position(has_one)?;
    elements[block * BLOCK..].iter().position(found).map(|at| block * BLOCK + at)
}

fn convert<T: bytemuck::Pod>(bytes: &mut [u8], source: &[f32], f: impl Fn(f32) -> T) {
    for (to, &from) in bytemuck::cast_slice_mut::<_, T>(bytes).iter_mut().zip(source) {
        *to = f(from);
    }
}

impl PartialEq for Tensor {
    /// Same type and same bytes.
    fn eq(&self, other: &Tensor) -> bool {
        self.ty == other.ty && (Arc::ptr_eq(&self.data, &other.data) || self.bytes() == other.bytes())
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let elements = self.to_f32();
        write!(f, "{} {:?}", self.ty, &elements[..elements.len().min(8)])?;
        if elements.len() > 8 { write!(f, "…") } else { Ok(()) }
    }
}

/// Why a tensor could not be made or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TensorError {
    /// The data's length does not fit the type.
    #[error("{ty} does not have {got} bytes")]
    Length {
        /// The type asked for.
        ty: TensorType,
        /// The bytes given.
        got: usize,
    },
    /// The elements were requested as a type that they do not have.
    #[error("the tensor holds {got}, not {expected}")]
    DType {
        /// The type asked for.
        expected: DType,
        /// The tensor's own.
        got: DType,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_round_to_even_and_saturate_as_bytes() {
        let x = Tensor::from_slice([6], &[-3.0f32, 0.5, 1.5, 254.6, 1e9, f32::NAN]).unwrap();
        assert_eq!(x.cast(DType::U8).as_slice::<u8>().unwrap(), &[0, 0, 2, 255, 255, 0]);
    }

    #[test]
    fn the_wrong_length_or_type_is_an_error() {
        assert!(Tensor::from_slice([2, 2], &[0f32; 3]).is_err());
        assert!(Tensor::zeros(TensorType::new(DType::F16, [2])).as_slice::<f32>().is_err());
    }

    #[test]
    fn zeros_that_cannot_be_allocated_give_none() {
        let ty = |shape: &[usize]| TensorType::new(DType::F16, shape);
        assert_eq!(Tensor::try_zeros(ty(&[2, 3])), Some(Tensor::zeros(ty(&[2, 3]))));
        for shape in [&[usize::MAX, 2][..], &[isize::MAX as usize / 2], &[0, usize::MAX, 2]] {
            assert_eq!(Tensor::try_zeros(ty(shape)), None, "{shape:?}");
        }
    }

    #[test]
    fn the_first_of_several_blocks_is_found() {
        for dtype in [DType::F32, DType::F16, DType::BF16, DType::F8E4M3] {
            for (first, second) in [(0, 1), (1023, 1024), (1024, 1030), (2500, 2999), (2999, 2999)] {
                let mut values = vec![1.0f32; 3000];
                // e4m3 has no infinity.
                let infinity = if dtype == DType::F8E4M3 { f32::NAN } else { f32::INFINITY };
                (values[first], values[second]) = (infinity, f32::NAN);
                let x = Tensor::from_f32(dtype, [3000], &values).unwrap();
                assert_eq!(x.first_non_finite(), Some(first), "{dtype}");
            }
            assert_eq!(Tensor::zeros(TensorType::new(dtype, [3000])).first_non_finite(), None);
        }
    }

    #[test]
    fn first_non_finite_finds_nan_in_every_float_type() {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let x = Tensor::from_f32(dtype, [3], &[1.0, f32::NAN, 2.0]).unwrap();
            assert_eq!(x.first_non_finite(), Some(1));
        }
    }
}
