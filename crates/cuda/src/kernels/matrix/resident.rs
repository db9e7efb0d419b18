//! Convolutions on Hopper whose weight stays in shared memory.

use std::sync::Arc;

use super::{
    SOURCE_RESIDENT,
    boxes::{Boxes, STRIPS, TILE_BYTES},
    problem::Problem,
};
use crate::{
    Chip, CudaError,
    kernels::{Implementation, Kernel, Launch, Places, names::type_name},
    launch::{arguments, limits::grid},
};

/// The shape of a tile's box: 8 × 16 results. A line of eight pixels is one atom of the swizzle.
const SHIFT: [u32; 4] = [3, 4, 0, 0];

/// The widest tiles that are worth it, and the narrower ones.
const COLUMNS: [usize; 4] = [8, 16, 32, 64];

/// The most slots of the ring: more than two tiles' worth bring nothing.
const MOST_STAGES: usize = 8;

/// A convolution over width and height, of few columns.
#[derive(Debug)]
pub(super) struct Resident {
    problem: Arc<Problem>,
    boxes: Boxes,
    /// Columns of a tile: at least those of the result.
    columns: usize,
    stages: usize,
    multiprocessors: usize,
}

/// The kernel, with the time that it is expected to take; none if the chip or TMA cannot do the product, or the weight does
/// not fit.
pub(super) fn offer(problem: &Arc<Problem>, chip: &Chip) -> Option<(f64, Resident)> {
    let window = problem.window.filter(|_| Boxes::can_hold(problem, chip))?;
    // One element at a time if there are few columns, otherwise eight.
    let narrow = problem.columns <= COLUMNS[0];
    if window.kernel[0] != 1 || !(narrow || problem.columns.is_multiple_of(8)) {
        return None;
    }
    let columns = COLUMNS.into_iter().find(|&columns| problem.columns <= columns)?;
    let mut boxes = Boxes::shaped(problem, SHIFT);
    // What the window's column reaches beyond a box; the copy has at most 256 lines.
    let beyond = (boxes.kernel[1] - 1).checked_mul(boxes.dilation[1])?;
    boxes.lines = beyond.checked_add(boxes.lines).filter(|&lines| lines <= 256)?;
    let slot = slot_bytes(&boxes);
    let room = (chip.shared_bytes as usize).checked_sub(fixed_bytes(&boxes, columns))?;
    let stages = (room / (slot + 16)).min(MOST_STAGES);
    // A consumer skips the slots of the other's tile. The parity that it then waits for means the right phase only if the copy
    // before in that slot has arrived. Copies may overtake each other, so that copy must be one that the consumer itself waited
    // for, or an older one: the ring holds two tiles.
    if stages < 2 * boxes.chunks() * boxes.kernel[0] {
        return None;
    }
    let resident = Resident {
        problem: problem.clone(),
        boxes,
        columns,
        stages,
        multiprocessors: chip.multiprocessors as usize,
    };
    Some((resident.expected_time(), resident))
}

/// Bytes of the input in a slot of the ring.
fn slot_bytes(boxes: &Boxes) -> usize {
    (boxes.lines << SHIFT[0]) * TILE_BYTES
}

/// Bytes of everything in shared memory but the ring and its mbarriers.
fn fixed_bytes(boxes: &Boxes, columns: usize) -> usize {
    boxes.steps() * columns * TILE_BYTES + STRIPS + 8
}

impl Resident {
    /// A rough estimate in clocks: loading the weight, then whole waves of tiles, whose operands come from shared memory at 128
    /// bytes a clock. Two warpgroups take turns, so epilogues are hidden unless there is one tile only.
    fn expected_time(&self) -> f64 {
        const BANDWIDTH: f64 = 128.0;
        let (rows, depth) = (128.0, (self.boxes.steps() * TILE_BYTES / 2) as f64);
        let waves = self.boxes.number().div_ceil(self.multiprocessors) as f64;
        // Each block of 64 rows reads the weight again.
        let read = (rows + 2.0 * self.columns as f64) * depth * 2.0 / BANDWIDTH;
        let weight = (self.boxes.steps() * self.columns * TILE_BYTES) as f64 / 32.0;
        1500.0 + weight + waves * read * 1.2 + rows * self.columns as f64 / 10.0
    }
}

// SAFETY: the arguments are those of `resident`; the tensor maps and the extents are those of the call's tensors.
unsafe impl Implementation for Resident {
    fn name(&self) -> String {
        format!("resident {}", self.columns)
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let Resident { problem, boxes, columns, stages, .. } = self;
        let kernel = Kernel::new(SOURCE_RESIDENT, "resident")
            .with("TYPE", type_name(problem.a.dtype))
            .with("GATED", 0)
            .with("TILE_COLUMNS", columns)
            .with("LINES", boxes.lines)
            .with("STAGES", stages);
        let kernel = Kernel { generated: problem.epilogue().code(), hot: true, ..kernel };
        let arguments = arguments![
            boxes.map_of_a(problem, places),
            boxes.map_of_b(problem, places, *columns),
            places.outputs[0],
            boxes.argument(problem, 1, 1)?,
            problem.epilogue_argument(places),
        ];
        let blocks = grid(boxes.number().min(self.multiprocessors))?;
        let mut launch = Launch::new(kernel, blocks, 384, arguments);
        launch.shared_bytes = (fixed_bytes(boxes, *columns) + stages * (slot_bytes(boxes) + 16)) as u32;
        Ok(vec![launch])
    }
}
