// Attention in f32 for wide heads, on the tensor cores: products are three of tf32.
//
// A block has QUERY_TILE queries and walks the keys by tiles of KEY_TILE. Its eight warps share the scores of a tile, each
// making a part of them, which become weights in shared memory, with an online softmax; then each warp sums its own
// channels of the values for all of the block's queries. So scores are made once however wide the head is, and sums stay
// in registers. Keys come in chunks of KEY_DEPTH channels and values in chunks of eight keys, through a ring of STAGES
// slots. If shared memory is short, a block sums VALUE_SLICE channels alone, and the scores are made for each slice anew.
//
// With SPLITS parts of the keys, so that blocks fill whole waves, a block leaves the sums of one, and for each query the
// largest score and the total of the weights. `merge.cu` makes the result of them.
#include "specialisation.cuh"
#include "grid.cuh"
#include "attention.cuh"
#include "matrix.cuh"

constexpr int WARPS = 8, THREADS = 32 * WARPS;
constexpr int DEPTH = (HEAD_DIM + 7) / 8 * 8;
constexpr int SLICES = (HEAD_DIM + VALUE_SLICE - 1) / VALUE_SLICE;
// Scores: two warps share the queries, four the keys. Values: the warps share the channels.
constexpr int SCORE_ROWS = QUERY_TILE / 2, SCORE_KEYS = KEY_TILE / 4, CHANNELS = VALUE_SLICE / WARPS;
constexpr int ROW_TILES = QUERY_TILE / 16, SCORE_TILES = SCORE_ROWS / 16, COLUMNS = CHANNELS / 8;
static_assert(SCORE_ROWS % 16 == 0 && SCORE_KEYS == 16 && CHANNELS % 16 == 0, "the warps share the tiles");
// Elements of a row in shared memory. An odd number of 16-byte pieces puts the eight rows of a matrix on different banks;
// so does a multiple of 32 and 8 for single words of four rows of values.
constexpr int QUERY_ROW = DEPTH + 4, KEY_ROW = KEY_DEPTH + 4, VALUE_ROW = VALUE_SLICE + 8, SCORE_ROW = KEY_TILE + 4;
constexpr int KEY_BYTES = KEY_TILE * KEY_ROW * 4, VALUE_BYTES = 8 * VALUE_ROW * 4;
constexpr int SLOT_BYTES = KEY_BYTES > VALUE_BYTES ? KEY_BYTES : VALUE_BYTES;
constexpr int QUERY_BYTES = QUERY_TILE * QUERY_ROW * 4, SCORE_BYTES = QUERY_TILE * SCORE_ROW * 4;
constexpr int KEY_CHUNKS = (DEPTH + KEY_DEPTH - 1) / KEY_DEPTH, CHUNKS = KEY_CHUNKS + KEY_TILE / 8;
// Threads that make the weights of a query.
constexpr int LANES = THREADS / QUERY_TILE, LANE_KEYS = KEY_TILE / LANES;

