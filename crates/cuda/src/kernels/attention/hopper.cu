// FlashAttention on Hopper. The kernel is warp-specialised: a producer warpgroup, one thread of which
// issues the TMA loads, and WARPGROUPS consumers, which have 64 queries each and work on the tiles of KEY_TILE keys as
// they arrive in STAGES buffers.
//
// A consumer's wgmmas run asynchronously. It starts those of its queries and the next keys, then those of the weights
// and the values of the last tile, and does the online softmax of the former while the latter still run. If TURNS is
// set, the consumers also start their wgmmas in turns (ping-pong), so that one has the tensor cores while another has
// the exponential units.
//
// ptxas moves the wait for the sums up to where their wgmmas were started, so that the online softmax comes after them. If
// OVERLAPPED is set, it stays behind the softmax. If SKIPPING is set, sums are not multiplied as long as no maximum of a
// warp's rows has grown by much. Of POLYNOMIAL exponentials one goes to the FMA units; 0 for none.
//
// If PERSISTENT is set, a block has several tiles of queries, one after the other: the producer loads the next one's
// queries and first keys while the consumers finish.
//
// Tiles of keys that no query of a block sees are left out; a consumer masks those that its own queries see in part. A
// row that ends in a NaN is done again where keys are hidden, since a hidden value's NaN does not belong to it.
//
// Rows lie in shared memory with TMA's 128-byte swizzle: blocks of 64 channels, 128 bytes a row. TMA fills a head whose
// channels are not a multiple of 64 up with zeros, since the heads are an axis of the tensor map.
#include "specialisation.cuh"
#include "grid.cuh"
#include "attention.cuh"
#include "attention_mask.cuh"
#include "exponential.cuh"
#include "hopper.cuh"

constexpr int THREADS = 128 * (WARPGROUPS + 1);
constexpr int QUERY_TILE = 64 * WARPGROUPS;
constexpr int BLOCKS = (HEAD_DIM + 63) / 64, KEY_STEPS = (HEAD_DIM + 15) / 16;
// Bytes of a block of channels, and of all of them.
constexpr int QUERY_BLOCK = QUERY_TILE * 128, KEY_BLOCK = KEY_TILE * 128;
constexpr int QUERY_BYTES = BLOCKS * QUERY_BLOCK, KEY_BYTES = BLOCKS * KEY_BLOCK;
// All the registers there are, for the threads that need them.
constexpr int PRODUCER_REGISTERS = WARPGROUPS == 2 ? 24 : 32, CONSUMER_REGISTERS = WARPGROUPS == 2 ? 240 : 160;
static_assert(WARPGROUPS == 1 || registers_suffice(WARPGROUPS, PRODUCER_REGISTERS, CONSUMER_REGISTERS));
// Queries of the next tile arrive while those of the last one are still in use.
constexpr int QUERY_BUFFERS = PERSISTENT ? 2 : 1;
// How far a maximum may grow, as a power of two, until sums are rescaled if SKIPPING is set: weights are 256 at most then.
constexpr float SKIPPED = 8.0f;

// Whether a key that TMA has loaded may be hidden, and what it holds be anything.
constexpr bool AGAIN = MASK != MASK_NONE || KEY_LENGTHS || BOUNDARIES;
static_assert(!PERSISTENT || !AGAIN, "turns go on from tile to tile only if every tile has as many keys");

// Named barriers at which warpgroups wait: for their turn, and for their own warps.
constexpr int TURN = 1, OWN = TURN + WARPGROUPS;

// Where everything lies in shared memory.
struct SharedLayout {
    u32 queries, keys, values, query_full, query_free, key_full, key_free, value_full, value_free;

