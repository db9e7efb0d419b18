//! A clip in ten lines: the model in the box animates a still, and a video is written.
//!
//!     cargo run --release -p kinora --example clip -- clip.mp4

use std::{error::Error, path::Path};

use kinora::{ImageToVideo, LoadOptions, Settings, model_in_the_box};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).unwrap_or_else(|| "clip.mp4".into());
    make_clip(path.as_ref())
}

/// Makes the clip, and writes it in the format that the path's extension names.
pub fn make_clip(path: &Path) -> Result<(), Box<dyn Error>> {
    let model = model_in_the_box::open()?;
    let settings = Settings::for_model(&model)?.seed(7);
    let pipeline = ImageToVideo::new(model, LoadOptions::default())?;
    let clip = pipeline.generate(&model_in_the_box::still()?, &settings)?;
    clip.save(path)?;
    println!("{}: {:.2} frames per second", path.display(), clip.report.generated_frames_per_second);
    Ok(())
}
