//! A graph optimised and planned for a GPU, before anything is allocated.

use kinora_cpu::reference::ReferenceEvaluator;
use kinora_graph::{
    Graph, Parameters, Phase, passes,
    plan::{Plan, PlanOptions},
};

use super::{
    LoadOptions, Program, loading,
    lowering::{self, Memory, WeightLayout},
};
use crate::{
    CudaError, CudaOptions, CudaTarget,
    driver::Device,
    kernels::{Call, Kernel, KernelSet},
};

/// A graph optimised and planned for a chip. It holds nothing on a device: what a program would need is known on a
/// machine that could not run it too.
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
    /// Where the graph is wrong, its plan does not fit the budget, or no kernel runs one of its nodes.
    pub fn new(graph: &Graph, options: &CudaOptions) -> Result<Planned, CudaError> {
        let target = CudaTarget::new(options);
        let graph = if options.optimise && options.kernels == KernelSet::Fused {
            passes::optimise_traced(graph, &target, Some(&ReferenceEvaluator))?.0
        } else {
            graph.clone()
        };
        let choice = options.chooser();
        let types: Vec<_> =
            graph.nodes().iter().map(|node| (graph.input_types(node), graph.output_types(node))).collect();
        let phases = graph.phases();
        let calls: Vec<Call<'_>> = graph
            .nodes()
            .iter()
            .zip(&types)
            .filter(|(node, _)| node.outputs.iter().any(|value| phases[value.index()] != Phase::Load))
            .map(|(node, (inputs, outputs))| Call { layer: &node.name, op: &node.op, inputs, outputs })
            .filter(Call::runs)
            .collect();
        choice.prepare(&calls)?;
        let plan_options = PlanOptions { budget: options.budget, ..PlanOptions::default() };
        let plan = Plan::new(&graph, &target, &plan_options)?;
        for call in &calls {
            choice.choose(call)?;
        }
        Ok(Planned { graph, plan, options: options.clone() })
    }

    /// The graph as it will run, after the passes.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The kernels that the program launches: what a bundle for it has to hold.
    ///
    /// # Errors
    /// Where a node cannot be lowered.
    pub fn kernels(&self) -> Result<Vec<Kernel>, CudaError> {
        let layout = WeightLayout::new(&self.graph, &self.plan)?;
        // Which kernels run does not depend on where their tensors lie.
        let memory = Memory { weights: 1 << 40, layout: &layout, arena: 1 << 44, fault: 1 << 46 };
        let lowered = lowering::lower(&self.graph, &self.plan, &*self.options.chooser(), &memory)?;
        Ok(lowered.kernels(&self.graph))
    }

    /// Compiles the kernels, loads the weights and allocates the arena, with the environment's settings for the compiler.
    ///
    /// # Errors
    /// As [`Planned::load_with`].
    pub fn load(self, device: &Device, parameters: &dyn Parameters) -> Result<Program, CudaError> {
        self.load_with(device, parameters, &LoadOptions::default())
    }

    /// Compiles the kernels, loads the weights and allocates the arena.
    ///
    /// # Errors
    /// Where the GPU does not run the chip's code or has too little memory, a kernel does not compile, or a weight that the
    /// graph uses is missing, cannot be read, is of another type, or not finite.
    pub fn load_with(
        self,
        device: &Device,
        parameters: &dyn Parameters,
        load: &LoadOptions<'_>,
    ) -> Result<Program, CudaError> {
        loading::load(self, device, parameters, load)
    }
}
