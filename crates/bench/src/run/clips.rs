//! A whole clip of a small model with synthetic weights, which diffusers' pipeline makes as well.

use std::time::Instant;

use kinora::{
    device::Device,
    image_to_video::{Clip, ImageToVideo, LoadOptions, Precision, Settings},
};
use kinora_graph::DType;
use kinora_models::{
    folder::ModelFolder,
    image::RgbImage,
    presets::{ClipShape, Preset},
    synthetic::uniform,
};
use tempfile::TempDir;

use super::{
    Size,
    turns::{Layer, samples},
};
use crate::{BenchError, cases::in_windows};

/// Denoising steps of a clip, at most: enough to compare, few enough to measure.
const MOST_STEPS: usize = 4;
/// The seed, as in `crates/bench/peers/svd_stages.py`.
const SEED: u64 = 20;

/// The model of a size, with a clip of a few steps.
pub fn preset(size: Size) -> Preset {
    let mut preset = size.preset();
    preset.clip.steps = preset.clip.steps.min(MOST_STEPS);
    preset
}

/// A model that is kept in memory, and the clip that it makes.
pub struct ClipLayer {
    pipeline: ImageToVideo,
    photo: RgbImage,
    settings: Settings,
    /// The model's files, which are removed with it.
    _folder: TempDir,
}

impl ClipLayer {
    /// Writes the model to a temporary folder and opens it.
    ///
    /// # Errors
    /// If the folder cannot be written, or the device cannot run the model.
    pub fn new(preset: &Preset, device: Device, dtype: DType) -> Result<ClipLayer, BenchError> {
        let folder = tempfile::Builder::new().prefix("kinora-bench-").tempdir();
        let folder = folder.map_err(BenchError::file("create a folder in", std::env::temp_dir()))?;
        preset.model.write(folder.path())?;
        let precision = Precision::ALL.into_iter().find(|precision| precision.dtype() == dtype);
        // diffusers keeps its networks in memory, and so do we.
        let options = LoadOptions::default().keep_loaded(true).device(device).precision(precision);
        let pipeline = ImageToVideo::new(ModelFolder::open(folder.path())?, options)?;
        let ClipShape { frames, height, width, steps } = preset.clip;
        let settings = Settings::for_configs(pipeline.configs())
            .frames(frames)
            .height(height)
            .width(width)
            .steps(steps)
            .decode_chunk(frames)
            .seed(SEED);
        Ok(ClipLayer { pipeline, photo: photo(width, height)?, settings, _folder: folder })
    }

    /// Floating-point operations of a clip.
    ///
    /// # Errors
    /// If the clip cannot be planned.
    pub fn flops(&self) -> Result<u64, BenchError> {
        Ok(self.pipeline.estimate(&self.settings)?.flops())
    }

    fn generate(&self) -> Result<Clip, BenchError> {
        Ok(self.pipeline.generate(&self.photo, &self.settings)?)
    }
}

impl Layer for ClipLayer {
    /// The latents that the frames are decoded from.
    fn result(&mut self) -> Result<Vec<f32>, BenchError> {
        Ok(in_windows(&self.generate()?.latents.to_f32()))
    }

    fn time(&mut self, seconds: f64, least: usize) -> Result<Vec<f64>, BenchError> {
        samples(seconds, least, || {
            let start = Instant::now();
            self.generate()?;
            Ok(start.elapsed().as_secs_f64())
        })
    }
}

/// A photo of noise: `photo` of `crates/bench/peers/synthetic.py`.
fn photo(width: usize, height: usize) -> Result<RgbImage, BenchError> {
    let numbers = uniform(&format!("photo {width}×{height}")).take(width * height * 3);
    Ok(RgbImage::new(width, height, numbers.map(|number| ((number + 1.0) * 128.0) as u8).collect())?)
}
