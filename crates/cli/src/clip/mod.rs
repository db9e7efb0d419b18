//! A clip as the command line asks for it: what `kinora generate` and `kinora profile` share.

pub mod arguments;
mod still;

use std::{ffi::OsString, path::Path};

use kinora::{
    RgbImage,
    image_to_video::{
        Clip, Configs, GenerateError, ImageToVideo, LoadOptions, MemoryBudget, Precision, Progress, Settings,
        Stage,
    },
    memory::{LimitSource, MemoryLimit},
    profile::Profiler,
    runtime::{KernelSet, Tuning},
};
use kinora_models::{folder::ModelFolder, hub::HubId, weights::Variant};

use self::arguments::{MachineArgs, RequestArgs};
pub use self::still::Still;
use crate::{
    display::{Display, Unit},
    failure::Failure,
    interrupt::{self, Phase},
    model,
    quantities::Bytes,
};

/// What the names of Stable Video Diffusion's published models begin with.
const PUBLISHED: &str = "stabilityai/stable-video-diffusion-img2vid";

/// A clip that can be made: the model is there, and its settings are known.
pub struct Order {
    pub settings: Settings,
    pub configs: Configs,
    pub limit: Option<MemoryLimit>,
    /// Whether the number of frames that are decoded together may be chosen.
    any_decode_chunk: bool,
    /// Options that make no difference.
    pub ignored: Option<String>,
    model: ModelFolder,
    options: LoadOptions,
}

/// The precision that was asked for, or the device's.
pub fn precision(request: &RequestArgs) -> Result<Precision, Failure> {
    match request.precision {
        Some(precision) => Ok(precision),
        None => Ok(Precision::default_for(request.machine.device)?),
    }
}

impl Order {
    /// Finds the model, or downloads it, and reads its configurations.
    pub fn new(
        request: &RequestArgs,
        precision: Precision,
        profiler: Profiler,
        display: &mut Display,
    ) -> Result<Order, Failure> {
        let limit = memory_limit(request)?;
        // Networks are not kept loaded unless there are several clips: each makes room for the next.
        let options = LoadOptions::default()
            .precision(precision)
            .device(request.machine.device)
            .kernels(request.machine.kernels)
            .tuning(request.machine.tuning)
            .memory_budget(limit.map_or(MemoryBudget::Unlimited, |limit| {
                MemoryBudget::Bytes(usize::try_from(limit.bytes).unwrap_or(usize::MAX))
            }))
            .profiler(profiler);
        let model = match &request.model {
            Some(name) => model::open(name, &Variant::For(precision.dtype()), display)?,
            None => model::in_the_box()?,
        };
        display.detail(&format!("model {}", model.path().display()));
        if let Some(MemoryLimit { bytes, source }) = limit {
            display.detail(&format!("at most {} of memory: {source}", Bytes(bytes)));
        }
        let configs = Configs::read(&model)?;
        let mut settings = Settings::for_configs(&configs);
        request.apply(&mut settings);
        let any_decode_chunk = request.clip.decode_chunk.is_none();
        let ignored = ignored_options(&request.machine, "makes this clip")?;
        Ok(Order { settings, configs, limit, any_decode_chunk, ignored, model, options })
    }

    /// The model, ready to make clips.
    pub fn open(&self, display: &mut Display) -> Result<ImageToVideo, Failure> {
        let pipeline = ImageToVideo::new(self.model.clone(), self.options.clone())?;
        display.detail(&pipeline.device());
        Ok(pipeline)
    }

    /// Keeps the networks in memory from one clip to the next, if there is room.
    pub fn keep_loaded(mut self) -> Order {
        self.options = self.options.keep_loaded(true);
        self
    }

    /// Makes the clip; gives it with a warning if it is not quite the one that was asked for.
    pub fn make(
        &self,
        pipeline: &ImageToVideo,
        still: &Still,
        settings: &Settings,
        display: &mut Display,
    ) -> Result<(Clip, Option<String>), Failure> {
        // The clip before may have been written.
        Phase::AtOnce.enter();
        display.advance("planning", Unit::Parts, 0, 1);
        let photo = &still.image;
        let (settings, warning) = self.fitted(pipeline, photo, settings)?;
        warning.iter().for_each(|warning| display.warn(warning));
        let clip = pipeline
            .generate_with(photo, &settings, |progress| {
                show(display, progress);
                interrupt::control_flow()
            })
            .map_err(|error| self.failure(error))?;
        display.end_stage();
        Ok((clip, warning))
    }

