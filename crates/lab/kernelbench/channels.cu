// Norms of sets that are larger than the L2 cache, by a block on each multiprocessor that all have a part of the same set: x is
// [SEGMENTS][SETS][SEGMENT], and a set is all that has the same second index. Of a part, most stays in shared memory and in registers until the
// moments of the set are known, and the rest is read again, from the L2 cache. While results are written, what is in shared memory of the next
// set comes in their place. The limit is memory: 8 bytes a number. The blocks wait for each other, so all have to run at the same time.
#include "common.cuh"

#define VECTORS (SEGMENT / 4 * SEGMENTS)
#define FLOWING (EACH - IN_SHARED - IN_REGISTERS)
#define GROUP 4

struct Moments {
    float count, mean, squares;
};

// The moments of all lanes' numbers, in the same order every time.
__device__ inline Moments together(Moments own) {
    Moments all;
    all.count = warp_all<Sum>(own.count);
    all.mean = all.count > 0.0f ? warp_all<Sum>(own.count * own.mean) / all.count : 0.0f;
    const float deviation = own.mean - all.mean;
    all.squares = warp_all<Sum>(fmaf(own.count * deviation, deviation, own.squares));
    return all;
}

__device__ inline void merge(Moments& own, Moments other) {
    if (other.count > 0.0f) {
        const float count = own.count + other.count, share = other.count / count, delta = other.mean - own.mean;
        own.squares += fmaf(delta * delta, own.count * share, other.squares);
        own.mean = fmaf(delta, share, own.mean);
        own.count = count;
    }
}

extern "C" __global__ void __launch_bounds__(256) nothing_yet(unsigned long long* __restrict__ moments) {
    const int at = blockIdx.x * 256 + threadIdx.x;
    if (at < SETS * BLOCKS) {
        moments[at] = NOTHING;
    }
}

// Where vector `i` of the thread whose first is `first` is.
__device__ inline int vector_of(int first, int i) { return first + i * (BLOCKS * THREADS); }
__device__ inline long long place(int set, int vector) {
    return 4LL * (unsigned)((vector / (SEGMENT / 4) * SETS + set) * (SEGMENT / 4) + vector % (SEGMENT / 4));
}
// How many numbers a block has.
__device__ inline float count_of(int block) {
    const int whole = VECTORS / THREADS, last = VECTORS % THREADS;
    return 4.0f * (float)((block < whole ? (whole - block - 1) / BLOCKS + 1 : 0) * THREADS + (whole % BLOCKS == block ? last : 0));
}

__device__ inline void copy16(float4* to, const float* from) {
    const unsigned address = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(address), "l"(from) : "memory");
}

