// FlashAttention on Hopper for wide heads, without a mask. The sums of 64 queries and 512 channels are half of a
// multiprocessor's registers: two consumer warpgroups share them, half of the channels each. Scores are made once: the
// warpgroups make those of whole tiles of KEY_TILE keys in turns, and leave the weights in shared memory for both. So one
// does the online softmax of its tile while the other's wgmmas run.
//
// A producer warp loads halves of tiles (half of the channels) through a ring of STAGES slots. With CLUSTER 2, two blocks
// with neighbouring queries load half of each slot for both, by multicast.
//
// Rows lie in shared memory with TMA's 128-byte swizzle: blocks of 64 channels, 128 bytes a row. TMA fills a head up with
// zeros, since the heads are an axis of the tensor map.
#include "specialisation.cuh"
#include "grid.cuh"
#include "attention.cuh"
#include "cluster.cuh"
#include "hopper.cuh"

constexpr int QUERY_TILE = 64, KEY_TILE = 64, THREADS = 3 * 128;
// Blocks of 64 channels of a half and of the head, and the bytes of one for 64 rows.
constexpr int HALF_BLOCKS = (HEAD_DIM + 127) / 128, BLOCKS = 2 * HALF_BLOCKS, BLOCK_BYTES = 64 * 128;
constexpr int HALF_CHANNELS = 64 * HALF_BLOCKS;
constexpr int QUERY_BYTES = BLOCKS * BLOCK_BYTES, SLOT_BYTES = HALF_BLOCKS * BLOCK_BYTES;
constexpr int WEIGHT_BYTES = KEY_TILE * 128;

// Named barriers, one for each warpgroup that makes weights: they are ready; the other warpgroup has read them; its own
// warps have written them. And one for both warpgroups.
constexpr int READY = 1, READ = 3, OWN = 5, BOTH = 7;

// Where everything lies in shared memory.
struct SharedLayout {
    u32 queries, ring, weights, full, empty, query_full;
    // The mbarriers of free slots in the other block of the cluster.
    u32 empty_there;
    // Each query's largest product so far and its sum of weights, by the warpgroup that made them.
    float *largest, *totals;

    __device__ __forceinline__ explicit SharedLayout(u8 *shared) {
        queries = shared_address(shared);
        ring = queries + QUERY_BYTES;
        weights = ring + STAGES * SLOT_BYTES;
        largest = reinterpret_cast<float *>(shared + QUERY_BYTES + STAGES * SLOT_BYTES + 2 * WEIGHT_BYTES);
        totals = largest + 2 * QUERY_TILE;
        full = weights + 2 * WEIGHT_BYTES + 4 * QUERY_TILE * 4;
        empty = full + 8 * STAGES;
        query_full = empty + 8 * STAGES;
        empty_there = CLUSTER > 1 ? mapa(empty, blockIdx.x % CLUSTER ^ 1) : 0;
    }
};

// What a block works on: a tile of queries of one sequence and all tiles of keys.
struct Block {
    i32 first_query;
    Sequence sequence;
    i32 key_tiles;
};

// A slot of the ring. Halves of tiles come in the order in which they are needed: those of the keys of tile 0, then of
// the keys of each next tile and the values of the one before it, last those of the values of the last tile.
struct Slot {
    int index;
    u32 parity;

    __device__ __forceinline__ explicit Slot(i32 load) {
        index = load % STAGES;
        parity = load / STAGES % 2;
    }
    static __device__ __forceinline__ Slot of_keys(i32 tile, int half) { return Slot(max(4 * tile - 2, 0) + half); }
    static __device__ __forceinline__ Slot of_values(i32 tile, i32 tiles, int half) {
        return Slot(min(4 * tile + 4, 4 * tiles - 2) + half);
    }

