//! The options of `kinora generate`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use crate::clip::arguments::RequestArgs;

const EXAMPLES: &str = "\
Examples:
  kinora generate -o clip.gif
      A clip in seconds, of a still and with a small model that are both a part of this program.

  kinora generate photo.jpg -o clip.mp4 --model stabilityai/stable-video-diffusion-img2vid-xt
      A large model, downloaded on first use, with its own settings.

  kinora generate photo.jpg -o clip.gif --model ./svd-xt --size 512x320 --steps 15 --seed 7
      Smaller and quicker, from a folder on disk, and the same again with the same seed.

  kinora generate photo.jpg -o clip.mp4 --memory-limit 8GB --decode-chunk 2
      Refuses to start where 8 GB would not suffice; decoding two frames at a time needs less.

  kinora generate photo.jpg -o - | ffmpeg -i - clip.webm
      Uncompressed frames to another program.

  kinora generate photo.jpg -o clip.png --json > report.json
      Numbered pictures without loss, and a report for a program.

Standard output carries only what --json or `-o -` puts there. Where standard error is no
terminal, nothing is printed there but errors; -v prints plain lines.
Ctrl-C stops at once; no half-written file is left.

Exit codes: 0 done, 1 failed, 2 the command line is wrong, 130 interrupted.";

/// Makes a video from a photo.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES, after_help = "`kinora generate --help` says more, with examples.")]
pub struct GenerateArgs {
    /// What the clip is to be made of, and how.
    #[command(flatten)]
    pub request: RequestArgs,

    /// The video to write: .mp4, .gif, .y4m, or .png for numbered pictures; - for YUV4MPEG2 on standard output.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: PathBuf,

    /// The speed that the file plays at [default: that of --fps].
    #[arg(long, allow_negative_numbers = true, value_name = "RATE", help_heading = "The clip")]
    pub output_fps: Option<f64>,

    /// Replace the video if it exists. The photo and the model's files are never replaced.
    #[arg(short, long)]
    pub force: bool,

    /// Print one JSON object on standard output at the end: the files and the report, or the error.
    #[arg(long)]
    pub json: bool,

    /// Print nothing but errors.
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,

    /// Print what is used and how long every stage and step took.
    #[arg(short, long)]
    pub verbose: bool,
}
