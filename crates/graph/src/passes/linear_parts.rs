//! Convolutions and matrix products taken apart, for the passes that fold or fuse into them.

use crate::{
    Editor, GraphError, Node, Op, Phase, Shape, Target, TensorType, ValueId,
    op::{Norm, Reshape},
};

/// A convolution or linear node with its operands by role.
#[derive(Clone, Debug)]
pub(super) struct LinearParts {
    pub(super) op: Op,
    pub(super) x: ValueId,
    pub(super) weight: ValueId,
    pub(super) scale: Option<ValueId>,
    pub(super) bias: Option<ValueId>,
    pub(super) prologue: Vec<ValueId>,
    pub(super) epilogue: Vec<ValueId>,
}

impl LinearParts {
    /// Takes a node apart, if it is a convolution or a linear op.
    pub(super) fn of(node: &Node) -> Option<Self> {
        let operands = match &node.op {
            // A node that the editor removed has no operands.
            _ if node.inputs.is_empty() => return None,
            Op::Conv(op) => op.operands(&node.inputs),
            Op::Linear(op) => op.operands(&node.inputs),
            _ => return None,
        };
        Some(LinearParts {
            op: node.op.clone(),
            x: *operands.x,
            weight: *operands.weight,
            scale: operands.scale.copied(),
            bias: operands.bias.copied(),
            prologue: operands.prologue.to_vec(),
            epilogue: operands.epilogue.to_vec(),
        })
    }

    /// The operands in the op's order.
    pub(super) fn inputs(&self) -> Vec<ValueId> {
        let mut inputs = vec![self.x, self.weight];
        inputs.extend(self.scale);
        inputs.extend(self.bias);
        inputs.extend(&self.prologue);
        inputs.extend(&self.epilogue);
        inputs
    }

    /// The norm of the input.
    pub(super) fn norm(&self) -> Option<&Norm> {
        match &self.op {
            Op::Conv(op) => op.prologue.as_ref(),
            Op::Linear(op) => op.prologue.as_ref(),
            _ => None,
        }
    }

    /// Makes a norm, with its learned operands, the prologue.
    pub(super) fn set_norm(&mut self, norm: Norm, operands: &[ValueId]) {
        match &mut self.op {
            Op::Conv(op) => op.prologue = Some(norm),
            Op::Linear(op) => op.prologue = Some(norm),
            _ => return,
        }
        self.prologue = operands.to_vec();
    }

    /// Sets or replaces the op's bias.
    pub(super) fn set_bias(&mut self, bias: ValueId) {
        match &mut self.op {
            Op::Conv(op) => op.bias = true,
            Op::Linear(op) => op.bias = true,
            _ => return,
        }
        self.bias = Some(bias);
    }

    /// Whether the result is the weight times the (normalised) input plus the bias, with nothing after that: scaling
    /// weight and bias then scales the result. A quantised weight cannot be changed.
    pub(super) fn ends_in_bias(&self) -> bool {
        let gated = matches!(&self.op, Op::Linear(op) if op.gate.is_some());
        !gated && self.scale.is_none() && self.op.epilogue().is_some_and(<[_]>::is_empty)
    }

    /// Whether weight and bias are known when the model is loaded, so that a changed one is computed once.
    pub(super) fn is_known_at_load(&self, editor: &Editor) -> bool {
        self.known(editor) == Phase::Load
    }

    /// The phase in which both weight and bias are known.
    pub(super) fn known(&self, editor: &Editor) -> Phase {
        let both = [Some(self.weight), self.bias].into_iter().flatten();
        both.map(|v| editor.phase(v)).max().unwrap_or(Phase::Load)
    }
}

/// A value with a shape that it may not have yet, so that a fusion can be proposed before anything is added.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) value: ValueId,
    pub(super) shape: Shape,
}

impl View {
    /// Values as they are.
    pub(super) fn of(editor: &Editor, values: &[ValueId]) -> Vec<View> {
        values.iter().map(|&value| View { value, shape: editor.ty(value).shape.clone() }).collect()
    }

    /// The values in their shapes, with reshapes where those are new.
    pub(super) fn materialise(editor: &mut Editor, views: &[View]) -> Result<Vec<ValueId>, GraphError> {
        views.iter().map(|view| reshaped(editor, view.value, &view.shape)).collect()
    }
}

/// Whether the op may replace a value of type `result`: it accepts the operands, returns that type, and the backend
/// runs it. The backend is not asked about an op with nothing fused in.
pub(super) fn may_replace(
    editor: &Editor,
    target: &dyn Target,
    op: &Op,
    operands: &[View],
    result: &TensorType,
) -> bool {
    let types: Vec<TensorType> =
        operands.iter().map(|o| TensorType::new(editor.ty(o.value).dtype, o.shape.clone())).collect();
    let types: Vec<&TensorType> = types.iter().collect();
    op.infer(&types).is_ok_and(|results| results == [result.clone()])
        && (!has_something_fused(op) || target.fuses(op, &types))
}

fn has_something_fused(op: &Op) -> bool {
    match op {
        Op::Conv(op) => op.subpixel || op.prologue.is_some() || !op.epilogue.is_empty(),
        Op::Linear(op) => op.prologue.is_some() || op.gate.is_some() || !op.epilogue.is_empty(),
        Op::Norm(op) => op.activation.is_some(),
        _ => false,
    }
}

/// The value in another shape; the value itself if it already has that shape.
pub(super) fn reshaped(editor: &mut Editor, value: ValueId, shape: &Shape) -> Result<ValueId, GraphError> {
    if editor.ty(value).shape == *shape {
        return Ok(value);
    }
    let name = format!("{}.view", editor.value(value).name);
    Ok(editor.add(name, Op::Reshape(Reshape { shape: shape.clone() }), &[value])?[0])
}

/// The operand of a reshape that leaves the channels as they are, so that it commutes with ops on channel vectors.
pub(super) fn reshaped_rows(editor: &Editor, node: &Node) -> Option<ValueId> {
    let (Op::Reshape(op), &[x]) = (&node.op, node.inputs.as_slice()) else { return None };
    let from = &editor.ty(x).shape;
    let keeps_channels = !from.is_empty() && !op.shape.is_empty() && from.channels() == op.shape.channels();
    keeps_channels.then_some(x)
}
