//! Products on Hopper's wgmma, their operands loaded by TMA.

use std::sync::Arc;

use super::{
    SOURCE_WGMMA, bool_constant,
    boxes::{Boxes, STRIPS, TILE_DEPTH},
    problem::Problem,
    split,
};
use crate::{
    Chip, CudaError,
    kernels::{DevicePointer, Implementation, Kernel, Launch, Places, names::type_name},
    launch::{arguments, limits::grid},
};

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

const TILES: [Tile; 7] = [
    Tile { rows: 256, columns: 160, stages: 4, efficiency: 0.75 },
    Tile { rows: 256, columns: 128, stages: 4, efficiency: 0.72 },
    Tile { rows: 128, columns: 256, stages: 4, efficiency: 0.7 },
    Tile { rows: 128, columns: 160, stages: 5, efficiency: 0.6 },
    Tile { rows: 128, columns: 128, stages: 6, efficiency: 0.55 },
    Tile { rows: 256, columns: 64, stages: 5, efficiency: 0.45 },
    Tile { rows: 128, columns: 64, stages: 8, efficiency: 0.4 },
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

/// A product in tiles, whose rows are boxes of results, with split-K: the depth of a tile is split among `splits` blocks.
#[derive(Debug)]
pub(super) struct Wgmma {
    problem: Arc<Problem>,
    tile: Tile,
    boxes: Boxes,
    splits: usize,
    multiprocessors: usize,
}

/// The tiles, each with the time that it is expected to take; none if the chip or TMA cannot do the product.
pub(super) fn offers(problem: &Arc<Problem>, chip: &Chip) -> Vec<(f64, Wgmma)> {
    if !Boxes::can_hold(problem, chip) || !problem.result_columns().is_multiple_of(8) {
        return Vec::new();
    }
    let multiprocessors = chip.multiprocessors as usize;
    TILES
        .into_iter()
        .filter(|tile| tile.shared_bytes() <= chip.shared_bytes as usize)
        .flat_map(|tile| {
            let boxes = Boxes::of(problem, tile.rows);
            let whole = Wgmma { problem: problem.clone(), tile, boxes, splits: 1, multiprocessors };
            let split =
                whole.splits_that_fill().map(|splits| Wgmma { splits, problem: problem.clone(), ..whole });
            [Some(whole), split]
        })
        .flatten()
        .map(|wgmma| (wgmma.expected_time(), wgmma))
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

    /// Into how many parts the depth is split so that each multiprocessor has at most one: of as many steps each, and at least
    /// four. `None` if that would be one part. Values and their gates lie apart here, and side by side where partial sums are added.
    fn splits_that_fill(&self) -> Option<usize> {
        let steps = self.boxes.steps();
        let most = (self.multiprocessors / self.tiles()).min(steps / 4);
        if self.problem.gate.is_some() || most < 2 {
            return None;
        }
        Some(steps.div_ceil(steps.div_ceil(most)))
    }

    /// A rough estimate in clocks: whole waves of tiles, of which each has an epilogue that nothing overlaps. If there are few
    /// of them, all wait for the weight to come from memory.
    fn expected_time(&self) -> f64 {
        // Multiply-adds of a multiprocessor in a clock, and bytes that the memory gives all of them.
        const RATE: f64 = 2048.0;
        const BANDWIDTH: f64 = 2000.0;
        let Tile { rows, columns, efficiency, .. } = self.tile;
        let waves = (self.tiles() * self.splits).div_ceil(self.multiprocessors) as f64;
        let step = (rows * columns * TILE_DEPTH) as f64 / (RATE * efficiency);
        let epilogue = (rows * columns) as f64 / 10.0;
        let steps = self.boxes.steps().div_ceil(self.splits) as f64;
        let weight = (self.problem.columns * self.problem.depth * 2) as f64 / BANDWIDTH;
        let products = waves * (steps * step + epilogue);
        1500.0 + products.max(weight) + split::expected_time(&self.problem, self.splits)
    }
}

// SAFETY: the arguments are those of `wgmma`; the tensor maps and the extents are those of the call's tensors.
unsafe impl Implementation for Wgmma {
    fn name(&self) -> String {
        let Tile { rows, columns, .. } = self.tile;
        match self.splits {
            1 => format!("wgmma {rows}x{columns}"),
            splits => format!("wgmma {rows}x{columns} split {splits}"),
        }
    }

    fn workspace(&self) -> usize {
        split::workspace(&self.problem, self.splits)
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let Wgmma { problem, tile, boxes, splits, .. } = self;
        let split = *splits > 1;
        // Partial sums are finished by the second kernel.
        let finished = if split { &problem.without_epilogue() } else { &**problem };
        let kernel = Kernel::new(SOURCE_WGMMA, "wgmma")
            .with("TYPE", type_name(problem.a.dtype))
            .with("GATED", bool_constant(problem.gate.is_some()))
            .with("SPLIT", bool_constant(split))
            .with("TILE_ROWS", tile.rows)
            .with("TILE_COLUMNS", tile.columns)
            .with("STAGES", tile.stages);
        let kernel = Kernel { generated: finished.epilogue().code(), hot: true, ..kernel };
        let arguments = arguments![
            boxes.map_of_a(problem, places),
            // Values and gates are copied separately.
            boxes.map_of_b(problem, places, tile.result_columns(problem)),
            places.outputs[0],
            if split { places.workspace } else { DevicePointer::NULL },
            boxes.argument(problem, self.across(), *splits)?,
            finished.epilogue_argument(places),
        ];
        let blocks = grid((self.tiles() * splits).min(self.multiprocessors))?;
        let mut launch = Launch::new(kernel, blocks, 384, arguments);
        launch.shared_bytes = tile.shared_bytes() as u32;
        let mut launches = vec![launch];
        if split {
            launches.push(split::reduction(problem, *splits, places)?);
        }
        Ok(launches)
    }
}
