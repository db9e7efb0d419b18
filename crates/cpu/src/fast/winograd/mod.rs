//! Convolutions by Winograd's minimal filtering, in two forms: F(2×2, 3×3) for 3×3 windows, with 16 multiplications
//! instead of 36, and F(2, 3) for windows of three frames, with 4 instead of 6.
//!
//! The output is cut into tiles: 2×2 pixels of an image, or a pixel in two frames. A tile sees a patch of 4×4 input
//! pixels, or a pixel in four frames; patch and kernel are each transformed to 16 or 4 values, multiplied value by value
//! and summed over the channels, and the sums transformed to the tile's pixels. Over many tiles the sums are 16 or 4
//! matrix products, [tiles, channels] · [channels, columns].
//!
//! A task owns a block of tiles and columns and does all three steps for it, so that intermediate results stay in the
//! caches. The matrices are in Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks".

#[cfg(test)]
mod tests;
mod tiling;
mod transform;
mod weights;

use std::cell::Cell;
use std::ops::Range;

use crate::gemm::{
    ConvGeometry, Epilogue, Values,
    aligned::AlignedBuffer,
    microkernel::{Strided, Update, multiply_panel, panel_columns},
};
use crate::simd::{Float, Kernel, Simd};
use crate::tasks;
use tiling::{FramesTiling, SquareTiling, Tiling};
use transform::{transform_input, transform_output};
pub(crate) use weights::{Form, WinogradWeights};

/// The most channels transformed and multiplied at once, a multiple of every vector. The planes of input and sums are
/// 768 KiB at most, more than a usual L2; blocks that fit it were no faster within the noise of the measurements.
const CHANNEL_BLOCK: usize = 128;

/// The most columns of a block. Each block of columns transforms its input again, which takes about as many
/// instructions as multiplying five columns.
const COLUMN_BLOCK: usize = 128;

/// Padding between planes: one cache line. Without it the planes, a multiple of 4 KiB apart, would fall into one set of
/// L1.
const PLANE_GAP: usize = 16;

/// The pixel in the padding; zero in every storage type.
static ZEROS: [f32; CHANNEL_BLOCK] = [0.0; CHANNEL_BLOCK];

/// Convolves `values` of `geometry`, which must be of the weights' form, and hands each finished pixel of each block of
/// columns to `epilogue`, in parallel.
///
/// The sums over the channels are added in an order that depends on their number alone.
///
/// # Panics
/// If the shapes do not agree.
pub(crate) fn convolve<P: Epilogue>(
    values: Values<'_>,
    geometry: &ConvGeometry,
    weights: &WinogradWeights,
    epilogue: &P,
) {
    let &ConvGeometry { images, height, width, channels, dilation, .. } = geometry;
    assert!(values.len() >= images * height * width * channels, "images smaller than their geometry");
    assert_eq!((geometry.pixel_channels, channels), (channels, weights.channels()), "channels");
    assert_eq!(
        (geometry.kernel, geometry.stride),
        (weights.form().kernel(), [1; 3]),
        "a window at every pixel"
    );
    assert_eq!(
        epilogue.shape(),
        (geometry.output_images() * geometry.output_height() * geometry.output_width(), weights.columns()),
        "an epilogue of another shape than the convolution"
    );
    match weights.form() {
        Form::Square => {
            assert_eq!(dilation[1..], [1; 2], "a window of neighbours");
            assert_eq!(geometry.output_images(), images, "no padding between images");
            convolve_tiles(values, SquareTiling::new(geometry), weights, epilogue);
        }
        Form::Frames => {
            assert_eq!(dilation[0], 1, "a window of neighbours");
            let output = (geometry.output_height(), geometry.output_width());
            assert_eq!(output, (height, width), "no padding around images");
            convolve_tiles(values, FramesTiling::new(geometry), weights, epilogue);
        }
    }
}

