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
        let said = |error: CudaError| error.to_string();
        let prepared = self.0.prepare(call, way).map_err(said)?;
        // Other bytes than the simulator's zeros: what a kernel does not write differs.
        prepared.write(Some(0xFF), operands).map_err(said)?;
        prepared.run().map_err(said)?;
        match prepared.fault().map_err(said)? {
            Some(index) => Err(format!("the bad index {index}")),
            None => (0..call.outputs.len()).map(|output| prepared.read(output).map_err(said)).collect(),
        }
    }
}
