// What a matrix product does to its result before it is stored. The stages are generated for each op; see
// `kernels/epilogue.rs`, which follows this header with `Epilogue`, `finish` and `finish_gated`.
#pragma once
#include "activations.cuh"
#include "numbers.cuh"

// The operands of the stages, in order, and what is needed to find an element's own.
template <int count>
struct EpilogueOperands {
    const void *bias;
    // Columns of the result: the bias of a gate lies that much further than its value's, and the vector of an image
    // that much further than that of the image before.
    i64 columns;
    // Rows of the result that belong to one image.
    i64 rows_per_image;
    const void *operand[count];
};

// Has the L2 cache fetch what lies at an address. That changes no thread's view of memory, so it may go before
// `wait_for_launch_before`, whoever writes there.
__device__ __forceinline__ void prefetch_l2(const void *address) {
    asm volatile("{ .reg .u64 a; cvta.to.global.u64 a, %0; prefetch.global.L2 [a]; }" ::"l"(address));
}
