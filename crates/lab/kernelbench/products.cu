// Products of matrices and vectors.
#include "product.cuh"

extern "C" __global__ void __launch_bounds__(PRODUCT_THREADS, 2) product(const float* __restrict__ a, const float* __restrict__ b,
    float* __restrict__ c) {
    // Blocks that run at a time share tiles in the L2 cache: eight tile rows, then the next tile column.
    const int down = (ROWS + TILE_M - 1) / TILE_M, right = (COLUMNS + TILE_N - 1) / TILE_N;
    const int band = blockIdx.x / (BAND * right), within = blockIdx.x % (BAND * right);
    const int height = min(BAND, down - band * BAND);
    const int row = (band * BAND + within % height) * TILE_M, column = within / height * TILE_N;
    const long long batch = blockIdx.z;
    a += batch * A_STEP, b += batch * B_STEP, c += batch * ((long long)ROWS * COLUMNS);
    Product shape = {ROWS, COLUMNS, DEPTH, 0, DEPTH, 1.0f, A_PITCH, B_PITCH};
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

// A matrix with lines of a multiple of four, ended by zeros: copies of 16 bytes then serve where the lines of the original are at odd places. It
// costs one pass over the operands; without it every number is a copy of its own.
extern "C" __global__ void __launch_bounds__(256) padded(const float* __restrict__ from, float* __restrict__ to, int width, int pitch) {
    const int at = blockIdx.x * 256 + threadIdx.x;
    if (at < pitch) {
        to[(long long)blockIdx.y * pitch + at] = at < width ? __ldcs(from + (long long)blockIdx.y * width + at) : 0.0f;
    }
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

// A matrix and a vector: each block has a piece of eight rows, so that few rows fill the device as well, and the vector is read once for all
// eight. 4 bytes a number of the matrix are the limit.
#define LINES 8

extern "C" __global__ void __launch_bounds__(256, 4) with_vector(const float* __restrict__ a, const float* __restrict__ b,
    float* __restrict__ parts) {
    __shared__ float scratch[WARP];
    const int row = blockIdx.x * LINES;
    const int begin = blockIdx.y * SPLIT, end = min(begin + SPLIT, DEPTH);
    float sums[LINES] = {};
#pragma unroll 1
    for (int at = begin + A_VECTOR * (int)threadIdx.x; at < end; at += A_VECTOR * 256) {
#if A_VECTOR == 4
        float4 v[LINES];
#else
        float v[LINES];
#endif
#pragma unroll
        for (int line = 0; line < LINES; line++) {
            // Beyond the last row it is read again, and not kept.
            const float* from = a + (long long)min(row + line, ROWS - 1) * DEPTH + at;
#if A_VECTOR == 4
            v[line] = read4(from);
#else
            v[line] = *from;
#endif
        }
#if A_VECTOR == 4
        const float4 w = *reinterpret_cast<const float4*>(b + at);
#else
        const float w = b[at];
#endif
#pragma unroll
        for (int line = 0; line < LINES; line++) {
#if A_VECTOR == 4
            sums[line] += fmaf(v[line].x, w.x, v[line].y * w.y) + fmaf(v[line].z, w.z, v[line].w * w.w);
#else
            sums[line] = fmaf(v[line], w, sums[line]);
#endif
        }
    }
#pragma unroll
    for (int line = 0; line < LINES; line++) {
        const float sum = block_all<Sum, 256>(sums[line], scratch);
        if (threadIdx.x == 0 && row + line < ROWS) {
            parts[(long long)blockIdx.y * ROWS + row + line] = sum;
        }
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
