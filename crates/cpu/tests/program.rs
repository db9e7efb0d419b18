//! A program's phases and its memory.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

use std::sync::Mutex;

use kinora_cpu::{Options, Program, simd::Isa};
use kinora_graph::{
    DType, Graph, GraphBuilder, ParameterError, Parameters, Phase, Tensor, TensorType, op::Conv,
};
use kinora_profile::Profiler;
use kinora_runtime::{RunError, Tensors};

fn floats(shape: &[usize], values: &[f32]) -> Tensor {
    Tensor::from_slice(shape, values).unwrap()
}

fn named<const N: usize>(entries: [(&str, Tensor); N]) -> Tensors {
    entries.into_iter().map(|(name, tensor)| (name.to_owned(), tensor)).collect()
}

fn f32s(shape: &[usize]) -> TensorType {
    TensorType::new(DType::F32, shape)
}

/// `y = rows of a table by the clip's ids + x`.
fn two_phases() -> Graph {
    let mut g = GraphBuilder::new("two phases");
    let x = g.input("x", f32s(&[2, 3]), Phase::Step).unwrap();
    let ids = g.input("ids", TensorType::new(DType::I32, [2]), Phase::Clip).unwrap();
    let table = g.parameter("table", f32s(&[2, 3])).unwrap();
    let rows = g.embedding("rows", table, ids).unwrap();
    let y = g.add("sum", x, rows).unwrap();
    g.output("y", y).unwrap();
    g.finish()
}

fn weights() -> Tensors {
    named([("table", floats(&[2, 3], &[1.0, 2.0, 3.0, 10.0, 20.0, 30.0]))])
}

fn ids(ids: [i32; 2]) -> (&'static str, Tensor) {
    ("ids", Tensor::from_slice([2], &ids).unwrap())
}

fn x() -> (&'static str, Tensor) {
    ("x", floats(&[2, 3], &[0.5; 6]))
}

#[test]
fn a_clip_serves_many_steps_until_the_next_clip() {
    let mut program = Program::new(&two_phases(), &weights(), Options::default()).unwrap();
    assert_eq!(program.run_step(&named([x()])), Err(RunError::ClipNotRun));
    program.run_clip(&named([ids([1, 0])])).unwrap();
    for _ in 0..3 {
        let y = program.run_step(&named([x()])).unwrap();
        assert_eq!(y["y"].to_f32(), [10.5, 20.5, 30.5, 1.5, 2.5, 3.5]);
    }
    program.run_clip(&named([ids([0, 0])])).unwrap();
    assert_eq!(program.run_step(&named([x()])).unwrap()["y"].to_f32(), [1.5, 2.5, 3.5, 1.5, 2.5, 3.5]);
}

#[test]
fn a_clip_that_failed_cannot_be_stepped_on() {
    let mut program = Program::new(&two_phases(), &weights(), Options::default()).unwrap();
    let outside = RunError::Token { layer: "rows".into(), id: 7, rows: 2 };
    program.run_clip(&named([ids([0, 1])])).unwrap();
    assert_eq!(program.run_clip(&named([ids([0, 7])])), Err(outside.clone()));
    assert_eq!(program.run_step(&named([x()])), Err(RunError::ClipNotRun));
    program.run_clip(&named([ids([0, 1])])).unwrap();
    assert_eq!(program.run(&named([x(), ids([0, 7])])), Err(outside));
    assert_eq!(program.run_step(&named([x()])), Err(RunError::ClipNotRun));
    let y = program.run(&named([x(), ids([0, 1])])).unwrap();
    assert_eq!(program.run_step(&named([x()])).unwrap(), y);
}

#[test]
fn weights_are_counted_as_they_are_held() {
    let mut g = GraphBuilder::new("weights");
    let x = g.input("x", f32s(&[1, 2, 2, 3]), Phase::Step).unwrap();
    let weight = g.parameter("conv.weight", TensorType::new(DType::F16, [11, 1, 1, 1, 3])).unwrap();
    let bias = g.parameter("conv.bias", f32s(&[11])).unwrap();
    let y = g.conv("conv", x, weight, Some(bias), Conv::spatial([1, 1], 1, 0)).unwrap();
    let weight = g.parameter("linear.weight", f32s(&[4, 11])).unwrap();
    let y = g.linear("linear", y, weight, None).unwrap();
    // Read as it is as well as packed.
    let sum = g.mean("mean", weight, &[0, 1]).unwrap();
    let y = g.add("add", y, sum).unwrap();
    g.output("y", y).unwrap();
    g.output("weight", weight).unwrap();
    let parameters = named([
        ("conv.weight", floats(&[11, 1, 1, 1, 3], &[0.5; 33]).cast(DType::F16)),
        ("conv.bias", floats(&[11], &[0.5; 11])),
        ("linear.weight", floats(&[4, 11], &[0.5; 44])),
    ]);
    let isa = *Isa::available().last().unwrap();
    let options = Options { isa, optimise: false, ..Options::default() };
    let program = Program::new(&g.finish(), &parameters, options).unwrap();
    // Vectors of four lanes: eleven columns fill two panels of eight. Four are too few for one, and lie as they are.
    let packed = 3 * 16 * 2 + 11 * 4 * 4;
    // The bias, the weight that is also a result, and its mean, which is computed when the program is loaded.
    let as_they_are = 11 * 4 + 44 * 4 + 4;
    assert_eq!(program.weight_bytes(), packed + as_they_are);
    assert_eq!(program.plan().weight_bytes(), program.weight_bytes());
}

