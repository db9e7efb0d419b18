// A product or a convolution of stride 1 on Hopper, for f16, bf16 and e4m3 (ELEMENT) with f32 sums. The kernel is
// warp-specialised: a producer warpgroup fills a ring of tiles in shared memory by TMA, and two consumer warpgroups
// multiply them with wgmma.
//
// The rows of a tile are a box of results: neighbours in width, height, frames and clips, as many of each as a power of
// two. A tap of a convolution reads the same box of the input, shifted; TMA fills in zeros outside. A linear layer is a
// convolution of one tap over an image of one line.
//
// Blocks are persistent: while the epilogue of one tile runs, the operands of the next one arrive.
//
// Split-K comes in two forms. Either a block leaves partial sums, which `reduce.cu` adds up (SPLIT). Or the blocks that
// share a tile are a cluster (CLUSTER of them): each leaves its partial sums in its own shared memory, where the ring was,
// adds up its share of the tile from all of them, and runs the epilogue of that share. Such a block has one tile.
//
// `partial` takes partial sums, or else the statistics of the results, if a group norm asks for them (STATISTICS).
#include "specialisation.cuh"

#include "grid.cuh"
#include "boxes.cuh"
#include "cluster.cuh"

constexpr int warpgroups = 2;
// Blocks of 64 rows that a warpgroup multiplies.
constexpr int row_blocks = TILE_ROWS / (64 * warpgroups);
constexpr int tile_depth = 128 / sizeof(ELEMENT);
constexpr int a_bytes = TILE_ROWS * 128;
constexpr int b_bytes = TILE_COLUMNS * 128;
constexpr int stage_bytes = a_bytes + b_bytes;
static_assert(TILE_ROWS % 128 == 0, "the warpgroups share the tile");

// A block's share: a tile, and the steps of its depth from `first` to `end`. All of them, unless the depth is split; then
// parts differ by a step at most.
struct Share {
    int tile, split, first, end;

    __device__ __forceinline__ Share(const Boxes &g, int number) {
        // Blocks of a cluster have neighbouring numbers.
        const int splits = SPLIT ? g.splits : CLUSTER;
        tile = int(u32(number) / u32(splits)), split = number - tile * splits;
        int steps = g.kernel[0] * g.kernel[1] * g.kernel[2] * g.chunks;
        int each = int(u32(steps) / u32(splits)), longer = steps - each * splits;
        first = split * each + min(split, longer);
        end = first + each + (split < longer);
    }
};

// The producer: one thread issues the TMA loads of every tile of the depth, as slots of the ring become free.
__device__ __forceinline__ void produce(const TensorMap &map_a, const TensorMap &map_b, const Boxes &g, u32 ring,
                                        u32 full, u32 empty) {
    Slot slot;
    for (int number = blockIdx.x; number < g.tiles * g.splits; number += gridDim.x) {
        Share share(g, number);
        Start start = start_of(g, share.tile);
        Step step(g, share.first);
        for (int i = share.first; i < share.end; i++, step.advance(g)) {
            // The first time around the slots are free: the phase before the first counts as completed.
            mbarrier_wait_parity(empty + 8 * slot.index, slot.parity ^ 1);
            u32 to = ring + slot.index * stage_bytes, barrier = full + 8 * slot.index;
            mbarrier_arrive_expect_tx(barrier, stage_bytes);
            tma_load_5d(to, map_a, barrier, step.chunk * tile_depth,
                        start.at[0] + start.x + step.x * g.dilation[0] - g.padding[0],
                        start.at[1] + start.y + step.y * g.dilation[1] - g.padding[1],
                        start.at[2] + step.t * g.dilation[2] - g.padding[2], start.at[3]);
            tma_load_3d(to + a_bytes, map_b, barrier, step.chunk * tile_depth, step.tap, start.filter);
#if GATED
            tma_load_3d(to + a_bytes + b_bytes / 2, map_b, barrier, step.chunk * tile_depth, step.tap,
                        g.columns + start.column);
#endif
            slot.advance();
        }
    }
}

struct Sums {
    float of[row_blocks][TILE_COLUMNS / 2];
};

