// Element types and their conversions, without the toolkit's headers: a kernel then compiles with nothing but NVRTC,
// and several times faster.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

struct f16 {
    u16 bits;
};
struct bf16 {
    u16 bits;
};
// E4M3: four bits of exponent, three of mantissa, up to 448, no infinities.
struct e4m3 {
    u8 bits;
};
typedef float f32;

__device__ __forceinline__ u32 bits_of(float value) { return __float_as_uint(value); }
__device__ __forceinline__ u32 bits_of(f16 value) { return value.bits; }
__device__ __forceinline__ u32 bits_of(bf16 value) { return value.bits; }

__device__ __forceinline__ bool is_finite(float value) { return (__float_as_uint(value) & 0x7f800000u) != 0x7f800000u; }

__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(f16 value) {
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
    return result;
}
__device__ __forceinline__ float to_float(bf16 value) { return __uint_as_float(u32(value.bits) << 16); }
__device__ __forceinline__ float to_float(e4m3 value) {
#if __CUDA_ARCH__ >= 890
    u32 pair;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(u16(value.bits)));
    return to_float(f16{u16(pair)});
#else
    // The exponent's bias is 120 higher in a float: a product raises it, of small numbers as well, which have no
    // leading one.
    float size = __uint_as_float(u32(value.bits & 0x7f) << 20) * __int_as_float(0x7b800000);
    if ((value.bits & 0x7f) == 0x7f) size = __int_as_float(0x7fffffff);
    return value.bits & 0x80 ? -size : size;
#endif
}
__device__ __forceinline__ float to_float(u8 value) { return float(value); }
__device__ __forceinline__ float to_float(i32 value) { return float(value); }

// A float as another type, rounded to the nearest, ties to even. Integers saturate, and NaN becomes 0; e4m3 saturates.
template <class T>
__device__ __forceinline__ T from_float(float value);
template <>
__device__ __forceinline__ float from_float<float>(float value) {
    return value;
}
template <>
__device__ __forceinline__ f16 from_float<f16>(float value) {
    f16 result;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
    return result;
}
template <>
__device__ __forceinline__ bf16 from_float<bf16>(float value) {
    bf16 result;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
#else
    u32 bits = __float_as_uint(value);
    // A NaN keeps its sign and stays a NaN; rounding could carry it into an infinity.
    bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    result.bits = nan ? u16(bits >> 16 | 0x40u) : u16((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
#endif
    return result;
}
// Two floats as two e4m3, the first in the lower byte.
__device__ __forceinline__ u16 pack2_e4m3(float first, float second) {
    u16 result;
#if __CUDA_ARCH__ >= 890
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(result) : "f"(second), "f"(first));
#else
    float both[2] = {first, second};
    result = 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        u32 bits = __float_as_uint(both[i]), rounded;
        float size = fabsf(both[i]);
        if (size != size)
            rounded = 0x7f;
        else if (size >= 448.0f)
            rounded = 0x7e;
        else if (size < 0.015625f)
            rounded = __float2uint_rn(size * 512.0f);
        else
            rounded = ((bits & 0x7fffffffu) + 0x7ffffu + (bits >> 20 & 1u) >> 20) - (120u << 3);
        result |= u16((rounded | (bits >> 24 & 0x80u)) << 8 * i);
    }
#endif
    return result;
}
template <>
__device__ __forceinline__ e4m3 from_float<e4m3>(float value) {
    return e4m3{u8(pack2_e4m3(value, 0.0f))};
}
template <>
__device__ __forceinline__ u8 from_float<u8>(float value) {
    // The conversion alone saturates to 32 bits.
    return u8(__float2uint_rn(fminf(fmaxf(value, 0.0f), 255.0f)));
}
template <>
__device__ __forceinline__ i32 from_float<i32>(float value) {
    return value != value ? 0 : __float2int_rn(value);
}

// Two floats as two 16-bit numbers in a word, the first in its lower half.
template <class T>
__device__ __forceinline__ u32 pack2(float first, float second) {
    return u32(from_float<T>(first).bits) | u32(from_float<T>(second).bits) << 16;
}
#if __CUDA_ARCH__ >= 800
template <>
__device__ __forceinline__ u32 pack2<f16>(float first, float second) {
    u32 result;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(second), "f"(first));
    return result;
}
template <>
__device__ __forceinline__ u32 pack2<bf16>(float first, float second) {
    u32 result;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(second), "f"(first));
    return result;
}
#endif

// N neighbours, aligned so that they are read and written as one.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
    T lane[N];
};

// How many elements of a type one access of 16 bytes moves.
template <class T>
struct Wide {
    static constexpr int count = 16 / sizeof(T);
};

// N neighbours as floats. `from` is aligned to them all.
template <int N, class T>
__device__ __forceinline__ void load(float (&to)[N], const T *from) {
    Pack<T, N> pack = *reinterpret_cast<const Pack<T, N> *>(from);
#pragma unroll
    for (int i = 0; i < N; i++) to[i] = to_float(pack.lane[i]);
}

// Eight halves to global memory, in one instruction: left to itself, the compiler stores them one by one if sums come from
// tensor cores, which is eight times the traffic.
template <class T>
__device__ __forceinline__ void store_words(T *to, const u32 (&words)[4]) {
    asm volatile("{ .reg .u64 a; cvta.to.global.u64 a, %0; st.global.v4.u32 [a], {%1, %2, %3, %4}; }" ::"l"(to),
                 "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]));
}

// The other way, to global memory.
template <int N, class T>
__device__ __forceinline__ void store(T *to, const float (&from)[N]) {
    if constexpr (sizeof(T) == 2 && N % 8 == 0) {
#pragma unroll
        for (int i = 0; i < N; i += 8) {
            const u32 words[4] = {pack2<T>(from[i], from[i + 1]), pack2<T>(from[i + 2], from[i + 3]),
                                  pack2<T>(from[i + 4], from[i + 5]), pack2<T>(from[i + 6], from[i + 7])};
            store_words(to + i, words);
        }
        return;
    }
    Pack<T, N> pack;
#pragma unroll
    for (int i = 0; i < N; i++) pack.lane[i] = from_float<T>(from[i]);
    *reinterpret_cast<Pack<T, N> *>(to) = pack;
}
// Stores eight 16-bit numbers, and leaves what was stored.
template <class T>
__device__ __forceinline__ void store_rounded(T *to, float (&values)[8]) {
    u32 words[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        words[i] = pack2<T>(values[2 * i], values[2 * i + 1]);
        values[2 * i] = to_float(T{u16(words[i])});
        values[2 * i + 1] = to_float(T{u16(words[i] >> 16)});
    }
    store_words(to, words);
}
template <int N>
__device__ __forceinline__ void store(e4m3 *to, const float (&from)[N]) {
    Pack<e4m3, N> pack;
#pragma unroll
    for (int i = 0; i < N; i += 2) {
        u16 pair = pack2_e4m3(from[i], i + 1 < N ? from[i + 1] : 0.0f);
        pack.lane[i].bits = u8(pair);
        if (i + 1 < N) pack.lane[i + 1].bits = u8(pair >> 8);
    }
    *reinterpret_cast<Pack<e4m3, N> *>(to) = pack;
}
