//! Attention over the frames of a clip: thousands of short sequences, one at each position.
//!
//! The rows of a sequence lie a whole frame apart, often at a power of two, where they compete for the same few cache
//! lines. So a task takes a run of positions, copies each frame's rows of it while they stream in, and writes the
//! results back in the same order. In between, the few queries and keys of a sequence meet by dot products along the
//! channels: transposing the keys for a matrix product would cost as much as the product.

use std::ops::Range;

use kinora_graph::op::Attention;

use super::Problem;
use super::hidden::{PackedValues, Weights, add_visible};
use super::operand::{Run, RunPlace, Sequence};
use super::scratch::Scratch;
use super::softmax::{exponentiate, largest};
use crate::gemm::microkernel::{Strided, Update, multiply_panel, panel_columns};
use crate::simd::{Isa, Kernel, Simd};
use crate::tasks;

/// The longest sequence this path takes: its queries, keys, values and scores fit in L2.
pub(super) const LONGEST: usize = 64;

/// The working memory of a task, in f32 values: a quarter of a megabyte stays in L2.
const TASK_SIZE: usize = 1 << 16;

/// The most positions of a task.
const MOST_POSITIONS: usize = 16;

pub(super) fn run(isa: Isa, problem: &Problem<'_>) {
    let extents = problem.extents;
    let one_position = problem.op.heads * problem.op.head_dim * 2 * (extents.queries + extents.keys);
    let run = (TASK_SIZE / one_position.max(1)).clamp(1, MOST_POSITIONS);
    let runs = extents.positions.div_ceil(run);
    tasks::each(extents.batch * runs, 1, |task| {
        let index = task.start;
        let first = index % runs * run;
        let positions = first..(first + run).min(extents.positions);
        isa.dispatch(Task { problem, batch: index / runs, positions });
    });
}

/// A run of positions of a clip, all heads.
struct Task<'a> {
    problem: &'a Problem<'a>,
    batch: usize,
    positions: Range<usize>,
}

impl Kernel for Task<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Task { problem, batch, positions } = self;
        let Attention { heads, head_dim, scale, .. } = *problem.op;
        let columns = panel_columns::<S>();
        let (width, sum_width) = (head_dim.next_multiple_of(S::LANES), head_dim.next_multiple_of(columns));
        let rows = problem.extents.queries;
        let sequence = |position, head| Sequence { batch, position, head };
        let Some(last) = rows.checked_sub(1) else { return };
        // Neither a key's existence nor causality depends on the position or the head.
        let seen = problem.visibility(sequence(positions.start, 0)).leading(last);
        let score_width = seen.next_multiple_of(S::LANES);

        let sequences = positions.len() * heads;
        let (query_size, key_size) = (rows * width, seen * width);
        let (value_size, sum_size) = (seen * sum_width, rows * sum_width);
        let sizes = [
            sequences * query_size,
            sequences * key_size,
            sequences * value_size,
            sequences * sum_size,
            sequences * rows,
            rows * score_width,
        ]
        .map(|size| size.next_multiple_of(columns));
        let mut scratch = Scratch::take(sizes.iter().sum());
        let [queries, keys, values, sums, totals, scores] = scratch.split(sizes);

        let first = sequence(positions.start, 0);
        let run = Run { positions: positions.len(), heads, head_dim };
        let place = |sequence, panel| RunPlace { sequence, panel };
        for row in 0..rows {
            let (target, place) = (&mut queries[row * width..], place(query_size, columns));
            problem.queries(first).copy_run(simd, row, run, scale, target, place);
        }
        for row in 0..seen {
            let (target, place) = (&mut keys[row * width..], place(key_size, columns));
            problem.keys(first).copy_run(simd, row, run, 1.0, target, place);
        }
        for row in 0..seen {
            let (target, place) = (&mut values[row * columns..], place(value_size, seen * columns));
            problem.values(first).copy_run(simd, row, run, 1.0, target, place);
        }

        for position in positions.clone() {
            for head in 0..heads {
                let visibility = problem.visibility(sequence(position, head));
                let index = (position - positions.start) * heads + head;
                let queries = &queries[index * query_size..][..query_size];
                let keys = &keys[index * key_size..][..key_size];
                let values = &values[index * value_size..][..value_size];
                let sums = &mut sums[index * sum_size..][..sum_size];
                // SAFETY: the slices hold `rows` and `seen` rows of `width` values, and the scores were sized for them.
                unsafe {
                    let scores = Strided { start: scores.as_mut_ptr(), stride: score_width };
                    dot_products(simd, width, (rows, queries.as_ptr()), (seen, keys.as_ptr()), scores);
                }
                for row in 0..rows {
                    let scores = &mut scores[row * score_width..][..score_width];
                    // SAFETY: the row is one of the queries.
                    unsafe { visibility.apply(simd, row, 0, scores) };
                    let maximum = largest(simd, scores);
                    let total = exponentiate(simd, scores, maximum);
                    totals[index * rows + row] = total;
                    // SAFETY: each position is in one task alone.
                    unsafe { problem.write_log_sum_exp(sequence(position, head), row, maximum, total) };
                }
                let packed = PackedValues { values, columns, capacity: seen, keys: seen, head_dim };
                if visibility.differs() && packed.has_non_finite(simd) {
                    let weights = Weights { weights: scores, stride: score_width };
                    sums.fill(0.0);
                    add_visible(&visibility, 0..rows, 0, weights, packed, sums, sum_width);
                    continue;
                }
                // SAFETY: as for the scores; the values are panels of `seen` rows.
                unsafe {
                    let weights = Strided { start: scores.as_ptr(), stride: score_width };
                    for panel in 0..sum_width / columns {
                        let values = values.as_ptr().add(panel * seen * columns);
                        let start = sums.as_mut_ptr().add(panel * columns);
                        let sums = Strided { start, stride: sum_width };
                        multiply_panel(simd, rows, seen, weights, values, sums, Update::Replace);
                    }
                }
            }
        }

        for row in 0..rows {
            let (values, totals) = ((&sums[row * sum_width..], sum_size), (&totals[row..], rows));
            // SAFETY: each position is in one task alone.
            unsafe { problem.output(first).write_run(simd, row, run, values, totals) };
        }
    }
}

