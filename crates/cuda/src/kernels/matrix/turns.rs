//! Products on Hopper's wgmma, two warpgroups of a block taking turns: one multiplies while the other finishes its tile.

use std::sync::Arc;

use super::{
    SOURCE_TURNS, bool_constant,
    boxes::{Boxes, STRIPS, TILE_DEPTH},
    problem::Problem,
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

/// The longest bias that is kept in shared memory, in bytes.
const MOST_BIAS: usize = 24 << 10;

/// Columns of a row that a thread finishes at once.
const WIDE: usize = 8;

impl Tile {
    /// Columns of the result that a tile gives.
    fn result_columns(self, problem: &Problem) -> usize {
        if problem.gate.is_some() { self.columns / 2 } else { self.columns }
    }

    fn stage_bytes(self) -> usize {
        (self.rows + self.columns) * TILE_DEPTH * 2
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
    /// The bias; none if it is too long.
    bias_bytes: usize,
}

impl Room {
    /// The room for a tile of a problem, with its bias if that fits; `None` if a chip has too little.
    fn of(problem: &Problem, tile: Tile, chip: &Chip) -> Option<Room> {
        let bias = problem.bias.map_or(0, |bias| problem.inputs[bias].bytes());
        let kept = (bias <= MOST_BIAS && bias.is_multiple_of(16)).then_some(bias);
        kept.and_then(|bias| Room::beside(problem, tile, chip, bias))
            .or_else(|| Room::beside(problem, tile, chip, 0))
    }

    /// The room that a bias of so many bytes leaves.
    fn beside(problem: &Problem, tile: Tile, chip: &Chip, bias_bytes: usize) -> Option<Room> {
        let columns = tile.result_columns(problem);
        // As `strip` in `common/boxes.cuh`: a warp's 16 rows of it.
        let strip = if columns.is_multiple_of(32) { 32 } else { 16 };
        let strips = tile.rows / 64 * (columns / strip);
        // Of both warpgroups, 64 rows each.
        let strip_bytes = 2 * 64 * strip / WIDE * problem.epilogue().fetched_bytes(WIDE);
        let barriers = 16 * MOST_STAGES + 16;
        let all = (chip.shared_bytes as usize).checked_sub(STRIPS + barriers + bias_bytes)?;
        let most_stages = if strip_bytes > 0 { LEAST_STAGES } else { MOST_STAGES };
        let stages = (all / tile.stage_bytes()).min(most_stages);
        let left = all - stages * tile.stage_bytes();
        let strips_ahead = left.checked_div(strip_bytes).unwrap_or(0).min(strips);
        let fits = stages >= LEAST_STAGES && (strips_ahead > 0 || strip_bytes == 0);
        // The most sums, gates and operands together would not fit into registers.
        let fits = fits && (tile.columns <= 128 || problem.gate.is_none() || strip_bytes == 0);
        fits.then_some(Room { stages, strips_ahead, strip_bytes, bias_bytes })
    }

    fn shared_bytes(self, tile: Tile) -> usize {
        let ring = self.stages * tile.stage_bytes();
        ring + self.strips_ahead * self.strip_bytes + STRIPS + 16 * self.stages + 16 + self.bias_bytes
    }
}

/// A product in tiles, whose rows are boxes of results.
#[derive(Debug)]
pub(super) struct InTurns {
    problem: Arc<Problem>,
    tile: Tile,
    room: Room,
    boxes: Boxes,
    multiprocessors: usize,
}

/// The tiles, each with the time that it is expected to take; none if the chip or TMA cannot do the product.
pub(super) fn offers(problem: &Arc<Problem>, chip: &Chip) -> Vec<(f64, InTurns)> {
    if !Boxes::can_hold(problem, chip) || !problem.result_columns().is_multiple_of(WIDE) {
        return Vec::new();
    }
    let offer = |tile: Tile| {
        let in_turns = InTurns {
            problem: problem.clone(),
            tile,
            room: Room::of(problem, tile, chip)?,
            boxes: Boxes::of(problem, tile.rows),
            multiprocessors: chip.multiprocessors as usize,
        };
        Some((in_turns.expected_time(), in_turns))
    };
    let fits = |tile: &Tile| problem.splits_columns(tile.result_columns(problem));
    TILES.into_iter().filter(fits).filter_map(offer).collect()
}

impl InTurns {
    /// Tiles across the columns of the result.
    fn across(&self) -> usize {
        self.problem.result_columns().div_ceil(self.tile.result_columns(&self.problem))
    }

    fn tiles(&self) -> usize {
        self.boxes.number() * self.across()
    }

    /// Whether it was measured to be the fastest of all for such a problem, or at most 2 % behind, on an H200: 160 columns that fill
    /// their tiles, and at least one tile for each warpgroup.
    pub(super) fn is_ahead(&self) -> bool {
        let full = self.problem.result_columns().is_multiple_of(self.tile.result_columns(&self.problem));
        self.tile.columns == 160 && full && self.tiles() >= 2 * self.multiprocessors
    }

    /// A rough estimate in clocks: whole waves of tiles. An epilogue is hidden, unless it takes longer than the products of a
    /// tile, or is a block's last.
    fn expected_time(&self) -> f64 {
        // Multiply-adds of a multiprocessor in a clock.
        const RATE: f64 = 2048.0;
        let Tile { rows, columns, efficiency } = self.tile;
        let products = (rows * columns * TILE_DEPTH * self.boxes.steps()) as f64 / (RATE * efficiency);
        let epilogue = (rows * columns) as f64 / 7.0;
        let waves = self.tiles().div_ceil(self.multiprocessors) as f64;
        1500.0 + waves * products.max(epilogue) + epilogue
    }
}

// SAFETY: the arguments are those of `wgmma_in_turns`; the tensor maps and the extents are those of the call's tensors.
unsafe impl Implementation for InTurns {
    fn name(&self) -> String {
        let Tile { rows, columns, .. } = self.tile;
        format!("wgmma {rows}x{columns} in turns")
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let InTurns { problem, tile, room, boxes, .. } = self;
        let bias_size = problem.bias.map_or(0, |bias| problem.inputs[bias].dtype.size());
        let kernel = Kernel::new(SOURCE_TURNS, "wgmma_in_turns")
            .with("TYPE", type_name(problem.a.dtype))
            .with("GATED", bool_constant(problem.gate.is_some()))
            .with("SUBPIXEL", bool_constant(problem.subpixel))
            .with("TILE_ROWS", tile.rows)
            .with("TILE_COLUMNS", tile.columns)
            .with("STAGES", room.stages)
            .with("STRIPS_AHEAD", room.strips_ahead)
            .with("BIAS_SIZE", if room.bias_bytes > 0 { bias_size } else { 0 });
        let kernel = Kernel { generated: problem.epilogue().code_with_prefetch(), hot: true, ..kernel };
        let arguments = arguments![
            boxes.map_of_a(problem, places),
            // Values and gates are copied separately.
            boxes.map_of_b(problem, places, tile.result_columns(problem)),
            places.outputs[0],
            boxes.argument(problem, self.across(), 1)?,
            problem.epilogue_argument(places),
        ];
        let blocks = grid(self.tiles().min(self.multiprocessors))?;
        let mut launch = Launch::new(kernel, blocks, 384, arguments);
        launch.shared_bytes = room.shared_bytes(*tile) as u32;
        Ok(vec![launch])
    }
}
