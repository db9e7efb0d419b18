//! Runs a plan on an arena of tags: every byte remembers which value wrote it, and every read checks. It shares no code
//! with the planner.

use super::{super::*, Backend};
use crate::{Op, Source};

/// Who wrote a byte: a value in one run of its phase, or a workspace.
type Tag = (usize, usize);

const UNTOUCHED: Tag = (usize::MAX, 0);
const SCRATCH: Tag = (usize::MAX - 1, 0);

struct Simulation<'a> {
    plan: &'a Plan,
    graph: &'a Graph,
    target: &'a Backend,
    arena: Vec<Tag>,
    touched: Vec<bool>,
    /// Per value, the tag it carries.
    tags: Vec<Tag>,
}

/// Two clips: all inputs written, the clip phase once, the step phase twice with its inputs written before each; then which
/// bytes were touched.
pub(super) fn run(plan: &Plan, graph: &Graph, target: &Backend) {
    let bytes = plan.arena_bytes();
    let mut simulation = Simulation {
        plan,
        graph,
        target,
        arena: vec![UNTOUCHED; bytes],
        touched: vec![false; bytes],
        tags: vec![UNTOUCHED; graph.values().len()],
    };
    for clip in 0..2 {
        // A tag of its own for each run, so that nothing left from the clip before passes for the new one's.
        let first = 2 * clip;
        simulation.write_inputs(Phase::Clip, first);
        simulation.write_inputs(Phase::Step, first);
        simulation.run_phase(Phase::Clip, first);
        simulation.check_outputs(&[Phase::Clip]);
        for replay in first..first + 2 {
            if replay > first {
                simulation.write_inputs(Phase::Step, replay);
            }
            simulation.run_phase(Phase::Step, replay);
            simulation.check_outputs(&[Phase::Clip, Phase::Step]);
        }
    }

    let touched = &simulation.touched;
    let ranges = || {
        let workspaces = [Phase::Clip, Phase::Step].into_iter().flat_map(|p| plan.steps(p));
        let values = graph.value_ids().filter_map(|(id, _)| match plan.place(id) {
            Place::Arena(buffer) => Some(buffer),
            _ => None,
        });
        values.chain(workspaces.filter_map(|s| s.workspace)).filter(|b| b.bytes > 0)
    };
    let mut padding = vec![false; bytes];
    for buffer in ranges() {
        let end = buffer.end();
        for byte in &mut padding[end..end.next_multiple_of(target.alignment).min(bytes)] {
            *byte = true;
        }
    }
    let unused = (0..bytes).find(|&b| !touched[b] && !padding[b]);
    assert_eq!(unused, None, "a byte that nothing needs");
    let highest = touched.iter().rposition(|&t| t).map_or(0, |b| b + 1);
    assert_eq!(highest, bytes, "the arena's size is not what the nodes touch");
}

impl Simulation<'_> {
    fn range(&self, value: ValueId) -> Option<std::ops::Range<usize>> {
        match self.plan.place(value) {
            Place::Arena(buffer) => Some(buffer.offset..buffer.offset + buffer.bytes),
            _ => None,
        }
    }

    fn write(&mut self, range: std::ops::Range<usize>, tag: Tag) {
        self.arena[range.clone()].fill(tag);
        self.touched[range].fill(true);
    }

    fn write_value(&mut self, value: ValueId, replay: usize) {
        let tag = (value.index(), replay);
        self.tags[value.index()] = tag;
        let range = self.range(value).unwrap();
        self.write(range, tag);
    }

    fn intact(&self, value: ValueId) -> bool {
        match self.range(value) {
            Some(range) => self.arena[range].iter().all(|&t| t == self.tags[value.index()]),
            None => self.plan.place(value) == Place::Resident,
        }
    }

    fn write_inputs(&mut self, phase: Phase, replay: usize) {
        for &input in self.graph.inputs() {
            if self.graph.value(input).source == Source::Input(phase) && self.range(input).is_some() {
                self.write_value(input, replay);
            }
        }
    }

    fn run_phase(&mut self, phase: Phase, replay: usize) {
        for step in self.plan.steps(phase).to_vec() {
            let node = self.graph.node(step.node);
            let check = |simulation: &Self, input: ValueId, when: &str| {
                let name = &simulation.graph.value(input).name;
                assert!(simulation.intact(input), "{} {when} finds {name} overwritten", node.name);
            };
            if let Op::Reshape(_) = node.op {
                check(self, node.inputs[0], "at its start");
                self.tags[node.outputs[0].index()] = self.tags[node.inputs[0].index()];
                assert_eq!(self.range(node.inputs[0]), self.range(node.outputs[0]));
                continue;
            }
            // Everything but the first result is written before the operands are read for the last time.
            if let Some(workspace) = step.workspace {
                self.write(workspace.offset..workspace.end(), SCRATCH);
            }
            for &output in &node.outputs[1..] {
                self.write_value(output, replay);
            }
            for &input in &node.inputs {
                check(self, input, "while it runs");
            }
            let result = node.outputs[0];
            let before: Vec<(usize, bool)> = (0..node.inputs.len())
                .map(|k| (k, self.range(node.inputs[k]).is_some_and(|r| Some(r) == self.range(result))))
                .collect();
            self.write_value(result, replay);
            for (k, same) in before {
                let input = node.inputs[k];
                let empty = self.graph.ty(input).bytes() == 0;
                if same && !empty {
                    assert!(self.target.in_place(&node.op, k), "{} writes over operand {k}", node.name);
                } else {
                    check(self, input, "after its result");
                }
            }
            for &output in &node.outputs {
                check(self, output, "at its end");
            }
            if let Some(workspace) = step.workspace {
                let scratch = &self.arena[workspace.offset..workspace.end()];
                assert!(scratch.iter().all(|&t| t == SCRATCH), "{}: workspace overwritten", node.name);
            }
        }
    }

    fn check_outputs(&self, phases: &[Phase]) {
        let known = self.graph.phases();
        for output in self.graph.outputs() {
            let phase = known[output.value.index()];
            if phase == Phase::Load || phases.contains(&phase) {
                assert!(self.intact(output.value), "output {} overwritten", output.name);
            }
        }
    }
}
