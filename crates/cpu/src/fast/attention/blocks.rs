//! Attention over sequences of any length, with an online softmax (FlashAttention).
//!
//! A task holds a range of one head's queries with the sums of their results so far, and walks the keys in blocks. It
//! packs a block of keys and values once for all its queries, then takes these a few rows at a time, so that their
//! scores stay in the nearest caches between the two matrix products.

use std::ops::Range;

use super::Problem;
use super::hidden::{PackedValues, Weights, add_visible};
use super::operand::Sequence;
use super::scratch::Scratch;
use super::softmax::{exponentiate, largest};
use super::visibility::Visibility;
use crate::gemm::microkernel::{Strided, Update, multiply_panel, panel_columns};
use crate::simd::{Isa, Kernel, Simd};
use crate::tasks;

/// Rows of a block of queries: a multiple of the microkernel's rows on every instruction set.
pub(super) const QUERY_BLOCK: usize = 48;

/// Keys of a block, a multiple of the panel columns of every instruction set.
pub(super) const KEY_BLOCK: usize = 256;

/// The most queries per task. The more there are, the less packing the keys matters: at a thousand it is a fiftieth of
/// the work.
pub(super) const MOST_QUERIES: usize = 1008;

pub(super) fn run(isa: Isa, problem: &Problem<'_>) {
    let extents = problem.extents;
    let heads = problem.op.heads;
    let sequences = extents.batch * extents.positions * heads;
    if sequences * extents.queries == 0 {
        return;
    }
    // Four tasks per thread balance threads of different speed; how the queries are split does not change the result.
    let share = (sequences * extents.queries).div_ceil(4 * rayon::current_num_threads());
    let chunks = extents.queries.div_ceil(share.clamp(2 * QUERY_BLOCK, MOST_QUERIES));
    let chunk = extents.queries.div_ceil(chunks).next_multiple_of(QUERY_BLOCK);
    tasks::blocks(sequences * chunks, |index| {
        let (sequence, chunk_index) = (index / chunks, index % chunks);
        let (outer, head) = (sequence / heads, sequence % heads);
        let sequence =
            Sequence { batch: outer / extents.positions, position: outer % extents.positions, head };
        let first = (chunk_index * chunk).min(extents.queries);
        let queries = first..(first + chunk).min(extents.queries);
        isa.dispatch(Task { problem, sequence, queries });
    });
}

/// Some queries of a sequence and head, and all their keys.
struct Task<'a> {
    problem: &'a Problem<'a>,
    sequence: Sequence,
    queries: Range<usize>,
}

impl Kernel for Task<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Task { problem, sequence, queries } = self;
        let Some(last) = queries.clone().last() else { return };
        let head_dim = problem.op.head_dim;
        let columns = panel_columns::<S>();
        // Widths of a query, and of a result that is computed by whole panels.
        let (query_width, sum_width) =
            (head_dim.next_multiple_of(S::LANES), head_dim.next_multiple_of(columns));
        let count = queries.len();
        let visibility = problem.visibility(sequence);
        let leading = visibility.leading(last);
        // With a single block of keys, each block of queries is finished immediately, and all of them use the same
        // memory.
        let kept = if leading <= KEY_BLOCK { count.min(QUERY_BLOCK) } else { count };

        let sizes = [
            kept * query_width,
            KEY_BLOCK * head_dim,
            KEY_BLOCK * sum_width,
            QUERY_BLOCK * KEY_BLOCK,
            kept * sum_width,
            kept,
            kept,
        ]
        .map(|size| size.next_multiple_of(columns));
        let mut scratch = Scratch::take(sizes.iter().sum());
        let [scaled, packed_keys, packed_values, scores, sums, maxima, totals] = scratch.split(sizes);

        let (keys, values) = (problem.keys(sequence), problem.values(sequence));
        let output = problem.output(sequence);
        // What no query of the task sees at the start is left out, by whole blocks.
        let start = visibility.behind(queries.start) / KEY_BLOCK * KEY_BLOCK;
        // One iteration even without keys, to write the zeros.
        for first_key in (start..leading.max(start + 1)).step_by(KEY_BLOCK) {
            let block_keys = leading.saturating_sub(first_key).min(KEY_BLOCK);
            keys.pack_transposed(simd, first_key, block_keys, packed_keys);
            values.pack(simd, first_key, block_keys, KEY_BLOCK, packed_values);
            let packed = PackedValues {
                values: packed_values,
                columns,
                capacity: KEY_BLOCK,
                keys: block_keys,
                head_dim,
            };
            let keep_out = visibility.differs() && packed.has_non_finite(simd);
            let key_block = KeyBlock { first: first_key, keys: packed_keys, values: packed, keep_out };
            for first_row in (0..count).step_by(QUERY_BLOCK) {
                let rows = (count - first_row).min(QUERY_BLOCK);
                let first = queries.start + first_row;
                let slot = if kept < count { 0 } else { first_row };
                let mut query_block = QueryBlock {
                    first,
                    rows,
                    query_width,
                    sum_width,
                    scaled: &mut scaled[slot * query_width..][..rows * query_width],
                    sums: &mut sums[slot * sum_width..][..rows * sum_width],
                    maxima: &mut maxima[slot..][..rows],
                    totals: &mut totals[slot..][..rows],
                };
                if first_key == start {
                    problem.queries(sequence).copy(simd, first, rows, problem.op.scale, query_block.scaled);
                    query_block.sums.fill(0.0);
                    query_block.maxima.fill(f32::NEG_INFINITY);
                    query_block.totals.fill(0.0);
                }
                // Causality may hide the end of the block, or all of it, from every row; so may a window.
                let seen = visibility.leading(first + rows - 1).saturating_sub(first_key).min(block_keys);
                if seen > 0 && visibility.behind(first) < first_key + block_keys {
                    query_block.attend(simd, &key_block, seen, &visibility, scores);
                }
                if first_key + KEY_BLOCK >= leading {
                    for (row, sums) in query_block.sums.chunks_exact(sum_width).enumerate() {
                        let (largest, total) = (query_block.maxima[row], query_block.totals[row]);
                        // SAFETY: each query is in one task alone.
                        unsafe {
                            output.write(simd, first + row, sums, total);
                            problem.write_log_sum_exp(sequence, first + row, largest, total);
                        }
                    }
                }
            }
        }
    }
}

