//! The gradients of attention, blockwise: neither the weights nor their gradients ever exist as a whole.
//!
//! Two passes make the weights of a block of queries and a block of keys from the logarithms of the sums: one has some queries and walks the
//! keys, for the gradient of the queries; one has some keys and walks the queries, for those of the keys and values. So every sum is one
//! task's alone, in the order of its blocks, and is the same for any number of threads; the price is seven matrix products for five.

use std::ops::Range;

use super::Problem;
use super::blocks::{KEY_BLOCK, MOST_QUERIES, QUERY_BLOCK, scale};
use super::hidden::PackedValues;
use super::operand::{Rows, RowsMut, Sequence};
use super::scratch::Scratch;
use super::visibility::Visibility;
use crate::gemm::microkernel::{Strided, Update, multiply_panel, panel_columns};
use crate::simd::{Isa, Kernel, Simd, math};
use crate::tasks;

/// The fewest keys that a task of the second pass has, a multiple of the panel columns of every instruction set.
const FEWEST_KEYS: usize = 64;

pub(super) fn run(isa: Isa, problem: &Problem<'_>) {
    let (extents, heads) = (problem.extents, problem.op.heads);
    let place = |index: usize| {
        let (outer, head) = (index / heads, index % heads);
        Sequence { batch: outer / extents.positions, position: outer % extents.positions, head }
    };
    // Cuts so many sequences of a length into chunks, four for each thread, which balances threads of different speed.
    let cut = |sequences: usize, length: usize, limits: [usize; 2]| {
        let share = (sequences * length).div_ceil(4 * rayon::current_num_threads());
        let chunk = share.clamp(limits[0], limits[1]).next_multiple_of(limits[0]);
        (chunk.min(limits[1]), length.div_ceil(chunk.min(limits[1])))
    };
    let sequences = extents.batch * extents.positions * heads;
    if sequences * extents.queries > 0 {
        let (chunk, chunks) = cut(sequences, extents.queries, [2 * QUERY_BLOCK, MOST_QUERIES]);
        tasks::blocks(sequences * chunks, |index| {
            let first = index % chunks * chunk;
            let queries = first..(first + chunk).min(extents.queries);
            isa.dispatch(OfQueries { problem, sequence: place(index / chunks), queries });
        });
    }
    let sequences = extents.key_batch * extents.positions * heads;
    if sequences * extents.keys > 0 {
        let (chunk, chunks) = cut(sequences, extents.keys, [FEWEST_KEYS, KEY_BLOCK]);
        tasks::blocks(sequences * chunks, |index| {
            let first = index % chunks * chunk;
            let keys = first..(first + chunk).min(extents.keys);
            isa.dispatch(OfKeys { problem, sequence: place(index / chunks), keys });
        });
    }
}

impl Problem<'_> {
    /// The attention's result, its logarithms and the gradient of its result among the operands.
    fn results(&self) -> [usize; 3] {
        let first = self.op.operands();
        [first, first + 1, first + 2]
    }

    /// Rows of an operand that has the channels of the heads alone.
    fn of_results(&self, operand: usize, sequence: Sequence) -> Rows<'_> {
        let layout = self.layout(self.extents.queries, self.op.heads * self.op.head_dim, 0);
        Rows::new(self.inputs[operand], layout, sequence)
    }

    fn gradient(&self, output: usize, length: usize, sequence: Sequence) -> RowsMut<'_> {
        let layout = self.layout(length, self.op.heads * self.op.head_dim, 0);
        RowsMut::new(&self.outputs[output], layout, sequence)
    }
}

/// Some queries with what belongs to each: rows that are `width` long, the logarithm of the sum of exponentials, and the sum of products of the
/// result and its gradient.
struct Queries<'a> {
    first: usize,
    count: usize,
    /// The queries, scaled.
    scaled: &'a mut [f32],
    /// The gradients of their results.
    dy: &'a mut [f32],
    log_sum_exp: &'a mut [f32],
    of_results: &'a mut [f32],
}

impl Queries<'_> {
    /// Reads them. `row` has room for a row.
    #[inline(always)]
    fn read<S: Simd>(&mut self, simd: S, problem: &Problem<'_>, sequence: Sequence, row: &mut [f32]) {
        let [y, log_sum_exp, dy] = problem.results();
        let (first, count) = (self.first, self.count);
        problem.queries(sequence).copy(simd, first, count, problem.op.scale, self.scaled);
        problem.of_results(dy, sequence).copy(simd, first, count, 1.0, self.dy);
        let y = problem.of_results(y, sequence);
        // SAFETY: the outputs overlap no operand, so nothing writes it.
        let logarithms = unsafe { problem.inputs[log_sum_exp].slice::<f32>() };
        let width = row.len();
        for (index, dy) in self.dy.chunks_exact(width).take(count).enumerate() {
            y.copy(simd, first + index, 1, 1.0, row);
            let mut sum = simd.zero();
            for (y, dy) in row.chunks_exact(S::LANES).zip(dy.chunks_exact(S::LANES)) {
                // SAFETY: `chunks_exact` yields LANES values.
                sum = unsafe { simd.mul_add(simd.load(y.as_ptr()), simd.load(dy.as_ptr()), sum) };
            }
            self.of_results[index] = simd.reduce_sum(sum);
            self.log_sum_exp[index] = logarithms[problem.row_of_sums(sequence, first + index)];
        }
    }
}

