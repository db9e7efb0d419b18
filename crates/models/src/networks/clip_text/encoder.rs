//! From the tokens of prompts to what a diffusion model attends to.

use kinora_graph::{
    DType, Graph, GraphBuilder, GraphError, Phase, TensorType, ValueId,
    op::{Mask, NormKind},
};

use super::{ClipTextConfig, config::SETTINGS};
use crate::networks::{
    NetworkError,
    clip_layer::{ClipLayer, Queries},
    layers::Layers,
};

/// More prompts at a time than anyone encodes.
const MAX_PROMPTS: usize = 1 << 10;

/// What a text encoder is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextEncode {
    /// Prompts at a time.
    pub prompts: usize,
    /// Tokens of each, padded or cut to this many.
    pub tokens: usize,
    /// How weights and activations are stored.
    pub dtype: DType,
    /// How many of the last layers the result `hidden` leaves out: diffusers' `clip_skip`, or 1 for Stable Diffusion XL.
    pub skip: usize,
    /// Whether the final norm is applied to the result `hidden`: always but for Stable Diffusion XL.
    pub final_norm: bool,
    /// Whether there is a result `pooled`.
    pub pooled: bool,
}

/// The text encoder as a graph.
///
/// Inputs: `tokens` i32 `[prompts, tokens]`, and `ends` i32 `[prompts]` if pooled: see [`ClipTextConfig::ends`]. Results:
/// `hidden [prompts, tokens, hidden_size]`, and `pooled [prompts, channels]`, what the last layer makes of the token that
/// ends each prompt, projected if the configuration says so.
///
/// # Errors
/// If no network can be built from the configuration and the request.
pub fn encoder(config: &ClipTextConfig, request: &TextEncode) -> Result<Graph, NetworkError> {
    config.check()?;
    let &TextEncode { prompts, tokens, dtype, skip, .. } = request;
    SETTINGS.within("the number of prompts", prompts, 1..=MAX_PROMPTS)?;
    SETTINGS.within("the number of tokens", tokens, 1..=config.max_position_embeddings)?;
    SETTINGS.within("the number of layers left out", skip, 0..=config.num_hidden_layers)?;
    let mut g = GraphBuilder::new("clip_text");
    let ids = g.input("tokens", TensorType::new(DType::I32, [prompts, tokens]), Phase::Step)?;
    let mut l = Layers { g: &mut g, dtype };
    let (hidden, last) = l.scope("text_model", |l| layers(l, ids, config, request))?;
    l.g.output("hidden", hidden)?;
    if request.pooled {
        let ends = l.g.input("ends", TensorType::new(DType::I32, [prompts]), Phase::Step)?;
        let mut pooled = l.scope("text_model", |l| pooled(l, last, ends, config))?;
        if config.with_projection {
            pooled = l.linear("text_projection", pooled, config.projection_dim, false)?;
        }
        l.g.output("pooled", pooled)?;
    }
    SETTINGS.sized(g.finish(), "hidden_size")
}

/// What is asked of the hidden states, and those after the last layer that has been built.
fn layers(
    l: &mut Layers<'_>,
    tokens: ValueId,
    config: &ClipTextConfig,
    request: &TextEncode,
) -> Result<(ValueId, ValueId), GraphError> {
    let layer = ClipLayer {
        heads: config.num_attention_heads,
        intermediate_size: config.intermediate_size,
        activation: config.hidden_act,
        epsilon: config.layer_norm_eps,
        mask: Mask::Causal { diagonal: 0 },
    };
    let mut x = l.scope("embeddings", |l| embeddings(l, tokens, config))?;
    let mut hidden = x;
    let wanted = config.num_hidden_layers - request.skip;
    let built = if request.pooled { config.num_hidden_layers } else { wanted };
    for i in 0..built {
        x = l.scope(format!("encoder.layers.{i}"), |l| layer.build(l, x, Queries::All))?;
        if i + 1 == wanted {
            hidden = x;
        }
    }
    if request.final_norm {
        hidden = l.layer_norm("final_layer_norm", hidden, config.layer_norm_eps)?;
    }
    Ok((hidden, x))
}

/// The tokens, each with the embedding of its position: `[prompts, tokens, width]`.
fn embeddings(l: &mut Layers<'_>, tokens: ValueId, config: &ClipTextConfig) -> Result<ValueId, GraphError> {
    let (length, width) = (l.g.shape(tokens)[1], config.hidden_size);
    let table = l.parameter("token_embedding.weight", &[config.vocab_size, width])?;
    let places = l.parameter("position_embedding.weight", &[config.max_position_embeddings, width])?;
    let x = l.g.embedding("token_embedding", table, tokens)?;
    let places = l.g.slice("position_embedding", places, 0, 0, length)?;
    let places = l.g.reshape("position_embedding.prompt", places, [1, length, width])?;
    l.g.add("tokens", x, places)
}

/// The final norm of the tokens that end the prompts, `[prompts, width]`.
fn pooled(
    l: &mut Layers<'_>,
    last: ValueId,
    ends: ValueId,
    config: &ClipTextConfig,
) -> Result<ValueId, GraphError> {
    let [prompts, tokens, width] = [0, 1, 2].map(|axis| l.g.shape(last)[axis]);
    let rows = l.g.reshape("pooled.rows", last, [prompts * tokens, width])?;
    let rows = l.g.embedding("pooled", rows, ends)?;
    let scale = l.parameter("final_layer_norm.weight", &[width])?;
    let shift = l.parameter("final_layer_norm.bias", &[width])?;
    let (kind, epsilon) = (NormKind::Layer, config.layer_norm_eps);
    l.g.norm("final_layer_norm.pooled", rows, kind, epsilon, Some(scale), Some(shift))
}
