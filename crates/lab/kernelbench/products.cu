// Products of matrices and vectors.
#include "product.cuh"

extern "C" __global__ void __launch_bounds__(PRODUCT_THREADS) product(const float* __restrict__ a, const float* __restrict__ b,
    float* __restrict__ c) {
    // Blocks that run at a time share tiles in the L2 cache: eight tile rows, then the next tile column.
    const int down = (ROWS + TILE_M - 1) / TILE_M, right = (COLUMNS + TILE_N - 1) / TILE_N;
    const int band = blockIdx.x / (BAND * right), within = blockIdx.x % (BAND * right);
    const int height = min(BAND, down - band * BAND);
    const int row = (band * BAND + within % height) * TILE_M, column = within / height * TILE_N;
    const long long batch = blockIdx.z;
    a += batch * A_STEP, b += batch * B_STEP, c += batch * ((long long)ROWS * COLUMNS);
    Product shape = {ROWS, COLUMNS, DEPTH, 0, DEPTH, 1.0f};
#if TRIANGLE == 1
    // Rows of `a` begin at their diagonal, columns of `b` end at theirs.
    shape.k_begin = row / TILE_K * TILE_K;
    shape.k_end = min(DEPTH, column + TILE_N);
#elif TRIANGLE == 2
    shape.k_begin = column / TILE_K * TILE_K;
    shape.k_end = min(DEPTH, row + TILE_M);
#endif
#if SPLITS > 1
    // A deep product of few tiles: each block has a part of the depth, and `together` adds them up.
    shape.k_begin = blockIdx.y * SPLIT;
    shape.k_end = min(DEPTH, (int)shape.k_begin + SPLIT);
    c += (long long)blockIdx.y * ROWS * COLUMNS;
#endif
    product_tile<A_ACROSS, B_ACROSS, A_VECTOR, B_VECTOR, TRIANGLE>(a, b, c, shape, row, column);
}

// The sum of the splits.
extern "C" __global__ void __launch_bounds__(256) together(const float* __restrict__ parts, float* __restrict__ c) {
    const long long at = (long long)blockIdx.x * 256 + threadIdx.x;
    if (at >= (long long)ROWS * COLUMNS) {
        return;
    }
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int split = 0; split < SPLITS; split += 4) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            sums[i] += split + i < SPLITS ? parts[(long long)(split + i) * ROWS * COLUMNS + at] : 0.0f;
        }
    }
    c[at] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// A matrix and a vector: each block has a piece of a row, so that a few rows fill the device as well. 4 bytes a number are the limit.
extern "C" __global__ void __launch_bounds__(256) with_vector(const float* __restrict__ a, const float* __restrict__ b,
    float* __restrict__ parts) {
    __shared__ float scratch[WARP];
    const float* row = a + (long long)blockIdx.x * DEPTH;
    const int begin = blockIdx.y * SPLIT, end = min(begin + SPLIT, DEPTH);
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#if A_VECTOR == 4
#pragma unroll 4
    for (int at = begin + 4 * (int)threadIdx.x; at < end; at += 4 * 256) {
        const float4 v = load4(row + at), w = *reinterpret_cast<const float4*>(b + at);
        sums[0] = fmaf(v.x, w.x, sums[0]), sums[1] = fmaf(v.y, w.y, sums[1]);
        sums[2] = fmaf(v.z, w.z, sums[2]), sums[3] = fmaf(v.w, w.w, sums[3]);
    }
#else
    for (int at = begin + (int)threadIdx.x; at < end; at += 256) {
        sums[0] = fmaf(row[at], b[at], sums[0]);
    }
#endif
    const float sum = block_all<Sum, 256>((sums[0] + sums[1]) + (sums[2] + sums[3]), scratch);
    if (threadIdx.x == 0) {
        parts[(long long)blockIdx.y * ROWS + blockIdx.x] = sum;
    }
}

// A diagonal matrix, given as a vector, and a matrix: 8 bytes a number.
extern "C" __global__ void __launch_bounds__(256) with_diagonal(const float* __restrict__ diagonal, const float* __restrict__ b,
    float* __restrict__ c) {
    const float factor = diagonal[blockIdx.y];
    const long long row = (long long)blockIdx.y * COLUMNS;
    const int at = (blockIdx.x * 256 + threadIdx.x) * B_VECTOR;
    if (at < COLUMNS) {
#if B_VECTOR == 4
        const float4 v = load4(b + row + at);
        store4(c + row + at, make_float4(factor * v.x, factor * v.y, factor * v.z, factor * v.w));
#else
        c[row + at] = factor * b[row + at];
#endif
    }
}
