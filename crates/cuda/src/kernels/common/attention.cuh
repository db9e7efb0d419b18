// What the attention kernels share: where sequences lie, which keys a query sees, and the attention of one query.
//
// Include this after `specialisation.cuh`, which defines HEAD_DIM, the kind of MASK, MASK_TYPE (the elements of the
// mask operand; any type if there is none) and KEY_LENGTHS, 1 if a key-length operand is given and 0 otherwise.
//
// BOUNDARIES is 1 if a batch element holds several sequences, one after the other, and 0 otherwise. LOG_SUM_EXP is 1 if a
// second result has the logarithm of each query's sum of exponentials, and 0 otherwise.
#pragma once
#include "numbers.cuh"
#include "reduce.cuh"

#define MASK_NONE 0
#define MASK_CAUSAL 1
#define MASK_BOOLEAN 2
#define MASK_ADDITIVE 3
#define MASK_SLIDING_WINDOW 4
// Whether the keys that a query sees depend on its number.
#define MASK_IS_CAUSAL (MASK == MASK_CAUSAL || MASK == MASK_SLIDING_WINDOW)
#define MASK_IS_OPERAND (MASK == MASK_BOOLEAN || MASK == MASK_ADDITIVE)

// Elements from one thing to the next in an operand's rows.
struct Strides {
    // From one element of a sequence to the next.
    i64 step;
    // From the sequence at one position to the one at the next.
    i64 position;
    // From one batch element to the next.
    i64 batch;
};

struct Problem {
    Strides q, k, v, y;
    // Elements from one batch element's mask, or head's, to the next; 0 if all share one.
    i64 mask_batch, mask_head;
    // With a sliding window, query i does not see key j if j <= i + window_diagonal.
    i64 window_diagonal;
    // The sequences of a batch element, if there are boundaries between them.
    i64 parts;
    // Independent sequences, lengths of a sequence, and positions that each hold a sequence.
    i32 batches, queries, keys, heads, positions;
    // How many batch elements of queries share one of keys.
    i32 share;
    // With a causal mask or a sliding window, query i does not see key j if j > i + diagonal.
    i32 diagonal;
    float scale;
};

// One of the independent attentions of a problem.
struct Sequence {
    i32 batch, position, head;
};

// The first channel of the sequence's first row.
template <class T>
__device__ __forceinline__ T *first_row(T *operand, const Strides &strides, i32 batch, const Sequence &sequence) {
    return operand + i64(batch) * strides.batch + i64(sequence.position) * strides.position +
           i64(sequence.head) * HEAD_DIM;
}

// The second result's element for a query. A row has one for each head.
__device__ __forceinline__ float *log_sum_exp_of(float *log_sum_exp, const Problem &problem, const Sequence &sequence,
                                                 i32 query) {
    const i64 row = (i64(sequence.batch) * problem.queries + query) * problem.positions + sequence.position;
    return log_sum_exp + row * problem.heads + sequence.head;
}

// The score of a key that is not seen.
#define HIDDEN __int_as_float(0xff800000)
#define LOG2_E 1.4426950408889634f
#define LN_2 0.6931471805599453f

// How many leading keys exist for the queries of a batch element.
__device__ __forceinline__ i32 key_count(const Problem &problem, const i32 *key_lengths, i32 batch) {
#if KEY_LENGTHS
    return min(max(key_lengths[batch / problem.share], 0), problem.keys);
#else
    return problem.keys;
#endif
}

// Keys from one on and before another.
struct KeyRange {
    i32 first, end;

    __device__ __forceinline__ bool has(i32 key) const { return key >= first && key < end; }
};

// Where the sequences of a batch element begin, and where the last ends: those of the queries and those of the keys.
struct Boundaries {
    const i32 *queries, *keys;
};

// The keys that a query sees as far as its number goes; `length` keys exist. Both ends grow with the query: what some of several
// neighbours see is from the first one's `first` to the last one's `end`, what they all see the other way round.
__device__ __forceinline__ KeyRange key_range(const Problem &problem, const Boundaries &boundaries, i32 query,
                                              i32 length) {
    KeyRange range = {0, length};
#if BOUNDARIES
    // Of the boundaries, so many are not beyond the query.
    i32 lower = 0, upper = i32(problem.parts) + 1;
    while (lower < upper) {
        const i32 middle = (lower + upper) / 2;
        if (boundaries.queries[middle] <= query)
            lower = middle + 1;
        else
            upper = middle;
    }
    const bool inside = lower > 0 && lower <= i32(problem.parts);
    range.first = min(max(boundaries.keys[max(lower - 1, 0)], 0), length);
    range.end = inside ? min(max(boundaries.keys[lower], range.first), length) : range.first;
    if (inside) query -= max(boundaries.queries[lower - 1], 0);
#endif
#if MASK_IS_CAUSAL
    // First what is added to the sequence's first key: the sum of three extents would not fit.
    const i32 first = range.first, keys = range.end - first;
    range.end = first + max(0, min(keys, query + problem.diagonal + 1));
#endif
#if MASK == MASK_SLIDING_WINDOW
    range.first = first + max(0, min(keys, query + i32(problem.window_diagonal) + 1));
#endif
    return range;
}

// The mask's row for a query.
__device__ __forceinline__ const MASK_TYPE *mask_row(const MASK_TYPE *mask, const Problem &problem,
                                                     const Sequence &sequence, i32 query) {
#if MASK_IS_OPERAND
    return mask + sequence.batch * problem.mask_batch + sequence.head * problem.mask_head + i64(query) * problem.keys;
#else
    return mask;
#endif
}

