//! A linear layer, a convolution or a product of two activations, as the kernels of this family see all three: rows of
//! `a` times columns of `b`, in independent slices.

use std::ops::Range;

use kinora_graph::{
    DType, Op, TensorType,
    op::{Activation, Conv, Linear, MatMul, Stage, Statistics},
};

use crate::{
    CudaError,
    kernels::{Call, Places, epilogue::Epilogue},
    launch::{
        StructValue,
        limits::{all_summed, long, summed},
    },
};

/// The structs that kernels take, under the names that they have in CUDA.
pub(super) mod argument {
    use crate::launch::c_struct;

    c_struct! {
        /// A product: see `common/product.cuh`.
        pub(crate) struct Product {
            a_row: i64,
            a_depth: i64,
            b_column: i64,
            b_depth: i64,
            a_slice: i64,
            b_slice: i64,
            y_slice: i64,
            y_row: i64,
            rows: i32,
            columns: i32,
            depth: i32,
            /// Channels of a pixel that a slice of a convolution reads.
            channels: i32,
            /// Split-K: blocks that share a tile's depth, and the steps that each takes.
            splits: i32,
            steps: i32,
            column_slice: i32,
            unused: i32,
        }
    }

    c_struct! {
        /// The windows of a convolution: see `common/window.cuh`.
        #[derive(Default)]
        pub(crate) struct Window {
            extents: [i32; 3],
            out_extents: [i32; 3],
            kernel: [i32; 3],
            stride: [i32; 3],
            padding: [i32; 3],
            dilation: [i32; 3],
        }
    }
}

/// A product to compute.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    /// The first operand, and how its elements lie.
    pub a: Matrix,
    /// The second, whose columns are the weight's rows.
    pub b: Matrix,
    /// Rows of the result in a slice.
    pub rows: usize,
    /// Columns of `b` in a slice: twice the result's if gated.
    pub columns: usize,
    /// How many products are summed.
    pub depth: usize,
    /// Batch elements, or groups.
    pub slices: usize,
    /// Elements of the result from one slice to the next, and from one row to the next.
    pub y_slice: usize,
    pub y_row: usize,
    /// What a convolution reads for a row.
    pub window: Option<Window>,
    /// Whether it is a sub-pixel convolution: a row is a square of 2×2 pixels of the result, and `columns` are those of the four
    /// pixels, one after another.
    pub subpixel: bool,
    pub gate: Option<Activation>,
    pub stages: Vec<Stage>,
    /// Which operand is the scale of a quantised product, which is the bias, and which belong to the stages.
    pub scale: Option<usize>,
    pub bias: Option<usize>,
    pub stage_operands: Range<usize>,
    pub inputs: Vec<TensorType>,
    pub result: TensorType,
    /// What is measured of the result.
    pub statistics: Option<Statistics>,
}

/// What a product with a weight does.
struct Learned<'a> {
    quantised: bool,
    bias: bool,
    gate: Option<Activation>,
    stages: &'a [Stage],
    first_of_epilogue: usize,
    statistics: Option<Statistics>,
}

impl<'a> Learned<'a> {
    fn of_linear(op: &'a Linear) -> Learned<'a> {
        Learned {
            quantised: op.quantised.is_some(),
            bias: op.bias,
            gate: op.gate,
            stages: &op.epilogue,
            first_of_epilogue: op.first_of_epilogue(),
            statistics: op.statistics,
        }
    }

    fn of_conv(op: &'a Conv) -> Learned<'a> {
        Learned {
            quantised: op.quantised.is_some(),
            bias: op.bias,
            gate: None,
            stages: &op.epilogue,
            first_of_epilogue: op.first_of_epilogue(),
            statistics: op.statistics,
        }
    }
}

/// How an operand lies in memory, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Matrix {
    pub dtype: DType,
    /// From one row of `a`, or column of `b`, to the next.
    pub line: usize,
    /// From one depth to the next.
    pub depth: usize,
    /// From one slice to the next.
    pub slice: usize,
}

/// The windows of a convolution; arrays are frames, height, width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// Channels of a pixel that one slice reads.
    pub channels: usize,
    pub clips: usize,
    pub extents: [usize; 3],
    pub out_extents: [usize; 3],
    pub kernel: [usize; 3],
    pub stride: [usize; 3],
    pub padding: [usize; 3],
    pub dilation: [usize; 3],
}

