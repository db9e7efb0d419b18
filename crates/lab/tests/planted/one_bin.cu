// A histogram in shared memory of numbers that nearly all fall into one bin.
extern "C" __global__ void histogram(const unsigned *in, unsigned *out, int rounds) {
#ifdef MENDED
    __shared__ unsigned bins[32 * 33];
    unsigned *mine = bins + threadIdx.x % 32 * 33;
#else
    __shared__ unsigned bins[32];
    unsigned *mine = bins;
#endif
    for (int bin = threadIdx.x; bin < sizeof(bins) / 4; bin += blockDim.x) bins[bin] = 0;
    __syncthreads();
    for (int round = 0; round < rounds; round++) {
        unsigned word = in[(blockIdx.x * rounds + round) * blockDim.x + threadIdx.x];
        // Not a constant: the lanes that add 1 to a bin are counted at once.
        unsigned weight = 1u + (word >> 31);
#pragma unroll
        for (int part = 0; part < 8; part++)
            atomicAdd(&mine[word >> (4 * part) & 15], weight); // planted
    }
    __syncthreads();
    if (threadIdx.x < 16) {
        unsigned sum = 0;
#ifdef MENDED
        for (int copy = 0; copy < 32; copy++) sum += bins[copy * 33 + threadIdx.x];
#else
        sum = bins[threadIdx.x];
#endif
        out[blockIdx.x * 16 + threadIdx.x] = sum;
    }
}
