//! `kinora generate`: a photo becomes a video file.

pub mod arguments;
mod report;

use std::path::Path;

use kinora::{
    image_to_video::{
        Configs, GenerateError, ImageToVideo, LoadOptions, Precision, Progress, Settings, Stage,
    },
    memory::{LimitSource, MemoryLimit},
    photo::Photo,
    video::{Frame, FrameRate, VideoError, VideoFile, VideoOptions, WrittenVideo},
};
use kinora_models::weights::Variant;

use self::arguments::GenerateArgs;
use crate::{
    display::{Display, Unit},
    failure::Failure,
    interrupt::{self, Phase},
    model, print,
    quantities::{Bytes, PictureSize},
};

/// What the names of Stable Video Diffusion's published models begin with.
const PUBLISHED: &str = "stabilityai/stable-video-diffusion-img2vid";

/// Makes the video. Everything that can be wrong is looked at before the work begins: the options, the place for the video,
/// the photo, then the model.
pub fn run(arguments: &GenerateArgs) -> Result<(), Failure> {
    let to_standard_output = arguments.output.as_os_str() == "-";
    if to_standard_output && arguments.json {
        let problem = "--json and `-o -` both want standard output; write the video to a file";
        return Err(Failure::Usage(problem.to_owned()));
    }
    let mut display = Display::new(arguments.quiet, arguments.verbose);
    let precision = match arguments.clip.precision {
        Some(precision) => precision,
        None => arguments.device.default_precision()?,
    };
    let asked = checked_settings(arguments, precision)?;
    let probe = VideoOptions { frames: arguments.clip.frames, ..video_options(arguments, &asked)? };
    interrupt::uninterrupted(|| {
        VideoFile::create(&arguments.output, &probe)?;
        Ok(())
    })?;
    let photo = Photo::open(&arguments.photo)?;

    let limit = memory_limit(arguments)?;
    let options = LoadOptions {
        precision,
        device: arguments.device,
        kernels: arguments.kernels,
        tuning: arguments.tuning,
        memory_budget: limit.map(|limit| usize::try_from(limit.bytes).unwrap_or(usize::MAX)),
        // One clip, then the process ends: a network that has done its work makes room for the next.
        keep_loaded: false,
    };
    let model = model::open(&arguments.model, &Variant::For(precision.dtype()), &mut display)?;
    display.detail(&format!("model {}", model.path().display()));
    if let Some(MemoryLimit { bytes, source }) = limit {
        display.detail(&format!("at most {} of memory: {source}", Bytes(bytes)));
    }
    let configs = Configs::read(&model)?;
    let mut settings = Settings::for_configs(&configs);
    arguments.apply(&mut settings);
    let video = video_options(arguments, &settings)?;
    if !to_standard_output {
        interrupt::uninterrupted(|| try_a_frame(&arguments.output, &video, &settings))?;
    }
    let warnings = warnings(&photo, &settings, &configs);
    warnings.iter().for_each(|warning| display.warn(warning));

    Phase::AtNextStep.enter();
    let pipeline = ImageToVideo::new(model, options)?;
    display.detail(&pipeline.device());
    display.advance("plan", Unit::Parts, 0, 1);
    let clip = pipeline
        .generate(&photo, &settings, &mut |progress| {
            show(&mut display, progress);
            interrupt::control_flow()
        })
        .map_err(|error| match (error, limit) {
            (GenerateError::Cancelled, _) => Failure::Interrupted,
            (error @ GenerateError::OverBudget { .. }, Some(limit)) => {
                Failure::Memory { error: Box::new(error), limit }
            }
            (error, _) => error.into(),
        })?;
    display.end_stage();
    // A reader of standard output may take its time, and nothing would be left behind there.
    if to_standard_output { Phase::AtOnce } else { Phase::Writing }.enter();
    let written = write(&arguments.output, &video, &clip.frames, &mut display)?;
    for line in report::details(&clip.report) {
        display.detail(&line);
    }
    display.line(&report::summary(&arguments.output, &written, &video, &clip.report));
    if arguments.json {
        print(&report::json(&written, &video, &warnings, limit, &clip.report))
    } else {
        Ok(())
    }
}