/// Some keys and values in panels, transposed.
struct Keys<'a> {
    first: usize,
    keys: &'a [f32],
    values: &'a [f32],
}

/// The weights of queries and the first `seen` of some keys, and the gradients of their scores; zero where a key is hidden. Rows are
/// [`KEY_BLOCK`] long.
#[inline(always)]
fn weigh<S: Simd>(
    simd: S,
    head_dim: usize,
    queries: &Queries<'_>,
    block: &Keys<'_>,
    seen: usize,
    visibility: &Visibility<'_>,
    [weights, gradients]: [&mut [f32]; 2],
) {
    let (columns, width) = (panel_columns::<S>(), head_dim.next_multiple_of(S::LANES));
    let (rows, padded) = (queries.count, seen.next_multiple_of(S::LANES));
    assert!(weights.len() >= rows * KEY_BLOCK && gradients.len() >= rows * KEY_BLOCK && padded <= KEY_BLOCK);
    let panels = seen.div_ceil(columns);
    assert!(queries.scaled.len() >= rows * width && queries.dy.len() >= rows * width);
    assert!(
        block.keys.len() >= panels * columns * head_dim && block.values.len() >= panels * columns * head_dim
    );
    for panel in 0..panels {
        let at = panel * columns;
        // SAFETY: rows and panels are as long as was asserted above, `KEY_BLOCK` is a whole number of panels, and the parts of the
        // scratch memory are apart.
        unsafe {
            let left = |rows: &[f32]| Strided { start: rows.as_ptr(), stride: width };
            let to = Strided { start: weights.as_mut_ptr().add(at), stride: KEY_BLOCK };
            let keys = block.keys.as_ptr().add(at * head_dim);
            multiply_panel(simd, rows, head_dim, left(queries.scaled), keys, to, Update::Replace);
            let to = Strided { start: gradients.as_mut_ptr().add(at), stride: KEY_BLOCK };
            let values = block.values.as_ptr().add(at * head_dim);
            multiply_panel(simd, rows, head_dim, left(queries.dy), values, to, Update::Replace);
        }
    }
    let rows = weights.chunks_exact_mut(KEY_BLOCK).zip(gradients.chunks_exact_mut(KEY_BLOCK)).take(rows);
    for (row, (weights, gradients)) in rows.enumerate() {
        let (weights, gradients) = (&mut weights[..padded], &mut gradients[..padded]);
        // SAFETY: the row is one of the queries.
        unsafe { visibility.apply(simd, queries.first + row, block.first, weights) };
        let logarithm = simd.splat(queries.log_sum_exp[row]);
        let of_results = simd.splat(queries.of_results[row]);
        for (weights, gradients) in
            weights.chunks_exact_mut(S::LANES).zip(gradients.chunks_exact_mut(S::LANES))
        {
            // SAFETY: `chunks_exact_mut` yields LANES values.
            unsafe {
                let score = simd.load(weights.as_ptr());
                let is_hidden = simd.less_than(score, simd.splat(f32::MIN));
                let weight = math::exp(simd, simd.sub(score, logarithm));
                let weight = simd.select(is_hidden, simd.zero(), weight);
                let of_weight = simd.sub(simd.load(gradients.as_ptr()), of_results);
                // What a hidden key holds may be anything.
                let gradient = simd.select(is_hidden, simd.zero(), simd.mul(weight, of_weight));
                simd.store(weights.as_mut_ptr(), weight);
                simd.store(gradients.as_mut_ptr(), gradient);
            }
        }
    }
}

