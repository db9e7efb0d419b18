//! Fuses the blend with the frame before into the sampler step before it.

use super::Pass;
use crate::{
    Editor, GraphError, NodeId, Op, Target, ValueId,
    op::{SamplerStep, TemporalBlend},
};

/// Lets a sampler step blend its next sample with that of the frame before, if nothing else reads it:
///
/// ```text
/// temporal_blend(step(…).next, previous, strength)   =   blended step(…, previous, strength).next
/// ```
///
/// This is the end of a frame of live video. The denoised sample stays as it is, because no blend touches it. These stay:
///
/// - a blend with a threshold, which needs all channels of a pixel at once;
/// - a step that also returns the scaled next sample, which would be that of the blended one;
/// - a step whose denoised sample another op reads: the frame before may depend on it, and the step cannot wait for itself;
/// - a step of the clip phase whose blend changes at every step: the whole of it would run as often.
#[derive(Clone, Copy, Debug, Default)]
pub struct SamplerBlend;

impl Pass for SamplerBlend {
    fn name(&self) -> &'static str {
        "sampler_blend"
    }

    fn rewrite(&self, editor: &mut Editor, target: &dyn Target) -> Result<(), GraphError> {
        for id in editor.node_ids() {
            if let Some(blended) = blended(editor, target, id) {
                fuse(editor, id, blended)?;
            }
        }
        Ok(())
    }
}

/// A sampler step with the blend in it.
struct Blended {
    name: String,
    op: Op,
    inputs: Vec<ValueId>,
    /// The plain step's denoised sample.
    denoised: Option<ValueId>,
}

/// The sampler step before a blend, with the blend in it.
fn blended(editor: &Editor, target: &dyn Target, id: NodeId) -> Option<Blended> {
    let node = editor.node(id);
    let (Op::TemporalBlend(TemporalBlend { threshold: None }), &[current, previous, strength]) =
        (&node.op, node.inputs.as_slice())
    else {
        return None;
    };
    let (_, step) = editor.sole_producer(current)?;
    let Op::SamplerStep(op @ SamplerStep { blend: false, emit_scaled: false, .. }) = step.op else {
        return None;
    };
    // `current` may also be the denoised sample.
    let (&next, others) = step.outputs.split_first()?;
    if current != next || editor.phase(next) != editor.phase(node.outputs[0]) {
        return None;
    }
    if others.iter().any(|&denoised| !editor.readers(denoised).is_empty()) {
        return None;
    }
    let op = Op::SamplerStep(SamplerStep { blend: true, ..op });
    let inputs = [&step.inputs, &[previous, strength][..]].concat();
    target.fuses(&op, &editor.types(&inputs)).then(|| Blended {
        name: step.name.clone(),
        op,
        inputs,
        denoised: others.first().copied(),
    })
}

