// A gather of rows. Every block reserves far more shared memory than it uses, so that few warps fit on a multiprocessor.
#ifdef MENDED
#define RESERVED 64
#else
#define RESERVED 12288 // planted
#endif
extern "C" __global__ void gather(const float *in, float *out, int rounds) {
    __shared__ float scratch[RESERVED];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    int at = i / 32 * 7919;
#pragma unroll 1
    for (int round = 0; round < rounds; round++) {
        at = (at * 5 + 1) & 0xfffff;
        sum += in[at / 32 * 32 + threadIdx.x % 32];
    }
    scratch[threadIdx.x] = sum;
    __syncwarp();
    out[i] = scratch[threadIdx.x ^ 1];
}
