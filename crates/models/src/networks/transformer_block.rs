//! The block that transformers over images are made of.

use kinora_graph::{GraphError, ValueId, op::Attention};

use super::{
    attention::{attention, attention_with},
    layers::Layers,
    memory::Memory,
};

/// Of the layer norms.
pub(super) const EPSILON: f32 = 1e-5;

/// Self-attention, cross-attention to the context and a feed-forward, each behind a norm and with a residual:
/// `BasicTransformerBlock`. Self-attention may remember the frames before.
pub(super) fn transformer_block(
    l: &mut Layers<'_>,
    x: ValueId,
    context: ValueId,
    to_itself: &Attention,
    to_context: &Attention,
    memory: Option<&Memory>,
) -> Result<ValueId, GraphError> {
    let n = l.layer_norm("norm1", x, EPSILON)?;
    let h = l.scope("attn1", |l| attention_with(l, n, n, false, to_itself, memory))?;
    let x = l.g.add("attn1_residual", h, x)?;
    let n = l.layer_norm("norm2", x, EPSILON)?;
    let h = l.scope("attn2", |l| attention(l, n, context, false, to_context))?;
    let x = l.g.add("attn2_residual", h, x)?;
    let n = l.layer_norm("norm3", x, EPSILON)?;
    let h = feed_forward(l, "ff", n)?;
    l.g.add("ff_residual", h, x)
}

/// GEGLU of four times the channels, and back.
pub(super) fn feed_forward(l: &mut Layers<'_>, name: &str, x: ValueId) -> Result<ValueId, GraphError> {
    let channels = l.channels(x);
    l.scope(name, |l| {
        let h = l.linear("net.0.proj", x, 8 * channels, true)?;
        let h = l.g.geglu("net.0.gate", h)?;
        l.linear("net.2", h, channels, true)
    })
}
