// Rows and columns by division with a width that is only known at run time.
extern "C" __global__ void sums(const float *in, float *out, int width, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
#ifdef MENDED
    int row = i / width, column = i % width;
    for (int round = 0; round < rounds; round++) {
        sum += in[(row + column) & 1023];
        column += 7;
        if (column >= width) column -= width, row++;
    }
#else
    for (int round = 0; round < rounds; round++) {
        int at = i + 7 * round;
        sum += in[(at / width + at % width) & 1023]; // planted
    }
#endif
    out[i] = sum;
}
