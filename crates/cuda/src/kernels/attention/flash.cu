// FlashAttention on the tensor cores: the scores of a tile of queries and a tile of keys live in registers only, and
// become weights there, with an online softmax.
//
// A block has QUERY_TILE queries, a warp WARP_ROWS of them (16 or 32). It walks the keys by tiles of KEY_TILE, in
// STAGES shared buffers: with two, the next tile arrives while this one is worked on. Heads too wide for the registers
// are cut: a block sums VALUE_SLICE channels of the values, a multiple of 16, and the scores are made for each slice
// anew. Products of f32 are three of tf32.
#include "specialisation.cuh"
#include "grid.cuh"
#include "attention.cuh"
#include "matrix.cuh"

constexpr int DEPTH = (HEAD_DIM + 15) / 16 * 16;
// Whether elements are f32, and multiplied in two parts.
constexpr bool IN_PARTS = sizeof(ELEMENT) == 4;
// Elements of 16 bytes, and of a step of the matrix instructions' depth.
constexpr int PIECE = Wide<ELEMENT>::count, STEP = 2 * PIECE;
constexpr int SLICES = (DEPTH + VALUE_SLICE - 1) / VALUE_SLICE;
constexpr int WARPS = QUERY_TILE / WARP_ROWS, THREADS = 32 * WARPS, ROW_TILES = WARP_ROWS / 16;
constexpr int KEY_STEPS = DEPTH / STEP, KEY_COLUMNS = KEY_TILE / 8, VALUE_COLUMNS = VALUE_SLICE / 8;
// Elements of a row in shared memory. An odd number of 16-byte pieces puts eight rows on different banks.
constexpr int ROW = DEPTH + PIECE, VALUE_ROW = VALUE_SLICE + PIECE;
constexpr int BYTES = sizeof(ELEMENT), ROW_BYTES = ROW * BYTES;
constexpr int QUERY_BYTES = QUERY_TILE * ROW_BYTES, KEY_BYTES = KEY_TILE * ROW_BYTES;
constexpr int STAGE_BYTES = KEY_BYTES + KEY_TILE * VALUE_ROW * BYTES;
// Whether the queries stay in registers, or are read from shared memory for each tile of keys.
constexpr bool HELD_QUERIES = !IN_PARTS && KEY_STEPS * ROW_TILES <= 8;
// Whether rows that are not numbers are done again, by the plain routine.
constexpr bool AGAIN = IN_PARTS || MASK != MASK_NONE || BOUNDARIES;

// Copies rows `first` to `first + ROWS` of an operand, of WIDTH channels, and zeros for rows from `end` on and channels
// from `channels` on.
template <int ROWS, int WIDTH, int TO_ROW>
__device__ __forceinline__ void copy_rows(u32 to, const ELEMENT *from, i64 step, i32 first, i32 end, int channels) {
    constexpr int PIECES = WIDTH / PIECE;
    auto copy = [&](int i) {
        int row = i / PIECES, channel = i % PIECES * PIECE;
        bool there = first + row < end && channel < channels;
        const ELEMENT *source = there ? from + (first + row) * step + channel : from;
        cp_async_16(to + (row * TO_ROW + channel) * BYTES, source, there);
    };
    if constexpr (IN_PARTS) {
        // The addresses of twice as many copies would not fit the registers.
#pragma unroll 1
        for (int i = threadIdx.x; i < ROWS * PIECES; i += THREADS) copy(i);
    } else {
#pragma unroll
        for (int i = threadIdx.x; i < ROWS * PIECES; i += THREADS) copy(i);
    }
}

