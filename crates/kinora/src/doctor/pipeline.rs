//! A small model, from its files to a clip.

use kinora_models::folder::ModelFolder;
use kinora_profile::{Profiler, groups};
use tempfile::TempDir;

use super::Outcome;
use crate::{
    ImageToVideo, RgbImage,
    device::Device,
    image_to_video::{Clip, LoadOptions, Precision, Settings},
    quantity,
};

const ADVICE: &str =
    "the findings above may say why; otherwise please report this with the output of `kinora doctor --json`";

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
    pub fn new() -> Result<Demonstration, String> {
        use crate::model_in_the_box;
        let model = model_in_the_box::open().map_err(|error| error.to_string())?;
        let still = model_in_the_box::still().map_err(|error| error.to_string())?;
        Ok(Demonstration { name: "the model in the box", model, still, _folder: None })
    }

    /// A tiny model that was never trained, written to a temporary folder.
    #[cfg(not(feature = "model-in-the-box"))]
    pub fn new() -> Result<Demonstration, String> {
        use kinora_models::synthetic::SyntheticModel;
        const SIDE: usize = 64;
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let tiny = SyntheticModel::preset("tiny").ok_or("the tiny model is missing")?;
        tiny.write(folder.path()).map_err(|error| error.to_string())?;
        let model = ModelFolder::open(folder.path()).map_err(|error| error.to_string())?;
        let pixel = |at: usize| [(at % SIDE) as u8, (at / SIDE) as u8, 128];
        let still = RgbImage::new(SIDE, SIDE, (0..SIDE * SIDE).flat_map(pixel).collect())
            .map_err(|error| error.to_string())?;
        Ok(Demonstration { name: "a demonstration model", model, still, _folder: Some(folder) })
    }

    fn open(&self, device: Device, profiler: Profiler) -> Result<(ImageToVideo, Settings), String> {
        let message = |error: &dyn std::fmt::Display| error.to_string();
        let settings = Settings::for_model(&self.model).map_err(|e| message(&e))?.steps(2).seed(1);
        let precision = Precision::default_for(device).map_err(|e| message(&e))?;
        let options = LoadOptions::default().precision(precision).device(device).profiler(profiler);
        Ok((ImageToVideo::new(self.model.clone(), options).map_err(|e| message(&e))?, settings))
    }

    fn make(&self, device: Device, profiler: Profiler) -> Result<Clip, String> {
        let (pipeline, settings) = self.open(device, profiler)?;
        pipeline.generate(&self.still, &settings).map_err(|error| error.to_string())
    }

    pub fn load(&self, device: Device) -> Outcome {
        let problems = self.open(device, Profiler::off()).and_then(|(pipeline, settings)| {
            pipeline.weights_problems(&settings).map_err(|error| error.to_string())
        });
        match problems {
            Ok(problems) if problems.is_empty() => Outcome::good(format!("{} loads", self.name)),
            Ok(problems) => Outcome::bad(format!("{} weights are missing", problems.len()), ADVICE),
            Err(problem) => Outcome::bad(problem, ADVICE),
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
            Err(problem) => Outcome::bad(problem, ADVICE),
        }
    }

    pub fn profile(&self, device: Device) -> Outcome {
        let profiler = Profiler::on();
        if let Err(problem) = self.make(device, profiler.clone()) {
            return Outcome::bad(problem, ADVICE);
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
