//! Calls on a GPU.

use kinora_cuda::{
    Chip, CudaError,
    compiler::CompilerOptions,
    driver::Device,
    kernels::{Call, Implementation},
    workbench::Workbench,
};

use crate::agreement::Side;

/// The first GPU.
pub fn find() -> Result<Device, CudaError> {
    Device::open(0)
}

/// A GPU that runs a chip's kernels.
pub struct OnGpu(Workbench);

impl OnGpu {
    pub fn new(device: &Device, chip: Chip, options: CompilerOptions) -> Result<OnGpu, CudaError> {
        Workbench::new(device, chip, options).map(OnGpu)
    }
}

impl Side for OnGpu {
    fn run(
        &self,
        call: &Call<'_>,
        way: &dyn Implementation,
        operands: &[&[u8]],
    ) -> Result<Vec<Vec<u8>>, String> {
        // Other bytes than the simulator's zeros: what a kernel does not write differs.
        self.0.run(call, way, Some(0xFF), operands).map_err(|error| error.to_string())
    }
}
