//! The ways to run one op.

use kinora_cpu::{CpuError, Options, Program, Tensors, reference, simd::Isa};
use kinora_graph::{GraphBuilder, Op, Phase, Tensor};

/// A way to run one op.
#[derive(Clone, Copy, Debug)]
pub enum Executor {
    Reference,
    /// The fast kernels, compiled for an instruction set.
    Fast(Isa),
}

impl Executor {
    /// The reference, and the fast kernels for every instruction set of this processor.
    pub fn all() -> Vec<Executor> {
        std::iter::once(Executor::Reference).chain(Self::fast()).collect()
    }

    /// The fast kernels for every instruction set of this processor.
    pub fn fast() -> impl Iterator<Item = Executor> {
        Isa::available().into_iter().map(Executor::Fast)
    }

    pub fn run(self, op: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>, CpuError> {
        match self {
            Executor::Reference => reference::run("op", op, inputs),
            Executor::Fast(isa) => by_program(isa, op, inputs),
        }
    }
}

/// Runs a graph of one node in a planned arena that was filled with NaNs. Weights are parameters, so that they are
/// packed when the program is loaded, as a model's are.
fn by_program(isa: Isa, op: &Op, operands: &[&Tensor]) -> Result<Vec<Tensor>, CpuError> {
    let mut g = GraphBuilder::new("one op");
    let (mut parameters, mut inputs) = (Tensors::new(), Tensors::new());
    let mut ids = Vec::new();
    for (i, operand) in operands.iter().enumerate() {
        let name = format!("operand{i}");
        let is_weight = i == 1 && matches!(op, Op::Conv(_) | Op::Linear(_));
        if is_weight {
            ids.push(g.parameter(&name, operand.ty().clone())?);
            parameters.insert(name, (*operand).clone());
        } else {
            ids.push(g.input(&name, operand.ty().clone(), Phase::Step)?);
            inputs.insert(name, (*operand).clone());
        }
    }
    let results = g.node("op", op.clone(), &ids)?;
    for (i, &result) in results.iter().enumerate() {
        g.output(&format!("result{i}"), result)?;
    }
    let options = Options { isa, optimise: false, poison: Some(0xFF), ..Options::default() };
    let mut outputs = Program::new(&g.finish(), &parameters, options)?.run(&inputs)?;
    Ok((0..results.len()).filter_map(|i| outputs.remove(&format!("result{i}"))).collect())
}
