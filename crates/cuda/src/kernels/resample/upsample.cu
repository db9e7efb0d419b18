// Resizes images. A block works on a part of one row of the result, so that only the place within the row is divided
// out.
#include "specialisation.cuh"
#include "grid.cuh"
#include "numbers.cuh"

constexpr int threads = 256;

struct Extents {
    // Of the operand and of the result; a position has `columns` vectors.
    i64 height, width, out_height, out_width, columns;
    // Blocks for each row of the result.
    i64 blocks;
};

#if BILINEAR
// The two samples that a position of the result lies between, and how far it is towards the second: centres are at half
// pixels, and edges are held. In whole numbers: a float would lose the place within a large image.
struct Between {
    i64 first, second;
    float towards;
};

__device__ __forceinline__ Between between(u32 index, i64 extent, i64 size) {
    INDEX twice = (2 * INDEX(index) + 1) * INDEX(extent), whole = 2 * INDEX(size);
    // Before the first centre.
    if (twice < INDEX(size)) return {0, extent > 1 ? 1 : 0, 0.0f};
    twice -= INDEX(size);
    INDEX first = twice / whole;
    float towards = float(twice - first * whole) / float(whole);
    if (i64(first) >= extent - 1) return {extent - 1, extent - 1, 0.0f};
    return {i64(first), i64(first) + 1, towards};
}
#endif

extern "C" __global__ void __launch_bounds__(threads) upsample(TYPE *y, const TYPE *x, Extents extents) {
    wait_for_launch_before();
    const u32 row = blockIdx.x / u32(extents.blocks);
    const u32 image = row / u32(extents.out_height), out_y = row - image * u32(extents.out_height);
    const u32 columns = u32(extents.columns), places = u32(extents.out_width) * columns;
    const u32 first = (blockIdx.x - row * u32(extents.blocks)) * (threads * UNROLL) + threadIdx.x;
    const i64 channels = extents.columns * VECTOR;
    const TYPE *from = x + i64(image) * extents.height * extents.width * channels;
    TYPE *to = y + i64(row) * extents.out_width * channels;
#if BILINEAR
    const Between down = between(out_y, extents.height, extents.out_height);
    const TYPE *top = from + down.first * extents.width * channels;
    const TYPE *bottom = from + down.second * extents.width * channels;
    for (int k = 0; k < UNROLL; k++) {
        u32 place = first + k * threads;
        if (place >= places) break;
        u32 out_x = place / columns;
        i64 channel = i64(place - out_x * columns) * VECTOR;
        const Between across = between(out_x, extents.width, extents.out_width);
        const i64 left = across.first * channels + channel, right = across.second * channels + channel;
        float corner[4][VECTOR], result[VECTOR];
        load(corner[0], top + left);
        load(corner[1], top + right);
        load(corner[2], bottom + left);
        load(corner[3], bottom + right);
#pragma unroll
        for (int i = 0; i < VECTOR; i++) {
            float above = (1.0f - across.towards) * corner[0][i] + across.towards * corner[1][i];
            float below = (1.0f - across.towards) * corner[2][i] + across.towards * corner[3][i];
            result[i] = (1.0f - down.towards) * above + down.towards * below;
        }
        store(to + i64(place) * VECTOR, result);
    }
#else
    const INDEX source_y = INDEX(out_y) * INDEX(extents.height) / INDEX(extents.out_height);
    from += i64(source_y) * extents.width * channels;
    Pack<TYPE, VECTOR> value[UNROLL];
#pragma unroll
    for (int k = 0; k < UNROLL; k++) {
        u32 place = first + k * threads;
        if (place >= places) break;
        u32 out_x = place / columns;
        INDEX source_x = INDEX(out_x) * INDEX(extents.width) / INDEX(extents.out_width);
        i64 channel = i64(place - out_x * columns) * VECTOR;
        value[k] = *reinterpret_cast<const Pack<TYPE, VECTOR> *>(from + i64(source_x) * channels + channel);
    }
#pragma unroll
    for (int k = 0; k < UNROLL; k++) {
        u32 place = first + k * threads;
        if (place >= places) break;
        reinterpret_cast<Pack<TYPE, VECTOR> *>(to)[place] = value[k];
    }
#endif
}
