// What the kernels of attention's gradients share: what they know of a query, the weight of a key, and the gradients of one
// query and of one key.
//
// Include this after `specialisation.cuh`, which defines what `attention.cuh` needs, and FOLDED: 1 if a query's logarithm is kept
// in units of log2 and subtracted together with the scale, which is exact enough for elements of 16 bits.
#pragma once
#include "attention.cuh"

// A query of a head. `base` is the logarithm of its sum of exponentials, `of_results` the sum over the channels of its
// result times the gradient of that. It sees keys from `first` on and before `end`, as far as its number goes.
struct alignas(16) QueryRow {
    float base, of_results;
    i32 first, end;

    __device__ __forceinline__ bool has(i32 key) const { return key >= first && key < end; }
};

// The first query of a sequence, whose queries follow each other.
template <class T>
__device__ __forceinline__ T *first_query_row(T *rows, const Problem &problem, const Sequence &sequence) {
    return rows + ((i64(sequence.batch) * problem.positions + sequence.position) * problem.heads + sequence.head) *
                      problem.queries;
}

// The keys that a query sees as far as its number goes. `rows` are those of its sequence, which are read only if something in
// memory decides it.
__device__ __forceinline__ KeyRange seen_keys(const QueryRow *rows, const Problem &problem, i32 query) {
#if KEY_LENGTHS || BOUNDARIES
    return {rows[query].first, rows[query].end};
#else
    return key_range(problem, {}, query, problem.keys);
#endif
}

// The weight of a key that is seen, from the product of it and a query.
__device__ __forceinline__ float known_weight(float product, float added, float base, float scale) {
#if MASK == MASK_ADDITIVE
    return exp2_approx((product * scale + added - base) * LOG2_E);
#elif FOLDED
    return exp2_approx(product * (scale * LOG2_E) - base);
#else
    return exp2_approx((product * scale - base) * LOG2_E);
#endif
}

// From a product of a query and a key, and one of the result's gradient and the value: the weight of the key, and the
// gradient of its score. What a hidden key or its query holds may be anything.
__device__ __forceinline__ void make_gradient(float &product, float &gradient, float added, float base,
                                              float of_results, float scale) {
    const float weight = known_weight(product, added, base, scale);
    product = added == HIDDEN ? 0.0f : weight;
    gradient = added == HIDDEN ? 0.0f : weight * (gradient - of_results);
}

// A warp's row of channels, 32 apart.
constexpr int LANE_CHANNELS = (HEAD_DIM + 31) / 32;
template <class T>
__device__ __forceinline__ void read_channels(float (&to)[LANE_CHANNELS], const T *row) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < LANE_CHANNELS; j++) to[j] = lane + 32 * j < HEAD_DIM ? to_float(row[lane + 32 * j]) : 0.0f;
}
template <class T>
__device__ __forceinline__ void write_channels(T *row, const float (&from)[LANE_CHANNELS], float scale, int first,
                                               int end) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < LANE_CHANNELS; j++) {
        const int channel = lane + 32 * j;
        if (channel >= first && channel < end) row[channel] = from_float<T>(from[j] * scale);
    }
}

// The gradient of one query by a whole warp. `q`, `dy` and `dq` are the query's rows, `k` and `v` the first rows of the
// keys. Hidden keys are never looked at.
template <class Q, class K, class V>
__device__ __forceinline__ void query_gradient(const Q *q, const K *k, const V *v, const MASK_TYPE *mask, const Q *dy,
                                               const QueryRow &row, const KeyRange &range, Q *dq,
                                               const Problem &problem) {
    float of_q[LANE_CHANNELS], of_dy[LANE_CHANNELS], sums[LANE_CHANNELS] = {};
    read_channels(of_q, q);
    read_channels(of_dy, dy);
    for (i32 key = range.first; key < range.end; key++) {
        const float added = mask_bias(mask, key);
        if (added == HIDDEN) continue;
        float of_k[LANE_CHANNELS], of_v[LANE_CHANNELS];
        read_channels(of_k, k + key * problem.k.step);
        read_channels(of_v, v + key * problem.v.step);
        float product = 0.0f, gradient = 0.0f;
#pragma unroll
        for (int j = 0; j < LANE_CHANNELS; j++) product += of_q[j] * of_k[j], gradient += of_dy[j] * of_v[j];
        product = warp_sum(product), gradient = warp_sum(gradient);
        make_gradient(product, gradient, added, row.base, row.of_results, problem.scale);
#pragma unroll
        for (int j = 0; j < LANE_CHANNELS; j++) sums[j] += gradient * of_k[j];
    }
    write_channels(dq, sums, problem.scale, 0, HEAD_DIM);
}

// The gradients of one key and its value by a whole warp, for channels from `first` on and before `end`. `k`, `v`, `dk` and
// `dv` are the key's rows; the sequence is that of the keys.
template <class Q, class K, class V>
__device__ __forceinline__ void key_gradient(const Q *q, const K *k, const V *v, const MASK_TYPE *mask, const Q *dy,
                                             const QueryRow *rows, K *dk, V *dv, const Problem &problem,
                                             const Sequence &of_keys, i32 key, int first, int end) {
    float of_k[LANE_CHANNELS], of_v[LANE_CHANNELS], key_sums[LANE_CHANNELS] = {}, value_sums[LANE_CHANNELS] = {};
    read_channels(of_k, k);
    read_channels(of_v, v);
    for (i32 shared = 0; shared < problem.share; shared++) {
        Sequence sequence = of_keys;
        sequence.batch = of_keys.batch * problem.share + shared;
        const Q *own_q = first_row(q, problem.q, sequence.batch, sequence);
        const Q *own_dy = first_row(dy, problem.y, sequence.batch, sequence);
        const QueryRow *own_rows = first_query_row(rows, problem, sequence);
        for (i32 query = 0; query < problem.queries; query++) {
            if (!seen_keys(own_rows, problem, query).has(key)) continue;
            const QueryRow row = own_rows[query];
            const float added = mask_bias(mask_row(mask, problem, sequence, query), key);
            if (added == HIDDEN) continue;
            float of_q[LANE_CHANNELS], of_dy[LANE_CHANNELS];
            read_channels(of_q, own_q + query * problem.q.step);
            read_channels(of_dy, own_dy + query * problem.y.step);
            float product = 0.0f, gradient = 0.0f;
#pragma unroll
            for (int j = 0; j < LANE_CHANNELS; j++) product += of_q[j] * of_k[j], gradient += of_dy[j] * of_v[j];
            product = warp_sum(product), gradient = warp_sum(gradient);
            make_gradient(product, gradient, added, row.base, row.of_results, problem.scale);
#pragma unroll
            for (int j = 0; j < LANE_CHANNELS; j++)
                key_sums[j] += gradient * of_q[j], value_sums[j] += product * of_dy[j];
        }
    }
    write_channels(dk, key_sums, problem.scale, first, end);
    write_channels(dv, value_sums, 1.0f, first, end);
}
