//! The options of `kinora profile`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use crate::clip::arguments::RequestArgs;

const EXAMPLES: &str = "\
Examples:
  kinora profile run photo.jpg --model demo
      A clip that is thrown away, and tables of where its time went.

  kinora profile run photo.jpg --steps 5 --html profile.html --save profile.json
      A page to look at, and the profile itself to come back to.

  kinora profile show profile.json --trace trace.json
      The tables again, and a trace for https://ui.perfetto.dev.

  kinora profile compare before.json after.json --html change.html
      What became faster or slower.

Layers are timed by the device's own clock. `of best` is how near a layer comes to what the device
can do, which is measured first: its arithmetic (a GPU's in f16), its memory, or the start of a layer.
It is more than 100 % where operands stay in a processor's cache, or a convolution multiplies less than
its FLOPs say, as Winograd's does.

Exit codes: 0 done, 1 failed, 2 the command line is wrong, 130 interrupted.";

/// Says where the time of a clip goes.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES, after_help = "`kinora profile --help` has examples.")]
pub struct ProfileArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ProfileCommand,
}

/// What can be done with a profile.
#[derive(Subcommand, Debug)]
pub enum ProfileCommand {
    /// Make a clip, and say where its time goes
    Run(Box<RunArgs>),
    /// Show a profile that was saved
    Show(ShowArgs),
    /// Say what became faster or slower from one profile to another
    Compare(CompareArgs),
}

/// Where a profile goes.
#[derive(Args, Debug)]
pub struct ReportArgs {
    /// Write a page that needs nothing else: timeline, layers, roofline, memory.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,

    /// Write a trace for Perfetto's and Chrome's viewers.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub trace: Option<PathBuf>,

    /// Replace files that exist.
    #[arg(short, long)]
    pub force: bool,

    /// Print one JSON object on standard output instead of tables.
    #[arg(long)]
    pub json: bool,
}

/// The options of `kinora profile run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// What the clip is to be made of, and how.
    #[command(flatten)]
    pub request: RequestArgs,

    /// Write the profile as JSON: for `kinora profile show` and `compare`, and for programs.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub save: Option<PathBuf>,

    /// Where it goes.
    #[command(flatten)]
    pub report: ReportArgs,
}

/// The options of `kinora profile show`.
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// The profile, as `--save` wrote it.
    #[arg(value_hint = ValueHint::FilePath)]
    pub profile: PathBuf,

    /// Where it goes.
    #[command(flatten)]
    pub report: ReportArgs,
}

/// The options of `kinora profile compare`.
#[derive(Args, Debug)]
pub struct CompareArgs {
    /// The profile of before.
    #[arg(value_hint = ValueHint::FilePath)]
    pub before: PathBuf,

    /// The profile of after.
    #[arg(value_hint = ValueHint::FilePath)]
    pub after: PathBuf,

    /// Write a page that shows both.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,

    /// Replace a file that exists.
    #[arg(short, long)]
    pub force: bool,

    /// Print one JSON object on standard output instead of tables.
    #[arg(long)]
    pub json: bool,
}

impl ProfileArgs {
    /// Whether the answer is a JSON object.
    pub fn json(&self) -> bool {
        match &self.command {
            ProfileCommand::Run(arguments) => arguments.report.json,
            ProfileCommand::Show(arguments) => arguments.report.json,
            ProfileCommand::Compare(arguments) => arguments.json,
        }
    }
}
