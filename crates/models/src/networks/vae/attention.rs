//! The attention in the middle of both halves.

use kinora_graph::{GraphError, ValueId, op::Attention};

use super::EPSILON;
use crate::networks::{attention::attention, layers::Layers, resnet::GROUPS};

/// Self-attention over the positions of each image with one head of all channels, around a residual: `Attention` of
/// diffusers, with the group norm before it.
pub(super) fn mid_attention(l: &mut Layers<'_>, x: ValueId) -> Result<ValueId, GraphError> {
    let image = l.g.shape(x).clone();
    let channels = image.channels();
    let h = l.group_norm("group_norm", x, GROUPS, 1, EPSILON)?;
    let h = l.g.reshape("tokens", h, [image[0], image[1].saturating_mul(image[2]), channels])?;
    let h = attention(l, h, h, true, &Attention::over_positions(1, channels))?;
    let h = l.g.reshape("image", h, image)?;
    l.g.add("residual", x, h)
}
