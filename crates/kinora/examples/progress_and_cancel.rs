//! How far a clip is, a small preview of every step, and Ctrl-C's counterpart: a flag that stops it.
//!
//!     cargo run --release -p kinora --example progress_and_cancel -- 3
//!
//! stops after three steps; without a number the clip is finished. The previews are written to `preview-STEP.png`.

use std::{
    error::Error,
    ops::ControlFlow,
    sync::atomic::{AtomicBool, Ordering},
};

use kinora::{
    ImageToVideo, LoadOptions, Settings,
    image_to_video::{GenerateError, Progress, Stage},
    model_in_the_box,
    video::{FrameRate, VideoFile, VideoOptions},
};

/// Set by whoever wants the clip to end: another thread, or a signal handler.
static STOP: AtomicBool = AtomicBool::new(false);

fn main() -> Result<(), Box<dyn Error>> {
    let steps = std::env::args().nth(1).map(|steps| steps.parse::<usize>()).transpose()?;
    let model = model_in_the_box::open()?;
    let settings = Settings::for_model(&model)?.seed(7);
    let pipeline = ImageToVideo::new(model, LoadOptions::default())?;

    let made = pipeline.generate_with(&model_in_the_box::still()?, &settings, |progress| {
        println!("{}: {} of {}", progress.stage.describe(), progress.done, progress.total);
        if let Err(error) = write_preview(progress) {
            eprintln!("no preview: {error}");
        }
        if progress.stage == Stage::Denoise && Some(progress.done) == steps {
            STOP.store(true, Ordering::Relaxed);
        }
        match STOP.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    match made {
        Ok(clip) => println!("{} frames in {:.1} s", clip.frames.len(), clip.report.seconds),
        Err(GenerateError::Cancelled) => println!("stopped, and nothing is left behind"),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Writes the middle frame of a preview, one pixel for each latent.
fn write_preview(progress: &Progress<'_>) -> Result<(), Box<dyn Error>> {
    let Some(preview) = progress.preview else { return Ok(()) };
    let frames = preview.frames();
    let options = VideoOptions::new(FrameRate::new(7.0)?).overwrite(true);
    let mut file = VideoFile::create(format!("preview-{}.png", progress.done), &options)?;
    file.write_frame(&frames[frames.len() / 2])?;
    file.finish()?;
    Ok(())
}
