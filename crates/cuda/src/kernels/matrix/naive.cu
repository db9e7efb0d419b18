// A product or a convolution, one thread for each element of the result: the plainest correct kernel, for any types.
#include "specialisation.cuh"

#include "grid.cuh"
#include "product.cuh"
#include "window.cuh"

// The sum over the depth for one row and one column of b.
__device__ __forceinline__ float sum_of(const A_TYPE *a, const B_TYPE *b, const Product &p, const Window &w, int row) {
    float sum = 0.0f;
#if CONVOLUTION
    Corner corner = corner_of(w, row);
    Cursor cursor = {0, 0, 0, 0};
    for (int depth = 0; depth < p.depth; depth += p.channels) {
        Tap tap(w, cursor);
        if (tap.inside(w, corner)) {
            const A_TYPE *pixel = a + (corner.pixel + tap.pixel) * p.a_row;
            for (int i = 0; i < p.channels; i++) sum += to_float(pixel[i]) * to_float(b[depth + i]);
        }
        cursor.advance(w, p.channels, p.channels);
    }
#else
    a += row * p.a_row;
    for (i64 i = 0; i < p.depth; i++) sum += to_float(a[i * p.a_depth]) * to_float(b[i * p.b_depth]);
#endif
    return sum;
}

extern "C" __global__ void __launch_bounds__(256) naive(const A_TYPE *a, const B_TYPE *b, A_TYPE *y, const Product p,
                                                        const Window w, const Epilogue e, i64 elements) {
    wait_for_launch_before();
    i64 element = i64(blockIdx.x) * 256 + threadIdx.x;
    if (element >= elements) return;
    int columns = GATED ? p.columns / 2 : p.columns;
    i64 line = element / columns;
    int column = int(element - line * columns), slice = int(line / p.rows), row = int(line - i64(slice) * p.rows);
    a += slice * p.a_slice;
    b += slice * p.b_slice;
    i64 at = slice * p.y_slice + row * p.y_row + column;
    float result[1] = {sum_of(a, b + column * p.b_column, p, w, row)};
#if GATED
    float gate[1] = {sum_of(a, b + i64(column + columns) * p.b_column, p, w, row)};
    finish_gated(result, gate, e, row, at, slice * p.column_slice + column);
#else
    finish(result, e, row, at, slice * p.column_slice + column);
#endif
    store(y + at, result);
}
