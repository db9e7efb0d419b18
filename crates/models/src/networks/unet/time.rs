//! Timesteps, conditions and frame numbers as vectors.

use kinora_graph::{
    DType, GraphBuilder, GraphError, ValueId,
    op::{Activation, TimestepEmbedding},
};

use super::UnetConfig;
use crate::networks::{
    NetworkError,
    layers::Layers,
    time_layers::{self, mlp},
};

/// The embedding of timesteps together with the added time ids, activated as every residual block reads it:
/// `[timesteps, 4 · first block's channels]`.
///
/// `timesteps` is f32 `[n]`, `added_time_ids` f32 `[ids]` for all of them or `[n, ids]`. Both are known once a clip, so
/// that the rows of all steps can be made before the first one.
///
/// # Errors
/// If the configuration is refused, or there are more or fewer ids than it says.
pub fn time_embedding(
    g: &mut GraphBuilder,
    config: &UnetConfig,
    dtype: DType,
    timesteps: ValueId,
    added_time_ids: ValueId,
) -> Result<ValueId, NetworkError> {
    config.check()?;
    let l = &mut Layers { g, dtype };
    let width = config.block_out_channels[0];
    let t = sinusoid(l, "time_proj", timesteps, width)?;
    let t = mlp(l, "time_embedding", t, 4 * width, 4 * width)?;

    let given = l.g.shape(added_time_ids).elements();
    let ids = config.added_time_ids()?;
    let flat = l.g.reshape("add_time_flat", added_time_ids, [given])?;
    let added = sinusoid(l, "add_time_proj", flat, config.addition_time_embed_dim)?;
    let rows = [given / ids, config.projection_class_embeddings_input_dim];
    let added = l.g.reshape("add_time_rows", added, rows)?;
    let added = mlp(l, "add_embedding", added, 4 * width, 4 * width)?;
    let sum = l.g.add("time_sum", t, added)?;
    Ok(l.g.activate("time_act", sum, Activation::Silu)?)
}

/// The embedding of each image's frame number, `[batch·frames, 1, channels]`: `time_pos_embed`. It depends on the weights
/// alone, and so is made when they are loaded.
pub(super) fn frame_embedding(
    l: &mut Layers<'_>,
    frame_numbers: ValueId,
    batch: usize,
    channels: usize,
) -> Result<ValueId, GraphError> {
    let frames = l.g.shape(frame_numbers).elements();
    let embedding = sinusoid(l, "time_proj", frame_numbers, channels)?;
    let embedding = mlp(l, "time_pos_embed", embedding, 4 * channels, channels)?;
    let embedding = l.g.reshape("time_pos_embed_rows", embedding, [frames, 1, channels])?;
    l.g.concat("time_pos_embed_images", &vec![embedding; batch], 0)
}

/// Cosines first, as in every `Timesteps` of this network.
fn sinusoid(l: &mut Layers<'_>, name: &str, t: ValueId, width: usize) -> Result<ValueId, GraphError> {
    let op = TimestepEmbedding {
        width,
        cosine_first: true,
        frequency_shift: 0.0,
        max_period: 10_000.0,
        scale: 1.0,
    };
    time_layers::sinusoid(l, name, t, op)
}
