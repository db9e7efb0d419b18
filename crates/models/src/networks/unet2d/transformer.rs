//! The transformer over the positions of an image.

use kinora_graph::{
    GraphError, ValueId,
    op::{Attention, Conv},
};

use super::Conditions;
use crate::networks::{layers::Layers, resnet::GROUPS, transformer_block::transformer_block};

/// `depth` blocks between two projections, around a residual: `Transformer2DModel`.
pub(super) fn transformer(
    l: &mut Layers<'_>,
    x: ValueId,
    heads: usize,
    depth: usize,
    conditions: &Conditions,
) -> Result<ValueId, GraphError> {
    let shape = l.g.shape(x).clone();
    let (images, positions, channels) = (shape[0], shape[1].saturating_mul(shape[2]), shape[3]);
    let attention = Attention::over_positions(heads, channels / heads);
    let h = l.group_norm("norm", x, GROUPS, 1, 1e-6)?;
    let mut h = project(l, "proj_in", h, conditions)?;
    h = l.g.reshape("tokens", h, [images, positions, channels])?;
    for i in 0..depth {
        h = l.scope(format!("transformer_blocks.{i}"), |l| {
            transformer_block(l, h, conditions.context, &attention, &attention, conditions.memory.as_ref())
        })?;
    }
    let h = l.g.reshape("image", h, shape)?;
    let h = project(l, "proj_out", h, conditions)?;
    l.g.add("residual", h, x)
}

/// The same product both ways; the file has its weights as a linear layer's or as a 1×1 convolution's.
fn project(
    l: &mut Layers<'_>,
    name: &str,
    x: ValueId,
    conditions: &Conditions,
) -> Result<ValueId, GraphError> {
    let channels = l.channels(x);
    if conditions.linear_projection {
        l.linear(name, x, channels, true)
    } else {
        l.conv(name, x, channels, Conv::spatial([1, 1], 1, 0))
    }
}
