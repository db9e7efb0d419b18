// Softmax and norms of long rows with one read and one write. A row does not fit into one multiprocessor (393216 numbers are
// 1.5 MB), so a cluster of up to eight blocks keeps it in registers, and the blocks exchange their sums through
// distributed shared memory. Reading twice instead costs half as much again: the limit is memory, 8 bytes a number.
#include "common.cuh"

// What each block knows of its part of the row: its maximum (or its mean) and its sum (or that of squared deviations).
__shared__ float exchanged[2];
__shared__ float scratch[WARP];

#if CLUSTER > 1
__device__ inline void cluster_arrive_and_wait() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ inline float of_block(const float* own, unsigned block) {
    unsigned address;
    asm("{\n.reg .u64 a;\ncvta.to.shared.u64 a, %1;\ncvt.u32.u64 %0, a;\n}" : "=r"(address) : "l"(own));
    float value;
    asm volatile("{\n.reg .u32 r;\nmapa.shared::cluster.u32 r, %1, %2;\nld.shared::cluster.f32 %0, [r];\n}"
                 : "=f"(value) : "r"(address), "r"(block) : "memory");
    return value;
}
#endif

// The sum over the row of `value`, each number of which was first multiplied by exp(own maximum - maximum).
struct Softmax {
    static constexpr bool centred = true;
    static constexpr bool moments = false;
    static __device__ float term(float x, float maximum) { return expf(x - maximum); }
    static __device__ float result(float x, float maximum, float, float factor) { return expf(x - maximum) * factor; }
    static __device__ float factor(float sum) { return 1.0f / sum; }
};
struct LogSoftmax {
    static constexpr bool centred = true;
    static constexpr bool moments = false;
    static __device__ float term(float x, float maximum) { return expf(x - maximum); }
    static __device__ float result(float x, float maximum, float, float factor) { return x - maximum - factor; }
    static __device__ float factor(float sum) { return logf(sum); }
};
// x / mean |x|.
struct L1 {
    static constexpr bool centred = false;
    static constexpr bool moments = false;
    static __device__ float term(float x, float) { return fabsf(x); }
    static __device__ float result(float x, float, float divisor, float) { return x / divisor; }
    static __device__ float factor(float sum) { return sum / LENGTH; }
};
struct L2 {
    static constexpr bool centred = false;
    static constexpr bool moments = false;
    static __device__ float term(float x, float) { return x * x; }
    static __device__ float result(float x, float, float divisor, float) { return x / divisor; }
    static __device__ float factor(float sum) { return sqrtf(sum); }
};

// (x - mean) / sqrt(variance + EPS). The moments are those of the parts, merged: squares of numbers lose digits if the mean is large.
struct Instance {
    static constexpr bool centred = false;
    static constexpr bool moments = true;
    static __device__ float term(float x, float) { return x; }
    static __device__ float result(float x, float mean, float, float factor) { return (x - mean) * factor; }
    static __device__ float factor(float squares) { return rsqrtf(squares / LENGTH + EPS); }
};

