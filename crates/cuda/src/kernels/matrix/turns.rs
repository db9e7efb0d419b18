//! Products on Hopper's wgmma, two warpgroups of a block taking turns: one multiplies while the other finishes its tile.

use std::sync::Arc;

use super::{
    SOURCE_TURNS, bool_constant,
    boxes::{Boxes, STRIPS, TILE_BYTES},
    problem::Problem,
    statistics::{InParts, parts_at},
};
use crate::{
    Chip, CudaError,
    kernels::{Implementation, Kernel, Launch, Places, names::type_name},
    launch::{arguments, limits::grid},
};

/// A tile of sums: each warpgroup's own.
#[derive(Clone, Copy, Debug)]
struct Tile {
    rows: usize,
    columns: usize,
    /// The share of the tensor cores' rate that it is expected to reach.
    efficiency: f64,
}

const TILES: [Tile; 2] =
    [Tile { rows: 128, columns: 160, efficiency: 0.8 }, Tile { rows: 128, columns: 128, efficiency: 0.75 }];

/// The most steps of the depth in the ring, and the fewest with which its copies are still far enough ahead.
const MOST_STAGES: usize = 6;
const LEAST_STAGES: usize = 4;

/// The most steps in the ring if only rows pass through it.
const MOST_STAGES_OF_ROWS: usize = 8;

/// Steps of the depth up to which the epilogue of 128 columns is worth hiding.
const LITTLE_DEPTH: usize = 24;

/// The longest bias and scale that are kept in shared memory, in bytes.
const MOST_VECTORS: usize = 24 << 10;

/// Columns of a row that a thread finishes at once.
const WIDE: usize = 8;

impl Tile {
    /// Columns of the result that a tile gives.
    fn result_columns(self, problem: &Problem) -> usize {
        if problem.gate.is_some() { self.columns / 2 } else { self.columns }
    }

    /// Bytes of the rows, and of the weight, for a step of the depth.
    fn step_bytes(self) -> [usize; 2] {
        [self.rows, self.columns].map(|lines| lines * TILE_BYTES)
    }
}

/// How a block gets the weight of its tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weight {
    /// It passes through the ring.
    Ring,
    /// It stays in shared memory, so many steps of the depth: a block keeps to its columns.
    Resident(usize),
}

impl Weight {
    /// Steps of the depth that stay.
    fn resident_steps(self) -> usize {
        if let Weight::Resident(steps) = self { steps } else { 0 }
    }

    /// Bytes of a slot of the ring, the most slots that are of use, and the bytes of the weight that stay.
    fn room(self, tile: Tile) -> (usize, usize, usize) {
        let [rows, weight] = tile.step_bytes();
        match self {
            Weight::Ring => (rows + weight, MOST_STAGES, 0),
            Weight::Resident(steps) => (rows, MOST_STAGES_OF_ROWS, steps * weight),
        }
    }
}

/// What shared memory holds beside the warps' strips and the mbarriers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Room {
    /// Steps of the depth in the ring.
    stages: usize,
    /// Strips of a tile whose epilogue operands are copied ahead, each so many bytes; none if there are no operands.
    strips_ahead: usize,
    strip_bytes: usize,
    /// The bias and the scale; none if they are too long.
    vector_bytes: usize,
}

impl Room {
    /// The room for a tile of a problem, with its bias and its scale if they fit; `None` if a chip has too little.
    fn of(problem: &Problem, tile: Tile, weight: Weight, chip: &Chip) -> Option<Room> {
        let vectors =
            [problem.bias, problem.scale].map(|vector| vector.map_or(0, |i| problem.inputs[i].bytes()));
        let all = vectors.iter().sum();
        let kept = all <= MOST_VECTORS && vectors.iter().all(|bytes| bytes.is_multiple_of(16));
        kept.then_some(all)
            .and_then(|bytes| Room::beside(problem, tile, weight, chip, bytes))
            .or_else(|| Room::beside(problem, tile, weight, chip, 0))
    }

