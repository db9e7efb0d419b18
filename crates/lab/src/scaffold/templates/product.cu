// c = a b, where a is m x k, b is k x n and c is m x n, all row by row. A block computes a tile of c. It goes along k in
// steps of a tile: its threads bring a tile of a and one of b into shared memory, where each element is used 16 times.
//
// Try: exchange row and column in the tile of b, and see the bank conflicts. Or let a thread compute 4 x 4 elements of c, and see
// what that does to the predicted time.

constexpr int TILE = 16;

__global__ void product(const float *a, const float *b, float *c, int m, int n, int k) {
    __shared__ float tile_a[TILE][TILE], tile_b[TILE][TILE];
    int column = blockIdx.x * TILE + threadIdx.x;
    int row = blockIdx.y * TILE + threadIdx.y;
    float sum = 0.0f;
    for (int start = 0; start < k; start += TILE) {
        // Beyond the edges there are zeros, which add nothing.
        int along_a = start + threadIdx.x, along_b = start + threadIdx.y;
        tile_a[threadIdx.y][threadIdx.x] = row < m && along_a < k ? a[row * k + along_a] : 0.0f;
        tile_b[threadIdx.y][threadIdx.x] = along_b < k && column < n ? b[along_b * n + column] : 0.0f;
        // Everyone's part of the tiles is there.
        __syncthreads();
        for (int i = 0; i < TILE; i++) {
            sum += tile_a[threadIdx.y][i] * tile_b[i][threadIdx.x];
        }
        // Nobody overwrites what others still read.
        __syncthreads();
    }
    if (row < m && column < n) {
        c[row * n + column] = sum;
    }
}

// The reference: as plain as it can be, in double.
__global__ void product_reference(const double *a, const double *b, double *c, int m, int n, int k) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= m * n) {
        return;
    }
    int row = i / n, column = i % n;
    double sum = 0.0;
    for (int along = 0; along < k; along++) {
        sum += a[row * k + along] * b[along * n + column];
    }
    c[i] = sum;
}
