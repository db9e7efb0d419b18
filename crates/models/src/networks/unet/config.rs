//! The UNet's `config.json`.

use serde::Deserialize;

use crate::{
    networks::{
        error::{MAX_EXTENT, NetworkError, Settings},
        unet_blocks::{Block, UShape},
        unet_levels::{Levels, or_missing},
    },
    presets::Preset,
};

/// Frames that a model may say it was trained for: as many as a clip may have.
const MAX_TRAINED_FRAMES: usize = 1 << 10;

pub(crate) const SETTINGS: Settings = Settings { network: "UNet", class: "UNetSpatioTemporalConditionModel" };

/// One value for all blocks, or one for each.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "expected a whole number, at least 0, or a list of such numbers")]
pub enum PerBlock<T> {
    /// A value for each block, the outermost first.
    Each(Vec<T>),
    /// The same value for all.
    All(T),
}

impl<T> PerBlock<T> {
    /// The value of a block.
    pub fn get(&self, block: usize) -> Option<&T> {
        match self {
            PerBlock::Each(values) => values.get(block),
            PerBlock::All(value) => Some(value),
        }
    }
}

/// `UNetSpatioTemporalConditionModel`'s configuration, with diffusers' names and defaults.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct UnetConfig {
    /// Channels of the input: noisy latents and the image's.
    pub in_channels: usize,
    /// Channels of the prediction: those of a latent.
    pub out_channels: usize,
    /// The blocks on the way down, the outermost first.
    pub down_block_types: Vec<String>,
    /// The blocks on the way up, the innermost first.
    pub up_block_types: Vec<String>,
    /// Channels of each block, the outermost first.
    pub block_out_channels: Vec<usize>,
    /// Channels of the sinusoidal embedding of each added time id.
    pub addition_time_embed_dim: usize,
    /// Channels of all added time ids' embeddings together.
    pub projection_class_embeddings_input_dim: usize,
    /// Residual blocks of a block; one more on the way up.
    pub layers_per_block: PerBlock<usize>,
    /// Channels of the image embedding.
    pub cross_attention_dim: PerBlock<usize>,
    /// Transformer blocks of each transformer: of a block, or of each of its layers.
    pub transformer_layers_per_block: PerBlock<PerBlock<usize>>,
    /// Attention heads.
    pub num_attention_heads: PerBlock<usize>,
    /// Frames that the model was trained for.
    pub num_frames: usize,
}

impl Default for UnetConfig {
    fn default() -> Self {
        let blocks = |names: [&str; 4]| names.map(str::to_owned).to_vec();
        UnetConfig {
            in_channels: 8,
            out_channels: 4,
            down_block_types: blocks([
                "CrossAttnDownBlockSpatioTemporal",
                "CrossAttnDownBlockSpatioTemporal",
                "CrossAttnDownBlockSpatioTemporal",
                "DownBlockSpatioTemporal",
            ]),
            up_block_types: blocks([
                "UpBlockSpatioTemporal",
                "CrossAttnUpBlockSpatioTemporal",
                "CrossAttnUpBlockSpatioTemporal",
                "CrossAttnUpBlockSpatioTemporal",
            ]),
            block_out_channels: vec![320, 640, 1280, 1280],
            addition_time_embed_dim: 256,
            projection_class_embeddings_input_dim: 768,
            layers_per_block: PerBlock::All(2),
            cross_attention_dim: PerBlock::All(1024),
            transformer_layers_per_block: PerBlock::All(PerBlock::All(1)),
            num_attention_heads: PerBlock::Each(vec![5, 10, 20, 20]),
            num_frames: 25,
        }
    }
}

impl UnetConfig {
    /// Stable Video Diffusion, 14 frames.
    pub fn svd() -> Self {
        Self::from_json(&Preset::svd().model.unet.to_string()).expect("the published configuration is valid")
    }

    /// Stable Video Diffusion XT, 25 frames.
    pub fn svd_xt() -> Self {
        UnetConfig { num_frames: 25, ..UnetConfig::svd() }
    }

    /// Reads and checks a `config.json`. Fields that it does not know are ignored, as diffusers ignores them.
    ///
    /// # Errors
    /// If the text is not such JSON, is the configuration of another class, or [`UnetConfig::check`] refuses it.
    pub fn from_json(text: &str) -> Result<Self, NetworkError> {
        let config: UnetConfig = SETTINGS.read(text)?;
        config.check()?;
        Ok(config)
    }

