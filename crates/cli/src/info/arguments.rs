//! The options of `kinora info`.

use std::ffi::OsString;
#[cfg(all(feature = "cuda", feature = "simulator"))]
use std::path::PathBuf;

use clap::{Args, ValueHint, builder::PossibleValuesParser};
use kinora::{
    image_to_video::{Configs, Precision},
    live::LiveConfigs,
};

#[cfg(all(feature = "cuda", feature = "simulator"))]
use crate::sim::quantities::chip;
use crate::{
    clip::arguments::{ClipArgs, precision},
    quantities::{at_least_one, model_name},
};

const EXAMPLES: &str = "\
Examples:
  kinora info
      What is in the model in the box.

  kinora info ./svd-xt
      What is in a model folder, and the memory that clips of several sizes
      need.

  kinora info --config svd-xt --frames 25 --size 1024x576 --precision f16
      The same figures without the model's files, even on a machine that could
      not run it.

  kinora info --config svd --hardware
      Which clips fit cards of 8 to 80 GB, planned for each of them.

  kinora info --config sd-turbo --tiny-autoencoder --hardware
      The same for live video, with frames per second.

  kinora info --config svd --steps 10 --device-profile t4
      How long the clip takes on a T4, predicted kernel by kernel in the
      simulator, what limits it, and which settings would reach 8 and 12 frames
      per second.

  kinora info --config svd --decode-chunk 2 --json
      The same for a program.

  kinora info --config sd-turbo --tiny-autoencoder --size 640x384 --steps 2
      The memory that live video needs, and the FLOPs of a frame.

Memory is the peak of a clip, weights included, as Kinora plans it before it
starts; for live video it is that of all networks. A multiply-add counts as two
FLOPs. Both figures are from the plan for this machine.

Exit codes: 0 done, 1 failed, 2 the command line is wrong, 130 interrupted.";

/// Shows what is in a model, and the memory and FLOPs that a clip, or a frame of live video, needs.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES, after_help = "See `kinora info --help` for more, with examples.")]
pub struct InfoArgs {
    /// A model folder, or the name of a model that was downloaded before [default: KINORA_MODEL, or the model in the box].
    #[arg(value_hint = ValueHint::DirPath, value_parser = model_name())]
    pub model: Option<OsString>,

    /// A published model by its configuration alone; its files are not needed.
    #[arg(long, value_name = "NAME", value_parser = presets(), conflicts_with = "model")]
    pub config: Option<String>,

    /// Say which clip, or which frames of live video, fit which machine, and about how long they take there: estimates, not
    /// measurements. Prints a Markdown table; with --json, a list.
    #[cfg(feature = "cuda")]
    #[arg(long, conflicts_with = "precision")]
    pub hardware: bool,

    /// Predict how long the clip, or a frame of live video, takes on a chip, kernel by kernel: t4, rtx3090, rtx4090, a100, h100, h200 or
    /// b200. It need not be here; NVRTC must.
    #[cfg(all(feature = "cuda", feature = "simulator"))]
    #[arg(long, value_name = "NAME", value_parser = chip, conflicts_with = "hardware")]
    pub device_profile: Option<kinora_ptx::ChipSpec>,

    /// A calibration measured on a device, for the prediction [default: an H200's for h100 and h200, none for others].
    #[cfg(all(feature = "cuda", feature = "simulator"))]
    #[arg(long, value_name = "FILE", requires = "device_profile", value_hint = ValueHint::FilePath)]
    pub calibration: Option<PathBuf>,

    /// Denoising steps of a clip, or of a frame of live video [default: the model's own].
    #[arg(long, allow_negative_numbers = true, value_parser = at_least_one, value_name = "NUMBER", help_heading = "The clip")]
    pub steps: Option<usize>,

    /// Live video with the published tiny autoencoder (taesd) instead of the model's own, by its configuration alone.
    #[arg(long)]
    pub tiny_autoencoder: bool,

    /// The clip.
    #[command(flatten)]
    pub clip: ClipArgs,

    /// The number type of weights and activations: f16 and bf16 halve the memory; fp8 is f16 but for most products of the denoising
    /// network, by shape, for a model that has been measured [default: f32, and f16 for --device-profile].
    #[arg(long, value_name = "TYPE", value_parser = precision(), help_heading = "The machine")]
    pub precision: Option<Precision>,

    /// Print one JSON object on standard output.
    #[arg(long)]
    pub json: bool,
}

/// The models that are known by name: of clips, and of live video.
fn presets() -> PossibleValuesParser {
    PossibleValuesParser::new(Configs::PRESETS.into_iter().chain(LiveConfigs::PRESETS))
}
