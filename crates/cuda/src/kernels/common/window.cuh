// The windows of a convolution over frames, height and width: which pixel a tap of a result's window reads.
#pragma once
#include "numbers.cuh"

// Arrays are frames, height, width.
struct Window {
    i32 extents[3];
    i32 out_extents[3];
    i32 kernel[3];
    i32 stride[3];
    // Zeros before each axis. Those after it need no number: what is not inside is zero.
    i32 padding[3];
    i32 dilation[3];
};

// Where a result's window begins: coordinates, which may lie in the padding, and the pixel's number as if it did not.
struct Corner {
    int t, y, x;
    i64 pixel;
};

__device__ __forceinline__ Corner corner_of(const Window &w, int row) {
    u32 line = u32(row) / u32(w.out_extents[2]), x = u32(row) - line * u32(w.out_extents[2]);
    u32 image = line / u32(w.out_extents[1]), y = line - image * u32(w.out_extents[1]);
    u32 clip = image / u32(w.out_extents[0]), t = image - clip * u32(w.out_extents[0]);
    Corner c;
    c.t = int(t) * w.stride[0] - w.padding[0];
    c.y = int(y) * w.stride[1] - w.padding[1];
    c.x = int(x) * w.stride[2] - w.padding[2];
    c.pixel = ((i64(clip) * w.extents[0] + c.t) * w.extents[1] + c.y) * w.extents[2] + c.x;
    return c;
}

// A corner so far outside that none of its taps reads a pixel.
__device__ __forceinline__ Corner no_corner() { return {-(1 << 30), 0, 0, 0}; }

// A place in the depth of a convolution, whose taps lie one after another, each with its channels.
struct Cursor {
    int t, y, x, channel;

    __device__ __forceinline__ void go_to(const Window &w, int channels, int depth) {
        u32 tap = u32(depth) / u32(channels);
        channel = int(u32(depth) - tap * u32(channels));
        u32 line = tap / u32(w.kernel[2]);
        x = int(tap - line * u32(w.kernel[2]));
        t = int(line / u32(w.kernel[1]));
        y = int(line) - t * w.kernel[1];
    }

    __device__ __forceinline__ void advance(const Window &w, int channels, int by) {
        channel += by;
        while (channel >= channels) {
            channel -= channels;
            if (++x == w.kernel[2]) {
                x = 0;
                if (++y == w.kernel[1]) y = 0, t++;
            }
        }
    }
};

// A tap, in input coordinates from the window's corner.
struct Tap {
    int t, y, x;
    i64 pixel;
    bool exists;

    __device__ __forceinline__ Tap(const Window &w, const Cursor &c)
        : t(c.t * w.dilation[0]), y(c.y * w.dilation[1]), x(c.x * w.dilation[2]), exists(c.t < w.kernel[0]) {
        pixel = (i64(t) * w.extents[1] + y) * w.extents[2] + x;
    }

    // Whether it reads a pixel, not padding.
    __device__ __forceinline__ bool inside(const Window &w, const Corner &c) const {
        return exists && u32(c.t + t) < u32(w.extents[0]) && u32(c.y + y) < u32(w.extents[1]) &&
               u32(c.x + x) < u32(w.extents[2]);
    }
};
