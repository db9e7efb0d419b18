// Convolutions over one or two axes, by `wgmma` of Hopper: here rows of the product are results side by side and columns are
// output channels. The instruction takes its rows from registers, so the patch of the input may lie in shared memory as the input itself
// does; a thread has neighbouring results, whose taps are neighbours as well, and reads each number once for all taps of a line. Columns
// come from shared memory, where they lie as the instruction wants them, because `arrange_wide` wrote them so.
// A transpose without strides is such a convolution with its taps in reverse.

#define WIDE_THREADS 256
#if TRANSPOSED
#define STEP_H 1
#define STEP_W 1
#else
#define STEP_H STRIDE_H
#define STEP_W STRIDE_W
#endif
// Warpgroups have 64 rows a tile, and two of them fill a block.
#define PIXELS (128 * TILES)
// The results side by side of a thread.
#define NEAR (2 * TILES)
#define CHANNELS (8 * SUBS)
#define STAGES ((INPUTS + CHANNELS - 1) / CHANNELS)
// A line of taps of all channels of a stage, in numbers.
#define LINE (SUBS * KERNEL_W * 8 * OUTS)
// Taps whose operands are in registers at a time: fewer if they share less of them.
#define AT_ONCE (DILATION_W > 1 || STEP_W > 1 ? 2 : 4)
#define LANES_OF (WIDE_THREADS / CHANNELS)
#define PIECES (PATCH_HIGH * PATCH_WIDE / PIECE)
#define COPIES ((PIECES + LANES_OF - 1) / LANES_OF)

extern "C" __global__ void __launch_bounds__(256) arrange_wide(const float* __restrict__ weight, float* __restrict__ lines) {
    const int index = blockIdx.x * 256 + threadIdx.x;
    if (index >= GROUPS * ROW_BLOCKS * STAGES * KERNEL_H * LINE) {
        return;
    }
    int at = index;
    const int k = at % 4;
    at /= 4;
    const int n = at % OUTS;
    at /= OUTS;
    const int upper = at % 2;
    at /= 2;
    const int kw = at % KERNEL_W;
    at /= KERNEL_W;
    const int sub = at % SUBS;
    at /= SUBS;
    const int kh = at % KERNEL_H;
    at /= KERNEL_H;
    const int stage = at % STAGES;
    at /= STAGES;
    const int row_block = at % ROW_BLOCKS, part = at / ROW_BLOCKS;
    const int output = row_block * OUTS + n, input = (stage * SUBS + sub) * 8 + upper * 4 + k;
    float value = 0.0f;
    if (output < OUTPUTS && input < INPUTS) {
#if TRANSPOSED
        value = weight[((long long)(part * INPUTS + input) * OUTPUTS + output) * TAPS + TAPS - 1 - (kh * KERNEL_W + kw)];
#else
        value = weight[((long long)(part * OUTPUTS + output) * INPUTS + input) * TAPS + kh * KERNEL_W + kw];
#endif
    }
    lines[index] = rounded(value);
}

template <int BYTES>
__device__ inline void copy_piece(unsigned to, const float* from, bool there) {
    const int bytes = there ? BYTES : 0;
    if (BYTES == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
    }
}

#define F4(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define F16(i) F4(i), F4(i + 4), F4(i + 8), F4(i + 12)
#define NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define NAMES_32 NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_64                                                                                                                          \
    NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, " \
             "%56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA(N, NAMES, A0, A1, A2, A3, B, ...)                                                                                      \
    asm volatile("{\n.reg .pred add;\nsetp.eq.u32 add, 0, 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k8.f32.tf32.tf32 {" NAMES "}, {%" #A0 \
                 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B ", add, 1, 1;\n}"                                                             \
                 : __VA_ARGS__                                                                                                         \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

// c += a · b, which goes on until it is waited for.
__device__ inline void multiply_wide(float (&c)[OUTS / 2], const unsigned (&a)[4], unsigned long long b) {
#if OUTS == 32
    WGMMA(32, NAMES_16, 16, 17, 18, 19, 20, F16(0));
#elif OUTS == 64
    WGMMA(64, NAMES_32, 32, 33, 34, 35, 36, F16(0), F16(16));
#else
    WGMMA(128, NAMES_64, 64, 65, 66, 67, 68, F16(0), F16(16), F16(32), F16(48));
#endif
}

// The compiler must not move what it does with these numbers past this point.
__device__ inline void pin(float (&c)[TILES][OUTS / 2]) {
#pragma unroll
    for (int i = 0; i < TILES * OUTS / 2; i++) {
        asm volatile("" : "+f"(c[i / (OUTS / 2)][i % (OUTS / 2)])::"memory");
    }
}

// NEAR neighbouring numbers, of which the first is at a multiple of as many.
__device__ inline void load_near(unsigned (&to)[NEAR], unsigned from) {
#if NEAR == 4
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from));
#else
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "r"(from));
#endif
}

