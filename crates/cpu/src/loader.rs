//! The load phase, as its results are asked for: a weight is read, folded and given away before the next one is read.

use std::collections::HashMap;

use kinora_graph::{Graph, NodeId, Parameters, Source, Tensor, ValueId};

use crate::{CpuError, fast, simd::Isa, tensors};

/// Evaluates what a graph knows at load. A value lies in memory from its first use to its last, so that at no time all
/// weights are held both as they were read and as they are kept.
pub struct Loader<'a> {
    graph: &'a Graph,
    isa: Isa,
    parameters: &'a dyn Parameters,
    /// How often each value is still to be taken, by a node of the load phase or from outside.
    uses: HashMap<ValueId, usize>,
    values: HashMap<ValueId, Tensor>,
}

impl<'a> Loader<'a> {
    /// A loader from which each of `wanted` will be taken, once for every time that it is named.
    pub fn new(
        graph: &'a Graph,
        isa: Isa,
        parameters: &'a dyn Parameters,
        wanted: impl Iterator<Item = ValueId>,
    ) -> Self {
        let mut uses: HashMap<ValueId, usize> = HashMap::new();
        let mut nodes_seen = vec![false; graph.nodes().len()];
        let mut pending: Vec<ValueId> = wanted.collect();
        while let Some(value) = pending.pop() {
            *uses.entry(value).or_default() += 1;
            if let Source::Node { node, .. } = graph.value(value).source
                && !std::mem::replace(&mut nodes_seen[node.index()], true)
            {
                pending.extend(&graph.node(node).inputs);
            }
        }
        Loader { graph, isa, parameters, uses, values: HashMap::new() }
    }

    /// Gives one of the values that were wanted.
    ///
    /// # Errors
    /// Where a weight that it is made of is missing, cannot be read, is of another type, or not finite.
    pub fn take(&mut self, value: ValueId) -> Result<Tensor, CpuError> {
        // Not by recursion: a chain of nodes from a file may be of any length.
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
                    return Err(CpuError::Internal(format!("{} is not known at load", described.name)));
                }
            }
        }
        self.release(value)
    }

    fn run(&mut self, id: NodeId) -> Result<(), CpuError> {
        let node = self.graph.node(id);
        let inputs =
            node.inputs.iter().map(|&input| self.release(input)).collect::<Result<Vec<_>, CpuError>>()?;
        let operands: Vec<&Tensor> = inputs.iter().collect();
        let results = fast::run_on_tensors(self.isa, &node.name, &node.op, &operands)?;
        let wanted = node.outputs.iter().zip(results).filter(|(value, _)| self.uses.contains_key(value));
        self.values.extend(wanted.map(|(&value, tensor)| (value, tensor)));
        Ok(())
    }

    /// One use of a value that is there; the last one frees its memory.
    fn release(&mut self, value: ValueId) -> Result<Tensor, CpuError> {
        let left = self.uses.get_mut(&value).filter(|left| **left > 0);
        let tensor = match left {
            Some(left) => {
                *left -= 1;
                if *left == 0 { self.values.remove(&value) } else { self.values.get(&value).cloned() }
            }
            None => None,
        };
        tensor.ok_or_else(|| CpuError::Internal(format!("{} was not loaded", self.graph.value(value).name)))
    }
}
