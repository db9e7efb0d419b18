// Sums records of eight numbers in shared memory. Neighbouring threads read words that are eight apart: eight-way conflicts.
extern "C" __global__ void sums(const float *in, float *out, int rounds) {
    __shared__ float records[8 * 256];
    int lane = threadIdx.x, first = blockIdx.x * 2048;
#ifdef MENDED
#define AT(lane, k) ((k) * 256 + (lane))
#else
#define AT(lane, k) ((lane) * 8 + (k))
#endif
    for (int k = 0; k < 8; k++) records[AT(lane, k)] = in[first + k * 256 + lane];
    __syncthreads();
    float sum = 0.0f;
    for (int round = 0; round < rounds; round++) {
        int other = (lane + round) % 256;
#pragma unroll
        for (int k = 0; k < 8; k++)
            sum = 0.5f * sum + records[AT(other, k)]; // planted
    }
    out[blockIdx.x * 256 + lane] = sum;
}
