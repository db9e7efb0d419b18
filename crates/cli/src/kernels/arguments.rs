//! The options of `kinora kernels`.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Subcommand, ValueHint};
use kinora::{
    cuda::Architecture,
    image_to_video::{Configs, Precision},
};
use kinora_models::schedulers::SchedulerKind;

use crate::clip::arguments::{ClipArgs, scheduler};

const EXAMPLES: &str = "\
Examples:
  kinora kernels build --arch sm_75,sm_90a -o kernels
      The kernels of a clip by Stable Video Diffusion on a T4 and on an H100 or H200.

  kinora kernels build --arch sm_89 -o kernels --model ./my-model --frames 25 --size 512x320
      Those of another model and another clip, into the same folder beside the others.

  KINORA_KERNEL_BUNDLE=kernels kinora generate photo.jpg -o clip.mp4 --precision f16
      Runs them, on a machine without NVIDIA's compiler.

A bundle serves clips like the one that it was built for, on the GPUs of its architectures. It
belongs to this version of Kinora. No GPU is needed to build it, but NVIDIA's compiler, NVRTC.

Exit codes: 0 done, 1 failed, 2 the command line is wrong, 130 interrupted.";

/// Compiles a GPU's kernels ahead of time.
#[derive(Args, Debug)]
pub struct KernelsArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: KernelsCommand,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum KernelsCommand {
    /// Compile the kernels of a clip into a folder, for machines without a compiler
    Build(Box<BuildArgs>),
}

impl KernelsArgs {
    /// Whether the answer is a JSON object.
    pub fn json(&self) -> bool {
        let KernelsCommand::Build(arguments) = &self.command;
        arguments.json
    }
}

/// Compiles the kernels of a clip into a folder.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES, after_help = "`kinora kernels build --help` says more, with examples.")]
pub struct BuildArgs {
    /// The architectures, by commas: sm_75, sm_80, sm_86, sm_89, sm_90a.
    #[arg(long, required = true, value_delimiter = ',', value_name = "NAMES")]
    pub arch: Vec<Architecture>,

    /// The folder to write. What it holds for other clips and architectures stays.
    #[arg(short, long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub output: PathBuf,

    /// A model's folder, or the name of a model that was downloaded before.
    #[arg(short, long, value_name = "FOLDER|NAME", value_hint = ValueHint::DirPath)]
    pub model: Option<OsString>,

    /// A model that need not be there, by its configuration alone [default: svd-xt].
    #[arg(long, value_name = "NAME", value_parser = Configs::PRESETS, conflicts_with = "model")]
    pub config: Option<String>,

    /// The clip.
    #[command(flatten)]
    pub clip: ClipArgs,

    /// The method of the steps [default: the model's own].
    #[arg(long, value_name = "NAME", value_parser = scheduler(), help_heading = "The clip")]
    pub scheduler: Option<SchedulerKind>,

    /// Print one JSON object on standard output at the end.
    #[arg(long)]
    pub json: bool,
}

impl BuildArgs {
    /// Kernels are for a GPU, whose precision is f16 where nothing else is asked for.
    pub fn precision(&self) -> Precision {
        self.clip.precision.unwrap_or(Precision::F16)
    }
}
