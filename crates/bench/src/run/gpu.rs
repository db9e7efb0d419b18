//! A layer on a GPU, by the kernel that a network would run, or by every kernel that can run it.

use std::{collections::BTreeSet, sync::Arc};

use kinora::device::OpenDeviceError;
use kinora_cpu::CpuOps;
use kinora_cuda::{
    CudaError, CudaOptions, Planned, Program, ceilings,
    compiler::CompilerOptions,
    driver::{Device, DeviceBuffer},
    kernels::{Call, Choose, Heuristic, Implementation, KernelSet, implementations},
    tuning::Tuner,
    vendor::Libraries,
    workbench::{CallMemory, PreparedCall, Workbench},
};
use kinora_graph::{DType, Graph, Phase, Source, Tensor, TensorType, Value};
use kinora_runtime::{Backend, RunError, Tensors, Tuning};

use super::{
    device::{BenchDevice, LayerBench},
    driver::driver,
    layers::{failed, ours},
    turns::{Contestant, Layer, samples},
};
use crate::{
    BenchError,
    cases::{Numbers, in_windows, windows},
    results::{Gpu, KINORA},
};

/// Copies of a call's operands that runs cycle through, if there is memory for them.
const COPIES: usize = 3;

impl From<CudaError> for BenchError {
    fn from(error: CudaError) -> BenchError {
        RunError::from(error).into()
    }
}

/// Opens a GPU by its number.
pub(super) fn open(ordinal: usize) -> Result<Arc<dyn BenchDevice>, BenchError> {
    let device = Device::shared(ordinal).map_err(|error| OpenDeviceError::from(RunError::from(error)))?;
    Ok(Arc::new(GpuDevice(device)))
}

#[derive(Debug)]
struct GpuDevice(Device);

impl BenchDevice for GpuDevice {
    fn name(&self) -> String {
        self.0.info().name.clone()
    }

    fn device(&self) -> kinora::Device {
        kinora::Device::Cuda(self.0.info().ordinal)
    }

    fn gpu(&self) -> Option<Gpu> {
        let info = self.0.info();
        Some(Gpu {
            name: info.name.clone(),
            architecture: info.architecture().to_string(),
            driver: driver(&info.driver.to_string()),
            libraries: Libraries::of(self.0.context()).versions(),
        })
    }

    fn arithmetic(&self, dtype: DType) -> Result<f64, BenchError> {
        Ok(ceilings::arithmetic(&self.0, CompilerOptions::from_environment(), dtype)?)
    }

    fn layers(&self) -> Result<Box<dyn LayerBench>, BenchError> {
        Ok(Box::new(GpuBench::new(&self.0)?))
    }

    fn baseline(&self) -> Result<Option<Arc<dyn Backend>>, BenchError> {
        Ok(Some(self.device().open(KernelSet::Baseline, Tuning::Off)?))
    }
}

impl LayerBench for GpuBench {
    /// The cache is flushed instead.
    fn copies(&self, _: u64, _: usize) -> usize {
        1
    }

    fn contestants(
        &self,
        graph: &Graph,
        numbers: &[Numbers],
        _copies: usize,
        all: bool,
    ) -> Result<Vec<Contestant<'static>>, BenchError> {
        match self.ways_to_run(graph, numbers, all) {
            // Nothing can be measured after that.
            Err(error) if error.is_context_lost() => Err(error.into()),
            Err(error) => Ok(vec![failed(error.into())]),
            contestants => Ok(contestants?),
        }
    }
}

/// A GPU on which single layers run.
pub struct GpuBench {
    device: Device,
    bench: Arc<Workbench>,
    flush: Arc<DeviceBuffer>,
    choice: Arc<dyn Choose>,
}

