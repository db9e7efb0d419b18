// Sums each block's numbers in shared memory. With doubling strides, active threads share ever fewer banks.
extern "C" __global__ void sums(const float *in, float *out) {
    __shared__ float part[2048];
    int lane = threadIdx.x;
    float total = 0.0f;
    for (int pass = 0; pass < 8; pass++) {
        part[lane] = in[blockIdx.x * 2048 + lane] + pass;
        part[lane + 1024] = in[blockIdx.x * 2048 + lane + 1024] + pass;
        __syncthreads();
#ifdef MENDED
        for (int stride = 1024; stride > 0; stride /= 2) {
            if (lane < stride) part[lane] += part[lane + stride];
            __syncthreads();
        }
#else
        for (int stride = 1; stride < 2048; stride *= 2) {
            int at = 2 * stride * lane;
            if (at < 2048) part[at] += part[at + stride]; // planted
            __syncthreads();
        }
#endif
        total += part[0];
        __syncthreads();
    }
    if (lane == 0) out[blockIdx.x] = total;
}
