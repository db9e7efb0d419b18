//! Products on Hopper's wgmma, their operands loaded by TMA.

use std::sync::Arc;

use kinora_graph::{DType, op::Stage};

use super::{
    SOURCE_WGMMA, bool_constant,
    boxes::{Boxes, STRIPS, TILE_BYTES},
    problem::Problem,
    split,
    statistics::{InParts, parts_at},
};
use crate::{
    Chip, CudaError,
    kernels::{Implementation, Kernel, Launch, Places, names::type_name},
    launch::{
        arguments,
        limits::{PORTABLE_CLUSTER_BLOCKS, grid},
    },
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
        (self.rows + self.columns) * TILE_BYTES * self.stages + STRIPS + 16 * self.stages
    }

    /// Columns of the result that a tile gives.
    fn result_columns(&self, problem: &Problem) -> usize {
        if problem.gate.is_some() { self.columns / 2 } else { self.columns }
    }
}

/// Who computes a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blocks {
    /// A block.
    One,
    /// Split-K by two launches: so many blocks each take a part of the depth, and leave partial sums to a second kernel.
    Split(usize),
    /// Split-K within the launch: the blocks are a cluster, and add up their sums through distributed shared memory.
    Cluster(usize),
}

impl Blocks {
    fn number(self) -> usize {
        match self {
            Blocks::One => 1,
            Blocks::Split(number) | Blocks::Cluster(number) => number,
        }
    }
}

/// A product in tiles, whose rows are boxes of results.
#[derive(Clone, Debug)]
pub(super) struct Wgmma {
    problem: Arc<Problem>,
    tile: Tile,
    boxes: Boxes,
    blocks: Blocks,
    /// The statistics that its epilogues leave.
    statistics: Option<InParts>,
    multiprocessors: usize,
}

/// The tiles, each with the time that it is expected to take; none if the chip or TMA cannot do the product.
pub(super) fn offers(problem: &Arc<Problem>, chip: &Chip) -> Vec<(f64, Wgmma)> {
    if !Boxes::can_hold(problem, chip) || !problem.result_columns().is_multiple_of(8) {
        return Vec::new();
    }
    let multiprocessors = chip.multiprocessors as usize;
    let mut offers = Vec::new();
    let fits = |tile: &Tile| {
        tile.shared_bytes() <= chip.shared_bytes as usize
            && problem.splits_columns(tile.result_columns(problem))
            // A scale, a bias and gates together leave no registers for the most sums.
            && (problem.scale.is_none() || problem.gate.is_none() || tile.rows * tile.columns <= 128 * 256)
    };
    for tile in TILES.into_iter().filter(fits) {
        let boxes = Boxes::of(problem, tile.rows);
        let statistics = InParts::of(problem, &boxes, [tile.result_columns(problem), tile.rows / 128], chip)
            .filter(|_| tile.rows * tile.columns < 128 * 256 || has_registers_for_statistics(problem));
        let problem = problem.clone();
        let whole = Wgmma { problem, tile, boxes, blocks: Blocks::One, statistics, multiprocessors };
        let timed = |blocks| {
            let wgmma = Wgmma { blocks, ..whole.clone() };
            (wgmma.expected_time(), wgmma)
        };
        // The best clusters, of which the tuner chooses.
        let mut clusters: Vec<_> = whole.clusters_that_fit().map(timed).collect();
        clusters.sort_by(|(left, _), (right, _)| left.total_cmp(right));
        clusters.truncate(2);
        if whole.problem.statistics.is_some() {
            // Sums of a part of the depth cannot be measured.
            offers.extend(statistics.map(|_| timed(Blocks::One)));
            continue;
        }
        offers.push(timed(Blocks::One));
        offers.extend(whole.split_that_fills().map(timed));
        offers.append(&mut clusters);
    }
    offers
}

/// Whether statistics fit into registers beside the most sums: with one residual in f16 they do, with more the compiler spills.
fn has_registers_for_statistics(problem: &Problem) -> bool {
    let blends = problem.stages.iter().any(|stage| matches!(stage, Stage::Blend { .. }));
    match problem.epilogue().fetched_bytes(1) {
        0 => true,
        bytes => problem.result.dtype == DType::F16 && bytes == DType::F16.size() && !blends,
    }
}

impl Wgmma {
    /// Whether the expected time is one to choose by. That of clusters is too short, unless they are of two blocks or the
    /// result is one tile high: of larger ones fewer run at once than there seems to be room for. Of squares of pixels, 40 clusters of
    /// three took twice as long as expected.
    pub(super) fn is_estimated_well(&self) -> bool {
        match self.blocks {
            Blocks::One | Blocks::Split(_) => true,
            Blocks::Cluster(size) => size == 2 || (self.boxes.number() == 1 && !self.problem.subpixel),
        }
    }

    /// Tiles across the columns of the result.
    fn across(&self) -> usize {
        self.problem.result_columns().div_ceil(self.tile.result_columns(&self.problem))
    }

    fn tiles(&self) -> usize {
        self.boxes.number() * self.across()
    }

    /// Into how many parts the depth is split so that each multiprocessor has at most one: of at least four steps each. `None` if
    /// that would be one part. Values and their gates lie apart here, and side by side where partial sums are added, which knows no
    /// squares of pixels either.
    fn split_that_fills(&self) -> Option<Blocks> {
        let steps = self.boxes.steps();
        let most = (self.multiprocessors / self.tiles()).min(steps / 4);
        if self.problem.gate.is_some() || self.problem.subpixel || most < 2 {
            return None;
        }
        // More parts would not make the longest shorter.
        Some(Blocks::Split(steps.div_ceil(steps.div_ceil(most))))
    }

