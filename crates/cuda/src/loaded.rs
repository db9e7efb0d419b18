//! Compiled kernels on a GPU.

use std::collections::HashMap;

use crate::{
    Architecture, CudaError,
    compiler::Code,
    driver::{Context, Function, Module, PreparedLaunch},
    launch::{Kernel, Launch},
};

/// Kernels whose code is loaded into a context.
#[derive(Clone, Debug, Default)]
pub struct LoadedKernels {
    functions: HashMap<Kernel, Function>,
    overlapping: bool,
}

impl LoadedKernels {
    /// Loads what the compiler made.
    ///
    /// # Errors
    /// As [`LoadedKernels::add`].
    pub fn new(context: &Context, codes: HashMap<Kernel, Code>) -> Result<LoadedKernels, CudaError> {
        let mut loaded = LoadedKernels::default();
        loaded.add(context, codes)?;
        Ok(loaded)
    }

    /// Loads more of what the compiler made.
    ///
    /// # Errors
    /// If the driver refuses the code of one.
    pub fn add(&mut self, context: &Context, codes: HashMap<Kernel, Code>) -> Result<(), CudaError> {
        for (kernel, code) in codes {
            let module = Module::load(context, &kernel.label(), &code.bytes)?;
            let function = module.function(kernel.entry)?;
            self.functions.insert(kernel, function);
        }
        Ok(())
    }

    /// Whether launches that are prepared from now on may start before the launch in front of them has ended, if their kernels
    /// can wait for it by themselves. They cannot before Hopper.
    #[must_use]
    pub fn overlapping(self, overlapping: bool) -> LoadedKernels {
        LoadedKernels { overlapping, ..self }
    }

    /// Whether a kernel is among them.
    pub fn contains(&self, kernel: &Kernel) -> bool {
        self.functions.contains_key(kernel)
    }

    /// A kernel.
    ///
    /// # Errors
    /// If it is not among those that were loaded.
    pub fn function(&self, kernel: &Kernel) -> Result<&Function, CudaError> {
        self.functions
            .get(kernel)
            .ok_or_else(|| CudaError::Internal(format!("{} was not compiled", kernel.label())))
    }

    /// Prepares a launch.
    ///
    /// # Errors
    /// If its kernel was not loaded, or the chip cannot run it.
    pub fn prepare(&self, launch: &Launch) -> Result<PreparedLaunch, CudaError> {
        let function = self.function(&launch.kernel)?.clone();
        let waits = launch.kernel.waits() && function.architecture()? >= Architecture::HOPPER;
        let prepared = PreparedLaunch::new(function, launch)?;
        // SAFETY: the kernel waits, by its source and the architecture that this was compiled for.
        Ok(if self.overlapping && waits { unsafe { prepared.overlapping() } } else { prepared })
    }
}
