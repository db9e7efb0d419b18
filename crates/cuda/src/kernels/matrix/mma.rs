//! Products on the tensor cores of a warp: f16 everywhere, bf16 and f32 from Ampere on, e4m3 from Ada on. Those of f32 are three of
//! tf32.

use std::sync::Arc;

use kinora_graph::DType;

use super::{SOURCE_MMA, bool_constant, problem::Problem, split};
use crate::{
    Architecture, Chip, CudaError,
    kernels::{DevicePointer, Implementation, Kernel, Launch, Places, names::type_name},
    launch::{arguments, limits::grid},
};

/// How deep a tile is, in bytes.
const TILE_DEPTH_BYTES: usize = 64;

/// The least depth of f32 that is worth a tile. Below it, two parts of an operand are less exact than f32, too: there are few
/// roundings of sums to hide behind.
const LEAST_DEPTH_IN_PARTS: usize = 16;

/// A tile of sums, and how warps share it.
#[derive(Clone, Copy, Debug)]
struct Tile {
    rows: usize,
    columns: usize,
    /// Warps down and across.
    warps: [usize; 2],
    /// Blocks that share a multiprocessor, if tiles come by cp.async and if they come through registers: the launch bounds that
    /// the compiler allocates registers by.
    blocks: [usize; 2],
    /// The share of the tensor cores' rate that the tile reaches if the work fills the chip.
    efficiency: f64,
}

const TILES: [Tile; 7] = [
    Tile { rows: 128, columns: 128, warps: [2, 2], blocks: [2, 2], efficiency: 0.9 },
    Tile { rows: 256, columns: 128, warps: [4, 2], blocks: [1, 1], efficiency: 0.95 },
    Tile { rows: 128, columns: 160, warps: [4, 2], blocks: [1, 1], efficiency: 0.85 },
    Tile { rows: 128, columns: 64, warps: [2, 2], blocks: [3, 2], efficiency: 0.75 },
    Tile { rows: 64, columns: 64, warps: [2, 2], blocks: [4, 4], efficiency: 0.55 },
    Tile { rows: 32, columns: 64, warps: [1, 4], blocks: [4, 4], efficiency: 0.3 },
    Tile { rows: 128, columns: NARROW, warps: [4, 1], blocks: [6, 4], efficiency: 0.4 },
];

/// The columns of the tile for few of them, as the last convolution of an autoencoder or a UNet has: of a wider tile most sums would
/// be of no use.
const NARROW: usize = 16;

/// Those of f32. Two parts of each operand take registers, so that warps have half as many sums.
const TILES_IN_PARTS: [Tile; 4] = [
    Tile { rows: 128, columns: 128, warps: [2, 4], blocks: [1, 1], efficiency: 0.72 },
    Tile { rows: 128, columns: 64, warps: [2, 2], blocks: [2, 2], efficiency: 0.9 },
    Tile { rows: 64, columns: 64, warps: [2, 2], blocks: [3, 3], efficiency: 0.88 },
    Tile { rows: 32, columns: 64, warps: [1, 4], blocks: [4, 4], efficiency: 0.7 },
];

impl Tile {
    fn threads(&self) -> usize {
        32 * self.warps[0] * self.warps[1]
    }

    /// Shared memory for so many stages of both tiles; the results pass through the same memory, 16 rows of a warp at a time.
    fn shared_bytes(&self, stages: usize) -> usize {
        let stage = (self.rows + self.columns) * TILE_DEPTH_BYTES;
        let results = self.warps[0] * self.warps[1] * 16 * (self.columns / self.warps[1] + 8) * 4;
        (stage * stages).max(results)
    }

    fn blocks_of(&self, problem: &Problem) -> usize {
        problem.rows.div_ceil(self.rows) * problem.columns.div_ceil(self.columns) * problem.slices
    }
}

