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
      Draws every frame anew. The sound is passed on.

  ffmpeg -f v4l2 -i /dev/video0 -f yuv4mpegpipe - |
      kinora live - -o - --realtime --prompt \"an oil painting\" | ffplay -
      A camera. The newest frame wins: those that come while one is drawn are
      dropped.

  kinora live in.mp4 --prompt \"a snowy street\" --strength 0.7 --steps 2 \\
      --blend 0.4 --original-size
      Further from the input, calmer, and as large as the input.

  kinora live in.mp4 --prompt day --changes changes.jsonl --record log.jsonl
      Changes on the way, a line each, such as
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
      LoRAs that are named so take more memory: the merged weights lie beside
      the model's own. What they change of text encoders keeps the first
      strength, which is said; one that changes nothing else is refused.

Ctrl-C ends the video: what was drawn is a whole file. Frames of another shape
are cropped; with --original-size what was cropped stays as it was.

Exit codes: 0 done, 1 failed, 2 the command line is wrong, 130 interrupted
before the first frame.";

const IMAGE_EXAMPLES: &str = "\
Examples:
  kinora image --prompt \"a lighthouse at dusk\" -o lighthouse.png
  kinora image --prompt \"the same as a sketch\" --from photo.png --strength 0.5 \\
      -o sketch.png
      From a picture instead of noise.

Exit codes: 0 done, 1 failed, 2 the command line is wrong, 130 interrupted.";

/// Draws a video anew, frame by frame.
#[derive(Args, Debug)]
#[command(after_long_help = LIVE_EXAMPLES, after_help = "`kinora live --help` says more, with examples.")]
pub struct LiveArgs {
    /// The video: MP4 (H.264), GIF, Y4M, a picture, numbered pictures (in-%04d.png) or a folder of them; - for Y4M on
    /// standard input.
    #[arg(value_name = "VIDEO", value_hint = ValueHint::FilePath)]
    pub input: PathBuf,

    /// The video to write: .mp4, .gif, .y4m, .rgb, or .png for numbered pictures; - for Y4M on standard output [default:
    /// in-live.mp4 for in.mp4, in the current folder; video-live.mp4 for standard input].
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,

    /// What to draw, and with what.
    #[command(flatten)]
    pub draw: DrawArgs,

    /// What frames have to do with each other.
    #[command(flatten)]
    pub row: RowArgs,

    /// Over how many frames a new prompt takes the place of the old one.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true, value_parser = whole_number::<usize>, value_name = "FRAMES", help_heading = "The picture")]
    pub glide: usize,

    /// Write frames of the input's size rather than the model's.
    #[arg(long, help_heading = "The video")]
    pub original_size: bool,

    /// Show the last frame again, instead of drawing one, if the input has hardly changed: the cosine from which on, such as
    /// 0.98.
    #[arg(long, allow_negative_numbers = true, value_parser = number, value_name = "COSINE", help_heading = "The video")]
    pub similar: Option<f64>,

    /// Drop frames that come while one is drawn, and show the last one again in their place: for a camera.
    #[arg(long, help_heading = "The video")]
    pub realtime: bool,

    /// Draw less if a frame takes longer than this: a stream batch, then fewer steps, then smaller frames, by what frames take on
    /// this machine when the video begins.
    #[arg(long, value_parser = number, value_name = "MILLISECONDS", help_heading = "The video")]
    pub deadline: Option<f64>,

    /// Changes on the way: a file with a JSON object in each line, the number of the frame and the settings that change. One for which
    /// there is no memory is left out, with a warning.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "The video")]
    pub changes: Option<PathBuf>,

    /// Write the settings and all changes to a file that --changes reads.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "The video")]
    pub record: Option<PathBuf>,

    /// The size of an input of raw RGB pixels, 8 bits each.
    #[arg(long, value_name = "WxH", help_heading = "The video")]
    pub input_size: Option<PictureSize>,

    /// The frame rate of an input that has none of its own [default: 25].
    #[arg(long, value_parser = number, value_name = "RATE", help_heading = "The video")]
    pub input_fps: Option<f64>,

    /// The quality of an .mp4: 1 is the smallest file, 100 the best picture [default: 80].
    #[arg(long, value_name = "1-100", value_parser = quality, help_heading = "The video")]
    pub quality: Option<u8>,

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
}

/// What the frames of a row have to do with each other.
#[derive(Args, Debug)]
pub struct RowArgs {
    /// How much of the frame before to keep, below 1: less flicker, but what moves leaves a trail.
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true, value_parser = number, value_name = "SHARE", help_heading = "The picture")]
    pub blend: f64,

    /// How many frames before self-attention remembers, 0 to 4: meant to calm flicker, at the cost of time. Not with
    /// --stream-batch.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true, value_parser = whole_number::<usize>, value_name = "FRAMES", help_heading = "The picture")]
    pub memory_frames: usize,

    /// Advance several frames at once, each by a step: more frames per second. From a camera each is seen as many frames later as
    /// there are steps after the first; in a file every frame keeps its own time.
    #[arg(long, help_heading = "The picture")]
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
#[command(after_long_help = IMAGE_EXAMPLES, after_help = "`kinora image --help` says more, with examples.")]
pub struct ImageArgs {
    /// What to draw, and with what.
    #[command(flatten)]
    pub draw: DrawArgs,

