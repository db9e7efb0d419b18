// The second kernel of split-K: adds the partial sums of a product, always in the same order, and runs the epilogue.
#include "specialisation.cuh"

#include "grid.cuh"
#include "product.cuh"

extern "C" __global__ void __launch_bounds__(256)
    reduce(const float *partial, TYPE *y, const Product p, const Epilogue e, i64 slots) {
    wait_for_launch_before();
    constexpr int per_result = GATED ? 2 : 1, width = STORE * per_result;
    i64 slot = i64(blockIdx.x) * 256 + threadIdx.x;
    if (slot >= slots) return;
    int across = p.columns / width;
    int row = int(slot / across), from = int(slot - i64(row) * across) * width;
    float sum[width] = {};
    // Several loads are on their way at once.
#pragma unroll 8
    for (int split = 0; split < p.splits; split++) {
        float part[width];
        load(part, partial + (i64(split) * p.rows + row) * p.columns + from);
#pragma unroll
        for (int k = 0; k < width; k++) sum[k] += part[k];
    }
    int column = from / per_result;
    i64 at = row * p.y_row + column;
    float result[STORE];
#if GATED
    float gate[STORE];
#pragma unroll
    for (int k = 0; k < STORE; k++) result[k] = sum[2 * k], gate[k] = sum[2 * k + 1];
    finish_gated(result, gate, e, row, at, column);
#else
#pragma unroll
    for (int k = 0; k < STORE; k++) result[k] = sum[k];
    finish(result, e, row, at, column);
#endif
    store(y + at, result);
}
