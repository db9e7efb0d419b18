//! Folds the doubling of an image into the convolution after it.

use super::{Pass, linear_parts::LinearParts};
use crate::{
    DType, Editor, GraphError, Node, NodeId, Op, Target, TensorType, ValueId,
    op::{Concat, Conv, Interpolation, Slice},
};

/// Turns a 3×3 convolution of an image whose every pixel was doubled into a sub-pixel convolution of the image itself, if the backend
/// has a kernel for it. Of the three lines that a window reads, two are the same line of the image, so their weights can be added
/// up beforehand:
///
/// ```text
/// lines of the doubled image      weights of the upper pixels      of the lower pixels
/// … i−1  i−1  i  i  i+1 …          i−1: w₀    i: w₁ + w₂             i: w₀ + w₁    i+1: w₂
/// ```
///
/// The same for columns: 4 products a pixel instead of 9, and the doubled image is never stored. The sums are computed in f32 and
/// rounded once, to the weight's type.
#[derive(Clone, Copy, Debug, Default)]
pub struct UpsampleFolding;

impl Pass for UpsampleFolding {
    fn name(&self) -> &'static str {
        "upsample_folding"
    }

    fn rewrite(&self, editor: &mut Editor, target: &dyn Target) -> Result<(), GraphError> {
        for id in editor.node_ids() {
            if let Some(found) = find(editor, target, id) {
                fold(editor, id, found)?;
            }
        }
        Ok(())
    }
}

/// A convolution of a doubled image.
struct Found {
    name: String,
    parts: LinearParts,
    /// The image before it is doubled.
    image: ValueId,
    /// The convolution of it.
    folded: Conv,
}

fn find(editor: &Editor, target: &dyn Target, id: NodeId) -> Option<Found> {
    let node = editor.node(id);
    let Op::Conv(conv) = &node.op else { return None };
    let parts = LinearParts::of(node)?;
    let same = Conv::spatial([3, 3], 1, 1);
    let fits =
        Conv { frames: conv.frames, bias: conv.bias, epilogue: conv.epilogue.clone(), ..same } == *conv;
    let (_, upsample) = editor.sole_producer(parts.x)?;
    let image = doubled(editor, upsample)?;
    if !fits || !parts.is_known_at_load(editor) {
        return None;
    }
    let folded =
        Conv { frames: conv.frames, bias: conv.bias, epilogue: conv.epilogue.clone(), ..Conv::subpixel() };
    let weight = editor.ty(parts.weight);
    let (filters, channels) = (weight.shape[0].checked_mul(4)?, weight.shape[4]);
    let weight = TensorType::new(weight.dtype, [filters, 1, 2, 2, channels]);
    let inputs = parts.inputs();
    let mut types = editor.types(&inputs);
    (types[0], types[1]) = (editor.ty(image), &weight);
    let op = Op::Conv(folded.clone());
    let fits = op.infer(&types).is_ok_and(|results| results == [editor.ty(node.outputs[0]).clone()]);
    (fits && target.fuses(&op, &types)).then(|| Found { name: node.name.clone(), parts, image, folded })
}

/// The image that a node doubles.
fn doubled(editor: &Editor, node: &Node) -> Option<ValueId> {
    let (Op::Upsample(op), &[image]) = (&node.op, node.inputs.as_slice()) else { return None };
    let shape = &editor.ty(image).shape;
    let twice = [shape[1].checked_mul(2)?, shape[2].checked_mul(2)?];
    (op.interpolation == Interpolation::Nearest && op.size == twice).then_some(image)
}

fn fold(editor: &mut Editor, id: NodeId, found: Found) -> Result<(), GraphError> {
    let Found { name, mut parts, image, folded } = found;
    let dtype = editor.ty(parts.weight).dtype;
    let mut weight = parts.weight;
    if dtype != DType::F32 {
        weight = editor.add(format!("{name}.weight.f32"), Op::Cast(DType::F32), &[weight])?[0];
    }
    // Filters of the upper pixels and of the lower ones; then of each, of the left pixels and of the right ones.
    for (axis, which) in [(2, "lines"), (3, "columns")] {
        weight = summed_taps(editor, &format!("{name}.weight.{which}"), weight, axis)?;
    }
    if dtype != DType::F32 {
        weight = editor.add(format!("{name}.weight.folded"), Op::Cast(dtype), &[weight])?[0];
    }
    (parts.x, parts.weight) = (image, weight);
    editor.replace_node(id, name, Op::Conv(folded), &parts.inputs())?;
    Ok(())
}

