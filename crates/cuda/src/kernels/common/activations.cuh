// The activations, on floats, within a few parts in a million. The exponential and the reciprocal are the chip's own
// instructions, each off by two units in the last place at most, and the exponential by one more for each unit of its
// argument. A full division would take ten instructions and a branch. Everything else is the exact function, but for
// `gelu` below -6, where it is smaller than 1e-8 and keeps fewer digits.
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
__device__ __forceinline__ float gelu_tanh(float x) {
    float inner = 0.79788456080286536f * (x + 0.044715f * x * x * x);
    return 0.5f * x * (1.0f + tanhf(inner));
}
__device__ __forceinline__ float quick_gelu(float x) { return x * sigmoid(1.702f * x); }
__device__ __forceinline__ float relu(float x) {
#if __CUDA_ARCH__ >= 800
    float result;
    asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(result) : "f"(x));
    return result;
#else
    return x != x ? x : fmaxf(x, 0.0f);
#endif
}
// x Φ(x) is what is left of x if it is positive, less |x| Φ(-|x|). The logarithm of Φ to the base of two is nearly a
// parabola: this polynomial has the least relative error from 0 to -6, 3.3e-6, and falls on from there. So the whole takes
// eleven instructions; with `erff` it would take more than twice as many.
__device__ __forceinline__ float gelu(float x) {
    float a = fminf(fabsf(x), 16.0f);
    float power = -1.83552008e-6f;
    power = power * a + 6.16124263e-5f;
    power = power * a - 9.30634017e-4f;
    power = power * a + 8.5083011e-3f;
    power = power * a - 5.39608402e-2f;
    power = power * a - 4.58463726e-1f;
    power = power * a - 1.15125125f;
    power = power * a - 0.999995285f;
    float tail;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(tail) : "f"(power));
    return relu(x) - a * tail;
}
__device__ __forceinline__ float hyperbolic_tangent(float x) { return tanhf(x); }
__device__ __forceinline__ float identity(float x) { return x; }
