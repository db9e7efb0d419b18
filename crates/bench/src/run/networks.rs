//! A whole network, on a CPU or a GPU, with synthetic weights.

use std::time::{Duration, Instant};

use kinora_cpu::Tensors;
use kinora_cuda::{CudaOptions, driver::Device};
use kinora_graph::Phase;
use kinora_models::synthetic::Synthetic;

use super::{gpu, turns::Layer};
use crate::cases::{Network, windows};

enum Program {
    Cpu(Box<kinora_cpu::Program>),
    Gpu(Box<kinora_cuda::Program>),
}

/// A network that is loaded. Its weights and activations are far larger than caches, so that there is one of it, and nothing is
/// flushed.
pub struct NetworkLayer {
    program: Program,
    step: Tensors,
}

impl NetworkLayer {
    /// Plans and loads a network, and runs what depends on the clip alone.
    ///
    /// # Errors
    /// Where it does not fit, or does not run.
    pub fn new(network: &Network, device: Option<&Device>) -> Result<NetworkLayer, String> {
        let (clip, step) = (network.inputs(Phase::Clip)?, network.inputs(Phase::Step)?);
        let program = match device {
            None => {
                let options = kinora_cpu::Options::default();
                let program = kinora_cpu::Program::new(&network.graph, &Synthetic, options);
                let mut program = Box::new(program.map_err(said)?);
                program.run_clip(&clip).map_err(said)?;
                Program::Cpu(program)
            }
            Some(device) => {
                let options = CudaOptions { choice: gpu::choice(device), ..CudaOptions::for_device(device) };
                let planned = kinora_cuda::Planned::new(&network.graph, &options).map_err(said)?;
                let mut program = Box::new(planned.load(device, &Synthetic).map_err(said)?);
                program.run_clip(&clip).map_err(said)?;
                Program::Gpu(program)
            }
        };
        Ok(NetworkLayer { program, step })
    }

    /// Runs a step and gives its seconds: on a GPU by events, without the copies of its inputs.
    fn once(&mut self) -> Result<f64, String> {
        match &mut self.program {
            // With its inputs: a step may overwrite them, and what then becomes of the numbers no one knows.
            Program::Cpu(program) => {
                let start = Instant::now();
                program.run_step(&self.step).map_err(said)?;
                Ok(start.elapsed().as_secs_f64())
            }
            Program::Gpu(program) => {
                let times = program.time_replays(1).map_err(said)?;
                times.first().map(|&milliseconds| f64::from(milliseconds) / 1e3).ok_or("no time".to_owned())
            }
        }
    }
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Layer for NetworkLayer {
    fn result(&mut self) -> Result<Vec<f32>, String> {
        let results = match &mut self.program {
            Program::Cpu(program) => program.run_step(&self.step).map_err(said)?,
            Program::Gpu(program) => program.run_step(&self.step).map_err(said)?,
        };
        let result = results.values().next().ok_or("there is no result")?.to_f32();
        let windows = windows(result.len()).into_iter();
        Ok(windows.flat_map(|(from, count)| &result[from..from + count]).copied().collect())
    }

    fn time(&mut self, seconds: f64, least: usize) -> Result<Vec<f64>, String> {
        // Warms up, as every peer does at the beginning of its turn.
        self.once()?;
        let end = Instant::now() + Duration::from_secs_f64(seconds);
        let mut samples = Vec::new();
        while samples.len() < least || Instant::now() < end {
            samples.push(self.once()?);
        }
        Ok(samples)
    }
}