fn fuse(editor: &mut Editor, id: NodeId, blended: Blended) -> Result<(), GraphError> {
    let results = editor.add(blended.name, blended.op, &blended.inputs)?;
    // First, so that nothing needs the plain step once the blend is gone.
    if let (Some(old), Some(&new)) = (blended.denoised, results.get(1)) {
        editor.replace_uses(old, new)?;
    }
    editor.bypass(id, &results[..1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        DType, FuseAll, FuseNothing, Graph, GraphBuilder, Phase, TensorType,
        op::STEP_COLUMNS,
        passes::{names, optimise_traced},
    };

    fn f32s(shape: &[usize]) -> TensorType {
        TensorType::new(DType::F32, shape)
    }

    /// Inputs of a step, the step, and what is made of its results.
    fn graph(op: SamplerStep, phase: Phase, after: impl FnOnce(&mut GraphBuilder, &[ValueId])) -> Graph {
        let mut g = GraphBuilder::new("g");
        let sample = g.input("sample", TensorType::new(DType::F16, [2, 3]), phase).unwrap();
        let prediction = g.input("prediction", f32s(&[2, 3]), phase).unwrap();
        let table = g.input("table", f32s(&[4, STEP_COLUMNS]), phase).unwrap();
        let row = g.input("row", TensorType::new(DType::I32, [1]), phase).unwrap();
        let mut operands = vec![sample, prediction, table, row];
        if op.noise {
            operands.push(g.input("noise", f32s(&[2, 3]), phase).unwrap());
        }
        if op.blend {
            operands.push(g.input("before", f32s(&[2, 3]), phase).unwrap());
            operands.push(g.input("by", f32s(&[1]), phase).unwrap());
        }
        let results = g.sampler_step("step", &operands, op).unwrap();
        after(&mut g, &results);
        g.finish()
    }

    /// The blend of a value with an input.
    fn blend(g: &mut GraphBuilder, current: ValueId, threshold: Option<f32>) -> ValueId {
        let previous = g.input("previous", f32s(&[2, 3]), Phase::Step).unwrap();
        let strength = g.input("strength", f32s(&[1]), Phase::Step).unwrap();
        g.temporal_blend("blend", current, previous, strength, TemporalBlend { threshold }).unwrap()
    }

    fn blend_next(g: &mut GraphBuilder, results: &[ValueId]) {
        let y = blend(g, results[0], None);
        g.output("y", y).unwrap();
    }

    fn run(graph: &Graph) -> Graph {
        SamplerBlend.run(graph, &FuseAll).unwrap()
    }

    const PLAIN: SamplerStep = SamplerStep {
        guided: false,
        history: false,
        noise: false,
        blend: false,
        clip: None,
        emit_denoised: false,
        emit_scaled: false,
    };

    #[test]
    fn a_step_takes_the_blend_that_follows() {
        let op = SamplerStep { noise: true, clip: Some(0.5), ..PLAIN };
        let before = graph(op, Phase::Step, blend_next);
        let after = run(&before);
        assert_eq!(names(&after), ["step"]);
        let node = &after.nodes()[0];
        assert_eq!(node.op, Op::SamplerStep(SamplerStep { blend: true, ..op }));
        let operands: Vec<&str> = node.inputs.iter().map(|&v| after.value(v).name.as_str()).collect();
        let expected = ["sample", "prediction", "table", "row", "noise", "previous", "strength"];
        assert_eq!(operands, expected);
        assert_eq!(after.ty(after.outputs()[0].value), &TensorType::new(DType::F16, [2, 3]));
        // It is one of the standard passes.
        let (after, effects) = optimise_traced(&before, &FuseAll, None).unwrap();
        assert_eq!(after.nodes().len(), 1);
        let fewer = effects.iter().filter(|effect| effect.nodes_after < effect.nodes_before);
        assert_eq!(fewer.map(|effect| effect.pass).collect::<Vec<_>>(), ["sampler_blend"]);
    }

    #[test]
    fn the_denoised_sample_is_a_result_still() {
        let op = SamplerStep { emit_denoised: true, ..PLAIN };
        let after = run(&graph(op, Phase::Step, |g, results| {
            g.output("denoised", results[1]).unwrap();
            blend_next(g, results);
        }));
        assert_eq!(names(&after), ["step"]);
        let results = &after.nodes()[0].outputs;
        let outputs: Vec<(&str, ValueId)> =
            after.outputs().iter().map(|o| (o.name.as_str(), o.value)).collect();
        assert_eq!(outputs, [("denoised", results[1]), ("y", results[0])]);
    }

    #[test]
    fn a_second_reader_a_result_in_the_middle_or_the_backend_prevents_it() {
        let read_twice = graph(PLAIN, Phase::Step, |g, results| {
            let scaled = g.scale("scaled", results[0], 2.0, 0.0).unwrap();
            g.output("scaled", scaled).unwrap();
            blend_next(g, results);
        });
        assert_eq!(names(&run(&read_twice)), ["step", "scaled", "blend"]);
        let stored = graph(PLAIN, Phase::Step, |g, results| {
            g.output("next", results[0]).unwrap();
            blend_next(g, results);
        });
        assert_eq!(names(&run(&stored)), ["step", "blend"]);
        let with_itself = graph(PLAIN, Phase::Step, |g, results| {
            let strength = g.input("strength", f32s(&[1]), Phase::Step).unwrap();
            let op = TemporalBlend::default();
            let y = g.temporal_blend("blend", results[0], results[0], strength, op).unwrap();
            g.output("y", y).unwrap();
        });
        assert_eq!(names(&run(&with_itself)), ["step", "blend"]);
        let refused = SamplerBlend.run(&graph(PLAIN, Phase::Step, blend_next), &FuseNothing).unwrap();
        assert_eq!(names(&refused), ["step", "blend"]);
    }

    #[test]
    fn what_a_blended_step_could_not_mean_stays() {
        let threshold = graph(PLAIN, Phase::Step, |g, results| {
            let y = blend(g, results[0], Some(0.5));
            g.output("y", y).unwrap();
        });
        let as_previous = graph(PLAIN, Phase::Step, |g, results| {
            let current = g.input("current", TensorType::new(DType::F16, [2, 3]), Phase::Step).unwrap();
            let strength = g.input("strength", f32s(&[1]), Phase::Step).unwrap();
            let op = TemporalBlend::default();
            let y = g.temporal_blend("blend", current, results[0], strength, op).unwrap();
            g.output("y", y).unwrap();
        });
        let denoised = SamplerStep { emit_denoised: true, ..PLAIN };
        let of_denoised = graph(denoised, Phase::Step, |g, results| {
            let y = blend(g, results[1], None);
            g.output("y", y).unwrap();
        });
        let scaled = graph(SamplerStep { emit_scaled: true, ..PLAIN }, Phase::Step, |g, results| {
            g.output("scaled", results[1]).unwrap();
            blend_next(g, results);
        });
        let twice = graph(SamplerStep { blend: true, ..PLAIN }, Phase::Step, blend_next);
        for (i, graph) in [threshold, as_previous, of_denoised, scaled, twice].iter().enumerate() {
            assert_eq!(names(&run(graph)), ["step", "blend"], "graph {i}");
        }
    }

    #[test]
    fn a_frame_before_that_depends_on_the_step_does_not_make_it_wait_for_itself() {
        let op = SamplerStep { emit_denoised: true, ..PLAIN };
        let after = run(&graph(op, Phase::Step, |g, results| {
            let previous = g.scale("previous", results[1], 0.5, 0.0).unwrap();
            let strength = g.input("strength", f32s(&[1]), Phase::Step).unwrap();
            let op = TemporalBlend::default();
            let y = g.temporal_blend("blend", results[0], previous, strength, op).unwrap();
            g.output("y", y).unwrap();
        }));
        assert_eq!(names(&after), ["step", "previous", "blend"]);
    }

    #[test]
    fn a_step_of_the_clip_takes_no_blend_of_the_step() {
        assert_eq!(names(&run(&graph(PLAIN, Phase::Clip, blend_next))), ["step", "blend"]);
    }
}
