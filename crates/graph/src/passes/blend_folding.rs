//! Folds the blend with a residual branch into the branch's weights.

use super::{Pass, linear_parts::LinearParts};
use crate::{DType, Editor, GraphError, NodeId, Op, Phase, Target, ValueId, op::Scale};

/// Folds the blend of a tensor with itself plus a convolution (or linear op) into the convolution's weights:
///
/// ```text
/// α·s + (1−α)·(s + conv(h))   =   s + (1−α)·conv(h)
/// α·(s + conv(h)) + (1−α)·s   =   s + α·conv(h)
/// ```
///
/// This is the end of SVD's spatio-temporal residual block, whose temporal half skips by the identity. α must be known at
/// load, or the weights would have to be scaled at every step. Other blends become epilogues.
///
/// The folded weight keeps the old one's element type: f32 would double its memory. The factor is between 0 and 1, so
/// nothing overflows, and an f16 weight is rounded once more, by half an ulp. A weight that falls below f16's normal
/// range (6e-5) is off by at most 3e-8, less than f16 resolves next to any weight large enough to matter.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlendFolding;

impl Pass for BlendFolding {
    fn name(&self) -> &'static str {
        "blend_folding"
    }

    fn rewrite(&self, editor: &mut Editor, _target: &dyn Target) -> Result<(), GraphError> {
        for id in editor.node_ids() {
            if let Some(residual) = find(editor, id) {
                fold(editor, id, residual)?;
            }
        }
        Ok(())
    }
}

/// A residual branch that is blended with its own skip.
struct Residual {
    skip: ValueId,
    branch: ValueId,
    name: String,
    parts: LinearParts,
    alpha: ValueId,
    /// Whether the sum is the side weighted by α.
    sum_first: bool,
    /// Whether the sum's first operand, which determines its element type, is the branch.
    branch_first: bool,
}

fn find(editor: &Editor, id: NodeId) -> Option<Residual> {
    let node = editor.node(id);
    let (Op::Blend, &[a, b, alpha]) = (&node.op, node.inputs.as_slice()) else { return None };
    if *editor.ty(alpha).shape != [1] || editor.phase(alpha) != Phase::Load {
        return None;
    }
    [(a, b, true), (b, a, false)].into_iter().find_map(|(sum, skip, sum_first)| {
        let (_, sum) = editor.sole_producer(sum)?;
        let (Op::Add, &[first, second]) = (&sum.op, sum.inputs.as_slice()) else { return None };
        let (branch, branch_first) = match skip {
            skip if skip == first => (second, false),
            skip if skip == second => (first, true),
            _ => return None,
        };
        let (_, linear) = editor.sole_producer(branch)?;
        let parts = LinearParts::of(linear)?;
        let foldable = parts.ends_in_bias() && parts.is_known_at_load(editor);
        let name = linear.name.clone();
        foldable.then_some(Residual { skip, branch, name, parts, alpha, sum_first, branch_first })
    })
}

