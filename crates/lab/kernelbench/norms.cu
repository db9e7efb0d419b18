// Norms over sets that no cluster can hold. `moments_of` leaves the mean and the sum of squared deviations of each slice,
// `normalise` merges a set's moments and writes the result. Both run over the sets in turns of a few: what the first has read
// is still in the L2 cache when the second reads it, so memory sees one read and one write. A set that is larger than the cache is
// normalised from its end, where its most recent numbers are.
#include "common.cuh"

#define THREADS 256

__device__ inline long long place(int set, int at) {
    return (long long)set * BASE + (long long)(at / SEGMENT) * STRIDE + at % SEGMENT;
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

#define EACH (4 * VECTOR)

extern "C" __global__ void __launch_bounds__(THREADS) moments_of(const float* __restrict__ x, float* __restrict__ moments,
    const float*, const float*, float*, int first) {
    __shared__ float scratch[THREADS / WARP][3];
    const int set = first + blockIdx.y;
    const int begin = blockIdx.x * SLICE, end = min(begin + SLICE, SET);
    Moments own = {0.0f, 0.0f, 0.0f};
    for (int at = begin; at < end; at += THREADS * EACH) {
        float values[EACH];
        float count = 0.0f;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int from = at + (i * THREADS + (int)threadIdx.x) * VECTOR;
#if VECTOR == 4
            float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (from < end) {
                v = *reinterpret_cast<const float4*>(x + place(set, from));
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
        for (int i = 0; i < EACH; i++) {
            sum += values[i];
        }
        const float mean = count > 0.0f ? sum / count : 0.0f;
#else
        const float mean = 0.0f;
#endif
        float squares = 0.0f;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const bool there = at + (i / VECTOR * THREADS + (int)threadIdx.x) * VECTOR < end;
            const float deviation = values[i] - mean;
            squares += there ? deviation * deviation : 0.0f;
        }
        own.merge(count, mean, squares);
    }
    own = merged(own, scratch);
    if (threadIdx.x == 0) {
        float* to = moments + 2 * ((long long)set * PARTS + blockIdx.x);
        to[0] = own.mean, to[1] = own.squares;
    }
}

// The channel of a number of a set.
__device__ inline int channel_of(int set, int at) {
    return (set * (SEGMENT / SPATIAL) + at % SEGMENT / SPATIAL) % CHANNELS;
}

extern "C" __global__ void __launch_bounds__(THREADS) normalise(const float* __restrict__ x, const float* __restrict__ moments,
    const float* __restrict__ weight, const float* __restrict__ bias, float* __restrict__ y, int first) {
    __shared__ float scratch[THREADS / WARP][3];
    const int set = first + blockIdx.y;
    Moments own = {0.0f, 0.0f, 0.0f};
    for (int part = threadIdx.x; part < PARTS; part += THREADS) {
        const float* from = moments + 2 * ((long long)set * PARTS + part);
        own.merge((float)min(SLICE, SET - part * SLICE), from[0], from[1]);
    }
    own = merged(own, scratch);
#if CENTRED
    const float mean = own.mean, factor = rsqrtf(own.squares / (float)SET + EPS);
#else
    const float divisor = sqrtf(own.squares);
#endif
    const int slice = PARTS - 1 - blockIdx.x;
    const int begin = slice * SLICE, end = min(begin + SLICE, SET);
    for (int at = begin + (int)threadIdx.x * VECTOR; at < end; at += THREADS * EACH) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int from = at + i * THREADS * VECTOR;
            if (from >= end) {
                break;
            }
            const long long offset = place(set, from);
#if AFFINE == 1
            const int channel = channel_of(set, from);
            const float slope = weight[channel] * factor, shift = bias[channel];
#define NORMAL(v, k) fmaf(v - mean, slope, shift)
#elif AFFINE == 2
#define NORMAL(v, k) fmaf((v - mean) * factor, w.k, b.k)
#elif CENTRED
#define NORMAL(v, k) ((v - mean) * factor)
#else
#define NORMAL(v, k) (v / divisor)
#endif
#if VECTOR == 4
#if AFFINE == 2
            const float4 w = *reinterpret_cast<const float4*>(weight + from), b = *reinterpret_cast<const float4*>(bias + from);
#endif
            const float4 v = load4(x + offset);
            store4(y + offset, make_float4(NORMAL(v.x, x), NORMAL(v.y, y), NORMAL(v.z, z), NORMAL(v.w, w)));
#else
#if AFFINE == 2
            const float1 w = make_float1(weight[from]), b = make_float1(bias[from]);
#endif
            __stcs(y + offset, NORMAL(x[offset], x));
#endif
        }
    }
}
