// What the kernels share: vectors, and sums and extremes over a warp and a block.

#define WARP 32
#define FULL 0xffffffffu

// STREAM 1 tells the caches that each number is used once. Plain accesses are what PyTorch's own kernels have, and no slower.
#ifndef STREAM
#define STREAM 0
#endif
__device__ inline float4 load4(const float* from) {
#if STREAM
    return __ldcs(reinterpret_cast<const float4*>(from));
#else
    return *reinterpret_cast<const float4*>(from);
#endif
}
__device__ inline void store4(float* to, float4 v) {
#if STREAM
    __stcs(reinterpret_cast<float4*>(to), v);
#else
    *reinterpret_cast<float4*>(to) = v;
#endif
}
// For kernels that write next to nothing: STREAM_READS 0 makes these plain.
#ifndef STREAM_READS
#define STREAM_READS 1
#endif
__device__ inline float4 read4(const float* from) {
#if STREAM_READS
    return __ldcs(reinterpret_cast<const float4*>(from));
#else
    return *reinterpret_cast<const float4*>(from);
#endif
}
__device__ inline float load1(const float* from) {
#if STREAM
    return __ldcs(from);
#else
    return *from;
#endif
}
__device__ inline void store1(float* to, float v) {
#if STREAM
    __stcs(to, v);
#else
    *to = v;
#endif
}

struct Sum {
    static __device__ inline float identity() { return 0.0f; }
    static __device__ inline float combine(float a, float b) { return a + b; }
};
struct Max {
    static __device__ inline float identity() { return __int_as_float(0xff800000); }
    // A NaN is the result, as in PyTorch.
    static __device__ inline float combine(float a, float b) {
        float c;
        asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
        return c;
    }
};
struct Min {
    static __device__ inline float identity() { return __int_as_float(0x7f800000); }
    static __device__ inline float combine(float a, float b) {
        float c;
        asm("min.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
        return c;
    }
};

template <typename Operation>
__device__ inline float warp_all(float value) {
#pragma unroll
    for (int offset = WARP / 2; offset > 0; offset /= 2) {
        value = Operation::combine(value, __shfl_xor_sync(FULL, value, offset));
    }
    return value;
}

// The result of a block in all of its threads. BLOCK is a multiple of 32, at most 1024; `scratch` has 32 numbers.
template <typename Operation, int BLOCK>
__device__ inline float block_all(float value, float* scratch) {
    value = warp_all<Operation>(value);
    if (BLOCK == WARP) {
        return value;
    }
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    __syncthreads();
    if (lane == 0) {
        scratch[warp] = value;
    }
    __syncthreads();
    value = lane < BLOCK / WARP ? scratch[lane] : Operation::identity();
    return warp_all<Operation>(value);
}

// The quotient by a number whose reciprocal is known, rounded as a division would be, without its branches.
__device__ inline float quotient(float x, float divisor, float reciprocal) {
    const float near = x * reciprocal;
    const float corrected = fmaf(fmaf(-near, divisor, x), reciprocal, near);
    return isfinite(corrected) ? corrected : near;
}

// Two numbers that a block tells others in one word, so that nobody sees one without the other. Before that the word is NOTHING, which are not the
// bits of any number that arithmetic gives.
#define NOTHING 0xffffffffffffffffull

__device__ inline void tell(unsigned long long* to, float high, float low) {
    const unsigned long long word = (unsigned long long)__float_as_uint(high) << 32 | __float_as_uint(low);
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" : : "l"(to), "l"(word) : "memory");
}
__device__ inline unsigned long long told(const unsigned long long* from) {
    unsigned long long word;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
    return word;
}