    __device__ __forceinline__ SharedLayout(u32 start) {
        queries = start;
        keys = queries + QUERY_BUFFERS * QUERY_BYTES;
        values = keys + STAGES * KEY_BYTES;
        query_full = values + STAGES * KEY_BYTES;
        query_free = query_full + 8 * QUERY_BUFFERS;
        key_full = query_free + 8 * QUERY_BUFFERS;
        key_free = key_full + 8 * STAGES;
        value_full = key_free + 8 * STAGES;
        value_free = value_full + 8 * STAGES;
    }
};

// Whether a product of this warp's rows is so far beyond the maximum of its row that the sums have to be rescaled. As whole numbers
// positive floats have their order, and every negative one is below them: with three operands a maximum of those is half as many
// instructions. Where that would not tell, the answer is yes.
__device__ __forceinline__ bool grows(const float (&scores)[KEY_TILE / 2], const float (&largest)[2], float scale) {
    i32 most[2][2];
#pragma unroll
    for (int i = 0; i < 4; i++) most[i / 2][i % 2] = __float_as_int(scores[i]);
#pragma unroll
    for (int i = 4; i < KEY_TILE / 2; i += 2) {
        i32 &part = most[i / 2 % 2][i / 4 % 2];
        part = max(max(part, __float_as_int(scores[i])), __float_as_int(scores[i + 1]));
    }
    bool beyond = false;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float limit = largest[half] + SKIPPED / RowSoftmax(0.0f, scale).factor;
        beyond |= !(limit >= 0.0f) | (max(most[half][0], most[half][1]) >= __float_as_int(limit));
    }
    return __any_sync(0xffffffffu, beyond);
}

// One step of the online softmax: turns the products of a tile into weights, updates the running maximum, `largest`,
// and the running sum of weights, `total`, of this thread's two rows, and gives the factor that rescales earlier sums. False if
// no row of this warp needs that: then `largest` is that of an earlier tile, and there are no factors.
__device__ __forceinline__ bool online_softmax(float (&scores)[KEY_TILE / 2], float (&largest)[2], float (&total)[2],
                                               float (&correction)[2], float scale) {
    const bool rescales = !SKIPPING || grows(scores, largest, scale);
    if (rescales) {
        // Both rows side by side, and each maximum in two parts, so that no instruction waits for the one before it.
        float most[2][2];
#pragma unroll
        for (int i = 0; i < 4; i++) most[i / 2][i % 2] = fmaxf(largest[i / 2], scores[i]);
#pragma unroll
        for (int i = 4; i < KEY_TILE / 2; i++)
            most[i / 2 % 2][i % 2] = fmaxf(most[i / 2 % 2][i % 2], scores[i]);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float maximum = quad_max(fmaxf(most[half][0], most[half][1]));
            correction[half] = RowSoftmax(maximum, scale).weight(largest[half]);
            total[half] *= correction[half];
            largest[half] = maximum;
        }
    }
    const RowSoftmax rows_of_weights[2] = {RowSoftmax(largest[0], scale), RowSoftmax(largest[1], scale)};
#pragma unroll
    for (int i = 0; i < KEY_TILE / 2; i++) {
        const float exponent = rows_of_weights[i / 2 % 2].exponent(scores[i]);
        // Of each row as many.
        const bool on_fma_units = POLYNOMIAL > 0 && (i / 4 * 2 + i % 2) % max(POLYNOMIAL, 1) == 0;
        scores[i] = on_fma_units ? exp2_polynomial(exponent) : exp2_approx(exponent);
        total[i / 2 % 2] += scores[i];
    }
    return rescales;
}

// Keeps what follows behind the instructions that `total` depends on: ptxas moves nothing across a branch that may sleep. The
// totals are sums of exponentials, so that nobody does.
__device__ __forceinline__ void stay_behind(const float (&total)[2]) {
    if (total[0] < 0.0f || total[1] < 0.0f) asm volatile("nanosleep.u32 0;" ::: "memory");
}