    /// The settings, with fewer frames decoded together if the clip fits its memory only so and none were asked for, and then a
    /// warning.
    fn fitted(
        &self,
        pipeline: &ImageToVideo,
        photo: &RgbImage,
        settings: &Settings,
    ) -> Result<(Settings, Option<String>), Failure> {
        if !self.any_decode_chunk {
            return Ok((settings.clone(), None));
        }
        let fitted = pipeline.fit(photo, settings).map_err(|error| self.failure(error))?;
        let chunk = fitted.decode_chunk;
        let warning = self.limit.filter(|_| chunk < settings.decode_chunk).map(|limit| {
            let frames = if chunk == 1 { "1 frame".to_owned() } else { format!("{chunk} frames") };
            let limit = Bytes(limit.bytes);
            format!(
                "decoding {frames} at a time to fit {limit}, which changes the pixels a little; --decode-chunk sets it"
            )
        });
        Ok((fitted, warning))
    }

    fn failure(&self, error: GenerateError) -> Failure {
        match (error, self.limit) {
            (GenerateError::Cancelled, _) => Failure::Interrupted,
            (error @ GenerateError::OverBudget { .. }, Some(limit)) => {
                Failure::Memory { error: Box::new(error), limit }
            }
            (error, _) => error.into(),
        }
    }
}

/// The options for GPU kernels, if they were given and the CPU does the work.
pub fn ignored_options(machine: &MachineArgs, work: &str) -> Result<Option<String>, Failure> {
    let given: Vec<&str> = [
        (machine.kernels != KernelSet::default()).then_some("--kernels"),
        (machine.tuning != Tuning::default()).then_some("--tuning"),
    ]
    .into_iter()
    .flatten()
    .collect();
    // The CPU's default is f32, and a GPU's f16.
    if given.is_empty() || Precision::default_for(machine.device)? != Precision::F32 {
        return Ok(None);
    }
    Ok(Some(format!("the CPU {work}, so GPU options have no effect: {}", given.join(" and "))))
}

/// The memory that the clip may take: the requested limit, otherwise what is available.
fn memory_limit(arguments: &RequestArgs) -> Result<Option<MemoryLimit>, Failure> {
    match arguments.machine.memory_limit {
        Some(Bytes(bytes)) => Ok(Some(MemoryLimit { bytes, source: LimitSource::Asked })),
        None => Ok(arguments.machine.device.available_memory()?),
    }
}

/// The requested settings, for the model in the box or a published one. Refuses, before anything is downloaded, what no
/// model can make a clip of, and what a published model that would be downloaded cannot.
pub fn checked_settings(arguments: &RequestArgs, precision: Precision) -> Result<Settings, Failure> {
    let configs = match arguments.model {
        Some(_) => Configs::svd_xt(),
        None => Configs::read(&model::in_the_box()?)?,
    };
    let mut settings = Settings::for_configs(&configs);
    arguments.apply(&mut settings);
    settings.check(&configs, precision)?;
    let published = |name: &OsString| {
        let id = name.to_str().and_then(HubId::parse);
        id.is_some_and(|id| id.repo().starts_with(PUBLISHED)) && !Path::new(name).exists()
    };
    if arguments.model.as_ref().is_none_or(published) {
        settings.check_steps(&configs)?;
    }
    Ok(settings)
}

fn show(display: &mut Display, progress: &Progress<'_>) {
    let unit = match progress.stage {
        Stage::Tune => Unit::Kernels,
        Stage::Compile => Unit::Compiled,
        Stage::Load | Stage::EncodeText => Unit::Parts,
        Stage::EncodeImage | Stage::EncodeLatents => Unit::Photo,
        Stage::Calibrate | Stage::Denoise => Unit::Steps,
        Stage::Decode | Stage::Draw => Unit::Frames,
    };
    display.advance(progress.stage.describe(), unit, progress.done as u64, progress.total as u64);
}
