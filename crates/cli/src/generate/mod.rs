//! `kinora generate`: photos become video files.

pub mod arguments;
mod jobs;
mod report;
mod several;

use std::{
    collections::BTreeSet,
    fs,
    io::{self, IsTerminal},
    path::Path,
};

use kinora::{
    RgbImage,
    image_to_video::{GenerateError, ImageToVideo, Precision, Settings},
    profile::Profiler,
    video::{FrameRate, VideoError, VideoFile, VideoFormat, VideoOptions, WrittenVideo},
};

use self::{
    arguments::GenerateArgs,
    jobs::{Job, is_folder, jobs},
    report::Made,
};
use crate::{
    clip::{self, Order, Still},
    display::{Display, Unit},
    failure::Failure,
    files,
    interrupt::{self, Phase},
    live::drawing::{self, Models},
    out_of_memory, print, standard_output,
};

/// What to do if memory runs out for a clip whose photo is drawn: its model takes memory as well.
const LESS_MEMORY_WITH_PROMPT: &str = "lower --size, --frames or --decode-chunk; --precision f16 halves the weights; a photo instead of \
    --prompt needs no model to draw it; close other programs";

/// Makes the videos. Everything that can be wrong is looked at before the work begins: the options, the place for the video,
/// the photo, then the model.
pub fn run(arguments: &GenerateArgs) -> Result<(), Failure> {
    let jobs = jobs(arguments)?;
    if arguments.json && jobs.iter().any(Job::to_standard_output) {
        let problem = "--json and `-o -` both want standard output; write the video to a file";
        return Err(Failure::Usage(problem.to_owned()));
    }
    if arguments.json || jobs.iter().any(Job::to_standard_output) {
        standard_output::check()?;
    }
    // What would be said in a log is in the JSON object.
    let in_json = arguments.json && !arguments.verbose && !io::stderr().is_terminal();
    let mut display = Display::new(arguments.quiet || in_json, arguments.verbose);
    if arguments.prompt.is_some() {
        out_of_memory::set_advice(LESS_MEMORY_WITH_PROMPT.to_owned());
    }
    let precision = clip::precision(&arguments.request)?;
    let asked = clip::checked_settings(&arguments.request, precision)?;
    let probe = video_options(arguments, &asked)?.frames(arguments.request.clip.frames);
    make_folder(arguments)?;
    let [job] = jobs.as_slice() else {
        return several::run(arguments, &jobs, precision, &probe, &mut display);
    };

    try_place(&job.output, &probe)?;
    // A photo that cannot be read is reported before a model is downloaded.
    let read = match arguments.prompt {
        Some(_) => None,
        None => Some(Still::open(job.photo.as_deref(), &arguments.request)?),
    };
    let order = Order::new(&arguments.request, precision, Profiler::off(), &mut display)?;
    let still = match read {
        Some(still) => still,
        None => draw(arguments, precision, order.settings.seed, &mut display)?,
    };
    let maker = Maker { arguments, video: video_options(arguments, &order.settings)?, order };
    maker.try_a_frame(job)?;
    let mut notices = maker.notices(job, &still, &display);
    let pipeline = maker.order.open(&mut display)?;
    let made = maker.make(&pipeline, job, &still, &maker.order.settings, &mut display)?;
    notices.warnings.extend_from_slice(&made.warnings);
    if arguments.json { print(&format!("{}\n", made.json(job, &still, &notices, &maker))) } else { Ok(()) }
}

/// Draws the photo after a prompt, with the clip's seed.
fn draw(
    arguments: &GenerateArgs,
    precision: Precision,
    seed: u64,
    display: &mut Display,
) -> Result<Still, Failure> {
    let models = Models {
        model: arguments.draw_model.as_ref(),
        autoencoder: arguments.draw_autoencoder.as_ref(),
        controlnet: None,
        lora: &[],
        adjustable: BTreeSet::new(),
        // The clip alone is measured for fp8.
        precision: Some(if precision == Precision::Fp8 { Precision::F16 } else { precision }),
        machine: &arguments.request.machine,
        profiler: Profiler::off(),
    };
    let prompt = arguments.prompt.as_deref().unwrap_or_default();
    Ok(Still::drawn(drawing::picture(models, prompt, seed, display)?, &arguments.request))
}

/// What the user is told about a clip before it is made.
struct Notices {
    notes: Vec<String>,
    warnings: Vec<String>,
}

/// What all clips of a command share.
struct Maker<'a> {
    arguments: &'a GenerateArgs,
    order: Order,
    video: VideoOptions,
}

