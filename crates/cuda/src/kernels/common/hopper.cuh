// Hopper's own instructions: TMA (the tensor memory accelerator, which copies boxes of tensors), the mbarriers that
// count its bytes, and wgmma, the matrix products of a warpgroup (four warps, 128 threads) on operands in shared
// memory. Wrappers are named after their instructions.
#pragma once
#include "matrix.cuh"

// A tensor map, the descriptor of a tensor for TMA. A kernel takes it as `const __grid_constant__ TensorMap`.
struct alignas(64) TensorMap {
    u64 opaque[16];
};

// ---- mbarriers, which count arrivals and bytes: 8 bytes of shared memory, aligned to 8, given by their address. ----

// Initialises an mbarrier whose phase ends after `arrivals` arrivals and all expected bytes. One thread does this, then
// calls `fence_mbarrier_init`; then the block synchronises.
__device__ __forceinline__ void mbarrier_init(u32 barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialised mbarriers visible to TMA.
__device__ __forceinline__ void fence_mbarrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives at an mbarrier of any block of the cluster, whose address `mapa` gave. It says that shared memory has been read, by
// wgmmas that were waited for: nothing was written that another block would have to see. With `.release.cluster` it would wait
// until all of the chip sees this thread's writes (`MEMBAR.ALL.GPU`), in every step of a loop.
__device__ __forceinline__ void mbarrier_arrive_cluster(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives, and expects so many more bytes from TMA in this phase.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Waits until the phase of a parity has completed: 0 for the first, 1 for the second, then 0 again. Waiting for parity
// 1 on a new mbarrier returns at once, so that a ring of free slots needs no first arrival.
__device__ __forceinline__ void mbarrier_wait_parity(u32 barrier, u32 parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra over;\n"
        "bra again;\n"
        "over:\n"
        "}\n" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

// ---- TMA loads: one thread copies a box of a tensor into shared memory. ----
// The destination is aligned to 128 bytes, or to 1024 if the map swizzles 128. Coordinates are those of the box's first
// element, the innermost axis first. What lies outside the tensor, before or after it, becomes zeros; the mbarrier
// counts the bytes of the whole box anyway.

__device__ __forceinline__ void prefetch_tensormap(const TensorMap &map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

__device__ __forceinline__ void tma_load_2d(u32 to, const TensorMap &map, u32 barrier, int c0, int c1) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
            to),
        "l"(&map), "r"(barrier), "r"(c0), "r"(c1)
        : "memory");
}

__device__ __forceinline__ void tma_load_3d(u32 to, const TensorMap &map, u32 barrier, int c0, int c1, int c2) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
        "[%2];" ::"r"(to),
        "l"(&map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2)
        : "memory");
}

__device__ __forceinline__ void tma_load_4d(u32 to, const TensorMap &map, u32 barrier, int c0, int c1, int c2, int c3) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
        "[%2];" ::"r"(to),
        "l"(&map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
        : "memory");
}

// The same for every block of the cluster whose bit is set in `blocks`: the box, and the bytes at the mbarrier, come to each at the
// place that the addresses have in this block.
__device__ __forceinline__ void tma_load_4d_multicast(u32 to, const TensorMap &map, u32 barrier, int c0, int c1, int c2,
                                                      int c3, u16 blocks) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
        "[%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(to),
        "l"(&map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "h"(blocks)
        : "memory");
}

__device__ __forceinline__ void tma_load_5d(u32 to, const TensorMap &map, u32 barrier, int c0, int c1, int c2, int c3,
                                            int c4) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], "
        "[%2];" ::"r"(to),
        "l"(&map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
        : "memory");
}

// Makes what this thread wrote to shared memory through the generic proxy visible to TMA and wgmma (the async proxy).
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- Warp specialisation: producer and consumer warpgroups. ----

// Whether the registers that a block starts with suffice for a producer and so many consumer warpgroups, in registers of a thread.
// Otherwise setmaxnreg waits for ever.
constexpr bool registers_suffice(int consumers, int producer, int consumer) {
    const int warpgroups = consumers + 1, at_start = 65536 / (128 * warpgroups) / 8 * 8;
    return producer + consumers * consumer <= warpgroups * at_start;
}

