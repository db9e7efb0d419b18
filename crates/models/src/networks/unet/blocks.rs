//! The blocks that the network is made of: down, middle and up.

use kinora_graph::{
    GraphError, ValueId,
    op::{Conv, Interpolation},
};

use super::{Conditions, transformer::transformer};
use crate::networks::{
    layers::Layers,
    resnet::{Resnet, Weighs, spatio_temporal_resnet},
};

/// The shape of a block.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Block {
    /// Channels of its results.
    pub channels: usize,
    /// How many residual blocks it has, but for the middle one, which has one more.
    pub layers: usize,
    /// Added to the variances of the residual blocks' norms; each kind of block has its own.
    pub epsilon: f32,
    /// The transformers after the residual blocks, if the block attends.
    pub transformers: Option<Transformers>,
}

/// The transformers of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Transformers {
    /// Attention heads.
    pub heads: usize,
    /// Transformer blocks of each layer's transformer.
    pub depths: Vec<usize>,
}

impl Block {
    /// Its residual and transformer blocks.
    pub fn layer_count(&self) -> usize {
        let transformers = self.transformers.iter().flat_map(|transformers| &transformers.depths);
        self.layers + transformers.sum::<usize>()
    }

    fn resnet(
        &self,
        l: &mut Layers<'_>,
        i: usize,
        x: ValueId,
        conditions: &Conditions,
    ) -> Result<ValueId, GraphError> {
        let resnet = Resnet { out: self.channels, epsilon: self.epsilon, time: Some(conditions.time) };
        l.scope(format!("resnets.{i}"), |l| {
            spatio_temporal_resnet(l, x, &resnet, self.epsilon, conditions.frames, Weighs::Spatial)
        })
    }

    /// The layer's transformer, if the block has them.
    fn attention(
        &self,
        l: &mut Layers<'_>,
        i: usize,
        x: ValueId,
        conditions: &Conditions,
    ) -> Result<ValueId, GraphError> {
        let Some(transformers) = &self.transformers else { return Ok(x) };
        let Some(&depth) = transformers.depths.get(i) else { return Ok(x) };
        l.scope(format!("attentions.{i}"), |l| transformer(l, x, transformers.heads, depth, conditions))
    }
}

/// Residual blocks and transformers, then half the size. Every layer's result, and the halved one, is a skip.
pub(super) fn down_block(
    l: &mut Layers<'_>,
    mut x: ValueId,
    block: &Block,
    conditions: &Conditions,
    downsample: bool,
    skips: &mut Vec<ValueId>,
) -> Result<ValueId, GraphError> {
    for i in 0..block.layers {
        x = block.resnet(l, i, x, conditions)?;
        x = block.attention(l, i, x, conditions)?;
        skips.push(x);
    }
    if downsample {
        x = l.conv("downsamplers.0.conv", x, block.channels, Conv::spatial([3, 3], 2, 1))?;
        skips.push(x);
    }
    Ok(x)
}

/// A transformer between two residual blocks.
pub(super) fn mid_block(
    l: &mut Layers<'_>,
    x: ValueId,
    block: &Block,
    conditions: &Conditions,
) -> Result<ValueId, GraphError> {
    let mut x = block.resnet(l, 0, x, conditions)?;
    for i in 0..block.layers {
        x = block.attention(l, i, x, conditions)?;
        x = block.resnet(l, i + 1, x, conditions)?;
    }
    Ok(x)
}

/// Residual blocks, each on the last result joined with the last skip, and transformers; then the size of the next skip,
/// which is twice its own unless halving rounded up.
pub(super) fn up_block(
    l: &mut Layers<'_>,
    mut x: ValueId,
    block: &Block,
    conditions: &Conditions,
    upsample: bool,
    skips: &mut Vec<ValueId>,
) -> Result<ValueId, GraphError> {
    for i in 0..block.layers {
        if let Some(skip) = skips.pop() {
            x = l.g.concat(&format!("resnets.{i}.skip"), &[x, skip], 3)?;
        }
        x = block.resnet(l, i, x, conditions)?;
        x = block.attention(l, i, x, conditions)?;
    }
    let next = skips.last().map(|&skip| l.g.shape(skip));
    if let Some(size) = next.map(|shape| [shape[1], shape[2]]).filter(|_| upsample) {
        x = l.g.upsample("upsamplers.0.nearest", x, Interpolation::Nearest, size)?;
        x = l.conv3x3("upsamplers.0.conv", x, block.channels)?;
    }
    Ok(x)
}
