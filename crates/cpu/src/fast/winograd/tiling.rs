//! How an output is split into tiles: where their patches are, and the transforms of one vector of channels.

use super::transform::{input_transform, output_transform};
use crate::gemm::ConvGeometry;
use crate::simd::Simd;

/// Tiles of `PIXELS` output pixels. Each sees a patch of `PLANES` input pixels, and has as many values when transformed.
pub(super) trait Tiling<const PLANES: usize, const PIXELS: usize>: Copy + Send + Sync {
    /// The most tiles of a block, a multiple of the microkernel's rows on every instruction set. Each weight that is read
    /// is multiplied this often, which keeps the reading within what L3 can deliver.
    const TILE_BLOCK: usize;

    /// The tiles of all images.
    fn tiles(&self) -> usize;

    /// The input pixels of a tile's patch; `None` in the padding.
    fn patch(&self, tile: usize) -> [Option<usize>; PLANES];

    /// The rows of the output that a tile's pixels are; `None` beyond an odd edge.
    fn rows(&self, tile: usize) -> [Option<usize>; PIXELS];

    /// The transform of a patch.
    fn transform_patch<S: Simd>(simd: S, patch: [S::F32; PLANES]) -> [S::F32; PLANES];

    /// The pixels of a tile from its sums.
    fn transform_sums<S: Simd>(simd: S, sums: [S::F32; PLANES]) -> [S::F32; PIXELS];
}

/// Tiles of 2×2 pixels of one image, for 3×3 windows; patches and pixels are by rows.
#[derive(Clone, Copy)]
pub(super) struct SquareTiling {
    images: usize,
    /// Tiles down an image.
    down: usize,
    /// Tiles across an image.
    across: usize,
    height: usize,
    width: usize,
    output_height: usize,
    output_width: usize,
    /// Zeros above and left of the image.
    padding: [usize; 2],
}

impl SquareTiling {
    pub(super) fn new(geometry: &ConvGeometry) -> Self {
        let (output_height, output_width) = (geometry.output_height(), geometry.output_width());
        SquareTiling {
            images: geometry.images,
            down: output_height.div_ceil(2),
            across: output_width.div_ceil(2),
            height: geometry.height,
            width: geometry.width,
            output_height,
            output_width,
            padding: [geometry.padding_before[1], geometry.padding_before[2]],
        }
    }

    /// The image of a tile, and the y and x of its first pixel.
    #[inline(always)]
    fn origin(&self, tile: usize) -> (usize, usize, usize) {
        let (line, x) = (tile / self.across, tile % self.across);
        (line / self.down, 2 * (line % self.down), 2 * x)
    }
}

impl Tiling<16, 4> for SquareTiling {
    const TILE_BLOCK: usize = 48;

    fn tiles(&self) -> usize {
        self.images * self.down * self.across
    }

    #[inline(always)]
    fn patch(&self, tile: usize) -> [Option<usize>; 16] {
        let (image, y, x) = self.origin(tile);
        let mut pixels = [None; 16];
        for (at, pixel) in pixels.iter_mut().enumerate() {
            let y = (y + at / 4).wrapping_sub(self.padding[0]);
            let x = (x + at % 4).wrapping_sub(self.padding[1]);
            if y < self.height && x < self.width {
                *pixel = Some((image * self.height + y) * self.width + x);
            }
        }
        pixels
    }

    #[inline(always)]
    fn rows(&self, tile: usize) -> [Option<usize>; 4] {
        let (image, y, x) = self.origin(tile);
        let mut rows = [None; 4];
        for (at, row) in rows.iter_mut().enumerate() {
            let (y, x) = (y + at / 2, x + at % 2);
            if y < self.output_height && x < self.output_width {
                *row = Some((image * self.output_height + y) * self.output_width + x);
            }
        }
        rows
    }

    #[inline(always)]
    fn transform_patch<S: Simd>(simd: S, patch: [S::F32; 16]) -> [S::F32; 16] {
        let mut columns = [[simd.zero(); 4]; 4];
        for (x, column) in columns.iter_mut().enumerate() {
            *column = input_transform(simd, [patch[x], patch[4 + x], patch[8 + x], patch[12 + x]]);
        }
        let [first, second, third, fourth] = columns;
        let mut planes = [simd.zero(); 16];
        for (y, row) in planes.chunks_exact_mut(4).enumerate() {
            row.copy_from_slice(&input_transform(simd, [first[y], second[y], third[y], fourth[y]]));
        }
        planes
    }

    #[inline(always)]
    fn transform_sums<S: Simd>(simd: S, sums: [S::F32; 16]) -> [S::F32; 4] {
        let mut rows = [[simd.zero(); 2]; 4];
        for (y, row) in rows.iter_mut().enumerate() {
            *row = output_transform(simd, [sums[4 * y], sums[4 * y + 1], sums[4 * y + 2], sums[4 * y + 3]]);
        }
        let [first, second, third, fourth] = rows;
        let left = output_transform(simd, [first[0], second[0], third[0], fourth[0]]);
        let right = output_transform(simd, [first[1], second[1], third[1], fourth[1]]);
        [left[0], right[0], left[1], right[1]]
    }
}

/// Tiles of one pixel in two frames that follow each other in a clip, for windows of three frames. Tiles of the same
/// frames follow each other.
#[derive(Clone, Copy)]
pub(super) struct FramesTiling {
    clips: usize,
    /// Tiles along a clip.
    along: usize,
    /// Pixels of a frame.
    pixels: usize,
    frames: usize,
    output_frames: usize,
    /// Zeros before the first frame.
    padding: usize,
}

impl FramesTiling {
    pub(super) fn new(geometry: &ConvGeometry) -> Self {
        let output_frames = geometry.output_frames();
        FramesTiling {
            clips: geometry.images / geometry.frames,
            along: output_frames.div_ceil(2),
            pixels: geometry.height * geometry.width,
            frames: geometry.frames,
            output_frames,
            padding: geometry.padding_before[0],
        }
    }

    /// The clip of a tile, its first frame there and its pixel.
    #[inline(always)]
    fn origin(&self, tile: usize) -> (usize, usize, usize) {
        let (pair, pixel) = (tile / self.pixels, tile % self.pixels);
        (pair / self.along, 2 * (pair % self.along), pixel)
    }
}

impl Tiling<4, 2> for FramesTiling {
    const TILE_BLOCK: usize = 96;

    fn tiles(&self) -> usize {
        self.clips * self.along * self.pixels
    }

    #[inline(always)]
    fn patch(&self, tile: usize) -> [Option<usize>; 4] {
        let (clip, frame, at) = self.origin(tile);
        let mut pixels = [None; 4];
        for (tap, pixel) in pixels.iter_mut().enumerate() {
            let frame = (frame + tap).wrapping_sub(self.padding);
            if frame < self.frames {
                *pixel = Some((clip * self.frames + frame) * self.pixels + at);
            }
        }
        pixels
    }

    #[inline(always)]
    fn rows(&self, tile: usize) -> [Option<usize>; 2] {
        let (clip, frame, pixel) = self.origin(tile);
        let row = (clip * self.output_frames + frame) * self.pixels + pixel;
        [Some(row), (frame + 1 < self.output_frames).then_some(row + self.pixels)]
    }

    #[inline(always)]
    fn transform_patch<S: Simd>(simd: S, patch: [S::F32; 4]) -> [S::F32; 4] {
        input_transform(simd, patch)
    }

    #[inline(always)]
    fn transform_sums<S: Simd>(simd: S, sums: [S::F32; 4]) -> [S::F32; 2] {
        output_transform(simd, sums)
    }
}
