//! A photo becomes a clip: Stable Video Diffusion, equal to diffusers' `StableVideoDiffusionPipeline`.
//!
//! ```no_run
//! use std::ops::ControlFlow;
//!
//! use kinora::{ImageToVideo, LoadOptions, ModelFolder, Settings, photo};
//!
//! let model = ModelFolder::open("stable-video-diffusion-img2vid")?;
//! let settings = Settings::for_model(&model)?.steps(10).seed(42);
//! let pipeline = ImageToVideo::new(model, LoadOptions::default())?;
//! let clip = pipeline.generate_with(&photo::open("photo.jpg")?, &settings, |progress| {
//!     println!("{}: {} of {}", progress.stage.describe(), progress.done, progress.total);
//!     ControlFlow::Continue(())
//! })?;
//! clip.save("clip.mp4")?;
//! println!("{} frames in {:.1} s", clip.frames.len(), clip.report.seconds);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The networks run one after the other, and each is dropped before the next is loaded: the memory of a clip is that of
//! its largest network. All of them are planned first, so that a clip that does not fit is refused before any work. The
//! plans are kept for the next clip of the same shape, and with [`LoadOptions::keep_loaded`] the networks are as well.

mod budget;
mod clip;
pub(crate) mod configs;
mod decode;
mod defaults;
mod denoise;
mod encode;
mod error;
mod estimate;
#[cfg(feature = "cuda")]
pub mod hardware;
pub(crate) mod holding;
#[cfg(feature = "cuda")]
mod kernels;
mod noise;
mod options;
mod plans;
mod preview;
mod progress;
mod report;
mod run;
mod settings;
mod working;

