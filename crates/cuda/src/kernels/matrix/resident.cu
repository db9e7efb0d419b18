// A convolution over width and height of stride 1 on Hopper, for f16 and bf16 with f32 sums, whose whole weight stays
// in shared memory: it has few columns. What is left to load is the input, and most of that is loaded once for several
// taps.
//
// A tile's rows are a box of 8 × 16 results. The taps of one column of the window read the same columns of the input,
// so a slot of the ring holds those with all lines that these taps need. A line is eight pixels of 64 channels: 1024
// bytes, one atom of the swizzle, so that the operand of another tap of the column begins whole atoms further.
//
// A producer warp fills the ring by TMA. Two consumer warpgroups take tiles in turns: while the epilogue of one runs,
// the other multiplies.
#include "specialisation.cuh"

#include "grid.cuh"
#include "boxes.cuh"

// Blocks of 64 rows of a tile: eight lines each.
constexpr int row_blocks = 2;
constexpr int tile_depth = 64;
constexpr int line_bytes = 1024;
// Lines of a slot: those of the box, and what the window reaches beyond it.
constexpr int slot_bytes = LINES * line_bytes;
// The weight of one tap and 64 channels.
constexpr int b_bytes = TILE_COLUMNS * 128;

// Where things lie in shared memory.
struct Memory {
    u32 weights, ring, full, empty, weights_full;
};

// The producer: one thread issues all TMA loads.
__device__ __forceinline__ void produce(const TensorMap &map_a, const TensorMap &map_b, const Boxes &g,
                                        const Memory &m) {
    int taps = g.kernel[0] * g.kernel[1];
    mbarrier_arrive_expect_tx(m.weights_full, taps * g.chunks * b_bytes);
    for (int tap = 0; tap < taps; tap++)
        for (int chunk = 0; chunk < g.chunks; chunk++)
            tma_load_3d(m.weights + (tap * g.chunks + chunk) * b_bytes, map_b, m.weights_full, chunk * tile_depth, tap,
                        0);
    Slot slot;
    for (int tile = blockIdx.x; tile < g.tiles; tile += gridDim.x) {
        Start start = start_of(g, tile);
        for (int chunk = 0; chunk < g.chunks; chunk++)
            for (int x = 0; x < g.kernel[0]; x++) {
                // The first time around the slots are free: the phase before the first counts as completed.
                mbarrier_wait_parity(m.empty + 8 * slot.index, slot.parity ^ 1);
                u32 barrier = m.full + 8 * slot.index;
                mbarrier_arrive_expect_tx(barrier, slot_bytes);
                tma_load_5d(m.ring + slot.index * slot_bytes, map_a, barrier, chunk * tile_depth,
                            start.at[0] + x * g.dilation[0] - g.padding[0], start.at[1] - g.padding[1],
                            start.at[2] - g.padding[2], start.at[3]);
                slot.advance();
            }
    }
}

struct Sums {
    float of[row_blocks][TILE_COLUMNS / 2];
};

// Multiplies a slot: the taps of one column of the window, 64 channels each.
__device__ __forceinline__ void multiply_slot(Sums &sums, const Boxes &g, u32 a, u32 b, bool first) {
    int tap_bytes = g.kernel[0] * g.chunks * b_bytes;
    for (int y = 0; y < g.kernel[1]; y++) {
#pragma unroll
        for (int quarter = 0; quarter < tile_depth / 16; quarter++)
#pragma unroll
            for (int i = 0; i < row_blocks; i++)
                wgmma_mma_async<TYPE, TILE_COLUMNS>(sums.of[i], wgmma_descriptor(a + i * 8192 + quarter * 32, 16, 1024),
                                                    wgmma_descriptor(b + quarter * 32, 16, 1024),
                                                    !first || y > 0 || quarter > 0);
        a += g.dilation[1] * line_bytes;
        b += tap_bytes;
    }
}

