//! The graph: values and the nodes that make them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Op, Tensor, TensorType, calibration::Largest};

/// A value of one graph. The id does not know its graph: in another graph it is another value, or out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub(crate) u32);

/// A node of one graph, as [`ValueId`] is a value of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub(crate) u32);

impl ValueId {
    /// The index into [`Graph::values`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl NodeId {
    /// The index into [`Graph::nodes`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// When a value is known, and so how often its dependents run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// When the weights are loaded.
    Load,
    /// Once per clip: the image's embedding, the prompt.
    Clip,
    /// At every replay: the latents, the noise level.
    Step,
}

impl Phase {
    /// The name in graph text.
    pub const fn name(self) -> &'static str {
        match self {
            Phase::Load => "load",
            Phase::Clip => "clip",
            Phase::Step => "step",
        }
    }
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// The caller, in each run of that phase.
    Input(Phase),
    /// The model's weights, by the value's name.
    Parameter,
    /// The graph itself.
    Constant(Tensor),
    /// A node's result.
    Node {
        /// The node.
        node: NodeId,
        /// Which of its results.
        output: usize,
    },
}

/// A typed value.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// For people and files; inputs and parameters are looked up by it.
    pub name: String,
    /// Element type and shape.
    pub ty: TensorType,
    /// Where it comes from.
    pub source: Source,
}

/// An op applied to values.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The layer's full name, such as `down.0.resnets.1.conv1`.
    pub name: String,
    /// What it does.
    pub op: Op,
    /// Its operands.
    pub inputs: Vec<ValueId>,
    /// Its results.
    pub outputs: Vec<ValueId>,
}

/// A named result of the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The name the caller asks for.
    pub name: String,
    /// The value.
    pub value: ValueId,
}

/// A checked, acyclic graph. Its nodes are in an order in which they can run. Made by a
/// [`GraphBuilder`](crate::GraphBuilder), an [`Editor`](crate::Editor) or [`Graph::from_json`].
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    pub(crate) name: String,
    pub(crate) values: Vec<Value>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) inputs: Vec<ValueId>,
    pub(crate) outputs: Vec<Output>,
    /// What was measured of its activations, if its products are to be done in 8 bits. It is no part of the JSON.
    pub(crate) calibration: Option<Arc<Largest>>,
}

impl Graph {
    /// The graph's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All values, indexed by [`ValueId`].
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// All nodes in an order in which they can run, indexed by [`NodeId`].
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The nodes with their ids.
    pub fn node_ids(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter().enumerate().map(|(i, n)| (NodeId(i as u32), n))
    }

    /// The values with their ids.
    pub fn value_ids(&self) -> impl Iterator<Item = (ValueId, &Value)> {
        self.values.iter().enumerate().map(|(i, v)| (ValueId(i as u32), v))
    }

    /// The inputs in the order of declaration, used or not.
    pub fn inputs(&self) -> &[ValueId] {
        &self.inputs
    }

    /// The results in the order of declaration.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// A value.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    /// A value's type.
    pub fn ty(&self, id: ValueId) -> &TensorType {
        &self.values[id.index()].ty
    }

    /// A node.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// The node that makes a value, if one does.
    pub fn producer(&self, id: ValueId) -> Option<&Node> {
        match self.value(id).source {
            Source::Node { node, .. } => Some(self.node(node)),
            _ => None,
        }
    }

    /// The types of a node's operands.
    pub fn input_types(&self, node: &Node) -> Vec<&TensorType> {
        node.inputs.iter().map(|&v| self.ty(v)).collect()
    }

    /// The types of a node's results.
    pub fn output_types(&self, node: &Node) -> Vec<&TensorType> {
        node.outputs.iter().map(|&v| self.ty(v)).collect()
    }

    /// The parameters: the weights that a model must supply.
    pub fn parameters(&self) -> impl Iterator<Item = (ValueId, &Value)> {
        self.value_ids().filter(|(_, v)| v.source == Source::Parameter)
    }

    /// The number of learned numbers. At most `u64::MAX`.
    pub fn parameter_count(&self) -> u64 {
        self.parameters().map(|(_, v)| v.ty.elements() as u64).fold(0, u64::saturating_add)
    }

    /// The phase in which each value is known: the latest of what it depends on.
    pub fn phases(&self) -> Vec<Phase> {
        let mut phases: Vec<Phase> = self
            .values
            .iter()
            .map(|v| match v.source {
                Source::Input(phase) => phase,
                _ => Phase::Load,
            })
            .collect();
        for node in &self.nodes {
            let phase = node.inputs.iter().map(|v| phases[v.index()]).max().unwrap_or(Phase::Load);
            for output in &node.outputs {
                phases[output.index()] = phase;
            }
        }
        phases
    }

    /// How many times each value is read, by nodes and as a result.
    pub fn use_counts(&self) -> Vec<usize> {
        let mut counts = vec![0; self.values.len()];
        for id in self.nodes.iter().flat_map(|n| &n.inputs).chain(self.outputs.iter().map(|o| &o.value)) {
            counts[id.index()] += 1;
        }
        counts
    }

    /// Floating-point operations of a node's matrix work.
    pub fn node_flops(&self, node: &Node) -> u64 {
        node.op.flops(&self.input_types(node), &self.output_types(node))
    }

    /// Floating-point operations of one replay: the [`Phase::Step`] nodes. At most `u64::MAX`.
    pub fn step_flops(&self) -> u64 {
        let phases = self.phases();
        self.nodes
            .iter()
            .filter(|n| n.outputs.iter().any(|v| phases[v.index()] == Phase::Step))
            .map(|n| self.node_flops(n))
            .fold(0, u64::saturating_add)
    }
}
