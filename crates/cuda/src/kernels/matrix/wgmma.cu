// A product or a convolution of stride 1 on Hopper, for f16 and bf16 with f32 sums. The kernel is warp-specialised: a
// producer warpgroup fills a ring of tiles in shared memory by TMA, and two consumer warpgroups multiply them with
// wgmma.
//
// The rows of a tile are a box of results: neighbours in width, height, frames and clips, as many of each as a power of
// two. A tap of a convolution reads the same box of the input, shifted; TMA fills in zeros outside. A linear layer is a
// convolution of one tap over an image of one line.
//
// Blocks are persistent: while the epilogue of one tile runs, the operands of the next one arrive.
#include "specialisation.cuh"

#include "hopper.cuh"
#include "product.cuh"

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
    // Steps of 64 channels of a tap.
    i32 chunks;
    // Columns of the result.
    i32 columns;
    // Tiles in a row of tiles, and all of them.
    i32 across;
    i32 tiles;
    i32 unused;
};

constexpr int warpgroups = 2;
// Blocks of 64 rows that a warpgroup multiplies.
constexpr int row_blocks = TILE_ROWS / (64 * warpgroups);
constexpr int tile_depth = 64;
constexpr int a_bytes = TILE_ROWS * 128;
constexpr int b_bytes = TILE_COLUMNS * 128;
constexpr int stage_bytes = a_bytes + b_bytes;
// A gated tile has its values in the left half and their gates in the right one.
constexpr int result_columns = GATED ? TILE_COLUMNS / 2 : TILE_COLUMNS;
// Results pass through shared memory 16 rows of a warp by a strip of columns at a time.
constexpr int strip = result_columns % 32 == 0 ? 32 : 16;
constexpr int strips = result_columns / strip;
// A thread finishes eight neighbouring columns of a row at a time, `turns` of them in a strip.
constexpr int wide = 8;
constexpr int across = strip / wide;
constexpr int turns = 16 * across / 32;
// Strips whose epilogue operands are in flight at once: as many as there are registers for beside the sums, and none if
// not even one fits.
constexpr int spare = 240 - 80 - row_blocks * TILE_COLUMNS / 2;
static_assert(spare >= 0, "the sums leave no registers for the rest");
constexpr int per_strip = element_operands * turns * 4;
constexpr int room = per_strip > 0 ? spare / per_strip : 0;
constexpr int ahead = room < strips ? room : strips;
constexpr int strip_pitch = strip + 4;
constexpr int strip_bytes = 16 * strip_pitch * 4;
static_assert(TILE_ROWS % 128 == 0 && result_columns % strip == 0 && TILE_COLUMNS / 2 % 8 == 0,
              "the warps share the tile");

// A tile's first result and first column.
struct Start {
    int at[4];
    int column;
};

__device__ __forceinline__ Start start_of(const Boxes &g, int tile) {
    Place place = place_of(u32(tile), u32(g.tiles) / u32(g.across), u32(g.across));
    Start start;
    u32 rest = place.row;
#pragma unroll
    for (int axis = 0; axis < 4; axis++) {
        u32 next = rest / u32(g.counts[axis]);
        start.at[axis] = int(rest - next * u32(g.counts[axis])) << g.shift[axis];
        rest = next;
    }
    start.column = int(place.column) * result_columns;
    return start;
}

// The slot of a ring, and the parity of the phase in which it is filled.
struct Slot {
    int index = 0;
    u32 parity = 0;

    __device__ __forceinline__ void advance() {
        if (++index == STAGES) index = 0, parity ^= 1;
    }
};

// The producer: one thread issues the TMA loads of every tile of the depth, as slots of the ring become free.
__device__ __forceinline__ void produce(const TensorMap &map_a, const TensorMap &map_b, const Boxes &g, u32 ring,
                                        u32 full, u32 empty) {
    Slot slot;
    for (int tile = blockIdx.x; tile < g.tiles; tile += gridDim.x) {
        Start start = start_of(g, tile);
        int tap = 0;
        for (int t = 0; t < g.kernel[2]; t++)
            for (int y = 0; y < g.kernel[1]; y++)
                for (int x = 0; x < g.kernel[0]; x++, tap++)
                    for (int chunk = 0; chunk < g.chunks; chunk++) {
                        // The first time around the slots are free: the phase before the first counts as completed.
                        mbarrier_wait_parity(empty + 8 * slot.index, slot.parity ^ 1);
                        u32 to = ring + slot.index * stage_bytes, barrier = full + 8 * slot.index;
                        mbarrier_arrive_expect_tx(barrier, stage_bytes);
                        tma_load_5d(to, map_a, barrier, chunk * tile_depth,
                                    start.at[0] + x * g.dilation[0] - g.padding[0],
                                    start.at[1] + y * g.dilation[1] - g.padding[1],
                                    start.at[2] + t * g.dilation[2] - g.padding[2], start.at[3]);
                        tma_load_3d(to + a_bytes, map_b, barrier, chunk * tile_depth, tap, start.column);
#if GATED
                        tma_load_3d(to + a_bytes + b_bytes / 2, map_b, barrier, chunk * tile_depth, tap,
                                    g.columns + start.column);
#endif
                        slot.advance();
                    }
    }
}

struct Sums {
    float of[row_blocks][TILE_COLUMNS / 2];
};

