//! What happens to the finished rows of a product, before and as they are written.

use std::marker::PhantomData;
use std::ops::Range;

use half::{bf16, f16};

use super::microkernel::panel_columns;
use super::{Values, ValuesMut};
use crate::simd::{Element, Simd, math};

/// Takes the finished rows of a product.
pub trait Epilogue: Sync {
    /// The rows and columns this expects.
    fn shape(&self) -> (usize, usize);

    /// Whether this expects gated weights.
    fn is_gated(&self) -> bool;

    /// Takes columns `columns` of row `row`, which begin `values`.
    ///
    /// `values` goes on to a whole number of panels (`2·S::LANES` columns), so whole vectors of it may be read and
    /// written; what stands beyond the columns means nothing. With gated weights each panel of values is followed by
    /// the panel of their gates. Mark the implementation `#[inline(always)]`.
    ///
    /// # Safety
    /// Row and columns must lie within [`Epilogue::shape`], and no element may be passed to two calls.
    unsafe fn finish<S: Simd>(
        &self,
        simd: S,
        row: usize,
        columns: Range<usize>,
        values: &mut [f32],
    );
}

/// An activation function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `max(x, 0)`.
    Relu,
    /// `x · sigmoid(x)`.
    Silu,
    /// `x/2 · (1 + erf(x/√2))`.
    GeluErf,
    /// GELU by its tanh approximation.
    GeluTanh,
    /// `x · sigmoid(1.702·x)`.
    QuickGelu,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
}

impl Activation {
    /// The activation of each lane.
    #[inline(always)]
    pub fn apply<S: Simd>(self, simd: S, x: S::F32) -> S::F32 {
        match self {
            Activation::Relu => simd.max(simd.zero(), x),
            Activation::Silu => math::silu(simd, x),
            Activation::GeluErf => math::gelu_erf(simd, x),
            Activation::GeluTanh => math::gelu_tanh(simd, x),
            Activation::QuickGelu => math::quick_gelu(simd, x),
            Activation::Sigmoid => math::sigmoid(simd, x),
            Activation::Tanh => math::tanh(simd, x),
        }
    }
}

/// The gate of a gated product: `(value + bias) · activation(gate + gate bias)`, before any [`Stage`].
#[derive(Clone, Copy, Debug)]
pub struct Gate<'a> {
    /// The bias of the values and then of the gates, `[2·columns]`.
    pub bias: Option<&'a [f32]>,
    /// The activation of the gates.
    pub activation: Activation,
}

