//! Graphs as JSON: for bug reports, fixtures and other tools.

use std::{
    collections::{HashMap, HashSet},
    fmt::Write,
};

use serde::{Deserialize, Serialize};

use crate::{
    Editor, Graph, GraphBuilder, GraphError, Op, Phase, SharedError, Source, Tensor, TensorType, Value,
    ValueId, order::runnable_order,
};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    name: String,
    #[serde(default)]
    inputs: Vec<InputEntry>,
    #[serde(default)]
    parameters: Vec<ParameterEntry>,
    #[serde(default)]
    constants: Vec<ConstantEntry>,
    #[serde(default)]
    nodes: Vec<NodeEntry>,
    #[serde(default)]
    outputs: Vec<OutputEntry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct InputEntry {
    name: String,
    #[serde(rename = "type")]
    ty: TensorType,
    phase: Phase,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ParameterEntry {
    name: String,
    #[serde(rename = "type")]
    ty: TensorType,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConstantEntry {
    name: String,
    #[serde(rename = "type")]
    ty: TensorType,
    /// The bytes in memory order, two hexadecimal digits each.
    data: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeEntry {
    name: String,
    /// Kept raw, so that an op that does not exist can be reported with its layer.
    op: serde_json::Value,
    inputs: Vec<String>,
    outputs: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OutputEntry {
    name: String,
    value: String,
}

impl Graph {
    /// The graph as JSON, in which values have names. Inputs and parameters keep their names; if constants or results
    /// share a name, all but the first get a number.
    pub fn to_json(&self) -> String {
        let names = self.unique_names();
        let name_of = |id: &ValueId| names[id.index()].clone();
        let mut document = Document {
            name: self.name.clone(),
            inputs: Vec::new(),
            parameters: Vec::new(),
            constants: Vec::new(),
            nodes: Vec::new(),
            outputs: self
                .outputs
                .iter()
                .map(|o| OutputEntry { name: o.name.clone(), value: name_of(&o.value) })
                .collect(),
        };
        for (id, value) in self.value_ids() {
            let (name, ty) = (name_of(&id), value.ty.clone());
            match &value.source {
                Source::Input(phase) => document.inputs.push(InputEntry { name, ty, phase: *phase }),
                Source::Parameter => document.parameters.push(ParameterEntry { name, ty }),
                Source::Constant(tensor) => {
                    document.constants.push(ConstantEntry { name, ty, data: to_hex(tensor.bytes()) });
                }
                Source::Node { .. } => {}
            }
        }
        for node in &self.nodes {
            document.nodes.push(NodeEntry {
                name: node.name.clone(),
                op: serde_json::to_value(&node.op).unwrap_or_default(),
                inputs: node.inputs.iter().map(name_of).collect(),
                outputs: node.outputs.iter().map(name_of).collect(),
            });
        }
        // Only a map with non-string keys fails to serialise, and there is none.
        serde_json::to_string_pretty(&document).unwrap_or_default()
    }

    /// A unique name for each value.
    fn unique_names(&self) -> Vec<String> {
        // The caller's names come first: weights and inputs are looked up by them. The builder has ensured that they
        // differ.
        let is_callers = |source: &Source| matches!(source, Source::Input(_) | Source::Parameter);
        let callers = self.values.iter().filter(|v| is_callers(&v.source));
        let mut taken: HashSet<String> = callers.map(|v| v.name.clone()).collect();
        let mut numbers: HashMap<String, usize> = HashMap::new();
        let name = |value: &Value| {
            let mut name = value.name.clone();
            if !is_callers(&value.source) {
                let number = numbers.entry(value.name.clone()).or_insert(1);
                while !taken.insert(name.clone()) {
                    *number += 1;
                    name = format!("{}#{number}", value.name);
                }
            }
            name
        };
        self.values.iter().map(name).collect()
    }

    /// Reads a graph, checking everything a builder would. Nodes may be in any order; those that no result needs are
    /// checked and dropped, and so are unused parameters and constants.
    ///
    /// # Errors
    /// If the text is not a graph, an op does not exist or refuses its operands, a name refers to nothing, or layers
    /// form a cycle.
    pub fn from_json(text: &str) -> Result<Graph, GraphError> {
        let document: Document = serde_json::from_str(text).map_err(not_a_graph)?;
        let mut g = GraphBuilder::new(document.name);
        let mut known: HashMap<String, ValueId> = HashMap::new();
        let mut declare = |name: String, id: ValueId| match known.insert(name.clone(), id) {
            Some(_) => Err(GraphError::Duplicate(format!("value {name}"))),
            None => Ok(()),
        };
        for entry in document.inputs {
            let id = g.input(&entry.name, entry.ty, entry.phase)?;
            declare(entry.name, id)?;
        }
        for entry in document.parameters {
            let id = g.parameter(&entry.name, entry.ty)?;
            declare(entry.name, id)?;
        }
        for entry in document.constants {
            let bytes = from_hex(&entry.data).ok_or_else(|| {
                not_a_graph(format!("constant {}: its data is not hexadecimal", entry.name))
            })?;
            let tensor = Tensor::from_bytes(entry.ty, &bytes)
                .map_err(|e| not_a_graph(format!("constant {}: {e}", entry.name)))?;
            let id = g.constant(&entry.name, tensor)?;
            declare(entry.name, id)?;
        }
        for i in order(&document.nodes)? {
            let node = &document.nodes[i];
            let op: Op = serde_json::from_value(node.op.clone()).map_err(|e| GraphError::UnknownOp {
                layer: node.name.clone(),
                source: SharedError::new(e),
            })?;
            let inputs = node
                .inputs
                .iter()
                .map(|name| lookup(&known, &node.name, name))
                .collect::<Result<Vec<ValueId>, GraphError>>()?;
            let outputs = g.node(&node.name, op, &inputs)?;
            if outputs.len() != node.outputs.len() {
                return Err(not_a_graph(format!(
                    "{} names {} results, but its op has {}",
                    node.name,
                    node.outputs.len(),
                    outputs.len()
                )));
            }
            for (name, id) in node.outputs.iter().zip(outputs) {
                if known.insert(name.clone(), id).is_some() {
                    return Err(GraphError::Duplicate(format!("value {name}")));
                }
            }
        }
        for entry in document.outputs {
            let value = lookup(&known, &entry.name, &entry.value)?;
            g.output(&entry.name, value)?;
        }
        Editor::new(&g.finish()).finish()
    }
}

fn lookup(known: &HashMap<String, ValueId>, layer: &str, name: &str) -> Result<ValueId, GraphError> {
    known
        .get(name)
        .copied()
        .ok_or_else(|| GraphError::UnknownValue { layer: layer.to_owned(), value: name.to_owned() })
}

/// An order in which the nodes can be added; an error names the layers that form a cycle.
fn order(nodes: &[NodeEntry]) -> Result<Vec<usize>, GraphError> {
    let maker: HashMap<&str, usize> =
        nodes.iter().enumerate().flat_map(|(i, n)| n.outputs.iter().map(move |o| (o.as_str(), i))).collect();
    let makers =
        |n: &NodeEntry| n.inputs.iter().filter_map(|name| maker.get(name.as_str()).copied()).collect();
    let waits_for: Vec<Vec<usize>> = nodes.iter().map(makers).collect();
    runnable_order(nodes.len(), |node| &waits_for[node], 0..nodes.len())
        .map_err(|cycle| GraphError::Cycle(cycle.into_iter().map(|i| nodes[i].name.clone()).collect()))
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| (c as char).to_digit(16).map(|d| d as u8);
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    pairs.iter().map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?)).collect()
}

/// That the text is not a graph, and why.
fn not_a_graph(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> GraphError {
    GraphError::Json(SharedError::new(cause))
}

#[cfg(test)]
mod tests;
