// Attention over few frames, at many positions: a warp for each position and head, everything in registers, no shared
// memory. What it takes is the time to read the operands and to write the result once.
//
// A sum over channels may take them in any order, as long as both sides take the same, and so may the columns of a
// result. The order here is the one in which 16 bytes of a row are neighbours in a thread: four threads read 64 bytes
// of a row of queries or keys, eight read 128 bytes of a row of values, and four write 128 bytes of the result.
//
// QUERY_TILES and KEY_TILES count tiles of 16 frames.
#include "specialisation.cuh"
#include "grid.cuh"
#include "attention.cuh"
#include "matrix.cuh"

constexpr int PIECES = HEAD_DIM / 8;
// Queries and keys by groups of 32 channels, values by groups of 64.
constexpr int GROUPS = (HEAD_DIM + 31) / 32, VALUE_GROUPS = (HEAD_DIM + 63) / 64;

// Eight neighbours, or zeros if `there` is false.
__device__ __forceinline__ void load_piece(u32 (&to)[4], const ELEMENT *row, int piece, bool there) {
    uint4 words = make_uint4(0, 0, 0, 0);
    if (there && piece < PIECES) words = __ldg(reinterpret_cast<const uint4 *>(row) + piece);
    to[0] = words.x, to[1] = words.y, to[2] = words.z, to[3] = words.w;
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    temporal(const ELEMENT *q, const ELEMENT *k, const ELEMENT *v, const MASK_TYPE *mask, const i32 *key_lengths,
             const i32 *query_boundaries, const i32 *key_boundaries, ELEMENT *y, float *log_sum_exp,
             const Problem problem) {
    wait_for_launch_before();
    const int lane = threadIdx.x % 32, group = lane / 4, member = lane % 4;
    // The heads of a position are neighbours in memory.
    u32 index = blockIdx.x * WARPS + threadIdx.x / 32;
    Sequence sequence;
    sequence.head = i32(index % u32(problem.heads));
    index /= u32(problem.heads);
    sequence.position = i32(index % u32(problem.positions));
    const i32 batch = sequence.batch = i32(index / u32(problem.positions));
    if (batch >= problem.batches) return;
    q = first_row(q, problem.q, batch, sequence);
    k = first_row(k, problem.k, batch / problem.share, sequence);
    v = first_row(v, problem.v, batch / problem.share, sequence);
    y = first_row(y, problem.y, batch, sequence);
    const i32 length = key_count(problem, key_lengths, batch);
    const Boundaries boundaries = {query_boundaries, key_boundaries};

    // Key 8 n + group; and of values, keys 16 step + 8 (i / 2) + 2 member + i % 2.
    u32 keys[2 * KEY_TILES][GROUPS][4], values[KEY_TILES][VALUE_GROUPS][4][4];
#pragma unroll
    for (int n = 0; n < 2 * KEY_TILES; n++)
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
            const i32 key = 8 * n + group;
            load_piece(keys[n][g], k + key * problem.k.step, 4 * g + member, key < length);
        }
    u32 queries[QUERY_TILES][2][GROUPS][4];
#pragma unroll
    for (int m = 0; m < QUERY_TILES; m++)
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int g = 0; g < GROUPS; g++) {
                const i32 query = 16 * m + 8 * half + group;
                load_piece(queries[m][half][g], q + query * problem.q.step, 4 * g + member, query < problem.queries);
            }
#pragma unroll
    for (int step = 0; step < KEY_TILES; step++)
#pragma unroll
        for (int g = 0; g < VALUE_GROUPS; g++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const i32 key = 16 * step + 8 * (i / 2) + 2 * member + i % 2;
                load_piece(values[step][g][i], v + key * problem.v.step, 8 * g + group, key < length);
            }