    /// The room that vectors of so many bytes leave.
    fn beside(
        problem: &Problem,
        tile: Tile,
        weight: Weight,
        chip: &Chip,
        vector_bytes: usize,
    ) -> Option<Room> {
        let (slot, most_stages, weight_bytes) = weight.room(tile);
        let columns = tile.result_columns(problem);
        // As `strip` in `common/boxes.cuh`: a warp's 16 rows of it.
        let strip = if columns.is_multiple_of(32) { 32 } else { 16 };
        let strips = tile.rows / 64 * (columns / strip);
        // Of both warpgroups, 64 rows each.
        let strip_bytes = 2 * 64 * strip / WIDE * problem.epilogue().fetched_bytes(WIDE);
        let others = STRIPS + barrier_bytes(MOST_STAGES_OF_ROWS) + vector_bytes + weight_bytes;
        let all = (chip.shared_bytes as usize).checked_sub(others)?;
        let most_stages = if strip_bytes > 0 { LEAST_STAGES } else { most_stages };
        let stages = (all / slot).min(most_stages);
        let left = all - stages * slot;
        let strips_ahead = left.checked_div(strip_bytes).unwrap_or(0).min(strips);
        let fits = stages >= LEAST_STAGES && (strips_ahead > 0 || strip_bytes == 0);
        // The most sums, gates and operands together would not fit into registers.
        let fits = fits && (tile.columns <= 128 || problem.gate.is_none() || strip_bytes == 0);
        fits.then_some(Room { stages, strips_ahead, strip_bytes, vector_bytes })
    }

    fn shared_bytes(self, tile: Tile, weight: Weight) -> usize {
        let (slot, _, weight_bytes) = weight.room(tile);
        let ahead = self.strips_ahead * self.strip_bytes;
        self.stages * slot + weight_bytes + ahead + STRIPS + barrier_bytes(self.stages) + self.vector_bytes
    }
}

/// Bytes of the mbarriers, as in `turns.cu`.
fn barrier_bytes(stages: usize) -> usize {
    16 * stages + 32
}

/// A product in tiles, whose rows are boxes of results.
#[derive(Debug)]
pub(super) struct InTurns {
    problem: Arc<Problem>,
    tile: Tile,
    weight: Weight,
    room: Room,
    boxes: Boxes,
    /// The statistics that its epilogues leave.
    statistics: Option<InParts>,
    multiprocessors: usize,
}

/// The tiles, each with the time that it is expected to take; none if the chip or TMA cannot do the product.
pub(super) fn offers(problem: &Arc<Problem>, chip: &Chip) -> Vec<(f64, InTurns)> {
    if !Boxes::can_hold(problem, chip) || !problem.result_columns().is_multiple_of(WIDE) {
        return Vec::new();
    }
    let mut offers = Vec::new();
    for tile in TILES {
        if !problem.splits_columns(tile.result_columns(problem)) {
            continue;
        }
        let boxes = Boxes::of(problem, tile.rows);
        let statistics = InParts::of(problem, &boxes, [tile.result_columns(problem), tile.rows / 64], chip);
        if problem.statistics.is_some() && statistics.is_none() {
            continue;
        }
        for weight in [Weight::Resident(boxes.steps()), Weight::Ring] {
            let Some(room) = Room::of(problem, tile, weight, chip) else { continue };
            let multiprocessors = chip.multiprocessors as usize;
            let problem = problem.clone();
            let in_turns = InTurns { problem, tile, weight, room, boxes, statistics, multiprocessors };
            if in_turns.blocks() > 0 {
                offers.push((in_turns.expected_time(), in_turns));
            }
        }
    }
    offers
}

impl InTurns {
    /// Tiles across the columns of the result.
    fn across(&self) -> usize {
        self.problem.result_columns().div_ceil(self.tile.result_columns(&self.problem))
    }

    fn tiles(&self) -> usize {
        self.boxes.number() * self.across()
    }

    /// Blocks that run at once, each with tiles to do: if the weight stays, as many for each tile across.
    fn blocks(&self) -> usize {
        let (across, down) = (self.across(), self.boxes.number());
        match self.weight {
            Weight::Ring => self.tiles().min(self.multiprocessors),
            Weight::Resident(_) => across * (self.multiprocessors / across.max(1)).min(down),
        }
    }