// Copies ROWS rows of an operand from `first` on, of WIDTH channels, and zeros for rows from `end` on and channels from
// `channels` on.
template <int ROWS, int WIDTH, int TO_ROW>
__device__ __forceinline__ void copy_rows(u32 to, const f32 *from, i64 step, i32 first, i32 end, int channels) {
    constexpr int PIECES = WIDTH / 4;
    // The addresses of many copies would not fit the registers.
#pragma unroll 1
    for (int i = threadIdx.x; i < ROWS * PIECES; i += THREADS) {
        int row = i / PIECES, channel = i % PIECES * 4;
        bool there = first + row < end && channel < channels;
        const f32 *source = there ? from + (first + row) * step + channel : from;
        cp_async_16(to + (row * TO_ROW + channel) * 4, source, there);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    wide(const f32 *q, const f32 *k, const f32 *v, const MASK_TYPE *mask, const i32 *key_lengths,
         const i32 *query_boundaries, const i32 *key_boundaries, f32 *y, float *log_sum_exp, float *partial,
         const Problem problem) {
    wait_for_launch_before();
    extern __shared__ __align__(128) u8 shared[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    // The tiles of a sequence are neighbours, so that they share its keys in the cache.
    u32 index = blockIdx.x;
    const int first_channel = int(index % SLICES) * VALUE_SLICE;
    index /= SLICES;
    const u32 part = index % SPLITS;
    index /= SPLITS;
    const u32 query_tiles = u32(problem.queries + QUERY_TILE - 1) / QUERY_TILE;
    const i32 first_query = i32(index % query_tiles) * QUERY_TILE;
    index /= query_tiles;
    const i64 first_row_of_all = i64(index) * problem.queries + first_query;
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
    const i32 end = of_last.end, before = of_first.first / KEY_TILE, all_tiles = (end + KEY_TILE - 1) / KEY_TILE;
    const i32 share = (all_tiles - before + SPLITS - 1) / SPLITS;
    const i32 first_tile = before + i32(part) * share, key_tiles = min(all_tiles, first_tile + share);

    // The scores, then a factor for each query, then the queries, then the ring.
    float *const scores_at = reinterpret_cast<float *>(shared), *const factors = scores_at + QUERY_TILE * SCORE_ROW;
    const u32 weights_at = shared_address(shared), queries_at = weights_at + SCORE_BYTES + QUERY_TILE * 4;
    const u32 ring_at = queries_at + QUERY_BYTES;

    // The chunk that is copied next: of which tile, which of its chunks, and to which slot.
    i32 next_tile = first_tile, next_chunk = 0, next_slot = 0;
    auto copy_next = [&]() {
        if (next_tile < key_tiles) {
            const i32 first = next_tile * KEY_TILE;
            const u32 to = ring_at + u32(next_slot) * SLOT_BYTES;
            if (next_chunk < KEY_CHUNKS) {
                const int channel = next_chunk * KEY_DEPTH;
                copy_rows<KEY_TILE, KEY_DEPTH, KEY_ROW>(to, k + channel, problem.k.step, first, end,
                                                        HEAD_DIM - channel);
            } else {
                copy_rows<8, VALUE_SLICE, VALUE_ROW>(to, v, problem.v.step, first + (next_chunk - KEY_CHUNKS) * 8, end,
                                                     HEAD_DIM - first_channel);
            }
            if (++next_chunk == CHUNKS) next_chunk = 0, next_tile++;
            next_slot = next_slot + 1 == STAGES ? 0 : next_slot + 1;
        }
        cp_async_commit_group();
    };
    copy_rows<QUERY_TILE, DEPTH, QUERY_ROW>(queries_at, q, problem.q.step, first_query, problem.queries, HEAD_DIM);
#pragma unroll 1
    for (int i = 0; i < STAGES - 1; i++) copy_next();

    // Waits for the chunk that is read next, and returns the offset of its slot. After the barrier every thread sees it,
    // and every thread is done with the one before, whose slot is filled next.
    i32 slot = STAGES - 1;
    auto next_slot_to_read = [&]() {
        cp_async_wait_group<STAGES - 2>();
        __syncthreads();
        copy_next();
        slot = slot + 1 == STAGES ? 0 : slot + 1;
        return u32(slot) * SLOT_BYTES;
    };

    // Addresses that each thread gives for an operand of a matrix instruction.
    const int score_row = warp / 4 * SCORE_ROWS, score_key = warp % 4 * SCORE_KEYS;
    const u32 query_row = queries_at + ((score_row + lane % 16) * QUERY_ROW + lane / 16 * 4) * 4;
    const u32 key_row = ring_at + ((score_key + lane / 16 * 8 + lane % 8) * KEY_ROW + lane / 8 % 2 * 4) * 4;
    const u32 weight_row = weights_at + (lane % 16 * SCORE_ROW + lane / 16 * 4) * 4;
    // The words of the values that this thread reads: rows lane % 4 and 4 further, columns lane / 4 of each tile of 8.
    const float *const own_values = reinterpret_cast<const float *>(shared + SCORE_BYTES + QUERY_TILE * 4 + QUERY_BYTES) +
                                    lane % 4 * VALUE_ROW + warp * CHANNELS + lane / 4;

    // Of the query whose weights this thread helps to make.
    float largest = HIDDEN, total = 0.0f;
    float *const own_weights = scores_at + threadIdx.x / LANES * SCORE_ROW + threadIdx.x % LANES * 4;
    float sums[ROW_TILES][COLUMNS][4] = {};
    // Multiplies the sums of each query by its factor.
    auto rescale = [&]() {
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const float factor = factors[m * 16 + half * 8 + lane / 4];
#pragma unroll
                for (int n = 0; n < COLUMNS; n++) sums[m][n][2 * half] *= factor, sums[m][n][2 * half + 1] *= factor;
            }
    };

#pragma unroll 1
    for (i32 tile = first_tile; tile < key_tiles; tile++) {
        const i32 first_key = tile * KEY_TILE;
        float scores[SCORE_TILES][2][4] = {};
#pragma unroll 1
        for (int chunk = 0; chunk < KEY_CHUNKS; chunk++) {
            const u32 keys = key_row + next_slot_to_read(), queries = query_row + chunk * KEY_DEPTH * 4;
            const int steps = min(KEY_DEPTH, DEPTH - chunk * KEY_DEPTH) / 8;
#pragma unroll 2
            for (int step = 0; step < steps; step++) {
                MmaRows<f32> a[SCORE_TILES];
#pragma unroll
                for (int m = 0; m < SCORE_TILES; m++) a[m].load(queries + (m * 16 * QUERY_ROW + step * 8) * 4);
                u32 b[4];
                ldmatrix_x4(b, keys + step * 8 * 4);
                multiply_add(scores, 0, a, b);
            }
        }

        const bool cut = MASK_IS_OPERAND || first_key < of_last.first || first_key + KEY_TILE > of_first.end;
#pragma unroll
        for (int m = 0; m < SCORE_TILES; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int row = score_row + m * 16 + half * 8 + lane / 4;
                const i32 query = first_query + row;
                const MASK_TYPE *own_mask = mask_row(mask, problem, sequence, query);
                const KeyRange range = key_range(problem, boundaries, query, query < problem.queries ? length : 0);
#pragma unroll
                for (int n = 0; n < 2; n++) {
                    const int column = score_key + n * 8 + lane % 4 * 2;
                    float two[2] = {scores[m][n][2 * half], scores[m][n][2 * half + 1]};
                    if (cut) {
#pragma unroll
                        for (int i = 0; i < 2; i++) {
                            const i32 key = first_key + column + i;
                            float added = range.has(key) ? mask_bias(own_mask, key) : HIDDEN;
                            two[i] = masked(two[i], added, problem.scale);
                        }
                    }
                    store_pair(scores_at + row * SCORE_ROW + column, two[0], two[1]);
                }
            }
        __syncthreads();

        // Scores become weights in their place.
        {
            float weights[LANE_KEYS];
            const float before = largest;
#pragma unroll
            for (int i = 0; i < LANE_KEYS; i += 4) {
                float four[4];
                load(four, own_weights + i * LANES);
#pragma unroll
                for (int j = 0; j < 4; j++) weights[i + j] = four[j], largest = fmaxf(largest, four[j]);
            }
#pragma unroll
            for (int other = 1; other < LANES; other *= 2)
                largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, other));
            const RowSoftmax row_softmax(largest, problem.scale);
            const float correction = row_softmax.weight(before);
            float added = 0.0f;
#pragma unroll
            for (int i = 0; i < LANE_KEYS; i += 4) {
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    weights[i + j] = row_softmax.weight(weights[i + j]);
                    added += weights[i + j];
                }
                *reinterpret_cast<float4 *>(own_weights + i * LANES) =
                    make_float4(weights[i], weights[i + 1], weights[i + 2], weights[i + 3]);
            }
            total = total * correction + added;
            if (threadIdx.x % LANES == 0) factors[threadIdx.x / LANES] = correction;
        }

#pragma unroll 1
        for (int step = 0; step < KEY_TILE / 8; step++) {
            // The first barrier is also that of the weights.
            const float *values = own_values + next_slot_to_read() / 4;
            if (step == 0) rescale();
            MmaRows<f32> a[ROW_TILES];
#pragma unroll
            for (int m = 0; m < ROW_TILES; m++) a[m].load(weight_row + (m * 16 * SCORE_ROW + step * 8) * 4);
#pragma unroll
            for (int n = 0; n < COLUMNS; n += 2) {
                u32 b[4];
#pragma unroll
                for (int i = 0; i < 4; i++) b[i] = bits_of(values[i % 2 * 4 * VALUE_ROW + (n + i / 2) * 8]);
                multiply_add(sums, n, a, b);
            }
        }
    }

