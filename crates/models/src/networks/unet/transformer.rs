//! The spatio-temporal transformer.

use kinora_graph::{GraphError, ValueId, op::Attention};

use super::{Conditions, time::frame_embedding};
use crate::networks::{
    layers::Layers,
    resnet::{GROUPS, Weighs, blend},
    transformer_block::{EPSILON, feed_forward, transformer_block},
};

/// `depth` pairs of a block over positions and one over frames, the two of a pair blended, around a residual:
/// `TransformerSpatioTemporalModel`.
pub(super) fn transformer(
    l: &mut Layers<'_>,
    x: ValueId,
    heads: usize,
    depth: usize,
    conditions: &Conditions,
) -> Result<ValueId, GraphError> {
    let shape = l.g.shape(x).clone();
    let (images, positions, channels) = (shape[0], shape[1] * shape[2], shape[3]);
    let head_dim = channels / heads;
    let over_positions = Attention::over_positions(heads, head_dim);
    let over_frames = Attention::over_frames(heads, head_dim, conditions.frames);

    let h = l.group_norm("norm", x, GROUPS, 1, 1e-6)?;
    let h = l.g.reshape("tokens", h, [images, positions, channels])?;
    let mut h = l.linear("proj_in", h, channels, true)?;
    let frame = frame_embedding(l, conditions.frame_numbers, images / conditions.frames, channels)?;
    for i in 0..depth {
        let spatial = l.scope(format!("transformer_blocks.{i}"), |l| {
            transformer_block(l, h, conditions.context, &over_positions, &over_positions, None)
        })?;
        let temporal = l.scope(format!("temporal_transformer_blocks.{i}"), |l| {
            let h = l.g.add("frame", spatial, frame)?;
            let n = l.layer_norm("norm_in", h, EPSILON)?;
            let n = feed_forward(l, "ff_in", n)?;
            let h = l.g.add("ff_in_residual", n, h)?;
            // Each query sees the same keys, in whatever order queries lie: the context needs no copy a position.
            transformer_block(l, h, conditions.context, &over_frames, &over_positions, None)
        })?;
        h = blend(l, spatial, temporal, Weighs::Spatial)?;
    }
    let h = l.linear("proj_out", h, channels, true)?;
    let h = l.g.reshape("image", h, shape)?;
    l.g.add("residual", h, x)
}
