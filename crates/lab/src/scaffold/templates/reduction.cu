// The sum of a vector. Every thread adds up some elements, the lanes of a warp add up theirs by shuffles, and the warps of
// a block through shared memory.
//
// Try: leave out a __syncthreads(), and see between which lines the race is. Or let threads read float4, and see what that
// does to the predicted time.

// The sum over a warp's lanes; lane 0 has it.
__device__ float warp_sum(float value) {
    for (int offset = 16; offset > 0; offset /= 2) {
        value += __shfl_down_sync(0xFFFFFFFF, value, offset);
    }
    return value;
}

// The sum over a block's threads; thread 0 has it.
__device__ float block_sum(float value) {
    __shared__ float of_warp[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    value = warp_sum(value);
    if (lane == 0) {
        of_warp[warp] = value;
    }
    // The first warp reads what the others have written.
    __syncthreads();
    if (warp == 0) {
        value = lane < blockDim.x / 32 ? of_warp[lane] : 0.0f;
        value = warp_sum(value);
    }
    return value;
}

__global__ void block_sums(const float *x, float *partial, int n) {
    float sum = 0.0f;
    // Neighbouring threads read neighbouring elements, so that a warp's loads fill whole sectors.
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        sum += x[i];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sum;
    }
}

__global__ void total(const float *partial, float *sum, int blocks) {
    float value = 0.0f;
    for (int i = threadIdx.x; i < blocks; i += blockDim.x) {
        value += partial[i];
    }
    value = block_sum(value);
    if (threadIdx.x == 0) {
        *sum = value;
    }
}

// The reference: as plain as it can be, in double.
__global__ void sum_reference(const double *x, double *sum, int n) {
    double value = 0.0;
    for (int i = 0; i < n; i++) {
        value += x[i];
    }
    *sum = value;
}
