// y = f(x) for each number. The limit is memory: 8 bytes a number. A thread has one vector of 16 bytes: blocks are short, so that those that read
// and those that write are mixed, and 2048 threads on a multiprocessor have 32 KB in flight. EACH is how many vectors a thread has.
#include "common.cuh"

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

struct Scale { static __device__ float apply(float x) { return x * SCALE; } };
struct Relu { static __device__ float apply(float x) { return x < 0.0f ? 0.0f : x; } };
struct LeakyRelu { static __device__ float apply(float x) { return x > 0.0f ? x : x * SCALE; } };
struct Sigmoid { static __device__ float apply(float x) { return sigmoid(x); } };
struct Tanh { static __device__ float apply(float x) { return tanhf(x); } };
struct Swish { static __device__ float apply(float x) { return x / (1.0f + expf(-x)); } };
struct Gelu { static __device__ float apply(float x) { return 0.5f * x * (1.0f + erff(x * 0.707106781186547524f)); } };
struct Selu {
    static __device__ float apply(float x) {
        const float alpha = 1.6732632423543772848f, scale = 1.0507009873554804934f;
        return x > 0.0f ? scale * x : scale * alpha * expm1f(x);
    }
};
struct HardSigmoid { static __device__ float apply(float x) { return fminf(fmaxf(x + 3.0f, 0.0f), 6.0f) * (1.0f / 6.0f); } };
struct Softplus { static __device__ float apply(float x) { return x > 20.0f ? x : log1pf(expf(x)); } };
struct Softsign { static __device__ float apply(float x) { return x / (1.0f + fabsf(x)); } };
struct Elu { static __device__ float apply(float x) { return x > 0.0f ? x : SCALE * expm1f(x); } };
struct HardTanh { static __device__ float apply(float x) { return fminf(fmaxf(x, -1.0f), 1.0f); } };
struct GeluTanh {
    static __device__ float apply(float x) {
        const float inner = 0.797884560802865356f * (x + 0.044715f * x * x * x);
        return 0.5f * x * (1.0f + tanhf(inner));
    }
};

#define VECTORS ((long long)COUNT / 4)

__device__ inline float4 applied(float4 v) {
    return make_float4(OPERATION::apply(v.x), OPERATION::apply(v.y), OPERATION::apply(v.z), OPERATION::apply(v.w));
}

extern "C" __global__ void __launch_bounds__(THREADS) elementwise(const float* __restrict__ x, float* __restrict__ y) {
    const long long first = (long long)blockIdx.x * (EACH * THREADS) + threadIdx.x;
    if (first + (EACH - 1) * THREADS < VECTORS) {
        float4 v[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            v[i] = load4(x + 4 * (first + i * THREADS));
        }
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            store4(y + 4 * (first + i * THREADS), applied(v[i]));
        }
        return;
    }
    for (int i = 0; i < EACH; i++) {
        const long long vector = first + i * THREADS;
        for (long long at = 4 * vector; at < 4 * vector + 4 && at < COUNT; at++) {
            y[at] = OPERATION::apply(x[at]);
        }
    }
}
