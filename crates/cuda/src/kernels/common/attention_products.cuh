// Products of attention's gradients on the tensor cores: of 16 rows of a warp with the rows of a tile in shared memory, and of
// what these make of it with the tile's rows.
//
// Include this after `specialisation.cuh`, and after DEPTH, the channels of a row in shared memory, a multiple of 16, and THREADS
// of the block are defined. ELEMENT is the type of all operands. Products of f32 are three of tf32.
#pragma once
#include "attention_backward.cuh"
#include "matrix.cuh"

// Whether elements are f32, and multiplied in two parts.
constexpr bool IN_PARTS = sizeof(ELEMENT) == 4;
// Elements of 16 bytes, and of a step of the matrix instructions' depth.
constexpr int PIECE = Wide<ELEMENT>::count, STEP = 2 * PIECE;
constexpr int STEPS = DEPTH / STEP;
constexpr int BYTES = sizeof(ELEMENT);
// Elements of a row in shared memory. An odd number of 16-byte pieces puts eight rows on different banks.
constexpr int ROW = DEPTH + PIECE, ROW_BYTES = ROW * BYTES;
// Whether the left operands stay in registers, or are read from shared memory for each tile.
constexpr bool HELD = !IN_PARTS && STEPS <= 4;
// Whether rows that are not numbers are done again, by the plain routine.
constexpr bool AGAIN = IN_PARTS || MASK != MASK_NONE || BOUNDARIES;

// Copies rows `first` to `first + ROWS` of an operand, and zeros for rows from `end` on and channels beyond the head.
template <int ROWS>
__device__ __forceinline__ void copy_rows(u32 to, const ELEMENT *from, i64 step, i32 first, i32 end) {
    constexpr int PIECES = DEPTH / PIECE;
    auto copy = [&](int i) {
        const int row = i / PIECES, channel = i % PIECES * PIECE;
        const bool there = first + row < end && channel < HEAD_DIM;
        cp_async_16(to + row * ROW_BYTES + channel * BYTES, there ? from + (first + row) * step + channel : from,
                    there);
    };
    // The addresses of many copies would not fit the registers.
#pragma unroll 1
    for (int i = threadIdx.x; i < ROWS * PIECES; i += THREADS) copy(i);
}

// 16 rows of a warp, the left operand of products.
struct Rows {
    u32 address;
    u32 held[HELD ? STEPS : 1][4];

    // Of the rows in shared memory from `tile` on.
    __device__ __forceinline__ Rows(u32 tile) {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        address = tile + ((warp * 16 + lane % 16) * ROW + lane / 16 * PIECE) * BYTES;
    }
    __device__ __forceinline__ void hold() {
        if constexpr (HELD) {
#pragma unroll
            for (int step = 0; step < STEPS; step++) ldmatrix_x4(held[step], address + step * STEP * BYTES);
        }
    }
};

// products = rows · othersᵀ, for 8 · COLUMNS rows of a tile.
template <int COLUMNS>
__device__ __forceinline__ void multiply_rows(float (&products)[1][COLUMNS][4], const Rows &rows, u32 tile) {
    const int lane = threadIdx.x % 32;
    const u32 others = tile + ((lane / 16 * 8 + lane % 8) * ROW + lane / 8 % 2 * PIECE) * BYTES;
#pragma unroll
    for (int n = 0; n < COLUMNS; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) products[0][n][i] = 0.0f;
#pragma unroll(IN_PARTS ? 1 : STEPS)
    for (int step = 0; step < STEPS; step++) {
        MmaRows<ELEMENT> a[1];
        if constexpr (HELD)
            a[0].set(rows.held[step]);
        else
            a[0].load(rows.address + step * STEP * BYTES);
#pragma unroll
        for (int n = 0; n < COLUMNS; n += 2) {
            u32 b[4];
            ldmatrix_x4(b, others + (n * 8 * ROW + step * STEP) * BYTES);
            multiply_add(products, n, a, b);
        }
    }
}

