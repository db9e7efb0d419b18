//! Random graphs: no two live buffers overlap, and the arena is what execution touches.

use proptest::prelude::*;

use super::*;
use crate::op::{Activation, SamplerStep};

/// One random layer; the numbers pick among what is there.
#[derive(Clone, Copy, Debug)]
struct Layer {
    kind: u8,
    a: prop::sample::Index,
    b: prop::sample::Index,
    size: usize,
}

fn layers() -> impl Strategy<Value = Vec<Layer>> {
    let layer = (0u8..12, any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0usize..40)
        .prop_map(|(kind, a, b, size)| Layer { kind, a, b, size });
    prop::collection::vec(layer, 1..60)
}

fn phase() -> impl Strategy<Value = Phase> {
    prop_oneof![Just(Phase::Clip), Just(Phase::Step)]
}

fn backend() -> impl Strategy<Value = Backend> {
    let alignment = prop_oneof![Just(1usize), Just(16), Just(64), Just(256)];
    (any::<bool>(), prop_oneof![Just(0usize), 1usize..300], alignment)
        .prop_map(|(in_place, workspace, alignment)| Backend { in_place, workspace, alignment })
}

/// A graph over one-axis tensors (and their reshapes) of 0 to some hundred elements.
fn graph(inputs: &[(usize, Phase)], layers: &[Layer], outputs: &[prop::sample::Index]) -> Graph {
    build(|g| {
        let mut values = vec![g.parameter("w", floats(7))?];
        for (i, &(count, phase)) in inputs.iter().enumerate() {
            values.push(g.input(&format!("x{i}"), floats(count), phase)?);
        }
        let table = g.parameter("table", TensorType::new(DType::F32, [2, 8]))?;
        let row = g.parameter("row", TensorType::new(DType::I32, [1]))?;
        for (i, layer) in layers.iter().enumerate() {
            let (a, name) = (*layer.a.get(&values), format!("n{i}"));
            let count = g.ty(a).elements();
            // Another value of the same shape, if there is one: at worst the same.
            let peers: Vec<ValueId> = values.iter().copied().filter(|&v| g.shape(v) == g.shape(a)).collect();
            let b = *layer.b.get(&peers);
            match layer.kind {
                0 | 1 => values.push(g.scale(&name, a, 2.0, 0.0)?),
                2 | 3 => values.push(g.activate(&name, a, Activation::Silu)?),
                4..=6 => values.push(g.add(&name, a, b)?),
                7 if g.shape(a).len() == 1 && count < 200 => values.push(g.concat(&name, &[a, b], 0)?),
                8 if g.shape(a).len() == 1 && count > layer.size => {
                    values.push(g.slice(&name, a, 0, 0, layer.size)?);
                }
                9 | 10 if g.shape(a).len() == 1 => values.push(g.reshape(&name, a, [1, count])?),
                9 | 10 => values.push(g.reshape(&name, a, [count])?),
                _ => {
                    let op = SamplerStep { emit_denoised: true, ..SamplerStep::default() };
                    values.extend(g.sampler_step(&name, &[a, b, table, row], op)?);
                }
            }
        }
        for (i, output) in outputs.iter().enumerate() {
            g.output(&format!("y{i}"), *output.get(&values))?;
        }
        Ok(())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn live_buffers_never_overlap(
        inputs in prop::collection::vec((0usize..40, phase()), 1..5),
        layers in layers(),
        outputs in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        target in backend(),
    ) {
        let graph = graph(&inputs, &layers, &outputs);
        let first = plan(&graph, &target);
        prop_assert!(first.lower_bound() <= first.arena_bytes());
        prop_assert_eq!(first.peak_bytes(), first.weight_bytes() + first.arena_bytes());
        prop_assert_eq!(&first, &plan(&graph, &target));
        for line in first.display(&graph).to_string().lines() {
            prop_assert!(line.chars().count() <= 110, "{}", line);
        }
        let svg = first.to_svg(&graph);
        prop_assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    }
}
