use proptest::prelude::*;

use super::*;
use crate::{
    DType, NodeId,
    op::{Activation, Conv, SamplerStep},
};

/// Every kind of value, both phases, a node with two results, a repeated layer name, a dead branch, and nodes that do not
/// stand in the order a first-in-first-out sort would give.
fn example() -> Graph {
    let mut g = GraphBuilder::new("example");
    let x = g.input("x", TensorType::new(DType::F16, [2, 4, 4, 3]), Phase::Step).unwrap();
    let image = g.input("image", TensorType::new(DType::F16, [2, 4, 4, 5]), Phase::Clip).unwrap();
    g.input("unused", TensorType::new(DType::U8, [0, 7]), Phase::Clip).unwrap();
    let w = g.parameter("w", TensorType::new(DType::F16, [5, 1, 3, 3, 3])).unwrap();
    let k = g.constant("k", Tensor::from_slice([2, 1], &[0.5f32, -1e-7]).unwrap()).unwrap();
    let row = g.constant("row", Tensor::from_slice([1], &[-3i32]).unwrap()).unwrap();
    let table = g.parameter("table", TensorType::new(DType::F32, [9, 8])).unwrap();
    let strength = g.parameter("strength", TensorType::new(DType::F32, [1])).unwrap();
    let y = g.conv("conv", x, w, None, Conv::spatial([3, 3], 1, 1)).unwrap();
    let z = g.activate("act", y, Activation::Silu).unwrap();
    let late = g.scale("late", image, 0.1, -7.25).unwrap();
    let z = g.mul("act", z, late).unwrap();
    g.scale("dead", z, 2.0, 0.0).unwrap();
    let step = SamplerStep { blend: true, emit_denoised: true, clip: Some(0.3), ..SamplerStep::default() };
    let next = g.sampler_step("step", &[z, image, table, row, image, strength], step).unwrap();
    let flat = g.reshape("flat", next[1], [32, 5]).unwrap();
    let tall = g.scale("tall", k, 3.0, 0.0).unwrap();
    g.output("next", next[0]).unwrap();
    g.output("flat", flat).unwrap();
    g.output("tall", tall).unwrap();
    g.output("weight", w).unwrap();
    g.finish()
}

fn needed(graph: &Graph) -> Graph {
    Editor::new(graph).finish().unwrap()
}

#[test]
fn a_graph_survives_the_round_trip() {
    let graph = example();
    let again = Graph::from_json(&graph.to_json()).unwrap();
    // Names, types, phases, constants, edges, results: all of it, less what nothing needs.
    assert_eq!(again, needed(&graph));
    assert_eq!(again.phases(), needed(&graph).phases());
    assert_eq!(again.nodes().len() + 1, graph.nodes().len());
    assert_eq!(Graph::from_json(&again.to_json()).unwrap(), again);
}

