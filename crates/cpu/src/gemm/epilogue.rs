//! What happens to the finished rows of a product, before and as they are written.

use std::borrow::Cow;
use std::ops::Range;

use kinora_graph::{
    DType,
    op::{Activation, Stage},
};

use super::microkernel::{Addends, Strided, panel_columns};
use crate::simd::activation::{Function, GeluToBf16, with_activation};
use crate::simd::{Float, Simd, load_up_to, store_up_to};
use crate::view::{View, ViewMut, with_float};

/// Takes the finished rows of a product.
pub(crate) trait Epilogue: Sync {
    /// The rows and columns this expects.
    fn shape(&self) -> (usize, usize);

    /// Whether this expects gated weights.
    fn is_gated(&self) -> bool;

    /// Where the sums may be written directly, and what is added to them there; `None` if more is to be done with them.
    fn direct(&self) -> Option<Direct> {
        None
    }

    /// Takes columns `columns` of row `row`, which begin `values`.
    ///
    /// `values` extends to a whole number of panels (`2·S::LANES` columns), so whole vectors of it may be read and
    /// written; what lies beyond the columns is unspecified. With gated weights each panel of values is followed by the
    /// panel of their gates. Mark the implementation `#[inline(always)]`.
    ///
    /// # Safety
    /// Row and columns must lie within [`Epilogue::shape`], and no element may be passed to two calls.
    unsafe fn finish<S: Simd>(&self, simd: S, row: usize, columns: Range<usize>, values: &mut [f32]);
}

/// An f32 output whose elements are the sums, with a bias and another tensor added: the microkernel writes these from its registers,
/// without a second pass over them.
#[derive(Clone, Copy)]
pub(crate) struct Direct {
    /// The element of the first row and column.
    pub(crate) output: Strided<*mut f32>,
    /// A value for each column.
    pub(crate) bias: Option<*const f32>,
    /// A value for each element; may be the output's own memory.
    pub(crate) added: Option<Strided<*const f32>>,
}

impl Direct {
    /// The same from this row and column on.
    pub(crate) fn at(self, row: usize, column: usize) -> Self {
        let Self { output, bias, added } = self;
        Self {
            output: Strided { start: output.start.wrapping_add(row * output.stride + column), ..output },
            bias: bias.map(|bias| bias.wrapping_add(column)),
            added: added.map(|t| Strided { start: t.start.wrapping_add(row * t.stride + column), ..t }),
        }
    }

    /// Whether an element would be needed after a part of its sum has been written to its place.
    pub(crate) fn adds_its_output(&self) -> bool {
        self.added.is_some_and(|added| added.start == self.output.start.cast_const())
    }

    /// What is added to the finished sums.
    pub(crate) fn addends(&self) -> Addends {
        Addends { bias: self.bias, tensor: self.added }
    }
}

/// A stage of an epilogue with its operands. Tensors have the rows of the whole output.
#[derive(Clone, Copy)]
enum Bound<'a> {
    Activate(Activation),
    Scale(f32),
    /// Adds the row of `[images, row_stride]` that belongs to the image a row is part of.
    AddChannels {
        values: View<'a>,
        rows_per_image: usize,
    },
    Add(View<'a>),
    Mul(View<'a>),
    Blend {
        other: View<'a>,
        own_weight: f32,
        other_weight: f32,
    },
}

/// The usual epilogue: bias, gate, the stages of the op, then the output.
///
/// A stage's tensor may be the output's own memory: each element is read before it is written, by the same thread.
pub(crate) struct Finish<'a> {
    output: ViewMut<'a>,
    rows: usize,
    columns: usize,
    /// Elements from one row of the output to the next.
    row_stride: usize,
    /// Where this product's columns begin in a row of the output: those of one group of a convolution.
    first_column: usize,
    /// Which pixels of the output the product's rows are, if it has one of each square of 2×2.
    pixels: Option<OneOfFour>,
    bias: Option<Cow<'a, [f32]>>,
    gate: Option<Activation>,
    stages: Vec<Bound<'a>>,
}

/// One pixel of every square of 2×2.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OneOfFour {
    /// Squares in a line of an image.
    pub(crate) width: usize,
    /// Which pixel of its square.
    pub(crate) y: usize,
    pub(crate) x: usize,
}

impl OneOfFour {
    /// The number of a square's pixel, squares counted line by line.
    #[inline(always)]
    fn place(self, square: usize) -> usize {
        let (line, column) = (square / self.width.max(1), square % self.width.max(1));
        ((2 * line + self.y) * self.width + column) * 2 + self.x
    }
}

impl<'a> Finish<'a> {
    /// Writes to a contiguous `[rows, columns]` tensor.
    ///
    /// # Panics
    /// If the output is of a different size.
    pub(crate) fn new(output: ViewMut<'a>, rows: usize, columns: usize) -> Self {
        Self::group(output, rows, columns, columns, 0)
    }

