//! What is known about a model of live video.

use std::fmt;

use kinora::{
    Device, Live, LiveModel, LiveSettings, LoadOptions,
    image_to_video::{GenerateError, Precision},
    live::{LiveConfigs, LiveEstimate, estimate_live},
};
use kinora_models::folder::ModelFolder;
use serde::Serialize;
use serde_json::json;

use super::{arguments::InfoArgs, contents::Contents, text::Table};
use crate::{
    answer,
    failure::Failure,
    print,
    quantities::{Bytes, Flops, PictureSize, grouped},
};

/// Everything that is known about a model before it runs.
#[derive(Serialize)]
struct LiveInfo {
    /// What is in its folder; nothing for a published model given by name.
    #[serde(flatten)]
    contents: Option<Contents>,
    /// The name of the published model.
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<String>,
    precision: Precision,
    /// What the estimate is for.
    settings: LiveSettings,
    estimate: LiveEstimate,
    /// The same for frames of several sizes.
    sizes: Vec<SizeRow>,
}

/// What live video of one size needs.
#[derive(Serialize)]
struct SizeRow {
    width: usize,
    height: usize,
    peak_bytes: usize,
    flops_per_frame: u64,
}

/// The configurations of a model of live video; `None` for a model of clips.
pub fn configs(
    arguments: &InfoArgs,
    folder: Option<&ModelFolder>,
) -> Result<Option<LiveConfigs>, GenerateError> {
    let configs = match (&arguments.config, folder) {
        (Some(name), _) => LiveConfigs::preset(name),
        (None, Some(folder)) if LiveConfigs::are_in(folder) => {
            Some(LiveConfigs::read(&LiveModel::new(folder.clone()))?)
        }
        (None, _) => None,
    };
    if arguments.tiny_autoencoder {
        configs.map(LiveConfigs::tiny_autoencoder).transpose()
    } else {
        Ok(configs)
    }
}

/// Prints what is known about a model of live video.
pub fn run(
    configs: &LiveConfigs,
    folder: Option<ModelFolder>,
    arguments: &InfoArgs,
    precision: Precision,
) -> Result<(), Failure> {
    refuse_clips(arguments)?;
    let mut settings = LiveSettings::for_configs(configs);
    settings.steps = arguments.steps.unwrap_or(settings.steps);
    if let Some(size) = arguments.clip.size {
        settings = settings.width(size.width).height(size.height);
    }
    #[cfg(feature = "cuda")]
    if arguments.hardware {
        return super::hardware::run_live(configs, &settings, arguments.json);
    }
    #[cfg(all(feature = "cuda", feature = "simulator"))]
    if let Some(chip) = &arguments.device_profile {
        let precision = arguments.precision.unwrap_or(Precision::F16);
        return super::prediction::run_live(configs, &settings, precision, chip, arguments);
    }
    let estimate = estimate_live(configs, &settings, precision)?;
    let sizes = sizes(configs, &settings, precision)?;
    let contents = folder.map(|folder| contents(folder, &settings, precision)).transpose()?;
    let config = arguments.config.clone();
    let info = LiveInfo { contents, config, precision, settings, estimate, sizes };
    if !arguments.json {
        print(&info.to_string())?;
    }
    let count = info.contents.as_ref().map_or(0, |contents| contents.problems.len());
    answer(arguments.json, json!(info), (count > 0).then_some(Failure::Lacking { count }))
}

/// Refuses options that mean nothing for live video.
fn refuse_clips(arguments: &InfoArgs) -> Result<(), Failure> {
    let given = [
        ("--frames", arguments.clip.frames.is_some()),
        ("--decode-chunk", arguments.clip.decode_chunk.is_some()),
        ("--cache", arguments.clip.cache.is_some()),
        ("--cache-blocks", arguments.clip.cache_blocks.is_some()),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        Some((option, _)) => {
            Err(Failure::Usage(format!("{option} is for clips, and this model draws live video")))
        }
        None => Ok(()),
    }
}

/// What is in a model's folder, and what its weights lack for live video.
fn contents(folder: ModelFolder, settings: &LiveSettings, precision: Precision) -> Result<Contents, Failure> {
    let contents = Contents::read(&folder, "frame")?;
    // No weights are read, and nothing runs.
    let options = LoadOptions::default().device(Device::Cpu).precision(precision);
    let problems = Live::new(LiveModel::new(folder), options)?.weights_problems(settings)?;
    Ok(Contents { problems: problems.iter().map(ToString::to_string).collect(), ..contents })
}

/// Plans frames of the requested size, of the model's own, and of a half and three quarters of it.
fn sizes(
    configs: &LiveConfigs,
    asked: &LiveSettings,
    precision: Precision,
) -> Result<Vec<SizeRow>, GenerateError> {
    let ([height, width], unit) = (configs.default_size, configs.side_unit());
    let part = |quarters: usize| {
        [width, height].map(|side| (side.saturating_mul(quarters) / 4).next_multiple_of(unit))
    };
    let mut sizes = vec![part(2), part(3), part(4), [asked.width, asked.height]];
    sizes.sort_by_key(|&[width, height]| (width.saturating_mul(height), width));
    sizes.dedup();
    let with = |[width, height]: [usize; 2]| asked.clone().width(width).height(height);
    // A model's own size may be larger than a frame can be.
    sizes.retain(|&size| with(size).check(configs, precision).is_ok());
    let row = |[width, height]: [usize; 2]| {
        let estimate = estimate_live(configs, &with([width, height]), precision)?;
        let (peak_bytes, flops_per_frame) = (estimate.peak_bytes(), estimate.flops_per_frame());
        Ok(SizeRow { width, height, peak_bytes, flops_per_frame })
    };
    // Nor need a smaller one be large enough for products in 8 bits.
    let large = |row: &Result<_, _>| !matches!(row, Err(GenerateError::Quantisation(_)));
    sizes.into_iter().map(row).filter(large).collect()
}

impl fmt::Display for LiveInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.contents, &self.config) {
            (Some(contents), _) => writeln!(f, "{contents}")?,
            (None, Some(name)) => writeln!(f, "{name}: the published configuration, without weights\n")?,
            (None, None) => {}
        }
        let LiveSettings { width, height, steps, .. } = self.settings;
        let size = PictureSize { width, height };
        let steps = if steps == 1 { "1 step".to_owned() } else { format!("{steps} steps") };
        writeln!(f, "Live video, {size}, in {} and {steps}:", self.precision)?;
        let mut table = Table::new(["network", "parameters", "weights", "activations", "a run", "a change"]);
        for part in &self.estimate.parts {
            table.row([
                part.name.to_owned(),
                grouped(part.parameters),
                Bytes(part.weight_bytes as u64).to_string(),
                Bytes(part.arena_bytes as u64).to_string(),
                Flops(part.flops as f64).to_string(),
                Flops(part.flops_once as f64).to_string(),
            ]);
        }
        write!(f, "{table}")?;
        let peak = Bytes(self.estimate.peak_bytes() as u64);
        let frame = Flops(self.estimate.flops_per_frame() as f64);
        writeln!(
            f,
            "  {peak} of memory (all networks together, and what a stream holds beside them), {frame} a frame\n"
        )?;
        writeln!(f, "By size, weights included:")?;
        let mut table = Table::new(["size", "memory", "a frame"]);
        for &SizeRow { width, height, peak_bytes, flops_per_frame } in &self.sizes {
            table.row([
                PictureSize { width, height }.to_string(),
                Bytes(peak_bytes as u64).to_string(),
                Flops(flops_per_frame as f64).to_string(),
            ]);
        }
        write!(f, "{table}")
    }
}