/// A block of keys and their values, packed for the microkernel.
struct KeyBlock<'a> {
    first: usize,
    /// The keys in panels, transposed.
    keys: &'a [f32],
    values: PackedValues<'a>,
    /// Whether a hidden key's value would spoil the product with its weight of zero.
    keep_out: bool,
}

/// A block of queries, and their online softmax so far.
struct QueryBlock<'a> {
    first: usize,
    rows: usize,
    /// The width of a row of `scaled`.
    query_width: usize,
    /// The width of a row of `sums`: whole panels.
    sum_width: usize,
    /// The queries, scaled.
    scaled: &'a mut [f32],
    /// The weighted sums of the values, relative to `maxima`.
    sums: &'a mut [f32],
    /// The largest score of each row.
    maxima: &'a mut [f32],
    /// The sum of each row's weights, relative to `maxima`.
    totals: &'a mut [f32],
}

impl QueryBlock<'_> {
    /// Takes the first `seen` keys of a block into the results. `scores` has room for a block of queries by a block of keys.
    #[inline(always)]
    fn attend<S: Simd>(
        &mut self,
        simd: S,
        block: &KeyBlock<'_>,
        seen: usize,
        visibility: &Visibility<'_>,
        scores: &mut [f32],
    ) {
        self.score(simd, block, seen, scores);
        self.weigh(simd, block.first, seen, visibility, scores);
        if block.keep_out {
            let weights = Weights { weights: scores, stride: KEY_BLOCK };
            let queries = self.first..self.first + self.rows;
            let packed = PackedValues { keys: seen, ..block.values };
            add_visible(visibility, queries, block.first, weights, packed, self.sums, self.sum_width);
        } else {
            self.add_values(simd, block, seen, scores);
        }
    }

    /// The products of the queries with the first `seen` keys of a block.
    #[inline(always)]
    fn score<S: Simd>(&self, simd: S, block: &KeyBlock<'_>, seen: usize, scores: &mut [f32]) {
        let (columns, head_dim) = (panel_columns::<S>(), block.values.head_dim);
        // SAFETY: the task sized the parts of its scratch for these rows, widths and panels, and they are apart;
        // `seen <= KEY_BLOCK`, a whole number of panels.
        unsafe {
            let scaled = Strided { start: self.scaled.as_ptr(), stride: self.query_width };
            for panel in 0..seen.div_ceil(columns) {
                let keys = block.keys.as_ptr().add(panel * columns * head_dim);
                let scores = Strided { start: scores.as_mut_ptr().add(panel * columns), stride: KEY_BLOCK };
                multiply_panel(simd, self.rows, head_dim, scaled, keys, scores, Update::Replace);
            }
        }
    }

    /// Turns scores into the weights of an online softmax, and scales the sums so far if a row's maximum rises.
    #[inline(always)]
    fn weigh<S: Simd>(
        &mut self,
        simd: S,
        first_key: usize,
        seen: usize,
        visibility: &Visibility<'_>,
        scores: &mut [f32],
    ) {
        for (row, scores) in scores.chunks_exact_mut(KEY_BLOCK).take(self.rows).enumerate() {
            let scores = &mut scores[..seen.next_multiple_of(S::LANES)];
            // SAFETY: the row is one of the queries.
            unsafe { visibility.apply(simd, self.first + row, first_key, scores) };
            let before = self.maxima[row];
            let maximum = before.max(largest(simd, scores));
            if maximum > before {
                self.maxima[row] = maximum;
                let correction = (before - maximum).exp();
                self.totals[row] *= correction;
                scale(simd, &mut self.sums[row * self.sum_width..][..self.sum_width], correction);
            }
            self.totals[row] += exponentiate(simd, scores, maximum);
        }
    }

    /// Adds the products of the weights with the values of the first `seen` keys of a block.
    #[inline(always)]
    fn add_values<S: Simd>(&mut self, simd: S, block: &KeyBlock<'_>, seen: usize, weights: &[f32]) {
        let columns = panel_columns::<S>();
        // SAFETY: as for the scores.
        unsafe {
            let weights = Strided { start: weights.as_ptr(), stride: KEY_BLOCK };
            for panel in 0..self.sum_width / columns {
                let values = block.values.values.as_ptr().add(panel * KEY_BLOCK * columns);
                let start = self.sums.as_mut_ptr().add(panel * columns);
                let sums = Strided { start, stride: self.sum_width };
                multiply_panel(simd, self.rows, seen, weights, values, sums, Update::Add);
            }
        }
    }
}

/// `values *= factor`, for a whole number of vectors.
#[inline(always)]
pub(super) fn scale<S: Simd>(simd: S, values: &mut [f32], factor: f32) {
    for values in values.chunks_exact_mut(S::LANES) {
        // SAFETY: `chunks_exact_mut` yields LANES values.
        unsafe {
            let product = simd.mul(simd.load(values.as_ptr()), simd.splat(factor));
            simd.store(values.as_mut_ptr(), product);
        }
    }
}
