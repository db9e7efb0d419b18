//! The plain kernel: one thread for each element of the result.

use super::{SOURCE_NAIVE, bool_constant, problem_of};
use crate::{
    CudaError,
    kernels::{Argument, Call, Implementation, Kernel, Launch, Places, names::type_name},
};

/// One thread for each element of the result.
#[derive(Debug)]
pub(super) struct Naive;

impl Implementation for Naive {
    fn name(&self) -> String {
        "naive".to_owned()
    }

    fn launches(&self, call: &Call<'_>, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let problem = problem_of(call)?;
        let kernel = Kernel::new(SOURCE_NAIVE, "naive")
            .with("A_TYPE", type_name(problem.a.dtype))
            .with("B_TYPE", type_name(problem.b.dtype))
            .with("CONVOLUTION", bool_constant(problem.window.is_some()))
            .with("GATED", bool_constant(problem.gate.is_some()));
        let kernel = Kernel { generated: problem.epilogue().code(), ..kernel };
        let elements = problem.result.elements();
        let arguments = vec![
            Argument::Pointer(places.inputs[0]),
            Argument::Pointer(places.inputs[1]),
            Argument::Pointer(places.outputs[0]),
            problem.product_argument(1, 0)?,
            problem.window_argument()?,
            problem.epilogue_argument(places),
            Argument::I64(elements as i64),
        ];
        Ok(vec![Launch::new(kernel, problem.blocks(elements.div_ceil(256))?, 256, arguments)])
    }
}
