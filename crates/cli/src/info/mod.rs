//! `kinora info`: what is in a model, and the memory and FLOPs that a clip, or a frame of live video, needs.

pub mod arguments;
mod contents;
#[cfg(feature = "cuda")]
mod hardware;
mod live;
mod memory;
#[cfg(all(feature = "cuda", feature = "simulator"))]
mod prediction;
mod text;

use std::env;

use kinora::image_to_video::{
    Configs, Estimate, ImageToVideo, LoadOptions, Precision, Settings, estimate_configs,
};
use kinora_models::{folder::ModelFolder, weights::Variant};
use serde::Serialize;
use serde_json::json;

use self::{
    arguments::InfoArgs,
    contents::Contents,
    memory::{MemoryTable, memory_table},
};
use crate::{answer, failure::Failure, model, print};

/// Everything that is known about a model before it runs.
#[derive(Serialize)]
struct Info {
    /// What is in its folder; nothing for a published model given by name.
    #[serde(flatten)]
    contents: Option<Contents>,
    /// The name of the published model.
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<String>,
    precision: Precision,
    /// The clip that the estimate is for.
    settings: Settings,
    estimate: Estimate,
    memory: MemoryTable,
}

/// Prints what is known about a model.
pub fn run(arguments: &InfoArgs) -> Result<(), Failure> {
    let precision = arguments.precision.unwrap_or_default();
    // Not by clap: a model of the environment is no reason to refuse --config.
    let from_environment = || env::var_os("KINORA_MODEL").filter(|name| !name.is_empty());
    let model = arguments.model.clone().or_else(from_environment);
    let folder = match (&arguments.config, &model) {
        (Some(_), _) => None,
        (None, Some(name)) => Some(model::open_local(name, &Variant::For(precision.dtype()))?),
        (None, None) => Some(model::in_the_box()?),
    };
    match live::configs(arguments, folder.as_ref())? {
        Some(configs) => live::run(&configs, folder, arguments, precision),
        None => clip(folder, arguments, precision),
    }
}

/// Prints what is known about a model of clips.
fn clip(folder: Option<ModelFolder>, arguments: &InfoArgs, precision: Precision) -> Result<(), Failure> {
    let configs = match (&folder, &arguments.config) {
        (Some(folder), _) => Configs::read(folder)?,
        (None, name) => {
            let name = name.as_deref().unwrap_or_default();
            Configs::preset(name)
                .ok_or_else(|| Failure::Usage(format!("there is no configuration {name}")))?
        }
    };
    if arguments.tiny_autoencoder {
        let problem = "--tiny-autoencoder is for live video, and this model makes clips";
        return Err(Failure::Usage(problem.to_owned()));
    }
    let mut settings = Settings::for_configs(&configs);
    arguments.clip.apply(&mut settings);
    settings.steps = arguments.steps.unwrap_or(settings.steps);
    #[cfg(feature = "cuda")]
    if arguments.hardware {
        return hardware::run(&configs, &settings, arguments.json);
    }
    #[cfg(all(feature = "cuda", feature = "simulator"))]
    if let Some(chip) = &arguments.device_profile {
        let precision = arguments.precision.unwrap_or(Precision::F16);
        return prediction::run(&configs, &settings, precision, chip, arguments);
    }
    let estimate = estimate_configs(&configs, &settings, precision)?;
    let memory = memory_table(&configs, &settings, arguments.clip.decode_chunk, precision)?;
    let contents = folder.map(|folder| contents(folder, &settings, precision)).transpose()?;
    let config = arguments.config.clone();
    let info = Info { contents, config, precision, settings, estimate, memory };
    if !arguments.json {
        print(&info.to_string())?;
    }
    let count = info.contents.as_ref().map_or(0, |contents| contents.problems.len());
    answer(arguments.json, json!(info), (count > 0).then_some(Failure::Lacking { count }))
}

/// What is in a model's folder, and what its weights lack for a clip.
fn contents(folder: ModelFolder, settings: &Settings, precision: Precision) -> Result<Contents, Failure> {
    let contents = Contents::read(&folder, "clip")?;
    let options = LoadOptions::default().precision(precision);
    let problems = ImageToVideo::new(folder, options)?.weights_problems(settings)?;
    Ok(Contents { problems: problems.iter().map(ToString::to_string).collect(), ..contents })
}
