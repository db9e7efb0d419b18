// What the kernels share. VALUE, INDEX and THREADS are options of the compiler, and ITEMS and LANES where a kernel has them. COLUMN is the type
// of columns, if it is not that of indices.

typedef VALUE value_t;
typedef INDEX index_t;
#ifdef COLUMN
typedef COLUMN column_t;
#else
typedef INDEX column_t;
#endif

constexpr unsigned ALL_LANES = 0xffffffffu;

// ITEMS products of a thread, STRIDE non-zeros apart. From `left` on they are 0 if EXACT, whatever x holds, and otherwise any number. All
// loads are issued before the first is waited for. They are plain ones: their addresses differ by constants, which a load instruction
// adds by itself, but the intrinsics (__ldg, __ldcs) are inline assembly that takes a whole address each.
template <int STRIDE, bool EXACT>
__device__ __forceinline__ void strided_products(const column_t *__restrict__ columns,
                                                 const value_t *__restrict__ values, const value_t *__restrict__ x,
                                                 index_t left, value_t (&product)[ITEMS]) {
    index_t column[ITEMS];
    value_t value[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        column[i] = 0;
        value[i] = 0;
        // A place beyond reads the first entry of x, which is there.
        if (i * STRIDE < left) {
            column[i] = columns[i * STRIDE];
            value[i] = values[i * STRIDE];
        }
    }
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) product[i] = x[column[i]];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        product[i] *= value[i];
        if (EXACT && i * STRIDE >= left) product[i] = 0;
    }
}

// The products of a tile of `count` non-zeros, a block's width apart for each thread.
template <bool EXACT>
__device__ __forceinline__ void tile_products(const column_t *__restrict__ columns, const value_t *__restrict__ values,
                                              const value_t *__restrict__ x, int count, value_t (&product)[ITEMS]) {
    const int thread = threadIdx.x;
    strided_products<THREADS, EXACT>(columns + thread, values + thread, x, count - thread, product);
}

// y = alpha * sum + beta * y; with a beta of 0, y is not read.
__device__ __forceinline__ void store_row(value_t *y, long long row, value_t sum, value_t alpha, value_t beta) {
    value_t result = alpha * sum;
    if (beta != value_t(0)) result += beta * y[row];
    y[row] = result;
}

// The sum over groups of WIDTH neighbouring lanes, in every lane of them.
template <int WIDTH>
__device__ __forceinline__ value_t lane_sum(value_t sum) {
#pragma unroll
    for (int distance = WIDTH / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, distance);
    return sum;
}

// The sum over the block, in thread 0. `parts` has an element for each warp.
__device__ __forceinline__ value_t block_sum(value_t sum, value_t *parts) {
    sum = lane_sum<32>(sum);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
#pragma unroll
        for (int warp = 1; warp < THREADS / 32; ++warp) sum += parts[warp];
    }
    return sum;
}
