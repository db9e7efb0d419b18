// out = a * x + y, one element a thread.
//
// Try: remove the comparison with n, and see which thread of which block goes astray. Or let a thread handle four
// elements as a float4, and see what that does to the predicted time.

__global__ void axpy(float a, const float *x, const float *y, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    // The last block has threads beyond the end, unless n is a multiple of its size.
    if (i < n) {
        out[i] = a * x[i] + y[i];
    }
}
