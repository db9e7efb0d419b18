// One warp of each block prepares what all wait for. In the mended form the warps share that work.
extern "C" __global__ void work(const float *in, float *out, int rounds) {
    __shared__ float table[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = in[i];
    for (int round = 0; round < rounds; round++) {
#ifdef MENDED
        float value = round + threadIdx.x;
        for (int k = 0; k < 32; k++) value = value * 1.0001f + 0.5f;
        table[threadIdx.x] = value;
#else
        if (threadIdx.x < 32)
            for (int part = 0; part < 8; part++) {
                float value = round + part * 32 + threadIdx.x;
                for (int k = 0; k < 32; k++) value = value * 1.0001f + 0.5f;
                table[part * 32 + threadIdx.x] = value;
            }
#endif
        __syncthreads(); // planted
        x += table[threadIdx.x ^ 1];
        __syncthreads();
    }
    out[i] = x;
}