impl Maker<'_> {
    /// Writes a frame and throws it away: not every format holds every size, and hours later is too late to find out.
    fn try_a_frame(&self, job: &Job) -> Result<(), Failure> {
        if job.to_standard_output() {
            return Ok(());
        }
        let Settings { width, height, .. } = self.order.settings;
        interrupt::uninterrupted(|| {
            let mut file = VideoFile::create(&job.output, &self.video)?;
            let black =
                RgbImage::new(width, height, vec![0; width * height * 3]).map_err(GenerateError::from)?;
            file.write_frame(&black)?;
            Ok(())
        })
    }

    /// Says what the user may want to know before the work begins.
    fn notices(&self, job: &Job, still: &Still, display: &Display) -> Notices {
        let mut warnings = still.warnings(&self.order.settings, &self.order.configs);
        warnings.extend(self.order.ignored.clone());
        let format = VideoFormat::from_path(&job.output).ok();
        if self.arguments.quality.is_some() && format.is_some_and(|format| format != VideoFormat::Mp4) {
            warnings.push("--quality counts only for .mp4; other formats lose nothing to it".to_owned());
        }
        let notes = still.notes();
        notes.iter().for_each(|note| display.note(note));
        warnings.iter().for_each(|warning| display.warn(warning));
        Notices { notes, warnings }
    }

    /// Makes a clip, writes it, and says so.
    fn make(
        &self,
        pipeline: &ImageToVideo,
        job: &Job,
        still: &Still,
        settings: &Settings,
        display: &mut Display,
    ) -> Result<Made, Failure> {
        let (clip, warning) = self.order.make(pipeline, still, &still.settings(settings), display)?;
        // A reader of standard output may take its time, and nothing would be left behind there.
        if job.to_standard_output() { Phase::AtOnce } else { Phase::Writing }.enter();
        let written = write(&job.output, &self.video, &clip.frames, display)?;
        let mut made = Made { written, report: clip.report, warnings: warning.into_iter().collect() };
        let left = made.left_behind();
        left.iter().for_each(|warning| display.warn(warning));
        made.warnings.extend(left);
        made.details().iter().for_each(|line| display.detail(line));
        display.result(&made.summary(&self.video), &made.line());
        Ok(made)
    }
}

fn video_options(arguments: &GenerateArgs, settings: &Settings) -> Result<VideoOptions, VideoError> {
    let rate = FrameRate::new(arguments.play_fps.unwrap_or(settings.fps as f64))?;
    let quality = arguments.quality.unwrap_or(VideoOptions::DEFAULT_QUALITY);
    let inputs = files::inputs_of(&arguments.photos, &arguments.request);
    let options = VideoOptions::new(rate).quality(quality).frames(settings.frames);
    Ok(options.overwrite(arguments.force).protect(inputs))
}

/// Makes the folder that `-o` names, if it does not exist.
fn make_folder(arguments: &GenerateArgs) -> Result<(), Failure> {
    match arguments.output.as_deref().filter(|output| is_folder(output)) {
        Some(folder) if !folder.exists() => {
            fs::create_dir(folder).map_err(|source| Failure::File { path: folder.to_owned(), source })
        }
        _ => Ok(()),
    }
}

/// Finds out whether a video can be written at this place.
fn try_place(output: &Path, probe: &VideoOptions) -> Result<(), Failure> {
    interrupt::uninterrupted(|| {
        VideoFile::create(output, probe)?;
        Ok(())
    })
}

fn write(
    path: &Path,
    options: &VideoOptions,
    frames: &[RgbImage],
    display: &mut Display,
) -> Result<WrittenVideo, Failure> {
    // Asked before the file is there: a second Ctrl-C may just be ending the program.
    let go_on = || if interrupt::requested() { Err(Failure::Interrupted) } else { Ok(()) };
    go_on()?;
    let mut file = VideoFile::create(path, options)?;
    for (done, frame) in frames.iter().enumerate() {
        go_on()?;
        display.advance("writing the video", Unit::Frames, done as u64, frames.len() as u64);
        if let Err(error) = file.write_frame(frame) {
            return Err(abandoned(error, file.frames(), frames.len(), display));
        }
    }
    let written = file.finish().map_err(|error| abandoned(error, frames.len(), frames.len(), display))?;
    display.end_stage();
    Ok(written)
}

/// A failure to write. If the program that read the video has ended, that is no error, but a log has a line about it.
fn abandoned(error: VideoError, written: usize, asked: usize, display: &mut Display) -> Failure {
    if error.reader_is_gone() {
        display.abandon_stage();
        display
            .line(&format!("wrote {written} of {asked} frames to standard output, whose reader has ended"));
    }
    error.into()
}
