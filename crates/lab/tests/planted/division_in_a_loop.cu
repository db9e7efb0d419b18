// Rows and columns by division: the width is only known at run time, though it is always a power of two.
extern "C" __global__ void sums(const float *in, float *out, int width, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    for (int round = 0; round < rounds; round++) {
        int at = i + 7 * round;
#ifdef MENDED
        sum += in[(at >> 10) + (at & 1023) & 1023];
#else
        sum += in[(at / width + at % width) & 1023]; // planted
#endif
    }
    out[i] = sum;
}