// With a mask, a wide head, or a narrow one in two parts the compiler would spill a few registers to fit one more block. 0
// leaves their number to it.
constexpr int BLOCKS = MASK != MASK_NONE || HEAD_DIM > 64 || IN_PARTS && HEAD_DIM <= 32 ? 1 : 0;

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    flash(const ELEMENT *q, const ELEMENT *k, const ELEMENT *v, const MASK_TYPE *mask, const i32 *key_lengths,
          const i32 *query_boundaries, const i32 *key_boundaries, ELEMENT *y, float *log_sum_exp,
          const Problem problem) {
    wait_for_launch_before();
    extern __shared__ __align__(128) u8 shared[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    // The tiles of a sequence are neighbours, so that they share its keys in the cache.
    u32 index = blockIdx.x;
    const int first_channel = int(index % SLICES) * VALUE_SLICE;
    index /= SLICES;
    const u32 query_tiles = u32(problem.queries + QUERY_TILE - 1) / QUERY_TILE;
    const i32 first_query = i32(index % query_tiles) * QUERY_TILE;
    index /= query_tiles;
    Sequence sequence;
    sequence.head = i32(index % u32(problem.heads));
    index /= u32(problem.heads);
    sequence.position = i32(index % u32(problem.positions));
    const i32 batch = sequence.batch = i32(index / u32(problem.positions));
    q = first_row(q, problem.q, batch, sequence);
    k = first_row(k, problem.k, batch / problem.share, sequence);
    v = first_row(v, problem.v, batch / problem.share, sequence) + first_channel;
    y = first_row(y, problem.y, batch, sequence) + first_channel;

    const i32 length = key_count(problem, key_lengths, batch);
    const Boundaries boundaries = {query_boundaries, key_boundaries};
    const i32 last_query = min(first_query + QUERY_TILE, problem.queries) - 1;
    const KeyRange of_first = key_range(problem, boundaries, first_query, length);
    const KeyRange of_last = key_range(problem, boundaries, last_query, length);
    const i32 end = of_last.end, first_tile = of_first.first / KEY_TILE, key_tiles = (end + KEY_TILE - 1) / KEY_TILE;

    const u32 queries_at = shared_address(shared), stages_at = queries_at + QUERY_BYTES;
    auto copy_tile = [&](i32 tile) {
        u32 to = stages_at + u32(tile % STAGES) * STAGE_BYTES;
        copy_rows<KEY_TILE, DEPTH, ROW>(to, k, problem.k.step, tile * KEY_TILE, end, HEAD_DIM);
        copy_rows<KEY_TILE, VALUE_SLICE, VALUE_ROW>(to + KEY_BYTES, v, problem.v.step, tile * KEY_TILE, end,
                                                    HEAD_DIM - first_channel);
    };
    copy_rows<QUERY_TILE, DEPTH, ROW>(queries_at, q, problem.q.step, first_query, problem.queries, HEAD_DIM);
    if (first_tile < key_tiles) copy_tile(first_tile);
    cp_async_commit_group();
    cp_async_wait_group<0>();
    __syncthreads();

    // Addresses that each thread gives for an operand of a matrix instruction.
    const u32 query_row = queries_at + ((warp * WARP_ROWS + lane % 16) * ROW + lane / 16 * PIECE) * BYTES;
    const u32 key_row = stages_at + ((lane / 16 * 8 + lane % 8) * ROW + lane / 8 % 2 * PIECE) * BYTES;
    const u32 value_row = stages_at + KEY_BYTES + ((lane / 8 % 2 * 8 + lane % 8) * VALUE_ROW + lane / 16 * 8) * BYTES;
    u32 held[HELD_QUERIES ? ROW_TILES : 1][HELD_QUERIES ? KEY_STEPS : 1][4];
    if constexpr (HELD_QUERIES) {
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
            for (int step = 0; step < KEY_STEPS; step++)
                ldmatrix_x4(held[m][step], query_row + (m * 16 * ROW + step * STEP) * BYTES);
    }

    // This thread's rows are lane / 4 and the one 8 further of each tile of 16: [row tile][half].
    const i32 own_query = first_query + warp * WARP_ROWS + lane / 4;
    float largest[ROW_TILES][2], total[ROW_TILES][2], sums[ROW_TILES][VALUE_COLUMNS][4];
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) largest[m][half] = HIDDEN, total[m][half] = 0.0f;
#pragma unroll
        for (int n = 0; n < VALUE_COLUMNS; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) sums[m][n][i] = 0.0f;
    }

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

        float scores[ROW_TILES][KEY_COLUMNS][4];
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
            for (int n = 0; n < KEY_COLUMNS; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) scores[m][n][i] = 0.0f;
