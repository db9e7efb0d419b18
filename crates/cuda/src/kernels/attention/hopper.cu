// Attention by blocks of keys on Hopper, without a mask: a warpgroup whose one thread keeps the bulk copy engine busy, and
// WARPGROUPS that each have 64 queries and work on the tiles of KEY_TILE keys as they arrive in STAGES buffers.
//
// A warpgroup's products run while it does other things. It starts those of queries and the next keys, then those of the
// weights and the values of the last ones, and turns the former's scores into weights while the latter still run. Where
// TURNS is set, the warpgroups also start their products in turns, so that one has the tensor cores while another has
// the exponential units.
//
// Rows lie in shared memory as the copy engine swizzles them: blocks of 64 channels, 128 bytes a row. A head whose
// channels are no multiple of 64 is filled up with zeros by the copy engine, since the heads are an axis of the map.
#include "specialisation.cuh"
#include "attention.cuh"
#include "hopper.cuh"

constexpr int THREADS = 128 * (WARPGROUPS + 1);
constexpr int QUERY_TILE = 64 * WARPGROUPS;
constexpr int BLOCKS = (HEAD_DIM + 63) / 64, KEY_STEPS = (HEAD_DIM + 15) / 16;
// Bytes of a block of channels, and of all of them.
constexpr int QUERY_BLOCK = QUERY_TILE * 128, KEY_BLOCK = KEY_TILE * 128;
constexpr int QUERY_BYTES = BLOCKS * QUERY_BLOCK, KEY_BYTES = BLOCKS * KEY_BLOCK;
// All the registers there are, for the threads that need them.
constexpr int COPIER_REGISTERS = WARPGROUPS == 2 ? 24 : 32, REGISTERS = WARPGROUPS == 2 ? 240 : 160;

// Numbers of barriers that warpgroups wait at: for their turn, and for their own warps.
constexpr int TURN = 1, OWN = TURN + WARPGROUPS;

// Where everything lies in shared memory.
struct Room {
    u32 queries, keys, values, query_full, key_full, key_free, value_full, value_free;

    __device__ __forceinline__ Room(u32 start) {
        queries = start;
        keys = queries + QUERY_BYTES;
        values = keys + STAGES * KEY_BYTES;
        query_full = values + STAGES * KEY_BYTES;
        key_full = query_full + 8;
        key_free = key_full + 8 * STAGES;
        value_full = key_free + 8 * STAGES;
        value_free = value_full + 8 * STAGES;
    }
};

// Turns the products of a tile into weights: moves the largest product, `largest`, and the sum of the weights, `total`, of
// this thread's two rows, and gives what earlier sums have to be multiplied with.
__device__ __forceinline__ void weigh(
    float (&scores)[KEY_TILE / 2], float (&largest)[2], float (&total)[2], float (&correction)[2], float scale) {
    // Both rows side by side, and each maximum in two parts, so that no instruction waits for the one before it.
    float most[2][2];
#pragma unroll
    for (int i = 0; i < 4; i++) most[i / 2][i % 2] = fmaxf(largest[i / 2], scores[i]);
#pragma unroll
    for (int i = 4; i < KEY_TILE / 2; i++) most[i / 2 % 2][i % 2] = fmaxf(most[i / 2 % 2][i % 2], scores[i]);
    const float upper = quad_max(fmaxf(most[0][0], most[0][1])), lower = quad_max(fmaxf(most[1][0], most[1][1]));
    const Weigher weighers[2] = {Weigher(upper, scale), Weigher(lower, scale)};
#pragma unroll
    for (int half = 0; half < 2; half++) {
        correction[half] = weighers[half].weight(largest[half]);
        total[half] *= correction[half];
    }
    largest[0] = upper, largest[1] = lower;
#pragma unroll
    for (int i = 0; i < KEY_TILE / 2; i++) {
        scores[i] = weighers[i / 2 % 2].weight(scores[i]);
        total[i / 2 % 2] += scores[i];
    }
}

// Hides the keys of the last tile that do not exist, all from `there` on.
__device__ __forceinline__ void hide(float (&scores)[KEY_TILE / 2], i32 there) {
#pragma unroll
    for (int i = 0; i < KEY_TILE / 2; i++) {
        const int key = i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
        if (key >= there) scores[i] = HIDDEN;
    }
}

