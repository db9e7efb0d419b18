// Group norm. The images that share statistics are one slab of `rows` rows of all channels, and a group is some of the
// channels of all its rows. A thread has a vector of channels and goes down the rows, so that accesses are wide and
// neighbouring threads read neighbouring memory however the channels fall into groups.
//
// Means are kept as differences from a group's origin, its first element: otherwise values that are large compared with
// their differences would lose the digits that matter. Partial statistics are combined by the parallel form of
// Welford's algorithm (Chan et al.).
#include "specialisation.cuh"
#include "grid.cuh"
#include "affine.cuh"
#include "cluster.cuh"
#include "numbers.cuh"
#include "reduce.cuh"

struct Slab {
    i64 rows;
    // Of one slab, and how many chunks there are.
    i64 chunk_rows, chunks;
    i64 channels, groups;
    // A block has `columns` threads for each of `lanes` rows. The threads beyond those only help to combine.
    i64 columns, lanes;
};

// The origins of the groups that a vector of channels belongs to. `from` is the slab's first element of some group, and
// `channel` counts from there.
__device__ __forceinline__ void load_origins(float (&origin)[VECTOR], const TYPE *from, int channel, int members) {
#pragma unroll
    for (int i = 0; i < VECTOR; i++) origin[i] = to_float(from[(channel + i) / members * members]);
}

// Sums of values and of their squares about a first value, for each channel of a vector.
struct Moments {
    float about[VECTOR], sum[VECTOR] = {}, squares[VECTOR] = {};

    __device__ __forceinline__ void add(const float (&value)[VECTOR]) {
#pragma unroll
        for (int i = 0; i < VECTOR; i++) {
            float difference = value[i] - about[i];
            sum[i] += difference;
            squares[i] += difference * difference;
        }
    }
};

// The mean and the sum of squared deviations (Welford's M2) of parts of different sizes, combined by a warp: part i has
// `size(i)` elements.
struct Parts {
    float mean, squares;
};
template <class Size, class Part>
__device__ __forceinline__ Parts combine(int parts, float total, Size size, Part part) {
    const int lane = threadIdx.x % 32;
    float sum = 0.0f;
    for (int i = lane; i < parts; i += 32) sum += size(i) / total * part(i).mean;
    const float mean = warp_sum(sum);
    float squares = 0.0f;
    for (int i = lane; i < parts; i += 32) {
        Parts own = part(i);
        float difference = own.mean - mean;
        squares += own.squares + size(i) * difference * difference;
    }
    return {mean, warp_sum(squares)};
}

// Stores the statistics of every channel that a thread has, over the rows that it went down, in shared memory: means
// from the origin, then squared deviations, each [lanes][pitch].
__device__ __forceinline__ void store_statistics(float *shared, const Moments &moments, const float (&origin)[VECTOR],
                                                 float count, int lane, int column, int lanes, int pitch) {
    float *means = shared + lane * pitch + column * VECTOR, *squares = means + lanes * pitch;
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        float mean = count > 0.0f ? moments.sum[i] / count : 0.0f;
        means[i] = moments.about[i] - origin[i] + mean;
        squares[i] = fmaxf(moments.squares[i] - moments.sum[i] * mean, 0.0f);
        // The maximum would hide a NaN.
        if (mean != mean) squares[i] = mean;
    }
}

// How many of `rows` rows a lane goes down, if it takes every `lanes`-th.
__device__ __forceinline__ int rows_of(int rows, int lane, int lanes) {
    return lane < rows ? (rows - lane + lanes - 1) / lanes : 0;
}

#if WHOLE
// Where `store_statistics` puts a lane's, so that a channel's statistics of different lanes fall into different banks.
__device__ __forceinline__ int pitch_of(int width) { return width + 1; }

