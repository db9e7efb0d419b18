// Convolutions on tensor cores, in tf32: rows of a product are output channels, columns are results side by side, the depth is the
// input channels of one tap. A block brings the patch of the input that its 256 results need into shared memory once for a few channels, and
// all taps read it there, each at its own offset: no column matrix exists, and an element is copied once instead of once a tap.
//
// A transpose with strides falls into phases, one for each remainder of a result's place by the strides. A phase is an ordinary
// convolution with the taps that fit its remainder, so nothing is multiplied with the zeros between inputs.
//
// With EXACT an operand is two numbers in tf32, and three products have the accuracy of f32, as in product.cuh: PyTorch computes some
// convolutions in f32, those of three input channels and some with groups.
//
// Where there are no strides, and one or two axes, `wgmma` does the same faster: convolution_wide.cuh.
#include "common.cuh"
#if SEPARABLE
#include "depthwise.cuh"
#endif

#define THREADS 256
#define WARPS (THREADS / WARP)
// Columns of eight of a warp: 256 results by 8 warps.
#define COLUMNS 4
#define FRAGMENT (STEP_K == 8 ? 4 : 2)
// The lanes that copy a channel, and the numbers that each of them copies.
#define LANES (THREADS / STEP_K)
#define LOADS ((PATCH_HIGH * PATCH_WIDE + LANES - 1) / LANES)

#if TRANSPOSED
#define PHASES_D STRIDE_D
#define PHASES_H STRIDE_H
#define PHASES_W STRIDE_W
#define WALK_D 1
#define WALK_H 1
#define WALK_W 1
#else
#define PHASES_D 1
#define PHASES_H 1
#define PHASES_W 1
#define WALK_D STRIDE_D
#define WALK_H STRIDE_H
#define WALK_W STRIDE_W
#endif
#define TAPS (KERNEL_D * KERNEL_H * KERNEL_W)

__device__ inline float rounded(float x) {
#if EXACT
    return x;
#endif
    // Half of the last bit that tensor cores look at; they ignore the rest. One addition, where `cvt.rna.tf32` takes several clocks.
    return __uint_as_float(__float_as_uint(x) + 0x1000u);
}

// Addresses of shared memory are 32 bits, counted here once: as pointers they would be 64, and each access would convert one.
__device__ inline unsigned shared_address(const void* pointer) {
    unsigned address;
    asm("{\n.reg .u64 a;\ncvta.to.shared.u64 a, %1;\ncvt.u32.u64 %0, a;\n}" : "=r"(address) : "l"(pointer));
    return address;
}

#if HOPPER
#include "convolution_wide.cuh"
#else

// Weights as the lanes of a fragment have them, rounded once: a lane then reads its part with one load.
extern "C" __global__ void __launch_bounds__(256) arrange(const float* __restrict__ weight, float* __restrict__ fragments) {
    int at = blockIdx.x * 256 + threadIdx.x;
    if (at >= GROUPS * ROW_BLOCKS * CHUNKS * TAPS * TALL * WARP) {
        return;
    }
    float* to = fragments + (long long)at * FRAGMENT;
    const int lane = at % WARP;
    at /= WARP;
    const int tile = at % TALL;
    at /= TALL;
    const int tap = at % TAPS;
    at /= TAPS;
    const int chunk = at % CHUNKS;
    at /= CHUNKS;
    const int row_block = at % ROW_BLOCKS, part = at / ROW_BLOCKS;
#pragma unroll
    for (int i = 0; i < FRAGMENT; i++) {
        const int output = (row_block * TALL + tile) * 16 + lane / 4 + 8 * (i % 2);
        const int input = chunk * STEP_K + lane % 4 + 4 * (i / 2);
        float value = 0.0f;
        if (output < OUTPUTS && input < INPUTS) {
#if TRANSPOSED
            value = weight[((long long)(part * INPUTS + input) * OUTPUTS + output) * TAPS + tap];
#else
            value = weight[((long long)(part * OUTPUTS + output) * INPUTS + input) * TAPS + tap];
#endif
        }
        to[i] = rounded(value);
    }
}

__device__ inline void multiply(float (&c)[4], const float (&a)[FRAGMENT], const float (&b)[STEP_K / 4]) {
#if STEP_K == 8
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])),
          "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
