//! A layer on a GPU, by the kernel that a network would run, or by every kernel that can run it.

use std::sync::Arc;

use kinora::device::OpenDeviceError;
use kinora_cpu::CpuOps;
use kinora_cuda::{
    CudaError, CudaOptions, Planned, ceilings,
    compiler::CompilerOptions,
    driver::{Device, DeviceBuffer},
    kernels::{Call, Choose, Heuristic, Implementation, KernelSet, implementations},
    tuning::Tuner,
    vendor::Libraries,
    workbench::{CallMemory, PreparedCall, Workbench},
};
use kinora_graph::{DType, Graph, Tensor, TensorType};
use kinora_runtime::RunError;

use super::{
    device::{BenchDevice, LayerBench},
    driver::driver,
    layers::failed,
    turns::{Contestant, Layer, samples},
};
use crate::{
    BenchError,
    cases::{Numbers, windows},
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
    bench: Workbench,
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
        let bench = Workbench::new(device, chip.clone(), compiler)?;
        let flush = Arc::new(bench.flush_memory()?);
        let choice = choice(device).unwrap_or_else(|| {
            Arc::new(Heuristic { chip, kernels: KernelSet::Fused, libraries: Libraries::default() })
        });
        Ok(GpuBench { device: device.clone(), bench, flush, choice })
    }

    /// The chosen kernel of a layer and, with `all`, every other kernel that can run it.
    ///
    /// # Errors
    /// If the layer cannot be planned, is more than one call, or memory does not suffice.
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

/// The numbers of a call's operands, found by the names of its node's inputs.
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
