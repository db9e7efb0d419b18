//! The plain kernel: one thread for each element of the result.

use std::{ops::Range, sync::Arc};

use super::{SOURCE_NAIVE, bool_constant, problem::Problem};
use crate::{
    CudaError,
    kernels::{Implementation, Kernel, Launch, Places, names::type_name},
    launch::{
        arguments,
        limits::{grid, long},
    },
};

/// One thread for each element of the result.
#[derive(Debug)]
pub(super) struct Naive {
    pub(super) problem: Arc<Problem>,
}

// SAFETY: the arguments are those of `naive`, with the extents and strides of the problem's tensors.
unsafe impl Implementation for Naive {
    fn name(&self) -> String {
        "naive".to_owned()
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        Ok(vec![self.launch(places, 0..self.problem.result.elements())?])
    }

    fn part(&self, places: &Places, elements: &[Range<usize>]) -> Option<Result<Vec<Launch>, CudaError>> {
        Some(elements.iter().map(|range| self.launch(places, range.clone())).collect())
    }
}

impl Naive {
    /// Computes some elements of the result.
    fn launch(&self, places: &Places, elements: Range<usize>) -> Result<Launch, CudaError> {
        let problem = &self.problem;
        let kernel = Kernel::new(SOURCE_NAIVE, "naive")
            .with("A_TYPE", type_name(problem.a.dtype))
            .with("B_TYPE", type_name(problem.b.dtype))
            .with("TYPE", type_name(problem.result.dtype))
            .with("CONVOLUTION", bool_constant(problem.window.is_some()))
            .with("GATED", bool_constant(problem.gate.is_some()))
            .with("SUBPIXEL", bool_constant(problem.subpixel));
        let kernel = Kernel { generated: problem.epilogue().code(), ..kernel };
        let arguments = arguments![
            places.inputs[0],
            places.inputs[1],
            places.outputs[0],
            problem.product_argument(1, 0)?,
            problem.window_argument()?,
            problem.epilogue_argument(places),
            long(elements.start),
            long(elements.end),
        ];
        Ok(Launch::new(kernel, grid(elements.len().div_ceil(256))?, 256, arguments))
    }
}
