// A product or a convolution, one thread for each element of the result: the plainest correct kernel, for any types.
#include "specialisation.cuh"

#include "grid.cuh"
#include "product.cuh"
#include "window.cuh"

// What a thread computes: a row of the product and a column of b. Of a sub-pixel convolution, the row is a square of 2×2
// results, of which this is the one `y` lines lower and `x` columns further right, and so is its window.
struct Element {
    int row, filter;
    int y, x;

#if SUBPIXEL
    __device__ __forceinline__ Element(const Window &w, u32 line, int column, int columns) {
        u32 width = 2 * u32(w.out_extents[2]), height = 2 * u32(w.out_extents[1]);
        u32 all = line / width, right = line - all * width, image = all / height, down = all - image * height;
        y = int(down % 2), x = int(right % 2);
        row = int((image * (height / 2) + down / 2) * (width / 2) + right / 2);
        filter = (2 * x + y) * columns + column;
    }
#else
    __device__ __forceinline__ Element(const Window &, u32 line, int column, int)
        : row(int(line)), filter(column), y(0), x(0) {}
#endif
};

// The sum over the depth for one row and one column of b.
__device__ __forceinline__ float sum_of(const A_TYPE *a, const B_TYPE *b, const Product &p, const Window &w,
                                        const Element &element) {
    float sum = 0.0f;
#if CONVOLUTION
    Corner corner = corner_of(w, element.row);
    corner.y += element.y, corner.x += element.x;
    corner.pixel += element.y * w.extents[2] + element.x;
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
    a += element.row * p.a_row;
    for (i64 i = 0; i < p.depth; i++) sum += to_float(a[i * p.a_depth]) * to_float(b[i * p.b_depth]);
#endif
    return sum;
}

extern "C" __global__ void __launch_bounds__(256) naive(const A_TYPE *a, const B_TYPE *b, TYPE *y, const Product p,
                                                        const Window w, const Epilogue e, i64 first, i64 end) {
    wait_for_launch_before();
    i64 element = first + i64(blockIdx.x) * 256 + threadIdx.x;
    if (element >= end) return;
    int columns = GATED ? p.columns / 2 : SUBPIXEL ? p.columns / 4 : p.columns;
    int rows = SUBPIXEL ? 4 * p.rows : p.rows;
    i64 line = element / columns;
    int column = int(element - line * columns), slice = int(line / rows), row = int(line - i64(slice) * rows);
    Element own(w, u32(row), column, columns);
    a += slice * p.a_slice;
    b += slice * p.b_slice;
    i64 at = slice * p.y_slice + row * p.y_row + column;
    float result[1] = {sum_of(a, b + own.filter * p.b_column, p, w, own)};
#if GATED
    float gate[1] = {sum_of(a, b + i64(column + columns) * p.b_column, p, w, own)};
    finish_gated(result, gate, e, row, at, slice * p.column_slice + column);
#else
    finish(result, e, row, at, slice * p.column_slice + column);
#endif
    store(y + at, result);
}
