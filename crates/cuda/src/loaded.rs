//! Compiled kernels on a GPU.

use std::{
    collections::HashMap,
    hash::Hash,
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
    functions: HashMap<Kernel, Loaded>,
    overlapping: bool,
}

/// A kernel that is loaded.
#[derive(Clone, Debug)]
struct Loaded {
    function: Function,
    /// Whether it waits for the launch before it by itself. Found out once, because a program launches it many times.
    waits: bool,
}

impl Loaded {
    fn new(context: &Context, kernel: &Kernel, code: &Code) -> Result<Loaded, CudaError> {
        let module = Module::load(context, &kernel.label(), &code.bytes)?;
        let function = module.function(kernel.entry)?;
        let waits = kernel.waits() && function.architecture()? >= Architecture::HOPPER;
        Ok(Loaded { function, waits })
    }
}

/// How many kernels that no program uses stay loaded, so that the next clip or stream finds those of the one before. On Hopper, a clip
/// by Stable Video Diffusion has 211 at most, and live video by SD-Turbo 188; the code of each is less than 100 kB on average.
const IDLE: usize = 512;

/// The kernels that the programs of a context have in common. A program that is loaded after another finds most of its own here:
/// the size of a picture changes few of them, and the driver takes longer to load code than to look it up.
///
/// Programs hold what they use. Of what is used no longer, the pool keeps the last few hundred that were, and lets go of the others
/// when the next program is loaded: sizes that a stream went through do not fill the GPU.
#[derive(Clone, Debug, Default)]
pub struct KernelPool(Arc<Mutex<Recent<Kernel, Loaded>>>);

impl KernelPool {
    /// Those of some kernels that are loaded into a context, and the others.
    pub fn find(&self, context: &Context, kernels: Vec<Kernel>) -> (LoadedKernels, Vec<Kernel>) {
        let mut pool = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut functions, mut missing) = (HashMap::new(), Vec::new());
        for kernel in kernels {
            match pool.get(&kernel).filter(|loaded| loaded.function.context() == context) {
                Some(loaded) => drop(functions.insert(kernel, loaded)),
                None => missing.push(kernel),
            }
        }
        (LoadedKernels { functions, overlapping: false }, missing)
    }

    /// Keeps the kernels of a program.
    pub fn keep(&self, loaded: &LoadedKernels) {
        let mut pool = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let replaced = loaded.functions.iter().filter_map(|(kernel, loaded)| pool.keep(kernel, loaded));
        let mut let_go: Vec<Loaded> = replaced.collect();
        let_go.extend(pool.trim(IDLE, |loaded| !loaded.function.is_shared()));
        // Unloading takes a while.
        drop(pool);
        drop(let_go);
    }

    /// How many kernels are in it.
    pub fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entries.len()
    }

    /// Whether no kernel is in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Values, each with the time of its last use.
#[derive(Debug)]
struct Recent<K, V> {
    entries: HashMap<K, (V, u64)>,
    /// Counts uses.
    clock: u64,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Recent { entries: HashMap::new(), clock: 0 }
    }
}

impl<K: Clone + Eq + Hash, V: Clone> Recent<K, V> {
    fn get(&mut self, key: &K) -> Option<V> {
        self.clock += 1;
        let (value, used) = self.entries.get_mut(key)?;
        *used = self.clock;
        Some(value.clone())
    }

    /// Keeps a value. Returns the one that was in its place.
    fn keep(&mut self, key: &K, value: &V) -> Option<V> {
        self.clock += 1;
        Some(self.entries.insert(key.clone(), (value.clone(), self.clock))?.0)
    }

    /// Takes out all idle values but the last `most` that were used.
    fn trim(&mut self, most: usize, is_idle: impl Fn(&V) -> bool) -> Vec<V> {
        let idle = self.entries.iter().filter(|(_, (value, _))| is_idle(value));
        let mut idle: Vec<(u64, K)> = idle.map(|(key, (_, used))| (*used, key.clone())).collect();
        idle.sort_unstable_by_key(|(used, _)| *used);
        let many = idle.len().saturating_sub(most);
        let old = idle.into_iter().take(many);
        old.filter_map(|(_, key)| Some(self.entries.remove(&key)?.0)).collect()
    }
}

impl LoadedKernels {
    /// Loads what the compiler made.
    ///
    /// # Errors
    /// If the driver refuses the code of one.
    pub fn add(&mut self, context: &Context, codes: HashMap<Kernel, Code>) -> Result<(), CudaError> {
        for (kernel, code) in codes {
            let loaded = Loaded::new(context, &kernel, &code)?;
            self.functions.insert(kernel, loaded);
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
        Ok(&self.loaded(kernel)?.function)
    }

    fn loaded(&self, kernel: &Kernel) -> Result<&Loaded, CudaError> {
        self.functions
            .get(kernel)
            .ok_or_else(|| CudaError::Internal(format!("{} was not compiled", kernel.label())))
    }

    /// Prepares a launch.
    ///
    /// # Errors
    /// If its kernel was not loaded, or the chip cannot run it.
    pub fn prepare(&self, launch: &Launch) -> Result<PreparedLaunch, CudaError> {
        let Loaded { function, waits } = self.loaded(&launch.kernel)?.clone();
        let prepared = PreparedLaunch::new(function, launch)?;
        // SAFETY: the kernel waits, by its source and the architecture that this was compiled for.
        Ok(if self.overlapping && waits { unsafe { prepared.overlapping() } } else { prepared })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_one_uses_is_let_go_but_for_the_last() {
        let mut pool: Recent<u32, Arc<u32>> = Recent::default();
        let used: Vec<Arc<u32>> = (0..10).map(Arc::new).collect();
        used.iter().for_each(|value| drop(pool.keep(value, value)));
        let is_idle = |value: &Arc<u32>| Arc::strong_count(value) == 1;
        assert!(pool.trim(3, is_idle).is_empty(), "all are used");
        // Of these, 1 was asked for last, and 7 is still used.
        drop(pool.get(&1));
        let kept = used[7].clone();
        drop(used);
        let mut gone: Vec<u32> = pool.trim(3, is_idle).iter().map(|value| **value).collect();
        gone.sort_unstable();
        assert_eq!(gone, [0, 2, 3, 4, 5, 6]);
        let mut left: Vec<u32> = pool.entries.keys().copied().collect();
        left.sort_unstable();
        assert_eq!(left, [1, 7, 8, 9]);
        drop(kept);
    }
}