    /// Writes `columns` columns of a contiguous `[rows, row_stride]` tensor, from `first_column` on.
    ///
    /// # Panics
    /// If the output is of a different size, or the columns do not fit its rows.
    pub(crate) fn group(
        output: ViewMut<'a>,
        rows: usize,
        columns: usize,
        row_stride: usize,
        first_column: usize,
    ) -> Self {
        assert_eq!(output.ty().elements(), rows * row_stride, "an output [{rows}, {row_stride}]");
        assert!(first_column + columns <= row_stride, "columns outside the output's rows");
        let (bias, gate, stages) = (None, None, Vec::new());
        Self { output, rows, columns, row_stride, first_column, pixels: None, bias, gate, stages }
    }

    /// Writes one pixel of every square of 2×2 of an image, which has `columns` channels: the product's rows are these pixels, and `rows`
    /// is a quarter of all.
    ///
    /// # Panics
    /// If the output is of a different size.
    pub(crate) fn one_of_four(output: ViewMut<'a>, rows: usize, columns: usize, pixels: OneOfFour) -> Self {
        assert_eq!(output.ty().elements(), 4 * rows * columns, "an output [4·{rows}, {columns}]");
        let (bias, gate, stages) = (None, None, Vec::new());
        let (row_stride, first_column, pixels) = (columns, 0, Some(pixels));
        Self { output, rows, columns, row_stride, first_column, pixels, bias, gate, stages }
    }

    /// The row of the output that a row of the product is.
    #[inline(always)]
    fn output_row(&self, row: usize) -> usize {
        self.pixels.map_or(row, |pixels| pixels.place(row))
    }

    /// Adds a bias before anything else: one value per column of the whole output or, if gated, one per value and then
    /// one per gate.
    ///
    /// # Panics
    /// If it has another size.
    pub(crate) fn bias(mut self, bias: Cow<'a, [f32]>) -> Self {
        let sides = if self.gate.is_some() { 2 } else { 1 };
        assert_eq!(bias.len(), sides * self.row_stride, "one bias a column");
        self.bias = Some(bias);
        self
    }

    /// Multiplies the values of a product with gated weights by this activation of their gates. Comes before the bias.
    pub(crate) fn gate(mut self, activation: Activation) -> Self {
        self.gate = Some(activation);
        self
    }

    /// Adds the stages of an op, whose operands its graph has checked.
    pub(crate) fn stages(mut self, stages: &[Stage], operands: &[View<'a>]) -> Self {
        for (stage, own) in Stage::split(stages, operands) {
            self.stages.push(match stage {
                Stage::Activate(activation) => Bound::Activate(activation),
                Stage::Scale(factor) => Bound::Scale(factor),
                Stage::AddChannels => {
                    let images = own[0].ty().elements() / self.row_stride.max(1);
                    Bound::AddChannels {
                        values: own[0],
                        rows_per_image: self.rows.div_ceil(images.max(1)).max(1),
                    }
                }
                Stage::Add => Bound::Add(own[0]),
                Stage::Mul => Bound::Mul(own[0]),
                Stage::Blend { accumulator_first } => {
                    let alpha = own[1].first();
                    let (own_weight, other_weight) =
                        if accumulator_first { (alpha, 1.0 - alpha) } else { (1.0 - alpha, alpha) };
                    Bound::Blend { other: own[0], own_weight, other_weight }
                }
            });
        }
        self
    }
}

/// How many rows ahead the output's cache lines are prefetched: rows of a block of columns are too short and too far
/// apart for the hardware prefetcher, and each store would wait for its line.
const PREFETCH_ROWS: usize = 4;

impl Finish<'_> {
    /// What is added to the sums if nothing else is done with them but a bias; a tensor must have the output's type.
    #[inline(always)]
    fn added_alone(&self) -> Option<Option<View<'_>>> {
        match &*self.stages {
            [] => Some(None),
            [Bound::Add(other)] if other.ty().dtype == self.output.ty().dtype => Some(Some(*other)),
            _ => None,
        }
    }

    /// Whether what the gate gives is stored as bfloat16, with nothing in between.
    #[inline(always)]
    fn rounds_to_bf16(&self) -> bool {
        self.stages.is_empty() && self.output.ty().dtype == DType::BF16
    }

    #[inline(always)]
    fn prefetch<S: Simd>(&self, simd: S, row: usize, columns: Range<usize>) {
        let size = self.output.ty().dtype.size();
        let start = (self.output_row(row) * self.row_stride + columns.start) * size;
        for offset in (0..columns.len() * size).step_by(64) {
            simd.prefetch(self.output.bytes().wrapping_add(start + offset).cast_const().cast());
        }
    }
}

