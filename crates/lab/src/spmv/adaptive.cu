// A tile of whole rows for each block, at most THREADS * ITEMS non-zeros of them. The block reads its non-zeros as one piece, keeps the
// products in shared memory, and sums each row by as many lanes as there are to spare. A row with more non-zeros than a tile gets tiles of
// its own; a second launch adds up their sums.
constexpr int TILE = THREADS * ITEMS;

// From the host. In a piece of a long row, `end` is -1 - the place of its sum in `partial`.
struct alignas(16) Tile {
    index_t row, end, nonzero, nonzero_end;
};

// One word of padding every 32 words, so that rows of 8, 16 or 32 products do not begin in the same bank.
__device__ __forceinline__ int padded(int place) { return place + place / int(128 / sizeof(value_t)); }

// The sum of a row whose products lie in shared memory, over groups of `lanes` lanes.
__device__ __forceinline__ value_t row_sum(const value_t *products, int begin, int end, int lane, int lanes) {
    value_t sum = 0;
    for (int k = begin + lane; k < end; k += lanes) sum += products[padded(k)];
    return sum;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    spmv_adaptive(const Tile *__restrict__ tiles, const index_t *__restrict__ offsets,
                  const index_t *__restrict__ columns, const value_t *__restrict__ values,
                  const value_t *__restrict__ x, value_t *__restrict__ y, value_t *__restrict__ partial,
                  value_t alpha, value_t beta) {
    __shared__ value_t products[TILE + TILE / (128 / sizeof(value_t))];
    const Tile tile = tiles[blockIdx.x];
    const int thread = threadIdx.x;
    const index_t *own_columns = columns + tile.nonzero;
    const value_t *own_values = values + tile.nonzero;

    if (tile.end <= tile.row + 1 && tile.nonzero < tile.nonzero_end) {
        // One row, or a piece of one: nothing but a sum.
        const index_t count = tile.nonzero_end - tile.nonzero;
        value_t sum = 0;
        for (index_t k = thread; k < count; k += TILE) {
            index_t column[ITEMS];
            value_t value[ITEMS], factor[ITEMS];
#pragma unroll
            for (int i = 0; i < ITEMS; ++i) {
                const index_t wanted = k + i * THREADS;
                const index_t place = wanted < count ? wanted : count - 1;
                column[i] = streamed(own_columns + place);
                value[i] = streamed(own_values + place);
            }
#pragma unroll
            for (int i = 0; i < ITEMS; ++i) factor[i] = __ldg(x + column[i]);
#pragma unroll
            for (int i = 0; i < ITEMS; ++i) {
                const value_t next = sum + value[i] * factor[i];
                sum = k + i * THREADS < count ? next : sum;
            }
        }
        sum = block_sum(sum, products);
        if (thread == 0) {
            if (tile.end < 0) partial[-1 - tile.end] = sum;
            else store_row(y, tile.row, sum, alpha, beta);
        }
        return;
    }

    // As many lanes for each row as there are, a power of two.
    const int rows = tile.end - tile.row;
    int shift = 5;
    while (shift > 0 && rows << shift > THREADS) --shift;
    const int lanes = 1 << shift, lane = thread & (lanes - 1), group = thread >> shift, groups = THREADS >> shift;
    // A longer row would keep its lanes busy while all others wait; whole warps take those afterwards.
    const int longest = 32 * lanes;
    const index_t *own_offsets = offsets + tile.row;
    // The first offsets are asked for together with the non-zeros.
    int begin = 0, end = 0;
    if (group < rows) {
        begin = int(__ldg(own_offsets + group) - tile.nonzero);
        end = int(__ldg(own_offsets + group + 1) - tile.nonzero);
    }

    const int count = int(tile.nonzero_end - tile.nonzero);
    if (count > 0) {
        index_t column[ITEMS];
        value_t value[ITEMS], factor[ITEMS];
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const int wanted = thread + i * THREADS;
            const int place = wanted < count ? wanted : count - 1;
            column[i] = streamed(own_columns + place);
            value[i] = streamed(own_values + place);
        }
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) factor[i] = __ldg(x + column[i]);
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const int place = thread + i * THREADS;
            if (place < count) products[padded(place)] = value[i] * factor[i];
        }
    }
    __syncthreads();

    bool left_out = false;
    for (int first = 0; first < rows; first += groups) {
        const int row = first + group;
        if (first > 0) {
            begin = end = 0;
            if (row < rows) {
                begin = int(__ldg(own_offsets + row) - tile.nonzero);
                end = int(__ldg(own_offsets + row + 1) - tile.nonzero);
            }
        }
        const bool is_long = end - begin > longest;
        left_out |= is_long;
        value_t sum = is_long ? value_t(0) : row_sum(products, begin, end, lane, lanes);
        for (int distance = lanes / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, distance);
        if (lane == 0 && row < rows && !is_long) store_row(y, tile.row + row, sum, alpha, beta);
    }
    if (!__syncthreads_or(left_out)) return;
    for (int first = thread / 32 * 32; first < rows; first += THREADS) {
        const int row = first + thread % 32;
        begin = end = 0;
        if (row < rows) {
            begin = int(__ldg(own_offsets + row) - tile.nonzero);
            end = int(__ldg(own_offsets + row + 1) - tile.nonzero);
        }
        unsigned longer = __ballot_sync(ALL_LANES, end - begin > longest);
        while (longer != 0) {
            const int which = __ffs(longer) - 1;
            longer &= longer - 1;
            const int from = __shfl_sync(ALL_LANES, begin, which), to = __shfl_sync(ALL_LANES, end, which);
            const value_t sum = lane_sum<32>(row_sum(products, from, to, thread % 32, 32));
            if (thread % 32 == 0) store_row(y, tile.row + first + which, sum, alpha, beta);
        }
    }
}

// A block for each long row: `long_rows` has its row, and the first of its sums and the end of them.
extern "C" __global__ void __launch_bounds__(THREADS)
    spmv_adaptive_finish(const index_t *__restrict__ long_rows, const value_t *__restrict__ partial,
                         value_t *__restrict__ y, value_t alpha, value_t beta) {
    __shared__ value_t parts[THREADS / 32];
    const index_t *own = long_rows + 3 * (long long)blockIdx.x;
    value_t sum = 0;
    for (index_t k = own[1] + threadIdx.x; k < own[2]; k += THREADS) sum += partial[k];
    sum = block_sum(sum, parts);
    if (threadIdx.x == 0) store_row(y, own[0], sum, alpha, beta);
}