/// A product in tiles, with split-K: the depth of a tile is split among `splits` blocks.
#[derive(Debug)]
pub(super) struct Mma {
    problem: Arc<Problem>,
    tile: Tile,
    splits: usize,
    asynchronous: bool,
    stages: usize,
}

/// Whether the tensor cores of a warp can multiply the operands.
pub(super) fn on_tensor_cores(problem: &Problem, chip: &Chip) -> bool {
    let types = match problem.a.dtype {
        DType::F16 => true,
        DType::BF16 => chip.architecture >= Architecture::AMPERE,
        DType::F32 => chip.architecture >= Architecture::AMPERE && problem.depth >= LEAST_DEPTH_IN_PARTS,
        // Copied in whole chunks alone. Hopper's warps have no such instruction: the compiler makes it of those for f16.
        DType::F8E4M3 => {
            chip.architecture >= Architecture::ADA && !chip.architecture.is_hopper() && is_wide(problem)
        }
        DType::U8 | DType::I32 => false,
    };
    types && problem.b.dtype == problem.a.dtype && problem.a.depth == 1 && problem.b.depth == 1
}

/// The tiles and splits that may be worth a try, each with the time that it is expected to take.
pub(super) fn offers(problem: &Arc<Problem>, chip: &Chip) -> Vec<(f64, Mma)> {
    if !on_tensor_cores(problem, chip) {
        return Vec::new();
    }
    let asynchronous = chip.architecture >= Architecture::AMPERE && is_wide(problem);
    // Two blocks of the largest usual tile then fit a multiprocessor of either size.
    let stages = match (asynchronous, chip.shared_bytes >= 160 << 10) {
        (true, true) => 4,
        (true, false) => 3,
        (false, _) => 2,
    };
    let steps = problem.depth.div_ceil(tile_depth(problem));
    let mut found: Vec<(f64, Mma)> = Vec::new();
    let tiles: &[Tile] = if problem.a.dtype == DType::F32 { &TILES_IN_PARTS } else { &TILES };
    for &tile in tiles {
        let wasteful = tile.columns == NARROW && problem.columns > NARROW;
        if wasteful || tile.shared_bytes(stages) > chip.shared_bytes as usize {
            continue;
        }
        for splits in [1, 2, 4, 8, 16] {
            let fills = tile.blocks_of(problem) * splits / 2 >= 2 * chip.multiprocessors as usize;
            if splits > 1 && (problem.slices != 1 || steps < 4 * splits || fills) {
                break;
            }
            let time = expected_time(problem, chip, &tile, splits);
            found.push((time, Mma { problem: problem.clone(), tile, splits, asynchronous, stages }));
        }
    }
    found
}

/// Elements of 16 bytes, which are copied as one.
fn chunk(problem: &Problem) -> usize {
    16 / problem.a.dtype.size()
}

/// Whether rows of both operands are whole chunks.
fn is_wide(problem: &Problem) -> bool {
    problem.a_has_wide_depth(chunk(problem)) && problem.b_has_wide_depth(chunk(problem))
}

/// How deep a tile is.
fn tile_depth(problem: &Problem) -> usize {
    TILE_DEPTH_BYTES / problem.a.dtype.size()
}

/// Multiply-adds of a multiprocessor in a clock.
fn rate(problem: &Problem, chip: &Chip) -> f64 {
    // On an H200, convolutions of 320 channels at 64×64 took 46 to 59 µs with these tiles and 23 with wgmma's.
    let half = if chip.architecture.is_hopper() { 700.0 } else { 1024.0 };
    match (problem.a.dtype, chip.architecture.0) {
        // Products of tf32 take twice as long, and there are three; on the chips of graphics cards they take four times as
        // long again.
        (DType::F32, 80 | 90 | 100 | 103) => half / 6.0,
        (DType::F32, _) => half / 24.0,
        (DType::F8E4M3, _) => 2.0 * half,
        _ => half,
    }
}

