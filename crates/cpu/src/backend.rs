//! The CPU as a backend.

use std::{sync::Arc, time::Instant};

use kinora_graph::{DType, Graph, Node, Op, Parameters, Tensor, passes::Evaluate, plan::Plan};
use kinora_profile::{Ceilings, Profiler};
use kinora_runtime::{
    Backend, Carried, HostFrames, HostOps, LoadContext, Network, NetworkMemory, PlannedNetwork, RunError,
    StepLoop, StepObserver, Stop, Tensors,
};

use crate::{
    Options, Planned, Program, ceilings, fast::run_on_tensors, reference::ReferenceEvaluator, simd::Isa,
};

/// The CPU, all cores.
#[derive(Clone, Debug, Default)]
pub struct CpuBackend {
    /// The options of its programs; the budget comes from the call that plans.
    pub options: Options,
}

impl Backend for CpuBackend {
    fn describe(&self) -> String {
        format!("CPU, {} threads, {}", rayon::current_num_threads(), self.options.isa.name())
    }

    /// Slowly: it is there to show what a GPU computes.
    fn multiplies_e4m3(&self) -> bool {
        true
    }

    fn ceilings(&self, _dtype: DType) -> Result<Option<Ceilings>, RunError> {
        Ok(ceilings::measure(self.options.isa))
    }

    fn plan(&self, graph: &Graph, budget: Option<usize>) -> Result<Box<dyn PlannedNetwork>, RunError> {
        Ok(Box::new(Planned::new(graph, Options { budget, ..self.options.clone() })?))
    }
}

impl PlannedNetwork for Planned {
    fn graph(&self) -> &Graph {
        self.graph()
    }

    fn plan(&self) -> &Plan {
        self.plan()
    }

    fn load(
        &self,
        parameters: &dyn Parameters,
        context: &LoadContext<'_>,
    ) -> Result<Box<dyn Network>, RunError> {
        Ok(Box::new(self.clone().load_sharing(parameters, context.shared)?))
    }
}

impl Network for Program {
    fn memory(&self) -> NetworkMemory {
        NetworkMemory {
            weights: self.weight_bytes() - self.borrowed_bytes(),
            activations: self.arena().len(),
        }
    }

    fn profile(&mut self, profiler: &Profiler, name: &str) -> Result<(), RunError> {
        self.profile(profiler, name);
        Ok(())
    }

    fn stop_on(&mut self, stop: &Stop) {
        self.stop_on(stop);
    }

    fn run_clip(&mut self, inputs: &Tensors) -> Result<(), RunError> {
        self.run_clip(inputs)
    }

    fn run_step(&mut self, inputs: &Tensors) -> Result<Tensors, RunError> {
        self.run_step(inputs)
    }

    fn run_steps(
        &mut self,
        steps: &StepLoop<'_>,
        inputs: &Tensors,
        observer: Option<&mut StepObserver<'_>>,
    ) -> Result<Tensors, RunError> {
        self.run_steps(steps, inputs, observer)
    }

    fn begin_frames(&mut self, carried: Carried<'_>, first: &Tensors) -> Result<(), RunError> {
        self.frames = Some(HostFrames::begin(self.graph(), carried, first)?);
        Ok(())
    }

    fn run_frame(&mut self, inputs: &Tensors, results: &mut Tensors) -> Result<(), RunError> {
        let mut frames = self.frames.take().ok_or(RunError::FramesNotBegun)?;
        let done = frames.run(inputs, results, |all| self.run_step(all));
        self.frames = Some(frames);
        done
    }

    fn handed_on(&mut self) -> Result<Tensors, RunError> {
        let frames = self.frames.as_ref().ok_or(RunError::FramesNotBegun)?;
        Ok(frames.handed_on().clone())
    }

    fn time_step(&mut self, inputs: &Tensors) -> Result<f64, RunError> {
        // A step may overwrite its inputs, so they are written again each time.
        let start = Instant::now();
        self.run_step(inputs)?;
        Ok(start.elapsed().as_secs_f64())
    }
}

/// The CPU's ops for other backends: the reference folds constants, the fast code runs the load phase.
#[derive(Clone, Copy, Debug)]
pub struct CpuOps {
    /// The instruction set.
    pub isa: Isa,
}

impl CpuOps {
    /// With the best instruction set that this CPU has.
    pub fn shared() -> Arc<dyn HostOps> {
        Arc::new(CpuOps { isa: Isa::detect() })
    }
}

impl Evaluate for CpuOps {
    fn evaluate(&self, node: &Node, inputs: &[&Tensor]) -> Option<Vec<Tensor>> {
        ReferenceEvaluator.evaluate(node, inputs)
    }
}

impl HostOps for CpuOps {
    fn run(&self, layer: &str, op: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>, RunError> {
        run_on_tensors(self.isa, layer, op, inputs)
    }
}
