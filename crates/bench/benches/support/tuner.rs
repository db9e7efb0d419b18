//! The tuner of the option `--tuning`, which chooses among a GPU's kernels.

use std::{ops::ControlFlow, sync::Arc};

use kinora::runtime::Tuning;
use kinora_cuda::{
    CudaError, CudaOptions, Planned, compiler::CompilerOptions, driver::Device, tuning::Tuner,
};
use kinora_graph::Graph;

/// The tuner that was asked for. It saves its measurements beside the compiled kernels.
pub fn open(tuning: Tuning, device: &Device) -> Result<Option<Arc<Tuner>>, CudaError> {
    let compiler = CompilerOptions::from_environment();
    let folder = compiler.cache.clone();
    Ok(match tuning {
        Tuning::Off => None,
        Tuning::Auto => Tuner::remembered(device, folder),
        Tuning::Measure(candidates) => Some(Tuner::new(device, candidates, compiler, folder)?),
    }
    .map(Arc::new))
}

/// Measures the kernels of a network that have not been measured yet; gives the options that use the measurements.
pub fn tuned(
    options: CudaOptions,
    tuner: Option<&Arc<Tuner>>,
    graph: &Graph,
) -> Result<CudaOptions, CudaError> {
    let Some(tuner) = tuner else { return Ok(options) };
    let options = CudaOptions { choice: Some(tuner.clone()), ..options };
    tuner.tune(&Planned::new(graph, &options)?, &mut |_| ControlFlow::Continue(()))?;
    Ok(options)
}