/// A rough estimate in clocks: whole waves of tiles, the start and the end of a tile, and the second kernel of split-K.
fn expected_time(problem: &Problem, chip: &Chip, tile: &Tile, splits: usize) -> f64 {
    let (rate, depth) = (rate(problem, chip), tile_depth(problem));
    let blocks = tile.blocks_of(problem) * splits;
    let waves = blocks.div_ceil(chip.multiprocessors as usize) as f64;
    let steps = problem.depth.div_ceil(depth).div_ceil(splits) as f64 + 8.0;
    let step = (tile.rows * tile.columns * depth) as f64 / (rate * tile.efficiency);
    waves * steps * step + split::expected_time(problem, splits)
}

impl Mma {
    /// Steps of the depth that a block takes.
    fn steps(&self) -> usize {
        self.problem.depth.div_ceil(tile_depth(&self.problem)).div_ceil(self.splits)
    }

    fn product(&self, places: &Places) -> Result<Launch, CudaError> {
        let problem = &*self.problem;
        let split = self.splits > 1;
        let tile = &self.tile;
        // Partial sums lie as wide as the columns of `b`, and are finished by the second kernel.
        let store = if split {
            partial_store_width(problem.columns)
        } else {
            problem.store_width(chunk(problem).min(8))
        };
        let finished = if split { &problem.without_epilogue() } else { problem };
        let kernel = Kernel::new(SOURCE_MMA, "mma")
            .with("ELEMENT", type_name(problem.a.dtype))
            .with("TYPE", type_name(problem.result.dtype))
            .with("CONVOLUTION", bool_constant(problem.window.is_some()))
            .with("GATED", bool_constant(problem.gate.is_some()))
            .with("SPLIT", bool_constant(split))
            .with("STORE", store)
            .with("TILE_ROWS", tile.rows)
            .with("TILE_COLUMNS", tile.columns)
            .with("WARPS_DOWN", tile.warps[0])
            .with("WARPS_ACROSS", tile.warps[1])
            .with("STAGES", self.stages)
            .with("ASYNCHRONOUS", bool_constant(self.asynchronous))
            .with("A_VECTOR", bool_constant(problem.a_has_wide_depth(chunk(problem))))
            .with("B_VECTOR", bool_constant(problem.b_has_wide_depth(chunk(problem))))
            .with("BLOCKS", tile.blocks[usize::from(!self.asynchronous)]);
        let kernel = Kernel { generated: finished.epilogue().code(), hot: true, ..kernel };
        let arguments = arguments![
            places.inputs[0],
            places.inputs[1],
            places.outputs[0],
            if split { places.workspace } else { DevicePointer::NULL },
            problem.product_argument(self.splits, self.steps())?,
            problem.window_argument()?,
            finished.epilogue_argument(places),
        ];
        let blocks = grid(tile.blocks_of(problem) * self.splits)?;
        let mut launch = Launch::new(kernel, blocks, tile.threads() as u32, arguments);
        launch.shared_bytes = tile.shared_bytes(self.stages) as u32;
        Ok(launch)
    }
}

/// The most partial sums of a row, up to four, that are stored as one.
fn partial_store_width(columns: usize) -> usize {
    [4, 2].into_iter().find(|width| columns.is_multiple_of(*width)).unwrap_or(1)
}

// SAFETY: the extents and strides are the problem's, and the workspace holds the partial sums of all splits.
unsafe impl Implementation for Mma {
    fn name(&self) -> String {
        let Tile { rows, columns, .. } = self.tile;
        match self.splits {
            1 => format!("mma {rows}x{columns}"),
            splits => format!("mma {rows}x{columns} split {splits}"),
        }
    }

    fn workspace(&self) -> usize {
        split::workspace(&self.problem, self.splits)
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let product = self.product(places)?;
        if self.splits == 1 {
            return Ok(vec![product]);
        }
        Ok(vec![product, split::reduction(&self.problem, self.splits, places)?])
    }
}
