// A product or a convolution of stride 1 on Hopper, for f16 and bf16 with f32 sums. The kernel is warp-specialised: a
// producer warpgroup fills a ring of tiles in shared memory by TMA, and two consumer warpgroups multiply them with
// wgmma.
//
// The rows of a tile are a box of results: neighbours in width, height, frames and clips, as many of each as a power of
// two. A tap of a convolution reads the same box of the input, shifted; TMA fills in zeros outside. A linear layer is a
// convolution of one tap over an image of one line.
//
// Blocks are persistent: while the epilogue of one tile runs, the operands of the next one arrive. With split-K (SPLIT)
// a block leaves partial sums, which `reduce.cu` adds up.
#include "specialisation.cuh"

#include "grid.cuh"
#include "boxes.cuh"

constexpr int warpgroups = 2;
// Blocks of 64 rows that a warpgroup multiplies.
constexpr int row_blocks = TILE_ROWS / (64 * warpgroups);
constexpr int tile_depth = 64;
constexpr int a_bytes = TILE_ROWS * 128;
constexpr int b_bytes = TILE_COLUMNS * 128;
constexpr int stage_bytes = a_bytes + b_bytes;
static_assert(TILE_ROWS % 128 == 0, "the warpgroups share the tile");

// A block's share: a tile, and the steps of its depth from `first` to `end`. All of them, unless the depth is split.
struct Share {
    int tile, split, first, end;

    __device__ __forceinline__ Share(const Boxes &g, int number)
        : tile(SPLIT ? int(u32(number) % u32(g.tiles)) : number),
          split(SPLIT ? int(u32(number) / u32(g.tiles)) : 0),
          first(split * g.steps),
          end(min(first + g.steps, g.kernel[0] * g.kernel[1] * g.kernel[2] * g.chunks)) {}
};

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
                        start.at[0] + step.x * g.dilation[0] - g.padding[0],
                        start.at[1] + step.y * g.dilation[1] - g.padding[1],
                        start.at[2] + step.t * g.dilation[2] - g.padding[2], start.at[3]);
            tma_load_3d(to + a_bytes, map_b, barrier, step.chunk * tile_depth, step.tap, start.column);
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

// A consumer: a warpgroup multiplies its rows of every tile that arrives.
__device__ __forceinline__ void consume(TYPE *y, float *partial, const Boxes &g, const Epilogue &e, u32 ring, u32 full,
                                        u32 empty, float *own) {
    int group = threadIdx.x / 128 - 1;
    bool elected = threadIdx.x % 32 == 0;
    Slot slot;
    for (int number = blockIdx.x; number < g.tiles * g.splits; number += gridDim.x) {
        Share share(g, number);
        Sums sums;
        int last = 0;
        for (int step = share.first; step < share.end; step++) {
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
        Start start = start_of(g, share.tile);
#pragma unroll
        for (int i = 0; i < row_blocks; i++) {
            pin_registers(sums.of[i]);
            int first_row = (group * row_blocks + i) * 64 + threadIdx.x % 128 / 32 * 16;
#if SPLIT
            write_partial(sums.of[i], partial, g, start, share.split, first_row);
#else
            write_results<row_blocks>(sums.of[i], own, y, g, e, start, first_row);
#endif
        }
    }
}

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
        consume(y, partial, g, e, ring, full, empty, strips + (threadIdx.x / 32 - 4) * (strip_bytes / 4));
    }
}
