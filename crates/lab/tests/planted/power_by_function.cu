// A general power where a multiplication is meant.
extern "C" __global__ void energies(const float *in, float *out, int count, float exponent) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float x = in[i], sum = 0.0f;
    for (int k = 0; k < 16; k++) {
#ifdef MENDED
        sum += (x + k) * (x + k);
#else
        sum += powf(x + k, exponent); // planted
#endif
    }
    out[i] = sum;
}
