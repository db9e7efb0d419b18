//! The options of `kinora generate`.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, ValueHint};

use crate::{
    clip::arguments::{RequestArgs, quality},
    quantities::{model_name, number},
};

const EXAMPLES: &str = "\
Examples:
  kinora generate photo.jpg
      Writes photo.mp4, made with a small model that is part of this program.
      `kinora photo.jpg` does the same. Without a photo, a built-in still moves.

  kinora generate photo.jpg -o clip.mp4 \\
      --model stabilityai/stable-video-diffusion-img2vid-xt
      A large model, downloaded on first use, with its own settings.

  kinora generate *.jpg -o clips/
      A video of each photo, in a folder. The model is loaded once.

  kinora generate photo.jpg --model ./svd-xt --size 512x320 --steps 15 --seed 7
      Smaller and quicker, from a folder on disk, and the same again with the
      same seed.

  kinora generate --prompt \"a lighthouse in a storm\" -o storm.mp4
      Draws the photo first, with Stable Diffusion Turbo.

  kinora generate portrait.jpg --fit pad
      All of a photo of another shape, with bars beside it.

  kinora generate photo.jpg --memory-limit 8GB --decode-chunk 2
      Refuses to start if 8 GB would not suffice; decoding two frames at a time
      needs less.

  kinora generate photo.jpg -o - | ffmpeg -i - clip.webm
      Uncompressed frames to another program.

  kinora generate photo.jpg -o clip.png --json > report.json
      Numbered pictures without loss, and a report for a program.

Standard output carries only what --json or `-o -` puts there. Progress goes to
standard error; if that is not a terminal, only warnings and a line for each
video are printed there, with its seed. -v prints more, -q nothing but errors.
Ctrl-C stops at once; no half-written file is left. If one of several photos
fails, the others are still made.

Exit codes: 0 done, 1 failed, 2 the command line is wrong, 130 interrupted.";

/// Makes videos from photos.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES, after_help = "`kinora generate --help` says more, with examples.")]
pub struct GenerateArgs {
    /// The photos: PNG, JPEG, WebP, GIF, BMP or TIFF [default: the still that comes with the model in the box].
    #[arg(value_name = "PHOTO", value_hint = ValueHint::FilePath)]
    pub photos: Vec<PathBuf>,

    /// Draw the photo first, after this text, instead of reading one.
    #[arg(long, value_name = "TEXT", conflicts_with = "photos", help_heading = "A photo that is drawn")]
    pub prompt: Option<String>,

    /// The model that draws it, as for `kinora image` [default: sd-turbo].
    #[arg(long, value_name = "FOLDER|NAME", requires = "prompt", value_parser = model_name(), help_heading = "A photo that is drawn")]
    pub draw_model: Option<OsString>,

    /// Its tiny autoencoder, as for `kinora image`.
    #[arg(long, value_name = "FOLDER|NAME", requires = "prompt", value_parser = model_name(), help_heading = "A photo that is drawn")]
    pub draw_autoencoder: Option<OsString>,

    /// How the clip is to be made.
    #[command(flatten)]
    pub request: RequestArgs,

    /// The video to write: .mp4, .gif, .y4m, or .png for numbered pictures; - for YUV4MPEG2 on standard output; a
    /// folder for .mp4 files named after their photos [default: photo.mp4 for photo.jpg, in the current folder].
    #[arg(short, long, value_name = "FILE|FOLDER", value_hint = ValueHint::AnyPath)]
    pub output: Option<PathBuf>,

    /// The frame rate that the file plays at [default: that of --motion-fps].
    #[arg(
        long,
        alias = "output-fps", value_parser = number,
        allow_negative_numbers = true,
        value_name = "RATE",
        help_heading = "The clip"
    )]
    pub play_fps: Option<f64>,

    /// The quality of an .mp4: 1 is the smallest file, 100 the best picture [default: 80].
    #[arg(long, value_name = "1-100", value_parser = quality, help_heading = "The clip")]
    pub quality: Option<u8>,

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
