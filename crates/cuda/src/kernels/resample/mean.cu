// Means over axes. The members of each mean are cut into chunks. If there are several, this gives their sums, and a
// second launch adds those.
#include "specialisation.cuh"
#include "grid.cuh"
#include "numbers.cuh"

constexpr int threads = 256;

// Axes are merged and outermost first, at least one of each kind; strides are in elements. The innermost axis that
// VECTOR belongs to counts vectors.
struct Axes {
    i64 kept_extent[KEPT];
    i64 kept_stride[KEPT];
    i64 averaged_extent[AVERAGED];
    i64 averaged_stride[AVERAGED];
};

// Where the element of an index over some axes lies.
template <int rank>
__device__ __forceinline__ i64 place(INDEX index, const i64 (&extent)[rank], const i64 (&stride)[rank]) {
    i64 offset = 0;
#pragma unroll
    for (int axis = rank - 1; axis > 0; axis--) {
        INDEX outer = index / INDEX(extent[axis]);
        offset += i64(index - outer * INDEX(extent[axis])) * stride[axis];
        index = outer;
    }
    return offset + i64(index) * stride[0];
}

// A sum of many terms: of blocks of them, so that its error grows with the root of their number at most.
struct Sum {
    static constexpr int block = 64;
    float total[VECTOR] = {}, part[VECTOR] = {};
    int terms = 0;

    __device__ __forceinline__ void add(const float (&value)[VECTOR]) {
#pragma unroll
        for (int i = 0; i < VECTOR; i++) part[i] += value[i];
        if (++terms == block) close();
    }
    __device__ __forceinline__ void close() {
#pragma unroll
        for (int i = 0; i < VECTOR; i++) {
            total[i] += part[i];
            part[i] = 0.0f;
        }
        terms = 0;
    }
};

// If the innermost axis is kept: a thread for some neighbouring means of one chunk.
extern "C" __global__ void __launch_bounds__(threads)
    mean_columns(RESULT *y, const TYPE *x, Axes axes, i64 means, i64 members, i64 chunk, i64 chunks, float divisor) {
    wait_for_launch_before();
    const i64 item = i64(blockIdx.x) * threads + threadIdx.x;
    const i64 vectors = means / VECTOR, part = item / vectors, vector = item - part * vectors;
    if (part >= chunks) return;
    const TYPE *from = x + place(INDEX(vector), axes.kept_extent, axes.kept_stride);
    const i64 end = min(members, (part + 1) * chunk);
    Sum sum;
#pragma unroll 4
    for (i64 member = part * chunk; member < end; member++) {
        float value[VECTOR];
        load(value, from + place(INDEX(member), axes.averaged_extent, axes.averaged_stride));
        sum.add(value);
    }
    sum.close();
#pragma unroll
    for (int i = 0; i < VECTOR; i++) sum.total[i] /= divisor;
    store(y + part * means + vector * VECTOR, sum.total);
}

// If the innermost axis is averaged: a warp for one mean of one chunk. Members are counted in vectors.
extern "C" __global__ void __launch_bounds__(threads)
    mean_rows(RESULT *y, const TYPE *x, Axes axes, i64 means, i64 members, i64 chunk, i64 chunks, float divisor) {
    wait_for_launch_before();
    const i64 item = (i64(blockIdx.x) * threads + threadIdx.x) / 32;
    const int lane = threadIdx.x % 32;
    const i64 part = item / means, mean = item - part * means;
    // The same in a whole warp.
    if (part >= chunks) return;
    const TYPE *from = x + place(INDEX(mean), axes.kept_extent, axes.kept_stride);
    const i64 end = min(members, (part + 1) * chunk);
    Sum sum;
#pragma unroll 4
    for (i64 member = part * chunk + lane; member < end; member += 32) {
        float value[VECTOR];
        load(value, from + place(INDEX(member), axes.averaged_extent, axes.averaged_stride));
        sum.add(value);
    }
    sum.close();
    float total = 0.0f;
#pragma unroll
    for (int i = 0; i < VECTOR; i++) total += sum.total[i];
#pragma unroll
    for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(0xffffffffu, total, step);
    if (lane == 0) y[part * means + mean] = from_float<RESULT>(total / divisor);
}
