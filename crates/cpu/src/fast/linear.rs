//! Linear layers, convolutions and batched products: all of them one matrix product.

use std::borrow::Cow;

use kinora_graph::{
    DType, Op, Tensor, TensorType,
    op::{Conv, Linear, MatMul, Norm, NormKind},
};

use super::{
    blocks::small_vector,
    normalised_rows::NormalisedRows,
    winograd::{self, Form, WinogradWeights},
};
use kinora_runtime::{RunError, tensors};

use crate::{
    gemm::{
        self, BatchedOperand, ConvGeometry, ConvRows, Finish, Layout, MatrixRows, OneOfFour, PackedWeights,
        TransposedRows, Values,
    },
    simd::Isa,
    view::{View, ViewMut},
};

/// The weight of a linear layer or a convolution, in the order in which its kernel reads it.
#[derive(Debug)]
pub(crate) struct PackedWeight {
    /// One matrix per group; a linear layer has one.
    groups: Vec<PackedWeights>,
    /// The weight of a convolution that is done by Winograd's method, instead of `groups`.
    winograd: Option<WinogradWeights>,
}

impl PackedWeight {
    /// The operand that an op needs packed. A weight in e4m3 stays as small as it is.
    pub(crate) fn operand(op: &Op) -> Option<usize> {
        let packed = match op {
            Op::Conv(op) => op.quantised.is_none(),
            Op::Linear(op) => op.quantised.is_none(),
            _ => false,
        };
        packed.then_some(1)
    }

    /// The memory that the packed weight of an op takes, known before it is packed.
    pub(crate) fn bytes_of(isa: Isa, op: &Op, ty: &TensorType) -> usize {
        if let Op::Conv(op) = op
            && let Some(form) = Form::of(op, ty)
        {
            return WinogradWeights::bytes_of(isa, form, ty.dtype, ty.shape[0], ty.shape[4]);
        }
        let (count, gated) = groups_of(op);
        let columns = ty.shape[0] / count;
        let depth = ty.shape[1..].iter().product();
        let one = PackedWeights::bytes_of(isa, ty.dtype, columns, depth, gated);
        one.saturating_mul(count)
    }

    /// Packs the weight of an op that has one, once for many runs.
    pub(crate) fn new(isa: Isa, op: &Op, weight: View<'_>) -> Self {
        // SAFETY: a weight is not written while it is packed.
        let values = unsafe { Values::of(weight) };
        let shape = &weight.ty().shape;
        if let Op::Conv(op) = op
            && let Some(form) = Form::of(op, weight.ty())
            && let Some(winograd) = WinogradWeights::new(isa, form, values, shape[0], shape[4])
        {
            return PackedWeight { groups: Vec::new(), winograd: Some(winograd) };
        }
        Self::for_one_run(isa, op, weight)
    }

    /// Packs a weight that is itself computed at run time: without a transform, which would not pay off for a single
    /// run.
    pub(crate) fn for_one_run(isa: Isa, op: &Op, weight: View<'_>) -> Self {
        let (count, gated) = groups_of(op);
        // SAFETY: a weight is not written while it is packed.
        let values = unsafe { Values::of(weight) };
        let columns = weight.ty().shape[0] / count;
        let depth = weight.ty().shape[1..].iter().product();
        let groups = (0..count)
            .map(|group| {
                let values = values.range(group * columns * depth, columns * depth);
                if gated {
                    PackedWeights::gated(isa, values, columns / 2, depth)
                } else {
                    PackedWeights::new(isa, values, columns, depth)
                }
            })
            .collect();
        PackedWeight { groups, winograd: None }
    }

    /// The memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        let winograd = self.winograd.as_ref().map_or(0, WinogradWeights::bytes);
        winograd + self.groups.iter().map(PackedWeights::bytes).sum::<usize>()
    }
}

/// How many matrices an op's weight consists of, and whether they are gated.
fn groups_of(op: &Op) -> (usize, bool) {
    match op {
        Op::Conv(op) => (op.groups * op.pixels(), false),
        Op::Linear(op) => (1, op.gate.is_some()),
        _ => (1, false),
    }
}

/// The x of a product as its rows.
fn matrix_rows(x: View<'_>, count: usize, depth: usize) -> MatrixRows<'_> {
    // SAFETY: no result overwrites the x of a product.
    MatrixRows::new(unsafe { Values::of(x) }, count, depth)
}

/// The whole input normalised, in f32, for a norm that cannot be computed on the way.
fn normalised(isa: Isa, norm: &Norm, x: View<'_>, affine: &[View<'_>]) -> Result<Tensor, RunError> {
    let mut result = tensors::zeros(TensorType::new(DType::F32, x.ty().shape.clone()))?;
    let operands: Vec<View<'_>> = std::iter::once(x).chain(affine.iter().copied()).collect();
    super::norm::norm(isa, norm, &operands, ViewMut::of(&mut result));
    Ok(result)
}

