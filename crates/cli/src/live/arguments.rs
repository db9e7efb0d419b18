//! The options of `kinora live` and `kinora image`.

use std::{ffi::OsString, path::PathBuf};

use clap::{
    Args, ValueHint,
    builder::{PossibleValuesParser, TypedValueParser},
};
use kinora::{
    image_to_video::Precision,
    live::{Guidance, LiveSettings},
    photo::{Colour, Fit},
};

use crate::{
    clip::arguments::{MachineArgs, fit, precision, quality},
    quantities::{PictureSize, at_least_one, model_name, number, whole_number},
};

/// The model that runs without `--model`, and the tiny autoencoder that goes with it.
pub const DEFAULT_MODEL: &str = "sd-turbo";
pub const DEFAULT_AUTOENCODER: &str = "taesd";

const LIVE_EXAMPLES: &str = "\
Examples:
  kinora live in.mp4 -o out.mp4 --prompt \"a watercolour of a harbour\"
      Redraws every frame. The sound is passed on.

  ffmpeg -f v4l2 -i /dev/video0 -f yuv4mpegpipe - |
      kinora live - -o - --realtime --prompt \"an oil painting\" | ffplay -
      A camera. The newest frame wins: those that come while one is drawn are
      dropped.

  kinora live in.mp4 --prompt \"a snowy street\" --strength 0.7 --steps 2 \\
      --blend 0.4 --original-size
      Further from the input, calmer, and as large as the input.

  kinora live in.mp4 --prompt day --changes changes.jsonl --record log.jsonl
      Settings that change while it runs, a line for each change, such as
      {\"frame\": 100, \"prompt\": \"night\", \"glide\": 25}
      The settings: prompt, negative_prompt, width, height, strength, steps,
      timesteps, guidance, guidance_scale, stream_batch, control_scale, seed,
      blend, memory_frames, glide, lora. Frames count from 0; the video keeps
      its first size.
      The log has all settings of the picture: given to --changes, with the same
      input, models and options of the video, it makes the same video again.

  kinora live in.mp4 --prompt day --lora style.safetensors:0 \\
      --changes changes.jsonl
      Turns the strength of a LoRA, by its file's name, in a line such as
      {\"frame\": 50, \"lora\": {\"style\": 0.8}}
      A LoRA that the changes name takes more memory: the merged weights lie
      beside the model's own. What it changes of text encoders keeps the first
      strength, and a warning says so; one that changes nothing else is refused.

Ctrl-C ends the video: what was drawn is a whole file. Frames of another shape
are cropped; with --original-size what was cropped stays as it was.

Exit codes: 0 done, 1 failed, 2 the command line is wrong, 130 interrupted
before the first frame.";

const IMAGE_EXAMPLES: &str = "\
Examples:
  kinora image --prompt \"a lighthouse at dusk\" -o lighthouse.png
      A picture from noise.

  kinora image --prompt \"the same as a sketch\" --from photo.png --strength 0.5 \\
      -o sketch.png
      From another picture.

Exit codes: 0 done, 1 failed, 2 the command line is wrong, 130 interrupted.";

/// Redraws a video, frame by frame.
#[derive(Args, Debug)]
#[command(after_long_help = LIVE_EXAMPLES, after_help = "`kinora live --help` has all options, with examples.")]
pub struct LiveArgs {
    /// The video: MP4 (H.264), GIF, Y4M, a picture, numbered pictures (in-%04d.png) or a folder of them; - for Y4M on
    /// standard input.
    #[arg(value_name = "VIDEO", value_hint = ValueHint::FilePath)]
    pub input: PathBuf,

    /// The video to write: .mp4, .gif, .y4m, .rgb, or .png for numbered pictures; - for Y4M on standard output [default:
    /// in-live.mp4 for in.mp4, in the current folder; video-live.mp4 for standard input].
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,

    /// Replace the video if it exists. The input and the model's files are never replaced.
    #[arg(short, long)]
    pub force: bool,

    /// Print one JSON object on standard output at the end: the files and the report, or the error.
    #[arg(long)]
    pub json: bool,

    /// Print nothing but errors.
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,

    /// Print what is used.
    #[arg(short, long)]
    pub verbose: bool,

    /// What to draw, and with what.
    #[command(flatten)]
    pub draw: DrawArgs,

    /// What frames have to do with each other.
    // The heading stays for what follows: options of no group come before.
    #[command(flatten, next_help_heading = "From frame to frame")]
    pub row: RowArgs,

    /// Over how many frames a new prompt of --changes takes the place of the old one [default: 0].
    #[arg(long, default_value_t = 0, hide_default_value = true, hide_short_help = true, allow_negative_numbers = true, value_parser = whole_number::<usize>, value_name = "FRAMES", help_heading = "From frame to frame")]
    pub glide: usize,

    /// Show the last drawing again if a frame is like the one that was drawn last: if the cosine between their bytes is above this,
    /// such as 0.98. The nearer it is to 1, the more frames are skipped, at most 10 in a row. The first frame, and the next one after a
    /// change, are always drawn.
    #[arg(long, hide_short_help = true, allow_negative_numbers = true, value_parser = number, value_name = "COSINE", help_heading = "From frame to frame")]
    pub similar: Option<f64>,

    /// Settings that change while it runs: a file with a JSON object in each line, the number of the frame and what changes. A
    /// change for which there is no memory is left out, with a warning.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "From frame to frame")]
    pub changes: Option<PathBuf>,

    /// Write the settings and all changes to a file that --changes reads.
    #[arg(long, hide_short_help = true, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "From frame to frame")]
    pub record: Option<PathBuf>,

    /// Write frames of the input's size rather than the model's.
    #[arg(long, help_heading = "The video")]
    pub original_size: bool,

    /// Drop frames that come while one is drawn, and show the last one again in their place: for a camera. The last line says how
    /// many.
    #[arg(long, help_heading = "The video")]
    pub realtime: bool,

    /// Draw less if a frame takes longer than this: a stream batch, then fewer steps, then smaller frames, by what frames take on
    /// this machine when the video begins.
    #[arg(long, hide_short_help = true, value_parser = number, value_name = "MILLISECONDS", help_heading = "The video")]
    pub deadline: Option<f64>,

    /// The size of an input of raw RGB pixels, 8 bits each.
    #[arg(long, hide_short_help = true, value_name = "WxH", help_heading = "The video")]
    pub input_size: Option<PictureSize>,

    /// The frame rate of an input that has none of its own [default: 25].
    #[arg(long, hide_short_help = true, value_parser = number, value_name = "RATE", help_heading = "The video")]
    pub input_fps: Option<f64>,

    /// The quality of an .mp4: 1 is the smallest file, 100 the best picture [default: 80].
    #[arg(long, hide_short_help = true, value_name = "1-100", value_parser = quality, help_heading = "The video")]
    pub quality: Option<u8>,

    /// Where it runs.
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// What the frames of a row have to do with each other.
#[derive(Args, Debug)]
pub struct RowArgs {
    /// How much of the previous frame to keep, below 1: less flicker, but what moves leaves a trail [default: 0].
    #[arg(long, default_value_t = 0.0, hide_default_value = true, allow_negative_numbers = true, value_parser = number, value_name = "SHARE")]
    pub blend: f64,

    /// How many previous frames self-attention sees, 0 to 4: meant to calm flicker, at the cost of time. Not with --stream-batch
    /// [default: 0].
    #[arg(long, default_value_t = 0, hide_default_value = true, hide_short_help = true, allow_negative_numbers = true, value_parser = whole_number::<usize>, value_name = "FRAMES")]
    pub memory_frames: usize,

    /// Advance several frames at once, each by a step: more frames per second. From a camera each is seen as many frames later as
    /// there are steps after the first; in a file every frame keeps its own time.
    #[arg(long, hide_short_help = true)]
    pub stream_batch: bool,
}

impl RowArgs {
    /// The settings with what was asked for.
    pub fn apply(&self, settings: LiveSettings) -> LiveSettings {
        settings.blend(self.blend).memory_frames(self.memory_frames).stream_batch(self.stream_batch)
    }
}

/// Draws a picture.
#[derive(Args, Debug)]
#[command(after_long_help = IMAGE_EXAMPLES, after_help = "`kinora image --help` has all options, with examples.")]
pub struct ImageArgs {
    /// A picture to begin with, instead of noise.
    #[arg(long, value_name = "PICTURE", value_hint = ValueHint::FilePath)]
    pub from: Option<PathBuf>,

    /// The picture to write, a .png [default: picture.png].
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, default_value = "picture.png", hide_default_value = true)]
    pub output: PathBuf,

    /// What to draw, and with what.
    #[command(flatten)]
    pub draw: DrawArgs,

    /// Where it runs.
    #[command(flatten)]
    pub place: PlaceArgs,

    /// Replace the picture if it exists.
    #[arg(short, long)]
    pub force: bool,

    /// Print one JSON object on standard output at the end: the file and the settings, or the error.
    #[arg(long)]
    pub json: bool,

    /// Print nothing but errors.
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,

    /// Print what is used.
    #[arg(short, long)]
    pub verbose: bool,
}

/// What to draw, and with what.
#[derive(Args, Debug)]
pub struct DrawArgs {
    /// What to draw [default: none].
    #[arg(
        short,
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "TEXT",
        help_heading = "The picture"
    )]
    pub prompt: String,

    /// How far a picture may be from its input: 0 leaves it as it is, 1 leaves nothing of it [default: 0.5].
    #[arg(long, allow_negative_numbers = true, value_parser = number, value_name = "0-1", help_heading = "The picture")]
    pub strength: Option<f64>,

    /// Denoising steps, 1 to 8: more are slower and finer [default: 1].
    #[arg(long, allow_negative_numbers = true, value_parser = at_least_one, value_name = "NUMBER", help_heading = "The picture")]
    pub steps: Option<usize>,

    /// Width and height that the model draws, such as 512x512 [default: the model's own].
    #[arg(long, value_name = "WxH", help_heading = "The picture")]
    pub size: Option<PictureSize>,

    /// What to do with an input of another shape: crop keeps its middle, pad keeps all of it and adds bars, stretch distorts
    /// it [default: crop].
    #[arg(long, default_value_t = Fit::Crop, hide_default_value = true, value_name = "HOW", value_parser = fit(), hide_possible_values = true, help_heading = "The picture")]
    pub fit: Fit,

    /// The same seed gives the same picture; only its lower 32 bits count [default: a random one, which is reported].
    #[arg(long, allow_negative_numbers = true, value_parser = whole_number::<u64>, value_name = "NUMBER", help_heading = "The picture")]
    pub seed: Option<u64>,

    /// The colour behind transparent pixels, and of the bars of --fit pad: white, black or '#rrggbb' [default: black].
    #[arg(long, default_value_t = Colour::BLACK, hide_default_value = true, hide_short_help = true, value_name = "COLOUR", help_heading = "The picture")]
    pub background: Colour,

    /// The timesteps themselves, falling, such as 700,300: instead of --strength and --steps.
    #[arg(long, hide_short_help = true, value_delimiter = ',', value_parser = whole_number::<usize>, value_name = "LIST", conflicts_with_all = ["strength", "steps"], help_heading = "The picture")]
    pub timesteps: Option<Vec<usize>>,

    /// Whether to push the picture away from the negative prompt: none; full, which takes twice the time; initialize, for the newest
    /// frame alone; self, away from its own noise. The last two make it a stream batch [default: none].
    #[arg(long, default_value_t = Guidance::None, hide_default_value = true, hide_short_help = true, value_name = "HOW", value_parser = guidance(), hide_possible_values = true, help_heading = "The picture")]
    pub guidance: Guidance,

    /// How far to push it [default: 1.2].
    #[arg(long, hide_short_help = true, allow_negative_numbers = true, value_parser = number, value_name = "SCALE", help_heading = "The picture")]
    pub guidance_scale: Option<f64>,

    /// What to avoid. It counts only under --guidance full or initialize.
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        hide_short_help = true,
        value_name = "TEXT",
        help_heading = "The picture"
    )]
    pub negative_prompt: String,

    /// A model folder as diffusers saves it, a short name (sd-turbo, sd15, lcm, sdxl-turbo), or a model's name on the Hugging
    /// Face hub, which is downloaded once [default: sd-turbo].
    #[arg(short, long, value_name = "FOLDER|NAME", value_hint = ValueHint::DirPath, value_parser = model_name(), help_heading = "The models")]
    pub model: Option<OsString>,

    /// A tiny autoencoder instead of the model's own, faster and a little coarser: a folder, a short name (taesd, taesdxl) or a
    /// name on the hub [default: taesd without --model, otherwise the model's own].
    #[arg(long, value_name = "FOLDER|NAME", value_hint = ValueHint::DirPath, value_parser = model_name(), help_heading = "The models")]
    pub autoencoder: Option<OsString>,

    /// A LoRA file (.safetensors) and its strength, as in style.safetensors or style.safetensors:0.7. May be given several times.
    /// With `kinora live`, --changes can turn the strength while it runs.
    #[arg(long, value_name = "FILE[:STRENGTH]", value_hint = ValueHint::FilePath, help_heading = "The models")]
    pub lora: Vec<String>,

    /// A ControlNet that was trained on Canny's edges, to keep those of the input: a folder or a name on the hub.
    #[arg(long, hide_short_help = true, value_name = "FOLDER|NAME", value_hint = ValueHint::DirPath, value_parser = model_name(), help_heading = "The models")]
    pub controlnet: Option<OsString>,

    /// How much a ControlNet steers [default: 1].
    #[arg(long, default_value_t = 1.0, hide_default_value = true, hide_short_help = true, allow_negative_numbers = true, value_parser = number, value_name = "SCALE", help_heading = "The models")]
    pub control_scale: f64,
}