#else
    asm("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(b[0])));
#endif
}

#if EXACT
// What is left of a number without the part of it that tensor cores look at; `x` becomes that part.
__device__ inline float split(float& x) {
    const unsigned large = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
    const float small = __fsub_rn(x, __uint_as_float(large));
    x = __uint_as_float(large);
    return small;
}
#endif

__device__ inline void copy_async(unsigned to, const float* from, bool there) {
    const int bytes = there ? 4 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

__device__ inline float shared_load(unsigned from) {
    float value;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(from));
    return value;
}

// Of the results r, r + phases, … of a phase, which taps count, and where the input of tap k is, from that of the result's number:
// (r + padding - k * dilation) / stride, if that is whole.
struct Axis {
    int phase, padding, dilation, phases;
    __device__ inline bool has(int tap) const { return (phase + padding - tap * dilation) % phases == 0; }
    __device__ inline int offset(int tap) const { return (phase + padding - tap * dilation) / phases; }
};

// Floor of a quotient with a positive divisor.
__device__ constexpr int floor_div(int a, int b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }

#if TRANSPOSED
#define OFFSET(axis, tap) axis.offset(tap)
#define HAS(axis, tap) axis.has(tap)
// The leftmost input that a phase needs, for the result with number zero.
#define LEAST(padding, kernel, dilation, phases, phase) floor_div(phase + padding - (kernel - 1) * dilation, phases)
#else
#define OFFSET(axis, tap) ((tap) * axis.dilation - axis.padding)
#define HAS(axis, tap) true
#define LEAST(padding, kernel, dilation, phases, phase) (-(padding))
#endif

extern "C" __global__ void __launch_bounds__(THREADS, 2) convolution(const float* __restrict__ x, const float* __restrict__ fragments,
    const float* __restrict__ bias, float* __restrict__ y) {
    extern __shared__ float patches[];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, group = lane / 4, turn = lane % 4;
    const int part = blockIdx.y / ROW_BLOCKS, row_block = blockIdx.y % ROW_BLOCKS;
    const long long image = blockIdx.z;
    constexpr int across = ((OUT_WIDTH + PHASES_W - 1) / PHASES_W + WIDE - 1) / WIDE;
    constexpr int down = ((OUT_HEIGHT + PHASES_H - 1) / PHASES_H + HIGH - 1) / HIGH;
    // Blocks whose results lie between each other's run at a time, so that the L2 cache makes whole lines of them.
    int block = blockIdx.x;
    const Axis in_width = {block % PHASES_W, PADDING_W, DILATION_W, PHASES_W};
    block /= PHASES_W;
    const Axis in_height = {block % PHASES_H, PADDING_H, DILATION_H, PHASES_H};
    block /= PHASES_H;
    const Axis in_depth = {block % PHASES_D, PADDING_D, DILATION_D, PHASES_D};
    block /= PHASES_D;
    const int column = block % across * WIDE;
    block /= across;
    const int row = block % down * HIGH;
    const int layer = block / down;
    const int least_h = LEAST(PADDING_H, KERNEL_H, DILATION_H, PHASES_H, in_height.phase);
    const int least_w = LEAST(PADDING_W, KERNEL_W, DILATION_W, PHASES_W, in_width.phase);
    const int top = row * WALK_H + least_h, left = column * WALK_W + least_w;
    const float* input = x + (image * GROUPS + part) * (long long)INPUTS * DEPTH * HEIGHT * WIDTH;
    const float* weights = fragments + (long long)blockIdx.y * CHUNKS * TAPS * TALL * WARP * FRAGMENT + lane * FRAGMENT;

    float sums[TALL][COLUMNS][4];
#pragma unroll
    for (int i = 0; i < TALL * COLUMNS * 4; i++) {
        sums[i / (COLUMNS * 4)][i / 4 % COLUMNS][i % 4] = 0.0f;
    }
    // Where the patch has each column of eight of the warp, in bytes.
    unsigned places[COLUMNS];
#pragma unroll
    for (int i = 0; i < COLUMNS; i++) {
        const int at = (warp * COLUMNS + i) * 8;
        places[i] = 4 * (at / WIDE * WALK_H * PATCH_WIDE + (at % WIDE + group) * WALK_W + turn * PITCH);
    }

    const unsigned base = shared_address(patches);
    // A warp (or two) copies a channel of the patch. Where a lane's numbers are within a layer does not change from stage to stage.
    const int own = threadIdx.x / LANES, first = threadIdx.x % LANES;
#if LOADS <= 16
    int offsets[LOADS];
    unsigned inside = 0;
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        const int at = first + i * LANES, u = left + at % PATCH_WIDE, v = top + at / PATCH_WIDE;
        const bool there = at < PATCH_HIGH * PATCH_WIDE && (unsigned)v < HEIGHT && (unsigned)u < WIDTH;
        offsets[i] = there ? v * WIDTH + u : 0;
        inside |= there ? 1u << i : 0u;
    }