/// One step on a row of f32 sums on its way to the output.
#[derive(Clone, Copy, Debug)]
pub enum Stage<'a> {
    /// Adds a value per column, `[columns]`.
    Bias(&'a [f32]),
    /// Adds a row of `[images, columns]`, that of the image a row belongs to: a time embedding.
    ImageBias {
        /// The row of each image.
        values: Values<'a>,
        /// Consecutive rows of the product that are one image.
        rows_per_image: usize,
    },
    /// Applies an activation.
    Activation(Activation),
    /// Multiplies with a constant.
    Scale(f32),
    /// Adds a contiguous `[rows, columns]` tensor.
    Residual(Values<'a>),
    /// Multiplies with a contiguous `[rows, columns]` tensor.
    Multiply(Values<'a>),
    /// Adds what the output held before: a residual in place.
    Accumulate,
}

/// The usual epilogue: a list of stages, then the output.
#[derive(Debug)]
pub struct Finish<'a> {
    output: OutputStart,
    rows: usize,
    columns: usize,
    row_stride: usize,
    gate: Option<Gate<'a>>,
    stages: Vec<Stage<'a>>,
    borrowed: PhantomData<ValuesMut<'a>>,
}

/// The first element of the output.
#[derive(Clone, Copy, Debug)]
enum OutputStart {
    F32(*mut f32),
    F16(*mut f16),
    BF16(*mut bf16),
}

// SAFETY: the pointers come from a mutable borrow that lasts as long as this value, and are followed only in
// `finish`, whose contract gives every element to one call.
unsafe impl Sync for Finish<'_> {}
// SAFETY: as above; what is borrowed may be used from any thread.
unsafe impl Send for Finish<'_> {}

impl<'a> Finish<'a> {
    /// Writes to a contiguous `[rows, columns]` tensor.
    ///
    /// # Panics
    /// Where the output holds fewer values.
    pub fn new(output: ValuesMut<'a>, rows: usize, columns: usize) -> Self {
        Self::strided(output, rows, columns, columns)
    }

    /// Writes rows that begin `row_stride` values apart, as those of one group or one of several merged outputs.
    ///
    /// # Panics
    /// Where the output ends before the last row does, or rows overlap.
    pub fn strided(output: ValuesMut<'a>, rows: usize, columns: usize, row_stride: usize) -> Self {
        let needed = rows
            .checked_sub(1)
            .map_or(0, |last| last * row_stride + columns);
        assert!(
            output.len() >= needed,
            "an output [{rows}, {columns}] needs {needed} values, not {}",
            output.len()
        );
        assert!(
            row_stride >= columns,
            "rows of {columns} values overlap when {row_stride} apart"
        );
        let output = match output {
            ValuesMut::F32(values) => OutputStart::F32(values.as_mut_ptr()),
            ValuesMut::F16(values) => OutputStart::F16(values.as_mut_ptr()),
            ValuesMut::BF16(values) => OutputStart::BF16(values.as_mut_ptr()),
        };
        Self {
            output,
            rows,
            columns,
            row_stride,
            gate: None,
            stages: Vec::new(),
            borrowed: PhantomData,
        }
    }

    /// Gates the values of a product with gated weights.
    ///
    /// # Panics
    /// Where the gate has a bias of another size than `2·columns`.
    pub fn gate(mut self, gate: Gate<'a>) -> Self {
        if let Some(bias) = gate.bias {
            assert_eq!(bias.len(), 2 * self.columns, "the bias of a gated product");
        }
        self.gate = Some(gate);
        self
    }

    /// Adds a stage after those added before.
    ///
    /// # Panics
    /// Where the stage's tensor is too small for the output.
    pub fn stage(mut self, stage: Stage<'a>) -> Self {
        let (rows, columns) = (self.rows, self.columns);
        let (has, needs) = match stage {
            Stage::Bias(bias) => (bias.len(), columns),
            Stage::ImageBias {
                values,
                rows_per_image,
            } => {
                assert!(rows_per_image > 0, "an image of no rows");
                (values.len(), rows.div_ceil(rows_per_image) * columns)
            }
            Stage::Residual(values) | Stage::Multiply(values) => (values.len(), rows * columns),
            Stage::Activation(_) | Stage::Scale(_) | Stage::Accumulate => (0, 0),
        };
        assert!(
            has >= needs,
            "a stage of {has} values where a [{rows}, {columns}] output needs {needs}"
        );
        self.stages.push(stage);
        self
    }
}

impl Epilogue for Finish<'_> {
    fn shape(&self) -> (usize, usize) {
        (self.rows, self.columns)
    }

    fn is_gated(&self) -> bool {
        self.gate.is_some()
    }

    #[inline(always)]
    unsafe fn finish<S: Simd>(
        &self,
        simd: S,
        row: usize,
        columns: Range<usize>,
        values: &mut [f32],
    ) {
        if let Some(gate) = &self.gate {
            apply_gate(simd, gate, self.columns, columns.clone(), values);
        }
        let count = columns.len();
        let values = &mut values[..count.next_multiple_of(S::LANES)];
        let at = row * self.columns + columns.start;
        let output = row * self.row_stride + columns.start;
        for stage in &self.stages {
            match *stage {
                Stage::Bias(bias) => combine(simd, values, &bias[columns.clone()], Combine::Add),
                Stage::ImageBias {
                    values: other,
                    rows_per_image,
                } => {
                    let at = row / rows_per_image * self.columns + columns.start;
                    combine_values(simd, values, other, at..at + count, Combine::Add);
                }
                Stage::Residual(other) => {
                    combine_values(simd, values, other, at..at + count, Combine::Add)
                }
                Stage::Multiply(other) => {
                    combine_values(simd, values, other, at..at + count, Combine::Multiply)
                }
                Stage::Activation(activation) => {
                    for chunk in values.chunks_exact_mut(S::LANES) {
                        // SAFETY: the chunk is one vector.
                        unsafe {
                            let x = simd.load(chunk.as_ptr());
                            simd.store(chunk.as_mut_ptr(), activation.apply(simd, x));
                        }
                    }
                }
                Stage::Scale(factor) => values.iter_mut().for_each(|value| *value *= factor),
                // SAFETY: the constructor checked that the output holds this row, and these elements are this call's.
                Stage::Accumulate => unsafe {
                    match self.output {
                        OutputStart::F32(start) => {
                            accumulate(simd, values, start.add(output), count)
                        }
                        OutputStart::F16(start) => {
                            accumulate(simd, values, start.add(output), count)
                        }
                        OutputStart::BF16(start) => {
                            accumulate(simd, values, start.add(output), count)
                        }
                    }
                },
            }
        }
        // SAFETY: the constructor checked that the output holds this row, and these elements are this call's.
        unsafe {
            match self.output {
                OutputStart::F32(start) => store(simd, values, start.add(output), count),
                OutputStart::F16(start) => store(simd, values, start.add(output), count),
                OutputStart::BF16(start) => store(simd, values, start.add(output), count),
            }
        }
    }
}

