//! A warp for each query of each head: runs every attention.

use std::sync::Arc;

use super::problem::Problem;
use crate::{
    CudaError,
    kernels::{Implementation, Kernel, Launch, Places, Source, names::type_name},
};

const SOURCE: Source = Source { path: "attention/plain.cu", text: include_str!("plain.cu") };

/// Warps of a block.
const WARPS: u32 = 8;

/// Any attention.
#[derive(Debug)]
pub(super) struct Plain {
    pub(super) problem: Arc<Problem>,
}

// SAFETY: the arguments are those of `plain`, which stays within the tensors whose extents the problem gives.
unsafe impl Implementation for Plain {
    fn name(&self) -> String {
        "plain".into()
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let problem = &self.problem;
        let kernel = problem
            .specialised(Kernel::new(SOURCE, "plain"))
            .with("QUERY_TYPE", type_name(problem.dtype(0)))
            .with("KEY_TYPE", type_name(problem.dtype(1)))
            .with("VALUE_TYPE", type_name(problem.dtype(2)))
            .with("WARPS", WARPS);
        let queries = problem.sequences().saturating_mul(problem.extents.queries);
        let grid = problem.grid(queries.div_ceil(WARPS as usize))?;
        Ok(vec![Launch::new(kernel, grid, 32 * WARPS, problem.arguments(places)?)])
    }
}
