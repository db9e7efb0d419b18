// The launch has blocks of 32 threads in one form and of 256 in the other; a multiprocessor holds 32 blocks, and so half of its warps.
extern "C" __global__ void gather(const float *in, float *out, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    int at = i / 32 * 7919;
#pragma unroll 1
    for (int round = 0; round < rounds; round++) {
        at = (at * 5 + 1) & 0xfffff;
        sum += in[at / 32 * 32 + threadIdx.x % 32];
    }
    out[i] = sum;
}
