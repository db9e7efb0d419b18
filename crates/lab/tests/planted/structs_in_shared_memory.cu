// Smooths records of eight numbers in shared memory. Neighbouring threads read words that are eight apart: eight-way conflicts.
extern "C" __global__ void smooth(const float *in, float *out, int rounds) {
    __shared__ float records[8 * 256];
    int lane = threadIdx.x, first = blockIdx.x * 2048;
#ifdef MENDED
#define AT(k) ((k) * 256 + lane)
#else
#define AT(k) (lane * 8 + (k))
#endif
    for (int k = 0; k < 8; k++) records[AT(k)] = in[first + k * 256 + lane];
    for (int round = 0; round < rounds; round++)
#pragma unroll
        for (int k = 0; k < 8; k++)
            records[AT(k)] = 0.5f * records[AT(k)] + 0.5f * records[AT((k + 1) % 8)]; // planted
    for (int k = 0; k < 8; k++) out[first + k * 256 + lane] = records[AT(k)];
}