#if SPLIT
// Leaves the partial sums of 64 rows, of which each warp has 16: `partial` is [splits][rows][columns].
__device__ __forceinline__ void write_partial(float (&sum)[TILE_COLUMNS / 2], float *partial, const Boxes &g,
                                              const Start &start, int split, int first_row) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int lower = 0; lower < 2; lower++) {
        int row = row_of(g, start, first_row + lane / 4 + 8 * lower);
        if (row < 0) continue;
        float *to = partial + (i64(split) * g.rows + row) * g.columns;
#pragma unroll
        for (int j = 0; j < TILE_COLUMNS / 8; j++) {
            int column = start.column + 8 * j + lane % 4 * 2;
            float two[2] = {sum[4 * j + 2 * lower], sum[4 * j + 2 * lower + 1]};
            if (column < g.columns) store(to + column, two);
        }
    }
}
#endif

// Multiplies a warpgroup's rows of a share of a tile, as its operands arrive.
__device__ __forceinline__ void multiply(Sums &sums, const Share &share, Slot &slot, int group, u32 ring, u32 full,
                                         u32 empty) {
    bool elected = threadIdx.x % 32 == 0;
    int last = 0;
    for (int step = share.first; step < share.end; step++) {
        mbarrier_wait_parity(full + 8 * slot.index, slot.parity);
        u32 a = ring + slot.index * stage_bytes + group * row_blocks * 8192;
        u32 b = ring + slot.index * stage_bytes + a_bytes;
        wgmma_fence();
#pragma unroll
        for (int quarter = 0; quarter < 4; quarter++)
#pragma unroll
            for (int i = 0; i < row_blocks; i++)
                wgmma_mma_async<ELEMENT, TILE_COLUMNS>(
                    sums.of[i], wgmma_descriptor(a + i * 8192 + quarter * 32, 16, 1024),
                    wgmma_descriptor(b + quarter * 32, 16, 1024), step > share.first || quarter > 0);
        wgmma_commit_group();
        // The wgmmas of the step before have finished, so this warp releases their slot.
        wgmma_wait_group<1>();
        if (elected && step > share.first) mbarrier_arrive(empty + 8 * last);
        last = slot.index;
        slot.advance();
    }
    wgmma_wait_group<0>();
    if (elected) mbarrier_arrive(empty + 8 * last);
#pragma unroll
    for (int i = 0; i < row_blocks; i++) pin_registers(sums.of[i]);
}

// The first row in a tile of a warp's 16, of the `block`-th 64 rows of its warpgroup.
__device__ __forceinline__ int first_row_of(int group, int block) {
    return (group * row_blocks + block) * 64 + threadIdx.x % 128 / 32 * 16;
}

#if CLUSTER > 1
constexpr int consumers = 128 * warpgroups;
static_assert(TILE_ROWS * TILE_COLUMNS <= 128 * consumers, "the sums leave no registers for the rest");
// Rows of sums begin eight banks apart, so that the four rows that half a warp stores at once lie in all banks.
constexpr int sums_pitch = TILE_COLUMNS + 8;
static_assert(TILE_ROWS * sums_pitch * 4 <= STAGES * stage_bytes, "the sums take the place of the ring");
// The cluster's threads finish eight neighbouring columns of a row at a time, in so many turns.
constexpr int wide_across = result_columns / wide;
constexpr int wide_all = TILE_ROWS * wide_across;
constexpr int wide_turns = (wide_all + CLUSTER * consumers - 1) / (CLUSTER * consumers);
// Whether registers hold the epilogue's operands of all turns beside their sums and places.
constexpr bool fetched_early = wide_turns * (12 + 4 * element_operands) <= 160;

// Adds eight neighbouring sums of a block of the cluster.
__device__ __forceinline__ void add_sums(float (&to)[wide], u32 from) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float4 four = load_shared_cluster(from + 16 * half);
        to[4 * half] += four.x, to[4 * half + 1] += four.y, to[4 * half + 2] += four.z, to[4 * half + 3] += four.w;
    }
}

// A consumer: the cluster multiplies a tile, each block a part of its depth, and each block finishes a share of the tile.
__device__ __forceinline__ void consume(TYPE *y, const Boxes &g, const Epilogue &e, float *left, u32 full, u32 empty) {
    int group = threadIdx.x / 128 - 1, thread = threadIdx.x - 128;
    u32 ring = shared_address(left);
    Share share(g, blockIdx.x);
    {
        Sums sums;
        Slot slot;
        multiply(sums, share, slot, group, ring, full, empty);
        // The other warpgroup has read the ring as well.
        named_barrier_sync(1, consumers);
        int lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < row_blocks; i++) {
            float *to = left + (first_row_of(group, i) + lane / 4) * sums_pitch + lane % 4 * 2;
#pragma unroll
            for (int j = 0; j < TILE_COLUMNS / 8; j++)
#pragma unroll
                for (int lower = 0; lower < 2; lower++)
                    store_pair(to + 8 * lower * sums_pitch + 8 * j, sums.of[i][4 * j + 2 * lower],
                               sums.of[i][4 * j + 2 * lower + 1]);
        }
    }
    barrier_cluster_arrive();
    // The epilogue's operands come while the other blocks finish, if there is room for them.
    Start start = start_of(g, share.tile);
    int rows[wide_turns], columns[wide_turns];
    u32 places[wide_turns];
    Fetched<wide> fetched[wide_turns];
    auto fetch_turn = [&](int turn) {
        if (rows[turn] >= 0) fetch(fetched[turn], e, i64(rows[turn]) * g.columns + columns[turn]);
    };
