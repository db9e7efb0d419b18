// Softmax and norms of rows, each of which is read twice, but from memory only once: statistics of a slice of a row are a task, its results
// another, and tasks take turns so that what one has read is still in the L2 cache when the other comes for it. Blocks start in the order of
// their numbers, and statistics come first, so results wait for nothing that has not begun. They have their numbers in registers by then.
// The limit is memory, 8 bytes a number; no multiprocessor waits for all of a row.
#include "common.cuh"

// Vectors of a row whose numbers are all its own; the few before and after them are PART 0's.
#define ALIGNED (LENGTH % 4 == 0)
#define VECTORS (ALIGNED ? LENGTH / 4 : (LENGTH - 3) / 4)
#define SLICE (EACH * THREADS)
#define FULL_SLICES (ALIGNED && VECTORS % SLICE == 0)
#define TASKS (ROWS * PARTS)

// The statistics of some numbers: `centre` is their maximum or their mean, `sum` is that of the operation's terms.
struct Statistics {
    float centre, sum;
};

struct Softmax {
    static constexpr bool maximum = true, moments = false;
    static __device__ float term(float x, float maximum) { return expf(x - maximum); }
    static __device__ float factor(float sum) { return 1.0f / sum; }
    static __device__ float result(float x, float maximum, float, float factor) { return expf(x - maximum) * factor; }
};
struct LogSoftmax {
    static constexpr bool maximum = true, moments = false;
    static __device__ float term(float x, float maximum) { return expf(x - maximum); }
    static __device__ float factor(float sum) { return logf(sum); }
    static __device__ float result(float x, float maximum, float, float factor) { return x - maximum - factor; }
};
// x / mean |x|.
struct L1 {
    static constexpr bool maximum = false, moments = false;
    static __device__ float term(float x, float) { return fabsf(x); }
    static __device__ float divisor(float sum) { return sum / LENGTH; }
    static __device__ float factor(float sum) { return 1.0f / divisor(sum); }
    static __device__ float result(float x, float, float sum, float factor) { return quotient(x, sum, factor); }
};
struct L2 {
    static constexpr bool maximum = false, moments = false;
    static __device__ float term(float x, float) { return x * x; }
    static __device__ float divisor(float sum) { return sqrtf(sum); }
    static __device__ float factor(float sum) { return 1.0f / divisor(sum); }
    static __device__ float result(float x, float, float sum, float factor) { return quotient(x, sum, factor); }
};
// (x - mean) / sqrt(variance + EPS). Squares of deviations from the slice's own mean: those of the numbers themselves lose digits if the mean is large.
struct Moments {
    static constexpr bool maximum = false, moments = true;
    static __device__ float term(float x, float mean) { return (x - mean) * (x - mean); }
    static __device__ float factor(float squares) { return rsqrtf(squares / LENGTH + EPS); }
    static __device__ float result(float x, float mean, float, float factor) { return (x - mean) * factor; }
};
template <typename Operation, typename = void>
struct Divisor { static __device__ float of(float sum) { return sum; } };
template <>
struct Divisor<L1> { static __device__ float of(float sum) { return L1::divisor(sum); } };
template <>
struct Divisor<L2> { static __device__ float of(float sum) { return L2::divisor(sum); } };

// The statistics of all lanes' numbers together; `count` is how many a lane's are of. The order is always the same.
__device__ inline Statistics together(float count, Statistics own) {
    Statistics all = {0.0f, 0.0f};
    if (OPERATION::maximum) {
        all.centre = warp_all<Max>(own.centre);
        // Nothing, or nothing but infinities, has a sum of zero.
        own.sum = own.sum == 0.0f ? 0.0f : own.sum * expf(own.centre - all.centre);
    }
    if (OPERATION::moments) {
        all.centre = warp_all<Sum>(count * own.centre) / warp_all<Sum>(count);
        const float deviation = own.centre - all.centre;
        own.sum = count > 0.0f ? fmaf(count * deviation, deviation, own.sum) : 0.0f;
    }
    all.sum = warp_all<Sum>(own.sum);
    return all;
}