// Releases registers, or requests more: all threads of a warpgroup, in a kernel with launch bounds. The number is a
// multiple of 8.
template <int count>
__device__ __forceinline__ void setmaxnreg_dec() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}
template <int count>
__device__ __forceinline__ void setmaxnreg_inc() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}

// A named barrier of `threads` threads of the block, by number, 1 to 15: 0 is `__syncthreads`.
__device__ __forceinline__ void named_barrier_sync(int number, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// Arrives at such a barrier without waiting for it.
__device__ __forceinline__ void named_barrier_arrive(int number, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// ---- Products of a warpgroup. ----

// The matrix descriptor of an operand with the 128-byte swizzle. Its atoms are 8 rows of 128 bytes, 1024 together,
// aligned to that.
//
// K-major (64 elements of the depth a row, 128 of e4m3; rows are rows of a, or columns of b): `stride` is the bytes
// from 8 rows to the next 8, `leading` is not used, and a step of 16 in depth, 32 of e4m3, is 32 bytes further.
// MN-major (b transposed: a row is one depth, 64 columns long): `stride` is the bytes from 8 depths to the next 8,
// `leading` those from 64 columns to the next 64, and a step of 16 in depth is two atoms further.
__device__ __forceinline__ u64 wgmma_descriptor(u32 address, u32 leading, u32 stride) {
    return u64((address & 0x3ffffu) >> 4) | u64(leading >> 4) << 16 | u64(stride >> 4) << 32 | 1ull << 62;
}

// Needed before the first wgmma of a sequence, and again after a register of a sum or of an operand was touched.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Ends a group of wgmmas.
__device__ __forceinline__ void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until at most `pending` groups are unfinished. Only then may their sums and shared memory be touched.
template <int pending>
__device__ __forceinline__ void wgmma_wait_group() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// A compiler fence: keeps accesses to these registers from moving across it. Goes before the wgmmas, and after the
// wait.
template <int N>
__device__ __forceinline__ void pin_registers(float (&registers)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(registers[i])::"memory");
}
template <int N>
__device__ __forceinline__ void pin_registers(u32 (&registers)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+r"(registers[i])::"memory");
}

// sum = a · b, or sum += a · b if `add`, for a 64×16 and b 16×N, or 64×32 and 32×N of e4m3; N is a multiple of 8 up to
// 256. Thread i of the warpgroup holds of the sum rows 16 (i / 32) + i % 32 / 4 and 8 further, columns 8 j + 2 (i % 4)
// and the next: elements 4 j, 4 j + 1 of the upper row and 4 j + 2, 4 j + 3 of the lower. `a` lies in shared memory, or
// in registers in the layout of `mma_m16n8k16`, each warp with its 16 rows.
template <class T, int N>
struct WgmmaShape;

template <class T, int N, bool transposed_b = false>
__device__ __forceinline__ void wgmma_mma_async(float (&sum)[N / 2], u64 a, u64 b, bool add) {
    WgmmaShape<T, N>::template shared<transposed_b>(sum, a, b, add);
}
template <class T, int N, bool transposed_b = false>
__device__ __forceinline__ void wgmma_mma_async(float (&sum)[N / 2], const u32 (&a)[4], u64 b, bool add) {
    WgmmaShape<T, N>::template registers<transposed_b>(sum, a, b, add);
}

// The instruction names every register of the sum, so each N needs its own text. Only these lists differ.
#define SUM_NAMES_4 "%0, %1, %2, %3"
#define SUM_NAMES_8 SUM_NAMES_4 ", %4, %5, %6, %7"
#define SUM_NAMES_12 SUM_NAMES_8 ", %8, %9, %10, %11"
#define SUM_NAMES_16 SUM_NAMES_12 ", %12, %13, %14, %15"
#define SUM_NAMES_20 SUM_NAMES_16 ", %16, %17, %18, %19"
#define SUM_NAMES_24 SUM_NAMES_20 ", %20, %21, %22, %23"
#define SUM_NAMES_28 SUM_NAMES_24 ", %24, %25, %26, %27"
#define SUM_NAMES_32 SUM_NAMES_28 ", %28, %29, %30, %31"
#define SUM_NAMES_36 SUM_NAMES_32 ", %32, %33, %34, %35"
#define SUM_NAMES_40 SUM_NAMES_36 ", %36, %37, %38, %39"
#define SUM_NAMES_44 SUM_NAMES_40 ", %40, %41, %42, %43"
#define SUM_NAMES_48 SUM_NAMES_44 ", %44, %45, %46, %47"
#define SUM_NAMES_52 SUM_NAMES_48 ", %48, %49, %50, %51"
#define SUM_NAMES_56 SUM_NAMES_52 ", %52, %53, %54, %55"
#define SUM_NAMES_60 SUM_NAMES_56 ", %56, %57, %58, %59"
#define SUM_NAMES_64 SUM_NAMES_60 ", %60, %61, %62, %63"
#define SUM_NAMES_68 SUM_NAMES_64 ", %64, %65, %66, %67"
#define SUM_NAMES_72 SUM_NAMES_68 ", %68, %69, %70, %71"
#define SUM_NAMES_76 SUM_NAMES_72 ", %72, %73, %74, %75"
#define SUM_NAMES_80 SUM_NAMES_76 ", %76, %77, %78, %79"
#define SUM_NAMES_84 SUM_NAMES_80 ", %80, %81, %82, %83"
#define SUM_NAMES_88 SUM_NAMES_84 ", %84, %85, %86, %87"
#define SUM_NAMES_92 SUM_NAMES_88 ", %88, %89, %90, %91"
#define SUM_NAMES_96 SUM_NAMES_92 ", %92, %93, %94, %95"
#define SUM_NAMES_100 SUM_NAMES_96 ", %96, %97, %98, %99"
#define SUM_NAMES_104 SUM_NAMES_100 ", %100, %101, %102, %103"
#define SUM_NAMES_108 SUM_NAMES_104 ", %104, %105, %106, %107"
#define SUM_NAMES_112 SUM_NAMES_108 ", %108, %109, %110, %111"
#define SUM_NAMES_116 SUM_NAMES_112 ", %112, %113, %114, %115"
#define SUM_NAMES_120 SUM_NAMES_116 ", %116, %117, %118, %119"
#define SUM_NAMES_124 SUM_NAMES_120 ", %120, %121, %122, %123"
#define SUM_NAMES_128 SUM_NAMES_124 ", %124, %125, %126, %127"
#define SUM_4 "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
#define SUM_8 SUM_4, "+f"(sum[4]), "+f"(sum[5]), "+f"(sum[6]), "+f"(sum[7])
#define SUM_12 SUM_8, "+f"(sum[8]), "+f"(sum[9]), "+f"(sum[10]), "+f"(sum[11])
#define SUM_16 SUM_12, "+f"(sum[12]), "+f"(sum[13]), "+f"(sum[14]), "+f"(sum[15])
#define SUM_20 SUM_16, "+f"(sum[16]), "+f"(sum[17]), "+f"(sum[18]), "+f"(sum[19])
#define SUM_24 SUM_20, "+f"(sum[20]), "+f"(sum[21]), "+f"(sum[22]), "+f"(sum[23])
#define SUM_28 SUM_24, "+f"(sum[24]), "+f"(sum[25]), "+f"(sum[26]), "+f"(sum[27])
#define SUM_32 SUM_28, "+f"(sum[28]), "+f"(sum[29]), "+f"(sum[30]), "+f"(sum[31])
#define SUM_36 SUM_32, "+f"(sum[32]), "+f"(sum[33]), "+f"(sum[34]), "+f"(sum[35])
#define SUM_40 SUM_36, "+f"(sum[36]), "+f"(sum[37]), "+f"(sum[38]), "+f"(sum[39])
#define SUM_44 SUM_40, "+f"(sum[40]), "+f"(sum[41]), "+f"(sum[42]), "+f"(sum[43])
#define SUM_48 SUM_44, "+f"(sum[44]), "+f"(sum[45]), "+f"(sum[46]), "+f"(sum[47])
#define SUM_52 SUM_48, "+f"(sum[48]), "+f"(sum[49]), "+f"(sum[50]), "+f"(sum[51])
#define SUM_56 SUM_52, "+f"(sum[52]), "+f"(sum[53]), "+f"(sum[54]), "+f"(sum[55])
#define SUM_60 SUM_56, "+f"(sum[56]), "+f"(sum[57]), "+f"(sum[58]), "+f"(sum[59])
#define SUM_64 SUM_60, "+f"(sum[60]), "+f"(sum[61]), "+f"(sum[62]), "+f"(sum[63])
#define SUM_68 SUM_64, "+f"(sum[64]), "+f"(sum[65]), "+f"(sum[66]), "+f"(sum[67])
#define SUM_72 SUM_68, "+f"(sum[68]), "+f"(sum[69]), "+f"(sum[70]), "+f"(sum[71])
#define SUM_76 SUM_72, "+f"(sum[72]), "+f"(sum[73]), "+f"(sum[74]), "+f"(sum[75])
#define SUM_80 SUM_76, "+f"(sum[76]), "+f"(sum[77]), "+f"(sum[78]), "+f"(sum[79])
#define SUM_84 SUM_80, "+f"(sum[80]), "+f"(sum[81]), "+f"(sum[82]), "+f"(sum[83])
#define SUM_88 SUM_84, "+f"(sum[84]), "+f"(sum[85]), "+f"(sum[86]), "+f"(sum[87])
#define SUM_92 SUM_88, "+f"(sum[88]), "+f"(sum[89]), "+f"(sum[90]), "+f"(sum[91])
#define SUM_96 SUM_92, "+f"(sum[92]), "+f"(sum[93]), "+f"(sum[94]), "+f"(sum[95])
#define SUM_100 SUM_96, "+f"(sum[96]), "+f"(sum[97]), "+f"(sum[98]), "+f"(sum[99])
#define SUM_104 SUM_100, "+f"(sum[100]), "+f"(sum[101]), "+f"(sum[102]), "+f"(sum[103])
#define SUM_108 SUM_104, "+f"(sum[104]), "+f"(sum[105]), "+f"(sum[106]), "+f"(sum[107])
#define SUM_112 SUM_108, "+f"(sum[108]), "+f"(sum[109]), "+f"(sum[110]), "+f"(sum[111])
#define SUM_116 SUM_112, "+f"(sum[112]), "+f"(sum[113]), "+f"(sum[114]), "+f"(sum[115])
#define SUM_120 SUM_116, "+f"(sum[116]), "+f"(sum[117]), "+f"(sum[118]), "+f"(sum[119])
#define SUM_124 SUM_120, "+f"(sum[120]), "+f"(sum[121]), "+f"(sum[122]), "+f"(sum[123])
#define SUM_128 SUM_124, "+f"(sum[124]), "+f"(sum[125]), "+f"(sum[126]), "+f"(sum[127])

// N, the number of a thread's sums, and the numbers of the operands that follow them.
#define WGMMA_TYPE(T, N, R, R1, R2, R3, R4, R5, R6)                                                                    \
    template <>                                                                                                        \
    struct WgmmaShape<T, N> {                                                                                          \
        template <bool transposed_b>                                                                                   \
        static __device__ __forceinline__ void shared(float (&sum)[R], u64 a, u64 b, bool add) {                       \
            asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #R2                                                  \
                         ", 0;\n"                                                                                      \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #T "." #T " {" SUM_NAMES_##R                \
                         "}, %" #R ", %" #R1 ", add, 1, 1, 0, %" #R3 ";\n}\n"                                          \
                         : SUM_##R                                                                                     \
                         : "l"(a), "l"(b), "r"(int(add)), "n"(int(transposed_b)));                                     \
        }                                                                                                              \
        template <bool transposed_b>                                                                                   \
        static __device__ __forceinline__ void registers(float (&sum)[R], const u32 (&a)[4], u64 b, bool add) {        \
            asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #R5                                                  \
                         ", 0;\n"                                                                                      \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #T "." #T " {" SUM_NAMES_##R                \
                         "}, {%" #R ", %" #R1 ", %" #R2 ", %" #R3 "}, %" #R4 ", add, 1, 1, %" #R6 ";\n}\n"             \
                         : SUM_##R                                                                                     \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(add)), "n"(int(transposed_b))); \
        }                                                                                                              \
    };
