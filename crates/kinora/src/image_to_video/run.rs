//! One clip on its way through the networks.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use kinora_graph::Tensor;
use kinora_models::weights::Weights;
use kinora_runtime::{
    CachedSteps, LoadContext, Network, SharedWeights, StepLoop, StepObserver, Tensors, tensors,
};

use super::{
    Estimate, GenerateError, Preview, Progress, Stage,
    holding::Holding,
    noise::Noise,
    plans::{Part, Plans, Request},
    preview::LatentColours,
    progress::{Observe, tell},
    report::{LoadReport, Stopwatch},
};
use crate::memory;

/// One clip on its way through the networks: what its stages share. Each stage is in a file of its own.
pub(super) struct Run<'a, 'o> {
    pub request: Request<'a>,
    pub observe: &'a mut Observe<'o>,
    pub noise: Noise,
    pub stopwatch: Stopwatch,
    /// How many programs this clip has loaded so far, and how many it must load in all.
    pub loaded: usize,
    pub to_load: usize,
    /// Whether programs stay loaded for the next clip.
    pub keep_loaded: bool,
    /// What the latents mean in colours, once the photo has been encoded.
    pub colours: Option<LatentColours>,
}

/// A network with its weights.
pub(super) struct Loaded<'p> {
    name: &'static str,
    network: &'p mut (dyn Network + 'static),
}

impl<'a, 'o> Run<'a, 'o> {
    /// A clip that begins.
    pub fn new(
        request: Request<'a>,
        (plans, plan): (&Plans, &Estimate),
        observe: &'a mut Observe<'o>,
        stopwatch: Stopwatch,
    ) -> Run<'a, 'o> {
        Run {
            request,
            observe,
            noise: Noise::new(request.settings.seed),
            stopwatch,
            loaded: 0,
            to_load: plans.unloaded(),
            keep_loaded: plan.kept_loaded,
            colours: None,
        }
    }
}

impl Run<'_, '_> {
    /// Loads a network's weights, if they are not loaded yet.
    pub fn load<'p>(&mut self, part: &'p mut Part, weights: &Weights) -> Result<Loaded<'p>, GenerateError> {
        self.load_with(part, weights, None, &[])
    }

    /// The same with weights that networks have in common, and what stays on the device from step to step.
    pub fn load_with<'p>(
        &mut self,
        part: &'p mut Part,
        weights: &Weights,
        shared: Option<&SharedWeights>,
        kept: &[&str],
    ) -> Result<Loaded<'p>, GenerateError> {
        let name = part.name;
        if part.is_loaded() {
            let context =
                LoadContext { profiler: self.stopwatch.profiler(), compiled: &|_, _| {}, shared, kept };
            let network = part.load(weights, &context)?;
            return Ok(Loaded { name, network });
        }
        self.tell(Stage::Load, self.loaded, self.to_load, None)?;
        let running = self.stopwatch.begin(Stage::Load);
        let (observe, stopped) = (Mutex::new(&mut *self.observe), AtomicBool::new(false));
        let compiled = |done, total| {
            let mut observe = observe.lock().unwrap_or_else(PoisonError::into_inner);
            let observed = observe(&Progress { stage: Stage::Compile, done, total, preview: None });
            stopped.fetch_or(observed.is_break(), Ordering::Relaxed);
        };
        let context = LoadContext { profiler: self.stopwatch.profiler(), compiled: &compiled, shared, kept };
        let network = part.load(weights, &context)?;
        if stopped.into_inner() {
            return Err(GenerateError::Cancelled);
        }
        let profiler = self.stopwatch.profiler();
        if profiler.is_on() {
            network.profile(profiler, name).map_err(|source| GenerateError::run(name, source))?;
            Holding::new(name).begin(profiler, network.memory());
        }
        let (seconds, gpu) = (running.seconds(), network.device_load());
        self.stopwatch.loads.push(LoadReport { part: name, seconds, gpu });
        self.stopwatch.end(running);
        self.loaded += 1;
        self.tell(Stage::Load, self.loaded, self.to_load, None)?;
        Ok(Loaded { name, network })
    }

    /// Frees a network that has done its work, unless it is kept for the next clip.
    pub fn release(&self, part: &mut Part) {
        if !self.keep_loaded {
            part.unload();
            memory::hand_back();
            Holding::new(part.name).end(self.stopwatch.profiler());
        }
    }

    /// Finds out whether there is memory for what a stage will allocate. The allocation itself would end the program.
    pub fn reserve(&self, part: &'static str, bytes: usize) -> Result<(), GenerateError> {
        tensors::reserve(bytes).map_err(|source| GenerateError::run(part, source))
    }

    /// Refuses a result that holds an infinity or a NaN: everything after it would be black.
    pub fn check_finite(&self, stage: Stage, result: &Tensor) -> Result<(), GenerateError> {
        match result.first_non_finite() {
            Some(_) => Err(GenerateError::NotFinite { stage, precision: self.request.precision }),
            None => Ok(()),
        }
    }

    /// Reports to the caller how far a stage is.
    pub fn tell(
        &mut self,
        stage: Stage,
        done: usize,
        total: usize,
        preview: Option<&Tensor>,
    ) -> Result<(), GenerateError> {
        let preview = preview.zip(self.colours.as_ref());
        let preview = preview.map(|(latents, colours)| Preview::new(latents, colours));
        tell(self.observe, Progress { stage, done, total, preview })
    }
}

impl Loaded<'_> {
    /// Sets the clip's inputs.
    pub fn run_clip(&mut self, inputs: &Tensors) -> Result<(), GenerateError> {
        let part = self.name;
        self.network.run_clip(inputs).map_err(|source| GenerateError::run(part, source))
    }

    /// Runs it once on the inputs of a step.
    pub fn run(&mut self, inputs: &Tensors) -> Result<Results, GenerateError> {
        let part = self.name;
        let tensors = self.network.run_step(inputs).map_err(|source| GenerateError::run(part, source))?;
        Ok(Results { part, tensors })
    }

    /// Runs it many times, each on the results of the run before.
    pub fn run_steps(
        &mut self,
        steps: &StepLoop<'_>,
        inputs: &Tensors,
        observer: &mut StepObserver<'_>,
    ) -> Result<Results, GenerateError> {
        let part = self.name;
        let tensors = self
            .network
            .run_steps(steps, inputs, Some(observer))
            .map_err(|source| GenerateError::run(part, source))?;
        Ok(Results { part, tensors })
    }

    /// The same with another network for the shallow steps.
    pub fn run_cached_steps(
        &mut self,
        shallow: &mut Loaded<'_>,
        steps: &CachedSteps<'_>,
        inputs: &Tensors,
        observer: &mut StepObserver<'_>,
    ) -> Result<Results, GenerateError> {
        let part = self.name;
        let tensors = self
            .network
            .run_cached_steps(&mut *shallow.network, steps, inputs, Some(observer))
            .map_err(|source| GenerateError::run(part, source))?;
        Ok(Results { part, tensors })
    }
}

/// The results of a network.
pub(super) struct Results {
    part: &'static str,
    tensors: Tensors,
}

impl Results {
    /// One of the results.
    pub fn take(&mut self, name: &'static str) -> Result<Tensor, GenerateError> {
        self.tensors.remove(name).ok_or(GenerateError::NoResult { part: self.part, name })
    }
}

/// Tensors by their names.
pub(super) fn named<const N: usize>(tensors: [(&str, Tensor); N]) -> Tensors {
    tensors.into_iter().map(|(name, tensor)| (name.to_owned(), tensor)).collect()
}