#pragma unroll
    for (int turn = 0; turn < wide_turns; turn++) {
        int number = (turn * CLUSTER + share.split) * consumers + thread;
        int row = number / wide_across, column = (number - row * wide_across) * wide;
        columns[turn] = start.column + column;
        places[turn] = ring + (row * sums_pitch + column) * 4;
        rows[turn] = number < wide_all && columns[turn] < g.columns ? row_of(g, start, row) : -1;
        if (fetched_early) fetch_turn(turn);
    }
    barrier_cluster_wait();
    // Each block begins with its own sums and goes on with the next block's: always in the same order, and no two blocks
    // read the same one at a time.
    float results[wide_turns][wide] = {};
#if GATED
    float gates[wide_turns][wide] = {};
#endif
#pragma unroll
    for (int i = 0; i < CLUSTER; i++) {
        u32 rank = u32(share.split + i) % CLUSTER;
#pragma unroll
        for (int turn = 0; turn < wide_turns; turn++) {
            if (rows[turn] < 0) continue;
            u32 from = mapa(places[turn], rank);
            add_sums(results[turn], from);
#if GATED
            add_sums(gates[turn], from + result_columns * 4);
#endif
        }
    }
    barrier_cluster_arrive();
#pragma unroll
    for (int turn = 0; turn < wide_turns; turn++) {
        if (rows[turn] < 0) continue;
        if (!fetched_early) fetch_turn(turn);
#if GATED
        apply_gate(results[turn], gates[turn], e, columns[turn]);
#endif
        apply_stages(results[turn], fetched[turn], e, rows[turn], columns[turn]);
        store(y + i64(rows[turn]) * g.columns + columns[turn], results[turn]);
    }
    // The other blocks have read this one's sums.
    barrier_cluster_wait();
}
#else
// A consumer: a warpgroup multiplies its rows of every tile that arrives.
__device__ __forceinline__ void consume(TYPE *y, float *partial, const Boxes &g, const Epilogue &e, u32 ring, u32 full,
                                        u32 empty, float *own) {
    int group = threadIdx.x / 128 - 1;
    Slot slot;
    for (int number = blockIdx.x; number < g.tiles * g.splits; number += gridDim.x) {
        Share share(g, number);
        Sums sums;
        multiply(sums, share, slot, group, ring, full, empty);
        Start start = start_of(g, share.tile);
        Moments<row_blocks> moments;
#pragma unroll
        for (int i = 0; i < row_blocks; i++) {
#if SPLIT
            write_partial(sums.of[i], partial, g, start, share.split, first_row_of(group, i));
#else
            write_results<row_blocks>(sums.of[i], own, y, g, e, start, first_row_of(group, i), moments, i == 0);
#endif
        }
#if STATISTICS
        moments.write(reinterpret_cast<float2 *>(partial), g, start, 4 * warpgroups, threadIdx.x / 32 - 4);
#endif
    }
}
#endif

extern "C" __global__ void __launch_bounds__(384, 1)
    wgmma(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, TYPE *y, float *partial,
          const Boxes g, const Epilogue e) {
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
    wait_for_launch_before();
    if (threadIdx.x < 128) {
        setmaxnreg_dec<24>();
        if (threadIdx.x == 0) {
            prefetch_tensormap(map_a);
            prefetch_tensormap(map_b);
            produce(map_a, map_b, g, ring, full, empty);
        }
    } else {
        setmaxnreg_inc<240>();
#if CLUSTER > 1
        consume(y, g, e, reinterpret_cast<float *>(shared), full, empty);
#else
        consume(y, partial, g, e, ring, full, empty, strips + (threadIdx.x / 32 - 4) * (strip_bytes / 4));
#endif
    }
}