#pragma unroll
    for (int m = 0; m < QUERY_TILES; m++) {
        float scores[2 * KEY_TILES][4];
#pragma unroll
        for (int n = 0; n < 2 * KEY_TILES; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) scores[n][i] = 0.0f;
#pragma unroll
            for (int g = 0; g < GROUPS; g++)
#pragma unroll
                for (int pair = 0; pair < 4; pair += 2) {
                    const u32(&upper)[4] = queries[m][0][g], (&lower)[4] = queries[m][1][g];
                    const u32 a[4] = {upper[pair], lower[pair], upper[pair + 1], lower[pair + 1]};
                    const u32 b[2] = {keys[n][g][pair], keys[n][g][pair + 1]};
                    mma_m16n8k16<ELEMENT>(scores[n], a, b);
                }
        }

        // The rows of this thread are 16 m + group and the one 8 further.
        float factor[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const i32 query = 16 * m + 8 * half + group;
            const MASK_TYPE *row = mask_row(mask, problem, sequence, query);
            const KeyRange range = key_range(problem, boundaries, query, query < problem.queries ? length : 0);
            float largest = HIDDEN;
#pragma unroll
            for (int n = 0; n < 2 * KEY_TILES; n++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const i32 key = 8 * n + 2 * member + i;
                    float added = range.has(key) ? mask_bias(row, key) : HIDDEN;
                    float &score = scores[n][2 * half + i];
                    score = masked(score, added, problem.scale);
                    largest = fmaxf(largest, score);
                }
            const RowSoftmax row_softmax(quad_max(largest), problem.scale);
            float total = 0.0f;
#pragma unroll
            for (int n = 0; n < 2 * KEY_TILES; n++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    float &score = scores[n][2 * half + i];
                    score = row_softmax.weight(score);
                    total += score;
                }
            total = quad_sum(total);
            factor[half] = total == 0.0f ? 1.0f : 1.0f / total;
            if (LOG_SUM_EXP && query < problem.queries && member == 0)
                *log_sum_exp_of(log_sum_exp, problem, sequence, query) = row_softmax.log_sum_exp(total);
        }

        u32 nan_rows[2] = {0, 0};
#pragma unroll
        for (int g = 0; g < VALUE_GROUPS; g++) {
            // Column j of tile n is channel 8 j + n of the group.
            float sums[8][4];
#pragma unroll
            for (int n = 0; n < 8; n++) {
#pragma unroll
                for (int i = 0; i < 4; i++) sums[n][i] = 0.0f;
#pragma unroll
                for (int step = 0; step < KEY_TILES; step++) {
                    u32 a[4];
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        const float(&weights)[4] = scores[2 * step + i / 2];
                        a[i] = pack2<ELEMENT>(weights[i % 2 * 2], weights[i % 2 * 2 + 1]);
                    }
                    const u32(&rows)[4][4] = values[step][g];
                    // The lower or the upper halves of two keys' words.
                    const u32 halves = n % 2 == 0 ? 0x5410 : 0x7632;
                    const u32 b[2] = {__byte_perm(rows[0][n / 2], rows[1][n / 2], halves),
                                      __byte_perm(rows[2][n / 2], rows[3][n / 2], halves)};
                    mma_m16n8k16<ELEMENT>(sums[n], a, b);
                }
            }
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const i32 query = 16 * m + 8 * half + group;
                bool nan = false;
#pragma unroll
                for (int column = 0; column < 2; column++) {
                    // Channels 8 (2 member + column) and the seven after it.
                    float row[8];
#pragma unroll
                    for (int n = 0; n < 8; n++) {
                        row[n] = sums[n][2 * half + column] * factor[half];
                        nan = nan || row[n] != row[n];
                    }
                    const int piece = 8 * g + 2 * member + column;
                    if (query < problem.queries && piece < PIECES) store(y + query * problem.y.step + 8 * piece, row);
                }
                nan_rows[half] |= __ballot_sync(0xffffffffu, nan);
            }
        }

#if MASK != MASK_NONE || BOUNDARIES
        // Rows that a NaN or an infinity in the value of a hidden key has spoilt are done again, without their hidden
        // keys.
        __syncwarp();
#pragma unroll
        for (int half = 0; half < 2; half++)
            for (u32 rest = nan_rows[half]; rest != 0;) {
                const int row = (__ffs(rest) - 1) / 4;
                rest &= ~(0xfu << 4 * row);
                const i32 query = 16 * m + 8 * half + row;
                if (query < problem.queries)
                    attend<HEAD_DIM>(q + query * problem.q.step, k, v, mask_row(mask, problem, sequence, query),
                                     y + query * problem.y.step, nullptr, problem,
                                     key_range(problem, boundaries, query, length));
            }
#endif
    }
}
