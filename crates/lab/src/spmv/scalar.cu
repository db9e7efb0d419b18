// A thread for each row. The simplest kernel: neighbouring threads read places that lie a row apart.
extern "C" __global__ void __launch_bounds__(THREADS)
    spmv_scalar(long long rows, const index_t *__restrict__ offsets, const index_t *__restrict__ columns,
                const value_t *__restrict__ values, const value_t *__restrict__ x, value_t *__restrict__ y,
                value_t alpha, value_t beta) {
    const long long row = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (row >= rows) return;
    const index_t end = offsets[row + 1];
    value_t sum = 0;
    for (index_t k = offsets[row]; k < end; ++k) sum += values[k] * x[columns[k]];
    store_row(y, row, sum, alpha, beta);
}
