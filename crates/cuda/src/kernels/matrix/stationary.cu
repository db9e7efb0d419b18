// A convolution over width and height of stride 1 on Hopper, for f16 and bf16 with f32 sums, of up to 64 columns and
// little depth: the whole weight stays in registers, as the first operand of wgmma.
//
// So the product is transposed: its rows are channels of the result, its columns pixels, a box of 8 × 16 results. With
// pixels as rows, a wgmma would read 2 KB of pixels and 2 KB of the weight in 32 clocks, all that shared memory gives.
// This way it reads the pixels alone: half of that, which leaves room for the copies and the epilogue.
//
// The taps of one column of the window read the same columns of the input, so a slot of the ring holds those with all
// lines that these taps need. A line is eight pixels of 64 channels: 1024 bytes, one atom of the swizzle, so that the
// operand of another tap of the column begins whole atoms further.
//
// A producer warp fills the ring by TMA. Two consumer warpgroups take tiles in turns, and one multiplies at a time: the
// epilogue of the other is hidden behind it.
#include "specialisation.cuh"

#include "grid.cuh"
#include "boxes.cuh"

// Rows of the product: channels of the result.
constexpr int channels = TILE_COLUMNS;
static_assert(channels == 64, "one wgmma has all channels");
// Columns of the product: pixels of a box.
constexpr int box_width = 8;
constexpr int box_height = 16;
constexpr int pixels = box_width * box_height;
constexpr int tile_depth = 64;
constexpr int line_bytes = 1024;
// Lines of a slot: those of the box, and what the window reaches beyond it.
constexpr int slot_bytes = (box_height + (KERNEL_Y - 1) * DILATION_Y) * line_bytes;
// The weight, in steps of one tap and 64 channels.
constexpr int steps = KERNEL_X * KERNEL_Y * CHUNKS;
constexpr int step_bytes = channels * tile_depth * 2;
constexpr int quarters = tile_depth / 16;
// A tile's sums on their way to the results: lines of a pixel. The pitch is 4 beyond a multiple of 16, so that neither
// the pairs of channels that go in nor the fours that come out meet in a bank.
constexpr int pitch = channels + 4;
constexpr int staged_bytes = pixels * pitch * 4;
// The weight passes through the same memory at first.
constexpr int area_bytes = 2 * staged_bytes > steps * step_bytes ? 2 * staged_bytes : steps * step_bytes;
constexpr int area_pitch = (area_bytes + 1023) / 1024 * 1024;

// Where things lie in shared memory, and mbarriers: slots that are full or empty, the weight that is there, and for
// each consumer that it is its turn to multiply.
struct Memory {
    u32 ring, area, full, empty, weights_full, turn;
};

// The producer: one thread issues all TMA loads.
__device__ __forceinline__ void produce(const TensorMap &map_a, const TensorMap &map_b, const Boxes &g,
                                        const Memory &m) {
    mbarrier_arrive_expect_tx(m.weights_full, steps * step_bytes);
    for (int tap = 0; tap < KERNEL_X * KERNEL_Y; tap++)
        for (int chunk = 0; chunk < CHUNKS; chunk++)
            tma_load_3d(m.area + (tap * CHUNKS + chunk) * step_bytes, map_b, m.weights_full, chunk * tile_depth, tap,
                        0);
    Slot slot;
    for (int tile = blockIdx.x; tile < g.tiles; tile += gridDim.x) {
        Start start = start_of(g, tile);
        for (int chunk = 0; chunk < CHUNKS; chunk++)
            for (int x = 0; x < KERNEL_X; x++) {
                // The first time around the slots are free: the phase before the first counts as completed.
                mbarrier_wait_parity(m.empty + 8 * slot.index, slot.parity ^ 1);
                u32 barrier = m.full + 8 * slot.index;
                mbarrier_arrive_expect_tx(barrier, slot_bytes);
                tma_load_5d(m.ring + slot.index * slot_bytes, map_a, barrier, chunk * tile_depth,
                            start.at[0] + x * DILATION_X - g.padding[0], start.at[1] - g.padding[1],
                            start.at[2] - g.padding[2], start.at[3]);
                slot.advance();
            }
    }
}

