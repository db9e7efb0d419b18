// The gradients of attention on Hopper, of the queries or, if KEYS is set, of keys and values. A block has 64 rows for each of its
// WARPGROUPS consumers, queries or keys, and walks the others by tiles of OTHERS rows, which a producer warpgroup brings by TMA
// into STAGES buffers. Two products of the rows and a tile give the weights and their gradients, transposed if rows are keys; these
// stay in registers, as the left operands of the products with the tile that are summed.
//
// Rows lie in shared memory as in `hopper.cu`.
#include "specialisation.cuh"
#include "grid.cuh"
#include "attention_backward.cuh"
#include "hopper.cuh"

constexpr int THREADS = 128 * (WARPGROUPS + 1);
constexpr int ROW_TILE = 64 * WARPGROUPS;
constexpr int BLOCKS = (HEAD_DIM + 63) / 64, CHANNEL_STEPS = (HEAD_DIM + 15) / 16;
// Bytes of a block of channels, and of all of them.
constexpr int ROW_BLOCK = ROW_TILE * 128, OTHER_BLOCK = OTHERS * 128;
constexpr int ROW_BYTES = BLOCKS * ROW_BLOCK, OTHER_BYTES = BLOCKS * OTHER_BLOCK, STAGE_BYTES = 2 * OTHER_BYTES;
constexpr int COLUMN_BYTES = KEYS ? OTHERS * int(sizeof(QueryRow)) : 0;
// All the registers there are, for the threads that need them.
constexpr int PRODUCER_REGISTERS = KEYS ? 56 : 24, CONSUMER_REGISTERS = KEYS ? 224 : 240;
static_assert(registers_suffice(WARPGROUPS, PRODUCER_REGISTERS, CONSUMER_REGISTERS));

// Whether a row that TMA has loaded may be hidden, and what it holds be anything.
constexpr bool AGAIN = MASK != MASK_NONE || KEY_LENGTHS || BOUNDARIES;

// Named barriers at which the warps of a warpgroup wait for each other.
constexpr int OWN = 1;

// Where everything lies in shared memory.
struct SharedLayout {
    u32 rows, stages, columns, rows_full, full, free;

    __device__ __forceinline__ SharedLayout(u32 start) {
        rows = start;
        stages = rows + 2 * ROW_BYTES;
        columns = stages + STAGES * STAGE_BYTES;
        rows_full = columns + STAGES * COLUMN_BYTES;
        full = rows_full + 8;
        free = full + 8 * STAGES;
    }
};

// What a block works on: rows from `first_row` on of a sequence, and tiles of others from `first_tile` to before `end_tile`, of `batches`
// batch elements from `first_batch` on. The sequence is that of the rows.
struct Block {
    Sequence sequence;
    i32 first_row, first_tile, end_tile, first_batch, batches;
};

// Starts the wgmmas of this warpgroup's rows and a tile.
__device__ __forceinline__ void start_products(float (&products)[OTHERS / 2], u32 rows, u32 tile) {
    pin_registers(products);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < CHANNEL_STEPS; step++) {
        const u32 block = step / 4, within = step % 4 * 32;
        wgmma_mma_async<ELEMENT, OTHERS>(products, wgmma_descriptor(rows + block * ROW_BLOCK + within, 0, 1024),
                                         wgmma_descriptor(tile + block * OTHER_BLOCK + within, 0, 1024), step > 0);
    }
    wgmma_commit_group();
}

// Starts those of factors and a tile.
__device__ __forceinline__ void start_sums(float (&sums)[HEAD_DIM / 2], const u32 (&factors)[OTHERS / 16][4],
                                           u32 tile) {
    pin_registers(sums);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < OTHERS / 16; step++)
        wgmma_mma_async<ELEMENT, HEAD_DIM, true>(sums, factors[step],
                                                 wgmma_descriptor(tile + step * 2048, OTHER_BLOCK, 1024), true);
    wgmma_commit_group();
}

