// A frame blended with the one before, less if a pixel has changed: `LANES` threads a pixel.
#include "specialisation.cuh"
#include "grid.cuh"
#include "numbers.cuh"

constexpr int threads = 256;

extern "C" __global__ void __launch_bounds__(threads)
    blend_unless_moved(CURRENT *y, const CURRENT *current, const PREVIOUS *previous, const float *strength,
                       float threshold, i64 pixels, i64 channels) {
    wait_for_launch_before();
    const i64 pixel = i64(blockIdx.x) * (threads / LANES) + threadIdx.x / LANES;
    const int lane = threadIdx.x % LANES;
    const i64 row = pixel * channels;
    // Threads beyond the last pixel stay for the shuffles.
    const i64 end = pixel < pixels ? channels : 0;
    float difference = 0.0f;
    for (i64 i = lane; i < end; i += LANES)
        difference += fabsf(to_float(current[row + i]) - to_float(previous[row + i]));
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) difference += __shfl_xor_sync(0xffffffffu, difference, step);
    float weight = *strength * fmaxf(1.0f - difference / float(channels) / threshold, 0.0f);
    // A thread writes what it alone has read, so that the result may lie over an operand.
    for (i64 i = lane; i < end; i += LANES) {
        float now = to_float(current[row + i]);
        y[row + i] = from_float<CURRENT>(now + weight * (to_float(previous[row + i]) - now));
    }
}
