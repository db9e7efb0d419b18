//! The work of a node as a profiler records it: its FLOPs and its bytes.

use kinora_graph::{Graph, Node, Phase, ValueId};
use kinora_profile::{Work, steps::STEP};

/// The work of a node: its FLOPs, and the minimum of bytes that it must move. `kernel` is what runs it, if known, in
/// `launches` launches.
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