#if TILE_COLUMNS == 8
// The epilogue of a result of up to eight columns, one element at a time.
__device__ __forceinline__ void write_narrow(float (&sum)[4], TYPE *y, const Boxes &g, const Epilogue &e,
                                             const Start &start, int first_row) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int lower = 0; lower < 2; lower++) {
        int row = row_of(g, start, first_row + lane / 4 + 8 * lower);
#pragma unroll
        for (int right = 0; right < 2; right++) {
            int column = lane % 4 * 2 + right;
            if (row < 0 || column >= g.columns) continue;
            i64 element = i64(row) * g.columns + column;
            float result[1] = {sum[2 * lower + right]};
            finish(result, e, row, element, column);
            store(y + element, result);
        }
    }
}
#endif

// A consumer: a warpgroup multiplies every other tile of the block.
__device__ __forceinline__ void consume(TYPE *y, const Boxes &g, const Epilogue &e, const Memory &m, float *own) {
    int group = threadIdx.x / 128 - 1;
    bool elected = threadIdx.x % 32 == 0;
    Slot slot;
    mbarrier_wait_parity(m.weights_full, 0);
    int turn = 0;
    for (int tile = blockIdx.x; tile < g.tiles; tile += gridDim.x, turn ^= 1) {
        int steps = g.chunks * g.kernel[0];
        if (turn != group) {
            for (int step = 0; step < steps; step++) slot.advance();
            continue;
        }
        Sums sums;
        int last = 0, step = 0;
        for (int chunk = 0; chunk < g.chunks; chunk++)
            for (int x = 0; x < g.kernel[0]; x++, step++) {
                mbarrier_wait_parity(m.full + 8 * slot.index, slot.parity);
                wgmma_fence();
                multiply_slot(sums, g, m.ring + slot.index * slot_bytes, m.weights + (x * g.chunks + chunk) * b_bytes,
                              step == 0);
                wgmma_commit_group();
                // The wgmmas of the step before have finished, so this warp releases their slot.
                wgmma_wait_group<1>();
                if (elected && step > 0) mbarrier_arrive(m.empty + 8 * last);
                last = slot.index;
                slot.advance();
            }
        wgmma_wait_group<0>();
        if (elected) mbarrier_arrive(m.empty + 8 * last);
        Start start = start_of(g, tile);
        Moments<row_blocks> moments;
#pragma unroll
        for (int i = 0; i < row_blocks; i++) {
            pin_registers(sums.of[i]);
            int first_row = i * 64 + threadIdx.x % 128 / 32 * 16;
#if TILE_COLUMNS == 8
            write_narrow(sums.of[i], y, g, e, start, first_row);
#else
            write_results<row_blocks>(sums.of[i], own, y, g, e, start, first_row, moments, i == 0);
#endif
        }
    }
}

extern "C" __global__ void __launch_bounds__(384, 1)
    resident(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, TYPE *y, const Boxes g,
             const Epilogue e) {
    extern __shared__ __align__(1024) u8 shared[];
    // The ring, the weight, the strips of eight warps, then the mbarriers. The swizzle depends on address bits, so ring
    // and weight begin at multiples of 1024.
    int weight_bytes = g.kernel[0] * g.kernel[1] * g.chunks * b_bytes;
    Memory m;
    m.ring = shared_address(shared);
    m.weights = m.ring + STAGES * slot_bytes;
    m.full = m.weights + weight_bytes + 8 * strip_bytes;
    m.empty = m.full + 8 * STAGES;
    m.weights_full = m.empty + 8 * STAGES;
    float *strips = reinterpret_cast<float *>(shared + STAGES * slot_bytes + weight_bytes);
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            mbarrier_init(m.full + 8 * i, 1);
            // One warpgroup has a slot.
            mbarrier_init(m.empty + 8 * i, 4);
        }
        mbarrier_init(m.weights_full, 1);
        fence_mbarrier_init();
    }
    __syncthreads();
    wait_for_launch_before();
    if (threadIdx.x < 128) {
        setmaxnreg_dec<24>();
        if (threadIdx.x == 0) {
            prefetch_tensormap(map_a);
            prefetch_tensormap(map_b);
            produce(map_a, map_b, g, m);
        }
    } else {
        setmaxnreg_inc<240>();
        consume(y, g, e, m, strips + (threadIdx.x / 32 - 4) * (strip_bytes / 4));
    }
}
