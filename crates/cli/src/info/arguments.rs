//! The options of `kinora info`.

use std::ffi::OsString;

use clap::{Args, ValueHint};
use kinora::image_to_video::Configs;

use crate::clip::arguments::ClipArgs;

const EXAMPLES: &str = "\
Examples:
  kinora info
      What is in the model in the box.

  kinora info ./svd-xt
      What is in a model's folder, and the memory that clips of several sizes need.

  kinora info --config svd-xt --frames 25 --size 1024x576 --precision f16
      The figures of a model that is not there, on a machine that could not run it.

  kinora info --config svd --hardware
      Which clips fit cards of 8 to 80 GB, planned for each of them.

  kinora info --config svd --decode-chunk 2 --json
      The same for a program.

Memory is what a clip takes at its peak, weights included, as Kinora plans it before it starts;
FLOPs count a multiplication and an addition as two. Both are those of the plan for this machine.

Exit codes: 0 done, 1 failed, 2 the command line is wrong, 130 interrupted.";

/// Says what is in a model, and what memory and arithmetic a clip takes.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES, after_help = "`kinora info --help` says more, with examples.")]
pub struct InfoArgs {
    /// A model's folder, or the name of a model that was downloaded before [default: the model in the box].
    #[arg(value_hint = ValueHint::DirPath)]
    pub model: Option<OsString>,

    /// A model that need not be there, by its configuration alone.
    #[arg(long, value_name = "NAME", value_parser = Configs::PRESETS, conflicts_with = "model")]
    pub config: Option<String>,

    /// Say which clip fits which GPU, and about how long it takes there. Prints a Markdown table; with --json, a list.
    #[cfg(feature = "cuda")]
    #[arg(long)]
    pub hardware: bool,

    /// The clip.
    #[command(flatten)]
    pub clip: ClipArgs,

    /// Print one JSON object on standard output.
    #[arg(long)]
    pub json: bool,
}
