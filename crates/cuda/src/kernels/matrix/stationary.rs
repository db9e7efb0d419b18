//! Convolutions on Hopper whose weight stays in registers.

use std::sync::Arc;

use super::{
    SOURCE_STATIONARY,
    boxes::{Boxes, TILE_BYTES},
    problem::Problem,
};
use crate::{
    Chip, CudaError,
    kernels::{Implementation, Kernel, Launch, Places, names::type_name},
    launch::{arguments, limits::grid},
};

/// The shape of a tile's box: 8 × 16 results. A line of eight pixels is one atom of the swizzle.
const SHIFT: [u32; 4] = [3, 4, 0, 0];
const PIXELS: usize = 128;

/// The columns of a result are the rows of a wgmma. With half as many, half of its work would be in vain.
const COLUMNS: usize = 64;
const LEAST_COLUMNS: usize = 40;

/// The most steps of the depth whose weight fits into registers: 16 of a thread's for each.
const MOST_STEPS: usize = 9;

/// The most slots of the ring: more than two tiles' worth bring nothing.
const MOST_STAGES: usize = 8;

/// A convolution over width and height, of few columns and little depth.
#[derive(Debug)]
pub(super) struct Stationary {
    problem: Arc<Problem>,
    boxes: Boxes,
    stages: usize,
    multiprocessors: usize,
}

/// The kernel, with the time that it is expected to take; none if the chip or TMA cannot do the product, or the weight does
/// not fit.
pub(super) fn offer(problem: &Arc<Problem>, chip: &Chip) -> Option<(f64, Stationary)> {
    let window = problem.window.filter(|_| Boxes::can_hold(problem, chip))?;
    let columns = problem.columns;
    if window.kernel[0] != 1 || !columns.is_multiple_of(8) || !(LEAST_COLUMNS..=COLUMNS).contains(&columns) {
        return None;
    }
    let mut boxes = Boxes::shaped(problem, SHIFT);
    if boxes.steps() > MOST_STEPS {
        return None;
    }
    // What the window's column reaches beyond a box; the copy has at most 256 lines.
    let beyond = (boxes.kernel[1] - 1).checked_mul(boxes.dilation[1])?;
    boxes.lines = beyond.checked_add(boxes.lines).filter(|&lines| lines <= 256)?;
    let room = (chip.shared_bytes as usize).checked_sub(fixed_bytes(&boxes))?;
    let stages = (room / (slot_bytes(&boxes) + 16)).min(MOST_STAGES);
    if stages < 2 {
        return None;
    }
    let stationary = Stationary {
        problem: problem.clone(),
        boxes,
        stages,
        multiprocessors: chip.multiprocessors as usize,
    };
    Some((stationary.expected_time(), stationary))
}

/// Bytes of the input in a slot of the ring.
fn slot_bytes(boxes: &Boxes) -> usize {
    (boxes.lines << SHIFT[0]) * TILE_BYTES
}

/// Bytes of everything in shared memory but the ring and its mbarriers: the weight, then in its place the sums of two tiles,
/// whose lines are padded; and three mbarriers.
fn fixed_bytes(boxes: &Boxes) -> usize {
    let sums = 2 * PIXELS * (COLUMNS + 4) * 4;
    let weight = boxes.steps() * COLUMNS * TILE_BYTES;
    sums.max(weight).next_multiple_of(1024) + 24
}

impl Stationary {
    /// A rough estimate in clocks: loading the weight, then whole waves of tiles. Two warpgroups take turns, so epilogues are
    /// hidden but for the last, unless they take longer than a tile's products.
    fn expected_time(&self) -> f64 {
        // A wgmma of 16 depths takes a clock for two pixels.
        let products = (self.boxes.steps() * TILE_BYTES / 32 * PIXELS / 2) as f64;
        let epilogue = (PIXELS * COLUMNS) as f64 / 10.0;
        let waves = self.boxes.number().div_ceil(self.multiprocessors) as f64;
        let weight = (self.boxes.steps() * COLUMNS * TILE_BYTES) as f64 / 32.0;
        1500.0 + weight + waves * (products * 1.05).max(epilogue) + epilogue
    }
}

// SAFETY: the arguments are those of `stationary`; the tensor maps and the extents are those of the call's tensors.
unsafe impl Implementation for Stationary {
    fn name(&self) -> String {
        "stationary".to_owned()
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let Stationary { problem, boxes, stages, .. } = self;
        let kernel = Kernel::new(SOURCE_STATIONARY, "stationary")
            .with("TYPE", type_name(problem.a.dtype))
            .with("GATED", 0)
            .with("TILE_COLUMNS", COLUMNS)
            .with("KERNEL_X", boxes.kernel[0])
            .with("KERNEL_Y", boxes.kernel[1])
            .with("DILATION_X", boxes.dilation[0])
            .with("DILATION_Y", boxes.dilation[1])
            .with("CHUNKS", boxes.chunks())
            .with("STAGES", stages);
        let kernel = Kernel { generated: problem.epilogue().code(), hot: true, ..kernel };
        let arguments = arguments![
            boxes.map_of_a(problem, places),
            boxes.map_of_b(problem, places, COLUMNS),
            places.outputs[0],
            boxes.argument(problem, 1, 1)?,
            problem.epilogue_argument(places),
        ];
        let blocks = grid(boxes.number().min(self.multiprocessors))?;
        let mut launch = Launch::new(kernel, blocks, 384, arguments);
        launch.shared_bytes = (fixed_bytes(boxes) + stages * (slot_bytes(boxes) + 16)) as u32;
        Ok(vec![launch])
    }
}
