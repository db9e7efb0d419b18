//! A layer on the CPU.

use std::time::Instant;

use kinora_cpu::{Options, Program};
use kinora_graph::{Graph, Tensor};
use kinora_runtime::{RunError, Tensors};

use super::{
    device::LayerBench,
    layers::ours,
    turns::{Contestant, Layer, samples},
};
use crate::{
    BenchError,
    cases::{Numbers, in_windows},
};

/// The bytes that the copies of a layer's operands should take together: more than most caches hold.
const FOOTPRINT: u64 = 64 << 20;

/// Runs single layers on the CPU.
pub(super) struct CpuBench;

impl LayerBench for CpuBench {
    fn copies(&self, bytes: u64, most: usize) -> usize {
        let wanted = FOOTPRINT.div_ceil(bytes.max(1)) as usize;
        wanted.clamp(1, most.max(1))
    }

    fn contestants(
        &self,
        graph: &Graph,
        numbers: &[Numbers],
        copies: usize,
        _all: bool,
    ) -> Result<Vec<Contestant<'static>>, BenchError> {
        Ok(vec![ours(CpuLayer::new(graph, numbers, copies))])
    }
}

/// A layer that is ready to run. Runs cycle through several copies of it, each with operands of its own, so that a small
/// layer does not find in the caches what it would have to fetch in a network.
pub struct CpuLayer {
    programs: Vec<Program>,
    inputs: Tensors,
    next: usize,
}

impl CpuLayer {
    /// Of a graph with these numbers.
    ///
    /// # Errors
    /// If it cannot be planned, or memory does not suffice.
    pub fn new(graph: &Graph, numbers: &[Numbers], copies: usize) -> Result<CpuLayer, BenchError> {
        let (mut parameters, mut inputs) = (Tensors::new(), Tensors::new());
        for numbers in numbers {
            let tensors = if numbers.is_weight { &mut parameters } else { &mut inputs };
            tensors.insert(numbers.name.clone(), numbers.tensor()?);
        }
        let program = |_| {
            let mut program = Program::new(graph, &parameters, Options::default())?;
            program.run(&inputs)?;
            Ok(program)
        };
        let programs = (0..copies.max(1)).map(program).collect::<Result<_, RunError>>()?;
        Ok(CpuLayer { programs, inputs, next: 0 })
    }
}

impl Layer for CpuLayer {
    fn result(&mut self) -> Result<Vec<f32>, BenchError> {
        let results = self.programs[0].run(&self.inputs)?;
        let result = results.get("y").map(Tensor::to_f32).ok_or(BenchError::Nothing("result"))?;
        Ok(in_windows(&result))
    }

    fn time(&mut self, seconds: f64, least: usize) -> Result<Vec<f64>, BenchError> {
        samples(seconds, least, || {
            self.next = (self.next + 1) % self.programs.len();
            let start = Instant::now();
            self.programs[self.next].replay()?;
            Ok(start.elapsed().as_secs_f64())
        })
    }
}
