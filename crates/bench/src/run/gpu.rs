//! A layer on a GPU, by the kernel that a network would run, or by every one that there is.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use kinora_cpu::CpuOps;
use kinora_cuda::{
    CudaError, CudaOptions, Planned,
    compiler::CompilerOptions,
    driver::{Device, DeviceBuffer},
    kernels::{Call, Choose, Heuristic, Implementation, KernelSet, implementations},
    tuning::Tuner,
    vendor::Libraries,
    workbench::{CallMemory, PreparedCall, Workbench},
};
use kinora_graph::{Graph, Tensor, TensorType};

use super::turns::{Contestant, Layer};
use crate::{
    cases::{Numbers, windows},
    results::KINORA,
};

/// Copies of a call's operands that are gone round, where there is room for them.
const COPIES: usize = 3;

/// A GPU on which single layers run.
pub struct GpuBench {
    device: Device,
    bench: Workbench,
    flush: Arc<DeviceBuffer>,
    choice: Arc<dyn Choose>,
}

impl GpuBench {
    /// Kernels are chosen by what was measured on this GPU before, where anything was, and by shape otherwise.
    ///
    /// # Errors
    /// Where the driver fails.
    pub fn new(device: &Device) -> Result<GpuBench, CudaError> {
        let compiler = CompilerOptions::from_environment();
        let chip = device.info().chip();
        let bench = Workbench::new(device, chip.clone(), compiler)?;
        let flush = Arc::new(bench.flush_memory()?);
        let choice = choice(device).unwrap_or_else(|| {
            Arc::new(Heuristic { chip, kernels: KernelSet::Fused, libraries: Libraries::default() })
        });
        Ok(GpuBench { device: device.clone(), bench, flush, choice })
    }

    /// Everyone of ours who runs a layer: the chosen kernel, and all others where they are asked for.
    ///
    /// # Errors
    /// Where the layer cannot be planned, is more than one call, or memory is wanting.
    pub fn contestants(
        &self,
        graph: &Graph,
        numbers: &[Numbers],
        all: bool,
    ) -> Result<Vec<Contestant<'static>>, CudaError> {
        let options = CudaOptions {
            choice: Some(self.choice.clone()),
            ..CudaOptions::for_device(&self.device, CpuOps::shared())
        };
        let planned = Planned::new(graph, &options)?;
        let mut found = Vec::new();
        planned.for_each_call(|call| {
            let operands = operands(planned.graph(), call, numbers)?;
            found.push(self.ways(call, &operands, all)?);
            Ok(())
        })?;
        match found.len() {
            1 => Ok(found.swap_remove(0)),
            calls => Err(CudaError::Internal(format!("a layer became {calls} calls"))),
        }
    }

    fn ways(
        &self,
        call: &Call<'_>,
        operands: &[Vec<u8>],
        all: bool,
    ) -> Result<Vec<Contestant<'static>>, CudaError> {
        let chosen = self.choice.choose(call)?;
        let name = chosen.name();
        let mut ways: Vec<Arc<dyn Implementation>> = vec![chosen];
        if all {
            let offered = implementations(call, self.bench.chip(), KernelSet::Fused, self.bench.libraries())?;
            ways.extend(
                offered.into_iter().map(Arc::from).filter(|way: &Arc<dyn Implementation>| way.name() != name),
            );
        }
        let memories = self.memories(call, &ways)?;
        for memory in &memories {
            let first = self.bench.prepare_in(&*ways[0], memory)?;
            for (number, pattern) in operands.iter().enumerate() {
                first.repeat(number, pattern)?;
            }
        }
        let ways = ways.into_iter().enumerate().map(|(number, way)| {
            let kernel = way.name();
            let by = if number == 0 { KINORA.to_owned() } else { format!("{KINORA} {kernel}") };
            let calls = memories.iter().map(|memory| self.bench.prepare_in(&*way, memory));
            let layer: Box<dyn Layer> = match calls.collect::<Result<Vec<_>, CudaError>>() {
                Ok(calls) => {
                    let ty = call.outputs[0].clone();
                    Box::new(GpuLayer { calls, flush: self.flush.clone(), ty, next: 0 })
                }
                Err(error) => Box::new(Broken(error.to_string())),
            };
            Contestant { by, kernel: Some(kernel), layer }
        });
        Ok(ways.collect())
    }

    /// As many copies of a call's memory as take a quarter of what is free, since a peer holds as much: one at the least.
    fn memories(
        &self,
        call: &Call<'_>,
        ways: &[Arc<dyn Implementation>],
    ) -> Result<Vec<Arc<CallMemory>>, CudaError> {
        let workspace = ways.iter().map(|way| way.workspace()).max().unwrap_or(0);
        let tensors = call.inputs.iter().chain(call.outputs).map(|ty| ty.bytes()).sum::<usize>();
        let room = self.device.memory()?.free / 4;
        let copies = (room / (tensors + workspace).max(1)).clamp(1, COPIES);
        (0..copies).map(|_| self.bench.memory(call, workspace)).collect()
    }
}

