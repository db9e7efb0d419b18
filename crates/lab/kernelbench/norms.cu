// Norms over sets that are larger than the L2 cache, or whose numbers have weights of their own: x is [SEGMENTS][SETS][SEGMENT], and a set is all
// that has the same second index. `moments_of` leaves the mean and the sum of squared deviations of each slice, `moments_together` merges a
// set's, and the result is a pass like those of elementwise.cu. The limit is memory: 12 bytes a number.
#include "common.cuh"

#define THREADS 256
#define SET (SEGMENT * SEGMENTS)

__device__ inline long long place(int set, int at) {
    return ((long long)(at / SEGMENT) * SETS + set) * SEGMENT + at % SEGMENT;
}

// Moments of disjoint parts, after Chan, Golub and LeVeque. Means of squares instead would lose digits if the mean is large.
struct Moments {
    float count, mean, squares;
    __device__ inline void merge(float other_count, float other_mean, float other_squares) {
        const float all = count + other_count;
        if (other_count == 0.0f) {
            return;
        }
        const float delta = other_mean - mean, share = other_count / all;
        mean += delta * share;
        squares += other_squares + delta * delta * count * share;
        count = all;
    }
};

__device__ inline Moments merged(Moments own, float (*scratch)[3]) {
#pragma unroll
    for (int offset = WARP / 2; offset > 0; offset /= 2) {
        const float count = __shfl_xor_sync(FULL, own.count, offset);
        const float mean = __shfl_xor_sync(FULL, own.mean, offset);
        const float squares = __shfl_xor_sync(FULL, own.squares, offset);
        own.merge(count, mean, squares);
    }
    const int warp = threadIdx.x / WARP;
    if (threadIdx.x % WARP == 0) {
        scratch[warp][0] = own.count, scratch[warp][1] = own.mean, scratch[warp][2] = own.squares;
    }
    __syncthreads();
    Moments all = {scratch[0][0], scratch[0][1], scratch[0][2]};
#pragma unroll
    for (int i = 1; i < THREADS / WARP; i++) {
        all.merge(scratch[i][0], scratch[i][1], scratch[i][2]);
    }
    return all;
}

#define HELD (4 * VECTOR)

extern "C" __global__ void __launch_bounds__(THREADS) moments_of(const float* __restrict__ x, float* __restrict__ moments) {
    __shared__ float scratch[THREADS / WARP][3];
    const int set = blockIdx.y;
    const int begin = blockIdx.x * SLICE, end = min(begin + SLICE, SET);
    Moments own = {0.0f, 0.0f, 0.0f};
    for (int at = begin; at < end; at += THREADS * HELD) {
        float values[HELD];
        float count = 0.0f;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int from = at + (i * THREADS + (int)threadIdx.x) * VECTOR;
#if VECTOR == 4
            float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (from < end) {
                v = load4(x + place(set, from));
            }
            values[4 * i] = v.x, values[4 * i + 1] = v.y, values[4 * i + 2] = v.z, values[4 * i + 3] = v.w;
#else
            values[i] = from < end ? x[place(set, from)] : 0.0f;
#endif
            count += from < end ? (float)VECTOR : 0.0f;
        }
#if CENTRED
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            sum += values[i];
        }
        const float mean = count > 0.0f ? sum / count : 0.0f;
        float squares = 0.0f;
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            const bool there = at + (i / VECTOR * THREADS + (int)threadIdx.x) * VECTOR < end;
            const float deviation = values[i] - mean;
            squares += there ? deviation * deviation : 0.0f;
        }
        own.merge(count, mean, squares);
#else
        float squares = 0.0f;
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            squares = fmaf(values[i], values[i], squares);
        }
        own.count += count, own.squares += squares;
#endif
    }
    own = merged(own, scratch);
    if (threadIdx.x == 0) {
        float* to = moments + 2 * ((long long)set * PARTS + blockIdx.x);
        to[0] = own.mean, to[1] = own.squares;
    }
}

