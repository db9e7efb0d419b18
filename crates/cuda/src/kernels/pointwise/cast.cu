// Elements as another type.
#include "specialisation.cuh"
#include "grid.cuh"
#include "numbers.cuh"

constexpr int threads = 256;

// A float becomes an integer by rounding half to even, and everything saturates. What keeps its type keeps its bits,
// and integers become bytes directly, as a float does not hold every one of them.
template <class To, class From>
struct Convert {
    static __device__ __forceinline__ To of(From x) { return from_float<To>(to_float(x)); }
};
template <class T>
struct Convert<T, T> {
    static __device__ __forceinline__ T of(T x) { return x; }
};
template <>
struct Convert<u8, i32> {
    static __device__ __forceinline__ u8 of(i32 x) { return u8(x < 0 ? 0 : x > 255 ? 255 : x); }
};

extern "C" __global__ void __launch_bounds__(threads) cast(RESULT *y, const TYPE *x, i64 count) {
    wait_for_launch_before();
    const i64 vectors = (count + VECTOR - 1) / VECTOR;
    const i64 first = i64(blockIdx.x) * (threads * UNROLL) + threadIdx.x;
    Pack<TYPE, VECTOR> value[UNROLL];
    // Everything is read before anything is written: the result may lie over the operand.
#pragma unroll
    for (int k = 0; k < UNROLL; k++) {
        i64 vector = first + k * threads;
        if (vector >= vectors) break;
        if ((vector + 1) * VECTOR <= count) {
            value[k] = reinterpret_cast<const Pack<TYPE, VECTOR> *>(x)[vector];
        } else {
#pragma unroll
            for (int i = 0; i < VECTOR; i++)
                if (vector * VECTOR + i < count) value[k].lane[i] = x[vector * VECTOR + i];
        }
    }
#pragma unroll
    for (int k = 0; k < UNROLL; k++) {
        i64 vector = first + k * threads;
        if (vector >= vectors) break;
        Pack<RESULT, VECTOR> result;
#pragma unroll
        for (int i = 0; i < VECTOR; i++) result.lane[i] = Convert<RESULT, TYPE>::of(value[k].lane[i]);
        if ((vector + 1) * VECTOR <= count) {
            reinterpret_cast<Pack<RESULT, VECTOR> *>(y)[vector] = result;
        } else {
#pragma unroll
            for (int i = 0; i < VECTOR; i++)
                if (vector * VECTOR + i < count) y[vector * VECTOR + i] = result.lane[i];
        }
    }
}
