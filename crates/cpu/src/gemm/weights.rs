//! The right operand of a product, packed once into the order in which the microkernel reads it.

use half::{bf16, f16};
use kinora_graph::DType;
use rayon::prelude::*;

use super::Values;
use super::aligned::AlignedBuffer;
use super::dots::MOST_COLUMNS;
use crate::simd::{Float, Isa, tiles::TILE_ROWS};

/// A weight matrix cut into panels of `2·LANES` columns, each `[depth][2·LANES]`, padded with zero columns; or, of a
/// few columns, `[columns][depth]`.
///
/// It keeps its storage type: half-precision weights stay half the size, and are widened a piece at a time as they are
/// multiplied. Where bfloat16 values are multiplied in pairs, such a panel is `[depth / 2][2·LANES][2]`, padded with zeros
/// to whole pairs or, where there are tiles, to the depth of whole tiles.
#[derive(Debug)]
pub(crate) struct PackedWeights {
    pub(super) panels: Panels,
    isa: Isa,
    columns: usize,
    depth: usize,
    panel_depth: usize,
    gated: bool,
    few_columns: bool,
}

/// The packed values, in their storage type.
#[derive(Debug)]
pub(super) enum Panels {
    F32(AlignedBuffer<f32>),
    F16(AlignedBuffer<f16>),
    BF16(AlignedBuffer<bf16>),
    /// bfloat16 values in pairs along the depth.
    Pairs(AlignedBuffer<bf16>),
}

/// The place of element (column, k) of the unpacked matrix: `column · column_stride + k · depth_stride`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strides {
    pub(super) column: usize,
    pub(super) depth: usize,
}

impl PackedWeights {
    /// Packs a weight `[columns, depth]`, the layout of PyTorch's `Linear`, for products run with `isa`.
    ///
    /// # Panics
    /// If `values` is not of that size.
    pub(crate) fn new(isa: Isa, values: Values, columns: usize, depth: usize) -> Self {
        assert_eq!(values.len(), columns * depth, "a weight [{columns}, {depth}]");
        let strides = Strides { column: depth, depth: 1 };
        Self::pack(isa, values, columns, depth, strides, None, AlignedBuffer::new())
    }

    /// Packs a matrix `[depth, columns]`.
    ///
    /// # Panics
    /// If `values` is not of that size.
    pub(crate) fn transposed(isa: Isa, values: Values, columns: usize, depth: usize) -> Self {
        assert_eq!(values.len(), columns * depth, "a matrix [{depth}, {columns}]");
        let strides = Strides { column: 1, depth: columns };
        Self::pack(isa, values, columns, depth, strides, None, AlignedBuffer::new())
    }

    /// Packs a weight `[2·columns, depth]` whose first half gives values and whose second half their gates (GEGLU), so
    /// that both are finished together and the product has `columns` columns; the epilogue must have a
    /// [gate](super::Finish::gate).
    ///
    /// # Panics
    /// If `values` is not of that size.
    pub(crate) fn gated(isa: Isa, values: Values, columns: usize, depth: usize) -> Self {
        assert_eq!(values.len(), 2 * columns * depth, "a gated weight [2 · {columns}, {depth}]");
        let strides = Strides { column: depth, depth: 1 };
        Self::pack(isa, values, columns, depth, strides, Some(columns), AlignedBuffer::new())
    }

    /// Packs with any strides; `gate` is the unpacked column where the gates begin. `reused` lends its memory to the
    /// panels of an f32 matrix.
    pub(super) fn pack(
        isa: Isa,
        values: Values,
        columns: usize,
        depth: usize,
        strides: Strides,
        gate: Option<usize>,
        reused: AlignedBuffer<f32>,
    ) -> Self {
        let few_columns = gate.is_none() && columns <= MOST_COLUMNS;
        let width = panel_width(isa, columns, gate.is_some());
        let pair = pair_of(isa, values.is_bf16(), few_columns);
        let panel_depth = depth.next_multiple_of(depth_unit(isa, pair));
        let packing = Packing { width, columns, depth, panel_depth, strides, gate, pair };
        let panels = match values {
            Values::F32(values) => Panels::F32(packing.run(values, reused)),
            Values::F16(values) => Panels::F16(packing.run(values, AlignedBuffer::new())),
            Values::BF16(values) if pair == 1 => Panels::BF16(packing.run(values, AlignedBuffer::new())),
            Values::BF16(values) => Panels::Pairs(packing.run(values, AlignedBuffer::new())),
        };
        Self { panels, isa, columns, depth, panel_depth, gated: gate.is_some(), few_columns }
    }