/// Turns pairs of a value panel and a gate panel into gated values, at the front of `values`.
#[inline(always)]
fn apply_gate<S: Simd>(
    simd: S,
    gate: &Gate,
    total: usize,
    columns: Range<usize>,
    values: &mut [f32],
) {
    let width = panel_columns::<S>();
    if let Some(bias) = gate.bias {
        for (pair, values) in values.chunks_exact_mut(2 * width).enumerate() {
            let start = columns.start + pair * width;
            let column_range = start..columns.end.min(start + width);
            let gate_range = total + column_range.start..total + column_range.end;
            let (values, gates) = values.split_at_mut(width);
            combine(simd, values, &bias[column_range], Combine::Add);
            combine(simd, gates, &bias[gate_range], Combine::Add);
        }
    }
    // A loop of its own, without branches on the way: several vectors are then in flight at once.
    let start = values.as_mut_ptr();
    for at in 0..values.len() / (2 * S::LANES) {
        let pair = at / 2 * 2 * width + at % 2 * S::LANES;
        // SAFETY: a panel is two vectors, so vector `at` of the values lies at `pair` and its gate a panel further on,
        // both within the whole pairs of panels of `values`. `at` vectors never reach past `pair`, so each vector is
        // read before it is overwritten.
        unsafe {
            let gated = gate
                .activation
                .apply(simd, simd.load(start.add(pair + width)));
            simd.store(
                start.add(at * S::LANES),
                simd.mul(simd.load(start.add(pair)), gated),
            );
        }
    }
}

/// How a stage's tensor is combined with the sums.
#[derive(Clone, Copy)]
enum Combine {
    Add,
    Multiply,
}

/// At most a vector of values, the missing lanes zero.
#[inline(always)]
fn load_some<S: Simd, E: Element>(simd: S, values: &[E]) -> S::F32 {
    assert!(values.len() <= S::LANES);
    // SAFETY: a whole vector is read only where there is one.
    unsafe {
        if values.len() == S::LANES {
            E::load(simd, values.as_ptr())
        } else {
            E::load_partial(simd, values.as_ptr(), values.len())
        }
    }
}

/// Combines `values`, whole vectors, with `other`, which may end within the last of them.
#[inline(always)]
fn combine<S: Simd, E: Element>(simd: S, values: &mut [f32], other: &[E], how: Combine) {
    for (values, other) in values
        .chunks_exact_mut(S::LANES)
        .zip(other.chunks(S::LANES))
    {
        let other = load_some(simd, other);
        // SAFETY: the chunk is one vector.
        unsafe {
            let value = simd.load(values.as_ptr());
            let value = match how {
                Combine::Add => simd.add(value, other),
                Combine::Multiply => simd.mul(value, other),
            };
            simd.store(values.as_mut_ptr(), value);
        }
    }
}

/// [`combine`] with a range of a tensor of any storage type.
#[inline(always)]
fn combine_values<S: Simd>(
    simd: S,
    values: &mut [f32],
    other: Values,
    range: Range<usize>,
    how: Combine,
) {
    match other {
        Values::F32(other) => combine(simd, values, &other[range], how),
        Values::F16(other) => combine(simd, values, &other[range], how),
        Values::BF16(other) => combine(simd, values, &other[range], how),
    }
}

/// Adds the `count` values at `output` to `values`.
///
/// # Safety
/// `output` must be readable for `count` values that nothing writes meanwhile.
#[inline(always)]
unsafe fn accumulate<S: Simd, E: Element>(
    simd: S,
    values: &mut [f32],
    output: *const E,
    count: usize,
) {
    // SAFETY: the caller vouches for these values; the slice is gone before they are written.
    combine(
        simd,
        values,
        unsafe { std::slice::from_raw_parts(output, count) },
        Combine::Add,
    );
}

/// Writes the first `count` values to `output`.
///
/// # Safety
/// `output` must be writable for `count` values that nothing else uses meanwhile.
#[inline(always)]
unsafe fn store<S: Simd, E: Element>(simd: S, values: &[f32], output: *mut E, count: usize) {
    assert!(values.len() >= count.next_multiple_of(S::LANES));
    let mut at = 0;
    while at < count {
        let left = count - at;
        // SAFETY: `values` holds whole vectors beyond `count`, and no more than `left` values are written.
        unsafe {
            let value = simd.load(values.as_ptr().add(at));
            if left >= S::LANES {
                E::store(simd, output.add(at), value);
            } else {
                E::store_partial(simd, output.add(at), value, left);
            }
        }
        at += S::LANES;
    }
}
