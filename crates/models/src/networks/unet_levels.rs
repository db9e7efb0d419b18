//! What the configuration of a UNet says of its levels.

use super::{
    error::{MAX_LAYERS, NetworkError, Settings},
    unet::PerBlock,
    unet_blocks::{Block, Transformers},
};

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
