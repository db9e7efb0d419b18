// Powers of two on the FMA units, beside those of the exponential units.
#pragma once
#include "numbers.cuh"

// The polynomial for a fraction from -1/2 to 1/2: of the least relative error among those with 1 at 0, so that whole powers
// are exact. It is 1/180 of half a unit in the last place of f16, and 1/40 of that of bf16.
template <class T>
__device__ __forceinline__ float exp2_of_fraction(float fraction);
template <>
__device__ __forceinline__ float exp2_of_fraction<f16>(float fraction) {
    float power = fmaf(fraction, 9.582852944731712e-3f, 5.5906426161527634e-2f);
    power = fmaf(fraction, power, 2.4024099111557007e-1f);
    power = fmaf(fraction, power, 6.931241750717163e-1f);
    return fmaf(fraction, power, 1.0f);
}
template <>
__device__ __forceinline__ float exp2_of_fraction<bf16>(float fraction) {
    float power = fmaf(fraction, 5.500893304794811e-2f, 2.422109693288803e-1f);
    power = fmaf(fraction, power, 6.932829022407532e-1f);
    return fmaf(fraction, power, 1.0f);
}

// 2 to the power of x, which is less than 127, to be rounded to T. Of -inf it is zero, of NaN it is NaN.
template <class T>
__device__ __forceinline__ float exp2_polynomial(float x) {
    float bounded;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(bounded) : "f"(x), "f"(-127.0f));
    // The last bit of a number between 2^23 and 2^24 is 1: the sum is rounded to an integer, which stands in the low bits.
    const float shifted = __fadd_rn(bounded, 12582912.0f);
    const float fraction = __fadd_rn(bounded, -__fadd_rn(shifted, -12582912.0f));
    // The exponent's bits alone: a NaN has to come through.
    const float whole = __uint_as_float((__float_as_uint(shifted) << 23) + 0x3f800000u);
    return exp2_of_fraction<T>(fraction) * whole;
}
