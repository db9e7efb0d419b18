// A matrix product y = a · b in one or more independent slices (batch elements, or groups of a convolution), as all of
// its kernels see it, and which tile of it a block computes.
#pragma once
#include "numbers.cuh"

struct Product {
    // Elements from one row of a, column of b, or depth of either to the next. A convolution's rows of a are pixels.
    i64 a_row, a_depth, b_column, b_depth;
    // Elements from one slice to the next.
    i64 a_slice, b_slice, y_slice;
    // Elements from one row of the result to the next.
    i64 y_row;
    i32 rows;
    // Columns of a slice of b. Those of a gated product alternate: a value and its gate.
    i32 columns;
    i32 depth;
    // Channels of a pixel that a slice of a convolution reads.
    i32 channels;
    // Split-K: how many blocks share the depth of a tile, each with its own partial sums, and how many steps of the
    // depth's tiles each of them takes.
    i32 splits;
    i32 steps;
    // Columns of the result from one slice to the next.
    i32 column_slice;
    i32 unused;
};

// A tile of a plane of tiles, in tiles.
struct Place {
    u32 row, column, plane;
};

// Tiles are dealt out in bands of eight rows of tiles, down a band's columns first: blocks that run at the same time
// then share both their rows of a and their columns of b in the L2 cache.
__device__ __forceinline__ Place place_of(u32 number, u32 down, u32 across) {
    constexpr u32 band_rows = 8;
    u32 plane = number / (down * across), in_plane = number - plane * (down * across);
    u32 band = in_plane / (band_rows * across), in_band = in_plane - band * (band_rows * across);
    u32 height = min(band_rows, down - band * band_rows);
    u32 column = in_band / height;
    return {band * band_rows + in_band - column * height, column, plane};
}

// A block's tile: its first row and column, its slice, and its part of the depth (split-K).
struct Tile {
    int row, column, slice, split;
};

__device__ __forceinline__ Tile tile_of_block(const Product &p, int tile_rows, int tile_columns) {
    u32 down = u32(p.rows + tile_rows - 1) / u32(tile_rows),
        across = u32(p.columns + tile_columns - 1) / u32(tile_columns);
    Place place = place_of(blockIdx.x, down, across);
    u32 slice = place.plane / u32(p.splits);
    return {int(place.row) * tile_rows, int(place.column) * tile_columns, int(slice),
            int(place.plane - slice * u32(p.splits))};
}

// The row of the weight that holds a column of the product. A gated product's columns alternate between the two halves.
__device__ __forceinline__ int column_of_b(const Product &p, int column, bool gated) {
    return gated ? (column & 1) * (p.columns / 2) + column / 2 : column;
}
