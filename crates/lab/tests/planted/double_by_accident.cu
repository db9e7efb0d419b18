// Literals without an f make this polynomial one of f64.
extern "C" __global__ void polynomial(const float *in, float *out, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float x = in[i], y = 0.0f;
#pragma unroll
    for (int k = 0; k < 64; k++)
#ifdef MENDED
        y = y * (x + 0.1f) + 0.3f;
#else
        y = y * (x + 0.1) + 0.3; // planted
#endif
    out[i] = y;
}
