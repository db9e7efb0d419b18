//! Convolutions of little depth on the tensor cores of a warp.

use std::sync::Arc;

use super::{SOURCE_GATHERED, mma, problem::Problem};
use crate::{
    Chip, CudaError,
    kernels::{Implementation, Kernel, Launch, Places, names::type_name},
    launch::{
        arguments,
        limits::{EXTENT, grid},
    },
};

/// The deepest product whose weights fit into registers, in steps of 16.
const MOST_STEPS: usize = 3;

/// Columns of a warp, rows of a warp at a time, and warps of a block, as the source has them.
const COLUMNS: usize = 64;
const ROWS: usize = 16;
const WARPS: usize = 8;

/// Blocks a multiprocessor, so that each loads its weights once for many rows.
const BLOCKS: usize = 4;

/// A convolution over width and height, of little depth.
#[derive(Debug)]
pub(super) struct Gathered {
    problem: Arc<Problem>,
    multiprocessors: usize,
}

/// The kernel, with the time that it is expected to take; none for a product that it cannot do.
pub(super) fn offer(problem: &Arc<Problem>, chip: &Chip) -> Option<(f64, Gathered)> {
    let halves = problem.a.dtype.size() == 2 && mma::on_tensor_cores(problem, chip);
    let window = problem.window.filter(|_| halves)?;
    let still = window.kernel[0] == 1 && window.stride[0] == 1 && window.padding[0] == 0;
    // The kernel counts a window's elements, and coordinates within it, in 32 bits.
    let [_, height, width] = window.extents;
    let counted = height.checked_mul(width)?.checked_mul(problem.a.line)? <= EXTENT / 2;
    let steps = problem.depth.div_ceil(16);
    if problem.slices != 1 || !still || !counted || steps == 0 || steps > MOST_STEPS {
        return None;
    }
    let gathered = Gathered { problem: problem.clone(), multiprocessors: chip.multiprocessors as usize };
    Some((gathered.expected_time(), gathered))
}

impl Gathered {
    fn steps(&self) -> usize {
        self.problem.depth.div_ceil(16)
    }

    fn across(&self) -> usize {
        self.problem.columns.div_ceil(COLUMNS)
    }

    /// A rough estimate in clocks: four warps of a multiprocessor issue an instruction each.
    fn expected_time(&self) -> f64 {
        let tiles = self.problem.rows.div_ceil(ROWS) * self.across();
        let instructions = (350 + 100 * self.steps()) as f64;
        2000.0 + tiles as f64 * instructions / (4 * self.multiprocessors) as f64
    }
}

// SAFETY: the extents and strides are the problem's.
unsafe impl Implementation for Gathered {
    fn name(&self) -> String {
        "gathered".to_owned()
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let problem = &*self.problem;
        let kernel = Kernel::new(SOURCE_GATHERED, "gathered")
            .with("TYPE", type_name(problem.a.dtype))
            .with("STEPS", self.steps())
            .with("STORE", problem.store_width(8));
        let kernel = Kernel { generated: problem.epilogue().code(), hot: true, ..kernel };
        let arguments = arguments![
            places.inputs[0],
            places.inputs[1],
            places.outputs[0],
            problem.product_argument(1, self.steps())?,
            problem.window_argument()?,
            problem.epilogue_argument(places),
        ];
        let down = problem.rows.div_ceil(ROWS * WARPS);
        let wave = (BLOCKS * self.multiprocessors).div_ceil(self.across());
        let blocks = grid(down.min(wave).max(1) * self.across())?;
        Ok(vec![Launch::new(kernel, blocks, 32 * WARPS as u32, arguments)])
    }
}
