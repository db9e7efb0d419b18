//! From a graph to a network that is ready to run.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use kinora_graph::{Graph, Parameters};
use kinora_profile::Profiler;
use kinora_runtime::{Backend, LoadContext, Network, SharedWeights, TuningProgress, TuningStage};

use crate::image_to_video::{GenerateError, Observe, Progress, Stage, holding::Holding};

/// What networks are loaded with.
#[derive(Clone, Copy)]
pub(super) struct Loading<'a> {
    pub backend: &'a dyn Backend,
    pub profiler: &'a Profiler,
    /// The memory that it may take.
    pub budget: Option<usize>,
}

impl Loading<'_> {
    /// Plans, measures if that was asked for, and loads a network. `name` is its name in errors and profiles.
    pub fn load(
        &self,
        name: &'static str,
        graph: &Graph,
        parameters: &dyn Parameters,
        shared: Option<&SharedWeights>,
        observe: &mut Observe<'_>,
    ) -> Result<Box<dyn Network>, GenerateError> {
        let failed = |source| GenerateError::run(name, source);
        let plan = || self.backend.plan(graph, self.budget).map_err(failed);
        let mut planned = plan()?;
        if self.backend.tunes() {
            let observer = &mut |tuning: &TuningProgress| {
                let stage = match tuning.stage {
                    TuningStage::Compile => Stage::Compile,
                    TuningStage::Measure => Stage::Tune,
                };
                observe(&Progress { stage, done: tuning.done, total: tuning.total, preview: None })
            };
            if planned.tune(observer).map_err(failed)? {
                planned = plan()?;
            }
        }
        let (observe, stopped) = (Mutex::new(observe), AtomicBool::new(false));
        let compiled = |done, total| {
            let mut observe = observe.lock().unwrap_or_else(PoisonError::into_inner);
            let observed = observe(&Progress { stage: Stage::Compile, done, total, preview: None });
            stopped.fetch_or(observed.is_break(), Ordering::Relaxed);
        };
        let context = LoadContext { profiler: self.profiler, compiled: &compiled, shared };
        let mut network = planned.load(parameters, &context).map_err(failed)?;
        if stopped.load(Ordering::Relaxed) {
            return Err(GenerateError::Cancelled);
        }
        if self.profiler.is_on() {
            network.profile(self.profiler, name).map_err(failed)?;
            Holding::new(name).begin(self.profiler, network.memory());
        }
        Ok(network)
    }
}
