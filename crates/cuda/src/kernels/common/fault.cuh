// How a kernel reports a bad index in its data.
#pragma once
#include "numbers.cuh"

// Leaves the call's number and the index in the fault word, unless an earlier fault is there.
__device__ __forceinline__ void report_fault(i32 *fault, i32 number, i32 index) {
    if (atomicCAS(fault, 0, number) == 0) fault[1] = index;
}
