// Running sums or products of rows, one block a row, with one read and one write. A block takes 4096 numbers a turn: within a warp
// lanes have neighbouring vectors, so that memory is read in whole lines, and exchange their totals by shuffles. The next turn's
// numbers are on the way while a turn is added up.
#include "common.cuh"

#define THREADS 256
#define VECTORS 4
#define TURN (THREADS * VECTORS * 4)

#if PRODUCT
#define IDENTITY 1.0f
__device__ inline float combine(float a, float b) { return a * b; }
#else
#define IDENTITY 0.0f
__device__ inline float combine(float a, float b) { return a + b; }
#endif

// The numbers at `at`, `at + 1`, … of the row as it is scanned; beyond its end there is nothing to add.
__device__ inline float4 numbers(const float* row, const unsigned char* mask, int at) {
#if VECTOR
    if (at >= LENGTH) {
        return make_float4(IDENTITY, IDENTITY, IDENTITY, IDENTITY);
    }
#if REVERSE
    const float4 w = load4(row + LENGTH - 4 - at);
    return make_float4(w.w, w.z, w.y, w.x);
#else
    float4 v = load4(row + at);
#if MASKED
    const uchar4 m = *reinterpret_cast<const uchar4*>(mask + at);
    v.x *= m.x ? 1.0f : 0.0f, v.y *= m.y ? 1.0f : 0.0f, v.z *= m.z ? 1.0f : 0.0f, v.w *= m.w ? 1.0f : 0.0f;
#endif
    return v;
#endif
#else
    float v[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int from = REVERSE ? LENGTH - 1 - at - i : at + i;
        v[i] = at + i < LENGTH ? row[from] : IDENTITY;
#if MASKED
        if (at + i < LENGTH) {
            v[i] *= mask[from] ? 1.0f : 0.0f;
        }
#endif
    }
    return make_float4(v[0], v[1], v[2], v[3]);
#endif
}

__device__ inline void keep(float* row, int at, float4 v) {
#if VECTOR
    if (at < LENGTH) {
#if REVERSE
        store4(row + LENGTH - 4 - at, make_float4(v.w, v.z, v.y, v.x));
#else
        store4(row + at, v);
#endif
    }
#else
    const float values[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (at + i < LENGTH) {
            row[REVERSE ? LENGTH - 1 - at - i : at + i] = values[i];
        }
    }
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS) scan(const float* __restrict__ x, const void* __restrict__ masks,
    float* __restrict__ y) {
    __shared__ float totals[2][THREADS / WARP];
    const float* row = x + (long long)blockIdx.x * LENGTH;
    const unsigned char* mask = (const unsigned char*)masks + (long long)blockIdx.x * LENGTH;
    float* to = y + (long long)blockIdx.x * LENGTH;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int first = warp * (VECTORS * WARP * 4) + lane * 4;
    float carry = IDENTITY;
    float4 next[VECTORS];
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        next[i] = numbers(row, mask, first + i * WARP * 4);
    }
    int parity = 0;
    for (int begin = 0; begin < LENGTH; begin += TURN, parity ^= 1) {
        float4 v[VECTORS];
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            v[i] = next[i];
            next[i] = numbers(row, mask, begin + TURN + first + i * WARP * 4);
        }
        float before[VECTORS], all = IDENTITY;
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            v[i].y = combine(v[i].x, v[i].y);
            v[i].z = combine(v[i].y, v[i].z);
            v[i].w = combine(v[i].z, v[i].w);
            float total = v[i].w;
#pragma unroll
            for (int offset = 1; offset < WARP; offset *= 2) {
                const float other = __shfl_up_sync(FULL, total, offset);
                total = lane >= offset ? combine(other, total) : total;
            }
            const float left = __shfl_up_sync(FULL, total, 1);
            before[i] = combine(all, lane > 0 ? left : IDENTITY);
            all = combine(all, __shfl_sync(FULL, total, WARP - 1));
        }
        if (lane == 0) {
            totals[parity][warp] = all;
        }
        // Two sets of totals take turns, so one barrier a turn is enough.
        __syncthreads();
        float own = carry;
#pragma unroll
        for (int i = 0; i < THREADS / WARP; i++) {
            own = i == warp ? carry : own;
            carry = combine(carry, totals[parity][i]);
        }
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            const float base = combine(own, before[i]);
#if EXCLUSIVE
            const float4 w = make_float4(base, combine(base, v[i].x), combine(base, v[i].y), combine(base, v[i].z));
#else
            const float4 w = make_float4(combine(base, v[i].x), combine(base, v[i].y), combine(base, v[i].z), combine(base, v[i].w));
#endif
            keep(to, begin + first + i * WARP * 4, w);
        }
    }
}