#endif

    // A stage is a few channels of one layer of the input.
    int next_chunk = 0, next_kd = 0;
    auto fetch = [&](int stage) {
        if (stage < CHUNKS * KERNEL_D) {
            const int chunk = next_chunk, kd = next_kd;
            next_kd = kd + 1 == KERNEL_D ? 0 : kd + 1;
            next_chunk += kd + 1 == KERNEL_D;
            const int z = layer * WALK_D + OFFSET(in_depth, kd), channel = chunk * STEP_K + own;
            const unsigned to = base + 4 * (stage % 2 * STEP_K * PITCH + own * PITCH + first);
            if (HAS(in_depth, kd) && (unsigned)z < DEPTH) {
                const bool channel_there = INPUTS % STEP_K == 0 || channel < INPUTS;
                const float* from = input + ((long long)(channel_there ? channel : 0) * DEPTH + z) * (HEIGHT * WIDTH);
#if LOADS > 16 && PATCH_HIGH == 1
#pragma unroll 8
                for (int at = first; at < PATCH_WIDE; at += LANES) {
                    const int u = left + at;
                    const bool there = channel_there && (unsigned)top < HEIGHT && (unsigned)u < WIDTH;
                    copy_async(to + 4 * (at - first), from + (there ? top * WIDTH + u : 0), there);
                }
#elif LOADS <= 16
#pragma unroll
                for (int i = 0; i < LOADS; i++) {
                    if (i + 1 < LOADS || first + i * LANES < PATCH_HIGH * PATCH_WIDE) {
                        copy_async(to + 4 * i * LANES, from + offsets[i], channel_there && (inside >> i & 1));
                    }
                }
#else
#pragma unroll 4
                for (int at = first; at < PATCH_HIGH * PATCH_WIDE; at += LANES) {
                    const int u = left + at % PATCH_WIDE, v = top + at / PATCH_WIDE;
                    const bool there = channel_there && (unsigned)v < HEIGHT && (unsigned)u < WIDTH;
                    copy_async(to + 4 * (at - first), from + (there ? v * WIDTH + u : 0), there);
                }
#endif
            }
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    // Where strides and dilations have a common divisor, some phases have no taps, and their results are zeros.
    bool some = false, some_high = false;
#pragma unroll
    for (int kw = 0; kw < KERNEL_W; kw++) {
        some |= HAS(in_width, kw);
    }
#pragma unroll
    for (int kh = 0; kh < KERNEL_H; kh++) {
        some_high |= HAS(in_height, kh);
    }
    const int stages = some && some_high ? CHUNKS * KERNEL_D : 0;
    fetch(0);
    int chunk = 0, kd = -1;
    for (int stage = 0; stage < stages; stage++) {
        chunk += kd + 1 == KERNEL_D;
        kd = kd + 1 == KERNEL_D ? 0 : kd + 1;
        fetch(stage + 1);
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        __syncthreads();
        const int z = layer * WALK_D + OFFSET(in_depth, kd);
        if (HAS(in_depth, kd) && (unsigned)z < DEPTH) {
            const unsigned patch = base + 4 * (stage % 2 * STEP_K * PITCH);
            const float* stage_weights = weights + (chunk * TAPS + kd * KERNEL_H * KERNEL_W) * TALL * WARP * FRAGMENT;
#pragma unroll 1
            for (int kh = 0; kh < KERNEL_H; kh++) {
                if (!HAS(in_height, kh)) {
                    continue;
                }
                const unsigned line = patch + 4 * (OFFSET(in_height, kh) - least_h) * PATCH_WIDE;
#pragma unroll
                for (int kw = 0; kw < KERNEL_W; kw++) {
                    if (!HAS(in_width, kw)) {
                        continue;
                    }
                    const unsigned tap = line + 4 * (OFFSET(in_width, kw) - least_w);
                    float b[COLUMNS][STEP_K / 4];
#pragma unroll
                    for (int i = 0; i < COLUMNS; i++) {
#pragma unroll
                        for (int k = 0; k < STEP_K / 4; k++) {
                            b[i][k] = rounded(shared_load(tap + places[i] + 16 * k * PITCH));
                        }
                    }
#if EXACT
                    float small_b[COLUMNS][STEP_K / 4];
#pragma unroll
                    for (int i = 0; i < COLUMNS * STEP_K / 4; i++) {
                        small_b[i / (STEP_K / 4)][i % (STEP_K / 4)] = split(b[i / (STEP_K / 4)][i % (STEP_K / 4)]);
                    }
#endif
#pragma unroll
                    for (int tile = 0; tile < TALL; tile++) {
                        const float* from = stage_weights + ((kh * KERNEL_W + kw) * TALL + tile) * WARP * FRAGMENT;
                        float a[FRAGMENT];
#if STEP_K == 8
                        const float4 v = __ldg(reinterpret_cast<const float4*>(from));
                        a[0] = v.x, a[1] = v.y, a[2] = v.z, a[3] = v.w;
#else
                        const float2 v = __ldg(reinterpret_cast<const float2*>(from));
                        a[0] = v.x, a[1] = v.y;
#endif
#if EXACT
                        float small_a[FRAGMENT];
#pragma unroll
                        for (int i = 0; i < FRAGMENT; i++) {
                            small_a[i] = split(a[i]);
                        }
#pragma unroll
                        for (int i = 0; i < COLUMNS; i++) {
                            // Tensor cores round sums towards zero: they add up one tap, and ordinary additions the taps.
                            float fresh[4] = {};
                            multiply(fresh, small_a, b[i]);
                            multiply(fresh, a, small_b[i]);
                            multiply(fresh, a, b[i]);
#pragma unroll
                            for (int k = 0; k < 4; k++) {
                                sums[tile][i][k] += fresh[k];
                            }
                        }
#else
#pragma unroll
                        for (int i = 0; i < COLUMNS; i++) {
                            multiply(sums[tile][i], a, b[i]);
                        }
#endif
                    }
                }
            }
        }
        __syncthreads();
    }

    // Through shared memory, so that a warp writes 32 results side by side.
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    constexpr int pitch = 32 + 4;
    float* written = patches + warp * 16 * pitch;
    const int z = layer * PHASES_D + in_depth.phase;
    const int at = warp * COLUMNS * 8 + lane;
    const int v = (row + at / WIDE) * PHASES_H + in_height.phase, u = (column + at % WIDE) * PHASES_W + in_width.phase;
    const bool there = z < OUT_DEPTH && v < OUT_HEIGHT && u < OUT_WIDTH;
#pragma unroll
    for (int tile = 0; tile < TALL; tile++) {
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                *reinterpret_cast<float2*>(written + (group + 8 * half) * pitch + i * 8 + 2 * turn) =
                    make_float2(sums[tile][i][2 * half], sums[tile][i][2 * half + 1]);
            }
        }
        __syncwarp();
        const int output = (row_block * TALL + tile) * 16;
        float* to = y + (((image * GROUPS + part) * OUTPUTS + output) * OUT_DEPTH + z) * (long long)(OUT_HEIGHT * OUT_WIDTH) +
            (long long)v * OUT_WIDTH + u;
#pragma unroll
        for (int i = 0; i < 16; i++) {
            if (there && (OUTPUTS % (16 * TALL) == 0 || output + i < OUTPUTS)) {
#if BIAS
                const float term = bias[part * OUTPUTS + output + i];
#else
                const float term = 0.0f;
#endif
                __stcs(to + (long long)i * OUT_DEPTH * (OUT_HEIGHT * OUT_WIDTH), written[i * pitch + lane] + term);
            }
        }
        __syncwarp();
    }
}
#endif
