// Counts in an array of each thread's own. With an index that is only known at run time the array lies in local memory.
extern "C" __global__ void counts(const unsigned *in, unsigned *out, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    unsigned bins[4] = {};
    for (int round = 0; round < rounds; round++) {
        unsigned word = in[round * threads + i];
#ifdef MENDED
#pragma unroll
        for (int bin = 0; bin < 4; bin++) bins[bin] += (word % 4 == bin);
#else
        bins[word % 4]++; // planted
#endif
    }
    unsigned sum = 0;
#pragma unroll
    for (int bin = 0; bin < 4; bin++) sum = sum * 3 + bins[bin];
    out[i] = sum;
}