#if CLUSTER > 1
extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1)
#else
extern "C" __global__ void __launch_bounds__(THREADS)
#endif
rows(const float* __restrict__ x, float* __restrict__ y) {
    const unsigned rank = blockIdx.x % CLUSTER;
    const long long row = blockIdx.x / CLUSTER;
    const int begin = (int)rank * PART;
    const int count = min(LENGTH - begin, PART);
    const float* from = x + row * LENGTH + begin;
    float* to = y + row * LENGTH + begin;
    // What does not fit into registers is in shared memory; every index is known when this is compiled.
    float values[REGISTERS];
#if STEPS * VECTOR > REGISTERS
    extern __shared__ float4 beyond[];
    float* overflow = reinterpret_cast<float*>(beyond) + threadIdx.x;
#define HELD(i) ((i) < REGISTERS ? values[(i) < REGISTERS ? (i) : 0] : overflow[((i) - REGISTERS) * THREADS])
#define HOLD(i, v) \
    if ((i) < REGISTERS) { \
        values[(i) < REGISTERS ? (i) : 0] = v; \
    } else { \
        overflow[((i) - REGISTERS) * THREADS] = v; \
    }
#else
#define HELD(i) values[i]
#define HOLD(i, v) values[i] = v;
#endif

#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        const int at = (step * THREADS + (int)threadIdx.x) * VECTOR;
#if VECTOR == 4
        float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (at < count) {
            v = load4(from + at);
        }
        HOLD(4 * step, v.x) HOLD(4 * step + 1, v.y) HOLD(4 * step + 2, v.z) HOLD(4 * step + 3, v.w)
#else
        HOLD(step, at < count ? __ldcs(from + at) : 0.0f)
#endif
    }

    float maximum = 0.0f;
    if (OPERATION::centred) {
        maximum = Max::identity();
#pragma unroll
        for (int i = 0; i < STEPS * VECTOR; i++) {
            const int at = (i / VECTOR * THREADS + (int)threadIdx.x) * VECTOR + i % VECTOR;
            maximum = at < count ? Max::combine(maximum, HELD(i)) : maximum;
        }
        maximum = block_all<Max, THREADS>(maximum, scratch);
    }
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < STEPS * VECTOR; i++) {
        const int at = (i / VECTOR * THREADS + (int)threadIdx.x) * VECTOR + i % VECTOR;
        sum += at < count ? OPERATION::term(HELD(i), maximum) : 0.0f;
    }
    sum = block_all<Sum, THREADS>(sum, scratch);
    if (OPERATION::moments) {
        // The second pass is over registers.
        maximum = count > 0 ? sum / (float)count : 0.0f;
        sum = 0.0f;
#pragma unroll
        for (int i = 0; i < STEPS * VECTOR; i++) {
            const int at = (i / VECTOR * THREADS + (int)threadIdx.x) * VECTOR + i % VECTOR;
            const float deviation = HELD(i) - maximum;
            sum += at < count ? deviation * deviation : 0.0f;
        }
        sum = block_all<Sum, THREADS>(sum, scratch);
    }

#if CLUSTER > 1
    // One exchange for both: a block's sum is brought to the maximum of the row afterwards.
    if (threadIdx.x == 0) {
        exchanged[0] = maximum;
        exchanged[1] = sum;
    }
    cluster_arrive_and_wait();
    float maxima[CLUSTER], whole = 0.0f;
#pragma unroll
    for (int block = 0; block < CLUSTER; block++) {
        maxima[block] = of_block(&exchanged[0], block);
        maximum = OPERATION::centred ? Max::combine(maximum, maxima[block]) : 0.0f;
    }
    float all = 0.0f, mean = 0.0f;
#pragma unroll
    for (int block = 0; block < CLUSTER; block++) {
        const float part = of_block(&exchanged[1], block);
        if (OPERATION::moments) {
            const float own = (float)max(0, min(LENGTH - block * PART, PART));
            if (own > 0.0f) {
                const float delta = maxima[block] - mean, share = own / (all + own);
                mean += delta * share;
                whole += part + delta * delta * all * share;
                all += own;
            }
            continue;
        }
        // A block without numbers has a sum of zero.
        whole += part == 0.0f ? 0.0f : OPERATION::centred ? part * expf(maxima[block] - maximum) : part;
    }
    sum = whole;
    maximum = OPERATION::moments ? mean : maximum;
    // No block leaves while another still reads its numbers.
    cluster_arrive_and_wait();
#endif

    const float factor = OPERATION::factor(sum);
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        const int at = (step * THREADS + (int)threadIdx.x) * VECTOR;
        if (at < count) {
#if VECTOR == 4
            const float v[4] = {HELD(4 * step), HELD(4 * step + 1), HELD(4 * step + 2), HELD(4 * step + 3)};
            store4(to + at, make_float4(
                OPERATION::result(v[0], maximum, factor, factor), OPERATION::result(v[1], maximum, factor, factor),
                OPERATION::result(v[2], maximum, factor, factor), OPERATION::result(v[3], maximum, factor, factor)));
#else
            __stcs(to + at, OPERATION::result(HELD(step), maximum, factor, factor));
#endif
        }
    }
}
