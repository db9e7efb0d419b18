// What a matrix product does to its result before it is stored. The stages are generated for each op; see
// `kernels/epilogue.rs`, which follows this header with `Epilogue`, `finish` and `finish_gated`.
#pragma once
#include "activations.cuh"
#include "numbers.cuh"

// The operands of the stages, in order, and what is needed to find an element's own.
template <int count>
struct EpilogueOperands {
    const void *bias;
    // What the sums of a quantised product are multiplied by, column by column, as the bias is added.
    const void *scale;
    // Columns of the result: the bias and the scale of a gate lie that much further than its value's, and the vector of
    // an image that much further than that of the image before.
    i64 columns;
    // Rows of the result that belong to one image.
    i64 rows_per_image;
    const void *operand[count];
};