    // Waits until it is full, and gives its address.
    __device__ __forceinline__ u32 wait(const SharedLayout &room) const {
        mbarrier_wait_parity(room.full + 8 * index, parity);
        return room.ring + index * SLOT_BYTES;
    }
    // A warp says that it has read it, to every block that loads a part of it.
    __device__ __forceinline__ void release(const SharedLayout &room) const {
        if (threadIdx.x % 32 != 0) return;
        mbarrier_arrive(room.empty + 8 * index);
        if (CLUSTER > 1) mbarrier_arrive_cluster(room.empty_there + 8 * index);
    }
};

// Loads half of the channels of a tile, or this block's rows of it for the whole cluster.
__device__ __forceinline__ void load_half(const TensorMap &map, const SharedLayout &room, const Slot &slot, int half,
                                          i32 tile, i32 head, i32 batch) {
    const u32 full = room.full + 8 * slot.index;
    mbarrier_wait_parity(room.empty + 8 * slot.index, slot.parity ^ 1);
    mbarrier_arrive_expect_tx(full, SLOT_BYTES);
    const int part = CLUSTER > 1 ? blockIdx.x % CLUSTER : 0;
    const u32 to = room.ring + slot.index * SLOT_BYTES + part * (BLOCK_BYTES / CLUSTER);
    for (int block = 0; block < HALF_BLOCKS; block++) {
        const int channel = half * HALF_CHANNELS + block * 64, row = tile * KEY_TILE + part * (KEY_TILE / CLUSTER);
        if (CLUSTER > 1)
            tma_load_4d_multicast(to + block * BLOCK_BYTES, map, full, channel, head, row, batch, (1 << CLUSTER) - 1);
        else
            tma_load_4d(to + block * BLOCK_BYTES, map, full, channel, head, row, batch);
    }
}

// The producer: one thread issues the TMA loads of the queries, and of keys and values as slots become free.
__device__ __forceinline__ void produce(const TensorMap &q, const TensorMap &k, const TensorMap &v,
                                        const SharedLayout &room, const Problem &problem, const Block &block) {
    const i32 head = block.sequence.head, key_batch = block.sequence.batch / problem.share;
    mbarrier_arrive_expect_tx(room.query_full, QUERY_BYTES);
    for (int part = 0; part < BLOCKS; part++)
        tma_load_4d(room.queries + part * BLOCK_BYTES, q, room.query_full, part * 64, head, block.first_query,
                    block.sequence.batch);
    for (i32 tile = 0; tile <= block.key_tiles; tile++) {
        if (tile < block.key_tiles)
            for (int half = 0; half < 2; half++)
                load_half(k, room, Slot::of_keys(tile, half), half, tile, head, key_batch);
        if (tile > 0)
            for (int half = 0; half < 2; half++)
                load_half(v, room, Slot::of_values(tile - 1, block.key_tiles, half), half, tile - 1, head, key_batch);
    }
}

// A consumer warpgroup: it makes the weights of every second tile, and sums its half of the channels over all tiles.
template <int warpgroup>
struct Consumer {
    static constexpr int OTHER = warpgroup ^ 1;

    const SharedLayout &room;
    const Problem &problem;
    const Block &block;
    float sums[HALF_CHANNELS / 2], scores[KEY_TILE / 2];
    // Of this thread's two rows: the largest product so far, the sum of the weights that this warpgroup made, and the
    // factor that rescales earlier sums.
    float largest[2] = {HIDDEN, HIDDEN}, total[2] = {0.0f, 0.0f}, correction[2];

    __device__ __forceinline__ Consumer(const SharedLayout &room, const Problem &problem, const Block &block)
        : room(room), problem(problem), block(block) {
#pragma unroll
        for (int i = 0; i < HALF_CHANNELS / 2; i++) sums[i] = 0.0f;
    }

    // The first of this thread's two rows; the other is eight further.
    static __device__ __forceinline__ int own_row() { return threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4; }

