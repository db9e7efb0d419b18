//! The U of a denoising network: blocks on the way down, one in the middle, and blocks on the way up that read what those on
//! the way down gave.

use std::ops::Range;

use kinora_graph::{
    GraphError, ValueId,
    op::{Conv, Interpolation},
};

use super::{
    layers::Layers,
    resnet::conv_out,
    step_cache::{DEEP, Extent},
};

/// The layers of a block: all that networks of this shape differ in.
pub(super) trait BlockLayers {
    /// A residual block.
    fn resnet(&self, l: &mut Layers<'_>, x: ValueId, out: usize, epsilon: f32)
    -> Result<ValueId, GraphError>;

    /// A transformer of `depth` blocks.
    fn transformer(
        &self,
        l: &mut Layers<'_>,
        x: ValueId,
        heads: usize,
        depth: usize,
    ) -> Result<ValueId, GraphError>;
}

/// All blocks of a network.
pub(super) struct UShape {
    /// The blocks on the way down, the outermost first.
    pub down: Vec<Block>,
    /// The block in the middle.
    pub mid: Block,
    /// The blocks on the way up, the innermost first.
    pub up: Vec<Block>,
    /// Channels of the first convolution's result.
    pub in_width: usize,
    /// Channels of the prediction.
    pub out_channels: usize,
    /// Added to the variances of the last norm.
    pub epsilon: f32,
}

impl UShape {
    /// All residual and transformer blocks.
    pub fn layer_count(&self) -> usize {
        let blocks = self.down.iter().chain(&self.up).chain([&self.mid]);
        blocks.map(Block::layer_count).sum()
    }

    /// How many skips there are between the way down and the way up.
    pub fn skip_count(&self) -> usize {
        let downsamplers = self.down.len().saturating_sub(1);
        1 + downsamplers + self.down.iter().map(|block| block.layers).sum::<usize>()
    }

    /// From the sample to the prediction, or as much of it as is asked for. What another network adds goes into the skips and
    /// the middle.
    pub fn build(
        &self,
        l: &mut Layers<'_>,
        sample: ValueId,
        layers: &impl BlockLayers,
        added: Option<&Residuals>,
        extent: Extent,
    ) -> Result<ValueId, GraphError> {
        let x = l.conv3x3("conv_in", sample, self.in_width)?;
        let (mut x, mut skips) = match extent {
            Extent::Whole | Extent::Keeping { .. } => self.contract(l, x, layers)?,
            Extent::Shallow { blocks } => {
                let skips = self.outer_skips(l, x, layers, blocks)?;
                (self.deep_input(l, &skips)?, skips)
            }
        };
        if let Some(added) = added {
            for (i, (skip, &added)) in skips.iter_mut().zip(&added.down).enumerate() {
                *skip = l.g.add(&format!("down_residuals.{i}"), *skip, added)?;
            }
            if !matches!(extent, Extent::Shallow { .. }) {
                x = l.g.add("mid_residual", x, added.mid)?;
            }
        }
        for (i, block) in self.up.iter().enumerate() {
            let mut up = |l: &mut Layers<'_>, x, which: Range<usize>, upsample| {
                l.scope(format!("up_blocks.{i}"), |l| {
                    up_block(l, x, block, which, layers, upsample, &mut skips)
                })
            };
            // The layers from here on, this block's included; the last of them are the outer ones.
            let left: usize = self.up[i..].iter().map(|block| block.layers).sum();
            let deep = extent.blocks().map_or(0, |blocks| left.saturating_sub(blocks));
            let which = match extent {
                Extent::Keeping { blocks } if left >= blocks && deep < block.layers => {
                    x = up(l, x, 0..deep, false)?;
                    l.g.output(DEEP, x)?;
                    deep..block.layers
                }
                Extent::Whole | Extent::Keeping { .. } => 0..block.layers,
                Extent::Shallow { .. } if deep >= block.layers => continue,
                Extent::Shallow { .. } => deep..block.layers,
            };
            x = up(l, x, which, i + 1 < self.up.len())?;
        }
        conv_out(l, x, self.epsilon, self.out_channels)
    }

