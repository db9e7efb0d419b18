// Group norm. The images that share statistics are one slab of rows of CHANNELS channels, and a group is MEMBERS of the
// channels of all its rows. A block has some rows of GROUPS neighbouring groups, which are whole vectors. A thread has
// a vector of channels and goes down the rows, so that accesses are wide and neighbouring threads read neighbouring
// memory however the channels fall into groups.
//
// Sums are of differences from an origin, an element of the same channel: otherwise values that are large compared with
// their differences would lose the digits that matter. If the origin itself is far off, the variance of a block's rows
// is large too: it is off by no more than a unit in the last place for each row. The statistics of parts are combined
// by the parallel form of Welford's algorithm (Chan et al.).
#include "specialisation.cuh"
#include "grid.cuh"
#include "affine.cuh"
#include "cluster.cuh"
#include "numbers.cuh"
#include "statistics.cuh"

// Whether what made x has found its statistics, so that nothing is left to combine.
#ifndef GIVEN
#define GIVEN 0
#endif

struct Slab {
    i64 rows;
    // Rows of a block but for the last of a slab, and how many blocks share the rows.
    i64 chunk_rows, chunks;
};

// A block has `columns` threads for each of `lanes` rows. The threads beyond those only help to combine.
constexpr int width = GROUPS * MEMBERS, columns = width / VECTOR, lanes = THREADS / columns;
constexpr int sets = CHANNELS / width;
// From a row of a thread to its next one.
constexpr i64 stride = i64(lanes) * CHANNELS;

typedef Pack<TYPE, VECTOR> Vector;
__device__ __forceinline__ Vector read(const TYPE *from) { return *reinterpret_cast<const Vector *>(from); }

// Sums of differences from an origin, and of their squares, for each channel of a vector.
struct Moments {
    float origin[VECTOR], sum[VECTOR] = {}, squares[VECTOR] = {};

    __device__ __forceinline__ Moments(const Vector &first) {
#pragma unroll
        for (int i = 0; i < VECTOR; i++) origin[i] = to_float(first.lane[i]);
    }
    __device__ __forceinline__ void add(const Vector &value) {
#pragma unroll
        for (int i = 0; i < VECTOR; i++) {
            float difference = to_float(value.lane[i]) - origin[i];
            sum[i] += difference;
            squares[i] += difference * difference;
        }
    }
};

// Floats of shared memory that `find_groups` needs: two for each channel that a thread has, and three a channel.
constexpr int shared_floats = 2 * VECTOR * THREADS + 3 * width;

// The statistics of each group over a block's rows, by all of its threads: each channel's over the lanes, then each
// group's over its channels.
__device__ __forceinline__ void find_groups(Part (&found)[GROUPS], float (&shared)[shared_floats],
                                            const Moments &moments, int rows) {
    // Threads that sum up a channel together: neighbours in a warp, all of which take as many lanes.
    constexpr int wanted = THREADS / width < lanes ? THREADS / width : lanes;
    constexpr int together =
        wanted >= 32 ? 32 : wanted >= 16 ? 16 : wanted >= 8 ? 8 : wanted >= 4 ? 4 : wanted >= 2 ? 2 : 1;
    float *sums = shared, *squares = sums + VECTOR * THREADS, *origins = squares + VECTOR * THREADS;
    float *means = origins + width, *deviations = means + width;
    const int lane = threadIdx.x / columns, column = threadIdx.x % columns;
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        sums[i * THREADS + threadIdx.x] = moments.sum[i];
        squares[i * THREADS + threadIdx.x] = moments.squares[i];
        if (lane == 0) origins[column * VECTOR + i] = moments.origin[i];
    }
    __syncthreads();
    const float share = __fdividef(1.0f, float(rows));
    const int part = threadIdx.x % together;
    for (int base = 0; base < width; base += THREADS / together) {
        const int number = base + threadIdx.x / together, i = number / columns, of = number - i * columns;
        float sum = 0.0f, square = 0.0f;
        if (number < width) {
            const int at = i * THREADS + part * columns + of;
#pragma unroll
            for (int k = 0; k < lanes; k += together)
                if (k + together <= lanes || k + part < lanes) {
                    sum += sums[at + k * columns];
                    square += squares[at + k * columns];
                }
        }
        sum = neighbour_sum<together>(sum);
        square = neighbour_sum<together>(square);
        if (number < width && part == 0) {
            const int channel = of * VECTOR + i;
            const float mean = sum * share, deviation = square - sum * mean;
            means[channel] = origins[channel] - origins[channel / MEMBERS * MEMBERS] + mean;
            // Not the maximum, which would hide a NaN.
            deviations[channel] = deviation < 0.0f ? 0.0f : deviation;
        }
    }
    __syncthreads();
    for (int group = threadIdx.x / 32; group < GROUPS; group += THREADS / 32) {
        const int start = group * MEMBERS;
        float sum = 0.0f, deviation = 0.0f, square = 0.0f;
        for (int i = threadIdx.x % 32; i < MEMBERS; i += 32) sum += means[start + i];
        const float mean = warp_sum(sum) * (1.0f / float(MEMBERS));
        for (int i = threadIdx.x % 32; i < MEMBERS; i += 32) {
            float difference = means[start + i] - mean;
            deviation += deviations[start + i];
            square += difference * difference;
        }
        deviation = warp_sum(deviation + square * float(rows));
        if (threadIdx.x % 32 == 0) found[group] = {origins[start], mean, deviation, float(rows) * float(MEMBERS)};
    }
}

