//! Products in 8 bits, from the measurement of their activations to their results.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use kinora_cpu::{CpuTarget, Options, Program, reference};
use kinora_graph::{
    DType, Graph, GraphBuilder, Op, Phase, Tensor, TensorType,
    calibration::{Largest, measured, record},
    op::{Activation, Conv, Gate, NormKind},
    passes::optimise,
};
use kinora_runtime::Tensors;
use kinora_testing::compare::distance;

const CHANNELS: usize = 32;

/// What a block of a UNet does: norm, SiLU and convolution, twice, then a gated feed-forward of tokens. Each with its residual.
fn block() -> Graph {
    let mut g = GraphBuilder::new("block");
    let ty = |shape: &[usize]| TensorType::new(DType::F16, shape);
    let mut h = g.input("x", ty(&[2, 6, 7, CHANNELS]), Phase::Step).unwrap();
    for name in ["conv1", "conv2"] {
        let x = h;
        let kind = NormKind::Group { groups: 8, frames: 1 };
        let scale = g.parameter(&format!("{name}.norm.weight"), ty(&[CHANNELS])).unwrap();
        let weight = g.parameter(&format!("{name}.weight"), ty(&[CHANNELS, 1, 3, 3, CHANNELS])).unwrap();
        let bias = g.parameter(&format!("{name}.bias"), ty(&[CHANNELS])).unwrap();
        h = g.norm(&format!("{name}.norm"), h, kind, 1e-5, Some(scale), None).unwrap();
        h = g.activate(&format!("{name}.silu"), h, Activation::Silu).unwrap();
        h = g.conv(name, h, weight, Some(bias), Conv::spatial([3, 3], 1, 1)).unwrap();
        h = g.add(&format!("{name}.residual"), h, x).unwrap();
    }
    let tokens = g.reshape("tokens", h, [2, 42, CHANNELS]).unwrap();
    let [inner, outer] =
        [("ff.in.weight", [8 * CHANNELS, CHANNELS]), ("ff.out.weight", [CHANNELS, 4 * CHANNELS])]
            .map(|(name, shape)| g.parameter(name, ty(&shape)).unwrap());
    let n = g.norm("ff.norm", tokens, NormKind::Layer, 1e-5, None, None).unwrap();
    let n = g.linear("ff.in", n, inner, None).unwrap();
    let n = g.node("ff.gate", Op::Gate(Gate { activation: Activation::Gelu }), &[n]).unwrap()[0];
    let n = g.linear("ff.out", n, outer, None).unwrap();
    let y = g.add("ff.residual", n, tokens).unwrap();
    g.output("y", y).unwrap();
    g.finish()
}

/// Numbers that look random: of order one, weights so that results are.
fn numbers(graph: &Graph) -> (Tensors, Tensors) {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    let mut tensor = |ty: &TensorType, size: f32| {
        let values: Vec<f32> = (0..ty.elements()).map(|_| size * 1.7 * next()).collect();
        Tensor::from_f32(ty.dtype, ty.shape.clone(), &values).unwrap()
    };
    let depth = |ty: &TensorType| ty.shape[1..].iter().product::<usize>().max(1) as f32;
    let parameters =
        graph.parameters().map(|(_, v)| (v.name.clone(), tensor(&v.ty, depth(&v.ty).sqrt().recip())));
    let parameters: Tensors = parameters.collect();
    let inputs = graph.inputs().iter().map(|&v| graph.value(v));
    let inputs = inputs.map(|v| (v.name.clone(), tensor(&v.ty, 1.0))).collect();
    (parameters, inputs)
}

/// What the reference measures of a graph's activations.
fn largest(graph: &Graph, parameters: &Tensors, inputs: &Tensors) -> Largest {
    let (measuring, measurements) = measured(graph, |_| true).unwrap();
    let results = reference::evaluate(&measuring, parameters, inputs).unwrap();
    let mut largest = Largest::new();
    record(&mut largest, &measurements, |name| results.get(name).cloned());
    largest
}

