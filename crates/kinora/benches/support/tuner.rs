//! What chooses among a GPU's kernels, by the option `--tuning`.

use std::{ops::ControlFlow, sync::Arc};

use kinora::runtime::Tuning;
use kinora_cuda::{
    CudaError, CudaOptions, Planned, compiler::CompilerOptions, driver::Device, tuning::Tuner,
};
use kinora_graph::Graph;

/// The tuner that was asked for. It keeps what it saw beside the compiled kernels.
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

/// Measures what has to be measured for a network, and gives the options that go by it.
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