// The statistics of each group of a block, from what its threads stored: each channel's over all lanes, then each
// group's over its channels. `per_channel` has room for two floats a channel.
__device__ __forceinline__ void find_groups(float2 (&found)[GROUPS], const float *shared, float *per_channel,
                                            int members, int rows, int lanes, int width) {
    const int warp = threadIdx.x / 32, pitch = pitch_of(width);
    for (int channel = warp; channel < width; channel += THREADS / 32) {
        Parts parts = combine(
            lanes, float(rows), [&](int i) { return float(rows_of(rows, i, lanes)); },
            [&](int i) { return Parts{shared[i * pitch + channel], shared[(lanes + i) * pitch + channel]}; });
        if (threadIdx.x % 32 == 0) {
            per_channel[channel] = parts.mean;
            per_channel[width + channel] = parts.squares;
        }
    }
    __syncthreads();
    for (int group = warp; group < GROUPS; group += THREADS / 32) {
        const float *of_group = per_channel + group * members;
        Parts parts = combine(
            members, float(rows) * float(members), [&](int) { return float(rows); },
            [&](int i) { return Parts{of_group[i], of_group[width + i]}; });
        if (threadIdx.x % 32 == 0) found[group] = make_float2(parts.mean, parts.squares);
    }
}

// A cluster of blocks has all rows of GROUPS groups, each block some of them, and its threads hold them in registers:
// one read, one write. One block a multiprocessor is asked for, so that the compiler does not spill registers.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    group_whole(TYPE *y, const TYPE *x, Affine affine, Slab slab, float epsilon) {
    wait_for_launch_before();
    extern __shared__ float shared[];
    __shared__ float group_origin[GROUPS], group_mean[GROUPS], group_factor[GROUPS];
    __shared__ float2 of_block[GROUPS];
    const int columns = int(slab.columns), lanes = int(slab.lanes);
    const int members = int(slab.channels / slab.groups), width = columns * VECTOR;
    const int lane = threadIdx.x / columns, column = threadIdx.x % columns;
    const u32 sets = u32(slab.groups) / GROUPS, number = blockIdx.x / CLUSTER, image = number / sets;
    const i64 channel = i64(number - image * sets) * width + column * VECTOR;
    const i64 first = i64(blockIdx.x % CLUSTER) * slab.chunk_rows;
    const int rows = int(min(slab.chunk_rows, slab.rows - first));
    const i64 top = i64(image) * slab.rows * slab.channels + channel, start = top + first * slab.channels;
    const int own = lane < lanes ? rows_of(rows, lane, lanes) : 0;

    Pack<TYPE, VECTOR> held[PER_THREAD];
#pragma unroll
    for (int k = 0; k < PER_THREAD; k++)
        if (k < own)
            held[k] = *reinterpret_cast<const Pack<TYPE, VECTOR> *>(x + start + i64(lane + k * lanes) * slab.channels);
    // The affine part comes from memory as x does: it is sent for now, unless x takes all registers.
    constexpr bool early = PER_THREAD <= 8;
    float scale[VECTOR], shift[VECTOR];
    if (early && lane < lanes) load_affine(scale, shift, affine, channel);
    const TYPE *of_groups = x + top - column * VECTOR;
    for (int group = threadIdx.x; group < GROUPS; group += THREADS)
        group_origin[group] = to_float(of_groups[group * members]);
    if (lane < lanes) {
        float origin[VECTOR];
        load_origins(origin, of_groups, column * VECTOR, members);
        Moments moments;
        // A lane without rows has nothing to take the first value from.
#pragma unroll
        for (int i = 0; i < VECTOR; i++) moments.about[i] = own > 0 ? to_float(held[0].lane[i]) : origin[i];
#pragma unroll
        for (int k = 0; k < PER_THREAD; k++)
            if (k < own) {
                float value[VECTOR];
#pragma unroll
                for (int i = 0; i < VECTOR; i++) value[i] = to_float(held[k].lane[i]);
                moments.add(value);
            }
        store_statistics(shared, moments, origin, float(own), lane, column, lanes, pitch_of(width));
    }
    __syncthreads();
    find_groups(of_block, shared, shared + 2 * lanes * pitch_of(width), members, rows, lanes, width);