impl Epilogue for Finish<'_> {
    fn shape(&self) -> (usize, usize) {
        (self.rows, self.columns)
    }

    fn is_gated(&self) -> bool {
        self.gate.is_some()
    }

    fn direct(&self) -> Option<Direct> {
        if self.gate.is_some() || self.pixels.is_some() || self.output.ty().dtype != DType::F32 {
            return None;
        }
        let (stride, first) = (self.row_stride, self.first_column);
        let added = match &*self.stages {
            [] => None,
            [Bound::Add(other)] if other.ty().dtype == DType::F32 => {
                Some(Strided { start: other.ptr::<f32>().wrapping_add(first), stride })
            }
            _ => return None,
        };
        let bias = self.bias.as_ref().map(|bias| bias[first..].as_ptr());
        let output = Strided { start: self.output.ptr::<f32>().wrapping_add(first), stride };
        Some(Direct { output, bias, added })
    }

    #[inline(always)]
    unsafe fn finish<S: Simd>(&self, simd: S, row: usize, columns: Range<usize>, values: &mut [f32]) {
        let count = columns.len();
        let first = self.first_column + columns.start;
        let at = self.output_row(row) * self.row_stride + first;
        self.prefetch(simd, row + PREFETCH_ROWS, first..first + count);
        if let (None, Some(bias), Some(added)) = (self.gate, self.bias.as_deref(), self.added_alone()) {
            // The common cases in one pass over the sums.
            let bias = &bias[first..first + count];
            // SAFETY: the constructor checked that the output holds this row, and these elements are this call's. What is
            // added has the output's rows and type.
            with_float!(self.output.ty().dtype, E => unsafe {
                let output = self.output.ptr::<E>().add(at);
                match added {
                    Some(other) => store_sums::<S, E, true>(simd, values, bias, other.ptr::<E>().add(at), output),
                    None => store_sums::<S, E, false>(simd, values, bias, output, output),
                }
            });
            return;
        }
        match (self.gate, self.bias.as_deref()) {
            (Some(Activation::Gelu), bias) if self.rounds_to_bf16() => {
                apply_gate::<S, GeluToBf16>(simd, bias, self.columns, columns, values);
            }
            (Some(activation), bias) => {
                with_activation!(Some(activation), A => {
                    apply_gate::<S, A>(simd, bias, self.columns, columns, values);
                });
            }
            (None, Some(bias)) => add_slice(simd, values, &bias[first..first + count]),
            (None, None) => {}
        }
        let values = &mut values[..count.next_multiple_of(S::LANES)];
        for stage in &self.stages {
            // SAFETY: a tensor of a stage has the output's rows, so `count` elements from `at` on are its own, and those
            // that are the output's are this call's; of a channel operand, the image's row is read likewise.
            unsafe {
                match *stage {
                    Bound::Activate(activation) => {
                        with_activation!(Some(activation), A => activate::<S, A>(simd, values));
                    }
                    Bound::Scale(factor) => values.iter_mut().for_each(|value| *value *= factor),
                    Bound::AddChannels { values: other, rows_per_image } => {
                        let at = row / rows_per_image * self.row_stride + first;
                        combine_view(simd, values, other, at, count, Combine::Add);
                    }
                    Bound::Add(other) => combine_view(simd, values, other, at, count, Combine::Add),
                    Bound::Mul(other) => combine_view(simd, values, other, at, count, Combine::Mul),
                    Bound::Blend { other, own_weight, other_weight } => {
                        let blend = Combine::Blend { own_weight, other_weight };
                        combine_view(simd, values, other, at, count, blend);
                    }
                }
            }
        }
        // SAFETY: the constructor checked that the output holds this row, and these elements are this call's.
        with_float!(self.output.ty().dtype, E => unsafe {
            store(simd, values, self.output.ptr::<E>().add(at), count)
        });
    }
}

/// Turns pairs of a value panel and a gate panel into gated values, at the front of `values`.
#[inline(always)]
fn apply_gate<S: Simd, A: Function>(
    simd: S,
    bias: Option<&[f32]>,
    total: usize,
    columns: Range<usize>,
    values: &mut [f32],
) {
    let width = panel_columns::<S>();
    let start = values.as_mut_ptr();
    for pair in 0..values.len() / (2 * width) {
        let column = columns.start + pair * width;
        let count = columns.end.saturating_sub(column).min(width);
        for half in [0, S::LANES] {
            let lanes = count.saturating_sub(half).min(S::LANES);
            // SAFETY: both panels of the pair are within `values`. The gated panel ends up at half the pair's distance, so
            // every vector is read before it is overwritten. The biases are those of the columns that exist.
            unsafe {
                let mut value = simd.load(start.add(2 * pair * width + half));
                let mut passed = simd.load(start.add((2 * pair + 1) * width + half));
                if let Some(bias) = bias.filter(|_| lanes > 0) {
                    let values = bias[column + half..][..lanes].as_ptr();
                    let gates = bias[total + column + half..][..lanes].as_ptr();
                    value = simd.add(value, load_up_to(simd, values, lanes));
                    passed = simd.add(passed, load_up_to(simd, gates, lanes));
                }
                let gated = simd.mul(value, A::of(simd, passed));
                simd.store(start.add(pair * width + half), gated);
            }
        }
    }
}

