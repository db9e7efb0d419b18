//! Shapes and tensor types.

use std::{fmt, ops::Deref};

use serde::{Deserialize, Serialize};

use crate::DType;

/// The extents of a tensor, outermost first. Channels are always the last axis.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Shape(Vec<usize>);

impl Shape {
    /// The number of elements, or `None` if it does not fit a `usize`. An empty shape must fit as well, its zero
    /// extents taken as ones: executors multiply some of the extents, and `[0, huge, huge]` would overflow there.
    pub fn checked_elements(&self) -> Option<usize> {
        let elements = self.checked_span()?;
        Some(if self.0.contains(&0) { 0 } else { elements })
    }

    /// The number of elements, zero extents taken as ones.
    fn checked_span(&self) -> Option<usize> {
        self.0.iter().try_fold(1usize, |n, &d| n.checked_mul(d.max(1)))
    }

    /// The number of elements. Shapes inside a [`Graph`](crate::Graph) are known to fit; for a shape that does not,
    /// this is `usize::MAX`.
    pub fn elements(&self) -> usize {
        saturating_product(&self.0)
    }

    /// The extent of the last axis; 1 for a scalar.
    pub fn channels(&self) -> usize {
        self.0.last().copied().unwrap_or(1)
    }

    /// The product of all extents but the last: how many channel vectors there are. At most `usize::MAX`.
    pub fn rows(&self) -> usize {
        self.0.split_last().map_or(1, |(_, rest)| saturating_product(rest))
    }

    /// The same shape with another last extent.
    pub fn with_channels(&self, channels: usize) -> Shape {
        let mut dims = self.0.clone();
        if let Some(last) = dims.last_mut() {
            *last = channels;
        }
        Shape(dims)
    }

    /// The shape two operands broadcast to by NumPy's rule, if they do.
    pub fn broadcast(&self, other: &Shape) -> Option<Shape> {
        let rank = self.len().max(other.len());
        let extent = |s: &Shape, axis: usize| (axis + s.len()).checked_sub(rank).map_or(1, |i| s.0[i]);
        (0..rank)
            .map(|axis| match (extent(self, axis), extent(other, axis)) {
                (a, b) if a == b => Some(a),
                (1, b) => Some(b),
                (a, 1) => Some(a),
                _ => None,
            })
            .collect::<Option<Vec<_>>>()
            .map(Shape)
    }

    /// Row-major strides, in elements.
    pub fn strides(&self) -> Vec<usize> {
        let mut strides = vec![1; self.len()];
        for axis in (1..self.len()).rev() {
            strides[axis - 1] = strides[axis] * self.0[axis];
        }
        strides
    }
}

/// The product of some extents, at most `usize::MAX`.
pub(crate) fn saturating_product(extents: &[usize]) -> usize {
    if extents.contains(&0) {
        return 0;
    }
    extents.iter().fold(1, |n: usize, &d| n.saturating_mul(d))
}

impl Deref for Shape {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        &self.0
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Self {
        Shape(dims.to_vec())
    }
}

impl From<Vec<usize>> for Shape {
    fn from(dims: Vec<usize>) -> Self {
        Shape(dims)
    }
}

impl From<&[usize]> for Shape {
    fn from(dims: &[usize]) -> Self {
        Shape(dims.to_vec())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, d) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{d}")?;
        }
        f.write_str("]")
    }
}

/// What a value is: an element type and a shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TensorType {
    /// The element type.
    pub dtype: DType,
    /// The extents.
    pub shape: Shape,
}

impl TensorType {
    /// A tensor type.
    pub fn new(dtype: DType, shape: impl Into<Shape>) -> Self {
        TensorType { dtype, shape: shape.into() }
    }

    /// The number of elements.
    pub fn elements(&self) -> usize {
        self.shape.elements()
    }

    /// The size in memory. Types inside a [`Graph`](crate::Graph) are known to fit.
    pub fn bytes(&self) -> usize {
        self.elements().saturating_mul(self.dtype.size())
    }

    /// The size in memory, or `None` if it is more than an allocation can hold (`isize::MAX`). As in
    /// [`Shape::checked_elements`], zero extents do not make the others harmless.
    pub fn checked_bytes(&self) -> Option<usize> {
        let bytes = self.shape.checked_span()?.checked_mul(self.dtype.size())?;
        let addressable = bytes <= isize::MAX as usize;
        addressable.then_some(if self.shape.contains(&0) { 0 } else { bytes })
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype, self.shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasting_follows_numpy() {
        let shape = |dims: &[usize]| Shape::from(dims);
        assert_eq!(shape(&[2, 1, 4]).broadcast(&shape(&[3, 1])), Some(shape(&[2, 3, 4])));
        assert_eq!(shape(&[]).broadcast(&shape(&[5])), Some(shape(&[5])));
        assert_eq!(shape(&[0, 4]).broadcast(&shape(&[1, 4])), Some(shape(&[0, 4])));
        assert_eq!(shape(&[2]).broadcast(&shape(&[3])), None);
    }

    #[test]
    fn an_empty_shape_must_fit_as_if_its_zeros_were_ones() {
        assert_eq!(Shape::from([0, 3, usize::MAX / 3]).checked_elements(), Some(0));
        assert_eq!(Shape::from([0, usize::MAX, usize::MAX]).checked_elements(), None);
        assert_eq!(Shape::from([2, usize::MAX]).checked_elements(), None);
        let bytes = |dtype, shape: &[usize]| TensorType::new(dtype, shape).checked_bytes();
        assert_eq!(bytes(DType::U8, &[isize::MAX as usize]), Some(isize::MAX as usize));
        assert_eq!(bytes(DType::U8, &[0, isize::MAX as usize]), Some(0));
        assert_eq!(bytes(DType::F16, &[0, isize::MAX as usize]), None);
        assert_eq!(bytes(DType::U8, &[isize::MAX as usize + 1]), None);
    }

    #[test]
    fn figures_of_an_unchecked_shape_saturate() {
        let huge = TensorType::new(DType::F32, [usize::MAX, 2, 3]);
        assert_eq!((huge.elements(), huge.shape.rows(), huge.bytes()), (usize::MAX, usize::MAX, usize::MAX));
        assert_eq!(Shape::from([usize::MAX, usize::MAX, 0, 7]).rows(), 0);
    }
}