    /// A picture to begin with, instead of noise.
    #[arg(long, value_name = "PICTURE", value_hint = ValueHint::FilePath)]
    pub from: Option<PathBuf>,

    /// The picture to write, a .png.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, default_value = "picture.png")]
    pub output: PathBuf,

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
    /// What to draw.
    #[arg(short, long, default_value = "", value_name = "TEXT", help_heading = "The picture")]
    pub prompt: String,

    /// What to avoid. It counts only under --guidance full or initialize.
    #[arg(long, default_value = "", value_name = "TEXT", help_heading = "The picture")]
    pub negative_prompt: String,

    /// How far a picture may be from its input: 0 leaves it as it is, 1 leaves nothing of it [default: 0.5].
    #[arg(long, allow_negative_numbers = true, value_parser = number, value_name = "0-1", help_heading = "The picture")]
    pub strength: Option<f64>,

    /// Denoising steps, 1 to 8 [default: 1].
    #[arg(long, allow_negative_numbers = true, value_parser = at_least_one, value_name = "NUMBER", help_heading = "The picture")]
    pub steps: Option<usize>,

    /// The timesteps themselves, falling, such as 700,300: instead of --strength and --steps.
    #[arg(long, value_delimiter = ',', value_parser = whole_number::<usize>, value_name = "LIST", conflicts_with_all = ["strength", "steps"], help_heading = "The picture")]
    pub timesteps: Option<Vec<usize>>,

    /// Whether to push the picture away from the negative prompt: none; full, which takes twice the time; in a stream batch also
    /// initialize, which does so for the newest frame alone, and self, which pushes it away from its own noise.
    #[arg(long, default_value_t = Guidance::None, value_name = "HOW", value_parser = guidance(), hide_possible_values = true, help_heading = "The picture")]
    pub guidance: Guidance,

    /// How far to push it [default: 1.2].
    #[arg(long, allow_negative_numbers = true, value_parser = number, value_name = "SCALE", help_heading = "The picture")]
    pub guidance_scale: Option<f64>,

    /// How much a ControlNet steers.
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true, value_parser = number, value_name = "SCALE", help_heading = "The picture")]
    pub control_scale: f64,

    /// The same seed gives the same picture; only its lower 32 bits count [default: a random one, which is reported].
    #[arg(long, allow_negative_numbers = true, value_parser = whole_number::<u64>, value_name = "NUMBER", help_heading = "The picture")]
    pub seed: Option<u64>,

    /// Width and height that the model draws, such as 512x512 [default: the model's own].
    #[arg(long, value_name = "WxH", help_heading = "The picture")]
    pub size: Option<PictureSize>,

    /// What to do with an input of another shape: crop keeps its middle, pad keeps all of it and adds bars, stretch distorts
    /// it.
    #[arg(long, default_value_t = Fit::Crop, value_name = "HOW", value_parser = fit(), hide_possible_values = true, help_heading = "The picture")]
    pub fit: Fit,

    /// The colour behind transparent pixels, and of the bars of --fit pad: white, black or '#rrggbb'.
    #[arg(long, default_value_t = Colour::BLACK, value_name = "COLOUR", help_heading = "The picture")]
    pub background: Colour,

    /// A model folder as diffusers saves it, a short name (sd-turbo, sd15, lcm, sdxl-turbo), or a model's name on the Hugging
    /// Face hub, which is downloaded once [default: sd-turbo].
    #[arg(short, long, value_name = "FOLDER|NAME", value_hint = ValueHint::DirPath, value_parser = model_name())]
    pub model: Option<OsString>,

    /// A tiny autoencoder instead of the model's own, faster and a little coarser: a folder, a short name (taesd, taesdxl) or a
    /// name on the hub [default: taesd without --model, otherwise the model's own].
    #[arg(long, value_name = "FOLDER|NAME", value_hint = ValueHint::DirPath, value_parser = model_name())]
    pub autoencoder: Option<OsString>,

    /// A ControlNet that was trained on Canny's edges, to keep those of the input: a folder or a name on the hub.
    #[arg(long, value_name = "FOLDER|NAME", value_hint = ValueHint::DirPath, value_parser = model_name())]
    pub controlnet: Option<OsString>,

    /// A LoRA file (.safetensors) and its strength, as in style.safetensors or style.safetensors:0.7. May be given several times.
    /// With `kinora live`, --changes can turn the strength on the way.
    #[arg(long, value_name = "FILE[:STRENGTH]", value_hint = ValueHint::FilePath)]
    pub lora: Vec<String>,

    /// How weights and activations are stored [default: f16 on a GPU, f32 on the CPU].
    #[arg(long, value_name = "TYPE", value_parser = precision(), help_heading = "The machine")]
    pub precision: Option<Precision>,

    /// Where it runs.
    #[command(flatten)]
    pub machine: MachineArgs,
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