// The weight as the first operand of wgmma, 16 deep each.
struct Weights {
    u32 of[steps][quarters][4];
};

// Loads the weight from shared memory, where it lies swizzled. Rows i and i + 8 of a warp's 16 are made neighbouring
// channels, so that a thread has both for a pixel.
__device__ __forceinline__ void load_weights(Weights &weights, u32 from) {
    int lane = threadIdx.x % 32;
    int channel = threadIdx.x % 128 / 32 * 16 + lane % 8 * 2 + lane / 8 % 2;
    u32 line = from + channel * 128;
#pragma unroll
    for (int step = 0; step < steps; step++)
#pragma unroll
        for (int quarter = 0; quarter < quarters; quarter++) {
            int piece = quarter * 2 + lane / 16;
            ldmatrix_x4(weights.of[step][quarter], line + step * step_bytes + (piece ^ channel % 8) * 16);
        }
}

// The epilogue of a tile. The sums go through shared memory, all at once, since they leave no registers for the rest.
// Then a thread has eight neighbouring channels of a pixel, and a warp whole pixels.
__device__ __forceinline__ void write_tile(float (&sum)[pixels / 2], float *staged, int barrier, TYPE *y,
                                           const Boxes &g, const Epilogue &e, const Start &start) {
    // Each time a warpgroup finishes 16 pixels: two lines.
    constexpr int rounds = pixels / 16;
    // Rounds whose epilogue operands are in flight at once: 24 registers' worth, which are there beside the weight.
    constexpr int words = int(sizeof(Fetched<wide>) + 3) / 4;
    constexpr int room = words < 24 ? 24 / words : 1;
    constexpr int ahead = room < rounds ? room : rounds;
    int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    // All have read what the tile before left here.
    named_barrier_sync(barrier, 128);
    float *to = staged + lane % 4 * 2 * pitch + warp * 16 + lane / 4 * 2;
#pragma unroll
    for (int j = 0; j < pixels / 8; j++)
#pragma unroll
        for (int right = 0; right < 2; right++)
            store_pair(to + (8 * j + right) * pitch, sum[4 * j + right], sum[4 * j + 2 + right]);
    // Eight lanes that read at once have two pixels, half of the channels: a bank each.
    int pixel = warp * 4 + lane / 16 * 2 + lane / 4 % 2;
    int column = (lane / 8 % 2 * 4 + lane % 4) * wide;
    const float *from = staged + pixel * pitch + column;
    int at_x = start.at[0] + pixel % box_width, at_y = start.at[1] + pixel / box_width;
    int image = start.at[3] * g.out_extents[2] + start.at[2];
    int first_row = (image * g.out_extents[1] + at_y) * g.out_extents[0] + at_x;
    bool inside = at_x < g.out_extents[0] && column < g.columns;
    auto is_there = [&](int round) { return inside && at_y + 2 * round < g.out_extents[1]; };
    auto row_of_round = [&](int round) { return first_row + 2 * round * g.out_extents[0]; };
    Fetched<wide> fetched[rounds];
    auto fetch_round = [&](int round) {
        // Without a value where nothing is read, registers would keep one from the tile before.
        fetched[round] = {};
        if (is_there(round)) fetch(fetched[round], e, i64(row_of_round(round)) * g.columns + column);
    };
    // Operands are not fetched before: the compiler would do it while the sums fill the registers.
    named_barrier_sync(barrier, 128);
#pragma unroll
    for (int round = 0; round < ahead; round++) fetch_round(round);
#pragma unroll
    for (int round = 0; round < rounds; round++) {
        if (is_there(round)) {
            float result[wide];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float4 four = *reinterpret_cast<const float4 *>(from + round * 16 * pitch + 4 * half);
                result[4 * half] = four.x, result[4 * half + 1] = four.y, result[4 * half + 2] = four.z,
                           result[4 * half + 3] = four.w;
            }
            int row = row_of_round(round);
            apply_stages(result, fetched[round], e, row, column);
            store(y + i64(row) * g.columns + column, result);
        }
        if (round + ahead < rounds) fetch_round(round + ahead);
    }
}

