//! Checks a finished plan without trusting how it was made.

use super::{Buffer, Place, Plan, PlanError};
use crate::{Graph, NodeId, Op, Phase, Source, ValueId};

impl Plan {
    /// Checks that the plan holds for its graph: every node runs once, in its phase and after what it reads; every
    /// value has a place of its size, aligned, inside the arena; and no two buffers that are needed at the same time
    /// overlap. Lifetimes are recomputed, value by value, from the steps and the places alone.
    ///
    /// Two kinds of overlap are allowed: a reshape has exactly its operand's memory, and a node's first result may have
    /// exactly the memory of an operand that nothing reads after the node. Whether the backend can work in place there
    /// is not checked here: the planner has asked it.
    ///
    /// # Errors
    /// [`PlanError::Broken`], naming the layers.
    pub fn verify(&self, graph: &Graph) -> Result<(), PlanError> {
        let problem = |text: String| Err(PlanError::Broken(text));
        if self.places.len() != graph.values().len() {
            return problem(format!(
                "it has {} values, {} has {}",
                self.places.len(),
                graph.name(),
                graph.values().len()
            ));
        }
        let schedule = Schedule::new(self, graph)?;
        let mut ranges = Vec::new();
        for (id, value) in graph.value_ids() {
            match (self.place(id), schedule.life(id)) {
                (Place::Arena(buffer), Some((first, last))) => {
                    if buffer.bytes != value.ty.bytes() {
                        return problem(format!(
                            "{} has {} bytes, not {}",
                            value.name,
                            buffer.bytes,
                            value.ty.bytes()
                        ));
                    }
                    self.inside(&value.name, buffer)?;
                    ranges.push(Range { buffer, first, last, value: Some(id), name: &value.name });
                }
                (Place::Arena(_), None) => return problem(format!("{} needs no memory", value.name)),
                (Place::Resident, None) | (Place::Unplaced, None) => {}
                (place, Some(_)) => return problem(format!("{} is {place:?}, not in the arena", value.name)),
            }
        }
        for (i, step) in self.clip.iter().chain(&self.step).enumerate() {
            let node = graph.node(step.node);
            if let (Op::Reshape(_), [from], [to]) = (&node.op, &node.inputs[..], &node.outputs[..])
                && self.place(*from) != self.place(*to)
            {
                return problem(format!(
                    "{} is a reshape but is not in the same place as its operand",
                    node.name
                ));
            }
            if let Some(buffer) = step.workspace {
                self.inside(&node.name, buffer)?;
                ranges.push(Range { buffer, first: i + 1, last: i + 1, value: None, name: &node.name });
            }
        }

        ranges.sort_by_key(|r| r.first);
        let mut alive: Vec<&Range<'_>> = Vec::new();
        for range in &ranges {
            alive.retain(|r| r.last >= range.first);
            for other in alive.iter().filter(|r| r.buffer.overlaps(&range.buffer)) {
                if !schedule.may_share(graph, other, range) {
                    return problem(format!("{} and {} overlap", other.name, range.name));
                }
            }
            alive.push(range);
        }
        Ok(())
    }

    fn inside(&self, name: &str, buffer: Buffer) -> Result<(), PlanError> {
        let end = buffer.offset.checked_add(buffer.bytes);
        if end.is_none_or(|end| end > self.arena_bytes) {
            return Err(PlanError::Broken(format!("{name} lies outside the arena")));
        }
        if !buffer.offset.is_multiple_of(self.alignment) {
            return Err(PlanError::Broken(format!("{name} is not aligned")));
        }
        Ok(())
    }
}

/// Memory in use from the first to the last moment, by a value or, without one, by a workspace.
struct Range<'g> {
    buffer: Buffer,
    first: usize,
    last: usize,
    value: Option<ValueId>,
    name: &'g str,
}

/// From when each value exists and when it is last needed, in the plan's moments.
struct Schedule {
    /// Per node, the moment at which it runs; 0 for what runs at load.
    moments: Vec<usize>,
    life: Vec<Option<(usize, usize)>>,
    /// Per value, the one that a chain of reshapes starts from.
    origin: Vec<ValueId>,
}

