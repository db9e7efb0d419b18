//! Which buffers there are, and from when to when each is needed.

use std::collections::HashMap;

use super::PlanError;
use crate::{Graph, NodeId, Op, Phase, Source, Target, ValueId};

/// What is known about the buffers before the nodes have an order.
pub(super) struct Facts<'g> {
    pub graph: &'g Graph,
    target: &'g dyn Target,
    /// Per value, the phase in which it is known.
    phases: Vec<Phase>,
    /// Per node, the phase in which it runs.
    pub node_phases: Vec<Phase>,
    /// Per value, the value whose buffer it shares: for a reshape its operand's, otherwise its own. `None` outside the
    /// arena.
    pub roots: Vec<Option<ValueId>>,
    /// Per root, its size.
    pub bytes: Vec<usize>,
    /// Per root, whether its content must last to the end of everything.
    pub kept: Vec<bool>,
    /// Per node, the roots it reads, each once.
    pub reads: Vec<Vec<ValueId>>,
    /// Per node, its scratch memory in bytes.
    pub workspaces: Vec<usize>,
    /// Per node, the operands that its first result may overwrite, according to the target; they have the result's
    /// size.
    overwritable: Vec<Vec<usize>>,
}

impl<'g> Facts<'g> {
    pub fn new(graph: &'g Graph, target: &'g dyn Target) -> Self {
        let phases = graph.phases();
        let node_phases: Vec<Phase> = graph
            .nodes()
            .iter()
            .map(|n| n.inputs.iter().map(|v| phases[v.index()]).max().unwrap_or(Phase::Load))
            .collect();
        let used = graph.use_counts();

        let mut roots: Vec<Option<ValueId>> = graph
            .value_ids()
            .map(|(id, value)| {
                let placed = matches!(value.source, Source::Node { .. }) || used[id.index()] > 0;
                (placed && phases[id.index()] != Phase::Load).then_some(id)
            })
            .collect();
        // Nodes are in a runnable order, so an operand's root is known before its reshape's.
        for node in graph.nodes() {
            if let (Op::Reshape(_), [operand], [result]) = (&node.op, &node.inputs[..], &node.outputs[..]) {
                roots[result.index()] = roots[operand.index()];
            }
        }

        let mut kept = vec![false; roots.len()];
        let mut reads = Vec::with_capacity(graph.nodes().len());
        for (node, &phase) in graph.nodes().iter().zip(&node_phases) {
            let mut roots_read: Vec<ValueId> = node.inputs.iter().filter_map(|v| roots[v.index()]).collect();
            roots_read.sort_unstable();
            roots_read.dedup();
            for root in &roots_read {
                // Read in the step phase, but made before it: needed at every replay.
                kept[root.index()] |= phase != phases[root.index()];
            }
            reads.push(roots_read);
        }
        for root in graph.outputs().iter().filter_map(|o| roots[o.value.index()]) {
            kept[root.index()] = true;
        }

        let in_arena = |node: usize| node_phases[node] != Phase::Load;
        let workspaces = graph
            .nodes()
            .iter()
            .enumerate()
            .map(|(i, n)| match &n.op {
                Op::Reshape(_) => 0,
                op if in_arena(i) => target.workspace(op, &graph.input_types(n), &graph.output_types(n)),
                _ => 0,
            })
            .collect();
        let overwritable = graph
            .nodes()
            .iter()
            .enumerate()
            .map(|(i, n)| match (&n.op, n.outputs.first()) {
                (Op::Reshape(_), _) | (_, None) => Vec::new(),
                (op, Some(&result)) if in_arena(i) => {
                    // The same number of elements of the same size: an f32 operand that broadcasts to twice as many f16
                    // results has the same number of bytes, but not one element per result.
                    let fits = |v: ValueId| {
                        let (from, to) = (graph.ty(v), graph.ty(result));
                        roots[v.index()].is_some()
                            && from.elements() == to.elements()
                            && from.dtype.size() == to.dtype.size()
                    };
                    (0..n.inputs.len()).filter(|&k| fits(n.inputs[k]) && target.in_place(op, k)).collect()
                }
                _ => Vec::new(),
            })
            .collect();
        let bytes = graph.values().iter().map(|v| v.ty.bytes()).collect();
        Facts { graph, target, phases, node_phases, roots, bytes, kept, reads, workspaces, overwritable }
    }