// A sum's two neighbouring tiles of 8 columns have the layout of an operand of 16.
__device__ __forceinline__ void pack(u32 (&factors)[OTHERS / 16][4], const float (&from)[OTHERS / 2]) {
#pragma unroll
    for (int i = 0; i < OTHERS / 4; i++) factors[i / 4][i % 4] = pack2<ELEMENT>(from[2 * i], from[2 * i + 1]);
}

// The first warp of the producer: one thread issues the TMA loads of the rows, and of tiles as their buffers become free.
__device__ __forceinline__ void produce(const TensorMap &first_rows, const TensorMap &second_rows,
                                        const TensorMap &first_others, const TensorMap &second_others,
                                        const SharedLayout &room, const Block &block) {
    mbarrier_arrive_expect_tx(room.rows_full, 2 * ROW_BYTES);
    for (int part = 0; part < BLOCKS; part++) {
        tma_load_4d(room.rows + part * ROW_BLOCK, first_rows, room.rows_full, part * 64, block.sequence.head,
                    block.first_row, block.sequence.batch);
        tma_load_4d(room.rows + ROW_BYTES + part * ROW_BLOCK, second_rows, room.rows_full, part * 64,
                    block.sequence.head, block.first_row, block.sequence.batch);
    }
    int stage = 0;
    u32 parity = 1;
    for (i32 batch = block.first_batch; batch < block.first_batch + block.batches; batch++)
        for (i32 tile = block.first_tile; tile < block.end_tile; tile++) {
            const u32 full = room.full + 8 * stage, to = room.stages + stage * STAGE_BYTES;
            mbarrier_wait_parity(room.free + 8 * stage, parity);
            mbarrier_arrive_expect_tx(full, STAGE_BYTES);
            for (int part = 0; part < BLOCKS; part++) {
                tma_load_4d(to + part * OTHER_BLOCK, first_others, full, part * 64, block.sequence.head, tile * OTHERS,
                            batch);
                tma_load_4d(to + OTHER_BYTES + part * OTHER_BLOCK, second_others, full, part * 64, block.sequence.head,
                            tile * OTHERS, batch);
            }
            if (++stage == STAGES) stage = 0, parity ^= 1;
        }
}

// Its second warp, if the others are queries: brings what is known of them.
__device__ __forceinline__ void produce_columns(u8 *shared, const SharedLayout &room, const QueryRow *rows,
                                                const Problem &problem, const Block &block) {
    const int lane = threadIdx.x % 32;
    int stage = 0;
    u32 parity = 1;
    for (i32 batch = block.first_batch; batch < block.first_batch + block.batches; batch++) {
        const QueryRow *own = first_query_row(rows, problem, Sequence{batch, 0, block.sequence.head});
        for (i32 tile = block.first_tile; tile < block.end_tile; tile++) {
            mbarrier_wait_parity(room.free + 8 * stage, parity);
            QueryRow *to = reinterpret_cast<QueryRow *>(shared + (room.columns - room.rows) + stage * COLUMN_BYTES);
#pragma unroll
            for (int i = lane; i < OTHERS; i += 32) {
                const i32 query = tile * OTHERS + i;
                // Queries that do not exist have zeros, and see no key.
                to[i] = query < problem.queries ? own[query] : QueryRow{};
            }
            mbarrier_arrive(room.full + 8 * stage);
            if (++stage == STAGES) stage = 0, parity ^= 1;
        }
    }
}

