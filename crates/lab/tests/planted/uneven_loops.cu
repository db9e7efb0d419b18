// Loops of different lengths within a warp: it takes as long as the longest. The lengths are sorted in the mended form.
extern "C" __global__ void work(const float *in, float *out, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
#ifdef MENDED
    int rounds = 8 * (1 + (i / 32) % 32);
#else
    int rounds = 8 * (1 + i % 32);
#endif
    float x = in[i];
#pragma unroll 1
    for (int round = 0; round < rounds; round++) x = x * 1.0001f + 0.5f; // planted
    out[i] = x;
}