// The descriptor of what is so many bytes behind another one's operand.
__device__ __forceinline__ u64 behind(u64 descriptor, u32 bytes) {
    const u32 low = u32(descriptor) + (bytes >> 4), high = u32(descriptor >> 32);
    return u64(high) << 32 | low;
}

// Starts the wgmmas of this warpgroup's queries and a tile of keys.
__device__ __forceinline__ void start_scores(float (&scores)[KEY_TILE / 2], u32 queries, u32 keys) {
    const u64 a = wgmma_descriptor(queries, 0, 1024), b = wgmma_descriptor(keys, 0, 1024);
    pin_registers(scores);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < KEY_STEPS; step++) {
        const u32 block = step / 4, within = step % 4 * 32;
        wgmma_mma_async<ELEMENT, KEY_TILE>(scores, behind(a, block * QUERY_BLOCK + within),
                                           behind(b, block * KEY_BLOCK + within), step > 0);
    }
    wgmma_commit_group();
}

// Starts the wgmmas of weights and a tile of values.
__device__ __forceinline__ void start_sums(float (&sums)[HEAD_DIM / 2], const u32 (&weights)[KEY_TILE / 16][4],
                                           u32 values) {
    const u64 b = wgmma_descriptor(values, KEY_BLOCK, 1024);
    pin_registers(sums);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < KEY_TILE / 16; step++)
        wgmma_mma_async<ELEMENT, HEAD_DIM, true>(sums, weights[step], behind(b, step * 2048), true);
    wgmma_commit_group();
}

// A sum's two neighbouring tiles of 8 columns have the layout of an operand of 16.
__device__ __forceinline__ void pack(u32 (&weights)[KEY_TILE / 16][4], const float (&scores)[KEY_TILE / 2]) {
#pragma unroll
    for (int i = 0; i < KEY_TILE / 4; i++) weights[i / 4][i % 4] = pack2<ELEMENT>(scores[2 * i], scores[2 * i + 1]);
}

// A ring of buffers: the one whose turn it is, and the parity of its phase.
struct Ring {
    int stage = 0;
    u32 parity = 0;

    template <int count>
    __device__ __forceinline__ void advance() {
        if (++stage == count) stage = 0, parity ^= 1;
    }
};

// What a block works on, a tile of queries of one sequence and the tiles of keys from `first_tile` to before
// `key_tiles`, and which of its threads this is.
struct Block {
    int warpgroup, lane;
    i32 first_query;
    Sequence sequence;
    // The keys that exist, and what lies between sequences of one batch element.
    i32 length;
    Boundaries boundaries;
    i32 first_tile, key_tiles;
    // Whether this is the first of the block's tiles of queries, and whether there is another one after it.
    bool is_first, has_next;
};

// The producer: one thread issues the TMA loads of a tile's queries, and of keys and values as their buffers become free.
__device__ __forceinline__ void produce(const TensorMap &q, const TensorMap &k, const TensorMap &v,
                                        const SharedLayout &room, const Problem &problem, const Block &block,
                                        const Ring &tile_of_queries, Ring &ring) {
    const i32 key_batch = block.sequence.batch / problem.share;
    const u32 query_full = room.query_full + 8 * tile_of_queries.stage;
    if (PERSISTENT) mbarrier_wait_parity(room.query_free + 8 * tile_of_queries.stage, tile_of_queries.parity ^ 1);
    mbarrier_arrive_expect_tx(query_full, QUERY_BYTES);
    for (int part = 0; part < BLOCKS; part++)
        tma_load_4d(room.queries + tile_of_queries.stage * QUERY_BYTES + part * QUERY_BLOCK, q, query_full, part * 64,
                    block.sequence.head, block.first_query, block.sequence.batch);
    for (i32 tile = block.first_tile; tile < block.key_tiles; tile++) {
        const int stage = ring.stage;
        const u32 key_full = room.key_full + 8 * stage, value_full = room.value_full + 8 * stage;
        mbarrier_wait_parity(room.key_free + 8 * stage, ring.parity ^ 1);
        mbarrier_arrive_expect_tx(key_full, KEY_BYTES);
        for (int part = 0; part < BLOCKS; part++)
            tma_load_4d(room.keys + stage * KEY_BYTES + part * KEY_BLOCK, k, key_full, part * 64, block.sequence.head,
                        tile * KEY_TILE, key_batch);
        mbarrier_wait_parity(room.value_free + 8 * stage, ring.parity ^ 1);
        mbarrier_arrive_expect_tx(value_full, KEY_BYTES);
        for (int part = 0; part < BLOCKS; part++)
            tma_load_4d(room.values + stage * KEY_BYTES + part * KEY_BLOCK, v, value_full, part * 64,
                        block.sequence.head, tile * KEY_TILE, key_batch);
        ring.advance<STAGES>();
    }
}

