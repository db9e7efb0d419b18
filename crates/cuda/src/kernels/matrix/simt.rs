//! Products on the ordinary multiply-add units: for f32, and for operands of different types.

use std::sync::Arc;

use super::{SOURCE_SIMT, bool_constant, problem::Problem};
use crate::{
    Chip, CudaError,
    kernels::{Implementation, Kernel, Launch, Places, names::type_name},
    launch::{arguments, limits::grid},
};

/// Square tiles of sums.
#[derive(Debug)]
pub(super) struct Simt {
    problem: Arc<Problem>,
    /// The tile's rows and columns: 128, or 64.
    tile: usize,
}

/// The tiles, the better one first: the smaller if the larger would leave multiprocessors idle. Each with the time that it is
/// expected to take.
pub(super) fn offers(problem: &Arc<Problem>, chip: &Chip) -> Vec<(f64, Simt)> {
    let order = if blocks(problem, 128) >= chip.multiprocessors as usize && problem.columns > 64 {
        [128, 64]
    } else {
        [64, 128]
    };
    let offer = |tile| (expected_time(problem, chip, tile), Simt { problem: problem.clone(), tile });
    order.map(offer).into()
}

fn blocks(problem: &Problem, tile: usize) -> usize {
    problem.rows.div_ceil(tile) * problem.columns.div_ceil(tile) * problem.slices
}

/// A rough estimate in clocks: whole waves of tiles, with the start and the end of a tile.
fn expected_time(problem: &Problem, chip: &Chip, tile: usize) -> f64 {
    // Multiply-adds of a multiprocessor in a clock: the units', less what their operands' loads cost. On an H200, f32
    // convolutions of 128 channels reach half of the rate.
    let units = if chip.architecture.0 <= 80 { 64.0 } else { 128.0 };
    let rate = units * if tile == 128 { 0.55 } else { 0.4 };
    let waves = blocks(problem, tile).div_ceil(chip.multiprocessors as usize) as f64;
    waves * (problem.depth as f64 + 64.0) * (tile * tile) as f64 / rate
}

// SAFETY: the arguments are those of `simt`, with the extents and strides of the problem's tensors.
unsafe impl Implementation for Simt {
    fn name(&self) -> String {
        format!("simt {0}x{0}", self.tile)
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let problem = &self.problem;
        // If the depth is not contiguous, the lines are: four neighbouring ones come together.
        let wide_lines = |line: usize, lines: usize, depth: usize, slice: usize| {
            line == 1 && [lines, depth, slice].iter().all(|n| n % 4 == 0)
        };
        let (a, b) = (problem.a, problem.b);
        let (a_along_depth, b_along_depth) = (a.depth == 1, b.depth == 1);
        let a_vector = if a_along_depth {
            problem.a_has_wide_depth(4)
        } else {
            wide_lines(a.line, problem.rows, a.depth, a.slice)
        };
        let b_vector = if b_along_depth {
            problem.b_has_wide_depth(4)
        } else {
            wide_lines(b.line, problem.columns, b.depth, b.slice)
        };
        // A thread's sums are blocks of four columns, of which two are gates.
        let store = problem.store_width(if problem.gate.is_some() { 2 } else { 4 });
        let kernel = Kernel::new(SOURCE_SIMT, "simt")
            .with("A_TYPE", type_name(a.dtype))
            .with("B_TYPE", type_name(b.dtype))
            .with("CONVOLUTION", bool_constant(problem.window.is_some()))
            .with("GATED", bool_constant(problem.gate.is_some()))
            .with("TILE", self.tile)
            .with("A_ALONG_DEPTH", a_along_depth)
            .with("B_ALONG_DEPTH", b_along_depth)
            .with("A_VECTOR", a_vector)
            .with("B_VECTOR", b_vector)
            .with("STORE", store);
        let kernel = Kernel { generated: problem.epilogue().code(), hot: true, ..kernel };
        let arguments = arguments![
            places.inputs[0],
            places.inputs[1],
            places.outputs[0],
            problem.product_argument(1, 0)?,
            problem.window_argument()?,
            problem.epilogue_argument(places),
        ];
        Ok(vec![Launch::new(kernel, grid(blocks(problem, self.tile))?, 256, arguments)])
    }
}
