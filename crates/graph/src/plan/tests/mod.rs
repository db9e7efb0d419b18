//! Plans of small graphs with known answers, of random ones, and of a large one.

mod budget;
mod by_hand;
mod large;
mod random;
mod simulate;
mod text;

use super::{Buffer, Place, Plan, PlanOptions};
use crate::{DType, Graph, GraphBuilder, GraphError, Op, Phase, Target, TensorType, ValueId};

/// A backend whose abilities a test chooses.
#[derive(Clone, Copy, Debug)]
struct Backend {
    /// Pointwise ops work in place, `add` on both operands, a sampler step on its sample.
    in_place: bool,
    /// Scratch bytes of every activation.
    workspace: usize,
    alignment: usize,
}

const PLAIN: Backend = Backend { in_place: false, workspace: 0, alignment: 64 };
const IN_PLACE: Backend = Backend { in_place: true, ..PLAIN };

impl Target for Backend {
    fn fuses(&self, _op: &Op, _inputs: &[&TensorType]) -> bool {
        false
    }

    fn workspace(&self, op: &Op, _inputs: &[&TensorType], _outputs: &[&TensorType]) -> usize {
        if matches!(op, Op::Activate(_)) { self.workspace } else { 0 }
    }

    fn in_place(&self, op: &Op, operand: usize) -> bool {
        self.in_place
            && match op {
                Op::Scale(_) | Op::Activate(_) | Op::SamplerStep(_) => operand == 0,
                Op::Add => operand < 2,
                _ => false,
            }
    }

    fn alignment(&self) -> usize {
        self.alignment
    }
}

/// `count` floats.
fn floats(count: usize) -> TensorType {
    TensorType::new(DType::F32, [count])
}

fn build(make: impl FnOnce(&mut GraphBuilder) -> Result<(), GraphError>) -> Graph {
    let mut g = GraphBuilder::new("test");
    make(&mut g).unwrap();
    g.finish()
}

/// Plans without a budget, verifies and simulates.
fn plan(graph: &Graph, target: &Backend) -> Plan {
    let plan = Plan::new(graph, target, &PlanOptions::default()).unwrap();
    plan.verify(graph).unwrap();
    simulate::run(&plan, graph, target);
    plan
}

fn buffer(plan: &Plan, value: ValueId) -> Buffer {
    match plan.place(value) {
        Place::Arena(buffer) => buffer,
        other => panic!("{other:?}"),
    }
}

/// The value of a layer or input.
fn named(graph: &Graph, name: &str) -> ValueId {
    graph.value_ids().find(|(_, v)| v.name == name).unwrap().0
}

fn order(plan: &Plan, graph: &Graph, phase: Phase) -> Vec<String> {
    plan.steps(phase).iter().map(|s| graph.node(s.node).name.clone()).collect()
}
