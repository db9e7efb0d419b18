// x in shared memory, a slice of COLUMNS entries at a time, so that scattered columns cost banks of shared memory and not sectors of L2. The
// host has sorted the non-zeros by slice and, within it, by blocks of rows. The first launch multiplies and writes products, or the sum of four
// that are of one row, side by side for each block of rows; the second reads the products of a block of rows as one piece and adds them up
// by row, again in shared memory. (Beamer, Asanović and Patterson, "Reducing Pagerank communication via propagation blocking", 2017.)

// Four non-zeros: their values, and their columns within the slice. A place without a non-zero has column COLUMNS, where a zero is.
struct alignas(16) Values {
    value_t at[4];
};
struct alignas(8) Columns {
    unsigned short at[4];
};

// A slice, and the quads of it that a block takes: up to `border` each product is of a row of its own, from there on the four have one row.
struct Piece {
    long long column, columns, begin, border, end;
};

// A block of rows: its products, its rows, and its tables, 16 bytes at a time: the groups, the positions they name, and from `order` on the rows
// that have products, the longest first. Pieces of long rows have sums in `partial` instead of `y`.
struct RowBlock {
    long long product, products, row, rows, table, quads, groups, order, is_partial;
};

// Rows that a warp sums together, 1 << shift lanes for each: where in the tables the positions of their products are, how many pairs of them
// each lane has, and the place of the first of the rows in `order`.
struct alignas(16) Group {
    unsigned positions, pairs, shift_and_rows, first;
};

// Copies pieces of 16 bytes into shared memory, all of them asked for before the first arrives.
template <int WIDTH>
__device__ __forceinline__ void copy(void *to, const void *from, int pieces) {
    for (int i = threadIdx.x; i < pieces; i += WIDTH) {
        const unsigned target = unsigned(__cvta_generic_to_shared(static_cast<uint4 *>(to) + i));
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(target), "l"(static_cast<const uint4 *>(from) + i) : "memory");
    }
}

__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// What is read once need not stay in the cache.
__device__ __forceinline__ Values read_once(const Values *from) {
    union {
        uint4 words[sizeof(Values) / 16];
        Values values;
    } read;
#pragma unroll
    for (int i = 0; i < int(sizeof(Values) / 16); ++i) read.words[i] = __ldcs(reinterpret_cast<const uint4 *>(from) + i);
    return read.values;
}

__device__ __forceinline__ Columns read_once(const Columns *from) {
    union {
        uint2 words;
        Columns columns;
    } read;
    read.words = __ldcs(reinterpret_cast<const uint2 *>(from));
    return read.columns;
}

// Asks for the first bytes of an array, so that they are in L2 when they are needed.
__device__ __forceinline__ void prefetch(const void *from, long long bytes) {
    for (long long at = 128 * threadIdx.x; at < bytes; at += 128 * THREADS) {
        asm volatile("prefetch.global.L2 [%0];" ::"l"(static_cast<const char *>(from) + at));
    }
}

// What a thread asks for at a time.
constexpr int QUADS = ITEMS / 4;

// Numbers in a piece of 16 bytes.
constexpr int PER_PIECE = 16 / sizeof(value_t);

// The products of the quads from `begin` to `end`: four results each, or their sum.
template <bool JOINT>
__device__ __forceinline__ void multiply(long long begin, long long end, const Values *__restrict__ values,
                                         const Columns *__restrict__ columns, const unsigned *__restrict__ places,
                                         const value_t *slice, value_t *__restrict__ products) {
    for (long long first = begin; first < end; first += QUADS * THREADS) {
        const long long own = first + threadIdx.x;
        const long long left = end - own;
        Values value[QUADS];
        Columns column[QUADS];
        unsigned place[QUADS];
#pragma unroll
        for (int i = 0; i < QUADS; ++i) {
            if (i * THREADS < left) {
                value[i] = read_once(values + own + i * THREADS);
                column[i] = read_once(columns + own + i * THREADS);
                place[i] = __ldcs(places + own + i * THREADS);
            }
        }
#pragma unroll
        for (int i = 0; i < QUADS; ++i) {
            if (i * THREADS < left) {
                Values product;
#pragma unroll
                for (int k = 0; k < 4; ++k) product.at[k] = value[i].at[k] * slice[column[i].at[k]];
                if (JOINT) products[place[i]] = (product.at[0] + product.at[1]) + (product.at[2] + product.at[3]);
                else *reinterpret_cast<Values *>(products + place[i]) = product;
            }
        }
    }
}

