//! Every kernel that is offered for an op, each held to the reference: on a GPU, or on a simulated one.

use std::time::Instant;

use kinora_cuda::{
    Chip,
    kernels::{Call, Implementation, KernelSet, implementations},
    vendor::Libraries,
};
use kinora_graph::{Op, Tensor, TensorType};
use kinora_testing::{
    compare,
    executor::{Executor, ExecutorError, Reference},
};

/// What runs a call.
pub trait Bench: Sync {
    /// The chip whose kernels run.
    fn chip(&self) -> &Chip;

    /// The vendors' libraries that there are.
    fn libraries(&self) -> Libraries;

    /// Runs a call in memory that holds nothing but its operands, and gives its results.
    fn run(
        &self,
        call: &Call<'_>,
        way: &dyn Implementation,
        operands: &[&[u8]],
    ) -> Result<Vec<Vec<u8>>, String>;

    /// Whether a kernel is run here, or elsewhere.
    fn takes(&self, _call: &Call<'_>, _way: &dyn Implementation) -> bool {
        true
    }
}

/// All kernels of a set on one chip. Each is held to the reference; the results are the first one's.
pub struct EveryKernel<B> {
    pub name: String,
    pub bench: B,
    pub set: KernelSet,
    /// Says what it runs, for finding a kernel that does not end.
    pub traced: bool,
    /// Whether every kernel runs, or only the one that the family would choose.
    pub all: bool,
    /// Whether kernels of vendors' libraries run too.
    pub vendor: bool,
}

impl<B: Bench> Executor for EveryKernel<B> {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn run(&self, op: &Op, operands: &[&Tensor]) -> Result<Vec<Tensor>, ExecutorError> {
        let inputs: Vec<&TensorType> = operands.iter().map(|operand| operand.ty()).collect();
        let types = op.infer(&inputs)?;
        let outputs: Vec<&TensorType> = types.iter().collect();
        let call = Call { layer: "op", op, inputs: &inputs, outputs: &outputs };
        if let Op::Reshape(reshape) = op {
            let ty = TensorType::new(operands[0].dtype(), reshape.shape.clone());
            return Ok(vec![Tensor::from_bytes(ty, operands[0].bytes())?]);
        }
        if !call.runs() {
            return Ok(types.iter().map(|ty| Tensor::zeros(ty.clone())).collect());
        }
        let expected = Reference.run(op, operands)?;
        let libraries = if self.vendor { self.bench.libraries() } else { Libraries::default() };
        let offered = implementations(&call, self.bench.chip(), self.set, &libraries)?;
        let bytes: Vec<&[u8]> = operands.iter().map(|operand| operand.bytes()).collect();
        let mut first = None;
        for implementation in offered.iter().take(if self.all { usize::MAX } else { 1 }) {
            if !self.bench.takes(&call, &**implementation) {
                first.get_or_insert_with(|| expected.clone());
                continue;
            }
            let name = implementation.name();
            if self.traced {
                println!("{} {name} {op} begins", self.name);
            }
            let start = Instant::now();
            let results =
                self.bench.run(&call, &**implementation, &bytes).map_err(|why| format!("{name}: {why}"))?;
            if self.traced {
                println!("{} {name} {op} {:.1} s", self.name, start.elapsed().as_secs_f64());
            }
            let tensor = |(ty, bytes): (&TensorType, &Vec<u8>)| Tensor::from_bytes(ty.clone(), bytes);
            let results = types.iter().zip(&results).map(tensor).collect::<Result<Vec<_>, _>>()?;
            compare::all_close(op, &expected, &results).map_err(|why| format!("{name}: {why}"))?;
            first.get_or_insert(results);
        }
        first.ok_or_else(|| "no kernel is offered".into())
    }
}
