// LANES neighbouring lanes for each row, ITEMS non-zeros for each lane at a time.
extern "C" __global__ void __launch_bounds__(THREADS)
    spmv_vector(long long rows, const index_t *__restrict__ offsets, const index_t *__restrict__ columns,
                const value_t *__restrict__ values, const value_t *__restrict__ x, value_t *__restrict__ y,
                value_t alpha, value_t beta) {
    const long long row = ((long long)blockIdx.x * THREADS + threadIdx.x) / LANES;
    const int lane = threadIdx.x % LANES;
    // Lanes without a row go on with none of its elements, because the others need them in the sum below.
    index_t begin = 0, end = 0;
    if (row < rows) {
        begin = __ldg(offsets + row);
        end = __ldg(offsets + row + 1);
    }
    value_t sum = 0;
    for (index_t k = begin + lane; k < end; k += LANES * ITEMS) {
        index_t column[ITEMS];
        value_t value[ITEMS], factor[ITEMS];
        // Beyond the row the last element is read again, so that all loads are issued before the first is waited for.
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const index_t wanted = k + i * LANES;
            const index_t place = wanted < end ? wanted : end - 1;
            column[i] = streamed(columns + place);
            value[i] = streamed(values + place);
        }
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) factor[i] = __ldg(x + column[i]);
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const value_t next = sum + value[i] * factor[i];
            sum = k + i * LANES < end ? next : sum;
        }
    }
    sum = lane_sum<LANES>(sum);
    if (lane == 0 && row < rows) store_row(y, row, sum, alpha, beta);
}