// What a mask operand adds to the score of a key that the query's number lets it see, or HIDDEN. `row` is the query's own of the
// mask.
__device__ __forceinline__ float mask_bias(const MASK_TYPE *row, i32 key) {
#if MASK == MASK_BOOLEAN
    return row[key] != 0 ? 0.0f : HIDDEN;
#elif MASK == MASK_ADDITIVE
    return to_float(row[key]);
#else
    return 0.0f;
#endif
}

// What the maximum is taken of, from a product of a query and a key: the product itself, since the scale is positive
// and can wait for the exponential; but the score if a mask is added to it.
__device__ __forceinline__ float masked(float product, float added, float scale) {
#if MASK == MASK_ADDITIVE
    return added == HIDDEN ? HIDDEN : product * scale + added;
#else
    return added == HIDDEN ? HIDDEN : product;
#endif
}

__device__ __forceinline__ float exp2_approx(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

// The weights of an online softmax: e to the power of a score less the largest one, for a row whose largest `masked`
// product so far is known.
struct RowSoftmax {
    float base, factor;

    __device__ __forceinline__ RowSoftmax(float largest, float scale) {
        // A row of hidden keys has weights of zero, and not of NaN.
        if (largest == HIDDEN) largest = 0.0f;
#if MASK == MASK_ADDITIVE
        // A mask may be the lowest float there is: the difference has to come first.
        base = largest;
        factor = LOG2_E;
#else
        factor = scale * LOG2_E;
        base = largest * factor;
#endif
    }

    // The power of two that is a weight.
    __device__ __forceinline__ float exponent(float x) const {
#if MASK == MASK_ADDITIVE
        return (x - base) * factor;
#else
        return x * factor - base;
#endif
    }

    __device__ __forceinline__ float weight(float x) const { return exp2_approx(exponent(x)); }

    // The logarithm of a sum of exponentials, from the sum of the row's weights.
    __device__ __forceinline__ float log_sum_exp(float total) const {
#if MASK == MASK_ADDITIVE
        return base + logf(total);
#else
        return base * LN_2 + logf(total);
#endif
    }
};

// Over the four threads that hold a row of a matrix instruction's sum.
__device__ __forceinline__ float quad_max(float value) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1));
    return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 2));
}
__device__ __forceinline__ float quad_sum(float value) {
    value += __shfl_xor_sync(0xffffffffu, value, 1);
    return value + __shfl_xor_sync(0xffffffffu, value, 2);
}

// The attention of one query by a whole warp, with an online softmax, for the first `values` channels of the values, VALUES
// at most. `q`
// and `y` are the query's rows, `log_sum_exp` its own element or null; `k` and `v` the first rows of the keys, of which it may see
// a range. Hidden keys are never looked at.
template <int VALUES, class Q, class K, class V>
__device__ __forceinline__ void attend(const Q *q, const K *k, const V *v, const MASK_TYPE *mask, Q *y,
                                       float *log_sum_exp, const Problem &problem, const KeyRange &range,
                                       int values = VALUES) {
    constexpr int DEPTH = (HEAD_DIM + 31) / 32, WIDTH = (VALUES + 31) / 32, GROUP = 4;
    const int lane = threadIdx.x % 32;
    float channel[DEPTH], sums[WIDTH];
#pragma unroll
    for (int j = 0; j < DEPTH; j++) channel[j] = lane + 32 * j < HEAD_DIM ? to_float(q[lane + 32 * j]) : 0.0f;
#pragma unroll
    for (int j = 0; j < WIDTH; j++) sums[j] = 0.0f;
    float largest = HIDDEN, total = 0.0f;

    // Several keys at a time, whose sums over the warp overlap.
    for (i32 first = range.first; first < range.end; first += GROUP) {
        float score[GROUP];
        bool seen[GROUP];
#pragma unroll
        for (int g = 0; g < GROUP; g++) {
            i32 key = first + g;
            float added = key < range.end ? mask_bias(mask, key) : HIDDEN;
            seen[g] = added != HIDDEN;
            float product = 0.0f;
            if (seen[g]) {
                const K *row = k + key * problem.k.step;
#pragma unroll
                for (int j = 0; j < DEPTH; j++)
                    if (lane + 32 * j < HEAD_DIM) product += channel[j] * to_float(row[lane + 32 * j]);
            }
            product = warp_sum(product);
            score[g] = seen[g] ? product * problem.scale + added : HIDDEN;
        }
        float before = largest;
#pragma unroll
        for (int g = 0; g < GROUP; g++) largest = fmaxf(largest, score[g]);
        float base = largest == HIDDEN ? 0.0f : largest;
        float correction = expf(before - base);
        total *= correction;
#pragma unroll
        for (int j = 0; j < WIDTH; j++) sums[j] *= correction;
#pragma unroll
        for (int g = 0; g < GROUP; g++) {
            if (!seen[g]) continue;
            float weight = expf(score[g] - base);
            total += weight;
            const V *row = v + (first + g) * problem.v.step;
#pragma unroll
            for (int j = 0; j < WIDTH; j++)
                if (lane + 32 * j < values) sums[j] += weight * to_float(row[lane + 32 * j]);
        }
    }
    if (LOG_SUM_EXP && log_sum_exp && lane == 0)
        *log_sum_exp = (largest == HIDDEN ? 0.0f : largest) + logf(total);
    // A query that sees no key gives zeros.
    float divisor = total == 0.0f ? 1.0f : total;
#pragma unroll
    for (int j = 0; j < WIDTH; j++)
        if (lane + 32 * j < values) y[lane + 32 * j] = from_float<Q>(sums[j] / divisor);
}