// Sums of numbers less the thread's first one: squares of the numbers themselves lose digits if their mean is large.
struct Sums {
    float first, sum, squares;
    __device__ inline void add(float4 v) {
        const float a = v.x - first, b = v.y - first, c = v.z - first, d = v.w - first;
        sum += (a + b) + (c + d);
        squares += fmaf(a, a, b * b) + fmaf(c, c, d * d);
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) channels(const float* __restrict__ x, const float* __restrict__ weight,
    const float* __restrict__ bias, float* __restrict__ y, unsigned long long* moments) {
    extern __shared__ float4 held[];
    __shared__ Moments shared[THREADS / WARP];
    __shared__ float norm[2];
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    int first = (int)blockIdx.x * THREADS + (int)threadIdx.x, mine = 0;
    for (int i = 0; i < EACH; i++) {
        mine += vector_of(first, i) < VECTORS ? 1 : 0;
    }
    // A thread reads only what it has copied itself.
#pragma unroll
    for (int i = 0; i < IN_SHARED; i++) {
        if (i < mine) {
            copy16(held + i * THREADS + threadIdx.x, x + place(0, vector_of(first, i)));
        }
    }
    for (int set = 0; set < SETS; set++) {
        // Places are computed anew for every set: kept from one to the next, they would take the registers that numbers are in.
        asm volatile("" : "+r"(first));
        float4 kept[IN_REGISTERS];
#pragma unroll
        for (int i = 0; i < IN_REGISTERS; i++) {
            // Zeros, or the registers would be taken by what was there before.
            kept[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (IN_SHARED + i < mine) {
                kept[i] = __ldcs(reinterpret_cast<const float4*>(x + place(set, vector_of(first, IN_SHARED + i))));
            }
        }
        asm volatile("cp.async.wait_all;" : "+r"(first) : : "memory");
        Sums sums = {mine > 0 ? held[threadIdx.x].x : 0.0f, 0.0f, 0.0f};
#pragma unroll 1
        for (int i = 0; i < IN_SHARED; i++) {
            if (i < mine) {
                sums.add(held[i * THREADS + threadIdx.x]);
            }
        }
#pragma unroll 1
        for (int begin = EACH - FLOWING; begin < EACH; begin += GROUP) {
            float4 v[GROUP];
#pragma unroll
            for (int i = 0; i < GROUP; i++) {
                v[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                if (begin + i < mine) {
                    v[i] = *reinterpret_cast<const float4*>(x + place(set, vector_of(first, begin + i)));
                }
            }
#pragma unroll
            for (int i = 0; i < GROUP; i++) {
                if (begin + i < mine) {
                    sums.add(v[i]);
                }
            }
        }
#pragma unroll
        for (int i = 0; i < IN_REGISTERS; i++) {
            if (IN_SHARED + i < mine) {
                sums.add(kept[i]);
            }
        }
        const float count = 4.0f * (float)mine, less = mine > 0 ? sums.sum / count : 0.0f;
        Moments own = together({count, sums.first + less, fmaxf(fmaf(-sums.sum, less, sums.squares), 0.0f)});
        if (lane == 0) {
            shared[warp] = own;
        }
        __syncthreads();
        if (warp == 0) {
            own = together(lane < THREADS / WARP ? shared[lane] : Moments{0.0f, 0.0f, 0.0f});
            if (lane == 0) {
                tell(moments + set * BLOCKS + blockIdx.x, own.mean, own.squares);
            }
            own = {0.0f, 0.0f, 0.0f};
            for (int block = lane; block < BLOCKS; block += WARP) {
                unsigned long long word;
                do {
                    word = told(moments + set * BLOCKS + block);
                } while (word == NOTHING);
                merge(own, {count_of(block), __uint_as_float((unsigned)(word >> 32)), __uint_as_float((unsigned)word)});
            }
            own = together(own);
            if (lane == 0) {
                norm[0] = own.mean, norm[1] = rsqrtf(own.squares / own.count + EPS) * weight[set];
            }
        }
        __syncthreads();
        asm volatile("" : "+r"(first));
        const float mean = norm[0], slope = norm[1], shift = bias[set];
#define NORMAL(v) make_float4(fmaf(v.x - mean, slope, shift), fmaf(v.y - mean, slope, shift), fmaf(v.z - mean, slope, shift), \
    fmaf(v.w - mean, slope, shift))
        // What was read last is read again first.
#pragma unroll 1
        for (int begin = (EACH - 1) / GROUP * GROUP; begin > EACH - FLOWING - GROUP; begin -= GROUP) {
            float4 v[GROUP];
#pragma unroll
            for (int i = 0; i < GROUP; i++) {
                v[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                if (begin + i >= EACH - FLOWING && begin + i < mine) {
                    v[i] = __ldcs(reinterpret_cast<const float4*>(x + place(set, vector_of(first, begin + i))));
                }
            }
#pragma unroll
            for (int i = 0; i < GROUP; i++) {
                if (begin + i >= EACH - FLOWING && begin + i < mine) {
                    store4(y + place(set, vector_of(first, begin + i)), NORMAL(v[i]));
                }
            }
        }
#pragma unroll
        for (int i = 0; i < IN_REGISTERS; i++) {
            if (IN_SHARED + i < mine) {
                store4(y + place(set, vector_of(first, IN_SHARED + i)), NORMAL(kept[i]));
            }
        }
#pragma unroll 1
        for (int i = 0; i < IN_SHARED; i++) {
            if (i < mine) {
                const float4 v = held[i * THREADS + threadIdx.x];
                store4(y + place(set, vector_of(first, i)), NORMAL(v));
                if (set + 1 < SETS) {
                    copy16(held + i * THREADS + threadIdx.x, x + place(set + 1, vector_of(first, i)));
                }
            }
        }
    }
}