/// Filters with two taps of three along an axis: first those that add up the last two, then those that add up the first two.
fn summed_taps(editor: &mut Editor, name: &str, weight: ValueId, axis: usize) -> Result<ValueId, GraphError> {
    let mut taps = [weight; 3];
    for (start, tap) in taps.iter_mut().enumerate() {
        let slice = Op::Slice(Slice { axis, start, len: 1 });
        *tap = editor.add(format!("{name}.{start}"), slice, &[weight])?[0];
    }
    let [first, middle, last] = taps;
    let late = editor.add(format!("{name}.1+2"), Op::Add, &[middle, last])?[0];
    let early = editor.add(format!("{name}.0+1"), Op::Add, &[first, middle])?[0];
    let mut join = |name, axis, values: &[ValueId]| -> Result<ValueId, GraphError> {
        Ok(editor.add(name, Op::Concat(Concat { axis }), values)?[0])
    };
    let before = join(format!("{name}.before"), axis, &[first, late])?;
    let after = join(format!("{name}.after"), axis, &[early, last])?;
    join(name.to_owned(), 0, &[before, after])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        FuseAll, FuseNothing, Graph, GraphBuilder, Phase,
        op::{Activation, Stage},
        passes::names,
    };

    struct Setting {
        size: [usize; 2],
        interpolation: Interpolation,
        conv: Conv,
        weight: Phase,
        expose: bool,
    }

    impl Default for Setting {
        fn default() -> Self {
            let conv = Conv::spatial([3, 3], 1, 1);
            let (interpolation, weight) = (Interpolation::Nearest, Phase::Load);
            Setting { size: [6, 8], interpolation, conv, weight, expose: false }
        }
    }

    fn graph(setting: &Setting) -> Graph {
        let f16 = |shape: &[usize]| TensorType::new(DType::F16, shape);
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", f16(&[2, 3, 4, 8]), Phase::Step).unwrap();
        let [kt, kh, kw] = setting.conv.kernel;
        let weight = f16(&[5, kt, kh, kw, 8]);
        let weight = match setting.weight {
            Phase::Load => g.parameter("conv.weight", weight).unwrap(),
            phase => g.input("conv.weight", weight, phase).unwrap(),
        };
        let bias = g.parameter("conv.bias", f16(&[5])).unwrap();
        let large = g.upsample("twice", x, setting.interpolation, setting.size).unwrap();
        let y = g.conv("conv", large, weight, Some(bias), setting.conv.clone()).unwrap();
        let y = g.activate("silu", y, Activation::Silu).unwrap();
        g.output("y", y).unwrap();
        if setting.expose {
            g.output("large", large).unwrap();
        }
        g.finish()
    }

    #[test]
    fn a_doubled_image_is_not_stored() {
        let before = graph(&Setting::default());
        let after = UpsampleFolding.run(&before, &FuseAll).unwrap();
        let phases = after.phases();
        let runs = |node: &&Node| phases[node.outputs[0].index()] == Phase::Step;
        let running: Vec<&str> = after.nodes().iter().filter(runs).map(|node| node.name.as_str()).collect();
        assert_eq!(running, ["conv", "silu"]);
        let conv = after.nodes().iter().find(|node| node.name == "conv").unwrap();
        assert_eq!(conv.op, Op::Conv(Conv { bias: true, ..Conv::subpixel() }));
        assert_eq!(*after.ty(conv.inputs[1]), TensorType::new(DType::F16, [20, 1, 2, 2, 8]));
        assert_eq!(after.ty(conv.outputs[0]), before.ty(before.nodes()[1].outputs[0]));
        // Four products of nine.
        let flops = |graph: &Graph, node: &Node| {
            let types = |values: &[ValueId]| values.iter().map(|&value| graph.ty(value)).collect::<Vec<_>>();
            node.op.flops(&types(&node.inputs), &types(&node.outputs))
        };
        assert_eq!(9 * flops(&after, conv), 4 * flops(&before, &before.nodes()[1]));
    }

    #[test]
    fn what_is_already_fused_comes_along() {
        let conv = Conv { epilogue: vec![Stage::Scale(0.5)], ..Conv::spatial([3, 3], 1, 1) };
        let after = UpsampleFolding.run(&graph(&Setting { conv, ..Setting::default() }), &FuseAll).unwrap();
        let expected = Conv { bias: true, epilogue: vec![Stage::Scale(0.5)], ..Conv::subpixel() };
        assert!(after.nodes().iter().any(|node| node.op == Op::Conv(expected.clone())));
    }

    #[test]
    fn other_convolutions_stay_as_they_are() {
        let settings = [
            Setting { size: [6, 7], ..Setting::default() },
            Setting { size: [9, 12], ..Setting::default() },
            Setting { interpolation: Interpolation::Bilinear, ..Setting::default() },
            Setting { conv: Conv::spatial([3, 3], 2, 1), ..Setting::default() },
            Setting { conv: Conv::spatial([3, 3], 1, 0), ..Setting::default() },
            Setting { conv: Conv::spatial([1, 1], 1, 0), ..Setting::default() },
            Setting {
                conv: Conv { dilation: [1, 1, 2], ..Conv::spatial([3, 3], 1, 1) },
                ..Setting::default()
            },
            // The weight would have to be added up in every step.
            Setting { weight: Phase::Step, ..Setting::default() },
            // The doubled image is needed anyway.
            Setting { expose: true, ..Setting::default() },
        ];
        for (number, setting) in settings.iter().enumerate() {
            let before = graph(setting);
            let after = UpsampleFolding.run(&before, &FuseAll).unwrap();
            assert_eq!(names(&after), names(&before), "setting {number}");
        }
        let before = graph(&Setting::default());
        assert_eq!(names(&UpsampleFolding.run(&before, &FuseNothing).unwrap()), names(&before));
    }
}