// What is done to every element of a vector of channels.
struct Transform {
    float centre[VECTOR], rest[VECTOR], scale[VECTOR], shift[VECTOR];
    // Of a result in e4m3.
    float factor;

    // `of_groups` are the statistics of a block's groups.
    __device__ __forceinline__ void follow(const Part *of_groups, int column) {
#pragma unroll
        for (int i = 0; i < VECTOR; i++) {
            // The same for all, if groups are whole vectors.
            const int group = (column * VECTOR + (MEMBERS % VECTOR == 0 ? 0 : i)) / MEMBERS;
            const Part part = of_groups[group];
            // Half the digits of a float are enough for a mean that elements of 16 bits are compared with.
            const bool halves = sizeof(TYPE) == 2;
            centre[i] = halves ? part.origin + part.mean : part.origin;
            rest[i] = halves ? 0.0f : part.mean;
            scale[i] *= part.squares;
        }
    }
    __device__ __forceinline__ void store_at(RESULT *to, const Vector &value) const {
        float result[VECTOR];
#pragma unroll
        for (int i = 0; i < VECTOR; i++) {
            float difference = to_float(value.lane[i]) - centre[i];
            if (sizeof(TYPE) != 2) difference -= rest[i];
            result[i] = quantised(ACTIVATION(difference * scale[i] + shift[i]), factor);
        }
        store(to, result);
    }
};

// A group's statistics as `Transform` takes them: the factor in the place of the squares.
__device__ __forceinline__ Part with_factor(Part part, float epsilon) {
    part.squares = rsqrtf(__fdividef(part.squares, part.count) + epsilon);
    return part;
}

#if WHOLE
// A cluster of blocks has all rows of GROUPS groups, each block some of them, and its threads hold them in registers:
// one read, one write. A thread has PER_THREAD rows or fewer; in the first FULL_TURNS of them every lane of every block has
// a row.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    group_whole(RESULT *y, const TYPE *x, Affine affine, Slab slab, float epsilon, float factor) {
    wait_for_launch_before();
    __shared__ float shared[shared_floats];
    __shared__ Part of_block[GROUPS], of_groups[GROUPS];
    const int lane = threadIdx.x / columns, column = threadIdx.x % columns;
    const u32 number = blockIdx.x / CLUSTER, image = number / sets;
    const int channel = int(number - image * sets) * width + column * VECTOR;
    const i64 first = i64(blockIdx.x % CLUSTER) * slab.chunk_rows;
    const int rows = int(min(slab.chunk_rows, slab.rows - first));
    // The threads beyond the last lane read what the first lane reads, and write nothing.
    const int row = lane < lanes ? lane : 0;
    const i64 start = (i64(image) * slab.rows + first) * CHANNELS + channel, own = start + i64(row) * CHANNELS;
    auto exists = [&](int k) { return k < FULL_TURNS || row + k * lanes < rows; };

    const Vector origin = read(x + start);
    Vector held[PER_THREAD];
#pragma unroll
    for (int k = 0; k < PER_THREAD; k++)
        if (exists(k)) held[k] = read(x + own + k * stride);
    Moments moments(origin);
#pragma unroll
    for (int k = 0; k < PER_THREAD; k++) {
        // What is not there is no different from the origin.
        if (!exists(k)) held[k] = origin;
        moments.add(held[k]);
    }
    // The affine part comes from memory as x does: it is sent for now, unless x takes many registers.
    constexpr bool early = PER_THREAD * sizeof(Vector) <= 96;
    Transform transform;
    transform.factor = factor;
    if (early) load_affine(transform.scale, transform.shift, affine, channel);
    find_groups(of_block, shared, moments, rows);
    if (!early) load_affine(transform.scale, transform.shift, affine, channel);
#if CLUSTER > 1
    // From here on every block of the cluster has read what it needs of x, so that the result may lie over it.
    barrier_cluster_arrive();
    barrier_cluster_wait();
#else
    __syncthreads();
#endif
    for (int group = threadIdx.x / 32; group < GROUPS; group += THREADS / 32) {
#if CLUSTER > 1
        float4 part = load_from_block(reinterpret_cast<const float4 *>(&of_block[group]), threadIdx.x % CLUSTER);
        const Part found = combine<CLUSTER>({part.x, part.y, part.z, part.w});
#else
        const Part found = of_block[group];
#endif
        if (threadIdx.x % 32 == 0) of_groups[group] = with_factor(found, epsilon);
    }
