// The activations, on floats, within a few parts in a million. The exponential and the reciprocal are the chip's own
// instructions, each off by two units in the last place at most, and the exponential by one more for each unit of its
// argument. A full division would take ten instructions and a branch. Everything else is the exact function.
#pragma once

// e to the power of x; results below the normal numbers are zero.
__device__ __forceinline__ float fast_exp(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * 1.4426950408889634f));
    return result;
}

// 1 / x; results below the normal numbers are zero.
__device__ __forceinline__ float fast_reciprocal(float x) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

__device__ __forceinline__ float sigmoid(float x) { return fast_reciprocal(1.0f + fast_exp(-x)); }
__device__ __forceinline__ float silu(float x) { return x * sigmoid(x); }
__device__ __forceinline__ float gelu(float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f)); }
__device__ __forceinline__ float gelu_tanh(float x) {
    float inner = 0.79788456080286536f * (x + 0.044715f * x * x * x);
    return 0.5f * x * (1.0f + tanhf(inner));
}
__device__ __forceinline__ float quick_gelu(float x) { return x * sigmoid(1.702f * x); }
__device__ __forceinline__ float relu(float x) { return x != x ? x : fmaxf(x, 0.0f); }
__device__ __forceinline__ float hyperbolic_tangent(float x) { return tanhf(x); }
__device__ __forceinline__ float identity(float x) { return x; }
