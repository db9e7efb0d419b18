//! A tiny model, from its files to a clip.

use std::ops::ControlFlow;

use kinora_models::{folder::ModelFolder, synthetic::SyntheticModel};
use kinora_profile::{Profiler, groups};
use tempfile::TempDir;

use super::Outcome;
use crate::{
    ImageToVideo,
    image_to_video::{Clip, Device, LoadOptions, Settings},
    photo::Photo,
    quantity,
};

const ADVICE: &str =
    "the findings above may say why; otherwise please report this with the output of `kinora doctor --json`";

/// A model that was never trained, in a folder that goes when this does.
pub struct Demonstration {
    folder: TempDir,
}

impl Demonstration {
    pub fn write() -> Result<Demonstration, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let model = SyntheticModel::preset("tiny").ok_or("there is no tiny model")?;
        model.write(folder.path()).map_err(|error| error.to_string())?;
        Ok(Demonstration { folder })
    }

    fn open(&self, device: Device, profiler: Profiler) -> Result<(ImageToVideo, Settings), String> {
        let said = |error: &dyn std::fmt::Display| error.to_string();
        let model = ModelFolder::open(self.folder.path()).map_err(|e| said(&e))?;
        let settings = Settings { steps: 2, seed: 1, ..Settings::for_model(&model).map_err(|e| said(&e))? };
        let precision = device.default_precision().map_err(|e| said(&e))?;
        let options = LoadOptions { precision, device, profiler, ..LoadOptions::default() };
        Ok((ImageToVideo::new(model, options).map_err(|e| said(&e))?, settings))
    }

    fn make(&self, device: Device, profiler: Profiler) -> Result<Clip, String> {
        let (pipeline, settings) = self.open(device, profiler)?;
        let (width, height) = (settings.width, settings.height);
        let pixel = |at: usize| [(at % width) as u8, (at / width) as u8, 128];
        let photo = Photo::from_rgb(width, height, (0..width * height).flat_map(pixel).collect())
            .map_err(|error| error.to_string())?;
        pipeline
            .generate(&photo, &settings, &mut |_| ControlFlow::Continue(()))
            .map_err(|error| error.to_string())
    }

    pub fn load(&self, device: Device) -> Outcome {
        let problems = self.open(device, Profiler::off()).and_then(|(pipeline, settings)| {
            pipeline.weights_problems(&settings).map_err(|error| error.to_string())
        });
        match problems {
            Ok(problems) if problems.is_empty() => Outcome::good("the demonstration model is read"),
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
            Err(problem) => Outcome::bad(problem, ADVICE),
        }
    }
}
