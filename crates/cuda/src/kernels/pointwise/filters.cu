// Filters in e4m3: a block multiplies those that share a factor, by which the largest weight becomes 448.
#include "specialisation.cuh"
#include "grid.cuh"
#include "numbers.cuh"
#include "reduce.cuh"

constexpr int threads = 256;

extern "C" __global__ void __launch_bounds__(threads)
    quantise_filters(e4m3 *y, float *scale, const TYPE *x, i64 number, i64 blocks, i64 length, float smallest,
                     float activation) {
    wait_for_launch_before();
    __shared__ float partial[32];
    // Filters of one block after another: the factor is shared by those at the same place of each.
    const i64 stride = number * length, all = blocks * stride;
    float largest = 0.0f, value[VECTOR];
    for (i64 filter = blockIdx.x * length; filter < all; filter += stride)
        for (i64 i = threadIdx.x * VECTOR; i < length; i += threads * VECTOR) {
            load(value, x + filter + i);
#pragma unroll
            for (int k = 0; k < VECTOR; k++) largest = fmaxf(largest, fabsf(value[k]));
        }
    largest = block_max(largest, partial);
    const bool there = largest >= smallest;
    const float factor = there ? 448.0f / largest : 0.0f;
    for (i64 filter = blockIdx.x * length; filter < all; filter += stride)
        for (i64 i = threadIdx.x * VECTOR; i < length; i += threads * VECTOR) {
            load(value, x + filter + i);
#pragma unroll
            for (int k = 0; k < VECTOR; k++) value[k] *= factor;
            store(y + filter + i, value);
        }
    if (threadIdx.x == 0) scale[blockIdx.x] = there ? largest / 448.0f * activation : 0.0f;
}