// The epilogue of 64 rows, of which each warp has 16. A strip of columns at a time goes through shared memory, so that
// a thread has neighbouring results of one row, for wide accesses to the epilogue's operands and to the result.
__device__ __forceinline__ void write_results(float (&sum)[TILE_COLUMNS / 2], float *own, TYPE *y, const Boxes &g,
                                              const Epilogue &e, const Start &start, int first_row) {
    int lane = threadIdx.x % 32;
    // A thread's rows are the same in every strip.
    int rows[turns];
    bool inside[turns];
#pragma unroll
    for (int turn = 0; turn < turns; turn++) {
        int rest = first_row + lane / across + turn * (32 / across);
        int at[4];
        inside[turn] = true;
#pragma unroll
        for (int axis = 0; axis < 4; axis++) {
            at[axis] = start.at[axis] + (rest & ((1 << g.shift[axis]) - 1));
            rest >>= g.shift[axis];
            inside[turn] = inside[turn] && at[axis] < g.out_extents[axis];
        }
        rows[turn] = ((at[3] * g.out_extents[2] + at[2]) * g.out_extents[1] + at[1]) * g.out_extents[0] + at[0];
    }
    int first_column = start.column + lane % across * wide;
    Fetched<wide> fetched[ahead > 0 ? strips : 1][turns];
    auto fetch_strip = [&](int n) {
#pragma unroll
        for (int turn = 0; turn < turns; turn++) {
            int column = first_column + n * strip;
            if (inside[turn] && column < g.columns) fetch(fetched[n][turn], e, i64(rows[turn]) * g.columns + column);
        }
    };
#pragma unroll
    for (int n = 0; n < ahead && n < strips; n++) fetch_strip(n);
#pragma unroll
    for (int n = 0; n < strips; n++) {
        __syncwarp();
#pragma unroll
        for (int block = 0; block < strip / 8; block++) {
            int j = n * (strip / 8) + block;
#pragma unroll
            for (int lower = 0; lower < 2; lower++) {
                float two[2] = {sum[4 * j + 2 * lower], sum[4 * j + 2 * lower + 1]};
#if GATED
                float gate[2] = {sum[TILE_COLUMNS / 4 + 4 * j + 2 * lower],
                                 sum[TILE_COLUMNS / 4 + 4 * j + 2 * lower + 1]};
                int column = start.column + 8 * j + lane % 4 * 2;
                if (column < g.columns) apply_gate(two, gate, e, column);
#endif
                store_pair(own + (lane / 4 + 8 * lower) * strip_pitch + 8 * block + lane % 4 * 2, two[0], two[1]);
            }
        }
        __syncwarp();
#pragma unroll
        for (int turn = 0; turn < turns; turn++) {
            int column = first_column + n * strip;
            if (!inside[turn] || column >= g.columns) continue;
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

// A consumer: a warpgroup multiplies its rows of every tile that arrives.
__device__ __forceinline__ void consume(TYPE *y, const Boxes &g, const Epilogue &e, u32 ring, u32 full, u32 empty,
                                        float *own) {
    int group = threadIdx.x / 128 - 1;
    bool elected = threadIdx.x % 32 == 0;
    int steps = g.kernel[0] * g.kernel[1] * g.kernel[2] * g.chunks;
    Slot slot;
    for (int tile = blockIdx.x; tile < g.tiles; tile += gridDim.x) {
        Sums sums;
        int last = 0;
        for (int step = 0; step < steps; step++) {
            mbarrier_wait_parity(full + 8 * slot.index, slot.parity);
            u32 a = ring + slot.index * stage_bytes + group * row_blocks * 8192;
            u32 b = ring + slot.index * stage_bytes + a_bytes;
            wgmma_fence();
#pragma unroll
            for (int quarter = 0; quarter < tile_depth / 16; quarter++)
#pragma unroll
                for (int i = 0; i < row_blocks; i++)
                    wgmma_mma_async<TYPE, TILE_COLUMNS>(
                        sums.of[i], wgmma_descriptor(a + i * 8192 + quarter * 32, 16, 1024),
                        wgmma_descriptor(b + quarter * 32, 16, 1024), step > 0 || quarter > 0);
            wgmma_commit_group();
            // The wgmmas of the step before have finished, so this warp releases their slot.
            wgmma_wait_group<1>();
            if (elected && step > 0) mbarrier_arrive(empty + 8 * last);
            last = slot.index;
            slot.advance();
        }
        wgmma_wait_group<0>();
        if (elected) mbarrier_arrive(empty + 8 * last);
        Start start = start_of(g, tile);
#pragma unroll
        for (int i = 0; i < row_blocks; i++) {
            pin_registers(sums.of[i]);
            write_results(sums.of[i], own, y, g, e, start, (group * row_blocks + i) * 64 + threadIdx.x % 128 / 32 * 16);
        }
    }
}

extern "C" __global__ void __launch_bounds__(384, 1)
    wgmma(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, TYPE *y, const Boxes g,
          const Epilogue e) {
    extern __shared__ __align__(1024) u8 shared[];
    // The ring, the strips of eight warps, then the mbarriers. The swizzle depends on address bits, so the ring begins
    // at a multiple of 1024.
    u32 ring = shared_address(shared);
    u32 full = ring + STAGES * stage_bytes + 8 * strip_bytes, empty = full + 8 * STAGES;
    float *strips = reinterpret_cast<float *>(shared + STAGES * stage_bytes);
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            mbarrier_init(full + 8 * i, 1);
            mbarrier_init(empty + 8 * i, 4 * warpgroups);
        }
        fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        setmaxnreg_dec<24>();
        if (threadIdx.x == 0) {
            prefetch_tensormap(map_a);
            prefetch_tensormap(map_b);
            produce(map_a, map_b, g, ring, full, empty);
        }
    } else {
        setmaxnreg_inc<240>();
        consume(y, g, e, ring, full, empty, strips + (threadIdx.x / 32 - 4) * (strip_bytes / 4));
    }
}