/// The memory that the clip may take: what was asked for, otherwise what there is.
fn memory_limit(arguments: &GenerateArgs) -> Result<Option<MemoryLimit>, Failure> {
    match arguments.memory_limit {
        Some(Bytes(bytes)) => Ok(Some(MemoryLimit { bytes, source: LimitSource::Asked })),
        None => Ok(arguments.device.available_memory()?),
    }
}

/// What was asked for, as the settings of a published model: refuses, before anything is downloaded, what no model can
/// make a clip of, and what a published one cannot where it would be downloaded.
fn checked_settings(arguments: &GenerateArgs, precision: Precision) -> Result<Settings, GenerateError> {
    let configs = Configs::svd_xt();
    let mut settings = Settings::for_configs(&configs);
    arguments.apply(&mut settings);
    settings.check(&configs, precision)?;
    let published = arguments.model.to_str().is_some_and(|name| name.starts_with(PUBLISHED));
    if published && !Path::new(&arguments.model).exists() {
        settings.check_steps(&configs)?;
    }
    Ok(settings)
}

fn video_options(arguments: &GenerateArgs, settings: &Settings) -> Result<VideoOptions, VideoError> {
    let rate = FrameRate::new(arguments.output_fps.unwrap_or(settings.fps as f64))?;
    Ok(VideoOptions { overwrite: arguments.force, frames: Some(settings.frames), ..VideoOptions::new(rate) })
}

/// Writes a frame and throws it away: not every format holds every size, and hours later is too late to find out.
fn try_a_frame(path: &Path, options: &VideoOptions, settings: &Settings) -> Result<(), Failure> {
    let Settings { width, height, .. } = *settings;
    let mut file = VideoFile::create(path, options)?;
    file.write_frame(&Frame::new(width, height, vec![0; width * height * 3])?)?;
    Ok(())
}

/// What may not be what was meant.
fn warnings(photo: &Photo, settings: &Settings, configs: &Configs) -> Vec<String> {
    let scheduler = settings.scheduler.and_then(|kind| configs.scheduler_warning(kind));
    stretched(photo, settings, configs.side_unit()).into_iter().chain(scheduler).collect()
}

/// That the photo has another shape than the clip.
fn stretched(photo: &Photo, settings: &Settings, unit: usize) -> Option<String> {
    let asked = PictureSize { width: settings.width, height: settings.height };
    let given = PictureSize { width: photo.width(), height: photo.height() };
    let shape = |size: PictureSize| size.width as f64 / size.height as f64;
    let stretch = shape(asked) / shape(given);
    // Below that no one sees it.
    if (0.9..=1.1).contains(&stretch) {
        return None;
    }
    let better = same_shape(given, asked, unit);
    let advice = if better == asked {
        String::new()
    } else {
        format!(", or give --size {}x{}", better.width, better.height)
    };
    Some(format!("the photo of {given} is stretched to {asked}; cut it to that shape first{advice}"))
}

/// A size in the shape of the photo with about as many pixels as were asked for, in multiples of the model's unit.
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
    display.advance(stage_name(progress.stage), unit, progress.done as u64, progress.total as u64);
}

/// A stage in a word.
fn stage_name(stage: Stage) -> &'static str {
    match stage {
        Stage::Tune => "tune",
        Stage::Compile => "compile",
        Stage::Load => "load",
        Stage::EncodeImage => "embed",
        Stage::EncodeLatents => "encode",
        Stage::Denoise => "denoise",
        Stage::Decode => "decode",
    }
}

fn write(
    path: &Path,
    options: &VideoOptions,
    frames: &[Frame],
    display: &mut Display,
) -> Result<WrittenVideo, Failure> {
    // Asked before the file is there: a second Ctrl-C may just be ending the program.
    let go_on = || if interrupt::asked() { Err(Failure::Interrupted) } else { Ok(()) };
    go_on()?;
    let mut file = VideoFile::create(path, options)?;
    for (done, frame) in frames.iter().enumerate() {
        go_on()?;
        display.advance("write", Unit::Frames, done as u64, frames.len() as u64);
        file.write_frame(frame)?;
    }
    let written = file.finish()?;
    display.end_stage();
    Ok(written)
}
