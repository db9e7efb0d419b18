// Sines and cosines of numbers at falling frequencies. All of it is in f64: a frequency that is off by one part in 2^24
// would turn an angle of 1000 by more than f32 results may differ, and there are few elements.
#include "specialisation.cuh"
#include "grid.cuh"
#include "numbers.cuh"

constexpr int threads = 128;

struct Frequencies {
    // The logarithm of one frequency over that of the one before.
    double step;
    double scale;
};

extern "C" __global__ void __launch_bounds__(threads)
    timesteps(f32 *y, const TYPE *t, Frequencies frequencies, i64 count, i32 width) {
    wait_for_launch_before();
    const int half = width / 2;
    // An odd width has a last column of zeros, which a thread of its own writes.
    const int columns = half + width % 2;
    i64 item = i64(blockIdx.x) * threads + threadIdx.x;
    if (item >= count * columns) return;
    i64 row = item / columns;
    int i = int(item - row * columns);
    f32 *to = y + row * width;
    if (i == half) {
        to[width - 1] = 0.0f;
        return;
    }
    double angle = frequencies.scale * double(to_float(t[row])) * exp(frequencies.step * double(i));
    double sine, cosine;
    sincos(angle, &sine, &cosine);
    to[i] = float(COSINE_FIRST ? cosine : sine);
    to[half + i] = float(COSINE_FIRST ? sine : cosine);
}
