//! Products on Hopper's warpgroup instructions, their operands brought by the copy engine.

use kinora_graph::DType;

use super::{SOURCE_WGMMA, bool_constant, problem::Problem, problem_of};
use crate::{
    Chip, CudaError,
    kernels::{Argument, Call, Implementation, Kernel, Launch, Places, TensorMap, names::type_name},
};

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
    /// The share of the tensor cores' rate that the tile reaches where the work fills the chip: the larger the tile, the
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
    fn result_columns(&self, problem: &Problem<'_>) -> usize {
        if problem.gate.is_some() { self.columns / 2 } else { self.columns }
    }
}

/// A product in tiles, whose rows are boxes of results.
#[derive(Debug)]
pub(super) struct Wgmma {
    tile: Tile,
    multiprocessors: usize,
}

/// The tiles, each with the time that it is expected to take; none where the chip or the copy engine cannot do the product.
pub(super) fn offers(problem: &Problem<'_>, chip: &Chip) -> Vec<(f64, Wgmma)> {
    let types = matches!(problem.a.dtype, DType::F16 | DType::BF16) && problem.a.dtype == problem.b.dtype;
    // The copy engine wants strides of 16 bytes, and moves along every axis by one.
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
        .map(|tile| (expected_time(problem, multiprocessors, &tile), Wgmma { tile, multiprocessors }))
        .collect()
}

/// A rough estimate in clocks: whole waves of tiles, of which each has an end that nothing overlaps.
fn expected_time(problem: &Problem<'_>, multiprocessors: usize, tile: &Tile) -> f64 {
    // Multiply-adds of a multiprocessor in a clock.
    const RATE: f64 = 2048.0;
    let boxes = Boxes::of(problem, tile.rows);
    let waves = (boxes.number() * boxes.across(problem, tile)).div_ceil(multiprocessors) as f64;
    let step = (tile.rows * tile.columns * TILE_DEPTH) as f64 / (RATE * tile.efficiency);
    let end = (tile.rows * tile.columns) as f64 / 10.0;
    1500.0 + waves * (boxes.steps() as f64 * step + end)
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
    pub fn of(problem: &Problem<'_>, rows: usize) -> Boxes {
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

    fn across(&self, problem: &Problem<'_>, tile: &Tile) -> usize {
        problem.result_columns().div_ceil(tile.result_columns(problem))
    }

    fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Steps of the depth.
    fn steps(&self) -> usize {
        self.taps() * self.channels.div_ceil(TILE_DEPTH)
    }

    /// The input, copied a box at a time.
    fn map_of_a(&self, problem: &Problem<'_>, places: &Places) -> TensorMap {
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
    fn map_of_b(&self, problem: &Problem<'_>, places: &Places, rows: usize) -> TensorMap {
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

    /// The struct `Boxes`.
    fn argument(&self, problem: &Problem<'_>, tile: &Tile) -> Result<Argument, CudaError> {
        let across = self.across(problem, tile);
        let chunks = self.channels.div_ceil(TILE_DEPTH);
        let tiles = across * self.number();
        let mut bytes = Vec::with_capacity(25 * 4 + 4);
        let shifts = self.shift.map(|shift| shift as usize);
        let quads = [shifts, self.counts(), self.out_extents].into_iter().flatten();
        let triples = [self.kernel, self.padding, self.dilation].into_iter().flatten();
        let rest = [chunks, problem.result_columns(), across, tiles, 0];
        // A box may reach beyond the last result, by less than its own extent.
        problem.counted(problem.rows)?;
        for number in quads.chain(triples).chain(rest) {
            bytes.extend(problem.counted(number)?.to_le_bytes());
        }
        Ok(Argument::Bytes(bytes))
    }
}

impl Implementation for Wgmma {
    fn name(&self) -> String {
        format!("wgmma {}x{}", self.tile.rows, self.tile.columns)
    }

    fn launches(&self, call: &Call<'_>, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let problem = problem_of(call)?;
        let tile = &self.tile;
        let boxes = Boxes::of(&problem, tile.rows);
        let kernel = Kernel::new(SOURCE_WGMMA, "wgmma")
            .with("TYPE", type_name(problem.a.dtype))
            .with("GATED", bool_constant(problem.gate.is_some()))
            .with("TILE_ROWS", tile.rows)
            .with("TILE_COLUMNS", tile.columns)
            .with("STAGES", tile.stages);
        let kernel = Kernel { generated: problem.epilogue().code(), hot: true, ..kernel };
        let arguments = vec![
            Argument::TensorMap(boxes.map_of_a(&problem, places)),
            // Values and gates are copied apart.
            Argument::TensorMap(boxes.map_of_b(&problem, places, tile.result_columns(&problem))),
            Argument::Pointer(places.outputs[0]),
            boxes.argument(&problem, tile)?,
            problem.epilogue_argument(places),
        ];
        let tiles = boxes.number() * boxes.across(&problem, tile);
        let blocks = problem.blocks(tiles.min(self.multiprocessors))?;
        let mut launch = Launch::new(kernel, blocks, 384, arguments);
        launch.shared_bytes = tile.shared_bytes() as u32;
        Ok(vec![launch])
    }
}
