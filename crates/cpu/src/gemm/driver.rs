//! The loops around the microkernel.

use std::cell::Cell;
use std::num::NonZeroUsize;
use std::ops::Range;

use half::bf16;

use super::aligned::AlignedBuffer;
use super::blocking::{
    DEPTH_BLOCK, FEWEST_TILE_ROWS, GROUP_PANELS, Grid, LEAST_TILE_DEPTH, LONG_DEPTH_BLOCK, ROW_STRIDE,
    TILE_DEPTH_BLOCK, Tile, VECTOR, depth_pieces, run_pieces,
};
use super::dots::{MOST_COLUMNS, multiply_dots};
use super::epilogue::Direct;
use super::microkernel::{
    Addends, Pairs, Runs, Singles, Strided, Update, multiply_panel_by_runs, panel_columns,
};
use super::panels::{InPlace, PairsAsSingles, Panel, Widened};
use super::tiles::{OnTiles, TILES_ROWS};
use super::values::copy;
use super::weights::Panels;
use super::{Epilogue, PackedWeights, Rows};
use crate::simd::{
    Float, Kernel, Simd,
    tiles::{TILE_ROWS, TileUnit},
};
use crate::tasks;

/// Multiplies `rows` with `weights` and hands each finished row of each block of columns to `epilogue`, in parallel.
///
/// It runs with the instruction set the weights were packed for. Rows and weights of bfloat16 are multiplied in pairs if it
/// has them ([`Simd::PAIRS`]), or if they are many on tiles, and everything else as f32.
///
/// # Panics
/// If the shapes do not agree, or the weights are gated and the epilogue is not, or the reverse.
pub(crate) fn multiply<R: Rows, E: Epilogue>(rows: &R, weights: &PackedWeights, epilogue: &E) {
    assert_eq!(rows.depth(), weights.depth(), "rows and weights of different depths");
    assert_eq!(
        epilogue.shape(),
        (rows.rows(), weights.columns()),
        "an epilogue of another shape than the product"
    );
    assert_eq!(epilogue.is_gated(), weights.is_gated(), "gated weights need a gated epilogue, and only they");
    let arithmetic = Arithmetic::of(rows, weights);
    let mut tile = weights.isa().dispatch(TileSize);
    if let Arithmetic::Tiles(_) = arithmetic {
        tile.rows = TILES_ROWS;
    }
    let sides = if weights.is_gated() { 2 } else { 1 };
    // A value panel and its gate panel count as one panel: they must stay in one block.
    let pair = Tile { columns: tile.columns * sides, ..tile };
    let depth = rows.depth().div_ceil(arithmetic.step());
    let grid = Grid::new(rows.rows(), weights.columns() * sides, depth, pair, rayon::current_num_threads());
    let run = |index| {
        let (row_range, column_range) = grid.block(index);
        let panels = column_range.start / tile.columns..column_range.end.div_ceil(pair.columns) * sides;
        let columns = column_range.start / sides..column_range.end / sides;
        // Threads take neighbouring blocks, so this is most likely this thread's next one.
        let next_rows = if index + 1 < grid.blocks() { grid.block(index + 1).0 } else { 0..0 };
        let rows = (rows, [row_range, next_rows]);
        multiply_block(rows, weights, epilogue, (tile, arithmetic), panels, columns);
    };
    tasks::blocks(grid.blocks(), run);
}

/// The register tile of an instruction set.
struct TileSize;

impl Kernel for TileSize {
    type Output = Tile;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> Tile {
        Tile { rows: S::ROWS, columns: panel_columns::<S>() }
    }
}

thread_local! {
    /// The memory of a thread's blocks, kept between products: fresh pages would cost more than the copying.
    static SCRATCH: Cell<AlignedBuffer<f32>> = const { Cell::new(AlignedBuffer::new()) };
    /// Where the runs of a block's rows begin, likewise.
    static STARTS: Cell<Vec<*const f32>> = const { Cell::new(Vec::new()) };
}

/// Registers the destructors of this thread's scratch memory: see [`crate::threads::register_scratch`].
pub(super) fn register_scratch() {
    SCRATCH.with(|_| ());
    STARTS.with(|_| ());
}

/// How a product is multiplied.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arithmetic {
    /// A step of the depth is an f32 value.
    Singles,
    /// A step of the depth is a pair of bfloat16 values.
    Pairs,
    /// As in pairs, a tile at a time.
    Tiles(TileUnit),
}

