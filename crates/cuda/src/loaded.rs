//! Compiled kernels on a GPU.

use std::collections::HashMap;

use crate::{
    CudaError,
    compiler::Code,
    driver::{Context, Function, Module, PreparedLaunch},
    kernels::{Kernel, Launch},
};

/// Kernels whose code is loaded into a context.
#[derive(Clone, Debug)]
pub struct LoadedKernels {
    functions: HashMap<Kernel, Function>,
}

impl LoadedKernels {
    /// Loads what the compiler made.
    ///
    /// # Errors
    /// Where the driver refuses the code of one.
    pub fn new(context: &Context, codes: HashMap<Kernel, Code>) -> Result<LoadedKernels, CudaError> {
        let load = |(kernel, code): (Kernel, Code)| {
            let module = Module::load(context, &kernel.label(), &code.bytes)?;
            let function = module.function(kernel.entry)?;
            Ok((kernel, function))
        };
        Ok(LoadedKernels { functions: codes.into_iter().map(load).collect::<Result<_, CudaError>>()? })
    }

    /// A kernel.
    ///
    /// # Errors
    /// Where it is not among those that were loaded.
    pub fn function(&self, kernel: &Kernel) -> Result<&Function, CudaError> {
        self.functions
            .get(kernel)
            .ok_or_else(|| CudaError::Internal(format!("{} was not compiled", kernel.label())))
    }

    /// Makes a launch ready.
    ///
    /// # Errors
    /// Where its kernel was not loaded, or the chip cannot run it.
    pub fn prepare(&self, launch: &Launch) -> Result<PreparedLaunch, CudaError> {
        PreparedLaunch::new(self.function(&launch.kernel)?.clone(), launch)
    }
}
