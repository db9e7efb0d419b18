//! Everything about a model but its weights.

use kinora_models::{
    folder::ModelFolder,
    image::{CLIP_SIZE, ClipPreprocessor},
    json,
    networks::{NetworkError, clip_vision::ClipVisionConfig, unet::UnetConfig, vae::VaeConfig},
    schedulers::{self, Scheduler, SchedulerKind},
};
use serde_json::Value;

use super::{
    ConfigError, GenerateError, Mismatch,
    defaults::ClipDefaults,
    settings::{MAX_SIDE, nearest_side, side_unit, wide},
};

/// What Stable Video Diffusion was trained on, and diffusers' default: as many pixels as a square of 768.
const TRAINED_SIDE: usize = 768;
/// Frame rate, motion bucket and noise augmentation.
pub(super) const ADDED_TIME_IDS: usize = 3;
/// Red, green and blue.
pub(crate) const COLOURS: usize = 3;

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
    /// Where they were read, for errors; `None` for a published model by its name.
    folder: Option<ModelFolder>,
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
            folder: None,
        }
    }

    /// The configurations in a model's folder. Nothing is computed or allocated from them before they are checked.
    ///
    /// # Errors
    /// If one is missing, cannot be read, or does not fit the others. Names the file and, if it is one, the setting.
    pub fn read(model: &ModelFolder) -> Result<Self, GenerateError> {
        let unet_text = model.config_text("unet")?;
        let unet = UnetConfig::from_json(&unet_text).map_err(|error| in_part(model, "unet", error))?;
        let vae = VaeConfig::from_json(&model.config_text("vae")?);
        let vae = vae.map_err(|error| in_part(model, "vae", error))?;
        let image_encoder = ClipVisionConfig::from_json(&model.config_text("image_encoder")?);
        let configs = Configs {
            default_size: default_size(&unet_text, vae.pixels_per_latent(), side_unit(&unet, &vae)),
            unet,
            vae,
            image_encoder: image_encoder.map_err(|error| in_part(model, "image_encoder", error))?,
            scheduler: scheduler(model)?,
            preprocessor: preprocessor(model)?,
            defaults: ClipDefaults::read(model)?,
            folder: Some(model.clone()),
        };
        configs.check()?;
        configs.defaults.check(&configs, model)?;
        Ok(configs)
    }

    /// An error that the configuration of a part causes when networks are built from it, with the file that it is in.
    pub(super) fn named(&self, part: &str, error: impl Into<ConfigError>) -> GenerateError {
        match (&self.folder, error.into()) {
            // These may be the fault of what was asked for.
            (_, ConfigError::Scheduler(error)) if !error.is_of_configuration() => error.into(),
            (_, ConfigError::Network(error @ (NetworkError::Graph(_) | NetworkError::Tensor(_)))) => {
                error.into()
            }
            (Some(folder), error) => in_part(folder, part, error),
            (None, error) => GenerateError::ConfigInMemory(Box::new(error)),
        }
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
        self.problem().map_err(|(part, error)| self.named(part, error))
    }

    /// The part that does not fit the others, and why.
    fn problem(&self) -> Result<(), (&'static str, ConfigError)> {
        let Configs { unet, vae, image_encoder, .. } = self;
        let fit = |part, what, got: usize, with, expected: usize| {
            if got == expected { Ok(()) } else { Err((part, Mismatch { what, got, with, expected }.into())) }
        };
        let of_unet = |error: NetworkError| ("unet", ConfigError::from(error));
        let context = unet.context_channels().map_err(of_unet)?;
        let ids = unet.added_time_ids().map_err(of_unet)?;
        let latents = vae.latent_channels;
        fit("unet", "out_channels", unet.out_channels, "the autoencoder's latent_channels", latents)?;
        fit(
            "unet",
            "in_channels",
            unet.in_channels,
            "twice its out_channels",
            unet.out_channels.saturating_mul(2),
        )?;
        let (encoder, embedding) = ("image_encoder", image_encoder.projection_dim);
        fit(encoder, "projection_dim", embedding, "the UNet's cross_attention_dim", context)?;
        fit(encoder, "image_size", image_encoder.image_size, "the size it is given", CLIP_SIZE)?;
        fit(encoder, "num_channels", image_encoder.num_channels, "the colours of a photo", COLOURS)?;
        fit("vae", "in_channels", vae.in_channels, "the colours of a photo", COLOURS)?;
        fit("vae", "out_channels", vae.out_channels, "the colours of a frame", COLOURS)?;
        let what = "projection_class_embeddings_input_dim divided by addition_time_embed_dim";
        fit("unet", what, ids, "one for each of frame rate, motion and noise", ADDED_TIME_IDS)?;
        let (levels, unit) = (unet.block_out_channels.len(), self.side_unit());
        if unit <= MAX_SIDE {
            return Ok(());
        }
        let setting = ConfigError::Setting {
            setting: "block_out_channels".to_owned(),
            value: format!("a list of {levels}"),
            rule: format!(
                "with the autoencoder's {} a clip's sides would be multiples of {unit}, and the longest is {MAX_SIDE}",
                vae.block_out_channels.len()
            ),
        };
        Err(("unet", setting))
    }
}

/// An error of a part's configuration, with its file.
pub(crate) fn in_part(model: &ModelFolder, part: &str, error: impl Into<ConfigError>) -> GenerateError {
    // The model has the part, or its configuration could not have been read.
    let path = model.config_path(part).unwrap_or_else(|_| model.path().join(part));
    GenerateError::Config { path, source: Box::new(error.into()) }
}

/// The model's own scheduler, or the one that runs in its place. If its file and the model's index name two classes, the index decides, as in diffusers.
pub(crate) fn scheduler(model: &ModelFolder) -> Result<Value, GenerateError> {
    const PART: &str = "scheduler";
    let (text, class) = (model.config_text(PART)?, model.part(PART)?.class());
    let mut config = schedulers::parse_config(&text).map_err(|error| in_part(model, PART, error))?;
    if let Some(fields) = config.as_object_mut() {
        let class = SchedulerKind::in_place_of(class).map_or(class, |kind| kind.class_name());
        fields.insert("_class_name".to_owned(), class.into());
    }
    Scheduler::from_config(&config).map_err(|error| in_part(model, PART, error))?;
    Ok(config)
}

fn preprocessor(model: &ModelFolder) -> Result<ClipPreprocessor, GenerateError> {
    const PART: &str = "feature_extractor";
    let settings = json::object(&model.config_text(PART)?).map_err(|error| in_part(model, PART, error))?;
    ClipPreprocessor::from_config(&Value::Object(settings)).map_err(|error| in_part(model, PART, error))
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