// sums += factors · tile, for 8 · COLUMNS channels of it from `first_channel` on. `shared` is the beginning of shared memory.
template <int COLUMNS, int OTHERS>
__device__ __forceinline__ void add_rows(float (&sums)[1][COLUMNS][4], const float (&factors)[1][OTHERS][4],
                                         const u8 *shared, u32 offset, int first_channel) {
    const int lane = threadIdx.x % 32;
    const u8 *tile = shared + offset + first_channel * BYTES;
    // A sum's two neighbouring tiles of 8 columns have the layout of an operand of 16. One of them has that of an
    // operand of 8, if rows are taken in another order: even ones first.
#pragma unroll
    for (int step = 0; step < OTHERS * 8 / STEP; step++) {
        MmaRows<ELEMENT> a[1];
        u32 words[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if constexpr (IN_PARTS) {
                words[i] = bits_of(factors[0][step][i % 2 * 2 + i / 2]);
            } else {
                const float(&pair)[4] = factors[0][2 * step + i / 2];
                words[i] = pack2<ELEMENT>(pair[i % 2 * 2], pair[i % 2 * 2 + 1]);
            }
        }
        a[0].set(words);
#pragma unroll
        for (int n = 0; n < COLUMNS; n += 2) {
            u32 b[4];
            if constexpr (IN_PARTS) {
                const u32 *values =
                    reinterpret_cast<const u32 *>(tile) + (step * STEP + lane % 4 * 2) * ROW + n * 8 + lane / 4;
#pragma unroll
                for (int i = 0; i < 4; i++) b[i] = values[i % 2 * ROW + i / 2 * 8];
            } else {
                const u32 row = shared_address(tile) + ((lane / 8 % 2 * 8 + lane % 8) * ROW + lane / 16 * 8) * BYTES;
                ldmatrix_x4_trans(b, row + (step * STEP * ROW + n * 8) * BYTES);
            }
            multiply_add(sums, n, a, b);
        }
    }
}

// Writes a warp's sums to its own 16 rows of a tile in shared memory, and these to memory, 16 bytes at a time: rows below
// `end` that begin at `to`, of so many channels. Gives a bit for each thread that holds a part of a row that is not a number, or
// of f32 not finite: of the upper eight rows and of the lower.
template <int COLUMNS>
__device__ __forceinline__ void write_rows(u32 (&wrong_rows)[2], const float (&sums)[1][COLUMNS][4], float scale,
                                           u8 *tile, ELEMENT *to, i64 step, i32 first, i32 end, int channels) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    __syncwarp();
#pragma unroll
    for (int half = 0; half < 2; half++) {
        u8 *row = tile + (warp * 16 + half * 8 + lane / 4) * ROW_BYTES;
        bool wrong = false;
#pragma unroll
        for (int n = 0; n < COLUMNS; n++) {
            const float left = sums[0][n][2 * half] * scale, right = sums[0][n][2 * half + 1] * scale;
            if constexpr (IN_PARTS) {
                wrong = wrong || !is_finite(left) || !is_finite(right);
                store_pair(reinterpret_cast<float *>(row) + n * 8 + lane % 4 * 2, left, right);
            } else {
                wrong = wrong || left != left || right != right;
                *reinterpret_cast<u32 *>(row + (n * 8 + lane % 4 * 2) * 2) = pack2<ELEMENT>(left, right);
            }
        }
        wrong_rows[half] = AGAIN ? __ballot_sync(0xffffffffu, wrong) : 0;
    }
    __syncwarp();
    constexpr int PIECES = COLUMNS * 8 / PIECE;
#pragma unroll 4
    for (int i = lane; i < 16 * PIECES; i += 32) {
        const int row = warp * 16 + i / PIECES, channel = i % PIECES * PIECE;
        if (first + row < end && channel < channels)
            *reinterpret_cast<uint4 *>(to + (first + row) * step + channel) =
                *reinterpret_cast<const uint4 *>(tile + row * ROW_BYTES + channel * BYTES);
    }
}

// Calls `redo` with each of a warp's 16 rows that is wrong.
template <class F>
__device__ __forceinline__ void each_wrong(const u32 (&wrong_rows)[2], F redo) {
    __syncwarp();
#pragma unroll 1
    for (int half = 0; half < 2; half++)
        for (u32 rest = half == 0 ? wrong_rows[0] : wrong_rows[1]; rest != 0;) {
            const int row = (__ffs(rest) - 1) / 4;
            rest &= ~(0xfu << 4 * row);
            redo(half * 8 + row);
        }
}
