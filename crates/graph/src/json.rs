//! Graphs as JSON: for bug reports, fixtures and other tools.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::{Editor, Graph, GraphBuilder, GraphError, Op, Phase, Source, Tensor, TensorType, ValueId};

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
    bytes: Vec<u8>,
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
    /// The graph as JSON. Values are named; a name that stands for two gets a number.
    pub fn to_json(&self) -> String {
        let mut taken: HashMap<String, usize> = HashMap::new();
        let names: Vec<String> = self
            .values
            .iter()
            .map(|v| {
                let count = taken.entry(v.name.clone()).or_default();
                *count += 1;
                if *count == 1 { v.name.clone() } else { format!("{}#{count}", v.name) }
            })
            .collect();
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
                    document.constants.push(ConstantEntry { name, ty, bytes: tensor.bytes().to_vec() });
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
        // Only a map with keys that are no strings fails to serialise, and there is none.
        serde_json::to_string_pretty(&document).unwrap_or_default()
    }

    /// Reads a graph, checking everything a builder would. Nodes may stand in any order.
    ///
    /// # Errors
    /// Where the text is no graph, an op does not exist or refuses its operands, a name refers to nothing, or layers
    /// wait for each other.
    pub fn from_json(text: &str) -> Result<Graph, GraphError> {
        let document: Document = serde_json::from_str(text).map_err(|e| GraphError::Json(e.to_string()))?;
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
            let tensor = Tensor::from_bytes(entry.ty, &entry.bytes)
                .map_err(|e| GraphError::Json(format!("constant {}: {e}", entry.name)))?;
            let id = g.constant(&entry.name, tensor)?;
            declare(entry.name, id)?;
        }
        for i in order(&document.nodes)? {
            let node = &document.nodes[i];
            let op: Op = serde_json::from_value(node.op.clone())
                .map_err(|e| GraphError::UnknownOp { layer: node.name.clone(), problem: e.to_string() })?;
            let inputs = node
                .inputs
                .iter()
                .map(|name| lookup(&known, &node.name, name))
                .collect::<Result<Vec<ValueId>, GraphError>>()?;
            let outputs = g.node(&node.name, op, &inputs)?;
            if outputs.len() != node.outputs.len() {
                return Err(GraphError::Json(format!(
                    "{} names {} results, the op has {}",
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

/// An order in which the nodes can be added; an error names the layers that wait for each other.
fn order(nodes: &[NodeEntry]) -> Result<Vec<usize>, GraphError> {
    let maker: HashMap<&str, usize> =
        nodes.iter().enumerate().flat_map(|(i, n)| n.outputs.iter().map(move |o| (o.as_str(), i))).collect();
    let waits_for = |i: usize| nodes[i].inputs.iter().filter_map(|name| maker.get(name.as_str()).copied());
    let mut readers = vec![Vec::new(); nodes.len()];
    let mut waiting = vec![0usize; nodes.len()];
    for (i, count) in waiting.iter_mut().enumerate() {
        for j in waits_for(i) {
            readers[j].push(i);
            *count += 1;
        }
    }
    let mut ready: std::collections::VecDeque<usize> =
        (0..nodes.len()).filter(|&i| waiting[i] == 0).collect();
    let mut sorted = Vec::with_capacity(nodes.len());
    while let Some(i) = ready.pop_front() {
        sorted.push(i);
        for &reader in &readers[i] {
            waiting[reader] -= 1;
            if waiting[reader] == 0 {
                ready.push_back(reader);
            }
        }
    }
    let Some(start) = waiting.iter().position(|&w| w > 0) else {
        return Ok(sorted);
    };
    // Every node left waits for another one left: following them must come round.
    let mut path = vec![start];
    loop {
        let last = path[path.len() - 1];
        let Some(next) = waits_for(last).find(|&j| waiting[j] > 0) else {
            return Err(GraphError::Cycle(vec![nodes[start].name.clone()]));
        };
        if let Some(at) = path.iter().position(|&i| i == next) {
            let mut cycle: Vec<String> = path[at..].iter().map(|&i| nodes[i].name.clone()).collect();
            cycle.push(nodes[next].name.clone());
            return Err(GraphError::Cycle(cycle));
        }
        path.push(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        DType,
        op::{Activation, Conv},
    };

    fn example() -> Graph {
        let mut g = GraphBuilder::new("example");
        let x = g.input("x", TensorType::new(DType::F16, [2, 4, 4, 3]), Phase::Step).unwrap();
        let w = g.parameter("w", TensorType::new(DType::F16, [5, 1, 3, 3, 3])).unwrap();
        let k = g.constant("k", Tensor::from_slice([1], &[0.5f32]).unwrap()).unwrap();
        let y = g.conv("conv", x, w, None, Conv::spatial([3, 3], 1, 1)).unwrap();
        let z = g.activate("act", y, Activation::Silu).unwrap();
        let z = g.mul("act", z, k).unwrap();
        g.output("z", z).unwrap();
        g.finish()
    }

    #[test]
    fn a_graph_survives_the_round_trip() {
        let graph = example();
        let again = Graph::from_json(&graph.to_json()).unwrap();
        assert_eq!(again.to_json(), Graph::from_json(&again.to_json()).unwrap().to_json());
        assert_eq!(
            again.nodes().iter().map(|n| &n.op).collect::<Vec<_>>(),
            graph.nodes().iter().map(|n| &n.op).collect::<Vec<_>>()
        );
    }

    #[test]
    fn an_unknown_op_names_its_layer() {
        let text = example().to_json().replace("\"silu\"", "\"swoosh\"");
        let error = Graph::from_json(&text).unwrap_err().to_string();
        assert!(error.starts_with("act: ") && error.contains("swoosh"), "{error}");
        let text = example().to_json().replace("\"activate\"", "\"fizz\"");
        let error = Graph::from_json(&text).unwrap_err().to_string();
        assert!(error.starts_with("act: ") && error.contains("fizz"), "{error}");
    }

    #[test]
    fn a_cycle_is_named() {
        let text = r#"{"name": "loop", "inputs": [], "nodes": [
            {"name": "a", "op": {"scale": {"factor": 1.0}}, "inputs": ["y"], "outputs": ["x"]},
            {"name": "b", "op": {"scale": {"factor": 1.0}}, "inputs": ["x"], "outputs": ["y"]}],
            "outputs": [{"name": "y", "value": "y"}]}"#;
        assert_eq!(Graph::from_json(text).unwrap_err().to_string(), "these layers form a cycle: a → b → a");
    }

    #[test]
    fn a_missing_value_is_named() {
        let text = example().to_json().replace("\"value\": \"act#2\"", "\"value\": \"nothing\"");
        assert_eq!(Graph::from_json(&text).unwrap_err().to_string(), "z: there is no value nothing");
    }

    #[test]
    fn text_that_is_no_graph_is_an_error() {
        for text in ["", "{", "[]", "{\"name\": 3}", "null"] {
            assert!(matches!(Graph::from_json(text), Err(GraphError::Json(_))), "{text}");
        }
    }
}