    /// The way down and the middle, from the first convolution's result: what the middle gives, and all skips.
    pub fn contract(
        &self,
        l: &mut Layers<'_>,
        x: ValueId,
        layers: &impl BlockLayers,
    ) -> Result<(ValueId, Vec<ValueId>), GraphError> {
        let (x, skips) = self.descend(l, x, layers, self.skip_count())?;
        let x = l.scope("mid_block", |l| mid_block(l, x, &self.mid, layers))?;
        Ok((x, skips))
    }

    /// The way down as far as the first `count` skips go, from the first convolution's result, which is the first of them: the
    /// last result, and the skips.
    pub(super) fn descend(
        &self,
        l: &mut Layers<'_>,
        mut x: ValueId,
        layers: &impl BlockLayers,
        count: usize,
    ) -> Result<(ValueId, Vec<ValueId>), GraphError> {
        let mut skips = vec![x];
        for (level, block) in self.down.iter().enumerate() {
            let wanted = count.saturating_sub(skips.len());
            if wanted == 0 {
                break;
            }
            let downsample = level + 1 < self.down.len() && wanted > block.layers;
            x = l.scope(format!("down_blocks.{level}"), |l| {
                down_block(l, x, block, wanted.min(block.layers), layers, downsample, &mut skips)
            })?;
        }
        Ok((x, skips))
    }
}

/// What a network adds to another of its shape.
#[derive(Clone, Debug)]
pub struct Residuals {
    /// To each skip, in the order in which they are made.
    pub(crate) down: Vec<ValueId>,
    /// To the result of the middle.
    pub(crate) mid: ValueId,
}

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
        layers: &impl BlockLayers,
    ) -> Result<ValueId, GraphError> {
        l.scope(format!("resnets.{i}"), |l| layers.resnet(l, x, self.channels, self.epsilon))
    }

    /// The layer's transformer, if the block has them.
    fn attention(
        &self,
        l: &mut Layers<'_>,
        i: usize,
        x: ValueId,
        layers: &impl BlockLayers,
    ) -> Result<ValueId, GraphError> {
        let Some(transformers) = &self.transformers else { return Ok(x) };
        let Some(&depth) = transformers.depths.get(i) else { return Ok(x) };
        l.scope(format!("attentions.{i}"), |l| layers.transformer(l, x, transformers.heads, depth))
    }
}

/// Residual blocks and transformers, `count` of each, then half the size. Every layer's result, and the halved one, is a skip.
pub(super) fn down_block(
    l: &mut Layers<'_>,
    mut x: ValueId,
    block: &Block,
    count: usize,
    layers: &impl BlockLayers,
    downsample: bool,
    skips: &mut Vec<ValueId>,
) -> Result<ValueId, GraphError> {
    for i in 0..count {
        x = block.resnet(l, i, x, layers)?;
        x = block.attention(l, i, x, layers)?;
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
    layers: &impl BlockLayers,
) -> Result<ValueId, GraphError> {
    let mut x = block.resnet(l, 0, x, layers)?;
    for i in 0..block.layers {
        x = block.attention(l, i, x, layers)?;
        x = block.resnet(l, i + 1, x, layers)?;
    }
    Ok(x)
}

/// Residual blocks, each on the last result joined with the last skip, and transformers; then the size of the next skip,
/// which is twice its own unless halving rounded up. `which` of the block's layers are added.
pub(super) fn up_block(
    l: &mut Layers<'_>,
    mut x: ValueId,
    block: &Block,
    which: Range<usize>,
    layers: &impl BlockLayers,
    upsample: bool,
    skips: &mut Vec<ValueId>,
) -> Result<ValueId, GraphError> {
    for i in which {
        if let Some(skip) = skips.pop() {
            x = l.g.concat(&format!("resnets.{i}.skip"), &[x, skip], 3)?;
        }
        x = block.resnet(l, i, x, layers)?;
        x = block.attention(l, i, x, layers)?;
    }
    let next = skips.last().map(|&skip| l.g.shape(skip));
    if let Some(size) = next.map(|shape| [shape[1], shape[2]]).filter(|_| upsample) {
        x = l.g.upsample("upsamplers.0.nearest", x, Interpolation::Nearest, size)?;
        x = l.conv3x3("upsamplers.0.conv", x, block.channels)?;
    }
    Ok(x)
}