extern "C" __global__ void __launch_bounds__(WIDE_THREADS, TILES * OUTS > 128 ? 1 : 2) convolution_wide(const float* __restrict__ x,
    const float* __restrict__ lines, float* __restrict__ y) {
    extern __shared__ float4 memory[];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, group = lane / 4, turn = lane % 4;
    const int part = blockIdx.y;
    const long long image = blockIdx.z;
    // Blocks that need the same patch run at a time.
    const int row_block = blockIdx.x % ROW_BLOCKS, block = blockIdx.x / ROW_BLOCKS;
    constexpr int across = (OUT_WIDTH + WIDE - 1) / WIDE;
    const int column = block % across * WIDE, row = block / across * HIGH;
    // Patches begin at a multiple of four.
    constexpr int shift = (-(REACH_LEFT) % 4 + 4) % 4;
    const int top = row * STEP_H - (REACH_TOP), left = column * STEP_W - (REACH_LEFT) - shift;
    const float* input = x + (image * GROUPS + part) * (long long)INPUTS * (HEIGHT * WIDTH);
    const float* weights = lines + (long long)(part * ROW_BLOCKS + row_block) * (STAGES * KERNEL_H * LINE);

    const unsigned patches = shared_address(memory);
    const unsigned columns = patches + 4 * 2 * CHANNELS * PITCH;

    // A few lanes copy a channel of the patch. Where a lane's pieces are within a channel does not change from stage to stage.
    const int own = threadIdx.x / LANES_OF, first = threadIdx.x % LANES_OF;
    auto copy_patch = [&](int stage) {
        const int channel = stage * CHANNELS + own;
        const bool channel_there = INPUTS % CHANNELS == 0 || channel < INPUTS;
        const float* from = input + (long long)(channel_there ? channel : 0) * (HEIGHT * WIDTH);
        const unsigned to = patches + 4 * ((stage % 2 * CHANNELS + own) * PITCH);
#pragma unroll
        for (int i = 0; i < COPIES; i++) {
            const int piece = first + i * LANES_OF;
            const int u = left + piece * PIECE % PATCH_WIDE, v = top + piece * PIECE / PATCH_WIDE;
            const bool there = channel_there && (unsigned)v < HEIGHT && (unsigned)u < WIDTH;
            if (PIECES % LANES_OF == 0 || piece < PIECES) {
                copy_piece<4 * PIECE>(to + 4 * PIECE * piece, from + (there ? v * WIDTH + u : 0), there);
            }
        }
    };
#if ENGINE
    // A line is copied by the copy engine, which `wgmma` reads after without a fence, and which one thread starts.
    __shared__ unsigned long long landed[SLOTS];
    auto copy_line = [&](int line) {
        const unsigned to = columns + 4 * (line % SLOTS * LINE), barrier = shared_address(landed + line % SLOTS);
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "n"(4 * LINE) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                     "l"(weights + (long long)line * LINE), "n"(4 * LINE), "r"(barrier)
                     : "memory");
    };
    auto wait_line = [&](int line) {
        asm volatile("{\n.reg .pred done;\nAGAIN_%=:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra AGAIN_%=;\n}" ::"r"(
                         shared_address(landed + line % SLOTS)),
                     "r"(line / SLOTS & 1)
                     : "memory");
    };

