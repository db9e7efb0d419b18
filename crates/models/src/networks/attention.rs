//! Attention between learned projections.

use kinora_graph::{GraphError, ValueId, op::Attention};

use super::{layers::Layers, memory::Memory};

/// Queries of `x`, keys and values of the context, with or without biases, and a projection of what is found, under the
/// names of `Attention` of diffusers.
pub(crate) fn attention(
    l: &mut Layers<'_>,
    x: ValueId,
    context: ValueId,
    bias: bool,
    op: &Attention,
) -> Result<ValueId, GraphError> {
    attention_with(l, x, context, bias, op, None)
}

/// The same, also to what is remembered of the frames before.
pub(crate) fn attention_with(
    l: &mut Layers<'_>,
    x: ValueId,
    context: ValueId,
    bias: bool,
    op: &Attention,
    memory: Option<&Memory>,
) -> Result<ValueId, GraphError> {
    let channels = l.channels(x);
    let q = l.linear("to_q", x, channels, bias)?;
    let mut k = l.linear("to_k", context, channels, bias)?;
    let mut v = l.linear("to_v", context, channels, bias)?;
    if let Some(memory) = memory {
        k = memory.recall(l, "keys", k)?;
        v = memory.recall(l, "values", v)?;
    }
    let h = l.g.attention("attention", [q, k, v], &[], op.clone())?;
    l.linear("to_out.0", h, channels, true)
}
