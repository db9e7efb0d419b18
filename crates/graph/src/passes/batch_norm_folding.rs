//! Folds batch norms into the weights before them.

use super::{
    MAX_VECTOR_BYTES, Pass,
    linear_parts::{LinearParts, reshaped},
};
use crate::{DType, Editor, GraphError, NodeId, Op, Phase, Shape, Target, Tensor, TensorType, ValueId};

/// Folds a batch norm into the convolution or linear op before it. The batch norm must be its only reader.
///
/// A batch norm is an affine map of each channel, `f·(y − mean) + shift` with `f = scale / √(variance + ε)`. With
/// `y = W·x + b` that is `(f·W)·x + f·(b − mean) + shift`. Both factors are batch norms themselves, so that no op with
/// a square root is needed: `f` is the batch norm of ones with mean and shift zero, and the new bias is the batch norm of
/// the old one.
///
/// Folded weights and biases are f32, whatever they were: `f` can have any magnitude, and `f·W` may overflow f16 even
/// if `W` and the batch norm's result do not.
#[derive(Clone, Copy, Debug, Default)]
pub struct BatchNormFolding;

impl Pass for BatchNormFolding {
    fn name(&self) -> &'static str {
        "batch_norm_folding"
    }

    fn rewrite(&self, editor: &mut Editor, _target: &dyn Target) -> Result<(), GraphError> {
        for id in editor.node_ids() {
            fold(editor, id)?;
        }
        Ok(())
    }
}

fn fold(editor: &mut Editor, id: NodeId) -> Result<(), GraphError> {
    let node = editor.node(id);
    let (Op::BatchNorm(_), &[y, mean, variance, scale, shift]) = (&node.op, node.inputs.as_slice()) else {
        return Ok(());
    };
    let Some((_, linear)) = editor.sole_producer(y) else { return Ok(()) };
    let Some(mut parts) = LinearParts::of(linear) else { return Ok(()) };
    let statistics_at_load = node.inputs[1..].iter().all(|&v| editor.phase(v) == Phase::Load);
    // The filters of a sub-pixel convolution are not those of the channels, one by one.
    let by_channel = !matches!(&parts.op, Op::Conv(op) if op.subpixel);
    if !statistics_at_load || !by_channel || !parts.ends_in_bias() || !parts.is_known_at_load(editor) {
        return Ok(());
    }
    let (op, name) = (node.op.clone(), linear.name.clone());
    let channels = editor.ty(mean).shape.clone();
    if channels.elements().saturating_mul(size_of::<f32>()) > MAX_VECTOR_BYTES {
        return Ok(());
    }

    let zeros = constant(editor, &name, &channels, 0.0)?;
    let ones = constant(editor, &name, &channels, 1.0)?;
    let factor_operands = [ones, zeros, variance, scale, zeros];
    let factor = editor.add(format!("{name}.factor"), op.clone(), &factor_operands)?[0];

    let bias = match parts.bias {
        None => zeros,
        Some(bias) => in_f32(editor, format!("{name}.bias.f32"), bias)?,
    };
    let folded_bias =
        editor.add(format!("{name}.bias.folded"), op, &[bias, mean, variance, scale, shift])?[0];
    parts.set_bias(folded_bias);

    // One factor per output channel, which is the weight's first axis.
    let mut rows = vec![1; editor.ty(parts.weight).shape.len()];
    rows[0] = channels.elements();
    let factor = reshaped(editor, factor, &Shape::from(rows))?;
    let weight = in_f32(editor, format!("{name}.weight.f32"), parts.weight)?;
    parts.weight = editor.add(format!("{name}.weight.folded"), Op::Mul, &[weight, factor])?[0];

    editor.replace_node(id, name, parts.op.clone(), &parts.inputs())?;
    Ok(())
}

/// The value as f32; the value itself if it already is.
fn in_f32(editor: &mut Editor, name: String, value: ValueId) -> Result<ValueId, GraphError> {
    if editor.ty(value).dtype == DType::F32 {
        return Ok(value);
    }
    Ok(editor.add(name, Op::Cast(DType::F32), &[value])?[0])
}

