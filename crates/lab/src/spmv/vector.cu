// LANES neighbouring lanes for each row, ITEMS non-zeros for each lane at a time.
extern "C" __global__ void __launch_bounds__(THREADS)
    spmv_vector(long long rows, const index_t *__restrict__ offsets, const column_t *__restrict__ columns,
                const value_t *__restrict__ values, const value_t *__restrict__ x, value_t *__restrict__ y,
                value_t alpha, value_t beta
#ifdef COLUMN
                ,
                const index_t *__restrict__ firsts
#endif
    ) {
    const long long row = ((long long)blockIdx.x * THREADS + threadIdx.x) / LANES;
    const int lane = threadIdx.x % LANES;
    // Lanes without a row go on with none of its elements, because the others need them in the sum below.
    index_t begin = 0, end = 0;
    if (row < rows) {
        begin = offsets[row];
        end = offsets[row + 1];
#ifdef COLUMN
        // Narrow columns are counted from the first one of the row.
        x += firsts[row];
#endif
    }
    value_t sum = 0;
    for (index_t k = begin + lane; k < end; k += LANES * ITEMS) {
        value_t product[ITEMS];
        strided_products<LANES, true>(columns + k, values + k, x, end - k, product);
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) sum += product[i];
    }
    sum = lane_sum<LANES>(sum);
    if (lane == 0 && row < rows) store_row(y, row, sum, alpha, beta);
}