/// Of any number of rows, in images or not, wherever the largest number is, and of either sign.
#[test]
fn the_largest_number_of_an_activation_is_found() {
    for shape in [&[1, 8][..], &[37, 8], &[64, 8], &[2, 33, 8], &[3, 7, 11, 8], &[2, 1009, 8]] {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", TensorType::new(DType::F16, shape), Phase::Step).unwrap();
        let weight = g.parameter("w", TensorType::new(DType::F16, [4, 8])).unwrap();
        let y = g.linear("y", x, weight, None).unwrap();
        g.output("y", y).unwrap();
        let graph = g.finish();
        let (parameters, inputs) = numbers(&graph);
        let values = inputs["x"].to_f32();
        let expected = values.iter().fold(0.0, |largest: f32, value| largest.max(value.abs()));
        assert_eq!(largest(&graph, &parameters, &inputs), [("w".to_owned(), expected)].into(), "{shape:?}");
        for place in [0, values.len() / 2, values.len() - 1] {
            for size in [9.5, -9.5] {
                let mut values = values.clone();
                values[place] = size;
                let x = Tensor::from_f32(DType::F16, shape, &values).unwrap();
                let inputs = [("x".to_owned(), x)].into();
                assert_eq!(largest(&graph, &parameters, &inputs)["w"], 9.5, "{shape:?}, {place}, {size}");
            }
        }
    }
}

/// An activation far beyond what was measured becomes the largest number of e4m3, and no NaN.
#[test]
fn what_is_larger_than_was_measured_saturates() {
    let graph = block();
    let (parameters, inputs) = numbers(&graph);
    let sizes = largest(&graph, &parameters, &inputs);
    let small = sizes.into_iter().map(|(name, size)| (name, size / 4096.0)).collect();
    let calibrated = graph.calibrated(Arc::new(small));
    assert!(optimise(&calibrated, &CpuTarget::default()).unwrap().quantised_products() > 0);
    let mut program = Program::new(&calibrated, &parameters, Options::default()).unwrap();
    assert_eq!(program.run(&inputs).unwrap()["y"].first_non_finite(), None);
}

#[test]
fn a_measured_block_is_close_to_the_one_in_f16() {
    let graph = block();
    let (parameters, inputs) = numbers(&graph);
    let expected = reference::evaluate(&graph, &parameters, &inputs).unwrap();
    let sizes = largest(&graph, &parameters, &inputs);
    assert_eq!(
        sizes.keys().collect::<Vec<_>>(),
        ["conv1.weight", "conv2.weight", "ff.in.weight", "ff.out.weight"]
    );
    let calibrated = graph.clone().calibrated(Arc::new(sizes));
    let optimised = optimise(&calibrated, &CpuTarget::default()).unwrap();
    let kinds: Vec<String> = optimised.nodes().iter().map(|node| node.op.to_string()).collect();
    let convolutions = kinds.iter().filter(|text| text.contains("conv") && text.contains("e4m3")).count();
    assert_eq!(convolutions, 2, "{kinds:?}");
    let norms = kinds.iter().filter(|text| text.contains("group_norm") && text.contains("to e4m3")).count();
    assert_eq!(norms, 2, "{kinds:?}");
    let by_reference = reference::evaluate(&optimised, &parameters, &inputs).unwrap();
    let mut program = Program::new(&calibrated, &parameters, Options::default()).unwrap();
    let by_program = program.run(&inputs).unwrap();
    let off = |got: &Tensors| distance(&expected["y"].to_f32(), &got["y"].to_f32());
    // A number in e4m3 is off by a thirtieth at most, typically by half of that; residuals are exact.
    let distances = [off(&by_reference), off(&by_program)];
    assert!(distances.iter().all(|&distance| distance > 1e-3 && distance < 0.05), "{distances:?}");
    // A number that lies on an edge may become its neighbour.
    let apart = distance(&by_reference["y"].to_f32(), &by_program["y"].to_f32());
    assert!(apart < 0.01, "{apart}");
}
