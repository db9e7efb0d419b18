// Results of a product on Hopper in boxes: which results a tile has, the ring through which its operands come, and the
// epilogue. The rows of a tile are a box of results: neighbours in width, height, frames and clips, as many of each as
// a power of two. TILE_COLUMNS, GATED and STAGES are the includer's; so is SUBPIXEL, if it does sub-pixel convolutions, and
// STATISTICS, if it measures its results for a group norm: then boxes and columns cover the result without waste.
#pragma once
#include "hopper.cuh"
#include "product.cuh"

#ifndef SUBPIXEL
#define SUBPIXEL 0
#endif
#ifndef STATISTICS
#define STATISTICS 0
#endif
// A result of a sub-pixel convolution is a pixel of a square of 2×2. Boxes are of squares: a tile has one pixel of each.
constexpr int square = SUBPIXEL ? 2 : 1;

// Arrays are width, height, frames, clips.
struct Boxes {
    // The box's extents are 1 << shift.
    i32 shift[4];
    // Boxes along each axis.
    i32 counts[4];
    i32 out_extents[4];
    i32 kernel[3];
    i32 padding[3];
    i32 dilation[3];
    // Steps of 128 bytes of a tap's channels.
    i32 chunks;
    // Columns of the result, which are those of one pixel of a square.
    i32 columns;
    // Tiles in a row of tiles, and all of them.
    i32 across;
    i32 tiles;
    // Split-K: how many blocks share the depth of a tile, each with its own partial sums.
    i32 splits;
    // Rows of the result.
    i32 rows;
};

// A gated tile has its values in the left half and their gates in the right one.
constexpr int result_columns = GATED ? TILE_COLUMNS / 2 : TILE_COLUMNS;
// Results pass through shared memory 16 rows of a warp by a strip of columns at a time.
constexpr int strip = result_columns % 32 == 0 ? 32 : 16;
constexpr int strips = result_columns / strip;
// A thread finishes eight neighbouring columns of a row at a time, `turns` of them in a strip.
constexpr int wide = 8;
constexpr int across = strip / wide;
constexpr int turns = 16 * across / 32;
constexpr int strip_pitch = strip + 4;
constexpr int strip_bytes = 16 * strip_pitch * 4;
static_assert(result_columns % strip == 0 || result_columns == 8, "strips cover the tile; eight columns need no strips");

// A tile's first result, its first column, and the row of the weight that belongs to that. Of a sub-pixel convolution, also
// which pixel of its squares it has; the window begins that much further on.
struct Start {
    int at[4];
    int column, filter;
    int x, y;
#if STATISTICS
    // The number of the box, and of the pixel of its squares.
    int box;
#endif
};

__device__ __forceinline__ Start start_at(const Boxes &g, u32 row, u32 column) {
    Start start;
    u32 rest = row;
#pragma unroll
    for (int axis = 0; axis < 3; axis++) {
        u32 next = rest / u32(g.counts[axis]);
        start.at[axis] = int(rest - next * u32(g.counts[axis])) << g.shift[axis];
        rest = next;
    }
    // What lies below the last row of tiles lies beyond the last clip.
    start.at[3] = int(rest) << g.shift[3];
    start.filter = int(column) * result_columns;
    int pixel = SUBPIXEL ? start.filter / g.columns : 0;
    start.column = start.filter - pixel * g.columns;
    start.x = pixel >> 1, start.y = pixel & 1;
#if STATISTICS
    start.box = int(row) * (square * square) + pixel;
#endif
    return start;
}

__device__ __forceinline__ Start start_of(const Boxes &g, int tile) {
    Place place = place_of(u32(tile), u32(g.tiles) / u32(g.across), u32(g.across));
    return start_at(g, place.row, place.column);
}

// The row of a result, by its number in the box of a tile; -1 if it lies outside the tensor.
__device__ __forceinline__ int row_of(const Boxes &g, const Start &start, int in_box) {
    int at[4];
    bool inside = true;
#pragma unroll
    for (int axis = 0; axis < 4; axis++) {
        at[axis] = start.at[axis] + (in_box & ((1 << g.shift[axis]) - 1));
        in_box >>= g.shift[axis];
        inside = inside && at[axis] < g.out_extents[axis];
    }
    int line = (at[3] * g.out_extents[2] + at[2]) * (square * g.out_extents[1]) + square * at[1] + start.y;
    return inside ? line * (square * g.out_extents[0]) + square * at[0] + start.x : -1;
}