// The first of a thread's two queries, which are 8 apart.
__device__ __forceinline__ i32 own_query(const Block &block) {
    return block.first_query + block.warpgroup * 64 + threadIdx.x % 128 / 32 * 16 + block.lane / 4;
}

// The keys that a query of the block's sequence sees by its number. Queries that do not exist see what the last one
// does.
__device__ __forceinline__ KeyRange seen_by(const Problem &problem, const Block &block, i32 query) {
    return key_range(problem, block.boundaries, min(query, problem.queries - 1), block.length);
}

// A consumer: the online softmax and the sums of a warpgroup's queries over all keys. `ring` is where their first tile will be.
__device__ __forceinline__ void consume(float (&sums)[HEAD_DIM / 2], float (&largest)[2], float (&total)[2],
                                        const SharedLayout &room, const MASK_TYPE *mask, const Problem &problem,
                                        const Block &block, const Ring &tile_of_queries, Ring &ring) {
    const int warpgroup = block.warpgroup, lane = block.lane;
    const u32 queries = room.queries + tile_of_queries.stage * QUERY_BYTES + warpgroup * 64 * 128;
    const int turn = TURN + warpgroup, next_turn = TURN + (warpgroup + 1) % WARPGROUPS;
    float scores[KEY_TILE / 2];
    u32 weights[KEY_TILE / 16][4];
    float correction[2];

    const i32 first_query = block.first_query + warpgroup * 64;
    const KeyRange ranges[2] = {seen_by(problem, block, own_query(block)),
                                seen_by(problem, block, own_query(block) + 8)};
    // The keys that all of the warpgroup's queries see.
    const KeyRange seen_by_all = {seen_by(problem, block, first_query + 63).first,
                                  seen_by(problem, block, first_query).end};
    // Hides the keys of a tile that some of the queries do not see.
    auto hide = [&](i32 tile) {
        const i32 first_key = tile * KEY_TILE;
        if (first_key < seen_by_all.first || first_key + KEY_TILE > seen_by_all.end)
            hide_by_number(scores, ranges, first_key);
    };

#if MASK_IS_OPERAND
    // Queries that do not exist have no row: they take the last one's.
    const MASK_TYPE *mask_rows[2];
#pragma unroll
    for (int half = 0; half < 2; half++)
        mask_rows[half] =
            mask_row(mask, problem, block.sequence, min(own_query(block) + 8 * half, problem.queries - 1));
    MaskTile mask_tile;
    auto read_mask = [&](i32 tile) {
        const i32 first_key = tile * KEY_TILE;
        const MASK_TYPE *const rows[2] = {mask_rows[0] + first_key, mask_rows[1] + first_key};
        mask_tile.read(rows, block.length - first_key);
    };
    read_mask(block.first_tile);
#endif

    // The first warpgroup has the first turn.
    if (TURNS && block.is_first && warpgroup == WARPGROUPS - 1) named_barrier_arrive(TURN, 256);
    mbarrier_wait_parity(room.query_full + 8 * tile_of_queries.stage, tile_of_queries.parity);
    mbarrier_wait_parity(room.key_full + 8 * ring.stage, ring.parity);
    if (TURNS) named_barrier_sync(turn, 256);
    start_scores(scores, queries, room.keys + ring.stage * KEY_BYTES);
    // After its last wgmmas the last warpgroup has no successor to signal.
    if (TURNS && (warpgroup < WARPGROUPS - 1 || block.has_next || block.key_tiles > block.first_tile + 1))
        named_barrier_arrive(next_turn, 256);
    wgmma_wait_group<0>();
    pin_registers(scores);
    if (lane == 0) mbarrier_arrive(room.key_free + 8 * ring.stage);
#if MASK_IS_OPERAND
    mask_tile.apply(scores, problem.scale);
#endif
    hide(block.first_tile);
    online_softmax(scores, largest, total, correction, problem.scale);
    pack(weights, scores);

    // The tile of values that is due is the ring's, the tile of keys the one after it.
    for (i32 tile = block.first_tile + 1; tile < block.key_tiles; tile++) {
        const int value_stage = ring.stage;
        const u32 value_parity = ring.parity;
        ring.advance<STAGES>();
        const int key_stage = ring.stage;
        mbarrier_wait_parity(room.key_full + 8 * key_stage, ring.parity);
        if (TURNS) named_barrier_sync(turn, 256);
        start_scores(scores, queries, room.keys + key_stage * KEY_BYTES);
        mbarrier_wait_parity(room.value_full + 8 * value_stage, value_parity);
        start_sums(sums, weights, room.values + value_stage * KEY_BYTES);
        if (TURNS && (warpgroup < WARPGROUPS - 1 || block.has_next || tile + 1 < block.key_tiles))
            named_barrier_arrive(next_turn, 256);

#if MASK_IS_OPERAND
        read_mask(tile);
#endif
        wgmma_wait_group<1>();
        pin_registers(scores);
        if (lane == 0) mbarrier_arrive(room.key_free + 8 * key_stage);
#if MASK_IS_OPERAND
        mask_tile.apply(scores, problem.scale);
#endif
        hide(tile);
        const bool rescales = online_softmax(scores, largest, total, correction, problem.scale);
        if (OVERLAPPED) stay_behind(total);

        wgmma_wait_group<0>();
        pin_registers(sums);
        if (lane == 0) mbarrier_arrive(room.value_free + 8 * value_stage);
        if (rescales) {
#pragma unroll
            for (int i = 0; i < HEAD_DIM / 2; i++) sums[i] *= correction[i / 2 % 2];
        }
        pack(weights, scores);
    }
    mbarrier_wait_parity(room.value_full + 8 * ring.stage, ring.parity);
    start_sums(sums, weights, room.values + ring.stage * KEY_BYTES);
    wgmma_wait_group<0>();
    pin_registers(sums);
    if (PERSISTENT && lane == 0) mbarrier_arrive(room.value_free + 8 * ring.stage);
    ring.advance<STAGES>();
}

