//! `kinora generate`: a photo becomes a video file.

pub mod arguments;
mod report;

use std::path::Path;

use kinora::{
    RgbImage,
    image_to_video::{GenerateError, Settings},
    profile::Profiler,
    video::{FrameRate, VideoError, VideoFile, VideoOptions, WrittenVideo},
};

use self::arguments::GenerateArgs;
use crate::{
    clip::{self, Order},
    display::{Display, Unit},
    failure::Failure,
    files,
    interrupt::{self, Phase},
    print, standard_output,
};

/// Makes the video. Everything that can be wrong is looked at before the work begins: the options, the place for the video,
/// the photo, then the model.
pub fn run(arguments: &GenerateArgs) -> Result<(), Failure> {
    let to_standard_output = arguments.output.as_os_str() == "-";
    if to_standard_output && arguments.json {
        let problem = "--json and `-o -` both want standard output; write the video to a file";
        return Err(Failure::Usage(problem.to_owned()));
    }
    if to_standard_output || arguments.json {
        standard_output::check()?;
    }
    let request = &arguments.request;
    let mut display = Display::new(arguments.quiet, arguments.verbose);
    let precision = clip::precision(request)?;
    let asked = clip::checked_settings(request, precision)?;
    let probe = video_options(arguments, &asked)?.frames(request.clip.frames);
    interrupt::uninterrupted(|| {
        VideoFile::create(&arguments.output, &probe)?;
        Ok(())
    })?;
    let photo = clip::photo(request)?;

    let order = Order::new(request, precision, Profiler::off(), &mut display)?;
    let video = video_options(arguments, &order.settings)?;
    if !to_standard_output {
        interrupt::uninterrupted(|| try_a_frame(&arguments.output, &video, &order.settings))?;
    }
    let mut warnings = clip::warnings(&photo, &order.settings, &order.configs);
    warnings.iter().for_each(|warning| display.warn(warning));

    let pipeline = order.open(&mut display)?;
    let clip = order.make(&pipeline, &photo, &mut display)?;
    // A reader of standard output may take its time, and nothing would be left behind there.
    if to_standard_output { Phase::AtOnce } else { Phase::Writing }.enter();
    let written = write(&arguments.output, &video, &clip.frames, &mut display)?;
    for warning in report::left_behind(&written) {
        display.warn(&warning);
        warnings.push(warning);
    }
    for line in report::details(&clip.report) {
        display.detail(&line);
    }
    display.line(&report::summary(&arguments.output, &written, &video, &clip.report));
    if arguments.json {
        print(&report::json(&written, &video, &warnings, order.limit, &clip.report))
    } else {
        Ok(())
    }
}

fn video_options(arguments: &GenerateArgs, settings: &Settings) -> Result<VideoOptions, VideoError> {
    let rate = FrameRate::new(arguments.output_fps.unwrap_or(settings.fps as f64))?;
    let inputs = files::inputs_of(&arguments.request);
    Ok(VideoOptions::new(rate).overwrite(arguments.force).frames(settings.frames).protect(inputs))
}

/// Writes a frame and throws it away: not every format holds every size, and hours later is too late to find out.
fn try_a_frame(path: &Path, options: &VideoOptions, settings: &Settings) -> Result<(), Failure> {
    let Settings { width, height, .. } = *settings;
    let mut file = VideoFile::create(path, options)?;
    let black = RgbImage::new(width, height, vec![0; width * height * 3]).map_err(GenerateError::from)?;
    file.write_frame(&black)?;
    Ok(())
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
        display.advance("write", Unit::Frames, done as u64, frames.len() as u64);
        file.write_frame(frame)?;
    }
    let written = file.finish()?;
    display.end_stage();
    Ok(written)
}
