// Means and variances in parts, and how parts are combined.
#pragma once
#include "reduce.cuh"

// The statistics of some elements: one of them, the mean as a difference from it, the sum of squared deviations from
// the mean (Welford's M2), and their number. They are loaded and stored as a float4.
struct alignas(16) Part {
    float origin, mean, squares, count;
};

// All parts that `reach` neighbours of a warp have, one each, in all of them. The first has a part; others may have a
// part of no elements.
template <int reach>
__device__ __forceinline__ Part combine(Part part) {
    const float origin = __shfl_sync(0xffffffffu, part.origin, 0, reach);
    const float own = part.count > 0.0f ? part.origin - origin + part.mean : 0.0f;
    const float count = neighbour_sum<reach>(part.count);
    const float mean = neighbour_sum<reach>(__fdividef(part.count, count) * own);
    const float difference = own - mean;
    return {origin, mean, neighbour_sum<reach>(part.squares + part.count * difference * difference), count};
}