// How many numbers slice `part` has.
__device__ inline float count_of(int part, int edges) {
    return (float)(4 * min(SLICE, VECTORS - part * SLICE) + (part == 0 ? edges : 0));
}

extern "C" __global__ void __launch_bounds__(256) nothing_yet(unsigned long long* __restrict__ statistics) {
    const int at = blockIdx.x * 256 + threadIdx.x;
    if (at < TASKS) {
        statistics[at] = NOTHING;
    }
}

#if AFFINE
// Whose weight and bias a number has, by its place in the row.
__device__ inline int channel_of(int row, int at) {
    return row % (CHANNELS * SPATIAL / LENGTH) * (LENGTH / SPATIAL) + at / SPATIAL;
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) rows(const float* __restrict__ x, const float* __restrict__ weight,
    const float* __restrict__ bias, float* __restrict__ y, unsigned long long* statistics) {
    __shared__ Statistics shared[THREADS / WARP];
    __shared__ float counts[THREADS / WARP];
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    // The first tasks are statistics, then they and results are in turns, and results are left at the end.
    const int ticket = blockIdx.x;
    bool results = false;
    int task = ticket;
    if (ticket >= AHEAD) {
        const int turn = (ticket - AHEAD) / 2;
        results = turn >= TASKS - AHEAD || (ticket - AHEAD) % 2 == 0;
        task = turn >= TASKS - AHEAD ? ticket - TASKS : results ? turn : AHEAD + turn;
    }
    const int row = task / PARTS, part = task % PARTS;
    const long long begin = (long long)row * LENGTH;
    const int head = ALIGNED ? 0 : (int)(-begin & 3);
    const int tail = ALIGNED ? 0 : LENGTH - head - 4 * VECTORS;
    const float* from = x + begin + head;

    float4 v[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int at = part * SLICE + i * THREADS + (int)threadIdx.x;
        v[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (FULL_SLICES || at < VECTORS) {
            v[i] = results ? __ldcs(reinterpret_cast<const float4*>(from) + at) : reinterpret_cast<const float4*>(from)[at];
        }
    }
    // At most three before the vectors and six after them.
    const int edge = (int)threadIdx.x < head ? (int)threadIdx.x : (int)threadIdx.x + 4 * VECTORS;
    const bool has_edge = !ALIGNED && part == 0 && (int)threadIdx.x < head + tail;
    const float odd = has_edge ? x[begin + edge] : 0.0f;
#define NUMBERS(i) {v[i].x, v[i].y, v[i].z, v[i].w}
#define HAS(i) (FULL_SLICES || part * SLICE + (i) * THREADS + (int)threadIdx.x < VECTORS)

    if (!results) {
        Statistics own = {0.0f, 0.0f};
        float count = 0.0f;
        if (OPERATION::maximum) {
            float maximum = has_edge ? odd : Max::identity();
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                if (HAS(i)) {
                    maximum = Max::combine(maximum, Max::combine(Max::combine(v[i].x, v[i].y), Max::combine(v[i].z, v[i].w)));
                }
            }
            own.centre = warp_all<Max>(maximum);
        }
        if (OPERATION::moments) {
            float sum = odd;
            count = has_edge ? 1.0f : 0.0f;
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                sum += (v[i].x + v[i].y) + (v[i].z + v[i].w);
                count += HAS(i) ? 4.0f : 0.0f;
            }
            count = FULL_SLICES ? 4.0f * EACH * WARP : warp_all<Sum>(count);
            sum = warp_all<Sum>(sum);
            own.centre = count > 0.0f ? sum / count : 0.0f;
        }
        // A warp of nothing but minus infinity adds nothing.
        const float centre = OPERATION::maximum && own.centre == Max::identity() ? 0.0f : own.centre;
        float sum = has_edge ? OPERATION::term(odd, centre) : 0.0f;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            if (HAS(i)) {
                sum += (OPERATION::term(v[i].x, centre) + OPERATION::term(v[i].y, centre))
                    + (OPERATION::term(v[i].z, centre) + OPERATION::term(v[i].w, centre));
            }
        }
        own.sum = warp_all<Sum>(sum);
        if (lane == 0) {
            shared[warp] = own;
            counts[warp] = count;
        }
        __syncthreads();
        if (warp == 0) {
            const Statistics none = {OPERATION::maximum ? Max::identity() : 0.0f, 0.0f};
            own = together(lane < THREADS / WARP ? counts[lane] : 0.0f, lane < THREADS / WARP ? shared[lane] : none);
            if (lane == 0) {
                tell(statistics + task, own.centre, own.sum);
            }
        }
        return;
    }

    if (warp == 0) {
        // All of the row's statistics, a few for each lane.
        const int mine = (PARTS + WARP - 1) / WARP;
        unsigned long long words[mine];
#pragma unroll
        for (int i = 0; i < mine; i++) {
            words[i] = i * WARP + lane < PARTS ? told(statistics + row * PARTS + i * WARP + lane) : 0;
        }
        Statistics all = {OPERATION::maximum ? Max::identity() : 0.0f, 0.0f};
        float count = 0.0f;
#pragma unroll
        for (int i = 0; i < mine; i++) {
            while (words[i] == NOTHING) {
                words[i] = told(statistics + row * PARTS + i * WARP + lane);
            }
            const bool there = i * WARP + lane < PARTS;
            const Statistics next = {__uint_as_float((unsigned)(words[i] >> 32)), __uint_as_float((unsigned)words[i])};
            const float more = OPERATION::moments && there ? count_of(i * WARP + lane, head + tail) : 0.0f;
            if (i == 0) {
                all = there ? next : all;
                count = more;
            } else if (there) {
                if (OPERATION::maximum) {
                    const float centre = Max::combine(all.centre, next.centre);
                    all.sum = (all.sum == 0.0f ? 0.0f : all.sum * expf(all.centre - centre))
                        + (next.sum == 0.0f ? 0.0f : next.sum * expf(next.centre - centre));
                    all.centre = centre;
                } else if (OPERATION::moments) {
                    const float share = more / (count + more), delta = next.centre - all.centre;
                    all.centre = fmaf(delta, share, all.centre);
                    all.sum += fmaf(delta * delta, count * share, next.sum);
                    count += more;
                } else {
                    all.sum += next.sum;
                }
            }
        }
        all = together(count, all);
        if (lane == 0) {
            shared[0] = all;
        }
    }
    __syncthreads();
    const float centre = shared[0].centre, divisor = Divisor<OPERATION>::of(shared[0].sum), factor = OPERATION::factor(shared[0].sum);
    float* to = y + begin + head;
#if AFFINE
#define RESULT(value, place) fmaf(OPERATION::result(value, centre, divisor, factor), __ldg(weight + channel_of(row, place)), \
    __ldg(bias + channel_of(row, place)))
#else
#define RESULT(value, place) OPERATION::result(value, centre, divisor, factor)
#endif
#if AFFINE && SPATIAL % 4 == 0
#define FIRST_OF(place) (place)
#else
#define FIRST_OF(place) (place) + k
#endif
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int at = part * SLICE + i * THREADS + (int)threadIdx.x;
        if (HAS(i)) {
            float values[4] = NUMBERS(i);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                values[k] = RESULT(values[k], FIRST_OF(head + 4 * at));
            }
            const float4 out = make_float4(values[0], values[1], values[2], values[3]);
            if (STREAM_OUT) {
                __stcs(reinterpret_cast<float4*>(to) + at, out);
            } else {
                reinterpret_cast<float4*>(to)[at] = out;
            }
        }
    }
    if (has_edge) {
        y[begin + edge] = RESULT(odd, edge);
    }
}