// Writes a consumer's sums through its own rows of shared memory, 16 bytes at a time. Pieces of 16 bytes change places within
// a row by the row's number, so that eight rows are on different banks. Gives a bit for each thread that holds a part of a row with a
// NaN: of the upper rows and of the lower.
__device__ __forceinline__ void write_rows(u32 (&nan_rows)[2], const float (&sums)[HEAD_DIM / 2], float scale,
                                           u8 *staged, ELEMENT *to, i64 step, i32 first, i32 end) {
    const int lane = threadIdx.x % 32, first_of_warp = threadIdx.x % 128 / 32 * 16;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = first_of_warp + lane / 4 + 8 * half;
        bool nan = false;
#pragma unroll
        for (int j = 0; j < HEAD_DIM / 8; j++) {
            u8 *piece = staged + j / 8 * ROW_BLOCK + row * 128 + ((j % 8) ^ (row % 8)) * 16 + lane % 4 * 4;
            const float left = sums[4 * j + 2 * half] * scale, right = sums[4 * j + 2 * half + 1] * scale;
            nan = nan || left != left || right != right;
            *reinterpret_cast<u32 *>(piece) = pack2<ELEMENT>(left, right);
        }
        nan_rows[half] = AGAIN ? __ballot_sync(0xffffffffu, nan) : 0;
    }
    // A warp writes the rows that it staged itself.
    __syncwarp();
    constexpr int PIECES = HEAD_DIM / 8;
