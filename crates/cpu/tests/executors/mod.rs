//! The fast kernels as executors of single ops.

use kinora_cpu::{Options, Program, simd::Isa};
use kinora_graph::{Op, Tensor};
use kinora_testing::executor::{Executor, ExecutorError, OneOp};

/// The fast kernels, compiled for an instruction set. An op runs as a graph of one node, in a planned arena that was filled
/// with NaNs.
struct Fast(Isa);

impl Executor for Fast {
    fn name(&self) -> String {
        self.0.name().to_owned()
    }

    fn run(&self, op: &Op, operands: &[&Tensor]) -> Result<Vec<Tensor>, ExecutorError> {
        let one = OneOp::new(op, operands)?;
        let options = Options { isa: self.0, optimise: false, poison: Some(0xFF), ..Options::default() };
        let program = Program::new(&one.graph, &one.parameters, options);
        let outputs = program.and_then(|mut program| program.run(&one.inputs));
        Ok(one.results(outputs?))
    }
}

/// The fast kernels for every instruction set of this CPU.
pub fn fast() -> Vec<&'static dyn Executor> {
    Isa::available().into_iter().map(|isa| Box::leak(Box::new(Fast(isa))) as &dyn Executor).collect()
}
