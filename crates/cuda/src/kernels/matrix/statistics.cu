// The statistics of a product's result, for the group norm after it.
//
// Either the product has left them for fours of neighbouring channels, in parts of as many rows each: a mean and the sum of
// squared deviations from it. One launch combines them over a chunk of parts and the fours of a group, a second one over the
// chunks of a slab. Or a block measures each group of the finished result.
#include "specialisation.cuh"
#include "grid.cuh"
#include "numbers.cuh"
#include "statistics.cuh"

#if APART
constexpr int threads = 256;

// Any extents: one block a group, one element at a time.
extern "C" __global__ void __launch_bounds__(threads)
    measure(float2 *statistics, const TYPE *x, i64 rows, i64 channels, i64 groups) {
    wait_for_launch_before();
    __shared__ float partial[32];
    const i64 slab = blockIdx.x / groups, group = blockIdx.x % groups;
    const i64 members = channels / groups, count = rows * members;
    const i64 start = slab * rows * channels + group * members;
    // The statistics of nothing are zeros.
    const float total = count > 0 ? float(count) : 1.0f, about = count > 0 ? to_float(x[start]) : 0.0f;
    float sum = 0.0f;
    for (i64 i = threadIdx.x; i < count; i += threads)
        sum += to_float(x[start + i / members * channels + i % members]) - about;
    const float mean = block_sum(sum, partial) / total;
    float squares = 0.0f;
    for (i64 i = threadIdx.x; i < count; i += threads) {
        float difference = to_float(x[start + i / members * channels + i % members]) - about - mean;
        squares += difference * difference;
    }
    const float variance = block_sum(squares, partial) / total;
    if (threadIdx.x == 0) statistics[blockIdx.x] = {about + mean, variance};
}
#else
// A block has a thread for each four of `lanes` parts.
constexpr int lanes = THREADS / FOURS, groups = FOURS / FOURS_OF_GROUP;

// Combines a chunk of a slab's parts: `partial` is [slabs][groups][chunks], `of_fours` [slabs][parts][FOURS].
extern "C" __global__ void __launch_bounds__(THREADS)
    combine_fours(Part *partial, const float2 *of_fours, i64 parts, i64 chunk_parts, i64 chunks, float count) {
    wait_for_launch_before();
    __shared__ float sums[THREADS], squares[THREADS], deviations[THREADS], means[FOURS];
    const i64 slab = blockIdx.x / chunks, chunk = blockIdx.x - slab * chunks, first = chunk * chunk_parts;
    const int number = int(min(chunk_parts, parts - first));
    const int lane = threadIdx.x / FOURS, column = threadIdx.x % FOURS;
    const float2 *from = of_fours + (slab * parts + first) * FOURS + column;
    // Means are kept as differences from one of them.
    const float origin = from[0].x;
    float sum = 0.0f, square = 0.0f, deviation = 0.0f;
    if (lane < lanes) {
#pragma unroll 4
        for (int part = lane; part < number; part += lanes) {
            const float2 four = from[i64(part) * FOURS];
            const float difference = four.x - origin;
            sum += difference;
            square += difference * difference;
            deviation += four.y;
        }
    }
    sums[threadIdx.x] = sum, squares[threadIdx.x] = square, deviations[threadIdx.x] = deviation;
    __syncthreads();
    // Each four over the lanes, by the threads of the first one.
    if (lane == 0) {
        for (int other = 1; other < lanes; other++) {
            const int at = other * FOURS + column;
            sum += sums[at], square += squares[at], deviation += deviations[at];
        }
        const float mean = sum / float(number), apart = square - sum * mean;
        means[column] = origin + mean;
        // Not the maximum, which would hide a NaN.
        deviations[column] = deviation + count * (apart < 0.0f ? 0.0f : apart);
    }
    __syncthreads();
    for (int group = threadIdx.x; group < groups; group += THREADS) {
        const float *of_group = means + group * FOURS_OF_GROUP;
        float mean = 0.0f, deviation = 0.0f, square = 0.0f;
        for (int i = 0; i < FOURS_OF_GROUP; i++) mean += of_group[i] - of_group[0];
        mean *= 1.0f / float(FOURS_OF_GROUP);
        for (int i = 0; i < FOURS_OF_GROUP; i++) {
            const float difference = of_group[i] - of_group[0] - mean;
            square += difference * difference;
            deviation += deviations[group * FOURS_OF_GROUP + i];
        }
        const float each = count * float(number);
        partial[(slab * groups + group) * chunks + chunk] = {of_group[0], mean, deviation + each * square,
                                                             each * float(FOURS_OF_GROUP)};
    }
}

// Combines the chunks of each group of a slab, one warp a group.
extern "C" __global__ void __launch_bounds__(32) combine_chunks(float2 *statistics, const Part *partial, i32 chunks) {
    wait_for_launch_before();
    const Part *of_group = partial + i64(blockIdx.x) * chunks;
    const int lane = threadIdx.x;
    Part found = combine<32>(lane < chunks ? of_group[lane] : Part{});
    for (int base = 32; base < chunks; base += 32) {
        Part more = combine<32>(base + lane < chunks ? of_group[base + lane] : Part{});
        found = combine<2>(lane % 2 == 0 ? found : more);
    }
    if (lane == 0) statistics[blockIdx.x] = {found.origin + found.mean, found.squares / found.count};
}
#endif