impl GpuBench {
    /// Kernels are chosen by what the tuner measured on this GPU before, or else by shape.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn new(device: &Device) -> Result<GpuBench, CudaError> {
        let compiler = CompilerOptions::from_environment();
        let chip = device.info().chip();
        let bench = Arc::new(Workbench::new(device, chip.clone(), compiler)?);
        let flush = Arc::new(bench.flush_memory()?);
        let choice = choice(device).unwrap_or_else(|| {
            Arc::new(Heuristic { chip, kernels: KernelSet::Fused, libraries: Libraries::default() })
        });
        Ok(GpuBench { device: device.clone(), bench, flush, choice })
    }

    /// The chosen kernel of a layer and, with `all`, every other kernel that can run it. A layer that is more than one call,
    /// or whose weights are changed when they are loaded, runs as a program, as in a network.
    ///
    /// # Errors
    /// If the layer cannot be planned, or memory does not suffice.
    fn ways_to_run(
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
        let Some(operands) = of_single_call(&planned, numbers)? else {
            let layer = ProgramLayer::new(planned, &self.device, numbers, (&self.bench, &self.flush));
            return Ok(vec![ours(layer)]);
        };
        let mut found = Vec::new();
        planned.for_each_call(|call| {
            found = self.ways(call, &operands, all)?;
            Ok(())
        })?;
        Ok(found)
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
            let first = self.bench.prepare_in(call, &*ways[0], memory)?;
            for (number, pattern) in operands.iter().enumerate() {
                first.repeat(number, pattern)?;
            }
        }
        let ways = ways.into_iter().enumerate().map(|(number, way)| {
            let kernel = way.name();
            let by = if number == 0 { KINORA.to_owned() } else { format!("{KINORA} {kernel}") };
            let calls = memories.iter().map(|memory| self.bench.prepare_in(call, &*way, memory));
            let layer = calls.collect::<Result<Vec<_>, CudaError>>().map(|calls| -> Box<dyn Layer> {
                let ty = call.outputs[0].clone();
                Box::new(GpuLayer { calls, flush: self.flush.clone(), ty, next: 0 })
            });
            Contestant { by, kernel: Some(kernel), layer: layer.map_err(BenchError::from) }
        });
        Ok(ways.collect())
    }

    /// As many copies of a call's memory as fit into a quarter of what is free, since a peer takes as much; at least one.
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

/// The tuner's measurements of this GPU, if there are any.
pub fn choice(device: &Device) -> Option<Arc<dyn Choose>> {
    let tuner = Tuner::remembered(device, CompilerOptions::from_environment().cache)?;
    Some(Arc::new(tuner))
}

/// The numbers of the operands of a layer's only call; `None` if it has several, or one whose operands are computed from
/// numbers when weights are loaded.
fn of_single_call(planned: &Planned, numbers: &[Numbers]) -> Result<Option<Vec<Vec<u8>>>, CudaError> {
    let mut found = Vec::new();
    planned.for_each_call(|call| {
        found.push(operands(planned.graph(), call, numbers)?);
        Ok(())
    })?;
    Ok(if found.len() == 1 { found.swap_remove(0) } else { None })
}

/// The numbers of a call's operands, found by the names of its node's inputs; `None` if an operand has none.
fn operands(graph: &Graph, call: &Call<'_>, numbers: &[Numbers]) -> Result<Option<Vec<Vec<u8>>>, CudaError> {
    let node = graph.nodes().iter().find(|node| node.name == call.layer);
    let inputs = node.map(|node| node.inputs.as_slice()).unwrap_or_default();
    let mut operands = Vec::with_capacity(inputs.len());
    for &id in inputs {
        let value = graph.value(id);
        if let Source::Constant(tensor) = &value.source {
            operands.push(tensor.bytes().to_vec());
            continue;
        }
        let Some(numbers) = numbers.iter().find(|numbers| numbers.name == value.name) else {
            return Ok(None);
        };
        operands.push(numbers.pattern_bytes().map_err(|error| CudaError::Internal(error.to_string()))?);
    }
    Ok(Some(operands))
}

struct GpuLayer {
    /// The same call several times, each with operands of its own.
    calls: Vec<PreparedCall>,
    flush: Arc<DeviceBuffer>,
    /// The type of the result.
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
    fn result(&mut self) -> Result<Vec<f32>, BenchError> {
        Ok(self.read()?)
    }