impl Schedule {
    fn new(plan: &Plan, graph: &Graph) -> Result<Self, PlanError> {
        let problem = |text: String| Err(PlanError::Broken(text));
        let order: Vec<(Phase, NodeId)> = (plan.load.iter().map(|&n| (Phase::Load, n)))
            .chain(plan.clip.iter().map(|s| (Phase::Clip, s.node)))
            .chain(plan.step.iter().map(|s| (Phase::Step, s.node)))
            .collect();
        let mut known: Vec<Option<Phase>> = graph
            .values()
            .iter()
            .map(|v| match v.source {
                Source::Input(phase) => Some(phase),
                Source::Parameter | Source::Constant(_) => Some(Phase::Load),
                Source::Node { .. } => None,
            })
            .collect();
        let end = plan.clip.len() + plan.step.len() + 1;
        let mut moments = vec![None; graph.nodes().len()];
        let mut life = vec![None; known.len()];
        let mut origin: Vec<ValueId> = graph.value_ids().map(|(id, _)| id).collect();
        for (i, &(phase, id)) in order.iter().enumerate() {
            let moment = (i + 1).saturating_sub(plan.load.len());
            let Some(node) = graph.nodes().get(id.index()) else {
                return problem(format!("there is no node {}", id.index()));
            };
            if moments[id.index()].replace(moment).is_some() {
                return problem(format!("{} runs twice", node.name));
            }
            for input in &node.inputs {
                let value = graph.value(*input);
                match known[input.index()] {
                    None => return problem(format!("{} runs before {}", node.name, value.name)),
                    Some(made) if made > phase => {
                        return problem(format!("{} runs before {} is known", node.name, value.name));
                    }
                    Some(Phase::Load) if phase > Phase::Load && plan.place(*input) != Place::Resident => {
                        return problem(format!("{} reads {}, which is not resident", node.name, value.name));
                    }
                    Some(Phase::Load) => {}
                    Some(made) => {
                        let (_, last) = life[input.index()].get_or_insert((0, 0));
                        *last = if made < phase { end } else { moment.max(*last) };
                    }
                }
            }
            if let (Op::Reshape(_), [from], [to]) = (&node.op, &node.inputs[..], &node.outputs[..]) {
                origin[to.index()] = origin[from.index()];
            }
            let latest = node.inputs.iter().filter_map(|v| known[v.index()]).max().unwrap_or(Phase::Load);
            if latest != phase {
                return problem(format!("{} belongs to the {} phase", node.name, latest.name()));
            }
            for output in &node.outputs {
                known[output.index()] = Some(phase);
                life[output.index()] = (phase > Phase::Load).then_some((moment, moment));
            }
        }
        for output in graph.outputs() {
            let name = &output.name;
            match known[output.value.index()] {
                None => return problem(format!("{name} is never made")),
                Some(Phase::Load) if plan.place(output.value) != Place::Resident => {
                    return problem(format!("{name} is not resident"));
                }
                Some(Phase::Load) => {}
                Some(_) => life[output.value.index()].get_or_insert((0, end)).1 = end,
            }
        }
        let Some(moments) = moments.iter().copied().collect::<Option<Vec<usize>>>() else {
            let missing = graph.node_ids().find(|(id, _)| moments[id.index()].is_none());
            return problem(format!("{} never runs", missing.map_or("a node", |(_, n)| n.name.as_str())));
        };
        Ok(Schedule { moments, life, origin })
    }

    fn life(&self, value: ValueId) -> Option<(usize, usize)> {
        self.life[value.index()]
    }

    /// Whether two buffers that overlap in space and time may do so.
    fn may_share(&self, graph: &Graph, a: &Range<'_>, b: &Range<'_>) -> bool {
        let (Some(x), Some(y)) = (a.value, b.value) else { return false };
        if a.buffer != b.buffer {
            return false;
        }
        let written_over = |operand: &Range<'_>, from: ValueId, to: ValueId| match graph.value(to).source {
            Source::Node { node, output: 0 } => {
                graph.node(node).inputs.contains(&from) && operand.last == self.moments[node.index()]
            }
            _ => false,
        };
        self.origin[x.index()] == self.origin[y.index()] || written_over(a, x, y) || written_over(b, y, x)
    }
}
