// Copies blocks of memory that lie a pitch apart, in units of UNIT: the widest that everything is a multiple of.
#include "specialisation.cuh"
#include "grid.cuh"
#include "numbers.cuh"

constexpr int threads = 256;

extern "C" __global__ void __launch_bounds__(threads)
    copy_blocks(UNIT *to, const UNIT *from, i64 count, i64 length, i64 to_pitch, i64 from_pitch) {
    wait_for_launch_before();
    const INDEX first = INDEX(blockIdx.x) * (threads * UNROLL) + threadIdx.x;
    UNIT value[UNROLL];
    i64 place[UNROLL];
#pragma unroll
    for (int k = 0; k < UNROLL; k++) {
        INDEX unit = first + k * threads;
        if (unit >= INDEX(count)) break;
        INDEX block = unit / INDEX(length);
        INDEX inside = unit - block * INDEX(length);
        value[k] = from[i64(block) * from_pitch + i64(inside)];
        place[k] = i64(block) * to_pitch + i64(inside);
    }
#pragma unroll
    for (int k = 0; k < UNROLL; k++) {
        if (first + k * threads >= INDEX(count)) break;
        to[place[k]] = value[k];
    }
}
