// Brightens an image. One byte for each thread wastes most of every instruction.
extern "C" __global__ void brighten(const unsigned char *in, unsigned char *out, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef MENDED
    if (16 * i >= count) return;
    uint4 pixels = reinterpret_cast<const uint4 *>(in)[i];
    pixels.x = __vaddus4(pixels.x, 0x10101010);
    pixels.y = __vaddus4(pixels.y, 0x10101010);
    pixels.z = __vaddus4(pixels.z, 0x10101010);
    pixels.w = __vaddus4(pixels.w, 0x10101010);
    reinterpret_cast<uint4 *>(out)[i] = pixels;
#else
    if (i >= count) return;
    out[i] = min(in[i] + 16, 255); // planted
#endif
}
