//! Compiling many kernels at once.

use std::{
    collections::HashMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use super::{Code, Compiler, Origin};
use crate::{CudaError, launch::Kernel};

/// The compiler descends deep into large kernels.
const STACK_BYTES: usize = 16 << 20;

/// How far a compilation has come.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Kernels that are done.
    pub done: usize,
    /// Kernels in all.
    pub total: usize,
    /// The one that was done last.
    pub kernel: String,
    /// Where its code came from.
    pub origin: Origin,
}

/// What a compilation did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Statistics {
    /// Kernels compiled.
    pub compiled: usize,
    /// Kernels found in the cache.
    pub cached: usize,
    /// Kernels found in the bundle.
    pub bundled: usize,
    /// Kernels that another program had loaded.
    pub loaded: usize,
    /// How long it took.
    pub seconds: f64,
    /// Why the cache does not work, if it does not: worth one line to the user.
    pub cache_trouble: Option<String>,
}

/// Compiled kernels.
#[derive(Clone, Debug, Default)]
pub struct Compilation {
    /// The code of each kernel.
    pub codes: HashMap<Kernel, Code>,
    /// What it took.
    pub statistics: Statistics,
}

pub(super) fn compile_all(
    compiler: &Compiler,
    kernels: &[Kernel],
    progress: &(dyn Fn(&Progress) + Sync),
) -> Result<Compilation, CudaError> {
    let mut unique: Vec<&Kernel> = kernels.iter().collect();
    unique.sort_unstable();
    unique.dedup();
    // The hot ones are the large ones: what takes longest begins first.
    unique.sort_by_key(|kernel| !kernel.hot);

    let next = AtomicUsize::new(0);
    let done = Mutex::new(Ok(Compilation::default()));
    let work = || {
        while let Some(&kernel) = unique.get(next.fetch_add(1, Ordering::Relaxed)) {
            let code = compiler.compile(kernel);
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            // After an error the others are not worth their time.
            let Ok(compilation) = done.as_mut() else { return };
            match code {
                Ok(code) => {
                    let counted = &mut compilation.statistics;
                    match code.origin {
                        Origin::Compiled => counted.compiled += 1,
                        Origin::Cache => counted.cached += 1,
                        Origin::Bundle => counted.bundled += 1,
                    }
                    let origin = code.origin;
                    compilation.codes.insert(kernel.clone(), code);
                    let (done, total) = (compilation.codes.len(), unique.len());
                    progress(&Progress { done, total, kernel: kernel.label(), origin });
                }
                Err(error) => *done = Err(error),
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(unique.len());
    thread::scope(|scope| {
        for _ in 0..threads {
            // If no more threads can be started, those that run do the work.
            let _ = thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work);
        }
    });
    // If there was not even one, this one does it.
    work();
    done.into_inner().unwrap_or_else(PoisonError::into_inner)
}
