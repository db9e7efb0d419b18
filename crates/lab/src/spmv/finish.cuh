// A launch may start before the one in front of it has ended: from here on all that it wrote can be read.
__device__ __forceinline__ void wait_for_launch_before() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The next launch may start as soon as every block has come here and there is room.
__device__ __forceinline__ void let_next_launch_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// A block for each row that others have summed in pieces: `long_rows` has the row, and the first of its sums and the end of them. `partial` is
// not restrict: its loads must stay behind the wait.
extern "C" __global__ void __launch_bounds__(THREADS)
    spmv_finish(const index_t *__restrict__ long_rows, const value_t *partial, value_t *y,
                value_t alpha, value_t beta) {
    __shared__ value_t parts[THREADS / 32];
    const index_t *own = long_rows + 3 * (long long)blockIdx.x;
    wait_for_launch_before();
    value_t sum = 0;
    for (index_t k = own[1] + threadIdx.x; k < own[2]; k += THREADS) sum += partial[k];
    sum = block_sum(sum, parts);
    if (threadIdx.x == 0) store_row(y, own[0], sum, alpha, beta);
}