// A consumer: a warpgroup multiplies every other tile of the block.
__device__ __forceinline__ void consume(TYPE *y, const Boxes &g, const Epilogue &e, const Memory &m, float *area) {
    int group = threadIdx.x / 128 - 1;
    bool elected = threadIdx.x % 32 == 0;
    Weights weights;
    mbarrier_wait_parity(m.weights_full, 0);
    load_weights(weights, m.area);
    // Both have their weight: now sums may lie there.
    named_barrier_sync(1, 256);
    float *staged = area + group * (staged_bytes / 4);
    Slot slot;
    auto skip_tile = [&]() {
#pragma unroll
        for (int step = 0; step < CHUNKS * KERNEL_X; step++) slot.advance();
    };
    if (group == 1) skip_tile();
    // The first consumer's first turn counts as given.
    u32 turn_parity = group ^ 1;
    for (int tile = blockIdx.x + group * gridDim.x; tile < g.tiles; tile += 2 * gridDim.x) {
        float sum[pixels / 2];
        mbarrier_wait_parity(m.turn + 8 * group, turn_parity);
        turn_parity ^= 1;
        int last = 0;
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; chunk++)
#pragma unroll
            for (int x = 0; x < KERNEL_X; x++) {
                mbarrier_wait_parity(m.full + 8 * slot.index, slot.parity);
                u32 pixels_at = m.ring + slot.index * slot_bytes;
                wgmma_fence();
#pragma unroll
                for (int y = 0; y < KERNEL_Y; y++) {
                    // What comes last is a group of its own: the other consumer begins while it runs.
                    if (chunk == CHUNKS - 1 && x == KERNEL_X - 1 && y == KERNEL_Y - 1) wgmma_commit_group();
#pragma unroll
                    for (int quarter = 0; quarter < quarters; quarter++)
                        wgmma_mma_async<TYPE, pixels>(
                            sum, weights.of[(y * KERNEL_X + x) * CHUNKS + chunk][quarter],
                            wgmma_descriptor(pixels_at + y * DILATION_Y * line_bytes + quarter * 32, 16, line_bytes),
                            chunk + x + y + quarter > 0);
                }
                wgmma_commit_group();
                // The wgmmas of the step before have finished, so this warp releases their slot.
                wgmma_wait_group<1>();
                if (elected && chunk + x > 0) mbarrier_arrive(m.empty + 8 * last);
                last = slot.index;
                slot.advance();
            }
        if (elected) mbarrier_arrive(m.turn + 8 * (group ^ 1));
        wgmma_wait_group<0>();
        if (elected) mbarrier_arrive(m.empty + 8 * last);
        pin_registers(sum);
        write_tile(sum, staged, 2 + group, y, g, e, start_of(g, tile));
        skip_tile();
    }
}

extern "C" __global__ void __launch_bounds__(384, 1)
    stationary(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, TYPE *y, const Boxes g,
               const Epilogue e) {
    extern __shared__ __align__(1024) u8 shared[];
    // The area of the weight and the sums, the ring, then the mbarriers. The swizzle depends on address bits, so area
    // and ring begin at multiples of 1024.
    Memory m;
    m.area = shared_address(shared);
    m.ring = m.area + area_pitch;
    m.full = m.ring + STAGES * slot_bytes;
    m.empty = m.full + 8 * STAGES;
    m.weights_full = m.empty + 8 * STAGES;
    m.turn = m.weights_full + 8;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            mbarrier_init(m.full + 8 * i, 1);
            // One warpgroup has a slot.
            mbarrier_init(m.empty + 8 * i, 4);
        }
        mbarrier_init(m.weights_full, 1);
        for (int i = 0; i < 2; i++) mbarrier_init(m.turn + 8 * i, 4);
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
        consume(y, g, e, m, reinterpret_cast<float *>(shared));
    }
}
