//! The load phase, on demand: each weight is read, folded and handed over before the next one is read.

use std::collections::{HashMap, HashSet};

use kinora_graph::{Graph, NodeId, Parameters, Source, Tensor, ValueId};

use crate::{HostOps, RunError, tensors};

/// Evaluates the load phase of a graph. A value stays in memory from its first use to its last, so the weights are never
/// all held twice, as they were read and as they are kept.
pub struct Loader<'a> {
    graph: &'a Graph,
    ops: &'a dyn HostOps,
    parameters: &'a dyn Parameters,
    /// How many uses of each value are left, by nodes of the load phase or by the caller.
    uses: HashMap<ValueId, usize>,
    values: HashMap<ValueId, Tensor>,
}

impl<'a> Loader<'a> {
    /// A loader from which the caller will take each of `wanted`, as often as it is named.
    pub fn new(
        graph: &'a Graph,
        ops: &'a dyn HostOps,
        parameters: &'a dyn Parameters,
        wanted: impl Iterator<Item = ValueId>,
    ) -> Self {
        let mut uses: HashMap<ValueId, usize> = HashMap::new();
        let mut nodes_seen = HashSet::new();
        let mut pending: Vec<ValueId> = wanted.collect();
        while let Some(value) = pending.pop() {
            *uses.entry(value).or_default() += 1;
            if let Source::Node { node, .. } = graph.value(value).source
                && nodes_seen.insert(node)
            {
                pending.extend(&graph.node(node).inputs);
            }
        }
        Loader { graph, ops, parameters, uses, values: HashMap::new() }
    }

    /// Hands over one of the wanted values.
    ///
    /// # Errors
    /// If a weight that it is made of is missing, cannot be read, has another type, or is not finite.
    pub fn take(&mut self, value: ValueId) -> Result<Tensor, RunError> {
        // Not by recursion: a chain of nodes read from a file may have any length.
        let mut pending = vec![value];
        while let Some(&next) = pending.last() {
            if self.values.contains_key(&next) {
                pending.pop();
                continue;
            }
            let described = self.graph.value(next);
            match &described.source {
                Source::Parameter => {
                    self.values.insert(next, tensors::parameter(described, self.parameters)?);
                }
                Source::Constant(tensor) => {
                    self.values.insert(next, tensor.clone());
                }
                Source::Node { node, .. } => {
                    let inputs = &self.graph.node(*node).inputs;
                    let missing = pending.len();
                    pending.extend(inputs.iter().filter(|input| !self.values.contains_key(input)));
                    if pending.len() == missing {
                        self.run(*node)?;
                    }
                }
                Source::Input(_) => {
                    return Err(RunError::Internal(format!(
                        "{} is not available in the load phase",
                        described.name
                    )));
                }
            }
        }
        self.release(value)
    }

    fn run(&mut self, id: NodeId) -> Result<(), RunError> {
        let node = self.graph.node(id);
        let inputs =
            node.inputs.iter().map(|&input| self.release(input)).collect::<Result<Vec<_>, RunError>>()?;
        let operands: Vec<&Tensor> = inputs.iter().collect();
        let results = self.ops.run(&node.name, &node.op, &operands)?;
        let wanted = node.outputs.iter().zip(results).filter(|(value, _)| self.uses.contains_key(value));
        self.values.extend(wanted.map(|(&value, tensor)| (value, tensor)));
        Ok(())
    }

    /// Takes one use of a value; the last one frees its memory.
    fn release(&mut self, value: ValueId) -> Result<Tensor, RunError> {
        let left = self.uses.get_mut(&value).filter(|left| **left > 0);
        let tensor = match left {
            Some(left) => {
                *left -= 1;
                if *left == 0 { self.values.remove(&value) } else { self.values.get(&value).cloned() }
            }
            None => None,
        };
        tensor.ok_or_else(|| RunError::Internal(format!("{} was not loaded", self.graph.value(value).name)))
    }
}
