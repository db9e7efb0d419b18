// Attention: out = softmax(q k^T / 8) v. A warp has one query and goes along the keys once. It keeps the largest score so far and the
// sum of the weights relative to it; if a larger score comes, what was added up before is scaled down. So no score has to be
// stored. A lane has channels 2 * lane and 2 * lane + 1 of the 64.
//
// Try: keep the largest score at zero, and see for which inputs the weights overflow. Or let the warps of a block share keys through
// shared memory, and see what that does to the predicted time.

#include <math.h>

constexpr int CHANNELS = 64;

__device__ float warp_sum(float value) {
    for (int offset = 16; offset > 0; offset /= 2) {
        // Every lane gets the sum, because every lane needs the score.
        value += __shfl_xor_sync(0xFFFFFFFF, value, offset);
    }
    return value;
}

__global__ void attention(const float *q, const float *k, const float *v, float *out, int queries, int keys) {
    int lane = threadIdx.x % 32;
    int query = blockIdx.x * 4 + threadIdx.x / 32, head = blockIdx.y;
    // Whole warps leave, so that the shuffles have all their lanes.
    if (query >= queries) {
        return;
    }
    const float2 *of_keys = (const float2 *)(k + (size_t)head * keys * CHANNELS);
    const float2 *of_values = (const float2 *)(v + (size_t)head * keys * CHANNELS);
    size_t row = ((size_t)head * queries + query) * (CHANNELS / 2) + lane;
    float2 own = ((const float2 *)q)[row];
    float largest = -INFINITY, weights = 0.0f;
    float2 sum = make_float2(0.0f, 0.0f);
    for (int key = 0; key < keys; key++) {
        float2 other = of_keys[key * (CHANNELS / 2) + lane];
        float score = warp_sum(own.x * other.x + own.y * other.y) * 0.125f;
        float now = fmaxf(largest, score);
        float kept = __expf(largest - now), weight = __expf(score - now);
        float2 value = of_values[key * (CHANNELS / 2) + lane];
        weights = weights * kept + weight;
        sum.x = sum.x * kept + weight * value.x;
        sum.y = sum.y * kept + weight * value.y;
        largest = now;
    }
    ((float2 *)out)[row] = make_float2(sum.x / weights, sum.y / weights);
}

// The reference: as plain as it can be, in double. A thread has one channel of one query.
__global__ void attention_reference(
    const double *q, const double *k, const double *v, double *out, int queries, int keys) {
    int query = blockIdx.x, head = blockIdx.y, channel = threadIdx.x;
    const double *own = q + (head * queries + query) * CHANNELS;
    double largest = -1e300, weights = 0.0, sum = 0.0;
    // Twice along the keys: first for the largest score, then for the weights.
    for (int pass = 0; pass < 2; pass++) {
        for (int key = 0; key < keys; key++) {
            const double *other = k + (head * keys + key) * CHANNELS;
            double score = 0.0;
            for (int i = 0; i < CHANNELS; i++) {
                score += own[i] * other[i];
            }
            score /= 8.0;
            if (pass == 0) {
                largest = score > largest ? score : largest;
            } else {
                double weight = exp(score - largest);
                weights += weight;
                sum += weight * v[(head * keys + key) * CHANNELS + channel];
            }
        }
    }
    out[(head * queries + query) * CHANNELS + channel] = sum / weights;
}
