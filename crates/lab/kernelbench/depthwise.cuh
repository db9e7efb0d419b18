// Convolutions of each channel by itself, in f32: a few products a number, so the limit is memory, 8 bytes a number. A warp has neighbouring
// columns, and a thread several rows: it reads an input line once for all of them, and keeps the channel's filter in registers.
#include "common.cuh"

#define DEPTHWISE_TALL 8

__device__ constexpr bool line_has(int line, int row, int stride, int dilation, int kernel) {
    return line >= row * stride && (line - row * stride) % dilation == 0 && (line - row * stride) / dilation < kernel;
}

extern "C" __global__ void __launch_bounds__(256) depthwise(const float* __restrict__ x, const float* __restrict__ weight,
    float* __restrict__ y) {
    constexpr int down = (DW_OUT_HEIGHT + DEPTHWISE_TALL - 1) / DEPTHWISE_TALL;
    const long long plane = blockIdx.y + 65535LL * blockIdx.z;
    const int at = blockIdx.x * 256 + threadIdx.x;
    if (plane >= DW_PLANES || at >= down * DW_OUT_WIDTH) {
        return;
    }
    const int column = at % DW_OUT_WIDTH, row = at / DW_OUT_WIDTH * DEPTHWISE_TALL;
    const float* from = x + plane * DW_HEIGHT * DW_WIDTH;
    const float* filter = weight + plane % DW_CHANNELS * (DW_KERNEL_H * DW_KERNEL_W);
    float taps[DW_KERNEL_H][DW_KERNEL_W], sums[DEPTHWISE_TALL] = {};
#pragma unroll
    for (int i = 0; i < DW_KERNEL_H * DW_KERNEL_W; i++) {
        taps[i / DW_KERNEL_W][i % DW_KERNEL_W] = __ldg(filter + i);
    }
    const int left = column * DW_STRIDE_W - DW_PADDING_W;
    const bool inside = left >= 0 && left + (DW_KERNEL_W - 1) * DW_DILATION_W < DW_WIDTH;
#pragma unroll
    for (int line = 0; line < (DEPTHWISE_TALL - 1) * DW_STRIDE_H + (DW_KERNEL_H - 1) * DW_DILATION_H + 1; line++) {
        const int v = row * DW_STRIDE_H - DW_PADDING_H + line;
        if ((unsigned)v >= DW_HEIGHT) {
            continue;
        }
        float values[DW_KERNEL_W];
#pragma unroll
        for (int k = 0; k < DW_KERNEL_W; k++) {
            const int u = left + k * DW_DILATION_W;
            values[k] = inside || (unsigned)u < DW_WIDTH ? __ldg(from + v * DW_WIDTH + u) : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < DEPTHWISE_TALL; i++) {
            if (line_has(line, i, DW_STRIDE_H, DW_DILATION_H, DW_KERNEL_H)) {
                const int tap = (line - i * DW_STRIDE_H) / DW_DILATION_H;
#pragma unroll
                for (int k = 0; k < DW_KERNEL_W; k++) {
                    sums[i] = fmaf(taps[tap][k], values[k], sums[i]);
                }
            }
        }
    }
    float* to = y + (plane * DW_OUT_HEIGHT + row) * DW_OUT_WIDTH + column;
#pragma unroll
    for (int i = 0; i < DEPTHWISE_TALL; i++) {
        if (row + i < DW_OUT_HEIGHT) {
            to[i * DW_OUT_WIDTH] = sums[i];
        }
    }
}
