// Makes the result of an attention whose keys were split: a warp for each query of each head, which weighs the sums of the
// parts by how far their largest scores are below the largest of all.
#include "specialisation.cuh"
#include "grid.cuh"
#include "attention.cuh"

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    merge(const f32 *q, const f32 *k, const f32 *v, const MASK_TYPE *mask, const i32 *key_lengths,
          const i32 *query_boundaries, const i32 *key_boundaries, f32 *y, float *log_sum_exp,
          const float *partial, const Problem problem) {
    wait_for_launch_before();
    const int lane = threadIdx.x % 32;
    const i64 row = i64(blockIdx.x) * WARPS + threadIdx.x / 32;
    i64 index = row;
    const i32 query = i32(index % problem.queries);
    index /= problem.queries;
    Sequence sequence;
    sequence.head = i32(index % problem.heads);
    index /= problem.heads;
    sequence.position = i32(index % problem.positions);
    index /= problem.positions;
    if (index >= problem.batches) return;
    const i32 batch = sequence.batch = i32(index), key_batch = batch / problem.share;
    const i64 rows = i64(problem.batches) * problem.positions * problem.heads * problem.queries;
    const float *sums = partial + row * SPLITS * HEAD_DIM, *parts = partial + rows * SPLITS * HEAD_DIM + row * SPLITS * 2;
    y = first_row(y, problem.y, batch, sequence) + query * problem.y.step;

    float largest = HIDDEN, total = 0.0f, factors[SPLITS];
#pragma unroll
    for (int i = 0; i < SPLITS; i++) largest = fmaxf(largest, parts[2 * i]);
    const RowSoftmax row_softmax(largest, problem.scale);
#pragma unroll
    for (int i = 0; i < SPLITS; i++) {
        factors[i] = row_softmax.weight(parts[2 * i]);
        total += factors[i] * parts[2 * i + 1];
    }
    float *own_sum = log_sum_exp_of(log_sum_exp, problem, sequence, query);
    if (LOG_SUM_EXP && lane == 0) *own_sum = row_softmax.log_sum_exp(total);
    const float divisor = total == 0.0f ? 1.0f : total;
    bool wrong = false;
    for (int channel = 4 * lane; channel < HEAD_DIM; channel += 128) {
        float result[4] = {};
#pragma unroll
        for (int i = 0; i < SPLITS; i++) {
            float four[4];
            load(four, sums + i * HEAD_DIM + channel);
#pragma unroll
            for (int j = 0; j < 4; j++) result[j] += factors[i] * four[j];
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            result[j] /= divisor;
            wrong = wrong || !is_finite(result[j]);
        }
        store(y + channel, result);
    }
    // What the tensor cores cannot do in two parts, and what a hidden key's value spoilt, is done again.
    if (__any_sync(0xffffffffu, wrong)) {
        __syncwarp();
        attend<HEAD_DIM>(first_row(q, problem.q, batch, sequence) + query * problem.q.step,
                         first_row(k, problem.k, key_batch, sequence), first_row(v, problem.v, key_batch, sequence),
                         mask_row(mask, problem, sequence, query), y, own_sum, problem,
                         key_range(problem, {query_boundaries, key_boundaries}, query,
                                   key_count(problem, key_lengths, batch)));
    }
}
