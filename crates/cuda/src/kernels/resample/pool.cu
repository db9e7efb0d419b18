// Pools windows of images: a thread for some channels of a position of the result. A block works on a part of one row.
#include "specialisation.cuh"
#include "grid.cuh"
#include "numbers.cuh"

constexpr int threads = 256;

struct Window {
    i64 height, width, out_height, out_width, columns;
    // Blocks for each row of the result.
    i64 blocks;
    i64 kernel[2], stride[2], padding[2];
};

extern "C" __global__ void __launch_bounds__(threads) pool(TYPE *y, const TYPE *x, Window window) {
    wait_for_launch_before();
    const u32 row = blockIdx.x / u32(window.blocks);
    const u32 image = row / u32(window.out_height), out_y = row - image * u32(window.out_height);
    const u32 columns = u32(window.columns), places = u32(window.out_width) * columns;
    const u32 place = (blockIdx.x - row * u32(window.blocks)) * threads + threadIdx.x;
    if (place >= places) return;
    const u32 out_x = place / columns;
    const i64 channels = window.columns * VECTOR, channel = i64(place - out_x * columns) * VECTOR;
    const TYPE *from = x + i64(image) * window.height * window.width * channels + channel;

    // The part of the window that lies in the image.
    const i64 top = i64(out_y) * window.stride[0] - window.padding[0];
    const i64 left = i64(out_x) * window.stride[1] - window.padding[1];
    const i64 first_y = max(top, 0ll), end_y = min(top + window.kernel[0], window.height);
    const i64 first_x = max(left, 0ll), end_x = min(left + window.kernel[1], window.width);
    float result[VECTOR];
#pragma unroll
    for (int i = 0; i < VECTOR; i++) result[i] = AVERAGE ? 0.0f : __int_as_float(0xff800000);
    for (i64 from_y = first_y; from_y < end_y; from_y++) {
        // Rows are summed apart, which keeps the sum of a large window exact.
        float sum[VECTOR] = {};
        for (i64 from_x = first_x; from_x < end_x; from_x++) {
            float value[VECTOR];
            load(value, from + (from_y * window.width + from_x) * channels);
#pragma unroll
            for (int i = 0; i < VECTOR; i++) {
                if (AVERAGE) sum[i] += value[i];
                // A NaN stays: nothing compares greater than it.
                else if (value[i] > result[i] || value[i] != value[i])
                    result[i] = value[i];
            }
        }
        if (AVERAGE) {
#pragma unroll
            for (int i = 0; i < VECTOR; i++) result[i] += sum[i];
        }
    }
    if (AVERAGE) {
        // Padding counts as zeros, so the divisor is the whole window.
        const float members = float(window.kernel[0] * window.kernel[1]);
#pragma unroll
        for (int i = 0; i < VECTOR; i++) result[i] /= members;
    }
    store(y + i64(row) * window.out_width * channels + i64(place) * VECTOR, result);
}
