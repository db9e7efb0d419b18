// Sums along the depth. Neighbouring threads read addresses that are a whole row apart, so each load takes 32 sectors.
extern "C" __global__ void sums(const float *matrix, float *sums, int rows, int depth) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int k = 0; k < depth; k++)
#ifdef MENDED
        sum += matrix[k * rows + row];
#else
        sum += matrix[row * depth + k]; // planted
#endif
    sums[row] = sum;
}
