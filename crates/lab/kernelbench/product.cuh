// Matrix products in single precision on tensor cores, which multiply tf32 (11 significant bits). Each operand is split into two such
// numbers, x = large + small, and large·large + large·small + small·large has the accuracy of f32: what is left out is smaller than 2⁻²².
// Tensor cores round their sums towards zero, which adds up over a deep product. So they sum only over 8 of the depth, and the
// rest is added by ordinary additions, which round to nearest. (Ootomo and Yokota, "Recovering single precision accuracy from
// Tensor Cores while surpassing the FP32 theoretical peak performance", 2022.)
// On an H200 three products at the rate of `mma.sync`, about 300 TFLOP/s, leave 100; FFMA has 67 at most, and cuBLAS reaches 51.
#include "common.cuh"

#define TILE_M 128
#define TILE_N 128
#define TILE_K 16
#define STAGES 4
#define PRODUCT_THREADS 256

// A tile lies as its matrix does. Rows are padded so that the lanes of a fragment meet 32 banks: 4 * (lane / 4) or 8 * (lane % 4).
#define ALONG_K (TILE_K + 4)
#define ACROSS_K (TILE_M + 8)
#define TILE_FLOATS (TILE_M * ALONG_K > TILE_K * ACROSS_K ? TILE_M * ALONG_K : TILE_K * ACROSS_K)
#define PRODUCT_SHARED (2 * STAGES * TILE_FLOATS * 4)

__device__ inline unsigned shared_address(const void* pointer) {
    unsigned address;
    asm("{\n.reg .u64 a;\ncvta.to.shared.u64 a, %1;\ncvt.u32.u64 %0, a;\n}" : "=r"(address) : "l"(pointer));
    return address;
}

