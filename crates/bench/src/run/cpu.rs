//! A layer on the CPU.

use std::time::{Duration, Instant};

use kinora_cpu::{Options, Program};
use kinora_graph::{Graph, Tensor};
use kinora_runtime::{RunError, Tensors};

use super::turns::Layer;
use crate::cases::{Numbers, windows};

/// A layer ready to run, several times over: each copy has operands of its own, and they are gone round, so that a small layer does
/// not find in the caches what a network would have to fetch.
pub struct CpuLayer {
    programs: Vec<Program>,
    inputs: Tensors,
    next: usize,
}

impl CpuLayer {
    /// Of a graph with these numbers.
    ///
    /// # Errors
    /// Where it cannot be planned, or memory is wanting.
    pub fn new(graph: &Graph, numbers: &[Numbers], copies: usize) -> Result<CpuLayer, String> {
        let (mut parameters, mut inputs) = (Tensors::new(), Tensors::new());
        for numbers in numbers {
            let tensor = numbers.tensor().map_err(|error| error.to_string())?;
            let tensors = if numbers.is_weight { &mut parameters } else { &mut inputs };
            tensors.insert(numbers.name.clone(), tensor);
        }
        let program = |_| {
            let mut program = Program::new(graph, &parameters, Options::default())?;
            program.run(&inputs)?;
            Ok(program)
        };
        let programs = (0..copies.max(1)).map(program).collect::<Result<_, RunError>>();
        Ok(CpuLayer { programs: programs.map_err(|error| error.to_string())?, inputs, next: 0 })
    }

    fn replay(&mut self) -> Result<(), String> {
        self.next = (self.next + 1) % self.programs.len();
        self.programs[self.next].replay().map_err(|error| error.to_string())
    }
}

impl Layer for CpuLayer {
    fn result(&mut self) -> Result<Vec<f32>, String> {
        let results = self.programs[0].run(&self.inputs).map_err(|error| error.to_string())?;
        let result = results.get("y").map(Tensor::to_f32).ok_or("there is no result")?;
        Ok(windows(result.len())
            .into_iter()
            .flat_map(|(from, count)| &result[from..from + count])
            .copied()
            .collect())
    }

    fn time(&mut self, seconds: f64, least: usize) -> Result<Vec<f64>, String> {
        self.replay()?;
        let end = Instant::now() + Duration::from_secs_f64(seconds);
        let mut samples = Vec::new();
        while samples.len() < least || Instant::now() < end {
            let start = Instant::now();
            self.replay()?;
            samples.push(start.elapsed().as_secs_f64());
        }
        Ok(samples)
    }
}
