// Long blocks, one for each multiprocessor and a few more: the last few run alone.
extern "C" __global__ void work(const float *in, float *out, int rounds) {
    extern __shared__ float scratch[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float a = in[i], b = a + 1.0f, c = a + 2.0f, d = a + 3.0f;
    for (int round = 0; round < rounds; round++) {
        a = a * 1.0001f + 0.5f;
        b = b * 1.0001f + 0.5f;
        c = c * 1.0001f + 0.5f;
        d = d * 1.0001f + 0.5f;
    }
    scratch[threadIdx.x] = a + b + c + d;
    out[i] = scratch[threadIdx.x];
}
