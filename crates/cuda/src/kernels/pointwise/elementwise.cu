// A function of the elements of up to five operands that broadcast to the result, one element each.
//
// TYPE_k is an operand's element type, and SPREAD_k says whether neighbours along the innermost axis are its own
// neighbours too, or one element that they all share. EXPRESSION is the function, of x[k] and the numbers p and q.
// Axes are merged before they come here, so that most calls have one (the same shape, or a scalar), two (a vector of
// channels) or three (a vector for each image).
#include "specialisation.cuh"
#include "grid.cuh"
#include "activations.cuh"
#include "numbers.cuh"

constexpr int threads = 256;

struct Operands {
    const void *at[OPERANDS];
    // Elements from one coordinate of an axis to the next; the innermost axis counts vectors.
    i64 stride[OPERANDS][RANK];
    i64 extent[RANK];
};

__device__ __forceinline__ float compute(const float (&x)[OPERANDS], float p, float q) { return EXPRESSION; }

// A vector of an operand. `lanes` of it are there: fewer than all only at the end of a flat tensor.
template <bool spread, class T>
__device__ __forceinline__ void read(float (&to)[VECTOR], const T *from, int lanes) {
    if (spread && lanes == VECTOR) {
        load(to, from);
        return;
    }
#pragma unroll
    for (int i = 0; i < VECTOR; i++)
        if (i < lanes) to[i] = to_float(from[spread ? i : 0]);
}

extern "C" __global__ void __launch_bounds__(threads)
    elementwise(RESULT *y, Operands operands, i64 count, float p, float q) {
    wait_for_launch_before();
    const INDEX vectors = INDEX((count + VECTOR - 1) / VECTOR);
    const INDEX first = INDEX(blockIdx.x) * (threads * UNROLL) + threadIdx.x;
    float value[UNROLL][OPERANDS][VECTOR];
    // Everything is read before anything is written: the result may lie over an operand.
#pragma unroll
    for (int k = 0; k < UNROLL; k++) {
        INDEX vector = first + k * threads;
        if (vector >= vectors) break;
        i64 offset[OPERANDS] = {};
        INDEX rest = vector;
#pragma unroll
        for (int axis = RANK - 1; axis >= 0; axis--) {
            INDEX coordinate = rest;
            if (axis > 0) {
                INDEX extent = INDEX(operands.extent[axis]);
                rest /= extent;
                coordinate -= rest * extent;
            }
#pragma unroll
            for (int i = 0; i < OPERANDS; i++) offset[i] += i64(coordinate) * operands.stride[i][axis];
        }
        i64 left = count - i64(vector) * VECTOR;
        int lanes = RANK > 1 || left >= VECTOR ? VECTOR : int(left);
        read<SPREAD_0>(value[k][0], reinterpret_cast<const TYPE_0 *>(operands.at[0]) + offset[0], lanes);
#if OPERANDS > 1
        read<SPREAD_1>(value[k][1], reinterpret_cast<const TYPE_1 *>(operands.at[1]) + offset[1], lanes);
#endif
#if OPERANDS > 2
        read<SPREAD_2>(value[k][2], reinterpret_cast<const TYPE_2 *>(operands.at[2]) + offset[2], lanes);
#endif
#if OPERANDS > 3
        read<SPREAD_3>(value[k][3], reinterpret_cast<const TYPE_3 *>(operands.at[3]) + offset[3], lanes);
#endif
#if OPERANDS > 4
        read<SPREAD_4>(value[k][4], reinterpret_cast<const TYPE_4 *>(operands.at[4]) + offset[4], lanes);
#endif
    }
#pragma unroll
    for (int k = 0; k < UNROLL; k++) {
        INDEX vector = first + k * threads;
        if (vector >= vectors) break;
        float result[VECTOR];
#pragma unroll
        for (int i = 0; i < VECTOR; i++) {
            float x[OPERANDS];
#pragma unroll
            for (int operand = 0; operand < OPERANDS; operand++) x[operand] = value[k][operand][i];
            result[i] = compute(x, p, q);
        }
        RESULT *to = y + i64(vector) * VECTOR;
        i64 left = count - i64(vector) * VECTOR;
        if (RANK > 1 || left >= VECTOR) {
            store(to, result);
        } else {
#pragma unroll
            for (int i = 0; i < VECTOR; i++)
                if (i < left) to[i] = from_float<RESULT>(result[i]);
        }
    }
}
