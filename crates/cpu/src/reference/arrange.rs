//! Ops that move elements, of any type, without computing on them.

use kinora_graph::{
    Tensor, TensorType,
    op::{Concat, Slice},
};

/// Joins operands along an axis.
pub(super) fn concat(op: Concat, inputs: &[&Tensor], result: &TensorType) -> Tensor {
    let (outer, inner) = around(result, op.axis);
    let mut bytes = Vec::with_capacity(result.bytes());
    for block in 0..outer {
        for part in inputs {
            let length = part.shape()[op.axis] * inner;
            bytes.extend_from_slice(&part.bytes()[block * length..][..length]);
        }
    }
    of_bytes(result, &bytes)
}

/// A range of an axis.
pub(super) fn slice(op: Slice, x: &Tensor, result: &TensorType) -> Tensor {
    let (outer, inner) = around(result, op.axis);
    let extent = x.shape()[op.axis];
    let mut bytes = Vec::with_capacity(result.bytes());
    for block in 0..outer {
        let first = (block * extent + op.start) * inner;
        bytes.extend_from_slice(&x.bytes()[first..][..op.len * inner]);
    }
    of_bytes(result, &bytes)
}

/// The same elements under another shape.
pub(super) fn reshape(x: &Tensor, result: &TensorType) -> Tensor {
    of_bytes(result, x.bytes())
}

/// How many blocks an axis lies in, and the bytes of one step along it.
fn around(ty: &TensorType, axis: usize) -> (usize, usize) {
    let outer = ty.shape[..axis].iter().product();
    let inner = ty.shape[axis + 1..].iter().product::<usize>() * ty.dtype.size();
    (outer, inner)
}

fn of_bytes(ty: &TensorType, bytes: &[u8]) -> Tensor {
    let mut tensor = Tensor::zeros(ty.clone());
    tensor.bytes_mut().copy_from_slice(bytes);
    tensor
}

#[cfg(test)]
mod tests {
    use kinora_graph::{DType, Op, op::Reshape};

    use super::{super::testing::*, *};

    #[test]
    fn parts_join_along_any_axis() {
        let (a, b) = (counting(&[2, 2]), floats(&[2, 1], &[10.0, 20.0]));
        let y = values(Op::Concat(Concat { axis: 1 }), &[&a, &b, &a]);
        assert_eq!(y, [1.0, 2.0, 10.0, 1.0, 2.0, 3.0, 4.0, 20.0, 3.0, 4.0]);
        let b = floats(&[1, 2], &[10.0, 20.0]);
        assert_eq!(values(Op::Concat(Concat { axis: 0 }), &[&b, &a]), [10.0, 20.0, 1.0, 2.0, 3.0, 4.0]);
        // An empty part adds nothing.
        let none = floats(&[2, 0], &[]);
        assert_eq!(run_one(Op::Concat(Concat { axis: 1 }), &[&none, &a]), a);
    }

    #[test]
    fn ranges_of_any_axis() {
        let x = counting(&[2, 3, 2]);
        let slice = |axis, start, len| values(Op::Slice(Slice { axis, start, len }), &[&x]);
        assert_eq!(slice(0, 1, 1), [7.0, 8.0, 9.0, 10.0, 11.0, 12.0]);
        assert_eq!(slice(1, 1, 2), [3.0, 4.0, 5.0, 6.0, 9.0, 10.0, 11.0, 12.0]);
        assert_eq!(slice(2, 1, 1), [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
        assert_eq!(slice(1, 3, 0), [0f32; 0]);
    }

    #[test]
    fn every_element_type_moves_unchanged() {
        let numbers = ints(&[2], &[16_777_217, -1]);
        let joined = run_one(Op::Concat(Concat { axis: 0 }), &[&numbers, &numbers]);
        assert_eq!(joined, ints(&[4], &[16_777_217, -1, 16_777_217, -1]));
        assert_eq!(run_one(Op::Slice(Slice { axis: 0, start: 2, len: 2 }), &[&joined]), numbers);
        let pixels = bytes(&[2, 2], &[1, 2, 3, 4]);
        let column = run_one(Op::Slice(Slice { axis: 1, start: 1, len: 1 }), &[&pixels]);
        assert_eq!(column, bytes(&[2, 1], &[2, 4]));
        let half = floats(&[2, 1], &[0.5, f32::NAN]).cast(DType::F16);
        let moved = run_one(Op::Reshape(Reshape { shape: [1, 2, 1].into() }), &[&half]);
        assert_eq!((moved.bytes(), &moved.shape()[..]), (half.bytes(), &[1, 2, 1][..]));
    }
}