#pragma unroll(IN_PARTS ? 1 : KEY_STEPS)
        for (int step = 0; step < KEY_STEPS; step++) {
            MmaRows<ELEMENT> a[ROW_TILES];
#pragma unroll
            for (int m = 0; m < ROW_TILES; m++) {
                if constexpr (HELD_QUERIES)
                    a[m].set(held[m][step]);
                else
                    a[m].load(query_row + (m * 16 * ROW + step * STEP) * BYTES);
            }
#pragma unroll
            for (int n = 0; n < KEY_COLUMNS; n += 2) {
                u32 b[4];
                ldmatrix_x4(b, key_row + stage + (n * 8 * ROW + step * STEP) * BYTES);
                multiply_add(scores, n, a, b);
            }
        }

        if (MASK_IS_OPERAND || first_key < of_last.first || first_key + KEY_TILE > of_first.end) {
#pragma unroll
            for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const i32 query = own_query + m * 16 + half * 8;
                    const MASK_TYPE *row = mask_row(mask, problem, sequence, query);
                    const KeyRange range =
                        key_range(problem, boundaries, query, query < problem.queries ? length : 0);
#pragma unroll
                    for (int n = 0; n < KEY_COLUMNS; n++)
#pragma unroll
                        for (int i = 0; i < 2; i++) {
                            const i32 key = first_key + n * 8 + lane % 4 * 2 + i;
                            float added = range.has(key) ? mask_bias(row, key) : HIDDEN;
                            float &score = scores[m][n][2 * half + i];
                            score = masked(score, added, problem.scale);
                        }
                }
        }

#pragma unroll
        for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const float before = largest[m][half];
                float now = before;
#pragma unroll
                for (int n = 0; n < KEY_COLUMNS; n++)
                    now = fmaxf(now, fmaxf(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
                now = quad_max(now);
                largest[m][half] = now;
                const RowSoftmax row_softmax(now, problem.scale);
                const float correction = row_softmax.weight(before);
                float added = 0.0f;
#pragma unroll
                for (int n = 0; n < KEY_COLUMNS; n++)
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        float &score = scores[m][n][2 * half + i];
                        score = row_softmax.weight(score);
                        added += score;
                    }
                total[m][half] = total[m][half] * correction + added;
#pragma unroll
                for (int n = 0; n < VALUE_COLUMNS; n++) {
                    sums[m][n][2 * half] *= correction;
                    sums[m][n][2 * half + 1] *= correction;
                }
            }

            // A sum's two neighbouring tiles of 8 columns have the layout of an operand of 16. One of them has that of an
            // operand of 8, if keys are taken in another order: even ones first. So are the rows of the values then.
#pragma unroll
        for (int step = 0; step < KEY_TILE / STEP; step++) {
            MmaRows<ELEMENT> a[ROW_TILES];
#pragma unroll
            for (int m = 0; m < ROW_TILES; m++) {
                u32 words[4];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    if constexpr (IN_PARTS) {
                        words[i] = bits_of(scores[m][step][i % 2 * 2 + i / 2]);
                    } else {
                        const float(&weights)[4] = scores[m][2 * step + i / 2];
                        words[i] = pack2<ELEMENT>(weights[i % 2 * 2], weights[i % 2 * 2 + 1]);
                    }
                }
                a[m].set(words);
            }
