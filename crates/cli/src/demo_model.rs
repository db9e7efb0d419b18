//! `kinora demo-model`: a tiny model to try every command with.

use kinora_models::synthetic::SyntheticModel;

use crate::{arguments::DemoModelArgs, failure::Failure, interrupt::Phase, print};

/// Writes the model.
pub fn run(arguments: &DemoModelArgs) -> Result<(), Failure> {
    let DemoModelArgs { folder, preset } = arguments;
    let unknown = || Failure::Usage(format!("there is no demonstration model {preset}"));
    let model = SyntheticModel::preset(preset).ok_or_else(unknown)?;
    // Ended at once, it would leave a folder that no one asked for.
    Phase::Writing.enter();
    model.write(folder)?;
    let path = folder.display();
    print(&format!(
        "{path}: a model with the parts of Stable Video Diffusion, far smaller and never trained.\n\
         Its videos are noise: they show that everything works, and nothing of what a model can do.\n\
         Try: kinora generate photo.jpg -o clip.mp4 --model {path}\n"
    ))
}