#if CLUSTER > 1
    // From here on every block of the cluster has read what it needs of x, so that the result may lie over it.
    barrier_cluster_arrive();
    barrier_cluster_wait();
#else
    __syncthreads();
#endif
    const float total = float(slab.rows) * float(members);
    for (int group = threadIdx.x / 32; group < GROUPS; group += THREADS / 32) {
#if CLUSTER > 1
        Parts found = combine(
            CLUSTER, total,
            [&](int i) { return float(min(slab.chunk_rows, slab.rows - i * slab.chunk_rows)) * float(members); },
            [&](int i) {
                float2 part = load_from_block(&of_block[group], i);
                return Parts{part.x, part.y};
            });
#else
        Parts found = {of_block[group].x, of_block[group].y};
#endif
        if (threadIdx.x % 32 == 0) {
            group_mean[group] = found.mean;
            group_factor[group] = 1.0f / sqrtf(found.squares / total + epsilon);
        }
    }
#if CLUSTER > 1
    barrier_cluster_arrive();
#endif
    __syncthreads();
    if (lane < lanes) {
        float origin[VECTOR], mean[VECTOR];
        if (!early) load_affine(scale, shift, affine, channel);
#pragma unroll
        for (int i = 0; i < VECTOR; i++) {
            int group = (column * VECTOR + i) / members;
            origin[i] = group_origin[group];
            mean[i] = group_mean[group];
            scale[i] *= group_factor[group];
        }
#pragma unroll
        for (int k = 0; k < PER_THREAD; k++)
            if (k < own) {
                float result[VECTOR];
#pragma unroll
                for (int i = 0; i < VECTOR; i++)
                    result[i] = ACTIVATION((to_float(held[k].lane[i]) - origin[i] - mean[i]) * scale[i] + shift[i]);
                store(y + start + i64(lane + k * lanes) * slab.channels, result);
            }
    }
#if CLUSTER > 1
    // A block stays until the others have read its statistics.
    barrier_cluster_wait();
#endif
}
#else
// The statistics of one group of a block, combined by a warp from what the block's threads stored.
__device__ __forceinline__ Parts group_of(const float *shared, int group, int members, int rows, int lanes, int width) {
    return combine(
        members * lanes, float(rows) * float(members), [&](int i) { return float(rows_of(rows, i / members, lanes)); },
        [&](int i) {
            int at = i / members * width + group * members + i % members;
            return Parts{shared[at], shared[lanes * width + at]};
        });
}

// Rows whose reads are in flight together.
constexpr int unroll = 4;

// The statistics of every group of one chunk of rows: `partial` is [slabs][groups][chunks] of mean and squares, and
// `origins` is [slabs][groups].
//
// The launch bounds ask for one block a multiprocessor, though several fit: otherwise the compiler would spill
// registers.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    group_partial(float2 *partial, float *origins, const TYPE *x, Slab slab) {
    wait_for_launch_before();
    extern __shared__ float shared[];
    const int columns = int(slab.columns), lanes = int(slab.lanes), width = int(slab.channels);
    const int lane = threadIdx.x / columns, column = threadIdx.x % columns;
    const i64 image = blockIdx.x / slab.chunks, chunk = blockIdx.x - image * slab.chunks;
    const i64 first = chunk * slab.chunk_rows;
    const int rows = int(min(slab.chunk_rows, slab.rows - first));
    const int groups = int(slab.groups), members = width / groups;
    const TYPE *of_slab = x + image * slab.rows * slab.channels;
    if (lane < lanes) {
        const TYPE *from = of_slab + first * slab.channels + column * VECTOR;
        float origin[VECTOR];
        load_origins(origin, of_slab, column * VECTOR, members);
        Moments moments;
#pragma unroll
        for (int i = 0; i < VECTOR; i++) moments.about[i] = origin[i];
        if (lane < rows) load(moments.about, from + i64(lane) * slab.channels);
        int row = lane;
        for (; row + (unroll - 1) * lanes < rows; row += unroll * lanes) {
            float value[unroll][VECTOR];
#pragma unroll
            for (int k = 0; k < unroll; k++) load(value[k], from + i64(row + k * lanes) * slab.channels);
#pragma unroll
            for (int k = 0; k < unroll; k++) moments.add(value[k]);
        }
        for (; row < rows; row += lanes) {
            float value[VECTOR];
            load(value, from + i64(row) * slab.channels);
            moments.add(value);
        }
        store_statistics(shared, moments, origin, float(rows_of(rows, lane, lanes)), lane, column, lanes, width);
    }
    __syncthreads();
    for (int group = threadIdx.x / 32; group < groups; group += THREADS / 32) {
        Parts found = group_of(shared, group, members, rows, lanes, width);
        if (threadIdx.x % 32 == 0) {
            partial[(image * groups + group) * slab.chunks + chunk] = make_float2(found.mean, found.squares);
            if (chunk == 0) origins[image * groups + group] = to_float(of_slab[group * members]);
        }
    }
}

