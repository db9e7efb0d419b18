// Powers of two on the FMA units, beside those of the exponential units.
#pragma once
#include "numbers.cuh"

// 2 to the power of x, which is less than 127, with a relative error of 3e-6. Of -inf it is zero, of NaN it is NaN.
__device__ __forceinline__ float exp2_polynomial(float x) {
    float bounded;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(bounded) : "f"(x), "f"(-127.0f));
    // The last bit of a number between 2^23 and 2^24 is 1: the sum is rounded to an integer, which stands in the low bits.
    const float shifted = __fadd_rn(bounded, 12582912.0f);
    const float fraction = __fadd_rn(bounded, -__fadd_rn(shifted, -12582912.0f));
    // From -1/2 to 1/2: of the least relative error among polynomials of this degree with 1 at 0, so that whole powers are exact. One
    // degree less would do for weights of bf16, but not for the logarithm of their sum.
    float power = fmaf(fraction, 9.582852944731712e-3f, 5.5906426161527634e-2f);
    power = fmaf(fraction, power, 2.4024099111557007e-1f);
    power = fmaf(fraction, power, 6.931241750717163e-1f);
    power = fmaf(fraction, power, 1.0f);
    // The exponent's bits alone, and a product: a NaN has to come through.
    return power * __uint_as_float((__float_as_uint(shifted) << 23) + 0x3f800000u);
}
