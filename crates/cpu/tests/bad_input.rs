//! Every mistake of a caller or a file is an error that says what is wrong; the program can continue afterwards.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

use kinora_cpu::{Options, Program};
use kinora_graph::{
    DType, Graph, GraphBuilder, GraphError, Phase, Tensor, TensorType,
    op::{SamplerStep, StepCoefficients},
    plan::PlanError,
};
use kinora_runtime::{RunError, Tensors};

fn ty(dtype: DType, shape: &[usize]) -> TensorType {
    TensorType::new(dtype, shape)
}

/// A row of a table by `token`, through a linear layer, as the prediction of a sampler's step on `x`.
fn graph(dtype: DType) -> Graph {
    let mut g = GraphBuilder::new("small");
    let x = g.input("x", ty(dtype, &[1, 4]), Phase::Step).unwrap();
    let token = g.input("token", ty(DType::I32, &[1]), Phase::Clip).unwrap();
    let step = g.input("step", ty(DType::I32, &[1]), Phase::Step).unwrap();
    let table = g.parameter("table", ty(dtype, &[3, 2])).unwrap();
    let weight = g.parameter("weight", ty(dtype, &[4, 2])).unwrap();
    let levels = g.parameter("levels", ty(DType::F32, &[2, 8])).unwrap();
    let row = g.embedding("lookup", table, token).unwrap();
    let prediction = g.linear("project", row, weight, None).unwrap();
    let next = g.sampler_step("sampler", &[x, prediction, levels, step], SamplerStep::default()).unwrap();
    g.output("next", next[0]).unwrap();
    g.finish()
}

fn named<const N: usize>(entries: [(&str, Tensor); N]) -> Tensors {
    entries.into_iter().map(|(name, tensor)| (name.to_owned(), tensor)).collect()
}

fn ramp(dtype: DType, shape: &[usize]) -> Tensor {
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|i| i as f32 * 0.25).collect();
    Tensor::from_f32(dtype, shape, &values).unwrap()
}

fn integer(value: i32) -> Tensor {
    Tensor::from_slice([1], &[value]).unwrap()
}

fn weights(dtype: DType) -> Tensors {
    let row = StepCoefficients {
        next_sample: 1.0,
        next_denoised: 1.0,
        denoised_prediction: 2.0,
        ..Default::default()
    };
    let levels: Vec<f32> = [row.row(), row.row()].concat();
    named([
        ("table", ramp(dtype, &[3, 2])),
        ("weight", ramp(dtype, &[4, 2])),
        ("levels", Tensor::from_slice([2, 8], &levels).unwrap()),
    ])
}

fn inputs() -> Tensors {
    named([("x", ramp(DType::F32, &[1, 4])), ("token", integer(1)), ("step", integer(0))])
}

fn program() -> Program {
    Program::new(&graph(DType::F32), &weights(DType::F32), Options::default()).unwrap()
}

/// By hand: the row is (½, ¾), the products with (0, ¼), (½, ¾), (1, 5/4), (3/2, 7/4) are 3/16, 13/16, 23/16 and 33/16,
/// and x + 2 · product is the result.
fn works(program: &mut Program) {
    let results = program.run(&inputs()).unwrap();
    assert_eq!(results["next"].to_f32(), [0.375, 1.875, 3.375, 4.875]);
}

/// `inputs()` with one changed.
fn with(name: &str, tensor: Tensor) -> Tensors {
    let mut inputs = inputs();
    inputs.insert(name.to_owned(), tensor);
    inputs
}

#[test]
fn inputs_are_checked_and_the_program_goes_on() {
    let mut program = program();
    works(&mut program);
    let mut missing = inputs();
    missing.remove("x");
    let x = ty(DType::F32, &[1, 4]);
    let bad = [
        (
            missing,
            RunError::MissingInput { name: "x".into(), ty: x.clone() },
            "input x (f32[1, 4]) was not given",
        ),
        (
            with("x", ramp(DType::F16, &[1, 4])),
            RunError::WrongType { name: "x".into(), expected: x.clone(), got: ty(DType::F16, &[1, 4]) },
            "x must be f32[1, 4], got f16[1, 4]",
        ),
        (
            with("x", ramp(DType::F32, &[2, 2])),
            RunError::WrongType { name: "x".into(), expected: x, got: ty(DType::F32, &[2, 2]) },
            "x must be f32[1, 4], got f32[2, 2]",
        ),
        (
            with("latent", integer(0)),
            RunError::UnknownInput("latent".into()),
            "the graph has no input latent",
        ),
        (
            with("token", integer(3)),
            RunError::Token { layer: "lookup".into(), id: 3, rows: 3 },
            "lookup: token 3 is outside the table of 3 rows",
        ),
        (
            with("token", integer(-1)),
            RunError::Token { layer: "lookup".into(), id: -1, rows: 3 },
            "lookup: token -1 is outside the table of 3 rows",
        ),
        (
            with("step", integer(2)),
            RunError::SamplerStep { layer: "sampler".into(), step: 2, steps: 2 },
            "sampler: step 2 is outside the sampler's table of 2 steps",
        ),
        (
            with("step", integer(i32::MIN)),
            RunError::SamplerStep { layer: "sampler".into(), step: i32::MIN, steps: 2 },
            "sampler: step -2147483648 is outside the sampler's table of 2 steps",
        ),
    ];
    for (inputs, expected, text) in bad {
        let error = program.run(&inputs).unwrap_err();
        assert_eq!(error, expected);
        assert_eq!(error.to_string(), text);
        works(&mut program);
    }
}

