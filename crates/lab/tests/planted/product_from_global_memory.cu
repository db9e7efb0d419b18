// A product of f32 matrices. Each number is read from global memory once for every product that it is a factor of.
extern "C" __global__ void product(const float *a, const float *b, float *c, int n) {
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    float sum = 0.0f;
#ifdef MENDED
    __shared__ float left[16][16], right[16][16];
    for (int k = 0; k < n; k += 16) {
        left[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
        right[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + column];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 16; i++) sum += left[threadIdx.y][i] * right[i][threadIdx.x];
        __syncthreads();
    }
#else
    for (int k = 0; k < n; k++) sum += a[row * n + k] * b[k * n + column]; // planted
#endif
    c[row * n + column] = sum;
}
