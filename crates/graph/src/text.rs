//! Graphs as people read them: text, and Graphviz.

use std::fmt::{self, Write};

use crate::{Graph, Phase, Source, ValueId};

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phases = self.phases();
        writeln!(
            f,
            "graph {}: {} nodes, {} parameters, {:.3} GFLOP per step",
            self.name,
            self.nodes.len(),
            self.parameter_count(),
            self.step_flops() as f64 / 1e9
        )?;
        for &id in &self.inputs {
            let value = self.value(id);
            writeln!(f, "  input  {} {}  ({})", value.name, value.ty, phases[id.index()].name())?;
        }
        for node in &self.nodes {
            let phase = node.outputs.first().map_or(Phase::Load, |v| phases[v.index()]);
            let outputs: Vec<String> = node.outputs.iter().map(|v| format!("%{}", v.0)).collect();
            let operands: Vec<String> = node.inputs.iter().map(|&v| self.reference(v)).collect();
            let types: Vec<String> = node.outputs.iter().map(|&v| self.ty(v).to_string()).collect();
            writeln!(
                f,
                "  {} {} = {} ({})  {}  # {}",
                phase.name(),
                outputs.join(", "),
                node.op,
                operands.join(", "),
                types.join(", "),
                node.name
            )?;
        }
        for output in &self.outputs {
            writeln!(f, "  output {} = {}", output.name, self.reference(output.value))?;
        }
        Ok(())
    }
}

impl Graph {
    /// How a value is written as an operand: a node's result by its number, anything else by its name.
    pub(crate) fn reference(&self, id: ValueId) -> String {
        match self.value(id).source {
            Source::Node { .. } => format!("%{}", id.0),
            _ => self.value(id).name.clone(),
        }
    }

    /// The graph in Graphviz's language. Colours show the phases; weights are left out unless they are results.
    pub fn to_graphviz(&self) -> String {
        let phases = self.phases();
        let mut text =
            format!("digraph {} {{\n  rankdir=TB;\n  node [shape=box, style=filled];\n", quoted(&self.name));
        let mut line = |arguments: fmt::Arguments<'_>| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "  {arguments}");
        };
        for &id in &self.inputs {
            let value = self.value(id);
            let label = quoted(&format!("{}\n{}", value.name, value.ty));
            line(format_args!("v{} [label={label}, shape=ellipse, fillcolor=white];", id.0));
        }
        for (i, node) in self.nodes.iter().enumerate() {
            let phase = node.outputs.first().map_or(Phase::Load, |v| phases[v.index()]);
            let colour = match phase {
                Phase::Load => "lightgrey",
                Phase::Clip => "lightyellow",
                Phase::Step => "lightblue",
            };
            let types: Vec<String> = node.outputs.iter().map(|&v| self.ty(v).to_string()).collect();
            let label = quoted(&format!("{}\n{}\n{}", node.name, node.op, types.join(", ")));
            line(format_args!("n{i} [label={label}, fillcolor={colour}];"));
            for &input in &node.inputs {
                match self.value(input).source {
                    Source::Node { node, .. } => line(format_args!("n{} -> n{i};", node.0)),
                    Source::Input(_) => line(format_args!("v{} -> n{i};", input.0)),
                    Source::Parameter | Source::Constant(_) => {}
                }
            }
        }
        for (i, output) in self.outputs.iter().enumerate() {
            let label = quoted(&output.name);
            line(format_args!("o{i} [label={label}, shape=ellipse, fillcolor=white];"));
            let value = self.value(output.value);
            match value.source {
                Source::Node { node, .. } => line(format_args!("n{} -> o{i};", node.0)),
                Source::Input(_) => line(format_args!("v{} -> o{i};", output.value.0)),
                Source::Parameter | Source::Constant(_) => {
                    let label = quoted(&format!("{}\n{}", value.name, value.ty));
                    line(format_args!("v{} [label={label}, fillcolor=lightgrey];", output.value.0));
                    line(format_args!("v{} -> o{i};", output.value.0));
                }
            }
        }
        text.push_str("}\n");
        text
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

#[cfg(test)]
mod tests {
    use crate::{DType, GraphBuilder, Phase, Tensor, TensorType, op::Conv};

    #[test]
    fn every_end_of_an_edge_is_declared() {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", TensorType::new(DType::F32, [2]), Phase::Step).unwrap();
        let w = g.parameter("w", TensorType::new(DType::F32, [2])).unwrap();
        let c = g.constant("c", Tensor::from_slice([1], &[1f32]).unwrap()).unwrap();
        let y = g.add("y", x, w).unwrap();
        for (i, value) in [x, w, c, y].into_iter().enumerate() {
            g.output(&format!("o{i}"), value).unwrap();
        }
        let dot = g.finish().to_graphviz();
        let edges: Vec<(&str, &str)> =
            dot.lines().filter_map(|l| l.trim().trim_end_matches(';').split_once(" -> ")).collect();
        assert_eq!(edges.len(), 5, "{dot}");
        for end in edges.into_iter().flat_map(|(from, to)| [from, to]) {
            assert!(dot.contains(&format!("  {end} [label=")), "{end} in {dot}");
        }
        assert!(dot.contains("v1 [label=\"w\\nf32[2]\", fillcolor=lightgrey];"), "{dot}");
    }

    #[test]
    fn text_and_graphviz_show_layers_types_and_edges() {
        let mut g = GraphBuilder::new("a \"quoted\" name");
        let x = g.input("x", TensorType::new(DType::F16, [1, 4, 4, 2]), Phase::Step).unwrap();
        let w = g.parameter("conv.weight", TensorType::new(DType::F16, [3, 1, 3, 3, 2])).unwrap();
        let y = g.conv("conv", x, w, None, Conv::spatial([3, 3], 1, 1)).unwrap();
        g.output("y", y).unwrap();
        let graph = g.finish();
        let text = graph.to_string();
        assert!(
            text.contains("step %2 = conv 1×3×3 pad [0, 1, 1] (x, conv.weight)  f16[1, 4, 4, 3]  # conv"),
            "{text}"
        );
        let dot = graph.to_graphviz();
        assert!(dot.starts_with("digraph \"a \\\"quoted\\\" name\" {"), "{dot}");
        assert!(dot.contains("v0 -> n0;") && dot.contains("n0 -> o0;"), "{dot}");
    }
}