    // Starts the wgmmas of the queries and a tile of keys.
    __device__ __forceinline__ void start_scores(i32 tile) {
        pin_registers(scores);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const u32 keys = Slot::of_keys(tile, half).wait(room);
            u32 queries = room.queries + half * SLOT_BYTES;
            // Descriptors are made here: kept over the loop they would take registers that the sums need.
            asm volatile("" : "+r"(queries));
            wgmma_fence();
#pragma unroll
            for (int step = 0; step < 4 * HALF_BLOCKS; step++) {
                const u32 at = step / 4 * BLOCK_BYTES + step % 4 * 32;
                wgmma_mma_async<ELEMENT, KEY_TILE>(scores, wgmma_descriptor(queries + at, 0, 1024),
                                                   wgmma_descriptor(keys + at, 0, 1024), half > 0 || step > 0);
            }
        }
        wgmma_commit_group();
    }

    // Starts the wgmmas of a tile's weights, which warpgroup `maker` made, and this half of its values.
    __device__ __forceinline__ void start_sums(i32 tile, int maker) {
        const u32 values = Slot::of_values(tile, block.key_tiles, warpgroup).wait(room);
        const u32 weights = room.weights + maker * WEIGHT_BYTES;
        pin_registers(sums);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < KEY_TILE / 16; step++)
            wgmma_mma_async<ELEMENT, HALF_CHANNELS, true>(sums, wgmma_descriptor(weights + step * 32, 0, 1024),
                                                          wgmma_descriptor(values + step * 2048, BLOCK_BYTES, 1024),
                                                          true);
        wgmma_commit_group();
    }

    // After the wait for the wgmmas of a tile's values; tile -1 has none.
    __device__ __forceinline__ void finish_sums(i32 tile) {
        pin_registers(sums);
        if (tile >= 0) Slot::of_values(tile, block.key_tiles, warpgroup).release(room);
    }

    __device__ __forceinline__ void rescale_sums() {
#pragma unroll
        for (int i = 0; i < HALF_CHANNELS / 2; i++) sums[i] *= correction[i / 2 % 2];
    }

    // Masks the keys of the last tile that do not exist, all from `there` on.
    __device__ __forceinline__ void mask_tail(i32 there) {
#pragma unroll
        for (int i = 0; i < KEY_TILE / 2; i++) {
            const int key = i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
            if (key >= there) scores[i] = HIDDEN;
        }
    }

    // Raises the largest product of both rows: sums so far are worth less by `correction`.
    __device__ __forceinline__ void raise_largest(const float (&to)[2]) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            correction[half] = RowSoftmax(to[half], problem.scale).weight(largest[half]);
            total[half] *= correction[half];
            largest[half] = to[half];
        }
    }

    // One step of the online softmax: turns the products of a tile into weights.
    __device__ __forceinline__ void online_softmax() {
        // Both rows side by side, and each maximum in two parts, so that no instruction waits for the one before it.
        float most[2][2];
#pragma unroll
        for (int i = 0; i < 4; i++) most[i / 2][i % 2] = fmaxf(largest[i / 2], scores[i]);
#pragma unroll
        for (int i = 4; i < KEY_TILE / 2; i++)
            most[i / 2 % 2][i % 2] = fmaxf(most[i / 2 % 2][i % 2], scores[i]);
        const float to[2] = {quad_max(fmaxf(most[0][0], most[0][1])), quad_max(fmaxf(most[1][0], most[1][1]))};
        raise_largest(to);
        const RowSoftmax rows[2] = {RowSoftmax(to[0], problem.scale), RowSoftmax(to[1], problem.scale)};
#pragma unroll
        for (int i = 0; i < KEY_TILE / 2; i++) {
            scores[i] = rows[i / 2 % 2].weight(scores[i]);
            total[i / 2 % 2] += scores[i];
        }
    }

    // Leaves the weights and the largest products for both warpgroups.
    __device__ __forceinline__ void share_weights(u8 *to) {
        to += warpgroup * WEIGHT_BYTES;
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < KEY_TILE / 4; i++) {
            const int row = own_row() + i % 2 * 8;
            *reinterpret_cast<u32 *>(to + row * 128 + ((i / 2) ^ (row % 8)) * 16 + lane % 4 * 4) =
                pack2<ELEMENT>(scores[2 * i], scores[2 * i + 1]);
        }
        if (lane % 4 == 0) {
            float *shared_largest = room.largest + warpgroup * QUERY_TILE + own_row();
            shared_largest[0] = largest[0], shared_largest[8] = largest[1];
        }
        fence_proxy_async();
        named_barrier_arrive(READY + warpgroup, 256);
        named_barrier_sync(OWN + warpgroup, 128);
    }

    // Makes a tile's weights from its scores, while `pending` groups of wgmmas that were started later still run.
    template <int pending>
    __device__ __forceinline__ void make_weights(i32 tile, u8 *weights) {
        wgmma_wait_group<pending>();
        pin_registers(scores);
        Slot::of_keys(tile, 0).release(room);
        Slot::of_keys(tile, 1).release(room);
        if (tile + 1 == block.key_tiles) mask_tail(problem.keys - tile * KEY_TILE);
        online_softmax();
        if (tile >= 2) named_barrier_sync(READ + warpgroup, 256);
        share_weights(weights);
        wgmma_wait_group<0>();
        finish_sums(tile - 1);
        if (tile >= 1 && tile + 1 < block.key_tiles) named_barrier_arrive(READ + OTHER, 256);
    }

    // Adds a tile whose weights the other warpgroup makes, while `pending` groups that were started later still run.
    template <int pending>
    __device__ __forceinline__ void add_others(i32 tile) {
        named_barrier_sync(READY + OTHER, 256);
        const float *shared_largest = room.largest + OTHER * QUERY_TILE + own_row();
        const float to[2] = {shared_largest[0], shared_largest[8]};
        raise_largest(to);
        if (tile > 0) wgmma_wait_group<pending>();
        finish_sums(tile - 1);
        rescale_sums();
        start_sums(tile, OTHER);
    }

    // Adds a tile whose weights this warpgroup has made.
    __device__ __forceinline__ void add_own(i32 tile) {
        rescale_sums();
        start_sums(tile, warpgroup);
    }

    // All tiles. At the end of a turn nothing is in flight, so that the compiler may keep sums where they are.
    __device__ __forceinline__ void run(u8 *weights) {
        mbarrier_wait_parity(room.query_full, 0);
        i32 tile = warpgroup;
        start_scores(tile);
        if constexpr (warpgroup == 0) {
            make_weights<0>(tile, weights);
        } else {
            add_others<1>(0);
            make_weights<1>(tile, weights);
        }
        for (; tile + 2 < block.key_tiles; tile += 2) {
            add_own(tile);
            start_scores(tile + 2);
            add_others<1>(tile + 1);
            make_weights<1>(tile + 2, weights);
        }
        add_own(tile);
        if (tile + 1 < block.key_tiles) add_others<0>(tile + 1);
        wgmma_wait_group<0>();
        finish_sums(block.key_tiles - 1);
    }

    // Writes this half of the channels. They go through the room of the queries, to be written 16 bytes at a time. Pieces
    // of 16 bytes change places within a row by the row's number, so that eight rows are on different banks.
    __device__ __forceinline__ void write_results(u8 *shared, ELEMENT *y) {
        const int lane = threadIdx.x % 32;
        float sum[2] = {quad_sum(total[0]), quad_sum(total[1])};
        float *own = room.totals + warpgroup * QUERY_TILE + own_row();
        if (lane % 4 == 0) own[0] = sum[0], own[8] = sum[1];
        // The other warpgroup's totals are there, and nobody reads queries any more.
        named_barrier_sync(BOTH, 256);
        const float *others = room.totals + OTHER * QUERY_TILE + own_row();
        u8 *staged = shared + warpgroup * SLOT_BYTES;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float divisor = sum[half] + others[8 * half];
            const float factor = divisor == 0.0f ? 1.0f : 1.0f / divisor;
            const int row = own_row() + 8 * half;
#pragma unroll
            for (int j = 0; j < HALF_CHANNELS / 8; j++) {
                u8 *to = staged + j / 8 * BLOCK_BYTES + row * 128 + ((j % 8) ^ (row % 8)) * 16 + lane % 4 * 4;
                *reinterpret_cast<u32 *>(to) =
                    pack2<ELEMENT>(sums[4 * j + 2 * half] * factor, sums[4 * j + 2 * half + 1] * factor);
            }
        }
        // A warp writes the rows that it staged itself.
        __syncwarp();
        y = first_row(y, problem.y, block.sequence.batch, block.sequence) + warpgroup * HALF_CHANNELS;
        const int first_row_of_warp = threadIdx.x % 128 / 32 * 16;
        constexpr int CHANNELS = HEAD_DIM - warpgroup * HALF_CHANNELS;
        constexpr int PIECES = (CHANNELS < HALF_CHANNELS ? CHANNELS : HALF_CHANNELS) / 8;