/// Activates `values`, whole vectors.
#[inline(always)]
fn activate<S: Simd, A: Function>(simd: S, values: &mut [f32]) {
    for chunk in values.chunks_exact_mut(S::LANES) {
        // SAFETY: the chunk is one vector.
        unsafe { simd.store(chunk.as_mut_ptr(), A::of(simd, simd.load(chunk.as_ptr()))) };
    }
}

/// How sums and the elements of a tensor are combined.
#[derive(Clone, Copy)]
enum Combine {
    Add,
    Mul,
    Blend { own_weight: f32, other_weight: f32 },
}

/// Adds `other` to the front of `values`, whole vectors.
#[inline(always)]
fn add_slice<S: Simd>(simd: S, values: &mut [f32], other: &[f32]) {
    // SAFETY: the slice is that long.
    unsafe { combine(simd, values, other.as_ptr(), other.len(), Combine::Add) };
}

/// Combines the first `count` of `values`, whole vectors, with the values at `other`.
///
/// # Safety
/// `other` must be readable for `count` values.
#[inline(always)]
unsafe fn combine<S: Simd, E: Float>(
    simd: S,
    values: &mut [f32],
    other: *const E,
    count: usize,
    how: Combine,
) {
    assert!(values.len() >= count.next_multiple_of(S::LANES));
    let start = values.as_mut_ptr();
    let mut at = 0;
    while at < count {
        // SAFETY: `values` holds whole vectors beyond `count`, and no more than `count` values are read from `other`.
        unsafe {
            let other = if count - at >= S::LANES {
                E::load(simd, other.add(at))
            } else {
                E::load_partial(simd, other.add(at), count - at)
            };
            let value = simd.load(start.add(at));
            let value = match how {
                Combine::Add => simd.add(value, other),
                Combine::Mul => simd.mul(value, other),
                Combine::Blend { own_weight, other_weight } => {
                    simd.mul_add(value, simd.splat(own_weight), simd.mul(other, simd.splat(other_weight)))
                }
            };
            simd.store(start.add(at), value);
        }
        at += S::LANES;
    }
}

/// [`combine`] with the elements of a tensor of any storage type, from `at` on.
///
/// # Safety
/// The tensor must hold `count` elements from `at` on that nothing else writes meanwhile.
#[inline(always)]
unsafe fn combine_view<S: Simd>(
    simd: S,
    values: &mut [f32],
    other: View<'_>,
    at: usize,
    count: usize,
    how: Combine,
) {
    // SAFETY: the caller promises it.
    with_float!(other.ty().dtype, E => unsafe { combine(simd, values, other.ptr::<E>().add(at), count, how) });
}

/// Writes the sums of `values`, `bias` and, if `ADDS`, the values at `other`, as many as the bias has, to `output`.
///
/// # Safety
/// `output` must be writable for as many values, which nothing else uses meanwhile, and `other` readable if it is added; they
/// may be the same memory.
#[inline(always)]
unsafe fn store_sums<S: Simd, E: Float, const ADDS: bool>(
    simd: S,
    values: &[f32],
    bias: &[f32],
    other: *const E,
    output: *mut E,
) {
    let count = bias.len();
    assert!(values.len() >= count.next_multiple_of(S::LANES));
    for at in (0..count).step_by(S::LANES) {
        let lanes = (count - at).min(S::LANES);
        // SAFETY: `values` holds whole vectors beyond `count`; of the others no more than `lanes` values from `at` on are
        // touched, and read before they are written.
        unsafe {
            let bias = load_up_to(simd, bias.as_ptr().add(at), lanes);
            let mut value = simd.add(simd.load(values.as_ptr().add(at)), bias);
            if ADDS {
                value = simd.add(value, load_up_to(simd, other.add(at), lanes));
            }
            store_up_to(simd, output.add(at), value, lanes);
        }
    }
}

/// Writes the first `count` values to `output`.
///
/// # Safety
/// `output` must be writable for `count` values that nothing else uses meanwhile.
#[inline(always)]
unsafe fn store<S: Simd, E: Float>(simd: S, values: &[f32], output: *mut E, count: usize) {
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
