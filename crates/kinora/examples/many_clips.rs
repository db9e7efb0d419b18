//! Many clips with everything kept loaded: the second and all later clips of a shape read no weights.
//!
//!     cargo run --release -p kinora --example many_clips -- FOLDER
//!
//! animates each still that comes with the model in the box, and then continues one clip from its last frame.

use std::{error::Error, path::PathBuf};

use kinora::{ImageToVideo, LoadOptions, Settings, model_in_the_box, photo};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).unwrap_or_else(|| ".".into()));
    let model = model_in_the_box::open()?;
    let settings = Settings::for_model(&model)?;
    let pipeline = ImageToVideo::new(model, LoadOptions::default().keep_loaded(true))?;

    let mut last = None;
    for (number, (name, still)) in model_in_the_box::stills().enumerate() {
        // Every clip has its own seed; the shape is the same, so the networks stay where they are.
        let settings = settings.clone().seed(number as u64);
        let clip = pipeline.generate(&photo::decode(still)?, &settings)?;
        println!("{name}: {} networks loaded, {:.2} s", clip.report.loads.len(), clip.report.seconds);
        clip.save(folder.join(format!("{name}.mp4")))?;
        last = clip.frames.last().cloned();
    }
    // A frame is an image like any other, so a clip can go on where another one ended.
    if let Some(frame) = last {
        pipeline.generate(&frame, &settings.seed(99))?.save(folder.join("continued.mp4"))?;
    }
    Ok(())
}