    /// Whether a network can be built from it.
    ///
    /// # Errors
    /// Names the setting that is wrong, and what it must be.
    pub fn check(&self) -> Result<(), NetworkError> {
        self.levels().check(&self.down_block_types, &self.up_block_types)?;
        for (setting, channels) in [
            ("in_channels", self.in_channels),
            ("out_channels", self.out_channels),
            ("addition_time_embed_dim", self.addition_time_embed_dim),
            ("cross_attention_dim", self.context_channels()?),
        ] {
            SETTINGS.within(setting, channels, 1..=MAX_EXTENT)?;
        }
        self.added_time_ids()?;
        SETTINGS.within("num_frames", self.num_frames, 1..=MAX_TRAINED_FRAMES)?;
        let layers = self.shape()?.layer_count();
        SETTINGS.few_layers("layers_per_block, with transformer_layers_per_block,", layers)
    }

    /// Channels of the image embedding, which is one for all blocks.
    ///
    /// # Errors
    /// If the blocks ask for different ones.
    pub fn context_channels(&self) -> Result<usize, NetworkError> {
        self.levels().context_channels()
    }

    /// How many blocks a step can be cut into: the layers of the way up, each with what makes the skip that it reads. See
    /// [`Extent`](crate::networks::step_cache::Extent).
    ///
    /// # Errors
    /// If the configuration is refused.
    pub fn block_count(&self) -> Result<usize, NetworkError> {
        Ok(self.shape()?.skip_count())
    }

    /// How many added time ids there are.
    ///
    /// # Errors
    /// If their embeddings do not fill the projection's input.
    pub fn added_time_ids(&self) -> Result<usize, NetworkError> {
        let (all, one) = (self.projection_class_embeddings_input_dim, self.addition_time_embed_dim);
        match all.checked_rem(one) {
            Some(0) if (1..=MAX_EXTENT).contains(&all) => Ok(all / one),
            _ => {
                let rule = format!(
                    "it must be a multiple of addition_time_embed_dim, {one}, from {one} to {MAX_EXTENT}"
                );
                Err(SETTINGS.refused("projection_class_embeddings_input_dim", all, rule))
            }
        }
    }

    /// All blocks.
    pub(super) fn shape(&self) -> Result<UShape, NetworkError> {
        let levels = self.block_out_channels.len();
        Ok(UShape {
            down: (0..levels).map(|level| self.down_block(level)).collect::<Result<_, _>>()?,
            mid: self.mid_block()?,
            up: (0..levels).rev().map(|level| self.up_block(level)).collect::<Result<_, _>>()?,
            in_width: self.block_out_channels.first().copied().unwrap_or_default(),
            out_channels: self.out_channels,
            epsilon: 1e-5,
        })
    }

    /// A block on the way down; levels count from the outermost.
    pub(super) fn down_block(&self, level: usize) -> Result<Block, NetworkError> {
        let (attends, epsilon) = match self.down_block_types.get(level).map(String::as_str) {
            Some("CrossAttnDownBlockSpatioTemporal") => (true, 1e-6),
            Some("DownBlockSpatioTemporal") => (false, 1e-5),
            name => {
                let rule = "only CrossAttnDownBlockSpatioTemporal and DownBlockSpatioTemporal are known";
                return Err(SETTINGS.refused("down_block_types", or_missing(name), rule));
            }
        };
        let levels = self.levels();
        levels.block(level, levels.layers(level)?, attends, epsilon)
    }

    /// The block on the way up at a level, which has one layer more than the one on the way down.
    pub(super) fn up_block(&self, level: usize) -> Result<Block, NetworkError> {
        let from_the_middle = self.block_out_channels.len().checked_sub(level + 1);
        let name = from_the_middle.and_then(|i| self.up_block_types.get(i)).map(String::as_str);
        let attends = match name {
            Some("CrossAttnUpBlockSpatioTemporal") => true,
            Some("UpBlockSpatioTemporal") => false,
            name => {
                let rule = "only CrossAttnUpBlockSpatioTemporal and UpBlockSpatioTemporal are known";
                return Err(SETTINGS.refused("up_block_types", or_missing(name), rule));
            }
        };
        let levels = self.levels();
        levels.block(level, levels.layers(level)? + 1, attends, 1e-6)
    }

    /// The block in the middle: a transformer between two residual blocks.
    pub(super) fn mid_block(&self) -> Result<Block, NetworkError> {
        self.levels().block(self.block_out_channels.len().saturating_sub(1), 1, true, 1e-5)
    }

    fn levels(&self) -> Levels<'_> {
        Levels {
            settings: &SETTINGS,
            channels: &self.block_out_channels,
            layers: &self.layers_per_block,
            heads: ("num_attention_heads", &self.num_attention_heads),
            depths: &self.transformer_layers_per_block,
            context: &self.cross_attention_dim,
        }
    }
}
