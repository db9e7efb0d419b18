// Transposes tiles in shared memory, several times over. A column of an unpadded tile lies in one bank.
#ifdef MENDED
#define PITCH 33
#else
#define PITCH 32
#endif
extern "C" __global__ void transpose(const float *in, float *out, int width) {
    __shared__ float tile[32][PITCH];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int row = 0; row < 32; row += 8) tile[threadIdx.y + row][threadIdx.x] = in[(y + row) * width + x];
    __syncthreads();
    float sum[4] = {};
    for (int pass = 0; pass < 16; pass++)
        for (int row = 0; row < 4; row++)
            sum[row] += tile[threadIdx.x][(threadIdx.y + 8 * row + pass) % 32]; // planted
    x = blockIdx.y * 32 + threadIdx.x, y = blockIdx.x * 32 + threadIdx.y;
    for (int row = 0; row < 4; row++) out[(y + 8 * row) * width + x] = sum[row];
}
