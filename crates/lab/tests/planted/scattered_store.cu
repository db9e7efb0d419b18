// Transposes a matrix. The naive form writes a column: 32 sectors for every store.
extern "C" __global__ void transpose(const float *in, float *out, int width, int height) {
#ifdef MENDED
    __shared__ float tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int row = 0; row < 32; row += 8) tile[threadIdx.y + row][threadIdx.x] = in[(y + row) * width + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x, y = blockIdx.x * 32 + threadIdx.y;
    for (int row = 0; row < 32; row += 8) out[(y + row) * height + x] = tile[threadIdx.x][threadIdx.y + row];
#else
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int row = 0; row < 32; row += 8)
        out[x * height + y + row] = in[(y + row) * width + x]; // planted
#endif
}