#else
    // By all threads, which then need no barrier of their own for it: a stage of one line waits for its patch anyway.
    auto copy_line = [&](int line) {
        const float* from = weights + (long long)line * LINE;
        const unsigned to = columns + 4 * (line % SLOTS * LINE);
#pragma unroll
        for (int i = 0; i < (LINE / 4 + WIDE_THREADS - 1) / WIDE_THREADS; i++) {
            const int at = (i * WIDE_THREADS + threadIdx.x) * 4;
            if (LINE / 4 % WIDE_THREADS == 0 || at < LINE) {
                copy_piece<16>(to + 4 * at, from + at, true);
            }
        }
    };
#endif

    float sums[TILES][OUTS / 2];
#pragma unroll
    for (int i = 0; i < TILES * OUTS / 2; i++) {
        sums[i / (OUTS / 2)][i % (OUTS / 2)] = 0.0f;
    }
    const int at = warp * 16 * TILES + NEAR * group;
    const unsigned place = 4 * (turn * PITCH + at / WIDE * STEP_H * PATCH_WIDE + at % WIDE * STEP_W);
    // The offsets between pieces of four along the depth, and between eights of columns.
    constexpr unsigned long long layout = (unsigned long long)OUTS << 16 | 8ull << 32;

#if ENGINE
    if (threadIdx.x == 0) {
        for (int i = 0; i < SLOTS; i++) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(landed + i)) : "memory");
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        for (int line = 0; line < SLOTS - 1 && line < STAGES * KERNEL_H; line++) {
            copy_line(line);
        }
    }
    copy_patch(0);
#else
    static_assert(KERNEL_H == 1 && SLOTS == 2, "a line a stage");
    copy_patch(0);
    copy_line(0);
#endif
    int stage = 0, kh = 0;
    for (int line = 0; line < STAGES * KERNEL_H; line++) {
        if (kh == 0) {
            asm volatile("cp.async.wait_all;" ::: "memory");
#if !ENGINE
            // What threads have copied is for `wgmma` to see.
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
        }
        // The patch has landed for all, and all have multiplied with what is overwritten next.
        __syncthreads();
        if ((!ENGINE || threadIdx.x == 0) && line + SLOTS - 1 < STAGES * KERNEL_H) {
            copy_line(line + SLOTS - 1);
        }
        if (kh == 0 && stage + 1 < STAGES) {
            copy_patch(stage + 1);
        }

        const unsigned patch = patches + 4 * (stage % 2 * CHANNELS * PITCH + kh * DILATION_H * PATCH_WIDE) + place;
        const unsigned slot = columns + 4 * (line % SLOTS * LINE);
#pragma unroll
        for (int sub = 0; sub < SUBS; sub++) {
#pragma unroll
            for (int begin = 0; begin < KERNEL_W; begin += AT_ONCE) {
                constexpr int most = (AT_ONCE < KERNEL_W ? AT_ONCE : KERNEL_W) - 1;
                // The numbers that these taps need, from a multiple of NEAR on.
                const int start = (shift + begin * DILATION_W) / NEAR * NEAR;
                const int last = shift + min(begin + most, KERNEL_W - 1) * DILATION_W + (NEAR - 1) * STEP_W + 1;
                constexpr int pieces = (3 + most * DILATION_W + (NEAR - 1) * STEP_W + NEAR) / NEAR;
                unsigned window[2][pieces][NEAR];
#pragma unroll
                for (int upper = 0; upper < 2; upper++) {
#pragma unroll
                    for (int i = 0; i < pieces; i++) {
                        if (start + i * NEAR < last) {
                            load_near(window[upper][i], patch + 4 * ((sub * 8 + upper * 4) * PITCH + start + i * NEAR));
                        }
                    }
                }
                // Rounded to tf32, two neighbours of two channels each, in the order of the instruction.
                unsigned rows[most + 1][TILES][4];
#pragma unroll
                for (int tap = 0; tap <= most; tap++) {
#pragma unroll
                    for (int tile = 0; tile < TILES; tile++) {
#pragma unroll
                        for (int i = 0; i < 4; i++) {
                            if (begin + tap < KERNEL_W) {
                                const int from = shift + (begin + tap) * DILATION_W + (2 * tile + i % 2) * STEP_W - start;
                                rows[tap][tile][i] = window[i / 2][from / NEAR][from % NEAR] + 0x1000u;
                            }
                        }
                    }
                }
#if ENGINE
                if (sub == 0 && begin == 0) {
                    wait_line(line);
                }
#endif
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                for (int tap = 0; tap <= most; tap++) {
                    if (begin + tap < KERNEL_W) {
                        const unsigned from = slot + 4 * ((sub * KERNEL_W + begin + tap) * 8 * OUTS);
#pragma unroll
                        for (int tile = 0; tile < TILES; tile++) {
                            multiply_wide(sums[tile], rows[tap][tile], layout | (from >> 4 & 0x3fff));
                        }
                    }
                }
                asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
            }
        }
        kh = kh + 1 == KERNEL_H ? 0 : kh + 1;
        stage += kh == 0;
    }
    pin(sums);

    float* to = y + ((image * GROUPS + part) * OUTPUTS + row_block * OUTS) * (long long)(OUT_HEIGHT * OUT_WIDTH);
