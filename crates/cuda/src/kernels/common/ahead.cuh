// What a product on Hopper fetches while the launch before still runs: its weight and its bias, which are seldom in the L2
// cache. They come that far and no further, which changes no thread's view of memory, whoever writes them.
#pragma once
#include "boxes.cuh"

// Steps of a block's first tile whose weight is fetched: of all blocks together they fit into the cache.
constexpr int steps_ahead = 16;

// Fetches for the steps from `first` to `end` of a tile. One warp does it, before `wait_for_launch_before`.
__device__ __forceinline__ void fetch_weight_ahead(const TensorMap &map_a, const TensorMap &map_b, const Boxes &g,
                                                   const Epilogue &e, const Start &start, int first, int end) {
    int lane = threadIdx.x % 32;
    if (lane == 0) {
        prefetch_tensormap(map_a);
        prefetch_tensormap(map_b);
    }
    if (lane < min(steps_ahead, end - first)) {
        Step step(g, first + lane);
        tma_prefetch_3d(map_b, step.chunk * 64, step.tap, start.column);
#if GATED
        tma_prefetch_3d(map_b, step.chunk * 64, step.tap, g.columns + start.column);
#endif
    }
    for (int column = lane * wide; column < result_columns; column += 32 * wide)
        if (start.column + column < g.columns) prefetch_bias(e, start.column + column);
}
