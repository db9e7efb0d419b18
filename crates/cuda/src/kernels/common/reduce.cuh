// Sums and maxima over the threads of a warp and of a block.
#pragma once
#include "numbers.cuh"

// The sum over each `count` neighbours of a warp, a power of two, in all of them.
template <int count>
__device__ __forceinline__ float neighbour_sum(float value) {
#pragma unroll
    for (int step = count / 2; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    return value;
}

__device__ __forceinline__ float warp_sum(float value) { return neighbour_sum<32>(value); }

__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, step));
    return value;
}

// The sum over a block of whole warps, in every thread. `partial` has room for 32 floats; the threads may use it
// again after their next barrier.
__device__ __forceinline__ float block_sum(float value, float *partial) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    value = warp_sum(value);
    __syncthreads();
    if (lane == 0) partial[warp] = value;
    __syncthreads();
    return warp_sum(lane < warps ? partial[lane] : 0.0f);
}

__device__ __forceinline__ float block_max(float value, float *partial) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    value = warp_max(value);
    __syncthreads();
    if (lane == 0) partial[warp] = value;
    __syncthreads();
    return warp_max(lane < warps ? partial[lane] : __int_as_float(0xff800000));
}
