//! A linear layer, a convolution or a product of two activations, as the kernels of this family see all three: rows of
//! `a` times columns of `b`, in independent slices.

use std::ops::Range;

use kinora_graph::{
    DType, Op, TensorType,
    op::{Activation, Norm, Stage},
};

use crate::{
    CudaError,
    kernels::{Argument, Call, Places, epilogue::Epilogue},
};

/// A product to compute.
#[derive(Clone, Debug)]
pub(super) struct Problem<'a> {
    pub layer: &'a str,
    /// The first operand, and how its elements lie.
    pub a: Matrix,
    /// The second, whose columns are the weight's rows.
    pub b: Matrix,
    /// Rows of the result in a slice.
    pub rows: usize,
    /// Columns of `b` in a slice: twice the result's where gated.
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
    pub gate: Option<Activation>,
    pub stages: &'a [Stage],
    /// Which operand is the bias, and which belong to the stages.
    pub bias: Option<usize>,
    pub stage_operands: Range<usize>,
    pub inputs: &'a [&'a TensorType],
    pub result: &'a TensorType,
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

impl<'a> Problem<'a> {
    /// The product that a call computes, its prologue left out; `None` where it is no product.
    pub fn of(call: &Call<'a>) -> Option<Problem<'a>> {
        let (inputs, result) = (call.inputs, *call.outputs.first()?);
        let learned = |bias: bool, prologue: Option<Norm>, stages: &'a [Stage], gate| {
            let first = 2 + usize::from(bias) + prologue.map_or(0, |norm| norm.affine.operands());
            let weight = inputs[1];
            let depth = weight.shape[1..].iter().product();
            Problem {
                layer: call.layer,
                a: Matrix { dtype: inputs[0].dtype, line: depth, depth: 1, slice: 0 },
                b: Matrix { dtype: weight.dtype, line: depth, depth: 1, slice: 0 },
                rows: result.shape.rows(),
                columns: weight.shape[0],
                depth,
                slices: 1,
                y_slice: 0,
                y_row: result.shape.channels(),
                window: None,
                gate,
                stages,
                bias: bias.then_some(2),
                stage_operands: first..inputs.len(),
                inputs,
                result,
            }
        };
        match call.op {
            Op::Linear(op) => Some(learned(op.bias, op.prologue, &op.epilogue, op.gate)),
            Op::Conv(op) if op.is_pointwise() => Some(learned(op.bias, op.prologue, &op.epilogue, None)),
            Op::Conv(op) => {
                let dense = learned(op.bias, op.prologue, &op.epilogue, None);
                let x = &inputs[0].shape;
                let clips = x[0] / op.frames;
                let channels = x[3] / op.groups;
                let columns = dense.columns / op.groups;
                Some(Problem {
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
                            result.shape[0].checked_div(clips).unwrap_or(0),
                            result.shape[1],
                            result.shape[2],
                        ],
                        kernel: op.kernel,
                        stride: op.stride,
                        padding: op.padding.map(|[before, _]| before),
                        dilation: op.dilation,
                    }),
                    ..dense
                })
            }
            Op::MatMul(op) => {
                let rank = result.shape.len();
                let [rows, columns] = [result.shape[rank - 2], result.shape[rank - 1]];
                let a = &inputs[0].shape;
                let depth = if op.transpose_a { a[rank - 2] } else { a[rank - 1] };
                let shared = inputs[1].shape.len() == 2;
                Some(
                    Problem {
                        layer: call.layer,
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
                        gate: None,
                        stages: &[],
                        bias: None,
                        stage_operands: inputs.len()..inputs.len(),
                        inputs,
                        result,
                    }
                    .with_shared_b_as_rows(op.transpose_a),
                )
            }
            _ => None,
        }
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
        Problem { bias: None, stages: &[], stage_operands: end..end, ..self.clone() }
    }

    /// Columns of the result in a slice.
    pub fn result_columns(&self) -> usize {
        if self.gate.is_some() { self.columns / 2 } else { self.columns }
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
    pub fn epilogue(&self) -> Epilogue<'a> {
        Epilogue {
            bias: self.bias.map(|bias| self.inputs[bias].dtype),
            gate: self.gate,
            stages: self.stages,
            operands: self.inputs[self.stage_operands.clone()].to_vec(),
            result: self.result,
        }
    }

    /// The epilogue's operands where they lie.
    pub fn epilogue_argument(&self, places: &Places) -> Argument {
        let bias = self.bias.map(|bias| places.inputs[bias]);
        self.epilogue().argument(bias, &places.inputs[self.stage_operands.clone()])
    }

    /// The struct `Product`: the depth in `splits` parts of `steps` tiles each.
    ///
    /// # Errors
    /// Where an extent is larger than the kernels count.
    pub fn product_argument(&self, splits: usize, steps: usize) -> Result<Argument, CudaError> {
        let wide = [
            self.a.line,
            self.a.depth,
            self.b.line,
            self.b.depth,
            self.a.slice,
            self.b.slice,
            self.y_slice,
            self.y_row,
        ];
        let channels = self.window.map_or(self.depth, |window| window.channels);
        let column_slice = if self.window.is_some() { self.result_columns() } else { 0 };
        let narrow = [self.rows, self.columns, self.depth, channels, splits, steps, column_slice, 0];
        let mut bytes: Vec<u8> = wide.iter().flat_map(|&n| (n as i64).to_le_bytes()).collect();
        for extent in narrow {
            bytes.extend(self.counted(extent)?.to_le_bytes());
        }
        Ok(Argument::Bytes(bytes))
    }

    /// The struct `Window`; all zeros where there is none.
    ///
    /// # Errors
    /// Where an extent is larger than the kernels count.
    pub fn window_argument(&self) -> Result<Argument, CudaError> {
        let mut bytes = Vec::with_capacity(72);
        let numbers = self.window.map_or([[0; 3]; 6], |window| {
            [
                window.extents,
                window.out_extents,
                window.kernel,
                window.stride,
                window.padding,
                window.dilation,
            ]
        });
        for number in numbers.into_iter().flatten() {
            bytes.extend(self.counted(number)?.to_le_bytes());
        }
        Ok(Argument::Bytes(bytes))
    }

    /// A number that the kernels count in 32 bits. Half of them are left for sums of two.
    pub fn counted(&self, number: usize) -> Result<i32, CudaError> {
        i32::try_from(number)
            .ok()
            .filter(|&n| n < 1 << 30)
            .ok_or_else(|| CudaError::TooLarge(format!("{}: an extent of {number}", self.layer)))
    }

    /// So many blocks of a launch.
    pub fn blocks(&self, blocks: usize) -> Result<u32, CudaError> {
        u32::try_from(blocks)
            .ok()
            .filter(|&n| n < 1 << 31)
            .ok_or_else(|| CudaError::TooLarge(format!("{}: a launch of {blocks} blocks", self.layer)))
    }
}
