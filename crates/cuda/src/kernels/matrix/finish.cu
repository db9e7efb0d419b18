// The rest of an epilogue after a library's product: the gate and the stages that the library does not know.
#include "specialisation.cuh"

#include "grid.cuh"

extern "C" __global__ void __launch_bounds__(256)
    finish_rows(const TYPE *from, TYPE *y, const Epilogue e, i64 packs, int columns) {
    wait_for_launch_before();
    i64 pack = i64(blockIdx.x) * 256 + threadIdx.x;
    if (pack >= packs) return;
    int across = columns / WIDTH;
    int row = int(pack / across), column = int(pack - i64(row) * across) * WIDTH;
    i64 element = i64(row) * columns + column;
    float v[WIDTH];
#if GATED
    // The values of a row, then its gates.
    const TYPE *values = from + 2 * i64(row) * columns + column;
    float gate[WIDTH];
    load(v, values);
    load(gate, values + columns);
    finish_gated(v, gate, e, row, element, column);
#else
    load(v, from + element);
    finish(v, e, row, element, column);
#endif
    store(y + element, v);
}