    /// Whether it was measured to be the fastest of all for such a problem, or at most 2 % behind, on an H200, if columns fill their
    /// tiles and each warpgroup has one: a weight that stays; 160 columns; 128 columns of little depth whose epilogue reads operands.
    pub(super) fn is_ahead(&self) -> bool {
        let full = self.problem.result_columns().is_multiple_of(self.tile.result_columns(&self.problem));
        if !full || self.tiles() < 2 * self.multiprocessors {
            return false;
        }
        match self.weight {
            // Few multiprocessors are left over.
            Weight::Resident(_) => 10 * self.blocks() >= 9 * self.multiprocessors,
            Weight::Ring if self.tile.columns == 160 => true,
            Weight::Ring => self.room.strip_bytes > 0 && self.boxes.steps() <= LITTLE_DEPTH,
        }
    }

    /// A rough estimate in clocks: whole waves of tiles. An epilogue is hidden, unless it takes longer than the products of a
    /// tile, or is a block's last.
    fn expected_time(&self) -> f64 {
        // Bytes of rows that a multiprocessor multiplies by a column in a clock, whatever the type.
        const RATE: f64 = 4096.0;
        let Tile { rows, columns, efficiency } = self.tile;
        let products = (rows * columns * TILE_BYTES * self.boxes.steps()) as f64 / (RATE * efficiency);
        let epilogue = (rows * columns) as f64 / 7.0;
        let waves = self.tiles().div_ceil(self.blocks()) as f64;
        1500.0 + waves * products.max(epilogue) + epilogue
    }
}

// SAFETY: the arguments are those of `wgmma_in_turns`; the tensor maps and the extents are those of the call's tensors.
unsafe impl Implementation for InTurns {
    fn name(&self) -> String {
        let Tile { rows, columns, .. } = self.tile;
        let weight = match self.weight {
            Weight::Ring => "",
            Weight::Resident(_) => ", resident",
        };
        format!("wgmma {rows}x{columns} in turns{weight}")
    }

    fn workspace(&self) -> usize {
        self.statistics.map_or(0, |statistics| statistics.workspace())
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let InTurns { problem, tile, weight, room, boxes, statistics, .. } = self;
        let gated = problem.gate.is_some();
        let size_of = |vector: Option<usize>| match vector {
            Some(vector) if room.vector_bytes > 0 => problem.inputs[vector].dtype.size(),
            _ => 0,
        };
        let kernel = Kernel::new(SOURCE_TURNS, "wgmma_in_turns")
            .with("ELEMENT", type_name(problem.a.dtype))
            .with("TYPE", type_name(problem.result.dtype))
            .with("GATED", bool_constant(gated))
            .with("SUBPIXEL", bool_constant(problem.subpixel))
            .with("STATISTICS", bool_constant(statistics.is_some()))
            .with("TILE_ROWS", tile.rows)
            .with("TILE_COLUMNS", tile.columns)
            .with("RESIDENT_STEPS", weight.resident_steps())
            .with("STAGES", room.stages)
            .with("STRIPS_AHEAD", room.strips_ahead)
            .with("BIAS_SIZE", size_of(problem.bias))
            .with("SCALE_SIZE", size_of(problem.scale));
        let kernel = Kernel { generated: problem.epilogue().code_with_prefetch(), hot: true, ..kernel };
        let arguments = arguments![
            boxes.map_of_a(problem, places),
            // Values and gates are copied separately.
            boxes.map_of_b(problem, places, if gated { tile.columns / 2 } else { tile.columns }),
            places.outputs[0],
            parts_at(*statistics, places),
            boxes.argument(problem, self.across(), 1)?,
            problem.epilogue_argument(places),
        ];
        let mut launch = Launch::new(kernel, grid(self.blocks())?, 384, arguments);
        launch.shared_bytes = room.shared_bytes(*tile, *weight) as u32;
        let mut launches = vec![launch];
        if let Some(statistics) = statistics {
            launches.extend(statistics.combination(places)?);
        }
        Ok(launches)
    }
}
