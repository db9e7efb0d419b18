// A product or a convolution on the ordinary multiply-add units, in f32, for any types: tiles of both operands in
// shared memory, a block of 8×8 (or 4×4) sums in each thread's registers.
#include "specialisation.cuh"

#include "grid.cuh"
#include "product.cuh"
#include "window.cuh"

// TILE is 128 or 64, and the tile's depth such that each of 256 threads brings four elements of each operand.
constexpr int tile_depth = 1024 / TILE;
// The sums of a thread: `blocks` × `blocks` blocks of 4 × 4, 64 apart.
constexpr int blocks = TILE / 64;
constexpr int sums = 4 * blocks;
// A shared row is one depth of all rows of a (columns of b). Four more keep the stores of different depths in different
// banks.
constexpr int pitch = TILE + 4;

// Four neighbours that a thread brings, along the depth or along the rows, whichever is contiguous.
template <bool along_depth>
struct Quad {
    static constexpr int per_line = along_depth ? tile_depth / 4 : TILE / 4;
    int row, depth;

    __device__ __forceinline__ Quad() {
        int line = threadIdx.x / per_line, four = threadIdx.x % per_line * 4;
        row = along_depth ? line : four;
        depth = along_depth ? four : line;
    }

    __device__ __forceinline__ void deposit(float *tile, const float (&four)[4]) const {
        if (along_depth) {
#pragma unroll
            for (int i = 0; i < 4; i++) tile[(depth + i) * pitch + row] = four[i];
        } else {
            *reinterpret_cast<float4 *>(tile + depth * pitch + row) = make_float4(four[0], four[1], four[2], four[3]);
        }
    }
};

// Brings four elements of an operand that lies in two strides. `line` is the first row (or column), `depth` the first
// depth.
template <bool along_depth, bool vector, class T>
__device__ __forceinline__ void fetch(float (&four)[4], const T *from, i64 line_stride, i64 depth_stride, int line,
                                      int lines, int depth, int depths, bool gated, const Product &p) {
    if constexpr (vector) {
        bool there = line < lines && depth < depths;
        int own = column_of_b(p, line, gated);
        if (there) {
            load(four, from + own * line_stride + depth * depth_stride);
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++) four[i] = 0.0f;
        }
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int l = line + (along_depth ? 0 : i), d = depth + (along_depth ? i : 0);
            bool there = l < lines && d < depths;
            four[i] = there ? to_float(from[column_of_b(p, l, gated) * line_stride + d * depth_stride]) : 0.0f;
        }
    }
}

// Blocks that share a multiprocessor. Two of the larger tile would leave a thread 128 registers, all of which the sums
// and the operands in flight take: epilogues, gates and windows would spill.
constexpr int resident = TILE == 64 ? 3 : 1;

extern "C" __global__ void __launch_bounds__(256, resident)
    simt(const A_TYPE *a, const B_TYPE *b, A_TYPE *y, const Product p, const Window w, const Epilogue e) {
    wait_for_launch_before();
    __shared__ __align__(16) float a_tiles[2][tile_depth * pitch];
    __shared__ __align__(16) float b_tiles[2][tile_depth * pitch];
    Tile tile = tile_of_block(p, TILE, TILE);
    a += tile.slice * p.a_slice;
    b += tile.slice * p.b_slice;

    Quad<CONVOLUTION || A_ALONG_DEPTH> of_a;
    Quad<B_ALONG_DEPTH> of_b;
#if CONVOLUTION
    int own_row = tile.row + of_a.row;
    Corner corner = own_row < p.rows ? corner_of(w, own_row) : no_corner();
    Cursor cursor;
    if (p.depth > 0) cursor.go_to(w, p.channels, of_a.depth);
#endif

    auto fetch_a = [&](float(&four)[4], int depth) {
#if CONVOLUTION
#if A_VECTOR
        Tap tap(w, cursor);
        if (tap.inside(w, corner)) {
            load(four, a + (corner.pixel + tap.pixel) * p.a_row + cursor.channel);
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++) four[i] = 0.0f;
        }
#else
        Cursor one = cursor;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            Tap tap(w, one);
            bool there = tap.inside(w, corner);
            four[i] = there ? to_float(a[(corner.pixel + tap.pixel) * p.a_row + one.channel]) : 0.0f;
            one.advance(w, p.channels, 1);
        }
