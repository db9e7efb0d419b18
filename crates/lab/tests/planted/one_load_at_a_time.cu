// A gather with few warps. Each sum waits for its load before the next begins; the mended form has eight in flight.
extern "C" __global__ void gather(const float *in, float *out, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    float sum = 0.0f;
#ifdef MENDED
#pragma unroll 1
    for (int round = 0; round < rounds; round += 8) {
        float x[8];
#pragma unroll
        for (int k = 0; k < 8; k++) x[k] = in[(round + k) * threads + i];
#pragma unroll
        for (int k = 0; k < 8; k++) sum += x[k];
    }
#else
#pragma unroll 1
    for (int round = 0; round < rounds; round++) sum += in[round * threads + i]; // planted
#endif
    out[i] = sum;
}