#if CLUSTER > 1
    barrier_cluster_arrive();
#endif
    __syncthreads();
    transform.follow(of_groups, column);
#pragma unroll
    for (int k = 0; k < PER_THREAD; k++)
        if (lane < lanes && exists(k)) transform.store_at(y + own + k * stride, held[k]);
#if CLUSTER > 1
    // A block stays until the others have read its statistics.
    barrier_cluster_wait();
#endif
}
#else
// Rows whose reads are in flight together.
constexpr int unroll = 4;

// The statistics of every group of one chunk of rows: `partial` is [slabs][groups][chunks]. One block a multiprocessor is
// asked for, though several fit: otherwise the compiler would spill registers.
extern "C" __global__ void __launch_bounds__(THREADS, 1) group_partial(Part *partial, const TYPE *x, Slab slab) {
    wait_for_launch_before();
    __shared__ float shared[shared_floats];
    __shared__ Part of_block[GROUPS];
    const int lane = threadIdx.x / columns, column = threadIdx.x % columns;
    const u32 number = blockIdx.x / sets, set = blockIdx.x - number * sets;
    const i64 image = number / u32(slab.chunks), chunk = number - u32(image) * u32(slab.chunks);
    const i64 first = chunk * slab.chunk_rows;
    const int rows = int(min(slab.chunk_rows, slab.rows - first));
    const TYPE *from = x + (image * slab.rows + first) * CHANNELS + set * width + column * VECTOR;
    Moments moments(read(from));
    if (lane < lanes) {
        from += i64(lane) * CHANNELS;
        int row = lane;
        for (; row + (unroll - 1) * lanes < rows; row += unroll * lanes) {
            Vector value[unroll];
#pragma unroll
            for (int k = 0; k < unroll; k++) value[k] = read(from + k * stride);
#pragma unroll
            for (int k = 0; k < unroll; k++) moments.add(value[k]);
            from += unroll * stride;
        }
        for (; row < rows; row += lanes) {
            moments.add(read(from));
            from += stride;
        }
    }
    find_groups(of_block, shared, moments, rows);
    __syncthreads();
    for (int group = threadIdx.x; group < GROUPS; group += THREADS)
        partial[(image * (sets * GROUPS) + set * GROUPS + group) * slab.chunks + chunk] = of_block[group];
}

// Combines the statistics of all `parts` chunks of a slab, or takes those that are GIVEN, and normalises some of its rows.
// `slab` is cut as these blocks are.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    group_normalise(RESULT *y, const TYPE *x, Affine affine, const Part *partial, Slab slab, i32 parts, float epsilon,
                    float factor) {
    wait_for_launch_before();
    __shared__ Part of_groups[GROUPS];
    const int lane = threadIdx.x / columns, column = threadIdx.x % columns;
    const u32 number = blockIdx.x / sets, set = blockIdx.x - number * sets;
    const i64 image = number / u32(slab.chunks), chunk = number - u32(image) * u32(slab.chunks);
    Transform transform;
    transform.factor = factor;
    load_affine(transform.scale, transform.shift, affine, set * width + column * VECTOR);
#if GIVEN
    for (int group = threadIdx.x; group < GROUPS; group += THREADS) {
        // The mean and the variance: `partial` is [slabs][groups].
        const float2 given = reinterpret_cast<const float2 *>(partial)[image * (sets * GROUPS) + set * GROUPS + group];
        of_groups[group] = with_factor({given.x, 0.0f, given.y, 1.0f}, epsilon);
    }
#else
    for (int group = threadIdx.x / 32; group < GROUPS; group += THREADS / 32) {
        const Part *of_group = partial + (image * (sets * GROUPS) + set * GROUPS + group) * parts;
        Part found = combine<32>(threadIdx.x % 32 < parts ? of_group[threadIdx.x % 32] : Part{});
        for (int base = 32; base < parts; base += 32) {
            const int at = base + threadIdx.x % 32;
            Part more = combine<32>(at < parts ? of_group[at] : Part{});
            found = combine<2>(threadIdx.x % 2 == 0 ? found : more);
        }
        if (threadIdx.x % 32 == 0) of_groups[group] = with_factor(found, epsilon);
    }
#endif
    __syncthreads();
    transform.follow(of_groups, column);
    const i64 first = chunk * slab.chunk_rows;
    const int rows = lane < lanes ? int(min(slab.chunk_rows, slab.rows - first)) : 0;
    i64 at = (image * slab.rows + first + lane) * CHANNELS + set * width + column * VECTOR;
    // Everything that is in flight is read before it is written: the result may lie over the operand.
    for (int row = lane; row < rows; row += unroll * lanes) {
        Vector value[unroll];
#pragma unroll
        for (int k = 0; k < unroll; k++)
            if (row + k * lanes < rows) value[k] = read(x + at + k * stride);
#pragma unroll
        for (int k = 0; k < unroll; k++)
            if (row + k * lanes < rows) transform.store_at(y + at + k * stride, value[k]);
        at += unroll * stride;
    }
}
#endif
