//! A convolution's input as the left operand of a product: im2col, a piece of a row at a time.

use std::num::NonZeroUsize;
use std::ops::Range;

use super::{Rows, Values};
use crate::simd::{Float, Simd};

/// The shape of a convolution over images `[images, height, width, channels]`, images = clips × frames.
///
/// A row is an output pixel, in the order (image, y, x); a row's columns are (frame tap, y tap, x tap, channel).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConvGeometry {
    /// Images in the input.
    pub(crate) images: usize,
    /// Images in a clip, the reach of temporal taps; 1 for a convolution of single images.
    pub(crate) frames: usize,
    /// Rows of pixels in an image.
    pub(crate) height: usize,
    /// Pixels in a row.
    pub(crate) width: usize,
    /// Channels a pixel has in memory.
    pub(crate) pixel_channels: usize,
    /// The first channel this convolution reads: that of its group.
    pub(crate) first_channel: usize,
    /// The channels this convolution reads: those of its group.
    pub(crate) channels: usize,
    /// Taps over frames, rows and columns.
    pub(crate) kernel: [usize; 3],
    /// Steps between windows over frames, rows and columns.
    pub(crate) stride: [usize; 3],
    /// Distance between taps over frames, rows and columns.
    pub(crate) dilation: [usize; 3],
    /// Zeros before the first frame, row and column.
    pub(crate) padding_before: [usize; 3],
    /// Zeros after the last frame, row and column.
    pub(crate) padding_after: [usize; 3],
}

impl ConvGeometry {
    /// How many positions the taps have along `axis` (frames, rows, columns) of `size`.
    fn positions(&self, axis: usize, size: usize) -> usize {
        let padded = size + self.padding_before[axis] + self.padding_after[axis];
        let reach = self.dilation[axis] * self.kernel[axis].saturating_sub(1) + 1;
        if padded < reach { 0 } else { (padded - reach) / self.stride[axis] + 1 }
    }

    /// Frames of an output clip.
    pub(crate) fn output_frames(&self) -> usize {
        self.positions(0, self.frames)
    }

    /// Rows of pixels in an output image.
    pub(crate) fn output_height(&self) -> usize {
        self.positions(1, self.height)
    }

    /// Pixels in a row of an output image.
    pub(crate) fn output_width(&self) -> usize {
        self.positions(2, self.width)
    }

    /// Images in the output.
    pub(crate) fn output_images(&self) -> usize {
        self.images / self.frames * self.output_frames()
    }
}

/// Fewer channels than this are copied: such a short run would not pay for its set-up.
const SHORTEST_RUN: usize = 8;

/// The pixel in the padding, of as many channels as any network here has; zero in bfloat16 as well.
static ZEROS: [f32; 8192] = [0.0; 8192];

/// The rows of a convolution.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConvRows<'a> {
    values: Values<'a>,
    geometry: ConvGeometry,
    output_frames: usize,
    output_height: usize,
    output_width: usize,
}

impl<'a> ConvRows<'a> {
    /// The rows of a convolution of `geometry` over `values`.
    ///
    /// # Panics
    /// If `values` holds fewer values than the geometry says, the group's channels lie outside the pixel, the images
    /// are not whole clips, or a stride is zero.
    pub(crate) fn new(values: Values<'a>, geometry: ConvGeometry) -> Self {
        let needed = geometry.images * geometry.height * geometry.width * geometry.pixel_channels;
        assert!(values.len() >= needed, "the images need {needed} values, not {}", values.len());
        assert!(
            geometry.first_channel + geometry.channels <= geometry.pixel_channels,
            "channels outside the pixel"
        );
        assert!(
            geometry.frames > 0 && geometry.images.is_multiple_of(geometry.frames),
            "images must be whole clips"
        );
        assert!(!geometry.stride.contains(&0), "a stride must be positive");
        Self {
            values,
            geometry,
            output_frames: geometry.output_frames(),
            output_height: geometry.output_height(),
            output_width: geometry.output_width(),
        }
    }