/// A linear layer with its prologue, gate and epilogue. In place over the operand of an `Add`, `Mul` or `Blend` stage.
///
/// # Errors
/// If there is no memory for the normalised input of a group norm.
pub(crate) fn linear(
    isa: Isa,
    op: &Linear,
    inputs: &[View<'_>],
    weight: &PackedWeight,
    output: ViewMut<'_>,
) -> Result<(), RunError> {
    let args = op.operands(inputs);
    let (count, depth) = (args.x.ty().shape.rows(), args.x.ty().shape.channels());
    let columns = output.ty().shape.channels();
    let packed = &weight.groups[0];
    let mut finish = Finish::new(output, count, columns);
    if let Some(activation) = op.gate {
        finish = finish.gate(activation);
    }
    if let Some(bias) = args.bias {
        finish = finish.bias(Cow::Owned(small_vector(bias)));
    }
    let finish = finish.stages(&op.epilogue, args.epilogue);
    match &op.prologue {
        None => gemm::multiply(&matrix_rows(*args.x, count, depth), packed, &finish),
        Some(norm) if matches!(norm.kind, NormKind::Group { .. }) => {
            let x = normalised(isa, norm, *args.x, args.prologue)?;
            gemm::multiply(&matrix_rows(View::of(&x), count, depth), packed, &finish);
        }
        Some(norm) => {
            let rows = matrix_rows(*args.x, count, depth);
            gemm::multiply(&NormalisedRows::new(isa, rows, norm, args.prologue), packed, &finish);
        }
    }
    Ok(())
}

/// A convolution with its prologue and epilogue. In place over the operand of an `Add`, `Mul` or `Blend` stage.
///
/// # Errors
/// If there is no memory for the normalised input.
pub(crate) fn conv(
    isa: Isa,
    op: &Conv,
    inputs: &[View<'_>],
    weight: &PackedWeight,
    output: ViewMut<'_>,
) -> Result<(), RunError> {
    let args = op.operands(inputs);
    let normalised = match &op.prologue {
        Some(norm) => Some(normalised(isa, norm, *args.x, args.prologue)?),
        None => None,
    };
    let shape = &args.x.ty().shape;
    let total = output.ty().shape.channels();
    let bias = args.bias.map(small_vector);
    // SAFETY: no result overwrites the x of a product.
    let values = unsafe { Values::of(normalised.as_ref().map_or(*args.x, View::of)) };
    let channels = shape[3] / op.groups;
    // Each pixel of a sub-pixel convolution's squares is a product of its own; there is one group then.
    for number in 0..op.groups * op.pixels() {
        let (group, pixel) = (number / op.pixels(), number % op.pixels());
        let pixels = OneOfFour { width: shape[2], y: pixel % 2, x: pixel / 2 };
        // The window of a lower pixel or one further right begins further on, and there are no more of them.
        let shift = if op.subpixel {
            [[0; 2], [pixels.y, 1 - pixels.y], [pixels.x, 1 - pixels.x]]
        } else {
            [[0; 2]; 3]
        };
        let side = |side: usize| std::array::from_fn(|axis| op.padding[axis][side] - shift[axis][side]);
        let geometry = ConvGeometry {
            images: shape[0],
            frames: op.frames,
            height: shape[1],
            width: shape[2],
            pixel_channels: shape[3],
            first_channel: group * channels,
            channels,
            kernel: op.kernel,
            stride: op.stride,
            dilation: op.dilation,
            padding_before: side(0),
            padding_after: side(1),
        };
        let columns = total / op.groups;
        // SAFETY: each group writes columns of its own.
        let output = unsafe { output.again() };
        let count = output.ty().shape.rows();
        let mut finish = match op.subpixel {
            true => Finish::one_of_four(output, count / 4, columns, pixels),
            false => Finish::group(output, count, columns, total, group * columns),
        };
        if let Some(bias) = &bias {
            finish = finish.bias(Cow::Borrowed(bias));
        }
        let finish = finish.stages(&op.epilogue, args.epilogue);
        if let Some(winograd) = &weight.winograd {
            winograd::convolve(values, &geometry, winograd, &finish);
        } else if op.is_pointwise() {
            gemm::multiply(&MatrixRows::new(values, count, channels), &weight.groups[number], &finish);
        } else {
            gemm::multiply(&ConvRows::new(values, geometry), &weight.groups[number], &finish);
        }
    }
    Ok(())
}

/// A batched product of two activations.
pub(crate) fn matmul(isa: Isa, op: &MatMul, inputs: &[View<'_>], output: ViewMut<'_>) {
    let (a, b) = (inputs[0], inputs[1]);
    let rank = a.ty().shape.len();
    let matrix = |ty: &TensorType| [ty.shape[ty.shape.len() - 2], ty.shape[ty.shape.len() - 1]];
    let [mut rows, mut depth] = matrix(a.ty());
    if op.transpose_a {
        std::mem::swap(&mut rows, &mut depth);
    }
    let columns = output.ty().shape.channels();
    let mut batch: usize = a.ty().shape[..rank - 2].iter().product();
    let shared = b.ty().shape.len() == 2;
    if shared && !op.transpose_a {
        // One right operand for all: their rows are the rows of one product.
        rows *= batch;
        batch = 1;
    }
    // SAFETY: no result overwrites an operand of a product.
    let (left, right) = unsafe { (Values::of(a), Values::of(b)) };
    let layout = if op.transpose_b { Layout::ColumnMajor } else { Layout::DepthMajor };
    let ty = TensorType::new(output.ty().dtype, [rows, columns]);
    let finish = |index: usize| {
        // SAFETY: each product of the batch has a part of the output to itself.
        let output = unsafe { output.part(&ty, index) };
        Finish::new(output, rows, columns)
    };
    let size = rows * depth;
    if shared && op.transpose_a {
        let packed = match layout {
            Layout::ColumnMajor => PackedWeights::new(isa, right, columns, depth),
            Layout::DepthMajor => PackedWeights::transposed(isa, right, columns, depth),
        };
        for index in 0..batch {
            let left = TransposedRows::new(left.range(index * size, size), rows, depth);
            gemm::multiply(&left, &packed, &finish(index));
        }
        return;
    }
    let right = BatchedOperand { values: right, layout, columns, depth };
    if op.transpose_a {
        let left = |index: usize| TransposedRows::new(left.range(index * size, size), rows, depth);
        gemm::multiply_batched(isa, batch, left, right, finish);
    } else {
        let left = |index: usize| MatrixRows::new(left.range(index * size, size), rows, depth);
        gemm::multiply_batched(isa, batch, left, right, finish);
    }
}
