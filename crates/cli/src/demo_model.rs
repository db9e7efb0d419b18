//! `kinora demo-model`: a tiny model to try every command with.

use std::path::Path;

use clap::builder::PossibleValuesParser;
use kinora_models::synthetic::{SyntheticImageModel, SyntheticModel};

use crate::{arguments::DemoModelArgs, failure::Failure, interrupt::Phase, print};

/// The folder of the tiny autoencoder in that of a model for live video.
const TINY: &str = "tiny";

/// The names of the models.
pub fn presets() -> PossibleValuesParser {
    SyntheticModel::PRESETS.into_iter().chain(SyntheticImageModel::PRESETS).into()
}

/// Writes the model.
pub fn run(arguments: &DemoModelArgs) -> Result<(), Failure> {
    let DemoModelArgs { folder, preset } = arguments;
    // Ended at once, it would leave a folder that no one asked for.
    Phase::Writing.enter();
    let (kind, attempt) = write(folder, preset)?;
    print(&format!(
        "{}: a model with the parts of {kind}, far smaller and never trained.\n\
         Its videos are noise: they show that everything works, and nothing of what a model can do.\n\
         Try: {attempt}\n",
        folder.display()
    ))
}

/// Writes a model; says what it is and how to try it.
fn write(folder: &Path, preset: &str) -> Result<(&'static str, String), Failure> {
    let path = folder.display();
    if let Some(model) = SyntheticModel::preset(preset) {
        model.write(folder)?;
        let attempt = format!("kinora generate photo.jpg -o clip.mp4 --model {path}");
        return Ok(("Stable Video Diffusion", attempt));
    }
    let unknown = || Failure::Usage(format!("there is no demonstration model {preset}"));
    let model = SyntheticImageModel::preset(preset).ok_or_else(unknown)?;
    model.write(folder)?;
    model.write_tiny_vae(&folder.join(TINY))?;
    let attempt = format!("kinora live in.mp4 --model {path} --autoencoder {}", folder.join(TINY).display());
    Ok(("Stable Diffusion", attempt))
}
