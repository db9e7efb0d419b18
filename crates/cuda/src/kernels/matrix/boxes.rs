//! Results of a product on Hopper in boxes, and the tensors that TMA copies for them: see `common/boxes.cuh`.

use kinora_graph::DType;

use super::problem::Problem;
use crate::{
    Chip, CudaError,
    kernels::{Places, TensorMap},
    launch::limits::{all_summed, summed},
};

/// The struct that kernels take, under the name that it has in CUDA.
mod argument {
    use crate::launch::c_struct;

    c_struct! {
        /// How results lie in boxes. Arrays are width, height, frames, clips.
        pub(crate) struct Boxes {
            /// A box's extents are two to the power of these.
            shift: [i32; 4],
            /// Boxes along each axis.
            counts: [i32; 4],
            out_extents: [i32; 4],
            kernel: [i32; 3],
            padding: [i32; 3],
            dilation: [i32; 3],
            /// Steps of 128 bytes of a tap's channels.
            chunks: i32,
            /// Columns of the result: of one pixel of a square, if it has squares.
            columns: i32,
            /// Tiles in a row of tiles, and all of them.
            across: i32,
            tiles: i32,
            /// Split-K: blocks that share a tile's depth.
            splits: i32,
            /// Rows of the result.
            rows: i32,
        }
    }
}

/// How deep a tile is, in bytes: the widest swizzle.
pub(super) const TILE_BYTES: usize = 128;

/// The most shared memory through which eight warps pass their results: 16 rows of 32 columns, and four to keep rows in
/// different banks.
pub(super) const STRIPS: usize = 8 * 16 * (32 + 4) * 4;

/// Results in boxes. Arrays are width, height, frames, clips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Boxes {
    /// The input's type, channels and extents.
    dtype: DType,
    channels: usize,
    extents: [usize; 4],
    pub out_extents: [usize; 4],
    /// A box's extents are two to the power of these.
    pub shift: [u32; 4],
    /// Lines of the input that are copied at once: those of a box, unless taps share what is copied.
    pub lines: usize,
    pub kernel: [usize; 3],
    padding: [usize; 3],
    pub dilation: [usize; 3],
}

impl Boxes {
    /// Whether TMA can copy what a product reads on a chip: it takes strides in multiples of 16 bytes, and moves along every
    /// axis by one.
    pub fn can_hold(problem: &Problem, chip: &Chip) -> bool {
        let dtype = problem.a.dtype;
        let types = matches!(dtype, DType::F16 | DType::BF16 | DType::F8E4M3) && dtype == problem.b.dtype;
        let wide = 16 / dtype.size();
        chip.architecture.is_hopper()
            && types
            && problem.slices == 1
            && problem.depth > 0
            && problem.a_has_wide_depth(wide)
            && problem.b_has_wide_depth(wide)
            && problem.window.is_none_or(|window| window.stride == [1; 3])
    }

    /// Boxes of a shape: its extents are two to these powers.
    pub fn shaped(problem: &Problem, shift: [u32; 4]) -> Boxes {
        let reversed = |[t, y, x]: [usize; 3]| [x, y, t];
        let lines = 1 << shift[1];
        match problem.window {
            Some(window) => {
                let with_clips = |[t, y, x]: [usize; 3]| [x, y, t, window.clips];
                Boxes {
                    dtype: problem.a.dtype,
                    channels: window.channels,
                    extents: with_clips(window.extents),
                    out_extents: with_clips(window.out_extents),
                    shift,
                    lines,
                    kernel: reversed(window.kernel),
                    padding: reversed(window.padding),
                    dilation: reversed(window.dilation),
                }
            }
            // An image of one line.
            None => Boxes {
                dtype: problem.a.dtype,
                channels: problem.depth,
                extents: [problem.rows, 1, 1, 1],
                out_extents: [problem.rows, 1, 1, 1],
                shift,
                lines,
                kernel: [1; 3],
                padding: [0; 3],
                dilation: [1; 3],
            },
        }
    }

