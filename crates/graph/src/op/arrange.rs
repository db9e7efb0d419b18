//! Ops that move elements without computing on them.

use serde::{Deserialize, Serialize};

use super::{OpError, TensorType, check};
use crate::Shape;

/// Joins operands along an axis. Operands: one or more, equal except along that axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Concat {
    /// The axis that grows.
    pub axis: usize,
}

impl Concat {
    pub(crate) fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let Some((first, rest)) = inputs.split_first() else {
            return Err(OpError::OperandCount { expected: 1, got: 0 });
        };
        let mut shape = first.shape.to_vec();
        axis_exists(self.axis, &first.shape)?;
        for ty in rest {
            check::dtype("every operand", ty, first.dtype, "of the first one's type")?;
            let mut expected = first.shape.to_vec();
            if ty.shape.len() == expected.len() {
                expected[self.axis] = ty.shape[self.axis];
            }
            check::shape("every operand", ty, &expected)?;
            shape[self.axis] = shape[self.axis]
                .checked_add(ty.shape[self.axis])
                .ok_or_else(|| OpError::TooLarge(first.shape.clone()))?;
        }
        Ok(vec![TensorType::new(first.dtype, shape)])
    }
}

/// Takes a range of an axis. Operand: `x`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slice {
    /// The axis that shrinks.
    pub axis: usize,
    /// The first index taken.
    pub start: usize,
    /// How many are taken.
    pub len: usize,
}

impl Slice {
    pub(crate) fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        check::count(inputs, 1)?;
        let x = inputs[0];
        axis_exists(self.axis, &x.shape)?;
        let extent = x.shape[self.axis];
        if self.start.checked_add(self.len).is_none_or(|end| end > extent) {
            return Err(OpError::Attribute(format!(
                "{} from {} is outside axis {} of {}",
                self.len, self.start, self.axis, x.shape
            )));
        }
        let mut shape = x.shape.to_vec();
        shape[self.axis] = self.len;
        Ok(vec![TensorType::new(x.dtype, shape)])
    }
}

/// The same elements under another shape; never copies. Operand: `x`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reshape {
    /// The new extents.
    pub shape: Shape,
}

impl Reshape {
    pub(crate) fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        check::count(inputs, 1)?;
        let x = inputs[0];
        if self.shape.checked_elements() != Some(x.elements()) {
            return Err(OpError::Attribute(format!(
                "{} has {} elements and cannot become {}",
                x.shape,
                x.elements(),
                self.shape
            )));
        }
        Ok(vec![TensorType::new(x.dtype, self.shape.clone())])
    }
}

pub(super) fn axis_exists(axis: usize, shape: &Shape) -> Result<(), OpError> {
    if axis < shape.len() {
        return Ok(());
    }
    Err(OpError::Attribute(format!("axis {axis} is outside {shape}")))
}
