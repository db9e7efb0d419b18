// How a kernel says that an index in its data is wrong.
#pragma once
#include "numbers.cuh"

// Leaves the call's number and the index, unless something was wrong before.
__device__ __forceinline__ void report_fault(i32 *fault, i32 number, i32 index) {
    if (atomicCAS(fault, 0, number) == 0) fault[1] = index;
}
