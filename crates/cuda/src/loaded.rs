//! Compiled kernels on a GPU.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

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

/// The kernels that the programs of a context have in common. A program that is loaded after another finds most of its own here:
/// the size of a picture changes few of them, and the driver takes longer to load code than to look it up.
#[derive(Clone, Debug, Default)]
pub struct KernelPool(Arc<Mutex<HashMap<Kernel, Function>>>);

impl KernelPool {
    /// Those of some kernels that are loaded into a context, and the others.
    pub fn find(&self, context: &Context, kernels: Vec<Kernel>) -> (LoadedKernels, Vec<Kernel>) {
        let pool = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut functions, mut missing) = (HashMap::new(), Vec::new());
        for kernel in kernels {
            match pool.get(&kernel).filter(|function| function.context() == context) {
                Some(function) => drop(functions.insert(kernel, function.clone())),
                None => missing.push(kernel),
            }
        }
        (LoadedKernels { functions, overlapping: false }, missing)
    }

    /// Keeps the kernels of a program.
    pub fn keep(&self, loaded: &LoadedKernels) {
        let mut pool = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (kernel, function) in &loaded.functions {
            pool.entry(kernel.clone()).or_insert_with(|| function.clone());
        }
    }
}

impl LoadedKernels {
    /// Loads what the compiler made.
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

    /// How many kernels are loaded.
    pub fn len(&self) -> usize {
        self.functions.len()
    }

    /// Whether no kernel is loaded.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
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
