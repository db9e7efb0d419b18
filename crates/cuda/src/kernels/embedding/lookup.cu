// Rows of a table by id, in units of UNIT. An id outside the table is reported, and its row is zeros.
#include "specialisation.cuh"
#include "grid.cuh"
#include "fault.cuh"
#include "numbers.cuh"

constexpr int threads = 256;

extern "C" __global__ void __launch_bounds__(threads)
    lookup(UNIT *y, const UNIT *table, const i32 *ids, i64 count, i64 rows, i64 row_units, i32 *fault, i32 number) {
    wait_for_launch_before();
    i64 unit = i64(blockIdx.x) * threads + threadIdx.x;
    // A row without units still has an id to check.
    i64 width = row_units > 0 ? row_units : 1;
    if (unit >= count * width) return;
    i64 row = unit / width, inside = unit - row * width;
    i32 id = ids[row];
    bool known = id >= 0 && id < rows;
    if (!known && inside == 0) report_fault(fault, number, id);
    if (row_units > 0) y[unit] = known ? table[i64(id) * row_units + inside] : UNIT();
}
