// The gradients of attention of every kind: a warp for each query of each head, then one for each key.
#include "specialisation.cuh"
#include "grid.cuh"
#include "attention_backward.cuh"

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    backward_plain(const QUERY_TYPE *q, const KEY_TYPE *k, const VALUE_TYPE *v, const MASK_TYPE *mask,
                   const QUERY_TYPE *dy, const QueryRow *rows, QUERY_TYPE *dq, KEY_TYPE *dk, VALUE_TYPE *dv,
                   const Strides of_keys, i32 query_blocks, i32 key_batches, const Problem problem) {
    wait_for_launch_before();
    const bool has_query = i32(blockIdx.x) < query_blocks;
    // Those of one sequence are neighbours, so that a block's warps read the same rows.
    i64 index = (i64(blockIdx.x) - (has_query ? 0 : query_blocks)) * WARPS + threadIdx.x / 32;
    const i32 length = has_query ? problem.queries : problem.keys;
    const i32 number = i32(index % length);
    index /= length;
    Sequence sequence;
    sequence.head = i32(index % problem.heads);
    index /= problem.heads;
    sequence.position = i32(index % problem.positions);
    index /= problem.positions;
    if (index >= (has_query ? problem.batches : key_batches)) return;
    const i32 batch = sequence.batch = i32(index);

    if (has_query) {
        const i64 of_y = number * problem.y.step;
        const i32 key_batch = batch / problem.share;
        const QueryRow *own = first_query_row(rows, problem, sequence);
        query_gradient(first_row(q, problem.q, batch, sequence) + number * problem.q.step,
                       first_row(k, problem.k, key_batch, sequence), first_row(v, problem.v, key_batch, sequence),
                       mask_row(mask, problem, sequence, number), first_row(dy, problem.y, batch, sequence) + of_y,
                       own[number], seen_keys(own, problem, number),
                       first_row(dq, problem.y, batch, sequence) + of_y, problem);
    } else {
        key_gradient(q, first_row(k, problem.k, batch, sequence) + number * problem.k.step,
                     first_row(v, problem.v, batch, sequence) + number * problem.v.step, mask, dy, rows,
                     first_row(dk, of_keys, batch, sequence) + number * of_keys.step,
                     first_row(dv, of_keys, batch, sequence) + number * of_keys.step, problem, sequence, number, 0,
                     HEAD_DIM);
    }
}
