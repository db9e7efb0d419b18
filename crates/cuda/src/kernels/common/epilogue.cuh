// What a matrix product does to its result before it is stored. The stages are generated for each op, as
// `apply_stages`; see `kernels/epilogue.rs`.
#pragma once
#include "activations.cuh"
#include "numbers.cuh"

// The operands of the stages, in order, at most eight.
struct Epilogue {
    const void *operand[8];
    // Elements from one image's vector to the next in an operand of one vector an image; 0 where all share one.
    i64 image_stride[8];
    // Rows of the result that belong to one image.
    i64 rows_per_image;
};