// The operands in memory.
struct Operands {
    const ELEMENT *q, *k, *v;
    const MASK_TYPE *mask;
    ELEMENT *y;
    float *log_sum_exp;
};

// Writes the results of a consumer's queries. `shared` is where the tile's queries are.
__device__ __forceinline__ void write_results(const float (&sums)[HEAD_DIM / 2], const float (&largest)[2],
                                              const float (&total)[2], u8 *shared, const Operands &operands,
                                              const Problem &problem, const Block &block) {
    const int warpgroup = block.warpgroup, lane = block.lane;
    // The result goes through the warpgroup's own rows of the query tile, to be written 16 bytes at a time. Pieces of
    // 16 bytes change places within a row by the row's number, so that eight rows are on different banks.
    named_barrier_sync(OWN + warpgroup, 128);
    u8 *staged = shared + warpgroup * 64 * 128;
    const int own_row = threadIdx.x % 128 / 32 * 16 + lane / 4;
    // Rows with a NaN: a bit for each thread that holds a part.
    u32 nan_rows[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float sum = quad_sum(total[half]);
        const float factor = sum == 0.0f ? 1.0f : 1.0f / sum;
        const int row = own_row + 8 * half;
        if constexpr (LOG_SUM_EXP) {
            const i32 query = block.first_query + warpgroup * 64 + row;
            if (query < problem.queries && lane % 4 == 0)
                *log_sum_exp_of(operands.log_sum_exp, problem, block.sequence, query) =
                    RowSoftmax(largest[half], problem.scale).log_sum_exp(sum);
        }
        bool nan = false;
#pragma unroll
        for (int j = 0; j < HEAD_DIM / 8; j++) {
            u8 *to = staged + j / 8 * QUERY_BLOCK + row * 128 + ((j % 8) ^ (row % 8)) * 16 + lane % 4 * 4;
            const float first = sums[4 * j + 2 * half] * factor, second = sums[4 * j + 2 * half + 1] * factor;
            nan = nan || first != first || second != second;
            *reinterpret_cast<u32 *>(to) = pack2<ELEMENT>(first, second);
        }
        if constexpr (AGAIN) nan_rows[half] = __ballot_sync(0xffffffffu, nan);
    }
    // A warp writes the rows that it staged itself.
    __syncwarp();
    ELEMENT *y = first_row(operands.y, problem.y, block.sequence.batch, block.sequence);
    const int first_row_of_warp = threadIdx.x % 128 / 32 * 16;
    constexpr int PIECES = HEAD_DIM / 8;
#pragma unroll 1
    for (int i = lane; i < 16 * PIECES; i += 32) {
        const int row = first_row_of_warp + i / PIECES, piece = i % PIECES;
        const i32 query = block.first_query + warpgroup * 64 + row;
        const u8 *from = staged + piece / 8 * QUERY_BLOCK + row * 128 + ((piece % 8) ^ (row % 8)) * 16;
        if (query < problem.queries)
            *reinterpret_cast<uint4 *>(y + query * problem.y.step + piece * 8) = *reinterpret_cast<const uint4 *>(from);
    }

    if constexpr (AGAIN) {
        __syncwarp();
        const i32 batch = block.sequence.batch, key_batch = batch / problem.share;
#pragma unroll 1
        for (int half = 0; half < 2; half++)
            for (u32 rest = half == 0 ? nan_rows[0] : nan_rows[1]; rest != 0;) {
                const int row = (__ffs(rest) - 1) / 4;
                rest &= ~(0xfu << 4 * row);
                const i32 query = block.first_query + warpgroup * 64 + first_row_of_warp + 8 * half + row;
                if (query >= problem.queries) continue;
                attend<HEAD_DIM>(first_row(operands.q, problem.q, batch, block.sequence) + query * problem.q.step,
                                 first_row(operands.k, problem.k, key_batch, block.sequence),
                                 first_row(operands.v, problem.v, key_batch, block.sequence),
                                 mask_row(operands.mask, problem, block.sequence, query), y + query * problem.y.step,
                                 nullptr, problem, seen_by(problem, block, query));
            }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    hopper(const __grid_constant__ TensorMap query_map, const __grid_constant__ TensorMap key_map,
           const __grid_constant__ TensorMap value_map, const ELEMENT *q, const ELEMENT *k, const ELEMENT *v,
           const MASK_TYPE *mask, const i32 *key_lengths, const i32 *query_boundaries, const i32 *key_boundaries,
           ELEMENT *y, float *log_sum_exp, const Problem problem) {
    extern __shared__ __align__(1024) u8 shared[];
    const SharedLayout room(shared_address(shared));
    Block block;
    block.warpgroup = threadIdx.x / 128, block.lane = threadIdx.x % 32;

    if (threadIdx.x == 0) {
        prefetch_tensormap(query_map);
        prefetch_tensormap(key_map);
        prefetch_tensormap(value_map);
        for (int buffer = 0; buffer < QUERY_BUFFERS; buffer++) {
            mbarrier_init(room.query_full + 8 * buffer, 1);
            mbarrier_init(room.query_free + 8 * buffer, 4 * WARPGROUPS);
        }
        for (int stage = 0; stage < STAGES; stage++) {
            mbarrier_init(room.key_full + 8 * stage, 1);
            mbarrier_init(room.value_full + 8 * stage, 1);
            mbarrier_init(room.key_free + 8 * stage, 4 * WARPGROUPS);
            mbarrier_init(room.value_free + 8 * stage, 4 * WARPGROUPS);
        }
        fence_mbarrier_init();
    }
    __syncthreads();
    wait_for_launch_before();

    const u32 query_tiles = u32(problem.queries + QUERY_TILE - 1) / QUERY_TILE;
    // All tiles of queries; without PERSISTENT there is a block for each.
    const u32 tiles = PERSISTENT ? query_tiles * u32(problem.heads) * u32(problem.batches) : 0;
    u32 tile = blockIdx.x;
    // Puts the block to work on a tile, and says whether its queries see keys.
    auto begin = [&]() {
        // The tiles of a sequence are neighbours, so that they share its keys in the cache.
        const u32 query_tile = tile % query_tiles, sequence = tile / query_tiles;
        // With a causal mask the last queries see the most: the blocks that take longest come first.
        block.first_query = i32(MASK == MASK_CAUSAL ? query_tiles - 1 - query_tile : query_tile) * QUERY_TILE;
        block.sequence = {i32(sequence / u32(problem.heads)), 0, i32(sequence % u32(problem.heads))};
        block.length = key_count(problem, key_lengths, block.sequence.batch);
        block.boundaries = {query_boundaries, key_boundaries};
        block.first_tile = seen_by(problem, block, block.first_query).first / KEY_TILE;
        block.key_tiles = (seen_by(problem, block, block.first_query + QUERY_TILE - 1).end + KEY_TILE - 1) / KEY_TILE;
        block.is_first = tile == blockIdx.x;
        block.has_next = PERSISTENT && tile + gridDim.x < tiles;
        // Without a key nothing is loaded, and the result is zeros.
        return !AGAIN || block.first_tile < block.key_tiles;
    };

    Ring tile_of_queries, ring;
    if (block.warpgroup == WARPGROUPS) {
        if (WARPGROUPS > 1) setmaxnreg_dec<PRODUCER_REGISTERS>();
        if (threadIdx.x % 128 != 0) return;
        do {
            if (begin()) produce(query_map, key_map, value_map, room, problem, block, tile_of_queries, ring);
            tile_of_queries.advance<QUERY_BUFFERS>();
            tile += gridDim.x;
        } while (block.has_next);
        return;
    }
    if (WARPGROUPS > 1) setmaxnreg_inc<CONSUMER_REGISTERS>();
    do {
        float sums[HEAD_DIM / 2], largest[2] = {HIDDEN, HIDDEN}, total[2] = {0.0f, 0.0f};
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 2; i++) sums[i] = 0.0f;
        if (begin()) consume(sums, largest, total, room, mask, problem, block, tile_of_queries, ring);
        write_results(sums, largest, total, shared + tile_of_queries.stage * QUERY_BYTES,
                      {q, k, v, mask, y, log_sum_exp}, problem, block);
        if (PERSISTENT) {
            // The results went through the queries' buffer, which TMA fills next.
            fence_proxy_async();
            __syncwarp();
            if (block.lane == 0) mbarrier_arrive(room.query_free + 8 * tile_of_queries.stage);
        }
        tile_of_queries.advance<QUERY_BUFFERS>();
        tile += gridDim.x;
    } while (block.has_next);
}
