// Softmax over rows. A row of −∞ alone has no distribution and gives zeros; a row with NaN or +∞ in it gives NaN.
#include "specialisation.cuh"
#include "grid.cuh"
#include "numbers.cuh"
#include "reduce.cuh"

#define MINUS_INFINITY __int_as_float(0xff800000)

// The exponential of how far a value is below the largest.
__device__ __forceinline__ float weight(float x, float largest) {
    // If all are −∞, the difference would be NaN.
    return x == MINUS_INFINITY ? 0.0f : expf(x - largest);
}

// Zeros stay zeros if nothing has any weight.
__device__ __forceinline__ float inverse(float sum) { return sum == 0.0f ? 0.0f : 1.0f / sum; }

#if IN_REGISTERS
constexpr int threads = 128;

// LANES threads a row, which hold all of it in registers, PER_LANE vectors each: one read, one write.
extern "C" __global__ void __launch_bounds__(threads)
    softmax_in_registers(TYPE *y, const TYPE *x, i64 rows, i64 channels) {
    wait_for_launch_before();
    const i64 row = i64(blockIdx.x) * (threads / LANES) + threadIdx.x / LANES;
    const int lane = threadIdx.x % LANES;
    // Threads beyond the last row stay for the shuffles.
    const int vectors = row < rows ? int(channels / VECTOR) : 0;
    const i64 start = row * channels;
    float value[PER_LANE][VECTOR];
    float largest = MINUS_INFINITY;
#pragma unroll
    for (int k = 0; k < PER_LANE; k++) {
        int vector = lane + k * LANES;
        if (vector < vectors) load(value[k], x + start + vector * VECTOR);
    }
#pragma unroll
    for (int k = 0; k < PER_LANE; k++)
        if (lane + k * LANES < vectors) {
#pragma unroll
            for (int i = 0; i < VECTOR; i++) largest = fmaxf(largest, value[k][i]);
        }
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < PER_LANE; k++)
        if (lane + k * LANES < vectors) {
#pragma unroll
            for (int i = 0; i < VECTOR; i++) sum += value[k][i] = weight(value[k][i], largest);
        }
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    const float factor = inverse(sum);
#pragma unroll
    for (int k = 0; k < PER_LANE; k++) {
        int vector = lane + k * LANES;
        if (vector < vectors) {
#pragma unroll
            for (int i = 0; i < VECTOR; i++) value[k][i] *= factor;
            store(y + start + vector * VECTOR, value[k]);
        }
    }
}
#else
constexpr int threads = 256;

// A block a row of any length, which it reads twice: an online softmax finds the largest value and the sum together.
extern "C" __global__ void __launch_bounds__(threads)
    softmax_in_blocks(TYPE *y, const TYPE *x, i64 rows, i64 channels) {
    wait_for_launch_before();
    __shared__ float partial[32];
    const i64 start = i64(blockIdx.x) * channels;
    float value[VECTOR];
    float largest = MINUS_INFINITY, sum = 0.0f;
    for (i64 channel = threadIdx.x * VECTOR; channel < channels; channel += threads * VECTOR) {
        load(value, x + start + channel);
        float here = largest;
#pragma unroll
        for (int i = 0; i < VECTOR; i++) here = fmaxf(here, value[i]);
        // What was summed so far is 0 or NaN if the largest was −∞.
        if (here > largest && largest != MINUS_INFINITY) sum *= expf(largest - here);
        largest = here;
        float part = 0.0f;
#pragma unroll
        for (int i = 0; i < VECTOR; i++) part += weight(value[i], largest);
        sum += part;
    }
    const float row_largest = block_max(largest, partial);
    if (largest != MINUS_INFINITY) sum *= expf(largest - row_largest);
    const float factor = inverse(block_sum(sum, partial));
    // The sum above has a barrier: every thread has read the row, so the result may overwrite it.
    for (i64 channel = threadIdx.x * VECTOR; channel < channels; channel += threads * VECTOR) {
        load(value, x + start + channel);
#pragma unroll
        for (int i = 0; i < VECTOR; i++) value[i] = weight(value[i], row_largest) * factor;
        store(y + start + channel, value);
    }
}
#endif
