// A product or a convolution of stride 1 on Hopper, for f16, bf16 and e4m3 (ELEMENT) with f32 sums, as in `wgmma.cu`: a
// producer fills a ring of tiles in shared memory by TMA, and two consumer warpgroups multiply them with wgmma. Here
// each warpgroup has tiles of its own, and they take turns at the tensor cores: one multiplies while the other finishes
// its tile.
//
// So an epilogue costs no time as long as it takes less than a tile's products. While a warpgroup waits for its turn,
// the epilogue's operands of its next tile come to shared memory by cp.async, since the sums take most registers. The
// bias and the scale lie there from the start, if they are not too long (BIAS_SIZE and SCALE_SIZE bytes an element): an
// epilogue is a chain of short steps, each of which would wait for the L2 cache, whose answers are late while TMA keeps
// it busy.
//
// The weight passes through the ring beside the rows. Or a block keeps to its columns, and their weight stays in shared
// memory (RESIDENT_STEPS of the depth, which are all): then only rows pass through the ring.
//
// `measured` takes the statistics of the results, if a group norm asks for them (STATISTICS).
#include "specialisation.cuh"

#include "grid.cuh"
#include "boxes.cuh"

// Blocks of 64 rows of a tile.
constexpr int row_blocks = TILE_ROWS / 64;
static_assert(row_blocks * TILE_COLUMNS / 2 <= 160, "the sums leave no registers for the rest");
constexpr int tile_depth = 128 / sizeof(ELEMENT);
constexpr int a_bytes = TILE_ROWS * 128;
constexpr int b_bytes = TILE_COLUMNS * 128;
constexpr int stage_bytes = RESIDENT_STEPS > 0 ? a_bytes : a_bytes + b_bytes;
// Strips of a tile, of which the operands of STRIPS_AHEAD have room in shared memory at once: 0 if there are none.
constexpr int all_strips = row_blocks * strips;
static_assert(STRIPS_AHEAD <= all_strips && (STRIPS_AHEAD > 0) == (element_operands > 0), "as the launcher counts");

// The mbarriers, and what keeps the vectors behind them aligned.
constexpr int barrier_bytes = 16 * STAGES + 32;

// Shared memory: the ring, the weight if it stays, and mbarriers: slots of the ring that are full or empty, for each consumer
// that it is its turn to multiply, and that the weight has come.
struct Memory {
    u32 ring, weight, full, empty, turn, weight_full;
};

// The tiles of a block: every `next`-th from `first` to `end`, in units that are tiles, or rows of tiles if the weight stays.
struct Share {
    int first, end, next;

    __device__ __forceinline__ explicit Share(const Boxes &g) {
        first = blockIdx.x, next = gridDim.x, end = g.tiles;
        if (RESIDENT_STEPS > 0) first /= g.across, next /= g.across, end /= g.across;
    }

    __device__ __forceinline__ Start start_of_unit(const Boxes &g, int unit) const {
        if (RESIDENT_STEPS > 0) return start_at(g, u32(unit), blockIdx.x % u32(g.across));
        Place place = place_of(u32(unit), u32(end) / u32(g.across), u32(g.across));
        return start_at(g, place.row, place.column);
    }
};

// Loads the weight of a tile's columns for one step of the depth.
__device__ __forceinline__ void load_weight(u32 to, const TensorMap &map, u32 barrier, const Boxes &g, const Start &start,
                                            const Step &step) {
    int channel = step.chunk * tile_depth;
    tma_load_3d(to, map, barrier, channel, step.tap, start.filter);
#if GATED
    tma_load_3d(to + b_bytes / 2, map, barrier, channel, step.tap, g.columns + start.column);
#endif
}