#pragma unroll 1
    for (int i = lane; i < 16 * PIECES; i += 32) {
        const int row = first_of_warp + i / PIECES, piece = i % PIECES;
        const u8 *from = staged + piece / 8 * ROW_BLOCK + row * 128 + ((piece % 8) ^ (row % 8)) * 16;
        if (first + row < end)
            *reinterpret_cast<uint4 *>(to + (first + row) * step + piece * 8) = *reinterpret_cast<const uint4 *>(from);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    backward_hopper(const __grid_constant__ TensorMap first_rows, const __grid_constant__ TensorMap second_rows,
                    const __grid_constant__ TensorMap first_others, const __grid_constant__ TensorMap second_others,
                    const ELEMENT *q, const ELEMENT *k, const ELEMENT *v, const MASK_TYPE *mask, const ELEMENT *dy,
                    const QueryRow *rows, ELEMENT *first_gradient, ELEMENT *second_gradient, const Strides of_keys,
                    const Problem problem) {
    extern __shared__ __align__(1024) u8 shared[];
    const SharedLayout room(shared_address(shared));
    const int warpgroup = threadIdx.x / 128, lane = threadIdx.x % 32;

    u32 index = blockIdx.x;
    const i32 length = KEYS ? problem.keys : problem.queries, others = KEYS ? problem.queries : problem.keys;
    const u32 row_tiles = u32(length + ROW_TILE - 1) / ROW_TILE;
    u32 row_tile = index % row_tiles;
    // With a causal mask the last queries, and the first keys, take longest, and begin first.
    if (!KEYS && MASK == MASK_CAUSAL) row_tile = row_tiles - 1 - row_tile;
    index /= row_tiles;
    Block block;
    block.first_row = i32(row_tile) * ROW_TILE;
    block.sequence = {i32(index / u32(problem.heads)), 0, i32(index % u32(problem.heads))};

    if (threadIdx.x == 0) {
        mbarrier_init(room.rows_full, 1);
        for (int stage = 0; stage < STAGES; stage++) {
            mbarrier_init(room.full + 8 * stage, KEYS ? 33 : 1);
            mbarrier_init(room.free + 8 * stage, 4 * WARPGROUPS);
        }
        fence_mbarrier_init();
    }
    __syncthreads();
    wait_for_launch_before();

    // The queries of the block's first batch element: what they see is the same for all that share the keys.
    const i32 batch = block.sequence.batch;
    const QueryRow *own_rows =
        first_query_row(rows, problem, Sequence{KEYS ? batch * problem.share : batch, 0, block.sequence.head});
    const i32 last_row = min(block.first_row + ROW_TILE, length) - 1;
    if constexpr (KEYS) {
        const i32 tiles = (others + OTHERS - 1) / OTHERS;
        float before = 0.0f, not_after = 0.0f;
        for (i32 tile = lane; tile < tiles; tile += 32) {
            const i32 last = min((tile + 1) * OTHERS, others) - 1;
            if (seen_keys(own_rows, problem, last).end <= block.first_row) before += 1.0f;
            if (seen_keys(own_rows, problem, tile * OTHERS).first < block.first_row + ROW_TILE) not_after += 1.0f;
        }
        block.first_tile = i32(warp_sum(before)), block.end_tile = i32(warp_sum(not_after));
        block.first_batch = batch * problem.share, block.batches = problem.share;
    } else {
        block.first_tile = seen_keys(own_rows, problem, block.first_row).first / OTHERS;
        block.end_tile = (seen_keys(own_rows, problem, last_row).end + OTHERS - 1) / OTHERS;
        block.first_batch = batch / problem.share, block.batches = 1;
    }
    // Without others nothing is loaded, and the result is zeros.
    const bool works = block.first_tile < block.end_tile;

    if (warpgroup == WARPGROUPS) {
        setmaxnreg_dec<PRODUCER_REGISTERS>();
        if (!works) return;
        if (threadIdx.x % 128 == 0) produce(first_rows, second_rows, first_others, second_others, room, block);
        if (KEYS && threadIdx.x % 128 / 32 == 1) produce_columns(shared, room, rows, problem, block);
        return;
    }
    setmaxnreg_inc<CONSUMER_REGISTERS>();
    float first_sums[HEAD_DIM / 2], second_sums[HEAD_DIM / 2];
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 2; i++) first_sums[i] = second_sums[i] = 0.0f;

    const i32 first_of_group = block.first_row + warpgroup * 64;
    const i32 own_row = first_of_group + threadIdx.x % 128 / 32 * 16 + lane / 4;
    QueryRow own[2] = {};
    if constexpr (!KEYS) {
#pragma unroll
        for (int half = 0; half < 2; half++)
            if (own_row + 8 * half < problem.queries) own[half] = own_rows[own_row + 8 * half];
    }
    // The keys that all of a warpgroup's queries see.
    const KeyRange by_last = seen_keys(own_rows, problem, KEYS ? 0 : min(first_of_group + 63, last_row));
    const KeyRange by_first = seen_keys(own_rows, problem, KEYS ? 0 : min(first_of_group, last_row));

    if (works) {
        mbarrier_wait_parity(room.rows_full, 0);
        const u32 first_at = room.rows + warpgroup * 64 * 128, second_at = first_at + ROW_BYTES;
        int stage = 0;
        u32 parity = 0;
        for (i32 turn = 0; turn < block.batches; turn++)
            for (i32 tile = block.first_tile; tile < block.end_tile; tile++) {
                const u32 first_tile = room.stages + stage * STAGE_BYTES, second_tile = first_tile + OTHER_BYTES;
                const QueryRow *columns = reinterpret_cast<const QueryRow *>(shared + (room.columns - room.rows) +
                                                                             stage * COLUMN_BYTES);
                mbarrier_wait_parity(room.full + 8 * stage, parity);
                float weights[OTHERS / 2], gradients[OTHERS / 2];
                start_products(weights, first_at, first_tile);
                start_products(gradients, second_at, second_tile);
                const i32 first_other = tile * OTHERS;
                bool partial;
                if constexpr (KEYS) {
                    const i32 last = min(first_other + OTHERS, others) - 1;
                    partial = first_of_group < seen_keys(own_rows, problem, last).first ||
                              first_of_group + 64 > seen_keys(own_rows, problem, first_other).end;
                } else {
                    partial = first_other < by_last.first || first_other + OTHERS > by_first.end;
                }
                // Weights while their gradients are still on the tensor cores. Elements 4 j + 2 half + i belong to row half, and
                // column 8 j + 2 (lane % 4) + i.
                wgmma_wait_group<1>();
                pin_registers(weights);
#pragma unroll
                for (int i = 0; i < OTHERS / 2; i++) {
                    const int column = i / 4 * 8 + lane % 4 * 2 + i % 2, half = i / 2 % 2;
                    const float base = KEYS ? columns[column].base : own[half].base;
                    weights[i] = known_weight(weights[i], 0.0f, base, problem.scale);
                }
                // A bit for each element that is hidden.
                u32 hidden[(OTHERS / 2 + 31) / 32] = {};
                if (partial) {
#pragma unroll
                    for (int i = 0; i < OTHERS / 2; i++) {
                        const int column = i / 4 * 8 + lane % 4 * 2 + i % 2, half = i / 2 % 2;
                        const bool seen = KEYS ? columns[column].has(own_row + 8 * half)
                                               : own[half].has(first_other + column);
                        if (!seen) weights[i] = 0.0f, hidden[i / 32] |= 1u << i % 32;
                    }
                }
                u32 factors[OTHERS / 16][4];
                if constexpr (KEYS) {
                    pack(factors, weights);
                    start_sums(second_sums, factors, second_tile);
                    wgmma_wait_group<1>();
                } else {
                    wgmma_wait_group<0>();
                }
                pin_registers(gradients);
#pragma unroll
                for (int i = 0; i < OTHERS / 2; i++) {
                    const int column = i / 4 * 8 + lane % 4 * 2 + i % 2, half = i / 2 % 2;
                    const float of_results = KEYS ? columns[column].of_results : own[half].of_results;
                    gradients[i] = weights[i] * (gradients[i] - of_results);
                }
                if (partial) {
                    // What is hidden may hold anything.
#pragma unroll
                    for (int i = 0; i < OTHERS / 2; i++)
                        if (hidden[i / 32] >> i % 32 & 1) gradients[i] = 0.0f;
                }
                u32 of_scores[OTHERS / 16][4];
                pack(of_scores, gradients);
                start_sums(first_sums, of_scores, first_tile);
                wgmma_wait_group<0>();
                pin_registers(first_sums);
                if constexpr (KEYS) pin_registers(second_sums);
                if (lane == 0) mbarrier_arrive(room.free + 8 * stage);
                if (++stage == STAGES) stage = 0, parity ^= 1;
            }
    }

    // Every warp of the warpgroup is done with its rows.
    named_barrier_sync(OWN + warpgroup, 128);
    u8 *staged = shared + warpgroup * 64 * 128;
    const Strides &strides = KEYS ? of_keys : problem.y;
    u32 nan_rows[2], more[2] = {0, 0};
    ELEMENT *first_to = first_row(first_gradient, strides, batch, block.sequence);
    ELEMENT *second_to = first_row(second_gradient, strides, batch, block.sequence);
    write_rows(nan_rows, first_sums, problem.scale, staged, first_to, strides.step, first_of_group, length);
    if constexpr (KEYS)
        write_rows(more, second_sums, 1.0f, staged + ROW_BYTES, second_to, strides.step, first_of_group, length);

    // What is hidden may have spoilt sums, as in `backward_queries`.
    if constexpr (AGAIN) {
        __syncwarp();
#pragma unroll 1
        for (int half = 0; half < 2; half++)
            for (u32 rest = nan_rows[half] | more[half]; rest != 0;) {
                const int of_warp = (__ffs(rest) - 1) / 4;
                rest &= ~(0xfu << 4 * of_warp);
                const i32 row = first_of_group + threadIdx.x % 128 / 32 * 16 + 8 * half + of_warp;
                if (row >= length) continue;
                const i32 key_batch = KEYS ? batch : batch / problem.share;
                const ELEMENT *own_k = first_row(k, problem.k, key_batch, block.sequence);
                const ELEMENT *own_v = first_row(v, problem.v, key_batch, block.sequence);
                if constexpr (KEYS)
                    key_gradient(q, own_k + row * problem.k.step, own_v + row * problem.v.step, mask, dy, rows,
                                 first_to + row * strides.step, second_to + row * strides.step, problem,
                                 block.sequence, row, 0, HEAD_DIM);
                else
                    query_gradient(first_row(q, problem.q, batch, block.sequence) + row * problem.q.step, own_k, own_v,
                                   mask, first_row(dy, problem.y, batch, block.sequence) + row * problem.y.step,
                                   own_rows[row], seen_keys(own_rows, problem, row), first_to + row * strides.step,
                                   problem);
            }
    }
}
