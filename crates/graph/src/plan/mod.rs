//! The memory plan: in which order the nodes run and where every buffer lies, known before anything is allocated.
//!
//! Values that are known when the weights are loaded ([`Phase::Load`]) live outside the arena: they are the weights.
//! Everything else has a place in one arena. The [`Phase::Clip`] nodes run first, once; then the [`Phase::Step`] nodes
//! run, as often as the caller likes. A caller may rely on the following:
//!
//! * Every input that is read keeps what the caller wrote from before the clip phase until its last reader has run, so
//!   all inputs may be set first. Afterwards its memory may hold something else: step inputs are written again before
//!   each replay, clip inputs before each run of the clip phase. An input that is also an output lasts to the end.
//! * Clip values that the step phase reads, and clip values that are outputs, last through all replays.
//! * Step outputs last until any input, of the step or of the clip, is next written. An input may lie where a step output
//!   lies, so a caller that feeds results back reads all of them before it writes any input.
//! * An input that nothing reads has no place in memory.
//!
//! A reshape runs no code: its result is its operand's memory. If the [`Target`] allows it, a node's first result
//! overwrites an operand that is no longer needed.

mod arena;
mod budget;
mod lifetime;
mod order;
mod svg;
#[cfg(test)]
mod tests;
mod text;
mod verify;

pub use budget::{Alternative, OverBudgetDetails, PlanError, PlanOptions, format_bytes};

use crate::{Graph, NodeId, Phase, Target, ValueId};
use arena::Placement;
use lifetime::{Facts, Liveness};

/// A range of the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// The first byte.
    pub offset: usize,
    /// How many bytes.
    pub bytes: usize,
}

impl Buffer {
    /// One past the last byte.
    pub const fn end(&self) -> usize {
        self.offset.saturating_add(self.bytes)
    }

    /// Whether the two have a byte in common.
    pub const fn overlaps(&self, other: &Buffer) -> bool {
        self.bytes > 0 && other.bytes > 0 && self.offset < other.end() && other.offset < self.end()
    }
}

/// Where a value lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the arena.
    Arena(Buffer),
    /// Among the weights.
    Resident,
    /// Nowhere: an input that nothing reads, or something that only loading needs.
    Unplaced,
}

/// One node of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The node that runs.
    pub node: NodeId,
    /// Its scratch memory in the arena, its own while it runs.
    pub workspace: Option<Buffer>,
}

/// A buffer of the arena and what it holds over time, for people to look at.
///
/// Moment 0 is when the inputs are written, moment `i + 1` when the `i`-th node runs, the last moment when the results
/// are read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Allocation {
    buffer: Buffer,
    first: usize,
    last: usize,
    /// The values it holds with the moment each is made, in that order. Empty for a workspace.
    contents: Vec<(usize, ValueId)>,
}

/// The order of a graph's nodes and the place of every buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    load: Vec<NodeId>,
    clip: Vec<Step>,
    step: Vec<Step>,
    resident: Vec<ValueId>,
    places: Vec<Place>,
    allocations: Vec<Allocation>,
    /// Bytes in use at each moment.
    live: Vec<usize>,
    alignment: usize,
    arena_bytes: usize,
    weight_bytes: usize,
}

impl Plan {
    /// Plans a graph for a backend. Nothing is allocated.
    ///
    /// # Errors
    /// [`PlanError::OverBudget`] if the plan needs more than the budget, [`PlanError::TooLarge`] if it needs more than
    /// can be addressed, [`PlanError::Alignment`] if the target's alignment is not a power of two.
    pub fn new(graph: &Graph, target: &dyn Target, options: &PlanOptions<'_>) -> Result<Plan, PlanError> {
        let plan = Plan::without_budget(graph, target)?;
        budget::check(&plan, graph, target, options)?;
        Ok(plan)
    }

    fn without_budget(graph: &Graph, target: &dyn Target) -> Result<Plan, PlanError> {
        let alignment = target.alignment();
        if !alignment.is_power_of_two() {
            return Err(PlanError::Alignment(alignment));
        }
        let facts = Facts::new(graph, target);
        let clip_orders = order::candidates(&facts, Phase::Clip);
        let step_orders = order::candidates(&facts, Phase::Step);

        let mut best: Result<(Liveness, Placement), PlanError> = Err(PlanError::TooLarge);
        for clip in &clip_orders {
            for step in &step_orders {
                let liveness = Liveness::new(&facts, clip, step);
                let Ok(live) = liveness.live_bytes() else { continue };
                let bound = live.into_iter().max().unwrap_or(0);
                let so_far = best.as_ref().map_or(usize::MAX, |(_, placement)| placement.bytes);
                // The graph's own order comes first, and wins unless another is better.
                if bound >= so_far {
                    continue;
                }
                if let Ok(placement) = arena::place(&liveness.lifetimes, alignment, bound, so_far) {
                    best = Ok((liveness, placement));
                }
            }
        }
        let (liveness, placement) = best?;
        Plan::assemble(&facts, &liveness, &placement, alignment)
    }

