// Two kinds of work, alternating between neighbouring threads: every warp executes both.
__device__ float grow(float x) {
    for (int i = 0; i < 64; i++) x = x * 1.0001f + 0.5f;
    return x;
}
__device__ float shrink(float x) {
    for (int i = 0; i < 64; i++) x = x * 0.9999f - 0.25f;
    return x;
}
extern "C" __global__ void work(const float *in, float *out, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
#ifdef MENDED
    bool odd = (i / 32) % 2;
#else
    bool odd = i % 2;
#endif
    float x = in[i];
    if (odd) x = grow(x); else x = shrink(x); // planted
    out[i] = x;
}
