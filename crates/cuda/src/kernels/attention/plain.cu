// Attention of every kind, a warp for each query of each head, with an online softmax.
#include "specialisation.cuh"
#include "grid.cuh"
#include "attention.cuh"

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    plain(const QUERY_TYPE *q, const KEY_TYPE *k, const VALUE_TYPE *v, const MASK_TYPE *mask, const i32 *key_lengths,
          const i32 *query_boundaries, const i32 *key_boundaries, QUERY_TYPE *y, float *log_sum_exp,
          const Problem problem) {
    wait_for_launch_before();
    // Queries of one sequence are neighbours, so that a block's warps read the same keys.
    i64 index = i64(blockIdx.x) * WARPS + threadIdx.x / 32;
    i32 query = i32(index % problem.queries);
    index /= problem.queries;
    Sequence sequence;
    sequence.head = i32(index % problem.heads);
    index /= problem.heads;
    sequence.position = i32(index % problem.positions);
    index /= problem.positions;
    if (index >= problem.batches) return;
    sequence.batch = i32(index);
    const i32 batch = sequence.batch, key_batch = batch / problem.share;

    const KeyRange range =
        key_range(problem, {query_boundaries, key_boundaries}, query, key_count(problem, key_lengths, batch));
    attend<HEAD_DIM>(first_row(q, problem.q, batch, sequence) + query * problem.q.step,
                     first_row(k, problem.k, key_batch, sequence), first_row(v, problem.v, key_batch, sequence),
                     mask_row(mask, problem, sequence, query),
                     first_row(y, problem.y, batch, sequence) + query * problem.y.step,
                     log_sum_exp_of(log_sum_exp, problem, sequence, query), problem, range);
}