/// Convolves the tiles of a geometry that fits its values, weights and epilogue.
fn convolve_tiles<P, T, const PLANES: usize, const PIXELS: usize>(
    values: Values<'_>,
    tiling: T,
    weights: &WinogradWeights,
    epilogue: &P,
) where
    P: Epilogue,
    T: Tiling<PLANES, PIXELS>,
{
    let grid = Grid::new(
        tiling.tiles(),
        T::TILE_BLOCK,
        weights.panels(),
        2 * weights.isa().lanes(),
        rayon::current_num_threads(),
    );
    let run = |index| {
        let (tiles, panels) = grid.block(index);
        let mut scratch = SCRATCH.take();
        let block = Block { values, tiling, weights, epilogue, tiles, panels, scratch: &mut scratch };
        weights.isa().dispatch(block);
        SCRATCH.set(scratch);
    };
    tasks::blocks(grid.blocks(), run);
}

thread_local! {
    /// The memory of a thread's block, kept between convolutions.
    static SCRATCH: Cell<AlignedBuffer<f32>> = const { Cell::new(AlignedBuffer::new()) };
}

/// Registers the destructors of this thread's scratch memory: see [`crate::threads::register_scratch`].
pub(super) fn register_scratch() {
    SCRATCH.with(|_| ());
}

/// A grid of equal blocks of tiles and panels.
struct Grid {
    tiles: usize,
    panels: usize,
    block_tiles: usize,
    block_panels: usize,
}

impl Grid {
    /// Chooses blocks of at most `most_tiles` that fit the caches and minimise the work of the busiest thread.
    fn new(tiles: usize, most_tiles: usize, panels: usize, panel_columns: usize, threads: usize) -> Self {
        let fewest_down = tiles.div_ceil(most_tiles).max(1);
        let fewest_across = panels.div_ceil((COLUMN_BLOCK / panel_columns).max(1)).max(1);
        let mut best = (usize::MAX, 1, 1);
        for down in fewest_down..fewest_down + threads {
            for across in fewest_across..fewest_across + threads {
                let block_tiles = tiles.div_ceil(down).next_multiple_of(6).clamp(1, most_tiles);
                let block_panels = panels.div_ceil(across).max(1);
                let blocks = tiles.div_ceil(block_tiles) * panels.div_ceil(block_panels);
                // Work per tile in columns: those multiplied, the transforms, and reading the weights.
                let columns = block_panels * panel_columns;
                let cost = blocks.div_ceil(threads) * (block_tiles * (columns + 8) + 4 * columns);
                if cost < best.0 {
                    best = (cost, block_tiles, block_panels);
                }
            }
        }
        Grid { tiles, panels, block_tiles: best.1, block_panels: best.2 }
    }

    fn blocks(&self) -> usize {
        self.tiles.div_ceil(self.block_tiles) * self.panels.div_ceil(self.block_panels)
    }

    /// The tiles and panels of a block. Blocks of the same panels follow each other, so that threads working on
    /// neighbours share them in L3.
    fn block(&self, index: usize) -> (Range<usize>, Range<usize>) {
        let down = self.tiles.div_ceil(self.block_tiles);
        let (tile, panel) = (index % down * self.block_tiles, index / down * self.block_panels);
        (tile..self.tiles.min(tile + self.block_tiles), panel..self.panels.min(panel + self.block_panels))
    }
}

/// Cuts the channels into pieces of at most [`CHANNEL_BLOCK`], as even as whole vectors allow.
fn channel_pieces(channels: usize) -> impl Iterator<Item = Range<usize>> {
    let pieces = channels.div_ceil(CHANNEL_BLOCK).max(1);
    let size = channels.div_ceil(pieces).next_multiple_of(16);
    (0..channels).step_by(size.max(1)).map(move |start| start..channels.min(start + size))
}

/// A task: some tiles of some panels of columns.
struct Block<'a, P, T, const PLANES: usize, const PIXELS: usize> {
    values: Values<'a>,
    tiling: T,
    weights: &'a WinogradWeights,
    epilogue: &'a P,
    tiles: Range<usize>,
    panels: Range<usize>,
    scratch: &'a mut AlignedBuffer<f32>,
}

