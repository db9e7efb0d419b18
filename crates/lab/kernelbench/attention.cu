// Scaled dot product attention: scores, their softmax in place, and the weighted values.
#include "product.cuh"

extern "C" __global__ void __launch_bounds__(PRODUCT_THREADS) scores_of(const float* __restrict__ query,
    const float* __restrict__ key, float* __restrict__ scores) {
    const long long batch = blockIdx.y;
    const int right = (KEYS + TILE_N - 1) / TILE_N;
    const Product shape = {TOKENS, KEYS, HEAD, 0, HEAD, SCALE};
    product_tile<false, true, VECTOR, VECTOR, 0>(query + batch * TOKENS * HEAD, key + batch * KEYS * HEAD,
        scores + batch * TOKENS * KEYS, shape, blockIdx.x / right * TILE_M, blockIdx.x % right * TILE_N);
}

extern "C" __global__ void __launch_bounds__(PRODUCT_THREADS) weighted(const float* __restrict__ scores,
    const float* __restrict__ value, float* __restrict__ result) {
    const long long batch = blockIdx.y;
    const int right = (HEAD + TILE_N - 1) / TILE_N;
    const Product shape = {TOKENS, HEAD, KEYS, 0, KEYS, 1.0f};
    product_tile<false, false, VECTOR, VECTOR, 0>(scores + batch * TOKENS * KEYS, value + batch * KEYS * HEAD,
        result + batch * TOKENS * HEAD, shape, blockIdx.x / right * TILE_M, blockIdx.x % right * TILE_N);
}

// A warp has a row in registers.
#define EACH ((KEYS + WARP - 1) / WARP)

extern "C" __global__ void __launch_bounds__(256) softmax(float* __restrict__ scores, int rows) {
    const int row = blockIdx.x * 8 + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (row >= rows) {
        return;
    }
    float* own = scores + (long long)row * KEYS;
    float values[EACH], maximum = Max::identity(), sum = 0.0f;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        values[i] = i * WARP + lane < KEYS ? own[i * WARP + lane] : Max::identity();
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        maximum = Max::combine(maximum, values[i]);
    }
    maximum = warp_all<Max>(maximum);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        values[i] = expf(values[i] - maximum);
        sum += values[i];
    }
    sum = warp_all<Sum>(sum);
    const float factor = 1.0f / sum;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        if (i * WARP + lane < KEYS) {
            own[i * WARP + lane] = values[i] * factor;
        }
    }
}
