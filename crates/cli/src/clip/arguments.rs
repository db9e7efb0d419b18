//! The options of every command that makes a clip.

use std::ffi::OsString;

use clap::{
    Args, ValueHint,
    builder::{PossibleValuesParser, TypedValueParser},
};
use kinora::{
    device::Device,
    image_to_video::{ClipDefaults, Precision, Settings},
    photo::{Colour, Fit},
    runtime::{KernelSet, Tuning},
};
use kinora_models::schedulers::SchedulerKind;

use crate::quantities::{Bytes, PictureSize, at_least_one, model_name, number, whole_number};

/// A model, and the clip to make with it.
#[derive(Args, Debug)]
pub struct RequestArgs {
    /// A model folder as diffusers saves it, a short name (svd, svd-xt), or a model's name on the Hugging Face hub
    /// (owner/name or owner/name@revision), which is downloaded once [default: the small model in the box].
    #[arg(short, long, value_name = "FOLDER|NAME", env = "KINORA_MODEL", value_hint = ValueHint::DirPath, value_parser = model_name())]
    pub model: Option<OsString>,

    /// The shape of the clip.
    #[command(flatten)]
    pub clip: ClipArgs,

    /// What to do with a photo of another shape: crop keeps its middle, pad keeps all of it and adds bars, stretch
    /// distorts it.
    #[arg(long, default_value_t = Fit::Crop, value_name = "HOW", value_parser = fit(), hide_possible_values = true, help_heading = "The clip")]
    pub fit: Fit,

    /// The colour behind a transparent photo, and of the bars of --fit pad: white, black or '#rrggbb' [default: white
    /// for a transparent photo, otherwise black].
    #[arg(long, value_name = "COLOUR", help_heading = "The clip")]
    pub background: Option<Colour>,

    /// How much the clip moves; models are trained with 1 to 255 [default: the model's own, or 127].
    #[arg(long, allow_negative_numbers = true, value_parser = whole_number::<usize>, value_name = "NUMBER", help_heading = "The clip")]
    pub motion: Option<usize>,

    /// How much noise to add to the photo first: more noise lets the clip move further away from it [default: the
    /// model's own, or 0.02].
    #[arg(long, allow_negative_numbers = true, value_parser = number, value_name = "AMOUNT", help_heading = "The clip")]
    pub noise_aug: Option<f64>,

    /// How closely the first frame follows the photo [default: the model's own, or 1].
    #[arg(long, allow_negative_numbers = true, value_parser = number, value_name = "SCALE", help_heading = "The clip")]
    pub min_guidance: Option<f64>,

    /// How closely the last frame follows the photo; frames in between are interpolated [default: the model's own, or
    /// 3].
    #[arg(long, allow_negative_numbers = true, value_parser = number, value_name = "SCALE", help_heading = "The clip")]
    pub max_guidance: Option<f64>,

    /// The frame rate that the model is told, in frames per second: it shapes the motion [default: the model's own, or
    /// 7].
    #[arg(long, alias = "fps", allow_negative_numbers = true, value_parser = at_least_one, value_name = "RATE", help_heading = "The clip")]
    pub motion_fps: Option<usize>,

    /// The same seed gives the same clip; only its lower 32 bits count [default: a random one, which is reported].
    #[arg(long, allow_negative_numbers = true, value_parser = whole_number::<u64>, value_name = "NUMBER", help_heading = "The clip")]
    pub seed: Option<u64>,

    /// Denoising steps: fewer are faster and coarser [default: the model's own, or 25].
    #[arg(long, allow_negative_numbers = true, value_parser = at_least_one, value_name = "NUMBER", help_heading = "The clip")]
    pub steps: Option<usize>,

    /// The sampling method [default: the model's own].
    #[arg(long, value_name = "NAME", value_parser = scheduler(), help_heading = "The clip")]
    pub scheduler: Option<SchedulerKind>,

    /// The number type of weights and activations: f16 and bf16 halve the memory; fp8 is f16 but for most products of the denoising
    /// network. The first clip of a model in fp8 takes longer: its activations are measured in f16 first, and kept as fp8.json
    /// beside the model [default: f16 on a GPU, f32 on the CPU].
    #[arg(long, value_name = "TYPE", value_parser = precision(), help_heading = "The machine")]
    pub precision: Option<Precision>,

    /// Where it runs.
    #[command(flatten)]
    pub machine: MachineArgs,
}

/// Where a model runs.
#[derive(Args, Debug)]
pub struct MachineArgs {
    /// Where to run: auto (a GPU if one works, otherwise the CPU), cpu, cuda, or cuda:N for GPU number N.
    #[arg(long, default_value_t = Device::Auto, value_name = "DEVICE", help_heading = "The machine")]
    pub device: Device,