// The producer: one thread issues the TMA loads of every tile of the depth, as slots of the ring become free.
__device__ __forceinline__ void produce(const TensorMap &map_a, const TensorMap &map_b, const Boxes &g,
                                        const Memory &m) {
    int steps = g.kernel[0] * g.kernel[1] * g.kernel[2] * g.chunks;
    Slot slot;
    Share share(g);
#if RESIDENT_STEPS > 0
    if (share.first < share.end) {
        Start start = share.start_of_unit(g, share.first);
        Step step(g, 0);
        mbarrier_arrive_expect_tx(m.weight_full, RESIDENT_STEPS * b_bytes);
        for (int i = 0; i < steps; i++, step.advance(g)) load_weight(m.weight + i * b_bytes, map_b, m.weight_full, g, start, step);
    }
#endif
    for (int unit = share.first; unit < share.end; unit += share.next) {
        Start start = share.start_of_unit(g, unit);
        Step step(g, 0);
        for (int i = 0; i < steps; i++, step.advance(g)) {
            // The first time around the slots are free: the phase before the first counts as completed.
            mbarrier_wait_parity(m.empty + 8 * slot.index, slot.parity ^ 1);
            u32 to = m.ring + slot.index * stage_bytes, barrier = m.full + 8 * slot.index;
            mbarrier_arrive_expect_tx(barrier, stage_bytes);
            tma_load_5d(to, map_a, barrier, step.chunk * tile_depth,
                        start.at[0] + start.x + step.x * g.dilation[0] - g.padding[0],
                        start.at[1] + start.y + step.y * g.dilation[1] - g.padding[1],
                        start.at[2] + step.t * g.dilation[2] - g.padding[2], start.at[3]);
#if RESIDENT_STEPS == 0
            load_weight(to + a_bytes, map_b, barrier, g, start, step);
#endif
            slot.advance();
        }
    }
}

struct Sums {
    float of[row_blocks][TILE_COLUMNS / 2];
};

// Multiplies a tile as its operands arrive, when it is this warpgroup's turn.
__device__ __forceinline__ void multiply(Sums &sums, int steps, Slot &slot, const Memory &m, int group) {
    bool elected = threadIdx.x % 32 == 0;
    int last = 0;
    for (int step = 0; step < steps; step++) {
        mbarrier_wait_parity(m.full + 8 * slot.index, slot.parity);
        u32 a = m.ring + slot.index * stage_bytes;
        u32 b = RESIDENT_STEPS > 0 ? m.weight + step * b_bytes : a + a_bytes;
        wgmma_fence();
#pragma unroll
        for (int quarter = 0; quarter < 4; quarter++)
#pragma unroll
            for (int i = 0; i < row_blocks; i++)
                wgmma_mma_async<ELEMENT, TILE_COLUMNS>(
                    sums.of[i], wgmma_descriptor(a + i * 8192 + quarter * 32, 16, 1024),
                    wgmma_descriptor(b + quarter * 32, 16, 1024), step > 0 || quarter > 0);
        wgmma_commit_group();
        // The other consumer's products queue up behind the last of these.
        if (elected && step == steps - 1) mbarrier_arrive(m.turn + 8 * (group ^ 1));
        // The wgmmas of the step before have finished, so this warp releases their slot.
        wgmma_wait_group<1>();
        if (elected && step > 0) mbarrier_arrive(m.empty + 8 * last);
        last = slot.index;
        slot.advance();
    }
    wgmma_wait_group<0>();
    if (elected) mbarrier_arrive(m.empty + 8 * last);
#pragma unroll
    for (int i = 0; i < row_blocks; i++) pin_registers(sums.of[i]);
}

// A number of which the compiler knows nothing: what is computed from it is computed there, and not kept beside the sums,
// which leave no registers for it.
__device__ __forceinline__ int opaque(int number) {
    asm volatile("" : "+r"(number));
    return number;
}

// What a thread writes of 64 rows of a tile: in each strip, eight neighbouring columns of a row in every turn. What lies
// outside the result is read as if it lay at its edge, so that there is nothing to decide but whether to store.
struct Results {
    // -1 outside.
    int rows[turns];
    int column;

    __device__ __forceinline__ Results(const Boxes &g, const Start &start, int block) {
        int thread = opaque(threadIdx.x % 128), lane = thread % 32;
        int first = block * 64 + thread / 32 * 16 + lane / across;
#pragma unroll
        for (int turn = 0; turn < turns; turn++) rows[turn] = row_of(g, start, first + turn * (32 / across));
        column = start.column + lane % across * wide;
    }

    __device__ __forceinline__ bool are_there(const Boxes &g, int n, int turn) const {
        return rows[turn] >= 0 && column + n * strip < g.columns;
    }
    __device__ __forceinline__ int row(int turn) const { return max(rows[turn], 0); }
    __device__ __forceinline__ int first_column(const Boxes &g, int n) const {
        return min(column + n * strip, g.columns - wide);
    }
};

