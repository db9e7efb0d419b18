//! Removing what no result needs.

use super::Pass;
use crate::{Editor, GraphError, Target};

/// Drops the nodes, parameters and constants that no result of the graph depends on. Inputs stay, so that a caller may
/// keep supplying them.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeadCode;

impl Pass for DeadCode {
    fn name(&self) -> &'static str {
        "dead_code"
    }

    fn rewrite(&self, _editor: &mut Editor, _target: &dyn Target) -> Result<(), GraphError> {
        // It is what the editor does after every edit, even one that changes nothing.
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, FuseNothing, GraphBuilder, Phase, TensorType};

    #[test]
    fn unneeded_nodes_and_parameters_go_and_inputs_stay() {
        let ty = TensorType::new(DType::F32, [2, 4]);
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", ty.clone(), Phase::Step).unwrap();
        let unused = g.input("unused", ty.clone(), Phase::Step).unwrap();
        let w = g.parameter("w", TensorType::new(DType::F32, [4, 4])).unwrap();
        let dead = g.linear("dead", unused, w, None).unwrap();
        g.scale("dead.too", dead, 2.0, 0.0).unwrap();
        let y = g.scale("alive", x, 2.0, 0.0).unwrap();
        g.output("y", y).unwrap();
        let graph = DeadCode.run(&g.finish(), &FuseNothing).unwrap();
        assert_eq!(graph.nodes().iter().map(|n| n.name.as_str()).collect::<Vec<_>>(), ["alive"]);
        assert_eq!(graph.inputs().len(), 2);
        assert_eq!(graph.parameter_count(), 0);
    }
}