/// Adds to each row of `sums`, which are `sum_width` long, its factors times the packed rows. Where some of them hold what is not finite, and
/// not all belong to it, those that do are added one by one.
#[inline(always)]
fn add_products<S: Simd>(
    simd: S,
    (factors, stride): (&[f32], usize),
    rows: usize,
    packed: PackedValues<'_>,
    (sums, sum_width): (&mut [f32], usize),
    sees: Option<&dyn Fn(usize, usize) -> bool>,
) {
    if let Some(sees) = sees.filter(|_| packed.has_non_finite(simd)) {
        return add_one_by_one((factors, stride), rows, packed, (sums, sum_width), sees);
    }
    let columns = packed.columns;
    assert!(rows * sum_width <= sums.len() && rows.saturating_sub(1) * stride + packed.keys <= factors.len());
    assert!(sum_width * packed.capacity <= packed.values.len());
    for panel in 0..sum_width / columns {
        // SAFETY: as asserted above; the parts of the scratch memory are apart.
        unsafe {
            let factors = Strided { start: factors.as_ptr(), stride };
            let right = packed.values.as_ptr().add(panel * packed.capacity * columns);
            let to = Strided { start: sums.as_mut_ptr().add(panel * columns), stride: sum_width };
            multiply_panel(simd, rows, packed.keys, factors, right, to, Update::Add);
        }
    }
}

#[cold]
#[inline(never)]
fn add_one_by_one(
    (factors, stride): (&[f32], usize),
    rows: usize,
    packed: PackedValues<'_>,
    (sums, sum_width): (&mut [f32], usize),
    sees: &dyn Fn(usize, usize) -> bool,
) {
    for row in 0..rows {
        let sums = &mut sums[row * sum_width..][..packed.head_dim];
        for other in (0..packed.keys).filter(|&other| sees(row, other)) {
            for (channel, sum) in sums.iter_mut().enumerate() {
                *sum += factors[row * stride + other] * packed.value(other, channel);
            }
        }
    }
}

/// Some queries of a sequence and head, and all their keys.
struct OfQueries<'a> {
    problem: &'a Problem<'a>,
    sequence: Sequence,
    queries: Range<usize>,
}

impl Kernel for OfQueries<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let OfQueries { problem, sequence, queries } = self;
        let Some(last) = queries.clone().last() else { return };
        let head_dim = problem.op.head_dim;
        let columns = panel_columns::<S>();
        let (width, sum_width) = (head_dim.next_multiple_of(S::LANES), head_dim.next_multiple_of(columns));
        let count = queries.len();
        let visibility = problem.visibility(sequence);
        let leading = visibility.leading(last);

        let sizes = [
            count * width,
            count * width,
            count,
            count,
            width,
            KEY_BLOCK * head_dim,
            KEY_BLOCK * head_dim,
            KEY_BLOCK * sum_width,
            QUERY_BLOCK * KEY_BLOCK,
            QUERY_BLOCK * KEY_BLOCK,
            count * sum_width,
        ]
        .map(|size| size.next_multiple_of(columns));
        let mut scratch = Scratch::take(sizes.iter().sum());
        let [scaled, dy, log_sum_exp, of_results, row, keys, values, packed, weights, gradients, sums] =
            scratch.split(sizes);
        Queries { first: queries.start, count, scaled, dy, log_sum_exp, of_results }.read(
            simd,
            problem,
            sequence,
            &mut row[..width],
        );
        sums.fill(0.0);

        let start = visibility.behind(queries.start) / KEY_BLOCK * KEY_BLOCK;
        for first_key in (start..leading).step_by(KEY_BLOCK) {
            let block_keys = (leading - first_key).min(KEY_BLOCK);
            problem.keys(sequence).pack_transposed(simd, first_key, block_keys, keys);
            problem.values(sequence).pack_transposed(simd, first_key, block_keys, values);
            problem.keys(sequence).pack(simd, first_key, block_keys, KEY_BLOCK, packed);
            let block = Keys { first: first_key, keys, values };
            for first_row in (0..count).step_by(QUERY_BLOCK) {
                let rows = (count - first_row).min(QUERY_BLOCK);
                let first = queries.start + first_row;
                let seen = visibility.leading(first + rows - 1).saturating_sub(first_key).min(block_keys);
                if seen == 0 || visibility.behind(first) >= first_key + block_keys {
                    continue;
                }
                let of_rows = Queries {
                    first,
                    count: rows,
                    scaled: &mut scaled[first_row * width..][..rows * width],
                    dy: &mut dy[first_row * width..][..rows * width],
                    log_sum_exp: &mut log_sum_exp[first_row..][..rows],
                    of_results: &mut of_results[first_row..][..rows],
                };
                weigh(simd, head_dim, &of_rows, &block, seen, &visibility, [weights, gradients]);
                let right =
                    PackedValues { values: packed, columns, capacity: KEY_BLOCK, keys: seen, head_dim };
                let sees = |row: usize, key: usize| visibility.sees(first + row, first_key + key);
                let sees = visibility.differs().then_some(&sees as _);
                let to = (&mut sums[first_row * sum_width..], sum_width);
                add_products(simd, (gradients, KEY_BLOCK), rows, right, to, sees);
            }
        }
        scale(simd, sums, problem.op.scale);
        let gradient = problem.gradient(0, problem.extents.queries, sequence);
        for (row, sums) in sums.chunks_exact(sum_width).take(count).enumerate() {
            // SAFETY: each query is in one task alone.
            unsafe { gradient.write(simd, queries.start + row, sums, 1.0) };
        }
    }
}

