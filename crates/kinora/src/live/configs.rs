//! Everything about a model for live video but its weights.

use kinora_models::{
    folder::ModelFolder,
    networks::{
        NetworkError,
        clip_text::ClipTextConfig,
        controlnet::ControlNetConfig,
        frame::{Autoencoder, Start},
        tiny_vae::TinyVaeConfig,
        unet2d::Unet2dConfig,
        vae::VaeConfig,
    },
    presets::{FrameShape, ImagePreset},
    schedulers::{ImageToImage, Schedule, Scheduler, SchedulerKind},
    synthetic::SyntheticImageModel,
};
use serde_json::Value;

use super::{LiveModel, LiveSettings};
use crate::image_to_video::{ConfigError, GenerateError, Mismatch, configs as shared, nearest_side};

/// What Stable Diffusion was trained on, in latents, if a model does not say.
const SAMPLE_SIZE: usize = 64;

/// The pipelines whose models draw frames.
const PIPELINES: &[&str] = &[
    "StableDiffusionPipeline",
    "StableDiffusionImg2ImgPipeline",
    "LatentConsistencyModelPipeline",
    "StableDiffusionXLPipeline",
    "StableDiffusionXLImg2ImgPipeline",
];

/// Everything about a model for live video but its weights: the configurations of its parts.
#[derive(Clone, Debug)]
pub struct LiveConfigs {
    /// The denoising network.
    pub unet: Unet2dConfig,
    /// What turns pixels into latents, and latents into pixels.
    pub autoencoder: Autoencoder,
    /// The network that steers the UNet by the edges of a frame.
    pub control: Option<ControlNetConfig>,
    /// The text encoder.
    pub text_encoder: ClipTextConfig,
    /// The second text encoder, of Stable Diffusion XL.
    pub text_encoder_2: Option<ClipTextConfig>,
    /// The scheduler: its `scheduler_config.json`.
    pub scheduler: Value,
    /// Height and width that the model was trained for.
    pub default_size: [usize; 2],
}

impl LiveConfigs {
    /// The models that are known by name.
    pub const PRESETS: [&str; 3] = ["sd-turbo", "sd15", "sdxl-turbo"];

    /// A published model by its short name: one of [`LiveConfigs::PRESETS`].
    pub fn preset(name: &str) -> Option<Self> {
        let preset = match name {
            "sd-turbo" => ImagePreset::sd_turbo(),
            "sd15" => ImagePreset::sd15(),
            "sdxl-turbo" => ImagePreset::sdxl_turbo(),
            _ => return None,
        };
        Self::of_preset(&preset).ok()
    }

    fn of_preset(preset: &ImagePreset) -> Result<Self, NetworkError> {
        let ImagePreset { model, frame: FrameShape { height, width, .. } } = preset;
        let SyntheticImageModel { unet, vae, text_encoder, text_encoder_2, scheduler, .. } = model;
        let text = |config: &Value| ClipTextConfig::from_json(&config.to_string());
        let mut scheduler = scheduler.clone();
        let class = scheduler.get("_class_name").and_then(Value::as_str);
        // As for a folder: the one that runs in the place of a scheduler that we do not have.
        if let Some(kind) = class.and_then(SchedulerKind::in_place_of) {
            scheduler["_class_name"] = kind.class_name().into();
        }
        Ok(LiveConfigs {
            unet: Unet2dConfig::from_json(&unet.to_string())?,
            autoencoder: Autoencoder::Full(VaeConfig::image_from_json(&vae.to_string())?),
            control: None,
            text_encoder: text(text_encoder)?,
            text_encoder_2: text_encoder_2.as_ref().map(text).transpose()?,
            scheduler,
            default_size: [*height, *width],
        })
    }

    /// The same with the published tiny autoencoder instead of the model's own.
    ///
    /// # Errors
    /// If it does not fit the model.
    pub fn tiny_autoencoder(self) -> Result<Self, GenerateError> {
        let configs = LiveConfigs { autoencoder: Autoencoder::Tiny(TinyVaeConfig::default()), ..self };
        configs.check().map_err(|error| GenerateError::ConfigInMemory(Box::new(error)))?;
        Ok(configs)
    }

    /// Whether a model is of a kind that draws frames.
    pub fn are_in(model: &ModelFolder) -> bool {
        PIPELINES.contains(&model.pipeline())
    }