// Starts the products of this warpgroup's queries and a tile of keys.
__device__ __forceinline__ void start_scores(float (&scores)[KEY_TILE / 2], u32 queries, u32 keys) {
    hold(scores);
    begin_products();
#pragma unroll
    for (int step = 0; step < KEY_STEPS; step++) {
        const u32 block = step / 4, within = step % 4 * 32;
        warpgroup_multiply<ELEMENT, KEY_TILE>(
            scores, swizzled_operand(queries + block * QUERY_BLOCK + within, 0, 1024),
            swizzled_operand(keys + block * KEY_BLOCK + within, 0, 1024), step > 0);
    }
    end_products();
}

// Starts the products of weights and a tile of values.
__device__ __forceinline__ void start_sums(
    float (&sums)[HEAD_DIM / 2], const u32 (&weights)[KEY_TILE / 16][4], u32 values) {
    hold(sums);
    begin_products();
#pragma unroll
    for (int step = 0; step < KEY_TILE / 16; step++)
        warpgroup_multiply<ELEMENT, HEAD_DIM, true>(
            sums, weights[step], swizzled_operand(values + step * 2048, KEY_BLOCK, 1024), true);
    end_products();
}

// A sum's two neighbouring tiles of 8 columns have the layout of an operand of 16.
__device__ __forceinline__ void pack(u32 (&weights)[KEY_TILE / 16][4], const float (&scores)[KEY_TILE / 2]) {
#pragma unroll
    for (int i = 0; i < KEY_TILE / 4; i++) weights[i / 4][i % 4] = pack2<ELEMENT>(scores[2 * i], scores[2 * i + 1]);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) hopper(
    const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k, const __grid_constant__ TensorMap v,
    ELEMENT *y, const Problem problem) {
    extern __shared__ __align__(1024) u8 shared[];
    const Room room(shared_address(shared));
    const int warpgroup = threadIdx.x / 128, lane = threadIdx.x % 32;

    // The tiles of a sequence are neighbours, so that they share its keys in the cache.
    u32 index = blockIdx.x;
    const u32 query_tiles = u32(problem.queries + QUERY_TILE - 1) / QUERY_TILE;
    const i32 first_query = i32(index % query_tiles) * QUERY_TILE;
    index /= query_tiles;
    const Sequence sequence = {i32(index / u32(problem.heads)), 0, i32(index % u32(problem.heads))};
    const i32 key_tiles = (problem.keys + KEY_TILE - 1) / KEY_TILE;

    if (threadIdx.x == 0) {
        make_barrier(room.query_full, 1);
        for (int stage = 0; stage < STAGES; stage++) {
            make_barrier(room.key_full + 8 * stage, 1);
            make_barrier(room.value_full + 8 * stage, 1);
            make_barrier(room.key_free + 8 * stage, 4 * WARPGROUPS);
            make_barrier(room.value_free + 8 * stage, 4 * WARPGROUPS);
        }
        publish_barriers();
    }
    __syncthreads();

    if (warpgroup == WARPGROUPS) {
        give_back_registers<COPIER_REGISTERS>();
        if (threadIdx.x % 128 != 0) return;
        const i32 key_batch = sequence.batch / problem.share;
        arrive_expecting(room.query_full, QUERY_BYTES);
        for (int block = 0; block < BLOCKS; block++)
            copy_box(
                room.queries + block * QUERY_BLOCK, q, room.query_full, block * 64, sequence.head, first_query,
                sequence.batch);
        int stage = 0;
        u32 parity = 1;
        for (i32 tile = 0; tile < key_tiles; tile++) {
            const u32 key_full = room.key_full + 8 * stage, value_full = room.value_full + 8 * stage;
            wait_for_phase(room.key_free + 8 * stage, parity);
            arrive_expecting(key_full, KEY_BYTES);
            for (int block = 0; block < BLOCKS; block++)
                copy_box(
                    room.keys + stage * KEY_BYTES + block * KEY_BLOCK, k, key_full, block * 64, sequence.head,
                    tile * KEY_TILE, key_batch);
            wait_for_phase(room.value_free + 8 * stage, parity);
            arrive_expecting(value_full, KEY_BYTES);
            for (int block = 0; block < BLOCKS; block++)
                copy_box(
                    room.values + stage * KEY_BYTES + block * KEY_BLOCK, v, value_full, block * 64, sequence.head,
                    tile * KEY_TILE, key_batch);
            if (++stage == STAGES) stage = 0, parity ^= 1;
        }
        return;
    }

    take_registers<REGISTERS>();
    const u32 queries = room.queries + warpgroup * 64 * 128;
    const int turn = TURN + warpgroup, next_turn = TURN + (warpgroup + 1) % WARPGROUPS;
    float scores[KEY_TILE / 2], sums[HEAD_DIM / 2];
    u32 weights[KEY_TILE / 16][4];
    float largest[2] = {HIDDEN, HIDDEN}, total[2] = {0.0f, 0.0f}, correction[2];
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 2; i++) sums[i] = 0.0f;

    // The first warpgroup has the first turn.
    if (TURNS && warpgroup == WARPGROUPS - 1) announce(TURN, 256);
    wait_for_phase(room.query_full, 0);
    wait_for_phase(room.key_full, 0);
    if (TURNS) synchronise(turn, 256);
    start_scores(scores, queries, room.keys);
    // After its last products the last warpgroup has nobody to announce.
    if (TURNS && (warpgroup < WARPGROUPS - 1 || key_tiles > 1)) announce(next_turn, 256);
    wait_for_products<0>();
    hold(scores);
    if (lane == 0) arrive(room.key_free);
    if (key_tiles == 1) hide(scores, problem.keys);
    weigh(scores, largest, total, correction, problem.scale);
    pack(weights, scores);

    // The tile of values that is due, and the tile of keys after it.
    int value_stage = 0;
    u32 value_parity = 0;
    for (i32 tile = 1; tile < key_tiles; tile++) {
        const int key_stage = value_stage + 1 == STAGES ? 0 : value_stage + 1;
        const u32 key_parity = key_stage == 0 ? value_parity ^ 1 : value_parity;
        wait_for_phase(room.key_full + 8 * key_stage, key_parity);
        if (TURNS) synchronise(turn, 256);
        start_scores(scores, queries, room.keys + key_stage * KEY_BYTES);
        wait_for_phase(room.value_full + 8 * value_stage, value_parity);
        start_sums(sums, weights, room.values + value_stage * KEY_BYTES);
        if (TURNS && (warpgroup < WARPGROUPS - 1 || tile + 1 < key_tiles)) announce(next_turn, 256);

        wait_for_products<1>();
        hold(scores);
        if (lane == 0) arrive(room.key_free + 8 * key_stage);
        if (tile + 1 == key_tiles) hide(scores, problem.keys - tile * KEY_TILE);
        weigh(scores, largest, total, correction, problem.scale);

        wait_for_products<0>();
        hold(sums);
        if (lane == 0) arrive(room.value_free + 8 * value_stage);
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 2; i++) sums[i] *= correction[i / 2 % 2];
        pack(weights, scores);
        value_stage = key_stage;
        value_parity = key_parity;
    }
    wait_for_phase(room.value_full + 8 * value_stage, value_parity);
    start_sums(sums, weights, room.values + value_stage * KEY_BYTES);
    wait_for_products<0>();
    hold(sums);

    // The result goes through the warpgroup's own rows of the query tile, to be written 16 bytes at a time. Pieces of 16
    // bytes change places within a row by the row's number, so that eight rows are on different banks.
    synchronise(OWN + warpgroup, 128);
    u8 *staged = shared + warpgroup * 64 * 128;
    const int own_row = threadIdx.x % 128 / 32 * 16 + lane / 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float sum = quad_sum(total[half]);
        const float factor = sum == 0.0f ? 1.0f : 1.0f / sum;
        const int row = own_row + 8 * half;