// A step of the depth: 64 channels of a tap.
struct Step {
    int t, y, x, tap, chunk;

    __device__ __forceinline__ Step(const Boxes &g, int number) {
        tap = int(u32(number) / u32(g.chunks)), chunk = number - tap * g.chunks;
        int line = int(u32(tap) / u32(g.kernel[0]));
        x = tap - line * g.kernel[0];
        t = int(u32(line) / u32(g.kernel[1])), y = line - t * g.kernel[1];
    }

    __device__ __forceinline__ void advance(const Boxes &g) {
        if (++chunk < g.chunks) return;
        chunk = 0, tap++;
        if (++x < g.kernel[0]) return;
        x = 0;
        if (++y == g.kernel[1]) y = 0, t++;
    }
};

// The slot of a ring, and the parity of the phase in which it is filled.
struct Slot {
    int index = 0;
    u32 parity = 0;

    __device__ __forceinline__ void advance() {
        if (++index == STAGES) index = 0, parity ^= 1;
    }

    // Past `slots` that another warpgroup takes.
    __device__ __forceinline__ void skip(int slots) {
        u32 at = u32(index + slots), rounds = at / STAGES;
        index = int(at - rounds * STAGES), parity ^= rounds & 1;
    }
};

#if GATED
// Joins values and their gates in a strip, of which a thread has both: the values' sums become results. What
// lies outside is computed as if it lay at the edge, so that nothing keeps the activations apart.
__device__ __forceinline__ void join_gates(float (&sum)[TILE_COLUMNS / 2], const Boxes &g, const Epilogue &e,
                                           const Start &start, int lane, int n) {
#pragma unroll
    for (int block = 0; block < strip / 8; block++) {
        int j = n * (strip / 8) + block;
        int column = min(start.column + 8 * j + lane % 4 * 2, g.columns - 2);
#pragma unroll
        for (int lower = 0; lower < 2; lower++) {
            int at = 4 * j + 2 * lower;
            float two[2] = {sum[at], sum[at + 1]};
            float gate[2] = {sum[TILE_COLUMNS / 4 + at], sum[TILE_COLUMNS / 4 + at + 1]};
            apply_gate(two, gate, e, column);
            sum[at] = two[0], sum[at + 1] = two[1];
        }
    }
}
#endif

#if STATISTICS
static_assert(strip == 32, "a warp has eight rows of a strip at once");

// The statistics of a warp's rows of a tile, as they are stored: of fours of neighbouring channels, which a group has some of.
// A thread has two fours of each strip, and every eighth row. Sums are of differences from an origin, the first row's element,
// as in `norm/group.cu`.
template <int row_blocks>
struct Moments {
    static constexpr int fours = 2 * strips;
    float origin[fours], sum[fours] = {}, squares[fours] = {};

    // Stores eight neighbouring results of a row, and adds them: the first of a strip have the origins.
    __device__ __forceinline__ void store(TYPE *to, float (&result)[wide], int n, bool first) {
        store_rounded(to, result);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int at = 2 * n + half;
            if (first) origin[at] = __shfl_sync(0xffffffffu, result[4 * half], threadIdx.x % across);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float difference = result[4 * half + i] - origin[at];
                sum[at] += difference;
                squares[at] += difference * difference;
            }
        }
    }

    // Adds those of lanes `step` apart, each of which keeps half of its fours, as long as it has more than one.
    template <int count, int step>
    __device__ __forceinline__ void fold() {
        if constexpr (step >= across) {
            constexpr int left = count > 1 ? count / 2 : 1;
            const bool upper = threadIdx.x & step;
#pragma unroll
            for (int i = 0; i < left; i++) {
                const int other = count > 1 ? i + left : i;
                const float give_sum = upper ? sum[i] : sum[other], give_squares = upper ? squares[i] : squares[other];
                if (upper) origin[i] = origin[other], sum[i] = sum[other], squares[i] = squares[other];
                sum[i] += __shfl_xor_sync(0xffffffffu, give_sum, step);
                squares[i] += __shfl_xor_sync(0xffffffffu, give_squares, step);
            }
            fold<left, step / 2>();
        }
    }

    // Leaves the mean and the sum of squared deviations from it of each four: `to` is [boxes][warps][columns / 4].
    __device__ __forceinline__ void write(float2 *to, const Boxes &g, const Start &start, int warps, int warp) {
        fold<fours, 16>();
        const int lane = threadIdx.x % 32, four = lane / across / (8 / fours);
        const float count = 64.0f * row_blocks, mean = sum[0] * (1.0f / count), deviation = squares[0] - sum[0] * mean;
        to += (i64(start.box) * warps + warp) * (g.columns / 4) + start.column / 4;
        // Not the maximum, which would hide a NaN.
        if (lane / across % (8 / fours) == 0)
            to[four / 2 * (strip / 4) + lane % across * 2 + four % 2] = {origin[0] + mean,
                                                                        deviation < 0.0f ? 0.0f : deviation};
    }
};
#else
// Nothing is measured.
template <int row_blocks>
struct Moments {
    __device__ __forceinline__ void store(TYPE *to, float (&result)[wide], int, bool) { ::store(to, result); }
};
#endif