    /// The configurations of a model.
    ///
    /// # Errors
    /// If one is missing, cannot be read, or does not fit the others. Names the file and, if it is one, the setting.
    pub fn read(folders: &LiveModel) -> Result<Self, GenerateError> {
        let LiveModel { model, tiny, control, .. } = folders;
        model.require(PIPELINES)?;
        let unet_text = model.config_text("unet")?;
        let unet = Unet2dConfig::from_json(&unet_text);
        let unet = unet.map_err(|error| shared::in_part(model, "unet", error))?;
        let autoencoder = match tiny {
            Some(tiny) => {
                tiny.require(&["AutoencoderTiny"])?;
                let config = TinyVaeConfig::from_json(&tiny.config_text("vae")?);
                Autoencoder::Tiny(config.map_err(|error| shared::in_part(tiny, "vae", error))?)
            }
            None => autoencoder(model)?,
        };
        let control = match control {
            Some(folder) => {
                folder.require(&["ControlNetModel"])?;
                let config = ControlNetConfig::from_json(&folder.config_text("controlnet")?);
                Some(config.map_err(|error| shared::in_part(folder, "controlnet", error))?)
            }
            None => None,
        };
        let text = |part: &str| -> Result<ClipTextConfig, GenerateError> {
            let config = ClipTextConfig::from_json(&model.config_text(part)?);
            config.map_err(|error| shared::in_part(model, part, error))
        };
        let second = model.parts().iter().any(|part| part.name() == "text_encoder_2");
        let sample = serde_json::from_str::<Value>(&unet_text).ok();
        let sample = sample.and_then(|json| json.get("sample_size")?.as_u64());
        let latents = sample.and_then(|size| usize::try_from(size).ok()).unwrap_or(SAMPLE_SIZE);
        let mut configs = LiveConfigs {
            unet,
            autoencoder,
            control,
            text_encoder: text("text_encoder")?,
            text_encoder_2: if second { Some(text("text_encoder_2")?) } else { None },
            scheduler: shared::scheduler(model)?,
            default_size: [0; 2],
        };
        configs.check().map_err(|error| shared::in_part(model, "unet", error))?;
        let unit = configs.side_unit();
        let pixels = latents.saturating_mul(configs.autoencoder.pixels_per_latent());
        configs.default_size = [nearest_side(pixels, unit); 2];
        Ok(configs)
    }

    /// What a frame's height and width must be multiples of.
    pub fn side_unit(&self) -> usize {
        let halvings = self.unet.block_out_channels.len().saturating_sub(1).min(12);
        self.autoencoder.pixels_per_latent() << halvings
    }

    /// Tokens of a prompt.
    pub fn tokens(&self) -> usize {
        self.text_encoder.max_position_embeddings
    }

    /// The scheduler.
    ///
    /// # Errors
    /// If its configuration is refused.
    pub fn scheduler(&self) -> Result<Scheduler, GenerateError> {
        Ok(Scheduler::from_config(&self.scheduler)?)
    }

    /// The steps of a frame. `None` if it is left as it is.
    pub(super) fn schedule(
        &self,
        settings: &LiveSettings,
        start: Start,
    ) -> Result<Option<Schedule>, GenerateError> {
        let scheduler = self.scheduler()?;
        if start == Start::Noise {
            return Ok(Some(scheduler.schedule(settings.steps)?));
        }
        let timesteps = match &settings.timesteps {
            Some(timesteps) => timesteps.clone(),
            None if settings.strength == 0.0 => return Ok(None),
            // The least that has this many steps: a slider has no gap at its lower end.
            None => scheduler
                .trailing_timesteps(settings.steps, settings.strength)
                .unwrap_or_else(|_| (0..settings.steps).rev().collect()),
        };
        Ok(Some(scheduler.image_to_image(ImageToImage::Timesteps(&timesteps))?))
    }

    /// Whether the parts fit each other.
    fn check(&self) -> Result<(), ConfigError> {
        let context = self.unet.context_channels()?;
        let hidden = self.text_encoder.hidden_size
            + self.text_encoder_2.as_ref().map_or(0, |second| second.hidden_size);
        let fit = |what, got, with, expected| -> Result<(), ConfigError> {
            if got == expected { Ok(()) } else { Err(Mismatch { what, got, with, expected }.into()) }
        };
        fit("cross_attention_dim", context, "the text encoders' hidden_size", hidden)?;
        let latents = self.autoencoder.latent_channels();
        fit("in_channels", self.unet.in_channels, "the autoencoder's latent_channels", latents)?;
        fit("out_channels", self.unet.out_channels, "the autoencoder's latent_channels", latents)
    }
}

/// The model's own autoencoder, of either class.
fn autoencoder(model: &ModelFolder) -> Result<Autoencoder, GenerateError> {
    let (text, class) = (model.config_text("vae")?, model.part("vae")?.class());
    let read: Result<Autoencoder, NetworkError> = match class {
        "AutoencoderTiny" => TinyVaeConfig::from_json(&text).map(Autoencoder::Tiny),
        _ => VaeConfig::image_from_json(&text).map(Autoencoder::Full),
    };
    read.map_err(|error| shared::in_part(model, "vae", error))
}
