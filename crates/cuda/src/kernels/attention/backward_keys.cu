// The gradients of attention's keys and values on the tensor cores. A block has KEY_TILE keys, a warp 16 of them, and walks the
// queries by tiles of QUERY_TILE, in STAGES shared buffers: those of all batch elements that the keys serve, one after the other, so
// that sums have one order. Scores are transposed here: rows are keys. A block sums SLICE channels of SLICES · SLICE.
#include "specialisation.cuh"
constexpr int DEPTH = SLICES * SLICE, THREADS = 2 * KEY_TILE;
#include "grid.cuh"
#include "attention_products.cuh"

constexpr int TILE_BYTES = KEY_TILE * ROW_BYTES, QUERY_BYTES = QUERY_TILE * ROW_BYTES;
constexpr int STAGE_BYTES = 2 * QUERY_BYTES + QUERY_TILE * sizeof(QueryRow);
constexpr int QUERY_COLUMNS = QUERY_TILE / 8;

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    backward_keys(const ELEMENT *q, const ELEMENT *k, const ELEMENT *v, const MASK_TYPE *mask, const ELEMENT *dy,
                  const QueryRow *rows, ELEMENT *dk, ELEMENT *dv, const Strides of_keys, const Problem problem) {
    wait_for_launch_before();
    extern __shared__ __align__(128) u8 shared[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    u32 index = blockIdx.x;
    const int first_channel = int(index % SLICES) * SLICE;
    index /= SLICES;
    const u32 key_tiles = u32(problem.keys + KEY_TILE - 1) / KEY_TILE;
    const i32 first_key = i32(index % key_tiles) * KEY_TILE;
    index /= key_tiles;
    // Of the keys.
    Sequence sequence;
    sequence.head = i32(index % u32(problem.heads));
    index /= u32(problem.heads);
    sequence.position = i32(index % u32(problem.positions));
    sequence.batch = i32(index / u32(problem.positions));
    k = first_row(k, problem.k, sequence.batch, sequence);
    v = first_row(v, problem.v, sequence.batch, sequence);
    dk = first_row(dk, of_keys, sequence.batch, sequence);
    dv = first_row(dv, of_keys, sequence.batch, sequence);
    const i32 first_batch = sequence.batch * problem.share;
    auto of_batch = [&](i32 batch) { return Sequence{batch, sequence.position, sequence.head}; };

    // The tiles of queries that see some of the keys, the same for all batch elements. Both ends of what a query sees grow
    // with it: tiles before the first one see nothing so far on, those from the end on nothing so far back.
    const i32 query_tiles = (problem.queries + QUERY_TILE - 1) / QUERY_TILE;
    i32 first_tile = 0, end_tile = 0;
    const QueryRow *own = first_query_row(rows, problem, of_batch(first_batch));
    if (problem.share > 0) {
        float before = 0.0f, not_after = 0.0f;
        for (i32 tile = lane; tile < query_tiles; tile += 32) {
            const i32 last = min((tile + 1) * QUERY_TILE, problem.queries) - 1;
            if (seen_keys(own, problem, last).end <= first_key) before += 1.0f;
            if (seen_keys(own, problem, tile * QUERY_TILE).first < first_key + KEY_TILE) not_after += 1.0f;
        }
        first_tile = i32(warp_sum(before)), end_tile = i32(warp_sum(not_after));
    }
    const i32 turns = max(end_tile - first_tile, 0) * problem.share;

    const u32 keys_at = shared_address(shared), stages_at = keys_at + 2 * TILE_BYTES;
    auto copy_tile = [&](i32 turn, i32 batch, i32 tile) {
        const Sequence of_queries = of_batch(batch);
        const i32 first = tile * QUERY_TILE;
        const u32 to = stages_at + u32(turn % STAGES) * STAGE_BYTES;
        copy_rows<QUERY_TILE>(to, first_row(q, problem.q, of_queries.batch, of_queries), problem.q.step, first,
                              problem.queries);
        copy_rows<QUERY_TILE>(to + QUERY_BYTES, first_row(dy, problem.y, of_queries.batch, of_queries),
                              problem.y.step, first, problem.queries);
        const QueryRow *own_rows = first_query_row(rows, problem, of_queries);
        for (int i = threadIdx.x; i < QUERY_TILE; i += THREADS) {
            // Queries that do not exist have zeros, and see no key.
            const bool there = first + i < problem.queries;
            cp_async_16(to + 2 * QUERY_BYTES + i * int(sizeof(QueryRow)), there ? own_rows + first + i : own_rows,
                        there);
        }
    };
    copy_rows<KEY_TILE>(keys_at, k, problem.k.step, first_key, problem.keys);
    copy_rows<KEY_TILE>(keys_at + TILE_BYTES, v, problem.v.step, first_key, problem.keys);
    if (turns > 0) copy_tile(0, first_batch, first_tile);
    cp_async_commit_group();
    cp_async_wait_group<0>();
    __syncthreads();

    Rows keys(keys_at), values(keys_at + TILE_BYTES);
    keys.hold();
    values.hold();

    // This thread's rows are lane / 4 and the one 8 further.
    const i32 own_key = first_key + warp * 16 + lane / 4;
    float key_sums[1][SLICE / 8][4] = {}, value_sums[1][SLICE / 8][4] = {};

    i32 batch = first_batch, tile = first_tile;
    for (i32 turn = 0; turn < turns; turn++) {
        if constexpr (STAGES == 1) {
            if (turn > 0) {
                // The one buffer is free once every warp is done with it.
                __syncthreads();
                copy_tile(turn, batch, tile);
                cp_async_commit_group();
            }
        }
        if (turn > 0) {
            cp_async_wait_group<0>();
            __syncthreads();
        }
        if constexpr (STAGES > 1) {
            // Every warp is past the tile before, whose buffer this fills.
            const bool ends = tile + 1 == end_tile;
            if (turn + 1 < turns) copy_tile(turn + 1, batch + ends, ends ? first_tile : tile + 1);
            cp_async_commit_group();
        }
        const u32 stage = 2 * TILE_BYTES + u32(turn % STAGES) * STAGE_BYTES;
        const i32 first_query = tile * QUERY_TILE;
        const QueryRow *columns = reinterpret_cast<const QueryRow *>(shared + stage + 2 * QUERY_BYTES);

        float weights[1][QUERY_COLUMNS][4], gradients[1][QUERY_COLUMNS][4];
        multiply_rows(weights, keys, keys_at + stage);
        multiply_rows(gradients, values, keys_at + stage + QUERY_BYTES);
        const i32 last_query = min(first_query + QUERY_TILE, problem.queries) - 1;
        if (MASK_IS_OPERAND || first_key < seen_keys(own, problem, last_query).first ||
            first_key + KEY_TILE > seen_keys(own, problem, first_query).end) {
            const Sequence of_queries = of_batch(batch);
#pragma unroll
            for (int n = 0; n < QUERY_COLUMNS; n++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const int column = n * 8 + lane % 4 * 2 + i;
                    const QueryRow row = columns[column];
                    const MASK_TYPE *of_row = mask_row(mask, problem, of_queries, first_query + column);
#pragma unroll
                    for (int half = 0; half < 2; half++) {
                        const i32 key = own_key + half * 8;
                        const float added = row.has(key) ? mask_bias(of_row, key) : HIDDEN;
                        make_gradient(weights[0][n][2 * half + i], gradients[0][n][2 * half + i], added, row.base,
                                      row.of_results, problem.scale);
                    }
                }
        } else {
#pragma unroll
            for (int n = 0; n < QUERY_COLUMNS; n++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const QueryRow row = columns[n * 8 + lane % 4 * 2 + i];
#pragma unroll
                    for (int half = 0; half < 2; half++)
                        make_gradient(weights[0][n][2 * half + i], gradients[0][n][2 * half + i], 0.0f, row.base,
                                      row.of_results, problem.scale);
                }
        }
        add_rows(value_sums, weights, shared, stage + QUERY_BYTES, first_channel);
        add_rows(key_sums, gradients, shared, stage, first_channel);
        if (++tile == end_tile) tile = first_tile, batch++;
    }

    // The results go through the warp's own rows of the tiles of keys and values.
    u32 wrong_keys[2], wrong_values[2];
    const int channels = HEAD_DIM - first_channel;
    write_rows(wrong_keys, key_sums, problem.scale, shared, dk + first_channel, of_keys.step, first_key, problem.keys,
               channels);
    write_rows(wrong_values, value_sums, 1.0f, shared + TILE_BYTES, dv + first_channel, of_keys.step, first_key,
               problem.keys, channels);

    // What a query holds that does not see a key may have spoilt its sums, as in `backward_queries`.
    if constexpr (AGAIN) {
        const u32 wrong[2] = {wrong_keys[0] | wrong_values[0], wrong_keys[1] | wrong_values[1]};
        each_wrong(wrong, [&](int row) {
            const i32 key = first_key + warp * 16 + row;
            if (key < problem.keys)
                key_gradient(q, k + key * problem.k.step, v + key * problem.v.step, mask, dy, rows,
                             dk + key * of_keys.step, dv + key * of_keys.step, problem, sequence, key, first_channel,
                             min(first_channel + SLICE, HEAD_DIM));
        });
    }
}