#pragma unroll
        for (int j = 0; j < HEAD_DIM / 8; j++) {
            u8 *to = staged + j / 8 * QUERY_BLOCK + row * 128 + ((j % 8) ^ (row % 8)) * 16 + lane % 4 * 4;
            *reinterpret_cast<u32 *>(to) =
                pack2<ELEMENT>(sums[4 * j + 2 * half] * factor, sums[4 * j + 2 * half + 1] * factor);
        }
    }
    // A warp writes the rows that it staged itself.
    __syncwarp();
    y = first_row(y, problem.y, sequence.batch, sequence);
    const int first_row_of_warp = threadIdx.x % 128 / 32 * 16;
    constexpr int PIECES = HEAD_DIM / 8;
#pragma unroll 1
    for (int i = lane; i < 16 * PIECES; i += 32) {
        const int row = first_row_of_warp + i / PIECES, piece = i % PIECES;
        const i32 query = first_query + warpgroup * 64 + row;
        const u8 *from = staged + piece / 8 * QUERY_BLOCK + row * 128 + ((piece % 8) ^ (row % 8)) * 16;
        if (query < problem.queries)
            *reinterpret_cast<uint4 *>(y + query * problem.y.step + piece * 8) =
                *reinterpret_cast<const uint4 *>(from);
    }
}