impl Arithmetic {
    pub(super) fn of(rows: &impl Rows, weights: &PackedWeights) -> Self {
        if !weights.is_paired() || !rows.is_bf16() {
            return Arithmetic::Singles;
        }
        let enough = rows.rows() >= FEWEST_TILE_ROWS && rows.depth() >= LEAST_TILE_DEPTH;
        weights.isa().tiles().filter(|_| enough).map_or(Arithmetic::Pairs, Arithmetic::Tiles)
    }

    /// The values of a step of the depth.
    fn step(self) -> usize {
        match self {
            Arithmetic::Singles => 1,
            Arithmetic::Pairs | Arithmetic::Tiles(_) => 2,
        }
    }
}

/// Computes and finishes one block of C.
fn multiply_block<R: Rows, E: Epilogue>(
    (rows, [row_range, next_rows]): (&R, [Range<usize>; 2]),
    weights: &PackedWeights,
    epilogue: &E,
    (tile, arithmetic): (Tile, Arithmetic),
    panels: Range<usize>,
    columns: Range<usize>,
) {
    let step = arithmetic.step();
    let (row_count, depth) = (row_range.len(), rows.depth().div_ceil(step));
    let group_size = row_count * GROUP_PANELS * tile.columns;
    let on_tiles = matches!(arithmetic, Arithmetic::Tiles(_));
    let run = run_in_steps(rows, step).filter(|_| !on_tiles);
    let pieces = match run {
        _ if on_tiles => depth_pieces(depth, TILE_DEPTH_BLOCK, TILE_ROWS).collect(),
        Some(run) if weights.has_few_columns() => run_pieces(depth, run, LONG_DEPTH_BLOCK),
        Some(run) => run_pieces(depth, run, DEPTH_BLOCK),
        None => depth_pieces(depth, DEPTH_BLOCK, VECTOR).collect(),
    };
    // Panels whose columns all belong to the output are written to it directly if nothing else is to be done with them.
    // The sums of the others go through a buffer.
    let direct = epilogue
        .direct()
        .filter(|direct| !weights.has_few_columns() && (pieces.len() == 1 || !direct.adds_its_output()))
        .map(|direct| direct.at(row_range.start, columns.start));
    let whole = if direct.is_some() { columns.len() / tile.columns } else { 0 };
    let grouped = panels.start + whole..panels.end;
    let groups = grouped.len().div_ceil(GROUP_PANELS);
    // Sums that are complete after one piece of the depth are finished immediately, and all groups share their memory.
    let group_step = if pieces.len() <= 1 { 0 } else { group_size };
    let copied = match run {
        Some(_) => 0,
        None if on_tiles => row_count.next_multiple_of(TILE_ROWS) * ROW_STRIDE,
        None => row_count * ROW_STRIDE,
    };
    let longest = pieces.iter().map(|piece| piece.len()).max().unwrap_or(0);
    let (a_size, widened_size) = (copied, longest * tile.columns.max(MOST_COLUMNS));
    let needed = a_size + widened_size + group_size + groups.saturating_sub(1) * group_step;
    let mut scratch = SCRATCH.take();
    scratch.reserve(needed);
    let (a, rest) = scratch.as_mut_slice().split_at_mut(a_size);
    let (widened, sums) = rest.split_at_mut(widened_size);
    let mut memory = Memory { a, widened, sums, starts: STARTS.take(), lengths: Vec::new() };
    let task = Task {
        rows,
        weights,
        epilogue,
        tile,
        arithmetic,
        row_range,
        panels,
        columns,
        direct,
        grouped,
        group_step,
    };
    for (number, piece) in pieces.iter().cloned().enumerate() {
        // Prefetch what is multiplied next: the next piece of these rows, or the first piece of the next rows.
        let ahead = match pieces.get(number + 1) {
            Some(next) => (task.row_range.clone(), next.clone()),
            None => (next_rows.clone(), pieces[0].clone()),
        };
        task.list_runs(piece.clone(), &mut memory);
        task.multiply_piece(piece, ahead, &mut memory);
    }
    let mut starts = memory.starts;
    starts.clear();
    STARTS.set(starts);
    SCRATCH.set(scratch);
}

/// How many steps the runs have of which the rows consist in memory; `None` if they must be copied.
fn run_in_steps(rows: &impl Rows, step: usize) -> Option<NonZeroUsize> {
    let run = rows.run_length().filter(|_| rows.is_bf16() == (step == 2))?;
    let whole = run.get().is_multiple_of(step).then_some(run.get() / step)?;
    NonZeroUsize::new(whole)
}

