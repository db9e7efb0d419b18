// Equal shares of work, whatever the rows are like. The ends of the rows and the non-zeros are merged into one list: a non-zero comes before
// the end of its row. A block takes TILE items of that list, a thread ITEMS of them, so that neither a long row nor many empty ones give
// anyone more to do. (Merrill and Garland, "Merge-based parallel sparse matrix-vector multiplication", 2016.)
constexpr int TILE = THREADS * ITEMS;

// Where a share of the list begins: how many of the first `items` items are ends of rows. `end_of` gives the end of a row.
template <class T, class Ends>
__device__ __forceinline__ T rows_before(T items, T rows, T nonzeros, Ends end_of) {
    T low = items > nonzeros ? items - nonzeros : 0;
    T high = items < rows ? items : rows;
    while (low < high) {
        const T middle = low + (high - low) / 2;
        if (end_of(middle) < items - middle) low = middle + 1;
        else high = middle;
    }
    return low;
}

// Once for a matrix: the row that each block begins in. There is an end after the last block.
extern "C" __global__ void __launch_bounds__(THREADS)
    spmv_merge_search(long long rows, long long nonzeros, long long tiles, const index_t *__restrict__ offsets,
                      index_t *__restrict__ firsts) {
    const long long tile = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (tile > tiles) return;
    const long long all = rows + nonzeros;
    const long long items = tile * TILE < all ? tile * TILE : all;
    const auto end_of = [&](long long row) { return (long long)__ldg(offsets + row + 1); };
    firsts[tile] = index_t(rows_before(items, rows, nonzeros, end_of));
}

// Shared memory holds a product or the end of a row in each slot, the products first.
union Slot {
    value_t value;
    int end;
};

extern "C" __global__ void __launch_bounds__(THREADS)
    spmv_merge(long long rows, long long nonzeros, const index_t *__restrict__ firsts,
               const index_t *__restrict__ offsets, const index_t *__restrict__ columns,
               const value_t *__restrict__ values, const value_t *__restrict__ x, value_t *__restrict__ y,
               value_t *__restrict__ carries, value_t alpha, value_t beta) {
    __shared__ Slot slots[TILE];
    __shared__ value_t warp_sum[THREADS / 32];
    __shared__ int warp_ends[THREADS / 32];
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const long long all = rows + nonzeros;
    const long long first_item = (long long)blockIdx.x * TILE;
    const long long last_item = first_item + TILE < all ? first_item + TILE : all;
    const index_t first_row = firsts[blockIdx.x], last_row = firsts[blockIdx.x + 1];
    const index_t nonzero = index_t(first_item - first_row);
    const int own_rows = int(last_row - first_row);
    const int items = int(last_item - first_item), count = items - own_rows;
    const index_t *own_ends = offsets + first_row + 1;

    if (count > 0) {
        value_t product[ITEMS];
        tile_products(columns + nonzero, values + nonzero, x, count, product);
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            if (thread + i * THREADS < count) slots[thread + i * THREADS].value = product[i];
        }
    }
    for (int row = thread; row < own_rows; row += THREADS) {
        slots[count + row].end = int(__ldg(own_ends + row) - nonzero);
    }
    __syncthreads();

    // The thread's share of the tile's list.
    const int begin = thread * ITEMS < items ? thread * ITEMS : items;
    int row = rows_before(begin, own_rows, count, [&](int at) { return slots[count + at].end; });
    const int begin_row = row;
    int place = begin - row;
    int end = row < own_rows ? slots[count + row].end : TILE;
    value_t sum = 0, done[ITEMS];
    unsigned ended = 0;
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        done[i] = sum;
        if (begin + i < items) {
            if (place < end) {
                sum += slots[place].value;
                ++place;
            } else {
                ended |= 1u << i;
                sum = 0;
                ++row;
                end = row < own_rows ? slots[count + row].end : TILE;
            }
        }
    }

    // What the threads before have left of the row that this one begins in: a scan of sums that starts again where a row ended.
    value_t left = sum;
    int any = ended != 0;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const value_t before = __shfl_up_sync(ALL_LANES, left, distance);
        const int any_before = __shfl_up_sync(ALL_LANES, any, distance);
        if (lane >= distance) {
            if (!any) left = before + left;
            any |= any_before;
        }
    }
    if (lane == 31) {
        warp_sum[warp] = left;
        warp_ends[warp] = any;
    }
    value_t carry = __shfl_up_sync(ALL_LANES, left, 1);
    int carry_ends = __shfl_up_sync(ALL_LANES, any, 1);
    if (lane == 0) {
        carry = 0;
        carry_ends = 0;
    }
    // Every product and every end has been read.
    __syncthreads();
    value_t warps = 0;
    for (int i = 0; i < warp; ++i) warps = warp_ends[i] ? warp_sum[i] : warps + warp_sum[i];
    if (!carry_ends) carry = warps + carry;
    int at = begin_row;
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        if (ended >> i & 1) {
            slots[count + at].value = at == begin_row ? carry + done[i] : done[i];
            ++at;
        }
    }
    if (thread == THREADS - 1) carries[blockIdx.x] = ended != 0 ? sum : carry + sum;
    __syncthreads();
    for (int at = thread; at < own_rows; at += THREADS) {
        store_row(y, first_row + at, slots[count + at].value, alpha, beta);
    }
}

// Adds what tiles have left of a row to the row, a warp for each tile. The first tile that leaves something of a row takes the following
// ones along; if they are many, the whole block does.
extern "C" __global__ void __launch_bounds__(THREADS)
    spmv_merge_finish(long long rows, long long tiles, const index_t *__restrict__ firsts,
                      const value_t *__restrict__ carries, value_t *__restrict__ y, value_t alpha) {
    constexpr int WARPS = THREADS / 32;
    __shared__ long long many[WARPS];
    __shared__ value_t parts[WARPS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const long long tile = (long long)blockIdx.x * WARPS + warp;
    long long long_row = -1;
    if (tile < tiles) {
        const index_t row = firsts[tile + 1];
        // Of the last tile nothing is left, and the row after the last does not exist.
        if (row < rows && (tile == 0 || firsts[tile] != row)) {
            if (tile + 32 < tiles && firsts[tile + 33] == row) {
                long_row = tile;
            } else {
                const long long other = tile + lane;
                const bool same = other < tiles && firsts[other + 1] == row;
                const value_t sum = lane_sum<32>(same ? carries[other] : value_t(0));
                if (lane == 0) y[row] += alpha * sum;
            }
        }
    }
    if (lane == 0) many[warp] = long_row;
    __syncthreads();
    for (int i = 0; i < WARPS; ++i) {
        if (many[i] < 0) continue;
        const index_t row = firsts[many[i] + 1];
        value_t sum = 0;
        for (long long other = many[i] + threadIdx.x; other < tiles && firsts[other + 1] == row; other += THREADS) {
            sum += carries[other];
        }
        sum = block_sum(sum, parts);
        if (threadIdx.x == 0) y[row] += alpha * sum;
        __syncthreads();
    }
}
