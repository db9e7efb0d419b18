//! The options of `kinora kernels`.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Subcommand, ValueHint, builder::PossibleValuesParser};
use kinora::{
    image_to_video::{Configs, Precision},
    live::{Guidance, LiveConfigs},
};
use kinora_cuda::{Architecture, CudaError};
use kinora_models::schedulers::SchedulerKind;

use crate::{
    clip::arguments::{ClipArgs, precision, scheduler},
    live::arguments::{RowArgs, guidance},
    quantities::{at_least_one, model_name},
};

const EXAMPLES: &str = "\
Examples:
  kinora kernels build --arch sm_75,sm_90a -o kernels
      The kernels that Stable Video Diffusion needs on a T4 and on an H100 or
      H200.

  kinora kernels build --arch sm_89 -o kernels \\
      --model ./my-model --frames 25 --size 512x320
      The kernels of another model and another clip, added to the same folder.

  kinora kernels build --arch sm_90a -o kernels --config sd-turbo \\
      --tiny-autoencoder
      The kernels of `kinora live` with its default model.

  KINORA_KERNEL_BUNDLE=kernels kinora generate photo.jpg --precision f16
      Uses them on a machine without NVIDIA's compiler.

A bundle serves clips or live video like those it was built for, on GPUs of its
architectures, with this version of Kinora; what is not in it is compiled, if
there is a compiler. For live video that is a frame with these options and the
text encoders, but not the kernels that turn a LoRA's strength while it runs.
Building it needs NVIDIA's compiler (NVRTC), but no GPU.

Exit codes: 0 done, 1 failed, 2 the command line is wrong, 130 interrupted.";

/// Compiles GPU kernels ahead of time.
#[derive(Args, Debug)]
pub struct KernelsArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: KernelsCommand,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum KernelsCommand {
    /// Compile the kernels of a clip or of live video into a folder, for machines without a compiler
    Build(Box<BuildArgs>),
}

impl KernelsArgs {
    /// Whether the output is a JSON object.
    pub fn json(&self) -> bool {
        let KernelsCommand::Build(arguments) = &self.command;
        arguments.json
    }
}

/// Compiles the kernels of a clip or of live video into a folder.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES, after_help = "See `kinora kernels build --help` for more, with examples.")]
pub struct BuildArgs {
    /// The architectures, separated by commas: sm_75, sm_80, sm_86, sm_89, sm_90a.
    #[arg(long, required = true, value_delimiter = ',', value_name = "NAMES", value_parser = architecture)]
    pub arch: Vec<Architecture>,

    /// The folder to write. Kernels already in it for other clips and architectures stay.
    #[arg(short, long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub output: PathBuf,

    /// A model folder, or the name of a model that was downloaded before.
    #[arg(short, long, value_name = "FOLDER|NAME", value_hint = ValueHint::DirPath, value_parser = model_name())]
    pub model: Option<OsString>,

    /// A published model by its configuration alone; its files are not needed [default: svd-xt].
    #[arg(long, value_name = "NAME", value_parser = presets(), conflicts_with = "model")]
    pub config: Option<String>,

    /// Print one JSON object on standard output at the end.
    #[arg(long)]
    pub json: bool,

    /// The published tiny autoencoder (taesd) instead of the model's own, by its configuration alone.
    #[arg(long, conflicts_with = "autoencoder", help_heading = "Live video")]
    pub tiny_autoencoder: bool,

    /// A tiny autoencoder instead of the model's own: a folder, or a name that was downloaded before.
    #[arg(long, value_name = "FOLDER|NAME", value_hint = ValueHint::DirPath, value_parser = model_name(), requires = "model", help_heading = "Live video")]
    pub autoencoder: Option<OsString>,

    /// A ControlNet that was trained on Canny's edges: a folder, or a name that was downloaded before.
    #[arg(long, value_name = "FOLDER|NAME", value_hint = ValueHint::DirPath, value_parser = model_name(), requires = "model", help_heading = "Live video")]
    pub controlnet: Option<OsString>,

    /// Denoising steps of a frame, 1 to 8 [default: 1].
    #[arg(long, allow_negative_numbers = true, value_parser = at_least_one, value_name = "NUMBER", help_heading = "Live video")]
    pub steps: Option<usize>,

    /// How a frame is pushed away from the negative prompt: none, full, initialize or self.
    #[arg(long, default_value_t = Guidance::None, value_name = "HOW", value_parser = guidance(), hide_possible_values = true, help_heading = "Live video")]
    pub guidance: Guidance,

    /// What frames have to do with each other.
    #[command(flatten, next_help_heading = "Live video")]
    pub row: RowArgs,

    /// The clip.
    #[command(flatten)]
    pub clip: ClipArgs,

    /// The number type of weights and activations; fp8 includes the kernels that measure a model in f16 [default: f16].
    #[arg(long, value_name = "TYPE", value_parser = precision(), help_heading = "The machine")]
    pub precision: Option<Precision>,

    /// The sampling method [default: the model's own].
    #[arg(long, value_name = "NAME", value_parser = scheduler(), help_heading = "The clip")]
    pub scheduler: Option<SchedulerKind>,
}

impl BuildArgs {
    /// Kernels are for a GPU, whose default precision is f16.
    pub fn precision(&self) -> Precision {
        self.precision.unwrap_or(Precision::F16)
    }
}

/// The models that are known by name: of clips, and of live video.
fn presets() -> PossibleValuesParser {
    PossibleValuesParser::new(Configs::PRESETS.into_iter().chain(LiveConfigs::PRESETS))
}

/// One of the architectures that every kernel is compiled for in the tests, by its name.
fn architecture(name: &str) -> Result<Architecture, CudaError> {
    let named = |architecture: &Architecture| architecture.to_string() == name;
    let found = Architecture::TESTED.into_iter().find(named);
    found.ok_or_else(|| CudaError::UnknownArchitecture(name.to_owned()))
}
