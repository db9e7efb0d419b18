//! A plan as text for people: the figures, a chart of memory over time, and every step.

use std::fmt;

use super::{Buffer, Place, Plan, format_bytes};
use crate::{Graph, Node, Op, Phase, ValueId};

/// Columns of the chart.
const CHART_WIDTH: usize = 84;
/// Lines of the chart.
const CHART_HEIGHT: usize = 8;
/// Columns of a layer's name and of its op.
const LAYER_WIDTH: usize = 32;
const OP_WIDTH: usize = 24;
/// Columns of the whole text.
const WIDTH: usize = 110;

impl fmt::Display for Plan {
    /// The figures alone; [`Plan::display`] shows the rest.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("plan: ")?;
        self.figures(f)
    }
}

/// A plan with its graph's names in it.
struct Named<'a> {
    plan: &'a Plan,
    graph: &'a Graph,
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.plan.write(self.graph, f)
    }
}

impl Plan {
    /// The plan as text, at most 110 columns wide: weights, arena and lower bound, the memory in use over time, and per
    /// step its phase, the bytes in use after it, its layer and op, and where its results lie (in hexadecimal).
    pub fn display<'a>(&'a self, graph: &'a Graph) -> impl fmt::Display + 'a {
        Named { plan: self, graph }
    }

    fn figures(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [load, clip, step] = [self.load.len(), self.clip.len(), self.step.len()];
        let buffers = self.allocations.len();
        writeln!(f, "{load} nodes at load, {clip} a clip, {step} a step; {buffers} buffers")?;
        writeln!(f, "  weights {:>11}  tensors: {}", format_bytes(self.weight_bytes), self.resident.len())?;
        let bound = self.lower_bound();
        write!(f, "  arena   {:>11}  ", format_bytes(self.arena_bytes))?;
        match self.arena_bytes - bound.min(self.arena_bytes) {
            0 => writeln!(f, "the lower bound")?,
            more => writeln!(f, "{} above the lower bound of {}", format_bytes(more), format_bytes(bound))?,
        }
        writeln!(f, "  peak    {:>11}", format_bytes(self.peak_bytes()))
    }

    fn write(&self, graph: &Graph, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "plan {}: ", graph.name())?;
        self.figures(f)?;
        writeln!(f)?;
        self.chart(f)?;

        let layer = "layer";
        writeln!(f, "\n  phase  live after  {layer:LAYER_WIDTH$}  {:OP_WIDTH$}  memory", "op")?;
        for &input in graph.inputs() {
            let value = graph.value(input);
            row(f, ["input", "", &value.name, &value.ty.to_string(), &self.place_text(input)])?;
        }
        let mut freed = vec![0; self.live.len()];
        for allocation in &self.allocations {
            freed[allocation.last] += allocation.buffer.bytes;
        }
        for (moment, (live, freed)) in self.live.iter().zip(freed).enumerate() {
            let Some((phase, step)) = self.at(moment) else { continue };
            let Some(node) = graph.nodes().get(step.node.index()) else { continue };
            let after = format_bytes(live - freed);
            let mut memory = self.results_text(node);
            memory.extend(step.workspace.map(|b| format!("{} workspace", range(b))));
            let mut memory = memory.iter().map(String::as_str);
            let first = memory.next().unwrap_or("");
            row(f, [phase.name(), &after, &node.name, &node.op.to_string(), first])?;
            for more in memory {
                row(f, ["", "", "", "", more])?;
            }
        }
        for output in graph.outputs() {
            row(f, ["output", "", &output.name, "", &self.place_text(output.value)])?;
        }
        Ok(())
    }

    /// Memory in use over time; every column is the most of the moments it stands for.
    fn chart(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let moments = self.live.len();
        let columns =
            if moments >= CHART_WIDTH { CHART_WIDTH } else { moments * (CHART_WIDTH / moments).min(4) };
        let most = self.lower_bound().max(1);
        let eighths: Vec<usize> = (0..columns)
            .map(|c| {
                let first = c * moments / columns;
                let end = ((c + 1) * moments / columns).max(first + 1);
                let live = self.live[first..end].iter().copied().max().unwrap_or(0);
                // Rounded up, so that anything at all can be seen.
                (live as u128 * (8 * CHART_HEIGHT) as u128).div_ceil(most as u128) as usize
            })
            .collect();
        for line in (0..CHART_HEIGHT).rev() {
            let label = match line {
                0 => "0 B".to_owned(),
                l if l == CHART_HEIGHT - 1 => format_bytes(self.lower_bound()),
                _ => String::new(),
            };
            let bars: String = eighths.iter().map(|&n| BLOCKS[n.saturating_sub(8 * line).min(8)]).collect();
            writeln!(f, "  {label:>10} │{}", bars.trim_end())?;
        }
        // Column of the first moment of the step phase.
        let boundary = (self.clip.len() + 1) * columns / moments;
        let axis: String =
            (0..columns).map(|c| if c == boundary && !self.step.is_empty() { '┴' } else { '─' }).collect();
        writeln!(f, "  {:>10} └{axis}", "")?;
        // A clip phase of few nodes has no room for its name.
        let clip = if self.clip.is_empty() || boundary < 5 { "" } else { "clip" };
        let step = if self.step.is_empty() { "" } else { "step" };
        let names = format!("  {:>10}  {clip:boundary$}{step}", "");
        writeln!(f, "{}", names.trim_end())
    }

    fn place_text(&self, value: ValueId) -> String {
        match self.place(value) {
            Place::Arena(buffer) => range(buffer),
            Place::Resident => "weights".to_owned(),
            Place::Unplaced => "nowhere".to_owned(),
        }
    }

    /// Where a node's results lie, and why the first one shares an operand's memory where it does.
    fn results_text(&self, node: &Node) -> Vec<String> {
        let mut texts: Vec<String> = node.outputs.iter().map(|&v| self.place_text(v)).collect();
        if let (Some(text), Some(&result)) = (texts.first_mut(), node.outputs.first())
            && matches!(self.place(result), Place::Arena(b) if b.bytes > 0)
            && node.inputs.iter().any(|&v| self.place(v) == self.place(result))
        {
            text.push_str(if matches!(node.op, Op::Reshape(_)) { " view" } else { " in place" });
        }
        texts
    }

    /// The phase a buffer is first used in.
    pub(super) fn phase_at(&self, moment: usize) -> Phase {
        self.at(moment).map_or(Phase::Step, |(phase, _)| phase)
    }
}

fn range(buffer: Buffer) -> String {
    if buffer.bytes == 0 {
        return "empty".to_owned();
    }
    format!("{:x}..{:x}", buffer.offset, buffer.end())
}

fn row(f: &mut fmt::Formatter<'_>, [phase, live, layer, op, memory]: [&str; 5]) -> fmt::Result {
    let (layer, op) = (tail(layer, LAYER_WIDTH), head(op, OP_WIDTH));
    let line = format!("  {phase:<6} {live:>10}  {layer:LAYER_WIDTH$}  {op:OP_WIDTH$}  {memory}");
    writeln!(f, "{}", head(line.trim_end(), WIDTH))
}

/// The beginning of a text that is too long.
fn head(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width - 1).chain(['…']).collect()
}

/// The end of a text that is too long: the part that distinguishes layers.
fn tail(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    ['…'].into_iter().chain(text.chars().skip(length - (width - 1))).collect()
}