#endif
        cursor.advance(w, p.channels, tile_depth);
#else
        fetch<A_ALONG_DEPTH, A_VECTOR>(four, a, p.a_row, p.a_depth, tile.row + of_a.row, p.rows, depth + of_a.depth,
                                       p.depth, false, p);
#endif
    };
    auto fetch_b = [&](float(&four)[4], int depth) {
        fetch<B_ALONG_DEPTH, B_VECTOR>(four, b, p.b_column, p.b_depth, tile.column + of_b.row, p.columns,
                                       depth + of_b.depth, p.depth, GATED, p);
    };

    float sum[sums][sums] = {};
    int down = threadIdx.x / 16 * 4, across = threadIdx.x % 16 * 4;
    int steps = (p.depth + tile_depth - 1) / tile_depth;
    float next_a[4], next_b[4];
    if (steps > 0) {
        fetch_a(next_a, 0);
        fetch_b(next_b, 0);
        of_a.deposit(a_tiles[0], next_a);
        of_b.deposit(b_tiles[0], next_b);
    }
    __syncthreads();
    for (int step = 0; step < steps; step++) {
        // The next tiles travel while these are multiplied. Their places were last read a step ago, before the barrier.
        bool more = step + 1 < steps;
        if (more) {
            fetch_a(next_a, (step + 1) * tile_depth);
            fetch_b(next_b, (step + 1) * tile_depth);
        }
        const float *from_a = a_tiles[step & 1], *from_b = b_tiles[step & 1];
#pragma unroll
        for (int depth = 0; depth < tile_depth; depth++) {
            float rows[sums], columns[sums];
#pragma unroll
            for (int block = 0; block < blocks; block++) {
                float4 four = *reinterpret_cast<const float4 *>(from_a + depth * pitch + down + 64 * block);
                rows[4 * block] = four.x, rows[4 * block + 1] = four.y, rows[4 * block + 2] = four.z,
                         rows[4 * block + 3] = four.w;
                four = *reinterpret_cast<const float4 *>(from_b + depth * pitch + across + 64 * block);
                columns[4 * block] = four.x, columns[4 * block + 1] = four.y, columns[4 * block + 2] = four.z,
                            columns[4 * block + 3] = four.w;
            }
#pragma unroll
            for (int i = 0; i < sums; i++)
#pragma unroll
                for (int j = 0; j < sums; j++) sum[i][j] += rows[i] * columns[j];
        }
        if (more) {
            of_a.deposit(a_tiles[(step + 1) & 1], next_a);
            of_b.deposit(b_tiles[(step + 1) & 1], next_b);
        }
        __syncthreads();
    }

    // Results of a thread's block of four columns, STORE of them at a time: half as many if they are gated.
    constexpr int per_result = GATED ? 2 : 1;
    int result_columns = p.columns / per_result;
#pragma unroll
    for (int i = 0; i < sums; i++) {
        int row = tile.row + down + i / 4 * 64 + i % 4;
        if (row >= p.rows) continue;
        i64 line = tile.slice * p.y_slice + row * p.y_row;
#pragma unroll
        for (int j = 0; j < sums; j += STORE * per_result) {
            int column = (tile.column + across + j / 4 * 64 + j % 4) / per_result;
            if (column >= result_columns) continue;
            float result[STORE];
#if GATED
            float gate[STORE];
#pragma unroll
            for (int k = 0; k < STORE; k++) result[k] = sum[i][j + 2 * k], gate[k] = sum[i][j + 2 * k + 1];
            finish_gated(result, gate, e, row, line + column, tile.slice * p.column_slice + column);
#else
#pragma unroll
            for (int k = 0; k < STORE; k++) result[k] = sum[i][j + k];
            finish(result, e, row, line + column, tile.slice * p.column_slice + column);
#endif
            store(y + line + column, result);
        }
    }
}
