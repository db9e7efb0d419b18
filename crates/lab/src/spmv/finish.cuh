// A block for each row that others have summed in pieces: `long_rows` has the row, and the first of its sums and the end of them.
extern "C" __global__ void __launch_bounds__(THREADS)
    spmv_finish(const index_t *__restrict__ long_rows, const value_t *__restrict__ partial, value_t *__restrict__ y,
                value_t alpha, value_t beta) {
    __shared__ value_t parts[THREADS / 32];
    const index_t *own = long_rows + 3 * (long long)blockIdx.x;
    value_t sum = 0;
    for (index_t k = own[1] + threadIdx.x; k < own[2]; k += THREADS) sum += partial[k];
    sum = block_sum(sum, parts);
    if (threadIdx.x == 0) store_row(y, own[0], sum, alpha, beta);
}