#if STRIPS_AHEAD > 0
// A thread's own operands of the strips ahead.
typedef Fetched<wide> Ahead[STRIPS_AHEAD][turns][256];

// Has the operands of strip `n` of 64 rows copied, as a group of its own: `number` counts the strips of a tile.
__device__ __forceinline__ void prefetch_strip(Ahead &ahead, const Boxes &g, const Epilogue &e, const Results &results,
                                               int number) {
    int n = number % strips;
#pragma unroll
    for (int turn = 0; turn < turns; turn++)
        prefetch(ahead[number % STRIPS_AHEAD][turn][threadIdx.x - 128], e,
                 i64(results.row(turn)) * g.columns + results.first_column(g, n), results.are_there(g, n, turn));
    cp_async_commit_group();
}

// Loads such operands, 16 bytes at a time. Left to itself, the compiler would load them one by one.
__device__ __forceinline__ void load_ahead(Fetched<wide> &to, const Fetched<wide> &from) {
    uint4 words[sizeof(to) / 16];
#pragma unroll
    for (int i = 0; i < int(sizeof(to) / 16); i++) {
        uint4 &four = words[i];
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(four.x), "=r"(four.y), "=r"(four.z), "=r"(four.w)
                     : "r"(shared_address(&from) + 16 * i)
                     : "memory");
    }
    memcpy(&to, words, sizeof(to));
}
#else
struct Ahead {};
#endif

// The epilogue of a tile. Each warp passes its 16 rows of 64 through shared memory, a strip of columns at a time, so that
// a thread has neighbouring results of one row.
__device__ __forceinline__ void finish_tile(Sums &sums, float *own, Ahead &ahead, TYPE *y, float2 *measured,
                                            const Boxes &g, const Epilogue &e, const Start &start) {
    int lane = opaque(threadIdx.x % 32);
    Moments<row_blocks> moments;
#pragma unroll
    for (int i = 0; i < row_blocks; i++) {
        Results results(g, start, i);
        float(&sum)[TILE_COLUMNS / 2] = sums.of[i];
#pragma unroll
        for (int n = 0; n < strips; n++) {
#if GATED
            join_gates(sum, g, e, start, lane, n);
#endif
            // All lanes have read what the strip before left here.
            __syncwarp();
#pragma unroll
            for (int block = 0; block < strip / 8; block++) {
                int j = n * (strip / 8) + block;
#pragma unroll
                for (int lower = 0; lower < 2; lower++)
                    store_pair(own + (lane / 4 + 8 * lower) * strip_pitch + 8 * block + lane % 4 * 2,
                               sum[4 * j + 2 * lower], sum[4 * j + 2 * lower + 1]);
            }
            __syncwarp();
#if STRIPS_AHEAD > 0
            int number = i * strips + n;
            cp_async_wait_group<STRIPS_AHEAD - 1>();
#endif
#pragma unroll
            for (int turn = 0; turn < turns; turn++) {
                float result[wide];
                const float *line = own + (lane / across + turn * (32 / across)) * strip_pitch + lane % across * wide;
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    float4 four = *reinterpret_cast<const float4 *>(line + 4 * half);
                    result[4 * half] = four.x, result[4 * half + 1] = four.y, result[4 * half + 2] = four.z,
                               result[4 * half + 3] = four.w;
                }
                int row = results.row(turn), column = results.first_column(g, n);
                Fetched<wide> operands;
#if STRIPS_AHEAD > 0
                load_ahead(operands, ahead[number % STRIPS_AHEAD][turn][threadIdx.x - 128]);
#endif
                apply_stages(result, operands, e, row, column);
                if (STATISTICS || results.are_there(g, n, turn))
                    moments.store(y + i64(row) * g.columns + column, result, n, i == 0 && turn == 0);
            }
#if STRIPS_AHEAD > 0
            // After the last strip these are empty groups.
            int next = number + STRIPS_AHEAD;
            if (next >= all_strips)
                cp_async_commit_group();
            else if (next / strips == i)
                prefetch_strip(ahead, g, e, results, next);
            else
                prefetch_strip(ahead, g, e, Results(g, start, next / strips), next);
#endif
        }
    }
#if STATISTICS
    moments.write(measured, g, start, 4, threadIdx.x % 128 / 32);
#endif
}

