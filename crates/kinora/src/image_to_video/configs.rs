//! Everything about a model but its weights.

use kinora_models::{
    folder::ModelFolder,
    image::{CLIP_SIZE, ClipPreprocessor},
    networks::{clip_vision::ClipVisionConfig, unet::UnetConfig, vae::VaeConfig},
    schedulers::{self, Scheduler, SchedulerKind},
};
use serde_json::Value;

use super::{
    GenerateError,
    defaults::ClipDefaults,
    settings::{nearest_side, side_unit, wide},
};

/// What Stable Video Diffusion was trained on, and diffusers' default: as many pixels as a square of 768.
const TRAINED_SIDE: usize = 768;
/// Frame rate, motion bucket and noise augmentation.
pub(super) const ADDED_TIME_IDS: usize = 3;
/// Red, green and blue.
pub(super) const COLOURS: usize = 3;

/// Everything about a model but its weights: the configurations of its parts.
#[derive(Clone, Debug)]
pub struct Configs {
    /// The denoising network.
    pub unet: UnetConfig,
    /// The autoencoder.
    pub vae: VaeConfig,
    /// The image encoder.
    pub image_encoder: ClipVisionConfig,
    /// The model's own scheduler: its `scheduler_config.json`.
    pub scheduler: Value,
    /// How an image is prepared before it is encoded.
    pub preprocessor: ClipPreprocessor,
    /// Height and width that the model was trained for.
    pub default_size: [usize; 2],
    /// The settings that suit the model, as far as it names them.
    pub defaults: ClipDefaults,
}

impl Configs {
    /// The models that are known by name.
    pub const PRESETS: [&str; 2] = ["svd", "svd-xt"];

    /// A published model by its short name: one of [`Configs::PRESETS`].
    pub fn preset(name: &str) -> Option<Self> {
        match name {
            "svd" => Some(Self::svd()),
            "svd-xt" => Some(Self::svd_xt()),
            _ => None,
        }
    }

    /// Stable Video Diffusion, 14 frames.
    pub fn svd() -> Self {
        Self::stable_video_diffusion(UnetConfig::svd())
    }

    /// Stable Video Diffusion XT, 25 frames.
    pub fn svd_xt() -> Self {
        Self::stable_video_diffusion(UnetConfig::svd_xt())
    }

    fn stable_video_diffusion(unet: UnetConfig) -> Self {
        let vae = VaeConfig::svd();
        let default_size = wide(TRAINED_SIDE, side_unit(&unet, &vae));
        Configs {
            unet,
            vae,
            image_encoder: ClipVisionConfig::svd(),
            scheduler: Scheduler::svd_config(),
            preprocessor: ClipPreprocessor::default(),
            default_size,
            defaults: ClipDefaults::default(),
        }
    }

    /// The configurations in a model's folder.
    ///
    /// # Errors
    /// If one is missing, cannot be read, or does not fit the others.
    pub fn read(model: &ModelFolder) -> Result<Self, GenerateError> {
        let unet_text = model.config_text("unet")?;
        let unet = UnetConfig::from_json(&unet_text)?;
        let vae = VaeConfig::from_json(&model.config_text("vae")?)?;
        let configs = Configs {
            default_size: default_size(&unet_text, vae.pixels_per_latent(), side_unit(&unet, &vae)),
            unet,
            vae,
            image_encoder: ClipVisionConfig::from_json(&model.config_text("image_encoder")?)?,
            scheduler: scheduler(model)?,
            preprocessor: ClipPreprocessor::from_config(&model.config("feature_extractor")?)?,
            defaults: ClipDefaults::read(model)?,
        };
        configs.check()?;
        Ok(configs)
    }

    /// What a clip's height and width must be multiples of.
    pub fn side_unit(&self) -> usize {
        side_unit(&self.unet, &self.vae)
    }

    /// Why a scheduler may not suit the model: its timesteps do not mean what the model was trained with. `None` if it
    /// suits.
    pub fn scheduler_warning(&self, kind: SchedulerKind) -> Option<String> {
        let own = self.scheduler.get("_class_name")?.as_str()?.parse::<SchedulerKind>().ok()?;
        // Only Euler's timesteps may lie between the trained ones.
        let continuous = own == SchedulerKind::Euler
            && self.scheduler.get("timestep_type").is_some_and(|kind| kind == "continuous");
        (kind != own && continuous).then(|| {
            format!(
                "the model was trained with continuous timesteps, which {kind} does not provide; \
                 expect a poor clip, or use the model's own scheduler, {own}"
            )
        })
    }

    /// Whether the parts fit each other.
    ///
    /// # Errors
    /// Names the two parts that do not fit.
    pub fn check(&self) -> Result<(), GenerateError> {
        let Configs { unet, vae, image_encoder, .. } = self;
        let context = unet.context_channels()?;
        let fit = |what, got: usize, with, expected: usize| {
            if got == expected { Ok(()) } else { Err(GenerateError::Parts { what, got, with, expected }) }
        };
        fit(
            "the UNet's out_channels",
            unet.out_channels,
            "the autoencoder's latent_channels",
            vae.latent_channels,
        )?;
        fit("the UNet's in_channels", unet.in_channels, "twice its out_channels", 2 * unet.out_channels)?;
        fit(
            "the image encoder's projection_dim",
            image_encoder.projection_dim,
            "the UNet's cross_attention_dim",
            context,
        )?;
        fit("the image encoder's image_size", image_encoder.image_size, "the size it is given", CLIP_SIZE)?;
        fit("the image encoder's num_channels", image_encoder.num_channels, "a photo's colours", COLOURS)?;
        fit("the autoencoder's in_channels", vae.in_channels, "a photo's colours", COLOURS)?;
        fit("the autoencoder's out_channels", vae.out_channels, "a frame's colours", COLOURS)?;
        fit("the UNet's added time ids", unet.added_time_ids()?, "those of this pipeline", ADDED_TIME_IDS)
    }
}

/// The model's own scheduler. If its file and the model's index name two classes, the index decides, as in diffusers.
fn scheduler(model: &ModelFolder) -> Result<Value, GenerateError> {
    let mut config = schedulers::parse_config(&model.config_text("scheduler")?)?;
    if let Some(fields) = config.as_object_mut() {
        fields.insert("_class_name".to_owned(), model.part("scheduler")?.class().into());
    }
    Ok(config)
}

/// The size that a UNet's `sample_size` asks for, in pixels: a pair is height and width; one number is the side of a
/// square with as many pixels as the images it was trained on.
fn default_size(unet: &str, pixels_per_latent: usize, unit: usize) -> [usize; 2] {
    let sample_size = serde_json::from_str::<Value>(unet)
        .ok()
        .and_then(|mut json| Some(json.get_mut("sample_size")?.take()));
    let pixels = |size: &Value| {
        let latents = usize::try_from(size.as_u64()?).ok().filter(|&latents| latents > 0)?;
        Some(latents.saturating_mul(pixels_per_latent))
    };
    let square = |side: Option<usize>| wide(side.unwrap_or(TRAINED_SIDE), unit);
    match &sample_size {
        Some(Value::Array(pair)) => match pair.as_slice() {
            [height, width] => match (pixels(height), pixels(width)) {
                (Some(height), Some(width)) => [height, width].map(|side| nearest_side(side, unit)),
                _ => square(None),
            },
            _ => square(None),
        },
        Some(side) => square(pixels(side)),
        None => square(None),
    }
}
