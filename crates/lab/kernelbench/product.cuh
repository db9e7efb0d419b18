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
__device__ inline void copy_async(unsigned to, const float* from, bool there) {
    const int bytes = there ? BYTES : 0;
    if (BYTES == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
    }
}
__device__ inline void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT>
__device__ inline void wait_all_but() { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory"); }

// A number as two that tensor cores can hold: 11 bits rounded to nearest, and the rest, whose last bits they ignore, as they do those of
// `large`. By integers, because they are exact: no assembler can fuse two roundings into one, after which nothing would be left of the rest.
__device__ inline void split(float x, unsigned& large, unsigned& small) {
    large = __float_as_uint(x) + 0x1000u;
    small = __float_as_uint(__fsub_rn(x, __uint_as_float(large & 0xffffe000u)));
}

__device__ inline void multiply(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The same without a sum before it.
__device__ inline void multiply_first(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
        : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(0.0f));
}

// Copies tiles of LINES lines of WIDTH neighbouring numbers each, one after the other, from a matrix with lines of `columns`. A thread has
// the same place in each tile.
template <int LINES, int WIDTH, int PITCH, int PIECE>
struct Copier {
    // Lines that all threads copy at a time.
    static constexpr int ROUND = PRODUCT_THREADS * PIECE / WIDTH;
    const float* matrix;
    const float* from;
    int line, place;
    unsigned own;

    __device__ inline Copier(const float* matrix, int row, int column, int columns)
        : matrix(matrix), line((int)threadIdx.x * PIECE / WIDTH), place((int)threadIdx.x * PIECE % WIDTH) {
        from = matrix + (long long)(row + line) * columns + column + place;
        own = 4 * (line * PITCH + place);
    }

    // `row` and `column` are where `from` is, and multiples of the tile's size where the matrix's size is one.
    __device__ inline void copy(unsigned to, int row, int column, int rows, int columns) const {
#pragma unroll
        for (int i = 0; i < LINES; i += ROUND) {
            const bool there = (rows % LINES == 0 || row + line + i < rows) && (columns % WIDTH == 0 || column + place < columns);
            copy_async<PIECE * 4>(to + own + 4 * i * PITCH, there ? from + (long long)i * columns : matrix, there);
        }
    }
};

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
    const unsigned base = shared_address(shared);
    Copier<LEFT_ACROSS ? TILE_K : TILE_M, LEFT_ACROSS ? TILE_M : TILE_K, LEFT_ACROSS ? ACROSS_K : ALONG_K, LEFT_VECTOR> left(
        a, LEFT_ACROSS ? shape.k_begin : row, LEFT_ACROSS ? row : shape.k_begin, shape.left);
    Copier<RIGHT_ACROSS ? TILE_N : TILE_K, RIGHT_ACROSS ? TILE_K : TILE_N, RIGHT_ACROSS ? ALONG_K : ACROSS_K, RIGHT_VECTOR> right(
        b, RIGHT_ACROSS ? column : shape.k_begin, RIGHT_ACROSS ? shape.k_begin : column, shape.right);
    auto fetch = [&](int step) {
        if (step < steps) {
            const unsigned tile = base + 4 * (step % STAGES * 2 * TILE_FLOATS);
            const int k = shape.k_begin + step * TILE_K;
            left.copy(tile, LEFT_ACROSS ? k : row, LEFT_ACROSS ? row : k, LEFT_ACROSS ? shape.k_end : shape.m, shape.left);
            left.from += LEFT_ACROSS ? (long long)TILE_K * shape.left : TILE_K;
            right.copy(tile + 4 * TILE_FLOATS, RIGHT_ACROSS ? column : k, RIGHT_ACROSS ? k : column,
                RIGHT_ACROSS ? shape.n : shape.k_end, shape.right);
            right.from += RIGHT_ACROSS ? TILE_K : (long long)TILE_K * shape.right;
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
                float fresh[4][4];
#pragma unroll
                for (int tile = 0; tile < 4; tile++) {
                    multiply_first(fresh[tile], small_a, large_b[tile]);
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