/// Where a model runs, and how it stores numbers there.
#[derive(Args, Debug)]
pub struct PlaceArgs {
    /// Where it runs.
    #[command(flatten)]
    pub machine: MachineArgs,

    /// How weights and activations are stored: f32, f16 or bf16; fp8 is f16 but for most products of the UNet. The first time, a
    /// model in fp8 is measured in f16 before it draws, and the result kept as fp8.json beside it [default: f16 on a GPU, f32 on the CPU].
    #[arg(long, hide_short_help = true, value_name = "TYPE", value_parser = precision(), hide_possible_values = true, help_heading = "The machine")]
    pub precision: Option<Precision>,
}

impl DrawArgs {
    /// The settings with what was asked for.
    pub fn apply(&self, mut settings: LiveSettings) -> LiveSettings {
        settings.prompt.clone_from(&self.prompt);
        settings.negative_prompt.clone_from(&self.negative_prompt);
        settings.strength = self.strength.unwrap_or(settings.strength);
        settings.steps = self.steps.unwrap_or(settings.steps);
        settings.timesteps.clone_from(&self.timesteps);
        settings.guidance = self.guidance;
        settings.guidance_scale = self.guidance_scale.unwrap_or(settings.guidance_scale);
        settings.control_scale = self.control_scale;
        settings.seed = self.seed.unwrap_or(settings.seed);
        if let Some(size) = self.size {
            (settings.width, settings.height) = (size.width, size.height);
        }
        (settings.fit, settings.background) = (self.fit, self.background);
        settings
    }
}

/// The ways to guide, for the help and the completions, read as the library reads them.
pub fn guidance() -> impl TypedValueParser<Value = Guidance> {
    PossibleValuesParser::new(Guidance::ALL.map(Guidance::name)).try_map(|name| name.parse::<Guidance>())
}