impl<P, T, const PLANES: usize, const PIXELS: usize> Kernel for Block<'_, P, T, PLANES, PIXELS>
where
    P: Epilogue,
    T: Tiling<PLANES, PIXELS>,
{
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        match self.values {
            Values::F32(values) => self.run_on(simd, values),
            Values::F16(values) => self.run_on(simd, values),
            Values::BF16(values) => self.run_on(simd, values),
        }
    }
}

impl<P, T, const PLANES: usize, const PIXELS: usize> Block<'_, P, T, PLANES, PIXELS>
where
    P: Epilogue,
    T: Tiling<PLANES, PIXELS>,
{
    #[inline(always)]
    fn run_on<S: Simd, E: Float>(self, simd: S, values: &[E]) {
        let Block { tiling, weights, epilogue, tiles, panels, scratch, .. } = self;
        let width = panels.len() * panel_columns::<S>();
        let input_plane = tiles.len() * CHANNEL_BLOCK + PLANE_GAP;
        let sum_plane = tiles.len() * width + PLANE_GAP;
        let room_size = CHANNEL_BLOCK * panel_columns::<S>();
        scratch.reserve(PLANES * (input_plane + sum_plane) + room_size + PIXELS * width);
        let (input, rest) = scratch.as_mut_slice().split_at_mut(PLANES * input_plane);
        let (sums, rest) = rest.split_at_mut(PLANES * sum_plane);
        let (room, pixels) = rest.split_at_mut(room_size);
        if weights.channels() == 0 {
            sums.fill(0.0);
        }
        for piece in channel_pieces(weights.channels()) {
            // Whole vectors are written to a row, so it has room for them.
            let stride = piece.len().next_multiple_of(S::LANES);
            for (index, tile) in tiles.clone().enumerate() {
                let mut patch = [ZEROS.as_ptr().cast::<E>(); PLANES];
                for (start, pixel) in patch.iter_mut().zip(tiling.patch(tile)) {
                    if let Some(pixel) = pixel {
                        *start = values[pixel * weights.channels()..][piece.clone()].as_ptr();
                    }
                }
                let target = input[index * stride..].as_mut_ptr();
                // SAFETY: each start has the piece's values, or as many zeros; the rows of a plane are at most
                // CHANNEL_BLOCK values, a multiple of any vector, so each plane has room for the last of them.
                unsafe {
                    transform_input::<S, E, T, PLANES, PIXELS>(
                        simd,
                        &patch,
                        piece.len(),
                        target,
                        input_plane,
                    );
                }
            }
            let update = if piece.start == 0 { Update::Replace } else { Update::Add };
            for plane in 0..PLANES {
                for (index, panel) in panels.clone().enumerate() {
                    let lines = weights.lines(simd, panel, plane, piece.clone(), room);
                    let a = Strided { start: input[plane * input_plane..].as_ptr(), stride };
                    let start = sums[plane * sum_plane + index * panel_columns::<S>()..].as_mut_ptr();
                    let c = Strided { start, stride: width };
                    // SAFETY: the plane holds one row per tile, transformed above; `lines` is `piece.len()` lines of a
                    // panel; the sums have `width` columns a row, of which these are one panel's, and are apart.
                    unsafe { multiply_panel(simd, tiles.len(), piece.len(), a, lines.as_ptr(), c, update) };
                }
            }
        }
        let first = panels.start * panel_columns::<S>();
        let columns = first..weights.columns().min(first + width);
        for (index, tile) in tiles.enumerate() {
            let source = sums[index * width..].as_ptr();
            let target = pixels.as_mut_ptr();
            // SAFETY: each plane of the sums has `width` values for this tile, and `pixels` room for one row per pixel.
            unsafe {
                let factor = weights.factor();
                transform_output::<S, T, PLANES, PIXELS>(simd, source, sum_plane, width, factor, target);
            }
            for (row, values) in tiling.rows(tile).into_iter().zip(pixels.chunks_exact_mut(width)) {
                if let Some(row) = row {
                    // SAFETY: the grid gives each tile and column to one block, and a pixel is in one tile; the shape
                    // was checked.
                    unsafe { epilogue.finish(simd, row, columns.clone(), values) };
                }
            }
        }
    }
}