// Copies BYTES, or zeros if it is not there. The address is not used then, but it must be one of the matrix.
template <int BYTES>
__device__ inline void copy_async(float* to, const float* from, bool there) {
    const int bytes = there ? BYTES : 0;
    if (BYTES == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes) : "memory");
    }
}
__device__ inline void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT>
__device__ inline void wait_all_but() { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory"); }

// A number as two that tensor cores can hold: 11 bits rounded to nearest, and the rest, whose last bits are ignored. Dekker's split needs three
// operations of the floating-point units, which have nothing else to do; `cvt.rna.tf32` runs on the units that count addresses.
// Beyond 2¹¹⁴ the product overflows: such numbers give NaN.
__device__ inline void split(float x, unsigned& large, unsigned& small) {
    // Fused into one operation, the product would not be rounded, `rounded` would be x, and nothing would be left for `small`.
    const float wide = __fmul_rn(x, 8193.0f);
    const float rounded = __fsub_rn(wide, __fsub_rn(wide, x));
    large = __float_as_uint(rounded);
    small = __float_as_uint(__fsub_rn(x, rounded));
}

__device__ inline void multiply(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Copies a tile of `lines` lines of WIDTH neighbouring numbers each, from a matrix with `rows` lines of `columns`.
template <int LINES, int WIDTH, int PITCH, int PIECE>
__device__ inline void copy_tile(float* to, const float* from, int row, int column, int rows, int columns) {
#pragma unroll
    for (int i = 0; i < LINES * WIDTH / PIECE; i += PRODUCT_THREADS) {
        const int at = (i + (int)threadIdx.x) * PIECE;
        const int line = at / WIDTH, place = at % WIDTH;
        const bool there = row + line < rows && column + place < columns;
        const long long offset = there ? (long long)(row + line) * columns + column + place : 0;
        copy_async<PIECE * 4>(to + line * PITCH + place, from + offset, there);
    }
}

struct Product {
    int m, n, k;
    // The part of the depth that counts: the rest is zeros (triangles), or another block's (splits).
    int k_begin, k_end;
    float factor;
    // How long the lines of `a` and `b` are in memory: what lies beyond the product is zeros.
    int left, right;
};

// c[row..][column..] = factor * a · b. LEFT_ACROSS: `a` is [k][m] in memory, otherwise [m][k]. RIGHT_ACROSS: `b` is [n][k], otherwise [k][n].
// KEPT: 1 or 2 keep what is on and above, or on and below the diagonal.
template <bool LEFT_ACROSS, bool RIGHT_ACROSS, int LEFT_VECTOR, int RIGHT_VECTOR, int KEPT>
__device__ inline void product_tile(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c,
    const Product shape, int row, int column) {
    extern __shared__ float4 tiles[];
    float* shared = reinterpret_cast<float*>(tiles);
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    // Eight warps as two by four: each has 64 × 32.
    const int warp_row = warp / 4 * 64, warp_column = warp % 4 * 32;
    const int group = lane / 4, turn = lane % 4;

    float sums[4][4][4];
#pragma unroll
    for (int i = 0; i < 64; i++) {
        sums[i / 16][i / 4 % 4][i % 4] = 0.0f;
    }

    const int steps = (shape.k_end - shape.k_begin + TILE_K - 1) / TILE_K;
    auto fetch = [&](int step) {
        if (step < steps) {
            float* tile = shared + step % STAGES * 2 * TILE_FLOATS;
            const int k = shape.k_begin + step * TILE_K;
            if (LEFT_ACROSS) {
                copy_tile<TILE_K, TILE_M, ACROSS_K, LEFT_VECTOR>(tile, a, k, row, shape.k_end, shape.left);
            } else {
                copy_tile<TILE_M, TILE_K, ALONG_K, LEFT_VECTOR>(tile, a, row, k, shape.m, shape.left);
            }
            if (RIGHT_ACROSS) {
                copy_tile<TILE_N, TILE_K, ALONG_K, RIGHT_VECTOR>(tile + TILE_FLOATS, b, column, k, shape.n, shape.right);
            } else {
                copy_tile<TILE_K, TILE_N, ACROSS_K, RIGHT_VECTOR>(tile + TILE_FLOATS, b, k, column, shape.k_end, shape.right);
            }
        }
        commit();
    };
#pragma unroll
    for (int step = 0; step < STAGES - 1; step++) {
        fetch(step);
    }
    for (int step = 0; step < steps; step++) {
        wait_all_but<STAGES - 2>();
        // The tile has landed for all, and all are done with the one that is overwritten now.
        __syncthreads();
        fetch(step + STAGES - 1);
        const float* tile_a = shared + step % STAGES * 2 * TILE_FLOATS;
        const float* tile_b = tile_a + TILE_FLOATS;
#pragma unroll
        for (int k = turn; k < TILE_K; k += 8) {
            unsigned large_b[4][2], small_b[4][2];
#pragma unroll
            for (int tile = 0; tile < 4; tile++) {
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const int n = warp_column + tile * 8 + group;
                    const float value = RIGHT_ACROSS ? tile_b[n * ALONG_K + k + 4 * i] : tile_b[(k + 4 * i) * ACROSS_K + n];
                    split(value, large_b[tile][i], small_b[tile][i]);
                }
            }
#pragma unroll
            for (int part = 0; part < 4; part++) {
                unsigned large_a[4], small_a[4];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int m = warp_row + part * 16 + group + 8 * (i % 2), depth = k + 4 * (i / 2);
                    const float value = LEFT_ACROSS ? tile_a[depth * ACROSS_K + m] : tile_a[m * ALONG_K + depth];
                    split(value, large_a[i], small_a[i]);
                }
                // The small ones first, while the sums are small.
                float fresh[4][4] = {};
#pragma unroll
                for (int tile = 0; tile < 4; tile++) {
                    multiply(fresh[tile], small_a, large_b[tile]);
                }
#pragma unroll
                for (int tile = 0; tile < 4; tile++) {
                    multiply(fresh[tile], large_a, small_b[tile]);
                }
#pragma unroll
                for (int tile = 0; tile < 4; tile++) {
                    multiply(fresh[tile], large_a, large_b[tile]);
                }
#pragma unroll
                for (int i = 0; i < 16; i++) {
                    sums[part][i / 4][i % 4] += fresh[i / 4][i % 4];
                }
            }
        }
    }
    wait_all_but<0>();
    // The sums go through shared memory, so that a warp writes whole lines of 128 bytes: products of little depth are limited by that.
    __syncthreads();
    constexpr int pitch = 32 + 4;
    float* own = shared + warp * 64 * pitch;
#pragma unroll
    for (int part = 0; part < 4; part++) {
#pragma unroll
        for (int tile = 0; tile < 4; tile++) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                *reinterpret_cast<float2*>(own + (part * 16 + group + 8 * i) * pitch + tile * 8 + 2 * turn) =
                    make_float2(sums[part][tile][2 * i] * shape.factor, sums[part][tile][2 * i + 1] * shape.factor);
            }
        }
    }
    __syncwarp();
    const bool vectors = shape.n % 4 == 0;
    for (int at = lane * (vectors ? 4 : 1); at < 64 * 32; at += WARP * (vectors ? 4 : 1)) {
        const int m = row + warp_row + at / 32, n = column + warp_column + at % 32;
        if (m >= shape.m || n >= shape.n) {
            continue;
        }
        float* to = c + (long long)m * shape.n + n;
        const float* from = own + at / 32 * pitch + at % 32;
        auto kept = [&](int k) {
            const bool keep = KEPT == 0 || (KEPT == 1 ? m <= n + k : m >= n + k);
            return keep ? from[k] : 0.0f;
        };
        if (vectors) {
            store4(to, make_float4(kept(0), kept(1), kept(2), kept(3)));
        } else {
            __stcs(to, kept(0));
        }
    }
}