#pragma unroll 1
        for (int i = lane; i < 16 * PIECES; i += 32) {
            const int row = first_row_of_warp + i / PIECES, piece = i % PIECES;
            const i32 query = block.first_query + row;
            const u8 *from = staged + piece / 8 * BLOCK_BYTES + row * 128 + ((piece % 8) ^ (row % 8)) * 16;
            if (query < problem.queries)
                *reinterpret_cast<uint4 *>(y + query * problem.y.step + piece * 8) =
                    *reinterpret_cast<const uint4 *>(from);
        }
    }
};

template <int warpgroup>
__device__ __forceinline__ void consume(const SharedLayout &room, const Problem &problem, const Block &block, u8 *shared,
                                        ELEMENT *y) {
    Consumer<warpgroup> consumer(room, problem, block);
    consumer.run(shared + QUERY_BYTES + STAGES * SLOT_BYTES);
    consumer.write_results(shared, y);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    hopper_wide(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                const __grid_constant__ TensorMap v, ELEMENT *y, const Problem problem) {
    extern __shared__ __align__(1024) u8 shared[];
    const SharedLayout room(shared);

    // The tiles of a sequence are neighbours, so that they share its keys in the cache, and those of a cluster are of one.
    Block block;
    u32 index = blockIdx.x;
    const u32 query_tiles = u32(problem.queries + QUERY_TILE * CLUSTER - 1) / (QUERY_TILE * CLUSTER) * CLUSTER;
    block.first_query = i32(index % query_tiles) * QUERY_TILE;
    index /= query_tiles;
    block.sequence = {i32(index / u32(problem.heads)), 0, i32(index % u32(problem.heads))};
    block.key_tiles = (problem.keys + KEY_TILE - 1) / KEY_TILE;

    if (threadIdx.x == 0) {
        mbarrier_init(room.query_full, 1);
        for (int stage = 0; stage < STAGES; stage++) {
            mbarrier_init(room.full + 8 * stage, 1);
            mbarrier_init(room.empty + 8 * stage, 4 * CLUSTER);
        }
        fence_mbarrier_init();
    }
    __syncthreads();
    if (CLUSTER > 1) {
        barrier_cluster_arrive();
        barrier_cluster_wait();
    }
    wait_for_launch_before();

    const int warpgroup = threadIdx.x / 128;
    if (warpgroup == 2) {
        setmaxnreg_dec<24>();
        if (threadIdx.x % 128 == 0) produce(q, k, v, room, problem, block);
    } else {
        setmaxnreg_inc<240>();
        if (warpgroup == 0)
            consume<0>(room, problem, block, shared, y);
        else
            consume<1>(room, problem, block, shared, y);
    }
    // No block ends while another may still load into it, or arrive at its mbarriers.
    if (CLUSTER > 1) {
        __syncwarp();
        barrier_cluster_arrive();
        barrier_cluster_wait();
    }
}
