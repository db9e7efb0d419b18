// Layer and RMS norm: the channels of a position share statistics, and lie in one row. A mean is kept as a difference
// from the row's first element: if all elements are large, it would lose digits otherwise.
#include "specialisation.cuh"
#include "grid.cuh"
#include "affine.cuh"
#include "numbers.cuh"
#include "reduce.cuh"

#if IN_REGISTERS
constexpr int threads = 128;

// LANES threads a row, which hold all of it in registers, PER_LANE vectors each: one read, one write.
extern "C" __global__ void __launch_bounds__(threads)
    rows_in_registers(RESULT *y, const TYPE *x, Affine affine, i64 rows, i32 channels, float epsilon,
                      float factor_of_result) {
    wait_for_launch_before();
    const i64 row = i64(blockIdx.x) * (threads / LANES) + threadIdx.x / LANES;
    const int lane = threadIdx.x % LANES;
    // Threads beyond the last row stay for the shuffles.
    const int vectors = row < rows ? channels / VECTOR : 0;
    const i64 start = row * channels;
    const float about = CENTRED && vectors > 0 ? to_float(x[start]) : 0.0f;
    float value[PER_LANE][VECTOR];
#pragma unroll
    for (int k = 0; k < PER_LANE; k++) {
        int vector = lane + k * LANES;
        if (vector < vectors) load(value[k], x + start + vector * VECTOR);
    }
    float mean = 0.0f;
    if (CENTRED) {
        float sum = 0.0f;
#pragma unroll
        for (int k = 0; k < PER_LANE; k++)
            if (lane + k * LANES < vectors) {
#pragma unroll
                for (int i = 0; i < VECTOR; i++) sum += value[k][i] -= about;
            }
        mean = neighbour_sum<LANES>(sum) / float(channels);
    }
    float squares = 0.0f;
#pragma unroll
    for (int k = 0; k < PER_LANE; k++)
        if (lane + k * LANES < vectors) {
#pragma unroll
            for (int i = 0; i < VECTOR; i++) {
                value[k][i] -= mean;
                squares += value[k][i] * value[k][i];
            }
        }
    const float factor = 1.0f / sqrtf(neighbour_sum<LANES>(squares) / float(channels) + epsilon);
#pragma unroll
    for (int k = 0; k < PER_LANE; k++) {
        int vector = lane + k * LANES;
        if (vector < vectors) {
            float scale[VECTOR], shift[VECTOR], result[VECTOR];
            load_affine(scale, shift, affine, vector * VECTOR);
#pragma unroll
            for (int i = 0; i < VECTOR; i++)
                result[i] = quantised(ACTIVATION(value[k][i] * factor * scale[i] + shift[i]), factor_of_result);
            store(y + start + vector * VECTOR, result);
        }
    }
}
#else
constexpr int threads = 256;

// A block a row of any length, which it reads three times, twice from a cache.
extern "C" __global__ void __launch_bounds__(threads)
    rows_in_blocks(RESULT *y, const TYPE *x, Affine affine, i64 rows, i32 channels, float epsilon,
                   float factor_of_result) {
    wait_for_launch_before();
    __shared__ float partial[32];
    const i64 start = i64(blockIdx.x) * channels;
    const int step = threads * VECTOR;
    const float about = CENTRED ? to_float(x[start]) : 0.0f;
    float value[VECTOR];
    float mean = 0.0f;
    if (CENTRED) {
        float sum = 0.0f;
        for (i64 channel = threadIdx.x * VECTOR; channel < channels; channel += step) {
            load(value, x + start + channel);
            float part = 0.0f;
#pragma unroll
            for (int i = 0; i < VECTOR; i++) part += value[i] - about;
            sum += part;
        }
        mean = block_sum(sum, partial) / float(channels);
    }
    float squares = 0.0f;
    for (i64 channel = threadIdx.x * VECTOR; channel < channels; channel += step) {
        load(value, x + start + channel);
        float part = 0.0f;
#pragma unroll
        for (int i = 0; i < VECTOR; i++) {
            float difference = value[i] - about - mean;
            part += difference * difference;
        }
        squares += part;
    }
    const float factor = 1.0f / sqrtf(block_sum(squares, partial) / float(channels) + epsilon);
    // The sum above had a barrier: everyone has read the row, and the result may lie over it.
    for (i64 channel = threadIdx.x * VECTOR; channel < channels; channel += step) {
        float scale[VECTOR], shift[VECTOR];
        load(value, x + start + channel);
        load_affine(scale, shift, affine, channel);
#pragma unroll
        for (int i = 0; i < VECTOR; i++)
            value[i] =
                quantised(ACTIVATION((value[i] - about - mean) * factor * scale[i] + shift[i]), factor_of_result);
        store(y + start + channel, value);
    }
}
#endif
