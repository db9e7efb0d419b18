//! Products in 8 bits, from the measurement of their activations to their results.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use kinora_cpu::{CpuTarget, Options, Program, reference};
use kinora_graph::{
    DType, Graph, GraphBuilder, Op, Phase, Tensor, TensorType,
    calibration::{Largest, measured},
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
    let (measuring, measurements) = measured(graph).unwrap();
    let results = reference::evaluate(&measuring, parameters, inputs).unwrap();
    let mut largest = Largest::new();
    for measurement in measurements {
        let sizes = results[&measurement.output].to_f32();
        let known = largest.entry(measurement.weight).or_insert(0.0);
        *known = sizes.into_iter().fold(*known, f32::max);
    }
    largest
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
