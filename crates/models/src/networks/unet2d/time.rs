//! Timesteps, guidance and sizes as one vector.

use kinora_graph::{
    DType, GraphBuilder, ValueId,
    op::{Activation, TimestepEmbedding},
};

use super::{Unet2dConfig, config::SETTINGS};
use crate::networks::{
    NetworkError,
    layers::Layers,
    time_layers::{mlp, sinusoid},
};

/// What the time embedding is made of. All are known once a clip, so that the rows of all steps can be made before the
/// first one.
#[derive(Clone, Copy, Debug)]
pub struct TimeInputs {
    /// The timesteps, f32 `[n]`.
    pub timesteps: ValueId,
    /// The guidance scale less 1, f32 `[n]` or `[1]`: of models that were distilled with guidance, those with
    /// `time_cond_proj_dim`.
    pub guidance: Option<ValueId>,
    /// Of models with `addition_embed_type` `text_time`.
    pub added: Option<AddedConditions>,
}

/// What Stable Diffusion XL reads beside the prompt's tokens.
#[derive(Clone, Copy, Debug)]
pub struct AddedConditions {
    /// The pooled prompts, `[n or 1, channels]` of the network's type.
    pub text: ValueId,
    /// Original size, crop and target size, f32 `[n or 1, ids]`.
    pub time_ids: ValueId,
}

/// The time embedding, activated as every residual block reads it: `[n, 4 · first block's channels]`.
///
/// # Errors
/// If the configuration is refused, or the inputs are not those that it asks for.
pub fn time_embedding(
    g: &mut GraphBuilder,
    config: &Unet2dConfig,
    dtype: DType,
    inputs: &TimeInputs,
) -> Result<ValueId, NetworkError> {
    config.check()?;
    config.takes("time_cond_proj_dim", config.time_cond_proj_dim.is_some(), inputs.guidance.is_some())?;
    config.takes("addition_embed_type", config.addition_embed_type.is_some(), inputs.added.is_some())?;
    let l = &mut Layers { g, dtype };
    let width = config.block_out_channels[0];
    let mut t = sinusoid(l, "time_proj", inputs.timesteps, waves(config, width))?;
    if let (Some(channels), Some(guidance)) = (config.time_cond_proj_dim, inputs.guidance) {
        let guidance = guidance_embedding(l, guidance, channels)?;
        t = l.scope("time_embedding", |l| {
            let guidance = l.linear("cond_proj", guidance, width, false)?;
            l.g.add("cond", t, guidance)
        })?;
    }
    let mut t = mlp(l, "time_embedding", t, 4 * width, 4 * width)?;
    if let Some(added) = inputs.added {
        let added = added_embedding(l, config, added)?;
        t = l.g.add("time_sum", t, added)?;
    }
    Ok(l.g.activate("time_act", t, Activation::Silu)?)
}

/// Those of timesteps and sizes.
fn waves(config: &Unet2dConfig, width: usize) -> TimestepEmbedding {
    TimestepEmbedding {
        width,
        cosine_first: config.flip_sin_to_cos,
        frequency_shift: config.freq_shift,
        max_period: 10_000.0,
        scale: 1.0,
    }
}

/// `get_guidance_scale_embedding` of diffusers' pipelines.
fn guidance_embedding(
    l: &mut Layers<'_>,
    guidance: ValueId,
    channels: usize,
) -> Result<ValueId, NetworkError> {
    let op = TimestepEmbedding {
        width: channels,
        cosine_first: false,
        frequency_shift: 1.0,
        max_period: 10_000.0,
        scale: 1000.0,
    };
    Ok(sinusoid(l, "guidance_proj", guidance, op)?)
}

/// The pooled prompt beside the sizes, in one vector.
fn added_embedding(
    l: &mut Layers<'_>,
    config: &Unet2dConfig,
    AddedConditions { text, time_ids }: AddedConditions,
) -> Result<ValueId, NetworkError> {
    let (of_id, channels) = config.added_channels()?;
    let rows = l.g.shape(time_ids).first().copied().unwrap_or(0);
    let ids = l.g.shape(time_ids).elements();
    let flat = l.g.reshape("add_time_flat", time_ids, [ids])?;
    let sizes = sinusoid(l, "add_time_proj", flat, waves(config, of_id))?;
    let of_row = ids.checked_div(rows).unwrap_or(0).saturating_mul(of_id);
    let sizes = l.g.reshape("add_time_rows", sizes, [rows, of_row])?;
    let added = l.g.concat("add_text_time", &[text, sizes], 1)?;
    let given = l.channels(added);
    SETTINGS.agrees(
        "projection_class_embeddings_input_dim",
        channels,
        ("pooled prompt and time ids", given),
    )?;
    let width = 4 * config.block_out_channels[0];
    Ok(mlp(l, "add_embedding", added, width, width)?)
}
