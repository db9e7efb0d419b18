//! A picture of the arena: time to the right, addresses upwards, one rectangle per buffer.

use std::fmt::{self, Write};

use super::{Allocation, Plan, format_bytes};
use crate::{Graph, Phase, ValueId};

/// The drawing area, and the space around it for labels.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 84.0;
const TOP: f64 = 56.0;
const RIGHT: f64 = 32.0;
const BOTTOM: f64 = 52.0;
/// How many of a buffer's values its tooltip names.
const NAMES: usize = 6;

/// What a colour stands for.
const LEGEND: [(&str, &str); 4] =
    [("input", "#8fb8a8"), ("clip phase", "#e3b04b"), ("step phase", "#5b8fc9"), ("workspace", "#b5b5bd")];

impl Plan {
    /// The arena over time as an SVG document. A rectangle's tooltip names the layers, the size and the range.
    pub fn to_svg(&self, graph: &Graph) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.draw(graph, &mut text);
        text
    }

    fn draw(&self, graph: &Graph, f: &mut String) -> fmt::Result {
        let moments = self.live.len().max(1);
        let x = |moment: usize| LEFT + WIDTH * moment as f64 / moments as f64;
        let y = |byte: usize| TOP + HEIGHT * (1.0 - byte as f64 / self.arena_bytes.max(1) as f64);
        let (width, height) = (LEFT + WIDTH + RIGHT, TOP + HEIGHT + BOTTOM);
        writeln!(
            f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"#333\">"
        )?;
        writeln!(f, "<rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>")?;
        writeln!(
            f,
            "<text x=\"{LEFT}\" y=\"22\" font-size=\"15\" font-weight=\"600\">{}: arena {}, lower bound {}, weights {}</text>",
            escaped(graph.name()),
            format_bytes(self.arena_bytes),
            format_bytes(self.lower_bound()),
            format_bytes(self.weight_bytes)
        )?;
        for (i, (name, colour)) in LEGEND.iter().enumerate() {
            let left = LEFT + 110.0 * i as f64;
            writeln!(f, "<rect x=\"{left}\" y=\"33\" width=\"12\" height=\"12\" fill=\"{colour}\"/>")?;
            writeln!(f, "<text x=\"{}\" y=\"43\">{name}</text>", left + 17.0)?;
        }

        writeln!(
            f,
            "<rect x=\"{LEFT}\" y=\"{TOP}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#f6f6f8\"/>"
        )?;
        // Thin enough to leave something of a buffer that lives for one of thousands of nodes.
        let border = ((x(1) - x(0)) / 6.0).min(0.5);
        for allocation in self.allocations.iter().filter(|a| a.buffer.bytes > 0) {
            let (left, top) = (x(allocation.first), y(allocation.buffer.end()));
            writeln!(
                f,
                "<rect x=\"{left:.2}\" y=\"{top:.2}\" width=\"{:.2}\" height=\"{:.2}\" fill=\"{}\" \
                 stroke=\"#fff\" stroke-width=\"{border:.3}\"><title>{}</title></rect>",
                x(allocation.last + 1) - left,
                y(allocation.buffer.offset) - top,
                self.colour(allocation),
                escaped(&self.tooltip(graph, allocation))
            )?;
        }

        let (floor, ceiling) = (TOP + HEIGHT, TOP);
        for quarter in 0..=4 {
            let byte = self.arena_bytes / 4 * quarter + self.arena_bytes % 4 * quarter / 4;
            let at = y(byte);
            writeln!(f, "<path d=\"M{} {at:.2}H{LEFT}\" stroke=\"#333\"/>", LEFT - 5.0)?;
            let label = format_bytes(byte);
            writeln!(
                f,
                "<text x=\"{}\" y=\"{:.2}\" text-anchor=\"end\">{label}</text>",
                LEFT - 8.0,
                at + 4.0
            )?;
        }
        for moment in ticks(moments) {
            let at = x(moment) + (x(1) - x(0)) / 2.0;
            writeln!(f, "<path d=\"M{at:.2} {floor}v5\" stroke=\"#333\"/>")?;
            let label = moment_name(moment, moments);
            writeln!(f, "<text x=\"{at:.2}\" y=\"{}\" text-anchor=\"middle\">{label}</text>", floor + 18.0)?;
        }
        if !self.clip.is_empty() && !self.step.is_empty() {
            let at = x(self.clip.len() + 1);
            writeln!(f, "<path d=\"M{at:.2} {ceiling}V{floor}\" stroke=\"#333\" stroke-dasharray=\"4 3\"/>")?;
        }
        writeln!(f, "<path d=\"M{LEFT} {ceiling}V{floor}h{WIDTH}\" fill=\"none\" stroke=\"#333\"/>")?;
        let middle = LEFT + WIDTH / 2.0;
        writeln!(
            f,
            "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">nodes in the order they run</text>",
            floor + 40.0
        )?;
        writeln!(
            f,
            "<text transform=\"translate(14 {}) rotate(-90)\" text-anchor=\"middle\">address in the arena</text>",
            TOP + HEIGHT / 2.0
        )?;
        writeln!(f, "</svg>")
    }

    fn colour(&self, allocation: &Allocation) -> &'static str {
        let which = match (allocation.contents.is_empty(), allocation.first) {
            (true, _) => 3,
            (false, 0) => 0,
            (false, moment) => match self.phase_at(moment) {
                Phase::Load | Phase::Clip => 1,
                Phase::Step => 2,
            },
        };
        LEGEND[which].1
    }

    fn tooltip(&self, graph: &Graph, allocation: &Allocation) -> String {
        let name = |value: &ValueId| graph.values().get(value.index()).map_or("?", |v| v.name.as_str());
        let mut names: Vec<&str> = allocation.contents.iter().take(NAMES).map(|(_, v)| name(v)).collect();
        if allocation.contents.len() > NAMES {
            names.push("…");
        }
        let layer = |moment| {
            let node = self.at(moment).and_then(|(_, step)| graph.nodes().get(step.node.index()));
            node.map_or("?", |n| n.name.as_str())
        };
        let what = match names.is_empty() {
            true => format!("workspace of {}", layer(allocation.first)),
            false => names.join(" → "),
        };
        let buffer = allocation.buffer;
        format!(
            "{what}\n{}, {:x}..{:x}\nfrom {} to {}",
            format_bytes(buffer.bytes),
            buffer.offset,
            buffer.end(),
            moment_name(allocation.first, self.live.len()),
            moment_name(allocation.last, self.live.len())
        )
    }
}

/// What happens at a moment: nodes are counted from 1.
fn moment_name(moment: usize, moments: usize) -> String {
    match moment {
        0 => "inputs".to_owned(),
        m if m + 1 >= moments => "results".to_owned(),
        m => format!("node {m}"),
    }
}

/// Up to eight moments to label: the first, the last and some between that leave those two room.
fn ticks(moments: usize) -> Vec<usize> {
    let last = moments - 1;
    let step = (last / 7).max(1);
    let mut ticks: Vec<usize> = (0..last).step_by(step).filter(|t| t + step / 2 < last).collect();
    ticks.push(last);
    ticks
}

/// Text with XML's special characters escaped, and without those that it does not allow.
fn escaped(text: &str) -> String {
    let text = text.replace(|character: char| character.is_control() && character != '\n', "\u{fffd}");
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
