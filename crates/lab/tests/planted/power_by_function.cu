// A power at full accuracy, with its special cases, where the fast intrinsic would do.
extern "C" __global__ void energies(const float *in, float *out, int count, float exponent) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float x = in[i], sum = 0.0f;
    for (int k = 0; k < 16; k++) {
#ifdef MENDED
        sum += __powf(x + k, exponent);
#else
        sum += powf(x + k, exponent); // planted
#endif
    }
    out[i] = sum;
}
