//! What a profiler is told of a program.

use std::collections::HashMap;

use kinora_graph::{Graph, Node, NodeId, Op, Phase, ValueId, plan::Plan};
use kinora_profile::{OpenSpan, Profiler, Work, WorkId, steps::STEP};

/// The work of a node: its arithmetic, and the bytes that have to move at the least. `kernel` is what runs it, where that
/// is known, in so many launches.
pub fn work(program: &str, graph: &Graph, node: &Node, kernel: Option<String>, launches: usize) -> Work {
    // Queries, keys and values often lie side by side in one operand, which is then read once.
    let mut values: Vec<ValueId> = node.inputs.iter().chain(&node.outputs).copied().collect();
    values.sort_unstable();
    values.dedup();
    Work {
        program: program.to_owned(),
        layer: node.name.clone(),
        op: node.op.kind().to_owned(),
        kernel,
        flops: graph.node_flops(node),
        bytes: values.iter().map(|&value| graph.ty(value).bytes() as u64).fold(0, u64::saturating_add),
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

#[cfg(test)]
mod tests {
    use kinora_graph::{DType, GraphBuilder, GraphError, TensorType, op::Attention};

    use super::*;

    #[test]
    fn an_operand_that_is_used_thrice_is_read_once() -> Result<(), GraphError> {
        let mut builder = GraphBuilder::new("packed");
        let packed = builder.input("qkv", TensorType::new(DType::F16, [2, 10, 3 * 16]), Phase::Step)?;
        let attention = Attention { offsets: [0, 16, 32], ..Attention::over_positions(2, 8) };
        let result = builder.attention("attention", [packed; 3], &[], attention)?;
        builder.output("result", result)?;
        let graph = builder.finish();
        let work = work("", &graph, &graph.nodes()[0], None, 1);
        assert_eq!(work.bytes, 2 * 2 * 10 * (3 * 16 + 16));
        Ok(())
    }
}
