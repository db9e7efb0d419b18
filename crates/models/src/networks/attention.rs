//! Attention between learned projections.

use kinora_graph::{GraphError, ValueId, op::Attention};

use super::layers::Layers;

/// Queries of `x`, keys and values of the context, with or without biases, and a projection of what is found, under the
/// names of `Attention` of diffusers.
pub(crate) fn attention(
    l: &mut Layers<'_>,
    x: ValueId,
    context: ValueId,
    bias: bool,
    op: &Attention,
) -> Result<ValueId, GraphError> {
    let channels = l.channels(x);
    let q = l.linear("to_q", x, channels, bias)?;
    let k = l.linear("to_k", context, channels, bias)?;
    let v = l.linear("to_v", context, channels, bias)?;
    let h = l.g.attention("attention", [q, k, v], &[], op.clone())?;
    l.linear("to_out.0", h, channels, true)
}