use std::{
    ops::ControlFlow,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kinora_graph::Tensor;
use kinora_models::{
    folder::ModelFolder,
    image::RgbImage,
    weights::{Variant, Weights, WeightsError},
};
use kinora_profile::{Machine, Profiler};
use kinora_runtime::Backend;

pub use budget::Suggestion;
pub use clip::Clip;
pub use configs::Configs;
pub use defaults::ClipDefaults;
pub use error::{ConfigError, GenerateError, Mismatch, OverBudget, OverLimit};
#[cfg(all(feature = "cuda", feature = "simulator"))]
pub(crate) use estimate::estimate_on;
pub use estimate::{Estimate, PartEstimate, estimate_configs};
#[cfg(feature = "cuda")]
pub use kernels::clip_kernels;
#[cfg(all(feature = "cuda", feature = "simulator"))]
pub(crate) use kernels::clip_networks;
#[cfg(feature = "cuda")]
pub(crate) use kernels::{chip, device_error, kernels_of, measured_graph};
pub use options::{LoadOptions, MemoryBudget, Precision};
#[cfg(all(feature = "cuda", feature = "simulator"))]
pub(crate) use plans::Built;
pub use preview::Preview;
pub use progress::{Observe, Progress, Stage};
pub use report::{LoadReport, Report, StageTime};
pub(crate) use settings::nearest_side;
pub use settings::{Settings, random_seed};

use crate::{
    device::{OpenDeviceError, start_threads},
    memory::MemoryLimit,
    quantisation::{Calibrating, Quantising, check_products},
};
use denoise::Conditions;
pub(crate) use noise::Noise;
use plans::{Plans, Request};
use preview::LatentColours;
use report::Stopwatch;
use run::Run;

/// A model that turns photos into clips.
#[derive(Debug)]
pub struct ImageToVideo {
    model: ModelFolder,
    options: LoadOptions,
    precision: Precision,
    limit: Option<MemoryLimit>,
    backend: Arc<dyn Backend>,
    /// The same backend, if products are done in 8 bits.
    quantising: Option<Arc<Quantising>>,
    configs: Configs,
    image_encoder: Weights,
    vae: Weights,
    unet: Weights,
    /// The plans of the last clip. A clip takes them out and puts them back, so that two concurrent clips do not wait
    /// for each other.
    plans: Mutex<Option<Plans>>,
}

impl ImageToVideo {
    /// Reads a model's configurations and opens its weights; they are read when a clip is made.
    ///
    /// # Errors
    /// If a part is missing, damaged, not supported, or does not fit the others, or the device cannot be used.
    pub fn new(model: ModelFolder, options: LoadOptions) -> Result<Self, GenerateError> {
        // A wrong model is reported before a GPU is opened, which takes a while.
        let configs = Configs::read(&model)?;
        options.check_kernels()?;
        let backend = options.device.open(options.kernels, options.tuning)?;
        Self::with(configs, backend, model, options)
    }

    /// The same on a backend that is already open, perhaps one of the caller's own: [`LoadOptions::device`] and the
    /// related options are ignored.
    ///
    /// # Errors
    /// If a part is missing, damaged, not supported, or does not fit the others.
    pub fn on(
        backend: Arc<dyn Backend>,
        model: ModelFolder,
        options: LoadOptions,
    ) -> Result<Self, GenerateError> {
        Self::with(Configs::read(&model)?, backend, model, options)
    }

    fn with(
        configs: Configs,
        backend: Arc<dyn Backend>,
        model: ModelFolder,
        options: LoadOptions,
    ) -> Result<Self, GenerateError> {
        start_threads()?;
        let precision = options.precision.unwrap_or_else(|| Precision::of(backend.default_dtype()));
        let variant = Variant::For(precision.dtype());
        let unet = model.weights("unet", &variant)?;
        let quantising = match precision {
            Precision::Fp8 => Some(Arc::new(Quantising::new(backend.clone(), &model, &unet)?)),
            _ => None,
        };
        let backend = quantising.clone().map_or(backend, |quantising| quantising);
        Ok(ImageToVideo {
            configs,
            image_encoder: model.weights("image_encoder", &variant)?,
            vae: model.weights("vae", &variant)?,
            unet,
            model,
            // Asked when the weights are mapped, which counts where addresses are limited.
            limit: options.memory_budget.limit(&*backend).map_err(OpenDeviceError::from)?,
            options,
            precision,
            backend,
            quantising,
            plans: Mutex::default(),
        })
    }

    /// The model's configurations.
    pub fn configs(&self) -> &Configs {
        &self.configs
    }

    /// What runs the model, in words.
    pub fn device(&self) -> String {
        self.backend.describe()
    }

    /// How weights and activations are stored.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// The memory that a clip may take, by [`LoadOptions::memory_budget`](field@LoadOptions::memory_budget). `None` if there
    /// is no limit, or if the system does not say what is available.
    pub fn memory_limit(&self) -> Option<MemoryLimit> {
        self.limit
    }

    /// What runs the model, and the best it can do, which is measured now and takes about a second.
    ///
    /// # Errors
    /// If the GPU fails.
    pub fn machine(&self) -> Result<Machine, GenerateError> {
        let ceilings = self.backend.ceilings(self.precision.dtype()).map_err(OpenDeviceError::from)?;
        Ok(Machine { device: self.device(), ceilings })
    }

    /// Plans a clip and says what it would cost. Allocates nothing and ignores the budget.
    ///
    /// # Errors
    /// If the settings are refused.
    pub fn estimate(&self, settings: &Settings) -> Result<Estimate, GenerateError> {
        Ok(self.with_options(self.request(settings, [0; 2]).plan(None)?.estimate()))
    }

    /// What the weight files lack for a clip: tensors that are missing or have another shape or type. Reads only the
    /// files' headers.
    ///
    /// # Errors
    /// If the settings are refused.
    pub fn weights_problems(&self, settings: &Settings) -> Result<Vec<WeightsError>, GenerateError> {
        Ok(self.problems(&self.request(settings, [0; 2]).plan(None)?))
    }

    /// The settings, with a smaller decode chunk if the clip fits its memory only so. Smaller chunks change the pixels a
    /// little, because the frames of a chunk influence each other.
    ///
    /// # Errors
    /// As [`ImageToVideo::generate`] before any work.
    pub fn fit(&self, photo: &RgbImage, settings: &Settings) -> Result<Settings, GenerateError> {
        match self.plans(&self.request(settings, photo.size())) {
            Ok(plans) => {
                *self.kept() = Some(plans);
                Ok(settings.clone())
            }
            Err(GenerateError::OverBudget { over, suggestion }) => {
                match suggestion.as_deref().and_then(Suggestion::only_decode_chunk) {
                    Some(chunk) => Ok(settings.clone().decode_chunk(chunk)),
                    None => Err(GenerateError::OverBudget { over, suggestion }),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Makes a clip of a photo.
    ///
    /// Two calls at a time do not wait for each other: each has networks of its own, and so takes memory of its own, the
    /// budget for each. With [`LoadOptions::keep_loaded`](field@LoadOptions::keep_loaded), those of the one that ends last are kept.
    ///
    /// # Errors
    /// Before any work, if the settings are refused or need more memory than the budget, or if weights are missing or
    /// do not fit; when a part is loaded, if its weights are damaged; and if a stage produces a result that is not
    /// finite.
    pub fn generate(&self, photo: &RgbImage, settings: &Settings) -> Result<Clip, GenerateError> {
        self.generate_with(photo, settings, |_| ControlFlow::Continue(()))
    }

    /// As [`ImageToVideo::generate`], with an observer: it is called when a stage begins, after each step and after each chunk of
    /// frames, and may stop the clip by [`ControlFlow::Break`]. Not every call is from this thread.
    ///
    /// # Errors
    /// As [`ImageToVideo::generate`], and [`GenerateError::Cancelled`] if the observer stops the clip.
    pub fn generate_with(
        &self,
        photo: &RgbImage,
        settings: &Settings,
        mut observe: impl FnMut(&Progress<'_>) -> ControlFlow<()> + Send,
    ) -> Result<Clip, GenerateError> {
        self.make(photo, settings, &mut observe)
    }

    fn make(
        &self,
        photo: &RgbImage,
        settings: &Settings,
        observe: &mut Observe<'_>,
    ) -> Result<Clip, GenerateError> {
        let profiler = &self.options.profiler;
        let _clip = profiler.span("clip");
        let mut stopwatch = Stopwatch::start(profiler);
        if let Some(quantising) = self.quantising.as_deref().filter(|quantising| !quantising.is_calibrated())
        {
            let calibrating = stopwatch.begin(Stage::Calibrate);
            self.calibrate(quantising, photo, settings, observe)?;
            stopwatch.end(calibrating);
        }
        let request = self.request(settings, photo.size());
        let planning = profiler.span("plan");
        let mut plans = self.plans(&request)?;
        drop(planning);
        if self.backend.tunes() {
            let tuning = stopwatch.begin(Stage::Tune);
            if plans.tune(observe)? {
                plans = self.new_plans(&request)?;
            }
            stopwatch.end(tuning);
        }
        let plan = self.with_options(plans.estimate());
        profiler.planned_peak(plan.peak_bytes());
        profiler.holds(holding::WORKING, plan.working_bytes);
        let kept = plan.kept_loaded;
        let clip = self.run(request, &mut plans, plan, photo, observe, stopwatch);
        profiler.holds(holding::WORKING, 0);
        // A clip that ended early may have left a network loaded.
        if kept || clip.is_ok() {
            *self.kept() = Some(plans);
        }
        clip
    }

    /// Measures the activations of the denoising network by the steps of the clip in f16. Nothing is decoded.
    fn calibrate(
        &self,
        quantising: &Quantising,
        photo: &RgbImage,
        settings: &Settings,
        observe: &mut Observe<'_>,
    ) -> Result<(), GenerateError> {
        let backend = Arc::new(Calibrating::new(quantising.inner()));
        let options = LoadOptions {
            precision: Some(Precision::F16),
            keep_loaded: false,
            profiler: Profiler::default(),
            ..self.options.clone()
        };
        let f16 = ImageToVideo::on(backend.clone(), self.model.clone(), options)?;
        // Every step is a whole one.
        let settings = settings.clone().cache(1);
        let request = f16.request(&settings, photo.size());
        let mut plans = f16.plans(&request).map_err(GenerateError::while_measuring)?;
        let plan = plans.estimate();
        let mut steps = |progress: &Progress<'_>| match progress.stage {
            Stage::Denoise => observe(&Progress { stage: Stage::Calibrate, ..*progress }),
            _ => observe(progress),
        };
        let stopwatch = Stopwatch::start(&f16.options.profiler);
        let mut run = Run::new(request, (&plans, &plan), &mut steps, stopwatch);
        f16.latents(&mut run, &mut plans, photo)?;
        quantising.calibrate(backend.found());
        // What was planned until now multiplies in f16.
        *self.kept() = None;
        Ok(())
    }

    fn request<'a>(&'a self, settings: &'a Settings, photo: [usize; 2]) -> Request<'a> {
        Request {
            configs: &self.configs,
            settings,
            precision: self.precision,
            backend: &*self.backend,
            photo,
        }
    }

    /// The limit in the machine's own measure.
    fn budget(&self) -> Option<usize> {
        self.limit.map(|limit| usize::try_from(limit.bytes).unwrap_or(usize::MAX))
    }

    /// The estimate, for networks that are kept loaded or not.
    fn with_options(&self, estimate: Estimate) -> Estimate {
        match self.options.keep_loaded {
            true => estimate.kept_within(self.budget()),
            false => estimate,
        }
    }

    /// The plans of the last clip, if this one has the same shape; otherwise new ones. The old plans, and the networks
    /// that they may hold, are dropped once it is certain that the new ones work.
    fn plans(&self, request: &Request<'_>) -> Result<Plans, GenerateError> {
        request.settings.check(&self.configs, request.precision)?;
        let (shape, working_bytes) = (request.shape()?, request.working_bytes()?);
        let last = self.kept().take();
        if let Some(mut plans) = last {
            // Another photo may take more beside the same networks.
            plans.working_bytes = working_bytes;
            let fits = self.budget().is_none_or(|budget| plans.estimate().peak_bytes() <= budget);
            if plans.shape == shape && fits {
                return Ok(plans);
            }
            let new = self.new_plans(request);
            if new.is_err() {
                self.kept().get_or_insert(plans);
            }
            return new;
        }
        self.new_plans(request)
    }

    fn new_plans(&self, request: &Request<'_>) -> Result<Plans, GenerateError> {
        let plans = request.plan_within(self.budget())?;
        let mut problems = self.problems(&plans).into_iter();
        if let Some(first) = problems.next() {
            return Err(GenerateError::Weights { source: Box::new(first), more: problems.count() });
        }
        if self.quantising.is_some() {
            check_products(plans.unet.whole.graph())?;
        }
        Ok(plans)
    }

    /// What the weight files lack for the networks of a plan.
    fn problems(&self, plans: &Plans) -> Vec<WeightsError> {
        let of = |(folder, graph)| match folder {
            "image_encoder" => self.image_encoder.problems(graph),
            "vae" => self.vae.problems(graph),
            _ => self.unet.problems(graph),
        };
        plans.graphs().flat_map(of).collect()
    }

    fn kept(&self) -> MutexGuard<'_, Option<Plans>> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a clip from its plans.
    fn run(
        &self,
        request: Request<'_>,
        plans: &mut Plans,
        plan: Estimate,
        photo: &RgbImage,
        observe: &mut Observe<'_>,
        stopwatch: Stopwatch,
    ) -> Result<Clip, GenerateError> {
        let settings = request.settings;
        let mut run = Run::new(request, (plans, &plan), observe, stopwatch);
        let latents = self.latents(&mut run, plans, photo)?;
        let frames = run.decode(&mut plans.decoders, &self.vae, &latents)?;
        let times = run.stopwatch.stop();
        let report = Report {
            model: self.model.path().display().to_string(),
            device: self.device(),
            precision: request.precision,
            scheduler: request.scheduler()?.kind(),
            settings: settings.clone(),
            seconds: times.seconds,
            seconds_per_frame: times.seconds / frames.len() as f64,
            generated_frames_per_second: frames.len() as f64 / times.seconds,
            stages: times.stages,
            step_seconds: times.steps,
            plan,
            loads: times.loads,
        };
        Ok(Clip { frames, latents, report })
    }

    /// From a photo to the clip's latents.
    fn latents(
        &self,
        run: &mut Run<'_, '_>,
        plans: &mut Plans,
        photo: &RgbImage,
    ) -> Result<Tensor, GenerateError> {
        let settings = run.request.settings;
        let photo = settings.fit.apply(photo, settings.width, settings.height, settings.background)?;
        let schedule = run.request.schedule()?;
        let embedding = run.encode_image(&mut plans.image_encoder, &self.image_encoder, &photo)?;
        let latents = run.encode_latents(&mut plans.vae_encoder, &self.vae, &photo)?;
        run.colours = Some(LatentColours::fit(&photo, &latents, self.configs.vae.scaling_factor)?);
        // A cropped photo is a copy, which makes room for the steps.
        drop(photo);
        let conditions = Conditions { embedding, latents };
        run.denoise(&mut plans.unet, &self.unet, conditions, &schedule)
    }
}