#pragma unroll
    for (int other = 1; other < LANES; other *= 2) total += __shfl_xor_sync(0xffffffffu, total, other);
    const int channel = warp * CHANNELS, channels = min(CHANNELS, HEAD_DIM - first_channel - channel);
    if constexpr (SPLITS > 1) {
        const int row = threadIdx.x / LANES;
        if (first_channel == 0 && threadIdx.x % LANES == 0 && first_query + row < problem.queries) {
            const i64 rows = i64(problem.batches) * problem.positions * problem.heads * problem.queries;
            const float two[2] = {largest, total};
            store(partial + rows * SPLITS * HEAD_DIM + ((first_row_of_all + row) * SPLITS + part) * 2, two);
        }
    } else {
        if (threadIdx.x % LANES == 0) {
            factors[threadIdx.x / LANES] = total == 0.0f ? 1.0f : 1.0f / total;
            const i32 query = first_query + threadIdx.x / LANES;
            if (LOG_SUM_EXP && first_channel == 0 && query < problem.queries)
                *log_sum_exp_of(log_sum_exp, problem, sequence, query) =
                    RowSoftmax(largest, problem.scale).log_sum_exp(total);
        }
        __syncthreads();
        rescale();
    }
    if (channels <= 0) return;
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const i32 first = first_query + m * 16 + half * 8, query = first + lane / 4;
            f32 *row = y + query * problem.y.step + channel;
            if constexpr (SPLITS > 1)
                row = partial + ((first_row_of_all + query - first_query) * SPLITS + part) * HEAD_DIM + first_channel +
                      channel;
            bool wrong = false;