impl Problem {
    /// The product that a call computes, without its prologue; `None` if it is not a product.
    pub fn of(call: &Call<'_>) -> Option<Problem> {
        match call.op {
            Op::Linear(op) => Problem::learned(call, Learned::of_linear(op)),
            Op::Conv(op) if op.is_pointwise() => Problem::learned(call, Learned::of_conv(op)),
            Op::Conv(op) => Problem::convolution(call, op),
            Op::MatMul(op) => Problem::of_activations(call, *op),
            _ => None,
        }
    }

    /// A product with a weight.
    fn learned(call: &Call<'_>, op: Learned<'_>) -> Option<Problem> {
        let (inputs, result) = (call.inputs, *call.outputs.first()?);
        let weight = inputs[1];
        let depth = weight.shape[1..].iter().product();
        Some(Problem {
            a: Matrix { dtype: inputs[0].dtype, line: depth, depth: 1, slice: 0 },
            b: Matrix { dtype: weight.dtype, line: depth, depth: 1, slice: 0 },
            rows: result.shape.rows(),
            columns: weight.shape[0],
            depth,
            slices: 1,
            y_slice: 0,
            y_row: result.shape.channels(),
            window: None,
            subpixel: false,
            gate: op.gate,
            stages: op.stages.to_vec(),
            scale: op.quantised.then_some(2),
            bias: op.bias.then_some(2 + usize::from(op.quantised)),
            stage_operands: op.first_of_epilogue..inputs.len(),
            inputs: inputs.iter().copied().cloned().collect(),
            result: result.clone(),
            statistics: op.statistics,
        })
    }

    /// A convolution: its windows are gathered as rows of the first operand.
    fn convolution(call: &Call<'_>, op: &Conv) -> Option<Problem> {
        let dense = Problem::learned(call, Learned::of_conv(op))?;
        let (x, result) = (&call.inputs[0].shape, &call.outputs[0].shape);
        let clips = x[0] / op.frames;
        let channels = x[3] / op.groups;
        let columns = dense.columns / op.groups;
        let square = if op.subpixel { 2 } else { 1 };
        Some(Problem {
            rows: dense.rows / op.pixels(),
            subpixel: op.subpixel,
            a: Matrix { line: x[3], slice: channels, ..dense.a },
            b: Matrix { slice: columns * dense.depth, ..dense.b },
            columns,
            slices: op.groups,
            y_slice: columns,
            window: Some(Window {
                channels,
                clips,
                extents: [op.frames, x[1], x[2]],
                out_extents: [
                    result[0].checked_div(clips).unwrap_or(0),
                    result[1] / square,
                    result[2] / square,
                ],
                kernel: op.kernel,
                stride: op.stride,
                padding: op.padding.map(|[before, _]| before),
                dilation: op.dilation,
            }),
            ..dense
        })
    }

    /// A product of two activations.
    fn of_activations(call: &Call<'_>, op: MatMul) -> Option<Problem> {
        let (inputs, result) = (call.inputs, *call.outputs.first()?);
        let rank = result.shape.len();
        let [rows, columns] = [result.shape[rank - 2], result.shape[rank - 1]];
        let a = &inputs[0].shape;
        let depth = if op.transpose_a { a[rank - 2] } else { a[rank - 1] };
        let shared = inputs[1].shape.len() == 2;
        let problem = Problem {
            a: Matrix {
                dtype: inputs[0].dtype,
                line: if op.transpose_a { 1 } else { depth },
                depth: if op.transpose_a { rows } else { 1 },
                slice: rows * depth,
            },
            b: Matrix {
                dtype: inputs[1].dtype,
                line: if op.transpose_b { depth } else { 1 },
                depth: if op.transpose_b { 1 } else { columns },
                slice: if shared { 0 } else { depth * columns },
            },
            rows,
            columns,
            depth,
            slices: result.shape[..rank - 2].iter().product(),
            y_slice: rows * columns,
            y_row: columns,
            window: None,
            subpixel: false,
            gate: None,
            stages: Vec::new(),
            scale: None,
            bias: None,
            stage_operands: inputs.len()..inputs.len(),
            inputs: inputs.iter().copied().cloned().collect(),
            result: result.clone(),
            statistics: None,
        };
        Some(problem.with_shared_b_as_rows(op.transpose_a))
    }

