// The gradient of attention's queries on the tensor cores. A block has QUERY_TILE queries, a warp 16 of them, and walks the keys by
// tiles of KEY_TILE, in STAGES shared buffers. Weights come from the logarithms of the sums, so that nothing has to be rescaled;
// they and the gradients of scores live in registers only.
#include "specialisation.cuh"
constexpr int DEPTH = (HEAD_DIM + 15) / 16 * 16, THREADS = 2 * QUERY_TILE;
#include "grid.cuh"
#include "attention_products.cuh"

constexpr int TILE_BYTES = QUERY_TILE * ROW_BYTES, KEY_BYTES = KEY_TILE * ROW_BYTES, STAGE_BYTES = 2 * KEY_BYTES;
constexpr int KEY_COLUMNS = KEY_TILE / 8;

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    backward_queries(const ELEMENT *q, const ELEMENT *k, const ELEMENT *v, const MASK_TYPE *mask, const ELEMENT *dy,
                     const QueryRow *rows, ELEMENT *dq, const Problem problem) {
    wait_for_launch_before();
    extern __shared__ __align__(128) u8 shared[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    u32 index = blockIdx.x;
    const u32 query_tiles = u32(problem.queries + QUERY_TILE - 1) / QUERY_TILE;
    u32 query_tile = index % query_tiles;
    // With a causal mask the last ones take longest, and begin first.
    if (MASK == MASK_CAUSAL) query_tile = query_tiles - 1 - query_tile;
    const i32 first_query = i32(query_tile) * QUERY_TILE;
    index /= query_tiles;
    Sequence sequence;
    sequence.head = i32(index % u32(problem.heads));
    index /= u32(problem.heads);
    sequence.position = i32(index % u32(problem.positions));
    const i32 batch = sequence.batch = i32(index / u32(problem.positions));
    q = first_row(q, problem.q, batch, sequence);
    k = first_row(k, problem.k, batch / problem.share, sequence);
    v = first_row(v, problem.v, batch / problem.share, sequence);
    dy = first_row(dy, problem.y, batch, sequence);
    dq = first_row(dq, problem.y, batch, sequence);
    rows = first_query_row(rows, problem, sequence);

    const i32 last_query = min(first_query + QUERY_TILE, problem.queries) - 1;
    const KeyRange of_first = seen_keys(rows, problem, first_query), of_last = seen_keys(rows, problem, last_query);
    const i32 end = of_last.end, first_tile = of_first.first / KEY_TILE, key_tiles = (end + KEY_TILE - 1) / KEY_TILE;

    const u32 queries_at = shared_address(shared), stages_at = queries_at + 2 * TILE_BYTES;
    auto copy_tile = [&](i32 tile) {
        const u32 to = stages_at + u32(tile % STAGES) * STAGE_BYTES;
        copy_rows<KEY_TILE>(to, k, problem.k.step, tile * KEY_TILE, end);
        copy_rows<KEY_TILE>(to + KEY_BYTES, v, problem.v.step, tile * KEY_TILE, end);
    };
    copy_rows<QUERY_TILE>(queries_at, q, problem.q.step, first_query, problem.queries);
    copy_rows<QUERY_TILE>(queries_at + TILE_BYTES, dy, problem.y.step, first_query, problem.queries);
    if (first_tile < key_tiles) copy_tile(first_tile);
    cp_async_commit_group();
    cp_async_wait_group<0>();
    __syncthreads();

    Rows of_queries(queries_at), of_dy(queries_at + TILE_BYTES);
    of_queries.hold();
    of_dy.hold();

    // This thread's rows are lane / 4 and the one 8 further. Queries that do not exist have zeros, and see no key.
    const i32 own_query = first_query + warp * 16 + lane / 4;
    QueryRow own[2] = {};
#pragma unroll
    for (int half = 0; half < 2; half++)
        if (own_query + 8 * half < problem.queries) own[half] = rows[own_query + 8 * half];
    float sums[1][DEPTH / 8][4] = {};

    for (i32 tile = first_tile; tile < key_tiles; tile++) {
        if constexpr (STAGES == 1) {
            if (tile > first_tile) {
                // The one buffer is free once every warp is done with it.
                __syncthreads();
                copy_tile(tile);
                cp_async_commit_group();
            }
        }
        if (tile > first_tile) {
            cp_async_wait_group<0>();
            __syncthreads();
        }
        if constexpr (STAGES > 1) {
            // Every warp is past the tile before, whose buffer this fills.
            if (tile + 1 < key_tiles) copy_tile(tile + 1);
            cp_async_commit_group();
        }
        const u32 stage = u32(tile % STAGES) * STAGE_BYTES;
        const i32 first_key = tile * KEY_TILE;

        float weights[1][KEY_COLUMNS][4], gradients[1][KEY_COLUMNS][4];
        multiply_rows(weights, of_queries, stages_at + stage);
        multiply_rows(gradients, of_dy, stages_at + stage + KEY_BYTES);
        if (MASK_IS_OPERAND || first_key < of_last.first || first_key + KEY_TILE > of_first.end) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const MASK_TYPE *row = mask_row(mask, problem, sequence, own_query + 8 * half);
#pragma unroll
                for (int n = 0; n < KEY_COLUMNS; n++)
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        const i32 key = first_key + n * 8 + lane % 4 * 2 + i;
                        const float added = own[half].has(key) ? mask_bias(row, key) : HIDDEN;
                        make_gradient(weights[0][n][2 * half + i], gradients[0][n][2 * half + i], added,
                                      own[half].base, own[half].of_results, problem.scale);
                    }
            }
        } else {
#pragma unroll
            for (int n = 0; n < KEY_COLUMNS; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    make_gradient(weights[0][n][i], gradients[0][n][i], 0.0f, own[i / 2].base, own[i / 2].of_results,
                                  problem.scale);
        }
        add_rows(sums, gradients, shared, 2 * TILE_BYTES + stage, 0);
    }

    // The result goes through the warp's own rows of the query tile.
    u32 wrong_rows[2];
    write_rows(wrong_rows, sums, problem.scale, shared, dq, problem.y.step, first_query, problem.queries, HEAD_DIM);

    // A gradient of zero times a NaN or an infinity of a hidden key is a NaN that does not belong here, and an infinity has no
    // two parts. Such rows are rare: they are done again, one by one, without their hidden keys.
    if constexpr (AGAIN)
        each_wrong(wrong_rows, [&](int row) {
            const i32 query = first_query + warp * 16 + row;
            if (query < problem.queries)
                query_gradient(q + query * problem.q.step, k, v, mask_row(mask, problem, sequence, query),
                               dy + query * problem.y.step, rows[query], seen_keys(rows, problem, query),
                               dq + query * problem.y.step, problem);
        });
}
