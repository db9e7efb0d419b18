// A product or a convolution on the tensor cores of a warp, for f16, bf16 and e4m3 (ELEMENT) with f32 sums, and for f32
// as three products of tf32.
//
// A block computes a tile of TILE_ROWS × TILE_COLUMNS sums, 64 bytes of depth at a time, from tiles of a and b in shared
// memory; a convolution's tile of a is gathered from the pixels of the taps as it is copied, so that no matrix of
// patches exists. The tiles come by cp.async, STAGES - 1 ahead (ASYNCHRONOUS), or one ahead through registers: on
// Turing, and if rows are not aligned to 16 bytes. With split-K (SPLIT) a block leaves partial sums, which `reduce.cu`
// adds up.
#include "specialisation.cuh"

#include "grid.cuh"
#include "matrix.cuh"
#include "product.cuh"
#include "window.cuh"

constexpr int threads = 32 * WARPS_DOWN * WARPS_ACROSS;
// A tile's row is 64 bytes: four chunks of 16.
constexpr int chunks = 4;
constexpr int chunk_depth = Wide<ELEMENT>::count;
constexpr int tile_depth = chunks * chunk_depth;
// Whether elements are f32, and multiplied in two parts.
constexpr bool in_parts = sizeof(ELEMENT) == 4;
constexpr int warp_rows = TILE_ROWS / WARPS_DOWN;
constexpr int warp_columns = TILE_COLUMNS / WARPS_ACROSS;
constexpr int row_step = threads / chunks;
constexpr int a_copies = TILE_ROWS / row_step;
constexpr int b_copies = (TILE_COLUMNS + row_step - 1) / row_step;
constexpr int a_bytes = TILE_ROWS * 64;
constexpr int stage_bytes = a_bytes + TILE_COLUMNS * 64;
static_assert(TILE_ROWS % row_step == 0 && warp_rows % 16 == 0 && warp_columns % 16 == 0, "the warps share the tile");

// Where a chunk of a tile's row lies. Eight rows that a warp reads at the same chunk fall into different banks.
__device__ __forceinline__ u32 chunk_at(int row, int chunk) { return row * 64 + ((chunk ^ (row >> 1 & 3)) << 4); }

// What one thread brings: one chunk of every `row_step`th row.
struct Source {
    const Product &p;
    const Window &w;
    int row, chunk;
#if CONVOLUTION
    const ELEMENT *a;
    Corner corner[a_copies];
    Cursor cursor;
    // Of f32, of whose chunks a tap has twice as many: where each row's pixel of the tap lies, null if it is padding.
    const ELEMENT *pixel[in_parts ? a_copies : 1];
#else
    const ELEMENT *a[a_copies];
#endif
    const ELEMENT *b[b_copies];
    // The first depth of the chunk that comes next.
    int depth;

    __device__ __forceinline__ Source(const Product &p, const Window &w, const ELEMENT *from_a, const ELEMENT *from_b,
                                      const Tile &tile, int first)
        : p(p), w(w), row(threadIdx.x / chunks), chunk(threadIdx.x % chunks), depth(first + chunk * chunk_depth) {
        from_a += tile.slice * p.a_slice;
        from_b += tile.slice * p.b_slice;
#pragma unroll
        for (int i = 0; i < a_copies; i++) {
            int own = tile.row + row + i * row_step;
#if CONVOLUTION
            corner[i] = own < p.rows ? corner_of(w, own) : no_corner();
#else
            a[i] = own < p.rows ? from_a + own * p.a_row : nullptr;
#endif
        }
#if CONVOLUTION
        a = from_a;
        if (p.depth > 0) cursor.go_to(w, p.channels, depth);
        if constexpr (in_parts) find_pixels();
#endif
#pragma unroll
        for (int i = 0; i < b_copies; i++) {
            int own = tile.column + row + i * row_step;
            bool there = row + i * row_step < TILE_COLUMNS && own < p.columns;
            b[i] = there ? from_b + column_of_b(p, own, GATED) * p.b_column : nullptr;
        }
    }

    __device__ __forceinline__ void advance() {
        depth += tile_depth;
#if CONVOLUTION
        [[maybe_unused]] bool next_tap = cursor.channel + tile_depth >= p.channels;
        cursor.advance(w, p.channels, tile_depth);
        if constexpr (in_parts)
            if (next_tap) find_pixels();
#endif
    }

#if CONVOLUTION
    __device__ __forceinline__ void find_pixels() {
        Tap tap(w, cursor);
#pragma unroll
        for (int i = 0; i < a_copies; i++)
            pixel[i] = tap.inside(w, corner[i]) ? a + (corner[i].pixel + tap.pixel) * p.a_row : nullptr;
    }
#endif