// Combines the chunks' statistics, and normalises a part of a slab's rows. `slab` is cut as these blocks are;
// `parts` chunks of `part_rows` rows are those of the statistics.
extern "C" __global__ void __launch_bounds__(THREADS)
    group_normalise(TYPE *y, const TYPE *x, Affine affine, const float2 *partial, const float *origins, Slab slab,
                    i64 part_rows, i32 parts, float epsilon) {
    wait_for_launch_before();
    // An origin, a mean and a factor for each group.
    extern __shared__ float shared[];
    const int columns = int(slab.columns), lanes = int(slab.lanes), groups = int(slab.groups);
    const int members = int(slab.channels) / groups;
    const int lane = threadIdx.x / columns, column = threadIdx.x % columns;
    const i64 image = blockIdx.x / slab.chunks, chunk = blockIdx.x - image * slab.chunks;
    const float total = float(slab.rows) * float(members);
    for (int group = threadIdx.x / 32; group < groups; group += THREADS / 32) {
        const float2 *of_group = partial + (image * groups + group) * parts;
        Parts found = combine(
            parts, total, [&](int i) { return float(min(part_rows, slab.rows - i * part_rows)) * float(members); },
            [&](int i) { return Parts{of_group[i].x, of_group[i].y}; });
        if (threadIdx.x % 32 == 0) {
            shared[group] = origins[image * groups + group];
            shared[groups + group] = found.mean;
            shared[2 * groups + group] = 1.0f / sqrtf(found.squares / total + epsilon);
        }
    }
    __syncthreads();
    if (lane >= lanes) return;
    float origin[VECTOR], mean[VECTOR], scale[VECTOR], shift[VECTOR];
    load_affine(scale, shift, affine, column * VECTOR);
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        int group = (column * VECTOR + i) / members;
        origin[i] = shared[group];
        mean[i] = shared[groups + group];
        scale[i] *= shared[2 * groups + group];
    }
    const i64 first = chunk * slab.chunk_rows;
    const int rows = int(min(slab.chunk_rows, slab.rows - first));
    const i64 start = (image * slab.rows + first) * slab.channels + column * VECTOR;
    // Everything that is in flight is read before it is written: the result may lie over the operand.
    for (int row = lane; row < rows; row += unroll * lanes) {
        float value[unroll][VECTOR];
#pragma unroll
        for (int k = 0; k < unroll; k++)
            if (row + k * lanes < rows) load(value[k], x + start + i64(row + k * lanes) * slab.channels);
#pragma unroll
        for (int k = 0; k < unroll; k++)
            if (row + k * lanes < rows) {
#pragma unroll
                for (int i = 0; i < VECTOR; i++)
                    value[k][i] = ACTIVATION((value[k][i] - origin[i] - mean[i]) * scale[i] + shift[i]);
                store(y + start + i64(row + k * lanes) * slab.channels, value[k]);
            }
    }
}
#endif
