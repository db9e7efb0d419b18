// Max and average pooling. A warp has neighbouring results, so that its loads are of whole lines, and what windows share comes from L1.
// A thread has TALL results above each other: a row of the input is reduced once for all windows that it is in.
#include "common.cuh"

#if AVERAGE
#define FIRST 0.0f
__device__ inline float combine(float a, float b) { return a + b; }
// Padding counts, as in PyTorch's default.
#define RESULT(v) ((v) * (1.0f / (KERNEL_D * KERNEL_H * KERNEL_W)))
#else
#define FIRST Max::identity()
__device__ inline float combine(float a, float b) { return Max::combine(a, b); }
#define RESULT(v) (v)
#endif

#if LINES
// Windows along a line, a step of one apart: a thread has four neighbouring results, whose numbers it reads as vectors, once for all of them. Lines of
// results begin anywhere, so a warp writes through shared memory.
#define AHEAD ((PADDING_W + 3) / 4 * 4)
#define VECTORS ((AHEAD - PADDING_W + 3 + (KERNEL_W - 1) * DILATION_W) / 4 + 1)

extern "C" __global__ void __launch_bounds__(256) lines(const float* __restrict__ x, float* __restrict__ y) {
    __shared__ float4 turned[256];
    const long long plane = blockIdx.x / BLOCKS;
    const int first = (blockIdx.x % BLOCKS) * 1024 + (int)threadIdx.x / WARP * (4 * WARP), lane = threadIdx.x % WARP;
    const int left = first + 4 * lane - AHEAD;
    const float* from = x + plane * WIDTH;
    float values[4 * VECTORS];
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        // A line is a whole number of vectors.
        float4 v = make_float4(FIRST, FIRST, FIRST, FIRST);
        if ((unsigned)(left + 4 * i) < WIDTH) {
            v = load4(from + left + 4 * i);
        }
        values[4 * i] = v.x, values[4 * i + 1] = v.y, values[4 * i + 2] = v.z, values[4 * i + 3] = v.w;
    }
    float results[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        results[i] = FIRST;
#pragma unroll
        for (int k = 0; k < KERNEL_W; k++) {
            results[i] = combine(results[i], values[AHEAD - PADDING_W + i + k * DILATION_W]);
        }
    }
    turned[threadIdx.x] = make_float4(RESULT(results[0]), RESULT(results[1]), RESULT(results[2]), RESULT(results[3]));
    __syncwarp();
    const float* own = reinterpret_cast<const float*>(turned) + threadIdx.x / WARP * (4 * WARP);
    float* to = y + plane * OUT_WIDTH;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int at = i * WARP + lane;
        if (first + at < OUT_WIDTH) {
            to[first + at] = own[at];
        }
    }
}
#endif

#if !STRIPS && !LINES
#define DOWN ((OUT_HEIGHT + TALL - 1) / TALL)
#define REACH ((KERNEL_W - 1) * DILATION_W)

// Whether a line of the input, counted from the first that a thread needs, is in window `i` of the thread.
__device__ constexpr bool in_window(int line, int i) {
    return line >= i * STRIDE_H && (line - i * STRIDE_H) % DILATION_H == 0 && (line - i * STRIDE_H) / DILATION_H < KERNEL_H;
}

__device__ constexpr bool used(int line) {
    for (int i = 0; i < TALL; i++) {
        if (in_window(line, i)) {
            return true;
        }
    }
    return false;
}

// A line's numbers that a window has. Nearly all threads need not ask where the line ends.
__device__ inline float across(const float* line, int left, bool inside) {
    float reduced = FIRST;
    if (inside) {
#pragma unroll
        for (int kw = 0; kw < KERNEL_W; kw++) {
            reduced = combine(reduced, __ldg(line + left + kw * DILATION_W));
        }
        return reduced;
    }
#pragma unroll
    for (int kw = 0; kw < KERNEL_W; kw++) {
        const int u = left + kw * DILATION_W;
        if ((unsigned)u < WIDTH) {
            reduced = combine(reduced, __ldg(line + u));
        }
    }
    return reduced;
}

