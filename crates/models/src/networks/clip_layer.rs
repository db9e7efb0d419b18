//! The layer that both of CLIP's encoders are made of, under the names that transformers gives its weights.

use kinora_graph::{
    GraphError, ValueId,
    op::{Activation, Attention, Mask},
};

use super::layers::Layers;

/// The shape of a layer.
pub(crate) struct ClipLayer {
    /// Heads of the attention.
    pub heads: usize,
    /// Channels between the two products of the feed-forward.
    pub intermediate_size: usize,
    /// The activation of the feed-forward.
    pub activation: Activation,
    /// Added to the variances of the norms.
    pub epsilon: f32,
    /// Which tokens a token may see.
    pub mask: Mask,
}

/// Which tokens a layer is computed for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Queries {
    /// All of them.
    All,
    /// The class token, which is the first, if nothing reads the others.
    ClassToken,
}

impl ClipLayer {
    /// Self-attention and a feed-forward, each after a norm and around a residual.
    pub fn build(&self, l: &mut Layers<'_>, x: ValueId, queries: Queries) -> Result<ValueId, GraphError> {
        let width = l.channels(x);
        let tokens = l.layer_norm("layer_norm1", x, self.epsilon)?;
        let (x, asking) = match queries {
            Queries::All => (x, tokens),
            Queries::ClassToken => {
                (l.g.slice("class", x, 1, 0, 1)?, l.g.slice("layer_norm1.class", tokens, 1, 0, 1)?)
            }
        };
        let h = l.scope("self_attn", |l| {
            let q = l.linear("q_proj", asking, width, true)?;
            let k = l.linear("k_proj", tokens, width, true)?;
            let v = l.linear("v_proj", tokens, width, true)?;
            let op =
                Attention { mask: self.mask, ..Attention::over_positions(self.heads, width / self.heads) };
            let h = l.g.attention("attention", [q, k, v], &[], op)?;
            l.linear("out_proj", h, width, true)
        })?;
        let x = l.g.add("self_attn.residual", x, h)?;

        let h = l.layer_norm("layer_norm2", x, self.epsilon)?;
        let h = l.scope("mlp", |l| {
            let h = l.linear("fc1", h, self.intermediate_size, true)?;
            let h = l.g.activate("activation_fn", h, self.activation)?;
            l.linear("fc2", h, width, true)
        })?;
        l.g.add("mlp.residual", x, h)
    }
}
