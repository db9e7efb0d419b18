//! How a program is made and run.

use std::sync::Arc;

use kinora_runtime::HostOps;

use crate::{
    Chip,
    driver::Device,
    kernels::{Choose, Heuristic, KernelSet},
    vendor::Libraries,
};

/// How a [`Program`](crate::Program) is planned and run.
#[derive(Clone, Debug)]
pub struct CudaOptions {
    /// The chip that kernels are chosen and compiled for. A chip older than the GPU, with
    /// [`CodeForm::Ptx`](crate::CodeForm::Ptx), runs the older chip's kernels on it.
    pub chip: Chip,
    /// Folds constants and runs the load phase: `kinora_cpu::CpuOps`.
    pub host: Arc<dyn HostOps>,
    /// Which kernels run. With the baseline's, the graph runs as it was built: no pass changes it.
    pub kernels: KernelSet,
    /// Whether the passes run.
    pub optimise: bool,
    /// Whether products find the statistics of large group norms after them. Off, to see what that is worth.
    pub measure_for_norms: bool,
    /// Chooses among the kernels. By default, each kernel family chooses.
    pub choice: Option<Arc<dyn Choose>>,
    /// The memory that weights and activations may take together, in bytes.
    pub budget: Option<usize>,
    /// Fills the arena with this byte before the clip phase, so that reading something that was never written shows up.
    pub poison: Option<u8>,
    /// Whether a step is recorded as a CUDA graph and launched as one.
    pub cuda_graphs: bool,
    /// Whether a kernel's blocks may start before the launch in front of it has ended, where kernels can wait for it by
    /// themselves: on Hopper.
    pub overlap_launches: bool,
    /// Waits after every launch, so that an error names its layer. Slow, for debugging; disables CUDA graphs.
    pub synchronise_every_launch: bool,
}

impl CudaOptions {
    /// Everything on, for a chip.
    pub fn new(chip: Chip, host: Arc<dyn HostOps>) -> CudaOptions {
        CudaOptions {
            chip,
            host,
            kernels: KernelSet::Fused,
            optimise: true,
            measure_for_norms: true,
            choice: None,
            budget: None,
            poison: None,
            cuda_graphs: true,
            overlap_launches: true,
            synchronise_every_launch: false,
        }
    }

    /// Everything on, for a GPU.
    pub fn for_device(device: &Device, host: Arc<dyn HostOps>) -> CudaOptions {
        CudaOptions::new(device.info().chip(), host)
    }

    /// What chooses among the kernels.
    pub(crate) fn chooser(&self) -> Arc<dyn Choose> {
        let heuristic = || {
            let (chip, kernels) = (self.chip.clone(), self.kernels);
            Arc::new(Heuristic { chip, kernels, libraries: Libraries::default() })
        };
        self.choice.clone().unwrap_or_else(|| heuristic())
    }
}
