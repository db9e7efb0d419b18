//! The options of `kinora models`.

use std::ffi::OsString;

use clap::{Args, Subcommand, ValueHint};
use kinora::image_to_video::Precision;

use crate::clip::arguments::precision;

const EXAMPLES: &str = "\
Examples:
  kinora models pull svd-xt          download Stable Video Diffusion XT, or mend
                                     it
  kinora models list                 what is downloaded, and the short names
  kinora models verify svd-xt        compare every file with its hash
  kinora models rm owner/name@v1     take one revision out of the cache

A model is named by a short name, or as on the Hugging Face hub: owner/name or
owner/name@revision. Downloads are kept in the cache that all clients of the hub
share.

Exit codes: 0 done, 1 failed or damaged, 2 the command line is wrong, 130
interrupted.";

/// Downloads, lists, checks and removes models.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES, after_help = "See `kinora models --help` for examples.")]
pub struct ModelsArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ModelsCommand,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum ModelsCommand {
    /// Download a model, or what is missing or damaged of it
    Pull(PullArgs),
    /// Show which models are downloaded, and the short names
    List(ListArgs),
    /// Take a model out of the cache
    Rm(RemoveArgs),
    /// Compare the files of a model with their hashes
    Verify(VerifyArgs),
}

impl ModelsArgs {
    /// Whether the output is a JSON object.
    pub fn json(&self) -> bool {
        match &self.command {
            ModelsCommand::Pull(arguments) => arguments.json,
            ModelsCommand::List(arguments) => arguments.json,
            ModelsCommand::Rm(arguments) => arguments.json,
            ModelsCommand::Verify(arguments) => arguments.json,
        }
    }
}

/// Downloads a model, or what is missing or damaged of it.
#[derive(Args, Debug)]
pub struct PullArgs {
    /// The model: a short name, owner/name or owner/name@revision.
    #[arg(value_name = "NAME")]
    pub model: String,

    /// The precision it will run in: most models have smaller files for f16 [default: f16 on a GPU, f32 on the CPU].
    #[arg(long, value_name = "TYPE", value_parser = precision())]
    pub precision: Option<Precision>,

    /// Print one JSON object on standard output.
    #[arg(long)]
    pub json: bool,

    /// Show no progress.
    #[arg(short, long)]
    pub quiet: bool,
}

/// Shows which models are downloaded, and the short names.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// Print one JSON object on standard output.
    #[arg(long)]
    pub json: bool,
}

/// Takes a model out of the cache.
#[derive(Args, Debug)]
pub struct RemoveArgs {
    /// The model: a short name, owner/name or owner/name@revision. Without a revision, all of it is removed.
    #[arg(value_name = "NAME")]
    pub model: String,

    /// Do not ask.
    #[arg(short, long, visible_alias = "force")]
    pub yes: bool,

    /// Print one JSON object on standard output.
    #[arg(long)]
    pub json: bool,
}

/// Compares the files of a model with their hashes.
#[derive(Args, Debug)]
pub struct VerifyArgs {
    /// The model: a short name, owner/name or owner/name@revision, or a folder that was downloaded from the hub.
    #[arg(value_name = "NAME|FOLDER", value_hint = ValueHint::DirPath)]
    pub model: OsString,

    /// Print one JSON object on standard output.
    #[arg(long)]
    pub json: bool,

    /// Show no progress.
    #[arg(short, long)]
    pub quiet: bool,
}
