// y = f(x) for each number. The limit is memory: 8 bytes a number. Each thread has four vectors of 16 bytes in flight, enough to
// fill the memory system with 2048 threads on a multiprocessor, and each warp's vectors are contiguous.
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

extern "C" __global__ void __launch_bounds__(256) elementwise(const float* __restrict__ x, float* __restrict__ y) {
    const long long first = (long long)blockIdx.x * 4 * 256 + threadIdx.x;
    if (first + 3 * 256 < VECTORS) {
        float4 v[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            v[i] = load4(x + 4 * (first + i * 256));
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            v[i] = make_float4(OPERATION::apply(v[i].x), OPERATION::apply(v[i].y), OPERATION::apply(v[i].z), OPERATION::apply(v[i].w));
            store4(y + 4 * (first + i * 256), v[i]);
        }
        return;
    }
    for (int i = 0; i < 4; i++) {
        const long long vector = first + i * 256;
        for (long long at = 4 * vector; at < 4 * vector + 4 && at < COUNT; at++) {
            y[at] = OPERATION::apply(x[at]);
        }
    }
}