    /// A second operand that all slices share makes one product of them, unless the slices' rows are not one after another.
    fn with_shared_b_as_rows(self, transposed_a: bool) -> Self {
        if self.b.slice != 0 || transposed_a {
            return self;
        }
        Problem { rows: self.rows * self.slices, slices: 1, ..self }
    }

    /// The sums alone, for a kernel that another one follows to finish them.
    pub fn without_epilogue(&self) -> Self {
        let end = self.inputs.len();
        Problem { scale: None, bias: None, stages: Vec::new(), stage_operands: end..end, ..self.clone() }
    }

    /// The same, of which nothing is measured.
    pub fn without_statistics(&self) -> Self {
        Problem { statistics: None, ..self.clone() }
    }

    /// Columns of the result in a slice.
    pub fn result_columns(&self) -> usize {
        if self.gate.is_some() { self.columns / 2 } else { self.columns }
    }

    /// Whether tiles of so many columns have columns of one pixel of a square each.
    pub fn splits_columns(&self, tile: usize) -> bool {
        !self.subpixel || self.y_row.is_multiple_of(tile)
    }

    /// The most neighbouring columns, up to `most`, that can be stored and read as one everywhere.
    pub fn store_width(&self, most: usize) -> usize {
        let mut width = most;
        while !self.result_columns().is_multiple_of(width) || !self.y_row.is_multiple_of(width) {
            width /= 2;
        }
        width
    }

    /// Whether `width` neighbours along the depth of `a` lie together, aligned, in every row and slice.
    pub fn a_has_wide_depth(&self, width: usize) -> bool {
        let channels = self.window.map_or(self.depth, |window| window.channels);
        self.a.depth == 1 && [channels, self.a.line, self.a.slice].iter().all(|n| n % width == 0)
    }

    /// The same for `b`.
    pub fn b_has_wide_depth(&self, width: usize) -> bool {
        self.b.depth == 1 && [self.depth, self.b.line, self.b.slice].iter().all(|n| n % width == 0)
    }

    /// The epilogue.
    pub fn epilogue(&self) -> Epilogue<'_> {
        Epilogue {
            scaled: self.scale.is_some(),
            bias: self.bias.map(|bias| self.inputs[bias].dtype),
            gate: self.gate,
            stages: &self.stages,
            operands: &self.inputs[self.stage_operands.clone()],
            result: &self.result,
        }
    }

    /// The epilogue's operands where they lie.
    pub fn epilogue_argument(&self, places: &Places) -> StructValue {
        let vectors = [self.scale, self.bias].map(|operand| operand.map(|operand| places.inputs[operand]));
        self.epilogue().argument(vectors, &places.inputs[self.stage_operands.clone()])
    }

    /// The struct `Product`: the depth in `splits` parts of `steps` tiles each.
    ///
    /// # Errors
    /// If an extent is larger than the kernels count.
    pub fn product_argument(&self, splits: usize, steps: usize) -> Result<argument::Product, CudaError> {
        let channels = self.window.map_or(self.depth, |window| window.channels);
        let column_slice = if self.window.is_some() { self.result_columns() } else { 0 };
        Ok(argument::Product {
            a_row: long(self.a.line),
            a_depth: long(self.a.depth),
            b_column: long(self.b.line),
            b_depth: long(self.b.depth),
            a_slice: long(self.a.slice),
            b_slice: long(self.b.slice),
            y_slice: long(self.y_slice),
            y_row: long(self.y_row),
            rows: summed(self.rows)?,
            columns: summed(self.columns)?,
            depth: summed(self.depth)?,
            channels: summed(channels)?,
            splits: summed(splits)?,
            steps: summed(steps)?,
            column_slice: summed(column_slice)?,
            unused: 0,
        })
    }

    /// The struct `Window`; all zeros if there is none.
    ///
    /// # Errors
    /// If an extent is larger than the kernels count.
    pub fn window_argument(&self) -> Result<argument::Window, CudaError> {
        let Some(window) = self.window else { return Ok(argument::Window::default()) };
        Ok(argument::Window {
            extents: all_summed(window.extents)?,
            out_extents: all_summed(window.out_extents)?,
            kernel: all_summed(window.kernel)?,
            stride: all_summed(window.stride)?,
            padding: all_summed(window.padding)?,
            dilation: all_summed(window.dilation)?,
        })
    }
}