    /// The index of the input pixel under tap `tap` of the output pixel whose first tap is at `origin` (frame, y, x, all
    /// counted with padding) of clip `clip`; `None` in the padding.
    #[inline(always)]
    fn pixel(&self, clip: usize, origin: [usize; 3], tap: usize) -> Option<usize> {
        let geometry = &self.geometry;
        let [_, kernel_height, kernel_width] = geometry.kernel;
        let taps =
            [tap / (kernel_width * kernel_height), tap / kernel_width % kernel_height, tap % kernel_width];
        let size = [geometry.frames, geometry.height, geometry.width];
        let mut index = clip;
        for axis in 0..3 {
            let padded = origin[axis] + taps[axis] * geometry.dilation[axis];
            let position = padded.wrapping_sub(geometry.padding_before[axis]);
            if position >= size[axis] {
                return None;
            }
            index = index * size[axis] + position;
        }
        Some(index)
    }
}

impl Rows for ConvRows<'_> {
    fn rows(&self) -> usize {
        self.geometry.output_images() * self.output_height * self.output_width
    }

    fn depth(&self) -> usize {
        self.geometry.kernel.iter().product::<usize>() * self.geometry.channels
    }

    fn is_bf16(&self) -> bool {
        self.values.is_bf16()
    }

    #[inline(always)]
    fn copy<S: Simd, T: Float>(&self, simd: S, row: usize, depth: Range<usize>, target: &mut [T]) {
        // Without channels there is nothing to copy, and nothing to divide by.
        if target.is_empty() {
            return;
        }
        let geometry = &self.geometry;
        let (line, x) = (row / self.output_width, row % self.output_width);
        let (image, y) = (line / self.output_height, line % self.output_height);
        let (clip, frame) = (image / self.output_frames, image % self.output_frames);
        let [across_frames, down, across] = geometry.stride;
        let origin = [frame * across_frames, y * down, x * across];
        let mut tap = depth.start / geometry.channels;
        let mut channel = depth.start % geometry.channels;
        let mut filled = 0;
        while filled < target.len() {
            let count = (geometry.channels - channel).min(target.len() - filled);
            let piece = &mut target[filled..filled + count];
            match self.pixel(clip, origin, tap) {
                Some(pixel) => {
                    let start = pixel * geometry.pixel_channels + geometry.first_channel + channel;
                    self.values.copy(simd, start, piece);
                }
                None => piece.fill(T::default()),
            }
            filled += count;
            channel = 0;
            tap += 1;
        }
    }

    fn run_length(&self) -> Option<NonZeroUsize> {
        let worth = |channels: &NonZeroUsize| (SHORTEST_RUN..=ZEROS.len()).contains(&channels.get());
        NonZeroUsize::new(self.geometry.channels).filter(worth).filter(|_| self.values.is_readable_in_steps())
    }

    /// A run is the channels of the pixel under a tap, or zeros in the padding.
    fn run_starts(&self, rows: Range<usize>, tap: usize, starts: &mut Vec<*const f32>) {
        let geometry = &self.geometry;
        let [across_frames, down, across] = geometry.stride;
        let (mut line, mut x) = (rows.start / self.output_width, rows.start % self.output_width);
        let mut left = rows.len();
        let tap_x = tap % geometry.kernel[2];
        let left_edge = geometry.padding_before[2];
        // A line of output pixels at a time: only x differs within it, and the rest is computed once.
        while left > 0 {
            let count = left.min(self.output_width - x);
            let (image, y) = (line / self.output_height, line % self.output_height);
            let (clip, frame) = (image / self.output_frames, image % self.output_frames);
            // The first pixel of the line that the tap is on.
            let line_start = self.pixel(clip, [frame * across_frames, y * down, left_edge], tap - tap_x);
            match line_start {
                Some(first) => starts.extend((x..x + count).map(|x| {
                    let position = (x * across + tap_x * geometry.dilation[2]).wrapping_sub(left_edge);
                    if position >= geometry.width {
                        return ZEROS.as_ptr();
                    }
                    let pixel = (first + position) * geometry.pixel_channels;
                    self.values.address(pixel + geometry.first_channel)
                })),
                None => starts.extend((0..count).map(|_| ZEROS.as_ptr())),
            }
            left -= count;
            (line, x) = (line + 1, 0);
        }
    }
}
