// Moves particles along one axis. Each record has 32 bytes, of which a thread needs 8.
struct Particle { float x, y, z, mass, velocity, charge, spin, age; };

extern "C" __global__ void move(const float *in, float *out, int count, float seconds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
#ifdef MENDED
    out[i] = in[i] + seconds * in[4 * count + i];
#else
    const Particle *particles = reinterpret_cast<const Particle *>(in);
    out[i] = particles[i].x + seconds * particles[i].velocity; // planted
#endif
}
