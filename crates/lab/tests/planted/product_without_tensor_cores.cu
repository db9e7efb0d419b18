// A product of f16 matrices in tiles of 64 x 64, by multiply-adds of threads or by mma.
typedef unsigned short half;

__device__ float number(half bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

extern "C" __global__ void __launch_bounds__(128) product(const half *a, const half *b, float *c, int n) {
    __shared__ half left[64][40], right[64][40];
    int row = blockIdx.y * 64, column = blockIdx.x * 64;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#ifdef MENDED
    float sum[8][4] = {};
#else
    float sum[32] = {};
#endif
    for (int depth = 0; depth < n; depth += 32) {
        for (int at = threadIdx.x; at < 64 * 4; at += 128) {
            int y = at / 4, x = at % 4 * 8;
            *reinterpret_cast<uint4 *>(&left[y][x]) = *reinterpret_cast<const uint4 *>(&a[(row + y) * n + depth + x]);
            *reinterpret_cast<uint4 *>(&right[y][x]) = *reinterpret_cast<const uint4 *>(&b[(column + y) * n + depth + x]);
        }
        __syncthreads();
#ifdef MENDED
        for (int k = 0; k < 32; k += 16) {
            int y = warp * 16 + lane / 4, x = k + lane % 4 * 2;
            unsigned fragment[4] = {
                *reinterpret_cast<unsigned *>(&left[y][x]), *reinterpret_cast<unsigned *>(&left[y + 8][x]),
                *reinterpret_cast<unsigned *>(&left[y][x + 8]), *reinterpret_cast<unsigned *>(&left[y + 8][x + 8])};
#pragma unroll
            for (int tile = 0; tile < 8; tile++) {
                unsigned low = *reinterpret_cast<unsigned *>(&right[tile * 8 + lane / 4][x]);
                unsigned high = *reinterpret_cast<unsigned *>(&right[tile * 8 + lane / 4][x + 8]);
                asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                    : "+f"(sum[tile][0]), "+f"(sum[tile][1]), "+f"(sum[tile][2]), "+f"(sum[tile][3])
                    : "r"(fragment[0]), "r"(fragment[1]), "r"(fragment[2]), "r"(fragment[3]), "r"(low), "r"(high));
            }
        }
#else
        for (int k = 0; k < 32; k++) {
            float right_value = number(right[threadIdx.x % 64][k]);
#pragma unroll
            for (int i = 0; i < 32; i++)
                sum[i] += number(left[threadIdx.x / 64 * 32 + i][k]) * right_value; // planted
        }
#endif
        __syncthreads();
    }
#ifdef MENDED
    for (int tile = 0; tile < 8; tile++)
        for (int i = 0; i < 4; i++)
            c[(row + warp * 16 + lane / 4 + i / 2 * 8) * n + column + tile * 8 + lane % 4 * 2 + i % 2] = sum[tile][i];
#else
    for (int i = 0; i < 32; i++) c[(row + threadIdx.x / 64 * 32 + i) * n + column + threadIdx.x % 64] = sum[i];
#endif
}
