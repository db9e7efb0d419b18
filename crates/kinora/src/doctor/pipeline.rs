//! A small model, from its files to a clip.

use kinora_models::folder::{FolderError, ModelFolder};
use kinora_profile::{Profiler, groups};
use tempfile::TempDir;

use super::Outcome;
use crate::{
    ImageToVideo, RgbImage,
    device::Device,
    image_to_video::{Clip, GenerateError, LoadOptions, Settings},
    quantity,
};

const ADVICE: &str =
    "the findings above may say why; otherwise please report this with the output of `kinora doctor --json`";

/// Why there is no model to make a clip with.
#[derive(Debug, thiserror::Error)]
pub enum DemonstrationError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[cfg(feature = "model-in-the-box")]
    #[error(transparent)]
    Still(#[from] crate::photo::PhotoError),
    #[cfg(not(feature = "model-in-the-box"))]
    #[error(transparent)]
    Still(#[from] kinora_models::image::ImageError),
    #[cfg(not(feature = "model-in-the-box"))]
    #[error(transparent)]
    TemporaryFolder(#[from] std::io::Error),
    #[cfg(not(feature = "model-in-the-box"))]
    #[error("the tiny model is missing")]
    NoPreset,
    #[cfg(not(feature = "model-in-the-box"))]
    #[error(transparent)]
    Synthetic(#[from] kinora_models::synthetic::SyntheticError),
}

/// A model, and a still to make a clip from.
pub struct Demonstration {
    name: &'static str,
    model: ModelFolder,
    still: RgbImage,
    /// Keeps the model's temporary folder alive.
    _folder: Option<TempDir>,
}

impl Demonstration {
    /// The model in the box.
    #[cfg(feature = "model-in-the-box")]
    pub fn new() -> Result<Demonstration, DemonstrationError> {
        use crate::model_in_the_box;
        let model = model_in_the_box::open()?;
        let still = model_in_the_box::still()?;
        Ok(Demonstration { name: "the model in the box", model, still, _folder: None })
    }

    /// A tiny model that was never trained, written to a temporary folder.
    #[cfg(not(feature = "model-in-the-box"))]
    pub fn new() -> Result<Demonstration, DemonstrationError> {
        use kinora_models::synthetic::SyntheticModel;
        const SIDE: usize = 64;
        let folder = tempfile::tempdir()?;
        let tiny = SyntheticModel::preset("tiny").ok_or(DemonstrationError::NoPreset)?;
        tiny.write(folder.path())?;
        let model = ModelFolder::open(folder.path())?;
        let pixel = |at: usize| [(at % SIDE) as u8, (at / SIDE) as u8, 128];
        let still = RgbImage::new(SIDE, SIDE, (0..SIDE * SIDE).flat_map(pixel).collect())?;
        Ok(Demonstration { name: "a demonstration model", model, still, _folder: Some(folder) })
    }

    fn open(&self, device: Device, profiler: Profiler) -> Result<(ImageToVideo, Settings), GenerateError> {
        let settings = Settings::for_model(&self.model)?.steps(2).seed(1);
        let options = LoadOptions::default().device(device).profiler(profiler);
        Ok((ImageToVideo::new(self.model.clone(), options)?, settings))
    }

    fn make(&self, device: Device, profiler: Profiler) -> Result<Clip, GenerateError> {
        let (pipeline, settings) = self.open(device, profiler)?;
        pipeline.generate(&self.still, &settings)
    }

    pub fn load(&self, device: Device) -> Outcome {
        let problems = self
            .open(device, Profiler::off())
            .and_then(|(pipeline, settings)| pipeline.weights_problems(&settings));
        match problems {
            Ok(problems) if problems.is_empty() => Outcome::good(format!("{} loads", self.name)),
            Ok(problems) => Outcome::bad(format!("{} weights are missing", problems.len()), ADVICE),
            Err(problem) => Outcome::bad(problem.to_string(), ADVICE),
        }
    }

    pub fn clip(&self, device: Device) -> Outcome {
        match self.make(device, Profiler::off()) {
            Ok(clip) => Outcome::good(format!(
                "{} frames in {:.2} s on {}",
                clip.frames.len(),
                clip.report.seconds,
                clip.report.device
            )),
            Err(problem) => Outcome::bad(problem.to_string(), ADVICE),
        }
    }

    pub fn profile(&self, device: Device) -> Outcome {
        let profiler = Profiler::on();
        if let Err(problem) = self.make(device, profiler.clone()) {
            return Outcome::bad(problem.to_string(), ADVICE);
        }
        let profile = profiler.profile();
        let layers = groups::groups(&profile, groups::By::Layer);
        let time: u64 = layers.iter().map(|layer| layer.nanoseconds).sum();
        match profile.check() {
            Ok(()) if time > 0 => {
                Outcome::good(format!("{} layers, {} in them", layers.len(), quantity::time(time)))
            }
            Ok(()) => Outcome::bad("no layer took any time", ADVICE),
            Err(problem) => Outcome::bad(problem.to_string(), ADVICE),
        }
    }
}
