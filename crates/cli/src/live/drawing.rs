//! A model that draws, as the command line asks for it.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    path::{Path, PathBuf},
};

use kinora::{
    Live, LiveModel, LiveSettings, RgbImage,
    image_to_video::{GenerateError, LoadOptions, MemoryBudget, Precision, Progress, Stage},
    live::Guidance,
};
use kinora_models::{lora::Lora, weights::Variant};
use kinora_profile::Profiler;

use super::arguments::{DEFAULT_AUTOENCODER, DEFAULT_MODEL, DrawArgs, PlaceArgs, RowArgs};
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
    /// The names of those whose strengths change while a stream runs.
    pub adjustable: BTreeSet<String>,
    pub precision: Option<Precision>,
    pub machine: &'a MachineArgs,
    /// Records what the device does, if it is on.
    pub profiler: Profiler,
}

impl<'a> Models<'a> {
    /// The models of the command line.
    pub fn new(arguments: &'a DrawArgs, place: &'a PlaceArgs) -> Self {
        Models {
            model: arguments.model.as_ref(),
            autoencoder: arguments.autoencoder.as_ref(),
            controlnet: arguments.controlnet.as_ref(),
            lora: &arguments.lora,
            adjustable: BTreeSet::new(),
            precision: place.precision,
            machine: &place.machine,
            profiler: Profiler::off(),
        }
    }
}

/// Finds the model, or downloads it, and opens it.
pub fn open(arguments: Models<'_>, display: &mut Display) -> Result<Live, Failure> {
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

/// The LoRA files that were given, each with its strength.
pub fn loras(arguments: &DrawArgs) -> impl Iterator<Item = (&Path, f64)> {
    arguments.lora.iter().map(|text| lora(text))
}

/// What changes call a LoRA: its file's name without the ending.
pub fn lora_name(path: &Path) -> Option<String> {
    Some(path.file_stem()?.to_string_lossy().into_owned())
}

/// Refuses changes of LoRAs that were not given, or that cannot be told apart.
pub fn check_loras(
    arguments: &DrawArgs,
    named: &BTreeMap<String, usize>,
    changes: &Path,
) -> Result<(), Failure> {
    let known: Vec<String> = loras(arguments).filter_map(|(path, _)| lora_name(path)).collect();
    for (name, line) in named {
        let problem = match known.iter().filter(|known| *known == name).count() {
            1 => continue,
            0 => format!("no LoRA is called {name:?}: give its file with --lora"),
            count => format!("{count} files of --lora are called {name:?}; rename one"),
        };
        return Err(Failure::Usage(format!("{}:{line}: {problem}", changes.display())));
    }
    Ok(())
}

/// What to do if memory runs out: the options that would need less than those that were given.
pub fn less_memory(arguments: &DrawArgs, place: &PlaceArgs, row: Option<&RowArgs>) -> String {
    let half = matches!(place.precision, Some(Precision::F16 | Precision::BF16 | Precision::Fp8));
    let batched = row.is_some_and(|row| row.stream_batch)
        || matches!(arguments.guidance, Guidance::SelfNegative | Guidance::Initialize);
    let less = [
        Some("a smaller --size"),
        row.filter(|row| row.memory_frames > 0).map(|_| "fewer --memory-frames"),
        batched.then_some("fewer --steps in the stream batch"),
        (arguments.guidance == Guidance::Full).then_some("--guidance none"),
        (!half).then_some("--precision f16"),
        (arguments.model.is_some() && arguments.autoencoder.is_none())
            .then_some("a tiny autoencoder (--autoencoder taesd, or taesdxl for SDXL)"),
        arguments.controlnet.as_ref().map(|_| "no --controlnet"),
    ];
    let less: Vec<&str> = less.into_iter().flatten().collect();
    format!("these need less memory: {}; close other programs", less.join(", "))
}

/// The files of the models, which no output may replace.
pub fn inputs(arguments: &DrawArgs) -> Vec<PathBuf> {
    let names = arguments.model.iter().chain(&arguments.autoencoder).chain(&arguments.controlnet);
    let loras = loras(arguments).map(|(path, _)| path.to_owned());
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
        Stage::Calibrate => Unit::Steps,
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::live::arguments::LiveArgs;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        live: LiveArgs,
    }

    /// Each option is suggested only if it was not followed already.
    #[test]
    fn what_needs_less_memory_depends_on_what_was_asked_for() {
        let advice = |words: &str| {
            let words = ["live", "in.mp4"].into_iter().chain(words.split_whitespace());
            let LiveArgs { draw, place, row, .. } = Line::try_parse_from(words).unwrap().live;
            less_memory(&draw, &place, Some(&row))
        };
        assert_eq!(
            advice(""),
            "these need less memory: a smaller --size, --precision f16; close other programs"
        );
        let all = advice("--model m --memory-frames 2 --guidance self --controlnet c --precision f32");
        for option in ["--memory-frames", "--steps", "--precision f16", "--autoencoder taesd", "--controlnet"]
        {
            assert!(all.contains(option), "{option} is not in {all}");
        }
        let least = advice("--model m --autoencoder a --guidance full --precision bf16");
        assert!(least.contains("--guidance none"), "{least}");
        for option in ["--memory-frames", "--steps", "--precision", "--autoencoder", "--controlnet"] {
            assert!(!least.contains(option), "{option} is in {least}");
        }
        // It is a part of a JSON text that is written without memory.
        assert!(!all.contains(['"', '\\']) && all.is_ascii(), "{all}");
    }
}
