//! Which of a GPU's kernels run a node where there are several: the option `--choice`.

use std::{fmt, str::FromStr, sync::Arc};

use kinora_cuda::{
    CudaError,
    compiler::CompilerOptions,
    driver::Device,
    tuning::{Candidates, Tuner},
};

/// How kernels are chosen.
#[derive(Clone, Copy)]
pub enum Choice {
    /// As their families rank them.
    Heuristic,
    /// By measuring these.
    Measured(Candidates),
}

impl Choice {
    /// What measures, where anything is measured. It keeps what it saw beside the compiled kernels.
    pub fn tuner(self, device: &Device) -> Result<Option<Arc<Tuner>>, CudaError> {
        let Choice::Measured(candidates) = self else { return Ok(None) };
        let compiler = CompilerOptions::from_environment();
        let folder = compiler.cache.clone();
        Ok(Some(Arc::new(Tuner::new(device, candidates, compiler, folder)?)))
    }
}

impl FromStr for Choice {
    type Err = CudaError;

    fn from_str(text: &str) -> Result<Self, CudaError> {
        match text {
            "heuristic" => Ok(Choice::Heuristic),
            candidates => candidates.parse().map(Choice::Measured),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Heuristic => f.pad("heuristic"),
            Choice::Measured(candidates) => candidates.fmt(f),
        }
    }
}
