// Losses. The limit is memory: each number is read once. Every block leaves its sum, and `together` adds those up in f64, always in
// the same order, so that the result is the same in every run. Additions to one word by atomics would not be.
#include "common.cuh"

#define THREADS 256

// What a pair of numbers adds to the sum.
struct Squared { static __device__ float term(float a, float b) { return (a - b) * (a - b); } };
struct SmoothL1 {
    static __device__ float term(float a, float b) {
        const float d = fabsf(a - b);
        return d < 1.0f ? 0.5f * d * d : d - 0.5f;
    }
};
// b log(b / a). The quotient is near one for similar distributions, where the logarithm of a quotient has fewer roundings than the
// difference of two logarithms of small numbers.
struct Divergence {
    static __device__ float term(float a, float b) { return b > 0.0f ? b * logf(b / a) : 0.0f; }
};
struct Hinge { static __device__ float term(float a, float b) { return fmaxf(1.0f - a * b, 0.0f); } };

// The second operand: one number for each of the first, or a row that all rows share.
#if SHARED_ROW
#define PLACE(at) ((at) % COLUMNS)
#define SECOND(b, at) (*reinterpret_cast<const float4*>(b + PLACE(at)))
// Whether a thread always has the same place in it.
#define SAME_PLACE (BLOCKS * THREADS * VECTOR % COLUMNS == 0)
#else
#define PLACE(at) (at)
#define SECOND(b, at) read4(b + (at))
#define SAME_PLACE false
#endif

extern "C" __global__ void __launch_bounds__(THREADS) terms(const float* __restrict__ a, const float* __restrict__ b,
    float* __restrict__ partial) {
    __shared__ float scratch[WARP];
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    const long long step = (long long)gridDim.x * THREADS * VECTOR;
    const long long first = ((long long)blockIdx.x * THREADS + threadIdx.x) * VECTOR;
#if VECTOR == 4
    // Four vectors of each operand are in flight.
    long long at = first;
    const float4 same = SAME_PLACE ? SECOND(b, first) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (; at + 3 * step < (long long)COUNT; at += 4 * step) {
        float4 v[4], w[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            v[i] = read4(a + at + i * step);
            w[i] = SAME_PLACE ? same : SECOND(b, at + i * step);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            sums[0] += OPERATION::term(v[i].x, w[i].x), sums[1] += OPERATION::term(v[i].y, w[i].y);
            sums[2] += OPERATION::term(v[i].z, w[i].z), sums[3] += OPERATION::term(v[i].w, w[i].w);
        }
    }
    for (; at < (long long)COUNT; at += step) {
        const float4 v = read4(a + at), w = SAME_PLACE ? same : SECOND(b, at);
        sums[0] += OPERATION::term(v.x, w.x), sums[1] += OPERATION::term(v.y, w.y);
        sums[2] += OPERATION::term(v.z, w.z), sums[3] += OPERATION::term(v.w, w.w);
    }
#else
    for (long long at = first; at < (long long)COUNT; at += step) {
        sums[0] += OPERATION::term(a[at], b[PLACE(at)]);
    }
#endif
    const float sum = block_all<Sum, THREADS>((sums[0] + sums[1]) + (sums[2] + sums[3]), scratch);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sum;
    }
}

// log(sum of exponentials) - the target's number, for a row, which is read once and stays in registers.
#define HELD ((COLUMNS + THREADS - 1) / THREADS)

extern "C" __global__ void __launch_bounds__(THREADS) cross_entropy(const float* __restrict__ x,
    const long long* __restrict__ targets, float* __restrict__ partial) {
    __shared__ float scratch[WARP];
    const float* row = x + (long long)blockIdx.x * COLUMNS;
    float values[HELD], maximum = Max::identity();
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        const int at = i * THREADS + threadIdx.x;
        values[i] = at < COLUMNS ? load1(row + at) : Max::identity();
    }
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        maximum = Max::combine(maximum, values[i]);
    }
    maximum = block_all<Max, THREADS>(maximum, scratch);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        sum += __expf(values[i] - maximum);
    }
    sum = block_all<Sum, THREADS>(sum, scratch);
    if (threadIdx.x == 0) {
        const long long target = targets[blockIdx.x];
        // A target beyond the classes is an error of the caller; it must not read other memory.
        const float chosen = target >= 0 && target < COLUMNS ? row[target] : 0.0f;
        partial[blockIdx.x] = logf(sum) + (maximum - chosen);
    }
}

// max(|a - p| - |a - n| + margin, 0) for a row, with distances as PyTorch has them: 1e-6 is added to every difference.
extern "C" __global__ void __launch_bounds__(THREADS) triplet(const float* __restrict__ anchor,
    const float* __restrict__ positive, const float* __restrict__ negative, float* __restrict__ partial) {
    __shared__ float scratch[WARP];
    const long long row = (long long)blockIdx.x * COLUMNS;
    float near = 0.0f, far = 0.0f;
#pragma unroll 4
    for (int at = threadIdx.x * VECTOR; at < COLUMNS; at += THREADS * VECTOR) {
#if VECTOR == 4
        const float4 a = read4(anchor + row + at), p = read4(positive + row + at), n = read4(negative + row + at);
        const float av[4] = {a.x, a.y, a.z, a.w}, pv[4] = {p.x, p.y, p.z, p.w}, nv[4] = {n.x, n.y, n.z, n.w};
#else
        const float av[1] = {anchor[row + at]}, pv[1] = {positive[row + at]}, nv[1] = {negative[row + at]};
#endif
#pragma unroll
        for (int i = 0; i < VECTOR; i++) {
            const float to_positive = av[i] - pv[i] + 1e-6f, to_negative = av[i] - nv[i] + 1e-6f;
            near = fmaf(to_positive, to_positive, near);
            far = fmaf(to_negative, to_negative, far);
        }
    }
    near = block_all<Sum, THREADS>(near, scratch);
    far = block_all<Sum, THREADS>(far, scratch);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = fmaxf(sqrtf(near) - sqrtf(far) + MARGIN, 0.0f);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) together(const float* __restrict__ partial, float* __restrict__ loss) {
    __shared__ double sums[WARP];
    double sum = 0.0;
#pragma unroll 8
    for (int at = threadIdx.x; at < BLOCKS; at += THREADS) {
        sum += partial[at];
    }
#pragma unroll
    for (int offset = WARP / 2; offset > 0; offset /= 2) {
        sum += __shfl_xor_sync(FULL, sum, offset);
    }
    if (threadIdx.x % WARP == 0) {
        sums[threadIdx.x / WARP] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < THREADS / WARP; warp++) {
            sum += sums[warp];
        }
        *loss = (float)(sum * (double)FACTOR);
    }
}
