// Counts numbers above a threshold. Every thread adds to one word in global memory.
extern "C" __global__ void count(const float *in, unsigned *out, int length, float threshold) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    bool above = i < length && in[i] >= threshold;
#ifdef MENDED
    int all = __syncthreads_count(above);
    if (threadIdx.x == 0) atomicAdd(out, all);
#else
    unsigned before = 0;
    if (above) before = atomicAdd(out, 1u); // planted
    if (before == 0xffffffffu) out[1] = before;
#endif
}