    /// The nodes of a phase in the graph's order.
    pub fn nodes_of(&self, phase: Phase) -> Vec<NodeId> {
        let of_phase = |(id, _): &(NodeId, _)| self.node_phases[id.index()] == phase;
        self.graph.node_ids().filter(of_phase).map(|(id, _)| id).collect()
    }

    /// The values known at load that are read later or are results.
    pub fn resident(&self) -> Vec<ValueId> {
        let mut needed = vec![false; self.phases.len()];
        let nodes = self.graph.nodes().iter().zip(&self.node_phases);
        let operands = nodes.filter(|(_, phase)| **phase != Phase::Load).flat_map(|(n, _)| &n.inputs);
        for value in operands.chain(self.graph.outputs().iter().map(|o| &o.value)) {
            needed[value.index()] = self.phases[value.index()] == Phase::Load;
        }
        self.graph.value_ids().map(|(id, _)| id).filter(|id| needed[id.index()]).collect()
    }

    /// The size of the resident values, packed copies included, as [`Plan::weight_bytes`](super::Plan::weight_bytes)
    /// explains. `None` if it is too large.
    pub fn weight_bytes(&self, resident: &[ValueId]) -> Option<usize> {
        let mut plain = vec![false; self.phases.len()];
        for output in self.graph.outputs() {
            plain[output.value.index()] = true;
        }
        let mut packed = 0usize;
        // Nodes that read a weight by the same op read the same copy: the steps of a frame, for one.
        let mut copies: HashMap<ValueId, Vec<&Op>> = HashMap::new();
        for (node, phase) in self.graph.nodes().iter().zip(&self.node_phases) {
            for (operand, value) in node.inputs.iter().enumerate() {
                if self.phases[value.index()] >= *phase {
                    continue;
                }
                match self.target.packed_weight_bytes(&node.op, operand, self.graph.ty(*value)) {
                    Some(bytes) => {
                        let copies = copies.entry(*value).or_default();
                        if !copies.contains(&&node.op) {
                            copies.push(&node.op);
                            packed = packed.checked_add(bytes)?;
                        }
                    }
                    None => plain[value.index()] = true,
                }
            }
        }
        let plain = resident.iter().filter(|value| plain[value.index()]);
        plain
            .map(|&value| self.target.weight_bytes(self.graph.ty(value)))
            .try_fold(packed, usize::checked_add)
    }

    /// The roots that a node makes: its results, unless it is a reshape.
    pub fn makes(&self, node: NodeId) -> impl Iterator<Item = ValueId> {
        self.graph.node(node).outputs.iter().copied().filter(|&v| self.roots[v.index()] == Some(v))
    }
}

/// From the first to the last moment, both included, at which a buffer is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lifetime {
    pub first: usize,
    pub last: usize,
    pub bytes: usize,
}

/// The buffers that one order of the nodes needs.
///
/// The inputs are written at moment 0, the `i`-th node runs at moment `i + 1`, the results are read at the last one.
/// Replaying the step phase needs no moments of its own: what survives a replay lives to the last moment.
pub(super) struct Liveness {
    /// The nodes of the clip phase, then those of the step phase.
    pub order: Vec<NodeId>,
    /// How many of them are the clip phase's.
    pub clip_nodes: usize,
    pub lifetimes: Vec<Lifetime>,
    /// Per value, its index in `lifetimes`.
    pub of_value: Vec<Option<usize>>,
    /// Per node of `order`, the index of its workspace in `lifetimes`.
    pub of_workspace: Vec<Option<usize>>,
    /// Per value, the moment from which it exists.
    pub made_at: Vec<usize>,
}