// A set's mean, and what its numbers are multiplied by; without a mean, what they are divided by and its reciprocal.
extern "C" __global__ void __launch_bounds__(THREADS) moments_together(const float* __restrict__ moments, float* __restrict__ norm) {
    __shared__ float scratch[THREADS / WARP][3];
    const int set = blockIdx.x;
    Moments own = {0.0f, 0.0f, 0.0f};
#pragma unroll 8
    for (int part = threadIdx.x; part < PARTS; part += THREADS) {
        const float2 from = reinterpret_cast<const float2*>(moments)[set * PARTS + part];
        own.merge((float)min(SLICE, SET - part * SLICE), from.x, from.y);
    }
    own = merged(own, scratch);
    if (threadIdx.x == 0) {
#if CENTRED
        norm[2 * set] = own.mean, norm[2 * set + 1] = rsqrtf(own.squares / (float)SET + EPS);
#else
        const float divisor = sqrtf(own.squares);
        norm[2 * set] = divisor, norm[2 * set + 1] = 1.0f / divisor;
#endif
    }
}

__device__ inline float normal(float x, float2 norm) {
#if CENTRED
    return (x - norm.x) * norm.y;
#else
    return quotient(x, norm.x, norm.y);
#endif
}

#if AFFINE == 2
// Each number of a set has a weight and a bias, which all sets share: they are read once.
extern "C" __global__ void __launch_bounds__(THREADS) normalise(const float* __restrict__ x, const float* __restrict__ norms,
    const float* __restrict__ weight, const float* __restrict__ bias, float* __restrict__ y) {
    const int at = (blockIdx.x * THREADS + (int)threadIdx.x) * VECTOR;
    if (at >= SEGMENT) {
        return;
    }
#if VECTOR == 4
    const float4 w = *reinterpret_cast<const float4*>(weight + at), b = *reinterpret_cast<const float4*>(bias + at);
#pragma unroll 4
    for (int set = blockIdx.y * TOGETHER; set < min(SETS, (int)(blockIdx.y + 1) * TOGETHER); set++) {
        const long long from = (long long)set * SEGMENT + at;
        const float4 v = load4(x + from);
        const float2 norm = reinterpret_cast<const float2*>(norms)[set];
        store4(y + from, make_float4(fmaf(normal(v.x, norm), w.x, b.x), fmaf(normal(v.y, norm), w.y, b.y),
            fmaf(normal(v.z, norm), w.z, b.z), fmaf(normal(v.w, norm), w.w, b.w)));
    }
#else
    for (int set = blockIdx.y * TOGETHER; set < min(SETS, (int)(blockIdx.y + 1) * TOGETHER); set++) {
        const long long from = (long long)set * SEGMENT + at;
        y[from] = fmaf(normal(x[from], reinterpret_cast<const float2*>(norms)[set]), weight[at], bias[at]);
    }
#endif
}
#else
extern "C" __global__ void __launch_bounds__(THREADS) normalise(const float* __restrict__ x, const float* __restrict__ norms,
    const float* __restrict__ weight, const float* __restrict__ bias, float* __restrict__ y) {
    const int at = (blockIdx.x * THREADS + (int)threadIdx.x) * VECTOR;
    if (at >= SEGMENT) {
        return;
    }
    const int set = blockIdx.y % SETS;
    const long long from = (long long)blockIdx.y * SEGMENT + at;
#if AFFINE
    const float w = weight[set], b = bias[set];
#define NORMAL(v) fmaf(normal(v, norm), w, b)
#else
#define NORMAL(v) normal(v, norm)
#endif
#if VECTOR == 4
    const float4 v = load4(x + from);
    const float2 norm = reinterpret_cast<const float2*>(norms)[set];
    store4(y + from, make_float4(NORMAL(v.x), NORMAL(v.y), NORMAL(v.z), NORMAL(v.w)));
#else
    const float2 norm = reinterpret_cast<const float2*>(norms)[set];
    y[from] = NORMAL(x[from]);
#endif
}
#endif
