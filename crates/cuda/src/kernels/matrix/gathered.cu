// A convolution over width and height of little depth on the tensor cores of a warp, for f16 and bf16 with f32 sums: the
// first one of a network, which reads an image of few channels.
//
// A warp has 16 rows at a time and 64 columns, whose weights stay in its registers. A thread gathers just those
// elements of a that its fragment of the matrix instruction has, so that nothing passes through shared memory: the
// neighbours' windows overlap, and come from the L1 cache.
#include "specialisation.cuh"

#include "grid.cuh"
#include "matrix.cuh"
#include "product.cuh"
#include "window.cuh"

constexpr int warps = 8;
constexpr int column_blocks = 8;
constexpr int columns_of_warp = 8 * column_blocks;

// An element of a window: how far it lies from the corner, and where, for the check against the borders.
struct Element {
    int offset, y, x;
};

// The depths of a thread: two neighbours in each half of each step.
struct Depths {
    Element of[STEPS][2][2];

    __device__ __forceinline__ Depths(const Product &p, const Window &w) {
#pragma unroll
        for (int step = 0; step < STEPS; step++)
#pragma unroll
            for (int half = 0; half < 2; half++)
#pragma unroll
                for (int next = 0; next < 2; next++) {
                    Cursor cursor;
                    cursor.go_to(w, p.channels, depth_of(step, half, next));
                    Tap tap(w, cursor);
                    // What is beyond the depth lies outside of every image.
                    of[step][half][next] = {int(tap.pixel) * int(p.a_row) + cursor.channel,
                                            tap.exists ? tap.y : 1 << 30, tap.x};
                }
    }

    static __device__ __forceinline__ int depth_of(int step, int half, int next) {
        return 16 * step + 8 * half + threadIdx.x % 4 * 2 + next;
    }
};

// The corner of a row's window, in elements.
struct Origin {
    i64 element;
    int y, x;

    // That of a row that another lane has.
    __device__ __forceinline__ Origin of_lane(int lane) const {
        return {__shfl_sync(0xffffffffu, element, lane), __shfl_sync(0xffffffffu, y, lane),
                __shfl_sync(0xffffffffu, x, lane)};
    }
};

__device__ __forceinline__ u32 gather(const TYPE *a, const Window &w, const Origin &origin, const Element &element) {
    bool inside = u32(origin.y + element.y) < u32(w.extents[1]) && u32(origin.x + element.x) < u32(w.extents[2]);
    return inside ? a[origin.element + element.offset].bits : 0;
}

__device__ __forceinline__ u32 gather_two(const TYPE *a, const Window &w, const Origin &origin,
                                          const Element (&two)[2]) {
    return gather(a, w, origin, two[0]) | gather(a, w, origin, two[1]) << 16;
}

// The weights of 64 columns. Columns are dealt out so that a thread's sums of a row are 16 neighbours.
struct Weights {
    u32 of[STEPS][column_blocks][2];

    __device__ __forceinline__ Weights(const TYPE *b, const Product &p, int first_column) {
        int place = threadIdx.x % 32 / 4;
#pragma unroll
        for (int block = 0; block < column_blocks; block++) {
            int column = first_column + place / 2 * 16 + 2 * block + place % 2;
            const TYPE *from = b + i64(column) * p.b_column;
#pragma unroll
            for (int step = 0; step < STEPS; step++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    int depth = Depths::depth_of(step, half, 0);
                    u32 first = column < p.columns && depth < p.depth ? from[depth].bits : 0;
                    u32 second = column < p.columns && depth + 1 < p.depth ? from[depth + 1].bits : 0;
                    of[step][block][half] = first | second << 16;
                }
        }
    }
};

// The epilogue of a row's 16 neighbouring columns, STORE at a time.
__device__ __forceinline__ void write_row(const float (&sum)[column_blocks][4], int lower, TYPE *y, const Product &p,
                                          const Epilogue &e, int row, int first_column) {
    if (row >= p.rows) return;
#pragma unroll
    for (int from = 0; from < 16; from += STORE) {
        int column = first_column + from;
        if (column >= p.columns) return;
        float result[STORE];
#pragma unroll
        for (int k = 0; k < STORE; k++) result[k] = sum[(from + k) / 2][2 * lower + (from + k) % 2];
        i64 element = row * p.y_row + column;
        finish(result, e, row, element, column);
        store(y + element, result);
    }
}

extern "C" __global__ void __launch_bounds__(32 * warps)
    gathered(const TYPE *a, const TYPE *b, TYPE *y, const Product p, const Window w, const Epilogue e) {
    int lane = threadIdx.x % 32;
    u32 across = u32(p.columns + columns_of_warp - 1) / columns_of_warp;
    u32 down = gridDim.x / across, place = blockIdx.x / across;
    int first_column = int(blockIdx.x - place * across) * columns_of_warp;
    Depths depths(p, w);
    wait_for_launch_before();
    Weights weights(b, p, first_column);
    int step_rows = int(down) * warps * 16;
    for (int first = (int(place) * warps + threadIdx.x / 32) * 16; first < p.rows; first += step_rows) {
        // Every lane finds the corner of one row. Instead of a row beyond the last one, the last one is read again.
        Corner corner = corner_of(w, min(first + lane % 16, p.rows - 1));
        Origin own = {corner.pixel * p.a_row, corner.y, corner.x};
        Origin upper = own.of_lane(lane / 4), under = own.of_lane(lane / 4 + 8);
        float sum[column_blocks][4] = {};
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            const auto &of = depths.of[step];
            u32 fragment[4] = {gather_two(a, w, upper, of[0]), gather_two(a, w, under, of[0]),
                               gather_two(a, w, upper, of[1]), gather_two(a, w, under, of[1])};
#pragma unroll
            for (int block = 0; block < column_blocks; block++)
                mma_m16n8k16<TYPE>(sum[block], fragment, weights.of[step][block]);
        }
        int column = first_column + lane % 4 * 16;
        write_row(sum, 0, y, p, e, first + lane / 4, column);
        write_row(sum, 1, y, p, e, first + lane / 4 + 8, column);
    }
}
