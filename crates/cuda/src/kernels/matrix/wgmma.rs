//! Products on Hopper's wgmma, their operands loaded by TMA.

use std::sync::Arc;

use kinora_graph::DType;

use super::{SOURCE_WGMMA, bool_constant, problem::Problem};
use crate::{
    Chip, CudaError,
    kernels::{Implementation, Kernel, Launch, Places, TensorMap, names::type_name},
    launch::{
        arguments,
        limits::{all_summed, grid, summed},
    },
};

/// The struct that the kernel takes, under the name that it has in CUDA.
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
            /// Steps of 64 channels of a tap.
            chunks: i32,
            /// Columns of the result.
            columns: i32,
            /// Tiles in a row of tiles, and all of them.
            across: i32,
            tiles: i32,
            unused: i32,
        }
    }
}

/// How deep a tile is: 128 bytes, the widest swizzle.
const TILE_DEPTH: usize = 64;

/// The most shared memory through which eight warps pass their results: 16 rows of 32 columns, and four to keep rows in
/// different banks.
const STRIPS: usize = 8 * 16 * (32 + 4) * 4;

/// A tile of sums, and how many steps of its depth are in the ring.
#[derive(Clone, Copy, Debug)]
struct Tile {
    rows: usize,
    columns: usize,
    stages: usize,
    /// The share of the tensor cores' rate that the tile reaches if the work fills the chip: the larger the tile, the
    /// less of it is copied from the L2 cache for each product.
    efficiency: f64,
}

const TILES: [Tile; 5] = [
    Tile { rows: 256, columns: 160, stages: 4, efficiency: 0.75 },
    Tile { rows: 256, columns: 128, stages: 4, efficiency: 0.72 },
    Tile { rows: 128, columns: 256, stages: 4, efficiency: 0.7 },
    Tile { rows: 128, columns: 160, stages: 5, efficiency: 0.6 },
    Tile { rows: 128, columns: 128, stages: 6, efficiency: 0.55 },
];

impl Tile {
    fn shared_bytes(&self) -> usize {
        (self.rows + self.columns) * TILE_DEPTH * 2 * self.stages + STRIPS + 16 * self.stages
    }

    /// Columns of the result that a tile gives.
    fn result_columns(&self, problem: &Problem) -> usize {
        if problem.gate.is_some() { self.columns / 2 } else { self.columns }
    }
}

/// A product in tiles, whose rows are boxes of results.
#[derive(Debug)]
pub(super) struct Wgmma {
    problem: Arc<Problem>,
    tile: Tile,
    boxes: Boxes,
    multiprocessors: usize,
}

/// The tiles, each with the time that it is expected to take; none if the chip or TMA cannot do the product.
pub(super) fn offers(problem: &Arc<Problem>, chip: &Chip) -> Vec<(f64, Wgmma)> {
    let types = matches!(problem.a.dtype, DType::F16 | DType::BF16) && problem.a.dtype == problem.b.dtype;
    // TMA takes strides in multiples of 16 bytes, and moves along every axis by one.
    let copied = problem.slices == 1
        && problem.depth > 0
        && problem.a_has_wide_depth(8)
        && problem.b_has_wide_depth(8)
        && problem.window.is_none_or(|window| window.stride == [1; 3]);
    if !chip.architecture.is_hopper() || !types || !copied || !problem.result_columns().is_multiple_of(8) {
        return Vec::new();
    }
    let multiprocessors = chip.multiprocessors as usize;
    TILES
        .into_iter()
        .filter(|tile| tile.shared_bytes() <= chip.shared_bytes as usize)
        .map(|tile| {
            let boxes = Boxes::of(problem, tile.rows);
            let wgmma = Wgmma { problem: problem.clone(), tile, boxes, multiprocessors };
            (wgmma.expected_time(), wgmma)
        })
        .collect()
}

impl Wgmma {
    /// Tiles across the columns of the result.
    fn across(&self) -> usize {
        self.problem.result_columns().div_ceil(self.tile.result_columns(&self.problem))
    }

    fn tiles(&self) -> usize {
        self.boxes.number() * self.across()
    }

    /// A rough estimate in clocks: whole waves of tiles, of which each has an epilogue that nothing overlaps.
    fn expected_time(&self) -> f64 {
        // Multiply-adds of a multiprocessor in a clock.
        const RATE: f64 = 2048.0;
        let Tile { rows, columns, efficiency, .. } = self.tile;
        let waves = self.tiles().div_ceil(self.multiprocessors) as f64;
        let step = (rows * columns * TILE_DEPTH) as f64 / (RATE * efficiency);
        let epilogue = (rows * columns) as f64 / 10.0;
        1500.0 + waves * (self.boxes.steps() as f64 * step + epilogue)
    }

    /// The struct that the kernel takes.
    fn argument(&self) -> Result<argument::Boxes, CudaError> {
        let boxes = &self.boxes;
        // A box may reach beyond the last result, by less than its own extent.
        summed(self.problem.rows)?;
        Ok(argument::Boxes {
            shift: boxes.shift.map(u32::cast_signed),
            counts: all_summed(boxes.counts())?,
            out_extents: all_summed(boxes.out_extents)?,
            kernel: all_summed(boxes.kernel)?,
            padding: all_summed(boxes.padding)?,
            dilation: all_summed(boxes.dilation)?,
            chunks: summed(boxes.channels.div_ceil(TILE_DEPTH))?,
            columns: summed(self.problem.result_columns())?,
            across: summed(self.across())?,
            tiles: summed(self.tiles())?,
            unused: 0,
        })
    }
}