    // The chunk of row `i`, whose elements are neighbours in memory and aligned; null if they are zeros.
    __device__ __forceinline__ const ELEMENT *wide_a(int i) const {
#if CONVOLUTION
        if constexpr (in_parts) return pixel[i] ? pixel[i] + cursor.channel : nullptr;
        Tap tap(w, cursor);
        return tap.inside(w, corner[i]) ? a + (corner[i].pixel + tap.pixel) * p.a_row + cursor.channel : nullptr;
#else
        return a[i] && depth < p.depth ? a[i] + depth : nullptr;
#endif
    }
    __device__ __forceinline__ const ELEMENT *wide_b(int i) const {
        return b[i] && depth < p.depth ? b[i] + depth : nullptr;
    }

#if !ASYNCHRONOUS
    __device__ __forceinline__ uint4 fetch(const ELEMENT *from) const {
        return from ? *reinterpret_cast<const uint4 *>(from) : make_uint4(0, 0, 0, 0);
    }
    static __device__ __forceinline__ uint4 packed(const u32 (&bits)[8]) {
        return make_uint4(bits[0] | bits[1] << 16, bits[2] | bits[3] << 16, bits[4] | bits[5] << 16,
                          bits[6] | bits[7] << 16);
    }
    static __device__ __forceinline__ uint4 packed(const u32 (&bits)[4]) {
        return make_uint4(bits[0], bits[1], bits[2], bits[3]);
    }
    __device__ __forceinline__ uint4 fetch_a(int i) const {
#if A_VECTOR
        return fetch(wide_a(i));
#else
        u32 bits[chunk_depth];
#if CONVOLUTION
        Cursor one = cursor;
#pragma unroll
        for (int j = 0; j < chunk_depth; j++) {
            Tap tap(w, one);
            bool there = tap.inside(w, corner[i]);
            bits[j] = there ? bits_of(a[(corner[i].pixel + tap.pixel) * p.a_row + one.channel]) : 0;
            one.advance(w, p.channels, 1);
        }
#else
#pragma unroll
        for (int j = 0; j < chunk_depth; j++) bits[j] = a[i] && depth + j < p.depth ? bits_of(a[i][depth + j]) : 0;
#endif
        return packed(bits);
#endif
    }
    __device__ __forceinline__ uint4 fetch_b(int i) const {
#if B_VECTOR
        return fetch(wide_b(i));
#else
        u32 bits[chunk_depth];
#pragma unroll
        for (int j = 0; j < chunk_depth; j++) bits[j] = b[i] && depth + j < p.depth ? bits_of(b[i][depth + j]) : 0;
        return packed(bits);
#endif
    }
#endif
};

// Reads a line of sums back from shared memory, 16 bytes at a time.
template <int N>
__device__ __forceinline__ void read_line(float (&to)[N], const float *from) {
    constexpr int width = N < 4 ? N : 4;
#pragma unroll
    for (int i = 0; i < N; i += width) {
        float part[width];
        load(part, from + i);
#pragma unroll
        for (int k = 0; k < width; k++) to[i + k] = part[k];
    }
}

struct Sums {
    float of[warp_rows / 16][warp_columns / 8][4];
};

// Multiplies the tiles of one stage.
__device__ __forceinline__ void multiply_stage(Sums &sums, u32 stage, int first_row, int first_column) {
    int lane = threadIdx.x % 32, matrix = lane / 8, in_matrix = lane % 8;
#pragma unroll(in_parts ? 1 : 2)
    for (int half = 0; half < 2; half++) {
        MmaRows<ELEMENT> a[warp_rows / 16];
#pragma unroll
        for (int i = 0; i < warp_rows / 16; i++)
            a[i].load(stage + chunk_at(first_row + 16 * i + (matrix & 1) * 8 + in_matrix, 2 * half + (matrix >> 1)));
#pragma unroll
        for (int j = 0; j < warp_columns / 16; j++) {
            // Two neighbouring columns of 8, each with both halves of its depth.
            u32 b[4];
            ldmatrix_x4(b,
                        stage + a_bytes +
                            chunk_at(first_column + 16 * j + (matrix >> 1) * 8 + in_matrix, 2 * half + (matrix & 1)));
            multiply_add(sums.of, 2 * j, a, b);
        }
    }
}

