// Two kinds of work, alternating between neighbouring threads: every warp executes both.
__device__ float series(float x) {
#pragma unroll 4
    for (int i = 0; i < 512; i++) x = x * 1.0001f + 0.5f;
    return x;
}
__device__ float shuffled(float x) {
    unsigned bits = __float_as_uint(x);
#pragma unroll 4
    for (int i = 0; i < 512; i++) bits = (bits ^ bits << 3) + 0x9e3779b9u;
    return __uint_as_float(bits & 0x3fffffffu);
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
    if (odd) x = series(x); else x = shuffled(x); // planted
    out[i] = x;
}