/// What was measured on this GPU before, by a tuner.
pub fn choice(device: &Device) -> Option<Arc<dyn Choose>> {
    let tuner = Tuner::remembered(device, CompilerOptions::from_environment().cache)?;
    Some(Arc::new(tuner))
}

/// The numbers of a call's operands, by the names of its node's.
fn operands(graph: &Graph, call: &Call<'_>, numbers: &[Numbers]) -> Result<Vec<Vec<u8>>, CudaError> {
    let node = graph.nodes().iter().find(|node| node.name == call.layer);
    let inputs = node.map(|node| node.inputs.as_slice()).unwrap_or_default();
    inputs
        .iter()
        .map(|&id| {
            let name = &graph.value(id).name;
            let missing = || CudaError::Internal(format!("there are no numbers for the operand {name}"));
            let numbers = numbers.iter().find(|numbers| numbers.name == *name).ok_or_else(missing)?;
            numbers.pattern_bytes().map_err(|error| CudaError::Internal(error.to_string()))
        })
        .collect()
}

struct GpuLayer {
    /// The same call with operands of its own each.
    calls: Vec<PreparedCall>,
    flush: Arc<DeviceBuffer>,
    /// Of the result.
    ty: TensorType,
    next: usize,
}

impl GpuLayer {
    fn read(&self) -> Result<Vec<f32>, CudaError> {
        let (call, size) = (&self.calls[0], self.ty.dtype.size());
        call.poison_results(0xFF)?;
        call.run()?;
        let mut numbers = Vec::new();
        for (from, count) in windows(self.ty.elements()) {
            let bytes = call.read_part(0, from * size, count * size)?;
            let tensor = Tensor::from_bytes(TensorType::new(self.ty.dtype, [count]), &bytes)
                .map_err(|error| CudaError::Internal(error.to_string()))?;
            numbers.extend(tensor.to_f32());
        }
        Ok(numbers)
    }
}

impl Layer for GpuLayer {
    fn result(&mut self) -> Result<Vec<f32>, String> {
        self.read().map_err(|error| error.to_string())
    }

    /// By events around each run. The flush before it keeps the GPU busy while the run is given to it, so that the time is not
    /// that of the launch.
    fn time(&mut self, seconds: f64, least: usize) -> Result<Vec<f64>, String> {
        let mut once = |flush: &DeviceBuffer| {
            self.next = (self.next + 1) % self.calls.len();
            self.calls[self.next].time(1, flush).map_err(|error| error.to_string())
        };
        once(&self.flush)?;
        let end = Instant::now() + Duration::from_secs_f64(seconds);
        let mut samples = Vec::new();
        while samples.len() < least || Instant::now() < end {
            samples.extend(once(&self.flush)?.into_iter().map(|milliseconds| f64::from(milliseconds) / 1e3));
        }
        Ok(samples)
    }
}

/// A way that cannot be run, by its own account.
pub struct Broken(pub String);

impl Layer for Broken {
    fn result(&mut self) -> Result<Vec<f32>, String> {
        Err(self.0.clone())
    }

    fn time(&mut self, _: f64, _: usize) -> Result<Vec<f64>, String> {
        Err(self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use kinora_cuda::{Architecture, Chip};
    use kinora_graph::DType;

    use super::*;
    use crate::cases::kernels;

    #[test]
    fn every_operand_of_every_kernel_has_its_numbers() {
        for architecture in [Architecture::TURING, Architecture::HOPPER] {
            let options = CudaOptions::new(Chip::typical(architecture), CpuOps::shared());
            for case in kernels().unwrap() {
                let graph = case.work.graph(&case.name, DType::F16).unwrap();
                let numbers = Numbers::of(&graph).unwrap();
                let planned = Planned::new(&graph, &options).unwrap();
                planned
                    .for_each_call(|call| {
                        let operands = operands(planned.graph(), call, &numbers)?;
                        assert_eq!(operands.len(), call.inputs.len(), "{}", case.name);
                        for (operand, ty) in operands.iter().zip(call.inputs) {
                            assert!(operand.len() <= ty.bytes() && ty.bytes() > 0, "{}", case.name);
                        }
                        // The result that is compared is the first and only one.
                        assert_eq!(call.outputs.len(), 1);
                        Ok(())
                    })
                    .unwrap();
            }
        }
    }
}