extern "C" __global__ void __launch_bounds__(256) windows(const float* __restrict__ x, float* __restrict__ y) {
    const long long plane = blockIdx.x / BLOCKS;
    const int first = (blockIdx.x % BLOCKS) * (256 * WIDE) + (int)threadIdx.x;
    const float* from = x + plane * DEPTH * HEIGHT * WIDTH;
    float* to = y + plane * OUT_DEPTH * OUT_HEIGHT * OUT_WIDTH;
#pragma unroll
    for (int turn = 0; turn < WIDE; turn++) {
        const int at = first + turn * 256;
        if (at >= OUT_DEPTH * DOWN * OUT_WIDTH) {
            return;
        }
#if OUT_DEPTH == 1 && OUT_HEIGHT == 1
        const int column = at, row = 0, layer = 0;
#else
        const int column = at % OUT_WIDTH, row = at / OUT_WIDTH % DOWN * TALL, layer = at / OUT_WIDTH / DOWN;
#endif
        const int left = column * STRIDE_W - PADDING_W;
        const bool inside = left >= 0 && left + REACH < WIDTH;
        float results[TALL];
#pragma unroll
        for (int i = 0; i < TALL; i++) {
            results[i] = FIRST;
        }
#pragma unroll
        for (int kd = 0; kd < KERNEL_D; kd++) {
            const int z = layer * STRIDE_D - PADDING_D + kd * DILATION_D;
            if ((unsigned)z >= DEPTH) {
                continue;
            }
#pragma unroll
            for (int line = 0; line < (TALL - 1) * STRIDE_H + (KERNEL_H - 1) * DILATION_H + 1; line++) {
                const int v = row * STRIDE_H - PADDING_H + line;
                if (!used(line) || (unsigned)v >= HEIGHT) {
                    continue;
                }
                const float reduced = across(from + (z * HEIGHT + v) * WIDTH, left, inside);
#pragma unroll
                for (int i = 0; i < TALL; i++) {
                    if (in_window(line, i)) {
                        results[i] = combine(results[i], reduced);
                    }
                }
            }
        }
#pragma unroll
        for (int i = 0; i < TALL; i++) {
            if (row + i < OUT_HEIGHT) {
                store1(to + (layer * OUT_HEIGHT + row + i) * OUT_WIDTH + column, RESULT(results[i]));
            }
        }
    }
}
#endif

#if STRIPS
// Averages of windows that touch: the columns of KERNEL_H lines are added up first, each in a register, and then windows of them.
extern "C" __global__ void __launch_bounds__(256) strips(const float* __restrict__ x, float* __restrict__ y) {
    __shared__ float columns[OUT_WIDTH * KERNEL_W];
    const long long plane = blockIdx.x / OUT_HEIGHT;
    const int row = blockIdx.x % OUT_HEIGHT;
    const float* from = x + (plane * HEIGHT + (long long)row * KERNEL_H) * WIDTH;
#if WIDTH % 4 == 0
    for (int at = threadIdx.x * 4; at < OUT_WIDTH * KERNEL_W; at += 256 * 4) {
        float4 sum = read4(from + at);
#pragma unroll
        for (int line = 1; line < KERNEL_H; line++) {
            const float4 v = read4(from + (long long)line * WIDTH + at);
            sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
        }
        const float values[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (at + i < OUT_WIDTH * KERNEL_W) {
                columns[at + i] = values[i];
            }
        }
    }
#else
    for (int at = threadIdx.x; at < OUT_WIDTH * KERNEL_W; at += 256) {
        float sum = 0.0f;
#pragma unroll
        for (int line = 0; line < KERNEL_H; line++) {
            sum += load1(from + (long long)line * WIDTH + at);
        }
        columns[at] = sum;
    }
#endif
    __syncthreads();
    for (int column = threadIdx.x; column < OUT_WIDTH; column += 256) {
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < KERNEL_W; i++) {
            sum += columns[column * KERNEL_W + i];
        }
        y[(plane * OUT_HEIGHT + row) * OUT_WIDTH + column] = RESULT(sum);
    }
}
#endif
