//! The options of `kinora profile`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use crate::{
    clip::arguments::RequestArgs,
    live::arguments::{DrawArgs, PlaceArgs, RowArgs},
    quantities::at_least_one,
};

const EXAMPLES: &str = "\
Examples:
  kinora profile run photo.jpg --model demo
      Makes a clip, discards it, and prints tables of where the time went.

  kinora profile run photo.jpg --steps 5 --html profile.html --save profile.json
      Also writes a page to look at, and the profile itself for later.

  kinora profile live in.mp4 --prompt \"an oil painting\" --html profile.html
      Draws the first frames of a video, discards them, and prints the same for
      a frame: its encoder, steps and decoder, and every layer.

  kinora profile show profile.json --trace trace.json
      Prints the tables again, and writes a trace for https://ui.perfetto.dev.

  kinora profile compare before.json after.json --html change.html
      Shows what became faster or slower.

Layers are timed by the device's own clock. `of best` is how close a layer comes
to what the device can do, which is measured first: its FLOP/s (on a GPU in
f16), its memory bandwidth, or the time to launch a layer. It exceeds 100 % if
operands stay in a CPU's cache, or if a convolution multiplies less than its
FLOPs say, as Winograd's method does.

Exit codes: 0 done, 1 failed, 2 the command line is wrong, 130 interrupted.";

/// Shows where the time of a clip or of live video goes.
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
    /// Make a clip and show where its time goes
    Run(Box<RunArgs>),
    /// Draw frames of live video and show where their time goes
    Live(Box<LiveRunArgs>),
    /// Show a saved profile
    Show(ShowArgs),
    /// Show what became faster or slower from one profile to another
    Compare(CompareArgs),
}

/// Where a profile goes.
#[derive(Args, Debug)]
pub struct ReportArgs {
    /// Write a self-contained HTML page: timeline, layers, roofline, memory.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,

    /// Write a trace for the viewers of Perfetto and Chrome.
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
    /// The photo: PNG, JPEG, WebP, GIF, BMP or TIFF [default: the still that comes with the model in the box].
    #[arg(value_hint = ValueHint::FilePath)]
    pub photo: Option<PathBuf>,

    /// The clip to make.
    #[command(flatten)]
    pub request: RequestArgs,

    /// Write the profile as JSON: for `kinora profile show` and `compare`, and for programs.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub save: Option<PathBuf>,

    /// Where it goes.
    #[command(flatten)]
    pub report: ReportArgs,
}

/// The options of `kinora profile live`.
#[derive(Args, Debug)]
pub struct LiveRunArgs {
    /// The video: MP4 (H.264), GIF, Y4M, a picture, numbered pictures (in-%04d.png) or a folder of them.
    #[arg(value_name = "VIDEO", value_hint = ValueHint::FilePath)]
    pub input: PathBuf,

    /// How many frames to draw, from the first one on; fewer if the video has fewer.
    #[arg(long, default_value_t = 20, value_parser = at_least_one, value_name = "NUMBER")]
    pub frames: usize,

    /// Write the profile as JSON: for `kinora profile show` and `compare`, and for programs.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub save: Option<PathBuf>,

    /// Where it goes.
    #[command(flatten)]
    pub report: ReportArgs,

    /// What to draw, and with what.
    #[command(flatten)]
    pub draw: DrawArgs,

    /// What frames have to do with each other.
    #[command(flatten, next_help_heading = "From frame to frame")]
    pub row: RowArgs,

    /// Where it runs.
    #[command(flatten)]
    pub place: PlaceArgs,
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
    /// The earlier profile.
    #[arg(value_hint = ValueHint::FilePath)]
    pub before: PathBuf,

    /// The later profile.
    #[arg(value_hint = ValueHint::FilePath)]
    pub after: PathBuf,

    /// Write an HTML page that shows both.
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
    /// Whether the output is a JSON object.
    pub fn json(&self) -> bool {
        match &self.command {
            ProfileCommand::Run(arguments) => arguments.report.json,
            ProfileCommand::Live(arguments) => arguments.report.json,
            ProfileCommand::Show(arguments) => arguments.report.json,
            ProfileCommand::Compare(arguments) => arguments.json,
        }
    }
}