// Adds up on the ordinary units what the tensor cores cannot: an infinity has no two parts, nor has a number that would
// be rounded to one. All of these end in a sum that is not finite. `sums` are 16 rows of a warp in shared memory, of
// which some may be so; they are rare.
__device__ __forceinline__ void add_up_again(float *sums, int pitch, const ELEMENT *a, const ELEMENT *b, const Product &p,
                                             const Window &w, const Tile &tile, int first_row, int first_column,
                                             int first_depth, int end_depth) {
    a += tile.slice * p.a_slice;
    b += tile.slice * p.b_slice;
#pragma unroll 1
    for (int at = threadIdx.x % 32; at < 16 * warp_columns; at += 32) {
        int row = first_row + at / warp_columns, column = first_column + at % warp_columns;
        float &kept = sums[at / warp_columns * pitch + at % warp_columns];
        if (is_finite(kept) || row >= p.rows || column >= p.columns) continue;
        const ELEMENT *weights = b + column_of_b(p, column, GATED) * p.b_column;
        float sum = 0.0f;
#if CONVOLUTION
        Corner corner = corner_of(w, row);
        Cursor cursor;
        cursor.go_to(w, p.channels, first_depth);
#pragma unroll 1
        for (int depth = first_depth; depth < end_depth; depth++) {
            Tap tap(w, cursor);
            if (tap.inside(w, corner))
                sum += to_float(a[(corner.pixel + tap.pixel) * p.a_row + cursor.channel]) * to_float(weights[depth]);
            cursor.advance(w, p.channels, 1);
        }
#else
#pragma unroll 1
        for (int depth = first_depth; depth < end_depth; depth++)
            sum += to_float(a[row * p.a_row + depth]) * to_float(weights[depth]);
#endif
        kept = sum;
    }
}