#if OUT_WIDTH % NEAR == 0 || TILES == 1
    // A thread's results are side by side in memory: eight threads write 128 bytes, or 64, of a channel.
    const int v = row + at / WIDE, u = column + at % WIDE;
#pragma unroll
    for (int i = 0; i < OUTS / 4; i++) {
        const int output = i / 2 * 8 + 2 * turn + i % 2;
        float values[NEAR];
#pragma unroll
        for (int j = 0; j < NEAR; j++) {
            values[j] = sums[j / 2][i / 2 * 4 + j % 2 * 2 + i % 2];
        }
        float* own_to = to + (long long)output * (OUT_HEIGHT * OUT_WIDTH) + v * OUT_WIDTH + u;
        if (v < OUT_HEIGHT && (OUTPUTS % OUTS == 0 || row_block * OUTS + output < OUTPUTS)) {
#if OUT_WIDTH % NEAR == 0 && NEAR == 4
            if (u < OUT_WIDTH) {
                __stcs(reinterpret_cast<float4*>(own_to), make_float4(values[0], values[1], values[2], values[3]));
            }
#elif OUT_WIDTH % NEAR == 0
            if (u < OUT_WIDTH) {
                __stcs(reinterpret_cast<float2*>(own_to), make_float2(values[0], values[1]));
            }
#else
#pragma unroll
            for (int j = 0; j < NEAR; j++) {
                if (u + j < OUT_WIDTH) {
                    __stcs(own_to + j, values[j]);
                }
            }
#endif
        }
    }
#else
    // Through shared memory, sixteen channels at a time, so that a warp writes 32 results side by side.
    __syncthreads();
    constexpr int pitch = 32 + 4;
    float* written = reinterpret_cast<float*>(memory) + warp * 16 * pitch;
    const int begin = warp * 32;
    float* line_to = to + (long long)(row + begin / WIDE) * OUT_WIDTH + column + begin % WIDE;
    constexpr int pair = OUT_WIDTH % 2 == 0 ? 2 : 1;
    const int within = lane * pair % 32, left_over = OUT_WIDTH - (column + begin % WIDE);
#pragma unroll
    for (int sixteen = 0; sixteen < OUTS / 16; sixteen++) {
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int from = (sixteen * 2 + i / 2) * 4 + i % 2;
            *reinterpret_cast<float4*>(written + (i / 2 * 8 + 2 * turn + i % 2) * pitch + 4 * group) =
                make_float4(sums[0][from], sums[0][from + 2], sums[1][from], sums[1][from + 2]);
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 16; i += pair) {
            const int channel = i + lane * pair / 32, output = sixteen * 16 + channel;
            const float* from = written + channel * pitch + within;
            float* own_to = line_to + (long long)output * (OUT_HEIGHT * OUT_WIDTH) + within;
            if (row + begin / WIDE < OUT_HEIGHT && within < left_over && (OUTPUTS % OUTS == 0 || row_block * OUTS + output < OUTPUTS)) {
                if (pair == 2) {
                    __stcs(reinterpret_cast<float2*>(own_to), *reinterpret_cast<const float2*>(from));
                } else {
                    __stcs(own_to, *from);
                }
            }
        }
    }
#endif
}