// The epilogue of 64 rows, of which each warp has 16, the first one `first_row` of the box. A strip of columns at a time
// goes through shared memory, so that a thread has neighbouring results of one row, for wide accesses to the epilogue's
// operands and to the result. Registers hold the sums of `row_blocks` times 64 rows.
template <int row_blocks>
__device__ __forceinline__ void write_results(float (&sum)[TILE_COLUMNS / 2], float *own, TYPE *y, const Boxes &g,
                                              const Epilogue &e, const Start &start, int first_row,
                                              Moments<row_blocks> &moments, bool first) {
    // Strips whose epilogue operands are in flight at once: as many as there are registers for beside the sums and the
    // operands' addresses, and none if not even one fits.
    constexpr int sums = row_blocks * TILE_COLUMNS / 2;
    static_assert(sums <= 160, "the sums leave no registers for the rest");
    constexpr int spare = 240 - 88 - 8 * element_operands - sums;
    constexpr int per_strip = element_operands * turns * 4;
    constexpr int room = per_strip > 0 && spare > 0 ? spare / per_strip : 0;
    constexpr int ahead = room < strips ? room : strips;
    int lane = threadIdx.x % 32;
    // A thread's rows are the same in every strip.
    int rows[turns];
#pragma unroll
    for (int turn = 0; turn < turns; turn++)
        rows[turn] = row_of(g, start, first_row + lane / across + turn * (32 / across));
    int first_column = start.column + lane % across * wide;
    Fetched<wide> fetched[ahead > 0 ? strips : 1][turns];
    auto fetch_strip = [&](int n) {
#pragma unroll
        for (int turn = 0; turn < turns; turn++) {
            int column = first_column + n * strip;
            if (rows[turn] >= 0 && column < g.columns) fetch(fetched[n][turn], e, i64(rows[turn]) * g.columns + column);
        }
    };
#pragma unroll
    for (int n = 0; n < ahead && n < strips; n++) fetch_strip(n);
#pragma unroll
    for (int n = 0; n < strips; n++) {
#if GATED
        join_gates(sum, g, e, start, lane, n);
#endif
        __syncwarp();
#pragma unroll
        for (int block = 0; block < strip / 8; block++) {
            int j = n * (strip / 8) + block;
#pragma unroll
            for (int lower = 0; lower < 2; lower++)
                store_pair(own + (lane / 4 + 8 * lower) * strip_pitch + 8 * block + lane % 4 * 2, sum[4 * j + 2 * lower],
                           sum[4 * j + 2 * lower + 1]);
        }
        __syncwarp();
#pragma unroll
        for (int turn = 0; turn < turns; turn++) {
            int column = first_column + n * strip;
            if (!STATISTICS && (rows[turn] < 0 || column >= g.columns)) continue;
            float result[wide];
            const float *line = own + (lane / across + turn * (32 / across)) * strip_pitch + lane % across * wide;
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float4 four = *reinterpret_cast<const float4 *>(line + 4 * half);
                result[4 * half] = four.x, result[4 * half + 1] = four.y, result[4 * half + 2] = four.z,
                           result[4 * half + 3] = four.w;
            }
            Fetched<wide> &operands = fetched[ahead > 0 ? n : 0][turn];
            if (ahead == 0) fetch(operands, e, i64(rows[turn]) * g.columns + column);
            apply_stages(result, operands, e, rows[turn], column);
            moments.store(y + i64(rows[turn]) * g.columns + column, result, n, first && turn == 0);
        }
        if (ahead > 0 && n + ahead < strips) fetch_strip(n + ahead);
    }
}
