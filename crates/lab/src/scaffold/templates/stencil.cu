// One step of heat in a plate: a point moves towards the mean of its neighbours. At the edges it is its own neighbour. A block
// computes 32 x 8 points from a tile in shared memory that has one more point on every side.
//
// Try: leave out the corner cases of the halo, and see which elements are read before they are written. Or drop the tile and read
// all five points from global memory, and see what that does to the predicted time.

constexpr int WIDE = 32, HIGH = 8;

__device__ int within(int at, int extent) {
    return at < 0 ? 0 : at >= extent ? extent - 1 : at;
}

__global__ void heat(const float *before, float *after, int width, int height, float rate) {
    __shared__ float tile[HIGH + 2][WIDE + 2];
    int left = blockIdx.x * WIDE - 1, top = blockIdx.y * HIGH - 1;
    // More points than threads: each brings one or two.
    int thread = threadIdx.y * WIDE + threadIdx.x;
    for (int i = thread; i < (HIGH + 2) * (WIDE + 2); i += WIDE * HIGH) {
        int row = i / (WIDE + 2), column = i % (WIDE + 2);
        int from = within(top + row, height) * width + within(left + column, width);
        tile[row][column] = before[from];
    }
    __syncthreads();
    int x = blockIdx.x * WIDE + threadIdx.x, y = blockIdx.y * HIGH + threadIdx.y;
    if (x < width && y < height) {
        int row = threadIdx.y + 1, column = threadIdx.x + 1;
        float own = tile[row][column];
        float around = tile[row - 1][column] + tile[row + 1][column] + tile[row][column - 1] + tile[row][column + 1];
        after[y * width + x] = own + rate * (0.25f * around - own);
    }
}

// The reference: as plain as it can be, in double.
__global__ void heat_reference(const double *before, double *after, int width, int height, double rate) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= width * height) {
        return;
    }
    int x = i % width, y = i / width;
    double own = before[i];
    double around = before[within(y - 1, height) * width + x] + before[within(y + 1, height) * width + x]
        + before[y * width + within(x - 1, width)] + before[y * width + within(x + 1, width)];
    after[i] = own + rate * (0.25 * around - own);
}
