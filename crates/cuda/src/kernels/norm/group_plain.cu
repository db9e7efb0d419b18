// Group norm, one block a group, one element at a time: any extents, and no workspace. Statistics may be GIVEN: a mean and a
// variance for each group.
#include "specialisation.cuh"
#include "grid.cuh"
#include "affine.cuh"
#include "numbers.cuh"
#include "reduce.cuh"

constexpr int threads = 256;

extern "C" __global__ void __launch_bounds__(threads)
    group_plain(RESULT *y, const TYPE *x, const float2 *given, Affine affine, i64 rows, i64 channels, i64 groups, float epsilon,
                float factor_of_result) {
    wait_for_launch_before();
    const i64 slab = blockIdx.x / groups, group = blockIdx.x % groups;
    const i64 members = channels / groups, count = rows * members;
    const i64 start = slab * rows * channels + group * members;

#if GIVEN
    const float2 of_group = given[blockIdx.x];
    const float about = of_group.x, mean = 0.0f, factor = 1.0f / sqrtf(of_group.y + epsilon);
#else
    __shared__ float partial[32];
    const float total = float(count);
    // The mean is kept as a difference from the first element: if all elements are large, it would lose digits
    // otherwise.
    const float about = to_float(x[start]);
    float sum = 0.0f;
    for (i64 i = threadIdx.x; i < count; i += threads)
        sum += to_float(x[start + i / members * channels + i % members]) - about;
    const float mean = block_sum(sum, partial) / total;
    float squares = 0.0f;
    for (i64 i = threadIdx.x; i < count; i += threads) {
        float difference = to_float(x[start + i / members * channels + i % members]) - about - mean;
        squares += difference * difference;
    }
    const float factor = 1.0f / sqrtf(block_sum(squares, partial) / total + epsilon);
#endif
    // The sum above has a barrier: every thread has read the group, so the result may overwrite it.
    for (i64 i = threadIdx.x; i < count; i += threads) {
        i64 at = start + i / members * channels + i % members;
        float scale[1], shift[1];
        load_affine(scale, shift, affine, group * members + i % members);
        float result = ACTIVATION((to_float(x[at]) - about - mean) * factor * scale[0] + shift[0]);
        y[at] = from_float<RESULT>(quantised(result, factor_of_result));
    }
}
