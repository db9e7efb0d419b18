//! A clip as the command line asks for it: what `kinora generate` and `kinora profile` share.

pub mod arguments;

use std::{ffi::OsString, path::Path};

use kinora::{
    RgbImage,
    image_to_video::{
        Clip, ClipDefaults, Configs, GenerateError, ImageToVideo, LoadOptions, MemoryBudget, Precision,
        Progress, Settings, Stage,
    },
    memory::{self, LimitSource, MemoryLimit},
    photo,
    profile::Profiler,
};
use kinora_models::{folder::ModelFolder, hub::HubId, weights::Variant};

use self::arguments::RequestArgs;
use crate::{
    display::{Display, Unit},
    failure::Failure,
    interrupt, model,
    quantities::{Bytes, PictureSize},
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
    model: ModelFolder,
    options: LoadOptions,
}

/// The precision that was asked for, or the device's.
pub fn precision(request: &RequestArgs) -> Result<Precision, Failure> {
    match request.clip.precision {
        Some(precision) => Ok(precision),
        None => Ok(Precision::default_for(request.device)?),
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
        // Networks are not kept loaded: the process ends after one clip, so each makes room for the next.
        let options = LoadOptions::default()
            .precision(precision)
            .device(request.device)
            .kernels(request.kernels)
            .tuning(request.tuning)
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
        Ok(Order { settings, configs, limit, any_decode_chunk, model, options })
    }

    /// The model, ready to make clips.
    pub fn open(&self, display: &mut Display) -> Result<ImageToVideo, Failure> {
        let pipeline = ImageToVideo::new(self.model.clone(), self.options.clone())?;
        display.detail(&pipeline.device());
        Ok(pipeline)
    }

    /// Makes the clip.
    pub fn make(
        &self,
        pipeline: &ImageToVideo,
        photo: &RgbImage,
        display: &mut Display,
    ) -> Result<Clip, Failure> {
        display.advance("plan", Unit::Parts, 0, 1);
        let settings = self.fitted(pipeline, photo, &self.settings, display)?;
        let clip = pipeline
            .generate_with(photo, &settings, |progress| {
                show(display, progress);
                interrupt::control_flow()
            })
            .map_err(|error| self.failure(error))?;
        display.end_stage();
        Ok(clip)
    }

    /// The settings, with fewer frames decoded together if the clip fits its memory only so and none were asked for.
    fn fitted(
        &self,
        pipeline: &ImageToVideo,
        photo: &RgbImage,
        settings: &Settings,
        display: &Display,
    ) -> Result<Settings, Failure> {
        if !self.any_decode_chunk {
            return Ok(settings.clone());
        }
        let fitted = pipeline.fit(photo, settings).map_err(|error| self.failure(error))?;
        if let (true, Some(limit)) = (fitted.decode_chunk < settings.decode_chunk, self.limit) {
            let (chunk, limit) = (fitted.decode_chunk, Bytes(limit.bytes));
            let frames = if chunk == 1 { "1 frame".to_owned() } else { format!("{chunk} frames") };
            display.warn(&format!(
                "decoding {frames} at a time to fit {limit}, which changes the pixels a little; --decode-chunk sets it"
            ));
        }
        Ok(fitted)
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

/// The memory that the clip may take: the requested limit, otherwise what is available.
fn memory_limit(arguments: &RequestArgs) -> Result<Option<MemoryLimit>, Failure> {
    match arguments.memory_limit {
        Some(Bytes(bytes)) => Ok(Some(MemoryLimit { bytes, source: LimitSource::Asked })),
        None => Ok(arguments.device.available_memory()?),
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

/// The photo that was named, or the still of the model in the box if neither a photo nor another model was.
pub fn photo(request: &RequestArgs) -> Result<RgbImage, Failure> {
    match (&request.photo, &request.model) {
        (Some(path), _) => Ok(photo::open_within(path, photo_memory(request))?),
        (None, None) => model::still(),
        (None, Some(_)) => {
            let problem = "only the model in the box comes with a still; with --model, name a photo";
            Err(Failure::Usage(problem.to_owned()))
        }
    }
}

/// A photo of so few bytes is never why a clip does not fit.
const SMALL_PHOTO: u64 = 8_000_000;

/// The memory that opening a photo may take: the requested limit, otherwise what the machine has available.
fn photo_memory(request: &RequestArgs) -> u64 {
    let asked = request.memory_limit.map(|Bytes(bytes)| bytes);
    let limit = asked.or_else(|| memory::available().map(|limit| limit.bytes));
    limit.unwrap_or(u64::MAX).max(SMALL_PHOTO)
}

/// What the user may not have meant.
pub fn warnings(photo: &RgbImage, settings: &Settings, configs: &Configs) -> Vec<String> {
    let scheduler = settings.scheduler.and_then(|kind| configs.scheduler_warning(kind));
    let stretched = stretched(photo, settings, configs.side_unit());
    stretched.into_iter().chain(untrained(settings, configs)).chain(scheduler).collect()
}

/// Warns if the model says which clips it was made for, and this is a different one.
fn untrained(settings: &Settings, configs: &Configs) -> Option<String> {
    let ClipDefaults { frames: Some(frames), width: Some(width), height: Some(height), .. } =
        configs.defaults
    else {
        return None;
    };
    let same = [frames, width, height] == [settings.frames, settings.width, settings.height];
    (!same).then(|| {
        let size = PictureSize { width, height };
        format!("the model was made only for {frames} frames of {size}; expect a poor clip")
    })
}

/// Warns if the photo's aspect ratio differs from the clip's.
fn stretched(photo: &RgbImage, settings: &Settings, unit: usize) -> Option<String> {
    let asked = PictureSize { width: settings.width, height: settings.height };
    let given = PictureSize { width: photo.width(), height: photo.height() };
    let shape = |size: PictureSize| size.width as f64 / size.height as f64;
    let stretch = shape(asked) / shape(given);
    // Nobody sees less than that.
    if (0.9..=1.1).contains(&stretch) {
        return None;
    }
    let better = same_shape(given, asked, unit);
    let advice = if better == asked {
        String::new()
    } else {
        format!(", or give --size {}x{}", better.width, better.height)
    };
    Some(format!("the photo ({given}) is stretched to {asked}; crop it to that shape first{advice}"))
}

/// A size with the photo's aspect ratio and about as many pixels as requested, in multiples of the model's unit.
fn same_shape(photo: PictureSize, asked: PictureSize, unit: usize) -> PictureSize {
    let pixels = (asked.width * asked.height) as f64;
    let shape = photo.width as f64 / photo.height as f64;
    let most = (4096 / unit).max(1);
    let rounded = |side: f64| ((side / unit as f64).round() as usize).clamp(1, most) * unit;
    PictureSize { width: rounded((pixels * shape).sqrt()), height: rounded((pixels / shape).sqrt()) }
}

fn show(display: &mut Display, progress: &Progress<'_>) {
    let unit = match progress.stage {
        Stage::Tune => Unit::Kernels,
        Stage::Compile => Unit::Compiled,
        Stage::Load => Unit::Parts,
        Stage::EncodeImage | Stage::EncodeLatents => Unit::Photo,
        Stage::Denoise => Unit::Steps,
        Stage::Decode => Unit::Frames,
    };
    display.advance(progress.stage.name(), unit, progress.done as u64, progress.total as u64);
}
