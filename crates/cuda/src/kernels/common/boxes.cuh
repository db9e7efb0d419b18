// Results of a product on Hopper in boxes: which results a tile has, the ring through which its operands come, and the
// epilogue. The rows of a tile are a box of results: neighbours in width, height, frames and clips, as many of each as
// a power of two. TILE_COLUMNS, GATED and STAGES are the includer's; so is SUBPIXEL, if it does sub-pixel convolutions.
#pragma once
#include "hopper.cuh"
#include "product.cuh"

#ifndef SUBPIXEL
#define SUBPIXEL 0
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

// The epilogue of 64 rows, of which each warp has 16, the first one `first_row` of the box. A strip of columns at a time
// goes through shared memory, so that a thread has neighbouring results of one row, for wide accesses to the epilogue's
// operands and to the result. Registers hold the sums of `row_blocks` times 64 rows.
template <int row_blocks>
__device__ __forceinline__ void write_results(float (&sum)[TILE_COLUMNS / 2], float *own, TYPE *y, const Boxes &g,
                                              const Epilogue &e, const Start &start, int first_row) {
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
            if (rows[turn] < 0 || column >= g.columns) continue;
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
            store(y + i64(rows[turn]) * g.columns + column, result);
        }
        if (ahead > 0 && n + ahead < strips) fetch_strip(n + ahead);
    }
}
