//! A convolution's input as the left operand of a product: im2col, a piece of a row at a time.

use std::ops::Range;

use super::{Rows, Values};
use crate::simd::Simd;

/// The shape of a convolution over images `[images, height, width, channels]`, images = clips × frames.
///
/// A row is an output pixel, in the order (image, y, x); a row's columns are (frame tap, y tap, x tap, channel).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvGeometry {
    /// Images in the input.
    pub images: usize,
    /// Images in a clip, the reach of temporal taps; 1 for a convolution of single images.
    pub frames: usize,
    /// Rows of pixels in an image.
    pub height: usize,
    /// Pixels in a row.
    pub width: usize,
    /// Channels a pixel has in memory.
    pub pixel_channels: usize,
    /// The first channel this convolution reads: that of its group.
    pub first_channel: usize,
    /// The channels this convolution reads: those of its group.
    pub channels: usize,
    /// Taps over frames, rows and columns.
    pub kernel: [usize; 3],
    /// Step between output pixels, down and across; a temporal stride is always 1.
    pub stride: [usize; 2],
    /// Distance between taps over frames, rows and columns.
    pub dilation: [usize; 3],
    /// Zeros before the first frame, row and column.
    pub padding_before: [usize; 3],
    /// Zeros after the last frame, row and column.
    pub padding_after: [usize; 3],
}

impl ConvGeometry {
    /// A two-dimensional convolution of `kernel × kernel` taps with stride 1, unpadded, over whole pixels; adjust its
    /// fields for anything else.
    pub fn new(images: usize, height: usize, width: usize, channels: usize, kernel: usize) -> Self {
        Self {
            images,
            frames: 1,
            height,
            width,
            pixel_channels: channels,
            first_channel: 0,
            channels,
            kernel: [1, kernel, kernel],
            stride: [1, 1],
            dilation: [1, 1, 1],
            padding_before: [0, 0, 0],
            padding_after: [0, 0, 0],
        }
    }

    /// The same convolution with `padding` zeros on each side of each image.
    pub fn padded(mut self, padding: usize) -> Self {
        self.padding_before = [0, padding, padding];
        self.padding_after = [0, padding, padding];
        self
    }

    /// How many positions the taps have along `axis` (frames, rows, columns) of `size`.
    fn positions(&self, axis: usize, size: usize, stride: usize) -> usize {
        let padded = size + self.padding_before[axis] + self.padding_after[axis];
        let reach = self.dilation[axis] * self.kernel[axis].saturating_sub(1) + 1;
        if padded < reach {
            0
        } else {
            (padded - reach) / stride + 1
        }
    }

    /// Frames of an output clip.
    pub fn output_frames(&self) -> usize {
        self.positions(0, self.frames, 1)
    }

    /// Rows of pixels in an output image.
    pub fn output_height(&self) -> usize {
        self.positions(1, self.height, self.stride[0])
    }

    /// Pixels in a row of an output image.
    pub fn output_width(&self) -> usize {
        self.positions(2, self.width, self.stride[1])
    }

    /// Images in the output.
    pub fn output_images(&self) -> usize {
        self.images / self.frames * self.output_frames()
    }
}

/// The rows of a convolution.
#[derive(Clone, Copy, Debug)]
pub struct ConvRows<'a> {
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
    /// Where `values` holds fewer values than the geometry says, the group's channels lie outside the pixel, the images
    /// are not whole clips, or a stride is zero.
    pub fn new(values: Values<'a>, geometry: ConvGeometry) -> Self {
        let needed = geometry.images * geometry.height * geometry.width * geometry.pixel_channels;
        assert!(
            values.len() >= needed,
            "the images need {needed} values, not {}",
            values.len()
        );
        assert!(
            geometry.first_channel + geometry.channels <= geometry.pixel_channels,
            "channels outside the pixel"
        );
        assert!(
            geometry.frames > 0 && geometry.images.is_multiple_of(geometry.frames),
            "images must be whole clips"
        );
        assert!(
            geometry.stride[0] > 0 && geometry.stride[1] > 0,
            "a stride must be positive"
        );
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
        let taps = [
            tap / (kernel_width * kernel_height),
            tap / kernel_width % kernel_height,
            tap % kernel_width,
        ];
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

    #[inline(always)]
    fn copy<S: Simd>(&self, simd: S, row: usize, depth: Range<usize>, target: &mut [f32]) {
        let geometry = &self.geometry;
        let (line, x) = (row / self.output_width, row % self.output_width);
        let (image, y) = (line / self.output_height, line % self.output_height);
        let (clip, frame) = (image / self.output_frames, image % self.output_frames);
        let origin = [frame, y * geometry.stride[0], x * geometry.stride[1]];
        let mut tap = depth.start / geometry.channels;
        let mut channel = depth.start % geometry.channels;
        let mut filled = 0;
        while filled < target.len() {
            let count = (geometry.channels - channel).min(target.len() - filled);
            let piece = &mut target[filled..filled + count];
            match self.pixel(clip, origin, tap) {
                Some(pixel) => {
                    let start = pixel * geometry.pixel_channels + geometry.first_channel + channel;
                    self.values.widen(simd, start, piece);
                }
                None => piece.fill(0.0),
            }
            filled += count;
            channel = 0;
            tap += 1;
        }
    }
}
