// One pass of a separable filter over bytes: a thread for some neighbouring bytes of a position of the result.
#include "specialisation.cuh"
#include "grid.cuh"
#include "numbers.cuh"

constexpr int threads = 256;
// As in the op.
constexpr int fraction_bits = 22;

struct Extents {
    // Of the axis, in operand and result; a position has `columns` vectors.
    i64 from, to, columns;
    i64 taps;
    // Blocks for each slab of the result: the positions of the axis under one index of the axes outside it.
    i64 blocks;
};

// Neighbouring bytes, moved as one; but three are no word, and moved one by one.
struct alignas(VECTOR == 3 ? 1 : VECTOR) Bytes {
    u8 lane[VECTOR];
};

extern "C" __global__ void __launch_bounds__(threads)
    resample_axis(u8 *y, const u8 *x, const i32 *first, const i32 *weights, Extents extents) {
    wait_for_launch_before();
    const u32 slab = blockIdx.x / u32(extents.blocks);
    const u32 columns = u32(extents.columns), places = u32(extents.to) * columns;
    const u32 place = (blockIdx.x - slab * u32(extents.blocks)) * threads + threadIdx.x;
    if (place >= places) return;
    const u32 position = place / columns;
    const i64 bytes = extents.columns * VECTOR;
    const u8 *from = x + i64(slab) * extents.from * bytes + i64(place - position * columns) * VECTOR;
    const i32 *weight = weights + i64(position) * extents.taps;
    const i64 start = first[position], last = extents.from - 1;

    // Without a sign, since those wrap.
    u32 sum[VECTOR];
#pragma unroll
    for (int i = 0; i < VECTOR; i++) sum[i] = 1u << (fraction_bits - 1);
#pragma unroll 4
    for (i64 tap = 0; tap < extents.taps; tap++) {
        // A neighbour outside the axis is the nearest in it, whatever the table says.
        const i64 neighbour = min(max(start + tap, 0ll), last);
        const u32 factor = u32(weight[tap]);
        const Bytes value = *reinterpret_cast<const Bytes *>(from + neighbour * bytes);
#pragma unroll
        for (int i = 0; i < VECTOR; i++) sum[i] += value.lane[i] * factor;
    }

    Bytes result;
#pragma unroll
    for (int i = 0; i < VECTOR; i++) result.lane[i] = u8(min(max(i32(sum[i]) >> fraction_bits, 0), 255));
    reinterpret_cast<Bytes *>(y)[i64(slab) * places + place] = result;
}
