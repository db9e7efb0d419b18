// The activations, on floats, within a few parts in a million: `__expf` is off by two units in the last place and one
// more for each unit of its argument, and everything else is the exact function.
#pragma once

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + __expf(-x)); }
__device__ __forceinline__ float silu(float x) { return x / (1.0f + __expf(-x)); }
__device__ __forceinline__ float gelu(float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f)); }
__device__ __forceinline__ float gelu_tanh(float x) {
    float inner = 0.79788456080286536f * (x + 0.044715f * x * x * x);
    return 0.5f * x * (1.0f + tanhf(inner));
}
__device__ __forceinline__ float quick_gelu(float x) { return x * sigmoid(1.702f * x); }
__device__ __forceinline__ float relu(float x) { return x != x ? x : fmaxf(x, 0.0f); }
__device__ __forceinline__ float hyperbolic_tangent(float x) { return tanhf(x); }
__device__ __forceinline__ float identity(float x) { return x; }