/// Weights that note which of them are read, and can be made to fail.
struct Noting {
    tensors: Tensors,
    read: Mutex<Vec<String>>,
    damaged: Option<&'static str>,
}

impl Parameters for Noting {
    fn parameter(&self, name: &str, ty: &TensorType) -> Result<Option<Tensor>, ParameterError> {
        self.read.lock().unwrap().push(name.to_owned());
        if self.damaged == Some(name) {
            return Err(ParameterError::new("the file ends early"));
        }
        self.tensors.parameter(name, ty)
    }
}

/// One weight is folded, one is packed by two layers, and one is of no use.
fn three_weights() -> (Graph, Noting) {
    let mut g = GraphBuilder::new("three weights");
    let x = g.input("x", f32s(&[2, 3]), Phase::Step).unwrap();
    let weight = g.parameter("weight", f32s(&[3, 3])).unwrap();
    let half = g.parameter("half", f32s(&[3])).unwrap();
    g.parameter("unused", f32s(&[3])).unwrap();
    let bias = g.scale("bias", half, 2.0, 0.0).unwrap();
    let y = g.linear("first", x, weight, Some(bias)).unwrap();
    let y = g.linear("second", y, weight, None).unwrap();
    g.output("y", y).unwrap();
    let swap = floats(&[3, 3], &[0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
    let tensors = named([("weight", swap), ("half", floats(&[3], &[0.5, 1.0, 1.5]))]);
    (g.finish(), Noting { tensors, read: Mutex::default(), damaged: None })
}

#[test]
fn a_weight_is_read_once_and_only_if_it_is_used() {
    let (graph, weights) = three_weights();
    let mut program = Program::new(&graph, &weights, Options::default()).unwrap();
    let y = program.run(&named([("x", floats(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))])).unwrap();
    // Swapped, plus the bias, swapped back.
    assert_eq!(y["y"].to_f32(), [3.0, 3.0, 6.0, 6.0, 6.0, 9.0]);
    let mut read = weights.read.into_inner().unwrap();
    read.sort_unstable();
    assert_eq!(read, ["half", "weight"]);
}

#[test]
fn a_weight_that_cannot_be_read_is_named() {
    let (graph, weights) = three_weights();
    let damaged = Noting { damaged: Some("half"), ..weights };
    let error = Program::new(&graph, &damaged, Options::default()).unwrap_err();
    assert_eq!(error.to_string(), "weight half: the file ends early");
}

#[test]
fn a_profile_has_every_layer_of_every_phase_and_changes_nothing() {
    let mut program = Program::new(&two_phases(), &weights(), Options::default()).unwrap();
    let (clip, step) = (named([ids([1, 0])]), named([x()]));
    program.run_clip(&clip).unwrap();
    let expected = program.run_step(&step).unwrap();
    let profiler = Profiler::on();
    program.profile(&profiler, "a program");
    program.run_clip(&clip).unwrap();
    for _ in 0..2 {
        assert_eq!(program.run_step(&step).unwrap()["y"].bytes(), expected["y"].bytes());
    }
    // An error ends the spans that it leaves.
    assert!(program.run_clip(&named([ids([7, 0])])).is_err());
    let profile = profiler.profile();
    profile.check().unwrap();
    let named = |&span: &usize| profile.spans[span].name.as_str();
    let layers: Vec<(&str, &str)> = (0..profile.spans.len())
        .filter(|&span| profile.spans[span].work.is_some())
        .map(|span| (named(&profile.spans[span].parent.unwrap()), named(&span)))
        .collect();
    let once = [("clip phase", "rows"), ("step", "sum"), ("step", "sum"), ("clip phase", "rows")];
    assert_eq!(layers, once);
    let work = &profile.works[profile.spans.iter().find_map(|span| span.work).unwrap()];
    // A table, two ids, and two rows.
    assert_eq!(
        (work.program.as_str(), work.op.as_str(), work.bytes),
        ("a program", "embedding", 24 + 8 + 24)
    );

    program.profile(&Profiler::off(), "");
    program.run_clip(&clip).unwrap();
    assert_eq!(profiler.profile().spans.len(), profile.spans.len());
}
