//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueHint};
use clap_complete::Shell;
use kinora_models::synthetic::SyntheticModel;

#[cfg(feature = "cuda")]
use crate::kernels::arguments::KernelsArgs;
#[cfg(feature = "simulator")]
use crate::sim::arguments::SimArgs;
use crate::{
    bench::arguments::BenchArgs, doctor::DoctorArgs, generate::arguments::GenerateArgs,
    info::arguments::InfoArgs, models::arguments::ModelsArgs, profile::arguments::ProfileArgs,
};

const EXAMPLES: &str = "\
Examples:
  kinora generate -o clip.gif             a clip of a still, with the model in the box
  kinora generate photo.jpg -o clip.mp4 --model svd-xt
                                          a photo and a large model, downloaded on first use
  kinora models list                      which models are downloaded, and their short names
  kinora info --config svd-xt             what that model needs: parameters, FLOPs, memory
  kinora profile run photo.jpg            where the time goes, and what limits it
  kinora doctor                           what works on this machine
  kinora bench cpu                        how fast it is, next to PyTorch if that is installed
  kinora sim kernel.cu …                  a CUDA kernel on a simulated GPU
  kinora demo-model demo                  a tiny untrained model, for tests

Environment:
  KINORA_MODEL     the model to use without --model, instead of the one in the box
  HF_HOME, HF_HUB_CACHE, HF_TOKEN, HF_ENDPOINT, HF_HUB_OFFLINE
                   as for the Hugging Face hub: where downloads are kept, and your token
  KINORA_CACHE_DIR, KINORA_KERNEL_BUNDLE, KINORA_NVRTC
                   GPU kernels: the folder for compiled ones, a bundle of them made by
                   `kinora kernels build`, and the path of NVIDIA's compiler (NVRTC)
  KINORA_PEER_PYTHON
                   a Python that has PyTorch, for `kinora bench` to compare with
  NO_COLOR         no colours

Exit codes: 0 done, 1 failed, 2 the command line is wrong, 130 interrupted.";

/// Turn a still image into a video with diffusion models.
#[derive(Parser, Debug)]
#[command(name = "kinora", version, args_override_self = true)]
#[command(after_long_help = EXAMPLES, after_help = "`kinora --help` has examples.")]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Make a video from a photo
    Generate(Box<GenerateArgs>),
    /// Download, list, check and remove models
    Models(ModelsArgs),
    /// Show what is in a model, and the memory and FLOPs a clip needs
    Info(InfoArgs),
    /// Show where a clip's time goes, and what limits it
    Profile(ProfileArgs),
    /// Run a CUDA kernel on a simulated GPU, and report its bugs and its cost
    #[cfg(feature = "simulator")]
    Sim(Box<SimArgs>),
    /// Check what works on this machine, and how to fix what does not
    Doctor(DoctorArgs),
    /// Measure layers and networks on this machine, next to PyTorch and earlier results
    Bench(Box<BenchArgs>),
    /// Write a tiny untrained model to try Kinora without a download; its videos are noise
    DemoModel(DemoModelArgs),
    /// Compile GPU kernels ahead of time
    #[cfg(feature = "cuda")]
    Kernels(KernelsArgs),
    /// Print completions for a shell
    Completions(CompletionsArgs),
    /// Write the manual pages into a folder: they are packed with the program
    #[command(hide = true)]
    Man(ManArgs),
}

impl Command {
    /// Whether the output is a JSON object.
    pub fn json(&self) -> bool {
        match self {
            Command::Generate(arguments) => arguments.json,
            Command::Info(arguments) => arguments.json,
            Command::Models(arguments) => arguments.json(),
            #[cfg(feature = "cuda")]
            Command::Kernels(arguments) => arguments.json(),
            Command::Profile(arguments) => arguments.json(),
            Command::Doctor(arguments) => arguments.json,
            #[cfg(feature = "simulator")]
            Command::Sim(arguments) => arguments.json,
            Command::Bench(arguments) => arguments.report.json,
            Command::DemoModel(_) | Command::Completions(_) | Command::Man(_) => false,
        }
    }
}

const DEMO_EXAMPLES: &str = "\
Example:
  kinora demo-model demo
  kinora generate photo.jpg -o clip.mp4 --model demo

The model has the same parts as Stable Video Diffusion, far smaller and untrained, so its
videos are noise. They show that everything runs, not what a real model can do.

Exit codes: 0 done, 1 failed, 2 the command line is wrong.";

/// The options of `kinora demo-model`.
#[derive(Args, Debug)]
#[command(after_long_help = DEMO_EXAMPLES)]
pub struct DemoModelArgs {
    /// The folder to write. It must not hold a model yet.
    #[arg(value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,

    /// Which model: tiny makes 4 frames of 64×64; small makes 8 frames of 320×192 and takes 300 MB.
    #[arg(long, value_name = "NAME", value_parser = SyntheticModel::PRESETS, default_value = "tiny")]
    pub preset: String,
}

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  kinora completions bash > ~/.local/share/bash-completion/completions/kinora
  kinora completions zsh > ~/.zfunc/_kinora      (with `fpath+=~/.zfunc` before compinit)
  kinora completions fish > ~/.config/fish/completions/kinora.fish";

/// The options of `kinora completions`.
#[derive(Args, Debug)]
#[command(after_long_help = COMPLETIONS_EXAMPLES)]
pub struct CompletionsArgs {
    /// The shell.
    pub shell: Shell,
}

/// The options of `kinora man`.
#[derive(Args, Debug)]
pub struct ManArgs {
    /// The folder, which must exist.
    #[arg(value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
}
