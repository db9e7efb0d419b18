// A tile of whole rows for each block, at most THREADS * ITEMS non-zeros of them. The block reads its non-zeros as one piece, keeps the
// products in shared memory, and sums each row by as many lanes as there are to spare. A row with more non-zeros than a tile gets tiles of
// its own; a second launch adds up their sums.
constexpr int TILE = THREADS * ITEMS;

// From the host. In a piece of a long row, `end` is -1 - the place of its sum in `partial`.
struct alignas(16) Tile {
    index_t row, end, nonzero, nonzero_end;
};

// The sum of a row's products in shared memory, over groups of WIDTH lanes: each lane's part of it.
template <int WIDTH>
__device__ __forceinline__ value_t row_sum(const value_t *products, int begin, int end, int lane) {
    const value_t *next = products + begin + lane;
    int left = end - begin - lane;
    value_t sum = 0;
    for (; left > 3 * WIDTH; left -= 4 * WIDTH, next += 4 * WIDTH) {
        sum += (next[0] + next[WIDTH]) + (next[2 * WIDTH] + next[3 * WIDTH]);
    }
    for (; left > 0; left -= WIDTH, next += WIDTH) sum += *next;
    return sum;
}

// A longer row would keep its lanes busy while all others wait: it is left to a whole warp.
template <int WIDTH>
constexpr int LONGEST = 32 * WIDTH;

// Sums the rows of a tile, WIDTH lanes for each. `begin` and `end` are those of the first row that the lanes take. Returns whether a row
// was left out.
template <int WIDTH>
__device__ __forceinline__ bool sum_rows(const value_t *products, const index_t *__restrict__ offsets, index_t nonzero, int rows,
                                         index_t begin, index_t end, value_t *y, value_t alpha, value_t beta) {
    constexpr int GROUPS = THREADS / WIDTH;
    const int lane = threadIdx.x % WIDTH, group = threadIdx.x / WIDTH;
    bool left_out = false;
    for (int first = 0; first < rows; first += GROUPS) {
        const int row = first + group;
        if (first > 0) {
            begin = end = nonzero;
            if (row < rows) {
                begin = offsets[row];
                end = offsets[row + 1];
            }
        }
        const bool is_long = end - begin > LONGEST<WIDTH>;
        left_out |= is_long;
        const int from = int(begin - nonzero), to = is_long ? from : int(end - nonzero);
        const value_t sum = lane_sum<WIDTH>(row_sum<WIDTH>(products, from, to, lane));
        if (lane == 0 && row < rows && !is_long) store_row(y, row, sum, alpha, beta);
    }
    return left_out;
}

// Blocks of a multiprocessor. Narrow columns need registers for an address that is otherwise a constant.
#ifdef COLUMN
constexpr int BLOCKS = 5;
#else
constexpr int BLOCKS = 6;
#endif

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    spmv_adaptive(const Tile *__restrict__ tiles, const index_t *__restrict__ offsets,
                  const column_t *__restrict__ columns, const value_t *__restrict__ values,
                  const value_t *__restrict__ x, value_t *__restrict__ y, value_t *__restrict__ partial,
                  value_t alpha, value_t beta
#ifdef COLUMN
                  ,
                  const index_t *__restrict__ firsts
#endif
    ) {
    __shared__ value_t products[TILE];
    const Tile tile = tiles[blockIdx.x];
#ifdef COLUMN
    // Narrow columns are counted from the first one of the tile.
    x += firsts[blockIdx.x];
#endif
    const int thread = threadIdx.x;

    if (tile.end <= tile.row + 1 && tile.nonzero < tile.nonzero_end) {
        // One row, or a piece of one: nothing but a sum.
        value_t sum = 0;
        for (index_t at = tile.nonzero; at < tile.nonzero_end; at += TILE) {
            const index_t left = tile.nonzero_end - at;
            value_t product[ITEMS];
            tile_products<true>(columns + at, values + at, x, left < TILE ? int(left) : TILE, product);
#pragma unroll
            for (int i = 0; i < ITEMS; ++i) sum += product[i];
        }
        sum = block_sum(sum, products);
        if (thread == 0) {
            if (tile.end < 0) partial[-1 - tile.end] = sum;
            else store_row(y, tile.row, sum, alpha, beta);
        }
        return;
    }

    // As many lanes for each row as there are, a power of two.
    const int rows = int(tile.end - tile.row);
    int shift = 5;
    while (shift > 0 && rows << shift > THREADS) --shift;
    const index_t *own_offsets = offsets + tile.row;
    value_t *own_y = y + tile.row;
    // The first offsets are asked for together with the non-zeros.
    index_t begin = tile.nonzero, end = tile.nonzero;
    if (thread >> shift < rows) {
        begin = own_offsets[thread >> shift];
        end = own_offsets[(thread >> shift) + 1];
    }
    const int count = int(tile.nonzero_end - tile.nonzero);
    if (count > 0) {
        value_t product[ITEMS];
        tile_products<false>(columns + tile.nonzero, values + tile.nonzero, x, count, product);
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) products[thread + i * THREADS] = product[i];
    }
    __syncthreads();

    bool left_out = false;
    // The width is a constant of each loop: then the addresses of its loads are, too.
#define SUM_ROWS(SHIFT)                                                                                             \
    case SHIFT:                                                                                                     \
        left_out = sum_rows<1 << SHIFT>(products, own_offsets, tile.nonzero, rows, begin, end, own_y, alpha, beta); \
        break;
    switch (shift) {
        SUM_ROWS(0)
        SUM_ROWS(1)
        SUM_ROWS(2)
        SUM_ROWS(3)
        SUM_ROWS(4)
        SUM_ROWS(5)
    }
    if (!__syncthreads_or(left_out)) return;
    for (int first = thread / 32 * 32; first < rows; first += THREADS) {
        const int row = first + thread % 32;
        int from = 0, to = 0;
        if (row < rows) {
            from = int(own_offsets[row] - tile.nonzero);
            to = int(own_offsets[row + 1] - tile.nonzero);
        }
        unsigned longer = __ballot_sync(ALL_LANES, to - from > 32 << shift);
        while (longer != 0) {
            const int which = __ffs(longer) - 1;
            longer &= longer - 1;
            const int own_from = __shfl_sync(ALL_LANES, from, which), own_to = __shfl_sync(ALL_LANES, to, which);
            const value_t sum = lane_sum<32>(row_sum<32>(products, own_from, own_to, thread % 32));
            if (thread % 32 == 0) store_row(own_y, first + which, sum, alpha, beta);
        }
    }
}
