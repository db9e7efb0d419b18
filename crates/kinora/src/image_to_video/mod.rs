//! A photo becomes a clip: Stable Video Diffusion, equal to diffusers' `StableVideoDiffusionPipeline`.
//!
//! ```no_run
//! use std::ops::ControlFlow;
//!
//! use kinora::{
//!     image_to_video::{ImageToVideo, LoadOptions, Settings},
//!     photo::Photo,
//! };
//! use kinora_models::folder::ModelFolder;
//!
//! let model = ModelFolder::open("stable-video-diffusion-img2vid")?;
//! let settings = Settings { steps: 10, seed: 42, ..Settings::for_model(&model)? };
//! let pipeline = ImageToVideo::new(model, LoadOptions::default())?;
//! let clip = pipeline.generate(&Photo::open("photo.jpg")?, &settings, &mut |progress| {
//!     println!("{}: {} of {}", progress.stage.describe(), progress.done, progress.total);
//!     ControlFlow::Continue(())
//! })?;
//! println!("{} frames in {:.1} s", clip.frames.len(), clip.report.seconds);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The networks run one after the other, and each is dropped before the next is loaded: the memory of a clip is that of
//! its largest network. All of them are planned first, so that a clip that does not fit is refused before any work.

mod budget;
mod configs;
mod decode;
mod denoise;
mod encode;
mod error;
mod estimate;
mod noise;
mod options;
mod plans;
mod progress;
mod report;
mod run;
mod settings;

use kinora_models::{
    folder::ModelFolder,
    image::RgbImage,
    weights::{Variant, Weights},
};

pub use configs::Configs;
pub use error::GenerateError;
pub use estimate::{Estimate, PartEstimate, estimate_configs};
pub use options::{Device, LoadOptions, Precision};
pub use progress::{Observe, Progress, Stage};
pub use report::{Clip, Report, StageTime};
pub use settings::{Settings, random_seed};

use crate::photo::Photo;
use denoise::Conditions;
use noise::Noise;
use plans::Request;
use report::Stopwatch;
use run::Run;

/// A model that turns photos into clips.
#[derive(Debug)]
pub struct ImageToVideo {
    model: ModelFolder,
    options: LoadOptions,
    configs: Configs,
    image_encoder: Weights,
    vae: Weights,
    unet: Weights,
}

impl ImageToVideo {
    /// Reads a model's configurations and opens its weights; they are read when a clip is made.
    ///
    /// # Errors
    /// Where a part is missing, damaged, not supported, or does not fit the others.
    pub fn new(model: ModelFolder, options: LoadOptions) -> Result<Self, GenerateError> {
        let configs = Configs::read(&model)?;
        let variant = Variant::For(options.precision.dtype());
        Ok(ImageToVideo {
            configs,
            image_encoder: model.weights("image_encoder", &variant)?,
            vae: model.weights("vae", &variant)?,
            unet: model.weights("unet", &variant)?,
            model,
            options,
        })
    }

    /// The model's configurations.
    pub fn configs(&self) -> &Configs {
        &self.configs
    }

    /// What runs the model, in words.
    pub fn device(&self) -> String {
        self.options.device.describe()
    }

    /// Plans a clip: what it would cost. Allocates nothing, and knows no budget.
    ///
    /// # Errors
    /// Where the settings are refused.
    pub fn estimate(&self, settings: &Settings) -> Result<Estimate, GenerateError> {
        estimate_configs(&self.configs, settings, self.options.precision)
    }

    /// Makes a clip. `observe` is told how far it is: when a stage begins, after each step and after each chunk of
    /// frames; where it breaks, the clip ends in [`GenerateError::Cancelled`].
    ///
    /// # Errors
    /// Where the settings are refused or need more memory than the budget, before any work; where weights are damaged or
    /// do not fit, when their part is loaded.
    pub fn generate(
        &self,
        photo: &Photo,
        settings: &Settings,
        observe: &mut Observe<'_>,
    ) -> Result<Clip, GenerateError> {
        let precision = self.options.precision;
        let request = Request { configs: &self.configs, settings, precision };
        let plans = request.plan_within(self.options.memory_budget)?;
        let scheduler = request.scheduler()?;
        let schedule = scheduler.schedule(settings.steps)?;
        let plan = plans.estimate();
        let photo = RgbImage::new(photo.width(), photo.height(), photo.data().to_vec())?;
        let mut run = Run {
            request,
            observe,
            noise: Noise::new(settings.seed),
            stopwatch: Stopwatch::start(),
            loaded: 0,
            to_load: plans.parts(),
        };
        let embedding = run.encode_image(plans.image_encoder, &self.image_encoder, &photo)?;
        let latents = run.encode_latents(plans.vae_encoder, &self.vae, &photo)?;
        let conditions = Conditions { embedding, latents };
        let latents = run.denoise(plans.unet, &self.unet, conditions, &schedule)?;
        let frames = run.decode(plans.decoders, &self.vae, &latents)?;
        let (seconds, stages, step_seconds) = run.stopwatch.stop();
        let report = Report {
            model: self.model.path().display().to_string(),
            device: self.device(),
            precision,
            scheduler: scheduler.kind(),
            settings: settings.clone(),
            seconds,
            stages,
            step_seconds,
            plan,
        };
        Ok(Clip { frames, latents, report })
    }
}
