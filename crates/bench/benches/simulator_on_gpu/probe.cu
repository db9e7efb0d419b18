// One warp repeats one access pattern, so that a profiler shows how it counts it.
#include "specialisation.cuh"

typedef unsigned u32;
typedef unsigned long long u64;

#define WORDS 2048
#define TIMES 64

__shared__ __align__(1024) u32 tile[WORDS];

extern "C" __global__ void __launch_bounds__(32) probe(const u32 *x, u32 *y) {
    u32 lane = threadIdx.x;
    u32 shared;
    asm("{ .reg .u64 a; cvta.to.shared.u64 a, %1; cvt.u32.u64 %0, a; }" : "=r"(shared) : "l"(tile));
    u64 from = (u64)(const char *)x + OFFSET(lane);
    u64 to = (u64)(char *)y + OFFSET(lane);
    u32 at = shared + OFFSET(lane);
    for (u32 i = lane; i < WORDS; i += 32) tile[i] = x[i];
    __syncthreads();
    u32 a = lane, b = 1, c = 2, d = 3, sum = 0;
    for (u32 i = 0; i < TIMES; i++) {
        if (!(ACTIVE(lane))) break;
        ACCESS;
        // Without it, the assembler would merge equal accesses.
        asm volatile("membar.cta;" ::: "memory");
        sum += a + b + c + d;
    }
    __syncthreads();
    y[WORDS + lane] = sum;
}
