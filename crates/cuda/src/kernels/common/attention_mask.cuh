// The masks of a tile of products, in registers, as wgmma leaves them: thread i of a warpgroup holds rows 16 (i / 32) +
// i % 32 / 4 and 8 further, of each the columns 8 j + 2 (i % 4) and the next, in elements 4 j, 4 j + 1 and 4 j + 2, 4 j
// + 3.
//
// Include this after `attention.cuh`. KEY_TILE is the columns of a tile. MASK_PAIRS is 1 if a mask's rows have an even
// number of elements, so that two neighbours can be read as one.
#pragma once
#include "attention.cuh"

// What a thread reads of a mask operand for a tile: a bit for each product if it is boolean, else the elements as they
// are in memory. It is read before the products are there.
struct MaskTile {
#if MASK == MASK_BOOLEAN
    u32 words[(KEY_TILE + 63) / 64];
#else
    Pack<MASK_TYPE, 2> pairs[KEY_TILE / 4];
#endif

    // `rows` are the mask's for this thread's two queries, from the tile's first key on; `there` of its keys exist.
    __device__ __forceinline__ void read(const MASK_TYPE *const (&rows)[2], i32 there) {
        const int column = threadIdx.x % 4 * 2;
#pragma unroll
        for (int i = 0; i < KEY_TILE / 4; i++) {
            const MASK_TYPE *from = rows[i % 2] + column + i / 2 * 8;
            Pack<MASK_TYPE, 2> pair = {};
            if (MASK_PAIRS) {
                if (i / 2 * 8 < there - column) pair = *reinterpret_cast<const Pack<MASK_TYPE, 2> *>(from);
            } else {
#pragma unroll
                for (int j = 0; j < 2; j++)
                    if (i / 2 * 8 + j < there - column) pair.lane[j] = from[j];
            }
#if MASK == MASK_BOOLEAN
            if (i % 16 == 0) {
                // All of a long tile at once would not fit the registers.
                asm volatile("" ::: "memory");
                words[i / 16] = 0;
            }
#pragma unroll
            for (int j = 0; j < 2; j++) words[i / 16] |= u32(pair.lane[j] != 0) << (2 * i + j) % 32;
#else
            pairs[i] = pair;
#endif
        }
    }

    __device__ __forceinline__ void apply(float (&products)[KEY_TILE / 2], float scale) const {
#pragma unroll
        for (int i = 0; i < KEY_TILE / 2; i++) {
#if MASK == MASK_BOOLEAN
            const float added = (words[i / 32] >> i % 32 & 1) != 0 ? 0.0f : HIDDEN;
#else
            const float added = to_float(pairs[i / 2].lane[i % 2]);
#endif
            products[i] = masked(products[i], added, scale);
        }
    }
};

// Hides the keys of a tile that this thread's two queries do not see by their numbers.
__device__ __forceinline__ void hide_by_number(float (&products)[KEY_TILE / 2], const KeyRange (&ranges)[2],
                                               i32 first_key) {
    const i32 first_column = first_key + threadIdx.x % 4 * 2;
    const i32 first[2] = {ranges[0].first - first_column, ranges[1].first - first_column};
    const i32 end[2] = {ranges[0].end - first_column, ranges[1].end - first_column};
#pragma unroll
    for (int i = 0; i < KEY_TILE / 2; i++) {
        const int column = i / 4 * 8 + i % 2, half = i / 2 % 2;
        if (column >= end[half]) products[i] = HIDDEN;
        if ((MASK == MASK_SLIDING_WINDOW || BOUNDARIES) && column < first[half]) products[i] = HIDDEN;
    }
}
