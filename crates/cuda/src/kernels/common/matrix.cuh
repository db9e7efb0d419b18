// Matrix instructions of a warp, the loads of their operands, and copies to shared memory.
#pragma once
#include "numbers.cuh"

// A pointer to shared memory as the address that instructions take.
__device__ __forceinline__ u32 shared_address(const void *pointer) { return u32(__cvta_generic_to_shared(pointer)); }

// Stores two floats to shared memory in one instruction. The compiler does not always find it, and single stores would
// conflict in the banks.
__device__ __forceinline__ void store_pair(float *to, float first, float second) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(shared_address(to)), "f"(first), "f"(second) : "memory");
}

// Four 8×8 matrices of 16-bit elements. Thread i gives the address of row i % 8 of matrix i / 8, 16 bytes, and gets two
// neighbours of row i / 4 of each: columns 2 (i % 4) and the next.
__device__ __forceinline__ void ldmatrix_x4(u32 (&to)[4], u32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
}

// The same, each transposed.
__device__ __forceinline__ void ldmatrix_x4_trans(u32 (&to)[4], u32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
}

// sum += a · b for a 16×16 and b 16×8, the sum in f32. Thread i holds of the sum rows i / 4 and i / 4 + 8, columns
// 2 (i % 4) and the next: elements 0, 1 and 2, 3. Of a: rows as of the sum by columns 2 (i % 4) and the next, then the
// lower rows, then both again 8 columns further. Of b: rows 2 (i % 4) and the next of column i / 4, then 8 rows
// further. Turing has no such instruction: two of half the depth do the same for f16.
template <class T>
__device__ __forceinline__ void mma_m16n8k16(float (&sum)[4], const u32 (&a)[4], const u32 (&b)[2]);
template <>
__device__ __forceinline__ void mma_m16n8k16<f16>(float (&sum)[4], const u32 (&a)[4], const u32 (&b)[2]) {
#if __CUDA_ARCH__ >= 800
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
        "%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
#pragma unroll
    for (int half = 0; half < 2; half++)
        asm volatile(
            "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
            : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(b[half]));
#endif
}
#if __CUDA_ARCH__ >= 800
template <>
__device__ __forceinline__ void mma_m16n8k16<bf16>(float (&sum)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
        "%2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif
#if __CUDA_ARCH__ >= 890
// Of e4m3: as many bytes are 32 of depth.
template <>
__device__ __forceinline__ void mma_m16n8k16<e4m3>(float (&sum)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
        "%2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

// The same for tf32, whose operands are the upper 19 bits of an f32: a 16×8 and b 8×8. Of the sum a thread holds what it
// does above. Of a: row i / 4 and the one 8 further of column i % 4, then both again 4 columns further. Of b: row i % 4 of
// column i / 4, then 4 rows further.
__device__ __forceinline__ void mma_m16n8k8_tf32(float (&sum)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
        "%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The bits of a float as two tf32 numbers: the nearest one, of 11 significant bits, and what is left, of at most 12 and a
// sign, of which matrix instructions use 11. An infinity leaves a NaN, and so does what rounds to one.
__device__ __forceinline__ void split_tf32(u32 &high, u32 &low, u32 bits) {
    float value = __uint_as_float(bits);
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(high) : "f"(value));
    low = __float_as_uint(value - __uint_as_float(high));
}

// 16 rows of the left operand of a product, 32 bytes deep, ready for the tensor cores: 16 elements of 16 bits, 32 of
// e4m3, or 8 of f32 in two parts.
template <class T>
struct MmaRows {
    u32 words[4];

    __device__ __forceinline__ void set(const u32 (&from)[4]) {
#pragma unroll
        for (int i = 0; i < 4; i++) words[i] = from[i];
    }
    // `row` is the address that this thread gives to `ldmatrix_x4`: matrices are the upper and lower rows of the first 16
    // bytes, then of the others.
    __device__ __forceinline__ void load(u32 row) { ldmatrix_x4(words, row); }
};
template <>
struct MmaRows<f32> {
    u32 high[4], low[4];

    __device__ __forceinline__ void set(const u32 (&from)[4]) {
#pragma unroll
        for (int i = 0; i < 4; i++) split_tf32(high[i], low[i], from[i]);
    }
    __device__ __forceinline__ void load(u32 row) {
        u32 words[4];
        ldmatrix_x4(words, row);
        set(words);
    }
};

// Adds the products of several times 16 rows with 16 columns, 32 bytes deep, to the sums of two neighbouring tiles of 8
// columns from `first` on. `b` has the first tile's columns, both halves of their depth, then the second's. Products of
// f32 are three of their parts, the small ones first: what is left out is 2^-22 of a product at most. Tensor cores do
// not round sums to the nearest, so that long sums would drift towards zero: those of 8 products are added to the
// others by the ordinary units.
template <class T, int ROWS, int COLUMNS>
__device__ __forceinline__ void multiply_add(float (&sums)[ROWS][COLUMNS][4], int first, const MmaRows<T> (&a)[ROWS],
                                             const u32 (&b)[4]) {
    if constexpr (sizeof(T) == 4) {
#pragma unroll
        for (int column = 0; column < 2; column++) {
            u32 high[2], low[2];
            split_tf32(high[0], low[0], b[2 * column]), split_tf32(high[1], low[1], b[2 * column + 1]);
            float part[ROWS][4] = {};
#pragma unroll
            for (int i = 0; i < ROWS; i++) mma_m16n8k8_tf32(part[i], a[i].low, high);
#pragma unroll
            for (int i = 0; i < ROWS; i++) mma_m16n8k8_tf32(part[i], a[i].high, low);
#pragma unroll
            for (int i = 0; i < ROWS; i++) mma_m16n8k8_tf32(part[i], a[i].high, high);
#pragma unroll
            for (int i = 0; i < ROWS; i++)
#pragma unroll
                for (int k = 0; k < 4; k++) sums[i][first + column][k] += part[i][k];
        }
    } else {
        u32 left[2] = {b[0], b[1]}, right[2] = {b[2], b[3]};
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            mma_m16n8k16<T>(sums[i][first], a[i].words, left);
            mma_m16n8k16<T>(sums[i][first + 1], a[i].words, right);
        }
    }
}

// Copies 16 bytes to shared memory, or zeros if `there` is false; then nothing is read. The copy has arrived after
// `cp_async_wait_group`. Turing has no cp.async and copies at once, through registers.
__device__ __forceinline__ void cp_async_16(u32 to, const void *from, bool there) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
#else
    uint4 words = there ? *reinterpret_cast<const uint4 *>(from) : make_uint4(0, 0, 0, 0);
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words.x), "r"(words.y), "r"(words.z),
                 "r"(words.w)
                 : "memory");
#endif
}

// The same for all of an object in shared memory, whose bytes come in sixteens.
template <class T>
__device__ __forceinline__ void cp_async_all(T &to, const void *from, bool there) {
    static_assert(sizeof(T) % 16 == 0, "16 bytes at a time");
#pragma unroll
    for (int i = 0; i < int(sizeof(T)); i += 16)
        cp_async_16(shared_address(&to) + i, static_cast<const u8 *>(from) + i, there);
}

// Ends a group of cp.async copies.
__device__ __forceinline__ void cp_async_commit_group() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most `pending` of this thread's groups are unfinished. A barrier then makes them visible to other
// threads.
template <int pending>
__device__ __forceinline__ void cp_async_wait_group() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
#endif
}
