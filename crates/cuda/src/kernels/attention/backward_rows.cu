// What the kernels of the gradients have to know of each query of each head: some lanes of a warp have one, and read its
// result and the gradient of that once.
#include "specialisation.cuh"
#include "grid.cuh"
#include "attention_backward.cuh"

// Channels that a lane reads at a time, and lanes of a query: a power of two.
constexpr int PACK = HEAD_DIM % Wide<QUERY_TYPE>::count == 0 ? Wide<QUERY_TYPE>::count : 1;
constexpr int PACKS = HEAD_DIM / PACK;
constexpr int LANES = PACKS > 16 ? 32 : PACKS > 8 ? 16 : PACKS > 4 ? 8 : PACKS > 2 ? 4 : PACKS;
constexpr int QUERIES = THREADS / LANES;

extern "C" __global__ void __launch_bounds__(THREADS)
    backward_rows(const QUERY_TYPE *y, const QUERY_TYPE *dy, const float *log_sum_exp, const i32 *key_lengths,
                  const i32 *query_boundaries, const i32 *key_boundaries, QueryRow *rows, const Problem problem) {
    wait_for_launch_before();
    const int lane = threadIdx.x % LANES;
    // Heads of a row are neighbours in memory.
    const i64 row = i64(blockIdx.x) * QUERIES + threadIdx.x / LANES;
    i64 index = row;
    Sequence sequence;
    sequence.head = i32(index % problem.heads);
    index /= problem.heads;
    sequence.position = i32(index % problem.positions);
    index /= problem.positions;
    const i32 query = i32(index % problem.queries);
    index /= problem.queries;
    const bool exists = index < problem.batches;
    sequence.batch = i32(index);

    float sum = 0.0f;
    if (exists) {
#pragma unroll
        for (int pack = lane; pack < PACKS; pack += LANES) {
            float of_y[PACK], of_dy[PACK];
            load(of_y, y + row * HEAD_DIM + pack * PACK);
            load(of_dy, dy + row * HEAD_DIM + pack * PACK);
#pragma unroll
            for (int i = 0; i < PACK; i++) sum += of_y[i] * of_dy[i];
        }
    }
    sum = neighbour_sum<LANES>(sum);
    if (!exists || lane != 0) return;
    const KeyRange range = key_range(problem, {query_boundaries, key_boundaries}, query,
                                     key_count(problem, key_lengths, sequence.batch));
    const float logarithm = log_sum_exp[row];
    first_query_row(rows, problem, sequence)[query] = {FOLDED ? logarithm * LOG2_E : logarithm, sum, range.first,
                                                       range.end};
}