    fn assemble(
        facts: &Facts<'_>,
        liveness: &Liveness,
        placement: &Placement,
        alignment: usize,
    ) -> Result<Plan, PlanError> {
        let graph = facts.graph;
        let buffer = |i: usize| Buffer { offset: placement.offsets[i], bytes: liveness.lifetimes[i].bytes };
        let resident = facts.resident();
        let mut places: Vec<Place> = liveness
            .of_value
            .iter()
            .map(|i| i.map_or(Place::Unplaced, |i| Place::Arena(buffer(i))))
            .collect();
        for &value in &resident {
            places[value.index()] = Place::Resident;
        }
        let weight_bytes = facts.weight_bytes(&resident).ok_or(PlanError::TooLarge)?;
        weight_bytes.checked_add(placement.bytes).ok_or(PlanError::TooLarge)?;

        let mut allocations: Vec<Allocation> = liveness
            .lifetimes
            .iter()
            .enumerate()
            .map(|(i, l)| Allocation {
                buffer: buffer(i),
                first: l.first,
                last: l.last,
                contents: Vec::new(),
            })
            .collect();
        for (value, _) in graph.value_ids() {
            if let Some(i) = liveness.of_value[value.index()] {
                allocations[i].contents.push((liveness.made_at[value.index()], value));
            }
        }
        for allocation in &mut allocations {
            allocation.contents.sort_unstable();
        }

        let mut steps = liveness
            .order
            .iter()
            .zip(&liveness.of_workspace)
            .map(|(&node, workspace)| Step { node, workspace: workspace.map(buffer) });
        let clip = steps.by_ref().take(liveness.clip_nodes).collect();
        Ok(Plan {
            load: facts.nodes_of(Phase::Load),
            clip,
            step: steps.collect(),
            resident,
            places,
            allocations,
            live: liveness.live_bytes()?,
            alignment,
            arena_bytes: placement.bytes,
            weight_bytes,
        })
    }

    /// The [`Phase::Load`] nodes in an order in which they can run: once, on the host, outside the arena.
    pub fn load_nodes(&self) -> &[NodeId] {
        &self.load
    }

    /// The nodes of the clip or the step phase in the order in which they run. Loading has none.
    pub fn steps(&self, phase: Phase) -> &[Step] {
        match phase {
            Phase::Load => &[],
            Phase::Clip => &self.clip,
            Phase::Step => &self.step,
        }
    }

    /// The weights: values of the load phase that are read later or are results of the graph.
    pub fn resident(&self) -> &[ValueId] {
        &self.resident
    }

    /// Where a value lives. An id out of range lives nowhere.
    pub fn place(&self, value: ValueId) -> Place {
        self.places.get(value.index()).copied().unwrap_or(Place::Unplaced)
    }

    /// The size of the arena: exactly what the nodes touch.
    pub fn arena_bytes(&self) -> usize {
        self.arena_bytes
    }

    /// The size of the weights while the graph runs. For each of [`Plan::resident`]: the copies of the nodes that pack
    /// it ([`Target::packed_weight_bytes`]), one for all nodes of the same op, and the plain tensor ([`Target::weight_bytes`]),
    /// unless all its readers have packed copies and it is not a result of the graph. Copies of weights that the clip phase
    /// computes count as well.
    pub fn weight_bytes(&self) -> usize {
        self.weight_bytes
    }

    /// Weights and arena: what is held while the clip and step phases run. Not in it: what only loading holds
    /// (parameters as they were read, results of load nodes that nothing later reads, plain tensors while they are
    /// being packed), and scratch memory that kernels keep outside the arena, such as one buffer per thread.
    pub fn peak_bytes(&self) -> usize {
        // Their sum was checked when the plan was made.
        self.weight_bytes.saturating_add(self.arena_bytes)
    }

    /// The most bytes in use at once in this order: the arena cannot be smaller.
    pub fn lower_bound(&self) -> usize {
        self.live.iter().copied().max().unwrap_or(0)
    }

    /// The node that runs at a moment, and its phase.
    fn at(&self, moment: usize) -> Option<(Phase, Step)> {
        let i = moment.checked_sub(1)?;
        match self.clip.get(i) {
            Some(&step) => Some((Phase::Clip, step)),
            None => self.step.get(i - self.clip.len()).map(|&step| (Phase::Step, step)),
        }
    }
}
