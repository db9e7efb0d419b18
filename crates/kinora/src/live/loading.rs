//! From a graph to a network that is ready to run.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use kinora_graph::{Graph, Parameters};
use kinora_profile::Profiler;
use kinora_runtime::{Backend, LoadContext, Network, SharedWeights, TuningProgress, TuningStage};

use super::memory::{Held, Ledger, Need};
use crate::{
    image_to_video::{GenerateError, Observe, Progress, Stage, holding::Holding},
    quantisation::{Denoiser, check_products},
};

/// What networks are loaded with.
#[derive(Clone, Copy)]
pub(super) struct Loading<'a> {
    pub backend: &'a dyn Backend,
    /// Whether a denoising network has to do products in 8 bits.
    pub quantises: bool,
    pub profiler: &'a Profiler,
    /// What all networks of the model may take together.
    pub ledger: &'a Arc<Ledger>,
}

/// A network that is ready to run, and what it takes.
#[derive(Debug)]
pub(super) struct Loaded {
    pub network: Box<dyn Network>,
    /// The bytes that are held beside it.
    pub beside: usize,
    _held: Held,
}

impl Loaded {
    /// The memory that it takes, in bytes. Weights count where they were read first.
    pub fn bytes(&self) -> usize {
        let memory = self.network.memory();
        memory.weights + memory.activations + self.beside
    }
}

impl Loading<'_> {
    /// Plans, measures if that was asked for, and loads a network. `name` is its name in errors and profiles, `beside` what is
    /// held beside it.
    pub fn load(
        &self,
        (name, beside): (&'static str, usize),
        graph: &Graph,
        parameters: &dyn Parameters,
        shared: Option<&SharedWeights>,
        observe: &mut Observe<'_>,
    ) -> Result<Loaded, GenerateError> {
        let failed = |source| GenerateError::run(name, source);
        let shares = shared.is_some();
        let plan = || {
            let planned = self.backend.plan(graph, None).map_err(failed)?;
            if self.quantises && Denoiser::of(graph).is_some() {
                check_products(planned.graph())?;
            }
            let plan = planned.plan();
            let own = plan.arena_bytes().saturating_add(beside);
            let held = self.ledger.admit(name, Need { weights: plan.weight_bytes(), own, shares })?;
            Ok::<_, GenerateError>((planned, held))
        };
        let (mut planned, mut held) = plan()?;
        if self.backend.tunes() {
            let observer = &mut |tuning: &TuningProgress| {
                let stage = match tuning.stage {
                    TuningStage::Compile => Stage::Compile,
                    TuningStage::Measure => Stage::Tune,
                };
                observe(&Progress { stage, done: tuning.done, total: tuning.total, preview: None })
            };
            if planned.tune(observer).map_err(failed)? {
                // What was set aside is set aside again.
                drop(held);
                (planned, held) = plan()?;
            }
        }
        let (observe, stopped) = (Mutex::new(observe), AtomicBool::new(false));
        let compiled = |done, total| {
            let mut observe = observe.lock().unwrap_or_else(PoisonError::into_inner);
            let observed = observe(&Progress { stage: Stage::Compile, done, total, preview: None });
            stopped.fetch_or(observed.is_break(), Ordering::Relaxed);
        };
        let context = LoadContext { profiler: self.profiler, compiled: &compiled, shared, kept: &[] };
        let mut network = planned.load(parameters, &context).map_err(failed)?;
        if stopped.load(Ordering::Relaxed) {
            return Err(GenerateError::Cancelled);
        }
        if self.profiler.is_on() {
            network.profile(self.profiler, name).map_err(failed)?;
            Holding::new(name).begin(self.profiler, network.memory());
        }
        let memory = network.memory();
        let need = Need { weights: memory.weights, own: memory.activations + beside, shares };
        held.loaded(name, need)?;
        Ok(Loaded { network, beside, _held: held })
    }
}