    /// The memory that a matrix takes once it is packed; `columns` counts the gates as well if it is gated.
    pub(crate) fn bytes_of(isa: Isa, dtype: DType, columns: usize, depth: usize, gated: bool) -> usize {
        let sides = if gated { 2 } else { 1 };
        let columns = columns / sides;
        let width = panel_width(isa, columns, gated);
        let pair = pair_of(isa, dtype == DType::BF16, width == 1);
        let padded = columns.next_multiple_of(width).saturating_mul(sides);
        let depth = depth.next_multiple_of(depth_unit(isa, pair));
        padded.saturating_mul(depth).saturating_mul(dtype.size())
    }

    /// The instruction set this was packed for, with which products with it are run.
    pub(crate) fn isa(&self) -> Isa {
        self.isa
    }

    /// The memory that the panels take.
    pub(crate) fn bytes(&self) -> usize {
        match &self.panels {
            Panels::F32(values) => values.bytes(),
            Panels::F16(values) => values.bytes(),
            Panels::BF16(values) | Panels::Pairs(values) => values.bytes(),
        }
    }

    /// Whether bfloat16 rows are multiplied with this in pairs.
    pub(super) fn is_paired(&self) -> bool {
        matches!(self.panels, Panels::Pairs(_))
    }

    /// The columns of the product, N.
    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// The length of a column, K.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// The length of a column in a panel.
    pub(super) fn panel_depth(&self) -> usize {
        self.panel_depth
    }

    /// Whether the columns lie one after the other, to be multiplied as dot products.
    pub(super) fn has_few_columns(&self) -> bool {
        self.few_columns
    }

    /// Whether each column has a gate beside it.
    pub(crate) fn is_gated(&self) -> bool {
        self.gated
    }

    /// Returns the panels' memory for another packing.
    pub(super) fn into_reusable(self) -> AlignedBuffer<f32> {
        match self.panels {
            Panels::F32(values) => values,
            Panels::F16(_) | Panels::BF16(_) | Panels::Pairs(_) => AlignedBuffer::new(),
        }
    }
}

/// The columns of a panel. A few columns lie one after the other, as if in panels of one.
fn panel_width(isa: Isa, columns: usize, gated: bool) -> usize {
    if !gated && columns <= MOST_COLUMNS { 1 } else { 2 * isa.lanes() }
}

/// The values of a column that lie side by side: two of bfloat16, if the instruction set multiplies pairs.
fn pair_of(isa: Isa, is_bf16: bool, few_columns: bool) -> usize {
    if is_bf16 && !few_columns && isa.has_pairs() { 2 } else { 1 }
}

/// What the depth of a panel is padded to a multiple of.
fn depth_unit(isa: Isa, pair: usize) -> usize {
    if pair == 2 && isa.tiles().is_some() { 2 * TILE_ROWS } else { pair }
}

/// One packing: the shape of both sides.
struct Packing {
    /// The columns of a panel.
    width: usize,
    /// The values of a column side by side.
    pair: usize,
    columns: usize,
    depth: usize,
    panel_depth: usize,
    strides: Strides,
    gate: Option<usize>,
}

impl Packing {
    fn run<E: Float>(&self, source: &[E], mut panels: AlignedBuffer<E>) -> AlignedBuffer<E> {
        let sides = if self.gate.is_some() { 2 } else { 1 };
        let count = self.columns.div_ceil(self.width) * sides;
        let size = self.panel_depth * self.width;
        panels.reserve(count * size);
        let values = &mut panels.as_mut_slice()[..count * size];
        if !values.is_empty() {
            // A panel at a time is enough work to be worth a task from some thousand values on.
            values.par_chunks_mut(size).with_min_len(1 + 4096 / size).enumerate().for_each(
                |(index, panel)| {
                    let first = index / sides * self.width;
                    let count = self.width.min(self.columns - first);
                    let side = if index % sides == 1 { self.gate.unwrap_or(0) } else { 0 };
                    self.panel(source, side + first, count, panel);
                },
            );
        }
        panels
    }

    /// Fills one panel from `count` columns of the source, `first` on, and the rest of it with zeros.
    fn panel<E: Float>(&self, source: &[E], first: usize, count: usize, panel: &mut [E]) {
        // A few k at a time for all columns, so that the lines of the panel are filled while they are in L1.
        const DEPTH_STEP: usize = 16;
        let line_size = self.width * self.pair;
        for (step, lines) in panel.chunks_mut(DEPTH_STEP * line_size).enumerate() {
            let depth = step * DEPTH_STEP * self.pair..self.depth;
            if count < self.width || depth.len() * self.width < lines.len() {
                lines.fill(E::default());
            }
            for column in 0..count {
                let start = (first + column) * self.strides.column + depth.start * self.strides.depth;
                let values = source[start..].iter().step_by(self.strides.depth).take(depth.len());
                let places = lines.chunks_exact_mut(line_size);
                let places = places.flat_map(|line| &mut line[column * self.pair..][..self.pair]);
                for (place, &value) in places.zip(values) {
                    *place = value;
                }
            }
        }
    }
}
