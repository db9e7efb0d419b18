//! Split-K: several blocks share the depth of a tile and leave partial sums in scratch memory; a second kernel adds them up.

use super::{SOURCE_REDUCE, bool_constant, problem::Problem};
use crate::{
    CudaError,
    kernels::{Kernel, Launch, Places, names::type_name},
    launch::{
        arguments,
        limits::{grid, long},
    },
};

/// Bytes of the partial sums; none if the depth is not split.
pub(super) fn workspace(problem: &Problem, splits: usize) -> usize {
    if splits == 1 {
        return 0;
    }
    [splits, problem.rows, problem.columns, size_of::<f32>()].into_iter().fold(1, usize::saturating_mul)
}

/// A rough estimate in clocks of what a split costs: partial sums are written and read, and a kernel starts.
pub(super) fn expected_time(problem: &Problem, splits: usize) -> f64 {
    if splits == 1 {
        return 0.0;
    }
    3000.0 + (problem.rows * problem.columns * 4 * (2 * splits)) as f64 / 2000.0
}

/// The second kernel, which adds the partial sums and runs the epilogue.
pub(super) fn reduction(problem: &Problem, splits: usize, places: &Places) -> Result<Launch, CudaError> {
    let store = problem.store_width(4);
    let kernel = Kernel::new(SOURCE_REDUCE, "reduce")
        .with("TYPE", type_name(problem.result.dtype))
        .with("GATED", bool_constant(problem.gate.is_some()))
        .with("STORE", store);
    let kernel = Kernel { generated: problem.epilogue().code(), hot: true, ..kernel };
    let slots = problem.rows * (problem.result_columns() / store);
    let arguments = arguments![
        places.workspace,
        places.outputs[0],
        // The steps of a part matter to the first kernel alone.
        problem.product_argument(splits, 0)?,
        problem.epilogue_argument(places),
        long(slots),
    ];
    Ok(Launch::new(kernel, grid(slots.div_ceil(256))?, 256, arguments))
}