    /// GPU kernels: fused, or baseline for the plain ones that the fused ones are compared with.
    #[arg(long, default_value_t = KernelSet::Fused, hide_short_help = true, value_name = "NAME", help_heading = "The machine")]
    pub kernels: KernelSet,

    /// How to choose GPU kernels: auto (from earlier measurements), off (by shape alone), or measure now, once, which
    /// takes minutes, and keep the results: all, ours (no vendor libraries), vendor.
    #[arg(long, default_value_t = Tuning::Auto, hide_short_help = true, value_name = "NAME", help_heading = "The machine")]
    pub tuning: Tuning,

    /// Refuse to start if more memory is needed than this: 8GB, 7.5GiB [default: what the device has available].
    #[arg(long, visible_alias = "memory", value_name = "BYTES", help_heading = "The machine")]
    pub memory_limit: Option<Bytes>,
}

/// What determines the memory and FLOPs of a clip; `kinora info` takes it as well.
#[derive(Args, Debug)]
pub struct ClipArgs {
    /// Number of frames [default: the model's own].
    #[arg(long, allow_negative_numbers = true, value_parser = at_least_one, value_name = "NUMBER", help_heading = "The clip")]
    pub frames: Option<usize>,

    /// Width and height, multiples of 64, such as 1024x576 [default: the model's own].
    #[arg(long, value_name = "WxH", help_heading = "The clip")]
    pub size: Option<PictureSize>,

    /// Frames to decode at a time: fewer need less memory, and change the picture a little [default: all, or as many as fit
    /// the memory].
    #[arg(long, allow_negative_numbers = true, value_parser = at_least_one, value_name = "FRAMES", help_heading = "The clip")]
    pub decode_chunk: Option<usize>,

    /// Compute the deep blocks of the network in every Nth step alone, and reuse what they gave in between: 3 takes about half the
    /// time, and changes the picture a little [default: 1, which computes everything in every step].
    #[arg(long, allow_negative_numbers = true, value_parser = at_least_one, value_name = "N", help_heading = "The clip")]
    pub cache: Option<usize>,

    /// The outer blocks, which every step computes even so: with more of them --cache is slower and changes less [default: 2].
    #[arg(long, allow_negative_numbers = true, value_parser = at_least_one, value_name = "NUMBER", help_heading = "The clip")]
    pub cache_blocks: Option<usize>,
}

impl ClipArgs {
    /// The settings with what was asked for.
    pub fn apply(&self, settings: &mut Settings) {
        let (width, height) = (self.size.map(|size| size.width), self.size.map(|size| size.height));
        ClipDefaults { frames: self.frames, width, height, ..ClipDefaults::default() }.apply(settings);
        settings.decode_chunk = self.decode_chunk.unwrap_or(settings.decode_chunk);
        settings.cache = self.cache.unwrap_or(settings.cache);
        settings.cache_blocks = self.cache_blocks.unwrap_or(settings.cache_blocks);
    }
}

impl RequestArgs {
    /// The settings with what was asked for.
    pub fn apply(&self, settings: &mut Settings) {
        self.clip.apply(settings);
        let asked = ClipDefaults {
            steps: self.steps,
            fps: self.motion_fps,
            motion_bucket: self.motion,
            noise_augmentation: self.noise_aug,
            min_guidance: self.min_guidance,
            max_guidance: self.max_guidance,
            ..ClipDefaults::default()
        };
        asked.apply(settings);
        settings.seed = self.seed.unwrap_or(settings.seed);
        settings.scheduler = self.scheduler;
        settings.fit = self.fit;
    }
}

/// The short names of the schedulers, for the help and the completions, read as the library reads them.
pub fn scheduler() -> impl TypedValueParser<Value = SchedulerKind> {
    PossibleValuesParser::new(SchedulerKind::ALL.map(SchedulerKind::name))
        .try_map(|name| name.parse::<SchedulerKind>())
}

/// The same for the ways to fit a photo.
pub fn fit() -> impl TypedValueParser<Value = Fit> {
    PossibleValuesParser::new(Fit::ALL.map(Fit::name)).try_map(|name| name.parse::<Fit>())
}

/// The same for precisions.
pub fn precision() -> impl TypedValueParser<Value = Precision> {
    precisions(Precision::ALL)
}

/// The same without fp8, which peers do not multiply in.
pub fn unmeasured_precision() -> impl TypedValueParser<Value = Precision> {
    precisions(Precision::ALL.into_iter().filter(|precision| *precision != Precision::Fp8))
}

fn precisions(known: impl IntoIterator<Item = Precision>) -> impl TypedValueParser<Value = Precision> {
    let names = known.into_iter().map(Precision::name);
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Precision>())
}

/// The quality of an .mp4.
pub fn quality(text: &str) -> Result<u8, String> {
    let quality = text.parse().ok().filter(|quality| (1..=100).contains(quality));
    quality.ok_or_else(|| "this must be a whole number from 1 to 100".to_owned())
}