#pragma unroll
            for (int n = 0; n < VALUE_COLUMNS; n += 2) {
                u32 b[4];
                if constexpr (IN_PARTS) {
                    const u32 *values = reinterpret_cast<const u32 *>(shared + QUERY_BYTES + stage + KEY_BYTES) +
                                        (step * STEP + lane % 4 * 2) * VALUE_ROW + n * 8 + lane / 4;
#pragma unroll
                    for (int i = 0; i < 4; i++) b[i] = values[i % 2 * VALUE_ROW + i / 2 * 8];
                } else {
                    ldmatrix_x4_trans(b, value_row + stage + (step * STEP * VALUE_ROW + n * 8) * BYTES);
                }
                multiply_add(sums, n, a, b);
            }
        }
    }

    // The result goes through the warp's own rows of the query tile, to be written 16 bytes at a time.
    __syncwarp();
    // Rows with a NaN, and those of f32 with an infinity: a bit for each thread that holds a part.
    u32 wrong_rows[ROW_TILES][2];
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float sum = quad_sum(total[m][half]);
            const float factor = sum == 0.0f ? 1.0f : 1.0f / sum;
            if constexpr (LOG_SUM_EXP) {
                const i32 query = own_query + m * 16 + half * 8;
                if (query < problem.queries && first_channel == 0 && lane % 4 == 0)
                    *log_sum_exp_of(log_sum_exp, problem, sequence, query) =
                        RowSoftmax(largest[m][half], problem.scale).log_sum_exp(sum);
            }
            u8 *row = shared + (warp * WARP_ROWS + m * 16 + half * 8 + lane / 4) * ROW_BYTES;
            bool wrong = false;
#pragma unroll
            for (int n = 0; n < VALUE_COLUMNS; n++) {
                float first = sums[m][n][2 * half] * factor, second = sums[m][n][2 * half + 1] * factor;
                if constexpr (IN_PARTS) {
                    wrong = wrong || !is_finite(first) || !is_finite(second);
                    store_pair(reinterpret_cast<float *>(row) + n * 8 + lane % 4 * 2, first, second);
                } else {
                    wrong = wrong || first != first || second != second;
                    *reinterpret_cast<u32 *>(row + (n * 8 + lane % 4 * 2) * 2) = pack2<ELEMENT>(first, second);
                }
            }
            if constexpr (AGAIN) wrong_rows[m][half] = __ballot_sync(0xffffffffu, wrong);
        }
    __syncwarp();
    constexpr int PIECES = VALUE_SLICE / PIECE;
#pragma unroll
    for (int i = lane; i < WARP_ROWS * PIECES; i += 32) {
        const int row = warp * WARP_ROWS + i / PIECES, channel = i % PIECES * PIECE;
        if (first_query + row < problem.queries && first_channel + channel < HEAD_DIM)
            *reinterpret_cast<uint4 *>(y + (first_query + row) * problem.y.step + channel) =
                *reinterpret_cast<const uint4 *>(shared + (row * ROW + channel) * BYTES);
    }

    // A weight of zero times a NaN or an infinity of a hidden key's value is a NaN that does not belong here, and an
    // infinity has no two parts. Such rows are rare: they are done again, one by one, without their hidden keys.
    if constexpr (AGAIN) {
        __syncwarp();
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                for (u32 rest = wrong_rows[m][half]; rest != 0;) {
                    const int row = (__ffs(rest) - 1) / 4;
                    rest &= ~(0xfu << 4 * row);
                    const i32 query = first_query + warp * WARP_ROWS + m * 16 + half * 8 + row;
                    if (query >= problem.queries) continue;
                    const KeyRange range = key_range(problem, boundaries, query, length);
                    constexpr int LAST = HEAD_DIM - (SLICES - 1) * VALUE_SLICE;
                    const ELEMENT *own_q = q + query * problem.q.step;
                    ELEMENT *own_y = y + query * problem.y.step;
                    const MASK_TYPE *own_mask = mask_row(mask, problem, sequence, query);
                    float *own_sum =
                        first_channel == 0 ? log_sum_exp_of(log_sum_exp, problem, sequence, query) : nullptr;
                    if (first_channel + VALUE_SLICE <= HEAD_DIM)
                        attend<VALUE_SLICE>(own_q, k, v, own_mask, own_y, own_sum, problem, range);
                    else
                        attend<LAST>(own_q, k, v, own_mask, own_y, own_sum, problem, range);
                }
    }
}