fn constant(editor: &mut Editor, name: &str, shape: &Shape, element: f32) -> Result<ValueId, GraphError> {
    let elements = vec![element; shape.elements()];
    let tensor = Tensor::from_slice(shape.clone(), &elements).map_err(|_| GraphError::TooLarge {
        name: name.to_owned(),
        ty: TensorType::new(DType::F32, shape.clone()),
    })?;
    Ok(editor.constant(format!("{name}.{element}"), tensor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FuseNothing, Graph, GraphBuilder, op::Conv, passes::names};

    struct Setting {
        bias: Option<DType>,
        second_reader: bool,
        statistics: Phase,
    }

    fn graph(setting: &Setting) -> Graph {
        let f16 = |shape: &[usize]| TensorType::new(DType::F16, shape);
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", f16(&[1, 4, 4, 2]), Phase::Step).unwrap();
        let w = g.parameter("conv.weight", f16(&[3, 1, 3, 3, 2])).unwrap();
        let b = setting.bias.map(|dtype| g.parameter("conv.bias", TensorType::new(dtype, [3])).unwrap());
        let y = g.conv("conv", x, w, b, Conv::spatial([3, 3], 1, 1)).unwrap();
        let statistics = ["mean", "variance", "scale", "shift"].map(|name| {
            let ty = TensorType::new(DType::F32, [3]);
            match setting.statistics {
                Phase::Load => g.parameter(name, ty).unwrap(),
                phase => g.input(name, ty, phase).unwrap(),
            }
        });
        let z = g.batch_norm("bn", y, statistics, 1e-5).unwrap();
        g.output("z", z).unwrap();
        if setting.second_reader {
            g.output("y", y).unwrap();
        }
        g.finish()
    }

    #[test]
    fn a_batch_norm_becomes_weights_that_are_made_at_load() {
        let setting = Setting { bias: Some(DType::F16), second_reader: false, statistics: Phase::Load };
        let before = graph(&setting);
        let after = BatchNormFolding.run(&before, &FuseNothing).unwrap();
        let last = after.nodes().last().unwrap();
        assert_eq!((last.name.as_str(), last.inputs.len()), ("conv", 3));
        assert_eq!(after.ty(last.outputs[0]), before.ty(before.outputs()[0].value));
        assert_eq!(after.ty(last.inputs[1]), &TensorType::new(DType::F32, [3, 1, 3, 3, 2]));
        assert_eq!(after.ty(last.inputs[2]), &TensorType::new(DType::F32, [3]));
        let phases = after.phases();
        let at_load = after.nodes().iter().filter(|n| phases[n.outputs[0].index()] == Phase::Load).count();
        assert_eq!(at_load, after.nodes().len() - 1);

        // The factor: ones, mean zero, the variance and scale, shift zero.
        let factor = after.nodes().iter().find(|n| n.name == "conv.factor").unwrap();
        let operands: Vec<&str> = factor.inputs.iter().map(|&v| after.value(v).name.as_str()).collect();
        assert_eq!(operands, ["conv.1", "conv.0", "variance", "scale", "conv.0"]);
        let bias = after.nodes().iter().find(|n| n.name == "conv.bias.folded").unwrap();
        let operands: Vec<&str> = bias.inputs.iter().map(|&v| after.value(v).name.as_str()).collect();
        assert_eq!(operands, ["conv.bias.f32", "mean", "variance", "scale", "shift"]);
        // Neither narrow weight is multiplied before it is widened.
        let weight = after.nodes().iter().find(|n| n.name == "conv.weight.folded").unwrap();
        let operands: Vec<&str> = weight.inputs.iter().map(|&v| after.value(v).name.as_str()).collect();
        assert_eq!(operands, ["conv.weight.f32", "conv.factor.view"]);
        let cast = after.nodes().iter().find(|n| n.name == "conv.weight.f32").unwrap();
        assert_eq!(
            (&cast.op, after.value(cast.inputs[0]).name.as_str()),
            (&Op::Cast(DType::F32), "conv.weight")
        );
    }

    #[test]
    fn a_missing_bias_counts_as_zero() {
        let setting = Setting { bias: None, second_reader: false, statistics: Phase::Load };
        let after = BatchNormFolding.run(&graph(&setting), &FuseNothing).unwrap();
        assert!(matches!(&after.nodes().last().unwrap().op, Op::Conv(conv) if conv.bias));
        let bias = after.nodes().iter().find(|n| n.name == "conv.bias.folded").unwrap();
        assert_eq!(after.value(bias.inputs[0]).name, "conv.0");
    }

    #[test]
    fn channels_beyond_any_model_are_left() {
        for (channels, folded) in
            [(MAX_VECTOR_BYTES / 4, true), (MAX_VECTOR_BYTES / 4 + 1, false), (1 << 50, false)]
        {
            let mut g = GraphBuilder::new("g");
            let ty = |shape: &[usize]| TensorType::new(DType::F32, shape);
            let x = g.input("x", ty(&[1, 1]), Phase::Step).unwrap();
            let w = g.parameter("w", ty(&[channels, 1])).unwrap();
            let y = g.linear("linear", x, w, None).unwrap();
            let statistics =
                ["mean", "variance", "scale", "shift"].map(|n| g.parameter(n, ty(&[channels])).unwrap());
            let z = g.batch_norm("bn", y, statistics, 1e-5).unwrap();
            g.output("z", z).unwrap();
            let graph = g.finish();
            assert_eq!(BatchNormFolding.run(&graph, &FuseNothing).unwrap() != graph, folded, "{channels}");
        }
    }

    #[test]
    fn another_reader_or_late_statistics_prevent_it() {
        for (second_reader, statistics) in [(true, Phase::Load), (false, Phase::Clip)] {
            let before = graph(&Setting { bias: None, second_reader, statistics });
            assert_eq!(names(&BatchNormFolding.run(&before, &FuseNothing).unwrap()), ["conv", "bn"]);
        }
    }
}