/// Results in boxes. Arrays are width, height, frames, clips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Boxes {
    /// The input's channels and extents.
    channels: usize,
    extents: [usize; 4],
    pub out_extents: [usize; 4],
    /// A box's extents are two to the power of these.
    pub shift: [u32; 4],
    kernel: [usize; 3],
    padding: [usize; 3],
    dilation: [usize; 3],
}

impl Boxes {
    /// The boxes of `rows` results, a power of two, of which the fewest are needed; of those the widest.
    pub fn of(problem: &Problem, rows: usize) -> Boxes {
        let reversed = |[t, y, x]: [usize; 3]| [x, y, t];
        let boxes = match problem.window {
            Some(window) => {
                let with_clips = |[t, y, x]: [usize; 3]| [x, y, t, window.clips];
                Boxes {
                    channels: window.channels,
                    extents: with_clips(window.extents),
                    out_extents: with_clips(window.out_extents),
                    shift: [0; 4],
                    kernel: reversed(window.kernel),
                    padding: reversed(window.padding),
                    dilation: reversed(window.dilation),
                }
            }
            // An image of one line.
            None => Boxes {
                channels: problem.depth,
                extents: [problem.rows, 1, 1, 1],
                out_extents: [problem.rows, 1, 1, 1],
                shift: [0; 4],
                kernel: [1; 3],
                padding: [0; 3],
                dilation: [1; 3],
            },
        };
        let all = rows.ilog2();
        let mut best: Option<Boxes> = None;
        for width in (0..=all).rev() {
            for height in (0..=all - width).rev() {
                for frames in (0..=all - width - height).rev() {
                    let shift = [width, height, frames, all - width - height - frames];
                    let candidate = Boxes { shift, ..boxes };
                    if best.is_none_or(|best| candidate.number() < best.number()) {
                        best = Some(candidate);
                    }
                }
            }
        }
        best.unwrap_or(boxes)
    }

    /// Boxes along each axis.
    pub fn counts(&self) -> [usize; 4] {
        std::array::from_fn(|axis| self.out_extents[axis].div_ceil(1 << self.shift[axis]))
    }

    pub fn number(&self) -> usize {
        self.counts().iter().product()
    }

    fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Steps of the depth.
    fn steps(&self) -> usize {
        self.taps() * self.channels.div_ceil(TILE_DEPTH)
    }

    /// The input, copied a box at a time.
    fn map_of_a(&self, problem: &Problem, places: &Places) -> TensorMap {
        let [width, height, frames, clips] = self.extents.map(|extent| extent as u64);
        let pixel = (problem.a.line * 2) as u64;
        let [wide, high, long, many] = self.shift.map(|shift| 1u32 << shift);
        TensorMap {
            address: places.inputs[0],
            bf16: problem.a.dtype == DType::BF16,
            rank: 5,
            extents: [self.channels as u64, width, height, frames, clips],
            strides: [pixel, pixel * width, pixel * width * height, pixel * width * height * frames],
            tile: [TILE_DEPTH as u32, wide, high, long, many],
            swizzle: 128,
        }
    }

    /// The weight, copied some rows at a time, 64 channels of a tap.
    fn map_of_b(&self, problem: &Problem, places: &Places, rows: usize) -> TensorMap {
        let taps = self.taps() as u64;
        let tap = (self.channels * 2) as u64;
        TensorMap {
            address: places.inputs[1],
            bf16: problem.b.dtype == DType::BF16,
            rank: 3,
            extents: [self.channels as u64, taps, problem.columns as u64, 1, 1],
            strides: [tap, tap * taps, 0, 0],
            tile: [TILE_DEPTH as u32, 1, rows as u32, 1, 1],
            swizzle: 128,
        }
    }
}

// SAFETY: the arguments are those of `wgmma`; the tensor maps and the extents are those of the call's tensors.
unsafe impl Implementation for Wgmma {
    fn name(&self) -> String {
        format!("wgmma {}x{}", self.tile.rows, self.tile.columns)
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let Wgmma { problem, tile, boxes, .. } = self;
        let kernel = Kernel::new(SOURCE_WGMMA, "wgmma")
            .with("TYPE", type_name(problem.a.dtype))
            .with("GATED", bool_constant(problem.gate.is_some()))
            .with("TILE_ROWS", tile.rows)
            .with("TILE_COLUMNS", tile.columns)
            .with("STAGES", tile.stages);
        let kernel = Kernel { generated: problem.epilogue().code(), hot: true, ..kernel };
        let arguments = arguments![
            boxes.map_of_a(problem, places),
            // Values and gates are copied separately.
            boxes.map_of_b(problem, places, tile.result_columns(problem)),
            places.outputs[0],
            self.argument()?,
            problem.epilogue_argument(places),
        ];
        let blocks = grid(self.tiles().min(self.multiprocessors))?;
        let mut launch = Launch::new(kernel, blocks, 384, arguments);
        launch.shared_bytes = tile.shared_bytes() as u32;
        Ok(vec![launch])
    }
}