// The epilogue: 16 rows of a warp at a time go through shared memory, so that a thread has STORE neighbouring results
// of one row, for wide accesses to the epilogue's operands and to the result. The operands of several of a thread's
// slots are in flight before the first is used.
__device__ __forceinline__ void write_results(const Sums &sums, float *scratch, const ELEMENT *a, const ELEMENT *b, TYPE *y,
                                              float *partial, const Product &p, const Window &w, const Epilogue &e,
                                              const Tile &tile, int first_row, int first_column, int first_depth,
                                              int end_depth) {
    int lane = threadIdx.x % 32;
    constexpr int per_result = GATED && !SPLIT ? 2 : 1;
    constexpr int width = STORE * per_result, across = warp_columns / width, slots = 16 * across;
    constexpr int turns = (slots + 31) / 32, batch = turns < 5 ? turns : turns % 5 == 0 ? 5 : 4;
    // Rows 8 floats further apart fall into other banks.
    constexpr int pitch = warp_columns + 8;
    float *own = scratch + threadIdx.x / 32 * (16 * pitch);
#pragma unroll
    for (int i = 0; i < warp_rows / 16; i++) {
        // The sums of the rows before have been read.
        __syncwarp();
        bool finite = true;
#pragma unroll
        for (int j = 0; j < warp_columns / 8; j++) {
            const float(&four)[4] = sums.of[i][j];
            float *to = own + lane / 4 * pitch + 8 * j + lane % 4 * 2;
            store_pair(to, four[0], four[1]);
            store_pair(to + 8 * pitch, four[2], four[3]);
            if constexpr (in_parts)
#pragma unroll
                for (int k = 0; k < 4; k++) finite = finite && is_finite(four[k]);
        }
        __syncwarp();
        if constexpr (in_parts) {
            if (!__all_sync(0xffffffffu, finite)) {
                add_up_again(own, pitch, a, b, p, w, tile, tile.row + first_row + 16 * i, tile.column + first_column,
                             first_depth, end_depth);
                __syncwarp();
            }
        }
#pragma unroll 1
        for (int first = lane; first < slots; first += 32 * batch) {
            int rows[batch], columns[batch];
            bool there[batch];
#if !SPLIT
            Fetched<STORE> fetched[batch];
#endif
#pragma unroll
            for (int turn = 0; turn < batch; turn++) {
                int slot = first + 32 * turn;
                rows[turn] = tile.row + first_row + 16 * i + slot / across;
                columns[turn] = (tile.column + first_column + slot % across * width) / per_result;
                there[turn] = slot < slots && rows[turn] < p.rows && columns[turn] * per_result < p.columns;
#if !SPLIT
                if (there[turn]) fetch(fetched[turn], e, tile.slice * p.y_slice + rows[turn] * p.y_row + columns[turn]);
#endif
            }
#pragma unroll
            for (int turn = 0; turn < batch; turn++) {
                if (!there[turn]) continue;
                int slot = first + 32 * turn;
                float sum[width];
                read_line(sum, own + slot / across * pitch + slot % across * width);
#if SPLIT
                store(partial + (i64(tile.split) * p.rows + rows[turn]) * p.columns + columns[turn], sum);
#else
                int column = tile.slice * p.column_slice + columns[turn];
                TYPE *to = y + tile.slice * p.y_slice + rows[turn] * p.y_row + columns[turn];
#if GATED
                float result[STORE], gate[STORE];
#pragma unroll
                for (int k = 0; k < STORE; k++) result[k] = sum[2 * k], gate[k] = sum[2 * k + 1];
                apply_gate(result, gate, e, column);
                apply_stages(result, fetched[turn], e, rows[turn], column);
                store(to, result);
#else
                apply_stages(sum, fetched[turn], e, rows[turn], column);
                store(to, sum);
#endif
#endif
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(threads, BLOCKS)
    mma(const ELEMENT *a, const ELEMENT *b, TYPE *y, float *partial, const Product p, const Window w, const Epilogue e) {
    extern __shared__ __align__(128) u8 shared[];
    u32 base = shared_address(shared);
    Tile tile = tile_of_block(p, TILE_ROWS, TILE_COLUMNS);
    int all_steps = (p.depth + tile_depth - 1) / tile_depth;
    int first_step = SPLIT ? tile.split * p.steps : 0;
    int steps = SPLIT ? max(0, min(p.steps, all_steps - first_step)) : all_steps;
    Source source(p, w, a, b, tile, first_step * tile_depth);
    u32 own = chunk_at(source.row, source.chunk);
    wait_for_launch_before();

    int warp = threadIdx.x / 32;
    int first_row = warp / WARPS_ACROSS * warp_rows, first_column = warp % WARPS_ACROSS * warp_columns;
    Sums sums = {};

#if ASYNCHRONOUS
    // Null stands for zeros; the copy then reads nothing, but still needs an address.
    auto copy = [&](int slot) {
        u32 to = base + slot * stage_bytes + own;
#pragma unroll
        for (int i = 0; i < a_copies; i++) {
            const ELEMENT *from = source.wide_a(i);
            cp_async_16(to + i * row_step * 64, from ? from : a, from != nullptr);
        }
#pragma unroll
        for (int i = 0; i < b_copies; i++) {
            if (TILE_COLUMNS % row_step != 0 && source.row + i * row_step >= TILE_COLUMNS) continue;
            const ELEMENT *from = source.wide_b(i);
            cp_async_16(to + a_bytes + i * row_step * 64, from ? from : b, from != nullptr);
        }
        source.advance();
    };
#pragma unroll
    for (int slot = 0; slot < STAGES - 1; slot++) {
        if (slot < steps) copy(slot);
        cp_async_commit_group();
    }
    int filled = STAGES - 1, read = 0;
    for (int step = 0; step < steps; step++) {
        // This step's tiles are here once all but the newest STAGES - 2 groups are. After the barrier every thread sees
        // them, and every thread is done with the slot that is filled next.
        cp_async_wait_group<STAGES - 2>();
        __syncthreads();
        if (step + STAGES - 1 < steps) copy(filled);
        cp_async_commit_group();
        multiply_stage(sums, base + read * stage_bytes, first_row, first_column);
        filled = filled + 1 == STAGES ? 0 : filled + 1;
        read = read + 1 == STAGES ? 0 : read + 1;
    }
    cp_async_wait_group<0>();
#else
    uint4 next_a[a_copies], next_b[b_copies];
    auto fetch = [&]() {
#pragma unroll
        for (int i = 0; i < a_copies; i++) next_a[i] = source.fetch_a(i);
#pragma unroll
        for (int i = 0; i < b_copies; i++) next_b[i] = source.fetch_b(i);
        source.advance();
    };
    auto deposit = [&](int slot) {
        u8 *to = shared + slot * stage_bytes + own;
#pragma unroll
        for (int i = 0; i < a_copies; i++) *reinterpret_cast<uint4 *>(to + i * row_step * 64) = next_a[i];
#pragma unroll
        for (int i = 0; i < b_copies; i++) {
            if (TILE_COLUMNS % row_step != 0 && source.row + i * row_step >= TILE_COLUMNS) continue;
            *reinterpret_cast<uint4 *>(to + a_bytes + i * row_step * 64) = next_b[i];
        }
    };
    if (steps > 0) {
        fetch();
        deposit(0);
    }
    __syncthreads();
    for (int step = 0; step < steps; step++) {
        // The next tiles travel while these are multiplied. Their slot was last read a step ago, before the barrier.
        bool more = step + 1 < steps;
        if (more) fetch();
        multiply_stage(sums, base + (step & 1) * stage_bytes, first_row, first_column);
        if (more) deposit((step + 1) & 1);
        __syncthreads();
    }
#endif
    // The tiles are no longer read: their memory serves the epilogue.
    __syncthreads();
    write_results(sums, reinterpret_cast<float *>(shared), a, b, y, partial, p, w, e, tile, first_row, first_column,
                  first_step * tile_depth, min(p.depth, (first_step + steps) * tile_depth));
}
