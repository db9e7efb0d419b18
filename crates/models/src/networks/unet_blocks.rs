//! The U of a denoising network: blocks on the way down, one in the middle, and blocks on the way up that read what those on
//! the way down gave.

use kinora_graph::{
    GraphError, ValueId,
    op::{Conv, Interpolation},
};

use super::{
    error::{MAX_LAYERS, NetworkError, Settings},
    layers::Layers,
    resnet::conv_out,
    unet::PerBlock,
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

    /// From the sample to the prediction.
    pub fn build(
        &self,
        l: &mut Layers<'_>,
        sample: ValueId,
        layers: &impl BlockLayers,
    ) -> Result<ValueId, GraphError> {
        let mut x = l.conv3x3("conv_in", sample, self.in_width)?;
        let mut skips = vec![x];
        for (level, block) in self.down.iter().enumerate() {
            let downsample = level + 1 < self.down.len();
            x = l.scope(format!("down_blocks.{level}"), |l| {
                down_block(l, x, block, layers, downsample, &mut skips)
            })?;
        }
        x = l.scope("mid_block", |l| mid_block(l, x, &self.mid, layers))?;
        for (i, block) in self.up.iter().enumerate() {
            let upsample = i + 1 < self.up.len();
            x = l.scope(format!("up_blocks.{i}"), |l| up_block(l, x, block, layers, upsample, &mut skips))?;
        }
        conv_out(l, x, self.epsilon, self.out_channels)
    }
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

/// Residual blocks and transformers, then half the size. Every layer's result, and the halved one, is a skip.
pub(super) fn down_block(
    l: &mut Layers<'_>,
    mut x: ValueId,
    block: &Block,
    layers: &impl BlockLayers,
    downsample: bool,
    skips: &mut Vec<ValueId>,
) -> Result<ValueId, GraphError> {
    for i in 0..block.layers {
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
/// which is twice its own unless halving rounded up.
pub(super) fn up_block(
    l: &mut Layers<'_>,
    mut x: ValueId,
    block: &Block,
    layers: &impl BlockLayers,
    upsample: bool,
    skips: &mut Vec<ValueId>,
) -> Result<ValueId, GraphError> {
    for i in 0..block.layers {
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

/// What a configuration says of each level; levels count from the outermost.
pub(super) struct Levels<'a> {
    /// Who refuses what cannot be built.
    pub settings: &'a Settings,
    /// `block_out_channels`.
    pub channels: &'a [usize],
    /// `layers_per_block`.
    pub layers: &'a PerBlock<usize>,
    /// The numbers of attention heads, and the setting that they are called.
    pub heads: (&'static str, &'a PerBlock<usize>),
    /// `transformer_layers_per_block`.
    pub depths: &'a PerBlock<PerBlock<usize>>,
    /// `cross_attention_dim`.
    pub context: &'a PerBlock<usize>,
}

impl Levels<'_> {
    /// Refuses lists without an entry for each level, and channels that the groups of the norms do not divide.
    pub fn check(&self, down: &[String], up: &[String]) -> Result<(), NetworkError> {
        let (settings, levels) = (self.settings, self.channels.len());
        settings.some_levels("block_out_channels", self.channels)?;
        settings.one_a_level("down_block_types", down, levels)?;
        settings.one_a_level("up_block_types", up, levels)?;
        let (heads_setting, heads) = self.heads;
        for (setting, per_block) in
            [("layers_per_block", self.layers), ("cross_attention_dim", self.context), (heads_setting, heads)]
        {
            if let PerBlock::Each(values) = per_block {
                settings.one_a_level(setting, values, levels)?;
            }
        }
        if let PerBlock::Each(values) = self.depths {
            settings.one_a_level("transformer_layers_per_block", values, levels)?;
        }
        settings.channels("block_out_channels", self.channels)
    }

    /// Channels of the context, which is one for all blocks.
    pub fn context_channels(&self) -> Result<usize, NetworkError> {
        match self.context {
            PerBlock::All(channels) => Ok(*channels),
            PerBlock::Each(channels) => match channels.as_slice() {
                [first, rest @ ..] if rest.iter().all(|c| c == first) => Ok(*first),
                _ => {
                    let rule = "all blocks read the same context, so they must be equal";
                    Err(self.settings.refused("cross_attention_dim", format_args!("{channels:?}"), rule))
                }
            },
        }
    }

    /// The residual blocks of a level on the way down.
    pub fn layers(&self, level: usize) -> Result<usize, NetworkError> {
        match self.layers.get(level) {
            Some(&layers) if (1..=MAX_LAYERS).contains(&layers) => Ok(layers),
            layers => Err(self.settings.refused(
                "layers_per_block",
                format_args!("{} for block {level}", or_missing(layers)),
                format!("it must be from 1 to {MAX_LAYERS}"),
            )),
        }
    }

    /// The block of a level, with as many layers.
    pub fn block(
        &self,
        level: usize,
        layers: usize,
        attends: bool,
        epsilon: f32,
    ) -> Result<Block, NetworkError> {
        let channels = self.channels.get(level).copied().unwrap_or(0);
        let transformers = if attends {
            let (setting, heads) = self.heads;
            let heads = heads.get(level);
            let heads =
                heads.copied().filter(|&heads| heads > 0 && channels % heads == 0).ok_or_else(|| {
                    let value = format!("{} for block {level}", or_missing(heads));
                    let rule = format!("it must divide the block's {channels} channels");
                    self.settings.refused(setting, value, rule)
                })?;
            Some(Transformers { heads, depths: self.depths(level, layers)? })
        } else {
            None
        };
        Ok(Block { channels, layers, epsilon, transformers })
    }

    /// The transformer blocks of the first `layers` layers of a block.
    fn depths(&self, level: usize, layers: usize) -> Result<Vec<usize>, NetworkError> {
        let of_block = self.depths.get(level);
        (0..layers)
            .map(|layer| match of_block.and_then(|of_block| of_block.get(layer)) {
                Some(&depth) if (1..=MAX_LAYERS).contains(&depth) => Ok(depth),
                depth => Err(self.settings.refused(
                    "transformer_layers_per_block",
                    format_args!("{} for layer {layer} of block {level}", or_missing(depth)),
                    format!("the block has {layers} layers, and each must have from 1 to {MAX_LAYERS}"),
                )),
            })
            .collect()
    }
}

/// A setting for a message.
pub(super) fn or_missing(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "missing".to_owned(), |value| value.to_string())
}
