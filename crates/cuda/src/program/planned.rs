//! A graph optimised and planned for a GPU, before anything is allocated.

use std::sync::Arc;

use kinora_graph::{
    Graph, Parameters, Phase, passes,
    plan::{Plan, PlanError, PlanOptions},
};
use kinora_runtime::HostOps;

use super::{LoadOptions, Program, loading, step_loop};
use crate::{
    Architecture, Chip, CudaError, CudaOptions, CudaTarget,
    driver::Device,
    kernels::{Call, Choose as _, Heuristic, Kernel, KernelSet, Places, Settled},
    vendor::Libraries,
    work::kernels,
};

/// Typical numbers of multiprocessors, from laptop GPUs to the largest.
const MULTIPROCESSORS: [u32; 30] = [
    14, 16, 20, 24, 28, 30, 34, 36, 40, 46, 48, 56, 58, 60, 66, 68, 72, 76, 78, 80, 82, 84, 108, 114, 128,
    132, 142, 144, 148, 170,
];

/// Plans an optimised graph, and decides how its nodes run.
fn plan(graph: &Graph, options: &CudaOptions) -> Result<(Plan, CudaOptions), PlanError> {
    let settled = Arc::new(Settled::new(options.chooser()));
    let options = CudaOptions { choice: Some(settled), ..options.clone() };
    let plan_options = PlanOptions { budget: options.budget, ..PlanOptions::default() };
    let plan = Plan::new(graph, &CudaTarget::new(&options), &plan_options)?;
    Ok((plan, options))
}

/// A graph optimised and planned for a chip. It holds nothing on a device, so what a program would need is known even
/// on a machine that could not run it.
#[derive(Clone, Debug)]
pub struct Planned {
    pub(super) graph: Graph,
    pub(super) plan: Plan,
    pub(super) options: CudaOptions,
}

impl Planned {
    /// Optimises, plans, and checks the budget and that there is a kernel for every node.
    ///
    /// # Errors
    /// If the graph is wrong, its plan does not fit the budget, or no kernel runs one of its nodes.
    pub fn new(graph: &Graph, options: &CudaOptions) -> Result<Planned, CudaError> {
        let graph = if options.optimise && options.kernels == KernelSet::Fused {
            passes::optimise_traced(graph, &CudaTarget::new(options), Some(&*options.host))?.0
        } else {
            graph.clone()
        };
        let (plan, options) = match plan(&graph, options) {
            // The kernels that measured fastest may need more scratch memory than the families' own choice.
            Err(PlanError::OverBudget { .. }) if options.choice.is_some() => {
                plan(&graph, &CudaOptions { choice: None, ..options.clone() })
            }
            planned => planned,
        }?;
        let planned = Planned { graph, plan, options };
        let choice = planned.options.chooser();
        planned.for_each_call(|call| choice.choose(call).map(drop))?;
        Ok(planned)
    }

    /// Visits every call that the GPU will run.
    ///
    /// # Errors
    /// The visitor's error.
    pub fn for_each_call(
        &self,
        mut visit: impl FnMut(&Call<'_>) -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        let phases = self.graph.phases();
        for node in self.graph.nodes() {
            let (inputs, outputs) = (self.graph.input_types(node), self.graph.output_types(node));
            let call = Call { layer: &node.name, op: &node.op, inputs: &inputs, outputs: &outputs };
            let on_device = node.outputs.iter().any(|value| phases[value.index()] != Phase::Load);
            if on_device && call.runs() {
                visit(&call)?;
            }
        }
        Ok(())
    }

    /// The graph as it will run, after the passes.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The kernels that a graph launches on GPUs of a generation, each once, for any number of multiprocessors: the
    /// fixed choice depends on that number.
    ///
    /// # Errors
    /// As [`Planned::new`].
    pub fn kernels_of_generation(
        graph: &Graph,
        architecture: Architecture,
        host: Arc<dyn HostOps>,
    ) -> Result<Vec<Kernel>, CudaError> {
        let typical = Chip::typical(architecture);
        let planned = Planned::new(graph, &CudaOptions::new(typical.clone(), host))?;
        let mut found: Vec<Kernel> =
            step_loop::can_count(&planned.graph).then(step_loop::count_up_kernel).into_iter().collect();
        for multiprocessors in MULTIPROCESSORS.into_iter().chain([typical.multiprocessors]) {
            let chip = Chip { multiprocessors, ..typical.clone() };
            let choice = Heuristic { chip, kernels: KernelSet::Fused, libraries: Libraries::default() };
            planned.for_each_call(|call| {
                let work =
                    choice.choose(call)?.work(&Places::anywhere(call)).map_err(|error| call.blame(error))?;
                found.extend(kernels(work.iter()));
                Ok(())
            })?;
            found.sort_unstable();
            found.dedup();
        }
        Ok(found)
    }

    /// Compiles the kernels, loads the weights and allocates the arena, with the environment's settings for the compiler.
    ///
    /// # Errors
    /// As [`Planned::load_with`].
    pub fn load(self, device: &Device, parameters: &dyn Parameters) -> Result<Program, CudaError> {
        self.load_with(device, parameters, &LoadOptions::default())
    }

    /// Compiles the kernels, loads the weights and allocates the arena. If a chosen vendor library refuses, the
    /// families' own kernels run.
    ///
    /// # Errors
    /// If the GPU does not run the chip's code or has too little memory, a kernel does not compile, or a weight that
    /// the graph uses is missing, cannot be read, is of another type, or not finite.
    pub fn load_with(
        self,
        device: &Device,
        parameters: &dyn Parameters,
        load: &LoadOptions<'_>,
    ) -> Result<Program, CudaError> {
        match loading::load(self.clone(), device, parameters, load) {
            // A library that measured fastest no longer does the work: everything runs without it.
            Err(CudaError::Library { .. }) => {
                let options = CudaOptions { choice: None, ..self.options };
                let (plan, options) = plan(&self.graph, &options)?;
                loading::load(Planned { graph: self.graph, plan, options }, device, parameters, load)
            }
            loaded => loaded,
        }
    }
}