    /// By events around each run. The flush before it keeps the GPU busy while the run is launched, so that the time does
    /// not include the launch.
    fn time(&mut self, seconds: f64, least: usize) -> Result<Vec<f64>, BenchError> {
        samples(seconds, least, || {
            self.next = (self.next + 1) % self.calls.len();
            let times = self.calls[self.next].time(1, &self.flush)?;
            let milliseconds = times.first().ok_or(BenchError::Nothing("time"))?;
            Ok(f64::from(*milliseconds) / 1e3)
        })
    }
}

/// A layer that runs as a program: several calls, or weights that are changed when they are loaded.
struct ProgramLayer {
    program: Program,
    inputs: Tensors,
    bench: Arc<Workbench>,
    flush: Arc<DeviceBuffer>,
}

impl ProgramLayer {
    fn new(
        planned: Planned,
        device: &Device,
        numbers: &[Numbers],
        (bench, flush): (&Arc<Workbench>, &Arc<DeviceBuffer>),
    ) -> Result<ProgramLayer, BenchError> {
        let (mut parameters, mut clip, mut inputs) = (Tensors::new(), Tensors::new(), Tensors::new());
        // What is known before the first step.
        let graph = planned.graph();
        let is_of_clip = |value: &&Value| matches!(value.source, Source::Input(Phase::Clip));
        let values = graph.value_ids().map(|(_, value)| value);
        let of_clip: BTreeSet<String> = values.filter(is_of_clip).map(|value| value.name.clone()).collect();
        for numbers in numbers {
            let tensors = match numbers.is_weight {
                true => &mut parameters,
                false if of_clip.contains(&numbers.name) => &mut clip,
                false => &mut inputs,
            };
            tensors.insert(numbers.name.clone(), numbers.tensor()?);
        }
        let mut program = planned.load(device, &parameters)?;
        program.run_clip(&clip)?;
        Ok(ProgramLayer { program, inputs, bench: bench.clone(), flush: flush.clone() })
    }
}

impl Layer for ProgramLayer {
    fn result(&mut self) -> Result<Vec<f32>, BenchError> {
        let results = self.program.run_step(&self.inputs)?;
        let result = results.get("y").map(Tensor::to_f32).ok_or(BenchError::Nothing("result"))?;
        Ok(in_windows(&result))
    }

    /// By events around each replay, whose inputs are copied before them, so that the time does not include the launch.
    fn time(&mut self, seconds: f64, least: usize) -> Result<Vec<f64>, BenchError> {
        samples(seconds, least, || {
            self.bench.flush(&self.flush)?;
            let times = self.program.time_replays(1)?;
            let milliseconds = times.first().ok_or(BenchError::Nothing("time"))?;
            Ok(f64::from(*milliseconds) / 1e3)
        })
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
            let mut as_programs = Vec::new();
            for case in kernels().unwrap() {
                let graph = case.work.graph(&case.name, DType::F16).unwrap();
                let numbers = Numbers::of(&graph).unwrap();
                let planned = Planned::new(&graph, &options).unwrap();
                let Some(operands) = of_single_call(&planned, &numbers).unwrap() else {
                    as_programs.push(case.name);
                    continue;
                };
                planned
                    .for_each_call(|call| {
                        assert_eq!(operands.len(), call.inputs.len(), "{}", case.name);
                        for (operand, ty) in operands.iter().zip(call.inputs) {
                            assert!(operand.len() <= ty.bytes() && ty.bytes() > 0, "{}", case.name);
                        }
                        // The result that is compared is the first one.
                        let y = planned.graph().outputs().iter().find(|output| output.name == "y").unwrap();
                        let node =
                            planned.graph().nodes().iter().find(|node| node.name == call.layer).unwrap();
                        assert_eq!(node.outputs[0], y.value, "{}", case.name);
                        Ok(())
                    })
                    .unwrap();
            }
            // Weights that batch norm is folded into, norms in front of products, and gradients of an attention that runs before.
            let is_expected = |name: &String| {
                ["batch_norm", "normed", "attention_backward"].iter().any(|part| name.contains(part))
            };
            assert!(as_programs.iter().all(is_expected), "{as_programs:?}");
            assert_eq!(as_programs.len(), 6 + 16);
        }
    }
}