// Of e4m3: both operands in shared memory, K-major. Their depth of 32 is as many bytes as 16 of the others.
#define WGMMA_E4M3(N, R, R1, R2, ...)                                                                                  \
    template <>                                                                                                        \
    struct WgmmaShape<e4m3, N> {                                                                                       \
        template <bool transposed_b>                                                                                   \
        static __device__ __forceinline__ void shared(float (&sum)[R], u64 a, u64 b, bool add) {                       \
            static_assert(!transposed_b, "only 16-bit operands can be transposed");                                    \
            asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #R2                                                  \
                         ", 0;\n"                                                                                      \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" SUM_NAMES_##R "}, %" #R ", %" #R1 \
                         ", add, 1, 1;\n}\n"                                                                           \
                         : SUM_##R                                                                                     \
                         : "l"(a), "l"(b), "r"(int(add)));                                                             \
        }                                                                                                              \
    };
#define WGMMA(...) WGMMA_TYPE(f16, __VA_ARGS__) WGMMA_TYPE(bf16, __VA_ARGS__) WGMMA_E4M3(__VA_ARGS__)
WGMMA(8, 4, 5, 6, 7, 8, 9, 10)
WGMMA(16, 8, 9, 10, 11, 12, 13, 14)
WGMMA(24, 12, 13, 14, 15, 16, 17, 18)
WGMMA(32, 16, 17, 18, 19, 20, 21, 22)
WGMMA(40, 20, 21, 22, 23, 24, 25, 26)
WGMMA(48, 24, 25, 26, 27, 28, 29, 30)
WGMMA(56, 28, 29, 30, 31, 32, 33, 34)
WGMMA(64, 32, 33, 34, 35, 36, 37, 38)
WGMMA(72, 36, 37, 38, 39, 40, 41, 42)
WGMMA(80, 40, 41, 42, 43, 44, 45, 46)
WGMMA(88, 44, 45, 46, 47, 48, 49, 50)
WGMMA(96, 48, 49, 50, 51, 52, 53, 54)
WGMMA(104, 52, 53, 54, 55, 56, 57, 58)
WGMMA(112, 56, 57, 58, 59, 60, 61, 62)
WGMMA(120, 60, 61, 62, 63, 64, 65, 66)
WGMMA(128, 64, 65, 66, 67, 68, 69, 70)
WGMMA(136, 68, 69, 70, 71, 72, 73, 74)
WGMMA(144, 72, 73, 74, 75, 76, 77, 78)
WGMMA(152, 76, 77, 78, 79, 80, 81, 82)
WGMMA(160, 80, 81, 82, 83, 84, 85, 86)
WGMMA(168, 84, 85, 86, 87, 88, 89, 90)
WGMMA(176, 88, 89, 90, 91, 92, 93, 94)
WGMMA(184, 92, 93, 94, 95, 96, 97, 98)
WGMMA(192, 96, 97, 98, 99, 100, 101, 102)
WGMMA(200, 100, 101, 102, 103, 104, 105, 106)
WGMMA(208, 104, 105, 106, 107, 108, 109, 110)
WGMMA(216, 108, 109, 110, 111, 112, 113, 114)
WGMMA(224, 112, 113, 114, 115, 116, 117, 118)
WGMMA(232, 116, 117, 118, 119, 120, 121, 122)
WGMMA(240, 120, 121, 122, 123, 124, 125, 126)
WGMMA(248, 124, 125, 126, 127, 128, 129, 130)
WGMMA(256, 128, 129, 130, 131, 132, 133, 134)
#undef WGMMA
#undef WGMMA_TYPE
#undef WGMMA_E4M3
