// Reductions over an axis that is not the last one: x is [outer][LENGTH][INNER]. The limit is memory: 4 bytes a number. A warp reads 512 bytes at a
// time from whole lines, whatever INNER is: rows that are a multiple of four apart begin at the same place of a vector, so each of a block's
// warps has such rows, and its vectors begin up to three columns before the block's. Columns come together in shared memory.
#include "common.cuh"

#define TEAMS 8
#define COLUMNS 125

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
#if INDEX
typedef long long Result;
#else
typedef float Result;
#endif

extern "C" __global__ void __launch_bounds__(WARP * TEAMS, RESIDENT) reduce_axis(const float* __restrict__ x, Result* __restrict__ y) {
    __shared__ float partial[TEAMS][COLUMNS + 7];
    const int team = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int left = blockIdx.x * COLUMNS;
    const long long begin = (long long)blockIdx.y * LENGTH * INNER + left;
    // How far the vector that has the first column of this team's rows begins before it.
    const int before = (int)((begin + (long long)team * INNER) & 3);
    const int column = 4 * lane - before;
    const float* from = x + begin + column;
    float best[4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        best[k] = OPERATION::first();
    }
#if INDEX
    int where[4] = {team, team, team, team};
#endif
    // A vector may have numbers of the next row, which are not kept. Behind the very last there are none.
    const bool odd = blockIdx.y == gridDim.y - 1 && column + left + 3 >= INNER;
    if (column + left < INNER) {
        const int end = odd ? LENGTH - 1 : LENGTH;
        int row = team;
        for (; row + (UNROLL - 1) * TEAMS < end; row += UNROLL * TEAMS) {
            float4 values[UNROLL];
#pragma unroll
            for (int i = 0; i < UNROLL; i++) {
                values[i] = read4(from + (long long)(row + i * TEAMS) * INNER);
            }
#if INDEX
#pragma unroll
            for (int i = 0; i < UNROLL; i++) {
                const float own[4] = {values[i].x, values[i].y, values[i].z, values[i].w};
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    if (OPERATION::better(own[k], best[k])) {
                        best[k] = own[k], where[k] = row + i * TEAMS;
                    }
                }
            }
#else
            // As a tree: the sum has fewer roundings, and additions do not wait for each other.
#pragma unroll
            for (int width = UNROLL / 2; width > 0; width /= 2) {
#pragma unroll
                for (int i = 0; i < width; i++) {
                    values[i].x = OPERATION::combine(values[i].x, values[i + width].x);
                    values[i].y = OPERATION::combine(values[i].y, values[i + width].y);
                    values[i].z = OPERATION::combine(values[i].z, values[i + width].z);
                    values[i].w = OPERATION::combine(values[i].w, values[i + width].w);
                }
            }
            best[0] = OPERATION::combine(best[0], values[0].x), best[1] = OPERATION::combine(best[1], values[0].y);
            best[2] = OPERATION::combine(best[2], values[0].z), best[3] = OPERATION::combine(best[3], values[0].w);
#endif
        }
        for (; row < end; row += TEAMS) {
            const float4 value = read4(from + (long long)row * INNER);
            const float own[4] = {value.x, value.y, value.z, value.w};
#pragma unroll
            for (int k = 0; k < 4; k++) {
#if INDEX
                if (OPERATION::better(own[k], best[k])) {
                    best[k] = own[k], where[k] = row;
                }
#else
                best[k] = OPERATION::combine(best[k], own[k]);
#endif
            }
        }
        if (odd && row == LENGTH - 1) {
#pragma unroll
            for (int k = 0; k < 4; k++) {
                if (column + left + k < INNER) {
                    const float own = from[(long long)row * INNER + k];
#if INDEX
                    if (OPERATION::better(own, best[k])) {
                        best[k] = own, where[k] = row;
                    }
#else
                    best[k] = OPERATION::combine(best[k], own);
#endif
                }
            }
        }
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
        partial[team][column + k + 3] = best[k];
    }
#if INDEX
    __shared__ int places[TEAMS][COLUMNS + 7];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        places[team][column + k + 3] = where[k];
    }
#endif
    __syncthreads();
    const int own = threadIdx.x;
    if (own < COLUMNS && left + own < INNER) {
        float all = partial[0][own + 3];
#if INDEX
        int at = places[0][own + 3];
#endif
#pragma unroll
        for (int other = 1; other < TEAMS; other++) {
            const float value = partial[other][own + 3];
#if INDEX
            // Of equal numbers the first is kept, and of several that are not numbers.
            const int place = places[other][own + 3];
            if (OPERATION::better(value, all) || (place < at && !OPERATION::better(all, value))) {
                all = value, at = place;
            }
#else
            all = OPERATION::combine(all, value);
#endif
        }
        const long long to = (long long)blockIdx.y * INNER + left + own;
#if INDEX
        y[to] = at;
#else
        y[to] = OPERATION::result(all);
#endif
    }
}
#endif

#if NORM
// x / sqrt(mean of squares + EPS) over the axis, which a thread holds in registers: one read, one write.
extern "C" __global__ void __launch_bounds__(128) rms_axis(const float* __restrict__ x, float* __restrict__ y) {
    const int column = blockIdx.x * 128 + threadIdx.x;
    if (column >= INNER) {
        return;
    }
    const long long first = (long long)blockIdx.y * LENGTH * INNER + column;
    float values[LENGTH];
#pragma unroll
    for (int i = 0; i < LENGTH; i++) {
        values[i] = load1(x + first + (long long)i * INNER);
    }
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < LENGTH; i++) {
        squares += values[i] * values[i];
    }
    const float root = sqrtf(squares * (1.0f / LENGTH) + EPS), reciprocal = 1.0f / root;
#pragma unroll
    for (int i = 0; i < LENGTH; i++) {
        store1(y + first + (long long)i * INNER, quotient(values[i], root, reciprocal));
    }
}
#endif