impl Liveness {
    pub fn new(facts: &Facts<'_>, clip: &[NodeId], step: &[NodeId]) -> Self {
        let order = [clip, step].concat();
        let end = order.len() + 1;
        let mut made_at = vec![0; facts.roots.len()];
        for (i, &node) in order.iter().enumerate() {
            for result in &facts.graph.node(node).outputs {
                made_at[result.index()] = i + 1;
            }
        }
        let mut last = made_at.clone();
        for (i, node) in order.iter().enumerate() {
            for root in &facts.reads[node.index()] {
                last[root.index()] = i + 1;
            }
        }
        for (last, _) in last.iter_mut().zip(&facts.kept).filter(|(_, kept)| **kept) {
            *last = end;
        }

        // Per root, the root whose buffer it takes over, or itself. `last` of that one covers both.
        let mut owner: Vec<ValueId> = facts.graph.value_ids().map(|(id, _)| id).collect();
        for (i, &node) in order.iter().enumerate() {
            if let Some(operand) = overwritten(facts, node, i + 1, &owner, &last) {
                let result = facts.graph.node(node).outputs[0];
                owner[result.index()] = operand;
                last[operand.index()] = last[result.index()];
            }
        }

        let mut lifetimes = Vec::new();
        let mut of_owner = vec![None; owner.len()];
        let mut of_value = vec![None; owner.len()];
        for (i, root) in facts.roots.iter().enumerate() {
            let Some(root) = root else { continue };
            let owner = owner[root.index()].index();
            let lifetime =
                || Lifetime { first: made_at[owner], last: last[owner], bytes: facts.bytes[owner] };
            of_value[i] = Some(*of_owner[owner].get_or_insert_with(|| {
                lifetimes.push(lifetime());
                lifetimes.len() - 1
            }));
        }
        let workspace = |(i, node): (usize, &NodeId)| {
            let bytes = facts.workspaces[node.index()];
            (bytes > 0).then(|| {
                lifetimes.push(Lifetime { first: i + 1, last: i + 1, bytes });
                lifetimes.len() - 1
            })
        };
        let of_workspace = order.iter().enumerate().map(workspace).collect();
        Liveness { order, clip_nodes: clip.len(), lifetimes, of_value, of_workspace, made_at }
    }

    /// The bytes in use at each moment.
    pub fn live_bytes(&self) -> Result<Vec<usize>, PlanError> {
        let mut live = vec![0usize; self.order.len() + 2];
        let mut ending = live.clone();
        for lifetime in &self.lifetimes {
            let starting = &mut live[lifetime.first];
            *starting = starting.checked_add(lifetime.bytes).ok_or(PlanError::TooLarge)?;
            let ending = &mut ending[lifetime.last];
            *ending = ending.checked_add(lifetime.bytes).ok_or(PlanError::TooLarge)?;
        }
        let mut carried = 0usize;
        for (live, ending) in live.iter_mut().zip(&ending) {
            *live = live.checked_add(carried).ok_or(PlanError::TooLarge)?;
            carried = *live - ending;
        }
        Ok(live)
    }
}

/// The owner of the buffer that a node's first result overwrites: the first operand that the target allows, whose
/// buffer nothing needs after the node, and which the node does not also read in a way that the target forbids.
fn overwritten(
    facts: &Facts<'_>,
    node: NodeId,
    moment: usize,
    owner: &[ValueId],
    last: &[usize],
) -> Option<ValueId> {
    let allowed = &facts.overwritable[node.index()];
    let inputs = &facts.graph.node(node).inputs;
    let owner_of = |k: usize| facts.roots[inputs[k].index()].map(|root| owner[root.index()]);
    allowed.iter().find_map(|&k| {
        let candidate = owner_of(k)?;
        let only_here = (0..inputs.len()).all(|j| owner_of(j) != Some(candidate) || allowed.contains(&j));
        (last[candidate.index()] == moment && only_here).then_some(candidate)
    })
}
