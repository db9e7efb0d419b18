// The learned part of a normalisation, and what comes after the activation. SCALED and SHIFTED say which parts exist,
// QUANTISED whether the result is e4m3.
#pragma once
#include "activations.cuh"
#include "numbers.cuh"

struct Affine {
    const void *scale;
    const void *shift;
};

// A vector of factors and one of offsets, for the channels from `channel` on.
template <int N>
__device__ __forceinline__ void load_affine(float (&scale)[N], float (&shift)[N], Affine affine, i64 channel) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        scale[i] = 1.0f;
        shift[i] = 0.0f;
    }
    if (SCALED) load(scale, reinterpret_cast<const SCALE *>(affine.scale) + channel);
    if (SHIFTED) load(shift, reinterpret_cast<const SHIFT *>(affine.shift) + channel);
}

// What is stored, by the factor of a result in e4m3.
__device__ __forceinline__ float quantised(float value, float factor) { return QUANTISED ? value * factor : value; }