// A consumer: a warpgroup multiplies and finishes every other tile of the block.
__device__ __forceinline__ void consume(TYPE *y, float2 *measured, const Boxes &g, const Epilogue &e, const Memory &m,
                                        float *own, Ahead &ahead) {
    int group = threadIdx.x / 128 - 1;
    int steps = g.kernel[0] * g.kernel[1] * g.kernel[2] * g.chunks;
    Slot slot;
    if (group == 1) slot.skip(steps);
    // The first consumer's first turn counts as given.
    u32 turn_parity = group ^ 1;
    Share share(g);
#if RESIDENT_STEPS > 0
    if (share.first < share.end) mbarrier_wait_parity(m.weight_full, 0);
#endif
    for (int unit = share.first + group * share.next; unit < share.end; unit += 2 * share.next) {
        Start start = share.start_of_unit(g, unit);
#if STRIPS_AHEAD > 0
#pragma unroll
        for (int i = 0; i < row_blocks; i++) {
            Results results(g, start, i);
#pragma unroll
            for (int number = i * strips; number < (i + 1) * strips && number < STRIPS_AHEAD; number++)
                prefetch_strip(ahead, g, e, results, number);
        }
#endif
        mbarrier_wait_parity(m.turn + 8 * group, turn_parity);
        turn_parity ^= 1;
        Sums sums;
        multiply(sums, steps, slot, m, group);
#pragma unroll
        for (int axis = 0; axis < 4; axis++) start.at[axis] = opaque(start.at[axis]);
        finish_tile(sums, own, ahead, y, measured, g, e, start);
        slot.skip(steps);
    }
}

// Copies a vector of all columns, that of gates behind that of their values, and gives the place behind it.
__device__ __forceinline__ uint4 *copy_vector(uint4 *to, const Boxes &g, const void *from, int element) {
    int words = g.columns * (GATED ? 2 : 1) * element / 16;
    for (int i = threadIdx.x; i < words; i += blockDim.x) to[i] = static_cast<const uint4 *>(from)[i];
    return to + words;
}

extern "C" __global__ void __launch_bounds__(384, 1)
    wgmma_in_turns(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, TYPE *y,
                   float2 *measured, const Boxes g, const Epilogue e) {
    extern __shared__ __align__(1024) u8 shared[];
    // The ring, the weight that stays, the epilogue's operands, the strips of eight warps, the mbarriers, then the
    // vectors. The swizzle depends on address bits, so the ring and the weight begin at multiples of 1024.
    u8 *after_ring = shared + STAGES * stage_bytes + RESIDENT_STEPS * b_bytes;
    Ahead &ahead = *reinterpret_cast<Ahead *>(after_ring);
    u8 *after_ahead = after_ring + (STRIPS_AHEAD > 0 ? sizeof(Ahead) : 0);
    float *strips = reinterpret_cast<float *>(after_ahead);
    Memory m;
    m.ring = shared_address(shared);
    m.weight = m.ring + STAGES * stage_bytes;
    m.full = shared_address(after_ahead) + 8 * strip_bytes;
    m.empty = m.full + 8 * STAGES;
    m.turn = m.empty + 8 * STAGES;
    m.weight_full = m.turn + 16;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            mbarrier_init(m.full + 8 * i, 1);
            // One warpgroup has a slot.
            mbarrier_init(m.empty + 8 * i, 4);
        }
        for (int i = 0; i < 2; i++) mbarrier_init(m.turn + 8 * i, 4);
        mbarrier_init(m.weight_full, 1);
        fence_mbarrier_init();
    }
    wait_for_launch_before();
    Epilogue own = e;
    uint4 *vectors = reinterpret_cast<uint4 *>(after_ahead + 8 * strip_bytes + barrier_bytes);
#if BIAS_SIZE > 0
    own.bias = vectors;
    vectors = copy_vector(vectors, g, e.bias, BIAS_SIZE);
#endif
#if SCALE_SIZE > 0
    own.scale = vectors;
    copy_vector(vectors, g, e.scale, SCALE_SIZE);
#endif
    __syncthreads();
    if (threadIdx.x < 128) {
        setmaxnreg_dec<24>();
        if (threadIdx.x == 0) {
            prefetch_tensormap(map_a);
            prefetch_tensormap(map_b);
            produce(map_a, map_b, g, m);
        }
    } else {
        setmaxnreg_inc<240>();
        consume(y, measured, g, own, m, strips + (threadIdx.x / 32 - 4) * (strip_bytes / 4), ahead);
    }
}
