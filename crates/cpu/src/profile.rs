//! The spans of a program's nodes.

use std::collections::HashMap;

use kinora_graph::{Graph, NodeId, Op, Phase, plan::Plan};
use kinora_profile::{OpenSpan, Profiler, WorkId};
use kinora_runtime::work::{phase_name, work};

/// A program's nodes as registered with a profiler. None if it is off.
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
        // Empty if nothing is recorded.
        if self.works.is_empty() {
            None
        } else {
            self.works.get(&node).map(|&work| self.profiler.layer(work))
        }
    }
}
