//! The network's `config.json`.

use serde::Deserialize;

use crate::{
    json::finite,
    networks::{
        error::{MAX_EXTENT, NetworkError, Settings},
        fixed::{Fixed, check_fixed},
        unet::PerBlock,
        unet_blocks::{Block, UShape},
        unet_levels::{Levels, or_missing},
    },
};

pub(super) const SETTINGS: Settings = Settings { network: "UNet", class: "UNet2DConditionModel" };

/// What other models of the class have; a ControlNet shares it.
pub(in crate::networks) const FIXED_LAYERS: &[Fixed] = &[
    ("center_input_sample", "false"),
    ("only_cross_attention", "false"),
    ("mid_block_only_cross_attention", "null"),
    ("downsample_padding", "1"),
    ("mid_block_scale_factor", "1"),
    ("act_fn", r#""silu""#),
    ("norm_num_groups", "32"),
    ("reverse_transformer_layers_per_block", "null"),
    ("encoder_hid_dim", "null"),
    ("encoder_hid_dim_type", "null"),
    ("num_attention_heads", "null"),
    ("dual_cross_attention", "false"),
    ("class_embed_type", "null"),
    ("num_class_embeds", "null"),
    ("class_embeddings_concat", "false"),
    ("resnet_time_scale_shift", r#""default""#),
    ("resnet_skip_time_act", "false"),
    ("resnet_out_scale_factor", "1"),
    ("time_embedding_type", r#""positional""#),
    ("time_embedding_dim", "null"),
    ("time_embedding_act_fn", "null"),
    ("timestep_post_act", "null"),
    ("conv_in_kernel", "3"),
    ("conv_out_kernel", "3"),
    ("attention_type", r#""default""#),
    ("cross_attention_norm", "null"),
];

/// `UNet2DConditionModel`'s configuration, with diffusers' names and defaults.
///
/// `upcast_attention` and `dropout` are not read: attention is summed in f32 whatever they say, and nothing is trained.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct Unet2dConfig {
    /// Channels of the input: those of noisy latents.
    pub in_channels: usize,
    /// Channels of the prediction.
    pub out_channels: usize,
    /// Whether the time embedding has its cosines first.
    pub flip_sin_to_cos: bool,
    /// Subtracted from the number of the time embedding's frequencies.
    #[serde(deserialize_with = "finite")]
    pub freq_shift: f32,
    /// The blocks on the way down, the outermost first.
    pub down_block_types: Vec<String>,
    /// The block in the middle.
    pub mid_block_type: Option<String>,
    /// The blocks on the way up, the innermost first.
    pub up_block_types: Vec<String>,
    /// Channels of each block, the outermost first.
    pub block_out_channels: Vec<usize>,
    /// Residual blocks of a block; one more on the way up.
    pub layers_per_block: PerBlock<usize>,
    /// Added to the variances of the residual blocks' norms.
    #[serde(deserialize_with = "finite")]
    pub norm_eps: f32,
    /// Channels of the prompts' tokens.
    pub cross_attention_dim: PerBlock<usize>,
    /// Transformer blocks of each transformer of a block.
    pub transformer_layers_per_block: PerBlock<PerBlock<usize>>,
    /// Attention **heads** of each block: diffusers' name is an old mistake that published files keep.
    pub attention_head_dim: PerBlock<usize>,
    /// Whether the projections around a transformer are stored as linear layers, not as 1×1 convolutions.
    pub use_linear_projection: bool,
    /// `text_time` if a pooled prompt and sizes are added to the time embedding.
    pub addition_embed_type: Option<String>,
    /// Channels of the sinusoidal embedding of each added size.
    pub addition_time_embed_dim: Option<usize>,
    /// Channels of the pooled prompt and of all added sizes' embeddings together.
    pub projection_class_embeddings_input_dim: Option<usize>,
    /// Channels of the guidance scale's embedding, if the model reads it.
    pub time_cond_proj_dim: Option<usize>,
}

impl Default for Unet2dConfig {
    fn default() -> Self {
        let blocks = |names: [&str; 4]| names.map(str::to_owned).to_vec();
        let (cross_down, cross_up) = ("CrossAttnDownBlock2D", "CrossAttnUpBlock2D");
        Unet2dConfig {
            in_channels: 4,
            out_channels: 4,
            flip_sin_to_cos: true,
            freq_shift: 0.0,
            down_block_types: blocks([cross_down, cross_down, cross_down, "DownBlock2D"]),
            mid_block_type: Some("UNetMidBlock2DCrossAttn".to_owned()),
            up_block_types: blocks(["UpBlock2D", cross_up, cross_up, cross_up]),
            block_out_channels: vec![320, 640, 1280, 1280],
            layers_per_block: PerBlock::All(2),
            norm_eps: 1e-5,
            cross_attention_dim: PerBlock::All(1280),
            transformer_layers_per_block: PerBlock::All(PerBlock::All(1)),
            attention_head_dim: PerBlock::All(8),
            use_linear_projection: false,
            addition_embed_type: None,
            addition_time_embed_dim: None,
            projection_class_embeddings_input_dim: None,
            time_cond_proj_dim: None,
        }
    }
}

impl Unet2dConfig {
    /// Reads and checks a `config.json`. Fields that it does not know are ignored, as diffusers ignores them.
    ///
    /// # Errors
    /// If the text is not such JSON, is the configuration of another class, asks for what is not built, or
    /// [`Unet2dConfig::check`] refuses it.
    pub fn from_json(text: &str) -> Result<Self, NetworkError> {
        let object = SETTINGS.object(text)?;
        let config: Unet2dConfig = SETTINGS.read_object(object.clone())?;
        check_fixed(&SETTINGS, &object, FIXED_LAYERS)?;
        config.check()?;
        Ok(config)
    }

    /// Whether a network can be built from it.
    ///
    /// # Errors
    /// Names the setting that is wrong, and what it must be.
    pub fn check(&self) -> Result<(), NetworkError> {
        self.levels().check(&self.down_block_types, &self.up_block_types)?;
        if let PerBlock::Each(values) = &self.transformer_layers_per_block {
            // diffusers refuses them too, unless another setting says what the way up has.
            let nested = values.iter().any(|value| matches!(value, PerBlock::Each(_)));
            SETTINGS.require(!nested, "transformer_layers_per_block", "a list of lists", || {
                "only one number for each block is supported".to_owned()
            })?;
        }
        for (setting, channels) in [
            ("in_channels", self.in_channels),
            ("out_channels", self.out_channels),
            ("cross_attention_dim", self.context_channels()?),
        ] {
            SETTINGS.within(setting, channels, 1..=MAX_EXTENT)?;
        }
        for (setting, number) in [("norm_eps", self.norm_eps), ("freq_shift", self.freq_shift)] {
            SETTINGS.require((0.0..=1.0).contains(&number), setting, number, || {
                "it must be from 0 to 1".to_owned()
            })?;
        }
        if let Some(channels) = self.time_cond_proj_dim {
            // With fewer there is no frequency to tell scales apart by.
            SETTINGS.within("time_cond_proj_dim", channels, 4..=MAX_EXTENT)?;
        }
        if let Some(kind) = &self.addition_embed_type {
            SETTINGS.require(kind == "text_time", "addition_embed_type", kind, || {
                "only text_time is supported".to_owned()
            })?;
            self.added_channels()?;
        }
        let layers = self.shape()?.layer_count();
        SETTINGS.few_layers("layers_per_block, with transformer_layers_per_block,", layers)
    }

    /// Channels of the prompts' tokens, which are the same for all blocks.
    ///
    /// # Errors
    /// If the blocks ask for different ones.
    pub fn context_channels(&self) -> Result<usize, NetworkError> {
        self.levels().context_channels()
    }

    /// Channels of an added size's embedding, and of the pooled prompt and all sizes together.
    pub(super) fn added_channels(&self) -> Result<(usize, usize), NetworkError> {
        let channels = |setting, value: Option<usize>| match value {
            Some(channels) if (2..=MAX_EXTENT).contains(&channels) => Ok(channels),
            _ => {
                let rule = format!("addition_embed_type text_time needs a number from 2 to {MAX_EXTENT}");
                Err(SETTINGS.refused(setting, or_missing(value), rule))
            }
        };
        Ok((
            channels("addition_time_embed_dim", self.addition_time_embed_dim)?,
            channels("projection_class_embeddings_input_dim", self.projection_class_embeddings_input_dim)?,
        ))
    }

    /// Channels of the pooled prompt that a model with `text_time` reads beside so many sizes; `None` if it reads none.
    ///
    /// # Errors
    /// If there are none left for the prompt.
    pub fn pooled_channels(&self, sizes: usize) -> Result<Option<usize>, NetworkError> {
        if self.addition_embed_type.is_none() {
            return Ok(None);
        }
        let (of_size, all) = self.added_channels()?;
        match all.checked_sub(of_size.saturating_mul(sizes)) {
            Some(channels) if channels > 0 => Ok(Some(channels)),
            _ => {
                let rule = format!("it must hold {sizes} sizes of {of_size} channels and the pooled prompt");
                Err(SETTINGS.refused("projection_class_embeddings_input_dim", all, rule))
            }
        }
    }

    /// Refuses residuals for another number of skips; their sizes are compared where they are added.
    pub(super) fn fits_residuals(&self, shape: &UShape, residuals: usize) -> Result<(), NetworkError> {
        let skips = shape.skip_count();
        SETTINGS.require(skips == residuals, "layers_per_block", skips, || {
            format!("the ControlNet adds to {residuals} skips, and they must agree")
        })
    }

    /// Refuses an input that the model does not read, and the lack of one that it does.
    pub(super) fn takes(&self, setting: &'static str, set: bool, given: bool) -> Result<(), NetworkError> {
        let value = if set { "set" } else { "not set" };
        let rule = || format!("the input it stands for is {}", if given { "given" } else { "missing" });
        SETTINGS.require(set == given, setting, value, rule)
    }

    /// All blocks.
    pub(in crate::networks) fn shape(&self) -> Result<UShape, NetworkError> {
        let levels = self.block_out_channels.len();
        let down = (0..levels).map(|level| self.down_block(level)).collect::<Result<_, _>>()?;
        let mid = match self.mid_block_type.as_deref() {
            Some("UNetMidBlock2DCrossAttn") => self.levels().block(levels - 1, 1, true, self.norm_eps)?,
            name => {
                let rule = "only UNetMidBlock2DCrossAttn is supported";
                return Err(SETTINGS.refused("mid_block_type", or_missing(name), rule));
            }
        };
        Ok(UShape {
            down,
            mid,
            up: (0..levels).rev().map(|level| self.up_block(level)).collect::<Result<_, _>>()?,
            in_width: self.block_out_channels[0],
            out_channels: self.out_channels,
            epsilon: self.norm_eps,
        })
    }

    fn levels(&self) -> Levels<'_> {
        Levels {
            settings: &SETTINGS,
            channels: &self.block_out_channels,
            layers: &self.layers_per_block,
            heads: ("attention_head_dim", &self.attention_head_dim),
            depths: &self.transformer_layers_per_block,
            context: &self.cross_attention_dim,
        }
    }

    fn down_block(&self, level: usize) -> Result<Block, NetworkError> {
        let attends = match self.down_block_types[level].as_str() {
            "CrossAttnDownBlock2D" => true,
            "DownBlock2D" => false,
            name => {
                let rule = "only CrossAttnDownBlock2D and DownBlock2D are supported";
                return Err(SETTINGS.refused("down_block_types", name, rule));
            }
        };
        let levels = self.levels();
        levels.block(level, levels.layers(level)?, attends, self.norm_eps)
    }

    /// The block on the way up at a level, which has one layer more than the one on the way down.
    fn up_block(&self, level: usize) -> Result<Block, NetworkError> {
        let from_the_middle = self.block_out_channels.len() - 1 - level;
        let attends = match self.up_block_types[from_the_middle].as_str() {
            "CrossAttnUpBlock2D" => true,
            "UpBlock2D" => false,
            name => {
                let rule = "only CrossAttnUpBlock2D and UpBlock2D are supported";
                return Err(SETTINGS.refused("up_block_types", name, rule));
            }
        };
        let levels = self.levels();
        levels.block(level, levels.layers(level)? + 1, attends, self.norm_eps)
    }
}
