// Prefix sums: y[i] = x[0] + ... + x[i], for up to 1024 blocks of 1024 elements.
//
// Try: exchange __shfl_up_sync for a read of shared memory, and see which barriers are missing. Or let a thread scan four elements
// by itself first, and see what that does to the predicted time.

// The prefix sum over a block's threads, and the sum of all of them.
__device__ float block_scan(float value, float *sum) {
    __shared__ float of_warp[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    // Within a warp: after each step, a lane has the sum of twice as many.
    for (int offset = 1; offset < 32; offset *= 2) {
        float before = __shfl_up_sync(0xFFFFFFFF, value, offset);
        if (lane >= offset) {
            value += before;
        }
    }
    if (lane == 31) {
        of_warp[warp] = value;
    }
    __syncthreads();
    // The first warp does the same with the warps' sums.
    if (warp == 0) {
        float of_all = lane < blockDim.x / 32 ? of_warp[lane] : 0.0f;
        for (int offset = 1; offset < 32; offset *= 2) {
            float before = __shfl_up_sync(0xFFFFFFFF, of_all, offset);
            if (lane >= offset) {
                of_all += before;
            }
        }
        of_warp[lane] = of_all;
    }
    __syncthreads();
    *sum = of_warp[31];
    return warp == 0 ? value : value + of_warp[warp - 1];
}

__global__ void scan_blocks(const float *x, float *y, float *sums, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum;
    // All threads of a block take part, also those beyond the end: the shuffles and barriers wait for them.
    float value = block_scan(i < n ? x[i] : 0.0f, &sum);
    if (i < n) {
        y[i] = value;
    }
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = sum;
    }
}

__global__ void scan_sums(float *sums, int blocks) {
    int i = threadIdx.x;
    float sum;
    float value = block_scan(i < blocks ? sums[i] : 0.0f, &sum);
    if (i < blocks) {
        sums[i] = value;
    }
}

__global__ void add_sums(float *y, const float *sums, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (blockIdx.x > 0 && i < n) {
        y[i] += sums[blockIdx.x - 1];
    }
}

// The reference: as plain as it can be, in double.
__global__ void scan_reference(const double *x, double *y, int n) {
    double sum = 0.0;
    for (int i = 0; i < n; i++) {
        sum += x[i];
        y[i] = sum;
    }
}