/// A thread's memory, divided for a block.
struct Memory<'a> {
    /// Copies of the rows, if they do not lie in runs.
    a: &'a mut [f32],
    /// Room for one piece of a panel as f32.
    widened: &'a mut [f32],
    /// The sums of the groups.
    sums: &'a mut [f32],
    /// Where the runs of the current piece begin: all rows of the first run, then those of the next.
    starts: Vec<*const f32>,
    /// How long the runs of the current piece are.
    lengths: Vec<usize>,
}

/// One block of C, and what it is computed from.
struct Task<'a, R, E> {
    rows: &'a R,
    weights: &'a PackedWeights,
    epilogue: &'a E,
    tile: Tile,
    /// How it is multiplied. Everywhere here, the depth is counted in its steps.
    arithmetic: Arithmetic,
    row_range: Range<usize>,
    panels: Range<usize>,
    columns: Range<usize>,
    /// Where the panels before `grouped` are written.
    direct: Option<Direct>,
    /// The panels whose sums go through a buffer, [`GROUP_PANELS`] at a time.
    grouped: Range<usize>,
    /// How far apart the sums of two groups are.
    group_step: usize,
}

impl<R: Rows, E: Epilogue> Task<'_, R, E> {
    /// Lists the runs of a piece of the rows. Rows that do not lie in runs are copied, and each is one run; so is every row that is
    /// multiplied on tiles.
    fn list_runs(&self, piece: Range<usize>, memory: &mut Memory<'_>) {
        let Memory { a, starts, lengths, .. } = memory;
        starts.clear();
        lengths.clear();
        let (step, row_count) = (self.arithmetic.step(), self.row_range.len());
        let run = run_in_steps(self.rows, step);
        let on_tiles = matches!(self.arithmetic, Arithmetic::Tiles(_));
        let (Some(run), false) = (run, on_tiles) else {
            lengths.push(piece.len());
            let padded = piece.len().next_multiple_of(if on_tiles { TILE_ROWS } else { 1 });
            let a = &mut a[..row_count * ROW_STRIDE];
            if let Some(run) = run {
                self.copy_runs(piece, padded, run.get(), a, starts);
                starts.clear();
            } else {
                let first = self.row_range.start;
                let copy = CopyRows { rows: self.rows, first, depth: piece, padded, step, a };
                self.weights.isa().dispatch(copy);
            }
            starts.extend(a.chunks_exact(ROW_STRIDE).map(|row| row.as_ptr()));
            return;
        };
        let run = run.get();
        for index in piece.start / run..piece.end.div_ceil(run) {
            let within = piece.start.max(index * run)..piece.end.min((index + 1) * run);
            lengths.push(within.len());
            let added = starts.len();
            self.rows.run_starts(self.row_range.clone(), index, starts);
            for start in &mut starts[added..] {
                *start = start.wrapping_add(within.start - index * run);
            }
        }
    }

    /// Copies a piece of rows that lie in runs of `run` steps, with zeros up to `padded` steps. `starts` is empty.
    fn copy_runs(
        &self,
        piece: Range<usize>,
        padded: usize,
        run: usize,
        a: &mut [f32],
        starts: &mut Vec<*const f32>,
    ) {
        for index in piece.start / run..piece.end.div_ceil(run) {
            let within = piece.start.max(index * run)..piece.end.min((index + 1) * run);
            starts.clear();
            self.rows.run_starts(self.row_range.clone(), index, starts);
            let (from, to) = (within.start - index * run, within.start - piece.start);
            self.weights.isa().dispatch(CopyRun { starts, from, length: within.len(), to, a });
        }
        for row in a.chunks_exact_mut(ROW_STRIDE) {
            row[piece.len()..padded].fill(0.0);
        }
    }

    /// Adds the products of the piece whose runs `memory` lists, and finishes the block if it is the last. Meanwhile it
    /// prefetches `ahead`: rows, and a piece of their depth.
    fn multiply_piece(
        &self,
        piece: Range<usize>,
        (ahead_rows, ahead_depth): (Range<usize>, Range<usize>),
        memory: &mut Memory<'_>,
    ) {
        let Task { rows, weights, epilogue, tile, .. } = *self;
        let Memory { a, widened, sums, starts, lengths } = memory;
        let step = self.arithmetic.step();
        let (isa, row_count, depth) = (weights.isa(), self.row_range.len(), rows.depth().div_ceil(step));
        let sides = if weights.is_gated() { 2 } else { 1 };
        let bring_closer = |panel: usize| {
            let panel = panel - self.panels.start;
            let share = |panel: usize| ahead_rows.start + ahead_rows.len() * panel / self.panels.len();
            let depth = ahead_depth.start * step..(ahead_depth.end * step).min(rows.depth());
            rows.prefetch(share(panel)..share(panel + 1), depth);
        };
        let update = if piece.start == 0 { Update::Replace } else { Update::Add };
        let is_last = piece.end == depth;
        let mut multiply_panels = |panels: Range<usize>, c: Strided<*mut f32>, addends: Addends| {
            let block = Block {
                a: Runs { lengths, starts, rows: row_count },
                weights_depth: weights.panel_depth() / step,
                depth: piece.clone(),
                panels,
                widened,
                c,
                update,
                addends,
                bring_closer: &bring_closer,
            };
            if weights.has_few_columns() {
                let columns = weights.columns();
                return match &weights.panels {
                    Panels::F32(values) => {
                        isa.dispatch(MultiplyFew { values: values.as_slice(), columns, block })
                    }
                    Panels::F16(values) => {
                        isa.dispatch(MultiplyFew { values: values.as_slice(), columns, block })
                    }
                    Panels::BF16(values) | Panels::Pairs(values) => {
                        isa.dispatch(MultiplyFew { values: values.as_slice(), columns, block });
                    }
                };
            }
            match &weights.panels {
                Panels::F32(values) => {
                    let panels = InPlace::<Singles>::new(values.as_slice());
                    isa.dispatch(MultiplyPanels { source: panels, block });
                }
                Panels::F16(values) => {
                    isa.dispatch(MultiplyPanels { source: Widened(values.as_slice()), block })
                }
                Panels::BF16(values) => {
                    isa.dispatch(MultiplyPanels { source: Widened(values.as_slice()), block })
                }
                Panels::Pairs(values) => match self.arithmetic {
                    Arithmetic::Singles => {
                        isa.dispatch(MultiplyPanels { source: PairsAsSingles(values.as_slice()), block });
                    }
                    Arithmetic::Pairs => {
                        let panels = InPlace::<Pairs>::new(values.as_slice());
                        isa.dispatch(MultiplyPanels { source: panels, block });
                    }
                    Arithmetic::Tiles(unit) => {
                        let Block { weights_depth, depth, panels, c, update, addends, bring_closer, .. } =
                            block;
                        isa.dispatch(OnTiles {
                            unit,
                            a,
                            rows: row_count,
                            steps: bytemuck::cast_slice(values.as_slice()),
                            panel_depth: weights_depth,
                            depth,
                            panels,
                            c,
                            update,
                            addends,
                            bring_closer,
                        });
                    }
                },
            }
        };
        if let Some(direct) = self.direct {
            let addends = if is_last { direct.addends() } else { Addends::default() };
            multiply_panels(self.panels.start..self.grouped.start, direct.output, addends);
        }
        for (group, first) in self.grouped.clone().step_by(GROUP_PANELS).enumerate() {
            let group_panels = first..self.grouped.end.min(first + GROUP_PANELS);
            let stride = group_panels.len() * tile.columns;
            let start = first * tile.columns / sides;
            let columns = start..self.columns.end.min(start + stride / sides);
            let c = &mut sums[group * self.group_step..][..row_count * stride];
            multiply_panels(group_panels, Strided { start: c.as_mut_ptr(), stride }, Addends::default());
            if is_last {
                isa.dispatch(FinishRows { epilogue, first: self.row_range.start, columns, stride, c });
            }
        }
    }
}