/// Some keys of a sequence and head, at most [`KEY_BLOCK`], and all queries that they serve.
struct OfKeys<'a> {
    problem: &'a Problem<'a>,
    /// Of the keys.
    sequence: Sequence,
    keys: Range<usize>,
}

impl Kernel for OfKeys<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let OfKeys { problem, sequence, keys } = self;
        let extents = problem.extents;
        let head_dim = problem.op.head_dim;
        let columns = panel_columns::<S>();
        let (width, sum_width) = (head_dim.next_multiple_of(S::LANES), head_dim.next_multiple_of(columns));
        let count = keys.len();
        let sizes = [
            QUERY_BLOCK * width,
            QUERY_BLOCK * width,
            QUERY_BLOCK,
            QUERY_BLOCK,
            width,
            KEY_BLOCK * head_dim,
            KEY_BLOCK * head_dim,
            QUERY_BLOCK * sum_width,
            QUERY_BLOCK * sum_width,
            QUERY_BLOCK * KEY_BLOCK,
            QUERY_BLOCK * KEY_BLOCK,
            QUERY_BLOCK * KEY_BLOCK,
            count * sum_width,
            count * sum_width,
        ]
        .map(|size| size.next_multiple_of(columns));
        let mut scratch = Scratch::take(sizes.iter().sum());
        let [
            scaled,
            dy,
            log_sum_exp,
            of_results,
            row,
            packed_keys,
            packed_values,
            packed_queries,
            packed_dy,
            weights,
            gradients,
            transposed,
            of_keys,
            of_values,
        ] = scratch.split(sizes);
        of_keys.fill(0.0);
        of_values.fill(0.0);

        let share = extents.batch / extents.key_batch;
        for batch in sequence.batch * share..(sequence.batch + 1) * share {
            let of_queries = Sequence { batch, ..sequence };
            let visibility = problem.visibility(of_queries);
            if batch == sequence.batch * share {
                problem.keys(of_queries).pack_transposed(simd, keys.start, count, packed_keys);
                problem.values(of_queries).pack_transposed(simd, keys.start, count, packed_values);
            }
            let block = Keys { first: keys.start, keys: packed_keys, values: packed_values };
            for first in (0..extents.queries).step_by(QUERY_BLOCK) {
                let rows = (extents.queries - first).min(QUERY_BLOCK);
                let seen = visibility.leading(first + rows - 1).saturating_sub(keys.start).min(count);
                if seen == 0 || visibility.behind(first) >= keys.end {
                    continue;
                }
                let mut queries = Queries {
                    first,
                    count: rows,
                    scaled: &mut scaled[..rows * width],
                    dy: &mut dy[..rows * width],
                    log_sum_exp: &mut log_sum_exp[..rows],
                    of_results: &mut of_results[..rows],
                };
                queries.read(simd, problem, of_queries, &mut row[..width]);
                weigh(simd, head_dim, &queries, &block, seen, &visibility, [weights, gradients]);
                problem.queries(of_queries).pack(simd, first, rows, QUERY_BLOCK, packed_queries);
                let [_, _, dy] = problem.results();
                problem.of_results(dy, of_queries).pack(simd, first, rows, QUERY_BLOCK, packed_dy);
                let sees = |key: usize, row: usize| visibility.sees(first + row, keys.start + key);
                let sees = visibility.differs().then_some(&sees as &dyn Fn(usize, usize) -> bool);
                for (factors, values, sums) in [
                    (&*weights, &*packed_dy, &mut *of_values),
                    (&*gradients, &*packed_queries, &mut *of_keys),
                ] {
                    for row in 0..rows {
                        for (key, factor) in factors[row * KEY_BLOCK..][..seen].iter().enumerate() {
                            transposed[key * QUERY_BLOCK + row] = *factor;
                        }
                    }
                    let right = PackedValues { values, columns, capacity: QUERY_BLOCK, keys: rows, head_dim };
                    add_products(simd, (transposed, QUERY_BLOCK), seen, right, (sums, sum_width), sees);
                }
            }
        }
        scale(simd, of_keys, problem.op.scale);
        for (output, sums) in [(1, of_keys), (2, of_values)] {
            let gradient = problem.gradient(output, extents.keys, sequence);
            for (row, sums) in sums.chunks_exact(sum_width).take(count).enumerate() {
                // SAFETY: each key is in one task alone.
                unsafe { gradient.write(simd, keys.start + row, sums, 1.0) };
            }
        }
    }
}
