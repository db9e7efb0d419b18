//! A model that draws, as the command line asks for it.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    path::{Path, PathBuf},
};

use kinora::{
    Live, LiveModel, LiveSettings, RgbImage,
    image_to_video::{GenerateError, LoadOptions, MemoryBudget, Precision, Progress, Stage},
};
use kinora_models::{lora::Lora, weights::Variant};
use kinora_profile::Profiler;

use super::arguments::{DEFAULT_AUTOENCODER, DEFAULT_MODEL, DrawArgs};
use crate::{
    clip::arguments::MachineArgs,
    display::{Display, Unit},
    failure::Failure,
    files, interrupt, model,
    quantities::Bytes,
};

/// The models to draw with, and where they run.
pub struct Models<'a> {
    pub model: Option<&'a OsString>,
    pub autoencoder: Option<&'a OsString>,
    pub controlnet: Option<&'a OsString>,
    pub lora: &'a [String],
    /// The names of those whose strengths change on the way.
    pub adjustable: BTreeSet<String>,
    pub precision: Option<Precision>,
    pub machine: &'a MachineArgs,
    /// Records what the device does, if it is on.
    pub profiler: Profiler,
}

impl<'a> From<&'a DrawArgs> for Models<'a> {
    fn from(arguments: &'a DrawArgs) -> Self {
        Models {
            model: arguments.model.as_ref(),
            autoencoder: arguments.autoencoder.as_ref(),
            controlnet: arguments.controlnet.as_ref(),
            lora: &arguments.lora,
            adjustable: BTreeSet::new(),
            precision: arguments.precision,
            machine: &arguments.machine,
            profiler: Profiler::off(),
        }
    }
}

/// Finds the model, or downloads it, and opens it.
pub fn open<'a>(arguments: impl Into<Models<'a>>, display: &mut Display) -> Result<Live, Failure> {
    let arguments: Models<'_> = arguments.into();
    let machine = arguments.machine;
    let precision = match arguments.precision {
        Some(precision) => precision,
        None => Precision::default_for(machine.device)?,
    };
    let variant = Variant::For(precision.dtype());
    let name = arguments.model.cloned().unwrap_or_else(|| DEFAULT_MODEL.into());
    let folder = model::open(&name, &variant, display)?;
    display.detail(&format!("model {}", folder.path().display()));
    let mut models = LiveModel::new(folder);
    let tiny = match (arguments.model, arguments.autoencoder) {
        (_, Some(name)) => Some(name.clone()),
        (None, None) => Some(DEFAULT_AUTOENCODER.into()),
        (Some(_), None) => None,
    };
    if let Some(name) = tiny {
        models = models.tiny_autoencoder(model::open(&name, &variant, display)?);
    }
    if let Some(name) = arguments.controlnet {
        models = models.control(model::open(name, &variant, display)?);
    }
    for (path, strength) in arguments.lora.iter().map(|text| lora(text)) {
        let file = Lora::open(path).map_err(GenerateError::from)?;
        models = match lora_name(path).filter(|name| arguments.adjustable.contains(name)) {
            Some(name) => models.adjustable_lora(name, file, strength),
            None => models.lora(file, strength as f32),
        };
    }
    let budget = match machine.memory_limit {
        Some(Bytes(bytes)) => MemoryBudget::Bytes(usize::try_from(bytes).unwrap_or(usize::MAX)),
        None => MemoryBudget::Available,
    };
    let options = LoadOptions::default()
        .precision(precision)
        .device(machine.device)
        .kernels(machine.kernels)
        .tuning(machine.tuning)
        .memory_budget(budget)
        .profiler(arguments.profiler);
    let live = Live::new(models, options).map_err(failure)?;
    display.detail(&live.device());
    Ok(live)
}

/// Draws a picture after a prompt, in the model's own size.
pub fn picture(
    models: Models<'_>,
    prompt: &str,
    seed: u64,
    display: &mut Display,
) -> Result<RgbImage, Failure> {
    let live = open(models, display)?;
    let settings = live.settings().prompt(prompt).seed(seed);
    let drawn = live.draw_with(&settings, |progress| {
        show(display, progress);
        interrupt::control_flow()
    });
    let drawn = drawn.map_err(failure)?;
    display.end_stage();
    Ok(drawn)
}

/// A LoRA file and its strength.
fn lora(text: &str) -> (&Path, f64) {
    let with_strength =
        text.rsplit_once(':').and_then(|(path, strength)| Some((path, strength.parse().ok()?)));
    let (path, strength) = with_strength.unwrap_or((text, 1.0));
    (Path::new(path), strength)
}

/// What changes call a LoRA: its file's name without the ending.
fn lora_name(path: &Path) -> Option<String> {
    Some(path.file_stem()?.to_string_lossy().into_owned())
}

/// Refuses changes of LoRAs that were not given, or that cannot be told apart.
pub fn check_loras(arguments: &DrawArgs, named: &BTreeSet<String>, changes: &Path) -> Result<(), Failure> {
    let known: Vec<String> = arguments.lora.iter().filter_map(|text| lora_name(lora(text).0)).collect();
    for name in named {
        let (changes, known) = (changes.display(), known.iter().filter(|known| *known == name).count());
        match known {
            1 => {}
            0 => {
                let problem = format!("{changes}: no LoRA is called {name:?}: give its file with --lora");
                return Err(Failure::Usage(problem));
            }
            _ => {
                let problem = format!("{changes}: {known} files of --lora are called {name:?}; rename one");
                return Err(Failure::Usage(problem));
            }
        }
    }
    Ok(())
}

/// The files of the models, which no output may replace.
pub fn inputs(arguments: &DrawArgs) -> Vec<PathBuf> {
    let names = arguments.model.iter().chain(&arguments.autoencoder).chain(&arguments.controlnet);
    let loras = arguments.lora.iter().map(|text| lora(text).0.to_owned());
    names.flat_map(|name| files::model_files(name.as_ref())).chain(loras).collect()
}

/// The settings that suit the model, with what was asked for.
pub fn settings(live: &Live, arguments: &DrawArgs) -> Result<LiveSettings, Failure> {
    let settings = arguments.apply(live.settings());
    live.check(&settings).map_err(failure)?;
    Ok(settings)
}

/// Shows what is loaded.
pub fn show(display: &mut Display, progress: &Progress<'_>) {
    let unit = match progress.stage {
        Stage::Tune => Unit::Kernels,
        Stage::Compile => Unit::Compiled,
        _ => Unit::Parts,
    };
    display.advance(progress.stage.describe(), unit, progress.done as u64, progress.total as u64);
}

/// A failure of the work; that it was stopped is no error of its own.
pub fn failure(error: GenerateError) -> Failure {
    match error {
        GenerateError::Cancelled => Failure::Interrupted,
        GenerateError::Change(error) => failure(*error),
        error => error.into(),
    }
}

/// A warning if some of the prompt was left out.
pub fn prompt_warning(left_out: usize) -> Option<String> {
    (left_out > 0).then(|| {
        let tokens = if left_out == 1 { "1 token".to_owned() } else { format!("{left_out} tokens") };
        format!("the prompt is too long for the model: {tokens} at its end were left out")
    })
}