#pragma unroll
            for (int n = 0; n < COLUMNS; n++) {
                const float two[2] = {sums[m][n][2 * half], sums[m][n][2 * half + 1]};
                const int column = n * 8 + lane % 4 * 2;
                wrong = wrong || !is_finite(two[0]) || !is_finite(two[1]);
                if (query < problem.queries && column < channels) store(row + column, two);
            }
            // An infinity has no two parts, and a weight of zero times one of a hidden key's is a NaN that does not belong
            // here. Such rows are rare: they are done again, one by one, without their hidden keys.
            u32 rest = SPLITS > 1 ? 0 : __ballot_sync(0xffffffffu, wrong);
            if (rest != 0) __syncwarp();
            while (rest != 0) {
                const int quad = (__ffs(rest) - 1) / 4;
                rest &= ~(0xfu << 4 * quad);
                const i32 own = first + quad;
                if (own >= problem.queries) continue;
                // Of the warps that do the row again one has the logarithm too.
                float *own_sum =
                    first_channel + channel == 0 ? log_sum_exp_of(log_sum_exp, problem, sequence, own) : nullptr;
                attend<CHANNELS>(q + own * problem.q.step, k, v + channel, mask_row(mask, problem, sequence, own),
                                 y + own * problem.y.step + channel, own_sum, problem,
                                 key_range(problem, boundaries, own, length), channels);
            }
        }
}
