// Counts from step to step on the device, so that a loop of steps needs nothing of the host.
#include "grid.cuh"
#include "numbers.cuh"

extern "C" __global__ void count_up(i32 *counters, i64 count) {
    wait_for_launch_before();
    i64 at = i64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at < count) counters[at]++;
}
