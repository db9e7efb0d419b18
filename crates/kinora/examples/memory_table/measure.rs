//! A clip made from a photo's file to a video's file, and the most memory that the process had meanwhile.

use std::{
    error::Error,
    fs,
    path::Path,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use kinora::{Device, ImageToVideo, LoadOptions, ModelFolder, Settings, image_to_video::Precision, photo};
use serde::{Deserialize, Serialize};

/// The photo's file.
const PHOTO: &str = "photo.jpg";

/// What the clip is made with.
#[derive(Clone, Debug)]
pub struct Case {
    /// The folder of the model beside the photo, or none for the model in the box.
    pub model: Option<&'static str>,
    pub precision: Precision,
    /// Frames, width and height.
    pub clip: [usize; 3],
    pub decode_chunk: usize,
    pub keep_loaded: bool,
    /// After how many steps one computes all blocks.
    pub cache: usize,
    /// Width and height.
    pub photo: [usize; 2],
    /// The extension of the video.
    pub format: &'static str,
}

/// What it said that it would take, and what it took, in bytes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Measured {
    pub planned: usize,
    pub peak: usize,
}

impl Measured {
    /// What is allowed beyond the plan: 5 %, and 20 MB for the program itself.
    pub fn bound(&self) -> usize {
        self.planned / 20 * 21 + 20_000_000
    }
}

/// A photo, written as a file that [`make`] reads.
pub fn write_photo(folder: &Path, [width, height]: [usize; 2]) -> Result<(), Box<dyn Error>> {
    let pixel = |at: usize| [at % width, at / width, at % 251].map(|channel| channel as u8);
    let bytes: Vec<u8> = (0..width * height).flat_map(pixel).collect();
    let size = [width, height].map(|side| u32::try_from(side).unwrap_or(u32::MAX));
    Ok(image::save_buffer(folder.join(PHOTO), &bytes, size[0], size[1], image::ColorType::Rgb8)?)
}

/// Makes the clip of one case. It should have the process to itself.
pub fn make(case: &Case, folder: &Path) -> Result<Measured, Box<dyn Error>> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut peak = 0;
            while !done.load(Relaxed) {
                peak = peak.max(anonymous_memory());
                thread::sleep(Duration::from_millis(1));
            }
            peak
        });
        let planned = clip(case, folder);
        done.store(true, Relaxed);
        let peak = sampler.join().map_err(|_| "the sampler ended")?;
        Ok(Measured { planned: planned?, peak })
    })
}

/// Makes and writes the clip; returns the peak of its plan.
fn clip(case: &Case, folder: &Path) -> Result<usize, Box<dyn Error>> {
    let model = match case.model {
        Some(model) => ModelFolder::open(folder.join(model))?,
        None => kinora::model_in_the_box::open()?,
    };
    let [frames, width, height] = case.clip;
    let settings = Settings::for_model(&model)?
        .frames(frames)
        .width(width)
        .height(height)
        .decode_chunk(case.decode_chunk)
        .cache(case.cache)
        .steps(2)
        .seed(1);
    let photo = photo::open(folder.join(PHOTO))?;
    let options = LoadOptions::default().device(Device::Cpu);
    let options = options.precision(case.precision).keep_loaded(case.keep_loaded);
    let clip = ImageToVideo::new(model, options)?.generate(&photo, &settings)?;
    clip.save(folder.join("clip").with_extension(case.format))?;
    Ok(clip.report.plan.peak_bytes())
}

/// The memory of the process that is no file's.
fn anonymous_memory() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()).unwrap_or(0) * 1024
}