// Once for a matrix: the places between the products of one slice and of the next are read with them, and never written again.
extern "C" __global__ void __launch_bounds__(THREADS) spmv_sliced_clear(value_t *__restrict__ products, long long count) {
    const long long at = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (at < count) products[at] = 0;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1024 / THREADS)
    spmv_sliced_products(const Piece *__restrict__ pieces, const long long *__restrict__ firsts,
                         const Values *__restrict__ values, const Columns *__restrict__ columns,
                         const unsigned *__restrict__ places, const value_t *__restrict__ x,
                         value_t *__restrict__ products) {
    extern __shared__ __align__(16) value_t slice[];
    const int thread = threadIdx.x;
    let_next_launch_start();
    const long long last = firsts[blockIdx.x + 1];
    for (long long at = firsts[blockIdx.x]; at < last; ++at) {
        const Piece piece = pieces[at];
        // The slice before has been used.
        __syncthreads();
        const int count = int(piece.columns), whole = count / PER_PIECE;
        copy<THREADS>(slice, x + piece.column, whole);
        for (int i = PER_PIECE * whole + thread; i < count; i += THREADS) slice[i] = x[piece.column + i];
        if (thread == 0) slice[COLUMNS] = 0;
        // Memory has time for what comes next while the slice comes from L2.
        const long long left = piece.end - piece.begin, soon = left < QUADS * THREADS ? left : QUADS * THREADS;
        prefetch(values + piece.begin, soon * sizeof(Values));
        prefetch(columns + piece.begin, soon * sizeof(Columns));
        prefetch(places + piece.begin, soon * sizeof(unsigned));
        wait_for_copies();
        __syncthreads();
        multiply<false>(piece.begin, piece.border, values, columns, places, slice, products);
        multiply<true>(piece.border, piece.end, values, columns, places, slice, products);
    }
}

extern "C" __global__ void __launch_bounds__(SUM_THREADS, 1024 / SUM_THREADS)
    spmv_sliced_sums(const RowBlock *__restrict__ blocks, const uint4 *__restrict__ tables,
                     const value_t *__restrict__ products, value_t *__restrict__ y, value_t *__restrict__ partial,
                     value_t alpha, value_t beta) {
    // A zero, the products, the sums of the rows, and the tables.
    extern __shared__ __align__(16) value_t slots[];
    constexpr int WARPS = SUM_THREADS / 32;
    const int thread = threadIdx.x, lane = thread % 32;
    const RowBlock own = blocks[blockIdx.x];
    const int count = int(own.products), rows = int(own.rows), groups = int(own.groups);
    value_t *first = slots + 4, *sums = first + count;
    uint4 *table = reinterpret_cast<uint4 *>(slots) + (4 + count + rows + PER_PIECE - 1) / PER_PIECE;
    let_next_launch_start();
    copy<SUM_THREADS>(table, tables + own.table, int(own.quads));
    wait_for_launch_before();
    copy<SUM_THREADS>(first, products + own.product, count / PER_PIECE);
    // Rows without a non-zero are in no group.
    for (int row = thread; row < rows; row += SUM_THREADS) sums[row] = 0;
    if (thread == 0) slots[0] = 0;
    wait_for_copies();
    __syncthreads();

    const unsigned *words = reinterpret_cast<const unsigned *>(table);
    const unsigned short *order = reinterpret_cast<const unsigned short *>(table + own.order);
    for (int at = thread / 32; at < groups; at += WARPS) {
        const Group group = reinterpret_cast<const Group *>(table)[at];
        const unsigned *next = words + group.positions + lane;
        value_t even = 0, odd = 0;
#pragma unroll 4
        for (unsigned pair = 0; pair < group.pairs; ++pair, next += 32) {
            const unsigned both = *next;
            even += slots[both & 0xffff];
            odd += slots[both >> 16];
        }
        value_t sum = even + odd;
        const int shift = int(group.shift_and_rows & 0xff), members = int(group.shift_and_rows >> 8);
        for (int distance = 1; distance < 1 << shift; distance *= 2) sum += __shfl_xor_sync(ALL_LANES, sum, distance);
        const int row = lane >> shift;
        if ((lane & ((1 << shift) - 1)) == 0 && row < members) sums[order[group.first + row]] = sum;
    }
    __syncthreads();
    for (int row = thread; row < rows; row += SUM_THREADS) {
        if (own.is_partial) partial[own.row + row] = sums[row];
        else store_row(y, own.row + row, sums[row], alpha, beta);
    }
}
