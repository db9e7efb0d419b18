//! What kernels are built for: a clip, or a frame of live video.

use kinora::{
    LiveModel, LiveSettings,
    image_to_video::{Configs, GenerateError, Precision, Settings, clip_kernels},
    live::{Guidance, LiveConfigs, live_kernels},
};
use kinora_cuda::{Architecture, kernels::Kernel};
use kinora_models::weights::Variant;

use super::arguments::BuildArgs;
use crate::{failure::Failure, model};

/// The default model.
const DEFAULT_CONFIG: &str = "svd-xt";

/// What kernels are built for.
pub enum Work {
    Clip(Box<Configs>, Settings),
    Frame(Box<LiveConfigs>, LiveSettings),
}

impl Work {
    /// What was asked for.
    pub fn new(arguments: &BuildArgs) -> Result<Work, Failure> {
        let variant = Variant::For(arguments.precision().dtype());
        let open = |name| model::open_local(name, &variant);
        let folder = arguments.model.as_deref().map(open).transpose()?;
        let live = match (&folder, &arguments.config) {
            (Some(folder), _) if LiveConfigs::are_in(folder) => {
                let mut models = LiveModel::new(folder.clone());
                if let Some(name) = &arguments.autoencoder {
                    models = models.tiny_autoencoder(open(name)?);
                }
                if let Some(name) = &arguments.controlnet {
                    models = models.control(open(name)?);
                }
                Some(LiveConfigs::read(&models)?)
            }
            (None, Some(name)) => LiveConfigs::preset(name),
            _ => None,
        };
        if let Some(configs) = live {
            return Work::frame(configs, arguments);
        }
        let name = arguments.config.as_deref().unwrap_or(DEFAULT_CONFIG);
        let unknown = || Failure::Usage(format!("there is no configuration {name}"));
        let configs = match &folder {
            Some(folder) => Configs::read(folder)?,
            None => Configs::preset(name).ok_or_else(unknown)?,
        };
        refuse_live(arguments)?;
        let mut settings = Settings::for_configs(&configs);
        arguments.clip.apply(&mut settings);
        settings.scheduler = arguments.scheduler;
        Ok(Work::Clip(Box::new(configs), settings))
    }

    fn frame(configs: LiveConfigs, arguments: &BuildArgs) -> Result<Work, Failure> {
        refuse_clips(arguments)?;
        let configs = if arguments.tiny_autoencoder { configs.tiny_autoencoder()? } else { configs };
        let mut settings = arguments.row.apply(LiveSettings::for_configs(&configs));
        settings.steps = arguments.steps.unwrap_or(settings.steps);
        settings.guidance = arguments.guidance;
        if let Some(size) = arguments.clip.size {
            settings = settings.width(size.width).height(size.height);
        }
        Ok(Work::Frame(Box::new(configs), settings))
    }

    /// The kernels for any GPU of a generation.
    pub fn kernels(
        &self,
        precision: Precision,
        architecture: Architecture,
    ) -> Result<Vec<Kernel>, GenerateError> {
        match self {
            Work::Clip(configs, settings) => clip_kernels(configs, settings, precision, architecture),
            Work::Frame(configs, settings) => live_kernels(configs, settings, precision, architecture),
        }
    }

    /// The command that uses them.
    pub fn command(&self) -> &'static str {
        match self {
            Work::Clip(..) => "kinora generate",
            Work::Frame(..) => "kinora live",
        }
    }
}

/// Refuses what only a clip has.
fn refuse_clips(arguments: &BuildArgs) -> Result<(), Failure> {
    let given = [
        ("--frames", arguments.clip.frames.is_some()),
        ("--decode-chunk", arguments.clip.decode_chunk.is_some()),
        ("--cache", arguments.clip.cache.is_some()),
        ("--cache-blocks", arguments.clip.cache_blocks.is_some()),
        ("--scheduler", arguments.scheduler.is_some()),
    ];
    refuse(&given, "clips, and this model draws live video")
}

/// Refuses what only live video has.
fn refuse_live(arguments: &BuildArgs) -> Result<(), Failure> {
    let row = &arguments.row;
    let given = [
        ("--tiny-autoencoder", arguments.tiny_autoencoder),
        ("--autoencoder", arguments.autoencoder.is_some()),
        ("--controlnet", arguments.controlnet.is_some()),
        ("--steps", arguments.steps.is_some()),
        ("--guidance", arguments.guidance != Guidance::None),
        ("--blend", row.blend != 0.0),
        ("--memory-frames", row.memory_frames != 0),
        ("--stream-batch", row.stream_batch),
    ];
    refuse(&given, "live video, and this model makes clips")
}

fn refuse(given: &[(&str, bool)], what: &str) -> Result<(), Failure> {
    match given.iter().find(|(_, given)| *given) {
        Some((option, _)) => Err(Failure::Usage(format!("{option} is for {what}"))),
        None => Ok(()),
    }
}
