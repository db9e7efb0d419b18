// Reductions over an axis that is not the last one: x is [outer][LENGTH][INNER]. A warp reads 32 neighbouring columns at a time, so
// every sector is used; a block's four teams share the rows of its 128 columns. The limit is memory: 4 bytes a number.
#include "common.cuh"

#define COLUMNS 128
#define TEAMS 4
#define UNROLL 8

struct SumOf {
    static __device__ float first() { return 0.0f; }
    static __device__ bool better(float, float) { return false; }
    static __device__ float combine(float a, float b) { return a + b; }
    static __device__ float result(float a) { return a * FACTOR; }
};
struct Largest {
    static __device__ float first() { return Max::identity(); }
    static __device__ bool better(float a, float b) { return a > b || (a != a && b == b); }
    static __device__ float combine(float a, float b) { return Max::combine(a, b); }
    static __device__ float result(float a) { return a; }
};
struct Smallest {
    static __device__ float first() { return Min::identity(); }
    static __device__ bool better(float a, float b) { return a < b || (a != a && b == b); }
    static __device__ float combine(float a, float b) { return Min::combine(a, b); }
    static __device__ float result(float a) { return a; }
};

#if !NORM
extern "C" __global__ void __launch_bounds__(COLUMNS * TEAMS) reduce_axis(const float* __restrict__ x,
#if INDEX
    long long* __restrict__ y
#else
    float* __restrict__ y
#endif
) {
    __shared__ float partial[TEAMS][COLUMNS];
    const int own = threadIdx.x % COLUMNS, team = threadIdx.x / COLUMNS;
    const int column = blockIdx.x * COLUMNS + own;
    const int rows = (LENGTH + TEAMS - 1) / TEAMS;
    const int begin = team * rows, end = min(begin + rows, LENGTH);
    float best = OPERATION::first();
#if INDEX
    int where = begin;
#endif
    if (column < INNER) {
        const float* from = x + ((long long)blockIdx.y * LENGTH) * INNER + column;
        int row = begin;
        for (; row + UNROLL <= end; row += UNROLL) {
            float values[UNROLL];
#pragma unroll
            for (int i = 0; i < UNROLL; i++) {
                values[i] = __ldcs(from + (long long)(row + i) * INNER);
            }
#if INDEX
#pragma unroll
            for (int i = 0; i < UNROLL; i++) {
                if (OPERATION::better(values[i], best)) {
                    best = values[i], where = row + i;
                }
            }
#else
            // As a tree: the sum has fewer roundings, and additions do not wait for each other.
#pragma unroll
            for (int width = UNROLL / 2; width > 0; width /= 2) {
                for (int i = 0; i < width; i++) {
                    values[i] = OPERATION::combine(values[i], values[i + width]);
                }
            }
            best = OPERATION::combine(best, values[0]);
#endif
        }
        for (; row < end; row++) {
            const float value = __ldcs(from + (long long)row * INNER);
#if INDEX
            if (OPERATION::better(value, best)) {
                best = value, where = row;
            }
#else
            best = OPERATION::combine(best, value);
#endif
        }
    }
#if INDEX
    __shared__ int places[TEAMS][COLUMNS];
    places[team][own] = where;
#endif
    partial[team][own] = best;
    __syncthreads();
    if (team == 0 && column < INNER) {
        // Teams have the rows in order, so of equal numbers the first is kept.
#pragma unroll
        for (int other = 1; other < TEAMS; other++) {
            const float value = partial[other][own];
#if INDEX
            if (OPERATION::better(value, best)) {
                best = value, where = places[other][own];
            }
#else
            best = OPERATION::combine(best, value);
#endif
        }
        const long long at = (long long)blockIdx.y * INNER + column;
#if INDEX
        y[at] = where;
#else
        y[at] = OPERATION::result(best);
#endif
    }
}
#endif

#if NORM
// x / sqrt(mean of squares + EPS) over the axis, which a thread holds in registers: one read, one write.
extern "C" __global__ void __launch_bounds__(256) rms_axis(const float* __restrict__ x, float* __restrict__ y) {
    const int column = blockIdx.x * 256 + threadIdx.x;
    if (column >= INNER) {
        return;
    }
    const long long first = (long long)blockIdx.y * LENGTH * INNER + column;
    float values[LENGTH];
#pragma unroll
    for (int i = 0; i < LENGTH; i++) {
        values[i] = __ldcs(x + first + (long long)i * INNER);
    }
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < LENGTH; i++) {
        squares += values[i] * values[i];
    }
    const float root = sqrtf(squares * (1.0f / LENGTH) + EPS);
#pragma unroll
    for (int i = 0; i < LENGTH; i++) {
        __stcs(y + first + (long long)i * INNER, values[i] / root);
    }
}
#endif