#[test]
fn each_phase_takes_its_own_inputs() {
    let mut program = program();
    let step = || named([("x", ramp(DType::F32, &[1, 4])), ("step", integer(0))]);
    let error = program.run_step(&step()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the clip's inputs were never given: run the clip phase before the first step"
    );
    let error = program.run_clip(&with("token", integer(1))).unwrap_err();
    assert_eq!(error, RunError::OtherPhase { name: "step".into(), phase: Phase::Step });
    assert_eq!(error.to_string(), "input step belongs to the step phase");
    program.run_clip(&named([("token", integer(1))])).unwrap();
    let error = program.run_step(&with("step", integer(0))).unwrap_err();
    assert_eq!(error, RunError::OtherPhase { name: "token".into(), phase: Phase::Clip });
    assert_eq!(error.to_string(), "input token belongs to the clip phase");
    assert_eq!(program.run_step(&step()).unwrap()["next"].to_f32(), [0.375, 1.875, 3.375, 4.875]);
    works(&mut program);
}

#[test]
fn weights_are_checked_before_anything_is_allocated() {
    let make =
        |graph: &Graph, weights: &Tensors| Program::new(graph, weights, Options::default()).unwrap_err();
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let graph = graph(dtype);
        let mut missing = weights(dtype);
        missing.remove("weight");
        let error = make(&graph, &missing);
        assert_eq!(error, RunError::MissingParameter { name: "weight".into(), ty: ty(dtype, &[4, 2]) });
        assert_eq!(error.to_string(), format!("weight weight ({dtype}[4, 2]) is missing from the model"));
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for index in [0, 5, 7] {
                let mut values = ramp(dtype, &[4, 2]).to_f32();
                values[index] = value;
                let mut broken = weights(dtype);
                broken.insert("weight".into(), Tensor::from_f32(dtype, [4, 2], &values).unwrap());
                let error = make(&graph, &broken);
                assert_eq!(error, RunError::NonFinite { name: "weight".into(), index });
                let text = format!(
                    "weight weight is not finite at element {index}: the file is damaged, or its precision overflowed"
                );
                assert_eq!(error.to_string(), text);
            }
        }
        let mut other = weights(dtype);
        other.insert("weight".into(), ramp(dtype, &[2, 4]));
        let error = make(&graph, &other);
        assert_eq!(error.to_string(), format!("weight must be {dtype}[4, 2], got {dtype}[2, 4]"));
    }
}

#[test]
fn a_budget_that_is_too_small_names_both_figures() {
    let options = Options { budget: Some(100), ..Options::default() };
    let error = Program::new(&graph(DType::F32), &weights(DType::F32), options).unwrap_err();
    let RunError::Plan(PlanError::OverBudget { need, budget: 100, weights: held, arena, .. }) = &error else {
        panic!("{error}");
    };
    // The table, projected when it is loaded, and the sampler's table.
    assert_eq!((*held, *need), (48 + 64, held + arena));
    let text = error.to_string();
    assert!(
        text.starts_with(&format!("small needs {need} B (weights 112 B, activations {arena} B)")),
        "{text}"
    );
    assert!(text.contains("the budget is 100 B"), "{text}");
}

#[test]
fn a_graph_that_is_none_is_refused() {
    let node = |op: &str, input: &str, output: &str| {
        format!(r#"{{"name": "{output}", "op": {op}, "inputs": ["{input}"], "outputs": ["{output}"]}}"#)
    };
    let document = |nodes: &[String]| {
        let input = r#"{"name": "x", "type": {"dtype": "f32", "shape": [2]}, "phase": "step"}"#;
        format!(
            r#"{{"name": "g", "inputs": [{input}], "nodes": [{}], "outputs": [{{"name": "y", "value": "a"}}]}}"#,
            nodes.join(", ")
        )
    };
    let softmax = r#""softmax""#;
    let good = document(&[node(softmax, "x", "a")]);
    let graph = Graph::from_json(&good).unwrap();
    let x = named([("x", ramp(DType::F32, &[2]))]);
    assert!(Program::new(&graph, &Tensors::new(), Options::default()).unwrap().run(&x).is_ok());

    let cycle = document(&[node(softmax, "b", "a"), node(softmax, "a", "b")]);
    let Err(GraphError::Cycle(layers)) = Graph::from_json(&cycle) else { panic!("a cycle") };
    assert!(layers.contains(&"a".to_owned()) && layers.contains(&"b".to_owned()));
    let unknown = document(&[node(r#""teleport""#, "x", "a")]);
    let error = Graph::from_json(&unknown).unwrap_err();
    assert!(matches!(&error, GraphError::UnknownOp { layer, .. } if layer == "a"), "{error}");
    assert!(error.to_string().starts_with("a: unknown variant `teleport`"), "{error}");
    let dangling = document(&[node(softmax, "nowhere", "a")]);
    let error = Graph::from_json(&dangling).unwrap_err();
    assert_eq!(error.to_string(), "a: there is no value nowhere");
    for text in ["", "[]", "{", "null", r#"{"name": 3}"#, &good[..good.len() / 2]] {
        assert!(matches!(Graph::from_json(text), Err(GraphError::Json(_))), "{text}");
    }
}