    /// The boxes of `rows` results, a power of two, of which the fewest are needed; of those the widest.
    pub fn of(problem: &Problem, rows: usize) -> Boxes {
        let all = rows.ilog2();
        let mut best = Boxes::shaped(problem, [all, 0, 0, 0]);
        for width in (0..=all).rev() {
            for height in (0..=all - width).rev() {
                for frames in (0..=all - width - height).rev() {
                    let shift = [width, height, frames, all - width - height - frames];
                    let candidate = Boxes::shaped(problem, shift);
                    if candidate.number() < best.number() {
                        best = candidate;
                    }
                }
            }
        }
        best
    }

    /// Boxes along each axis.
    pub fn counts(&self) -> [usize; 4] {
        std::array::from_fn(|axis| self.out_extents[axis].div_ceil(1 << self.shift[axis]))
    }

    pub fn number(&self) -> usize {
        self.counts().iter().product()
    }

    /// Whether no box reaches beyond the result.
    pub fn are_full(&self) -> bool {
        (0..4).all(|axis| self.out_extents[axis].is_multiple_of(1 << self.shift[axis]))
    }

    pub fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Elements of a step of the depth.
    fn tile_depth(&self) -> usize {
        TILE_BYTES / self.dtype.size()
    }

    /// Steps of a tap's channels.
    pub fn chunks(&self) -> usize {
        self.channels.div_ceil(self.tile_depth())
    }

    /// Steps of the depth.
    pub fn steps(&self) -> usize {
        self.taps() * self.chunks()
    }

    /// The struct that kernels take, for so many tiles across the columns, whose depth is split in so many parts.
    ///
    /// # Errors
    /// If an extent is larger than the kernels count.
    pub fn argument(
        &self,
        problem: &Problem,
        across: usize,
        splits: usize,
    ) -> Result<argument::Boxes, CudaError> {
        Ok(argument::Boxes {
            shift: self.shift.map(u32::cast_signed),
            counts: all_summed(self.counts())?,
            out_extents: all_summed(self.out_extents)?,
            kernel: all_summed(self.kernel)?,
            padding: all_summed(self.padding)?,
            dilation: all_summed(self.dilation)?,
            chunks: summed(self.chunks())?,
            columns: summed(problem.y_row)?,
            across: summed(across)?,
            tiles: summed(self.number() * across)?,
            splits: summed(splits)?,
            // A box may reach beyond the last result, by less than its own extent.
            rows: summed(problem.result.shape.rows())?,
        })
    }

    /// The input, copied a box at a time, or as many lines as there are to copy.
    pub fn map_of_a(&self, problem: &Problem, places: &Places) -> TensorMap {
        let [width, height, frames, clips] = self.extents.map(|extent| extent as u64);
        let pixel = (problem.a.line * self.dtype.size()) as u64;
        let [wide, _, long, many] = self.shift.map(|shift| 1u32 << shift);
        TensorMap {
            address: places.inputs[0],
            dtype: self.dtype,
            rank: 5,
            extents: [self.channels as u64, width, height, frames, clips],
            strides: [pixel, pixel * width, pixel * width * height, pixel * width * height * frames],
            tile: [self.tile_depth() as u32, wide, self.lines as u32, long, many],
            swizzle: 128,
        }
    }

    /// The weight, copied some rows at a time, a step of a tap's channels.
    pub fn map_of_b(&self, problem: &Problem, places: &Places, rows: usize) -> TensorMap {
        let taps = self.taps() as u64;
        let tap = (self.channels * self.dtype.size()) as u64;
        TensorMap {
            address: places.inputs[1],
            dtype: self.dtype,
            rank: 3,
            extents: [self.channels as u64, taps, problem.columns as u64, 1, 1],
            strides: [tap, tap * taps, 0, 0],
            tile: [self.tile_depth() as u32, 1, rows as u32, 1, 1],
            swizzle: 128,
        }
    }
}