/// Copies a run of each row into a part of the rows' copies.
struct CopyRun<'a> {
    starts: &'a [*const f32],
    /// The first step of the run that is copied.
    from: usize,
    length: usize,
    /// Where in a row it goes.
    to: usize,
    a: &'a mut [f32],
}

impl Kernel for CopyRun<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let vector = S::LANES * size_of::<f32>();
        for (start, row) in self.starts.iter().zip(self.a.chunks_exact_mut(ROW_STRIDE)) {
            let source = start.wrapping_add(self.from).cast::<u8>();
            let target: &mut [u8] = bytemuck::cast_slice_mut(&mut row[self.to..][..self.length]);
            let whole = target.len() / vector * vector;
            // SAFETY: a run is readable for its length, of which this is a part. As bytes, because it need not be aligned as f32 is.
            unsafe {
                for at in (0..whole).step_by(vector) {
                    source.add(at).copy_to_nonoverlapping(target.as_mut_ptr().add(at), vector);
                }
                let rest = &mut target[whole..];
                source.add(whole).copy_to_nonoverlapping(rest.as_mut_ptr(), rest.len());
            }
        }
    }
}

/// Copies a piece of each row of a block, [`ROW_STRIDE`] steps apart.
struct CopyRows<'a, R> {
    rows: &'a R,
    first: usize,
    depth: Range<usize>,
    /// What the piece is padded to with zeros, if it is of pairs.
    padded: usize,
    step: usize,
    a: &'a mut [f32],
}

