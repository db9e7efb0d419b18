//! What a profiler is told of a program.

use std::collections::HashMap;

use kinora_graph::{Graph, Node, NodeId, Op, Phase, plan::Plan};
use kinora_profile::{OpenSpan, Profiler, Work, WorkId, steps::STEP};

/// The work of a node: its arithmetic, and the bytes that have to move at the least. `kernel` is what runs it, where that
/// is known, in so many launches.
pub fn work(program: &str, graph: &Graph, node: &Node, kernel: Option<String>, launches: usize) -> Work {
    let operands = graph.input_types(node).into_iter().chain(graph.output_types(node));
    Work {
        program: program.to_owned(),
        layer: node.name.clone(),
        op: node.op.kind().to_owned(),
        kernel,
        flops: graph.node_flops(node),
        bytes: operands.map(|ty| ty.bytes() as u64).fold(0, u64::saturating_add),
        launches: launches as u64,
    }
}

/// The name of a phase's span.
pub fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Load => "load phase",
        Phase::Clip => "clip phase",
        Phase::Step => STEP,
    }
}

/// A program's nodes as a profiler knows them. None where it is off.
#[derive(Debug, Default)]
pub(crate) struct Profiled {
    profiler: Profiler,
    works: HashMap<NodeId, WorkId>,
}

impl Profiled {
    pub fn new(profiler: &Profiler, name: &str, graph: &Graph, plan: &Plan) -> Profiled {
        let mut works = HashMap::new();
        for step in [Phase::Clip, Phase::Step].into_iter().flat_map(|phase| plan.steps(phase)) {
            let node = graph.node(step.node);
            // A reshape runs no code.
            if !matches!(node.op, Op::Reshape(_)) {
                works
                    .extend(profiler.work(|| work(name, graph, node, None, 1)).map(|work| (step.node, work)));
            }
        }
        Profiled { profiler: profiler.clone(), works }
    }

    pub fn phase(&self, phase: Phase) -> OpenSpan {
        self.profiler.span(phase_name(phase))
    }

    /// A span in which a node runs.
    pub fn node(&self, node: NodeId) -> Option<OpenSpan> {
        // Empty where nothing is recorded: no look into it then.
        if self.works.is_empty() {
            None
        } else {
            self.works.get(&node).map(|&work| self.profiler.layer(work))
        }
    }
}