fn fold(editor: &mut Editor, id: NodeId, residual: Residual) -> Result<(), GraphError> {
    let Residual { skip, branch, name, mut parts, alpha, sum_first, branch_first } = residual;
    let factor = if sum_first {
        alpha
    } else {
        // In f32, where 1 − α loses nothing.
        let alpha = match editor.ty(alpha).dtype {
            DType::F32 => alpha,
            _ => editor.add(format!("{name}.alpha"), Op::Cast(DType::F32), &[alpha])?[0],
        };
        let one_minus = Op::Scale(Scale { factor: -1.0, offset: 1.0 });
        editor.add(format!("{name}.one_minus_alpha"), one_minus, &[alpha])?[0]
    };
    parts.weight = editor.add(format!("{name}.weight.folded"), Op::Mul, &[parts.weight, factor])?[0];
    if let Some(bias) = parts.bias {
        parts.bias = Some(editor.add(format!("{name}.bias.folded"), Op::Mul, &[bias, factor])?[0]);
    }
    let scaled = editor.add(name, parts.op.clone(), &parts.inputs())?[0];
    debug_assert_eq!(editor.ty(scaled), editor.ty(branch));

    // The blend's element type is that of its first side: the skip's, or the sum's.
    let operands = if sum_first && branch_first { [scaled, skip] } else { [skip, scaled] };
    let blend = editor.node(id).name.clone();
    editor.replace_node(id, blend, Op::Add, &operands)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FuseNothing, Graph, GraphBuilder, TensorType, op::Conv, passes::names};

    struct Setting {
        alpha: Phase,
        alphas: usize,
        sum_first: bool,
        expose_sum: bool,
        identity_skip: bool,
    }

    const SVD: Setting =
        Setting { alpha: Phase::Load, alphas: 1, sum_first: false, expose_sum: false, identity_skip: true };

    fn graph(setting: &Setting) -> Graph {
        let ty = |shape: &[usize]| TensorType::new(DType::F16, shape);
        let mut g = GraphBuilder::new("g");
        let s = g.input("s", ty(&[4, 2, 2, 3]), Phase::Step).unwrap();
        let h = g.input("h", ty(&[4, 2, 2, 3]), Phase::Step).unwrap();
        let w = g.parameter("conv2.weight", ty(&[3, 3, 1, 1, 3])).unwrap();
        let b = g.parameter("conv2.bias", ty(&[3])).unwrap();
        let alpha = match setting.alpha {
            Phase::Load => g.parameter("mix", ty(&[setting.alphas])).unwrap(),
            phase => g.input("mix", ty(&[setting.alphas]), phase).unwrap(),
        };
        let c = g.conv("conv2", h, w, Some(b), Conv::temporal(3, 4)).unwrap();
        let t = g.add("skip", if setting.identity_skip { s } else { h }, c).unwrap();
        let [first, second] = if setting.sum_first { [t, s] } else { [s, t] };
        let out = g.blend("blend", first, second, alpha).unwrap();
        g.output("out", out).unwrap();
        if setting.expose_sum {
            g.output("t", t).unwrap();
        }
        g.finish()
    }

    #[test]
    fn the_temporal_side_is_scaled_by_one_minus_alpha() {
        let after = BlendFolding.run(&graph(&SVD), &FuseNothing).unwrap();
        assert_eq!(
            names(&after),
            [
                "conv2.alpha",
                "conv2.one_minus_alpha",
                "conv2.weight.folded",
                "conv2.bias.folded",
                "conv2",
                "blend"
            ]
        );
        assert_eq!(after.nodes()[1].op, Op::Scale(Scale { factor: -1.0, offset: 1.0 }));
        assert_eq!(after.nodes()[5].op, Op::Add);
        assert_eq!(after.nodes()[5].inputs, [after.inputs()[0], after.nodes()[4].outputs[0]]);
        let phases = after.phases();
        assert!(after.nodes()[..4].iter().all(|n| phases[n.outputs[0].index()] == Phase::Load));
        assert_eq!(after.ty(after.nodes()[4].inputs[1]), &TensorType::new(DType::F16, [3, 3, 1, 1, 3]));
    }

    #[test]
    fn the_side_that_alpha_weighs_is_scaled_by_alpha() {
        let after = BlendFolding.run(&graph(&Setting { sum_first: true, ..SVD }), &FuseNothing).unwrap();
        assert_eq!(names(&after), ["conv2.weight.folded", "conv2.bias.folded", "conv2", "blend"]);
        assert_eq!(after.value(after.nodes()[0].inputs[1]).name, "mix");
    }

    #[test]
    fn what_is_not_that_pattern_stays() {
        let settings = [
            Setting { alpha: Phase::Clip, ..SVD },
            Setting { alphas: 4, ..SVD },
            Setting { expose_sum: true, ..SVD },
            Setting { identity_skip: false, ..SVD },
        ];
        for (i, setting) in settings.iter().enumerate() {
            let after = BlendFolding.run(&graph(setting), &FuseNothing).unwrap();
            assert_eq!(names(&after), ["conv2", "skip", "blend"], "setting {i}");
        }
    }
}