impl<R: Rows> Kernel for CopyRows<'_, R> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for (index, target) in self.a.chunks_exact_mut(ROW_STRIDE).enumerate() {
            let row = self.first + index;
            if self.step == 1 {
                self.rows.copy(simd, row, self.depth.clone(), &mut target[..self.depth.len()]);
                continue;
            }
            let target = &mut target[..self.padded];
            let depth = self.depth.start * 2..(self.depth.end * 2).min(self.rows.depth());
            let target: &mut [bf16] = bytemuck::cast_slice_mut(target);
            // An odd depth ends in half a pair.
            let (target, rest) = target.split_at_mut(depth.len());
            self.rows.copy(simd, row, depth, target);
            rest.fill(bf16::ZERO);
        }
    }
}

/// A block of C and what goes into it, whatever type the weights have.
struct Block<'a> {
    /// The rows, with one start per run; the runs of a row are `depth` long together.
    a: Runs<'a>,
    /// The depth of the whole weights, which a panel has.
    weights_depth: usize,
    /// The piece of the depth that `a` holds.
    depth: Range<usize>,
    panels: Range<usize>,
    /// Room for one piece of a panel as f32.
    widened: &'a mut [f32],
    /// Where the sums of the rows go: those of the first panel, and then those of the others.
    c: Strided<*mut f32>,
    update: Update,
    addends: Addends,
    /// Called before each panel.
    bring_closer: &'a dyn Fn(usize),
}

impl Block<'_> {
    /// Checks that the runs are those of the rows.
    fn check(&self) {
        assert_eq!(self.a.starts.len(), self.a.rows * self.a.lengths.len());
        assert_eq!(self.a.lengths.iter().sum::<usize>(), self.depth.len());
    }
}

/// Multiplies the rows with one piece of a few columns, which are stored one after the other.
struct MultiplyFew<'a, E> {
    values: &'a [E],
    columns: usize,
    block: Block<'a>,
}

impl<E: Float> Kernel for MultiplyFew<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        self.block.check();
        let Block { a, weights_depth, depth, widened, c, update, .. } = self.block;
        let room = &mut widened[..self.columns * depth.len()];
        for (column, target) in room.chunks_exact_mut(depth.len().max(1)).enumerate() {
            copy(simd, &self.values[column * weights_depth..][depth.clone()], target);
        }
        let b = Strided { start: room.as_ptr(), stride: depth.len() };
        // SAFETY: `a` was checked above to hold these rows, the driver gives `c` room for them, and `b` was just filled.
        unsafe { multiply_dots(simd, a, b, self.columns, c, update) };
    }
}

/// Multiplies the rows with one piece of each panel.
struct MultiplyPanels<'a, P> {
    source: P,
    block: Block<'a>,
}

impl<P: Panel> Kernel for MultiplyPanels<'_, P> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        self.block.check();
        let Block { a, weights_depth, depth, panels, widened, c, update, addends, bring_closer } = self.block;
        let width = panel_columns::<S>();
        for (index, panel) in panels.enumerate() {
            bring_closer(panel);
            let piece = self.source.piece(simd, panel, weights_depth, depth.clone(), widened);
            // SAFETY: `a` was checked above to hold these rows, the driver gives `c` and the addends room for them and these
            // panels, and `piece` is `depth.len()` lines of a panel.
            unsafe {
                let c = Strided { start: c.start.add(index * width), ..c };
                let addends = addends.at_column(index * width);
                multiply_panel_by_runs::<S, P::Arithmetic>(simd, a, piece.as_ptr(), c, update, addends);
            }
        }
    }
}

/// Hands the rows of a finished block to the epilogue.
struct FinishRows<'a, E> {
    epilogue: &'a E,
    first: usize,
    columns: Range<usize>,
    stride: usize,
    c: &'a mut [f32],
}

impl<E: Epilogue> Kernel for FinishRows<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for (index, values) in self.c.chunks_exact_mut(self.stride).enumerate() {
            // SAFETY: the grid gives each element to one block, the block each row to one call, and `multiply` checked
            // the epilogue's shape.
            unsafe { self.epilogue.finish(simd, self.first + index, self.columns.clone(), values) };
        }
    }
}