#[test]
fn a_step_that_does_not_mention_a_blend_has_none() {
    let read = |op: &str| serde_json::from_str::<Op>(op).unwrap();
    let step = SamplerStep { noise: true, ..SamplerStep::default() };
    assert_eq!(read(r#"{"sampler_step": {"noise": true}}"#), Op::SamplerStep(step));
    let step = Op::SamplerStep(SamplerStep { blend: true, ..step });
    assert_eq!(read(r#"{"sampler_step": {"noise": true, "blend": true}}"#), step);
    assert_eq!(step.to_string(), "sampler_step noise blend");
}

#[test]
fn the_order_of_the_nodes_does_not_matter() {
    let text = example().to_json();
    let mut document: Document = serde_json::from_str(&text).unwrap();
    document.nodes.reverse();
    let reversed = Graph::from_json(&serde_json::to_string(&document).unwrap()).unwrap();
    let mut names: Vec<&str> = reversed.nodes().iter().map(|n| n.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["act", "act", "conv", "flat", "late", "step", "tall"]);
}

#[test]
fn a_constant_is_one_string() {
    let text = example().to_json();
    // -3 in two's complement, lowest byte first.
    assert!(text.contains("\"data\": \"fdffffff\""), "{text}");
    let wrong = |data: &str| {
        let error = Graph::from_json(&text.replace("fdffffff", data)).unwrap_err();
        error.to_string()
    };
    for data in ["fdfffff", "fdffffgg", "+dffffff", "é+ffffff"] {
        assert_eq!(wrong(data), "not a graph: constant row: its data is not hexadecimal");
    }
    assert_eq!(wrong("fdff"), "not a graph: constant row: i32[1] does not have 2 bytes");
    assert_eq!(Graph::from_json(&text.replace("fdffffff", "FDFFFFFF")).unwrap(), needed(&example()));
}

#[test]
fn inputs_and_parameters_keep_their_names_and_numbers_do_not_collide() {
    let ty = || TensorType::new(DType::F32, [1]);
    let mut g = GraphBuilder::new("g");
    let one = Tensor::from_slice([1], &[1f32]).unwrap();
    let constants = ["x", "w", "x"].map(|name| g.constant(name, one.clone()).unwrap());
    let mut sum = g.add("x#2", constants[0], constants[1]).unwrap();
    sum = g.add("x", sum, constants[2]).unwrap();
    let x = g.input("x", ty(), Phase::Step).unwrap();
    let w = g.parameter("w", ty()).unwrap();
    let w2 = g.parameter("w#2", ty()).unwrap();
    for value in [x, w, w2] {
        sum = g.add("x", sum, value).unwrap();
    }
    g.output("sum", sum).unwrap();
    let graph = g.finish();
    let again = Graph::from_json(&graph.to_json()).unwrap();
    assert_eq!(again.value(again.inputs()[0]).name, "x");
    let mut parameters: Vec<&str> = again.parameters().map(|(_, v)| v.name.as_str()).collect();
    parameters.sort_unstable();
    assert_eq!(parameters, ["w", "w#2"]);
    // The same edges: only the constants' names may differ.
    let edges =
        |graph: &Graph| graph.nodes().iter().map(|n| (n.name.clone(), n.inputs.clone())).collect::<Vec<_>>();
    assert_eq!(edges(&again), edges(&needed(&graph)));
    let names = graph.unique_names();
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len(), "{names:?}");
}

#[test]
fn an_input_of_the_load_phase_is_refused() {
    let text = example().to_json().replace("\"phase\": \"step\"", "\"phase\": \"load\"");
    assert_eq!(Graph::from_json(&text), Err(GraphError::LoadInput("x".into())));
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
    let text = example().to_json().replace("\"value\": \"flat\"", "\"value\": \"nothing\"");
    assert_eq!(Graph::from_json(&text).unwrap_err().to_string(), "flat: there is no value nothing");
}

#[test]
fn text_that_is_no_graph_is_an_error() {
    for text in ["", "{", "[]", "{\"name\": 3}", "null"] {
        assert!(matches!(Graph::from_json(text), Err(GraphError::Json(_))), "{text}");
    }
}

/// Everything that is computed from a graph that was read.
fn use_it(graph: &Graph) {
    let _ = (graph.to_string(), graph.to_graphviz(), graph.step_flops(), graph.parameter_count());
    assert_eq!(
        graph.node_ids().map(|(id, _)| id).last(),
        graph.nodes().len().checked_sub(1).map(|i| NodeId(i as u32))
    );
    assert!(graph.values().iter().all(|v| v.ty.checked_bytes().is_some()));
    assert!(Graph::from_json(&graph.to_json()).is_ok());
}

/// JSON with the document's own words in it, so that some of it gets past the first check.
fn json() -> impl Strategy<Value = serde_json::Value> {
    let words = prop::sample::select(vec![
        "name",
        "inputs",
        "parameters",
        "constants",
        "nodes",
        "outputs",
        "type",
        "phase",
        "dtype",
        "shape",
        "data",
        "op",
        "value",
        "conv",
        "softmax",
        "add",
        "f32",
        "step",
        "clip",
        "x",
        "y",
        "",
    ]);
    let number = prop_oneof![Just(0u64), Just(1), Just(3), Just(u64::MAX), Just(u64::MAX / 2)];
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        number.prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        words.clone().prop_map(Into::into),
    ];
    leaf.prop_recursive(5, 60, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Into::into),
            prop::collection::vec((words.clone(), inner), 0..7)
                .prop_map(|entries| entries.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
        ]
    })
}

/// Replaces the `at`-th number or string of a document.
fn replace_leaf(value: &mut serde_json::Value, at: &mut usize, new: &serde_json::Value) {
    match value {
        serde_json::Value::Array(items) => items.iter_mut().for_each(|v| replace_leaf(v, at, new)),
        serde_json::Value::Object(entries) => entries.values_mut().for_each(|v| replace_leaf(v, at, new)),
        leaf => {
            if *at == 0 {
                *leaf = new.clone();
            }
            *at = at.wrapping_sub(1);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn changed_bytes_never_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut bytes = example().to_json().into_bytes();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            // Another byte, a byte less or a byte more.
            match byte % 3 {
                0 => bytes[at] = byte / 2,
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, byte / 2),
            }
        }
        if let Ok(graph) = Graph::from_json(&String::from_utf8_lossy(&bytes)) {
            use_it(&graph);
        }
    }

    #[test]
    fn changed_fields_never_panic(changes in prop::collection::vec((0usize..170, json()), 1..4)) {
        let mut document: serde_json::Value = serde_json::from_str(&example().to_json()).unwrap();
        for (mut at, new) in changes {
            replace_leaf(&mut document, &mut at, &new);
        }
        if let Ok(graph) = Graph::from_json(&document.to_string()) {
            use_it(&graph);
        }
    }

    #[test]
    fn any_json_never_panics(value in json()) {
        if let Ok(graph) = Graph::from_json(&value.to_string()) {
            use_it(&graph);
        }
    }
}