    /// Clusters that run all at once, each block with at least two steps. The largest tile leaves too few registers for what its
    /// epilogue reads.
    fn clusters_that_fit(&self) -> impl Iterator<Item = Blocks> {
        let (tiles, steps) = (self.tiles(), self.boxes.steps());
        let holds = self.tile.rows * self.tile.columns <= 128 * 256;
        (2..=PORTABLE_CLUSTER_BLOCKS as usize)
            .filter(move |&size| holds && tiles <= self.clusters_at_once(size) && 2 * size <= steps)
            .map(Blocks::Cluster)
    }

    /// How many clusters of a size run at once, a block on each multiprocessor. Those of a cluster are on one GPC, which has
    /// at least 16 on an H100 or H200.
    fn clusters_at_once(&self, size: usize) -> usize {
        const GPC: usize = 16;
        self.multiprocessors / GPC * (GPC / size)
    }

    /// A rough estimate in clocks: whole waves of tiles, of which each has an epilogue that nothing overlaps. If there are few
    /// of them, all wait for the weight to come from memory.
    fn expected_time(&self) -> f64 {
        // Bytes of rows that a multiprocessor multiplies by a column in a clock, whatever the type, and bytes that the memory gives
        // all of them.
        const RATE: f64 = 4096.0;
        const BANDWIDTH: f64 = 2000.0;
        // Bytes that a multiprocessor reads in a clock from the others of its cluster, and the clocks of the barriers.
        const DISTRIBUTED: f64 = 16.0;
        const BARRIERS: f64 = 1000.0;
        let Tile { rows, columns, efficiency, .. } = self.tile;
        let blocks = self.blocks.number();
        let waves = (self.tiles() * blocks).div_ceil(self.multiprocessors) as f64;
        let step = (rows * columns * TILE_BYTES) as f64 / (RATE * efficiency);
        let sums = (rows * columns) as f64;
        let (epilogue, second) = match self.blocks {
            Blocks::One => (sums / 10.0, 0.0),
            Blocks::Split(splits) => (sums / 10.0, split::expected_time(&self.problem, splits)),
            Blocks::Cluster(size) => {
                let share = sums / size as f64;
                // Sums pass through shared memory; those of the others come from there.
                (BARRIERS + sums / 32.0 + share / 10.0 + (sums - share) * 4.0 / DISTRIBUTED, 0.0)
            }
        };
        let steps = self.boxes.steps().div_ceil(blocks) as f64;
        let weight =
            (self.problem.columns * self.problem.depth * self.problem.b.dtype.size()) as f64 / BANDWIDTH;
        let products = waves * (steps * step + epilogue);
        1500.0 + products.max(weight) + second
    }
}

// SAFETY: the arguments are those of `wgmma`; the tensor maps and the extents are those of the call's tensors.
unsafe impl Implementation for Wgmma {
    fn name(&self) -> String {
        let Tile { rows, columns, .. } = self.tile;
        match self.blocks {
            Blocks::One => format!("wgmma {rows}x{columns}"),
            Blocks::Split(splits) => format!("wgmma {rows}x{columns} split {splits}"),
            Blocks::Cluster(size) => format!("wgmma {rows}x{columns} cluster {size}"),
        }
    }

    fn workspace(&self) -> usize {
        match self.blocks {
            Blocks::Split(splits) => split::workspace(&self.problem, splits),
            Blocks::One => self.statistics.map_or(0, |statistics| statistics.workspace()),
            Blocks::Cluster(_) => 0,
        }
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let Wgmma { problem, tile, boxes, blocks, statistics, .. } = self;
        let split = matches!(blocks, Blocks::Split(_));
        let cluster = if let Blocks::Cluster(size) = blocks { *size } else { 1 };
        // Partial sums are finished by the second kernel.
        let finished = if split { &problem.without_epilogue() } else { &**problem };
        let kernel = Kernel::new(SOURCE_WGMMA, "wgmma")
            .with("ELEMENT", type_name(problem.a.dtype))
            .with("TYPE", type_name(problem.result.dtype))
            .with("GATED", bool_constant(problem.gate.is_some()))
            .with("SUBPIXEL", bool_constant(problem.subpixel))
            .with("SPLIT", bool_constant(split))
            .with("STATISTICS", bool_constant(statistics.is_some()))
            .with("CLUSTER", cluster)
            .with("TILE_ROWS", tile.rows)
            .with("TILE_COLUMNS", tile.columns)
            .with("STAGES", tile.stages);
        let kernel = Kernel { generated: finished.epilogue().code(), hot: true, ..kernel };
        let arguments = arguments![
            boxes.map_of_a(problem, places),
            // Values and gates are copied separately.
            boxes.map_of_b(problem, places, tile.result_columns(problem)),
            places.outputs[0],
            if split { places.workspace } else { parts_at(*statistics, places) },
            boxes.argument(problem, self.across(), blocks.number())?,
            finished.epilogue_argument(places),
        ];
        // A cluster has one tile; other blocks take tiles in turns.
        let all = self.tiles() * blocks.number();
        let running = if cluster > 1 { all } else { all.min(self.multiprocessors) };
        let mut launch = Launch::new(kernel, grid(running)?, 384, arguments);
        launch.shared_bytes = tile.shared_bytes() as u32;
        launch.cluster = cluster as u32;
        let mut launches = vec![launch];
        if let Blocks::Split(splits) = blocks {
            launches.push(split::reduction(problem, *splits, places)?);
        }
        if let Some(statistics) = statistics {
            launches.extend(statistics.combination(places)?);
        }
        Ok(launches)
    }
}