/// The dot product of each row of `a` with each row of `b`; each has its number of rows, of `width` values, a whole
/// number of vectors.
///
/// # Safety
/// The rows are readable, and `products` writable for the rows of `a` by the rows of `b`.
#[inline(always)]
unsafe fn dot_products<S: Simd>(
    simd: S,
    width: usize,
    (rows, a): (usize, *const f32),
    (columns, b): (usize, *const f32),
    products: Strided<*mut f32>,
) {
    const ROWS: usize = 2;
    const COLUMNS: usize = 4;
    for row in (0..rows).step_by(ROWS) {
        for column in (0..columns).step_by(COLUMNS) {
            // SAFETY: every tile is within the rows of both; the last of a line steps back over some rows again.
            unsafe {
                let tile_at = |row: usize, column: usize| {
                    let target =
                        Strided { start: products.start.add(row * products.stride + column), ..products };
                    (a.add(row * width), b.add(column * width), target)
                };
                if rows >= ROWS && columns >= COLUMNS {
                    let (a, b, target) = tile_at(row.min(rows - ROWS), column.min(columns - COLUMNS));
                    dot_tile::<S, ROWS, COLUMNS>(simd, width, a, b, target);
                } else {
                    for row in row..rows.min(row + ROWS) {
                        for column in column..columns.min(column + COLUMNS) {
                            let (a, b, target) = tile_at(row, column);
                            dot_tile::<S, 1, 1>(simd, width, a, b, target);
                        }
                    }
                }
            }
        }
    }
}

/// As [`dot_products`], for constant numbers of rows, so that the sums are registers.
///
/// # Safety
/// As for [`dot_products`].
#[inline(always)]
unsafe fn dot_tile<S: Simd, const ROWS: usize, const COLUMNS: usize>(
    simd: S,
    width: usize,
    a: *const f32,
    b: *const f32,
    products: Strided<*mut f32>,
) {
    let mut sums = [[simd.zero(); COLUMNS]; ROWS];
    for at in (0..width).step_by(S::LANES) {
        // SAFETY: `at` is within a row, and the rows within those of the caller.
        unsafe {
            let mut lines = [simd.zero(); ROWS];
            for (row, line) in lines.iter_mut().enumerate() {
                *line = simd.load(a.add(row * width + at));
            }
            for (row, &line) in lines.iter().enumerate() {
                for (column, sum) in sums[row].iter_mut().enumerate() {
                    *sum = simd.mul_add(line, simd.load(b.add(column * width + at)), *sum);
                }
            }
        }
    }
    for (row, sums) in sums.iter().enumerate() {
        for (column, &sum) in sums.iter().enumerate() {
            // SAFETY: the caller vouches for the products of these rows.
            unsafe { *products.start.add(row * products.stride + column) = simd.reduce_sum(sum) };
        }
    }
}
